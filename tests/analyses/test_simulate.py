"""The simulation: what it finds at a small scale, and for each of its seven checks a way to make it fail."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from kvmodel.analyses import scheduler as policy
from kvmodel.analyses import simulate as simulation
from kvmodel.analyses.detectors import Response, canary_test, status_test
from kvmodel.analyses.simulate import (
    CELLS,
    Cell,
    CellResult,
    Check,
    SimulationOptions,
    SimulationResult,
    judge,
    run_cell,
    simulate,
)
from kvmodel.errors import UsageError
from kvmodel.language.instance import Binding, Instance
from kvmodel.language.load import load_spec
from kvmodel.language.types import Value
from kvmodel.readings.compiled import Changes, CompiledSystem
from kvmodel.readings.run import Interpreter
from kvmodel.readings.sparse import SparseState
from kvmodel.traces.trace import Choice
from kvmodel.verdict import Verdict
from kvmodel.views.simulation import simulation_text

SMALL = SimulationOptions(
    requests=60, over_long=8, context=2_000, prefill_pool=1_000, covering_pool=4_000, decode_pool=4_000, page_size=20, typical_prompt=120
)
LEAKY = Cell("small", "buggy")


@pytest.fixture(scope="module", autouse=True)
def once() -> Iterator[None]:
    """Specs, and the explorations of check 6 that depend on the specs only: once for each is enough for this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation, "load_spec", cache(load_spec))
        patch.setattr(simulation, "rejects_at_small_size", cache(simulation.rejects_at_small_size))
        yield


@pytest.fixture(scope="module")
def result() -> SimulationResult:
    return simulate(SMALL, workers=1)


def failed(result: SimulationResult) -> list[int]:
    """The numbers of the checks that failed."""
    return [number for number, check in enumerate(result.checks, start=1) if check.passed is False]


def undecided(result: SimulationResult) -> list[int]:
    return [number for number, check in enumerate(result.checks, start=1) if check.passed is None]


def spec_file(tmp_path: Path, base: str, body: str) -> str:
    """A spec of one's own that changes a variant of handoff."""
    path = tmp_path / "odd.py"
    path.write_text(
        "from kvmodel.language import action, override, require\n"
        f"from kvmodel.specs.handoff import {base}, Client, Decode, Prefill, Prompt\n"
        "from kvmodel.specs.pages import Page, Request\n\n\n"
        f'class Odd({base}):\n    """Odd."""\n\n{body}',
        encoding="utf-8",
    )
    return f"{path}:Odd"


# -- what it finds -----------------------------------------------------------------------------------------------------


def test_the_incident_at_small_scale(result: SimulationResult) -> None:
    assert [check.word for check in result.checks] == ["PASS"] * 7
    assert result.verdict is Verdict.HOLDS
    leaky = result[LEAKY]
    assert 0 < len(leaky.leaked) <= leaky.over_long == 8
    assert leaky.rejected == 8
    assert dict(leaky.statuses) == {200: 60}
    fixed = result[Cell("small", "fixed")]
    assert dict(fixed.statuses) == {200: 52, 400: 8}
    assert fixed.flagged_by_status == {response.request for response in fixed.responses if response.status == 400}
    assert not fixed.flagged_by_canary
    for doors in ("buggy", "fixed"):
        assert dict(result[Cell("covering", doors)].statuses) == {200: 60}
    assert all(cell.unanswered == 0 for cell in result.cells)


def test_every_page_moves_by_a_step_of_the_spec(result: SimulationResult) -> None:
    """Without leaks, each request takes as many allocations on each node, and as many landings, as its prompt has pages."""
    lengths, traffic = simulation.traffic_of(SMALL)
    fired = dict(result[Cell("covering", "buggy")].fired)
    assert sum(length > SMALL.prefill_pool for length in lengths) == 8
    assert fired["land"] == sum(traffic.pages)
    assert fired["allocate"] == 2 * sum(traffic.pages)
    assert fired["read"] == fired["finish"] == fired["commit"] == 60
    stub = dict(result[LEAKY].fired)
    oversize = [pages for pages, length in zip(traffic.pages, lengths, strict=True) if length > SMALL.prefill_pool]
    assert stub["land"] == sum(traffic.pages) - sum(oversize) + len(oversize)


def test_the_same_seed_gives_the_same_result(result: SimulationResult) -> None:
    again = run_cell(SMALL, LEAKY)
    assert replace(again, seconds=0.0) == replace(result[LEAKY], seconds=0.0)
    other = run_cell(replace(SMALL, seed=1), LEAKY)
    assert other.responses != again.responses


def test_processes_give_the_same_result(result: SimulationResult) -> None:
    parallel = simulate(SMALL, workers=2)
    assert [replace(cell, seconds=0.0) for cell in parallel.cells] == [replace(cell, seconds=0.0) for cell in result.cells]
    assert parallel.checks == result.checks


def test_the_run_is_a_run_of_the_spec_in_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes the same steps as the scheduler from the same state, and sees the same violation at the reads."""
    options = replace(SMALL, requests=5, over_long=2, context=100, prefill_pool=60, covering_pool=100, decode_pool=100, typical_prompt=30)
    lengths, traffic = simulation.traffic_of(options)
    system = simulation.system_of(options, LEAKY)
    compiled = CompiledSystem(system, {"Request": 5, "Page.PREFILL": 3, "Page.DECODE": 5}, ["isolated_read"])
    numbers = simulation.limits(options, "small")
    values: dict[str, dict[Binding, Value]] = {name: {(): tokens} for name, tokens in numbers.items()}
    state = compiled.start({**values, "prompt": {(number,): length for number, length in enumerate(lengths)}})
    interpreter = Interpreter(Instance.make(system, {"Request": 5, "Page.PREFILL": 3, "Page.DECODE": 5}))
    current = compiled.to_dense(state)
    assert interpreter.is_initial(current)
    leaked: set[int] = set()

    def follow(action: str, bindings: Sequence[Binding]) -> bool:
        nonlocal current
        for binding in bindings:
            assert Choice(action, binding) in interpreter.enabled(current)
            current = interpreter.successor(current, Choice(action, binding))
        if "isolated_read" in interpreter.violated(current):
            candidate = system.property("isolated_read")
            failing = interpreter.failing_binding(candidate, current)
            assert failing is not None
            assert isinstance(failing[0], int)
            leaked.add(failing[0])
        return True

    def attempt(state: SparseState, action: str, binding: Binding) -> Changes | None:
        return step(state, action, binding) if compiled.enabled(state, action, binding) and follow(action, [binding]) else None

    step, batch = compiled.step, compiled.batch
    monkeypatch.setattr(compiled, "attempt", attempt)
    monkeypatch.setattr(compiled, "batch", lambda s, action, bindings: follow(action, bindings) and batch(s, action, bindings))
    run = policy.Scheduler(compiled, state, traffic, options.seed, 3)
    assert run.run(lambda ended: None) == 0
    assert compiled.to_dense(state) == current
    assert leaked == set(run.leaks)
    assert leaked


# -- the seven checks, each made to fail -------------------------------------------------------------------------------


def test_check_1_fails_when_something_leaks_elsewhere() -> None:
    result = simulate(replace(SMALL, fixed="handoff:buggy"), workers=1)
    assert failed(result) == [1, 5]
    assert result.checks[0].detail == f"{len(result[Cell('small', 'fixed')].leaked)} with small pool, fixed doors"
    assert result.verdict is Verdict.VIOLATED


def test_check_1_fails_when_nothing_leaks_at_all() -> None:
    result = simulate(replace(SMALL, buggy="handoff:length-check-alone"), workers=1)
    assert 1 in failed(result)
    assert undecided(result) == [2, 3, 4]
    assert result.checks[1].detail == "nothing leaked, so there is nothing to judge"


def test_checks_2_and_3_fail_when_leaks_end_in_an_error(tmp_path: Path) -> None:
    odd = spec_file(
        tmp_path,
        "Buggy",
        "    @override\n    @action\n    def finish(s, r: Request) -> None:\n"
        '        """The engine notices afterwards, and answers 500."""\n'
        '        require(s.attending(r), "read")\n'
        "        s.decode[r] = Decode.CLOSED\n        s.client[r] = Client.FAILED\n"
        "        for p in Page:\n            if s.target(r, p):\n"
        "                s.reading[r, p] = False\n                s.forget(r, p)\n                s.recycle(p)\n",
    )
    result = simulate(replace(SMALL, buggy=odd), workers=1)
    leaked = len(result[LEAKY].leaked)
    assert {2, 3} <= set(failed(result))
    assert result.checks[1].detail == f"0 of {leaked}"
    assert result.checks[2].detail == f"{leaked} of {leaked}"


def test_check_4_fails_when_canaries_cannot_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    original = simulation.traffic_of

    def same_canary(options: SimulationOptions) -> tuple[tuple[int, ...], policy.Traffic]:
        lengths, traffic = original(options)
        return lengths, replace(traffic, canaries=("canary",) * len(lengths))

    monkeypatch.setattr(simulation, "traffic_of", same_canary)
    result = simulate(SMALL, workers=1)
    assert failed(result) == [4]
    assert result.checks[3].detail == f"0 of {len(result[LEAKY].leaked)}"


def test_check_5_fails_when_the_fix_is_none(result: SimulationResult) -> None:
    unfixed = replace(result[LEAKY], cell=Cell("small", "fixed"))
    cells = [cell for cell in result.cells if cell.cell != unfixed.cell]
    check = judge([*cells, unfixed], result.start_up, result.explored)[4]
    assert (check.passed, check.detail) == (False, f"{len(unfixed.leaked)} leaked")
    check = judge([*cells, replace(unfixed, leaked=(), rejected=0)], result.start_up, result.explored)[4]
    assert (check.passed, check.detail) == (None, "nothing was rejected, so the doors had nothing to stop")


def test_check_6_fails_when_a_covering_pool_rejects(tmp_path: Path) -> None:
    odd = spec_file(
        tmp_path,
        "FixedDoors",
        "    @override\n    @action\n    def reject(s, r: Request) -> None:\n"
        '        """Prefill rejects whatever it likes."""\n'
        '        require(s.prefill[r] == Prefill.NEW and s.seen_as[r] == Prompt.WHOLE, "new")\n'
        "        s.seen_as[r] = Prompt.STUB\n",
    )
    result = simulate(replace(SMALL, fixed=odd), workers=1)
    assert failed(result) == [6]
    assert dict(result.explored)["fixed"]
    assert result[Cell("covering", "fixed")].rejected == SMALL.requests


def test_check_6_fails_by_exploration_alone(result: SimulationResult) -> None:
    checks = judge(result.cells, result.start_up, [("buggy", 0), ("fixed", 3)])
    assert checks[5] == Check("A covering pool never takes the reject path.", False, "it was taken 3 times")
    checks = judge(result.cells, result.start_up, [("buggy", 0), ("fixed", None)])
    assert (checks[5].passed, checks[5].detail) == (None, "the exploration did not complete")


def test_check_7_fails_when_the_small_pool_covers_the_context() -> None:
    options = replace(SMALL, prefill_pool=2_000)
    result = simulate(options, workers=1)
    assert 7 in failed(result)
    assert [entry.broken for entry in result.start_up] == [(), ()]


def test_the_start_up_check_is_the_specs_own_assumption(result: SimulationResult) -> None:
    assert [(entry.pool, entry.tokens, entry.broken) for entry in result.start_up] == [
        ("small", 1_000, ("prefill_sizing",)),
        ("covering", 4_000, ()),
    ]
    system = simulation.system_of(SMALL, Cell("covering", "fixed"))
    numbers = {"context": 1_048_576, "prefill_limit": 1_048_576, "decode_limit": 1_048_575}
    assert simulation.broken_assumptions(system, numbers) == ("decode_sizing",)


# -- options, aborts, interruption -------------------------------------------------------------------------------------


def test_aborts_are_an_option() -> None:
    result = simulate(replace(SMALL, aborts=0.4), workers=1)
    assert all(cell.aborted > 0 for cell in result.cells)
    assert all(cell.aborted + len(cell.responses) == SMALL.requests for cell in result.cells)
    assert dict(result[Cell("covering", "fixed")].fired)["drain"] > 0
    assert dict(result[Cell("covering", "fixed")].fired)["stop"] > 0
    assert [len(cell.leaked) for cell in result.cells if cell.cell != LEAKY] == [0, 0, 0]


def test_a_write_that_lands_in_a_reused_page_is_ground_truth_too() -> None:
    """Aborts without quarantine leak through late writes, whatever the doors: check 1 says so."""
    options = replace(SMALL, requests=150, typical_prompt=600, decode_pool=2_000, aborts=0.6, fixed="handoff:abort-without-quarantine")
    cells = [run_cell(replace(options, seed=seed), Cell("covering", "fixed")) for seed in range(3)]
    assert sum(len(cell.leaked) for cell in cells) > 0
    assert all(cell.leaked_requests <= cell.flagged_by_canary for cell in cells)
    assert run_cell(replace(options, fixed="handoff"), Cell("covering", "fixed")).leaked == ()


def test_an_engine_that_stalls_leaves_clients_without_an_answer() -> None:
    """Prefill's door alone: decode is never told, keeps its pages, and runs out of them."""
    cell = run_cell(replace(SMALL, over_long=30, fixed="handoff:prefill-door-alone"), Cell("small", "fixed"))
    assert cell.unanswered > 0
    assert cell.leaked == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"requests": 0}, "requests is 0; it must be at least 1"),
        ({"over_long": 61}, "61 over-long requests are not among 60 requests"),
        ({"aborts": 1.5}, "the share of aborts is 1.5; it must be between 0 and 1"),
        ({"spread": -1.0}, "the spread of prompt lengths is -1.0; it must be between 0 and 4"),
        ({"decode_pool": 10}, "decode pool of 10 tokens has no page of 20"),
    ],
)
def test_options_are_checked(options: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        replace(SMALL, **options)  # type: ignore[arg-type]
    assert str(refusal.value) == message


def test_numbers_that_the_spec_does_not_allow_are_refused() -> None:
    with pytest.raises(UsageError) as refusal:
        simulate(replace(SMALL, decode_pool=1_500), workers=1)
    assert str(refusal.value) == (
        "small pool, buggy doors: the spec does not allow these numbers (context 2,000, prefill_limit 1,000, decode_limit 1,500): "
        "decode_sizing is false"
    )
    with pytest.raises(UsageError, match="covering pool, buggy doors: the spec does not allow .*: prefill_sizing is false"):
        simulate(replace(SMALL, covering_pool=1_500), workers=1)
    with pytest.raises(UsageError, match="simulate runs specs that extend handoff; pages:one-pool has no client, context, decode"):
        simulate(replace(SMALL, fixed="pages:one-pool"), workers=1)


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_leaves_checks_undecided(workers: int) -> None:
    lines: list[str] = []

    def interrupt(line: str) -> None:
        lines.append(line)
        signal.raise_signal(signal.SIGINT)

    # A shell's background job starts with the signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = simulate(replace(SMALL, requests=400), interrupt, workers=workers)
    finally:
        signal.signal(signal.SIGINT, before)
    assert lines
    assert result.reason.startswith("interrupted after ")
    assert result.reason.endswith(" of 4 deployments")
    assert undecided(result)
    assert result.checks[6].passed
    assert result.verdict is Verdict.UNDECIDED
    assert "UNDECIDED" in simulation_text(result)


def test_progress_says_how_many_requests_have_ended() -> None:
    lines: list[str] = []
    simulate(replace(SMALL, requests=200), lines.append, workers=1)
    assert lines[0] == "50 of 800 requests in 4 deployments"
    assert lines[-1] == "800 of 800 requests in 4 deployments"


# -- detectors and text ------------------------------------------------------------------------------------------------


def test_detectors_see_only_response_records() -> None:
    responses = (
        Response(0, 200, "a", "a"),
        Response(1, 200, "b", "b a"),
        Response(2, 400, "c", ""),
        Response(3, 200, "d", ""),
    )
    assert status_test(responses) == {2}
    assert canary_test(responses) == {1}


def test_the_text_shows_the_two_by_two_and_the_checks(result: SimulationResult) -> None:
    text = simulation_text(replace(result, seconds=1.25))
    lines = text.splitlines()
    assert all(len(line) <= 100 for line in lines)
    assert [line.split()[0] for line in lines if line.startswith(("PASS", "FAIL"))] == ["PASS"] * 7
    (leaked,) = [line.split() for line in lines if line.startswith("leaked responses")]
    assert leaked[2:] == [str(len(result[LEAKY].leaked)), "0", "0", "0"]
    assert any(line.split() == ["HTTP", "400", "0", "8", "0", "0"] for line in lines)
    assert lines[-1].endswith("steps of the spec in 1.2 s")
    assert "\x1b[" in simulation_text(result, colour=True)


def test_every_cell_is_there_once(result: SimulationResult) -> None:
    assert tuple(cell.cell for cell in result.cells) == CELLS
    assert isinstance(result[LEAKY], CellResult)
    with pytest.raises(KeyError):
        replace(result, cells=())[LEAKY]


# -- the real size -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_incident_at_its_real_size() -> None:
    result = simulate()
    assert [check.word for check in result.checks] == ["PASS"] * 7
    leaky = result[LEAKY]
    assert leaky.requests == 10_000
    assert leaky.over_long == leaky.rejected >= 50
    assert 50 <= len(leaky.leaked) <= leaky.over_long
    assert sum(leak.pages for leak in leaky.leaked) > 400_000
    assert dict(leaky.statuses) == {200: 10_000}
    assert all(cell.unanswered == 0 for cell in result.cells)
