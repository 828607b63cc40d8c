"""Watching one run of an engine: each snapshot becomes a state of the spec, and the spec's properties are evaluated on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import cast

from kvmodel.engines.conformance import Values, blank, not_allowed
from kvmodel.engines.mapping import SOURCES, Facts
from kvmodel.engines.shadow import Place
from kvmodel.engines.snapshot import Snapshot
from kvmodel.errors import InternalError
from kvmodel.language.instance import Binding, Instance, State
from kvmodel.language.load import load_spec
from kvmodel.language.system import ANYTHING, PropertyKind, TransitionSystem
from kvmodel.language.types import Maybe, Value
from kvmodel.readings.compiled import CompiledSystem
from kvmodel.readings.observed import PAGE, REQUEST, observed_system
from kvmodel.readings.partial import Partial, partial
from kvmodel.readings.sparse import SparseState
from kvmodel.traces.observed import Call, Observed, Verb
from kvmodel.traces.trace import Choice, Trace

__all__ = ["SPEC", "Observer", "Watch", "watch"]

SPEC = "cached"
"""The spec to whose states snapshots are mapped."""

PREFIX = "Prefix"
MOST_REQUESTS, MOST_PREFIXES = 1_000, 10_000  # of one run


@dataclass(frozen=True)
class Watch:
    """The properties of the spec, ready to be evaluated on states in which the variables of `unknown` are not known."""

    system: TransitionSystem
    reading: Partial
    possible: CompiledSystem
    sure: Mapping[str, CompiledSystem]
    """For each property that depends on something unknown, that alone; the others are as certain as they are possible. Where one is
    not sure it may be so for thousands of elements, so it is not asked again."""

    @property
    def properties(self) -> tuple[str, ...]:
        """The properties that a single state can violate."""
        return tuple(p.name for p in self.possible.watched)

    def rests_on(self, name: str) -> tuple[str, ...]:
        """Where the values that a property reads come from, but for the engine itself."""
        read = {access.variable for access in self.possible.property_footprint(name).reads}
        return tuple(dict.fromkeys(SOURCES[v] for v in SOURCES if v in read and SOURCES[v] != "the engine"))


@lru_cache(maxsize=1)
def _spec() -> TransitionSystem:
    return load_spec(SPEC)


@lru_cache(maxsize=8)
def _steps(pages: int) -> CompiledSystem:
    """The spec's steps at the size of an engine."""
    return CompiledSystem(_spec(), {REQUEST: MOST_REQUESTS, PAGE: pages, PREFIX: MOST_PREFIXES}, (), searches=False)


@lru_cache(maxsize=32)
def watch(unknown: frozenset[str], pages: int) -> Watch:
    """The properties of SPEC for an engine of so many pages, of which the variables in `unknown` cannot be had."""
    system = _spec()
    reading = partial(system, unknown)
    sizes = {REQUEST: MOST_REQUESTS, PAGE: pages, PREFIX: MOST_PREFIXES}
    kinds = (PropertyKind.INVARIANT, PropertyKind.RANGE)
    names = [p.name for p in system.properties if p.kind in kinds and not (p.kind is PropertyKind.RANGE and p.subject in unknown)]
    possible = CompiledSystem(reading.systems.possible, sizes, names, searches=False)
    open_ones = [name for name in names if name not in reading.undecidable and reading.surely(name) != reading.possibly(name)]
    sure = {name: CompiledSystem(reading.systems.sure, sizes, [name], searches=False) for name in open_ones}
    return Watch(system, reading, possible, sure)


@dataclass
class Observer:
    """The states of one run, and what they violate. `unsure` may be shared by runs: what could not be told once is not asked again."""

    engine: str
    version: str
    adapter: str
    verbs: tuple[Verb, ...]
    start: Snapshot
    facts: list[Facts] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._requests: dict[object, int] = {}
        self._prefixes: dict[object, int] = {}
        places: list[Place] = [(pool.name, page) for pool in self.start.pools for page in range(pool.pages)]
        self._pages: dict[object, int] = {place: number for number, place in enumerate(places)}
        self._last: tuple[Values, Values] | None = None
        self._states: dict[str, SparseState] = {}

    def see(self, facts: Facts, call: Call | None = None) -> tuple[str, ...]:
        """Take in the state after `call` (None: the first state). The names of the properties that it violates, in the spec's order."""
        if (call is None) != (not self.facts):
            raise InternalError("the first state of a run comes before any call, and no other does")
        if call is not None:
            self.calls.append(call)
            if "request" in call:  # so that requests are numbered in the order in which they were asked for
                _number(self._requests, call["request"])
        self.facts.append(facts)
        self.seen.update(name for name, values in facts.items() if values)
        watched = self.watch
        before = {} if self._last is None else self._last[-1]
        values = self._numbered(facts, watched.system, before)
        self._last = before or values, values
        violated = self._violated(watched.possible, before, values)
        for name, sure in watched.sure.items():
            if name not in self.unsure:
                self.unsure |= self._violated(sure, before, values, name) - violated
        return tuple(name for name in watched.properties if name in violated)

    def _violated(self, compiled: CompiledSystem, before: Values, after: Values, which: str = "") -> set[str]:
        """The properties that are false of a state. The state before, kept under `which`, is changed into it."""
        state = self._states.get(which)
        if state is None:
            state = self._states[which] = compiled.at(after)
        else:
            for name, entries in after.items():
                old = before[name]
                if old is not entries:
                    gone = {index: blank(compiled.system.by_name[name]) for index in old if index not in entries}
                    new = {index: value for index, value in entries.items() if index not in old or old[index] != value}
                    compiled.change(state, name, {**gone, **new})
        return {violation.property for violation in compiled.violations(state)}

    def not_allowed(self, call: Call) -> str:
        """Why the spec allows no steps from the state before the last call to the one after it; '' where it does, and where the
        mapping is not complete enough to tell."""
        if self._last is None or self.unknown:
            return ""
        return not_allowed(_steps(len(self._pages)), "" if call.get("rejected") else str(call["verb"]), *self._last)

    @property
    def watch(self) -> Watch:
        """What this run is held to. Which variables are known is settled by its first state."""
        return watch(self.unknown, len(self._pages))

    @property
    def unknown(self) -> frozenset[str]:
        """The spec's variables that this engine's adapter does not map."""
        return frozenset(_spec().by_name.keys() - self.facts[0].keys()) if self.facts else frozenset()

    def _numbered(self, facts: Facts, system: TransitionSystem, before: Values | None = None) -> dict[str, Mapping[Binding, Value]]:
        """The facts with elements as numbers, in the order in which they appear; what is as it was `before` is the same object."""
        numbers = {REQUEST: self._requests, PAGE: self._pages, PREFIX: self._prefixes}
        values: dict[str, Mapping[Binding, Value]] = {}
        for name, entries in facts.items():
            variable = system.by_name[name]
            into = variable.type.domain.name if isinstance(variable.type, Maybe) else ""
            keys = [numbers[key.name] for key in variable.keys]
            found: dict[Binding, Value] = {}
            if variable.initial not in (blank(variable), ANYTHING):  # what the facts leave out is blank, not what the spec starts with
                found.update({index: blank(variable) for index in product(*(table.values() for table in keys))})
            for index, value in entries.items():
                element = tuple([_number(table, part) for table, part in zip(keys, index, strict=True)])
                found[element] = _number(numbers[into], value) if into else value  # type: ignore[assignment]
            values[name] = before[name] if before and before[name] == found else found
        return values

    def trace(self, shows: str, finding: str = "") -> Trace:
        """The run as a trace whose last state violates `shows`; or, with '', whose last call ended in `finding`."""
        names = tuple(pool.name for pool in self.start.pools)
        unknown = tuple(sorted(self.unknown))
        observed = Observed(self.engine, self.version, self.adapter, names, unknown, self.verbs, tuple(self.calls), finding)
        system = observed_system(_spec(), observed)
        dense = [self._numbered(facts, system) for facts in self.facts]
        pools = self.start.pools
        pages = {f"{PAGE}.{pool.name.upper()}": pool.pages for pool in pools} if len(pools) > 1 else {PAGE: pools[0].pages}
        sizes = {REQUEST: max(1, len(self._requests)), PREFIX: max(1, len(self._prefixes)), **pages}
        instance = Instance.make(system, sizes)
        rigid = _merged([{v.name: values[v.name] for v in system.rigid_variables if not v.partition} for values in dense])
        states = tuple(_state(instance, {**values, **rigid}) for values in dense)
        steps = tuple(self._choice(call) for call in self.calls)
        return Trace(instance, states, steps, shows, observed)

    def ended(self, call: Call, finding: str) -> Trace:
        """The run as a trace whose last call did not return: the engine raised an error, and nothing was seen after it."""
        self.calls.append(call)
        self.facts.append(self.facts[-1])
        return self.trace("", finding)

    def _choice(self, call: Call) -> Choice:
        takes = {verb.name: verb.request for verb in self.verbs}
        name = str(call["verb"])
        return Choice(name, (_number(self._requests, call["request"]),) if takes[name] else ())


def _number(table: dict[object, int], thing: object) -> int:
    return table.setdefault(thing, len(table))


def _merged(values: Sequence[Values]) -> dict[str, dict[Binding, Value]]:
    """Rigid facts of a whole run: what is ever known of a request's tokens is known of all of the run."""
    found: dict[str, dict[Binding, Value]] = {}
    for each in values:
        for name, entries in each.items():
            found.setdefault(name, {}).update(entries)
    return found


def _state(instance: Instance, values: Mapping[str, Mapping[Binding, Value]]) -> State:
    def value(name: str, index: Binding) -> Value:
        variable = instance.system.by_name[name]
        if variable.partition:
            return instance.part_of[variable.keys[0].name, cast("int", index[0])]
        return values[name].get(index, blank(variable))

    layouts = (instance.rigid_layout, instance.state_layout)
    rigid, changing = (tuple(value(name, index) for name, index in layout.places) for layout in layouts)
    return State(rigid, changing)
