"""Driving a real engine through its adapter, one call at a time, and judging it by the spec after every call.

A driver keeps what the engine does not have: shadow KV memory, and the operations in flight. It decides nothing: the calls
come from a machine (`kvmodel.engines.machine`), or from a trace that is played again (`kvmodel.engines.play`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, cast

from kvmodel.engines.adapter import Allocator, Capability, Engine, Tokens, Transfer, Work
from kvmodel.engines.conformance import ALLOWED
from kvmodel.engines.mapping import Read, Requests, map_snapshot
from kvmodel.engines.observer import Observer, Watch
from kvmodel.engines.shadow import Prefixes, Shadow
from kvmodel.errors import EngineDriftError, KvmodelError, printable
from kvmodel.traces.observed import Call, Verb, call_text
from kvmodel.traces.trace import Trace

__all__ = [
    "ENGINE_ERROR",
    "Adapter",
    "Driver",
    "EngineViolation",
    "HAZARDS",
    "Halt",
    "Make",
    "Record",
    "failure_of",
    "listed",
    "number_in",
    "salt_in",
    "tokens_in",
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


def listed(trace: Trace) -> str:
    """The calls of an observed run, one a line."""
    calls = trace.observed.calls if trace.observed else ()
    return "\n".join(f"  {number}. {call_text(call)}" for number, call in enumerate(calls, start=1))


def tokens_in(call: Mapping[str, object]) -> Tokens:
    """The tokens of a call."""
    return tuple(cast("Sequence[int]", call.get("tokens", ())))


def salt_in(call: Mapping[str, object]) -> str | None:
    """The salt of a call."""
    return cast("str | None", call.get("salt"))


def number_in(call: Mapping[str, object], name: str) -> int:
    """A number that a call has; 0 where it has none."""
    return cast("int", call.get(name, 0))
