"""Rigid numbers: every way in which they can compare is a deployment of its own."""

from __future__ import annotations

from kvmodel.language.build import Builder, Operand, at_most, less
from kvmodel.language.instance import Instance
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
