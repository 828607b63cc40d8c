"""Where a trace would have come to an end under another system: the spec that it is a variant of, or other flags.

The same steps are taken from the same initial state, under the other system's guards and updates. What stops them is told:
rigid numbers or an initial state that are not allowed there, a guard that is false, or a state that comes out differently, so
that the end no longer shows the property. This is about one run: it proves nothing of other runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from kvmodel.analyses.slices import deciding
from kvmodel.errors import KvmodelError
from kvmodel.language.classes import linearise
from kvmodel.language.instance import Binding, Instance, State
from kvmodel.language.load import load_spec
from kvmodel.language.modules import SHIPPED, Library
from kvmodel.language.system import Condition, FlagKind, Property, PropertyKind, TransitionSystem, Variable
from kvmodel.language.text import place
from kvmodel.language.types import Number, Span
from kvmodel.readings.run import Interpreter
from kvmodel.traces.trace import Choice, Trace

__all__ = ["Obstacle", "Refusal", "Stopper", "base_of", "obstacle", "refusal", "stoppers"]

MOST_CHANGES = 2  # places of a state that are named
MOST_ANCESTORS = 20  # classes of a spec that are read
NOWHERE = Span()


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What stops a run under another system. `step`: its number (0: it cannot even start). `what` says it in words; `guard` is
    the name of the guard that is false there, or ''; `at` is where the guard or condition is written; `decided` are the places
    of the state that make the guard false."""

    step: int
    what: str
    guard: str = ""
    at: Span = NOWHERE
    decided: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """The first step of a trace that `spec`, the design that the trace's spec departs from, does not take. `action` is the step
    with its arguments, `guard` the name of the guard that is false (or '': then `what` says what else stops the run), `where` its
    source line."""

    spec: str
    step: int
    action: str
    guard: str
    what: str
    where: str


@dataclass(frozen=True, slots=True)
class Stopper:
    """A single flag that would have stopped a trace, had it been `on` (of a hazard: off). `step` is the number of the step that
    is not taken or comes out differently, 0 when the run cannot start; `guard_or_change` says what stops it."""

    flag: str
    on: bool
    step: int
    guard_or_change: str
    where: str


def base_of(system: TransitionSystem) -> TransitionSystem | None:
    """The design that a system departs from: of the classes that its class extends in the same file, the most general one with
    the same variables and actions. None when there is none, when it is the system itself, or when its file is not there."""
    try:
        names = list(islice(_ancestors(system), MOST_ANCESTORS))
        found = next((candidate for candidate in map(load_spec, reversed(names)) if _runs_as(candidate, system)), None)
    except (KvmodelError, OSError):
        return None
    if found is None or (found.flag_values == system.flag_values and found.actions == system.actions):
        return None
    return found


def _ancestors(system: TransitionSystem) -> Iterator[str]:
    """SPEC names of the system's class and of those that it extends in its own file, nearest first."""
    path, found, _ = system.name.rpartition(".py:")
    shipped = system.name.split(":")[1] if system.name.startswith("fault:") else system.name.split(":")[0]
    folder = SHIPPED / "faults" if system.name.startswith("fault:") else SHIPPED
    module = Library().open(Path(path + ".py") if found else folder / f"{shipped}.py")
    entry = next((spec for spec in module.specs if module.source.span(spec.node).line == system.at.line), None)
    if entry is None or module.shown != system.at.file:
        return
    main = next(spec for spec in module.specs if spec.variant is None)
    prefix = system.name.split(":")[0] if not system.name.startswith("fault:") else f"fault:{shipped}"
    for ancestor in linearise(entry, lambda *_: None):
        if ancestor.module is not module:
            continue
        if found:
            yield f"{path}.py:{ancestor.name}"
        elif ancestor is main:
            yield prefix
        elif ancestor.variant is not None:
            yield f"{prefix}:{ancestor.variant}"


def _runs_as(candidate: TransitionSystem, system: TransitionSystem) -> bool:
    """Whether a state and the steps of `system` mean something to `candidate`."""

    def shape(variables: tuple[Variable, ...]) -> list[object]:
        return [(variable.name, variable.keys, variable.type, variable.rigid, variable.partition) for variable in variables]

    actions = {action.name: action.parameters for action in candidate.actions}
    return (
        candidate.sorts == system.sorts
        and candidate.enumerations == system.enumerations
        and shape(candidate.variables) == shape(system.variables)
        and all(actions.get(action.name) == action.parameters for action in system.actions)
    )


def refusal(trace: Trace) -> tuple[Refusal, Obstacle] | None:
    """Where the design that the trace's spec departs from refuses the trace; None when there is none or it does not."""
    base = base_of(trace.instance.system)
    found = None if base is None else obstacle(trace, base)
    if base is None or found is None:
        return None
    action = _call(trace.instance, trace.steps[found.step - 1]) if found.step else ""
    return Refusal(base.name, found.step, action, found.guard, found.what, _where(found)), found


def stoppers(trace: Trace) -> tuple[tuple[Stopper, ...], tuple[str, ...]]:
    """The single flags that would have stopped the trace, and those that would not: each flag of kind defence or sizing that is
    off is switched on alone, each hazard that is on is switched off."""
    system = trace.instance.system
    read = system.flags_read()
    stopped, others = [], []
    for flag in system.flags:
        on = flag.kind is not FlagKind.HAZARD
        if flag.value == on or flag.name not in read:
            continue
        found = obstacle(trace, system.with_flags({flag.name: on}))
        if found is None:
            others.append(flag.name)
        else:
            stopped.append(Stopper(flag.name, on, found.step, found.what, _where(found)))
    return tuple(stopped), tuple(others)


def _where(found: Obstacle) -> str:
    return str(found.at) if found.at.file else ""


def obstacle(trace: Trace, system: TransitionSystem) -> Obstacle | None:
    """What first stops the trace under `system`, or None when the same steps show the property there as well."""
    instance = replace(trace.instance, system=system)
    interpreter = Interpreter(instance)
    start = trace.states[0]
    barred = _not_initial(interpreter, start)
    if barred is not None:
        return barred
    states = [start]
    shown = next((candidate for candidate in system.properties if candidate.name == trace.property), None)
    if shown is not None and _shows(interpreter, shown, start):
        return None
    for number, choice in enumerate(trace.steps, start=1):
        before = states[-1]
        broken = interpreter.out_of_range(before)
        if broken:
            return Obstacle(number, f"the run has ended: {', '.join(broken)} is violated")
        action = system.action(choice.action)
        environment = interpreter.environment(action.parameters, choice.binding)
        for guard in action.guards:
            if not interpreter.evaluate(guard.condition, before, environment):
                what = f"{_call(instance, choice)} is not enabled: its guard '{guard.name}' is false"
                return Obstacle(number, what, guard.name, guard.at, deciding(interpreter, guard.condition, before, environment))
        states.append(interpreter.successor(before, choice))
        if shown is not None and _shows(interpreter, shown, states[-1], choice, before):
            return None
    number = next((n for n, (old, new) in enumerate(zip(trace.states, states, strict=True)) if old != new), 0)
    if not number:
        return Obstacle(len(trace.steps), f"the same steps lead to the same state, which does not violate {trace.property} there")
    difference = _difference(instance, trace.states[number], states[number])
    return Obstacle(number, f"after {_call(instance, trace.steps[number - 1])}, {difference}")


def _shows(interpreter: Interpreter, shown: Property, state: State, choice: Choice | None = None, before: State | None = None) -> bool:
    """Whether a state, or the step that led to it, shows a property; that alone is looked at."""
    match shown.kind:
        case PropertyKind.INVARIANT:
            return interpreter.failing_binding(shown, state) is not None
        case PropertyKind.REACHABLE:
            return interpreter.satisfying_binding(shown, state) is not None
        case PropertyKind.ASSERTION:
            return choice is not None and before is not None and shown.name in interpreter.broken_assertions(before, choice)
        case PropertyKind.RANGE:
            return shown.name in interpreter.out_of_range(state)
        case PropertyKind.NO_DEADLOCK:
            return not interpreter.out_of_range(state) and not interpreter.enabled(state) and not interpreter.is_final(state)


def _not_initial(interpreter: Interpreter, start: State) -> Obstacle | None:
    """Why a run may not start in a state, or None."""
    system, instance = interpreter.system, interpreter.instance
    for condition in system.assumptions:
        binding = interpreter.failing_binding(condition, start)
        if binding is not None:
            return Obstacle(0, f"the numbers of the run are not allowed ({', '.join(_numbers(instance, start))}): {_first(condition)}",
                            at=condition.at)
    for (name, index), value in zip(instance.state_layout.places, start.values, strict=True):
        variable = system.by_name[name]
        if isinstance(variable.initial, bool | int | str | None) and variable.initial != value:
            what = f"no run starts with {_place(instance, name, index)} = {instance.show(variable.type, value)}"
            return Obstacle(0, what, at=variable.at)
    for condition in system.initial:
        binding = interpreter.failing_binding(condition, start)
        if binding is not None:
            return Obstacle(0, f"no run starts like this: {_first(condition)}", at=condition.at)
    return None


def _numbers(instance: Instance, start: State) -> Iterator[str]:
    for (name, index), value in zip(instance.rigid_layout.places, start.rigid, strict=True):
        variable = instance.system.by_name[name]
        if isinstance(variable.type, Number) and not variable.keys:
            yield f"{_place(instance, name, index)} = {value}"


def _first(condition: Condition) -> str:
    """The first paragraph of what a condition says, or its name."""
    return " ".join(condition.doc.split("\n\n")[0].split()) or condition.name


def _difference(instance: Instance, old: State, new: State) -> str:
    layout = instance.state_layout
    slots = [slot for slot in range(layout.length) if old.values[slot] != new.values[slot]]
    told = []
    for slot in slots[:MOST_CHANGES]:
        kind = layout.types[slot]
        shown, before = instance.show(kind, new.values[slot]), instance.show(kind, old.values[slot])
        told.append(f"{_place(instance, *layout.places[slot])} is {shown}, not {before}")
    more = len(slots) - len(told)
    return " and ".join(told) + (f" (and {more} more)" if more > 0 else "")


def _place(instance: Instance, name: str, index: Binding) -> str:
    variable = instance.system.by_name[name]
    return place(name, tuple(instance.label(key, part) for key, part in zip(variable.keys, index, strict=True)))


def _call(instance: Instance, choice: Choice) -> str:
    parameters = instance.system.action(choice.action).parameters
    arguments = [f"{p.name}={instance.label(p.domain, value)}" for p, value in zip(parameters, choice.binding, strict=True)]
    return f"{choice.action}({', '.join(arguments)})"
