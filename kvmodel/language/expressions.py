"""Expressions: immutable, typed trees over the operators of `kvmodel.language.operators`.

Where a node was written (`at`) does not take part in equality or hashing, so two spellings of one formula are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kvmodel.language.operators import Binder, Operator
from kvmodel.language.types import BOOL, COUNT, Domain, Element, Span, Type, Value

__all__ = [
    "FALSE",
    "TRUE",
    "Apply",
    "Bound",
    "Cell",
    "Const",
    "Expr",
    "FlagRead",
    "Named",
    "Quantified",
    "Read",
    "children",
    "conjunction",
    "conjuncts",
    "free_names",
    "negation",
    "rebuild",
    "substitute",
    "walk",
]

NOWHERE = Span()


@dataclass(frozen=True, slots=True)
class Const:
    """A constant: a truth value, an integer, a member of an enumeration, or None."""

    value: Value
    type: Type
    at: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Bound:
    """A parameter or a quantified variable; its value is an element of `domain`."""

    name: str
    domain: Domain
    at: Span = field(default=NOWHERE, compare=False)

    @property
    def type(self) -> Type:
        return Element(self.domain)


@dataclass(frozen=True, slots=True)
class Read:
    """The value of a variable (of the state, or rigid) at an index."""

    variable: str
    index: tuple[Expr, ...]
    type: Type
    at: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class FlagRead:
    """The value of a flag of the system."""

    flag: str
    at: Span = field(default=NOWHERE, compare=False)

    @property
    def type(self) -> Type:
        return BOOL


@dataclass(frozen=True, slots=True)
class Apply:
    """An operator applied to arguments."""

    operator: Operator
    arguments: tuple[Expr, ...]
    type: Type
    at: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Quantified:
    """A binder over variables; a condition of the comprehension is part of `body`."""

    binder: Binder
    variables: tuple[Bound, ...]
    body: Expr
    at: Span = field(default=NOWHERE, compare=False)

    @property
    def type(self) -> Type:
        return COUNT if self.binder is Binder.COUNT else BOOL


@dataclass(frozen=True, slots=True)
class Named:
    """A use of a definition: `body` is the definition's expression with the arguments in place."""

    definition: str
    arguments: tuple[Expr, ...]
    body: Expr
    at: Span = field(default=NOWHERE, compare=False)

    @property
    def type(self) -> Type:
        return self.body.type


@dataclass(frozen=True, slots=True)
class Cell:
    """One place of a finite instance: slot `slot` of its state, or of its rigid values. Only grounding makes these."""

    slot: int
    rigid: bool
    type: Type

    @property
    def at(self) -> Span:
        return NOWHERE


Expr: TypeAlias = Const | Bound | Read | FlagRead | Apply | Quantified | Named | Cell

TRUE = Const(True, BOOL)
FALSE = Const(False, BOOL)


def conjunction(parts: tuple[Expr, ...] | list[Expr]) -> Expr:
    """The conjunction of `parts`, without a node where none is needed."""
    kept = [part for part in parts if part != TRUE]
    if not kept:
        return TRUE
    return kept[0] if len(kept) == 1 else Apply(Operator.AND, tuple(kept), BOOL, kept[0].at)


def negation(expr: Expr) -> Expr:
    """`not expr`, without a double negation."""
    if isinstance(expr, Apply) and expr.operator is Operator.NOT:
        return expr.arguments[0]
    if isinstance(expr, Const):
        return FALSE if expr.value else TRUE
    return Apply(Operator.NOT, (expr,), BOOL, expr.at)


def conjuncts(expr: Expr) -> tuple[Expr, ...]:
    """The parts of a conjunction, flattened; `(expr,)` for anything else."""
    if isinstance(expr, Apply) and expr.operator is Operator.AND:
        return tuple(part for argument in expr.arguments for part in conjuncts(argument))
    return (expr,)


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct sub-expressions; those of a `Named` are its body alone."""
    match expr:
        case Read(index=index):
            return index
        case Apply(arguments=arguments):
            return arguments
        case Quantified(body=body) | Named(body=body):
            return (body,)
        case _:
            return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """Every node of `expr`, parents first."""
    stack = [expr]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))


def rebuild(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """`expr` with `change` applied to each direct sub-expression."""
    match expr:
        case Read(variable, index, kind, at):
            return Read(variable, tuple(change(part) for part in index), kind, at)
        case Apply(operator, arguments, kind, at):
            return Apply(operator, tuple(change(part) for part in arguments), kind, at)
        case Quantified(binder, variables, body, at):
            return Quantified(binder, variables, change(body), at)
        case Named(definition, arguments, body, at):
            return Named(definition, tuple(change(part) for part in arguments), change(body), at)
        case _:
            return expr


def free_names(expr: Expr) -> frozenset[str]:
    """Names of parameters and quantified variables that `expr` uses and does not bind."""
    match expr:
        case Bound(name=name):
            return frozenset((name,))
        case Quantified(variables=variables, body=body):
            return free_names(body) - {variable.name for variable in variables}
        case _:
            return frozenset().union(*(free_names(child) for child in children(expr)))


def substitute(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """Replace free parameters by expressions; bound variables are renamed where a name would be captured."""
    if not values:
        return expr
    match expr:
        case Bound(name=name):
            return values.get(name, expr)
        case Quantified(binder, variables, body, at):
            inner = {name: value for name, value in values.items() if name not in {v.name for v in variables}}
            captured = frozenset().union(*(free_names(value) for value in inner.values()))
            taken = captured | free_names(body)
            renamed = []
            for variable in variables:
                name = variable.name
                while name in captured or (name != variable.name and name in taken):
                    name += "_"
                if name != variable.name:
                    taken |= {name}
                    inner[variable.name] = Bound(name, variable.domain, variable.at)
                renamed.append(Bound(name, variable.domain, variable.at))
            return Quantified(binder, tuple(renamed), substitute(body, inner), at)
        case _:
            return rebuild(expr, lambda child: substitute(child, values))
