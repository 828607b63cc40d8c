"""Vacuity: what makes a pass mean less than it seems to. Judged over all reachable states, so a finding is a fact."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kvmodel.language.expressions import Apply, Expr, Named
from kvmodel.language.instance import Instance, Values
from kvmodel.language.operators import Operator
from kvmodel.language.system import Condition, PropertyKind
from kvmodel.language.types import Element, Maybe
from kvmodel.readings.ground import Grounder
from kvmodel.readings.steps import DenseSteps
from kvmodel.verdict import Finding, FindingKind

__all__ = ["premise", "vacuity"]

Explored = Sequence[tuple[DenseSteps, Sequence[Values]]]


def vacuity(instance: Instance, explored: Explored, fired: Mapping[str, int]) -> tuple[Finding, ...]:
    """Findings over the reachable states of each deployment: actions that never fired, guards that never decided,
    premises of invariants that were never true, sorts that nothing is indexed by or holds."""
    system = instance.system
    if not any(fired.values()):
        return (Finding(FindingKind.NOTHING_HAPPENED, system.name, str(system.at), "no action ever fired: no step can violate anything"),)
    findings = []
    possible = {action.choice.action for action in Grounder(instance).actions()}
    for action in system.actions:
        if action.name not in possible:
            continue  # switched off by a flag: that is a choice, not an accident
        if not fired.get(action.name):
            message = f"{action.name} was never enabled in any reachable state"
            findings.append(Finding(FindingKind.ACTION_NEVER_FIRED, action.name, str(action.at), message))
            continue
        for number, guard in enumerate(action.guards):
            key = (action.name, number)
            if not _somewhere(explored, lambda steps, key=key: steps.deciding(key)):  # type: ignore[misc]
                findings.append(
                    Finding(
                        FindingKind.GUARD_NEVER_DECIDED,
                        f"{action.name}: {guard.name}",
                        str(guard.at),
                        f"'{guard.name}' was true whenever the other guards of {action.name} were: it never decided anything",
                    )
                )
    for candidate in system.declared:
        left = premise(candidate.condition)
        if candidate.kind is not PropertyKind.INVARIANT or left is None:
            continue
        condition = Condition(candidate.name, candidate.parameters, left)
        if not _somewhere(explored, lambda steps, condition=condition: steps.grounder.for_some(condition)):  # type: ignore[misc]
            findings.append(
                Finding(
                    FindingKind.PREMISE_NEVER_TRUE,
                    candidate.name,
                    str(candidate.at),
                    f"the left side of {candidate.name} was never true: it holds because it says nothing",
                )
            )
    used = {key.name for variable in system.variables for key in variable.keys}
    used |= {variable.type.domain.name for variable in system.variables if isinstance(variable.type, Element | Maybe)}
    findings += [
        Finding(FindingKind.SORT_UNUSED, sort.name, "", f"no variable is indexed by {sort.name} or holds one")
        for sort in system.sorts
        if sort.name not in used
    ]
    return tuple(findings)


def premise(expr: Expr) -> Expr | None:
    """The left side of an implication, through definitions; None for anything else."""
    match expr:
        case Apply(operator=Operator.IMPLIES, arguments=(left, _)):
            return left
        case Named(body=body):
            return premise(body)
        case _:
            return None


def _somewhere(explored: Explored, condition: Callable[[DenseSteps], Expr]) -> bool:
    return any(any(map(steps.predicate(condition(steps)), states)) for steps, states in explored)
