"""What a check will have to look at, counted before it starts: a check that cannot end is refused, with the number."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from kvmodel.errors import InstanceError
from kvmodel.language.expressions import Bound
from kvmodel.language.instance import Instance

__all__ = ["LARGEST", "Estimate", "estimate", "refuse_endless", "states_that_fit"]

MEMORY = 4_000_000_000  # bytes that an exploration may fill unless it is told a number of states
BYTES_OF_STATE, BYTES_OF_VALUE = 200, 8  # measured: an exploration of handoff at 72 values a state took 730 bytes a state


@dataclass(frozen=True, slots=True)
class Estimate:
    """`values`: how many values one state has. `steps`: how many steps there are to try in each state (actions with
    their bindings). `judgements`: how many bindings of properties there are to judge in each state."""

    values: int
    steps: int
    judgements: int


# Far beyond these, not even the first states can be looked at; well below them, only running a check tells whether it ends.
LARGEST = {
    "explore": Estimate(2_000, 5_000, 20_000),
    "bmc": Estimate(5_000, 20_000, 100_000),
    "walk": Estimate(20_000, 100_000, 1_000_000),
    "hypothesis": Estimate(20_000, 100_000, 1_000_000),
    "replay": Estimate(200_000, 1_000_000, 10_000_000),
}
SMALLER = {"explore": ", or for --method walk, which samples runs", "bmc": ", or for --method walk, which samples runs"}


def estimate(instance: Instance) -> Estimate:
    """Count what one state of the instance has, without making one."""
    system = instance.system
    counts = dict(instance.sizes) | {enumeration.name: len(enumeration.members) for enumeration in system.enumerations}

    def bindings(parameters: tuple[Bound, ...]) -> int:
        return prod(counts[parameter.domain.name] for parameter in parameters)

    values = sum(prod(counts[key.name] for key in variable.keys) for variable in system.variables)
    steps = sum(bindings(action.parameters) for action in system.actions)
    return Estimate(values, steps, sum(bindings(entry.parameters) for entry in system.declared))


def refuse_endless(instance: Instance, method: str) -> None:
    """Raise InstanceError when `method` (or ``replay``) cannot be expected to end at the sizes of `instance`."""
    found, most = estimate(instance), LARGEST[method]
    if found.steps > most.steps or found.values > most.values or found.judgements > most.judgements:
        raise InstanceError(
            f"{method} of {instance.system.name} at {instance.describe_size()} would not end: a state has {found.values:,} values "
            f"(at most {most.values:,}), {found.steps:,} steps to try (at most {most.steps:,}) and {found.judgements:,} bindings of "
            f"properties to judge (at most {most.judgements:,}); ask for smaller sizes{SMALLER.get(method, '')}"
        )


def states_that_fit(instance: Instance) -> int:
    """How many states of the instance an exploration keeps in four gigabytes."""
    return MEMORY // (BYTES_OF_STATE + BYTES_OF_VALUE * instance.state_layout.length)
