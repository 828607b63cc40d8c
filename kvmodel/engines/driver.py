"""Driving a real engine through its adapter, one call at a time, and judging it by the spec after every call.

A driver keeps what the engine does not have: shadow KV memory, and the operations in flight. It decides nothing: the calls
come from a machine (`kvmodel.engines.machine`), or from a trace that is played again (`kvmodel.engines.play`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, cast

from kvmodel.engines.adapter import Allocator, Batch, Capability, Engine, Pages, Role, Submission, Tokens, Transfer, TransferKind, Work
from kvmodel.engines.conformance import ALLOWED
from kvmodel.engines.mapping import Read, Requests, map_snapshot
from kvmodel.engines.observer import Observer, Watch
from kvmodel.engines.shadow import Prefixes, Shadow, Written
from kvmodel.errors import EngineDriftError, KvmodelError, printable
from kvmodel.traces.observed import Call, Verb, call_text
from kvmodel.traces.trace import Trace

__all__ = [
    "ENGINE_ERROR",
    "Adapter",
    "AllocatorDriver",
    "Driver",
    "EngineDriver",
    "EngineViolation",
    "HAZARDS",
    "Halt",
    "Make",
    "Record",
    "driver_for",
    "failure_of",
]

Adapter: TypeAlias = Allocator | Engine
Make: TypeAlias = Callable[[], Adapter]

ENGINE_ERROR = "engine_error"
"""The property that an engine raises no error, beside those of the spec."""

DRIFT = (AttributeError, ImportError, NameError, NotImplementedError, TypeError)
"""What a release that the adapter does not know raises; anything else that comes out of an engine is a finding."""


HAZARDS = frozenset({Capability.EXPIRE})
"""Capabilities that are driven only when asked for: the engine is entitled to what then goes wrong."""


class EngineViolation(AssertionError):
    """A run of an engine violated a property. Each property is raised as a subclass of its own, so that Hypothesis tells
    their violations apart when it shrinks. `name` is the property, or `engine_error`; `trace` is the run."""

    def __init__(self, name: str, trace: Trace, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.trace = trace


class Halt(KeyboardInterrupt):
    """Ends a search that has found something: Hypothesis lets an interrupt through, and would go on after anything else."""


_FAILURES: dict[str, type[EngineViolation]] = {}


def failure_of(name: str) -> type[EngineViolation]:
    """The exception that says that `name` is violated: one class for each property."""
    if name not in _FAILURES:
        _FAILURES[name] = type("EngineViolation", (EngineViolation,), {"__doc__": f"{name} is violated.", "__module__": __name__})
    return _FAILURES[name]


@dataclass
class Record:
    """What is kept of many runs: for each violation its shortest run, how often each verb was called, and what was ever seen.

    `unsure` are properties that could not be told in some state, `stopped` says why a search ended early; with `halts` the first
    violation of one of `fatal` (empty: of any property) ends it.
    """

    found: dict[str, Trace] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)
    watch: Watch | None = None
    runs: int = 0
    compared: int = 0  # calls that were compared with the spec's steps
    stopped: str = ""
    halts: bool = False
    fatal: frozenset[str] = frozenset()

    @property
    def calls(self) -> int:
        """Calls of all runs."""
        return sum(self.done.values())

    def wants(self, name: str, length: int) -> bool:
        """Whether a run of so many calls is shorter than what is known to violate a property."""
        return name not in self.found or length < len(self.found[name].steps)

    def add(self, name: str, trace: Trace) -> None:
        """Note a violation."""
        if self.wants(name, len(trace.steps)):
            self.found[name] = trace


class Driver:
    """What both levels share: requests, shadow memory, and looking at the engine after every call.

    `name` says which part of the engine the adapter drives; `describe` writes a run for the message of a violation.
    """

    verbs: ClassVar[tuple[Verb, ...]]
    needs: ClassVar[Mapping[str, Capability]]

    def __init__(self, adapter: Any, name: str, record: Record | None = None) -> None:
        self.adapter = adapter
        self.name = name
        self.record = record
        self.over = False
        self.describe: Callable[[Trace], str] = listed
        start = adapter.snapshot()
        null = frozenset((pool.name, page) for pool in start.pools for page in pool.null)
        prefixes = Prefixes()
        self.memory = Shadow(adapter.page_size, prefixes, null)
        self.ahead = Shadow(adapter.page_size, prefixes, null)
        self.requests = Requests()
        self.observer = Observer(adapter.engine, adapter.version, name, self.verbs, start)
        if record is not None:
            self.observer.unsure = record.unsure
        self._look(None)

    def can(self, capability: Capability) -> bool:
        """Whether the adapter says that it can."""
        return capability in self.adapter.capabilities

    def usable(self, hazards: frozenset[Capability] = frozenset()) -> tuple[Verb, ...]:
        """The verbs that this adapter can be asked for; of hazards only those in `hazards`."""
        able = self.adapter.capabilities - (HAZARDS - hazards)
        return tuple(verb for verb in self.verbs if verb.name not in self.needs or self.needs[verb.name] in able)

    def do(self, call: Call) -> bool:
        """Make a call that a trace has. False, and nothing happens, where it does not make sense here."""
        raise NotImplementedError

    def drain(self) -> None:
        """Let everything end; then nothing may be held any more."""
        raise NotImplementedError

    def _operations(self) -> tuple[Sequence[Read], Sequence[Transfer], Sequence[Work]]:
        """Reads that happen now, remote operations in flight, and work that is queued."""
        raise NotImplementedError

    def _known(self) -> frozenset[str] | None:
        """The requests that have not ended, where the snapshot does not say."""
        return None

    def _look(self, call: Call | None) -> None:
        reads, transfers, queued = self._operations()
        facts = map_snapshot(self.adapter.snapshot(), self.requests, self.memory, self.ahead, reads, transfers, queued)
        known = self._known()
        if known is not None:
            facts["known"] = {(request,): True for request in known}
        violated = self.observer.see(facts, call)
        record = self.record
        if record is not None:
            record.watch = self.observer.watch
            record.seen |= self.observer.seen
            if call is not None:
                verb = str(call["verb"])
                record.done[verb] = record.done.get(verb, 0) + 1
            for name in violated:
                if record.wants(name, len(self.observer.calls)):
                    record.add(name, self.observer.trace(name))
        fatal = record.fatal if record is not None else frozenset()
        for name in violated:
            if not fatal or name in fatal:
                self._fail(name, self.observer.trace(name), f"{name} is violated")
        if call is not None and not violated and self._follows_spec():
            self._require_allowed(call)

    def _follows_spec(self) -> bool:
        """Whether the engine's calls are to be sequences of the spec's steps."""
        return False

    def _require_allowed(self, call: Call) -> None:
        if self.record is not None:
            self.record.compared += 1
        reason = self.observer.not_allowed(call)
        if reason:
            trace = self.observer.trace("", reason)
            if self.record is not None:
                self.record.add(ALLOWED, trace)
            if self.record is None or not self.record.fatal or ALLOWED in self.record.fatal:
                self._fail(ALLOWED, trace, reason)

    @contextmanager
    def _asking(self, call: Call) -> Iterator[None]:
        """What the engine raises is a finding, unless it says that the adapter does not know this release."""
        try:
            yield
        except KvmodelError:
            raise
        except DRIFT as problem:
            engine, version = self.observer.engine, self.observer.version
            reason = f"{type(problem).__name__} in {call['verb']}: {problem}"
            symbol = f"behaviour as the {self.name} adapter expects"
            raise EngineDriftError(engine, version, symbol, "other releases", reason) from problem
        except Exception as problem:
            finding = f"the engine raised {type(problem).__name__}: {printable(str(problem), 300)}"
            trace = self.observer.ended(call, finding)
            if self.record is not None:
                self.record.add(ENGINE_ERROR, trace)
            self._fail(ENGINE_ERROR, trace, finding)

    def _fail(self, name: str, trace: Trace, what: str) -> None:
        assert trace.observed is not None
        self.over = True
        if self.record is not None and self.record.halts:
            raise Halt
        raise failure_of(name)(name, trace, f"{what} by this run of {trace.observed.title}:\n{self.describe(trace)}")


class AllocatorDriver(Driver):
    """Drives the bookkeeping of one pool. A request that is not waiting for remote writes is taken to read all of its tokens
    at any time."""

    verbs = (
        Verb("admit", "A request asks for pages for its prompt; the cache may have some of them.", request=True),
        Verb("arrived", "The remote writes for the request have landed.", request=True),
        Verb("extend", "The request asks for a place for one more token.", request=True),
        Verb("free", "The request ends and gives back its pages.", request=True),
        Verb("detach", "The request ends; its pages are held back.", request=True),
        Verb("release", "What was held back for the request goes back to the pool.", request=True),
        Verb("evict", "Entries of the cache index are dropped."),
        Verb("reset", "The whole cache index is dropped."),
    )
    needs: ClassVar[Mapping[str, Capability]] = {
        "arrived": Capability.REMOTE,
        "extend": Capability.EXTEND,
        "detach": Capability.DETACH,
        "release": Capability.DETACH,
        "evict": Capability.EVICT,
        "reset": Capability.RESET,
    }

    def __init__(self, adapter: Any, name: str, record: Record | None = None) -> None:
        self.live: dict[str, int] = {}  # requests that hold pages, with the number of tokens that are computed
        self.waiting: dict[str, Transfer] = {}  # remote writes in flight, by request
        self.held_back: list[str] = []
        self.ended: list[str] = []  # rejected or freed: they may come back
        super().__init__(adapter, name, record)

    def _operations(self) -> tuple[Sequence[Read], Sequence[Transfer], Sequence[Work]]:
        reads = [
            Read(request, self.requests.tokens[request], self.requests.salts[request], 0, self.live[request], self._table(request))
            for request in self.settled()
        ]
        return reads, tuple(self.waiting.values()), ()

    def _known(self) -> frozenset[str]:
        return frozenset(self.live)

    def _follows_spec(self) -> bool:
        return int(self.adapter.groups) == 1 and not self.observer.unknown

    def _table(self, request: str) -> Pages:
        pool = self.adapter.snapshot().pools[0]
        return Pages(pool.name, pool.tables.get(request, ()))

    def settled(self) -> list[str]:
        """The live requests that are not waiting for remote writes."""
        return [request for request in self.live if request not in self.waiting]

    def do(self, call: Call) -> bool:
        verb, request = str(call["verb"]), str(call.get("request", ""))
        match verb:
            case "admit" if request not in self.live and request not in self.held_back:
                known = self.requests.tokens.get(request)
                tokens = _tokens(call) if known is None else known
                self.admit(request, tokens, _salt(call), _number(call, "external"), bool(call.get("remote")))
            case "arrived" if request in self.waiting:
                self.arrived(request)
            case "extend" if request in self.settled():
                self.extend(request, _number(call, "token"))
            case "free" | "detach" if request in self.settled():
                self.end(request, detach=verb == "detach")
            case "release" if request in self.held_back:
                self.release(request)
            case "evict":
                self.evict(frozenset(cast("Sequence[int]", call.get("pages", ()))))
            case "reset":
                self.reset()
            case _:
                return False
        return True

    def admit(self, request: str, tokens: Tokens, salt: str | None, external: int, remote: bool) -> None:
        """A request asks for pages. `external` tokens at most come from elsewhere, as many as fill pages before the last token."""
        self.requests.tokens[request], self.requests.salts[request] = tokens, salt
        if request in self.ended:
            self.ended.remove(request)
        size = self.adapter.page_size
        remote = remote and self.can(Capability.REMOTE)
        wanted = min(external, (len(tokens) - 1) // size * size) if self.can(Capability.EXTERNAL) and not remote else 0
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
        table = self._table(request)
        for shadow in (self.memory, self.ahead):
            shadow.compute(request, self.requests.tokens[request], self.requests.salts[request], first, end, table)

    def arrived(self, request: str) -> None:
        """The remote writes land, in the pages that were reserved for them, and the engine is told."""
        transfer = self.waiting.pop(request)
        assert transfer.target is not None
        for shadow in (self.memory, self.ahead):
            shadow.compute(request, transfer.tokens, transfer.salt, transfer.first, len(transfer.tokens), transfer.target)
        call = {"verb": "arrived", "request": request}
        with self._asking(call):
            self.adapter.arrived(request)
        self._look(call)

    def extend(self, request: str, token: int) -> None:
        """One more token."""
        call = {"verb": "extend", "request": request, "token": token}
        with self._asking(call):
            extended = self.adapter.extend(request, token)
        if not extended:
            self._look({**call, "rejected": True})
            return
        self.requests.tokens[request] += (token,)
        with self._asking(call):
            keys = self.adapter.keys(request)
        self.requests.learn_keys(request, keys, self.memory)
        computed = self.live[request]
        self.live[request] = computed + 1
        self._compute(request, computed, computed + 1)
        self._look(call)

    def end(self, request: str, *, detach: bool) -> None:
        """The request ends. Unless its pages are held back it may be admitted again."""
        call = {"verb": "detach" if detach else "free", "request": request}
        with self._asking(call):
            (self.adapter.detach if detach else self.adapter.free)(request)
        del self.live[request]
        (self.held_back if detach else self.ended).append(request)
        self._look(call)

    def release(self, request: str) -> None:
        """What was held back goes back."""
        self.held_back.remove(request)
        call = {"verb": "release", "request": request}
        with self._asking(call):
            self.adapter.release(request)
        self._look(call)

    def evict(self, pages: frozenset[int]) -> None:
        """Index entries are dropped; pages beyond the pool count from its start again."""
        pool = self.adapter.snapshot().pools[0]
        chosen = frozenset(page % pool.pages for page in pages) - pool.null
        call = {"verb": "evict", "pages": tuple(sorted(chosen))}
        with self._asking(call):
            self.adapter.evict(chosen)
        self._look(call)

    def reset(self) -> None:
        """The index is dropped, unless the engine refuses."""
        call: dict[str, object] = {"verb": "reset"}
        with self._asking(call):
            done = self.adapter.reset()
        self._look({**call, "rejected": not done})

    def drain(self) -> None:
        while self.waiting:
            self.arrived(next(iter(self.waiting)))
        while self.live:
            self.end(next(iter(self.live)), detach=False)
        while self.held_back:
            self.release(self.held_back[0])


class EngineDriver(Driver):
    """Drives an engine: its queues, its batches, and the remote operations that it begins.

    Batches run in the order in which they were scheduled; remote operations end in any order.
    """

    verbs = (
        Verb("submit", "A client sends a request.", request=True),
        Verb("schedule", "The engine schedules a batch."),
        Verb("run", "The oldest batch runs: it computes KV into pages and attends to them."),
        Verb("complete", "The engine takes in what the batch sampled, and which remote operations ended."),
        Verb("land", "A remote write for the request lands, or a remote read of its pages ends.", request=True),
        Verb("abort", "The client goes away.", request=True),
        Verb("expire", "The deadline of a remote operation on the request's pages passes; the operation goes on.", request=True),
    )
    needs: ClassVar[Mapping[str, Capability]] = {"abort": Capability.ABORT, "expire": Capability.EXPIRE}

    def __init__(self, adapter: Any, name: str, record: Record | None = None) -> None:
        self.queue: list[Batch] = []
        self.reads: tuple[Read, ...] = ()
        self.flight: dict[str, Transfer] = {}
        self.captured: dict[str, tuple[Written | None, ...]] = {}
        self.submitted: list[str] = []
        super().__init__(adapter, name, record)

    def _operations(self) -> tuple[Sequence[Read], Sequence[Transfer], Sequence[Work]]:
        return self.reads, tuple(self.flight.values()), [work for batch in self.queue for work in batch.work]

    def live(self) -> list[str]:
        """The requests whose clients wait."""
        live = self.adapter.live()
        return [request for request in self.submitted if request in live]

    def can_schedule(self) -> bool:
        """Whether one more batch may be under way."""
        return len(self.queue) < int(self.adapter.depth)

    def has_work(self) -> bool:
        """Whether the engine knows a request, or a remote operation is in flight: otherwise nothing comes of scheduling."""
        known = self.observer.facts[-1].get("known")
        return bool(self.flight or self.queue or (self.live() if known is None else known))

    def do(self, call: Call) -> bool:
        verb, request = str(call["verb"]), str(call.get("request", ""))
        match verb:
            case "submit" if request not in self.submitted:
                self.submit(Submission(request, _tokens(call), _salt(call), Role[str(call["role"])], _number(call, "new")))
            case "schedule" if self.can_schedule():
                self.schedule()
            case "run" if self.queue:
                self.run(_number(call, "token"))
            case "land" | "expire":
                found = [id for id, transfer in self.flight.items() if transfer.request == request]
                if not found:
                    return False
                (self.land if verb == "land" else self.expire)(found[0])
            case "abort" if request in self.live():
                self.abort(request)
            case _:
                return False
        return True

    def submit(self, submission: Submission) -> None:
        """A client sends a request."""
        request = submission.request
        self.submitted.append(request)
        self.requests.tokens[request], self.requests.salts[request] = submission.tokens, submission.salt
        call: dict[str, object] = {"verb": "submit", "request": request, "tokens": submission.tokens, "salt": submission.salt}
        call |= {"role": submission.role.name, "new": submission.max_new_tokens}
        with self._asking(call):
            self.adapter.submit(submission)
        self._begun()
        self._look(call)

    def schedule(self) -> None:
        """The engine schedules."""
        call: dict[str, object] = {"verb": "schedule"}
        with self._asking(call):
            batch: Batch | None = self.adapter.step()
        shown: tuple[str, ...] = ()
        if batch is not None:
            self.queue.append(batch)
            shown = tuple(f"{work.request}:{work.first}+{work.count}" for work in batch.work)
            for work in batch.work:
                if len(work.tokens) > len(self.requests.tokens[work.request]):  # the engine has generated some
                    self.requests.tokens[work.request] = work.tokens
                self.ahead.compute(work.request, work.tokens, work.salt, work.first, work.first + work.count, work.table)
        self._begun()
        self._learn_keys(call)
        self._look({**call, "batch": shown})

    def _learn_keys(self, call: Call) -> None:
        for request in self.submitted:
            with self._asking(call):
                keys = self.adapter.keys(request)
            if keys is not None:
                self.requests.learn_keys(request, keys, self.memory)

    def run(self, token: int) -> None:
        """The oldest batch runs, samples `token` wherever it samples, and is taken in."""
        batch = self.queue.pop(0)
        for work in batch.work:
            self.memory.compute(work.request, work.tokens, work.salt, work.first, work.first + work.count, work.table)
        live = self.adapter.live()
        self.reads = tuple(
            Read(work.request, work.tokens, work.salt, 0, work.first + work.count, work.table)
            for work in batch.work
            if work.answers and work.request in live
        )
        self._begun()
        self._look({"verb": "run", "batch": tuple(work.request for work in batch.work), "token": token})
        self.reads = ()
        call: dict[str, object] = {"verb": "complete", "token": token}
        with self._asking(call):
            self.adapter.complete(batch, {work.request: token for work in batch.work})
        self._begun()
        self._learn_keys(call)
        self._look(call)

    def land(self, id: str) -> None:
        """A remote operation ends; a write lands whoever owns its pages by now."""
        transfer = self.flight.pop(id)
        if transfer.kind is TransferKind.WRITE and transfer.target is not None:
            end = len(transfer.tokens)
            for shadow in (self.memory, self.ahead):
                if transfer.source is None:
                    shadow.compute(transfer.request, transfer.tokens, transfer.salt, transfer.first, end, transfer.target)
                else:
                    shadow.store(transfer.target, transfer.first, end, self.captured[id])
        self._remote("land", transfer)

    def expire(self, id: str) -> None:
        """The engine's deadline for a remote operation passes; it goes on."""
        self._remote("expire", self.flight[id])

    def _remote(self, verb: str, transfer: Transfer) -> None:
        call: dict[str, object] = {"verb": verb, "request": transfer.request}
        with self._asking(call):
            getattr(self.adapter, verb)(transfer.id)
        self._begun()
        self._look(call)

    def abort(self, request: str) -> None:
        """The client goes away."""
        call: dict[str, object] = {"verb": "abort", "request": request}
        with self._asking(call):
            self.adapter.abort(request)
        self._begun()
        self._look(call)

    def _begun(self) -> None:
        """Take note of remote operations that have begun. Only the driver ends them: what an engine forgets goes on. What a
        transfer will write is read from its source now."""
        for transfer in self.adapter.transfers():
            if transfer.id not in self.captured:
                self.flight[transfer.id] = transfer
                source = transfer.source
                data = () if source is None else self.memory.captured(source, transfer.first, len(transfer.tokens))
                self.captured[transfer.id] = data

    def drain(self) -> None:
        for request in self.live():
            self.abort(request)
        for _ in range(2 * int(self.adapter.depth) + 4):
            for id in list(self.flight):
                self.land(id)
            if self.can_schedule() and self.has_work():
                self.schedule()
            while self.queue:
                self.run(0)


def listed(trace: Trace) -> str:
    """The calls of an observed run, one a line."""
    calls = trace.observed.calls if trace.observed else ()
    return "\n".join(f"  {number}. {call_text(call)}" for number, call in enumerate(calls, start=1))


def driver_for(adapter: Adapter, name: str, record: Record | None = None) -> Driver:
    """The driver of an adapter's level."""
    return EngineDriver(adapter, name, record) if hasattr(adapter, "submit") else AllocatorDriver(adapter, name, record)


def _tokens(call: Mapping[str, object]) -> Tokens:
    return tuple(cast("Sequence[int]", call.get("tokens", ())))


def _salt(call: Mapping[str, object]) -> str | None:
    return cast("str | None", call.get("salt"))


def _number(call: Mapping[str, object], name: str) -> int:
    return cast("int", call.get(name, 0))
