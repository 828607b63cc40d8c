"""The table of operators for the agreement tests: for each, expressions over one small system and what they mean.

The meaning is plain Python, written here and nowhere else, so that the interpreter is held to it like every other
reading. A new operator needs a row; `test_operators` fails without one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

from kvmodel.language.build import (
    Builder,
    add,
    all_,
    and_,
    any_,
    at_most,
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
from kvmodel.language.instance import Instance, State
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.types import Maybe, Number, Value

__all__ = ["Board", "Row", "View"]


class View:
    """A state as Python values: ``v.a``, ``v.on[1]``."""

    def __init__(self, instance: Instance, state: State) -> None:
        self.things = range(dict(instance.sizes)["Thing"])
        for layout, values in ((instance.rigid_layout, state.rigid), (instance.state_layout, state.values)):
            for (name, index), value in zip(layout.places, values, strict=True):
                if index:
                    self.__dict__.setdefault(name, {})[index[0] if len(index) == 1 else index] = value
                else:
                    self.__dict__[name] = value

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


@dataclass(frozen=True)
class Row:
    """An expression in which an operator is at work, and what it means."""

    expr: Expr
    meaning: Callable[[View], Value]


class Board:
    """A system with a variable of every kind, and the rows over it."""

    def __init__(self) -> None:
        b = Builder("board")
        self.thing = thing = b.sort("Thing")
        self.mode = mode = b.enumeration("Mode", "IDLE", "BUSY", "BROKEN")
        a, c, d = (b.relation(name) for name in ("a", "c", "d"))
        on = b.relation("on", thing)
        near = b.relation("near", thing, thing)
        i, j = (b.counter(name, low=-1, high=3) for name in ("i", "j"))
        size = b.counter("size", thing, high=2)
        first, second = (b.function(name, to=thing, initial=0) for name in ("first", "second"))
        m, n = (b.function(name, to=Maybe(thing)) for name in ("m", "n"))
        now, then = (b.function(name, to=mode) for name in ("now", "then"))
        of = b.function("of", thing, to=mode)
        large = b.relation("large", thing, rigid=True)
        team = b.function("team", thing, to=thing, rigid=True)
        p, q = (b.number(name) for name in ("p", "q"))
        need = b.number("need", thing)
        x, y, k = var("x", thing), var("y", thing), var("k", mode)
        idle, busy = member(mode, "IDLE"), member(mode, "BUSY")
        self.rows: dict[Operator | Binder, tuple[Row, ...]] = {
            Operator.NOT: (
                Row(not_(a()), lambda v: not v.a),
                Row(not_(and_(a(), not_(c()))), lambda v: not (v.a and not v.c)),
                Row(not_(on(first())), lambda v: not v.on[v.first]),
            ),
            Operator.AND: (
                Row(and_(a(), c()), lambda v: v.a and v.c),
                Row(and_(a(), c(), d()), lambda v: v.a and v.c and v.d),
                Row(and_(a(), or_(c(), d())), lambda v: v.a and (v.c or v.d)),
                Row(or_(a(), and_()), lambda v: True),
            ),
            Operator.OR: (
                Row(or_(a(), c()), lambda v: v.a or v.c),
                Row(or_(a(), c(), d()), lambda v: v.a or v.c or v.d),
                Row(and_(a(), or_()), lambda v: False),
            ),
            Operator.IMPLIES: (
                Row(implies(a(), c()), lambda v: v.c if v.a else True),
                Row(implies(and_(a(), d()), on(first())), lambda v: v.on[v.first] if v.a and v.d else True),
            ),
            Operator.EQ: (
                Row(eq(a(), c()), lambda v: v.a is v.c),
                Row(eq(a(), False), lambda v: v.a is False),
                Row(eq(i(), j()), lambda v: v.i == v.j),
                Row(eq(i(), 2), lambda v: v.i == 2),
                Row(eq(first(), second()), lambda v: v.first == v.second),
                Row(eq(m(), first()), lambda v: v.m == v.first),
                Row(eq(m(), n()), lambda v: v.m == v.n),
                Row(eq(m(), none(thing)), lambda v: v.m is None),
                Row(eq(now(), then()), lambda v: v.now == v.then),
                Row(eq(busy, now()), lambda v: v.now == "BUSY"),
                Row(eq(of(first()), idle), lambda v: v.of[v.first] == "IDLE"),
                Row(eq(team(first()), second()), lambda v: v.team[v.first] == v.second),
                Row(eq(p(), q()), lambda v: v.p == v.q),
            ),
            Operator.LT: (
                Row(less(i(), j()), lambda v: v.i < v.j),
                Row(less(i(), 1), lambda v: v.i < 1),
                Row(less(p(), q()), lambda v: v.p < v.q),
                Row(less(need(first()), p()), lambda v: v.need[v.first] < v.p),
            ),
            Operator.LE: (
                Row(at_most(i(), j()), lambda v: v.i <= v.j),
                Row(at_most(0, i()), lambda v: v.i >= 0),
                Row(at_most(p(), q()), lambda v: v.p <= v.q),
                Row(at_most(q(), 2), lambda v: v.q <= 2),
            ),
            Operator.ADD: (
                Row(add(i(), j()), lambda v: v.i + v.j),
                Row(add(i(), j(), -2), lambda v: v.i + v.j - 2),
                Row(add(i(), i(), i()), lambda v: 3 * v.i),
                Row(at_most(add(p(), 1), q()), lambda v: v.p + 1 <= v.q),
                Row(less(p(), add(q(), -2)), lambda v: v.p < v.q - 2),
            ),
            Operator.IF: (
                Row(if_(a(), c(), d()), lambda v: v.c if v.a else v.d),
                Row(if_(a(), i(), add(j(), 1)), lambda v: v.i if v.a else v.j + 1),
                Row(if_(a(), first(), second()), lambda v: v.first if v.a else v.second),
                Row(if_(a(), m(), first()), lambda v: v.m if v.a else v.first),
                Row(if_(c(), now(), busy), lambda v: v.now if v.c else "BUSY"),
                Row(less(if_(a(), p(), q()), need(first())), lambda v: (v.p if v.a else v.q) < v.need[v.first]),
            ),
            Operator.IS_NONE: (
                Row(is_none(m()), lambda v: v.m is None),
                Row(is_none(if_(a(), m(), first())), lambda v: v.a and v.m is None),
            ),
            Operator.THE: (
                Row(if_(is_none(m()), first(), the(m())), lambda v: v.first if v.m is None else v.m),
                Row(and_(not_(is_none(m())), on(the(m()))), lambda v: v.m is not None and v.on[v.m]),
                Row(implies(not_(is_none(m())), eq(the(m()), first())), lambda v: v.m is None or v.m == v.first),
            ),
            Binder.ALL: (
                Row(all_([x], on(x)), lambda v: all(v.on[e] for e in v.things)),
                Row(all_([x], implies(on(x), near(x, first()))), lambda v: all(v.near[e, v.first] for e in v.things if v.on[e])),
                Row(all_([x, y], near(x, y)), lambda v: all(v.near[e, f] for e in v.things for f in v.things)),
                Row(all_([k], or_(not_(eq(k, now())), eq(k, then()))), lambda v: v.now == v.then),
            ),
            Binder.ANY: (
                Row(any_([x], on(x)), lambda v: any(v.on[e] for e in v.things)),
                Row(any_([x], eq(m(), x)), lambda v: v.m is not None),
                Row(any_([x], and_(large(x), on(x))), lambda v: any(v.large[e] and v.on[e] for e in v.things)),
                Row(any_([x, y], and_(near(x, y), not_(eq(x, y)))), lambda v: v.near[0, 1] or v.near[1, 0]),
                Row(any_([x], all_([y], near(x, y))), lambda v: any(all(v.near[e, f] for f in v.things) for e in v.things)),
                Row(any_([k], and_(eq(k, now()), eq(k, busy))), lambda v: v.now == "BUSY"),
            ),
            Binder.COUNT: (
                Row(count([x], on(x)), lambda v: sum(v.on[e] for e in v.things)),
                Row(count([x, y], near(x, y)), lambda v: sum(v.near[e, f] for e in v.things for f in v.things)),
                Row(count([x], less(size(x), i())), lambda v: sum(v.size[e] < v.i for e in v.things)),
                Row(less(count([x], on(x)), count([x], near(x, x))), lambda v: sum(v.on.values()) < sum(v.near[e, e] for e in v.things)),
                Row(count([k], eq(of(first()), k)), lambda v: 1),
            ),
        }
        self.instance = Instance.make(b.build(), {"Thing": 2})

    @cached_property
    def states(self) -> tuple[State, ...]:
        """Random states, reachable or not, with every counter in its range."""
        random = Random(0)
        rigid, values = self.instance.rigid_layout, self.instance.state_layout

        def some(kind: Any) -> Value:
            return random.randrange(4) if isinstance(kind, Number) else random.choice(self.instance.values_of(kind))

        return tuple(State(tuple(map(some, rigid.types)), tuple(map(some, values.types))) for _ in range(25))
