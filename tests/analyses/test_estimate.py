"""Sizes are counted before a check runs; what cannot end is refused."""

from __future__ import annotations

import pytest

from kvmodel.analyses.estimate import LARGEST, Estimate, estimate, refuse_endless, states_that_fit
from kvmodel.errors import InstanceError
from kvmodel.language.instance import Instance
from tests import lending


def instance(**sizes: int) -> Instance:
    return Instance.make(lending.system(), sizes)


def test_the_estimate_is_what_grounding_would_make() -> None:
    for sizes in ({"Request": 2, "Page": 2}, {"Request": 3, "Page": 1}):
        made = instance(**sizes)
        steps = sum(len(list(made.bindings(action.parameters))) for action in made.system.actions)
        judgements = sum(len(list(made.bindings(entry.parameters))) for entry in made.system.declared)
        assert estimate(made) == Estimate(made.state_layout.length + made.rigid_layout.length, steps, judgements)


def test_small_sizes_are_not_refused() -> None:
    for method in LARGEST:
        refuse_endless(instance(Request=3, Page=4), method)


def test_what_cannot_end_is_refused_with_its_numbers() -> None:
    with pytest.raises(InstanceError) as caught:
        refuse_endless(instance(Request=200, Page=500), "explore")
    assert str(caught.value) == (
        "explore of tests/data/lending.py:Lending at Page=500 Request=200 would not end: a state has 202,602 values (at most 2,000), "
        "400,400 steps to try (at most 5,000) and 200,200 bindings of properties to judge (at most 20,000); ask for smaller sizes, "
        "or for --method walk, which samples runs"
    )


def test_a_replay_of_a_hostile_size_is_refused() -> None:
    with pytest.raises(InstanceError, match="replay of .* would not end"):
        refuse_endless(instance(Request=1_000, Page=450), "replay")


def test_larger_states_leave_room_for_fewer() -> None:
    small, large = instance(Request=1, Page=1), instance(Request=4, Page=8)
    assert states_that_fit(small) > states_that_fit(large) > 1_000_000
    assert states_that_fit(small) * (200 + 8 * small.state_layout.length) <= 4_000_000_000
