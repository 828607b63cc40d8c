"""Damaged logs: no crash, and no `holds` for what is no run."""

from __future__ import annotations

from random import Random

import pytest

from tests.engines.log import damage
from tests.engines.log.runs import FAMILIES, Outcome, mutated

SOME = ("handoff", "handoff:sglang-0.5.21", "cached", "pages:one-pool-without-quarantine")


def judged(count: int, seed: int) -> set[str]:
    random = Random(seed)
    logs = [(family, lines) for family in map(FAMILIES.__getitem__, SOME) for lines in damage.sources(family, 2)]
    return {damage.judge(family, damage.damaged(random, lines)) for family, lines in (logs[n % len(logs)] for n in range(count))}


def test_damaged_lines() -> None:
    assert judged(800, 1) >= {"error", "refused", "violated", "passed"}


@pytest.mark.slow
def test_many_damaged_lines() -> None:
    judged(100_000, 2)


def test_a_monitor_that_passes_everything_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage, "generated", lambda family, log: Outcome())
    monkeypatch.setattr(damage, "damaged", mutated)
    with pytest.raises(AssertionError):
        judged(200, 3)
