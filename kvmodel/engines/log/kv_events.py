"""KV events of vLLM and SGLang: what an engine publishes of its cache index, replayed.

They name hashes of blocks, and neither a request nor a page; nothing says when a block is shared or freed. So they can show
that the index is wrong, and nothing about who owns what: every other property is undecided, and said to be.

Two forms are read. JSON Lines: a batch a line, as msgpack decoders print it; ``{"seq": n, "batch": ...}`` where the sequence number
is known. Or binary: for each batch 8 bytes of sequence number and 4 bytes of length, both big-endian, and the batch in msgpack,
which is what the engines' ZMQ frames hold. A batch is ``[ts, events, rank]`` or a map; an event is an array that begins with its
type, or a map with ``type``.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, BinaryIO

import msgspec

from kvmodel.engines.log.reader import LogError
from kvmodel.engines.log.redact import Redaction
from kvmodel.errors import printable
from kvmodel.language.system import PropertyKind, TransitionSystem
from kvmodel.verdict import Coverage, PropertyResult, Verdict, overall

__all__ = ["INDEX", "KvResult", "REMOVED", "check_kv_events"]

INDEX = "index_matches_content"
REMOVED = "removed_was_stored"
"""What can be asked beside the spec's own property: a block that is removed from the index was in it."""
LARGEST_BATCH = 64 * 1024 * 1024
BAD = (msgspec.DecodeError, msgspec.ValidationError, RecursionError, UnicodeError, ValueError)
STORED = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium")
"""The fields of an event that is an array, in their order."""


@dataclass(frozen=True, slots=True)
class KvFinding:
    """Something that is wrong with the index, in the batch at `place` (a line, or the number of a batch)."""

    subject: str
    place: int
    headline: str


@dataclass(frozen=True)
class KvResult:
    """What KV events say. `error` is what could not be read; everything else is then about what came before."""

    verdict: Verdict
    properties: tuple[PropertyResult, ...]
    findings: tuple[KvFinding, ...]
    batches: int
    stored: int
    removed: int
    cleared: int
    indexed: int
    remarks: tuple[str, ...]
    error: LogError | None = None
    seconds: float = field(default=0.0, compare=False)


def check_kv_events(file: BinaryIO, system: TransitionSystem, redaction: Redaction) -> KvResult:
    """Replay the KV events in `file` (binary). `system` has the properties of which the events tell nothing."""
    began = time.monotonic()
    index = _Index(redaction)
    error: LogError | None = None
    try:
        for place, seq, batch in _batches(file):
            index.take(place, seq, batch)
    except LogError as problem:
        error = LogError(redaction.text(problem.message), problem.line)
    return index.result(system, error, time.monotonic() - began)


def _batches(file: BinaryIO) -> Iterator[tuple[int, int | None, Any]]:
    """Each batch with its place and its sequence number, if it has one."""
    first = file.read(1)
    if not first:
        raise LogError("the file is empty", 1)
    yield from _lines(file, first) if first in b"{[ \t\r\n" else _frames(file, first)


def _lines(file: BinaryIO, start: bytes) -> Iterator[tuple[int, int | None, Any]]:
    number = 0
    while line := file.readline(LARGEST_BATCH):
        line, start = start + line, b""
        number += 1
        if len(line) >= LARGEST_BATCH:
            raise LogError("the line is too long", number)
        try:
            batch = msgspec.json.decode(line)
        except BAD as problem:
            raise LogError(f"not JSON: {_told(problem)}", number) from None
        seq = None
        if isinstance(batch, dict) and "batch" in batch:
            seq, batch = batch.get("seq"), batch["batch"]
            if seq is not None and (not isinstance(seq, int) or isinstance(seq, bool)):
                raise LogError("'seq' is not a number", number)
        yield number, seq, batch


def _frames(file: BinaryIO, start: bytes) -> Iterator[tuple[int, int | None, Any]]:
    number = 0
    while head := start + file.read(12 - len(start)):
        start = b""
        number += 1
        if len(head) < 12:
            raise LogError("the file ends within a batch", number)
        seq, length = struct.unpack(">QI", head)
        if length > LARGEST_BATCH:
            raise LogError(f"a batch of {length:,} bytes cannot be meant; is this a dump of KV events?", number)
        body = file.read(length)
        if len(body) < length:
            raise LogError("the file ends within a batch", number)
        try:
            batch = msgspec.msgpack.decode(body)
        except BAD as problem:
            raise LogError(f"not msgpack: {_told(problem)}", number) from None
        yield number, seq, batch


def _told(problem: Exception) -> str:
    return "it is nested too deeply" if isinstance(problem, RecursionError) else printable(str(problem), 200)


class _Index:
    """The cache index as the events describe it: for each block that is in it how often, and a digest of what it stands for."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._known: dict[tuple[Any, ...], tuple[int, bytes]] = {}
        self._findings: dict[str, KvFinding] = {}
        self._unsure = 0
        self._whole = False
        self._cleared_ranks: set[Any] = set()
        self._last_seq: int | None = None
        self._gaps = 0
        self._orphans = 0
        self._batches = self._stored = self._removed = self._cleared = 0

    def take(self, place: int, seq: int | None, batch: Any) -> None:
        """Take a batch. Raises LogError for one that is none."""
        if seq is not None:
            self._in_order(place, seq)
        rank, events = _parts(place, batch)
        for event in events:
            kind, fields = _event(place, event)
            if kind == "BlockStored":
                self._store(place, rank, fields)
            elif kind == "BlockRemoved":
                self._remove(place, rank, fields)
            elif kind == "AllBlocksCleared":
                self._clear(rank)
            else:
                raise LogError(f"'{printable(str(kind), 60)}' is not a KV event", place)
        self._batches += 1

    def _in_order(self, place: int, seq: int) -> None:
        if self._last_seq is None:
            self._whole = seq == 0
        elif seq <= self._last_seq:
            raise LogError(f"batch {seq} comes after batch {self._last_seq}: they are not in their order", place)
        elif seq != self._last_seq + 1:
            # What was published between is lost; what is in the index is not known any more.
            self._gaps += 1
            self._whole = False
            self._known.clear()
            self._cleared_ranks.clear()
        self._last_seq = seq

    def _store(self, place: int, rank: Any, fields: Mapping[str, Any]) -> None:
        hashes, tokens = _list(place, fields, "block_hashes"), _list(place, fields, "token_ids")
        size = fields.get("block_size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 1 or len(tokens) > size * len(hashes):
            raise LogError("the block size does not fit the tokens", place)
        medium = _hashable(place, fields.get("medium"))
        parent = _hashable(place, fields.get("parent_block_hash"))
        extra = fields.get("extra_keys")
        for number, block in enumerate(hashes):
            block = _hashable(place, block)
            keys = extra[number] if isinstance(extra, list) and len(extra) == len(hashes) else extra
            stands_for = _digest(parent, tokens[number * size: (number + 1) * size], fields.get("lora_id"), fields.get("lora_name"), keys)
            key = (rank, medium, block)
            count, known = self._known.get(key, (0, stands_for))
            if known != stands_for:
                self._find(INDEX, place, f"block {self._shown(block)} was stored for other tokens, another parent or other keys before")
            elif parent is not None and (rank, medium, parent) not in self._known:
                self._orphans += 1
            self._known[key] = (count + 1, stands_for)
            self._stored += 1
            parent = block

    def _remove(self, place: int, rank: Any, fields: Mapping[str, Any]) -> None:
        medium = _hashable(place, fields.get("medium"))
        for block in _list(place, fields, "block_hashes"):
            key = (rank, medium, _hashable(place, block))
            count, known = self._known.get(key, (0, b""))
            self._removed += 1
            if count > 1:
                self._known[key] = (count - 1, known)
            elif count:
                del self._known[key]
            elif self._whole or rank in self._cleared_ranks:
                self._find(REMOVED, place, f"block {self._shown(block)} is removed, and was not in the index")
            else:
                self._unsure += 1

    def _clear(self, rank: Any) -> None:
        self._cleared += 1
        self._cleared_ranks.add(rank)
        for key in [key for key in self._known if key[0] == rank]:
            del self._known[key]

    def _find(self, subject: str, place: int, headline: str) -> None:
        self._findings.setdefault(subject, KvFinding(subject, place, headline))

    def _shown(self, block: Any) -> str:
        return self._redaction.name(block.hex() if isinstance(block, bytes) else str(block))

    def result(self, system: TransitionSystem, error: LogError | None, seconds: float) -> KvResult:
        """The verdicts."""
        coverage = Coverage((), self._batches, 1)
        stopped = f"nothing from {error.line} on was read" if error is not None else ""
        if not self._stored and not self._removed:
            stopped = stopped or "no block was stored or removed: nothing was checked"

        def entry(name: str, unsure: str) -> PropertyResult:
            if name in self._findings:
                return PropertyResult(name, Verdict.VIOLATED, coverage)
            reason = unsure or stopped
            return PropertyResult(name, Verdict.UNDECIDED if reason else Verdict.HOLDS, coverage, None, reason)

        unsure = f"{self._unsure:,} removed blocks may have been stored before the file begins, or in a gap" if self._unsure else ""
        properties = [
            entry(INDEX, f"{self._gaps:,} gaps: what was stored there is not known" if self._gaps else ""),
            entry(REMOVED, unsure),
        ]
        for candidate in system.properties:
            if candidate.kind is PropertyKind.INVARIANT and candidate.name != INDEX:
                reason = "KV events name no request and no page, and tell of no sharing and no freeing: ownership cannot be replayed"
                properties.append(PropertyResult(candidate.name, Verdict.UNDECIDED, coverage, None, reason))
        remarks = []
        if self._gaps:
            remarks.append(f"{self._gaps:,} gaps in the sequence: the replay began again after each")
        if self._orphans:
            remarks.append(f"{self._orphans:,} blocks were stored under a parent that was not in the index (it may have been evicted)")
        if self._last_seq is None:
            remarks.append("no sequence numbers: a lost batch would not be noticed")
        return KvResult(
            overall(tuple(properties)), tuple(properties), tuple(self._findings.values()), self._batches, self._stored, self._removed,
            self._cleared, len(self._known), tuple(remarks), error, seconds,
        )  # fmt: skip


def _parts(place: int, batch: Any) -> tuple[Any, list[Any]]:
    """The rank of the engine that published a batch, and its events."""
    rank: Any = None
    if isinstance(batch, dict):
        events = batch.get("events")
        rank = batch.get("data_parallel_rank", batch.get("attn_dp_rank"))
    elif isinstance(batch, list) and len(batch) >= 2:
        events, rank = batch[1], batch[2] if len(batch) > 2 else None
    else:
        raise LogError("not a batch of KV events", place)
    if not isinstance(events, list) or not (rank is None or isinstance(rank, int)):
        raise LogError("not a batch of KV events", place)
    return rank, events


def _event(place: int, event: Any) -> tuple[Any, Mapping[str, Any]]:
    """The type of an event, and its fields by name."""
    if isinstance(event, dict):
        return event.get("type"), event
    if isinstance(event, list) and event:
        kind, *values = event
        names = ("block_hashes", "medium") if kind == "BlockRemoved" else STORED
        return kind, dict(zip(names, values, strict=False))
    raise LogError("an event is an array or a map", place)


def _list(place: int, fields: Mapping[str, Any], name: str) -> list[Any]:
    found = fields.get(name)
    if not isinstance(found, list):
        raise LogError(f"'{name}' is not a list", place)
    return found


def _hashable(place: int, value: Any) -> Any:
    if value is None or isinstance(value, int | str | bytes):
        return value
    raise LogError("a hash or a medium is a number, a string or bytes", place)


def _digest(*parts: object) -> bytes:
    """A digest of what a block stands for: the tokens and salts themselves are not kept."""
    return blake2b(msgspec.msgpack.encode(parts), digest_size=16).digest()
