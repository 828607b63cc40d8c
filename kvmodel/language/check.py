"""Rules that a transition system obeys however it was made: what the reader and the builder both enforce."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvmodel.language.expressions import (
    Apply,
    Bound,
    Const,
    Expr,
    Quantified,
    Read,
    conjuncts,
    free_names,
    substitute,
    walk,
)
from kvmodel.language.operators import Operator
from kvmodel.language.system import Action, Anything, TransitionSystem, Update, Variable
from kvmodel.language.types import BOOL, Bool, Counter, Domain, Element, Enumeration, Maybe, Span, Type, Value, a_kind

__all__ = ["Problem", "malformed", "problems", "writes_that_collide"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A broken rule: where it is, what it is about, what is wrong and what to do."""

    at: Span
    where: str
    message: str
    hint: str = ""


def problems(system: TransitionSystem) -> Iterator[Problem]:
    """Every rule that `system` breaks."""
    rigid = {variable.name for variable in system.rigid_variables}
    for action in system.actions:
        for update in action.updates:
            if update.variable in rigid:
                yield Problem(update.at, action.name, f"'{update.variable}' is rigid and cannot be written",
                              "rigid things never change in a run; make it a state variable if it must")
        for first, second in writes_that_collide(action):
            yield _collision(action, first, second)
    for condition in system.assumptions:
        for node in walk(condition.condition):
            if isinstance(node, Read) and node.variable not in rigid:
                yield Problem(node.at, condition.name, f"an assumption reads '{node.variable}', which changes in a run",
                              "assumptions are about rigid things: flags, numbers and rigid relations and functions")
    read = system.flags_read()
    for flag in system.flags:
        if flag.name not in read:
            yield Problem(flag.at, flag.name, f"the flag '{flag.name}' is set and never read",
                          "read it in a guard, a definition or an assumption, or delete it")


def malformed(system: TransitionSystem) -> Iterator[Problem]:
    """What a program can get wrong and a spec class cannot: unbound names, sorts that are not declared, wrong types."""
    declared = {sort.name for sort in system.sorts} | {enumeration.name for enumeration in system.enumerations}
    used: dict[str, str] = {domain.name: variable.name for variable in system.variables for domain in _domains(variable)}
    for variable in system.variables:
        if not isinstance(variable.initial, Anything) and not _fits(variable.initial, variable.type):
            yield Problem(variable.at, "", f"'{variable.name}' starts at {variable.initial!r}, which is not {a_kind(variable.type)}")
    for where, parameters, expr, truth in _expressions(system):
        used.update((bound.domain.name, where) for bound in parameters)
        if truth and expr.type != BOOL:
            yield Problem(expr.at, where, f"the condition is {a_kind(expr.type)}, not a truth value")
        for name in sorted(free_names(expr) - {bound.name for bound in parameters}):
            yield Problem(expr.at, where, f"'{name}' is neither a parameter nor a loop variable")
        for node in walk(expr):
            if isinstance(node, Quantified):
                used.update((bound.domain.name, where) for bound in node.variables)
    for name in sorted(set(used) - declared):
        yield Problem(system.at, used[name], f"'{name}' is not declared")


def _domains(variable: Variable) -> list[Domain]:
    domains = list(variable.keys)
    if isinstance(variable.type, Element | Maybe):
        domains.append(variable.type.domain)
    return domains


def _fits(value: Value, kind: Type) -> bool:
    match kind:
        case Bool():
            return isinstance(value, bool)
        case Counter(low, high):
            return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        case Element(Enumeration(members=members)):
            return value in members
        case Maybe() | Element():
            return (isinstance(value, int) and not isinstance(value, bool) and value >= 0) or (value is None and isinstance(kind, Maybe))
        case _:
            return False


def _expressions(system: TransitionSystem) -> Iterator[tuple[str, tuple[Bound, ...], Expr, bool]]:
    """Every expression with what it belongs to, what it may name, and whether it is a condition."""
    for condition in (*system.assumptions, *system.initial, *system.finals, *system.lemmas):
        yield condition.name, condition.parameters, condition.condition, True
    for declared in system.declared:
        yield declared.name, declared.parameters, declared.condition, True
    for action in system.actions:
        for guard in action.guards:
            yield action.name, action.parameters, guard.condition, True
        for assertion in action.assertions:
            yield action.name, action.parameters, assertion.condition, True
        for update in action.updates:
            inner = (*action.parameters, *update.over)
            yield action.name, inner, update.condition, True
            for expr in (update.value, *update.index):
                yield action.name, inner, expr, False


def _collision(action: Action, first: Update, second: Update) -> Problem:
    if first is second:
        names = ", ".join(sorted({b.name for b in first.over} - _index_names(first)))
        return Problem(first.at, action.name, f"'{first.variable}' is written once for every {names}, at one place",
                       "use the loop's variable as an index")
    writers = f"here ({second.owner}) and at {first.at} ({first.owner})" if second.owner else "two of its updates can meet"
    return Problem(second.at, action.name, f"'{second.variable}' is written twice at one place: {writers}",
                   "updates are simultaneous; write each place once, or under conditions that exclude each other")


def writes_that_collide(action: Action) -> Iterator[tuple[Update, Update]]:
    """Pairs of updates that may write one place in one step (a pair of one with itself: a loop over one place)."""
    distinct = _distinct_names(action)
    for position, first in enumerate(action.updates):
        if {bound.name for bound in first.over} - _index_names(first):
            yield first, first
        for second in action.updates[position + 1:]:
            if first.variable == second.variable and _may_meet(first, second, distinct):
                yield first, second


def _index_names(update: Update) -> set[str]:
    return {part.name for part in update.index if isinstance(part, Bound)}


def _distinct_names(action: Action) -> set[frozenset[str]]:
    """Pairs of parameters that a guard says are different."""
    found = set()
    for guard in action.guards:
        for part in conjuncts(guard.condition):
            match part:
                case Apply(Operator.NOT, (Apply(Operator.EQ, (Bound(name=a), Bound(name=b))),)):
                    found.add(frozenset((a, b)))
    return found


def _may_meet(first: Update, second: Update, distinct: set[frozenset[str]]) -> bool:
    loop_first = {bound.name for bound in first.over}
    renamed: dict[str, Expr] = {bound.name: Bound(bound.name + "'", bound.domain) for bound in second.over}
    index = tuple(substitute(part, renamed) for part in second.index)
    loop_second = {f"{bound.name}'" for bound in second.over}
    unified: dict[str, Expr] = {}
    for a, b in zip(first.index, index, strict=True):
        a, b = substitute(a, unified), substitute(b, unified)
        if isinstance(b, Bound) and b.name in loop_second:
            unified[b.name] = a
        elif isinstance(a, Bound) and a.name in loop_first:
            unified[a.name] = b
        elif isinstance(a, Const) and isinstance(b, Const):
            if a.value != b.value:
                return False
        elif isinstance(a, Bound) and isinstance(b, Bound) and frozenset((a.name, b.name)) in distinct:
            return False
    wholes = (first.condition, substitute(second.condition, renamed))
    facts = dict.fromkeys(part for whole in wholes for part in conjuncts(_resolve(whole, unified)))
    return not _contradict(facts, distinct)


def _resolve(expr: Expr, unified: dict[str, Expr]) -> Expr:
    for _ in range(len(unified)):
        if not free_names(expr) & set(unified):
            break
        expr = substitute(expr, unified)
    return expr


def _contradict(facts: dict[Expr, None], distinct: set[frozenset[str]]) -> bool:
    values: dict[Expr, Const] = {}
    for fact in facts:
        match fact:
            case Const(value=False):
                return True
            case Apply(Operator.NOT, (part,)):
                if part in facts or (isinstance(part, Apply) and part.operator is Operator.EQ and part.arguments[0] == part.arguments[1]):
                    return True
            case Apply(Operator.EQ, (Bound(name=a), Bound(name=b))) if frozenset((a, b)) in distinct:
                return True
            case Apply(Operator.EQ, (left, Const() as right)):
                if values.setdefault(left, right).value != right.value:
                    return True
    return False
