"""Which steps of a trace its end depends on: a slice, backwards from the property.

A place of a state gets its value from the step that last changed it. That step looked at the places that decide its update,
and was enabled by those that decide its guards; each of these got its value from an earlier step, and so on. *Data* follows
updates alone: how the values came about. The whole slice follows guards too: what is not in it can be left out, and the rest
is still a run that shows the property (it is replayed to make sure).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from kvmodel.errors import ReplayError, UsageError
from kvmodel.language.expressions import Apply, Expr, Named, Quantified, Read
from kvmodel.language.instance import Binding, State
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import PropertyKind
from kvmodel.language.types import Value
from kvmodel.readings.replay import make_trace
from kvmodel.readings.run import Interpreter
from kvmodel.traces.trace import Trace

__all__ = ["Slice", "backward_slice", "deciding", "runs_without", "source"]

LONGEST_TO_TRY = 200  # steps of a run of which each is left out on trial
Environment = Mapping[str, Value]


@dataclass(frozen=True)
class Slice:
    """What the end of a trace depends on. Step 0 is the initial state; places are slots of the instance's state layout.

    `shown`: the places that decide the property. `data`: for each step that their values come from, how many updates away
    it is. `relevant`: the steps that cannot be left out, as far as guards and updates tell. `used`: for each step, the places
    that later ones, or the property, look at. `enabled_by`: for each relevant step, the steps that its guards look back to.
    """

    shown: tuple[int, ...]
    data: Mapping[int, int]
    relevant: frozenset[int]
    used: Mapping[int, tuple[int, ...]]
    enabled_by: Mapping[int, frozenset[int]]


def deciding(interpreter: Interpreter, expr: Expr, state: State, environment: Environment) -> tuple[int, ...]:
    """Places of the state whose values are enough to give `expr` the value that it has: of a false conjunction the first part
    that is false, of an `any` the first element that satisfies it. Rigid values and flags are not among them."""
    return tuple(dict.fromkeys(_deciding(interpreter, expr, state, environment)))


def _deciding(interpreter: Interpreter, expr: Expr, state: State, environment: Environment) -> Iterator[int]:
    def value(part: Expr, inner: Environment = environment) -> Value:
        return interpreter.evaluate(part, state, inner)

    def of(part: Expr, inner: Environment = environment) -> Iterator[int]:
        return _deciding(interpreter, part, state, inner)

    match expr:
        case Read(variable, index):
            for part in index:
                yield from of(part)
            if not interpreter.system.by_name[variable].rigid:
                place = (variable, tuple(value(part) for part in index))
                yield interpreter.instance.state_layout.slots[place]
        case Named(body=body):
            yield from of(body)
        case Apply(operator=Operator.AND | Operator.OR as operator, arguments=parts):
            decisive = operator is Operator.OR
            first = next((part for part in parts if value(part) == decisive), None)
            for part in parts if first is None else (first,):
                yield from of(part)
        case Apply(operator=Operator.IMPLIES, arguments=(premise, conclusion)):
            if not value(premise):
                yield from of(premise)
            elif value(conclusion):
                yield from of(conclusion)
            else:
                yield from of(premise)
                yield from of(conclusion)
        case Apply(operator=Operator.IF, arguments=(condition, then, otherwise)):
            yield from of(condition)
            yield from of(then if value(condition) else otherwise)
        case Apply(arguments=parts):
            for part in parts:
                yield from of(part)
        case Quantified(binder, variables, body):
            bindings = list(interpreter.instance.bindings(variables))
            inner = [{**environment, **interpreter.environment(variables, binding)} for binding in bindings]
            if binder is not Binder.COUNT:
                decisive = binder is Binder.ANY
                inner = next(([chosen] for chosen in inner if value(body, chosen) == decisive), inner)
            for chosen in inner:
                yield from of(body, chosen)


def backward_slice(trace: Trace) -> Slice:
    """The slice of a trace that shows a property. Raises UsageError for a trace that shows none."""
    if not trace.property:
        raise UsageError("the trace shows no property")
    slicer = _Slicer(trace)
    shown, at = slicer.shown()
    data = slicer.data(shown, at)
    used: dict[int, dict[int, None]] = {}
    relevant = slicer.closure(shown, at, used)
    steps = frozenset(step for step in relevant if step)
    if not runs_without(trace, frozenset(range(1, len(trace.steps) + 1)) - steps):
        steps = _by_trial(trace)
    enabled_by = {step: frozenset(source(trace, slot, step - 1) for slot in slicer.guards(step)) - {0} for step in steps}
    return Slice(shown, data, steps, {step: tuple(slots) for step, slots in used.items()}, enabled_by)


def source(trace: Trace, slot: int, at: int) -> int:
    """The step that gave a place the value that it has in state `at`; 0 is the initial state."""
    states = trace.states
    return next((step for step in range(at, 0, -1) if states[step].values[slot] != states[step - 1].values[slot]), 0)


def runs_without(trace: Trace, dropped: Iterable[int]) -> bool:
    """Whether the trace without the steps in `dropped` is still a run that shows its property."""
    left_out = frozenset(dropped)
    steps = tuple(choice for number, choice in enumerate(trace.steps, start=1) if number not in left_out)
    try:
        make_trace(trace.instance, trace.states[0], steps, trace.property)
    except ReplayError:
        return False
    return True


def _by_trial(trace: Trace) -> frozenset[int]:
    """The steps that are left when each is left out on trial, the last first."""
    dropped: set[int] = set()
    if len(trace.steps) <= LONGEST_TO_TRY:
        for step in range(len(trace.steps), 0, -1):
            if runs_without(trace, dropped | {step}):
                dropped.add(step)
    return frozenset(range(1, len(trace.steps) + 1)) - dropped


class _Slicer:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.instance = trace.instance
        self.system = trace.instance.system
        self.interpreter = Interpreter(trace.instance)

    def shown(self) -> tuple[tuple[int, ...], int]:
        """The places that decide that the end of the trace shows its property, and the number of the state that they are of."""
        interpreter, last = self.interpreter, len(self.trace.states) - 1
        state = self.trace.states[-1]
        shown = self.system.property(self.trace.property)
        binding: Binding | None
        match shown.kind:
            case PropertyKind.INVARIANT:
                binding = interpreter.failing_binding(shown, state)
            case PropertyKind.REACHABLE:
                binding = interpreter.satisfying_binding(shown, state)
            case PropertyKind.ASSERTION:
                binding, last = self.trace.steps[-1].binding, last - 1
                state = self.trace.states[last]
            case PropertyKind.RANGE:
                broken = (slot for slot, value in self._places(shown.subject) if value not in self._range(shown.subject))
                return tuple(broken), last
            case PropertyKind.NO_DEADLOCK:
                return tuple(dict.fromkeys(self._stuck(state))), last
        if binding is None:
            raise UsageError(f"the end of the trace does not show '{shown.name}'")
        environment = interpreter.environment(shown.parameters, binding)
        return deciding(interpreter, shown.condition, state, environment), last

    def _places(self, variable: str) -> Iterator[tuple[int, Value]]:
        for slot, (name, _) in enumerate(self.instance.state_layout.places):
            if name == variable:
                yield slot, self.trace.states[-1].values[slot]

    def _range(self, counter: str) -> tuple[Value, ...]:
        return self.instance.values_of(self.system.by_name[counter].type)

    def _stuck(self, state: State) -> Iterator[int]:
        """Why nothing is enabled and the state is not final."""
        for action in self.system.actions:
            for binding in self.instance.bindings(action.parameters):
                environment = self.interpreter.environment(action.parameters, binding)
                for guard in action.guards:
                    if not self.interpreter.evaluate(guard.condition, state, environment):
                        yield from deciding(self.interpreter, guard.condition, state, environment)
                        break
        for final in self.system.finals:
            failing = self.interpreter.failing_binding(final, state)
            if failing is not None:
                environment = self.interpreter.environment(final.parameters, failing)
                yield from deciding(self.interpreter, final.condition, state, environment)

    def looked_at(self, step: int, slots: Iterable[int]) -> tuple[int, ...]:
        """The places that decide what `step` writes to `slots`."""
        choice, before = self.trace.steps[step - 1], self.trace.states[step - 1]
        action = self.system.action(choice.action)
        wanted = frozenset(slots)
        found: dict[int, None] = {}
        for update in action.updates:
            for chosen in self.instance.bindings(update.over):
                environment = {
                    **self.interpreter.environment(action.parameters, choice.binding),
                    **self.interpreter.environment(update.over, chosen),
                }
                if not self.interpreter.evaluate(update.condition, before, environment):
                    continue
                index = tuple(self.interpreter.evaluate(part, before, environment) for part in update.index)
                if self.instance.state_layout.slots[update.variable, index] in wanted:
                    for part in (update.condition, *update.index, update.value):
                        found.update(dict.fromkeys(deciding(self.interpreter, part, before, environment)))
        return tuple(found)

    def guards(self, step: int) -> tuple[int, ...]:
        """The places that decide that `step` is enabled."""
        choice, before = self.trace.steps[step - 1], self.trace.states[step - 1]
        action = self.system.action(choice.action)
        environment = self.interpreter.environment(action.parameters, choice.binding)
        found = (deciding(self.interpreter, guard.condition, before, environment) for guard in action.guards)
        return tuple(dict.fromkeys(slot for slots in found for slot in slots))

    @cached_property
    def _ends_in_a_step(self) -> bool:
        return self.system.property(self.trace.property).kind is PropertyKind.ASSERTION

    def data(self, shown: tuple[int, ...], at: int) -> dict[int, int]:
        """Each step that values come from, with how many updates away from the property it is."""
        found: dict[int, int] = {len(self.trace.steps): 0} if self._ends_in_a_step else {}
        pending = [(slot, at, 0) for slot in shown]
        seen: set[tuple[int, int]] = set()
        for slot, state, distance in pending:  # grows while it is gone through: nearest first
            step = source(self.trace, slot, state)
            if (slot, step) in seen:
                continue
            seen.add((slot, step))
            found.setdefault(step, distance)
            if step:
                pending += [(inner, step - 1, distance + 1) for inner in self.looked_at(step, (slot,))]
        return found

    def closure(self, shown: tuple[int, ...], at: int, used: dict[int, dict[int, None]]) -> frozenset[int]:
        """Every step that the property depends on by updates or guards; fills `used`."""
        found: set[int] = set()
        pending = [(slot, at) for slot in shown]
        seen: set[tuple[int, int]] = set()

        def enable(step: int) -> None:
            if step not in found:
                found.add(step)
                pending.extend((inner, step - 1) for inner in self.guards(step))

        if self._ends_in_a_step:
            enable(len(self.trace.steps))
        for slot, state in pending:
            step = source(self.trace, slot, state)
            if (slot, step) in seen:
                continue
            seen.add((slot, step))
            used.setdefault(step, {})[slot] = None
            if step:
                enable(step)
                pending.extend((inner, step - 1) for inner in self.looked_at(step, (slot,)))
            else:
                found.add(0)
        return frozenset(found)

