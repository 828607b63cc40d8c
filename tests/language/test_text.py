"""The readable text of expressions and systems, and how two systems differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvmodel.language.build import (
    Builder,
    add,
    all_,
    and_,
    any_,
    at_most,
    constant,
    count,
    eq,
    if_,
    implies,
    is_none,
    less,
    member,
    none,
    not_,
    or_,
    the,
    var,
)
from kvmodel.language.expressions import Expr, Named
from kvmodel.language.text import difference, expression, expression_lines, items, system_text, update
from kvmodel.language.types import Enumeration, Maybe, Sort
from tests import lending

REQUEST, PAGE = Sort("Request"), Sort("Page")
PHASE = Enumeration("Phase", ("OPEN", "SHUT"))
B = Builder("text")
HOLDS, CONTENT = B.relation("holds", REQUEST, PAGE), B.function("content", PAGE, to=Maybe(REQUEST))
PHASE_OF, ON, COUNT = B.function("phase", REQUEST, to=PHASE), B.relation("on"), B.counter("refs", PAGE, high=3)
R, Q, P = var("r", REQUEST), var("q", REQUEST), var("p", PAGE)
FLAG = B.flag("zeroes", True)

SPELLINGS: list[tuple[Expr, str]] = [
    (ON(), "on"),
    (HOLDS(R, P), "holds[r, p]"),
    (FLAG, "zeroes"),
    (constant(True), "True"),
    (none(REQUEST), "None"),
    (member(PHASE, "OPEN"), "Phase.OPEN"),
    (not_(ON()), "not on"),
    (not_(and_(ON(), FLAG)), "not (on and zeroes)"),
    (and_(), "True"),
    (or_(), "False"),
    (and_(ON(), or_(FLAG, ON())), "on and (zeroes or on)"),
    (or_(ON(), and_(FLAG, ON())), "on or (zeroes and on)"),
    (or_(ON(), not_(FLAG)), "on or not zeroes"),
    (eq(R, Q), "r == q"),
    (not_(eq(R, Q)), "r != q"),
    (eq(and_(ON(), FLAG), ON()), "(on and zeroes) == on"),
    (eq(eq(R, Q), ON()), "(r == q) == on"),
    (not_(eq(PHASE_OF(R), member(PHASE, "SHUT"))), "phase[r] != Phase.SHUT"),
    (is_none(CONTENT(P)), "content[p] is None"),
    (not_(is_none(CONTENT(P))), "content[p] is not None"),
    (or_(is_none(CONTENT(P)), eq(CONTENT(P), R)), "content[p] in (None, r)"),
    (not_(or_(eq(CONTENT(P), R), eq(CONTENT(P), Q))), "content[p] not in (r, q)"),
    (or_(eq(CONTENT(P), R), eq(R, Q)), "content[p] == r or r == q"),
    (implies(ON(), or_(FLAG, ON())), "implies(on, zeroes or on)"),
    (less(COUNT(P), 3), "refs[p] < 3"),
    (not_(at_most(COUNT(P), 3)), "not refs[p] <= 3"),
    (add(COUNT(P), 1), "refs[p] + 1"),
    (add(COUNT(P), -1), "refs[p] - 1"),
    (add(COUNT(P), if_(ON(), 1, 0)), "refs[p] + (1 if on else 0)"),
    (eq(add(COUNT(P), 1), 2), "refs[p] + 1 == 2"),
    (if_(ON(), 1, if_(FLAG, 2, 3)), "1 if on else 2 if zeroes else 3"),
    (HOLDS(the(CONTENT(P)), P), "holds[content[p], p]"),
    (all_([R, P], implies(HOLDS(R, P), ON())), "all(implies(holds[r, p], on) for r in Request for p in Page)"),
    (not_(any_([R], HOLDS(R, P))), "not any(holds[r, p] for r in Request)"),
    (less(count([R], HOLDS(R, P)), 2), "count(holds[r, p] for r in Request) < 2"),
    (Named("idle", (P,), not_(any_([R], HOLDS(R, P)))), "idle(p)"),
]


@pytest.mark.parametrize(("expr", "text"), SPELLINGS, ids=[text for _, text in SPELLINGS])
def test_expressions_are_spelled_as_a_spec_writes_them(expr: Expr, text: str) -> None:
    assert expression(expr) == text


@pytest.mark.parametrize("text", [text for _, text in SPELLINGS])
def test_every_spelling_is_python(text: str) -> None:
    compile(text, "spelling", "eval")


def test_long_expressions_break_at_their_operators() -> None:
    held = all_([R], implies(HOLDS(R, P), or_(ON(), and_(FLAG, not_(ON())))))
    assert expression_lines(and_(held, or_(ON(), FLAG)), 50) == [
        "all(",
        "        implies(",
        "            holds[r, p],",
        "            on or (zeroes and not on)",
        "        )",
        "        for r in Request",
        "    )",
        "and (on or zeroes)",
    ]
    assert expression_lines(ON(), 1) == ["on"]


def test_updates_are_slices_where_a_loop_only_fills_an_index() -> None:
    assert update(HOLDS.set(False, R, P, over=[P])) == "holds[r, :] = False"
    assert update(HOLDS.set(False, R, P)) == "holds[r, p] = False"
    assert update(CONTENT.set(R, P, over=[P], condition=HOLDS(R, P))) == "for p in Page: if holds[r, p]: content[p] = r"


EXPECTED = '''\
spec tests/data/lending.py:Lending
    # Requests borrow pages and give them back.

sort Page
    # A fixed-size piece of a pool.
sort Request
    # One request of one client.

enum Pool: NEAR, FAR
    # Where a page is.
enum Phase: WAITING, RUNNING, DONE
    # What became of a request.

flag zero_on_free = True  (defence)
    # A page is zeroed when it is given back.
flag lends_far = False  (hazard)
    # Pages of the far pool are lent too.

partition pool: Function[Page, Pool]
rigid limit: Scalar
    # The most that one request may need.
rigid need: Number[Request]
    # What the request needs.
var phase: Function[Request, Phase] = Phase.WAITING
var holds: Relation[Request, Page] = False
var content: Function[Page, Request | None] = None
    # Whose data is in the page.
var loans: Counter[Request] 0..2 = 0
var busy: Single[bool] = False

assume needs_something(r: Request):
    # No request needs nothing.
    1 <= need[r]

define idle(p: Page):
    # Nobody holds the page.
    not any(holds[q, p] for q in Request)

action admit(r: Request):  on door
    # The door lets in what fits.
    require(phase[r] == Phase.WAITING, "waiting")
    require(need[r] <= limit, "fits")
    phase[r] = Phase.RUNNING
    busy = True

action borrow(r: Request, p: Page):
    # A running request gets an idle page.
    require(phase[r] == Phase.RUNNING, "running")
    require(idle(p) and (lends_far or pool[p] == Pool.NEAR), "lendable")
    holds[r, p] = True
    loans[r] = loans[r] + 1

action fill(r: Request, p: Page):
    # The request's data is written into a page that it holds.
    require(holds[r, p], "held")
    content[p] = r

action finish(r: Request):
    # The request ends and gives its pages back.
    require(phase[r] == Phase.RUNNING, "running")
    require(any(holds[r, p] for p in Page), "served")
    assert any(holds[r, p] for p in Page), "holds something"
    phase[r] = Phase.DONE
    for p in Page: if zero_on_free and holds[r, p]: content[p] = None
    holds[r, :] = False

invariant isolated_read(r: Request, p: Page):
    # A page that a request holds is blank or has the request's own data in it.
    implies(holds[r, p], content[p] in (None, r))

reachable served(r: Request):
    # A request can end.
    phase[r] == Phase.DONE

final over(r: Request):
    # Every request has ended or does not fit.
    phase[r] == Phase.DONE or limit < need[r]
'''


def test_the_text_of_a_system() -> None:
    assert system_text(lending.system()) == EXPECTED


def test_without_documentation_only_the_meaning_is_left() -> None:
    system = lending.system()
    bare = system_text(system, docs=False)
    assert "#" not in bare
    assert bare == system_text(replace(system, doc="other words"), docs=False)


def test_a_guard_over_several_lines_keeps_its_name() -> None:
    b = Builder("long")
    places = [b.relation(f"a_relation_with_a_long_name_{number}") for number in range(5)]
    b.action("wait", guards={"all of them": and_(*(place() for place in places))})
    (lines,) = [item.lines for item in items(b.build()) if item.kind == "action"]
    assert lines == (
        "action wait():",
        "    require(",
        "        a_relation_with_a_long_name_0",
        "        and a_relation_with_a_long_name_1",
        "        and a_relation_with_a_long_name_2",
        "        and a_relation_with_a_long_name_3",
        '        and a_relation_with_a_long_name_4, "all of them")',
    )


def test_equal_systems_do_not_differ() -> None:
    assert difference(lending.system(), lending.system()) == ()


def test_a_variant_differs_in_its_flag() -> None:
    (change,) = difference(lending.system(), lending.system("careless"))
    assert (change.kind, change.name) == ("flag", "zero_on_free")
    assert change.lines == ("- flag zero_on_free = True  (defence)", "+ flag zero_on_free = False  (defence, default True)")


def test_a_dropped_guard_is_shown_in_its_action() -> None:
    (change,) = difference(lending.system(), lending.system("eager"))
    assert change.lines == (
        "  action finish(r: Request):",
        '-     require(any(holds[r, p] for p in Page), "served")',
    )


def test_what_only_one_system_has_is_shown_whole() -> None:
    one, two = Builder("one"), Builder("two")
    for b in (one, two):
        b.relation("on")
    two.invariant("calm", constant(True))
    (change,) = difference(one.build(), two.build())
    assert change.lines == ("+ invariant calm():", "+     True")


def test_differences_come_in_the_order_of_the_text() -> None:
    one, two = Builder("one"), Builder("two")
    for b in (one, two):
        on = b.relation("on")
        b.action("switch", guards={"off": not_(on())} if b is one else {}, updates=[on.set(True)])
    two.relation("off")
    assert [change.name for change in difference(one.build(), two.build())] == ["off", "switch"]
