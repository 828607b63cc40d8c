"""Random walks: deterministic, biased to what is new, and honest about what they cover."""

from __future__ import annotations

import pytest

from kvmodel.errors import UsageError
from kvmodel.language.build import Builder, add, eq, less, not_, var
from kvmodel.language.instance import Instance
from kvmodel.readings.sampled import Move, Sampler, Sight
from kvmodel.readings.walk import Walker, walk
from kvmodel.verdict import Verdict
from tests.readings.sampled_systems import counter, starts, switches


def test_one_seed_gives_one_result() -> None:
    assert walk(switches(), runs=20, steps=15, seed=3) == walk(switches(), runs=20, steps=15, seed=3)
    traces = [walk(switches(), runs=20, steps=15, seed=seed).trace for seed in range(5)]
    assert len({trace.steps for trace in traces if trace is not None}) > 1


def test_a_violation_is_found_and_shrunk_to_a_replayed_trace() -> None:
    result = walk(switches(5), runs=50, steps=40)
    found = result["stays_shut"]
    assert found.verdict is Verdict.VIOLATED
    assert found.length == 6
    assert found.trace is not None
    assert found.trace.property == "stays_shut"
    assert result["opens"].verdict is Verdict.HOLDS
    assert result["opens"].length == 6


def test_what_was_not_violated_holds_as_far_as_was_sampled() -> None:
    result = walk(switches(), ["sensible", "never"], runs=7, steps=9)
    assert result["sensible"].verdict is Verdict.HOLDS
    assert str(result["sensible"].coverage) == "sampled (Thing=3, up to 9 steps, 7 runs)"
    assert result["never"].verdict is Verdict.UNDECIDED
    assert result["never"].reason == "not seen in 7 runs; only an exhaustive check can say that it is impossible"
    assert result.verdict is Verdict.UNDECIDED
    assert result.asked == ("sensible", "never")
    assert dict(result.statistics)["runs"] == 7
    assert sum(count for _, count in result.fired) == dict(result.statistics)["steps"]


def test_ranges_assertions_and_dead_ends_are_judged() -> None:
    result = walk(counter(), runs=40, steps=10)
    assert {found.name: found.length for found in result.properties} == {"assert:use:first": 2, "range:used": 3, "no_deadlock": 1}


def test_a_violated_initial_state_is_a_run_of_no_steps() -> None:
    assert walk(starts(), runs=10, steps=5)["good"].length == 0


def noisy() -> Instance:
    """An action with 25 bindings that is always enabled, beside a chain of ten steps that is rarely continued by chance."""
    b = Builder("noisy")
    thing = b.sort("Thing")
    last = b.function("last", to=thing, initial=0)
    done = b.counter("done", high=10)
    x, y = var("x", thing), var("y", thing)
    b.action("noise", x, y, updates=[last.set(x), done.set(0)])
    for number in range(10):
        b.action(f"step_{number}", guards={"next": eq(done(), number)}, updates=[done.set(add(done(), 1))])
    b.invariant("unfinished", less(done(), 10))
    return Instance.make(b.build(), {"Thing": 5})


def test_actions_fired_less_often_are_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise has 25 bindings of 26 and sets the chain back; the bias brings the chain to its end all the same."""
    result = walk(noisy(), runs=30, steps=60)
    assert result["unfinished"].length == 10
    assert dict(result.fired)["noise"] < 0.5 * sum(count for _, count in result.fired)

    def plain(self: Walker, start: object, sight: Sight) -> Move:
        moves = [move for found in sight.moves.values() for move in found]
        return moves[self.random.randrange(len(moves))]

    monkeypatch.setattr(Walker, "_choose", plain)
    assert walk(noisy(), runs=30, steps=60)["unfinished"].verdict is Verdict.HOLDS


def test_states_seen_less_often_are_preferred() -> None:
    """Among the bindings of one action, the one that leads somewhere new."""
    b = Builder("corridors")
    thing = b.sort("Thing")
    at = b.function("at", to=thing, initial=0)
    x = var("x", thing)
    b.action("go", x, guards={"away": not_(eq(at(), x))}, updates=[at.set(x)])
    instance = Instance.make(b.build(), {"Thing": 40})
    walker = Walker(Sampler(instance, instance.system.properties), 0)
    walker.run(80)
    assert len(walker.seen) >= 38  # 35 by chance


def test_it_stops_at_its_timeout_and_says_how_far_it_came() -> None:
    result = walk(switches(), ["sensible", "stays_shut"], runs=100_000, steps=30, timeout=0.05)
    done = dict(result.statistics)["runs"]
    assert isinstance(done, int)
    assert done < 100_000
    assert result["sensible"].verdict is Verdict.UNDECIDED
    assert result["sensible"].reason == f"timeout after {done:,} of 100,000 runs"
    assert result["stays_shut"].verdict is Verdict.VIOLATED


def test_an_interrupt_keeps_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def progress(line: str) -> None:
        told.append(line)
        raise KeyboardInterrupt

    ticks = iter(range(10_000))
    monkeypatch.setattr("kvmodel.readings.walk.time.monotonic", lambda: 0.01 * next(ticks))
    result = walk(switches(), ["sensible", "stays_shut"], runs=10_000, steps=30, progress=progress)
    assert len(told) == 1
    assert "of 10,000 runs, " in told[0]
    assert result["sensible"].reason.startswith("interrupted after ")
    assert result["stays_shut"].verdict is Verdict.VIOLATED


def test_an_unknown_property_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean 'stays_shut'"):
        walk(switches(), ["stay_shut"], runs=1, steps=1)
