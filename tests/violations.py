"""Shortest violations of the shipped specs, and longer runs made from them, for tests of what people see."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random

import kvmodel
from kvmodel.language.instance import Instance, Layout, State, Values
from kvmodel.language.types import Value
from kvmodel.readings.replay import make_trace
from kvmodel.readings.run import Interpreter
from kvmodel.traces.trace import Choice, Trace

__all__ = ["SHOWN", "shortest", "with_bystander"]

# spec, property, steps
SHOWN = (
    ("handoff:buggy", "isolated_read", 13),
    ("handoff:abort-without-quarantine", "isolated_write", 8),
    ("pages:one-pool-without-quarantine", "isolated_read", 8),
    ("handoff:prefill-door-alone", "pages_conserved", 4),
)


@cache
def shortest(spec: str = "handoff:buggy", name: str = "isolated_read") -> Trace:
    """A shortest violation of a property at the spec's default size."""
    trace = kvmodel.check(spec, [name])[name].trace
    assert trace is not None
    return trace


def with_bystander(trace: Trace, seed: int, *, most: int = 12) -> tuple[Trace, frozenset[int]]:
    """The trace beside one more request and more pages, which take some enabled steps of their own between those of the trace;
    and the numbers of those steps."""
    small = trace.instance
    stranger = dict(small.sizes)["Request"]
    bystander = dict(small.sizes)["Page"]
    sizes = {name: size + 1 for name, size in small.sizes if name in ("Request", "Page") and name not in dict(small.parts)}
    sizes |= {f"Page.{member}": size for member, size in zip(("PREFILL", "DECODE"), dict(small.parts).get("Page", ()), strict=False)}
    instance = Instance.make(small.system, sizes)
    start = State(_widened(trace.states[0].rigid, small.rigid_layout, instance, instance.rigid_layout),
                  _widened(trace.states[0].values, small.state_layout, instance, instance.state_layout))
    interpreter, random = Interpreter(instance), Random(seed)
    state, steps, added = start, list[Choice](), set[int]()

    def foreign(choice: Choice) -> bool:
        parameters = instance.system.action(choice.action).parameters
        pairs = list(zip((p.domain.name for p in parameters), choice.binding, strict=True))
        return ("Request", stranger) in pairs and all(name != "Page" or instance.parts or value == bystander for name, value in pairs)

    for choice in trace.steps:
        for _ in range(random.randrange(3) if len(added) < most else 0):
            own = [other for other in interpreter.enabled(state) if foreign(other) and (other.action != "allocate" or not instance.parts)]
            if own:
                steps.append(random.choice(own))
                added.add(len(steps))
                state = interpreter.successor(state, steps[-1])
        steps.append(choice)
        state = interpreter.successor(state, choice)
    return make_trace(instance, start, tuple(steps), trace.property), frozenset(added)


def _widened(values: Values, old: Layout, instance: Instance, new: Layout) -> Values:
    """Values at the places that both layouts have; elsewhere what is plain."""
    found: list[Value] = []
    for name, index in new.places:
        variable = instance.system.by_name[name]
        plain = False if variable.initial is False else next(iter(instance.values_of(variable.type)), 0)
        given = variable.initial if isinstance(variable.initial, bool) else plain
        found.append(values[old.slots[name, index]] if (name, index) in old.slots else given)
    return tuple(found)


def rename(trace: Trace, names: dict[str, str]) -> Trace:
    """The trace with other names of properties, as a spec of a stranger may have them."""
    system = trace.instance.system
    declared = tuple(replace(entry, name=names.get(entry.name, entry.name)) for entry in system.declared)
    instance = replace(trace.instance, system=replace(system, declared=declared))
    return replace(trace, instance=instance, property=names.get(trace.property, trace.property))
