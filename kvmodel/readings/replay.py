"""Replay: every trace from any reading is re-executed by the interpreter before anybody sees it."""

from __future__ import annotations

from kvmodel.errors import ReplayError
from kvmodel.language.instance import Instance, State
from kvmodel.language.system import PropertyKind
from kvmodel.readings.run import Interpreter
from kvmodel.traces.trace import Choice, Trace

__all__ = ["make_trace", "replay", "shows_property"]


def make_trace(instance: Instance, start: State, steps: tuple[Choice, ...], shows: str = "") -> Trace:
    """Run `steps` from `start` with the interpreter and check the result with `replay`. Raises ReplayError."""
    interpreter = Interpreter(instance)
    states = [start]
    for number, choice in enumerate(steps, start=1):
        _require_enabled(interpreter, states[-1], choice, number)
        states.append(interpreter.successor(states[-1], choice))
    trace = Trace(instance, tuple(states), steps, shows)
    replay(trace)
    return trace


def replay(trace: Trace) -> None:
    """Re-execute a trace with the interpreter: it starts in an initial state, every step is enabled and leads where the
    trace says, and its last state (or step) shows the property that it claims to show. Of an observed trace only the last
    can be said: its steps are an engine's, and its states are what was seen.

    Raises ReplayError, with the number of the first bad step.
    """
    interpreter = Interpreter(trace.instance)
    if len(trace.states) != len(trace.steps) + 1:
        raise ReplayError(f"{len(trace.states)} states do not fit {len(trace.steps)} steps", 0)
    if trace.observed is None:
        _replay_steps(interpreter, trace)
    if trace.property and not shows_property(interpreter, trace):
        raise ReplayError(f"the run does not show '{trace.property}'", len(trace.steps))


def _replay_steps(interpreter: Interpreter, trace: Trace) -> None:
    if not interpreter.is_initial(trace.states[0]):
        raise ReplayError(f"the first state is not an initial state of {trace.instance.system.name}", 0)
    for number, choice in enumerate(trace.steps, start=1):
        before, after = trace.states[number - 1], trace.states[number]
        _require_enabled(interpreter, before, choice, number)
        if interpreter.successor(before, choice) != after:
            raise ReplayError(f"step {number} ({choice.action}) leads to another state than the trace says", number)


def shows_property(interpreter: Interpreter, trace: Trace) -> bool:
    """Whether the end of the trace violates its property (for `@reachable`: shows it)."""
    candidate = interpreter.system.property(trace.property)
    if candidate.kind is PropertyKind.REACHABLE:
        return interpreter.satisfying_binding(candidate, trace.states[-1]) is not None
    last = trace.steps[-1] if trace.steps else None
    before = trace.states[-2] if trace.steps else None
    return trace.property in interpreter.violated(trace.states[-1], last, before)


def _require_enabled(interpreter: Interpreter, state: State, choice: Choice, number: int) -> None:
    action = interpreter.system.action(choice.action)
    domains = [interpreter.instance.elements(parameter.domain) for parameter in action.parameters]
    if len(choice.binding) != len(domains) or any(v not in d for v, d in zip(choice.binding, domains, strict=True)):
        raise ReplayError(f"step {number}: {choice.action} has no such arguments at this size", number)
    if interpreter.out_of_range(state):
        raise ReplayError(f"step {number}: the run ended when a counter left its range", number)
    environment = interpreter.environment(action.parameters, choice.binding)
    for guard in action.guards:
        if not interpreter.evaluate(guard.condition, state, environment):
            raise ReplayError(f"step {number}: {choice.action} is not enabled: its guard '{guard.name}' is false", number)
