"""What is known of a node of an engine, and where it is written.

A file may say one thing several times: every rank prints its pool, a draft model prints one too, a server may have been started
again. Facts are put together so that nobody's line can make a deployment look safer: the smallest pool and the largest context
count, and it is said that the lines differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

__all__ = ["ROLES", "Fact", "Found", "Kind", "Node", "Role", "Source", "gather"]

V = TypeVar("V", int, str)
Role = Literal["prefill", "decode", ""]
ROLES: tuple[Role, ...] = ("prefill", "decode")
Kind = Literal[
    "engine", "version", "role", "context", "fitted_from", "pool", "allocated", "blocks", "page", "concurrency", "room", "door",
    "truncates", "data_parallel",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Source:
    """A place: a file and a line that counts from 1, or an option of the command line (line 0)."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Fact(Generic[V]):
    """A value, and where it is written."""

    value: V
    source: Source


@dataclass(frozen=True, slots=True)
class Found:
    """One fact that a reader found. Numbers are tokens, but for `blocks`, `page` (tokens of a page), `concurrency` (hundredths),
    `truncates` (0 or 1) and `data_parallel` (engines that the number of blocks was summed over)."""

    kind: Kind
    value: int | str
    source: Source


@dataclass(frozen=True, slots=True)
class Node:
    """What is known of one node.

    `context`: the longest prompt that the front end lets through, in tokens. `pool`: tokens of the KV pool. `blocks`: pages of the pool.
    `page`: tokens of a page. `concurrency`: how many requests of full length the engine says it has room for, in hundredths. `room`:
    the longest context for which there is room, from an engine that refused to start. `door`: the longest prompt that the
    engine says it serves. `wider`: the context is that of another node, which gets the same requests. `notes` are sentences for people.
    """

    name: str
    role: Role = ""
    engine: Fact[str] | None = None
    version: Fact[str] | None = None
    context: Fact[int] | None = None
    pool: Fact[int] | None = None
    blocks: Fact[int] | None = None
    page: Fact[int] | None = None
    concurrency: Fact[int] | None = None
    room: Fact[int] | None = None
    door: Fact[int] | None = None
    truncates: Fact[int] | None = None
    wider: bool = False
    notes: tuple[str, ...] = ()

    @property
    def release(self) -> str:
        """``sglang 0.5.16``, or as much of it as is known."""
        return " ".join(fact.value for fact in (self.engine, self.version) if fact is not None)


def gather(name: str, found: Sequence[Found], role: Role = "", notes: Iterable[str] = ()) -> Node:
    """The facts of one node from all that its file says; `role` is what the user says it is."""
    told = list(notes)
    contexts = _numbers(found, "context", told, "context lengths")
    fitted = {entry.value for entry in found if entry.kind == "fitted_from"}
    lower = [fact for fact in contexts if fact.value not in fitted]
    pools = _numbers(found, "pool", told, "pool sizes") or _numbers(found, "allocated", told, "allocated pools")
    blocks = _smallest(_numbers(found, "blocks", told, "numbers of blocks"))
    parallel = _largest(_numbers(found, "data_parallel", [], ""))
    if blocks is not None and parallel is not None and parallel.value > 1:
        told.append(f"{blocks.source}: {blocks.value:,} blocks are the sum over {parallel.value} data-parallel engines")
        blocks = Fact(blocks.value // parallel.value, blocks.source)
    written = _word(found, "role", told)
    if role and written is not None and written.value != role:
        told.append(f"{written.source} says that this is a {written.value} node; it was given as {role}")
    return Node(
        name,
        role or next((known for known in ROLES if written is not None and written.value == known), ""),
        _word(found, "engine", told),
        _word(found, "version", told),
        _largest(lower or contexts),
        _smallest(pools),
        blocks,
        _largest(_numbers(found, "page", told, "page sizes")),
        _smallest(_numbers(found, "concurrency", told, "concurrencies (in hundredths)")),
        _smallest(_numbers(found, "room", told, "estimates of what fits")),
        _smallest(_numbers(found, "door", told, "limits of the door")),
        _largest(_numbers(found, "truncates", [], "")),
        notes=tuple(told),
    )


def _numbers(found: Sequence[Found], kind: Kind, notes: list[str], plural: str) -> list[Fact[int]]:
    least = 0 if kind in ("pool", "allocated", "blocks", "concurrency", "room", "truncates") else 1
    facts = [Fact(entry.value, entry.source) for entry in found if entry.kind == kind and isinstance(entry.value, int)]
    for fact in facts:
        if fact.value < least:
            notes.append(f"{fact.source}: {fact.value} cannot be meant, and is not used")
    facts = [fact for fact in facts if fact.value >= least]
    low, high = _smallest(facts), _largest(facts)
    if plural and low is not None and high is not None and low.value != high.value:
        notes.append(f"{plural} differ: {low.value:,} ({low.source}) and {high.value:,} ({high.source}); the worse one counts")
    return facts


def _smallest(facts: Sequence[Fact[int]]) -> Fact[int] | None:
    return min(facts, key=lambda fact: fact.value, default=None)


def _largest(facts: Sequence[Fact[int]]) -> Fact[int] | None:
    return max(facts, key=lambda fact: fact.value, default=None)


def _word(found: Sequence[Found], kind: Kind, notes: list[str]) -> Fact[str] | None:
    """The fact, unless the file contradicts itself."""
    facts = [Fact(entry.value, entry.source) for entry in found if entry.kind == kind and isinstance(entry.value, str)]
    if len({fact.value for fact in facts}) > 1:
        notes.append(f"{facts[0].source} says {facts[0].value}, another line says otherwise: the {kind} counts as unknown")
        return None
    return facts[0] if facts else None
