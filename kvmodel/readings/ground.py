"""Grounding: the actions and conditions of an instance without parameters or quantifiers, over its cells.

Shared by the readings that work on a fixed instance (explore, bmc, machine); the interpreter does not use it, so that
a mistake here shows as a disagreement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from kvmodel.errors import InternalError
from kvmodel.language.expressions import (
    FALSE,
    TRUE,
    Apply,
    Bound,
    Cell,
    Const,
    Expr,
    FlagRead,
    Named,
    Quantified,
    Read,
    negation,
)
from kvmodel.language.instance import Binding, Instance, Values
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import Action, Condition, Property, Variable
from kvmodel.language.types import BOOL, COUNT, Bool, Element, Maybe, Number, Type, Value
from kvmodel.traces.trace import Choice

__all__ = ["GroundAction", "Grounder"]

Environment = Mapping[str, Value]


@dataclass(frozen=True)
class GroundAction:
    """One action with one binding. `updates` maps a slot of the state to its new value."""

    choice: Choice
    guards: tuple[tuple[str, Expr], ...]
    assertions: tuple[tuple[str, Expr], ...]
    updates: tuple[tuple[int, Expr], ...]

    @property
    def guard(self) -> Expr:
        """All guards together."""
        return simplify(Operator.AND, tuple(condition for _, condition in self.guards), BOOL)


class Grounder:
    """Grounds the expressions of one instance.

    With `rigid` values given, rigid cells are folded to constants; otherwise only partitions are (the instance fixes
    them).
    """

    def __init__(self, instance: Instance, rigid: Values | None = None) -> None:
        self.instance = instance
        self.system = instance.system
        self.rigid = rigid

    def actions(self) -> tuple[GroundAction, ...]:
        """Every action with every binding whose guards are not plainly false, in order."""
        found = (
            self.action(action, binding)
            for action in self.system.actions
            for binding in self.instance.bindings(action.parameters)
        )
        return tuple(action for action in found if action is not None)

    def action(self, action: Action, binding: Binding) -> GroundAction | None:
        """`action` with `binding`; None when its guards can never be true."""
        environment = _environment(action.parameters, binding)
        guards = []
        for guard in action.guards:
            condition = self.expression(guard.condition, environment)
            if condition == FALSE:
                return None
            guards.append((guard.name, condition))
        assertions = tuple(
            (f"assert:{action.name}:{assertion.name}", self.expression(assertion.condition, environment))
            for assertion in action.assertions
        )
        return GroundAction(Choice(action.name, binding), tuple(guards), assertions, self.updates(action, environment))

    def updates(self, action: Action, environment: Environment) -> tuple[tuple[int, Expr], ...]:
        """The new value of every slot that the action may write, for the binding in `environment`."""
        layout = self.instance.state_layout
        written: dict[int, Expr] = {}
        for update in action.updates:
            for chosen in self.instance.bindings(update.over):
                inner = {**environment, **_environment(update.over, chosen)}
                condition = self.expression(update.condition, inner)
                if condition == FALSE:
                    continue
                value = self.expression(update.value, inner)
                index = tuple(self.expression(part, inner) for part in update.index)
                for place, reached in self.reachable_indices(self.system.by_name[update.variable], index):
                    slot = layout.slots[update.variable, place]
                    when = simplify(Operator.AND, (condition, reached), BOOL)
                    old = written.get(slot, Cell(slot, False, layout.types[slot]))
                    written[slot] = simplify(Operator.IF, (when, value, old), layout.types[slot])
        return tuple(sorted((slot, value) for slot, value in written.items() if value != Cell(slot, False, layout.types[slot])))

    def for_all(self, condition: Condition | Property) -> Expr:
        """The condition for every binding of its parameters."""
        return simplify(Operator.AND, self.instances(condition), BOOL)

    def for_some(self, condition: Condition | Property) -> Expr:
        """The condition for some binding of its parameters."""
        return simplify(Operator.OR, self.instances(condition), BOOL)

    def instances(self, condition: Condition | Property) -> tuple[Expr, ...]:
        """The condition for each binding of its parameters."""
        return tuple(
            self.expression(condition.condition, _environment(condition.parameters, binding))
            for binding in self.instance.bindings(condition.parameters)
        )

    def final(self) -> Expr:
        """Whether a state may have no successor."""
        return simplify(Operator.OR, tuple(self.for_all(final) for final in self.system.finals), BOOL)

    def expression(self, expr: Expr, environment: Environment) -> Expr:
        """`expr` over cells and constants only."""
        match expr:
            case Const() | Cell():
                return expr
            case Bound(name=name):
                return Const(environment[name], expr.type)
            case FlagRead(flag=flag):
                return Const(self.system.flag_values[flag], BOOL)
            case Named(body=body):
                return self.expression(body, environment)
            case Read(variable, index, kind):
                parts = tuple(self.expression(part, environment) for part in index)
                return self.read(self.system.by_name[variable], parts, kind)
            case Apply(operator, arguments, kind):
                return simplify(operator, tuple(self.expression(part, environment) for part in arguments), kind)
            case Quantified(binder, variables, body):
                bodies = tuple(
                    self.expression(body, {**environment, **_environment(variables, values)})
                    for values in product(*(self.instance.elements(v.domain) for v in variables))
                )
                match binder:
                    case Binder.ALL:
                        return simplify(Operator.AND, bodies, BOOL)
                    case Binder.ANY:
                        return simplify(Operator.OR, bodies, BOOL)
                    case Binder.COUNT:
                        one, zero = Const(1, COUNT), Const(0, COUNT)
                        return simplify(
                            Operator.ADD, tuple(simplify(Operator.IF, (part, one, zero), COUNT) for part in bodies), COUNT
                        )
        raise InternalError(f"grounding has no rule for {expr!r}")

    def read(self, variable: Variable, index: tuple[Expr, ...], kind: Type) -> Expr:
        """The cell at an index; a choice between cells where the index is not constant."""
        places = self.reachable_indices(variable, index)
        result: Expr | None = None
        for place, reached in reversed(places):
            cell = self.cell(variable, place, kind)
            result = cell if result is None else simplify(Operator.IF, (reached, cell, result), kind)
        assert result is not None
        return result

    def cell(self, variable: Variable, place: Binding, kind: Type) -> Expr:
        """The cell of a variable at a constant index, or its value where the instance fixes it."""
        if not variable.rigid:
            return Cell(self.instance.state_layout.slots[variable.name, place], False, kind)
        slot = self.instance.rigid_layout.slots[variable.name, place]
        if variable.partition:
            assert isinstance(place[0], int)
            return Const(self.instance.part_of[variable.keys[0].name, place[0]], kind)
        return Cell(slot, True, kind) if self.rigid is None else Const(self.rigid[slot], kind)

    def reachable_indices(self, variable: Variable, index: tuple[Expr, ...]) -> list[tuple[Binding, Expr]]:
        """Each constant index that `index` may stand for, with the condition under which it does."""
        if all(isinstance(part, Const) for part in index):
            return [(tuple(part.value for part in index if isinstance(part, Const)), TRUE)]
        found: list[tuple[Binding, Expr]] = []
        for place in self.instance.bindings(tuple(_Key(key) for key in variable.keys)):
            tests = [
                simplify(Operator.EQ, (part, Const(value, Element(key))), BOOL)
                for part, value, key in zip(index, place, variable.keys, strict=True)
            ]
            reached = simplify(Operator.AND, tuple(tests), BOOL)
            if reached != FALSE:
                found.append((place, reached))
        return found


@dataclass(frozen=True, slots=True)
class _Key:
    domain: object


def _environment(parameters: tuple[Bound, ...], binding: Binding) -> dict[str, Value]:
    return dict(zip((parameter.name for parameter in parameters), binding, strict=True))


def simplify(operator: Operator, arguments: tuple[Expr, ...], kind: Type) -> Expr:
    """The application of an operator to ground arguments, with constants folded.

    A choice between numbers is moved out of comparisons and sums, so that a comparison is always of ``number + constant``.
    """
    if operator in (Operator.EQ, Operator.LT, Operator.LE, Operator.ADD):
        for position, part in enumerate(arguments):
            if isinstance(part, Apply) and part.operator is Operator.IF and isinstance(part.type, Number):
                condition, then, otherwise = part.arguments
                before, after = arguments[:position], arguments[position + 1 :]
                return simplify(
                    Operator.IF,
                    (condition, simplify(operator, (*before, then, *after), kind), simplify(operator, (*before, otherwise, *after), kind)),
                    kind,
                )
    match operator:
        case Operator.AND | Operator.OR:
            neutral, absorbing = (TRUE, FALSE) if operator is Operator.AND else (FALSE, TRUE)
            kept: dict[Expr, None] = {}
            for part in arguments:
                if part == absorbing:
                    return absorbing
                if isinstance(part, Apply) and part.operator is operator:
                    kept.update(dict.fromkeys(part.arguments))
                elif part != neutral:
                    kept[part] = None
            if not kept:
                return neutral
            return next(iter(kept)) if len(kept) == 1 else Apply(operator, tuple(kept), BOOL)
        case Operator.NOT:
            return negation(arguments[0])
        case Operator.IMPLIES:
            return simplify(Operator.OR, (negation(arguments[0]), arguments[1]), BOOL)
        case Operator.IF:
            condition, then, otherwise = arguments
            if isinstance(condition, Const):
                return then if condition.value else otherwise
            if then == otherwise:
                return then
            if kind == BOOL and then == TRUE:
                return simplify(Operator.OR, (condition, otherwise), BOOL)
            if kind == BOOL and then == FALSE:
                return simplify(Operator.AND, (negation(condition), otherwise), BOOL)
            return Apply(operator, arguments, kind)
        case Operator.EQ:
            left, right = arguments
            if isinstance(left, Const) and isinstance(right, Const):
                return TRUE if left.value == right.value else FALSE
            if left == right:
                return TRUE
            if isinstance(left, Const):
                left, right = right, left
            if isinstance(right, Const):
                if isinstance(left.type, Bool):
                    return left if right.value else negation(left)
                if right.value is None and not isinstance(left.type, Maybe):
                    return FALSE
            return Apply(operator, (left, right), BOOL)
        case Operator.IS_NONE:
            (part,) = arguments
            if isinstance(part, Const):
                return TRUE if part.value is None else FALSE
            return Apply(operator, arguments, BOOL)
        case Operator.THE:
            return arguments[0]
        case Operator.LT | Operator.LE:
            if all(isinstance(part, Const) for part in arguments):
                left_value, right_value = (_constant(part) for part in arguments)
                return TRUE if (left_value < right_value or (operator is Operator.LE and left_value == right_value)) else FALSE
            return Apply(operator, arguments, BOOL)
        case Operator.ADD:
            parts = [inner for part in arguments for inner in _summands(part)]
            constant = sum(_constant(part) for part in parts if isinstance(part, Const))
            others: list[Expr] = [part for part in parts if not isinstance(part, Const)]
            if not others:
                return Const(constant, kind)
            if constant:
                others.append(Const(constant, kind))
            return others[0] if len(others) == 1 else Apply(operator, tuple(others), kind)
    raise InternalError(f"grounding has no rule for operator {operator.value!r}")


def simplified(expr: Expr) -> Expr:
    """An expression of which the parts were changed, simplified at its top. Sorts are never empty, so a constant body decides ALL and
    ANY."""
    if isinstance(expr, Apply):
        return simplify(expr.operator, expr.arguments, expr.type)
    if isinstance(expr, Quantified) and expr.binder is not Binder.COUNT and isinstance(expr.body, Const):
        return expr.body
    return expr


def _summands(expr: Expr) -> tuple[Expr, ...]:
    return expr.arguments if isinstance(expr, Apply) and expr.operator is Operator.ADD else (expr,)


def _constant(expr: Expr) -> int:
    assert isinstance(expr, Const)
    assert isinstance(expr.value, int)
    return expr.value


def cells(expr: Expr) -> frozenset[Cell]:
    """The cells that a ground expression reads."""
    if isinstance(expr, Cell):
        return frozenset((expr,))
    if isinstance(expr, Apply):
        return frozenset().union(*(cells(part) for part in expr.arguments))
    return frozenset()


def all_of(parts: tuple[Expr, ...]) -> Expr:
    """The ground conjunction of `parts`."""
    return simplify(Operator.AND, parts, BOOL)


