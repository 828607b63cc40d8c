"""How tight claims are: the states of a small instance that satisfy them, against those that are reachable.

An inductive invariant holds in every reachable state and in others. Few others mean that the claims say nearly everything
that is true of the protocol; many, that a proof gets by with little. Both are counted by enumeration.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import prod

from kvmodel.language.expressions import FALSE
from kvmodel.language.instance import Instance, Values
from kvmodel.language.types import Element, Enumeration, Maybe, Type
from kvmodel.readings.conditions import Induction
from kvmodel.readings.explore import reachable
from kvmodel.readings.ground import Grounder, cells
from kvmodel.readings.picture import required
from kvmodel.readings.valuations import Codes, Constraint, TooMany, Valuations, code

__all__ = ["Tightness", "tightness"]

LIMIT = 50_000_000


@dataclass(frozen=True, slots=True)
class Tightness:
    """Counts over all rigid valuations of an instance: type-correct states, those that satisfy the claims, and those that
    are reachable. None: not counted to the end, for the reason given."""

    sizes: tuple[tuple[str, int], ...]
    states: int
    satisfying: int | None
    reachable: int | None
    reason: str = ""


def tightness(
    instance: Instance,
    claims: Collection[str],
    *,
    limit: int = LIMIT,
    timeout: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> Tightness:
    """Count the states of `instance` that satisfy the claims called `claims`, and the reachable ones.

    `limit` bounds the valuations that are looked at, and `timeout` the exploration.
    """
    graph = reachable(instance, (), timeout=timeout, progress=progress)
    found = graph.states if graph.complete else None
    types = instance.state_layout.types
    total = prod(len(instance.values_of(kind)) for kind in types) * len(graph.deployments)
    satisfying = 0
    try:
        for deployment in graph.deployments:
            satisfying += _satisfying(instance, claims, deployment.steps.rigid, limit)
    except TooMany as problem:
        return Tightness(instance.size_options(), total, None, found, f"{problem} in one step, more than {limit:,}")
    return Tightness(instance.size_options(), total, satisfying, found, graph.stopped)


def _satisfying(instance: Instance, names: Collection[str], rigid: Values, limit: int) -> int:
    claims = Induction(instance.system).claims
    grounder = Grounder(instance, rigid)
    types = instance.state_layout.types
    waiting = [
        Constraint(part, frozenset(cell.slot for cell in cells(part)))
        for name in names
        for whole in claims[name].parts
        for part in required(grounder.expression(whole, {}), True)
    ]
    waiting = list(dict.fromkeys(waiting))
    if any(constraint.condition == FALSE for constraint in waiting):
        return 0
    table = Valuations(limit)
    codes = [_codes(instance, kind) for kind in types]
    while waiting and table.rows:
        growth = [prod(len(codes[slot]) for slot in constraint.slots - table.columns.keys()) for constraint in waiting]
        constraint = waiting.pop(growth.index(min(growth)))
        missing = [(slot, codes[slot]) for slot in sorted(constraint.slots - table.columns.keys())]
        table.join(constraint, missing)
    return table.rows * prod(len(codes[slot]) for slot in range(len(types)) if slot not in table.columns)


def _codes(instance: Instance, kind: Type) -> Codes:
    domain = kind.domain if isinstance(kind, Element | Maybe) else None
    return tuple(code(value, domain if isinstance(domain, Enumeration) else None) for value in instance.values_of(kind))
