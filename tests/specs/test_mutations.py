"""Refutable on purpose: each shipped spec, broken in one place, is proved again.

A proof that still goes through is for any size, so exploration of a small instance must not find a violation of the same
property. A disagreement is a defect of the prover (or of exploration), never of a spec.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pytest

from kvmodel.language.instance import Instance
from kvmodel.language.load import load_spec
from kvmodel.readings import conditions, induction
from kvmodel.readings.explore import reachable
from kvmodel.readings.induction import provable, prove
from tests.specs.mutants import Mutant, flips, mutants

STATES = 40_000  # explored of a mutant; the specs themselves have fewer
LIMIT = 500_000  # of Z3's work on one condition: a proof is a proof, and the rest is not asked here
SPECS = ("pages", "pages:one-pool", "pages:one-pool-without-quarantine", "handoff")
PLACES = [(spec, action.name) for spec in SPECS for action in load_spec(spec).actions]


@dataclass
class Tally:
    """What came of some mutants: how often a property was still proved, and exploration agreed because it saw every state, or
    as far as it looked."""

    mutants: int = 0
    harmless: int = 0  # every property is still proved
    caught: int = 0  # exploration violates some property
    proofs: int = 0
    agreed: int = 0
    agreed_so_far: int = 0
    disagreements: list[str] = field(default_factory=list)

    def add(self, mutant: Mutant, properties: Sequence[str] = ()) -> None:
        """Prove and explore one more: all properties, or some."""
        names = provable(mutant.system, properties)
        proof = prove(mutant.system, names, limit=LIMIT, jobs=1)
        graph = reachable(Instance.make(mutant.system), [mutant.system.property(name) for name in names], limit=STATES)
        proved = [name for name in names if proof.proved(name)]
        wrong = [name for name in proved if name in graph.seen]
        self.mutants += 1
        self.harmless += len(proved) == len(names)
        self.caught += bool(graph.seen)
        self.proofs += len(proved)
        if graph.complete:
            self.agreed += len(proved) - len(wrong)
        else:
            self.agreed_so_far += len(proved) - len(wrong)
        self.disagreements += [f"{mutant.what}: {name} is proved, and violated by a run" for name in wrong]

    def __str__(self) -> str:
        return (
            f"{self.mutants} mutants, exploration violates a property of {self.caught}, all is still proved of {self.harmless}; "
            f"{self.proofs} proofs: exploration agrees with {self.agreed} in every state, with {self.agreed_so_far} as far as it went"
        )


def tally(chosen: Iterable[Mutant], properties: Sequence[str] = ()) -> Tally:
    found = Tally()
    for mutant in chosen:
        found.add(mutant, properties)
    return found


def sample(spec: str, count: int, seed: int = 2026) -> Sequence[Mutant]:
    return random.Random(seed).sample(list(mutants(load_spec(spec))), count)


@pytest.mark.parametrize(("spec", "count", "properties"), [("pages:one-pool", 4, ()), ("handoff", 1, ("isolated_write",))])
def test_a_proof_that_still_goes_through_is_right(
    spec: str, count: int, properties: Sequence[str], record_property: Callable[[str, object], None]
) -> None:
    found = tally(sample(spec, count), properties)
    assert found.disagreements == []
    assert found.mutants == count
    record_property("summary", f"mutations of {spec} (sample): {found}")


@pytest.fixture
def proofs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not proved needs no counterexample here; looking for one is half of the time."""
    monkeypatch.setattr(induction, "smallest", lambda *_: None)


@pytest.mark.slow
@pytest.mark.usefixtures("proofs_alone")
@pytest.mark.parametrize(("spec", "action"), PLACES)
def test_every_mutant(spec: str, action: str, record_property: Callable[[str, object], None]) -> None:
    found = tally(mutant for mutant in mutants(load_spec(spec)) if mutant.action == action)
    assert found.disagreements == []
    record_property("summary", f"mutations of {spec}, {action}: {found}")


@pytest.mark.slow
@pytest.mark.usefixtures("proofs_alone")
def test_mutants_of_tenants(record_property: Callable[[str, object], None]) -> None:
    """A sample: the actions are those of `handoff`."""
    found = tally(sample("tenants", 40))
    assert found.disagreements == []
    record_property("summary", f"mutations of tenants (sample): {found}")


def test_a_prover_that_forgets_what_actions_do_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "after", lambda expr, action: expr)
    found = tally(mutant for mutant in mutants(load_spec("pages:one-pool")) if mutant.what.endswith("drain: guard 'drained' dropped"))
    assert any("isolated_write is proved, and violated by a run" in line for line in found.disagreements)


def test_a_prover_that_believes_every_claim_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nothing had to be shown of initial states and of actions."""
    monkeypatch.setattr(conditions.Induction, "steps", lambda self, name: ())
    found = tally(mutant for mutant in mutants(load_spec("pages:one-pool")) if mutant.what.endswith("drain: guard 'drained' dropped"))
    assert found.disagreements


def test_mutants_are_as_many_as_there_are_places() -> None:
    counts = {spec: len({mutant.system for mutant in mutants(load_spec(spec))}) for spec in SPECS}
    assert counts["handoff"] > 200
    assert counts["pages:one-pool"] > 50


def test_one_literal_is_flipped() -> None:
    system = load_spec("pages:one-pool")
    (guard,) = [guard for guard in system.action("post").guards if guard.name == "not yet written"]
    assert len(set(flips(guard.condition))) == 2
    for mutant in mutants(system):
        assert sum(ours != theirs for ours, theirs in zip(system.actions, mutant.system.actions, strict=True)) >= 1
