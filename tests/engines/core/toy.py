"""Two small engines of pure Python, sound unless a fault is switched on: one node with leases and remote writes, and two nodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kvmodel.engines.adapter import Batch, Capability, Pages, Role, Submission, Tokens, Transfer, TransferKind, Work
from kvmodel.engines.snapshot import PoolSnapshot, Snapshot

__all__ = ["Pool", "ToyEngine", "ToyHandoff", "handoff", "toy"]

Key = tuple[str | None, Tokens]


class Pool:
    """Pages that are shared by prefix and counted; the pages of a request can be held back."""

    def __init__(self, name: str, pages: int, page_size: int, faults: frozenset[str]) -> None:
        self.name, self.page_size, self.faults = name, page_size, faults
        self.free = deque(range(pages))
        self.references = [0] * pages
        self.tables: dict[str, list[int]] = {}
        self.detached: dict[str, list[int]] = {}
        self.index: dict[Key, int] = {}

    def keys(self, tokens: Tokens, salt: str | None) -> list[Key]:
        size = self.page_size
        salt = None if "key-without-salt" in self.faults else salt
        return [(salt, tokens[:end]) for end in range(size, len(tokens) + 1, size)]

    def admit(self, request: str, tokens: Tokens, salt: str | None, places: int) -> int | None:
        """Pages for `places` tokens; how many of `tokens` were found. None: too few are free."""
        hits: list[int] = []
        for key in self.keys(tokens, salt)[: (len(tokens) - 1) // self.page_size]:
            if key not in self.index:
                break
            hits.append(self.index[key])
        needed = -(-places // self.page_size) - len(hits)
        if needed > len(self.free) - sum(self.references[page] == 0 for page in hits):
            return None
        for page in hits:
            if self.references[page] == 0 and "hit-stays-free" not in self.faults:
                self.free.remove(page)
            self.references[page] += 1
        self.tables[request] = [*hits, *(self._take() for _ in range(needed))]
        return len(hits) * self.page_size

    def _take(self) -> int:
        page = self.free.popleft()
        self.references[page] += 1
        if "key-survives-reuse" not in self.faults:
            self.index = {key: found for key, found in self.index.items() if found != page}
        return page

    def publish(self, request: str, tokens: Tokens, salt: str | None) -> None:
        """The full pages of the request can be found from now on."""
        for key, page in zip(self.keys(tokens, salt), self.tables[request], strict=False):
            self.index.setdefault(key, page)

    def hold_back(self, request: str) -> None:
        self.detached[request] = self.tables.pop(request)

    def give_back(self, request: str) -> None:
        self._drop(self.tables.pop(request, []))

    def release(self, request: str) -> None:
        self._drop(self.detached.pop(request, []))

    def _drop(self, pages: list[int]) -> None:
        for page in reversed(pages):
            self.references[page] -= 1
            if self.references[page] == 0 or "free-ignores-count" in self.faults:
                self.free.extend([page] * (2 if "double-free" in self.faults else 1))

    def table(self, request: str) -> Pages:
        return Pages(self.name, (tuple(self.tables[request]),))

    def snapshot(self) -> PoolSnapshot:
        index: dict[str, frozenset[int]] = {repr(key): frozenset({page}) for key, page in self.index.items()}
        return PoolSnapshot(
            self.name,
            len(self.references),
            tuple(self.free),
            {request: (tuple(pages),) for request, pages in self.tables.items()},
            detached={request: tuple(pages) for request, pages in self.detached.items()},
            references=dict(enumerate(self.references)),
            index=index,
        )


@dataclass
class Job:
    """A request of an engine: what it has computed, whether a batch with it is queued, whether a remote write to it is under way."""

    asked: Submission
    tokens: Tokens
    admitted: bool = False
    computed: int = 0
    queued: bool = False
    loading: bool = False
    generated: int = 0


@dataclass
class Remote:
    """Remote operations, and which of them the engine has yet to hear of."""

    running: dict[str, Transfer] = field(default_factory=dict)
    ended: list[Transfer] = field(default_factory=list)
    expired: set[str] = field(default_factory=set)

    def begin(self, transfer: Transfer) -> None:
        self.running[transfer.id] = transfer

    def land(self, transfer: str) -> None:
        self.ended.append(self.running.pop(transfer))

    def heard(self) -> list[Transfer]:
        ended, self.ended = self.ended, []
        return [transfer for transfer in ended if transfer.id not in self.expired]


class ToyEngine:
    """One node. Faults are named as the variants of the spec `cached`; `depth` is how many batches may be under way."""

    engine, version, groups = "toy", "1", 1
    roles: tuple[Role, ...] = (Role.LOCAL, Role.PREFILL, Role.DECODE)
    lengths: tuple[int, ...] = ()
    capabilities = frozenset({Capability.SHARE, Capability.SALT, Capability.REMOTE, Capability.ABORT, Capability.EXPIRE})

    def __init__(self, pages: int = 4, page_size: int = 2, depth: int = 1, faults: frozenset[str] = frozenset()) -> None:
        self.page_size, self.depth, self.faults = page_size, depth, faults
        self.pool = Pool("", pages, page_size, faults)
        self.jobs: dict[str, Job] = {}
        self.asked: dict[str, tuple[Tokens, str | None]] = {}
        self.remote = Remote()
        self.number = 0

    def submit(self, submission: Submission) -> None:
        if self._places(submission) <= len(self.pool.references) * self.page_size:
            self.jobs[submission.request] = Job(submission, submission.tokens)
            self.asked[submission.request] = submission.tokens, submission.salt

    def _places(self, submission: Submission) -> int:
        return len(submission.tokens) + submission.max_new_tokens - 1

    def abort(self, request: str) -> None:
        job = self.jobs.pop(request)
        waits = (job.loading and "abort-frees-target" not in self.faults) or (job.queued and "freed-while-queued" not in self.faults)
        if job.admitted:
            (self.pool.hold_back if waits else self.pool.give_back)(request)

    def step(self) -> Batch | None:
        self._hear()
        if not self.jobs and not self.remote.running:
            return None
        for job in self.jobs.values():
            if not job.admitted and not self._admit(job):
                break
        work = [self._work(job) for job in self.jobs.values() if job.admitted and not job.queued and not job.loading]
        self.number += 1
        return Batch(self.number, tuple(work))

    def _admit(self, job: Job) -> bool:
        asked = job.asked
        found = self.pool.admit(asked.request, job.tokens, asked.salt, self._places(asked))
        if found is None:
            return False
        job.admitted, job.computed, job.loading = True, found, asked.role is Role.DECODE
        if job.loading:
            table = self.pool.table(asked.request)
            self.remote.begin(
                Transfer(f"write {asked.request}", asked.request, TransferKind.WRITE, job.tokens, asked.salt, found, None, table)
            )
        if not job.loading or "indexed-before-arrival" in self.faults:
            self.pool.publish(asked.request, job.tokens, asked.salt)
        return True

    def _work(self, job: Job) -> Work:
        asked = job.asked
        job.queued = True
        self.pool.publish(asked.request, job.tokens, asked.salt)
        count = len(job.tokens) - job.computed
        return Work(asked.request, job.tokens, asked.salt, job.computed, count, self.pool.table(asked.request))

    def complete(self, batch: Batch, sampled: Mapping[str, int]) -> None:
        for work in batch.work:
            job = self.jobs.get(work.request)
            if job is None:
                self.pool.release(work.request)
                continue
            job.queued, job.computed = False, len(job.tokens)
            job.tokens = (*job.tokens, sampled[work.request])
            self.asked[work.request] = job.tokens, work.salt
            job.generated += 1
            if job.generated == job.asked.max_new_tokens:
                del self.jobs[work.request]
                self._finish(job, work)
        self._hear()

    def _finish(self, job: Job, work: Work) -> None:
        if job.asked.role is not Role.PREFILL:
            self.pool.give_back(work.request)
            return
        self.remote.begin(
            Transfer(f"read {work.request}", work.request, TransferKind.READ, job.tokens[: job.computed], work.salt, 0, work.table, None)
        )
        self.pool.hold_back(work.request)

    def _hear(self) -> None:
        for transfer in self.remote.heard():
            job = self.jobs.get(transfer.request)
            if job is None:
                self.pool.release(transfer.request)
            else:
                job.loading, job.computed = False, len(job.tokens) - 1
                self.pool.publish(transfer.request, job.tokens, transfer.salt)

    def transfers(self) -> tuple[Transfer, ...]:
        return tuple(self.remote.running.values())

    def land(self, transfer: str) -> None:
        self.remote.land(transfer)

    def expire(self, transfer: str) -> None:
        if self.remote.running[transfer].kind is TransferKind.READ and transfer not in self.remote.expired:
            self.remote.expired.add(transfer)
            self.pool.release(self.remote.running[transfer].request)

    def live(self) -> frozenset[str]:
        return frozenset(self.jobs)

    def keys(self, request: str) -> tuple[tuple[str, ...], ...] | None:
        return (tuple(map(repr, self.pool.keys(*self.asked[request]))),) if request in self.asked else None

    def snapshot(self) -> Snapshot:
        return Snapshot((self.pool.snapshot(),), frozenset(self.jobs))


@dataclass
class Pair:
    """A request of two nodes. `prompt` is what prefill takes it to be."""

    asked: Submission
    prompt: Tokens
    prefilled: bool = False
    queued: bool = False
    sent: bool = False
    arrived: bool = False
    tokens: Tokens = ()
    generated: int = 0


class ToyHandoff:
    """A prefill and a decode node without a prefix cache. Prompts that prefill has no room for are refused.

    Faults: ``stub`` (prefill swaps such a prompt for its first token, and decode does not hear of it),
    ``abort-without-quarantine``, and ``gives-up`` (a deadline for what is held back).
    """

    engine, version, groups, depth = "toy-handoff", "1", 1, 1
    roles: tuple[Role, ...] = (Role.HANDOFF,)

    def __init__(self, prefill: int = 1, decode: int = 3, page_size: int = 2, faults: frozenset[str] = frozenset()) -> None:
        self.page_size, self.faults = page_size, faults
        self.capabilities = frozenset({Capability.ABORT} | ({Capability.EXPIRE} if "gives-up" in faults else set()))
        self.prefill, self.decode = Pool("prefill", prefill, page_size, frozenset()), Pool("decode", decode, page_size, frozenset())
        self.lengths: tuple[int, ...] = (prefill * page_size, prefill * page_size + 1)
        self.jobs: dict[str, Pair] = {}
        self.remote = Remote()
        self.number = 0

    def submit(self, submission: Submission) -> None:
        tokens, size = submission.tokens, self.page_size
        room = len(self.decode.references) * size >= len(tokens) + submission.max_new_tokens
        if len(tokens) <= len(self.prefill.references) * size and room:
            self.jobs[submission.request] = Pair(submission, tokens)
        elif room and "stub" in self.faults:
            self.jobs[submission.request] = Pair(submission, tokens[:1])

    def abort(self, request: str) -> None:
        job = self.jobs.pop(request)
        for pool in (self.prefill, self.decode):
            if request in pool.tables:
                waits = job.queued or (job.sent and not job.arrived and "abort-without-quarantine" not in self.faults)
                (pool.hold_back if waits else pool.give_back)(request)

    def step(self) -> Batch | None:
        self._hear()
        work = []
        for name, job in self.jobs.items():
            if name not in self.decode.tables:
                self.decode.admit(name, (), None, len(job.asked.tokens) + job.asked.max_new_tokens)
            if not job.prefilled and not job.queued and self.prefill.admit(name, (), None, len(job.prompt)) is not None:
                job.queued = True
                work.append(Work(name, job.prompt, None, 0, len(job.prompt), self.prefill.table(name), answers=False))
            elif job.arrived and not job.queued:
                job.queued = True
                work.append(Work(name, job.tokens, None, len(job.tokens) - 1, 1, self.decode.table(name)))
            self._send(name, job)
        self.number += 1
        return Batch(self.number, tuple(work)) if work else None

    def _send(self, name: str, job: Pair) -> None:
        if job.prefilled and not job.sent and name in self.decode.tables:
            job.sent = True
            source, target = self.prefill.table(name), self.decode.table(name)
            self.remote.begin(Transfer(f"send {name}", name, TransferKind.WRITE, job.prompt, None, 0, source, target))

    def complete(self, batch: Batch, sampled: Mapping[str, int]) -> None:
        for work in batch.work:
            name = work.request
            job = self.jobs.get(name)
            if job is None:
                self._release(name)
                continue
            job.queued = False
            if not job.prefilled:
                job.prefilled, job.tokens = True, (*job.asked.tokens, sampled[name])
                self._send(name, job)
                continue
            job.tokens = (*job.tokens, sampled[name])
            job.generated += 1
            if job.generated == job.asked.max_new_tokens:
                del self.jobs[name]
                self.decode.give_back(name)
        self._hear()

    def _hear(self) -> None:
        for transfer in self.remote.heard():
            job = self.jobs.get(transfer.request)
            if job is None:
                self._release(transfer.request)
            else:
                job.arrived = True
                self.prefill.give_back(transfer.request)

    def _release(self, request: str) -> None:
        self.prefill.release(request)
        self.decode.release(request)

    def transfers(self) -> tuple[Transfer, ...]:
        return tuple(self.remote.running.values())

    def land(self, transfer: str) -> None:
        self.remote.land(transfer)

    def expire(self, transfer: str) -> None:
        request = self.remote.running[transfer].request
        if request not in self.jobs and "gives-up" in self.faults:
            self.remote.expired.add(transfer)
            self._release(request)

    def live(self) -> frozenset[str]:
        return frozenset(self.jobs)

    def keys(self, request: str) -> tuple[tuple[str, ...], ...]:
        return ((),)

    def snapshot(self) -> Snapshot:
        return Snapshot((self.prefill.snapshot(), self.decode.snapshot()), frozenset(self.jobs))


def toy(*faults: str, pages: int = 4, depth: int = 1) -> Callable[[], ToyEngine]:
    """A function that makes the engine of one node."""
    return lambda: ToyEngine(pages, depth=depth, faults=frozenset(faults))


def handoff(*faults: str, prefill: int = 1, decode: int = 3) -> Callable[[], ToyHandoff]:
    """A function that makes the engine of two nodes."""
    return lambda: ToyHandoff(prefill, decode, faults=frozenset(faults))
