"""A trace: a run of an instance, step by step, with what it shows. An immutable value; `readings.replay` checks one."""

from __future__ import annotations

from dataclasses import dataclass

from kvmodel.language.instance import Binding, Instance, State
from kvmodel.traces.observed import Observed

__all__ = ["Choice", "Trace"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A step: an action with a value for each of its parameters, in their order."""

    action: str
    binding: Binding


@dataclass(frozen=True)
class Trace:
    """`states[0]` is initial, `states[i + 1]` comes from `states[i]` by `steps[i]`. `property` is what it shows, or ''.

    With `observed` it is a run of a real engine, whose steps are what the engine was asked to do.
    """

    instance: Instance
    states: tuple[State, ...]
    steps: tuple[Choice, ...]
    property: str = ""
    observed: Observed | None = None
