"""Bugs seeded into a release at run time: ``python -m tests.engines.vllm.mutants [RELEASE] [MUTANT ...]`` says how each is caught.

A process imports the release once and forks for each mutant.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvmodel.engines.vllm.release import RELEASES, Release, boot

__all__ = ["MUTANTS", "Caught", "Mutant", "caught"]

MUTANTS: list[Mutant] = []


@dataclass(frozen=True)
class Mutant:
    """A bug: `patch` puts it into the release. It is to be caught by the machine of that name."""

    name: str
    doc: str
    machine: str
    patch: Callable[[Release], None]


@dataclass(frozen=True)
class Caught:
    """What a search said: the properties that were violated, in how many steps, after how many runs and seconds. None: missed."""

    violated: tuple[str, ...]
    steps: int
    runs: int
    seconds: float


def mutant(machine: str) -> Callable[[Callable[[Release], None]], Callable[[Release], None]]:
    def add(patch: Callable[[Release], None]) -> Callable[[Release], None]:
        MUTANTS.append(Mutant(patch.__name__, patch.__doc__ or "", machine, patch))
        return patch

    return add


def _flat(blocks: Any) -> list[Any]:
    return [block for entry in blocks for block in (_flat(entry) if isinstance(entry, (list, tuple)) else [entry])]


# --- the manager


@mutant("manager")
def hit_stays_free(release: Release) -> None:
    """A cached page that is shared stays in the free list."""

    def touch(self: Any, blocks: Any) -> None:
        for block in _flat(blocks):
            block.ref_cnt += 1

    release.pool_class.touch = touch


@mutant("manager")
def free_ignores_count(release: Release) -> None:
    """Whoever gives a page back frees it, also for those who share it."""

    def free_blocks(self: Any, ordered_blocks: Any) -> None:
        blocks = [block for block in ordered_blocks if not block.is_null]
        for block in blocks:
            block.ref_cnt = 0
        self.free_block_queue.append_n(blocks)

    release.pool_class.free_blocks = free_blocks


@mutant("manager")
def key_survives_reuse(release: Release) -> None:
    """A page that is handed out for something else stays in the index."""
    release.pool_class._maybe_evict_cached_block = lambda self, block: False


@mutant("manager")
def key_without_salt(release: Release) -> None:
    """Tenants with different salts have the same keys."""
    release.hashing.generate_block_hash_extra_keys = lambda request, start, end, index: (None, index)


@mutant("manager")
def indexed_before_arrival(release: Release) -> None:
    """Pages that are written from afar are indexed before the write has landed."""
    original = release.manager_class.allocate_slots

    def allocate_slots(self: Any, *given: Any, **named: Any) -> Any:
        return original(self, *given, **named | {"delay_cache_blocks": False})

    release.manager_class.allocate_slots = allocate_slots


@mutant("manager")
def freed_twice(release: Release) -> None:
    """The last page of a request is given back twice."""
    original = release.manager_class.free

    def free(self: Any, request: Any) -> None:
        blocks = _flat(self.coordinator.get_blocks(request.request_id))
        original(self, request)
        self.block_pool.free_blocks(blocks[-1:])

    release.manager_class.free = free


@mutant("manager")
def free_hits_are_counted_twice(release: Release) -> None:
    """The check for space forgets that a shared page that is free leaves the free list."""
    module = release.module("vllm.v1.core.single_type_kv_cache_manager")

    def needed(self: Any, request_id: str, num_tokens: int, new_computed_blocks: Any, *given: Any, **named: Any) -> int:
        held = len(new_computed_blocks) + len(self.req_to_blocks.get(request_id, ()))
        return max(-(-num_tokens // int(self.block_size)) - held, 0)

    module.SingleTypeKVCacheManager.get_num_blocks_to_allocate = needed


@mutant("manager")
def rejection_keeps_references(release: Release) -> None:
    """A rejected request keeps its references to the pages that it found in the cache."""
    original = release.manager_class.allocate_slots

    def allocate_slots(self: Any, request: Any, new: int, hits: int = 0, blocks: Any = None, *given: Any, **named: Any) -> Any:
        found = original(self, request, new, hits, blocks, *given, **named)
        if found is None and blocks is not None:
            for block in _flat(blocks.blocks):
                block.ref_cnt += 1
        return found

    release.manager_class.allocate_slots = allocate_slots


@mutant("manager")
def one_page_leaks(release: Release) -> None:
    """Of the pages that are given back together, one is forgotten."""
    original = release.pool_class.free_blocks
    release.pool_class.free_blocks = lambda self, ordered_blocks: original(self, list(ordered_blocks)[1:])


@mutant("manager")
def eviction_frees(release: Release) -> None:
    """Dropping a page's key also puts it into the free list."""
    original = release.pool_class._maybe_evict_cached_block

    def evict(self: Any, block: Any) -> Any:
        dropped = original(self, block)
        if dropped and block.ref_cnt > 0:
            self.free_block_queue.append(block)
        return dropped

    release.pool_class._maybe_evict_cached_block = evict


@mutant("manager")
def reset_while_used(release: Release) -> None:
    """The last page that a request shares is not looked at before the index is dropped, and its reference is forgotten."""

    def reset(self: Any) -> bool:
        for block in self.blocks:
            block.reset_hash()
            block.ref_cnt = 0
        self.cached_block_hash_to_block._cache.clear()
        return True

    release.pool_class.reset_prefix_cache = reset


# --- the scheduler


@mutant("scheduler")
def abort_frees_target(release: Release) -> None:
    """An aborted request gives back the pages that are being written from afar."""
    original = release.scheduler_class._free_request
    release.scheduler_class._free_request = lambda self, request, delay_free_blocks=False: original(self, request)


@mutant("scheduler-two-batches")
def freed_while_queued(release: Release) -> None:
    """Pages are given back while a batch that writes to them is under way."""
    release.scheduler_class._request_blocks_can_be_freed = lambda self, request: True


@mutant("scheduler")
def lease_is_ignored(release: Release) -> None:
    """A finished request gives back the pages that another engine is going to read."""
    original = release.scheduler_class._connector_finished
    release.scheduler_class._connector_finished = lambda self, request: (False, original(self, request)[1])


@mutant("scheduler")
def sent_is_ignored(release: Release) -> None:
    """The pages of a request that another engine has read are never given back."""
    original = release.scheduler_class._update_from_kv_xfer_finished

    def update(self: Any, output: Any) -> None:
        output.finished_sending = None
        original(self, output)

    release.scheduler_class._update_from_kv_xfer_finished = update


@mutant("scheduler")
def preemption_keeps_pages(release: Release) -> None:
    """A preempted request starts anew without having given back its pages."""
    original = release.scheduler_class._preempt_request

    def preempt(self: Any, request: Any, *given: Any, **named: Any) -> None:
        self._free_request_blocks = lambda request: None
        try:
            original(self, request, *given, **named)
        finally:
            del self._free_request_blocks

    release.scheduler_class._preempt_request = preempt


@mutant("scheduler")
def runs_before_arrival(release: Release) -> None:
    """A request whose pages are being written from afar is scheduled before the writes have landed."""
    original = release.scheduler_class._handle_blocked_waiting_request

    def handle(self: Any, request: Any) -> bool:
        if request.status == release.status.WAITING_FOR_REMOTE_KVS:
            self.finished_recving_kv_req_ids.add(request.request_id)
        return bool(original(self, request))

    release.scheduler_class._handle_blocked_waiting_request = handle


@mutant("scheduler")
def preemption_keeps_progress(release: Release) -> None:
    """A preempted request goes on where it was, in new pages in which nothing has been computed."""
    original = release.scheduler_class._preempt_request

    def preempt(self: Any, request: Any, *given: Any, **named: Any) -> None:
        before = request.num_computed_tokens
        original(self, request, *given, **named)
        request.num_computed_tokens = before

    release.scheduler_class._preempt_request = preempt


def caught(chosen: Mutant, release: Release, shrink: bool = False, seed: int = 1) -> Caught | None:
    """What a search in a child process finds with the mutant in place."""
    reader, writer = os.pipe()
    start = time.perf_counter()
    child = os.fork()
    if child == 0:
        try:
            message = json.dumps(_search(chosen, release, shrink, seed))
        except BaseException as problem:
            message = json.dumps({"error": f"{type(problem).__name__}: {problem}"})
        os.write(writer, message.encode()[:60_000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = json.loads(pipe.read())
    os.waitpid(child, 0)
    if "error" in answer:
        raise AssertionError(f"{chosen.name}: {answer['error']}")
    seconds = time.perf_counter() - start
    return Caught(tuple(answer["violated"]), answer["steps"], answer["runs"], seconds) if answer["violated"] else None


def _search(chosen: Mutant, release: Release, shrink: bool, seed: int) -> dict[str, Any]:
    from kvmodel.engines.machine import search
    from kvmodel.engines.machines import machine

    chosen.patch(release)
    driven = machine("vllm", chosen.machine)
    record = search(
        lambda: driven.make(release.version), chosen.name, examples=driven.examples, steps=driven.steps, seed=seed, hazards=driven.hazards,
        shrink=shrink,
    )  # fmt: skip
    steps = min((len(trace.steps) for trace in record.found.values()), default=0)
    return {"violated": list(record.found), "steps": steps, "runs": record.runs}


def main(arguments: list[str]) -> None:
    """Print the table. With ``--shrink`` the steps are those of the shortest run."""
    asked = [argument for argument in arguments if not argument.startswith("-")]
    release = boot(next((argument for argument in asked if argument[0].isdigit()), RELEASES[-1]))
    print(f"vllm {release.version}\n| mutant | machine | violated | steps | runs | seconds |\n|---|---|---|---|---|---|")
    for each in MUTANTS:
        if any(argument[0].isalpha() for argument in asked) and each.name not in asked:
            continue
        found = caught(each, release, shrink="--shrink" in arguments)
        cells = ["missed"]
        if found is not None:
            cells = [", ".join(f"`{name}`" for name in found.violated), str(found.steps), str(found.runs), f"{found.seconds:.1f}"]
        print(f"| {each.name} | {each.machine} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
