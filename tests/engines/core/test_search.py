"""Searching, playing again and making short; what an engine raises; and the comparison with the spec's steps."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from kvmodel.engine_testing import check_engine, play_calls, told
from kvmodel.engines import observer
from kvmodel.engines.allocator_driver import AllocatorDriver
from kvmodel.engines.check import engine_result
from kvmodel.engines.conformance import not_allowed
from kvmodel.engines.driver import EngineViolation, Record, failure_of
from kvmodel.engines.machine import machine_for, search
from kvmodel.engines.play import play, shortened
from kvmodel.errors import EngineDriftError, UsageError
from kvmodel.language.instance import Binding, Instance, State
from kvmodel.language.load import load_spec
from kvmodel.language.types import Value
from kvmodel.readings.compiled import CompiledSystem
from kvmodel.readings.initial import initial_states
from kvmodel.readings.run import Interpreter
from kvmodel.traces.observed import Call
from kvmodel.traces.trace import Choice, Trace
from kvmodel.verdict import Verdict
from tests.engines.core.allocators import BUGS, Full, make
from tests.engines.core.test_mapping import values_of
from tests.engines.core.toy import ToyEngine, toy

ADMIT: Call = {"verb": "admit", "request": "r0", "tokens": (0, 1, 0)}
AGAIN: Call = {"verb": "admit", "request": "r1", "tokens": (0, 1, 1)}
FREE: Call = {"verb": "free", "request": "r0"}


def calls_of(trace: Trace) -> tuple[Call, ...]:
    assert trace.observed is not None
    return trace.observed.calls


def violation_of(build: Callable[[], Any], calls: list[Call]) -> EngineViolation:
    with pytest.raises(EngineViolation) as caught:
        play(build, "full", calls)
    return caught.value


# -- searching


def test_one_seed_gives_one_search() -> None:
    def run(seed: int) -> tuple[dict[str, int], list[tuple[Call, ...]]]:
        record = search(make(BUGS["leak on release"]), "full", examples=10, steps=20, seed=seed, shrink=False)
        return record.done, [calls_of(trace) for trace in record.found.values()]

    first = run(1)
    assert first == run(1)
    assert first[1]
    assert first[0] != run(2)[0]


def test_a_search_that_is_out_of_time_says_so() -> None:
    record = search(make(), "full", examples=10_000, steps=30, timeout=0.3)
    result = engine_result(record, "full", AllocatorDriver.verbs)
    assert record.stopped == "out of time"
    assert record.runs > 0
    assert {entry.verdict for entry in result.properties} == {Verdict.UNDECIDED}
    assert {entry.reason for entry in result.properties} == {"out of time"}


def interrupting(after: int) -> Callable[[], Full]:
    """An allocator that counts the runs; somebody presses Ctrl-C in one of them."""
    runs = 0

    def build() -> Full:
        nonlocal runs
        runs += 1
        if runs > after:
            raise KeyboardInterrupt
        return make(BUGS["hit stays free"])()

    return build


def test_an_interrupted_search_keeps_what_it_found() -> None:
    record = search(interrupting(30), "full", ["isolated_write"], examples=200, steps=30, seed=8, shrink=False)
    result = engine_result(record, "full", AllocatorDriver.verbs)
    assert record.stopped == "interrupted"
    verdicts = {entry.name: entry.verdict for entry in result.properties}
    assert verdicts["pages_conserved"] is Verdict.VIOLATED  # seen, though nobody asked for it
    assert verdicts["isolated_write"] is Verdict.UNDECIDED
    assert result.verdict is Verdict.VIOLATED


def test_progress_is_told() -> None:
    told_lines: list[str] = []
    search(make(), "full", examples=5, steps=5, progress=told_lines.append)
    assert told_lines[0] == "1 runs, 0 calls"


def test_the_state_machine_stands_in_a_test_suite_of_its_own() -> None:
    machine = machine_for(make(), "docs-full")
    assert machine.__name__ == "DocsFullMachine"
    assert machine.TestCase
    assert machine_for(toy(), "toy").__name__ == "ToyMachine"


def test_each_property_has_a_failure_of_its_own() -> None:
    """Hypothesis tells failures apart by their class."""
    assert failure_of("isolated_read") is failure_of("isolated_read")
    assert failure_of("isolated_read") is not failure_of("fresh_read")
    assert issubclass(failure_of("isolated_read"), AssertionError)


# -- playing again


@pytest.mark.parametrize("name", ["key survives reuse", "reset while used"])
def test_no_call_can_be_left_out_of_a_short_run(name: str) -> None:
    bug = BUGS[name]
    record = search(make(bug), "full", [bug.found], examples=60, steps=30, seed=bug.seed)
    calls = list(calls_of(record.found[bug.found]))
    assert violation_of(make(bug), calls).name == bug.found
    for number in range(len(calls)):
        trace = play_calls(make(bug), [*calls[:number], *calls[number + 1 :]], name="full")
        assert trace is None or trace.property != bug.found or len(trace.steps) >= len(calls)  # it drains after the calls
    requests = list(dict.fromkeys(call["request"] for call in calls if "request" in call))
    assert requests == [f"r{number}" for number in range(len(requests))]


def test_a_run_that_does_not_show_its_violation_again_is_given_back() -> None:
    bug = BUGS["leak on release"]
    trace = violation_of(make(bug), [ADMIT, FREE]).trace
    assert shortened(make(), "full", "pages_conserved", trace) is trace
    assert shortened(make(bug), "full", "isolated_write", trace) is trace


def test_what_can_be_left_out_is() -> None:
    bug = BUGS["evict frees"]
    noise: list[Call] = [
        *({"verb": "admit", "request": "r7", "tokens": (1,), "salt": "tenant"}, {"verb": "detach", "request": "r7"}),
        *({**ADMIT, "salt": "tenant"}, {"verb": "release", "request": "r7"}, {"verb": "extend", "request": "r0", "token": 1}),
        {"verb": "evict", "pages": (0, 1, 2, 3, 4)},
    ]
    short = shortened(make(bug), "full", "pages_conserved", violation_of(make(bug), noise).trace)
    admit, evict = calls_of(short)
    assert (admit["request"], admit["tokens"], admit["salt"]) == ("r0", (0, 0), None)
    assert (evict["verb"], evict["pages"]) == ("evict", (0,))


def test_calls_that_make_no_sense_are_left_out() -> None:
    calls: list[Call] = [
        *(FREE, {"verb": "arrived", "request": "r0"}, {"verb": "release", "request": "r0"}, {"verb": "extend", "request": "r0"}),
        *(ADMIT, ADMIT, {"verb": "nothing"}, FREE, FREE),
    ]
    assert play_calls(make(), calls) is None
    with pytest.raises(UsageError, match="none of these calls makes sense for adapter"):
        play_calls(toy(), calls)  # of an allocator
    assert play_calls(toy(), []) is None


def test_a_run_that_ends_is_held_to_the_properties_too() -> None:
    trace = play_calls(make(BUGS["nothing goes back"]), [ADMIT])  # nobody frees: the pages are lost when everything ends
    assert trace is not None
    assert [call["verb"] for call in calls_of(trace)] == ["admit", "free"]
    play(make(BUGS["nothing goes back"]), "full", [ADMIT], drain=False)


# -- what an engine raises


def raising(error: Exception) -> Callable[[], Full]:
    def admit(self: Full, *arguments: object) -> None:
        raise error

    return make(admit=admit)


def test_an_error_of_the_engine_is_a_finding_with_the_call() -> None:
    record = search(raising(ValueError("cannot free twice \x1b[2J")), "full", examples=5)
    assert set(record.found) == {"engine_error"}
    trace = record.found["engine_error"]
    assert trace.observed is not None
    assert trace.observed.finding == "the engine raised ValueError: cannot free twice \\x1b[2J"
    assert calls_of(trace)[0]["tokens"] == (0,)
    result = engine_result(record, "full", AllocatorDriver.verbs)
    entry = next(entry for entry in result.properties if entry.name == "engine_error")
    assert (entry.verdict, entry.reason) == (Verdict.VIOLATED, trace.observed.finding)
    assert {e.verdict for e in result.properties if e is not entry} == {Verdict.UNDECIDED}
    assert "\x1b" not in told(trace)


@pytest.mark.parametrize("error", [AssertionError("count is 0"), KeyError("p0"), IndexError("pop from an empty deque"), RuntimeError("!")])
def test_so_is_an_assertion_of_its_own(error: Exception) -> None:
    violation = violation_of(raising(error), [ADMIT])
    assert violation.name == "engine_error"
    assert type(error).__name__ in str(violation)


@pytest.mark.parametrize("error", [AttributeError("no ref_cnt"), ImportError("no block_pool"), TypeError("missing 1 argument")])
def test_a_release_that_the_adapter_does_not_know_is_never_a_finding(error: Exception) -> None:
    with pytest.raises(EngineDriftError, match=f"reference 1 has no behaviour as the full adapter .* .{type(error).__name__} in admit"):
        search(raising(error), "full", examples=5)
    with pytest.raises(EngineDriftError):
        play(raising(error), "full", [ADMIT])


def test_drift_in_an_engine_is_drift_too() -> None:
    class Changed(ToyEngine):
        def step(self) -> None:
            raise AttributeError("scheduler has no running")

    with pytest.raises(EngineDriftError, match="in schedule: scheduler has no running"):
        play(Changed, "toy", [{"verb": "schedule"}])


def test_a_mistake_in_the_request_stays_one() -> None:
    with pytest.raises(UsageError, match="no such role"):
        play(raising(UsageError("no such role")), "full", [ADMIT])


# -- other people's tests


def test_a_test_of_an_adapter_passes_only_when_everything_was_decided() -> None:
    assert check_engine(make(), examples=10).verdict is Verdict.HOLDS
    with pytest.raises(AssertionError, match="undecided, which is not a pass: no_double_free: the adapter does not map references"):
        check_engine(make(has_references=False), examples=5, steps=10)
    check_engine(make(has_references=False), examples=5, steps=10, undecided=["no_double_free"])
    check_engine(make(has_references=False), ["pages_conserved"], examples=5, steps=10)
    with pytest.raises(UsageError, match="did you mean 'no_double_free'"):
        check_engine(make(), undecided=["no_dubble_free"])


def test_a_test_of_an_adapter_shows_the_run() -> None:
    with pytest.raises(AssertionError) as caught:
        check_engine(make(BUGS["double free"]), ["no_double_free"], examples=30)
    text = str(caught.value)
    assert text.startswith("no_double_free violated\n")
    assert "admit(r0" in text
    assert "free(r0)" in text
    assert "entries" in text


# -- the comparison with the spec's steps


def test_calls_are_steps_of_the_spec_and_the_comparison_says_nothing_else() -> None:
    record = Record()
    calls: list[Call] = [
        *(ADMIT, AGAIN, {"verb": "extend", "request": "r1", "token": 0}, {"verb": "detach", "request": "r0"}),
        *({"verb": "admit", "request": "r2", "tokens": (1, 1), "remote": True}, {"verb": "arrived", "request": "r2"}),
        *({"verb": "release", "request": "r0"}, {"verb": "evict", "pages": (0,)}, {"verb": "reset"}),
        *({"verb": "admit", "request": "r3", "tokens": (0,) * 20}, {"verb": "free", "request": "r1"}),
    ]
    play(make(), "full", calls, record)
    assert record.found == {}
    assert record.compared == record.calls == len(calls) + 1  # r2 ends


@pytest.mark.parametrize(("variant", "verb"), [("free-ignores-count", "free"), ("double-free", "free"), ("hit-stays-free", "admit")])
def test_a_sound_allocator_does_not_follow_a_spec_with_a_fault(variant: str, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the comparison is with the spec, and with all of its effects."""
    faulty = CompiledSystem(load_spec(f"cached:{variant}"), {"Request": 10, "Page": 5, "Prefix": 100}, (), searches=False)
    monkeypatch.setattr(observer, "_steps", lambda pages: faulty)
    third: Call = {"verb": "admit", "request": "r2", "tokens": (0, 1, 1)}
    calls = [ADMIT, AGAIN, FREE, {"verb": "free", "request": "r1"}, third]
    violation = violation_of(make(), calls)
    assert violation.name == "allowed_step"
    assert str(calls_of(violation.trace)[-1]["verb"]) == verb
    assert "no allowed step explains it" in str(violation)


SIZES = {"Request": 2, "Page": 2, "Prefix": 1}


@cache
def steps() -> CompiledSystem:
    return CompiledSystem(load_spec("cached"), SIZES, (), searches=False)


@cache
def start() -> tuple[Interpreter, State]:
    """Two requests that begin alike, and no null page."""
    instance = Instance.make(load_spec("cached"), SIZES)
    interpreter = Interpreter(instance)
    slots = instance.rigid_layout.slots
    wanted = {("null", (0,)): False, ("null", (1,)): False, ("begins_with", (0, 0)): True, ("begins_with", (1, 0)): True}
    return interpreter, next(s for s in initial_states(instance) if all(s.rigid[slots[place]] == value for place, value in wanted.items()))


def seen(state: State) -> dict[str, dict[Binding, Value]]:
    """The values of a state, with the blank ones of variables that do not start blank."""
    instance = start()[0].instance
    values = values_of(instance, state)
    for name, empty in (("free", False), ("entries", 0), ("known", False)):
        places = [index for variable, index in instance.state_layout.places if variable == name]
        values[name] = {index: values[name].get(index, empty) for index in places}
    return values


def test_steps_of_the_spec_are_steps_of_the_spec() -> None:
    """Whatever a step of `cached` does is found again from the two states alone; an allocator computes what it fills at once."""
    interpreter, first = start()
    chance = random.Random(3)
    taken = set()
    for _ in range(30):
        state = first
        for _ in range(20):
            before, enabled = state, interpreter.enabled(state)
            if not enabled:
                break
            choice = chance.choice(enabled)
            state = interpreter.successor(state, choice)
            if choice.action == "fill":
                state = interpreter.successor(state, Choice("compute", choice.binding))
            verb = "reset" if choice.action == "reset" else "admit"
            assert (choice, not_allowed(steps(), verb, seen(before), seen(state))) == (choice, "")
            taken.add(choice.action)
    assert taken >= {"allocate", "hit", "index", "evict", "fill", "post", "land", "begin_read", "end_read", "release", "abort", "drain"}


def changed(values: dict[str, dict[Binding, Value]], name: str, index: Binding, value: Value) -> dict[str, dict[Binding, Value]]:
    return {**values, name: {**values[name], index: value}}


@pytest.mark.parametrize(
    ("name", "index", "value"),
    [
        ("free", (1,), False), ("entries", (1,), 2), ("references", (0,), 2), ("key", (1,), 0), ("twice", (0, 0), True),
        ("detached", (0, 0), True), ("quarantined", (1,), True), ("holds", (1, 0), True), ("known", (1,), False),
    ],
)  # fmt: skip
def test_no_engine_variable_may_differ(name: str, index: Binding, value: Value) -> None:
    interpreter, first = start()
    second = interpreter.successor(first, Choice("allocate", (0, 0)))
    before, after = seen(first), seen(second)
    assert not_allowed(steps(), "admit", before, after) == ""
    assert not_allowed(steps(), "admit", before, changed(after, name, index, value)) != ""
    assert not_allowed(steps(), "", before, before) == ""
    assert not_allowed(steps(), "", before, after) != ""  # a call that was rejected


def test_a_rejected_call_may_change_nothing() -> None:
    """Dropping a key is allowed, but not while a request is turned away."""

    def admit(self: Full, *arguments: Any) -> object:
        found = Full.admit(self, *arguments)
        if found is None:
            self.allocator.index.clear()
        return found

    violation = violation_of(make(admit=admit), [ADMIT, {"verb": "admit", "request": "r1", "tokens": (1,) * 20}])
    assert violation.name == "allowed_step"
    assert calls_of(violation.trace)[-1]["rejected"] is True
