"""One run under every flag assignment at once: under which of them the same steps are a run that violates a property.

The steps and the first state are given; what a state holds after a step may depend on flags. So a value is not one value
but a set of assignments for each, and an expression is evaluated only in the assignments in which the interpreter would.
The answer is exact, not an estimate: an assignment is in it if and only if the run replays there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product

from kvmodel.analyses.assignments import Assignments, Worlds
from kvmodel.errors import InternalError
from kvmodel.language.expressions import Apply, Bound, Cell, Const, Expr, FlagRead, Named, Quantified, Read
from kvmodel.language.instance import Binding, Instance, State
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import Condition, Property, PropertyKind
from kvmodel.language.types import Counter, Value
from kvmodel.traces.trace import Choice

__all__ = ["ManyWorlds"]

Spread = Mapping[Value, Worlds]
"""For each value that something may have, the assignments in which it has that value."""
Environment = Mapping[str, Value]
Alternative = Callable[["ManyWorlds", Worlds], Spread]


class ManyWorlds:
    """Takes the steps of one instance under every assignment of some flags; its other flags have their effective values."""

    def __init__(self, instance: Instance, assignments: Assignments) -> None:
        self.instance = instance
        self.system = instance.system
        self.assignments = assignments

    def violating(self, start: State, steps: Sequence[Choice], candidate: Property) -> Worlds:
        """The assignments under which `steps` from `start` are a run whose end violates `candidate`."""
        values: list[Spread] = [{value: self.assignments.all} for value in start.values]
        rigid: list[Spread] = [{value: self.assignments.all} for value in start.rigid]
        alive = self.initially(start, rigid, values)
        before = values
        for choice in steps:
            before = values
            alive &= ~self.out_of_range(values)
            alive = self.enabled(choice, rigid, values, alive)
            if not alive:
                return 0
            values = self.after(choice, rigid, values, alive)
        return self.violated(candidate, rigid, values, steps[-1] if steps else None, before, alive)

    def initially(self, start: State, rigid: Sequence[Spread], values: Sequence[Spread]) -> Worlds:
        """The assignments under which a run may start in `start`."""
        layout = self.instance.state_layout
        for (name, _), value in zip(layout.places, start.values, strict=True):
            initial = self.system.by_name[name].initial
            if isinstance(initial, bool | int | str | None) and initial != value:
                return 0
        found = self.assignments.all
        for condition in (*self.system.assumptions, *self.system.initial):
            found = self.for_all(condition, rigid, values, found)
        return found

    def enabled(self, choice: Choice, rigid: Sequence[Spread], values: Sequence[Spread], within: Worlds) -> Worlds:
        """The assignments, of those `within`, under which every guard of a step is true."""
        action = self.system.action(choice.action)
        environment = _environment(action.parameters, choice.binding)
        for guard in action.guards:
            within = _true(self.spread(guard.condition, rigid, values, environment, within))
        return within

    def after(self, choice: Choice, rigid: Sequence[Spread], values: Sequence[Spread], within: Worlds) -> list[Spread]:
        """The values after a step, in the assignments `within`."""
        action = self.system.action(choice.action)
        after = [_within(spread, within) for spread in values]
        slots = self.instance.state_layout.slots
        for update in action.updates:
            for chosen in self.instance.bindings(update.over):
                environment = {**_environment(action.parameters, choice.binding), **_environment(update.over, chosen)}
                happens = _true(self.spread(update.condition, rigid, values, environment, within))
                for place, there in self._places(update.index, rigid, values, environment, happens):
                    slot = slots[update.variable, place]
                    written = self.spread(update.value, rigid, values, environment, there)
                    after[slot] = _joined((_within(after[slot], ~there), written))
        return after

    def violated(
        self,
        candidate: Property,
        rigid: Sequence[Spread],
        values: Sequence[Spread],
        last: Choice | None,
        before: Sequence[Spread],
        within: Worlds,
    ) -> Worlds:
        """The assignments, of those `within`, under which a run that ends here violates `candidate`."""
        match candidate.kind:
            case PropertyKind.INVARIANT:
                return within & ~self.for_all(candidate, rigid, values, within)
            case PropertyKind.RANGE:
                return within & self.out_of_range(values, candidate.subject)
            case PropertyKind.ASSERTION:
                if last is None or last.action != candidate.subject:
                    return 0
                environment = _environment(self.system.action(last.action).parameters, last.binding)
                return within & ~_true(self.spread(candidate.condition, rigid, before, environment, within))
            case PropertyKind.NO_DEADLOCK:
                stuck = within & ~self.out_of_range(values)
                for action in self.system.actions:
                    for binding in self.instance.bindings(action.parameters):
                        stuck &= ~self.enabled(Choice(action.name, binding), rigid, values, stuck)
                for final in self.system.finals:
                    stuck &= ~self.for_all(final, rigid, values, stuck)
                return stuck
            case PropertyKind.REACHABLE:
                raise InternalError(f"no run violates the reachable property '{candidate.name}'")

    def out_of_range(self, values: Sequence[Spread], counter: str = "") -> Worlds:
        """The assignments under which a counter (or the one named) has left its range."""
        layout = self.instance.state_layout
        found = 0
        for (name, _), kind, spread in zip(layout.places, layout.types, values, strict=True):
            if isinstance(kind, Counter) and counter in ("", name):
                for value, there in spread.items():
                    if not kind.low <= _integer(value) <= kind.high:
                        found |= there
        return found

    def for_all(self, condition: Condition | Property, rigid: Sequence[Spread], values: Sequence[Spread], within: Worlds) -> Worlds:
        """The assignments, of those `within`, under which a condition is true for every binding of its parameters."""
        for binding in self.instance.bindings(condition.parameters):
            environment = _environment(condition.parameters, binding)
            within = _true(self.spread(condition.condition, rigid, values, environment, within))
        return within

    def _places(
        self, index: Sequence[Expr], rigid: Sequence[Spread], values: Sequence[Spread], environment: Environment, within: Worlds
    ) -> list[tuple[Binding, Worlds]]:
        found: list[tuple[Binding, Worlds]] = [((), within)]
        for part in index:
            found = [
                ((*place, value), there)
                for place, so_far in found
                for value, there in self.spread(part, rigid, values, environment, so_far).items()
            ]
        return [(place, there) for place, there in found if there]

    def spread(
        self, expr: Expr, rigid: Sequence[Spread], values: Sequence[Spread], environment: Environment, within: Worlds
    ) -> Spread:
        """The values of `expr` in the assignments `within`, each with the assignments in which it has it."""
        if not within:
            return {}

        def inside(part: Expr, there: Worlds) -> Spread:
            return self.spread(part, rigid, values, environment, there)

        match expr:
            case Const(value=value):
                return {value: within}
            case Bound(name=name):
                return {environment[name]: within}
            case FlagRead(flag=flag):
                if flag not in self.assignments.flags:
                    return {self.system.flag_values[flag]: within}
                return _within({True: self.assignments.on(flag), False: self.assignments.off(flag)}, within)
            case Read(variable, index):
                layout = self.instance.rigid_layout if self.system.by_name[variable].rigid else self.instance.state_layout
                held = rigid if self.system.by_name[variable].rigid else values
                places = self._places(index, rigid, values, environment, within)
                return _joined(_within(held[layout.slots[variable, place]], there) for place, there in places)
            case Named(body=body):
                return inside(body, within)
            case Apply(operator=operator, arguments=arguments):
                if operator in STRICT:
                    return _joined(
                        {STRICT[operator](found): there} for found, there in self._places(arguments, rigid, values, environment, within)
                    )
                if operator not in LAZY:
                    raise InternalError(f"the reading of every assignment has no meaning for operator {operator.value!r}")
                return LAZY[operator]([lambda there, part=part: inside(part, there) for part in arguments], within)  # type: ignore[misc]
            case Quantified(binder, variables, body):
                chosen = [
                    {**environment, **_environment(variables, binding)}
                    for binding in product(*(self.instance.elements(v.domain) for v in variables))
                ]
                if binder not in BINDING:
                    raise InternalError(f"the reading of every assignment has no meaning for binder {binder.value!r}")
                return BINDING[binder](
                    [lambda there, inner=inner: self.spread(body, rigid, values, inner, there) for inner in chosen], within  # type: ignore[misc]
                )
            case Cell():
                raise InternalError("the reading of every assignment took a cell of a grounded system")


Part = Callable[[Worlds], Spread]


def _conjunction(parts: Sequence[Part], within: Worlds) -> Spread:
    true = within
    for part in parts:
        true = _true(part(true))
    return _within({True: true, False: ~true}, within)


def _disjunction(parts: Sequence[Part], within: Worlds) -> Spread:
    false = within
    for part in parts:
        false &= ~_true(part(false))
    return _within({True: ~false, False: false}, within)


def _implication(parts: Sequence[Part], within: Worlds) -> Spread:
    premise, conclusion = parts
    applies = _true(premise(within))
    true = (within & ~applies) | _true(conclusion(applies))
    return _within({True: true, False: ~true}, within)


def _choice(parts: Sequence[Part], within: Worlds) -> Spread:
    condition, then, otherwise = parts
    there = _true(condition(within))
    return _joined((then(there), otherwise(within & ~there)))


def _count(parts: Sequence[Part], within: Worlds) -> Spread:
    counted: Spread = {0: within}
    for part in parts:
        true = _true(part(within))
        counted = _joined(
            {_integer(value) + more: there & where} for value, there in counted.items() for more, where in ((1, true), (0, within & ~true))
        )
    return counted


def _the(parts: Binding) -> Value:
    if parts[0] is None:
        raise InternalError("a none was read as an element: the language should have refused this spec")
    return parts[0]


LAZY: Mapping[Operator, Callable[[Sequence[Part], Worlds], Spread]] = {
    Operator.AND: _conjunction,
    Operator.OR: _disjunction,
    Operator.IMPLIES: _implication,
    Operator.IF: _choice,
}

STRICT: Mapping[Operator, Callable[[Binding], Value]] = {
    Operator.NOT: lambda parts: not parts[0],
    Operator.EQ: lambda parts: parts[0] == parts[1],
    Operator.LT: lambda parts: _integer(parts[0]) < _integer(parts[1]),
    Operator.LE: lambda parts: _integer(parts[0]) <= _integer(parts[1]),
    Operator.ADD: lambda parts: sum(_integer(part) for part in parts),
    Operator.IS_NONE: lambda parts: parts[0] is None,
    Operator.THE: _the,
}

BINDING: Mapping[Binder, Callable[[Sequence[Part], Worlds], Spread]] = {
    Binder.ALL: _conjunction,
    Binder.ANY: _disjunction,
    Binder.COUNT: _count,
}


def _environment(parameters: tuple[Bound, ...], binding: Binding) -> dict[str, Value]:
    return dict(zip((parameter.name for parameter in parameters), binding, strict=True))


def _true(spread: Spread) -> Worlds:
    return spread.get(True, 0)


def _within(spread: Spread, within: Worlds) -> Spread:
    return {value: there & within for value, there in spread.items() if there & within}


def _joined(spreads: Iterable[Spread]) -> Spread:
    found: dict[Value, Worlds] = {}
    for spread in spreads:
        for value, there in spread.items():
            if there:
                found[value] = found.get(value, 0) | there
    return found


def _integer(value: Value) -> int:
    if isinstance(value, int):
        return value
    raise InternalError(f"{value!r} is not an integer")
