"""Every shipped spec as a Hypothesis state machine: what holds is never violated, what is violated is found.

What holds and how long the shortest violations are is pinned in docs/variants.md, which other tests hold to exploration.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from kvmodel.language.instance import Instance
from kvmodel.language.load import load_spec
from kvmodel.readings.machine import PropertyViolated, check_with_hypothesis, machine_for
from kvmodel.verdict import Verdict
from tests.specs.variants import COLUMNS, SPECS, pinned

SEEDS = 20
STEPS = 30


def lengths(spec: str) -> dict[str, int | None]:
    """For each property in the table: the length of its shortest violation, or None when it holds."""
    cells = [cell.strip() for cell in pinned()[spec].split("|")[2:-2]]
    found = {name: cell for name, cell in zip(COLUMNS, cells, strict=True) if cell}
    return {name: int(cell.strip("*")) if cell.startswith("**") else None for name, cell in found.items()}


def often(spec: str) -> bool:
    """The faults of `cached` are many, and they differ by a flag."""
    return not spec.startswith("cached:")


@pytest.mark.parametrize("spec", [pytest.param(spec, marks=() if often(spec) else pytest.mark.slow) for spec in SPECS])
def test_no_run_violates_what_holds(spec: str) -> None:
    holding = [name for name, length in lengths(spec).items() if length is None]
    machine = machine_for(load_spec(spec), properties=holding)
    few = settings(max_examples=15, stateful_step_count=STEPS, database=None, deadline=None, derandomize=True,
                   suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(machine, settings=few)


# Early enough, or little enough in the way, to be found in a few hundred runs. What needs a write that lands at just the
# wrong moment (isolated_read where only quarantine is missing or gives up) is for the exact readings.
FOUND = {
    "cached:key-survives-reuse": ("index_matches_content",),
    "cached:key-without-salt": ("exclusive_owner", "isolated_read"),
    "cached:indexed-before-arrival": ("index_matches_content",),
    "cached:free-ignores-count": ("pages_conserved", "no_double_free"),
    "cached:double-free": ("no_double_free",),
    "cached:hit-and-new": ("exclusive_owner",),
    "cached:freed-while-queued": ("isolated_write",),
    "cached:abort-frees-target": ("isolated_write", "isolated_read"),
    "cached:lease-expires": ("isolated_write", "isolated_read"),
    "handoff:buggy": ("isolated_read", "fresh_read", "honest_status"),
    "handoff:prefill-door-alone": ("pages_conserved", "no_deadlock"),
    "handoff:length-check-alone": ("no_internal_error",),
    "handoff:zero-on-free-alone": ("fresh_read", "honest_status"),
    "handoff:checksum-of-sent-alone": ("isolated_read",),
    "handoff:checksum-of-each-side-alone": ("no_internal_error",),
    "handoff:checksum-of-each-side-blind": ("honest_status",),
    "handoff:checked-reads-alone": ("no_internal_error",),
    "handoff:abort-without-quarantine": ("isolated_write",),
    "handoff:quarantine-gives-up": ("isolated_write",),
    "handoff:sglang-0.5.16": ("isolated_read", "isolated_write"),
    "handoff:sglang-0.5.20": ("pages_conserved", "no_deadlock"),
    "handoff:sglang-0.5.21": ("pages_conserved", "no_deadlock"),
    "handoff:sglang-0.5.21-truncating": ("isolated_read",),
    "pages:one-pool-without-quarantine": ("isolated_write", "no_use_after_free"),
    "tenants:buggy": ("honest_status",),
}
RARE = {"cached:hit-stays-free"}  # two requests that begin alike, and the second comes when the first has ended
DETOUR = 3  # shrinking leaves steps out; it does not put a release in the place of an abort, the end of a read and a drain
QUICK = (
    ("cached:abort-frees-target", "isolated_write"),
    ("handoff:buggy", "isolated_read"),
    ("handoff:prefill-door-alone", "no_deadlock"),
    ("pages:one-pool-without-quarantine", "isolated_write"),
)


def test_every_spec_with_a_violation_has_one_that_is_found() -> None:
    assert set(FOUND) | RARE == {spec for spec in SPECS if any(length is not None for length in lengths(spec).values())}


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        pytest.param(spec, name, marks=() if (spec, name) in QUICK else pytest.mark.slow)
        for spec, names in FOUND.items()
        for name in names
    ],
)
def test_a_violation_is_found_and_shrunk(spec: str, name: str) -> None:
    result = check_with_hypothesis(Instance.make(load_spec(spec)), [name], examples=2_000, steps=STEPS, seed=1)
    shortest = lengths(spec)[name]
    assert result.verdict is Verdict.VIOLATED
    assert shortest is not None
    assert result[name].length in range(shortest, shortest + 3 + DETOUR * spec.startswith("cached"))


@pytest.mark.slow
def test_the_machine_by_itself_finds_and_shrinks_the_incident() -> None:
    """As in a user's own suite: Hypothesis' own shrinking alone, and a failure that prints the run."""
    machine = machine_for(load_spec("handoff:buggy"), properties=["honest_status"])
    many = settings(max_examples=1_000, stateful_step_count=STEPS, database=None, deadline=None, derandomize=True,
                    suppress_health_check=list(HealthCheck), phases=[Phase.generate, Phase.shrink])
    with pytest.raises(PropertyViolated, match="honest_status is violated by this run of handoff:buggy") as failure:
        run_state_machine_as_test(machine, settings=many)
    shortest = lengths("handoff:buggy")["honest_status"]
    assert shortest is not None
    assert len(failure.value.run) in range(shortest, shortest + 3)
    assert "reject(r" in str(failure.value)


@pytest.mark.slow
def test_the_incident_is_found_from_nearly_every_seed_and_shrunk_to_the_shortest() -> None:
    instance = Instance.make(load_spec("handoff:buggy"))
    shortest = lengths("handoff:buggy")["isolated_read"]
    assert shortest is not None
    found = [
        check_with_hypothesis(instance, ["isolated_read"], examples=1_000, steps=STEPS, seed=seed)["isolated_read"].length
        for seed in range(SEEDS)
    ]
    assert sum(length is not None for length in found) >= SEEDS - 1
    assert sum(length == shortest for length in found) >= SEEDS - 2
    assert all(length is None or length <= shortest + 2 for length in found)
