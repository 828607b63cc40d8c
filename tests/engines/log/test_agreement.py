"""The generated monitor and the plain one agree, on runs and on what no longer is one."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from kvmodel.engines.log import monitor
from kvmodel.engines.log.code import handlers
from tests.engines.log.runs import FAMILIES, Outcome, PlainLimit, generated, mutated, plain, plan_of, random_log

SOME = (
    "handoff",
    "handoff:sglang-0.5.16",
    "handoff:sglang-0.5.21",
    "handoff:checked-reads-alone",
    "cached",
    "cached:abort-frees-target",
    "pages:one-pool-without-quarantine",
)


def same(family_name: str, lines: list[bytes], forgetful: bool = False) -> Outcome:
    family = FAMILIES[family_name]
    found = generated(family, b"\n".join(lines) + b"\n", forgetful)
    expected = plain(family, lines)
    if found.stopped:  # an id appears again while something of its request is in flight: the plain monitor tries it as another one
        assert expected.refused
        assert found.broken == {name: line for name, line in expected.broken.items() if line < found.events + 2}
    elif forgetful:  # an event of a request that has ended is no first event of another one: an error instead of a step that is refused
        assert (found.error or found.refused, found.broken) == (expected.error or expected.refused, expected.broken)
    else:
        assert found.answer == expected.answer, b"\n".join(lines).decode()
    return found


@pytest.mark.parametrize("spec", SOME)
def test_random_runs(spec: str) -> None:
    broken: set[str] = set()
    for seed in range(3):
        outcome = same(spec, random_log(FAMILIES[spec], seed, 80))
        assert not outcome.error
        assert not outcome.refused
        broken |= outcome.broken.keys()
    if spec in ("handoff", "cached"):
        assert not broken


@pytest.mark.parametrize("spec", SOME)
def test_mutated_runs(spec: str) -> None:
    random = Random(1)
    notices = 0
    for seed in range(2):
        lines = random_log(FAMILIES[spec], seed, 80)
        for _ in range(4):
            with suppress(PlainLimit):
                notices += not same(spec, mutated(random, lines)).good
    assert notices


@pytest.mark.parametrize("spec", SOME)
def test_forgetting_changes_nothing(spec: str) -> None:
    random = Random(3)
    for seed in range(3):
        lines = random_log(FAMILIES[spec], seed, 80)
        same(spec, lines, forgetful=True)
        with suppress(PlainLimit):
            same(spec, mutated(random, lines), forgetful=True)


def test_forgetting_too_much_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "forgettable", lambda state, names, ended: names.elements())
    with pytest.raises((AssertionError, KeyError)):
        test_forgetting_changes_nothing("handoff")


@pytest.mark.slow
@pytest.mark.parametrize("spec", FAMILIES)
def test_many_mutated_runs(spec: str) -> None:
    random = Random(2)
    for seed in range(100, 300):
        lines = random_log(FAMILIES[spec], seed, 120)
        for _ in range(10):
            with suppress(PlainLimit):
                same(spec, mutated(random, lines))


def test_the_plain_monitor_would_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A monitor that looks at no property does not agree."""
    family = FAMILIES["handoff:sglang-0.5.21"]
    plan = plan_of(family.spec)
    lines = next(lines for seed in range(50) if plain(family, lines := random_log(family, seed, 80)).broken)
    makers, _, _ = handlers(plan.parts, plan.layout, plan.events, (), {}, ())
    monkeypatch.setattr(plan, "makers", makers)
    with pytest.raises(AssertionError):
        same(family.spec, lines)
