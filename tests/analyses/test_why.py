"""Why a condition is false: the sub-expression, the values it read, and how it was reached."""

from __future__ import annotations

import pytest

from kvmodel.analyses.why import Reason, element, reasons, violation, why_not
from kvmodel.errors import UsageError
from kvmodel.language.build import (
    ANYTHING,
    Builder,
    Operand,
    all_,
    and_,
    any_,
    count,
    eq,
    if_,
    implies,
    is_none,
    less,
    none,
    not_,
    or_,
    the,
    var,
)
from kvmodel.language.expressions import Expr, Named
from kvmodel.language.instance import Instance, State
from kvmodel.language.types import Maybe
from kvmodel.readings.run import Interpreter
from tests import lending

B = Builder("why")
REQUEST = B.sort("Request")
HELD, ON = B.relation("held", REQUEST, initial=ANYTHING), B.relation("on", initial=ANYTHING)
NEXT = B.function("next", REQUEST, to=Maybe(REQUEST), initial=ANYTHING)
FLAG = B.flag("careful", False)
R, Q = var("r", REQUEST), var("q", REQUEST)
B.action("step", guards={"flag": FLAG})
INSTANCE = Instance.make(B.build(), {"Request": 3})


def state(*, held: set[int], on: bool = False, following: dict[int, int] | None = None) -> State:
    values: list[bool | int | None] = [request in held for request in range(3)]
    values += [on, *((following or {}).get(request) for request in range(3))]
    return State((), tuple(values))


def why(condition: Operand, at: State, *, wanted: bool = True, **given: int) -> list[tuple[str, tuple[str, ...]]]:
    assert not isinstance(condition, bool | int)
    found = reasons(Interpreter(INSTANCE), condition, at, given, wanted=wanted)
    return [(f"{reason.text} is {reason.value}", reason.inside) for reason in found]


def test_a_condition_that_is_as_wanted_needs_no_reason() -> None:
    assert why(ON(), state(held=set(), on=True)) == []
    assert why(ON(), state(held=set()), wanted=False) == []


def test_each_false_part_of_a_conjunction_is_named() -> None:
    assert why(and_(ON(), HELD(R), FLAG), state(held={0}), r=0) == [("on is no", ()), ("careful is no", ())]


def test_every_part_of_a_false_disjunction_is_named() -> None:
    assert why(or_(ON(), HELD(R)), state(held=set()), r=0) == [("on is no", ()), ("held[r] is no", ())]


def test_a_true_disjunction_under_not_is_blamed_on_its_true_part() -> None:
    assert why(not_(or_(ON(), HELD(R))), state(held={0}), r=0) == [("held[r] is yes", ())]


def test_a_true_conjunction_under_not_is_blamed_on_all_of_it() -> None:
    assert why(not_(and_(ON(), HELD(R))), state(held={0}, on=True), r=0) == [("on is yes", ()), ("held[r] is yes", ())]


def test_an_implication_is_blamed_on_its_conclusion_and_tells_its_premise() -> None:
    assert why(implies(ON(), HELD(R)), state(held=set(), on=True), r=1) == [("held[r] is no", ("on is true",))]


def test_a_true_implication_under_not() -> None:
    assert why(not_(implies(ON(), HELD(R))), state(held=set()), r=1) == [("on is no", ())]
    assert why(not_(implies(ON(), HELD(R))), state(held={1}, on=True), r=1) == [("held[r] is yes", ())]


def test_a_choice_is_blamed_on_the_branch_that_was_taken() -> None:
    assert why(if_(ON(), HELD(R), FLAG), state(held=set(), on=True), r=0) == [("held[r] is no", ("on is true",))]
    assert why(if_(ON(), HELD(R), FLAG), state(held={0}), r=0) == [("careful is no", ("on is false",))]


def test_all_names_the_first_element_that_fails() -> None:
    assert why(all_([R], HELD(R)), state(held={0})) == [("held[r] is no", ("r = r1",))]


def test_any_under_not_names_the_element_that_is() -> None:
    assert why(not_(any_([R], HELD(R))), state(held={2})) == [("held[r] is yes", ("r = r2",))]


def test_any_names_the_elements_that_come_closest() -> None:
    condition = any_([R], and_(HELD(R), ON()))
    assert why(condition, state(held={1})) == [("on is no", (f"{spelled(condition)} is false", "r = r1"))]
    assert [inside[-1] for _, inside in why(condition, state(held=set()))] == ["r = r0", "r = r0", "r = r1", "r = r1", "r = r2", "r = r2"]


def test_definitions_are_looked_into() -> None:
    inner = Named("free", (R,), not_(HELD(R)))
    assert why(and_(ON(), inner), state(held={1}, on=True), r=1) == [("not held[r] is no", ("free(r1)",))]
    nested = Named("all_free", (), all_([Q], Named("free", (Q,), not_(HELD(Q)))))
    assert why(nested, state(held={1})) == [("not held[q] is no", ("all_free()", "q = r1", "free(r1)"))]


def test_a_comparison_is_told_with_what_it_read() -> None:
    following = NEXT(R)
    condition = or_(is_none(following), eq(following, Q))
    (reason,) = reasons(Interpreter(INSTANCE), condition, state(held=set(), following={0: 2}), {"r": 0, "q": 1})
    assert reason == Reason("next[r] in (None, q)", "no", (("next[r0]", "r2"), ("q", "r1")))


def test_what_is_behind_a_failed_test_is_not_read() -> None:
    # `the(next[r])` has no value here; the explanation must not ask for it.
    following = NEXT(R)
    condition = and_(not_(is_none(following)), HELD(the(following)), ON())
    assert why(condition, state(held=set()), r=0) == [("next[r] is not None is no", ()), ("on is no", ())]
    assert why(or_(is_none(following), HELD(the(following))), state(held=set()), wanted=False, r=0) == [("next[r] is None is yes", ())]


def test_a_count_is_told_with_its_number() -> None:
    (reason,) = reasons(Interpreter(INSTANCE), less(count([R], HELD(R)), 2), state(held={0, 1, 2}), {})
    assert reason.reads == (("count(held[r] for r in Request)", "3"),)


def spelled(condition: Expr) -> str:
    from kvmodel.language.text import expression

    return expression(condition)


def test_none_is_a_value() -> None:
    assert why(eq(NEXT(R), none(REQUEST)), state(held=set(), following={0: 1}), r=0) == [("next[r] == None is no", ())]


def test_a_guard_that_needs_an_earlier_one_is_left_out() -> None:
    b = Builder("chain")
    request = b.sort("Request")
    following, held, r = b.function("next", request, to=Maybe(request)), b.relation("held", request), var("r", request)
    b.action("go", r, guards={"there": not_(is_none(following(r))), "held": held(the(following(r))), "self": held(r)})
    instance = Instance.make(b.build())
    from kvmodel.readings.initial import initial_states
    from kvmodel.traces.trace import Trace

    trace = Trace(instance, (next(initial_states(instance)),), ())
    first = why_not(trace, 0, "go", {"r": 0})[0]
    assert [(guard.name, guard.holds) for guard in first.guards] == [("there", False), ("self", False)]
    assert not first.enabled


def test_bindings_come_nearest_first() -> None:
    found = why_not(lending.trace(), 2, "borrow")
    assert [report.binding for report in found][:2] == [(0, 1), (0, 0)]
    assert found[0].enabled
    assert len(found) == 8


def test_after_a_counter_left_its_range_nothing_is_enabled() -> None:
    trace = lending.trace("greedy", "range:loans")
    report = why_not(trace, 4, "finish", {"r": 1})[0]
    assert not report.enabled
    assert all(guard.holds for guard in report.guards)
    assert report.ended == "the run ended when a counter left its range (range:loans)"


@pytest.mark.parametrize(
    ("step", "action", "arguments", "message"),
    [
        (9, "admit", {}, "the trace has steps 0 to 6, no step 9"),
        (-1, "admit", {}, "the trace has steps 0 to 6, no step -1"),
        (0, "admitt", {}, "tests/data/lending.py:Lending:careless has no action 'admitt'; did you mean 'admit'?"),
        (0, "borrow", {"page": 1}, "borrow has no parameter 'page' (it takes r, p)"),
        (0, "borrow", {"p": 9}, "9 is not a Page of this size"),
    ],
)
def test_wrong_questions(step: int, action: str, arguments: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        why_not(lending.trace(), step, action, arguments)
    assert str(caught.value) == message


def test_elements_are_found_by_label() -> None:
    instance = lending.trace().instance
    page = instance.system.domain("Page")
    assert [element(instance, page, label) for label in ("near.p0", "far.p1")] == [0, 3]
    with pytest.raises(UsageError, match=r"'near.p7' is not a Page of this size; did you mean 'near.p\d'\? \(known: near.p0, "):
        element(instance, page, "near.p7")


def test_a_violation_has_its_arguments_and_its_conjunct() -> None:
    shown = violation(lending.trace())
    assert shown.arguments == (("r", "r1"), ("p", "near.p0"))
    assert [reason.text for reason in shown.reasons] == ["content[p] in (None, r)"]
    assert shown.reasons[0].at.line == 118


def test_a_trace_of_nothing_has_no_violation() -> None:
    from dataclasses import replace

    with pytest.raises(UsageError, match="shows no property"):
        violation(replace(lending.trace(), property=""))
    with pytest.raises(UsageError, match="does not show 'isolated_read'"):
        violation(replace(lending.trace(), states=lending.trace().states[:-1]))
