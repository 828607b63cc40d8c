"""Steps a second: the interpreter and the compiled step on one run of handoff, and batches at real size.

    pytest benchmarks/test_compiled.py --benchmark-only

The first two play the same recorded run, so that their ratio means something; each entry's `steps` gives the steps of a
round. The interpreter's rounds include nothing but guard and successor of the chosen step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kvmodel.language.instance import Instance, State
from kvmodel.language.load import load_spec
from kvmodel.readings.compiled import CompiledSystem, Valuation
from kvmodel.readings.run import Interpreter
from kvmodel.readings.sparse import SparseState
from kvmodel.traces.trace import Choice

SPEC = "handoff:covering-pools"
SMALL = {"Request": 4, "Page.PREFILL": 8, "Page.DECODE": 8}
PAGES = 10_000

T = TypeVar("T")


def values(requests: int, tokens: int) -> Valuation:
    numbers: Valuation = {"context": {(): tokens}, "prefill_limit": {(): tokens}, "decode_limit": {(): tokens}}
    return {**numbers, "prompt": {(number,): tokens for number in range(requests)}}


@dataclass(frozen=True)
class Run:
    """A run of handoff: every request is served in turn, two pages each."""

    compiled: CompiledSystem
    start: SparseState
    dense: State
    steps: tuple[Choice, ...]


@pytest.fixture(scope="module")
def run() -> Run:
    compiled = CompiledSystem(load_spec(SPEC), SMALL, ["isolated_read"], searches=False)
    start = compiled.start(values(4, 2))
    steps: list[Choice] = []
    for r in range(4):
        sources, targets = (2 * r, 2 * r + 1), (8 + 2 * r, 9 + 2 * r)
        steps += [Choice("prefill_door", (r,)), Choice("decode_door", (r,))]
        steps += [Choice("allocate", (r, page)) for page in (*sources, *targets)]
        steps += [Choice("announce", (r,)), Choice("forward", (r, sources[0])), Choice("send", (r, targets[0]))]
        steps += [Choice("land", (r, source, target)) for source, target in zip(sources, targets, strict=True)]
        steps += [Choice(action, (r,)) for action in ("succeed", "commit", "read", "finish")]
    return Run(compiled, start, compiled.to_dense(start), tuple(steps))


def timed(benchmark: BenchmarkFixture, function: Callable[..., T], rounds: int, start: SparseState | None = None) -> T:
    """Time `function`, of a fresh copy of `start` if one is given; gives its last result."""
    setup: Callable[[], tuple[tuple[SparseState], dict[str, object]]] | None = None if start is None else lambda: ((start.copy(),), {})
    result: T = benchmark.pedantic(function, setup=setup, rounds=rounds, iterations=1, warmup_rounds=2)  # type: ignore[no-untyped-call]
    return result


def report(benchmark: BenchmarkFixture, steps: int) -> None:
    benchmark.extra_info["steps"] = steps
    if benchmark.stats is not None:
        benchmark.extra_info["steps a second"] = round(steps / benchmark.stats.stats.median)


def test_interpreter(benchmark: BenchmarkFixture, run: Run) -> None:
    interpreter = Interpreter(Instance.make(run.compiled.system, SMALL))
    actions = {action.name: action for action in interpreter.system.actions}

    def play() -> State:
        state = run.dense
        for choice in run.steps:
            assert interpreter.allows(state, actions[choice.action], choice.binding)
            state = interpreter.successor(state, choice)
        return state

    last = timed(benchmark, play, 5)
    assert {last.values[slot] for (name, _), slot in interpreter.instance.state_layout.slots.items() if name == "client"} == {"OK"}
    report(benchmark, len(run.steps))


@pytest.mark.parametrize("watching", [False, True], ids=["steps", "steps and isolated_read"])
def test_compiled_steps(benchmark: BenchmarkFixture, run: Run, watching: bool) -> None:
    compiled = run.compiled

    def play(state: SparseState) -> SparseState:
        for choice in run.steps:
            changes = compiled.step(state, choice.action, choice.binding)
            if watching:
                assert not compiled.violations(state, changes)
        return state

    last = timed(benchmark, play, 200, run.start)
    assert [last.get("client", (r,)) for r in range(4)] == ["OK"] * 4
    report(benchmark, len(run.steps))


@pytest.fixture(scope="module")
def large() -> tuple[CompiledSystem, SparseState]:
    compiled = CompiledSystem(
        load_spec(SPEC), {"Request": 10_000, "Page.PREFILL": 31_875, "Page.DECODE": 31_875}, ["isolated_read"], searches=False
    )
    state = compiled.start(values(10_000, 1_048_576))
    for action in ("prefill_door", "decode_door"):
        compiled.step(state, action, (7,))
    return compiled, state


def test_batch_of_allocations(benchmark: BenchmarkFixture, large: tuple[CompiledSystem, SparseState]) -> None:
    compiled, start = large
    bindings = [(7, page) for page in range(PAGES)]

    def play(state: SparseState) -> int:
        return len(compiled.violations(state, compiled.batch(state, "allocate", bindings)))

    assert timed(benchmark, play, 20, start) == 0
    report(benchmark, PAGES)


def test_batch_of_landing_writes(benchmark: BenchmarkFixture, large: tuple[CompiledSystem, SparseState]) -> None:
    compiled, start = large
    sources, targets = range(PAGES), range(31_875, 31_875 + PAGES)
    ready = start.copy()
    compiled.batch(ready, "allocate", [(7, page) for page in (*sources, *targets)])
    for action, binding in (("announce", (7,)), ("forward", (7, sources[0])), ("send", (7, targets[0]))):
        compiled.step(ready, action, binding)
    bindings = [(7, source, target) for source, target in zip(sources, targets, strict=True)]

    def play(state: SparseState) -> int:
        return len(compiled.violations(state, compiled.batch(state, "land", bindings)))

    assert timed(benchmark, play, 20, ready) == 0
    report(benchmark, PAGES)
