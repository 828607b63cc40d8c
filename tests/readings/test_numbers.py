"""Rigid numbers: every way in which they can compare is a deployment of its own."""

from __future__ import annotations

from kvmodel.language.build import Builder, Operand, add, at_most, if_, less, var
from kvmodel.language.instance import Instance
from kvmodel.readings.explore import explore
from kvmodel.readings.initial import rigid_valuations


def sign_of_comparisons(assumed: Operand) -> set[tuple[bool, ...]]:
    """How `need` compares with `limit` in each deployment of a system that assumes something about `need`."""
    b = Builder("numbers")
    limit, need = b.number("limit"), b.number("need")
    done = b.relation("done")
    b.assume("assumed", assumed)
    b.action("step", guards={"fits": at_most(need(), limit())}, updates=[done.set(True)])
    valuations = rigid_valuations(Instance.make(b.build()))
    return {(needed <= most,) for most, needed in valuations if isinstance(needed, int) and isinstance(most, int)}


def test_an_assumption_that_starts_with_a_constant_loses_no_deployment() -> None:
    need = Builder("other").number("need")
    both = {(True,), (False,)}
    assert sign_of_comparisons(at_most(1, need())) == both
    assert sign_of_comparisons(less(0, need())) == both
    assert sign_of_comparisons(at_most(need(), 5)) == both


def test_a_number_may_be_chosen_before_it_is_compared() -> None:
    """Through another function, by an `if`, and after two additions: all become comparisons of one number with another."""
    b = Builder("chosen")
    thing = b.sort("Thing")
    need = b.number("need", thing)
    team = b.function("team", thing, to=thing, rigid=True)
    turn = b.function("turn", to=thing, initial=0)
    x = var("x", thing)
    b.action("take", x, updates=[turn.set(x)])
    b.invariant("leads", at_most(need(x), need(team(x))), x)
    b.invariant("follows", less(need(turn()), add(add(need(x), 1), 1)), x)
    b.reachable("more", less(if_(less(need(turn()), need(x)), need(turn()), need(team(x))), need(x)), x)
    result = explore(Instance.make(b.build(), {"Thing": 2}))
    assert [result[name].length for name in ("leads", "follows", "more")] == [0, 0, 0]
