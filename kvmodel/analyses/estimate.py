"""What a check will have to look at, counted before it starts: a check that cannot end is refused, with the number."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from kvmodel.errors import InstanceError, UsageError
from kvmodel.language.instance import Instance

__all__ = ["LARGEST", "Estimate", "estimate", "refuse_endless"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """`values`: how many values one state has. `steps`: how many steps there are to try in each state (actions with
    their bindings)."""

    values: int
    steps: int


# A hundred thousand states of this size fill the memory of a small machine, and nothing as large has that few states.
LARGEST = {
    "explore": Estimate(2_000, 5_000),
    "bmc": Estimate(5_000, 20_000),
    "walk": Estimate(20_000, 100_000),
    "hypothesis": Estimate(20_000, 100_000),
}
INSTEAD = {
    "explore": "ask for smaller sizes, or for --method walk, which samples runs",
    "bmc": "ask for smaller sizes, or for --method walk, which samples runs",
    "walk": "ask for smaller sizes; `kvmodel simulate` runs the handoff at real sizes",
    "hypothesis": "ask for smaller sizes; `kvmodel simulate` runs the handoff at real sizes",
}


def estimate(instance: Instance) -> Estimate:
    """Count what one state of the instance has, without making one."""
    counts = dict(instance.sizes) | {e.name: len(e.members) for e in instance.system.enumerations}
    values = sum(prod(counts[key.name] for key in variable.keys) for variable in instance.system.variables)
    steps = sum(prod(counts[parameter.domain.name] for parameter in action.parameters) for action in instance.system.actions)
    return Estimate(values, steps)


def refuse_endless(instance: Instance, method: str) -> None:
    """Raise InstanceError when `method` cannot be expected to end at the sizes of `instance`."""
    if method not in LARGEST:
        raise UsageError(f"there is no method '{method}'")
    found, most = estimate(instance), LARGEST[method]
    if found.steps > most.steps or found.values > most.values:
        raise InstanceError(
            f"{method} of {instance.system.name} at {instance.describe_size()} would not end: a state has {found.values:,} values "
            f"(at most {most.values:,}) and {found.steps:,} steps to try (at most {most.steps:,}); {INSTEAD[method]}"
        )
