"""What an engine says of its pages at one moment: plain values, read and never interpreted by an adapter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvmodel.errors import UsageError

__all__ = ["PoolSnapshot", "Snapshot", "walk_free_list"]


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """One pool of pages, numbered from 0 to `pages` - 1.

    `name`        the node whose memory it is ("prefill", "decode"), or "" where there is one pool
    `null`        pages that stand for none: never handed out, never read (vLLM: block 0)
    `free`        the free list in its order; a page that stands in it twice is here twice
    `tables`      for each request that has one, its page table: for each cache group the pages in order of position
    `detached`    for each request that gave pages back which the allocator still holds back: those pages
    `references`  the allocator's reference count of each page; None: it does not count
    `index`       for each key of the prefix cache, the pages that can be found under it; None: it cannot be read
    """

    name: str
    pages: int
    free: tuple[int, ...]
    tables: Mapping[str, tuple[tuple[int, ...], ...]]
    null: frozenset[int] = frozenset()
    detached: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    references: Mapping[int, int] | None = None
    index: Mapping[str, frozenset[int]] | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All pools of an engine (of both nodes, where there are two), and the requests that it still knows (None: it cannot say)."""

    pools: tuple[PoolSnapshot, ...]
    known: frozenset[str] | None = None

    def pool(self, name: str) -> PoolSnapshot:
        """The pool of that name. Raises UsageError."""
        for pool in self.pools:
            if pool.name == name:
                return pool
        raise UsageError(f"the engine has no pool '{name}'; it has {', '.join(repr(pool.name) for pool in self.pools)}")


def walk_free_list(head: object, following: str, tail: object, page: str, limit: int) -> tuple[int, ...]:
    """The pages of a linked free list, from behind `head` up to `tail`, by the attributes `following` and `page`.

    Ends after `limit` + 1 entries: a double free makes such a list a cycle, and the doubled entry is then in the answer.
    """
    found: list[int] = []
    node = getattr(head, following)
    while node is not None and node is not tail and len(found) <= limit:
        found.append(getattr(node, page))
        node = getattr(node, following)
    return tuple(found)
