"""What the table of docs/variants.md says of one size, proofs say of any: a property is proved exactly where exploration finds
no violation. An exact count has no meaning at any size: of a spec that promises one nothing is proved, and the reason says so."""

from __future__ import annotations

import pytest

from kvmodel.language.load import load_spec
from kvmodel.readings.induction import prove
from kvmodel.readings.solver import Answer
from tests.specs.proofs import COUNTING
from tests.specs.variants import COLUMNS, SPECS, pinned

OFTEN = ("cached", "cached:hit-and-new")
RANGES = {"cached:uncounted": {"range:entries": True, "range:references": False}}  # of nine requests that share a page, nine are counted


@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec not in COUNTING])
def test_a_property_is_proved_exactly_where_exploration_finds_no_violation(spec: str) -> None:
    cells = dict(zip(COLUMNS, (cell.strip() for cell in pinned()[spec].split("|")[2:]), strict=False))
    proof = prove(load_spec(spec), jobs=1)
    expected = {name: cell == "holds" for name, cell in cells.items() if cell} | RANGES.get(spec, {})
    assert {name: proof.proved(name) for name in proof.asked} == expected
    assert all(result.answer is Answer.PROVED for result in proof.conditions)
    # what is not proved has a counterexample that the interpreter has confirmed, and no condition was given up
    assert {result.answer for result in proof.open.values()} <= {Answer.REFUTED}
    assert set(proof.counterexamples) == {name for name in proof.asked if not proof.proved(name)}


def test_what_counts_exactly_is_the_cache_and_its_faults() -> None:
    assert {spec for spec in SPECS if spec.startswith("cached")} - {"cached:uncounted"} == set(COUNTING)


@pytest.mark.parametrize("spec", [pytest.param(spec, marks=() if spec in OFTEN else pytest.mark.slow) for spec in COUNTING])
def test_where_references_are_counted_nothing_is_proved(spec: str) -> None:
    proof = prove(load_spec(spec), jobs=1)
    assert not any(proof.proved(name) for name in proof.asked)
    assert "a count over a sort has no meaning at any size" in proof.open["no_double_free"].reason
