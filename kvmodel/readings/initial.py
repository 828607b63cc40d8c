"""The initial states of an instance: every rigid valuation that the assumptions allow, and the states that start from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

from kvmodel.errors import UsageError
from kvmodel.language.expressions import TRUE, Apply, Cell, Const, Expr
from kvmodel.language.instance import Instance, State, Values
from kvmodel.language.operators import Operator
from kvmodel.language.system import Anything, Condition, Property
from kvmodel.language.types import Number, Value
from kvmodel.readings.dense import compile_function, source
from kvmodel.readings.ground import Grounder, cells
from kvmodel.readings.orders import comparison, order_classes

__all__ = ["initial_states", "initial_values", "rigid_valuations"]


def initial_states(instance: Instance) -> Iterator[State]:
    """Every initial state of the instance. Raises UsageError when there is none: nothing could ever be violated."""
    found = False
    for rigid in rigid_valuations(instance):
        for values in initial_values(instance, rigid):
            found = True
            yield State(rigid, values)
    if not found:
        raise UsageError(
            f"{instance.system.name} has no initial state at {instance.describe_size()}: its initial conditions contradict each other"
        )


def rigid_valuations(instance: Instance) -> Iterator[Values]:
    """Every valuation of the rigid variables that the assumptions allow: numbers up to how they compare.

    Raises UsageError when the assumptions allow none.
    """
    system = instance.system
    layout = instance.rigid_layout
    grounder = Grounder(instance)
    assumptions = tuple(part for condition in system.assumptions for part in grounder.instances(condition))
    matter: list[Expr] = []
    for action in grounder.actions():
        matter += [expr for _, expr in (*action.guards, *action.assertions)] + [expr for _, expr in action.updates]
    conditions: list[Condition | Property] = [*system.initial, *system.declared, *system.finals]
    matter += [part for condition in conditions for part in grounder.instances(condition)]
    numbers = [slot for slot, kind in enumerate(layout.types) if isinstance(kind, Number)]
    seen_by_steps = _comparisons(matter)
    all_comparisons = list(dict.fromkeys([*seen_by_steps, *_comparisons(list(assumptions))]))
    atoms = list(dict.fromkeys(atom for expr in all_comparisons for atom in comparison(expr)))
    allowed = _predicate(assumptions, layout.length, ())
    choices = [
        (value,) if (value := _fixed(instance, slot)) is not None else ((0,) if isinstance(kind, Number) else instance.values_of(kind))
        for slot, kind in enumerate(layout.types)
    ]
    seen: set[tuple[Value, ...]] = set()
    found = False
    for witness in order_classes(numbers, atoms):
        for slot, number in witness.items():
            choices[slot] = (number,)
        for rigid in product(*choices):
            if not allowed((), rigid):
                continue
            found = True
            key: tuple[Value, ...] = tuple(_truth(expr, rigid) for expr in seen_by_steps)
            key += tuple(value for slot, value in enumerate(rigid) if not isinstance(layout.types[slot], Number))
            if key not in seen:
                seen.add(key)
                yield rigid
    if not found:
        raise UsageError(
            f"the assumptions of {system.name} contradict each other at {instance.describe_size()}: no deployment satisfies them"
        )


def initial_values(instance: Instance, rigid: Values) -> Iterator[Values]:
    """Every initial valuation of the state for one rigid valuation.

    Places are chosen in an order in which each initial condition is decided as early as possible.
    """
    system = instance.system
    layout = instance.state_layout
    grounder = Grounder(instance, rigid)
    values: list[Value] = [None] * layout.length
    open_slots: dict[int, tuple[Value, ...]] = {}
    for slot, ((name, _), kind) in enumerate(zip(layout.places, layout.types, strict=True)):
        initial = system.by_name[name].initial
        if isinstance(initial, Anything):
            open_slots[slot] = instance.values_of(kind)
        else:
            values[slot] = initial
    conditions = [part for condition in system.initial for part in grounder.instances(condition) if part != TRUE]
    order: list[int] = []
    remaining = [(frozenset(cell.slot for cell in cells(part) if cell.slot in open_slots), part) for part in conditions]
    checks: dict[int, list[Expr]] = {}
    chosen: set[int] = set()
    while remaining:
        remaining.sort(key=lambda entry: len(entry[0] - chosen))
        needed, part = remaining.pop(0)
        fresh = sorted(needed - chosen)
        order += fresh
        chosen.update(fresh)
        checks.setdefault(len(order), []).append(part)
    order += [slot for slot in open_slots if slot not in chosen]
    tests = {depth: _predicate(tuple(parts), layout.length, rigid) for depth, parts in checks.items()}

    def extend(depth: int) -> Iterator[Values]:
        if depth in tests and not tests[depth](values, rigid):
            return
        if depth == len(order):
            yield tuple(values)
            return
        for value in open_slots[order[depth]]:
            values[order[depth]] = value
            yield from extend(depth + 1)

    yield from extend(0)


def _fixed(instance: Instance, slot: int) -> Value:
    name, place = instance.rigid_layout.places[slot]
    if not instance.system.by_name[name].partition:
        return None
    assert isinstance(place[0], int)
    return instance.part_of[instance.system.by_name[name].keys[0].name, place[0]]


def _comparisons(exprs: Sequence[Expr]) -> list[Expr]:
    """The distinct comparisons of numbers in ground expressions, in order."""
    found: dict[Expr, None] = {}
    stack = list(reversed(exprs))
    while stack:
        expr = stack.pop()
        if isinstance(expr, Apply):
            if expr.operator in (Operator.LT, Operator.LE, Operator.EQ) and any(isinstance(part.type, Number) for part in expr.arguments):
                found[expr] = None
            else:
                stack.extend(reversed(expr.arguments))
    return list(found)


def _truth(expr: Expr, rigid: Values) -> bool:
    match expr:
        case Apply(operator=operator, arguments=(left, right)):
            a, b = _number(left, rigid), _number(right, rigid)
            return a < b if operator is Operator.LT else a <= b if operator is Operator.LE else a == b
    raise AssertionError(expr)


def _number(expr: Expr, rigid: Values) -> int:
    match expr:
        case Const(value=int(value)):
            return value
        case Cell(slot):
            found = rigid[slot]
            assert isinstance(found, int)
            return found
        case Apply(arguments=arguments):
            return sum(_number(part, rigid) for part in arguments)
    raise AssertionError(expr)


def _predicate(parts: tuple[Expr, ...], length: int, rigid: Values) -> Callable[[Any, Any], bool]:
    """A function of (state values, rigid values) that says whether all ground `parts` are true."""
    used = sorted({(cell.rigid, cell.slot) for part in parts for cell in cells(part)})
    body = [f"    {'q' if r else 's'}{slot} = {'q' if r else 's'}[{slot}]" for r, slot in used]
    lines = ["def predicate(s, q):", *body, *(f"    if not {source(part)}: return False" for part in parts), "    return True"]
    function: Callable[[Any, Any], bool] = compile_function(lines, "predicate")
    return function
