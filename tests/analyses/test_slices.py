"""Slices of runs of random systems: what is not in a slice can be left out, whatever the spec."""

from __future__ import annotations

from collections import Counter

import pytest

from kvmodel.analyses import slices
from kvmodel.analyses.explain import explain
from kvmodel.analyses.slices import backward_slice, runs_without
from kvmodel.readings.explore import explore
from kvmodel.readings.replay import make_trace
from kvmodel.readings.run import Interpreter
from kvmodel.traces.trace import Trace
from tests.agreement.test_random_systems import collected


def padded(trace: Trace) -> Trace:
    """The trace with a step that leaves every value as it is, wherever one is enabled."""
    interpreter = Interpreter(trace.instance)
    steps = []
    for state, choice in zip(trace.states, trace.steps, strict=False):
        steps += [idle for idle in interpreter.enabled(state) if interpreter.successor(state, idle) == state][:1]
        steps.append(choice)
    return make_trace(trace.instance, trace.states[0], tuple(steps), trace.property)


def test_slices_of_random_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Counter[str]()
    by_trial = slices._by_trial

    def counted(trace: Trace) -> frozenset[int]:
        seen["by trial"] += 1
        return by_trial(trace)

    monkeypatch.setattr(slices, "_by_trial", counted)
    for case in collected(40, *range(1, 8)):
        if seen["traces"] > 50 and seen["steps dropped"] > 20:
            break
        for entry in explore(case.instance).properties:
            if entry.trace is None:
                continue
            everything = frozenset(range(1, len(entry.trace.steps) + 1))
            assert backward_slice(entry.trace).relevant == everything  # a shortest run has no step to spare
            longer = padded(entry.trace)
            found = explain(longer)
            dropped = frozenset(range(1, len(longer.steps) + 1)) - found.relevant
            assert runs_without(longer, dropped)
            assert len(found.relevant) == len(everything)
            seen.update({"traces": 1, "steps dropped": len(dropped)})

    assert seen["traces"] > 50
    assert seen["steps dropped"] > 20
    assert seen["by trial"] <= 2  # guards and updates alone nearly always tell
