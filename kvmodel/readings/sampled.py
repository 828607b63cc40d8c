"""What the sampled readings (walk, machine) share: initial states, enabled steps and properties, one state at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from kvmodel.errors import InternalError, UsageError
from kvmodel.language.instance import Instance, State, Values
from kvmodel.language.system import Property, PropertyKind
from kvmodel.language.types import Element, Enumeration, Maybe, Type, Value, describe
from kvmodel.readings.initial import initial_values, rigid_valuations
from kvmodel.readings.steps import DenseSteps
from kvmodel.traces.trace import Choice
from kvmodel.verdict import Coverage, Verdict

__all__ = ["Move", "Run", "Sampler", "Sight", "WatchedSteps", "describe_run", "judge"]

MOST_STARTS = 50_000  # initial states that are kept to choose from
MOST_STARTS_EACH = 2_000  # of one rigid valuation, so that none crowds out the others
MOST_SIGHTS = 50_000  # states of one rigid valuation whose enabled steps are remembered


@dataclass(frozen=True, slots=True)
class Run:
    """A run: its initial state and its steps. The states between follow from them."""

    start: State
    steps: tuple[Choice, ...]

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, slots=True)
class Move:
    """An enabled step. `index` is the number of its binding in the full list of bindings of its action, which is the
    same in every state; `position` is the one in `DenseSteps.actions`."""

    choice: Choice
    index: int
    position: int
    after: Values


@dataclass(frozen=True, slots=True)
class Sight:
    """What there is to see in one state: enabled steps by action (bindings in order), the properties that the state
    violates, and the `@reachable` ones that it shows."""

    moves: Mapping[str, tuple[Move, ...]]
    violated: tuple[str, ...]
    shown: tuple[str, ...]


class WatchedSteps:
    """The steps of one rigid valuation, with the properties that are watched."""

    def __init__(self, instance: Instance, rigid: Values, properties: Sequence[Property]) -> None:
        self.steps = DenseSteps(instance, rigid)
        self._sights: dict[Values, Sight] = {}
        self._violations = self.steps.violations(properties)
        self._assertions = frozenset(p.name for p in properties if p.kind is PropertyKind.ASSERTION)
        self._deadlock = any(p.kind is PropertyKind.NO_DEADLOCK for p in properties)
        self._witnesses = [
            (p.name, self.steps.predicate(self.steps.grounder.for_some(p))) for p in properties if p.kind is PropertyKind.REACHABLE
        ]
        index_of = {
            Choice(action.name, binding): index
            for action in instance.system.actions
            for index, binding in enumerate(instance.bindings(action.parameters))
        }
        self._index = [index_of[action.choice] for action in self.steps.actions]

    def look(self, values: Values) -> Sight:
        """What there is to see in the state `values`."""
        sight = self._sights.get(values)
        if sight is None:
            if len(self._sights) >= MOST_SIGHTS:
                self._sights.clear()
            sight = self._sights[values] = self._look(values)
        return sight

    def _look(self, values: Values) -> Sight:
        steps = self.steps
        moves: dict[str, list[Move]] = {}
        for position, after in steps.successors(values):
            choice = steps.actions[position].choice
            moves.setdefault(choice.action, []).append(Move(choice, self._index[position], position, after))
        violated = self._violations(values)
        if self._deadlock and not moves and steps.is_in_range(values) and not steps.is_final(values):
            violated += ("no_deadlock",)
        shown = tuple(name for name, test in self._witnesses if test(values))
        ordered = {name: tuple(sorted(found, key=lambda move: move.index)) for name, found in moves.items()}
        return Sight(ordered, violated, shown)

    def broken(self, values: Values, move: Move) -> tuple[str, ...]:
        """The watched assertions that taking `move` in the state `values` violates."""
        if not self._assertions:
            return ()
        return tuple(name for name in self.steps.broken_assertions(move.position, values) if name in self._assertions)


class Sampler:
    """An instance made ready for sampling: its initial states and, for each rigid valuation, its steps."""

    def __init__(self, instance: Instance, properties: Sequence[Property]) -> None:
        self.instance = instance
        self.properties = tuple(properties)
        self._deployments: dict[Values, WatchedSteps] = {}

    @cached_property
    def starts(self) -> tuple[State, ...]:
        """The initial states to choose from, simplest first: few true relations, first elements, small numbers.

        At most 2,000 of each rigid valuation and 50,000 in all. One in which nothing is enabled is left out, unless it
        violates (or shows) a property that the ones before it do not: the run from it has no step, and tells nothing.
        Raises UsageError when there is no initial state.
        """
        found = sorted(islice(self._initial_states(), MOST_STARTS), key=self._weight)
        if not found:
            raise UsageError(
                f"{self.instance.system.name} has no initial state at {self.instance.describe_size()}: "
                "its initial conditions contradict each other"
            )
        return tuple(self._telling(found)) or tuple(found[:1])

    def _telling(self, states: Iterable[State]) -> Iterator[State]:
        seen: set[str] = set()
        for state in states:
            sight = self.steps(state.rigid).look(state.values)
            names = {*sight.violated, *sight.shown}
            if sight.moves or not names <= seen:
                yield state
            seen |= names

    def _initial_states(self) -> Iterator[State]:
        for rigid in rigid_valuations(self.instance):
            for values in islice(initial_values(self.instance, rigid), MOST_STARTS_EACH):
                yield State(rigid, values)

    def _weight(self, state: State) -> int:
        instance = self.instance
        pairs = (*zip(instance.rigid_layout.types, state.rigid, strict=True), *zip(instance.state_layout.types, state.values, strict=True))
        return sum(_rank(kind, value) for kind, value in pairs)

    def steps(self, rigid: Values) -> WatchedSteps:
        """The steps of the rigid valuation `rigid`."""
        found = self._deployments.get(rigid)
        if found is None:
            found = self._deployments[rigid] = WatchedSteps(self.instance, rigid, self.properties)
        return found

    def shown(self, run: Run, name: str) -> Run | None:
        """`run` up to the first state or step that shows the property `name` (violates it, or for `@reachable`
        satisfies it), without the steps before that are not enabled; None when it does not show it."""
        watched = self.steps(run.start.rigid)
        values = run.start.values
        taken: list[Choice] = []
        for choice in run.steps:
            sight = watched.look(values)
            if name in sight.violated or name in sight.shown:
                return Run(run.start, tuple(taken))
            move = next((move for move in sight.moves.get(choice.action, ()) if move.choice == choice), None)
            if move is None:
                continue
            taken.append(choice)
            if name in watched.broken(values, move):
                return Run(run.start, tuple(taken))
            values = move.after
        sight = watched.look(values)
        return Run(run.start, tuple(taken)) if name in sight.violated or name in sight.shown else None


def _rank(kind: Type, value: Value) -> int:
    """How far a value is from the simplest one of its type."""
    match kind, value:
        case _, None:
            return 0
        case Element(Enumeration(members=members)) | Maybe(Enumeration(members=members)), str(member):
            return members.index(member) + isinstance(kind, Maybe)
        case _, int(number):
            return abs(number) + isinstance(kind, Maybe)
    raise InternalError(f"{value!r} is not of type {describe(kind)}")


def describe_run(instance: Instance, run: Run) -> str:
    """A run as text: what is particular about its initial state, then a line for each step."""
    system = instance.system
    start = []
    for layout, values in ((instance.rigid_layout, run.start.rigid), (instance.state_layout, run.start.values)):
        for (name, index), kind, value in zip(layout.places, layout.types, values, strict=True):
            variable = system.by_name[name]
            if variable.initial == value or variable.partition:
                continue
            keys = ", ".join(instance.label(key, part) for key, part in zip(variable.keys, index, strict=True))
            start.append(f"{name}[{keys}] = {instance.show(kind, value)}" if keys else f"{name} = {instance.show(kind, value)}")
    lines = [f"  start: {', '.join(start) or 'as declared'}"]
    for number, choice in enumerate(run.steps, start=1):
        lines.append(f"  {number}. {describe_choice(instance, choice)}")
    return "\n".join(lines)


def describe_choice(instance: Instance, choice: Choice) -> str:
    """A step as text: ``reserve(r0, decode.p1)``."""
    parameters = instance.system.action(choice.action).parameters
    arguments = (instance.label(parameter.domain, value) for parameter, value in zip(parameters, choice.binding, strict=True))
    return f"{choice.action}({', '.join(arguments)})"


def judge(candidate: Property, coverage: Coverage, seen: Collection[str], stopped: str) -> tuple[Verdict, str]:
    """The verdict of a property after sampling, with its reason.

    What was completed without a violation `holds` as far as `coverage` says (`sampled`). That something is possible
    can be seen by sampling; that it is not cannot.
    """
    shown = candidate.kind is PropertyKind.REACHABLE
    if candidate.name in seen:
        return (Verdict.HOLDS if shown else Verdict.VIOLATED), ""
    if stopped:
        return Verdict.UNDECIDED, stopped
    if shown:
        return Verdict.UNDECIDED, f"not seen in {coverage.runs:,} runs; only an exhaustive check can say that it is impossible"
    return Verdict.HOLDS, ""
