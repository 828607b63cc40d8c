"""The reference allocator of docs/allocator with everything that an adapter can offer, and bugs that can be put into it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from kvmodel.engines.adapter import Admission, Capability, Tokens
from kvmodel.engines.snapshot import PoolSnapshot, Snapshot

__all__ = ["BUGS", "FOLDER", "Bug", "Full", "make", "plain"]

FOLDER = Path(__file__).parents[3] / "docs" / "allocator"


@cache
def modules() -> tuple[Any, Any]:
    """The modules `allocator` and `adapter` of the folder, which are no package."""
    sys.path.insert(0, str(FOLDER))
    try:
        return import_module("allocator"), import_module("adapter")
    finally:
        sys.path.remove(str(FOLDER))
        for name in ("allocator", "adapter"):
            sys.modules.pop(name, None)


def plain(pages: int = 5, page_size: int = 2) -> Any:
    """The reference allocator with its own adapter."""
    allocator, adapter = modules()
    return adapter.Adapter(allocator.Allocator(pages, page_size))


class Full:
    """An adapter that lends the reference allocator what it lacks: remote writes, growth, pages held back, eviction, reset.

    Each method is a place for a bug.
    """

    engine, version, groups = "reference", "1", 1
    capabilities = frozenset(
        {
            *(Capability.EXTEND, Capability.SHARE, Capability.SALT, Capability.EXTERNAL),
            *(Capability.REMOTE, Capability.DETACH, Capability.EVICT, Capability.RESET),
        }
    )
    has_index = has_references = True

    def __init__(self, pages: int = 5, page_size: int = 2, overrides: Mapping[str, Callable[..., Any]] | None = None) -> None:
        reference = modules()[0].Allocator
        self.allocator: Any = type("Allocator", (reference,), dict(overrides or {}))(pages, page_size)
        self.page_size = page_size
        self.requests: dict[str, tuple[Tokens, str | None]] = {}
        self.held_back: dict[str, list[int]] = {}
        self.loading: dict[str, dict[tuple[object, ...], int]] = {}  # index entries that wait for their data

    def admit(self, request: str, tokens: Tokens, salt: str | None, external: int, remote: bool) -> Admission | None:
        known = dict(self.allocator.index)
        found = self.allocator.admit(request, tokens, salt)
        if found is None:
            return None
        self.requests[request] = tokens, salt
        if remote:
            self.loading[request] = {key: page for key, page in self.allocator.index.items() if known.get(key) != page}
            self.postpone(request)
        return Admission(found)

    def postpone(self, request: str) -> None:
        for key in self.loading[request]:
            del self.allocator.index[key]

    def arrived(self, request: str) -> None:
        for key, page in self.loading.pop(request).items():
            self.allocator.index.setdefault(key, page)

    def extend(self, request: str, token: int) -> bool:
        tokens, salt = self.requests[request]
        if len(tokens) % self.page_size == 0:
            if not self.allocator.free:
                return False
            self.allocator.tables[request].append(self.allocator.take())
        self.requests[request] = (*tokens, token), salt
        for key, page in zip(self.allocator.keys(*self.requests[request]), self.allocator.tables[request], strict=False):
            self.allocator.index.setdefault(key, page)
        return True

    def free(self, request: str) -> None:
        self.allocator.release(request)

    def detach(self, request: str) -> None:
        self.held_back[request] = self.allocator.tables.pop(request)

    def release(self, request: str) -> None:
        self.allocator.tables[request] = self.held_back.pop(request)
        self.allocator.release(request)

    def evict(self, pages: frozenset[int]) -> None:
        self.allocator.index = {key: page for key, page in self.allocator.index.items() if page not in pages}

    def reset(self) -> bool:
        if any(self.allocator.references):
            return False
        self.allocator.index.clear()
        return True

    def keys(self, request: str) -> tuple[tuple[str, ...], ...] | None:
        if request not in self.requests:
            return None
        return (tuple(map(repr, self.allocator.keys(*self.requests[request]))),)

    def snapshot(self) -> Snapshot:
        mine = self.allocator
        tables = {request: (tuple(table),) for request, table in mine.tables.items()}
        index: dict[str, frozenset[int]] = {repr(key): frozenset({page}) for key, page in mine.index.items()}
        pool = PoolSnapshot(
            "",
            len(mine.references),
            self.free_list(),
            tables,
            detached={request: tuple(pages) for request, pages in self.held_back.items()},
            references=dict(enumerate(mine.references)) if self.has_references else None,
            index=index if self.has_index else None,
        )
        return Snapshot((pool,))

    def free_list(self) -> tuple[int, ...]:
        return tuple(self.allocator.free)


@dataclass(frozen=True)
class Bug:
    """`allocator` and `adapter` are methods that are replaced; `found` is what is violated, `steps` how many calls show it. With
    `seed` a search finds it early."""

    found: str
    steps: int
    doc: str
    allocator: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    adapter: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    seed: int = 0


def make(bug: Bug | None = None, pages: int = 5, **members: Any) -> Callable[[], Full]:
    """A function that makes the allocator with a bug."""
    kind = type("Buggy", (Full,), {**(bug.adapter if bug else {}), **members})
    overrides = bug.allocator if bug else {}
    return lambda: kind(pages, 2, overrides)


def _forgets_count(self: Any, request: str) -> None:
    for page in reversed(self.tables.pop(request)):
        self.references[page] = 0
        self.free.append(page)


def _frees_twice(self: Any, request: str) -> None:
    for page in reversed(self.tables.pop(request)):
        self.references[page] -= 1
        if self.references[page] == 0:
            self.free.extend((page, page))


def _leaks_last(self: Any, request: str) -> None:
    table = self.tables.pop(request)
    for page in reversed(table[1:] or table):
        self.references[page] -= 1
        if self.references[page] == 0:
            self.free.append(page)


def _counts_down_only(self: Any, request: str) -> None:
    for page in self.tables.pop(request):
        self.references[page] -= 1


def _hit_stays_free(self: Any, request: str, tokens: Tokens, salt: str | None) -> int | None:
    keys = self.keys(tokens, salt)
    hits: list[int] = []
    for key in keys[: (len(tokens) - 1) // self.page_size]:
        if key not in self.index:
            break
        hits.append(self.index[key])
    needed = -(-len(tokens) // self.page_size) - len(hits)
    if needed > len(self.free):
        return None
    for page in hits:
        self.references[page] += 1
    self.tables[request] = hits + [self.take() for _ in range(needed)]
    for key, page in zip(keys, self.tables[request], strict=False):
        self.index.setdefault(key, page)
    return len(hits) * int(self.page_size)


def _rejects_too_late(self: Any, request: str, tokens: Tokens, salt: str | None) -> int | None:
    """References move before it is known whether there are pages enough."""
    known = [self.index[key] for key in self.keys(tokens, salt)[: (len(tokens) - 1) // self.page_size] if key in self.index]
    found = modules()[0].Allocator.admit(self, request, tokens, salt)
    if found is None:
        for page in known:
            self.references[page] += 1
    return None if found is None else int(found)


def _keeps_key(self: Any) -> int:
    page = self.free.popleft()
    self.references[page] = 1
    return int(page)


def _takes_and_keeps(self: Any) -> int:
    """The page is handed out and stays where it was."""
    page = self.free[0]
    self.index = {key: found for key, found in self.index.items() if found != page}
    self.references[page] = 1
    return int(page)


def _keys_without_salt(self: Any, tokens: Tokens, salt: str | None) -> list[tuple[object, ...]]:
    size = self.page_size
    return [tuple(tokens[: end + size]) for end in range(0, len(tokens) - size + 1, size)]


def _keys_of_one_page(self: Any, tokens: Tokens, salt: str | None) -> list[tuple[object, ...]]:
    size = self.page_size
    return [(salt, tokens[end : end + size]) for end in range(0, len(tokens) - size + 1, size)]


def _same_page_twice(self: Any, request: str, tokens: Tokens, salt: str | None) -> int | None:
    found = modules()[0].Allocator.admit(self, request, tokens, salt)
    table = self.tables.get(request, [])
    if found is not None and len(table) > 2:
        self.release_page(table[-1])
        table[-1] = table[-2]
    return None if found is None else int(found)


def _release_page(self: Any, page: int) -> None:
    self.references[page] -= 1
    if self.references[page] == 0:
        self.free.append(page)


def _not_postponed(self: Full, request: str) -> None:
    """Pages are found before their data is there."""


def _resets_used(self: Full) -> bool:
    self.allocator.index.clear()
    return True


def _detach_frees(self: Full, request: str) -> None:
    """Pages that are held back go to the free list as well."""
    self.held_back[request] = self.allocator.tables.pop(request)
    self.allocator.free.extend(page for page in self.held_back[request] if self.allocator.references[page] == 1)


def _detach_forgets(self: Full, request: str) -> None:
    """What is held back is nobody's: the pages are lost for good."""
    del self.allocator.tables[request]
    self.held_back[request] = []


def _evict_frees(self: Full, pages: frozenset[int]) -> None:
    """A page whose key is dropped goes to the free list, whoever has it."""
    for key, page in list(self.allocator.index.items()):
        if page in pages:
            del self.allocator.index[key]
            if self.allocator.references[page]:
                self.allocator.free.append(page)


def _free_list_with_a_hole(self: Full) -> tuple[int, ...]:
    """The snapshot lies: the newest free page is left out."""
    return tuple(self.allocator.free)[:-1]


def _grows_into_a_shared_page(self: Full, request: str, token: int) -> bool:
    """A token that needs a new page gets no page of its own."""
    tokens, salt = self.requests[request]
    if len(tokens) % self.page_size == 0:
        self.allocator.tables[request].append(self.allocator.tables[request][-1])
    self.requests[request] = (*tokens, token), salt
    return True


BUGS = {
    "forgets the count": Bug(
        "pages_conserved", 3, "A request that ends frees pages that others share.", {"release": _forgets_count}, seed=4
    ),
    "double free": Bug("no_double_free", 2, "What a request gives back stands twice in the free list.", {"release": _frees_twice}),
    "leak on release": Bug("pages_conserved", 2, "The first page of a longer table is never given back.", {"release": _leaks_last}),
    "nothing goes back": Bug("pages_conserved", 2, "The count goes down to zero, and that is all.", {"release": _counts_down_only}),
    "hit stays free": Bug("pages_conserved", 3, "A shared page stays in the free list.", {"admit": _hit_stays_free}, seed=8),
    "reject moves references": Bug("no_double_free", 4, "A rejected admission counts its hits.", {"admit": _rejects_too_late}, seed=11),
    "key survives reuse": Bug("index_matches_content", 3, "A page is handed out with its old key.", {"take": _keeps_key}),
    "handed out and still free": Bug("pages_conserved", 1, "The free list is read, not shortened.", {"take": _takes_and_keeps}),
    "salt left out of key": Bug("exclusive_owner", 2, "Keys are tokens alone.", {"keys": _keys_without_salt}),
    "key of one page": Bug("index_matches_content", 3, "Keys are the tokens of the page alone.", {"keys": _keys_of_one_page}, seed=6),
    "same page twice": Bug(
        "exclusive_owner", 1, "Two places of a table have one page.", {"admit": _same_page_twice, "release_page": _release_page}
    ),
    "indexed before data": Bug("index_matches_content", 1, "A page is found before it is written.", {}, {"postpone": _not_postponed}),
    "quarantined and free": Bug("pages_conserved", 2, "What is held back can be handed out.", {}, {"detach": _detach_frees}),
    "held back for nobody": Bug("pages_conserved", 2, "What is held back is lost.", {}, {"detach": _detach_forgets}),
    "reset while used": Bug("allowed_step", 2, "The index is dropped under those who share it.", {}, {"reset": _resets_used}),
    "evict frees": Bug("pages_conserved", 2, "Dropping a key frees the page.", {}, {"evict": _evict_frees}),
    "free list with a hole": Bug("pages_conserved", 0, "Not all free pages are shown.", {}, {"free_list": _free_list_with_a_hole}),
    "no page for growth": Bug("exclusive_owner", 2, "A token goes into a full page.", {}, {"extend": _grows_into_a_shared_page}),
}
