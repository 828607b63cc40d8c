"""Search: in which order to find the bindings that make a condition true, without trying every element of a sort.

A sparse state knows where a variable differs from its initial value. A condition that can only be true there (``holds[r, p]``,
``content[p] == r``) is a place to look; what is left over is a test. `plans` chooses, and a reading turns the steps of a
plan into loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kvmodel.language.expressions import Apply, Bound, Const, Expr, Named, Quantified, Read, free_names, walk
from kvmodel.language.operators import Operator
from kvmodel.language.types import Bool, Element, Enumeration, Value

__all__ = ["Let", "Literal", "Plan", "Scan", "Step", "Support", "Test", "cases", "literals", "plans", "scans"]

DEEPEST_SPLIT = 3
MOST_CASES = 16


@dataclass(frozen=True, slots=True)
class Literal:
    """The condition that `expr` is `truth`."""

    expr: Expr
    truth: bool


@dataclass(frozen=True, slots=True)
class Scan:
    """Try every element of the variable's domain."""

    variable: Bound


@dataclass(frozen=True, slots=True)
class Let:
    """The variable can only be the value of `value`, where that is not None."""

    variable: Bound
    value: Expr


@dataclass(frozen=True, slots=True)
class Support:
    """Look where `variable` differs from its default: `index` has an expression for each position that is known and a
    variable to find for each other; `value`, where given, is the value to look for (never the default)."""

    variable: str
    index: tuple[Expr | Bound, ...]
    find: tuple[int, ...]
    value: Expr | None


@dataclass(frozen=True, slots=True)
class Test:
    """Go on only where the literal holds."""

    __test__ = False  # not a test class of pytest's

    literal: Literal


Step: TypeAlias = Scan | Let | Support | Test
Plan: TypeAlias = tuple[Step, ...]
Defaults: TypeAlias = Mapping[str, Value]


def literals(expr: Expr, truth: bool) -> tuple[Literal, ...]:
    """Literals that together are equivalent to `expr` being `truth`: conjunctions, as far as they go."""
    match expr:
        case Const(value=value) if value is truth:
            return ()
        case Named(body=body):
            return literals(body, truth)
        case Apply(operator=Operator.NOT, arguments=(part,)):
            return literals(part, not truth)
        case Apply(operator=Operator.AND, arguments=parts) if truth:
            return tuple(found for part in parts for found in literals(part, True))
        case Apply(operator=Operator.OR, arguments=parts) if not truth:
            return tuple(found for part in parts for found in literals(part, False))
        case Apply(operator=Operator.IMPLIES, arguments=(premise, conclusion)) if not truth:
            return (*literals(premise, True), *literals(conclusion, False))
        case _:
            return (Literal(expr, truth),)


def alternatives(literal: Literal) -> tuple[tuple[Literal, ...], ...]:
    """Groups of literals of which at least one is true wherever `literal` is; empty when it is not a disjunction."""
    match literal:
        case Literal(Apply(operator=Operator.OR, arguments=parts), True):
            return tuple(literals(part, True) for part in parts)
        case Literal(Apply(operator=Operator.AND, arguments=parts), False):
            return tuple(literals(part, False) for part in parts)
        case Literal(Apply(operator=Operator.IMPLIES, arguments=(premise, conclusion)), True):
            return (literals(premise, False), literals(conclusion, True))
        case Literal(Apply(operator=Operator.IF, arguments=(condition, then, otherwise), type=Bool()), truth):
            return (
                (*literals(condition, True), *literals(then, truth)),
                (*literals(condition, False), *literals(otherwise, truth)),
            )
    return ()


def cases(condition: tuple[Literal, ...]) -> tuple[tuple[Literal, ...], ...]:
    """Groups of literals of which one is true, as a whole, wherever all of `condition` is: disjunctions multiplied out, as long
    as that gives no more than a few groups."""
    found: tuple[tuple[Literal, ...], ...] = ((),)
    for literal in condition:
        parts = tuple(case for group in alternatives(literal) for case in cases(group)) or ((literal,),)
        if len(found) * len(parts) > MOST_CASES:
            parts = ((literal,),)
        found = tuple((*front, *part) for front in found for part in parts)
    return found


def plans(
    variables: tuple[Bound, ...], condition: tuple[Literal, ...], defaults: Defaults, rigid: frozenset[str] = frozenset()
) -> tuple[Plan, ...]:
    """Plans that together find every binding of `variables` for which all of `condition` is true (some perhaps twice).

    Other names in `condition` count as known. `defaults` gives each variable's default; `rigid` names those that are
    looked through last, because they do not get sparse. A disjunction is split only where that saves a scan.
    """
    return tuple(_split(variables, condition, defaults, rigid, DEEPEST_SPLIT))


def scans(plan: Plan, rigid: frozenset[str] = frozenset()) -> int:
    """How many whole sorts a plan goes through (a rigid variable without a known key counts as one)."""
    return sum(
        1
        for step in plan
        if (isinstance(step, Scan) and not isinstance(step.variable.domain, Enumeration))
        or (isinstance(step, Support) and step.variable in rigid and len(step.find) == len(step.index))
    )


def _split(
    variables: tuple[Bound, ...], condition: tuple[Literal, ...], defaults: Defaults, rigid: frozenset[str], depth: int
) -> Iterator[Plan]:
    whole = _plan(variables, condition, defaults, rigid)
    cost = scans(whole, rigid)
    if cost and depth:
        for position, literal in enumerate(condition):
            groups = alternatives(literal)
            rest = (*condition[:position], *condition[position + 1:])
            if groups and all(scans(_plan(variables, (*group, *rest), defaults, rigid), rigid) < cost for group in groups):
                for group in groups:
                    yield from _split(variables, (*group, *rest), defaults, rigid, depth - 1)
                return
    yield whole


def _plan(variables: tuple[Bound, ...], condition: tuple[Literal, ...], defaults: Defaults, rigid: frozenset[str]) -> Plan:
    steps: list[Step] = []
    missing = {variable.name: variable for variable in variables}
    waiting = list(condition)

    def ready() -> None:
        decided = [literal for literal in waiting if not free_names(literal.expr) & missing.keys()]
        decided.sort(key=_effort)
        for literal in decided:
            waiting.remove(literal)
            steps.append(Test(literal))

    ready()
    while missing:
        ranked = ((_rank(literal, missing, defaults, rigid), position) for position, literal in enumerate(waiting))
        found = [(rank, position) for rank, position in ranked if rank is not None]
        if found:
            _, position = min(found)
            step, used = _use(waiting[position], missing, defaults)
            if used:
                del waiting[position]
        else:
            step = Scan(min(missing.values(), key=lambda variable: not isinstance(variable.domain, Enumeration)))
        steps.append(step)
        for variable in _found(step):
            del missing[variable.name]
        ready()
    return tuple(steps)


def _effort(literal: Literal) -> int:
    return sum(1 for node in walk(literal.expr) if isinstance(node, Quantified))


def _found(step: Step) -> tuple[Bound, ...]:
    match step:
        case Scan(variable) | Let(variable):
            return (variable,)
        case Support(index=index, find=find):
            return tuple(part for position, part in enumerate(index) if position in find and isinstance(part, Bound))
        case Test():
            return ()


def _rank(literal: Literal, missing: Mapping[str, Bound], defaults: Defaults, rigid: frozenset[str]) -> tuple[int, int] | None:
    """How good a place to look the literal is (smaller is better), or None when it is none."""
    if literal.truth and _solved(literal.expr, missing) is not None:
        return (0, 0)
    support = _support(literal, missing, defaults)
    if support is None:
        return None
    step, _ = support
    known = len(step.index) - len(step.find) + (step.value is not None)
    return (2 if step.variable in rigid else 1, -known)


def _use(literal: Literal, missing: Mapping[str, Bound], defaults: Defaults) -> tuple[Step, bool]:
    """The step that looks where the literal says, and whether the literal is thereby true."""
    solved = _solved(literal.expr, missing) if literal.truth else None
    if solved is not None:
        return solved, True
    support = _support(literal, missing, defaults)
    assert support is not None
    return support


def _solved(expr: Expr, missing: Mapping[str, Bound]) -> Let | None:
    match expr:
        case Apply(operator=Operator.EQ, arguments=(left, right)):
            for one, other in ((left, right), (right, left)):
                if isinstance(one, Bound) and one.name in missing and not free_names(other) & missing.keys():
                    return Let(missing[one.name], other)
    return None


def _support(literal: Literal, missing: Mapping[str, Bound], defaults: Defaults) -> tuple[Support, bool] | None:
    """Where to look for a literal that is false wherever its variable has its default value."""
    match literal.expr:
        case Read(variable, index):
            if defaults[variable] is literal.truth:
                return None
            return _where(variable, index, None, missing, True)
        case Apply(operator=Operator.EQ, arguments=(left, right)) if literal.truth:
            for one, other in ((left, right), (right, left)):
                place = _strip(one)
                if isinstance(place, Read) and not free_names(other) & missing.keys() and _never(other, defaults[place.variable]):
                    # The value of a relation needs no index of its own: it has one value that is not the default.
                    found = _where(place.variable, place.index, None if isinstance(place.type, Bool) else other, missing, True)
                    if found is not None:
                        return found
    return _by_default(literal, missing, defaults)


def _by_default(literal: Literal, missing: Mapping[str, Bound], defaults: Defaults) -> tuple[Support, bool] | None:
    """A comparison of one read with constants, false at the default: look at what differs, and test."""
    if not isinstance(literal.expr, Apply) or literal.expr.operator not in COMPARE:
        return None
    parts = [_strip(part) for part in literal.expr.arguments]
    reads = [part for part in parts if isinstance(part, Read)]
    if len(reads) != 1 or not all(isinstance(part, Read | Const) for part in parts):
        return None
    default = defaults[reads[0].variable]
    values = [part.value if isinstance(part, Const) else default for part in parts]
    if COMPARE[literal.expr.operator](values) is literal.truth:
        return None
    return _where(reads[0].variable, reads[0].index, None, missing, False)


def _where(
    variable: str, index: tuple[Expr, ...], value: Expr | None, missing: Mapping[str, Bound], used: bool
) -> tuple[Support, bool] | None:
    find = []
    names = []
    for position, part in enumerate(index):
        if isinstance(part, Bound) and part.name in missing:
            find.append(position)
            names.append(part.name)
        elif free_names(part) & missing.keys():
            return None
    if not find or len(set(names)) != len(names):
        return None
    return Support(variable, index, tuple(find), value), used


def _never(expr: Expr, default: Value) -> bool:
    """Whether the value of `expr` is certainly not `default`."""
    if isinstance(expr, Const):
        return expr.value != default
    return default is None and isinstance(expr.type, Element)


def _strip(expr: Expr) -> Expr:
    while isinstance(expr, Named) or (isinstance(expr, Apply) and expr.operator is Operator.THE):
        expr = expr.body if isinstance(expr, Named) else expr.arguments[0]
    return expr


def _ordered(compare: Callable[[int, int], bool]) -> Callable[[list[Value]], bool]:
    def apply(values: list[Value]) -> bool:
        left, right = values
        return isinstance(left, int) and isinstance(right, int) and compare(left, right)

    return apply


COMPARE: Mapping[Operator, Callable[[list[Value]], bool]] = {
    Operator.EQ: lambda values: values[0] == values[1],
    Operator.LT: _ordered(lambda left, right: left < right),
    Operator.LE: _ordered(lambda left, right: left <= right),
    Operator.IS_NONE: lambda values: values[0] is None,
}
