"""The initial states of an instance: every rigid valuation that the assumptions allow, and the states that start from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

from kvmodel.errors import Diagnostic, InstanceError, SpecError, UsageError
from kvmodel.language.expressions import TRUE, Apply, Cell, Const, Expr
from kvmodel.language.instance import Instance, State, Values
from kvmodel.language.operators import Operator
from kvmodel.language.system import Anything, Condition, Property, TransitionSystem
from kvmodel.language.types import Number, Value
from kvmodel.readings.dense import compile_function, source
from kvmodel.readings.ground import Grounder, cells
from kvmodel.readings.orders import comparison, order_classes

__all__ = ["contradiction", "initial_states", "initial_values", "require_consistent", "rigid_valuations"]

MOST_ATTEMPTS = 10_000  # to find one initial state, for each of
MOST_DEPLOYMENTS = 30


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


def initial_values(instance: Instance, rigid: Values, most: int | None = None) -> Iterator[Values]:
    """Every initial valuation of the state for one rigid valuation.

    Places are chosen in an order in which each initial condition is decided as early as possible. Raises InstanceError
    after `most` attempts (None: any number) to choose a value for a place.
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

    if 0 in tests and not tests[0](values, rigid):
        return
    if not order:
        yield tuple(values)
        return
    tried = 0
    pending = [iter(open_slots[order[0]])]  # a stack of what is left to try, not recursion: there can be thousands of places
    while pending:
        for value in pending[-1]:
            values[order[len(pending) - 1]] = value
            break
        else:
            pending.pop()
            continue
        tried += 1
        if most is not None and tried > most:
            raise InstanceError(f"no initial state of {system.name} was found in {most:,} attempts at {instance.describe_size()}")
        depth = len(pending)
        if depth in tests and not tests[depth](values, rigid):
            continue
        if depth == len(order):
            yield tuple(values)
        else:
            pending.append(iter(open_slots[order[depth]]))


def require_consistent(system: TransitionSystem) -> None:
    """Raise SpecError, at the first assumption or initial condition that contradicts those before it.

    Contradictory assumptions would make every property hold, for want of a deployment that could violate it.
    """
    found = contradiction(system)
    if found is None:
        return
    condition, others = found
    together = f" together with {' and '.join(repr(other.name) for other in others)}" if others else ""
    if condition in system.assumptions:
        message = f"no deployment satisfies this assumption{together}"
        hint = "assumptions that contradict each other would make every property hold; correct one of them"
    else:
        message = f"no initial state satisfies this condition{together}"
        hint = "correct one of them, or the initial values of the variables: starts(...), anything()"
    at = condition.at
    raise SpecError((Diagnostic(at.file, at.line, at.column, condition.owner or f"{system.name}.{condition.name}", message, hint),))


def contradiction(system: TransitionSystem) -> tuple[Condition, tuple[Condition, ...]] | None:
    """The first assumption or initial condition with which nothing is left to start from, and those that it contradicts.

    None when the system has an initial state with one element of each sort or at its default sizes, or when that is not
    settled after many attempts. Two sizes, because some conditions need two elements ("two different requests exist").
    """
    conditions = (*system.assumptions, *system.initial)
    if _can_start(system, conditions):
        return None
    for count, condition in enumerate(conditions, start=1):
        if not _can_start(system, conditions[:count]):
            others = list(conditions[: count - 1])
            for other in conditions[: count - 1]:
                fewer = [entry for entry in others if entry is not other]
                if not _can_start(system, (*fewer, condition)):
                    others = fewer
            return condition, tuple(others)
    return None


def _can_start(system: TransitionSystem, conditions: Sequence[Condition]) -> bool:
    """Whether the system has an initial state under some of its conditions; True also when that is not settled."""
    reduced = replace(
        system,
        assumptions=tuple(condition for condition in system.assumptions if condition in conditions),
        initial=tuple(condition for condition in system.initial if condition in conditions),
        actions=(), declared=(), finals=(), definitions=(),
    )  # fmt: skip
    return any(_has_initial_state(reduced, sizes) for sizes in (dict.fromkeys((sort.name for sort in system.sorts), 1), {}))


def _has_initial_state(system: TransitionSystem, sizes: Mapping[str, int]) -> bool:
    try:
        instance = Instance.make(system, sizes)
        if prod(len(instance.values_of(kind)) or 1 for kind in instance.rigid_layout.types) > MOST_ATTEMPTS:
            return True
        for number, rigid in enumerate(rigid_valuations(instance)):
            if number == MOST_DEPLOYMENTS or any(True for _ in initial_values(instance, rigid, MOST_ATTEMPTS)):
                return True
    except InstanceError:
        return True
    except UsageError:
        return False
    return False


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
