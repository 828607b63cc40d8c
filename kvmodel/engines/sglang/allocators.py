"""Adapters of SGLang's token allocators: `TokenToKVPoolAllocator` (pages of one token) and `PagedTokenToKVPoolAllocator`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kvmodel.engines.adapter import Admission, Capability, Tokens
from kvmodel.engines.sglang import drift
from kvmodel.engines.sglang.boot import Release, release_for
from kvmodel.engines.sglang.engine import pool_snapshot
from kvmodel.engines.snapshot import Snapshot

__all__ = ["PagedAdapter", "TokenAdapter"]


class TokenAdapter:
    """An `Allocator` over `TokenToKVPoolAllocator`: pages of one token, no prefix cache. `sorts`: as with prefill and decode apart.

    Where a request's tokens are is kept here, as SGLang's request-to-token pool does.
    """

    engine = "sglang"
    groups = 1
    page_size = 1
    capabilities = frozenset({Capability.EXTEND})

    def __init__(self, release: str | Release, pages: int = 6, *, sorts: bool = True) -> None:
        booted = release_for(release, whole=False)
        self.version, self.pages = booted.version, pages
        self.places: dict[str, list[int]] = {}
        self.allocator = self._make(booted, pages, sorts)

    def _make(self, release: Release, pages: int, sorts: bool) -> Any:
        torch = import_module("torch")

        kind = release.symbol("srt.mem_cache.allocator", "TokenToKVPoolAllocator")
        return kind(pages, torch.float32, "cpu", None, sorts)

    def admit(self, request: str, tokens: Tokens, salt: str | None, external: int, remote: bool) -> Admission | None:
        places = self._places(len(tokens))
        if places is None:
            return None
        self.places[request] = places
        return Admission()

    def _places(self, count: int) -> list[int] | None:
        return listed(self.allocator.alloc(count))

    def extend(self, request: str, token: int) -> bool:
        more = self._place_after(self.places[request])
        if more is None:
            return False
        self.places[request] += more
        return True

    def _place_after(self, places: list[int]) -> list[int] | None:
        return listed(self.allocator.alloc(1))

    def free(self, request: str) -> None:
        torch = import_module("torch")

        self.allocator.free(torch.tensor(self.places.pop(request)))

    def keys(self, request: str) -> tuple[tuple[str, ...], ...]:
        """None of its pages is indexed: there is no prefix cache."""
        return ((),)

    def snapshot(self) -> Snapshot:
        size = self.page_size
        tables = {request: (tuple(dict.fromkeys(place // size for place in places)),) for request, places in self.places.items()}
        return Snapshot((pool_snapshot("", self.pages, drift.free_list(self.allocator), tables, {}),))


class PagedAdapter(TokenAdapter):
    """An `Allocator` over `PagedTokenToKVPoolAllocator`. As SGLang's schedulers do, it is not asked for more pages than there are:
    up to 0.5.21 it reads past its free list then."""

    def __init__(self, release: str | Release, pages: int = 5, page_size: int = 2, *, sorts: bool = True) -> None:
        self.page_size = page_size
        super().__init__(release, pages, sorts=sorts)

    def _make(self, release: Release, pages: int, sorts: bool) -> Any:
        torch = import_module("torch")

        kind = release.symbol("srt.mem_cache.allocator", "PagedTokenToKVPoolAllocator")
        drift.use_cpu_kernels()
        return kind(pages * self.page_size, self.page_size, torch.float32, "cpu", None, sorts)

    def _places(self, count: int) -> list[int] | None:
        torch = import_module("torch")

        if -(-count // self.page_size) * self.page_size > self.allocator.available_size():
            return None
        zero, end = torch.tensor([0]), torch.tensor([count])
        return listed(self.allocator.alloc_extend(zero, zero, end, end, torch.tensor([-1]), count))

    def _place_after(self, places: list[int]) -> list[int] | None:
        torch = import_module("torch")

        if len(places) % self.page_size == 0 and self.allocator.available_size() < self.page_size:
            return None
        end = torch.tensor([len(places) + 1])
        return listed(self.allocator.alloc_decode(end, end, torch.tensor(places[-1:])))


def listed(places: Any) -> list[int] | None:
    """Places in a tensor as a list."""
    return None if places is None else [int(place) for place in places]
