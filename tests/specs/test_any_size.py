"""What the table of docs/variants.md says of one size, proofs say of any: a property is proved exactly where exploration finds
no violation."""

from __future__ import annotations

import pytest

from kvmodel.language.load import load_spec
from kvmodel.readings.induction import prove
from kvmodel.readings.solver import Answer
from tests.specs.variants import COLUMNS, SPECS, pinned


@pytest.mark.parametrize("spec", SPECS)
def test_a_property_is_proved_exactly_where_exploration_finds_no_violation(spec: str) -> None:
    cells = dict(zip(COLUMNS, (cell.strip() for cell in pinned()[spec].split("|")[2:]), strict=False))
    proof = prove(load_spec(spec), jobs=1)
    assert {name: proof.proved(name) for name in proof.asked} == {name: cell == "holds" for name, cell in cells.items() if cell}
    assert all(result.answer is Answer.PROVED for result in proof.conditions)
    # what is not proved has a counterexample that the interpreter has confirmed, and no condition was given up
    assert {result.answer for result in proof.open.values()} <= {Answer.REFUTED}
    assert set(proof.counterexamples) == {name for name in proof.asked if not proof.proved(name)}
