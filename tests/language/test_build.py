"""The builder API: what it makes, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvmodel.errors import MalformedSystem
from kvmodel.language.build import (
    ANYTHING,
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
from kvmodel.language.expressions import Expr
from kvmodel.language.load import load_spec
from kvmodel.language.system import FlagKind, PropertyKind
from kvmodel.language.text import expression, system_text
from kvmodel.language.typed import TypingError
from kvmodel.language.types import BOOL, COUNT, NUMBER, Element, Enumeration, Maybe, Sort

PAGE, REQUEST, PHASE = Sort("Page"), Sort("Request"), Enumeration("Phase", ("NEW", "OLD"))
P, Q, R = var("p", PAGE), var("q", PAGE), var("r", REQUEST)
B = Builder("x")
FREE, OWNER, PHASE_OF = B.relation("free", PAGE), B.function("owner", PAGE, to=Maybe(REQUEST)), B.function("phase", REQUEST, to=PHASE)
REFS, SIZE, LIMIT = B.counter("refs", PAGE, high=3), B.number("size", REQUEST), B.number("limit")


def test_a_system_that_is_built_is_the_one_that_is_read(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "light.py").write_text("""\
from kvmodel.language import Flag, Relation, Single, Sort, Spec, action, flag, initial, invariant, reachable, final, require, anything

class Lamp(Sort): ...

class Light(Spec):
    locked: Flag = flag(False, kind="hazard", doc="")
    on: Relation[Lamp] = anything()
    last: Single[Lamp | None]

    @initial
    def dark(s, p: Lamp) -> bool:
        return not s.on[p]

    @action
    def switch(s, p: Lamp) -> None:
        require(not s.on[p] and not s.locked, "off")
        assert s.last != p, "another one"
        s.on[:] = False
        s.last = p

    @invariant
    def one(s, p: Lamp, q: Lamp) -> bool:
        return not (s.on[p] and s.on[q])

    @reachable
    def any_on(s) -> bool:
        return any(s.on[p] for p in Lamp)

    @final
    def all_on(s, p: Lamp) -> bool:
        return s.on[p]
""")
    b = Builder("light.py:Light")
    lamp = b.sort("Lamp")
    p, q, slice_ = var("p", lamp), var("q", lamp), var("_lamp0", lamp)
    locked = b.flag("locked", False, FlagKind.HAZARD)
    on = b.relation("on", lamp, initial=ANYTHING)
    last = b.function("last", to=Maybe(lamp))
    b.initially("dark", not_(on(p)), p)
    b.action(
        "switch", p, guards={"off": and_(not_(on(p)), not_(locked))}, asserts={"another one": not_(eq(last(), p))},
        updates=[on.set(False, slice_, over=[slice_]), last.set(p)],
    )  # fmt: skip
    b.invariant("one", not_(and_(on(p), on(q))), p, q)
    b.reachable("any_on", any_([p], on(p)))
    b.final("all_on", on(p), p)
    built, read = b.build(), load_spec("light.py:Light")
    assert built == read
    assert hash(built.actions) == hash(read.actions)
    assert system_text(built, docs=False) == system_text(read, docs=False)
    assert [(p.name, p.kind) for p in built.properties] == [
        ("one", PropertyKind.INVARIANT),
        ("any_on", PropertyKind.REACHABLE),
        ("assert:switch:another one", PropertyKind.ASSERTION),
        ("no_deadlock", PropertyKind.NO_DEADLOCK),
    ]


def test_every_operator_has_its_type() -> None:
    typed: list[tuple[Expr, object]] = [
        (not_(FREE(P)), BOOL),
        (and_(), BOOL),
        (or_(FREE(P), True), BOOL),
        (implies(FREE(P), False), BOOL),
        (eq(OWNER(P), R), BOOL),
        (eq(REFS(P), 2), BOOL),
        (eq(FREE(P), FREE(Q)), BOOL),
        (less(SIZE(R), LIMIT()), BOOL),
        (at_most(REFS(P), count([Q], FREE(Q))), BOOL),
        (add(REFS(P), REFS(Q), 1), COUNT),
        (add(SIZE(R), -1), NUMBER),
        (if_(FREE(P), R, OWNER(P)), Maybe(REQUEST)),
        (if_(FREE(P), REFS(P), 1), COUNT),
        (if_(FREE(P), none(REQUEST), R), Maybe(REQUEST)),
        (is_none(OWNER(P)), BOOL),
        (the(OWNER(P)), Element(REQUEST)),
        (all_([P, Q], eq(P, Q)), BOOL),
        (constant(3), COUNT),
        (constant(True), BOOL),
        (member(PHASE, "OLD"), Element(PHASE)),
    ]
    for expr, kind in typed:
        assert expr.type == kind, expression(expr)


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "member": (lambda: member(PHASE, "LATE"), "Phase has no member 'LATE'"),
    "not": (lambda: not_(REFS(P)), "'not' needs truth values, not a counter 0..3"),
    "and": (lambda: and_(FREE(P), OWNER(P)), "'and' needs truth values, not a Request | None"),
    "implies": (lambda: implies(True, P), "'implies' needs truth values, not a Page"),
    "equal": (lambda: eq(P, R), "a Page is never equal to a Request"),
    "equal to a constant": (lambda: eq(FREE(P), 1), "a truth value is never equal to a count"),
    "less": (lambda: less(P, Q), "'<' compares a Page with a Page"),
    "at most": (lambda: at_most(REFS(P), LIMIT()), "'<=' compares a counter 0..3 with a number"),
    "sum of numbers": (lambda: add(SIZE(R), LIMIT()), "a number and a number cannot be added"),
    "sum of two constants and a number": (lambda: add(SIZE(R), 1, 2), "a number and a count and a count cannot be added"),
    "branches": (lambda: if_(True, P, R), "the two branches are a Page and a Request"),
    "condition": (lambda: if_(P, True, False), "the condition is a Page, not a truth value"),
    "is none": (lambda: is_none(FREE(P)), "a truth value is never None"),
    "the": (lambda: the(P), "a Page is never None"),
    "all": (lambda: all_([P], OWNER(P)), "'all' is over truth values, not a Request | None"),
    "count": (lambda: count([P], P), "'count' is over truth values, not a Page"),
    "too many keys": (lambda: FREE(P, Q), "'free' takes 1 key (Page), not 2"),
    "no keys": (lambda: FREE(), "'free' takes 1 key (Page), not 0"),
    "key of another sort": (lambda: FREE(R), "'free' is indexed by a Page, not a Request"),
    "key that may be none": (lambda: SIZE(OWNER(P)), "the Request that indexes 'size' may be None"),
    "value of another kind": (lambda: FREE.set(3, P), "'free' holds a truth value, not a count"),
    "value that may be none": (lambda: PHASE_OF.set(none(REQUEST), R), "'phase' holds a Phase, not a Request | None"),
    "written key": (lambda: FREE.set(True, R), "'free' is indexed by a Page, not a Request"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_expression_that_does_not_type(name: str) -> None:
    make, message = WRONG[name]
    with pytest.raises((TypingError, MalformedSystem)) as caught:
        make()
    assert str(caught.value).splitlines()[0] == message


def test_two_things_of_one_name() -> None:
    b = Builder("double")
    page = b.sort("Page")
    b.relation("free", page)
    b.action("free", updates=[])
    with pytest.raises(MalformedSystem, match="double: two things are called free"):
        b.build()


def test_a_condition_that_is_no_truth_value() -> None:
    b = Builder("bad")
    page = b.sort("Page")
    p = var("p", page)
    on = b.relation("on", page)
    b.action("go", p, updates=[on.set(True, p)])
    b.invariant("rule", p, p)
    with pytest.raises(MalformedSystem, match="bad: rule: the condition is a Page, not a truth value"):
        b.build()


def test_a_name_that_nothing_binds_or_a_sort_that_is_not_declared() -> None:
    b = Builder("bad")
    page = b.sort("Page")
    on = b.relation("on", page)
    b.action("go", updates=[on.set(True, var("p", page))])
    with pytest.raises(MalformedSystem, match="bad: go: 'p' is neither a parameter nor a loop variable"):
        b.build()
    b = Builder("bad")
    on = b.relation("on", Sort("Page"))
    b.action("go", P, updates=[on.set(True, P)])
    with pytest.raises(MalformedSystem, match="bad: on: 'Page' is not declared|bad: go: 'Page' is not declared"):
        b.build()


def test_an_initial_value_of_another_kind() -> None:
    b = Builder("bad")
    page = b.sort("Page")
    b.counter("refs", page, high=3, initial=4)
    with pytest.raises(MalformedSystem, match="bad: 'refs' starts at 4, which is not a counter 0..3"):
        b.build()
