"""The language tried on what comes later: reported faults that need more state than the handoff has, each a small subclass.

Exploration and the bounded reading find the property that the report names, at the same length, and its fix holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from kvmodel.language.instance import Instance
from kvmodel.language.load import load_spec
from kvmodel.readings.bmc import bmc
from kvmodel.readings.explore import explore
from kvmodel.verdict import Verdict

FOLDER = Path(__file__).parent
SHORTEST: dict[str, dict[str, int]] = {
    "kb_07.py:FirstErrorFrees": {"isolated_write": 4, "no_use_after_free": 5},
    "kb_31.py:FreeListAppendsDuplicates": {"no_double_free": 3, "pages_conserved": 4, "exclusive_owner": 5, "range:entries": 6},
    "kb_45.py:LedgerKeyedByName": {"range:jobs": 6, "no_use_after_free": 8},
    "both.py:Both": {"isolated_write": 4, "no_double_free": 3, "pages_conserved": 4},
}
SIZES: dict[str, Mapping[str, int]] = {"kb_45.py:LedgerKeyedByName": {"Request": 2, "Page": 2}}
ONE_PAGE = {"Request": 2, "Page": 1}


def instance(spec: str, flags: Mapping[str, bool] | None = None) -> Instance:
    system = load_spec(f"{FOLDER}/{spec}").with_flags(flags or {})
    return Instance.make(system, SIZES.get(spec, ONE_PAGE))


@pytest.mark.parametrize("spec", SHORTEST)
def test_both_exact_readings_find_the_fault(spec: str) -> None:
    shortest = SHORTEST[spec]
    explored = explore(instance(spec), list(shortest))
    bounded = bmc(instance(spec), list(shortest), depth=max(shortest.values()) + 1)
    for name, length in shortest.items():
        assert (explored[name].verdict, explored[name].length) == (Verdict.VIOLATED, length)
        assert (bounded[name].verdict, bounded[name].length) == (Verdict.VIOLATED, length)


def test_a_ledger_with_an_entry_for_each_job_holds() -> None:
    spec = "kb_45.py:LedgerKeyedByName"
    assert explore(instance(spec, {"keyed_by_job": True})).verdict is Verdict.HOLDS


def test_the_pool_that_they_extend_holds() -> None:
    assert explore(Instance.make(load_spec("pages:one-pool"), {"Request": 2, "Page": 2})).verdict is Verdict.HOLDS


@pytest.mark.parametrize("name", ["kb_07.py", "kb_31.py", "kb_45.py"])
def test_a_fault_is_small(name: str) -> None:
    """Under 30 lines of declarations and statements: documentation, imports and blank lines do not count."""
    text = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    said = [line for line in text if line.strip() and not line.startswith(("from ", '"""')) and '"""' not in line]
    assert len([line for line in said if not line.strip().startswith(("@", '"'))]) < 30
