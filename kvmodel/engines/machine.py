"""Hypothesis drives a real engine through its adapter, and the spec's properties are evaluated after every rule.

The machine keeps what the engine does not have: shadow KV memory, and the operations in flight. It decides when a remote
write lands, which request is aborted, how long prompts are. Pools should be small: with three to six usable pages there is
hardly a run in which they do not run out.

Import this module where it is needed: it imports Hypothesis.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, strategies
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from kvmodel.engines.adapter import (
    Allocator,
    Batch,
    Capability,
    Engine,
    Pages,
    Role,
    Submission,
    Tokens,
    Transfer,
    TransferKind,
    Work,
)
from kvmodel.engines.mapping import Read, Requests, map_snapshot
from kvmodel.engines.observer import Observer, Watch
from kvmodel.engines.shadow import Prefixes, Shadow, Written
from kvmodel.errors import EngineDriftError, KvmodelError, printable
from kvmodel.traces.observed import Call, Verb, call_text
from kvmodel.traces.trace import Trace

__all__ = [
    "ALLOCATOR_VERBS",
    "ENGINE_VERBS",
    "AllocatorMachine",
    "EngineMachine",
    "EngineViolation",
    "Record",
    "machine_for",
    "search",
]

Adapter: TypeAlias = Allocator | Engine

DRIFT = (AttributeError, ImportError, NameError, NotImplementedError, TypeError)
"""What a release that the adapter does not know raises; anything else that comes out of an engine is a finding."""

MOST_REQUESTS = 6  # live at a time
LONGEST = 7  # pages that a prompt may need
ALPHABET = 2  # different tokens: few, so that prompts share prefixes
SALTS = (None, "tenant")

ALLOCATOR_VERBS = (
    Verb("admit", "A request asks for pages for its prompt; the cache may have some of them.", request=True),
    Verb("arrived", "The remote writes for the request have landed.", request=True),
    Verb("extend", "The request asks for a place for one more token.", request=True),
    Verb("free", "The request ends and gives back its pages.", request=True),
    Verb("detach", "The request ends; its pages are held back.", request=True),
    Verb("release", "What was held back for the request goes back to the pool.", request=True),
    Verb("evict", "Entries of the cache index are dropped."),
    Verb("reset", "The whole cache index is dropped."),
)
ENGINE_VERBS = (
    Verb("submit", "A client sends a request.", request=True),
    Verb("schedule", "The engine schedules a batch."),
    Verb("run", "The oldest batch runs: it computes KV into pages and attends to them."),
    Verb("complete", "The engine takes in what the batch sampled, and which remote operations ended."),
    Verb("land", "A remote write for the request lands, or a remote read of its pages ends.", request=True),
    Verb("abort", "The client goes away.", request=True),
    Verb("expire", "The deadline of a remote operation on the request's pages passes; the operation goes on.", request=True),
)


class EngineViolation(AssertionError):
    """A run of an engine violated a property. Each property is raised as a subclass of its own, so that Hypothesis tells
    their violations apart when it shrinks. `name` is the property, or `engine_error`; `trace` is the run."""

    def __init__(self, name: str, trace: Trace, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.trace = trace


@dataclass
class Record:
    """What a search keeps of all the runs of its machines: for each violation its shortest run, and what was ever seen."""

    deadline: float | None = None
    progress: Callable[[str], None] | None = None
    found: dict[str, Trace] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)
    watch: Watch | None = None
    runs: int = 0
    stopped: str = ""  # why the search ended early
    told: float = 0.0

    def started(self) -> None:
        now = time.monotonic()
        if self.deadline is not None and now > self.deadline:
            raise OutOfTime
        self.runs += 1
        if self.progress is not None and now - self.told > 0.3:
            self.told = now
            self.progress(f"{self.runs:,} runs, {sum(self.done.values()):,} calls")

    def did(self, verb: str) -> None:
        self.done[verb] = self.done.get(verb, 0) + 1

    def add(self, name: str, trace: Trace) -> None:
        known = self.found.get(name)
        if known is None or len(trace.steps) <= len(known.steps):
            self.found[name] = trace


class OutOfTime(KeyboardInterrupt):
    """Ends a search that is out of time: Hypothesis lets an interrupt through, and takes anything else for a failure."""


class _Machine(RuleBasedStateMachine):
    """What both machines share: requests, shadow memory, and looking at the engine after every call."""

    make: ClassVar[Callable[[], Any]]
    failures: ClassVar[dict[str, type[EngineViolation]]]
    record: ClassVar[Record | None] = None
    name: ClassVar[str]
    verbs: ClassVar[tuple[Verb, ...]]

    def __init__(self) -> None:
        super().__init__()
        self.over = False
        if self.record is not None:
            self.record.started()
        self.adapter = type(self).make()
        start = self.adapter.snapshot()
        null = frozenset((pool.name, page) for pool in start.pools for page in pool.null)
        prefixes = Prefixes()
        self.memory = Shadow(self.adapter.page_size, prefixes, null)
        self.ahead = Shadow(self.adapter.page_size, prefixes, null)
        self.requests = Requests()
        self.observer = Observer(self.adapter.engine, self.adapter.version, self.name, self.verbs, start)
        self._look(None)

    # -- for the two levels

    def _operations(self) -> tuple[Sequence[Read], Sequence[Transfer], Sequence[Work]]:
        """Reads that happen now, remote operations in flight, and work that is queued."""
        raise NotImplementedError

    def _known(self) -> frozenset[str] | None:
        """The requests that have not ended, where the snapshot does not say."""
        return None

    def drain(self) -> None:
        """Let everything end."""
        raise NotImplementedError

    def teardown(self) -> None:
        if not self.over:
            self.drain()

    # -- looking

    def _look(self, call: Call | None) -> None:
        snapshot = self.adapter.snapshot()
        reads, transfers, queued = self._operations()
        facts = map_snapshot(snapshot, self.requests, self.memory, self.ahead, reads, transfers, queued)
        known = self._known()
        if known is not None:
            facts["known"] = {(request,): True for request in known}
        violated = self.observer.see(facts, call)
        record = self.record
        if record is not None:
            record.watch = self.observer.watch
            record.seen |= self.observer.seen
            record.unsure |= self.observer.unsure
            if call is not None:
                record.did(str(call["verb"]))
        if violated:
            trace = self.observer.trace(violated[0])
            if record is not None:
                for name in violated:
                    record.add(name, self.observer.trace(name))
            self._fail(violated[0], trace, f"{violated[0]} is violated")

    @contextmanager
    def _asking(self, call: Call) -> Iterator[None]:
        """What the engine raises is a finding, unless it says that the adapter does not know this release."""
        try:
            yield
        except (KvmodelError, EngineViolation, hypothesis.errors.HypothesisException):
            raise
        except DRIFT as problem:
            reason = f"{type(problem).__name__} in {call['verb']}: {problem}"
            raise EngineDriftError(
                self.observer.engine, self.observer.version, f"behaviour as the {self.name} adapter expects", "other releases", reason
            ) from problem
        except Exception as problem:
            finding = f"the engine raised {type(problem).__name__}: {printable(str(problem), 300)}"
            self.observer.calls.append(call)
            self.observer.facts.append(self.observer.facts[-1])
            trace = self.observer.trace("", finding)
            if self.record is not None:
                self.record.add(ENGINE_ERROR, trace)
            self._fail(ENGINE_ERROR, trace, finding)

    def _fail(self, name: str, trace: Trace, what: str) -> None:
        observed = trace.observed
        assert observed is not None
        lines = [f"  {number}. {call_text(call)}" for number, call in enumerate(observed.calls, start=1)]
        self.over = True
        failure = self.failures.setdefault(name, _failure(name))
        raise failure(name, trace, "\n".join([f"{what} by this run of {observed.title}:", *lines]))


ENGINE_ERROR = "engine_error"


def _failure(name: str) -> type[EngineViolation]:
    return type("EngineViolation", (EngineViolation,), {"__doc__": f"{name} is violated.", "__module__": __name__})


def _prompts(page_size: int, lengths: Sequence[int] = ()) -> strategies.SearchStrategy[Tokens]:
    """Token lists over a small alphabet; with `lengths`, many of them are as long as one of these."""
    token = strategies.integers(0, ALPHABET - 1)
    plain = strategies.lists(token, min_size=1, max_size=LONGEST * page_size // 2).map(tuple)
    if not lengths:
        return plain
    return strategies.one_of(strategies.sampled_from(sorted(set(lengths))), strategies.integers(1, max(lengths))).map(lambda n: (0,) * n)


class AllocatorMachine(_Machine):
    """Drives the bookkeeping of one pool. A live request is taken to read all of its tokens at any time."""

    verbs = ALLOCATOR_VERBS

    def __init__(self) -> None:
        self.live: dict[str, int] = {}  # requests that hold pages, with the tokens that are computed
        self.waiting: dict[str, Transfer] = {}  # remote writes in flight, by request
        self.held_back: list[str] = []
        self.ended: list[str] = []  # rejected or freed: they may come back
        super().__init__()

    def _operations(self) -> tuple[Sequence[Read], Sequence[Transfer], Sequence[Work]]:
        reads = [
            Read(request, self.requests.tokens[request], self.requests.salts[request], 0, computed, self._table(request))
            for request, computed in self.live.items()
            if request not in self.waiting
        ]
        return reads, tuple(self.waiting.values()), ()

    def _known(self) -> frozenset[str]:
        return frozenset(self.live)

    def _table(self, request: str) -> Pages:
        pool = self.adapter.snapshot().pools[0]
        return Pages(pool.name, pool.tables.get(request, ()))

    def _can(self, capability: Capability) -> bool:
        return capability in self.adapter.capabilities

    def _pick(self, names: Sequence[str], index: int) -> str:
        return names[index % len(names)]

    def _settled(self) -> list[str]:
        return [request for request in self.live if request not in self.waiting]

    @precondition(lambda self: len(self.live) < MOST_REQUESTS)
    @rule(data=strategies.data(), salt=strategies.sampled_from(SALTS), external=strategies.integers(0, 4), remote=strategies.booleans())
    def admit(self, data: strategies.DataObject, salt: str | None, external: int, remote: bool) -> None:
        request = f"r{len(self.requests.tokens)}"
        self.requests.tokens[request] = data.draw(_prompts(self.adapter.page_size), label="tokens")
        self.requests.salts[request] = salt if self._can(Capability.SALT) else None
        self._admit(request, external, remote)

    @precondition(lambda self: self.ended and len(self.live) < MOST_REQUESTS)
    @rule(which=strategies.integers(0, 9))
    def resume(self, which: int) -> None:
        """A request that was rejected or preempted is admitted again."""
        request = self._pick(self.ended, which)
        self.ended.remove(request)
        self._admit(request, 0, False)

    def _admit(self, request: str, external: int, remote: bool) -> None:
        tokens, salt = self.requests.tokens[request], self.requests.salts[request]
        size = self.adapter.page_size
        remote = remote and self._can(Capability.REMOTE)
        wanted = min(external * size, (len(tokens) - 1) // size * size) if self._can(Capability.EXTERNAL) and not remote else 0
        call = {"verb": "admit", "request": request, "tokens": tokens, "salt": salt, "external": wanted, "remote": remote}
        with self._asking(call):
            admission = self.adapter.admit(request, tokens, salt, wanted, remote)
            keys = self.adapter.keys(request)
        if admission is None:
            self.ended.append(request)
            self._look({**call, "rejected": True})
            return
        self.requests.learn_keys(request, keys, self.memory)
        self.live[request] = len(tokens)
        first = admission.hit_tokens
        if remote:
            self.waiting[request] = Transfer(request, request, TransferKind.WRITE, tokens, salt, first, None, self._table(request))
        else:
            self._compute(request, first, len(tokens))
        self._look(call)

    def _compute(self, request: str, first: int, end: int) -> None:
        for shadow in (self.memory, self.ahead):
            shadow.compute(request, self.requests.tokens[request], self.requests.salts[request], first, end, self._table(request))

    @precondition(lambda self: self.waiting)
    @rule(which=strategies.integers(0, 9))
    def arrived(self, which: int) -> None:
        request = self._pick(list(self.waiting), which)
        transfer = self.waiting.pop(request)
        call = {"verb": "arrived", "request": request}
        assert transfer.target is not None
        for shadow in (self.memory, self.ahead):
            shadow.compute(request, transfer.tokens, transfer.salt, transfer.first, len(transfer.tokens), transfer.target)
        with self._asking(call):
            self.adapter.arrived(request)
        self._look(call)

    @precondition(lambda self: self._settled() and self._can(Capability.EXTEND))
    @rule(which=strategies.integers(0, 9), token=strategies.integers(0, ALPHABET - 1))
    def extend(self, which: int, token: int) -> None:
        request = self._pick(self._settled(), which)
        if len(self.requests.tokens[request]) >= LONGEST * self.adapter.page_size:
            return
        call = {"verb": "extend", "request": request, "token": token}
        with self._asking(call):
            extended = self.adapter.extend(request, token)
        if not extended:
            self._look({**call, "rejected": True})
            return
        self.requests.tokens[request] += (token,)
        with self._asking(call):
            self.requests.learn_keys(request, self.adapter.keys(request), self.memory)
        computed = self.live[request]
        self.live[request] = computed + 1
        self._compute(request, computed, computed + 1)
        self._look(call)

    @precondition(lambda self: self._settled())
    @rule(which=strategies.integers(0, 9))
    def free(self, which: int) -> None:
        request = self._pick(self._settled(), which)
        self._end(request, "free")
        self.ended.append(request)

    @precondition(lambda self: self._settled() and self._can(Capability.DETACH))
    @rule(which=strategies.integers(0, 9))
    def detach(self, which: int) -> None:
        request = self._pick(self._settled(), which)
        self.held_back.append(request)
        self._end(request, "detach")

    def _end(self, request: str, verb: str) -> None:
        call = {"verb": verb, "request": request}
        with self._asking(call):
            getattr(self.adapter, verb)(request)
        del self.live[request]
        self._look(call)

    @precondition(lambda self: self.held_back)
    @rule()
    def release(self) -> None:
        request = self.held_back.pop(0)
        call = {"verb": "release", "request": request}
        with self._asking(call):
            self.adapter.release(request)
        self._look(call)

    @precondition(lambda self: self._can(Capability.EVICT))
    @rule(pages=strategies.frozensets(strategies.integers(0, 20), min_size=1, max_size=3))
    def evict(self, pages: frozenset[int]) -> None:
        pool = self.adapter.snapshot().pools[0]
        chosen = frozenset(page % pool.pages for page in pages) - pool.null
        call = {"verb": "evict", "pages": tuple(sorted(chosen))}
        with self._asking(call):
            self.adapter.evict(chosen)
        self._look(call)

    @precondition(lambda self: self._can(Capability.RESET))
    @rule()
    def reset(self) -> None:
        call: dict[str, object] = {"verb": "reset"}
        with self._asking(call):
            done = self.adapter.reset()
        self._look({**call, "rejected": not done})

    def drain(self) -> None:
        """Everything ends: then nothing may be held any more."""
        while self.waiting:
            self.arrived(0)
        while self.live:
            self._end(next(iter(self.live)), "free")
        while self.held_back:
            self.release()


class EngineMachine(_Machine):
    """Drives an engine: its queues, its batches, and the remote operations that it begins.

    Batches run in the order in which they were scheduled; remote operations end in any order. With `hazards` the machine
    also lets deadlines pass that the engine is entitled to give up at.
    """

    verbs = ENGINE_VERBS
    hazards: ClassVar[frozenset[Capability]] = frozenset()

    def __init__(self) -> None:
        self.queue: list[Batch] = []
        self.reads: tuple[Read, ...] = ()
        self.flight: dict[str, Transfer] = {}
        self.captured: dict[str, tuple[Written | None, ...]] = {}
        self.slow: set[str] = set()
        self.submitted: list[str] = []
        super().__init__()

    def _operations(self) -> tuple[Sequence[Read], Sequence[Transfer], Sequence[Work]]:
        return self.reads, tuple(self.flight.values()), [work for batch in self.queue for work in batch.work]

    def _live(self) -> list[str]:
        live = self.adapter.live()
        return [request for request in self.submitted if request in live]

    def _call(self, verb: str, **given: object) -> dict[str, object]:
        return {"verb": verb, **given}

    # -- what the engine is asked

    @rule(
        data=strategies.data(),
        salt=strategies.sampled_from(SALTS),
        role=strategies.integers(0, 9),
        new=strategies.integers(1, 4),
        slow=strategies.booleans(),
    )
    def submit(self, data: strategies.DataObject, salt: str | None, role: int, new: int, slow: bool) -> None:
        if len(self._live()) >= MOST_REQUESTS:
            return
        request = f"r{len(self.submitted)}"
        tokens = data.draw(_prompts(self.adapter.page_size, self.adapter.lengths), label="tokens")
        chosen: Role = self.adapter.roles[role % len(self.adapter.roles)]
        salt = salt if Capability.SALT in self.adapter.capabilities else None
        submission = Submission(request, tokens, salt, chosen, 1 if chosen is Role.PREFILL else new)
        self.submitted.append(request)
        self.requests.tokens[request], self.requests.salts[request] = tokens, salt
        if slow:
            self.slow.add(request)
        call = self._call("submit", request=request, tokens=tokens, salt=salt, role=chosen.name, new=submission.max_new_tokens)
        with self._asking(call):
            self.adapter.submit(submission)
        self._transfers()
        self._look(call)

    @precondition(lambda self: len(self.queue) < self.adapter.depth)
    @rule()
    def schedule(self) -> None:
        call = self._call("schedule")
        with self._asking(call):
            batch = self.adapter.step()
        if batch is not None:
            self.queue.append(batch)
            for work in batch.work:
                self._learn(work)
                self.ahead.compute(work.request, work.tokens, work.salt, work.first, work.first + work.count, work.table)
        self._transfers()
        self._look({**call, "batch": tuple(f"{work.request}:{work.first}+{work.count}" for work in batch.work) if batch else ()})
        self._land_quick()

    def _learn(self, work: Work) -> None:
        """The engine may have generated tokens that the machine has not seen yet."""
        if len(work.tokens) > len(self.requests.tokens[work.request]):
            self.requests.tokens[work.request] = work.tokens

    @precondition(lambda self: self.queue)
    @rule(token=strategies.integers(0, ALPHABET - 1))
    def run(self, token: int) -> None:
        """The oldest batch runs and is taken in."""
        batch = self.queue.pop(0)
        for work in batch.work:
            self.memory.compute(work.request, work.tokens, work.salt, work.first, work.first + work.count, work.table)
        live = self.adapter.live()
        self.reads = tuple(
            Read(work.request, work.tokens, work.salt, 0, work.first + work.count, work.table)
            for work in batch.work
            if work.answers and work.request in live
        )
        self._transfers()
        self._look(self._call("run", batch=tuple(work.request for work in batch.work)))
        self.reads = ()
        sampled = {work.request: token for work in batch.work}
        call = self._call("complete", token=token)
        with self._asking(call):
            self.adapter.complete(batch, sampled)
        self._transfers()
        self._look(call)
        self._land_quick()

    @rule(token=strategies.integers(0, ALPHABET - 1), times=strategies.integers(1, 3))
    def step(self, token: int, times: int) -> None:
        """Whole engine steps: with this rule short runs get somewhere."""
        for _ in range(times):
            if len(self.queue) < self.adapter.depth:
                self.schedule()
            if self.queue:
                self.run(token)

    @precondition(lambda self: self.flight)
    @rule(which=strategies.integers(0, 9))
    def land(self, which: int) -> None:
        self._land(list(self.flight)[which % len(self.flight)])

    def _land(self, id: str) -> None:
        transfer = self.flight.pop(id)
        if transfer.kind is TransferKind.WRITE and transfer.target is not None:
            end = len(transfer.tokens)
            for shadow in (self.memory, self.ahead):
                if transfer.source is None:
                    shadow.compute(transfer.request, transfer.tokens, transfer.salt, transfer.first, end, transfer.target)
                else:
                    shadow.store(transfer.target, transfer.first, end, self.captured[id])
        call = self._call("land", request=transfer.request, transfer=id)
        with self._asking(call):
            self.adapter.land(id)
        self._transfers()
        self._look(call)

    def _land_quick(self) -> None:
        """Remote operations of requests that are not slow end as soon as they can."""
        for id in [id for id, transfer in self.flight.items() if transfer.request not in self.slow]:
            if id in self.flight:
                self._land(id)

    @precondition(lambda self: Capability.ABORT in self.adapter.capabilities and self._live())
    @rule(which=strategies.integers(0, 9), mind=strategies.integers(0, 2))
    def abort(self, which: int, mind: int) -> None:
        if mind:  # progress is to be more frequent than aborts
            return
        live = self._live()
        self._abort(live[which % len(live)])

    def _abort(self, request: str) -> None:
        call = self._call("abort", request=request)
        with self._asking(call):
            self.adapter.abort(request)
        self._transfers()
        self._look(call)

    @precondition(lambda self: Capability.EXPIRE in self.hazards and self.flight)
    @rule(which=strategies.integers(0, 9))
    def expire(self, which: int) -> None:
        id = list(self.flight)[which % len(self.flight)]
        call = self._call("expire", request=self.flight[id].request, transfer=id)
        with self._asking(call):
            self.adapter.expire(id)
        self._transfers()
        self._look(call)

    # -- what the engine began

    def _transfers(self) -> None:
        """Take note of remote operations that have begun. Only the machine ends them: what an engine forgets goes on."""
        for transfer in self.adapter.transfers():
            if transfer.id not in self.flight and transfer.id not in self.captured:
                self.flight[transfer.id] = transfer
                table = transfer.source
                self.captured[transfer.id] = (
                    () if table is None else self.memory.captured(table, transfer.first, len(transfer.tokens))
                )

    def drain(self) -> None:
        """Every client goes away and everything in flight ends: then nothing may be held any more."""
        for request in self._live():
            self._abort(request)
        for _ in range(2 * self.adapter.depth + 4):
            for id in list(self.flight):
                self._land(id)
            self.schedule()
            while self.queue:
                self.run(0)


def machine_for(
    make: Callable[[], Adapter], name: str, *, hazards: frozenset[Capability] = frozenset(), record: Record | None = None
) -> type[_Machine]:
    """A Hypothesis state machine over the adapter that `make` gives, a new one for each run. Its `TestCase` goes into a test
    suite; a violation is raised as `EngineViolation`, with the run as a trace. `name` says which part of the engine is driven.
    """
    base: type[_Machine] = EngineMachine if hasattr(make(), "submit") else AllocatorMachine
    members = {"make": staticmethod(make), "name": name, "failures": {}, "record": record, "hazards": hazards, "__module__": __name__}
    title = "".join(part.capitalize() for part in "".join(c if c.isalnum() else " " for c in name).split())
    return type(f"{title}Machine", (base,), members)


def search(
    make: Callable[[], Adapter],
    name: str,
    *,
    examples: int = 200,
    steps: int = 50,
    seed: int = 0,
    timeout: float | None = None,
    hazards: frozenset[Capability] = frozenset(),
    shrink: bool = True,
    progress: Callable[[str], None] | None = None,
) -> Record:
    """Let Hypothesis drive an engine for `examples` runs of at most `steps` rules, and shrink what it finds.

    Needs neither pytest nor Hypothesis' database; one seed gives one result. Raises EngineDriftError where the adapter does
    not fit the release. Ends early after `timeout` seconds, or at Ctrl-C, with what was found so far.
    """
    record = Record(None if timeout is None else time.monotonic() + timeout, progress)
    machine = machine_for(make, name, hazards=hazards, record=record)
    settings = hypothesis.settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],  # explaining takes minutes and says nothing here
        print_blob=False,
        verbosity=Verbosity.quiet,
    )
    try:
        run_state_machine_as_test(hypothesis.seed(seed)(machine), settings=settings)
    except EngineViolation:
        pass
    except KeyboardInterrupt as stopped:
        record.stopped = "out of time" if isinstance(stopped, OutOfTime) else "interrupted"
    except BaseExceptionGroup as group:
        others = group.split(EngineViolation)[1]
        if others is not None:
            raise others from None
    return record
