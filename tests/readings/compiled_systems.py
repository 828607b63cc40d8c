"""Hand-built systems that between them use every value kind, operator, binder and form of update."""

from __future__ import annotations

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
    none,
    not_,
    or_,
    the,
    var,
)
from kvmodel.language.system import FlagKind, TransitionSystem
from kvmodel.language.types import Maybe

__all__ = ["everything", "library", "queues"]


def library() -> TransitionSystem:
    """Readers borrow books from a shelf: a relation that starts true, a maybe, a counter that can leave its range, an assertion
    that can break, and loops of every form."""
    b = Builder("library")
    book, reader = b.sort("Book"), b.sort("Reader")
    shelf = b.relation("shelf", book, initial=True)
    lent = b.function("lent", book, to=Maybe(reader))
    waits = b.relation("waits", reader, book)
    loans = b.counter("loans", reader, high=1)
    total = b.counter("total", high=2)
    x, y, r, q = var("x", book), var("y", book), var("r", reader), var("q", reader)
    b.action("ask", r, x, guards={"not mine": not_(eq(lent(x), r))}, updates=[waits.set(True, r, x)])
    b.action(
        "lend", r, x,
        guards={"asked": waits(r, x), "on the shelf": shelf(x)},
        asserts={"first loan": eq(loans(r), 0)},
        updates=[
            shelf.set(False, x),
            lent.set(r, x),
            waits.set(False, r, x),
            loans.set(add(loans(r), 1), r),
            total.set(add(total(), 1)),
        ],
    )  # fmt: skip
    b.action(
        "give_back", x,
        guards={"lent": not_(is_none(lent(x)))},
        updates=[
            shelf.set(True, x),
            lent.set(none(reader), x),
            loans.set(add(loans(the(lent(x))), -1), the(lent(x))),
            total.set(add(total(), -1)),
        ],
    )  # fmt: skip
    b.action(
        "leave", r,
        guards={"present": or_(any_([x], waits(r, x)), any_([x], eq(lent(x), r)))},
        updates=[
            waits.set(False, r, x, over=[x]),
            shelf.set(True, x, over=[x], condition=eq(lent(x), r)),
            lent.set(none(reader), x, over=[x], condition=eq(lent(x), r)),
            loans.set(0, r),
            total.set(count([x], and_(not_(is_none(lent(x))), not_(eq(lent(x), r))))),
        ],
    )  # fmt: skip
    b.action(
        "swap", r, q,
        guards={"two": not_(eq(r, q)), "one waits": any_([x], waits(r, x))},
        updates=[
            waits.set(waits(q, x), r, x, over=[x]),
            waits.set(waits(r, x), q, x, over=[x]),
        ],
    )  # fmt: skip
    b.invariant("lent_is_off_the_shelf", implies(not_(is_none(lent(x))), not_(shelf(x))), x)
    b.invariant("one_reader_waits", implies(and_(waits(r, x), waits(q, x)), eq(r, q)), r, q, x)
    b.invariant("some_book_is_left", any_([x], shelf(x)))
    b.invariant("total_adds_up", eq(total(), count([x], not_(shelf(x)))))
    b.invariant("loans_add_up", eq(loans(r), count([x], eq(lent(x), r))), r)
    b.invariant("no_pair", all_([x, y], implies(and_(eq(lent(x), r), eq(lent(y), r)), eq(x, y))), r)
    b.reachable("all_lent", all_([x], not_(shelf(x))))
    b.final("nobody_waits", all_([r, x], not_(waits(r, x))))
    return b.build()


def queues() -> TransitionSystem:
    """Jobs go through phases on nodes: enumerations as values and as keys, rigid functions and numbers, a flag, several initial
    states, an assumption."""
    b = Builder("queues")
    job, node = b.sort("Job"), b.sort("Node")
    phase = b.enumeration("Phase", "NEW", "QUEUED", "DONE", "LOST")
    side = b.enumeration("Side", "LEFT", "RIGHT")
    strict = b.flag("strict", True, FlagKind.DEFENCE)
    home = b.function("home", job, to=node, rigid=True)
    length = b.number("length", job)
    limit = b.number("limit")
    at = b.function("at", job, to=phase)
    place = b.function("place", job, side, to=Maybe(node), initial=None)
    busy = b.relation("busy", node, side)
    link = b.relation("link", node, node, side, initial=ANYTHING)
    marked = b.relation("marked", initial=False)
    j, k, n, m, d, e = var("j", job), var("k", job), var("n", node), var("m", node), var("d", side), var("e", side)
    b.assume("short_enough", at_most(length(j), add(limit(), 3)), j)
    b.initially("no_loops", not_(link(n, n, d)), n, d)
    b.action(
        "queue", j, d,
        guards={"new": eq(at(j), member(phase, "NEW")), "fits": or_(not_(strict), less(length(j), limit()), not_(busy(home(j), d)))},
        updates=[
            at.set(member(phase, "QUEUED"), j),
            place.set(home(j), j, d),
            busy.set(True, home(j), d),
        ],
    )  # fmt: skip
    b.action(
        "move", j, d, n,
        guards={
            "placed": not_(is_none(place(j, d))),
            "linked": and_(any_([e], link(the(place(j, d)), n, e)), not_(busy(n, d))),
        },
        updates=[
            place.set(n, j, d),
            busy.set(False, the(place(j, d)), d),
            link.set(False, the(place(j, d)), n, d),
        ],
    )  # fmt: skip
    b.action(
        "finish", j,
        guards={"queued": eq(at(j), member(phase, "QUEUED"))},
        asserts={"placed": any_([d], not_(is_none(place(j, d))))},
        updates=[
            at.set(if_(any_([d], eq(place(j, d), home(j))), member(phase, "DONE"), member(phase, "LOST")), j),
            place.set(none(node), j, d, over=[d]),
            busy.set(False, n, d, over=[n, d], condition=eq(place(j, d), n)),
            marked.set(True),
        ],
    )  # fmt: skip
    b.action(
        "reset", d,
        guards={"marked": marked(), "all new or over": all_([j], or_(eq(at(j), member(phase, "DONE")), eq(at(j), member(phase, "LOST"))))},
        updates=[
            at.set(member(phase, "NEW"), j, over=[j], condition=or_(eq(at(j), member(phase, "LOST")), eq(home(j), home(j)))),
            marked.set(False),
            link.set(True, n, m, d, over=[n, m], condition=and_(not_(eq(n, m)), or_(busy(n, d), link(m, n, d)))),
        ],
    )  # fmt: skip
    b.invariant("placed_when_queued", implies(not_(is_none(place(j, d))), eq(at(j), member(phase, "QUEUED"))), j, d)
    b.invariant("apart", implies(and_(not_(eq(j, k)), eq(place(j, d), n), eq(place(k, d), n)), eq(home(j), home(k))), j, k, n, d)
    b.invariant("long_jobs_are_not_lost", implies(and_(eq(at(j), member(phase, "LOST")), less(limit(), length(j))), marked()), j)
    b.invariant("busy_for_somebody", implies(busy(n, d), any_([j], eq(place(j, d), n))), n, d)
    b.invariant("links_both_ways", all_([n, m], implies(link(n, m, d), or_(link(m, n, d), any_([e], busy(m, e))))), d)
    b.reachable("lost", eq(at(j), member(phase, "LOST")), j)
    return b.build()


def everything() -> tuple[TransitionSystem, ...]:
    """All of them."""
    return library(), queues()
