"""The builder API: a transition system made by a program instead of read from a spec class.

Tests generate random systems with it. Everything is typed when it is made; `Builder.build` checks the whole.

>>> from kvmodel.language.build import Builder, not_
>>> b = Builder("light")
>>> on = b.relation("on")
>>> _ = b.action("switch_on", guards={"off": not_(on())}, updates=[on.set(True)])
>>> _ = b.invariant("dark", not_(on()))
>>> [p.name for p in b.build().properties]
['dark', 'no_deadlock']
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kvmodel.errors import MalformedSystem
from kvmodel.language.check import malformed, problems
from kvmodel.language.expressions import Bound, Const, Expr, FlagRead
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import (
    ANYTHING,
    Action,
    Anything,
    Assertion,
    Condition,
    Flag,
    FlagKind,
    Guard,
    Property,
    PropertyKind,
    TransitionSystem,
    Update,
    Variable,
)
from kvmodel.language.typed import TypingError, apply, assignable, check_index, quantify, read
from kvmodel.language.types import (
    BOOL,
    COUNT,
    NUMBER,
    Bool,
    Counter,
    Domain,
    Element,
    Enumeration,
    Maybe,
    Sort,
    Type,
    Value,
    describe,
)

__all__ = [
    "ANYTHING",
    "Builder",
    "Place",
    "add",
    "all_",
    "and_",
    "any_",
    "at_most",
    "constant",
    "count",
    "eq",
    "if_",
    "implies",
    "is_none",
    "less",
    "member",
    "none",
    "not_",
    "or_",
    "the",
    "var",
]

Operand: TypeAlias = Expr | bool | int


def _expr(operand: Operand) -> Expr:
    if isinstance(operand, bool):
        return Const(operand, BOOL)
    return Const(operand, COUNT) if isinstance(operand, int) else operand


def constant(value: bool | int) -> Expr:
    """A truth value or an integer."""
    return _expr(value)


def member(enumeration: Enumeration, name: str) -> Expr:
    """A member of an enumeration."""
    if name not in enumeration.members:
        raise MalformedSystem(f"{enumeration.name} has no member '{name}'")
    return Const(name, Element(enumeration))


def none(domain: Domain) -> Expr:
    """None, as a value of ``domain | None``."""
    return Const(None, Maybe(domain))


def var(name: str, domain: Domain) -> Bound:
    """A parameter or a variable to quantify over."""
    return Bound(name, domain)


def not_(part: Operand) -> Expr:
    return apply(Operator.NOT, (_expr(part),))


def and_(*parts: Operand) -> Expr:
    return apply(Operator.AND, tuple(_expr(part) for part in parts))


def or_(*parts: Operand) -> Expr:
    return apply(Operator.OR, tuple(_expr(part) for part in parts))


def implies(premise: Operand, conclusion: Operand) -> Expr:
    return apply(Operator.IMPLIES, (_expr(premise), _expr(conclusion)))


def eq(left: Operand, right: Operand) -> Expr:
    return apply(Operator.EQ, (_expr(left), _expr(right)))


def less(left: Operand, right: Operand) -> Expr:
    return apply(Operator.LT, (_expr(left), _expr(right)))


def at_most(left: Operand, right: Operand) -> Expr:
    return apply(Operator.LE, (_expr(left), _expr(right)))


def add(*parts: Operand) -> Expr:
    return apply(Operator.ADD, tuple(_expr(part) for part in parts))


def if_(condition: Operand, then: Operand, otherwise: Operand) -> Expr:
    return apply(Operator.IF, (_expr(condition), _expr(then), _expr(otherwise)))


def is_none(part: Expr) -> Expr:
    return apply(Operator.IS_NONE, (part,))


def the(part: Expr) -> Expr:
    """A maybe as an element; only to be used where it is not None (the caller sees to that)."""
    return apply(Operator.THE, (part,))


def all_(variables: Sequence[Bound], body: Operand) -> Expr:
    return quantify(Binder.ALL, tuple(variables), _expr(body))


def any_(variables: Sequence[Bound], body: Operand) -> Expr:
    return quantify(Binder.ANY, tuple(variables), _expr(body))


def count(variables: Sequence[Bound], body: Operand) -> Expr:
    """For how many bindings of `variables` the body is true."""
    return quantify(Binder.COUNT, tuple(variables), _expr(body))


@dataclass(frozen=True, slots=True)
class Place:
    """A declared variable: call it with an index to read it, `set` it in an action."""

    variable: Variable

    def __call__(self, *index: Expr) -> Expr:
        return read(self.variable, index)

    def set(
        self,
        value: Operand,
        *index: Expr,
        over: Sequence[Bound] = (),
        condition: Operand = True,
    ) -> Update:
        """``for over: if condition: variable[index] = value``. Raises TypingError for a value of another kind."""
        check_index(self.variable, index)
        written = _expr(value)
        if not assignable(written.type, self.variable.type):
            raise TypingError(f"'{self.variable.name}' holds a {describe(self.variable.type)}, not a {describe(written.type)}")
        return Update(self.variable.name, index, written, tuple(over), _expr(condition))


class Builder:
    """Collects declarations; `build` returns the immutable system."""

    def __init__(self, name: str, doc: str = "") -> None:
        self._name = name
        self._doc = doc
        self._sorts: list[Sort] = []
        self._enumerations: list[Enumeration] = []
        self._flags: list[Flag] = []
        self._variables: list[Variable] = []
        self._assumptions: list[Condition] = []
        self._initial: list[Condition] = []
        self._actions: list[Action] = []
        self._properties: list[Property] = []
        self._finals: list[Condition] = []
        self._lemmas: list[Condition] = []

    def sort(self, name: str) -> Sort:
        sort = Sort(name)
        self._sorts.append(sort)
        return sort

    def enumeration(self, name: str, *members: str) -> Enumeration:
        enumeration = Enumeration(name, members)
        self._enumerations.append(enumeration)
        return enumeration

    def flag(self, name: str, value: bool, kind: FlagKind = FlagKind.DEFENCE) -> Expr:
        self._flags.append(Flag(name, value, value, kind))
        return FlagRead(name)

    def relation(self, name: str, *keys: Domain, initial: bool | Anything = False, rigid: bool = False) -> Place:
        return self._variable(name, keys, Bool(), initial, rigid)

    def function(self, name: str, *keys: Domain, to: Domain | Maybe, initial: Value | Anything = None, rigid: bool = False) -> Place:
        """A function into a sort, an enumeration, or `Maybe` of a sort; starts at None, or at `initial`."""
        kind: Type = to if isinstance(to, Maybe) else Element(to)
        if isinstance(kind, Element) and initial is None:
            initial = ANYTHING if isinstance(to, Sort) else kind.domain.members[0] if isinstance(kind.domain, Enumeration) else None
        return self._variable(name, keys, kind, initial, rigid)

    def counter(self, name: str, *keys: Domain, low: int = 0, high: int, initial: int | Anything = 0) -> Place:
        return self._variable(name, keys, Counter(low, high), initial, False)

    def number(self, name: str, *keys: Domain) -> Place:
        return self._variable(name, keys, NUMBER, ANYTHING, True)

    def _variable(self, name: str, keys: tuple[Domain, ...], kind: Type, initial: Value | Anything, rigid: bool) -> Place:
        variable = Variable(name, keys, kind, ANYTHING if rigid else initial, rigid)
        self._variables.append(variable)
        return Place(variable)

    def assume(self, name: str, condition: Operand, *parameters: Bound) -> None:
        self._assumptions.append(Condition(name, parameters, _expr(condition)))

    def initially(self, name: str, condition: Operand, *parameters: Bound) -> None:
        self._initial.append(Condition(name, parameters, _expr(condition)))

    def final(self, name: str, condition: Operand, *parameters: Bound) -> None:
        self._finals.append(Condition(name, parameters, _expr(condition)))

    def lemma(self, name: str, condition: Operand, *parameters: Bound) -> None:
        self._lemmas.append(Condition(name, parameters, _expr(condition)))

    def action(
        self,
        name: str,
        *parameters: Bound,
        guards: Mapping[str, Operand] | None = None,
        asserts: Mapping[str, Operand] | None = None,
        updates: Sequence[Update] = (),
    ) -> Action:
        action = Action(
            name,
            parameters,
            tuple(Guard(label, _expr(part)) for label, part in (guards or {}).items()),
            tuple(Assertion(label, _expr(part)) for label, part in (asserts or {}).items()),
            tuple(updates),
        )
        self._actions.append(action)
        return action

    def invariant(self, name: str, condition: Operand, *parameters: Bound) -> Property:
        return self._property(name, PropertyKind.INVARIANT, condition, parameters)

    def reachable(self, name: str, condition: Operand, *parameters: Bound) -> Property:
        return self._property(name, PropertyKind.REACHABLE, condition, parameters)

    def _property(self, name: str, kind: PropertyKind, condition: Operand, parameters: tuple[Bound, ...]) -> Property:
        declared = Property(name, kind, parameters, _expr(condition))
        self._properties.append(declared)
        return declared

    def build(self) -> TransitionSystem:
        """The system. Raises MalformedSystem when two things share a name or a rule of `language.check` is broken."""
        parts = (self._sorts, self._enumerations, self._flags, self._variables, self._actions, self._properties)
        names = [part.name for group in parts for part in group]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise MalformedSystem(f"{self._name}: two things are called {', '.join(twice)}")
        system = TransitionSystem(
            self._name, tuple(self._sorts), tuple(self._enumerations), tuple(self._flags), tuple(self._variables),
            tuple(self._assumptions), tuple(self._initial), tuple(self._actions), tuple(self._properties), tuple(self._finals),
            tuple(self._lemmas),
            doc=self._doc,
        )
        for rule in (malformed, problems):  # the second relies on the first
            broken = [f"{problem.where}: {problem.message}" if problem.where else problem.message for problem in rule(system)]
            if broken:
                raise MalformedSystem(f"{self._name}: " + "; ".join(broken))
        return system


