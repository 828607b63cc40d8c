"""Systems broken on purpose: one guard or update less, or one literal the other way round."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvmodel.language.expressions import FALSE, TRUE, Apply, Const, Expr, Quantified, conjunction, conjuncts, negation
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import Action, TransitionSystem
from kvmodel.language.types import Bool, Element, Enumeration
from kvmodel.readings.fold import fold_system

__all__ = ["Mutant", "flips", "mutants"]

CONNECTIVES = (Operator.NOT, Operator.AND, Operator.OR, Operator.IMPLIES, Operator.IF)


@dataclass(frozen=True)
class Mutant:
    """A system, and what was done to it."""

    what: str
    action: str
    system: TransitionSystem


def mutants(system: TransitionSystem) -> Iterator[Mutant]:
    """Every mutant of `system` under its effective flags, action by action."""
    folded = fold_system(system)
    for position, action in enumerate(folded.actions):
        for what, changed in _actions(action):
            if changed != action:
                actions = (*folded.actions[:position], changed, *folded.actions[position + 1 :])
                yield Mutant(f"{system.name}: {action.name}: {what}", action.name, replace(folded, actions=actions))


def _actions(action: Action) -> Iterator[tuple[str, Action]]:
    for number, guard in enumerate(action.guards):

        def guarded(condition: Expr, number: int = number) -> Action:
            kept = tuple(replace(part, condition=condition) if i == number else part for i, part in enumerate(action.guards))
            return replace(action, guards=tuple(part for part in kept if part.condition != TRUE))

        parts = conjuncts(guard.condition)
        for dropped in range(len(parts)):
            what = f"guard '{guard.name}' dropped" if len(parts) == 1 else f"guard '{guard.name}' without its part {dropped}"
            yield what, guarded(conjunction(parts[:dropped] + parts[dropped + 1 :]))
        for flipped, condition in enumerate(flips(guard.condition)):
            yield f"guard '{guard.name}', literal {flipped} flipped", guarded(condition)
    if any(guard.condition == FALSE for guard in action.guards):  # switched off by a flag: what it would do is nothing
        return
    for number, update in enumerate(action.updates):
        before, after = action.updates[:number], action.updates[number + 1 :]
        name = f"update {number} of {update.variable}"
        yield f"{name} dropped", replace(action, updates=before + after)
        if update.condition != TRUE:
            yield f"{name} always", replace(action, updates=(*before, replace(update, condition=TRUE), *after))
        for flipped, condition in enumerate(flips(update.condition) if update.condition != TRUE else ()):
            yield f"{name}, literal {flipped} of its condition flipped", replace(
                action, updates=(*before, replace(update, condition=condition), *after)
            )
        for flipped, value in enumerate(flips(update.value)):
            changed = replace(update, value=value)
            yield f"{name}, literal {flipped} of its value flipped", replace(action, updates=(*before, changed, *after))


def flips(expr: Expr) -> Iterator[Expr]:
    """`expr` with one literal the other way round: an atom negated, a member of an enumeration replaced by the next."""
    match expr:
        case Const(value=value, type=Element(Enumeration() as enumeration)):
            members = enumeration.members
            yield replace(expr, value=members[(members.index(str(value)) + 1) % len(members)])
        case Apply(operator=operator, arguments=arguments) if operator in CONNECTIVES:
            for position, argument in enumerate(arguments):
                for flipped in flips(argument):
                    yield replace(expr, arguments=(*arguments[:position], flipped, *arguments[position + 1 :]))
        case Quantified(binder=binder, body=body) if binder is not Binder.COUNT:
            for flipped in flips(body):
                yield replace(expr, body=flipped)
        case _ if isinstance(expr.type, Bool):
            yield negation(expr)
