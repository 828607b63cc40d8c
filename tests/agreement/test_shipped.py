"""The readings agree on everything that ships: in full on the smallest instances, step by step on the default ones."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from kvmodel.language.instance import Instance, State
from kvmodel.language.load import load_spec, shipped
from kvmodel.readings.bmc import bmc
from kvmodel.readings.explore import explore, reachable
from kvmodel.readings.run import Interpreter
from kvmodel.readings.sampled import Sampler
from kvmodel.readings.walk import Walker, walk
from kvmodel.verdict import Verdict
from tests.agreement.oracle import Oracle
from tests.agreement.readings import READINGS, Compiled, disagreements

SPECS = tuple(listing.name for listing in shipped())
OFTEN = ("handoff", "handoff:buggy", "handoff:sglang-0.5.21-truncating", "pages:one-pool", "cached")
MOSTLY_SLOW = [pytest.param(spec, marks=() if spec in OFTEN else pytest.mark.slow) for spec in SPECS]


def instance_of(spec: str, **sizes: int) -> Instance:
    """A spec with some sizes given; sorts that it does not have are left out, the others have one element."""
    system = load_spec(spec)
    return Instance.make(system, {sort.name: sizes.get(sort.name, 1) for sort in system.sorts})


def agree_in_full(instance: Instance) -> None:
    oracle = Oracle(instance, 5_000)
    for name, reading in READINGS.items():
        found = disagreements(oracle, reading(instance), oracle.initial, Random(1).sample(list(oracle.depths), len(oracle.depths)))
        assert not found, f"{name} differs in {'; '.join(found)}"


@pytest.mark.parametrize("spec", MOSTLY_SLOW)
def test_readings_agree_with_one_request_and_one_page_a_pool(spec: str) -> None:
    agree_in_full(instance_of(spec, Request=1, Page=1))


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS)
def test_readings_agree_with_two_pages_a_pool(spec: str) -> None:
    agree_in_full(instance_of(spec, Request=1, Page=2))


@pytest.mark.slow
@pytest.mark.parametrize("spec", [*OFTEN, "handoff:abort-without-quarantine", "pages:one-pool-without-quarantine"])
def test_readings_agree_with_two_requests(spec: str) -> None:
    agree_in_full(instance_of(spec, Request=2, Page=1))


@cache
def met_by_walking(spec: str) -> tuple[Sampler, tuple[State, ...]]:
    """A spec at its default size, and some states of random walks."""
    instance = Instance.make(load_spec(spec))
    walker = Walker(Sampler(instance, instance.system.properties), 1)
    for _ in range(60):
        walker.run(25)
    return walker.sampler, tuple(Random(1).sample(list(walker.seen), min(len(walker.seen), 30)))


@pytest.mark.parametrize("spec", MOSTLY_SLOW)
def test_steps_agree_at_the_default_size(spec: str) -> None:
    """The same enabled steps, the same states after them, and the same violated properties, in states met by walking."""
    sampler, states = met_by_walking(spec)
    instance = sampler.instance
    interpreter = Interpreter(instance)
    compiled = Compiled(instance)
    steps = 0
    for state in states:
        expected = frozenset((choice, interpreter.successor(state, choice)) for choice in interpreter.enabled(state))
        steps += len(expected)
        sight = sampler.steps(state.rigid).look(state.values)
        dense = frozenset((move.choice, State(state.rigid, move.after)) for moves in sight.moves.values() for move in moves)
        assert dense == expected
        assert compiled.successors(state) == expected
        violated = set(interpreter.violated(state))
        assert set(sight.violated) == violated
        assert {violation.property for violation in compiled.compiled.violations(compiled.compiled.from_dense(state))} == violated
    assert steps >= 2


@pytest.mark.parametrize("spec", [pytest.param(spec, marks=() if spec == "handoff:buggy" else pytest.mark.slow) for spec in SPECS])
def test_explore_and_bmc_give_the_same_answers_at_the_default_size(spec: str) -> None:
    """As deep as the longest of the shortest traces and two steps more. Further, `holds` only gets dearer for a solver."""
    instance = Instance.make(load_spec(spec))
    explored = explore(instance)
    bounded = bmc(instance, depth=2 + max(expected.length or 0 for expected in explored.properties))
    for expected, found in zip(explored.properties, bounded.properties, strict=True):
        assert found.length == expected.length, expected.name
        assert found.verdict is (Verdict.UNDECIDED if expected.reachable and expected.length is None else expected.verdict), expected.name


@pytest.mark.parametrize("spec", ["handoff", "handoff:buggy"])
def test_walks_stay_within_what_is_reachable(spec: str) -> None:
    sampler, states = met_by_walking(spec)
    instance = sampler.instance
    graph = reachable(instance, instance.system.properties)
    known = {State(deployment.steps.rigid, values) for deployment in graph.deployments for values in deployment.states}
    assert set(states) <= known
    for found in walk(instance, runs=300, steps=30, seed=2).properties:
        if found.trace is not None:
            assert set(found.trace.states) <= known
            assert found.name in graph.seen
            assert found.length is not None
            assert found.length >= len(graph.trace(found.name).steps)
