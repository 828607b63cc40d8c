"""Where conditions lie: in the effectively propositional fragment, or outside of it and why."""

from __future__ import annotations

import time

import pytest

from kvmodel.language.build import Builder, all_, and_, any_, at_most, constant, count, eq, if_, implies, not_, or_, var
from kvmodel.language.expressions import Expr
from kvmodel.language.load import load_spec
from kvmodel.language.system import TransitionSystem
from kvmodel.language.types import Sort
from kvmodel.readings.conditions import OBVIOUSLY, Induction, VerificationCondition
from kvmodel.readings.fragment import Fragment, fragment
from kvmodel.views.console import draw
from kvmodel.views.fragment import fragments

PAGE, REQUEST = Sort("Page"), Sort("Request")
p, q = var("p", PAGE), var("q", PAGE)
r = var("r", REQUEST)


def builder() -> Builder:
    b = Builder("built")
    b.sort("Page")
    b.sort("Request")
    return b


def of(system: TransitionSystem, *hypotheses: Expr, goal: Expr | None = None) -> Fragment:
    """Where a condition with these hypotheses lies."""
    named = tuple((f"h{number}", part) for number, part in enumerate(hypotheses))
    return fragment(system, VerificationCondition(OBVIOUSLY, "goal", (), (), named, (), goal or constant(False)))


def test_functions_in_both_directions_are_a_cycle_with_their_names() -> None:
    b = builder()
    owner, first = b.function("owner", PAGE, to=REQUEST), b.function("first", REQUEST, to=PAGE)
    system = b.build()
    one_way = of(system, all_([p, q], implies(eq(owner(p), owner(q)), eq(p, q))))
    assert one_way.decidable
    assert not one_way.arithmetic
    assert [(e.source, e.target, e.function) for e in one_way.edges] == [("Page", "Request", "owner")]
    both = of(system, all_([p], eq(first(owner(p)), p)))
    assert not both.decidable
    assert {(e.source, e.target, e.function) for e in both.cycle} == {("Page", "Request", "owner"), ("Request", "Page", "first")}
    assert "make owner a relation" in both.advice
    assert "make first a relation" in both.advice


def test_only_variables_of_the_condition_count() -> None:
    b = builder()
    owner, first = b.function("owner", PAGE, to=REQUEST), b.function("first", REQUEST, to=PAGE)
    system = b.build()
    assert of(system, all_([p], eq(owner(p), owner(p)))).decidable
    assert of(system, all_([r], eq(first(r), first(r)))).decidable


def test_a_function_from_a_sort_to_itself_is_a_cycle() -> None:
    b = builder()
    following = b.function("following", PAGE, to=PAGE)
    found = of(b.build(), all_([p], not_(eq(following(p), p))))
    assert [(e.source, e.target) for e in found.cycle] == [("Page", "Page")]


def test_enumerations_and_numbers_make_no_edge() -> None:
    b = builder()
    pool = b.enumeration("Pool", "NEAR", "FAR")
    where, length, limit = b.function("where", PAGE, to=pool), b.number("length", REQUEST), b.number("limit")
    c = var("c", pool)
    system, here = b.build(), eq(where(p), c)
    found = of(system, all_([r], at_most(length(r), limit())), all_([p], any_([c], here)), all_([c], any_([p], here)))
    assert found.decidable
    assert found.arithmetic
    assert found.edges == ()
    assert str(found) == "in the fragment, beside linear arithmetic"


def test_polarity_decides_which_quantifiers_are_existential() -> None:
    b = builder()
    holds = b.relation("holds", REQUEST, PAGE)
    system = b.build()
    some_page = all_([r], any_([p], holds(r, p)))
    edge = [("Request", "Page")]
    assert [(e.source, e.target) for e in of(system, some_page).edges] == edge
    assert of(system, not_(some_page)).edges == ()  # some request for which every page ...
    assert of(system, goal=some_page).edges == ()
    assert [(e.source, e.target) for e in of(system, goal=not_(some_page)).edges] == edge
    assert [(e.source, e.target) for e in of(system, all_([r], implies(all_([p], holds(r, p)), False))).edges] == edge


def test_truth_values_that_are_compared_or_chosen_by_have_both_polarities() -> None:
    b = builder()
    holds, on = b.relation("holds", REQUEST, PAGE), b.relation("on")
    system = b.build()
    every = all_([p], holds(r, p))
    edge = [("Request", "Page")]
    for body in (eq(every, on()), if_(every, on(), not_(on())), not_(eq(on(), every))):
        assert [(e.source, e.target) for e in of(system, all_([r], body)).edges] == edge
    assert of(system, all_([r], or_(every, on()))).edges == ()


def test_an_existential_depends_on_what_it_mentions_alone() -> None:
    b = builder()
    holds, free = b.relation("holds", REQUEST, PAGE), b.relation("free", PAGE)
    system = b.build()
    assert of(system, all_([r], any_([p], free(p)))).edges == ()
    s = var("s", REQUEST)
    through = all_([r], any_([p], and_(holds(r, p), any_([s], holds(s, p)))))  # s by way of p
    assert ("Request", "Request") in {(e.source, e.target) for e in of(system, through).edges}


def test_a_count_has_no_meaning_at_any_size() -> None:
    b = builder()
    holds = b.relation("holds", REQUEST, PAGE)
    found = of(b.build(), all_([r], at_most(count([p], holds(r, p)), 1)))
    assert not found.decidable
    assert found.counts is not None
    assert "relation" in found.advice


def test_a_cycle_that_is_overlooked_would_be_noticed() -> None:
    """What the verdict promises: without a cycle, a model is as small as its terms. This one has no finite model at all, so that it
    must never be called decidable: an injective, not surjective map from pages to pages by way of requests."""
    b = builder()
    owner, first = b.function("owner", PAGE, to=REQUEST), b.function("first", REQUEST, to=PAGE)
    on = b.relation("on", PAGE)
    system = b.build()
    parts = (
        all_([p, q], implies(eq(first(owner(p)), first(owner(q))), eq(p, q))),
        all_([p], not_(on(first(owner(p))))),
        any_([p], on(p)),
    )
    assert not of(system, *parts).decidable
    relation = builder()
    maps, lit = relation.relation("maps", PAGE, PAGE), relation.relation("lit", PAGE)
    same = (
        all_([p], any_([q], maps(p, q))),
        all_([p, q, var("m", PAGE)], implies(and_(maps(p, var("m", PAGE)), maps(q, var("m", PAGE))), eq(p, q))),
        all_([p, q], implies(maps(p, q), not_(lit(q)))),
        any_([p], lit(p)),
    )
    found = of(relation.build(), *same)
    assert [(e.source, e.target) for e in found.cycle] == [("Page", "Page")]
    assert "h0" in found.advice


def test_handoff_is_in_the_fragment_but_for_lemmas_that_go_back() -> None:
    induction = Induction(load_spec("handoff"))
    whole = induction.condition("land", "isolated_read")
    found = fragment(induction.system, whole)
    assert {(e.source, e.target) for e in found.cycle} == {("Page", "Request"), ("Request", "Page")}
    back = ("computed_in_pages", "oversize_takes_two")
    assert all(name in found.advice for name in back)
    kept = [name for name, _ in whole.hypotheses if name not in back]
    assert fragment(induction.system, whole.under(kept)).decidable
    for name in back:
        assert fragment(induction.system, whole.under([*kept, name])).cycle
    edge = next(e for e in fragment(induction.system, whole.under([name])).cycle if not e.function)
    assert edge.part == "oversize_takes_two"
    assert edge.at.file.endswith("handoff.py")
    content = next(e for e in found.edges if e.function == "content")
    assert (content.source, content.target) == ("Page", "Request")
    assert content.at.file.endswith("pages.py")


def test_it_is_cheap() -> None:
    induction = Induction(load_spec("handoff"))
    conditions = [induction.condition(step, name) for name in ("isolated_read", "fresh_read") for step in induction.steps(name)]
    started = time.perf_counter()
    for condition in conditions:
        fragment(induction.system, condition)
    assert time.perf_counter() - started < 0.02 * len(conditions)  # measured: 0.3 ms each


@pytest.mark.parametrize("width", [60, 100])
def test_people_see_the_cycle_with_its_lines_and_what_to_change(width: int) -> None:
    induction = Induction(load_spec("handoff"))
    steps = induction.steps("isolated_write")
    entries = [(c.name, fragment(induction.system, c)) for c in (induction.condition(step, "isolated_write") for step in steps)]
    text = draw(fragments(entries), width=width)
    words = " ".join(text.split())
    assert f"1 of {len(steps)} conditions" in words  # the initial states: no hypothesis
    assert "Page -> Request" in words
    assert "to change" in words
    assert all(len(line) <= width for line in text.splitlines())
