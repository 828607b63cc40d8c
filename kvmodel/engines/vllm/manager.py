"""The adapter of vLLM's KVCacheManager: one pool, its prefix cache, and one or more cache groups."""

from __future__ import annotations

from typing import Any

from kvmodel.engines.adapter import Admission, Capability, Tokens
from kvmodel.engines.snapshot import Snapshot
from kvmodel.engines.vllm.release import PAGE_TOKENS, Release, boot
from kvmodel.errors import UsageError

__all__ = ["ManagerAdapter"]


class ManagerAdapter:
    """An `Allocator` over the real KVCacheManager of a release.

    `pages` is the size of the pool, of which vLLM makes one page the null page. `windows` has for each cache group its sliding window in
    tokens, or None for full attention: ``(None,)`` is an ordinary model, ``(None, 4)`` a hybrid one. What is in `without` is not driven:
    the fewer verbs, the further a run gets with the others.
    """

    engine = "vllm"

    def __init__(
        self,
        release: str | Release,
        pages: int = 6,
        page_size: int = PAGE_TOKENS,
        windows: tuple[int | None, ...] = (None,),
        without: frozenset[Capability] = frozenset(),
    ) -> None:
        self._release = boot(release) if isinstance(release, str) else release
        self.version = self._release.version
        self.page_size, self.groups = page_size, len(windows)
        self._manager = self._release.manager(pages, page_size, windows)
        self._requests: dict[str, Any] = {}
        self._detached: dict[str, Any] = {}
        able = {Capability.EXTEND, Capability.SHARE, Capability.SALT, Capability.EXTERNAL, Capability.REMOTE, Capability.RESET}
        if self._release.can_detach:
            able.add(Capability.DETACH)
        if self._release.can_evict:
            able.add(Capability.EVICT)
        self.capabilities = frozenset(able - without)

    def admit(self, request: str, tokens: Tokens, salt: str | None, external: int, remote: bool) -> Admission | None:
        """As `Allocator.admit`; with `remote` everything after what the cache gives arrives later."""
        made = self._release.request(request, tokens, salt, self.page_size)
        hit, hit_tokens = self._release.lookup(self._manager, made)
        rest = len(tokens) - hit_tokens
        loaded = rest if remote else min(external, rest - 1)
        if not self._release.allocate(self._manager, made, rest - loaded, hit, hit_tokens, loaded, wait=remote):
            return None
        made.num_computed_tokens = hit_tokens if remote else len(tokens)
        self._requests[request] = made
        return Admission(hit_tokens)

    def extend(self, request: str, token: int) -> bool:
        """As `Allocator.extend`. The manager knows requests by name, so the longer one is a new Request of the same name."""
        before = self._of(request)
        longer = self._release.request(request, (*before.all_token_ids, token), before.cache_salt, self.page_size)
        longer.num_computed_tokens = before.num_computed_tokens
        if not self._release.allocate(self._manager, longer, 1):
            return False
        longer.num_computed_tokens += 1
        self._requests[request] = longer
        return True

    def arrived(self, request: str) -> None:
        made = self._of(request)
        made.num_computed_tokens = made.num_tokens
        self._manager.cache_blocks(made, made.num_tokens)

    def free(self, request: str) -> None:
        self._manager.free(self._of(request))
        del self._requests[request]

    def detach(self, request: str) -> None:
        self._detached[request] = self._manager.pop_blocks_for_free(self._of(request))
        del self._requests[request]

    def release(self, request: str) -> None:
        self._manager.block_pool.free_blocks(reversed(self._detached.pop(request)))

    def evict(self, pages: frozenset[int]) -> None:
        self._manager.evict_blocks(set(pages))

    def reset(self) -> bool:
        return bool(self._manager.reset_prefix_cache())

    def keys(self, request: str) -> tuple[tuple[str, ...], ...] | None:
        made = self._requests.get(request)
        return None if made is None else self._release.keys(made, self.page_size, self.groups)

    def snapshot(self) -> Snapshot:
        detached = {name: tuple(block.block_id for block in blocks) for name, blocks in self._detached.items()}
        return Snapshot((self._release.pool_snapshot(self._manager, detached),))

    def _of(self, request: str) -> Any:
        if request not in self._requests:
            raise UsageError(f"the allocator has no request '{request}'")
        return self._requests[request]
