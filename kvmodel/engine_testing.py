"""Real engines in other people's test suites: drive an adapter of your own, or play the calls of a counterexample again.

    from kvmodel.engine_testing import check_engine

    def test_allocator():
        check_engine(lambda: Adapter(Allocator(pages=5, page_size=2)))
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hypothesis.stateful import RuleBasedStateMachine

    from kvmodel.traces.trace import Trace
    from kvmodel.verdict import Result

__all__ = ["check_engine", "engine_machine", "play_calls", "told"]

WIDTH = 120


def check_engine(
    make: Callable[[], Any],
    properties: Sequence[str] = (),
    *,
    name: str = "adapter",
    examples: int = 200,
    steps: int = 50,
    seed: int = 0,
    undecided: Collection[str] = (),
) -> Result:
    """Drive what `make` gives (an adapter: `kvmodel.engines.adapter`), a new one for each of `examples` runs of at most `steps` rules.

    Raises AssertionError, with the shortest run that was found as a table, when a property (one of `properties`, if any are
    named) is violated, and when one could not be decided that is not among `undecided`: a pass must not be more than it is.
    """
    import time

    from kvmodel.engines.check import engine_result, require_known
    from kvmodel.engines.levels import driver_for
    from kvmodel.engines.machine import search
    from kvmodel.verdict import Verdict
    from kvmodel.views.engine import engine_text

    require_known((*properties, *undecided))
    adapter = make()
    started = time.monotonic()
    usable = driver_for(adapter, name).usable()
    record = search(make, name, properties, examples=examples, steps=steps, seed=seed)
    result = engine_result(record, f"{adapter.engine} {adapter.version} ({name})", usable, time.monotonic() - started)
    judged = [entry for entry in result.properties if not properties or entry.name in properties]
    violated = [entry.name for entry in judged if entry.verdict is Verdict.VIOLATED]
    if violated:
        raise AssertionError(f"{', '.join(violated)} violated\n\n{engine_text(result, _again(name), width=WIDTH)}")
    open_ones = [entry for entry in judged if entry.verdict is Verdict.UNDECIDED and entry.name not in undecided]
    if open_ones:
        reasons = "; ".join(f"{entry.name}: {entry.reason}" for entry in open_ones)
        raise AssertionError(f"undecided, which is not a pass: {reasons} (name what is to be left open: undecided=[...])")
    return result


def engine_machine(make: Callable[[], Any], *, name: str = "adapter", examples: int = 200, steps: int = 50) -> type[RuleBasedStateMachine]:
    """The Hypothesis state machine itself, to be extended or run in your own way: ``TestEngine = engine_machine(make).TestCase``.

    Hypothesis' phase of explaining is off: on a run of an engine it takes minutes and says nothing.
    """
    from hypothesis import HealthCheck, Phase, settings

    from kvmodel.engines.machine import machine_for

    machine = machine_for(make, name, describe=(told,))
    machine.TestCase.settings = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[phase for phase in Phase if phase is not Phase.explain],
    )
    return machine


def _again(name: str) -> str:
    return f"run this test again: the machine '{name}' makes the same runs from the same seed"


def play_calls(make: Callable[[], Any], calls: Sequence[Mapping[str, object]], *, name: str = "adapter") -> Trace | None:
    """Play the calls of an observed run again on what `make` gives, then let everything end. The trace of the first violation,
    or None where every property was kept. Raises UsageError where no call makes sense for this adapter: nothing was tested."""
    from kvmodel.engines.driver import EngineViolation
    from kvmodel.engines.play import play
    from kvmodel.errors import UsageError

    try:
        made = play(make, name, calls)
    except EngineViolation as violation:
        return violation.trace
    if calls and not made:
        raise UsageError(f"none of these calls makes sense for {name}: is it the machine that the run was observed on?")
    return None


def told(trace: Trace) -> str:
    """An observed run as people read it: its table, and which property its end violates."""
    from kvmodel.views.text import trace_text

    return trace_text(trace, width=WIDTH)
