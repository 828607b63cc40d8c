"""The Hypothesis machine: its rules, what it draws, and the check that drives it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from kvmodel.errors import InstanceError, UsageError
from kvmodel.language.build import Builder, not_, var
from kvmodel.language.instance import Instance
from kvmodel.readings import machine as reading
from kvmodel.readings.machine import PropertyViolated, SpecMachine, check_with_hypothesis, machine_for
from kvmodel.readings.replay import make_trace
from kvmodel.traces.trace import Choice
from kvmodel.verdict import Verdict
from tests.readings.sampled_systems import counter, starts, switches

QUIET = settings(max_examples=100, stateful_step_count=30, database=None, deadline=None, derandomize=True,
                 suppress_health_check=list(HealthCheck), phases=[Phase.generate, Phase.shrink])


def started(instance: Instance, index: int = 0, schedule: int = 0) -> SpecMachine:
    """A machine that has chosen its initial state."""
    machine = machine_for(instance.system, dict(instance.sizes), ["sensible"])()
    machine._begin(index, schedule)
    return machine


def test_there_is_a_rule_for_each_action_named_by_its_argument() -> None:
    machine = machine_for(switches().system)
    rules = machine.setup_state().rules
    assert sorted(name for rule in rules for name in rule.arguments) == ["idle", "open_gate", "turn_off", "turn_on"]
    assert {rule.function.__name__ for rule in rules} == {"step"}
    assert machine.__name__ == "Switches"


def test_a_binding_is_drawn_from_all_and_moved_to_the_next_enabled_one() -> None:
    machine = started(switches(4))
    machine._take("turn_on", 1)
    machine._take("turn_on", 1)  # thing 1 is on: the next one
    machine._take("turn_on", 3)
    machine._take("turn_on", 3)  # round the corner
    assert machine.choices == [Choice("turn_on", (thing,)) for thing in (1, 2, 3, 0)]
    machine._take("turn_off", 2)
    assert machine.choices[-1] == Choice("turn_off", (2,))


def test_a_draw_keeps_its_meaning_when_a_step_before_it_is_deleted() -> None:
    machine = started(switches(4))
    machine._take("turn_on", 2)
    assert machine.choices == [Choice("turn_on", (2,))]


def test_preconditions_and_the_idle_rule_follow_what_is_enabled() -> None:
    machine = started(switches(1))
    assert (machine._can("turn_on"), machine._can("turn_off"), machine._can_nothing()) == (True, False, False)
    b = Builder("once")
    done = b.relation("done")
    b.action("finish", guards={"not yet": not_(done())}, updates=[done.set(True)])
    b.invariant("sensible", True)
    machine = started(Instance.make(b.build()))
    machine._take("finish", 0)
    assert (machine._can("finish"), machine._can_nothing()) == (False, True)
    idle = next(rule for rule in type(machine).setup_state().rules if "idle" in rule.arguments)
    idle.function(machine, idle=0)
    assert machine.choices == [Choice("finish", ())]


def test_actions_may_have_the_names_of_machine_methods() -> None:
    b = Builder("names")
    thing = b.sort("Thing")
    lit = b.relation("lit", thing)
    x = var("x", thing)
    for name in ("teardown", "bundle", "step", "idle", "self_", "start", "record", "check_invariants", "index"):
        b.action(name, x, guards={"dark": not_(lit(x))}, updates=[lit.set(True, x)])
    b.invariant("dark", not_(lit(x)), x)
    with pytest.raises(PropertyViolated, match="dark is violated"):
        run_state_machine_as_test(machine_for(b.build()), settings=QUIET)


def test_a_failure_has_the_property_and_a_run_that_makes_a_trace() -> None:
    instance = switches()
    with pytest.raises(AssertionError) as caught:
        run_state_machine_as_test(machine_for(instance.system, dict(instance.sizes)), settings=QUIET)
    failure = caught.value
    assert isinstance(failure, PropertyViolated)
    assert failure.name == "stays_shut"
    assert str(failure).startswith("stays_shut is violated by this run of switches (Thing=3):\n  start: as declared\n  1. turn_on(t")
    assert len(failure.run) == 4
    assert make_trace(instance, failure.run.start, failure.run.steps, failure.name).states[-1].values[-1] is True
    assert any("state.step(open_gate=0)" in note for note in failure.__notes__)


def test_an_initial_state_can_violate() -> None:
    with pytest.raises(PropertyViolated, match=r"good is violated by this run of starts \(.*\):\n  start: ready = no, bad = yes\n"):
        run_state_machine_as_test(machine_for(starts().system), settings=QUIET)


def test_named_properties_alone_are_watched() -> None:
    run_state_machine_as_test(machine_for(switches().system, {"Thing": 2}, ["sensible", "no_deadlock", "opens"]), settings=QUIET)
    with pytest.raises(UsageError, match="did you mean 'sensible'"):
        machine_for(switches().system, None, ["sensibel"])
    with pytest.raises(InstanceError, match="did you mean 'Thing'"):
        machine_for(switches().system, {"Things": 2})


def test_it_needs_neither_another_reading_nor_internals_of_hypothesis() -> None:
    code = "import sys, kvmodel.readings.machine; print([m for m in ('explore', 'bmc') if f'kvmodel.readings.{m}' in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
    assert "hypothesis.internal" not in Path(reading.__file__).read_text(encoding="utf-8")


# -- schedules ---------------------------------------------------------------------------------------------------------


def test_schedule_0_allows_everything() -> None:
    schedule = reading._schedule(0, ("a", "b"))
    assert schedule.allows({"a": 100, "b": 1}, ("a", "b"), 3) == {"a", "b"}


def test_a_schedule_prefers_the_young_then_the_willing_and_never_leaves_nothing() -> None:
    schedule = reading._Schedule(1.5, frozenset({7}), frozenset({"b", "c"}))
    ages = {"a": 2, "b": 3, "c": 2, "d": 9}
    assert schedule.allows(ages, ("a", "b", "c", "d"), 0) == {"a"}
    assert schedule.allows(ages, ("b", "c", "d"), 0) == {"b", "c"}
    assert schedule.allows(ages, ("d",), 0) == {"d"}
    assert schedule.allows(ages, (), 0) == frozenset()
    assert schedule.allows(ages, ("a", "b", "c", "d"), 7) == {"a", "b", "c", "d"}


def test_the_age_of_an_action_is_how_often_it_was_enabled() -> None:
    machine = started(switches(2))
    machine._take("turn_on", 0)
    machine._take("turn_on", 1)
    assert machine._ages == {"turn_on": 2, "turn_off": 2, "open_gate": 1}
    machine._begin(0, 0)
    assert machine._ages == {"turn_on": 1}


# -- the check ---------------------------------------------------------------------------------------------------------


def test_one_seed_gives_one_result() -> None:
    first, again = (check_with_hypothesis(switches(), ["stays_shut"], examples=50, steps=15, seed=3) for _ in range(2))
    assert first == again


def test_violations_are_found_shrunk_and_replayed() -> None:
    result = check_with_hypothesis(switches(), examples=100, steps=20)
    assert result["stays_shut"].verdict is Verdict.VIOLATED
    assert result["stays_shut"].length == 4
    assert result["opens"].verdict is Verdict.HOLDS
    assert result["opens"].length == 4
    assert result["sensible"].verdict is Verdict.HOLDS
    assert result["sensible"].coverage.word == "sampled"
    assert (result["sensible"].coverage.runs or 0) >= 100
    assert result["never"].verdict is Verdict.UNDECIDED
    assert "not seen in " in result["never"].reason
    assert sum(count for _, count in result.fired) == dict(result.statistics)["steps"]


def test_every_property_gets_its_line_although_runs_end_at_the_first() -> None:
    result = check_with_hypothesis(counter(), examples=100, steps=10)
    assert {found.name: found.length for found in result.properties} == {"assert:use:first": 2, "range:used": 3, "no_deadlock": 1}


def test_the_property_asked_for_is_looked_for_alone() -> None:
    """Runs go on after another violation, so that one that comes first does not hide it."""
    result = check_with_hypothesis(counter(), ["range:used"], examples=50, steps=10)
    assert [found.name for found in result.properties] == ["range:used"]
    assert result["range:used"].length == 3


def test_hypothesis_stops_to_shrink_when_it_gets_no_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    patient = check_with_hypothesis(switches(), ["stays_shut"], examples=200, steps=20, seed=1)
    monkeypatch.setattr(reading, "PATIENCE", 3)
    hasty = check_with_hypothesis(switches(), ["stays_shut"], examples=200, steps=20, seed=1)
    assert int(dict(hasty.statistics)["runs"]) < int(dict(patient.statistics)["runs"])
    assert hasty["stays_shut"].length == 4


def test_it_stops_at_its_timeout() -> None:
    result = check_with_hypothesis(switches(), ["sensible"], examples=100_000, steps=30, timeout=0.3)
    assert result["sensible"].verdict is Verdict.UNDECIDED
    assert result["sensible"].reason == f"timeout after {dict(result.statistics)['runs']:,} runs"


def test_an_interrupt_keeps_what_was_found() -> None:
    def progress(line: str) -> None:
        assert " runs, " in line
        if not line.startswith("1 runs"):
            raise KeyboardInterrupt

    result = check_with_hypothesis(switches(2), ["opens", "sensible"], examples=100_000, steps=30, progress=progress)
    assert result["sensible"].reason.startswith("interrupted after ")
    assert result["opens"].verdict is Verdict.HOLDS


def test_it_writes_no_example_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_with_hypothesis(switches(), ["stays_shut"], examples=30, steps=10)
    assert not list(tmp_path.rglob("examples"))


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    check_with_hypothesis(switches(), ["stays_shut"], examples=50, steps=10)
    assert capfd.readouterr() == ("", "")
