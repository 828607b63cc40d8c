"""The naive reading: one step from a concrete state, straight from the definition. The oracle of all other readings.

Nothing here is fast and nothing is clever: expressions are evaluated by recursion, quantifiers by enumeration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product

from kvmodel.errors import InternalError
from kvmodel.language.expressions import Apply, Bound, Cell, Const, Expr, FlagRead, Named, Quantified, Read
from kvmodel.language.instance import Binding, Instance, State
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import Action, Condition, Property, PropertyKind
from kvmodel.language.types import Counter, Value
from kvmodel.traces.trace import Choice

__all__ = ["Interpreter"]

Environment = Mapping[str, Value]


def _conjunction(parts: Iterator[Value]) -> Value:
    return all(parts)


def _disjunction(parts: Iterator[Value]) -> Value:
    return any(parts)


def _implication(parts: Iterator[Value]) -> Value:
    return (not next(parts)) or bool(next(parts))


def _choice(parts: Iterator[Value]) -> Value:
    if next(parts):
        return next(parts)
    next(parts)
    return next(parts)


def _less(parts: Iterator[Value]) -> Value:
    return _integer(next(parts)) < _integer(next(parts))


def _at_most(parts: Iterator[Value]) -> Value:
    return _integer(next(parts)) <= _integer(next(parts))


def _the(parts: Iterator[Value]) -> Value:
    value = next(parts)
    if value is None:
        raise InternalError("a none was read as an element: the language should have refused this spec")
    return value


def _integer(value: Value) -> int:
    if isinstance(value, int):
        return value
    raise InternalError(f"{value!r} is not an integer")


# Arguments come as an iterator, so that an operator evaluates only those that it looks at.
MEANING: Mapping[Operator, Callable[[Iterator[Value]], Value]] = {
    Operator.NOT: lambda parts: not next(parts),
    Operator.AND: _conjunction,
    Operator.OR: _disjunction,
    Operator.IMPLIES: _implication,
    Operator.EQ: lambda parts: next(parts) == next(parts),
    Operator.LT: _less,
    Operator.LE: _at_most,
    Operator.ADD: lambda parts: sum(_integer(part) for part in parts),
    Operator.IS_NONE: lambda parts: next(parts) is None,
    Operator.THE: _the,
}

BINDING: Mapping[Binder, Callable[[Iterator[Value]], Value]] = {
    Binder.ALL: _conjunction,
    Binder.ANY: _disjunction,
    Binder.COUNT: lambda parts: sum(1 for part in parts if part),
}


class Interpreter:
    """Evaluates expressions and takes steps of one instance."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.system = instance.system

    def evaluate(self, expr: Expr, state: State, environment: Environment) -> Value:
        """The value of `expr` in `state` with its free parameters given by `environment`."""
        match expr:
            case Const(value=value):
                return value
            case Bound(name=name):
                return environment[name]
            case FlagRead(flag=flag):
                return self.system.flag_values[flag]
            case Read(variable, index):
                place = (variable, tuple(self.evaluate(part, state, environment) for part in index))
                if self.system.by_name[variable].rigid:
                    return state.rigid[self.instance.rigid_layout.slots[place]]
                return state.values[self.instance.state_layout.slots[place]]
            case Named(body=body):
                return self.evaluate(body, state, environment)
            case Apply(operator=Operator.IF, arguments=(condition, then, otherwise)):
                return self.evaluate(then if self.evaluate(condition, state, environment) else otherwise, state, environment)
            case Apply(operator=operator, arguments=arguments):
                if operator not in MEANING:
                    raise InternalError(f"the interpreter has no meaning for operator {operator.value!r}")
                return MEANING[operator](self.evaluate(part, state, environment) for part in arguments)
            case Quantified(binder, variables, body):
                if binder not in BINDING:
                    raise InternalError(f"the interpreter has no meaning for binder {binder.value!r}")
                return BINDING[binder](
                    self.evaluate(body, state, {**environment, **dict(zip((v.name for v in variables), values, strict=True))})
                    for values in product(*(self.instance.elements(v.domain) for v in variables))
                )
            case Cell(slot, rigid):
                return (state.rigid if rigid else state.values)[slot]

    def enabled(self, state: State) -> tuple[Choice, ...]:
        """Every choice whose guards are all true, actions in order of declaration. None where a counter has left its range."""
        if self.out_of_range(state):
            return ()
        return tuple(
            Choice(action.name, binding)
            for action in self.system.actions
            for binding in self.instance.bindings(action.parameters)
            if self.allows(state, action, binding)
        )

    def allows(self, state: State, action: Action, binding: Binding) -> bool:
        """Whether every guard of `action` is true for `binding`."""
        environment = self.environment(action.parameters, binding)
        return all(self.evaluate(guard.condition, state, environment) for guard in action.guards)

    def successor(self, state: State, choice: Choice) -> State:
        """The state after `choice`, which must be enabled."""
        action = self.system.action(choice.action)
        values = list(state.values)
        for update in action.updates:
            for chosen in self.instance.bindings(update.over):
                environment = {**self.environment(action.parameters, choice.binding), **self.environment(update.over, chosen)}
                if self.evaluate(update.condition, state, environment):
                    index = tuple(self.evaluate(part, state, environment) for part in update.index)
                    slot = self.instance.state_layout.slots[update.variable, index]
                    values[slot] = self.evaluate(update.value, state, environment)
        return State(state.rigid, tuple(values))

    def broken_assertions(self, state: State, choice: Choice) -> tuple[str, ...]:
        """Names of the properties ``assert:ACTION:NAME`` that taking `choice` in `state` violates."""
        action = self.system.action(choice.action)
        environment = self.environment(action.parameters, choice.binding)
        return tuple(
            f"assert:{action.name}:{assertion.name}"
            for assertion in action.assertions
            if not self.evaluate(assertion.condition, state, environment)
        )

    def out_of_range(self, state: State) -> tuple[str, ...]:
        """Names of the properties ``range:COUNTER`` that `state` violates."""
        broken: dict[str, None] = {}
        layout = self.instance.state_layout
        for (name, _), kind, value in zip(layout.places, layout.types, state.values, strict=True):
            if isinstance(kind, Counter) and not kind.low <= _integer(value) <= kind.high:
                broken[f"range:{name}"] = None
        return tuple(broken)

    def holds_for_all(self, condition: Condition | Property, state: State) -> bool:
        """Whether the condition is true of `state` for every binding of its parameters."""
        return self.failing_binding(condition, state) is None

    def failing_binding(self, condition: Condition | Property, state: State) -> Binding | None:
        """The first binding of the parameters for which the condition is false, or None."""
        for binding in self.instance.bindings(condition.parameters):
            if not self.evaluate(condition.condition, state, self.environment(condition.parameters, binding)):
                return binding
        return None

    def satisfying_binding(self, condition: Condition | Property, state: State) -> Binding | None:
        """The first binding of the parameters for which the condition is true, or None."""
        for binding in self.instance.bindings(condition.parameters):
            if self.evaluate(condition.condition, state, self.environment(condition.parameters, binding)):
                return binding
        return None

    def is_initial(self, state: State) -> bool:
        """Whether a run may start in `state`: assumptions, initial values and initial conditions."""
        layout = self.instance.state_layout
        for (name, _), value in zip(layout.places, state.values, strict=True):
            initial = self.system.by_name[name].initial
            if isinstance(initial, bool | int | str | None) and initial != value:
                return False
        conditions = (*self.system.assumptions, *self.system.initial)
        return all(self.holds_for_all(condition, state) for condition in conditions)

    def is_final(self, state: State) -> bool:
        """Whether `state` may have no successor (no `@final`: no state may)."""
        return any(self.holds_for_all(final, state) for final in self.system.finals)

    def violated(self, state: State, choice: Choice | None = None, before: State | None = None) -> tuple[str, ...]:
        """Every property that is violated in `state`, reached by `choice` from `before` (both None: initial).

        `@reachable` properties are not among them: no single state violates one.
        """
        names = list(self.broken_assertions(before, choice)) if choice is not None and before is not None else []
        ranges = self.out_of_range(state)
        names += ranges
        for candidate in self.system.declared:
            if candidate.kind is PropertyKind.INVARIANT and not self.holds_for_all(candidate, state):
                names.append(candidate.name)
        if not ranges and not self.enabled(state) and not self.is_final(state):
            names.append("no_deadlock")
        return tuple(names)

    @staticmethod
    def environment(parameters: tuple[Bound, ...], binding: Binding) -> dict[str, Value]:
        """`binding` as values by parameter name."""
        return dict(zip((parameter.name for parameter in parameters), binding, strict=True))
