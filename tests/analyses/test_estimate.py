"""Sizes are counted before a check runs; what cannot end is refused."""

from __future__ import annotations

import pytest

from kvmodel.analyses.estimate import LARGEST, Estimate, estimate, refuse_endless
from kvmodel.errors import InstanceError
from kvmodel.language.instance import Instance
from tests import lending


def instance(**sizes: int) -> Instance:
    return Instance.make(lending.system(), sizes)


def test_the_estimate_is_what_grounding_would_make() -> None:
    for sizes in ({"Request": 2, "Page": 2}, {"Request": 3, "Page": 1}):
        made = instance(**sizes)
        bindings = sum(len(list(made.bindings(action.parameters))) for action in made.system.actions)
        assert estimate(made) == Estimate(made.state_layout.length + made.rigid_layout.length, bindings)


def test_small_sizes_are_not_refused() -> None:
    for method in LARGEST:
        refuse_endless(instance(Request=3, Page=4), method)


def test_what_cannot_end_is_refused_with_its_numbers() -> None:
    with pytest.raises(InstanceError) as caught:
        refuse_endless(instance(Request=200, Page=500), "explore")
    assert str(caught.value) == (
        "explore of tests/data/lending.py:Lending at Page=500 Request=200 would not end: a state has 202,602 values (at most 2,000) "
        "and 400,400 steps to try (at most 5,000); ask for smaller sizes, or for --method walk, which samples runs"
    )
