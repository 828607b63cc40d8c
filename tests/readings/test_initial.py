"""Initial states, and conditions on them that leave none."""

from __future__ import annotations

from itertools import islice

import pytest

from kvmodel.api import load
from kvmodel.errors import InstanceError, SpecError, UsageError
from kvmodel.language.build import ANYTHING, Builder, Place, all_, and_, any_, at_most, eq, implies, less, not_, or_, var
from kvmodel.language.expressions import Bound
from kvmodel.language.instance import Instance
from kvmodel.language.load import load_spec, shipped
from kvmodel.language.types import Maybe
from kvmodel.readings.initial import contradiction, initial_states, initial_values, require_consistent


def lending() -> tuple[Builder, Bound, Place, Place]:
    """A system with numbers and a relation that starts anywhere; a parameter over requests, and the two numbers."""
    b = Builder("lending")
    request = b.sort("Request")
    r, q = var("r", request), var("q", request)
    need, limit, on = b.number("need", request), b.number("limit"), b.relation("on", request, initial=ANYTHING)
    b.action("switch", r, updates=[on.set(not_(on(r)), r)])
    b.assume("fits", at_most(need(r), limit()), r)
    b.assume("some", any_([r], less(0, need(r))))
    b.initially("one", any_([r], and_(on(r), all_([q], implies(on(q), eq(q, r))))))
    return b, r, need, limit


def test_every_shipped_spec_has_initial_states() -> None:
    for listing in shipped():
        require_consistent(load_spec(listing.name))


def test_the_first_contradictory_assumption_and_those_that_it_contradicts() -> None:
    b, r, need, limit = lending()
    b.assume("none", less(limit(), need(r)), r)
    b.assume("late", all_([r], less(need(r), 0)))
    found = contradiction(b.build())
    assert found is not None
    assert (found[0].name, [other.name for other in found[1]]) == ("none", ["fits"])
    with pytest.raises(SpecError, match="lending.none: no deployment satisfies this assumption together with 'fits'"):
        require_consistent(b.build())


def test_an_initial_condition_that_contradicts_another_or_the_initial_values() -> None:
    b, r, _, _ = lending()
    off = b.relation("off", r.domain)
    b.initially("nothing", off(r), r)
    with pytest.raises(SpecError, match=r"lending.nothing: no initial state satisfies this condition\n"):
        require_consistent(b.build())


def test_conditions_that_need_two_elements_or_one_are_no_contradiction() -> None:
    b = Builder("two")
    request = b.sort("Request")
    r, q = var("r", request), var("q", request)
    on = b.relation("on", request, initial=ANYTHING)
    b.action("switch", r, updates=[on.set(not_(on(r)), r)])
    b.initially("both", any_([r, q], and_(on(r), not_(on(q)))))
    assert contradiction(b.build()) is None
    b.initially("alone", all_([r, q], eq(r, q)))
    found = contradiction(b.build())
    assert found is not None
    assert (found[0].name, [other.name for other in found[1]]) == ("alone", ["both"])


def test_flags_take_part() -> None:
    b = Builder("flagged")
    covers, limit, context = b.flag("covers", False), b.number("limit"), b.number("context")
    on = b.relation("on")
    b.action("switch", updates=[on.set(True)])
    b.assume("small", less(limit(), context()))
    b.assume("covered", implies(covers, at_most(context(), limit())))
    system = b.build()
    assert load(system) == system
    with pytest.raises(SpecError, match="flagged.covered: no deployment satisfies this assumption together with 'small'"):
        load(system, {"covers": True})


def test_what_is_not_settled_is_no_contradiction() -> None:
    """There is one initial state, the last that a search comes to."""
    b = Builder("hidden")
    things = b.sort("Thing")
    pairs = [b.relation(f"on{n}", things, things, things, initial=ANYTHING) for n in range(5)]
    t, u, v = var("t", things), var("u", things), var("v", things)
    b.action("switch", t, updates=[pairs[0].set(True, t, t, t)])
    b.initially("odd", all_([t, u, v], and_(*(or_(pair(t, u, v), eq(t, t)) for pair in pairs))))
    b.initially("all", all_([t, u, v], and_(*(pair(t, u, v) for pair in pairs))))
    assert contradiction(b.build()) is None
    instance = Instance.make(b.build())
    with pytest.raises(InstanceError, match="no initial state of hidden was found in 3 attempts at Thing=2"):
        list(initial_values(instance, (), 3))


def test_an_instance_without_a_start_says_so() -> None:
    b = Builder("two")
    request = b.sort("Request")
    r, q = var("r", request), var("q", request)
    on = b.relation("on", request, initial=ANYTHING)
    b.action("switch", r, updates=[on.set(not_(on(r)), r)])
    b.initially("both", any_([r, q], and_(on(r), not_(on(q)))))
    system = b.build()
    assert len(list(initial_states(Instance.make(system)))) == 2
    with pytest.raises(UsageError, match="two has no initial state at Request=1: its initial conditions contradict each other"):
        list(initial_states(Instance.make(system, {"Request": 1})))


def test_thousands_of_places_that_start_anywhere() -> None:
    b = Builder("wide")
    page = b.sort("Page")
    p = var("p", page)
    owner = b.function("owner", page, to=Maybe(page), initial=ANYTHING)
    b.action("own", p, updates=[owner.set(p, p)])
    b.initially("own or none", or_(eq(owner(p), p), not_(eq(owner(p), p))), p)
    instance = Instance.make(b.build(), {"Page": 3_000})
    assert len(next(iter(islice(initial_states(instance), 1))).values) == 3_000
