"""What a step may make false: a property's failures as cases, and what is left to look for of a case after a step that is known in part.

Nothing here is source text: `code` turns what is left into statements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kvmodel.language.expressions import FALSE, TRUE, Apply, Bound, Const, Expr, Quantified, Read, free_names, rebuild, substitute, walk
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.types import BOOL, Bool
from kvmodel.readings.footprint import Access, accesses
from kvmodel.readings.ground import simplified
from kvmodel.readings.parts import Parts
from kvmodel.readings.search import Literal, alternatives, literals

__all__ = ["Case", "Check", "Facts", "Touch", "Touching", "fact_of", "touching", "with_facts", "without_names"]

MOST_CASES = 32
Facts: TypeAlias = Mapping[Expr, Expr]
"""Places whose value is known: a constant, or an element."""


@dataclass(frozen=True, slots=True)
class Check:
    """A condition that must be true of every state, for every binding of its parameters. `number` names it."""

    number: int
    parameters: tuple[Bound, ...]
    condition: Expr


@dataclass(frozen=True, slots=True)
class Case:
    """One way in which a check fails: literals that are all true, over its parameters and then the variables of quantifiers that
    some element satisfies. Names are unlike any other."""

    variables: tuple[Bound, ...]
    condition: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Touch:
    """A way in which a case of a check reads a variable."""

    check: Check
    case: Case
    access: Access


Touching: TypeAlias = Mapping[str, Sequence[Touch]]
"""What reads each variable."""


def touching(checks: Sequence[Check], parts: Parts) -> Touching:
    """What reads each variable, of checks for every choice of the parts of their parameters."""
    found: dict[str, list[Touch]] = {}
    for check in checks:
        for members in parts.choices(check.parameters):
            apart = Check(check.number, parts.parameters(check.parameters, members), parts.expression(check.condition, members))
            for case in _cases(apart):
                for access in dict.fromkeys(a for literal in case.condition for a in accesses(literal.expr, case.variables, parts.apart)):
                    found.setdefault(access.variable, []).append(Touch(apart, case, access))
    return found


def _cases(check: Check) -> list[Case]:
    """Cases of which one is true wherever the check fails."""
    variables = tuple(Bound(f"{parameter.name}'{number}", parameter.domain) for number, parameter in enumerate(check.parameters))
    renamed: dict[str, Expr] = {old.name: new for old, new in zip(check.parameters, variables, strict=True)}
    done: list[Case] = []
    waiting: list[tuple[tuple[Bound, ...], list[Literal], list[Literal]]] = [
        (variables, [], list(literals(substitute(check.condition, renamed), False)))
    ]
    while waiting:
        known, flat, open_ = waiting.pop()
        if not open_:
            done.append(Case(known, tuple(dict.fromkeys(flat))))
            continue
        literal, *others = open_
        expr = literal.expr
        groups = alternatives(literal)
        if isinstance(expr, Quantified) and expr.binder is (Binder.ANY if literal.truth else Binder.ALL):
            fresh = {v.name: Bound(f"{v.name}'{len(known) + number}", v.domain) for number, v in enumerate(expr.variables)}
            body = literals(substitute(expr.body, dict(fresh)), literal.truth)
            waiting.append(((*known, *fresh.values()), flat, [*body, *others]))
        elif groups and len(waiting) + len(done) + len(groups) <= MOST_CASES:
            waiting += [(known, list(flat), [*group, *others]) for group in groups]
        else:
            waiting.append((known, [*flat, literal], others))
    return done


def without_names(condition: tuple[Literal, ...], variables: tuple[Bound, ...]) -> frozenset[Literal]:
    """The condition with `variables` called by their positions, and equations one way round."""
    places: dict[str, Expr] = {variable.name: Bound(f"_{number}", variable.domain) for number, variable in enumerate(variables)}

    def ordered(expr: Expr) -> Expr:
        changed = rebuild(expr, ordered)
        if isinstance(changed, Apply) and changed.operator is Operator.EQ:
            return Apply(Operator.EQ, tuple(sorted(changed.arguments, key=repr)), changed.type)
        return changed

    return frozenset(Literal(ordered(substitute(literal.expr, places)), literal.truth) for literal in condition)


def fact_of(literal: Literal) -> tuple[Read, Const] | None:
    """The place and the value that a literal fixes."""
    match literal.expr:
        case Read() as place if isinstance(place.type, Bool):
            return place, Const(literal.truth, BOOL)
        case Apply(operator=Operator.EQ, arguments=(Read() as place, Const() as value) | (Const() as value, Read() as place)):
            return (place, value) if literal.truth else None
    return None


def with_facts(condition: Sequence[Literal], facts: Facts) -> tuple[Literal, ...] | None:
    """The condition where `facts` are true: fewer literals, or None where it is false."""
    found: dict[Literal, None] = {}
    for literal in condition:
        expr = _known(literal.expr, facts)
        if isinstance(expr, Const):
            if expr.value is not literal.truth:
                return None
            continue
        for part in literals(expr, literal.truth):
            if part.expr in (TRUE, FALSE):
                if (part.expr == TRUE) is not part.truth:
                    return None
                continue
            found[part] = None
    return tuple(found)


def _known(expr: Expr, facts: Facts) -> Expr:
    """`expr` with the places that `facts` fix in place, simplified."""
    if isinstance(expr, Read) and expr in facts:
        return facts[expr]
    if isinstance(expr, Quantified) and expr.binder is Binder.ANY and _shown(expr, facts):
        return TRUE
    if not any(isinstance(node, Read) and node in facts for node in walk(expr)):
        return expr
    if isinstance(expr, Quantified):
        hidden = {variable.name for variable in expr.variables}
        facts = {place: value for place, value in facts.items() if not free_names(place) & hidden}
    changed = rebuild(expr, lambda part: _known(part, facts))
    if isinstance(changed, Apply):
        match changed.operator, changed.arguments:
            case Operator.EQ, (left, right) if left == right:
                return TRUE
            case Operator.IS_NONE, (Bound(),):
                return FALSE
    return simplified(changed)


def _shown(expr: Quantified, facts: Facts) -> bool:
    """Whether a fact is an instance of what an `any` says."""
    body = expr.body
    if not isinstance(body, Read) or len(expr.variables) != 1:
        return False
    return any(
        isinstance(place, Read)
        and value == TRUE
        and place.variable == body.variable
        and all(part == expr.variables[0] or part == known for part, known in zip(body.index, place.index, strict=True))
        for place, value in facts.items()
    )
