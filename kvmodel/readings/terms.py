"""Z3 terms without the type checks of Z3's Python layer: what is translated has been typed by the language already.

The checks take most of the time in which a condition is translated. Each function is the one of the same name in Z3, for terms of
one context and of the right sorts; a wrong sort is still an error, of Z3's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import z3

__all__ = ["application", "choice", "conjunction", "disjunction", "equality", "implication", "negation"]

Term: TypeAlias = Any  # z3 has no types


def _array(parts: Sequence[Term]) -> Any:
    return (z3.Ast * len(parts))(*(part.ast for part in parts))


def application(function: Term, arguments: Sequence[Term]) -> Term:
    """`function` of `arguments`."""
    made = z3.Z3_mk_app(function.ctx.ref(), function.ast, len(arguments), _array(arguments))
    return _wrapped(made, function.range(), function.ctx)


def _wrapped(made: Any, sort: Term, context: Any) -> Term:
    match sort.kind():
        case z3.Z3_BOOL_SORT:
            return z3.BoolRef(made, context)
        case z3.Z3_INT_SORT:
            return z3.ArithRef(made, context)
        case z3.Z3_DATATYPE_SORT:
            return z3.DatatypeRef(made, context)
        case _:
            return z3.ExprRef(made, context)


def conjunction(parts: Sequence[Term], context: Any) -> Term:
    """All of `parts`; true without any."""
    return z3.BoolRef(z3.Z3_mk_and(context.ref(), len(parts), _array(parts)), context)


def disjunction(parts: Sequence[Term], context: Any) -> Term:
    """Some of `parts`; false without any."""
    return z3.BoolRef(z3.Z3_mk_or(context.ref(), len(parts), _array(parts)), context)


def negation(part: Term) -> Term:
    """Not `part`."""
    return z3.BoolRef(z3.Z3_mk_not(part.ctx.ref(), part.ast), part.ctx)


def implication(premise: Term, conclusion: Term) -> Term:
    """`premise` implies `conclusion`."""
    return z3.BoolRef(z3.Z3_mk_implies(premise.ctx.ref(), premise.ast, conclusion.ast), premise.ctx)


def equality(left: Term, right: Term) -> Term:
    """Two terms of one sort are equal."""
    return z3.BoolRef(z3.Z3_mk_eq(left.ctx.ref(), left.ast, right.ast), left.ctx)


def choice(condition: Term, then: Term, otherwise: Term) -> Term:
    """`then` where `condition` is true, and else `otherwise`."""
    made = z3.Z3_mk_ite(condition.ctx.ref(), condition.ast, then.ast, otherwise.ast)
    return type(then)(made, condition.ctx)
