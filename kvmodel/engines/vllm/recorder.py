"""Writes an event log (`kvmodel.engines.log`) of what a vLLM engine does with its pages, for the spec `cached`.

It wraps methods of the block pool, the KV-cache manager, the scheduler and the KV connector, in a process where vLLM is installed.
`plugin` is the entry point ``vllm.general_plugins``: it records if the environment variable ``KVMODEL_LOG`` names a file (``{pid}`` in it
is the process). A log has one pool of one cache group; a process with several pools writes several files.

What a scheduler cannot see, and how it is told:

- When a remote write lands. The log has it landing when the engine is told, so it is in flight for as long as the engine must think so.
- That a lease has passed. A worker reports it like one that was read to its end, and so does the log: a reader that is late is not seen.
- When a batch runs. Batches run in the order in which they are scheduled, so a log has each running when it is scheduled; with several
  under way, a write to a page that is not yet full is queued until its batch is taken in.
- Every read. A forward pass reads all pages of a request; the log has the first read of each page after the request got it.

A request that was preempted takes new pages under a new name (``id~2``). Tokens that are loaded from elsewhere within a step count as
computed. If a release lacks a method that is wrapped, or the recorder itself fails, the log says so in its last line and is never taken
for complete.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import importlib.metadata
import itertools
import multiprocessing.util
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from kvmodel.engines.log.schema import Header
from kvmodel.engines.log.writer import LogWriter

__all__ = ["TARGETS", "Recorder", "plugin"]

LOG = "KVMODEL_LOG"
FLUSH = 1.0  # seconds that events are held at most, while batches run

TARGETS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("vllm.v1.core.block_pool", "BlockPool"): (
        *("__init__", "get_new_blocks", "touch", "free_blocks", "cache_full_blocks", "reset_prefix_cache"),
    ),
    ("vllm.v1.core.kv_cache_manager", "KVCacheManager"): ("allocate_slots", "free"),
    ("vllm.v1.core.sched.scheduler", "Scheduler"): (
        *("__init__", "schedule", "update_from_output", "_connector_finished", "_update_from_kv_xfer_finished"),
    ),
}
"""What is wrapped. `pop_blocks_for_free` and `evict_blocks` are too, where a release has them."""


@dataclass
class Held:
    """What the log has said of a request."""

    id: str
    name: str
    pages: list[int] = field(default_factory=list)
    written: set[int] = field(default_factory=set)
    read: set[int] = field(default_factory=set)
    pending: dict[int, int] = field(default_factory=dict)  # page -> number of the batch
    writing: list[int] = field(default_factory=list)
    leased: list[int] = field(default_factory=list)
    prefixes: int = 0  # how many of its prefixes were told

    def in_flight(self) -> bool:
        return bool(self.writing or self.leased or self.pending)


class PoolLog:
    """The log of one pool."""

    def __init__(self, pool: Any, file: BinaryIO, version: str) -> None:
        self.pool, self.file = pool, file
        self.version = version
        self.null = pool.null_block.block_id
        self.requests: dict[str, Held] = {}
        self.turns: dict[str, int] = {}
        self.leaving: list[Held] = []  # ended with something in flight
        self.detached: dict[int, list[Held]] = {}
        self.given_back: Counter[int] = Counter()  # pages of requests that have ended, which the pool has not got yet
        self.last = ""  # the request that gave back pages last
        self.current: Any = None  # the request whose call is on the stack
        self.group = 0
        self.overlap = self.defers_free = self.incomplete = False
        self.scheduled, self.taken = 0, 0  # batches that were scheduled, and taken in
        self.flushed = time.monotonic()
        self.indexed: set[int] = set()
        self.starts: dict[str, tuple[int, bool]] = {}  # tokens that the connector was told are there, and whether the rest arrives later

    @functools.cached_property
    def log(self) -> LogWriter:
        """Begun at the first event: the header says what the scheduler, which is made after the pool, does."""
        header = Header(
            1,
            {"gpu": len(self.pool.blocks)},
            engine="vllm",
            version=self.version,
            spec="cached",
            flags={"defers_free": self.defers_free or not self.overlap},
            values={"null": [self.null]},
        )
        log = LogWriter(self.file, header)
        if not self.incomplete:
            log.event("set_aside", pages=[self.null])
        return log

    def stop(self, reason: str) -> None:
        """Nothing is recorded from here on, and the last line says why. Before the first event: the log stays without one."""
        self.incomplete = True
        self.log.flush()
        if not self.log.stopped:
            self.log.stopped = reason

    def close(self) -> None:
        self.log.close()
        self.file.close()

    # --- helpers

    def held(self, request: str) -> Held:
        found = self.requests.get(request)
        if found is None:
            turn = self.turns[request] = self.turns.get(request, 0) + 1
            found = self.requests[request] = Held(request, request if turn == 1 else f"{request}~{turn}")
        return found

    def key(self, block_hash: bytes) -> str:
        return block_hash.hex()

    def prefixes(self, held: Held, request: Any) -> dict[str, Any] | None:
        """The prefixes of the request that the log does not have yet."""
        hashes = request.block_hashes
        if held.prefixes >= len(hashes):
            return None
        new = [self.key(block_hash) for block_hash in hashes[held.prefixes :]]
        held.prefixes = len(hashes)
        return {"begins_with": new}

    def queue(self, held: Held, page: int) -> None:
        """A write to the page is queued; what was queued before runs before."""
        for other in self.leaving:
            if page in other.pending:
                self.compute(other, page)
        self.log.event("fill", request=held.name, pages=[page])
        held.pending[page] = self.scheduled

    def compute(self, held: Held, page: int) -> None:
        """A write to the page runs."""
        if page not in held.pending:
            self.queue(held, page)
        del held.pending[page]
        self.log.event("compute", request=held.name, pages=[page])
        held.written.add(page)

    # --- the block pool

    def allocated(self, blocks: Sequence[Any]) -> None:
        if self.current is None:
            self.stop("pages were allocated for no request")
            return
        held = self.held(self.current.request_id)
        pages = [block.block_id for block in blocks]
        self.log.event("allocate", request=held.name, pages=pages)
        held.pages += pages
        self.indexed.difference_update(pages)

    def touched(self, blocks: Iterable[Any]) -> None:
        if self.current is None:
            self.stop("pages were shared for no request")
            return
        held = self.held(self.current.request_id)
        for block in blocks:
            if block.is_null:
                continue
            page = block.block_id
            prefix = self.key(block.block_hash[:-4]) if block.block_hash is not None else "not indexed"
            self.log.event("hit", request=held.name, pages=[page], prefix=prefix, values=self.prefixes(held, self.current))
            held.pages.append(page)
            held.written.add(page)

    def cached(self, request: Any, blocks: Sequence[Any], first: int, end: int, size: int, before: set[int]) -> None:
        held = self.held(request.request_id)
        for number in range(first, min(end, len(blocks))):
            block = blocks[number]
            page = block.block_id
            if block.is_null or block.block_hash is None or page in before:
                continue
            computed_now = (number + 1) * size > request.num_computed_tokens  # which is what it was before this step
            if page not in held.written and page not in held.writing and computed_now:
                self.compute(held, page)
            values = self.prefixes(held, request)
            self.log.event("index", request=held.name, pages=[page], prefix=self.key(block.block_hash[:-4]), values=values)
            self.indexed.add(page)

    def freed(self, blocks: Sequence[Any]) -> None:
        """Blocks go back: those of a request that has just ended, those that were held back, or one that a sliding window left behind.
        Anything else is given back twice, which no step explains."""
        for block in blocks:
            page = block.block_id
            if block.is_null:
                continue
            waiting = self.detached.get(page)
            if waiting:
                self.last = waiting.pop().name
                self.log.event("drain", request=self.last, pages=[page])
            elif self.given_back[page]:
                self.given_back[page] -= 1
            elif self.current is not None:
                self.stop("a page was given back by itself: cache groups with a window are not recorded")
                return
            else:
                self.log.event("drain", request=self.last, pages=[page])

    def reset(self, done: bool) -> None:
        if done and self.indexed:
            self.log.event("reset")
            self.indexed.clear()

    # --- the manager

    def ended(self, request: Any) -> None:
        """The request gives back its pages: it has ended, or was preempted and will be back."""
        held = self.requests.pop(request.request_id, None)
        self.starts.pop(request.request_id, None)
        if request.is_finished():
            self.turns.pop(request.request_id, None)
        if held is None or not held.pages:
            return
        self.last = held.name
        self.given_back.update(held.pages)
        if not held.in_flight():
            self.log.event("release", request=held.name)
            return
        self.log.event("abort", request=held.name)
        self.leaving.append(held)
        for page in {*held.writing, *held.leased, *(held.pending if self.defers_free else ())}:
            self.given_back[page] -= 1
            self.detached.setdefault(page, []).append(held)

    # --- the scheduler

    def batch(self, scheduler: Any, output: Any) -> None:
        self.scheduled += 1
        size, work = scheduler.block_size, []
        for request, count in output.num_scheduled_tokens.items():
            known = scheduler.requests[request]
            held, end = self.held(request), known.num_computed_tokens
            table = scheduler.kv_cache_manager.get_block_ids(request)[0]
            work.append((held, table[: -(-end // size)]))
            for page in table[(end - count) // size : -(-end // size)]:
                if page in held.written or page in held.writing or page in held.pending:
                    continue
                self.queue(held, page)
                if not self.overlap:
                    self.compute(held, page)
        for held, pages in work:
            fresh = [page for page in pages if page not in held.read and page not in held.pending]
            if fresh:
                held.read.update(fresh)
                self.log.event("begin_read", request=held.name, pages=fresh)
                self.log.event("end_read", request=held.name, pages=fresh)

    def batch_taken(self) -> None:
        """The oldest batch has run."""
        self.taken += 1
        now = time.monotonic()
        if now > self.flushed + FLUSH:
            self.flushed = now
            self.log.flush()
        if not self.overlap:
            return
        for held in itertools.chain(self.requests.values(), self.leaving):
            for page in [page for page, number in held.pending.items() if number <= self.taken]:
                self.compute(held, page)
        self.leaving = [held for held in self.leaving if held.in_flight()]

    def leased(self, request: Any, block_ids: Sequence[int], size: int) -> None:
        held = self.held(request.request_id)
        pages = [page for page in block_ids[: -(-request.num_computed_tokens // size)] if page != self.null]
        if pages:
            self.log.event("begin_read", request=held.name, pages=pages)
            held.leased = pages

    def posted(self, request: Any, block_ids: Sequence[int], tokens: int, size: int) -> None:
        first, later = self.starts.pop(request.request_id, (0, False))
        if not later or tokens <= 0:
            return
        held = self.held(request.request_id)
        pages = list(block_ids[first // size : -(-(first + tokens) // size)])
        self.log.event("post", request=held.name, pages=pages)
        held.writing = pages

    def landed(self, request: str) -> None:
        held = self._flying(request)
        if held is not None and held.writing:
            self.log.event("land", request=held.name, pages=held.writing)
            held.written.update(held.writing)
            held.writing = []

    def sent(self, request: str) -> None:
        held = self._flying(request)
        if held is not None and held.leased:
            self.log.event("end_read", request=held.name, pages=held.leased)
            held.leased = []

    def _flying(self, request: str) -> Held | None:
        """The request, also if it has given back its pages since."""
        if request in self.requests:
            return self.requests[request]
        return next((held for held in self.leaving if held.id == request and (held.writing or held.leased)), None)


class Recorder:
    """Wraps vLLM's methods; `remove` unwraps them. `path` may contain ``{pid}``; a second pool's file has ``-2`` at its end, and so on.

    `version` is that of the release, for the header. Nothing of it is raised into the engine.
    """

    def __init__(self, path: str, version: str = "") -> None:
        self.path, self.version = path.replace("{pid}", str(os.getpid())), version or _installed()
        self.logs: list[PoolLog] = []
        self.missing: list[str] = []
        self._undo: list[tuple[Any, str, Any]] = []
        self._by_pool: dict[int, PoolLog] = {}

    def install(self) -> Recorder:
        """Wrap every target. If one is missing nothing is recorded, and each log says which."""
        classes = {}
        for (module, name), methods in TARGETS.items():
            try:
                found = getattr(importlib.import_module(module), name)
            except (ImportError, AttributeError):
                self.missing.append(f"{module}.{name}")
                continue
            classes[name] = found
            self.missing += [f"{module}.{name}.{method}" for method in methods if not hasattr(found, method)]
        if "BlockPool" in classes:
            self._wrap(classes["BlockPool"], "__init__", after=self._pool_made)
        if self.missing:
            return self
        self._wrap_pool(classes["BlockPool"])
        self._wrap_manager(classes["KVCacheManager"])
        self._wrap_scheduler(classes["Scheduler"])
        return self

    def remove(self) -> None:
        """Unwrap, and close the logs."""
        for owner, name, original in reversed(self._undo):
            setattr(owner, name, original)
        self._undo.clear()
        self.close()

    def close(self) -> None:
        """Close the logs."""
        for log in self.logs:
            log.close()
        self.logs.clear()
        self._by_pool.clear()

    # --- wrapping

    def _wrap(self, owner: Any, name: str, *, before: Callable[..., Any] | None = None, after: Callable[..., Any] | None = None) -> None:
        """`before(self, arguments)` returns a state, `after(self, arguments, result, state)` looks; neither can fail the call."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(this: Any, *arguments: Any, **named: Any) -> Any:
            state = self._safely(this, before, (arguments, named)) if before is not None else None
            result = original(this, *arguments, **named)
            if after is not None:
                self._safely(this, after, (arguments, named), result, state)
            return result

        self._undo.append((owner, name, original))
        setattr(owner, name, wrapped)

    def _safely(self, this: Any, observe: Callable[..., Any], *given: Any) -> Any:
        try:
            return observe(this, *given)
        except Exception as problem:  # whatever it is: the engine goes on
            for log in self.logs:
                log.stop(f"the recorder failed in {observe.__name__}: {type(problem).__name__}: {problem}")
            return None

    def _of(self, pool: Any) -> PoolLog | None:
        return self._by_pool.get(id(pool))

    def _pool_made(self, pool: Any, given: Any, result: Any, state: Any) -> None:
        name = self.path if not self.logs else f"{self.path}-{len(self.logs) + 1}"
        log = PoolLog(pool, open(name, "wb", buffering=0), self.version)  # noqa: SIM115 closed by `close`
        if self.missing:
            log.stop(f"incomplete: vllm {self.version} has no {', '.join(self.missing)}")
        self.logs.append(log)
        self._by_pool[id(pool)] = log

    def _wrap_pool(self, owner: Any) -> None:
        def new(pool: Any, given: Any, blocks: Any, state: Any) -> None:
            if (log := self._of(pool)) is not None:
                log.allocated(blocks)

        def touch(pool: Any, given: Any) -> None:
            if (log := self._of(pool)) is not None:
                log.touched(_flat(given[0][0] if given[0] else next(iter(given[1].values()))))

        def hashed(pool: Any, given: Any) -> set[int]:
            named = dict(zip(("request", "blocks"), given[0], strict=False)) | given[1]
            return {block.block_id for block in named["blocks"] if block.block_hash is not None}

        def cache(pool: Any, given: Any, result: Any, state: Any) -> None:
            if (log := self._of(pool)) is not None:
                names = ("request", "blocks", "num_cached_blocks", "num_full_blocks", "block_size")
                named = dict(zip(names, given[0], strict=False)) | given[1]
                request, blocks, first, end, size = (named[name] for name in names)
                log.cached(request, blocks, first, end, size, state)

        def reset(pool: Any, given: Any, done: Any, state: Any) -> None:
            if (log := self._of(pool)) is not None:
                log.reset(bool(done))

        self._wrap(owner, "get_new_blocks", after=new)
        self._wrap(owner, "touch", before=touch)
        self._wrap(owner, "cache_full_blocks", before=hashed, after=cache)
        self._wrap(owner, "reset_prefix_cache", after=reset)
        self._wrap_free_blocks(owner)

    def _wrap_free_blocks(self, owner: Any) -> None:
        """The argument may be an iterator, which can be read once: the engine gets a list."""
        original = owner.free_blocks

        def free(pool: Any, blocks: list[Any]) -> None:
            if (log := self._of(pool)) is not None:
                log.freed(blocks)

        @functools.wraps(original)
        def free_blocks(pool: Any, ordered_blocks: Any) -> Any:
            blocks = list(ordered_blocks)
            self._safely(pool, free, blocks)
            return original(pool, blocks)

        self._undo.append((owner, "free_blocks", original))
        owner.free_blocks = free_blocks

    def _wrap_manager(self, owner: Any) -> None:
        def enter(manager: Any, given: Any) -> tuple[PoolLog | None, Any]:
            log = self._of(manager.block_pool)
            if log is None:
                return None, None
            before, log.current = log.current, given[0][0] if given[0] else given[1]["request"]
            return log, before

        def leave(manager: Any, given: Any, result: Any, state: Any) -> None:
            log, before = state or (None, None)
            if log is not None:
                log.current = before

        def end(manager: Any, given: Any) -> None:
            if (log := self._of(manager.block_pool)) is not None:
                log.ended(given[0][0] if given[0] else given[1]["request"])

        self._wrap(owner, "allocate_slots", before=enter, after=leave)
        self._wrap(owner, "free", before=end)
        if hasattr(owner, "pop_blocks_for_free"):
            self._wrap(owner, "pop_blocks_for_free", before=end)
        if hasattr(owner, "evict_blocks"):
            self._wrap(owner, "evict_blocks", before=self._evicted)

    def _evicted(self, manager: Any, given: Any) -> None:
        log = self._of(manager.block_pool)
        pages = given[0][0] if given[0] else next(iter(given[1].values()))
        if log is not None:
            dropped = [page for page in sorted(pages) if page in log.indexed]
            if dropped:
                log.log.event("evict", pages=dropped)
                log.indexed.difference_update(dropped)

    def _wrap_scheduler(self, owner: Any) -> None:
        def log_of(scheduler: Any) -> PoolLog | None:
            return self._of(scheduler.kv_cache_manager.block_pool)

        def made(scheduler: Any, given: Any, result: Any, state: Any) -> None:
            log = log_of(scheduler)
            if log is None:
                return
            settings = scheduler.vllm_config
            log.overlap = getattr(settings, "max_concurrent_batches", 1) > 1
            log.defers_free = bool(getattr(scheduler, "defer_block_free", False))
            if len(scheduler.kv_cache_config.kv_cache_groups) != 1:
                log.stop("models with several cache groups are not recorded")
            if scheduler.connector is not None:
                self._wrap_connector(scheduler.connector, log, scheduler)

        def schedule(scheduler: Any, given: Any, output: Any, state: Any) -> None:
            if (log := log_of(scheduler)) is not None:
                log.batch(scheduler, output)

        def update(scheduler: Any, given: Any) -> None:
            if (log := log_of(scheduler)) is not None:
                log.batch_taken()

        def finished(scheduler: Any, given: Any, result: Any, state: Any) -> None:
            log, request = log_of(scheduler), given[0][0] if given[0] else given[1]["request"]
            if log is not None and result[0]:
                log.leased(request, scheduler.kv_cache_manager.get_block_ids(request.request_id)[0], scheduler.block_size)

        def transferred(scheduler: Any, given: Any) -> None:
            log, output = log_of(scheduler), given[0][0] if given[0] else next(iter(given[1].values()))
            if log is not None:
                for request in output.finished_recving or ():
                    log.landed(request)
                for request in output.finished_sending or ():
                    log.sent(request)

        self._wrap(owner, "__init__", after=made)
        self._wrap(owner, "schedule", after=schedule)
        self._wrap(owner, "update_from_output", before=update)
        self._wrap(owner, "_connector_finished", after=finished)
        self._wrap(owner, "_update_from_kv_xfer_finished", before=transferred)

    def _wrap_connector(self, connector: Any, log: PoolLog, scheduler: Any) -> None:
        """The connector's class is not known before, so its object is wrapped."""
        matched, allocated = connector.get_num_new_matched_tokens, connector.update_state_after_alloc

        def get_num_new_matched_tokens(request: Any, num_computed_tokens: int, *more: Any, **named: Any) -> Any:
            found = matched(request, num_computed_tokens, *more, **named)
            if found[0]:
                log.starts[request.request_id] = (num_computed_tokens, bool(found[1]))
            return found

        def posted(this: Any, request: Any, blocks: Any, tokens: int) -> None:
            log.posted(request, blocks.get_block_ids()[0], tokens, scheduler.block_size)

        def update_state_after_alloc(request: Any, blocks: Any, num_external_tokens: int, *more: Any, **named: Any) -> Any:
            self._safely(connector, posted, request, blocks, num_external_tokens)
            return allocated(request, blocks, num_external_tokens, *more, **named)

        connector.get_num_new_matched_tokens = get_num_new_matched_tokens
        connector.update_state_after_alloc = update_state_after_alloc


def _flat(blocks: Iterable[Any]) -> list[Any]:
    """Blocks, of one group or (older releases) of all."""
    found: list[Any] = []
    for entry in blocks:
        found += _flat(entry) if isinstance(entry, (list, tuple)) else [entry]
    return found


def _installed() -> str:
    try:
        return importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        return ""


def plugin() -> None:
    """The entry point ``vllm.general_plugins``: record this process, if the environment asks for it."""
    path = os.environ.get(LOG)
    if path:
        recorder = Recorder(path).install()
        atexit.register(recorder.close)
        multiprocessing.util.Finalize(None, recorder.close, exitpriority=10)  # a child process runs these and not the others
