"""Footprints and what commutes by them."""

from __future__ import annotations

from itertools import product

import pytest

from kvmodel.language.build import Builder, Place, all_, and_, any_, eq, implies, member, not_, or_, var
from kvmodel.language.expressions import Bound, Expr
from kvmodel.language.instance import Instance, State
from kvmodel.language.system import Action, TransitionSystem
from kvmodel.readings.fold import fold, fold_system
from kvmodel.readings.footprint import ANYWHERE, Access, bindings_commute, firm, footprint, property_footprint
from kvmodel.readings.run import Interpreter


class Pool:
    """A small pool of pages whose actions the tests choose."""

    def __init__(self) -> None:
        self.b = Builder("pool")
        self.page, self.request = self.b.sort("Page"), self.b.sort("Request")
        self.side = self.b.enumeration("Side", "LEFT", "RIGHT")
        self.where: Place = self.b.function("where", self.page, to=self.side, rigid=True)
        self.free = self.b.relation("free", self.page, initial=True)
        self.holds = self.b.relation("holds", self.request, self.page)
        self.used = self.b.relation("used", self.side)
        self.count = self.b.counter("count", high=9)
        self.p, self.q, self.r = var("p", self.page), var("q", self.page), var("r", self.request)

    def on(self, page: Expr, side: str) -> Expr:
        return eq(self.where(page), member(self.side, side))

    def system(self) -> TransitionSystem:
        return fold_system(self.b.build())


def groups(action: Action, system: TransitionSystem) -> tuple[list[list[str]], list[tuple[list[str], str]]]:
    commutation = bindings_commute(system.action(action.name), system)
    assert not commutation.obstacle
    return [sorted(group) for group in commutation.distinct], [(sorted(group), str(access)) for group, access in commutation.soft]


def test_a_footprint_says_what_is_read_and_written_where() -> None:
    pool = Pool()
    p, q, r = pool.p, pool.q, pool.r
    action = pool.b.action(
        "take", r, p,
        guards={"free": pool.free(p), "alone": not_(any_([q], pool.holds(r, q)))},
        updates=[
            pool.holds.set(True, r, p),
            pool.free.set(False, q, over=[q], condition=eq(q, p)),
            pool.used.set(True, member(pool.side, "LEFT")),
        ],
    )  # fmt: skip
    found = footprint(action, pool.system())
    assert str(found) == "reads free[p], holds[r, *]; writes holds[r, p], free[*], used[LEFT]"
    assert found.reads[1] == Access("holds", (Bound("r", pool.request), ANYWHERE))
    assert found.reads[1].covers("holds", (1, 3), {"r": 1, "p": 0})
    assert not found.reads[1].covers("holds", (2, 3), {"r": 1, "p": 0})
    assert found.writes[2].covers("used", ("LEFT",), {})
    assert not found.writes[2].covers("used", ("RIGHT",), {})


def test_a_shadowed_parameter_is_anywhere() -> None:
    pool = Pool()
    action = pool.b.action("look", pool.p, guards={"some": any_([pool.p], pool.free(pool.p))})
    assert str(footprint(action, pool.system())) == "reads free[*]; writes nothing"


def test_a_property_depends_on_what_it_reads() -> None:
    pool = Pool()
    invariant = pool.b.invariant("owned", all_([pool.r], implies(pool.holds(pool.r, pool.p), not_(pool.free(pool.p)))), pool.p)
    pool.b.action("take", pool.p, guards={"free": pool.free(pool.p)}, asserts={"unused": not_(pool.used(member(pool.side, "LEFT")))})
    system = pool.system()
    shown = {p.name: str(property_footprint(p, system)).split(";")[0] for p in system.properties}
    assert invariant.name in shown
    assert shown == {
        "owned": "reads holds[*, p], free[p]",
        "assert:take:unused": "reads used[LEFT]",
        "range:count": "reads count",
        "no_deadlock": "reads free[*], count",
    }


def test_bindings_that_touch_different_places_commute() -> None:
    pool = Pool()
    r, p = pool.r, pool.p
    take = pool.b.action("take", r, p, guards={"free": pool.free(p)}, updates=[pool.free.set(False, p), pool.holds.set(True, r, p)])
    keep = pool.b.action("keep", r, p, guards={"held": pool.holds(r, p)}, updates=[pool.free.set(pool.holds(r, p), p)])
    mark = pool.b.action("mark", p, updates=[pool.used.set(True, member(pool.side, "LEFT"))])
    system = pool.system()
    assert groups(take, system) == ([], [(["p"], "free[p]")])
    assert groups(keep, system) == ([["p"]], [])  # two requests would write different values
    assert groups(mark, system) == ([], [])  # all write the same constant


def test_bindings_that_may_meet_do_not_commute() -> None:
    pool = Pool()
    p, q = pool.p, pool.q
    copy = pool.b.action("copy", p, q, updates=[pool.free.set(pool.free(q), p)])
    tally = pool.b.action("tally", p, updates=[pool.count.set(0, over=[]), pool.free.set(eq(pool.count(), 0), p)])
    system = pool.system()
    assert bindings_commute(system.action(copy.name), system).obstacle == (
        "one binding writes free[p] and another reads free[q]: they may be one place"
    )
    assert bindings_commute(system.action(tally.name), system).obstacle == (
        "one binding writes count and another reads count: they may be one place"
    )


def test_guards_that_put_places_in_different_parts_keep_them_apart() -> None:
    pool = Pool()
    p, q = pool.p, pool.q
    guards = {"from": pool.on(q, "LEFT"), "to": and_(pool.on(p, "RIGHT"), pool.free(p))}
    copy = pool.b.action("copy", p, q, guards=guards, updates=[pool.free.set(pool.free(q), p)])
    assert groups(copy, pool.system()) == ([["p"]], [])


def test_a_firm_guard_does_without_what_others_may_write() -> None:
    pool = Pool()
    p, q, r = pool.p, pool.q, pool.r
    guard = or_(pool.on(p, "LEFT"), not_(any_([q], pool.holds(r, q))))
    take = pool.b.action("take", r, p, guards={"left, or first": guard}, updates=[pool.holds.set(True, r, p)])
    system = pool.system()
    assert groups(take, system) == ([], [(["r"], "holds[r, *]")])
    ((_, access),) = bindings_commute(take, system).soft
    assert fold(firm(guard, take.parameters, frozenset((access,)), system), {}) == pool.on(p, "LEFT")


@pytest.mark.parametrize("truth", [True, False])
def test_a_firm_condition_implies_the_condition(truth: bool) -> None:
    """Over every valuation of a few cells: where the firm condition is true, so is the condition, whatever is left out."""
    pool = Pool()
    p, q, r = pool.p, pool.q, pool.r
    held = pool.holds(r, p)
    conditions = [
        implies(held, pool.free(p)),
        not_(and_(held, pool.free(p))),
        or_(all_([q], implies(pool.holds(r, q), pool.free(q))), pool.free(p)),
        eq(held, pool.free(p)),
        and_(pool.free(p), not_(not_(or_(pool.free(p), held)))),
    ]
    system = pool.system()
    instance = Instance.make(system, {"Page": 2, "Request": 1})
    interpreter = Interpreter(instance)
    shaky = frozenset(Access("holds", (Bound("r", pool.request), position)) for position in (Bound("p", pool.page), ANYWHERE))
    decided = 0
    for condition in conditions:
        whole = condition if truth else not_(condition)
        strong = firm(whole, (r, p), shaky, system)
        for cells in product((False, True), repeat=4):
            state = State(("LEFT", "LEFT"), (*cells, False, False, 0))
            if interpreter.evaluate(strong, state, {"r": 0, "p": 0}):
                decided += 1
                assert interpreter.evaluate(whole, state, {"r": 0, "p": 0})
    assert decided > 0
