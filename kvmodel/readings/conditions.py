"""Verification conditions: what has to be true for claims to hold in every run at every size, as expressions.

A claim (an invariant, a lemma, an assertion of an action, the range of a counter, the absence of deadlock) is inductive
when initial states satisfy it and every action keeps it, given the other claims. `after` gives the weakest precondition:
what an expression says of the state after an action, said of the state before it. So a condition is one formula over one
state, and every prover reads the same formula.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from kvmodel.errors import InternalError
from kvmodel.language.expressions import (
    FALSE,
    Apply,
    Bound,
    Const,
    Expr,
    Named,
    Quantified,
    Read,
    conjuncts,
    substitute,
    walk,
)
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import Action, Anything, Property, PropertyKind, TransitionSystem, Update, Variable
from kvmodel.language.types import BOOL, COUNT, Counter, Span, Value
from kvmodel.readings.fold import fold_system
from kvmodel.readings.ground import simplify

__all__ = ["INITIALLY", "NEVER", "OBVIOUSLY", "Claim", "Induction", "VerificationCondition", "after", "calls_for_elements", "closed"]

INITIALLY = "initially"  # the conditions that initial states satisfy a claim
OBVIOUSLY = "implied"  # the conditions that claims imply a claim
NEVER = "never enabled"  # in place of a claim: that the claims leave no state in which an action is enabled
NOWHERE = Span()


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that is to hold in every reachable state, for all `parameters`.

    `lemma` marks one that the spec gives only to help a proof. A `derived` claim is shown from the others and helps none:
    an assertion (what an action's guards must imply) and the absence of deadlock.
    """

    name: str
    parameters: tuple[Bound, ...]
    condition: Expr
    lemma: bool = False
    derived: bool = False
    at: Span = NOWHERE

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The claim as closed expressions whose conjunction it is; each can be used without the others."""
        return tuple(closed(self.parameters, part) for part in conjuncts(self.condition))


@dataclass(frozen=True, slots=True)
class VerificationCondition:
    """``assumptions and hypotheses and premises imply goal``, for every value of `constants`.

    `step` is the name of the action, `INITIALLY` or `OBVIOUSLY`; `claim` the name of the claim whose goal this is. Each
    hypothesis has the name of its claim; leaving some out makes a stronger condition.
    """

    step: str
    claim: str
    constants: tuple[Bound, ...]
    assumptions: tuple[Expr, ...]
    hypotheses: tuple[tuple[str, Expr], ...]
    premises: tuple[Expr, ...]
    goal: Expr

    @property
    def name(self) -> str:
        """``land/isolated_read``."""
        return f"{self.step}/{self.claim}"

    def under(self, names: Iterable[str]) -> VerificationCondition:
        """The condition with the hypotheses of the claims called `names` alone."""
        wanted = frozenset(names)
        return replace(self, hypotheses=tuple(entry for entry in self.hypotheses if entry[0] in wanted))

    def expressions(self) -> Iterator[Expr]:
        """Every expression of the condition."""
        yield from self.assumptions
        yield from (expr for _, expr in self.hypotheses)
        yield from self.premises
        yield self.goal


def closed(parameters: tuple[Bound, ...], expr: Expr) -> Expr:
    """`expr` for all `parameters`."""
    used = tuple(parameter for parameter in parameters if any(isinstance(n, Bound) and n.name == parameter.name for n in walk(expr)))
    return Quantified(Binder.ALL, used, expr, expr.at) if used else expr


@lru_cache(maxsize=4096)
def calls_for_elements(expr: Expr, positive: bool = True) -> bool:
    """Whether `expr` says that there is an element ("some page"), where `positive` says that it is not under a negation.

    As a hypothesis, such an expression can take a condition out of the decidable fragment.
    """
    match expr:
        case Quantified(binder=binder, body=body):
            return (binder is not Binder.ALL) == positive or calls_for_elements(body, positive)
        case Apply(operator=Operator.NOT, arguments=(part,)):
            return calls_for_elements(part, not positive)
        case Apply(operator=Operator.IMPLIES, arguments=(premise, conclusion)):
            return calls_for_elements(premise, not positive) or calls_for_elements(conclusion, positive)
        case Apply(operator=Operator.AND | Operator.OR, arguments=parts):
            return any(calls_for_elements(part, positive) for part in parts)
        case _:
            return any(isinstance(node, Quantified) for node in walk(expr))


def after(expr: Expr, action: Action) -> Expr:
    """What `expr` says of the state after `action`, as an expression over the state before it.

    The parameters of `action` stay free in it; they must not be bound in `expr`.
    """
    writes: dict[str, list[Update]] = {}
    for update in action.updates:
        writes.setdefault(update.variable, []).append(update)

    def rewrite(node: Expr) -> Expr:
        match node:
            case Named(body=body):
                return rewrite(body)
            case Read(variable, index, kind, at):
                places = tuple(rewrite(part) for part in index)
                value: Expr = Read(variable, places, kind, at)
                for update in writes.get(variable, ()):
                    when, written = _written(update, places, action)
                    value = simplify(Operator.IF, (when, written, value), kind)
                return value
            case Apply(operator, arguments, kind):
                return simplify(operator, tuple(rewrite(part) for part in arguments), kind)
            case Quantified(binder, variables, body, at):
                return quantified(binder, variables, rewrite(body), at)
            case _:
                return node

    return rewrite(expr)


def quantified(binder: Binder, variables: tuple[Bound, ...], body: Expr, at: Span = NOWHERE) -> Expr:
    """A quantified expression, without the binder where the body is constant (sorts are never empty)."""
    if isinstance(body, Const):
        if binder is not Binder.COUNT:
            return body
        if body == FALSE:
            return Const(0, COUNT)
    return Quantified(binder, variables, body, at)


def _written(update: Update, places: tuple[Expr, ...], action: Action) -> tuple[Expr, Expr]:
    """When `update` writes the place at `places`, and what."""
    loops = {bound.name for bound in update.over}
    values: dict[str, Expr] = {}
    tests: list[Expr] = []
    for part, place in zip(update.index, places, strict=True):
        if isinstance(part, Bound) and part.name in loops and part.name not in values:
            values[part.name] = place
        else:
            tests.append(simplify(Operator.EQ, (part, place), BOOL))
    if loops - set(values):
        raise InternalError(f"{action.name} writes {update.variable} in a loop that does not say where")
    inside = tuple(substitute(test, values) for test in tests)
    condition = simplify(Operator.AND, (*inside, substitute(update.condition, values)), BOOL)
    return condition, substitute(update.value, values)


class Induction:
    """The claims of a system and the conditions that make them inductive.

    Flags have their effective values, unless `all_flags`: then they stay in the expressions, for every assignment at once.
    """

    def __init__(self, system: TransitionSystem, *, all_flags: bool = False) -> None:
        self.original = system
        self.all_flags = all_flags
        self.flags: Mapping[str, bool] = {} if all_flags else system.flag_values
        self.system = fold_system(system, self.flags)
        self.actions = {action.name: _with_own_names(action) for action in self.system.actions}

    @cached_property
    def claims(self) -> Mapping[str, Claim]:
        """Every claim by name: properties in the order of the system (all but `@reachable` ones), then lemmas."""
        found = [claim for prop in self.system.properties if (claim := self._claim(prop)) is not None]
        found += [
            Claim(lemma.name, lemma.parameters, lemma.condition, lemma=True, at=lemma.at) for lemma in self.system.lemmas
        ]
        return {claim.name: claim for claim in found}

    def _claim(self, prop: Property) -> Claim | None:
        match prop.kind:
            case PropertyKind.INVARIANT:
                return Claim(prop.name, prop.parameters, prop.condition, at=prop.at)
            case PropertyKind.ASSERTION:
                guards = tuple(guard.condition for guard in self.system.action(prop.subject).guards)
                kept = simplify(Operator.IMPLIES, (simplify(Operator.AND, guards, BOOL), prop.condition), BOOL)
                return Claim(prop.name, prop.parameters, kept, derived=True, at=prop.at)
            case PropertyKind.RANGE:
                return self._range(self.system.by_name[prop.subject], prop)
            case PropertyKind.NO_DEADLOCK:
                return Claim(prop.name, (), self._no_deadlock(), derived=True, at=prop.at)
            case PropertyKind.REACHABLE:
                return None

    @staticmethod
    def _range(variable: Variable, prop: Property) -> Claim:
        assert isinstance(variable.type, Counter)
        keys = tuple(Bound(f"i{position}", key) for position, key in enumerate(variable.keys))
        value = Read(variable.name, keys, variable.type)
        low, high = Const(variable.type.low, COUNT), Const(variable.type.high, COUNT)
        inside = Apply(Operator.AND, (Apply(Operator.LE, (low, value), BOOL), Apply(Operator.LE, (value, high), BOOL)), BOOL)
        return Claim(prop.name, keys, inside, at=prop.at)

    def _no_deadlock(self) -> Expr:
        """Something can happen, or the state is final."""
        enabled = []
        for action in self.system.actions:
            guards = simplify(Operator.AND, tuple(guard.condition for guard in action.guards), BOOL)
            enabled.append(quantified(Binder.ANY, action.parameters, guards) if action.parameters else guards)
        final = [closed(part.parameters, part.condition) for part in self.system.finals]
        return simplify(Operator.OR, (*enabled, simplify(Operator.OR, tuple(final), BOOL)), BOOL)

    @cached_property
    def assumptions(self) -> tuple[Expr, ...]:
        """What is known of rigid things, closed."""
        return tuple(closed(part.parameters, part.condition) for part in self.system.assumptions)

    @cached_property
    def hypotheses(self) -> tuple[tuple[str, Expr], ...]:
        """Every claim that can help, part by part."""
        return tuple((claim.name, part) for claim in self.claims.values() if not claim.derived for part in claim.parts)

    def initially(self, claim: Claim) -> VerificationCondition:
        """Initial states satisfy `claim`."""
        starts = {v.name: v.initial for v in self.system.state_variables if not isinstance(v.initial, Anything)}
        premises = tuple(_at_start(closed(part.parameters, part.condition), starts) for part in self.system.initial)
        goal = _at_start(claim.condition, starts)
        return VerificationCondition(INITIALLY, claim.name, claim.parameters, self.assumptions, (), premises, goal)

    def kept(self, action: str, claim: Claim) -> VerificationCondition:
        """`action` keeps `claim`."""
        step = self.actions[action]
        guards = tuple(guard.condition for guard in step.guards)
        goal = after(claim.condition, step)
        constants = (*step.parameters, *claim.parameters)
        return VerificationCondition(action, claim.name, constants, self.assumptions, self.hypotheses, guards, goal)

    def implied(self, claim: Claim) -> VerificationCondition:
        """The claims that help imply `claim`."""
        return VerificationCondition(
            OBVIOUSLY, claim.name, claim.parameters, self.assumptions, self.hypotheses, (), claim.condition
        )

    def touched(self, claim: Claim) -> tuple[str, ...]:
        """The actions that write something that `claim` reads; every other action keeps it."""
        reads = {node.variable for node in walk(claim.condition) if isinstance(node, Read)}
        return tuple(name for name, action in self.actions.items() if any(update.variable in reads for update in action.updates))

    def steps(self, name: str) -> tuple[str, ...]:
        """The steps for which the claim called `name` has a condition that is not plain: see `condition`."""
        claim = self.claims[name]
        return (OBVIOUSLY,) if claim.derived else (INITIALLY, *self.touched(claim))

    def condition(self, step: str, name: str) -> VerificationCondition:
        """The condition of the claim called `name` for a step, with all hypotheses; or that an action is `NEVER` enabled."""
        if name == NEVER:
            action = self.actions[step]
            guards = tuple(guard.condition for guard in action.guards)
            return VerificationCondition(step, name, action.parameters, self.assumptions, self.hypotheses, guards, FALSE)
        claim = self.claims[name]
        if step == INITIALLY:
            return self.initially(claim)
        return self.implied(claim) if step == OBVIOUSLY else self.kept(step, claim)


def _with_own_names(action: Action) -> Action:
    """`action` with parameters called ``ACTION.NAME``, which no other variable is called."""
    own = {p.name: Bound(f"{action.name}.{p.name}", p.domain, p.at) for p in action.parameters}
    names: Mapping[str, Expr] = own
    return replace(
        action,
        parameters=tuple(own.values()),
        guards=tuple(replace(guard, condition=substitute(guard.condition, names)) for guard in action.guards),
        assertions=tuple(replace(part, condition=substitute(part.condition, names)) for part in action.assertions),
        updates=tuple(_renamed(update, names) for update in action.updates),
    )


def _renamed(update: Update, names: Mapping[str, Expr]) -> Update:
    inner = {name: value for name, value in names.items() if name not in {bound.name for bound in update.over}}
    return replace(
        update,
        index=tuple(substitute(part, inner) for part in update.index),
        value=substitute(update.value, inner),
        condition=substitute(update.condition, inner),
    )


def _at_start(expr: Expr, starts: Mapping[str, Value]) -> Expr:
    """`expr` of an initial state: variables with an initial value are replaced by it."""
    match expr:
        case Read(variable=variable, type=kind) if variable in starts:
            return Const(starts[variable], kind)
        case Read(variable, index, kind, at):
            return Read(variable, tuple(_at_start(part, starts) for part in index), kind, at)
        case Apply(operator, arguments, kind):
            return simplify(operator, tuple(_at_start(part, starts) for part in arguments), kind)
        case Named(body=body):
            return _at_start(body, starts)
        case Quantified(binder, variables, body, at):
            return quantified(binder, variables, _at_start(body, starts), at)
        case _:
            return expr
