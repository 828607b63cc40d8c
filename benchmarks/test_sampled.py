"""Steps a second of the sampled readings on handoff at its default size; `extra_info` has the steps of a round.

    pytest benchmarks/test_sampled.py --benchmark-only

Compiling the steps of each deployment (a fraction of a second) is not part of a round. The machine is as a user's test
suite runs it: idle rules, which are no steps, take the rest of the run.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from pytest_benchmark.fixture import BenchmarkFixture

from kvmodel.language.instance import Instance
from kvmodel.language.load import load_spec
from kvmodel.readings.machine import SpecMachine, check_with_hypothesis, machine_for
from kvmodel.readings.sampled import Sampler
from kvmodel.readings.walk import Walker

SPEC = "handoff"
RUNS, STEPS = 100, 30


def test_walk(benchmark: BenchmarkFixture) -> None:
    instance = Instance.make(load_spec(SPEC))
    sampler = Sampler(instance, instance.system.properties)
    assert sampler.starts

    def walk() -> int:
        walker = Walker(sampler, 0)
        for _ in range(RUNS):
            walker.run(STEPS)
        return walker.taken

    benchmark.extra_info["steps"] = benchmark(walk)


def test_machine(benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = machine_for(load_spec(SPEC))
    taken = 0
    original = SpecMachine._take

    def take(self: SpecMachine, action: str, index: int) -> None:
        nonlocal taken
        taken += 1
        original(self, action, index)

    monkeypatch.setattr(SpecMachine, "_take", take)
    chosen = settings(max_examples=RUNS, stateful_step_count=STEPS + 1, database=None, deadline=None, derandomize=True,
                      suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    pedantic: Any = benchmark.pedantic
    pedantic(run_state_machine_as_test, args=(machine,), kwargs={"settings": chosen}, rounds=3)
    benchmark.extra_info["rules"] = (RUNS + 1) * STEPS
    benchmark.extra_info["steps"] = taken / 3


def test_check_with_hypothesis(benchmark: BenchmarkFixture) -> None:
    """The whole check of the incident: encoding, search, shrinking, replay."""
    instance = Instance.make(load_spec("handoff:buggy"))
    pedantic: Any = benchmark.pedantic
    result = pedantic(check_with_hypothesis, args=(instance, ["isolated_read"]), kwargs={"examples": 1_000, "steps": STEPS}, rounds=3)
    benchmark.extra_info["steps"] = dict(result.statistics)["steps"]
    benchmark.extra_info["length"] = result["isolated_read"].length
