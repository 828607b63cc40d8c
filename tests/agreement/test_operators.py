"""Operator by reading by random state: every reading gives every operator its one meaning, and a mistake in any is seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

import pytest
import z3

from kvmodel.errors import InternalError
from kvmodel.language.expressions import Apply, Cell, Const, Expr, Quantified, Read, negation, rebuild, walk
from kvmodel.language.instance import Instance, State
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.types import BOOL, COUNT, Bool, Count, Counter, Element, Maybe, Number, Type, Value
from kvmodel.readings import dense, encoding, first_order, fold, ground, run
from kvmodel.readings.compiled import CompiledSystem
from kvmodel.readings.emitter import Emitter
from kvmodel.readings.first_order import Formulas, Optional
from kvmodel.readings.ground import Grounder
from kvmodel.readings.run import Interpreter
from tests.agreement.bounded import Bounded
from tests.agreement.operators import Board, View

ALL = (*Operator, *Binder)
Evaluator: TypeAlias = Callable[[State], Value]


@cache
def board() -> Board:
    return Board()


# -- the readings ------------------------------------------------------------------------------------------------------
# Each makes an expression ready, and gives a function from a state to its value.


def by_interpreter(expr: Expr) -> Evaluator:
    return lambda state: Interpreter(board().instance).evaluate(expr, state, {})


def by_grounding(expr: Expr) -> Evaluator:
    """Grounded with the rigid values in place, and the rest left to the interpreter."""
    instance = board().instance
    return lambda state: Interpreter(instance).evaluate(Grounder(instance, state.rigid).expression(expr, {}), state, {})


def by_grounding_all_deployments(expr: Expr) -> Evaluator:
    instance = board().instance
    grounded = Grounder(instance).expression(expr, {})
    return lambda state: Interpreter(instance).evaluate(grounded, state, {})


def by_dense_code(expr: Expr) -> Evaluator:
    """As Python source; grounded only where it must be, since grounding rewrites some operators away."""
    instance = board().instance
    plain = cells_only(expr, instance)
    lines = [
        "def value(s, q):",
        f"    {dense.unpack('s', instance.state_layout.length, 's')}",
        f"    {dense.unpack('q', instance.rigid_layout.length, 'q')}",
        f"    return {dense.source(Grounder(instance).expression(expr, {}) if plain is None else plain)}",
    ]
    value: Callable[..., Value] = dense.compile_function(lines, "value")
    return lambda state: value(state.values, state.rigid)


def cells_only(expr: Expr, instance: Instance) -> Expr | None:
    """`expr` with its reads replaced by cells and nothing simplified; None if it has an index or binds variables."""
    if any(isinstance(node, Quantified) or (isinstance(node, Read) and node.index) for node in walk(expr)):
        return None

    def change(node: Expr) -> Expr:
        if isinstance(node, Read):
            rigid = instance.system.by_name[node.variable].rigid
            layout = instance.rigid_layout if rigid else instance.state_layout
            return Cell(layout.slots[node.variable, ()], rigid, node.type)
        return rebuild(node, change)

    return change(expr)


@cache
def compiled_board() -> CompiledSystem:
    return CompiledSystem(board().instance.system, {"Thing": 2})


def by_compiled_step(expr: Expr) -> Evaluator:
    return lambda state: compiled_board().evaluate(compiled_board().from_dense(state), expr)


def by_bounded_reading(expr: Expr) -> Evaluator:
    """As a circuit; a solver says which of the values that it may have it has in a state."""
    bounded = Bounded(board().instance)
    signal = bounded.encoding.signal(expr, {})
    options: Mapping[Any, int] = {True: signal, False: -signal} if isinstance(signal, int) else signal
    solver = bounded.solver_of(options.values())

    def value(state: State) -> Value:
        here = bounded.in_state(state)
        (found,) = [key for key, literal in options.items() if solver.satisfiable([*here, literal])]
        assert isinstance(found, bool | int | str | None)
        return found

    return value


def by_formulas(expr: Expr) -> Evaluator:
    """As a formula over sorts of the board's sizes, with the values of a state in place."""
    instance = board().instance
    formulas = Formulas(instance.system, dict(instance.sizes))

    def term(kind: Type, value: Value) -> Any:
        if isinstance(kind, Bool):
            return z3.BoolVal(bool(value), formulas.context)
        if isinstance(kind, Element | Maybe):
            names = list(instance.elements(kind.domain))
            return formulas.members[kind.domain.name][0 if value is None else names.index(value)]
        return z3.IntVal(value, formulas.context)

    def places(state: State) -> list[tuple[Any, Any]]:
        found = []
        for layout, values in ((instance.rigid_layout, state.rigid), (instance.state_layout, state.values)):
            for (name, index), kind, value in zip(layout.places, layout.types, values, strict=True):
                keys = [term(Element(key), part) for key, part in zip(instance.system.by_name[name].keys, index, strict=True)]
                found.append((formulas.values[name](*keys), term(kind, value)))
                if name in formulas.nones:
                    found.append((formulas.nones[name](*keys), z3.BoolVal(value is None, formulas.context)))
        return found

    def plain(found: Any, state: State) -> Value:
        solver = z3.Solver(ctx=formulas.context)
        solver.add(*(place == value for place, value in places(state)))
        assert solver.check() == z3.sat
        result = solver.model().eval(found, model_completion=True)
        if z3.is_bool(result):
            return bool(z3.is_true(result))
        if z3.is_int_value(result):
            return int(result.as_long())
        (name,) = [name for name, members in formulas.members.items() if any(member.eq(result) for member in members)]
        number = [member.eq(result) for member in formulas.members[name]].index(True)
        return instance.domains[name][number]

    def value(state: State) -> Value:
        found = formulas.meaning(expr, {})
        return plain(found, state) if not isinstance(found, Optional) else None if plain(found.none, state) else plain(found.value, state)

    return value


VALUES: dict[str, Callable[[Expr], Evaluator]] = {
    "interpreter": by_interpreter,
    "grounding": by_grounding,
    "grounding of all deployments": by_grounding_all_deployments,
    "dense code": by_dense_code,
    "compiled step": by_compiled_step,
    "bounded reading": by_bounded_reading,
    "formulas": by_formulas,
}


def wrong_cases(reading: str, operator: Operator | Binder) -> list[str]:
    """Where a reading gives an expression of an operator another value than it means."""
    found = []
    for row in board().rows[operator]:
        try:
            value = VALUES[reading](row.expr)
            for state in board().states:
                got, expected = value(state), row.meaning(View(board().instance, state))
                if got != expected or isinstance(got, bool) is not isinstance(expected, bool):
                    found.append(f"{row.expr} is {got!r}, not {expected!r}, in {state}")
        except (InternalError, AssertionError, TypeError, IndexError, KeyError, ValueError, z3.Z3Exception) as error:
            found.append(f"{row.expr}: {error!r}")
    return found


# -- agreement ---------------------------------------------------------------------------------------------------------


def test_every_operator_has_a_row() -> None:
    assert set(board().rows) == set(ALL)
    assert all(board().rows[operator] for operator in ALL)


@pytest.mark.parametrize("operator", ALL)
def test_the_rows_of_an_operator_use_it_and_vary(operator: Operator | Binder) -> None:
    """Rows that never take two values would let a wrong operator pass."""
    for row in board().rows[operator]:
        used = {node.operator for node in walk(row.expr) if isinstance(node, Apply)}
        bound = {node.binder for node in walk(row.expr) if isinstance(node, Quantified)}
        assert operator in used | bound
    rows, states = board().rows[operator], board().states
    assert len({row.meaning(View(board().instance, state)) for row in rows for state in states}) > 1


@pytest.mark.parametrize("operator", ALL)
@pytest.mark.parametrize("reading", VALUES)
def test_every_reading_gives_every_operator_its_meaning(reading: str, operator: Operator | Binder) -> None:
    assert not wrong_cases(reading, operator)


# -- mistakes on purpose -----------------------------------------------------------------------------------------------


def spoiled(operator: Operator | Binder, arguments: tuple[Any, ...], value: Any) -> Any:
    """Another value than the right one, of the same kind."""
    if operator is Operator.IF and not isinstance(value, bool):
        return arguments[2] if arguments[0] else arguments[1]
    if operator is Operator.THE:
        return 1 - value
    return value + 1 if isinstance(value, int) and not isinstance(value, bool) else not value


def spoil_interpreter(monkeypatch: pytest.MonkeyPatch, operator: Operator | Binder) -> None:
    if operator is Operator.IF:
        original = Interpreter.evaluate

        def evaluate(self: Interpreter, expr: Expr, state: State, environment: Mapping[str, Value]) -> Value:
            match expr:
                case Apply(Operator.IF, (condition, then, otherwise), kind):
                    return original(self, Apply(Operator.IF, (condition, otherwise, then), kind), state, environment)
            return original(self, expr, state, environment)

        monkeypatch.setattr(Interpreter, "evaluate", evaluate)
        return
    table: Any = run.MEANING if isinstance(operator, Operator) else run.BINDING
    meaning = table[operator]
    monkeypatch.setitem(table, operator, lambda parts: spoiled(operator, (), meaning(parts)))


def spoiled_expression(operator: Operator | Binder, arguments: tuple[Expr, ...], found: Expr, kind: Type) -> Expr:
    """An expression of the same type that differs."""
    if isinstance(kind, Bool):
        return negation(found)
    if operator is Operator.IF:
        return Apply(operator, (arguments[0], arguments[2], arguments[1]), kind)
    if isinstance(kind, Count | Counter | Number):
        return Apply(Operator.ADD, (found, Const(1, COUNT)), kind)
    return Apply(Operator.IF, (Apply(Operator.EQ, (found, Const(0, kind)), BOOL), Const(1, kind), Const(0, kind)), kind)


def spoil_simplify(monkeypatch: pytest.MonkeyPatch, module: Any, operator: Operator) -> None:
    """A wrong `simplify` as one module sees it."""
    original = ground.simplify

    def simplify(found: Operator, arguments: tuple[Expr, ...], kind: Type) -> Expr:
        right = original(found, arguments, kind)
        return spoiled_expression(found, arguments, right, kind) if found is operator else right

    monkeypatch.setattr(module, "simplify", simplify)


SWAPPED = {Binder.ALL: Binder.ANY, Binder.ANY: Binder.ALL}


def spoil_grounding(monkeypatch: pytest.MonkeyPatch, operator: Operator | Binder) -> None:
    if isinstance(operator, Operator):
        spoil_simplify(monkeypatch, ground, operator)
        return
    original = Grounder.expression

    def expression(self: Grounder, expr: Expr, environment: Mapping[str, Value]) -> Expr:
        if isinstance(expr, Quantified) and expr.binder is operator:
            if operator is Binder.COUNT:
                return Apply(Operator.ADD, (original(self, expr, environment), Const(1, COUNT)), COUNT)
            return original(self, Quantified(SWAPPED[operator], expr.variables, expr.body), environment)
        return original(self, expr, environment)

    monkeypatch.setattr(Grounder, "expression", expression)


def spoil_dense(monkeypatch: pytest.MonkeyPatch, operator: Operator | Binder) -> None:
    original = dense.source

    def source(expr: Expr) -> str:
        if isinstance(expr, Apply) and expr.operator is operator:
            parts = [original(part) for part in expr.arguments]
            if operator is Operator.IF:
                return f"({parts[2]} if {parts[0]} else {parts[1]})"
            if operator is Operator.THE:
                return f"(1 - {parts[0]})"
            return f"({original(expr)} + 1)" if operator is Operator.ADD else f"(not {original(expr)})"
        return original(expr)

    monkeypatch.setattr(dense, "source", source)


def spoil_compiled(monkeypatch: pytest.MonkeyPatch, operator: Operator | Binder) -> None:
    if operator in (Operator.IMPLIES, Operator.THE):  # folding rewrites these, on the way to the generated code
        assert isinstance(operator, Operator)
        spoil_simplify(monkeypatch, fold, operator)
    elif isinstance(operator, Operator):
        emit = Emitter._apply

        def apply(self: Emitter, found: Operator, parts: list[str]) -> str:
            if found is not operator:
                return emit(self, found, parts)
            if operator is Operator.IF:
                return emit(self, found, [parts[0], parts[2], parts[1]])
            return f"({emit(self, found, parts)} + 1)" if operator is Operator.ADD else f"(not {emit(self, found, parts)})"

        monkeypatch.setattr(Emitter, "_apply", apply)
    else:
        value = Emitter.value

        def wrong_value(self: Emitter, expr: Expr, names: Any) -> str:
            if isinstance(expr, Quantified) and expr.binder is operator:
                if operator is Binder.COUNT:
                    return f"({value(self, expr, names)} + 1)"
                return value(self, Quantified(SWAPPED[operator], expr.variables, expr.body), names)
            return value(self, expr, names)

        monkeypatch.setattr(Emitter, "value", wrong_value)


def spoil_bounded(monkeypatch: pytest.MonkeyPatch, operator: Operator | Binder) -> None:
    table: Any = encoding.MEANING if isinstance(operator, Operator) else encoding.BINDING
    meaning = table[operator]

    def wrong(encoding: Any, parts: Any) -> Any:
        if operator is Operator.IF:
            return meaning(encoding, [parts[0], parts[2], parts[1]])
        found = meaning(encoding, parts)
        if isinstance(found, int):
            return -found
        keys = [*list(found)[1:], *list(found)[:1]]
        return dict(zip(keys, found.values(), strict=True))

    monkeypatch.setitem(table, operator, wrong)


def spoil_formulas(monkeypatch: pytest.MonkeyPatch, operator: Operator | Binder) -> None:
    table: Any = first_order.MEANING if isinstance(operator, Operator) else first_order.BINDING
    meaning = table[operator]

    def wrong(formulas: Any, parts: Any, *rest: Any) -> Any:
        if operator is Operator.IF:
            return meaning(formulas, [parts[0], parts[2], parts[1]])
        found = meaning(formulas, parts, *rest)
        if z3.is_bool(found):
            return z3.Not(found)
        if z3.is_int(found):
            return found + 1
        one, other = formulas.members["Thing"]
        return z3.If(found == one, other, one)

    monkeypatch.setitem(table, operator, wrong)


MISTAKES: dict[str, tuple[Callable[[pytest.MonkeyPatch, Any], None], tuple[Operator | Binder, ...]]] = {
    "interpreter": (spoil_interpreter, ALL),
    "grounding": (spoil_grounding, ALL),
    "grounding of all deployments": (spoil_grounding, ALL),
    "dense code": (spoil_dense, tuple(Operator)),  # binders are grounded away before
    "compiled step": (spoil_compiled, ALL),
    "bounded reading": (spoil_bounded, ALL),
    "formulas": (spoil_formulas, ALL),
}


@pytest.mark.parametrize(("reading", "operator"), [(name, operator) for name, (_, some) in MISTAKES.items() for operator in some])
def test_a_mistake_in_any_operator_of_any_reading_is_noticed(
    monkeypatch: pytest.MonkeyPatch, reading: str, operator: Operator | Binder
) -> None:
    MISTAKES[reading][0](monkeypatch, operator)
    assert wrong_cases(reading, operator)


def test_mistakes_are_seeded_in_every_reading() -> None:
    assert set(MISTAKES) == set(VALUES)
