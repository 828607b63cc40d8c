"""The compiled step says what the interpreter says: on random systems and on every spec that ships, one step at a time and
in batches."""

from __future__ import annotations

from collections import Counter

import pytest

from kvmodel.language.instance import Instance
from kvmodel.language.load import load_spec, shipped
from tests.agreement.test_random_systems import collected
from tests.readings.held import Held, batches_agree, footprints_are_sound, states_of, walk_together

SIZES = {"Request": 2, "Page": 1, "Page.DECODE": 2}


def held_to_the_interpreter(examples: int, seed: int) -> tuple[int, int, Counter[str], int]:
    """Compare random systems; gives how many there were, and how many steps, batches and perturbed cells."""
    steps = perturbed = 0
    outcomes: Counter[str] = Counter()
    cases = tuple(collected(examples, seed))
    for number, case in enumerate(cases):
        held = Held(case.instance, searches=number % 2 == 0)
        steps += sum(walk_together(held, walk, 10) for walk in range(3))
        states = states_of(case.instance, number, 5)
        outcomes += batches_agree(held, states, number)
        perturbed += footprints_are_sound(held, states[:3], number)
    return len(cases), steps, outcomes, perturbed


def test_random_systems() -> None:
    systems, steps, outcomes, perturbed = held_to_the_interpreter(60, 5)
    assert systems >= 30
    assert steps >= 10 * systems
    assert outcomes["taken"] >= 100
    assert outcomes["refused"] >= 200
    assert perturbed >= 40 * systems


@pytest.mark.slow
def test_many_random_systems() -> None:
    systems, _, outcomes, _ = held_to_the_interpreter(900, 6)
    assert systems >= 300
    assert outcomes["taken"] >= 1_000


@pytest.mark.parametrize("spec", [listing.name for listing in shipped()])
def test_shipped_specs(spec: str) -> None:
    system = load_spec(spec)
    sizes = SIZES if any(variable.partition for variable in system.variables) else {"Request": 2, "Page": 2}
    held = Held(Instance.make(system, sizes))
    assert sum(walk_together(held, seed, 12) for seed in (0, 6)) >= 10
    states = states_of(held.instance, 7, 8)
    assert sum(batches_agree(held, states[::3], 7).values()) > 0
    assert footprints_are_sound(held, states[::4], 7, tries=2) > 0
