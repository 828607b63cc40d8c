"""The bounded reading agrees with a naive breadth-first search, says what it covered, and a mistake in it is seen."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from itertools import count

import pytest

from kvmodel.errors import InternalError, MalformedSystem, UsageError
from kvmodel.language.build import Builder, and_, at_most, eq, less, not_, var
from kvmodel.language.instance import Instance
from kvmodel.language.load import load_spec
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import Action, Update
from kvmodel.readings import bmc as reading
from kvmodel.readings.bmc import bmc
from kvmodel.readings.circuit import TRUE
from kvmodel.readings.encoding import BINDING, MEANING, Encoding, Signal
from kvmodel.readings.explore import explore
from kvmodel.readings.orders import Difference, smallest_numbers
from kvmodel.readings.symmetry import Symmetry
from kvmodel.verdict import FindingKind, Result, Verdict
from tests.agreement.oracle import Oracle
from tests.agreement.random_systems import Case
from tests.agreement.test_random_systems import drawn, is_small
from tests.readings.bounded_systems import SYSTEMS

LARGE = 20_000


@cache
def oracle(name: str) -> Oracle:
    return Oracle(SYSTEMS[name](), LARGE)


def diameter(found: Oracle) -> int:
    return max(found.depths.values())


def differences(result: Result, expected: Oracle, depth: int) -> list[str]:
    """Where a result is not what the oracle says of runs of up to `depth` steps, or claims more than was done."""
    found = []
    for answer in result.properties:
        verdict, length = expected.answers[answer.name]
        if length is not None and length > depth:
            verdict, length = (Verdict.UNDECIDED if answer.reachable else Verdict.HOLDS), None
        elif length is None and answer.reachable and answer.coverage.word == "this depth":
            verdict = Verdict.UNDECIDED
        if (answer.verdict, answer.length) != (verdict, length):
            found.append(f"{answer.name}: {answer.verdict.value} {answer.length}, not {verdict.value} {length}")
        if answer.trace is None and answer.coverage.steps not in (depth, None):
            found.append(f"{answer.name}: covers {answer.coverage}")
        if answer.coverage.word == "this size" and "recurrence diameter" not in answer.reason:
            found.append(f"{answer.name}: {answer.coverage.word} for no reason")
    return found


# -- agreement ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SYSTEMS)
def test_verdicts_and_shortest_lengths_are_those_of_the_oracle(name: str) -> None:
    expected = oracle(name)
    deepest = diameter(expected) + 1
    for depth in sorted({0, 1, deepest // 2, deepest}):
        assert differences(bmc(expected.instance, depth=depth), expected, depth) == []
    assert differences(bmc(expected.instance, depth=deepest, complete=True), expected, deepest) == []


@pytest.mark.parametrize("name", SYSTEMS)
def test_each_property_alone_has_the_same_answer(name: str) -> None:
    """The elements that are kept apart depend on the properties that are asked for; the answers do not."""
    expected = oracle(name)
    depth = min(diameter(expected) + 1, 6)
    for candidate in expected.instance.system.properties:
        result = bmc(expected.instance, [candidate.name], depth=depth)
        assert result.asked == (candidate.name,)
        assert differences(result, expected, depth) == []


def test_the_systems_show_what_they_are_made_for() -> None:
    """Violations late and early, of every kind, and counters out of range in both directions."""
    lengths = {found: {p: length for p, (_, length) in oracle(found).answers.items()} for found in SYSTEMS}
    assert lengths["stages"]["somebody_is_not_done"] == 9
    assert lengths["stages"]["assert:to_done:untagged"] == 4
    assert lengths["leftovers"]["blank_or_own"] == 1
    assert (lengths["counters"]["range:free"], lengths["counters"]["range:references"]) == (2, 2)
    assert lengths["counters"]["overshoot"] == 3
    assert lengths["pointers"]["all_marked"] == 7
    assert lengths["still"]["no_deadlock"] == 0


def agreement_on_random_systems(examples: int, number: int) -> int:
    """Compare with the oracle on random systems; gives how many were compared."""
    seen: set[Case] = set()

    def agree(case: Case) -> None:
        if case in seen or not is_small(case):
            return
        seen.add(case)
        expected = Oracle(case.instance)
        depth = diameter(expected) + 1
        complete = len(seen) % 2 == 0
        assert differences(bmc(case.instance, depth=depth, complete=complete), expected, depth) == []

    drawn(examples, number)(agree)()
    return len(seen)


def test_random_systems() -> None:
    assert agreement_on_random_systems(40, 21) >= 25


@pytest.mark.slow
def test_many_random_systems() -> None:
    assert agreement_on_random_systems(600, 22) >= 300


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec", ["handoff", "handoff:buggy", "handoff:abort-without-quarantine", "handoff:quarantine-gives-up", "handoff:zero-on-free-alone"]
)
def test_shipped_specs(spec: str) -> None:
    instance = Instance.make(load_spec(spec), {"Request": 2, "Page": 1})
    expected = explore(instance)
    found = bmc(instance, depth=20)
    assert [(p.name, p.verdict, p.length) for p in found.properties] == [(p.name, p.verdict, p.length) for p in expected.properties]


def test_the_incident() -> None:
    result = bmc(Instance.make(load_spec("handoff:buggy"), {"Request": 2, "Page": 2}), ["isolated_read"], depth=20)
    assert result["isolated_read"].length == 13
    assert result.trace is not None
    actions = [step.action for step in result.trace.steps]
    assert actions.index("reject") < actions.index("prefill_door") < actions.index("send") < actions.index("commit") < actions.index("read")


# -- what is said of it ------------------------------------------------------------------------------------------------


def test_an_unknown_property_is_named() -> None:
    with pytest.raises(UsageError, match="switch has no property 'of'; did you mean 'off'"):
        bmc(SYSTEMS["switch"](), ["of"], depth=3)


def test_what_was_not_reached_is_undecided_and_says_so() -> None:
    result = bmc(SYSTEMS["stages"](), ["all_tagged", "somebody_is_not_done", "tagged_is_not_new"], depth=5)
    assert result.verdict is Verdict.UNDECIDED
    assert result.coverage.steps == 5
    assert (result["all_tagged"].verdict, result["all_tagged"].reason) == (Verdict.UNDECIDED, "no run of up to 5 steps shows it")
    assert (result["somebody_is_not_done"].verdict, result["somebody_is_not_done"].coverage.word) == (Verdict.HOLDS, "this depth")


def test_this_size_names_its_threshold() -> None:
    instance = SYSTEMS["stages"]()
    short = bmc(instance, ["tagged_is_not_new", "never"], depth=11, complete=True)
    assert short["tagged_is_not_new"].coverage.word == "this depth"
    assert short["tagged_is_not_new"].reason == "longer runs reach new states: loop-free paths of 12 steps exist"
    assert short["never"].verdict is Verdict.UNDECIDED
    whole = bmc(instance, ["tagged_is_not_new", "never"], depth=12, complete=True)
    threshold = "no loop-free path of 13 steps: recurrence diameter 12"
    assert (whole["tagged_is_not_new"].verdict, whole["tagged_is_not_new"].reason) == (Verdict.HOLDS, threshold)
    assert (whole["never"].verdict, whole["never"].reason, whole["never"].trace) == (Verdict.VIOLATED, threshold, None)
    assert whole.coverage.word == "this size"


def test_a_threshold_covers_the_steps_that_leave_the_last_states() -> None:
    """An assertion is broken by a step, so it is asked for one step beyond the last new state."""
    b = Builder("last")
    on = b.relation("on")
    b.action("turn", guards={"off": not_(on())}, updates=[on.set(True)])
    b.action("again", guards={"on": on()}, asserts={"off": not_(on())})
    result = bmc(Instance.make(b.build()), ["assert:again:off"], depth=1, complete=True)
    assert (result.verdict, result["assert:again:off"].length) == (Verdict.VIOLATED, 2)


def test_no_time_decides_nothing() -> None:
    result = bmc(SYSTEMS["stages"](), depth=9, timeout=1e-9)
    assert {p.verdict for p in result.properties} == {Verdict.UNDECIDED}
    assert {p.reason for p in result.properties} == {"timeout before any state was looked at"}
    assert result.coverage.steps == 0


def interrupting(monkeypatch: pytest.MonkeyPatch, at: str) -> Callable[[str], None]:
    """A progress callback that presses Ctrl-C at a line."""
    monkeypatch.setattr(reading, "BETWEEN_PROGRESS", 0.0)

    def progress(line: str) -> None:
        if line.startswith(at):
            raise KeyboardInterrupt

    return progress


def test_ctrl_c_keeps_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = interrupting(monkeypatch, "depth 4: somebody_is_not_done")
    result = bmc(SYSTEMS["stages"](), depth=9, progress=progress)
    assert (result["done_first"].verdict, result["done_first"].length) == (Verdict.HOLDS, 3)
    assert (result["one_at_a_time"].verdict, result["one_at_a_time"].length) == (Verdict.VIOLATED, 4)
    left = result["somebody_is_not_done"]
    assert (left.verdict, left.reason, left.coverage.steps) == (Verdict.UNDECIDED, "interrupted after depth 3", 3)
    assert result.coverage.steps == 3


def test_ctrl_c_at_the_threshold_is_no_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Builder("last")
    on = b.relation("on")
    b.action("turn", guards={"off": not_(on())}, updates=[on.set(True)], asserts={"off": not_(on())})
    b.invariant("fine", eq(on(), on()))
    result = bmc(Instance.make(b.build()), depth=3, complete=True, progress=interrupting(monkeypatch, "depth 2: assert"))
    assert (result["assert:turn:off"].verdict, result["assert:turn:off"].coverage.steps) == (Verdict.UNDECIDED, 1)
    assert result["fine"].verdict is Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("answer", "timeout", "reason"),
    [
        ("interrupted from keyboard", None, "interrupted after depth 1"),
        ("timeout", 60.0, "timeout after depth 1"),
        ("canceled", 60.0, "timeout after depth 1"),
        ("out of memory", None, "the solver gave up (out of memory) after depth 1"),
    ],
)
def test_a_solver_that_does_not_know_decides_nothing(
    monkeypatch: pytest.MonkeyPatch, answer: str, timeout: float | None, reason: str
) -> None:
    z3 = import_module("z3")
    check = z3.Solver.check
    calls = count()

    def fails(self: object, *assumptions: object) -> object:
        # two for the start, one at depth 0, one for the first step, one at depth 1: the sixth is the query at depth 2
        return z3.unknown if next(calls) >= 5 else check(self, *assumptions)

    monkeypatch.setattr(z3.Solver, "check", fails)
    monkeypatch.setattr(z3.Solver, "reason_unknown", lambda self: answer)
    result = bmc(SYSTEMS["stages"](), ["somebody_is_not_done"], depth=9, timeout=timeout)
    found = result["somebody_is_not_done"]
    assert (found.verdict, found.reason, found.coverage.steps) == (Verdict.UNDECIDED, reason, 1)


def test_nothing_happened_is_a_finding() -> None:
    (finding,) = bmc(SYSTEMS["still"](), depth=3).findings
    assert finding.kind is FindingKind.NOTHING_HAPPENED
    assert bmc(SYSTEMS["switch"](), depth=3, complete=True).findings == ()


def test_contradictions_are_errors_and_no_proof() -> None:
    def built(assumed: bool) -> Instance:
        b = Builder("nowhere")
        low, high, on = b.number("low"), b.number("high"), b.relation("on")
        b.invariant("never", not_(on()))
        b.action("turn", updates=[on.set(True)])
        if assumed:
            b.assume("below", less(low(), high()))
            b.assume("above", at_most(high(), low()))
        else:
            b.initially("on", on())
        return Instance.make(b.build())

    with pytest.raises(UsageError, match="the assumptions of nowhere contradict each other"):
        bmc(built(True), depth=2)
    with pytest.raises(UsageError, match="nowhere has no initial state at .*its initial conditions contradict each other"):
        bmc(built(False), depth=2)


def test_two_writes_to_one_place_are_refused() -> None:
    instance = SYSTEMS["switch"]()
    system = instance.system
    twice = Action("turn", (), (), (), (Update("on", (), system.actions[0].updates[0].value),) * 2)
    with pytest.raises(MalformedSystem, match="switch: turn may write one place twice in one step"):
        bmc(Instance.make(replace(system, actions=(twice,))), depth=2)


def test_one_seed_gives_one_answer() -> None:
    first, second = (bmc(SYSTEMS["pointers"](), depth=8, seed=5) for _ in range(2))
    assert [p.trace for p in first.properties] == [p.trace for p in second.properties]
    assert first.statistics == second.statistics


def test_progress_is_told_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    bmc(SYSTEMS["stages"](), ["somebody_is_not_done"], depth=3, progress=lines.append)
    assert lines[0] == "encoding"
    monkeypatch.setattr(reading, "BETWEEN_PROGRESS", 0.0)
    lines.clear()
    bmc(SYSTEMS["stages"](), ["somebody_is_not_done"], depth=2, progress=lines.append)
    assert lines == ["encoding", *(f"depth {depth}: somebody_is_not_done (1 open)" for depth in range(3))]


def test_z3_is_imported_only_by_a_check() -> None:
    code = "import sys, kvmodel.readings.bmc; print('z3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


# -- mistakes, made on purpose -----------------------------------------------------------------------------------------


def trouble(name: str) -> list[str]:
    """What the comparison with the oracle says of a system, or the internal error that a trace led to."""
    expected = oracle(name)
    depth = min(diameter(expected) + 1, 7)
    try:
        return differences(bmc(expected.instance, depth=depth), expected, depth)
    except InternalError as error:
        return [str(error)]


def noticed() -> bool:
    return any(trouble(name) for name in SYSTEMS)


def wrong(meaning: Callable[[Encoding, Sequence[Signal]], Signal]) -> Callable[[Encoding, Sequence[Signal]], Signal]:
    """A meaning that is a little off: the opposite truth, or a value that is mistaken for another."""

    def changed(encoding: Encoding, parts: Sequence[Signal]) -> Signal:
        signal = meaning(encoding, parts)
        if isinstance(signal, int):
            return -signal
        keys = list(signal)
        return {key: signal[other] for key, other in zip(keys, [*keys[1:], keys[0]], strict=True)}

    return changed


@pytest.mark.parametrize("operator", Operator)
def test_a_mistake_in_an_operator_is_noticed(monkeypatch: pytest.MonkeyPatch, operator: Operator) -> None:
    monkeypatch.setitem(MEANING, operator, wrong(MEANING[operator]))
    assert noticed()


@pytest.mark.parametrize("binder", Binder)
def test_a_mistake_in_a_binder_is_noticed(monkeypatch: pytest.MonkeyPatch, binder: Binder) -> None:
    monkeypatch.setitem(BINDING, binder, wrong(BINDING[binder]))
    assert noticed()


@pytest.mark.parametrize("operator", Operator)
def test_an_operator_without_a_meaning_is_an_internal_error(monkeypatch: pytest.MonkeyPatch, operator: Operator) -> None:
    monkeypatch.delitem(MEANING, operator)
    assert any("no meaning for operator" in line for name in SYSTEMS for line in trouble(name))


@pytest.mark.parametrize("binder", Binder)
def test_a_binder_without_a_meaning_is_an_internal_error(monkeypatch: pytest.MonkeyPatch, binder: Binder) -> None:
    monkeypatch.delitem(BINDING, binder)
    assert any("no meaning for binder" in line for name in SYSTEMS for line in trouble(name))


def test_a_trace_that_does_not_replay_names_its_property(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards that are forgotten."""
    monkeypatch.setattr(Encoding, "_guard", lambda self, action: self._guards.setdefault(action.name, ()))
    with pytest.raises(InternalError, match="the bounded reading's trace for 'one_at_a_time' does not replay: step 1"):
        bmc(SYSTEMS["stages"](), ["one_at_a_time"], depth=5)


def test_numbers_that_nobody_has_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparisons that contradict each other are taken for a deployment."""

    def lenient(slots: Sequence[int], differences: Sequence[Difference]) -> dict[int, int]:
        return smallest_numbers(slots, differences) or dict.fromkeys(slots, 0)

    monkeypatch.setattr("kvmodel.readings.encoding.smallest_numbers", lenient)
    assert any("does not replay" in line for line in trouble("numbers"))


def test_a_frame_that_is_forgotten_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Encoding, "_frame", lambda self, writers: None)
    assert noticed()


def test_a_symmetry_that_is_none_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(self: Symmetry) -> Iterator[str]:
        yield from ()

    assert trouble("elected") == []
    monkeypatch.setattr(Symmetry, "_named_sorts", nothing)
    assert trouble("elected")


def test_elements_that_are_kept_apart_are_not_put_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for one binding only and putting all elements in order would lose violations."""
    b = Builder("order")
    node = b.sort("Node")
    first, second = b.relation("first", node), b.relation("second", node)
    n, m = var("n", node), var("m", node)
    b.action("one", n, guards={"none": not_(first(n))}, updates=[first.set(True, n)])
    b.action("two", n, m, guards={"other": and_(first(m), not_(eq(n, m)))}, updates=[second.set(True, n)])
    b.invariant("never", not_(second(n)), n)
    instance = Instance.make(b.build(), {"Node": 3})
    assert bmc(instance, ["never"], depth=4)["never"].length == 2
    monkeypatch.setattr(Symmetry, "chains", lambda self: iter([("Node", (0, 1, 2))]))
    assert bmc(instance, ["never"], depth=2)["never"].length is None


def test_a_comparison_of_truth_with_a_value_is_an_internal_error() -> None:
    with pytest.raises(InternalError, match="took a truth value for a value"):
        MEANING[Operator.LT](Encoding(SYSTEMS["switch"](), ()), [TRUE, TRUE])
    with pytest.raises(InternalError, match="took a value for a truth value"):
        MEANING[Operator.NOT](Encoding(SYSTEMS["switch"](), ()), [{None: TRUE}])
