"""Small systems for the tests of the sampled readings."""

from __future__ import annotations

from kvmodel.language.build import ANYTHING, Builder, add, and_, any_, at_most, implies, not_, or_, var
from kvmodel.language.instance import Instance

__all__ = ["counter", "starts", "switches"]


def switches(things: int = 3) -> Instance:
    """Switches that turn on and off, and a gate that opens when all are on: `stays_shut` is violated by `things` + 1 steps.
    Turning one off and on again is a detour of two steps that belong together."""
    b = Builder("switches")
    thing = b.sort("Thing")
    on, open_ = b.relation("on", thing), b.relation("open")
    x = var("x", thing)
    b.action("turn_on", x, guards={"off": not_(on(x))}, updates=[on.set(True, x)])
    b.action("turn_off", x, guards={"on": on(x)}, updates=[on.set(False, x)])
    b.action("open_gate", guards={"all on": not_(any_([x], not_(on(x)))), "shut": not_(open_())}, updates=[open_.set(True)])
    b.invariant("stays_shut", not_(open_()))
    b.invariant("sensible", implies(open_(), open_()))
    b.reachable("opens", open_())
    b.reachable("never", and_(open_(), not_(open_())))
    return Instance.make(b.build(), {"Thing": things})


def counter() -> Instance:
    """A counter that leaves its range in its third step, an assertion that its second step breaks, and a dead end."""
    b = Builder("counter")
    used = b.counter("used", high=2)
    stuck = b.relation("stuck")
    b.action("use", guards={"moving": not_(stuck())}, asserts={"first": at_most(used(), 0)}, updates=[used.set(add(used(), 1))])
    b.action("stop", guards={"moving": not_(stuck())}, updates=[stuck.set(True)])
    return Instance.make(b.build())


def starts() -> Instance:
    """Four initial states: in one nothing is enabled and nothing is wrong, in one the invariant is violated."""
    b = Builder("starts")
    ready, bad, done = b.relation("ready", initial=ANYTHING), b.relation("bad", initial=ANYTHING), b.relation("done")
    b.action("finish", guards={"ready": ready(), "once": not_(done())}, updates=[done.set(True)])
    b.invariant("good", not_(bad()))
    b.final("any", or_(True, done()))
    return Instance.make(b.build())

