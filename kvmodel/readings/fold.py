"""Folding: a system with the values of its flags in place and constants simplified away.

What a deployment's flags switch off then no longer counts as read or written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kvmodel.errors import InternalError
from kvmodel.language.expressions import (
    FALSE,
    TRUE,
    Apply,
    Bound,
    Cell,
    Const,
    Expr,
    FlagRead,
    Named,
    Quantified,
    Read,
)
from kvmodel.language.operators import Binder
from kvmodel.language.system import Action, Condition, Property, TransitionSystem
from kvmodel.language.types import BOOL, COUNT
from kvmodel.readings.ground import simplify

__all__ = ["fold", "fold_system"]


def fold(expr: Expr, flags: Mapping[str, bool]) -> Expr:
    """`expr` with flags replaced by their values (where `flags` has one), definitions expanded, and constants simplified away."""
    match expr:
        case Const() | Bound() | Cell():
            return expr
        case FlagRead(flag=flag):
            return Const(flags[flag], BOOL) if flag in flags else expr
        case Named(body=body):
            return fold(body, flags)
        case Read(variable, index, kind, at):
            return Read(variable, tuple(fold(part, flags) for part in index), kind, at)
        case Apply(operator, arguments, kind):
            return simplify(operator, tuple(fold(part, flags) for part in arguments), kind)
        case Quantified(binder, variables, body, at):
            inner = fold(body, flags)
            # Sorts are never empty, so a constant body decides ALL and ANY.
            if binder is Binder.COUNT:
                return Const(0, COUNT) if inner == FALSE else Quantified(binder, variables, inner, at)
            return inner if isinstance(inner, Const) else Quantified(binder, variables, inner, at)
    raise InternalError(f"folding has no rule for {expr!r}")


def fold_system(system: TransitionSystem, flags: Mapping[str, bool] | None = None) -> TransitionSystem:
    """`system` with every expression folded under its effective flags, or under `flags`; guards that are plainly true are
    dropped, and so are updates that never happen."""
    flags = system.flag_values if flags is None else flags

    def condition(part: Condition) -> Condition:
        return replace(part, condition=fold(part.condition, flags))

    def declared(part: Property) -> Property:
        return replace(part, condition=fold(part.condition, flags))

    def action(part: Action) -> Action:
        guards = [replace(guard, condition=fold(guard.condition, flags)) for guard in part.guards]
        updates = [
            replace(
                update,
                index=tuple(fold(key, flags) for key in update.index),
                value=fold(update.value, flags),
                condition=fold(update.condition, flags),
            )
            for update in part.updates
        ]
        return replace(
            part,
            guards=tuple(guard for guard in guards if guard.condition != TRUE),
            assertions=tuple(replace(a, condition=fold(a.condition, flags)) for a in part.assertions),
            updates=tuple(update for update in updates if update.condition != FALSE),
        )

    return replace(
        system,
        assumptions=tuple(condition(part) for part in system.assumptions),
        initial=tuple(condition(part) for part in system.initial),
        actions=tuple(action(part) for part in system.actions),
        declared=tuple(declared(part) for part in system.declared),
        finals=tuple(condition(part) for part in system.finals),
        lemmas=tuple(condition(part) for part in system.lemmas),
    )
