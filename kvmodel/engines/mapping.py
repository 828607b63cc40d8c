"""From an engine's snapshot to a state of a spec, so that the spec's own properties are evaluated on a real engine.

The spec is `cached` (specs/cached.py). What an engine can tell comes from its snapshot; what it cannot (whose data is in a
page, what is in flight) from the machine's shadow memory; `SOURCES` says which is which. What an adapter leaves out is
unknown, and a property that needs it is undecided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kvmodel.engines.adapter import Pages, Tokens, Transfer, TransferKind, Work
from kvmodel.engines.shadow import Place, Prefix, Shadow, Written
from kvmodel.engines.snapshot import PoolSnapshot, Snapshot

__all__ = ["SOURCES", "Facts", "Read", "Requests", "map_snapshot"]

ENGINE = "the engine"
SHADOW = "shadow memory"
MACHINE = "operations that the machine has in flight"
SUBMITTED = "the requests as submitted"

SOURCES: Mapping[str, str] = {
    "free": ENGINE,
    "entries": ENGINE,
    "holds": ENGINE,
    "twice": ENGINE,
    "detached": ENGINE,
    "quarantined": ENGINE,
    "references": ENGINE,
    "key": ENGINE,
    "known": ENGINE,
    "null": ENGINE,
    "content": SHADOW,
    "data": SHADOW,
    "written": SHADOW,
    "reading": MACHINE,
    "writing": MACHINE,
    "pending": MACHINE,
    "begins_with": SUBMITTED,
}
"""Where the value of each variable comes from."""

UNKNOWN_KEY: Prefix = -1  # what a key of the index stands for that no request has

Key: TypeAlias = tuple[object, ...]
Facts: TypeAlias = dict[str, dict[Key, object]]
"""For each variable that is mapped, its values that are not False, zero or None: requests by name, pages by place, prefixes by number.
A variable that is not mapped is not there."""


@dataclass(frozen=True, slots=True)
class Read:
    """A forward pass or a remote engine attends to positions `first` to `end` - 1 of a request. A read on the compute stream comes
    before everything that is put on it later."""

    request: str
    tokens: Tokens
    salt: str | None
    first: int
    end: int
    table: Pages
    remote: bool = False


@dataclass
class Requests:
    """What was submitted: the tokens (prompt and what was generated) and the salt of each request, and its keys in the index."""

    tokens: dict[str, Tokens] = field(default_factory=dict)
    salts: dict[str, str | None] = field(default_factory=dict)
    meanings: dict[str, set[Prefix]] = field(default_factory=dict)

    def learn_keys(self, request: str, keys: Sequence[Sequence[str]] | None, shadow: Shadow) -> None:
        """Note what the keys under which a request's full pages are indexed stand for, as far as its tokens are known: an engine that
        has sampled one makes a key before it says so."""
        for group, row in enumerate(keys or ()):
            prefixes = shadow.prefixes.of(self.salts[request], group, self.tokens[request])
            for prefix, key in zip(prefixes[shadow.page_size - 1 :: shadow.page_size], row, strict=False):
                self.meanings.setdefault(key, set()).add(prefix)


def map_snapshot(
    snapshot: Snapshot,
    requests: Requests,
    memory: Shadow,
    ahead: Shadow,
    reads: Sequence[Read] = (),
    transfers: Sequence[Transfer] = (),
    queued: Iterable[Work] = (),
) -> Facts:
    """The state of `cached` that a snapshot and the shadow memory make.

    `memory` is what has been written; `ahead` is that and what the batches in `queued` will write: an index may point at a
    page whose KV is queued for computing, since everything that reads it is queued behind.
    """
    facts: Facts = {name: {} for name in SOURCES}
    for pool in snapshot.pools:
        _map_pool(pool, facts)
    if any(pool.references is None for pool in snapshot.pools):
        del facts["references"]
    if any(pool.index is None for pool in snapshot.pools):
        del facts["key"]
    if snapshot.known is None:
        del facts["known"]
    else:
        facts["known"] = {(request,): True for request in snapshot.known}
    _map_operations(facts, memory, transfers, queued)
    foreign = _map_reads(facts, memory, reads, transfers)
    _map_content(facts, memory, foreign)
    _map_data(facts, snapshot, requests, ahead, foreign)
    return facts


def _map_pool(pool: PoolSnapshot, facts: Facts) -> None:
    name = pool.name
    for page, count in Counter(pool.free).items():
        facts["free"][(name, page),] = True
        facts["entries"][(name, page),] = count
    for page in pool.null:
        facts["null"][(name, page),] = True
    for request, rows in pool.tables.items():
        for page, count in Counter(page for row in rows for page in row if page not in pool.null).items():
            facts["holds"][request, (name, page)] = True
            if count > 1:
                facts["twice"][request, (name, page)] = True
    for request, pages in pool.detached.items():
        for page in pages:
            if page not in pool.null:
                facts["detached"][request, (name, page)] = True
                facts["quarantined"][(name, page),] = True
    for page, count in (pool.references or {}).items():
        if count and page not in pool.null:
            facts["references"][(name, page),] = count


def _map_operations(facts: Facts, memory: Shadow, transfers: Sequence[Transfer], queued: Iterable[Work]) -> None:
    for transfer in transfers:
        if transfer.kind is TransferKind.WRITE and transfer.target is not None:
            for place, *_ in memory.positions(transfer.target, transfer.first, len(transfer.tokens)):
                facts["writing"][transfer.request, place] = True
    for work in queued:
        for place, *_ in memory.positions(work.table, work.first, work.first + work.count):
            facts["pending"][work.request, place] = True


def _map_reads(facts: Facts, memory: Shadow, reads: Sequence[Read], transfers: Sequence[Transfer]) -> dict[Place, Written]:
    """Set `reading` and `written`; the foreign data that somebody reads, by page.

    A read on the compute stream of a page that is no longer held is ordered before whoever gets the page next; it counts as a
    read in flight only if foreign data is read. A remote read is ordered before nothing.
    """
    remote = [
        Read(t.request, t.tokens, t.salt, t.first, len(t.tokens), t.source, remote=True)
        for t in transfers
        if t.kind is TransferKind.READ and t.source is not None
    ]
    foreign: dict[Place, Written] = {}
    fresh: dict[Key, bool] = {}
    for read in (*reads, *remote):
        expected: dict[int, tuple[Prefix, ...]] = {}
        for place, offset, group, position in memory.positions(read.table, read.first, read.end):
            own = expected.setdefault(group, memory.prefixes.of(read.salt, group, read.tokens))
            found = memory.page(place)[offset]
            matches = found is not None and position < len(own) and found.prefix == own[position]
            strange = found is not None and not matches and found.request != read.request
            if found is not None and strange:
                foreign.setdefault(place, found)
            if read.remote or strange or (read.request, place) in facts["holds"]:
                facts["reading"][read.request, place] = True
                fresh[read.request, place] = fresh.get((read.request, place), True) and matches
    for key, whole in fresh.items():
        if whole:
            facts["written"][key] = True
    for place in memory.written_pages():
        for request in {slot.request for slot in memory.page(place) if slot is not None}:
            if (request, place) in facts["holds"] and (request, place) not in fresh:
                facts["written"][request, place] = True
    return foreign


def _map_content(facts: Facts, memory: Shadow, foreign: Mapping[Place, Written]) -> None:
    """Whose data is in a page: foreign data that somebody reads; else of a reader who reads its own; else of a holder; else of
    whoever wrote last in the page."""
    readers = {place: request for request, place in facts["reading"] if (request, place) in facts["written"]}
    for place in memory.written_pages():
        writers = [slot.request for slot in memory.page(place) if slot is not None]
        if place in foreign:
            facts["content"][place,] = foreign[place].request
        elif place in readers:
            facts["content"][place,] = readers[place]
        elif writers:
            holders = [writer for writer in writers if (writer, place) in facts["holds"]]
            facts["content"][place,] = (holders or writers)[-1]


def _map_data(facts: Facts, snapshot: Snapshot, requests: Requests, ahead: Shadow, foreign: Mapping[Place, Written]) -> None:
    wholes = {place: ahead.whole(place) for place in ahead.written_pages() if place not in foreign}
    data = {place: whole for place, whole in wholes.items() if whole is not None}
    facts["data"] = {(place,): whole for place, whole in data.items()}
    used = set(data.values())
    if "key" in facts:
        for pool in snapshot.pools:
            for key, pages in (pool.index or {}).items():
                meanings = requests.meanings.get(key, {UNKNOWN_KEY})
                for page in pages:
                    wrong = sorted(meaning for meaning in meanings if meaning != data.get((pool.name, page)))
                    meant = wrong[0] if wrong else min(meanings)
                    facts["key"][(pool.name, page),] = meant
                    used.add(meant)
    concerned = {index[0] for name in ("holds", "detached", "reading", "writing") for index in facts[name]}
    for request in [name for name in requests.tokens if name in concerned]:
        tokens = requests.tokens[request]
        for group in range(max((len(rows) for pool in snapshot.pools for rows in pool.tables.values()), default=1)):
            for prefix in used.intersection(ahead.prefixes.of(requests.salts[request], group, tokens)):
                facts["begins_with"][request, prefix] = True
