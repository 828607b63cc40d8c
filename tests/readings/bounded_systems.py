"""Hand-built systems for the bounded reading: between them every operator, kind of value and kind of property."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvmodel.language.build import (
    ANYTHING,
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
    not_,
    or_,
    the,
    var,
)
from kvmodel.language.expressions import Bound, Const, Expr
from kvmodel.language.instance import Instance
from kvmodel.language.types import Element, Maybe

__all__ = ["SYSTEMS"]


def stages() -> Instance:
    """Requests go through stages; every kind of property, at several lengths, and an end that is not final."""
    b = Builder("stages")
    request = b.sort("Request")
    stage = b.enumeration("Stage", "NEW", "QUEUED", "RUNNING", "DONE")
    at = b.function("at", request, to=stage)
    tagged = b.relation("tagged", request)
    r, other = var("r", request), var("other", request)

    def stands(who: Bound, name: str) -> Expr:
        return eq(at(who), member(stage, name))

    for before, after in (("NEW", "QUEUED"), ("QUEUED", "RUNNING"), ("RUNNING", "DONE")):
        b.action(
            f"to_{after.lower()}", r, guards={"before": stands(r, before)}, updates=[at.set(member(stage, after), r)],
            asserts={"untagged": not_(tagged(r))} if after == "DONE" else None,
        )  # fmt: skip
    b.action("tag", r, guards={"queued": stands(r, "QUEUED")}, updates=[tagged.set(True, r)])
    b.invariant("one_at_a_time", implies(and_(stands(r, "RUNNING"), stands(other, "RUNNING")), eq(r, other)), r, other)
    b.invariant("somebody_is_not_done", any_([r], not_(stands(r, "DONE"))))
    b.invariant("tagged_is_not_new", implies(tagged(r), not_(stands(r, "NEW"))), r)
    b.reachable("all_tagged", all_([r], tagged(r)))
    b.reachable("done_first", and_(stands(r, "DONE"), stands(other, "NEW")), r, other)
    b.reachable("never", and_(tagged(r), stands(r, "NEW")), r)
    b.final("one_left", any_([r], not_(stands(r, "DONE"))))
    return Instance.make(b.build(), {"Request": 3})


def leftovers() -> Instance:
    """Pages that start with anything, within conditions; content that outlives its owner."""
    b = Builder("leftovers")
    request, page = b.sort("Request"), b.sort("Page")
    owner = b.function("owner", page, to=Maybe(request))
    content = b.function("content", page, to=Maybe(request), initial=ANYTHING)
    served = b.relation("served", request, initial=ANYTHING)
    r, p = var("r", request), var("p", page)
    b.initially("served_left_it", implies(not_(is_none(content(p))), served(the(content(p)))), p)
    b.action("take", r, p, guards={"free": is_none(owner(p)), "new": not_(served(r))}, updates=[owner.set(r, p)])
    b.action("write", p, guards={"held": not_(is_none(owner(p)))}, updates=[content.set(owner(p), p)])
    b.action("release", p, guards={"held": not_(is_none(owner(p)))}, updates=[owner.set(Const(None, Maybe(request)), p)])
    b.invariant("blank_or_own", implies(not_(is_none(owner(p))), or_(is_none(content(p)), eq(content(p), owner(p)))), p)
    b.invariant("one_page_each", at_most(count([p], eq(owner(p), r)), 1), r)
    own = or_(is_none(owner(p)), is_none(content(p)), eq(content(p), owner(p)))
    b.reachable("handed_over", and_(not_(own), not_(served(the(content(p))))), p)
    return Instance.make(b.build(), {"Request": 2, "Page": 2})


def numbers() -> Instance:
    """Rigid numbers: every deployment at once, with comparisons that exclude each other."""
    b = Builder("numbers")
    request = b.sort("Request")
    need, small, large = b.number("need", request), b.number("small"), b.number("large")
    admitted, refused = b.relation("admitted", request), b.relation("refused", request)
    turn = b.function("turn", to=Maybe(request))
    r, other = var("r", request), var("other", request)
    b.assume("small_is_smaller", less(add(small(), 1), large()))
    b.action("admit", r, guards={"fits": at_most(need(r), large())}, updates=[admitted.set(True, r), turn.set(r)])
    b.action("refuse", r, guards={"too_long": less(small(), need(r)), "no": not_(admitted(r))}, updates=[refused.set(True, r)])
    b.invariant("never_both", not_(and_(admitted(r), refused(r))), r)
    b.invariant("fits", implies(admitted(r), at_most(need(r), small())), r)
    b.invariant("in_order", implies(and_(refused(r), admitted(other)), less(need(other), need(r))), r, other)
    b.invariant("refused_is_longer", implies(refused(r), less(add(small(), 0), need(r))), r)
    b.invariant("excluded", not_(and_(refused(r), at_most(need(r), small()))), r)
    around = and_(less(need(r), need(other)), less(need(other), small()), at_most(large(), need(r)))
    b.invariant("cycle", not_(and_(admitted(r), around)), r, other)
    b.reachable("just_one_more", and_(refused(r), eq(need(r), add(small(), 1)), at_most(3, need(r))), r)
    b.reachable("by_turn", and_(not_(is_none(turn())), less(large(), add(need(the(turn())), 1))))
    return Instance.make(b.build(), {"Request": 2})


def pools() -> Instance:
    """A partition: pages of two pools, copied from one to the other."""
    b = Builder("pools")
    page, side = b.sort("Page"), b.enumeration("Side", "NEAR", "FAR")
    pool = b.function("pool", page, to=side, rigid=True)
    full, copied = b.relation("full", page), b.relation("copied", page)
    p, q = var("p", page), var("q", page)
    b.action("fill", p, guards={"near": eq(pool(p), member(side, "NEAR"))}, updates=[full.set(True, p)])
    b.action(
        "copy", p, q, guards={"full": full(p), "far": eq(pool(q), member(side, "FAR"))}, updates=[copied.set(True, q), full.set(False, p)]
    )
    b.invariant("far_is_empty", implies(eq(pool(p), member(side, "FAR")), not_(copied(p))), p)
    b.invariant("near_is_never_copied_to", implies(eq(pool(p), member(side, "NEAR")), not_(copied(p))), p)
    b.invariant("not_all_far", any_([p], and_(eq(pool(p), member(side, "FAR")), not_(copied(p)))))
    b.reachable("all_near_full", all_([p], implies(eq(pool(p), member(side, "NEAR")), full(p))))
    system = b.build()
    variables = tuple(replace(v, partition=True) if v.name == "pool" else v for v in system.variables)
    return Instance.make(replace(system, variables=variables), {"Page.NEAR": 2, "Page.FAR": 3})


def counters() -> Instance:
    """Counters that leave their ranges on both sides, by one and by more, and one that never does."""
    b = Builder("counters")
    page = b.sort("Page")
    held = b.relation("held", page)
    references = b.counter("references", page, high=1)
    free = b.counter("free", low=1, high=2, initial=2)
    total = b.counter("total", high=3, initial=ANYTHING)
    steady = b.counter("steady", low=1, high=2, initial=1)
    p = var("p", page)
    b.initially("little", less(total(), 2))
    b.action("hold", p, updates=[held.set(True, p), references.set(add(references(p), 1), p), free.set(add(free(), -1))])
    b.action("recount", updates=[total.set(add(total(), count([p], held(p)), 1))])
    b.action("swap", guards={"some": less(0, total())}, updates=[steady.set(if_(eq(steady(), 1), 2, 1))])
    b.invariant("little_is_held", at_most(count([p], held(p)), 1))
    b.invariant("no_far_overshoot", less(total(), 6))
    b.invariant("free_matches", implies(at_most(0, free()), at_most(add(free(), count([p], held(p))), 2)))
    b.reachable("overshoot", eq(total(), 5))
    b.reachable("swapped", eq(steady(), 2))
    return Instance.make(b.build(), {"Page": 2})


def pointers() -> Instance:
    """Reads and writes through functions: the place is only known in the state."""
    b = Builder("pointers")
    page = b.sort("Page")
    head = b.function("head", to=Maybe(page))
    link = b.function("link", page, to=Maybe(page))
    cursor = b.function("cursor", to=page)
    marked = b.relation("marked", page)
    p = var("p", page)
    b.initially("nothing_is_linked", is_none(head()))
    b.action("push", p, guards={"loose": and_(is_none(link(p)), not_(eq(head(), p)))}, updates=[head.set(p), link.set(head(), p)])
    following = the(link(cursor()))
    b.action("move", guards={"linked": not_(is_none(link(cursor())))}, updates=[cursor.set(following), marked.set(True, following)])
    unlinked = link.set(Const(None, Maybe(page)), the(head()))
    b.action("unlink", guards={"some": not_(is_none(head()))}, updates=[unlinked, marked.set(False, cursor())])
    b.invariant("cursor_unmarked", not_(marked(cursor())))
    b.invariant("no_loop", implies(not_(is_none(link(p))), not_(eq(link(p), p))), p)
    b.invariant("no_pair", implies(not_(is_none(link(p))), not_(eq(link(the(link(p))), p))), p)
    b.reachable("all_marked", all_([p], marked(p)))
    return Instance.make(b.build(), {"Page": 3})


def elected() -> Instance:
    """An element that the system names: the elements of its sort are not alike."""
    b = Builder("elected")
    node = b.sort("Node")
    leader = b.function("leader", to=Maybe(node), initial=2)
    ready = b.relation("ready", node)
    n = var("n", node)
    zero = Const(0, Element(node))
    b.action("prepare", n, guards={"leads": eq(leader(), n)}, updates=[ready.set(True, n), leader.set(zero)])
    b.action("give", n, guards={"zero": ready(zero), "other": not_(eq(n, zero))}, updates=[leader.set(n)])
    b.invariant("two_is_not_ready", not_(ready(Const(2, Element(node)))))
    b.invariant("one_is_not_ready", implies(ready(n), not_(eq(n, Const(1, Element(node))))), n)
    return Instance.make(b.build(), {"Node": 3})


def still() -> Instance:
    """Nothing can happen."""
    b = Builder("still")
    on = b.relation("on")
    b.action("switch", guards={"on": on()}, updates=[on.set(False)])
    b.invariant("off", not_(on()))
    b.reachable("lit", on())
    return Instance.make(b.build())


def switch() -> Instance:
    """A flag that guards."""
    b = Builder("switch")
    safe = b.flag("safe", False)
    on = b.relation("on")
    b.action("turn", guards={"allowed": not_(safe)}, updates=[on.set(not_(on()))])
    b.invariant("off", implies(on(), safe))
    return Instance.make(b.build())


SYSTEMS: dict[str, Callable[[], Instance]] = {
    function.__name__: function for function in (stages, leftovers, numbers, pools, counters, pointers, elected, still, switch)
}
