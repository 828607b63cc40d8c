"""Plans look where something is stored, and go through a whole sort only where nothing else is left."""

from __future__ import annotations

from kvmodel.language.build import Builder, and_, any_, eq, implies, is_none, less, member, not_, or_, var
from kvmodel.language.expressions import Bound, Expr
from kvmodel.language.types import Maybe
from kvmodel.readings.search import Let, Plan, Scan, Support, Test, literals, plans, scans

B = Builder("search")
PAGE, REQUEST = B.sort("Page"), B.sort("Request")
PHASE = B.enumeration("Phase", "NEW", "OLD")
FREE = B.relation("free", PAGE, initial=True)
HOLDS = B.relation("holds", REQUEST, PAGE)
CONTENT = B.function("content", PAGE, to=Maybe(REQUEST))
AT = B.function("at", REQUEST, to=PHASE)
USES = B.counter("uses", PAGE, high=3)
PART = B.function("part", PAGE, to=PHASE, rigid=True)
DEFAULTS = {"free": True, "holds": False, "content": None, "at": "NEW", "uses": 0, "part": "NEW"}
P, Q, R = var("p", PAGE), var("q", PAGE), var("r", REQUEST)
OLD = member(PHASE, "OLD")


def found(condition: Expr, *variables: Bound, truth: bool = True) -> tuple[Plan, ...]:
    return plans(variables, literals(condition, truth), DEFAULTS, frozenset({"part"}))


def shape(plan: Plan) -> list[str]:
    """A plan as words: ``scan p``, ``holds[r, ?]``, ``let r``, ``test``."""
    words = []
    for step in plan:
        match step:
            case Scan(variable):
                words.append(f"scan {variable.name}")
            case Let(variable):
                words.append(f"let {variable.name}")
            case Support(variable=name, find=find, index=index, value=value):
                keys = ", ".join("?" if position in find else "known" for position in range(len(index)))
                words.append(f"{name}[{keys}]" + (" = known" if value is not None else ""))
            case Test():
                words.append("test")
    return words


def test_a_positive_literal_is_a_place_to_look() -> None:
    assert [shape(plan) for plan in found(and_(FREE(P), HOLDS(R, P)), P)] == [["holds[known, ?]", "test"]]
    assert [shape(plan) for plan in found(and_(FREE(P), HOLDS(R, P)), P, R)] == [["holds[?, ?]", "test"]]
    assert [shape(plan) for plan in found(not_(FREE(P)), P)] == [["free[?]"]]
    assert [shape(plan) for plan in found(FREE(P), P)] == [["scan p", "test"]]


def test_values_are_places_to_look_unless_they_are_the_default() -> None:
    assert [shape(plan) for plan in found(eq(CONTENT(P), R), P)] == [["content[?] = known"]]
    assert [shape(plan) for plan in found(eq(CONTENT(P), R), R)] == [["let r"]]
    assert [shape(plan) for plan in found(eq(CONTENT(P), R), P, R)] == [["scan p", "let r"]]
    assert [shape(plan) for plan in found(not_(is_none(CONTENT(P))), P)] == [["content[?]", "test"]]
    assert [shape(plan) for plan in found(is_none(CONTENT(P)), P)] == [["scan p", "test"]]
    assert [shape(plan) for plan in found(eq(AT(R), OLD), R)] == [["at[?] = known"]]
    assert [shape(plan) for plan in found(eq(AT(R), member(PHASE, "NEW")), R)] == [["scan r", "test"]]
    assert [shape(plan) for plan in found(eq(AT(R), member(PHASE, "NEW")), R, truth=False)] == [["at[?]", "test"]]
    assert [shape(plan) for plan in found(less(0, USES(P)), P)] == [["uses[?]", "test"]]
    assert [shape(plan) for plan in found(less(USES(P), 2), P)] == [["scan p", "test"]]


def test_what_is_known_first_is_looked_at_first_and_tests_come_as_early_as_they_can() -> None:
    condition = and_(HOLDS(R, P), eq(CONTENT(Q), R), less(0, USES(P)))
    assert [shape(plan) for plan in found(condition, P, Q, R)] == [["holds[?, ?]", "test", "content[?] = known"]]
    assert [shape(plan) for plan in found(and_(eq(PART(P), OLD), HOLDS(R, P)), P, R)] == [["holds[?, ?]", "test"]]
    assert [shape(plan) for plan in found(eq(PART(P), OLD), P)] == [["part[?] = known"]]


def test_negations_and_implications_are_seen_through() -> None:
    premise = and_(HOLDS(R, P), not_(or_(FREE(P), is_none(CONTENT(P)))))
    assert [shape(plan) for plan in found(implies(premise, FREE(Q)), R, P, truth=False)] == [["test", "holds[?, ?]", "test", "test"]]


def test_a_disjunction_is_split_only_where_that_saves_a_scan() -> None:
    either = or_(HOLDS(R, P), eq(CONTENT(P), R))
    assert [shape(plan) for plan in found(either, P)] == [["holds[known, ?]"], ["content[?] = known"]]
    assert [shape(plan) for plan in found(and_(HOLDS(R, P), or_(FREE(P), less(0, USES(P)))), P)] == [["holds[known, ?]", "test"]]
    assert [shape(plan) for plan in found(or_(FREE(P), HOLDS(R, P)), P)] == [["scan p", "test"]]
    assert [scans(plan) for plan in found(either, P)] == [0, 0]


def test_a_variable_used_twice_is_not_looked_up_as_two() -> None:
    near = Builder("near")
    thing = near.sort("Thing")
    relation = near.relation("near", thing, thing)
    x, y = var("x", thing), var("y", thing)
    condition = literals(and_(relation(x, x), any_([y], relation(x, y))), True)
    assert [shape(plan) for plan in plans((x,), condition, {"near": False})] == [["scan x", "test", "test"]]
