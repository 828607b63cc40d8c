"""The partial reading: what can be said of a state when some variables are unknown, because nobody could observe them.

Each condition is rewritten to two that read no unknown variable: one that is true only where the condition is true
whatever the unknown variables hold (`surely`), and one that is false only where it is false whatever they hold
(`possibly`). These are Kleene's strong connectives as two expressions, so every other reading evaluates them as they are.

>>> from kvmodel.language.build import Builder, implies, var
>>> b = Builder("pages")
>>> page = b.sort("Page")
>>> held, read = b.relation("held", page), b.relation("read", page)
>>> p = var("p", page)
>>> _ = b.action("take", p, guards={"free": held(p)}, updates=[held.set(True, p), read.set(held(p), p)])
>>> _ = b.invariant("read_is_held", implies(read(p), held(p)), p)
>>> seen = partial(b.build(), frozenset({"read"}))
>>> seen.surely("read_is_held") == held(p), seen.possibly("read_is_held") == TRUE
(True, True)
>>> seen.judge("read_is_held", possible=True, sure=False).value
'undecided'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from kvmodel.errors import InternalError, UsageError, nearest
from kvmodel.language.expressions import (
    FALSE,
    TRUE,
    Apply,
    Expr,
    Named,
    Quantified,
    Read,
    negation,
    walk,
)
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import Action, Condition, Property, PropertyKind, TransitionSystem, Update
from kvmodel.language.types import BOOL, Bool
from kvmodel.readings.conditions import quantified
from kvmodel.readings.fold import fold_system
from kvmodel.readings.ground import simplify
from kvmodel.verdict import Verdict

__all__ = ["Partial", "Rails", "Systems", "partial", "rails"]


class Rails(NamedTuple):
    """A condition over known variables alone: where it is true, and where it is false, whatever the unknown ones hold."""

    yes: Expr
    no: Expr

    @property
    def possible(self) -> Expr:
        """Where the condition is true for some values of the unknown variables, as far as this reading can tell."""
        return negation(self.no)


NEITHER = Rails(FALSE, FALSE)


class Term(NamedTuple):
    """A value over known variables alone: where it is known, and what it is there (None: it is never known)."""

    known: Expr
    value: Expr | None


class Systems(NamedTuple):
    """A system read twice, in which every condition is what is `possible`, or what is `sure`. Actions are the same in both."""

    possible: TransitionSystem
    sure: TransitionSystem


def rails(expr: Expr, unknown: frozenset[str]) -> Rails:
    """A condition read without the variables in `unknown`. Raises InternalError for an operator that it has no rule for."""
    if not reads(expr, unknown):
        return Rails(expr, negation(expr))
    match expr:
        case Named(body=body):
            return rails(body, unknown)
        case Read(variable=variable) if variable in unknown:
            return NEITHER
        case Read(variable, index, kind, at):
            return _atom([_term(part, unknown) for part in index], lambda parts: Read(variable, parts, kind, at))
        case Quantified(binder=Binder.ALL | Binder.ANY as binder, variables=variables, body=body, at=at):
            inner = rails(body, unknown)
            other = Binder.ANY if binder is Binder.ALL else Binder.ALL
            return Rails(quantified(binder, variables, inner.yes, at), quantified(other, variables, inner.no, at))
        case Apply(operator=operator, arguments=arguments):
            return _applied(operator, arguments, unknown)
    raise InternalError(f"the partial reading has no rule for {expr!r}")


def _applied(operator: Operator, arguments: tuple[Expr, ...], unknown: frozenset[str]) -> Rails:
    match operator:
        case Operator.NOT:
            inner = rails(arguments[0], unknown)
            return Rails(inner.no, inner.yes)
        case Operator.AND:
            parts = [rails(part, unknown) for part in arguments]
            return Rails(_all(part.yes for part in parts), _any(part.no for part in parts))
        case Operator.OR:
            parts = [rails(part, unknown) for part in arguments]
            return Rails(_any(part.yes for part in parts), _all(part.no for part in parts))
        case Operator.IMPLIES:
            premise, conclusion = (rails(part, unknown) for part in arguments)
            return Rails(_any((premise.no, conclusion.yes)), _all((premise.yes, conclusion.no)))
        case Operator.IF:
            condition, then, otherwise = (rails(part, unknown) for part in arguments)
            return Rails(_chosen(condition, then.yes, otherwise.yes), _chosen(condition, then.no, otherwise.no))
        case Operator.EQ if isinstance(arguments[0].type, Bool):
            left, right = (rails(part, unknown) for part in arguments)
            return Rails(
                _any((_all((left.yes, right.yes)), _all((left.no, right.no)))),
                _any((_all((left.yes, right.no)), _all((left.no, right.yes)))),
            )
        case Operator.EQ | Operator.LT | Operator.LE | Operator.IS_NONE:
            return _atom([_term(part, unknown) for part in arguments], lambda parts: simplify(operator, parts, BOOL))
        case _:
            raise InternalError(f"the partial reading has no rule for a condition made by {operator.value!r}")


def _chosen(condition: Rails, then: Expr, otherwise: Expr) -> Expr:
    """A choice whose condition may not be known: then both must say so."""
    cases = [_all((condition.yes, then)), _all((condition.no, otherwise))]
    if condition.no != negation(condition.yes):
        cases.append(_all((negation(condition.yes), negation(condition.no), then, otherwise)))
    return _any(cases)


def _atom(terms: list[Term], make: Callable[[tuple[Expr, ...]], Expr]) -> Rails:
    """A condition on values, where all of them are known. That comes first: elsewhere a value may not even be defined."""
    known, parts = _together(terms)
    if parts is None:
        return NEITHER
    atom = make(parts)
    return Rails(_all((known, atom)), _all((known, negation(atom))))


def _together(terms: list[Term]) -> tuple[Expr, tuple[Expr, ...] | None]:
    values = tuple(term.value for term in terms if term.value is not None)
    known = _all(term.known for term in terms)
    return (known, values) if len(values) == len(terms) and known != FALSE else (FALSE, None)


def _term(expr: Expr, unknown: frozenset[str]) -> Term:
    """A value read without the variables in `unknown`."""
    if not reads(expr, unknown):
        return Term(TRUE, expr)
    if isinstance(expr.type, Bool):
        truth = rails(expr, unknown)
        return Term(_any((truth.yes, truth.no)), truth.yes)
    match expr:
        case Named(body=body):
            return _term(body, unknown)
        case Read(variable=variable) if variable in unknown:
            return Term(FALSE, None)
        case Read(variable, index, kind, at):
            known, parts = _together([_term(part, unknown) for part in index])
            return Term(known, None if parts is None else Read(variable, parts, kind, at))
        case Quantified(Binder.COUNT, variables, body, at):
            inner = rails(body, unknown)
            known = quantified(Binder.ALL, variables, _any((inner.yes, inner.no)), at)
            return Term(known, quantified(Binder.COUNT, variables, inner.yes, at))
        case Apply(operator=Operator.ADD | Operator.THE as operator, arguments=arguments, type=kind):
            known, parts = _together([_term(part, unknown) for part in arguments])
            return Term(known, None if parts is None else simplify(operator, parts, kind))
        case Apply(operator=Operator.IF, arguments=(test, *branches), type=kind):
            condition = rails(test, unknown)
            then, otherwise = (_term(part, unknown) for part in branches)
            known = _any((_all((condition.yes, then.known)), _all((condition.no, otherwise.known))))
            if then.value is None or otherwise.value is None:
                return Term(known, otherwise.value if then.value is None else then.value)
            return Term(known, simplify(Operator.IF, (condition.yes, then.value, otherwise.value), kind))
    raise InternalError(f"the partial reading has no rule for {expr!r}")


@dataclass(frozen=True)
class Partial:
    """A system of which the variables in `unknown` cannot be observed. Its flags have their effective values.

    `possibly` and `surely` speak of one state. `following` is for runs, in which states are advanced by the system's
    own actions from what was observed of the steps.
    """

    system: TransitionSystem
    unknown: frozenset[str]

    @cached_property
    def _folded(self) -> TransitionSystem:
        return fold_system(self.system)

    def possibly(self, name: str) -> Expr:
        """What is false only where the condition of the property `name` is false whatever the unknown variables hold.

        Raises UsageError for an unknown property."""
        return self._rails(self._folded.property(name)).possible

    def surely(self, name: str) -> Expr:
        """What is true only where the condition of the property `name` is true whatever the unknown variables hold.

        Raises UsageError for an unknown property."""
        return self._rails(self._folded.property(name)).yes

    def _rails(self, prop: Property) -> Rails:
        # The range of a counter and the absence of deadlock have no condition that could be rewritten.
        if prop.kind in (PropertyKind.RANGE, PropertyKind.NO_DEADLOCK) and self._missing(prop):
            return NEITHER
        return rails(prop.condition, self.unknown)

    def _missing(self, prop: Property) -> tuple[str, ...]:
        """The unknown variables that a property is about, in order of declaration."""
        if prop.kind is PropertyKind.RANGE:
            found = self.unknown & {prop.subject}
        elif prop.kind is PropertyKind.NO_DEADLOCK:
            guards = [guard.condition for action in self._folded.actions for guard in action.guards]
            finals = [part.condition for part in self._folded.finals]
            found = frozenset().union(*(reads(expr, self.unknown) for expr in (*guards, *finals)))
        else:
            found = reads(prop.condition, self.unknown)
        return tuple(variable.name for variable in self.system.variables if variable.name in found)

    @cached_property
    def undecidable(self) -> Mapping[str, tuple[str, ...]]:
        """The properties about which nothing can be said in any state, each with the unknown variables that it reads.

        The absence of deadlock is one as soon as it depends on something unknown."""
        return {
            prop.name: self._missing(prop)
            for prop in self._folded.properties
            if (found := self._rails(prop)).yes == FALSE and found.possible == TRUE
        }

    def judge(self, name: str, *, possible: bool, sure: bool) -> Verdict:
        """The verdict on one state of the property `name`, given whether it is true of the state in each of `systems`.

        A reachable property that is surely true of a state is reached in it; no single state violates one."""
        if name in self.undecidable:
            return Verdict.UNDECIDED
        if self.system.property(name).kind is PropertyKind.REACHABLE:
            return Verdict.HOLDS if sure else Verdict.UNDECIDED
        if not possible:
            return Verdict.VIOLATED
        return Verdict.HOLDS if sure else Verdict.UNDECIDED

    @cached_property
    def systems(self) -> Systems:
        """The system twice, with the same variables, names and parameters: false of `possible` is violated, true of `sure`
        holds, anything else is undecided (see `judge`, which knows the ranges of unknown counters as well).

        In both, an action is enabled where it possibly is, and what it cannot be said to write is not written: the
        variables in `tainted` keep their values. Initial states, and assumptions, are the possible ones.
        """
        actions = tuple(self._weakened(action) for action in self._folded.actions)
        weakened = replace(
            self._folded,
            assumptions=tuple(self._possible(part) for part in self._folded.assumptions),
            initial=tuple(self._possible(part) for part in self._folded.initial),
            actions=actions,
            finals=tuple(self._possible(part) for part in self._folded.finals),
            lemmas=(),
            definitions=tuple(part for part in self._folded.definitions if not reads(part.condition, self.unknown)),
        )
        return Systems(self._with_properties(weakened, possible=True), self._with_properties(weakened, possible=False))

    def _with_properties(self, weakened: TransitionSystem, *, possible: bool) -> TransitionSystem:
        def rail(expr: Expr) -> Expr:
            found = rails(expr, self.unknown)
            return found.possible if possible else found.yes

        return replace(
            weakened,
            declared=tuple(replace(part, condition=rail(part.condition)) for part in weakened.declared),
            actions=tuple(
                replace(action, assertions=tuple(replace(part, condition=rail(part.condition)) for part in action.assertions))
                for action in weakened.actions
            ),
        )

    def _possible(self, part: Condition) -> Condition:
        return replace(part, condition=rails(part.condition, self.unknown).possible)

    def _weakened(self, action: Action) -> Action:
        guards = [replace(guard, condition=rails(guard.condition, self.unknown).possible) for guard in action.guards]
        lost = self.unknown | self.tainted.keys()
        return replace(
            action,
            guards=tuple(guard for guard in guards if guard.condition != TRUE),
            updates=tuple(
                update
                for update in action.updates
                if update.variable not in lost and not any(reads(e, lost) for e in (update.condition, update.value, *update.index))
            ),
        )

    @cached_property
    def tainted(self) -> Mapping[str, str]:
        """The variables that become unknown in a run because the system writes something unknown to them, each with the
        reason: ``land writes 'written' where 'holds' says so``. What follows from these is included."""
        found: dict[str, str] = {}
        lost = self.unknown
        while True:
            new = {
                update.variable: reason
                for action in reversed(self._folded.actions)
                for update in reversed(action.updates)
                if update.variable not in lost and (reason := _loses(action, update, lost))
            }
            if not new:
                return found
            found.update(new)
            lost |= new.keys()

    @cached_property
    def following(self) -> Partial:
        """The same reading with the tainted variables unknown as well: what remains true along a run."""
        return Partial(self.system, self.unknown | self.tainted.keys()) if self.tainted else self


def partial(system: TransitionSystem, unknown: frozenset[str]) -> Partial:
    """`system` as it can be judged without the variables in `unknown`.

    Raises UsageError for a name that is not a variable, and for a partition, which the sizes of an instance fix.
    """
    for name in sorted(unknown):
        if name not in system.by_name:
            raise UsageError(f"{system.name} has no variable '{name}'{nearest(name, list(system.by_name))}")
        if system.by_name[name].partition:
            raise UsageError(f"{system.name}: '{name}' cannot be unknown: it is a partition, which the sizes of an instance fix")
    return Partial(system, unknown)


def _loses(action: Action, update: Update, lost: frozenset[str]) -> str:
    """Why what `update` leaves behind is unknown; empty where it is known."""
    where = rails(update.condition, lost)
    if where.no == TRUE or any(rails(guard.condition, lost).no == TRUE for guard in action.guards):
        return ""
    for how, exprs in (("where", (update.condition,)), ("at", update.index), ("from", (update.value,))):
        for expr in exprs:
            if names := sorted(reads(expr, lost)):
                return f"{action.name} writes '{update.variable}' {how} {' and '.join(repr(name) for name in names)} says"
    return ""


def reads(expr: Expr, variables: frozenset[str]) -> frozenset[str]:
    """Those of `variables` that `expr` reads."""
    return frozenset(node.variable for node in walk(expr) if isinstance(node, Read) and node.variable in variables)


def _all(parts: Iterable[Expr]) -> Expr:
    return simplify(Operator.AND, tuple(parts), BOOL)


def _any(parts: Iterable[Expr]) -> Expr:
    return simplify(Operator.OR, tuple(parts), BOOL)
