"""The system of an observed trace: the states and properties of a spec, and for steps what an engine was asked to do."""

from __future__ import annotations

from dataclasses import replace

from kvmodel.errors import UsageError, nearest
from kvmodel.language.expressions import Bound
from kvmodel.language.system import ANYTHING, Action, PropertyKind, TransitionSystem, Variable
from kvmodel.language.types import Element, Enumeration
from kvmodel.readings.partial import partial
from kvmodel.traces.observed import Observed

__all__ = ["PAGE", "REQUEST", "observed_system"]

PAGE, REQUEST = "Page", "Request"
PARAMETER = "r"


def observed_system(system: TransitionSystem, observed: Observed) -> TransitionSystem:
    """`system` as an engine's run is seen: without the variables that nobody maps (a condition that depends on one is true as
    long as it can be), and with the engine's verbs, which say nothing about the next state, instead of its actions. With
    several pools, `pool` says in which one a page is.

    Raises UsageError for a variable that the system does not have, or a sort that is not there.
    """
    for name in observed.unknown:
        if name not in system.by_name:
            raise UsageError(f"{system.name} has no variable '{name}'{nearest(name, list(system.by_name))}")
    request = system.domain(REQUEST)
    seen = partial(system, frozenset(observed.unknown)).systems.possible
    kept = tuple(variable for variable in seen.variables if variable.name not in observed.unknown)
    enumerations = seen.enumerations
    if len(observed.pools) > 1 and "pool" not in seen.by_name:
        pools = Enumeration("Pool", tuple(name.upper() for name in observed.pools))
        kept = (Variable("pool", (system.domain(PAGE),), Element(pools), ANYTHING, rigid=True, partition=True), *kept)
        enumerations = (*enumerations, pools)
    verbs = tuple(Action(verb.name, (Bound(PARAMETER, request),) if verb.request else (), doc=verb.doc) for verb in observed.verbs)
    return replace(
        seen,
        variables=kept,
        enumerations=enumerations,
        assumptions=(),
        initial=(),
        actions=verbs,
        declared=tuple(p for p in seen.declared if p.kind is PropertyKind.INVARIANT),
        finals=(),
        lemmas=(),
        definitions=(),
        sizes=(),
    )
