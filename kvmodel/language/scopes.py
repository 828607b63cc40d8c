"""Where an expression or a statement of a spec stands, and what is known there."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NoReturn, Protocol

from kvmodel.language.expressions import Apply, Bound, Expr, Named, conjuncts, negation
from kvmodel.language.modules import Module
from kvmodel.language.operators import Operator
from kvmodel.language.source import quoted
from kvmodel.language.system import Variable
from kvmodel.language.types import Element, Maybe, Span

__all__ = ["Mistake", "Names", "Scope", "denied", "granted", "none_hint"]


class Mistake(Exception):
    """One mistake in an expression: unwinds to the statement, which reports it and goes on with the next.

    An empty message is a mistake that follows from one already reported. `none` marks a value that may be None, `late`
    names the variable of a read that comes after its write.
    """

    def __init__(self, node: ast.AST, message: str, hint: str = "", *, none: bool = False, late: str = "") -> None:
        super().__init__(message)
        self.node = node
        self.message = message
        self.hint = hint
        self.none = none
        self.late = late


class Names(Protocol):
    """What a spec offers to its expressions."""

    broken: set[str]  # names whose declaration has a mistake of its own
    complete: bool  # whether every base class is known; if not, an unknown name is no mistake

    @property
    def variables(self) -> Mapping[str, Variable]:
        """The variables by name."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Names of the flags."""

    def definition(self, node: ast.Call, name: str, scope: Scope, inherited: bool) -> Expr:
        """The definition called `name` (of the classes after the scope's own, if `inherited`) with a call's arguments."""

    def method_kind(self, name: str) -> str | None:
        """The kind of the method called `name`."""

    def method_names(self, kind: str) -> tuple[str, ...]:
        """Names of the methods of a kind."""

    def note(self, mistake: Mistake, scope: Scope) -> None:
        """Report a mistake and go on."""

    def give_up(self, node: ast.AST, scope: Scope, message: str) -> NoReturn:
        """Stop reading a spec that is over a limit."""


@dataclass(frozen=True)
class Scope:
    """Where an expression stands: the file, the class (by position in the resolution order) and method, the names in
    scope, what is known not to be None, and what was already written in this action.

    `taken` are the names of the variables that are bound around it, also by the methods that use this one; a loop gets a
    variable of another name. `unsure` says that a test above has a mistake, so that more may be known than `known`.
    """

    module: Module
    level: int
    method: str
    self_name: str
    names: Mapping[str, Expr]
    known: frozenset[Expr] = frozenset()
    written: Mapping[str, Span] | None = None
    inside: tuple[str, ...] = ()
    taken: frozenset[str] = frozenset()
    unsure: bool = False

    def knowing(self, facts: frozenset[Expr]) -> Scope:
        return replace(self, known=self.known | facts) if facts else self

    def binding(self, name: str, bound: Bound) -> Scope:
        return replace(self, names={**self.names, name: bound}, taken=self.taken | {bound.name})

    def fresh(self, name: str) -> str:
        """`name`, or one like it that nothing around is called."""
        while name in self.taken:
            name += "_"
        return name


def granted(expr: Expr) -> frozenset[Expr]:
    """What is known not to be None where `expr` is true."""
    found: set[Expr] = set()
    for part in conjuncts(expr):
        match part:
            case Apply(operator=Operator.NOT, arguments=(Apply(operator=Operator.IS_NONE, arguments=(value,)),)):
                found.add(value)
            case Apply(operator=Operator.EQ, arguments=(left, right)):
                for one, other in ((left, right), (right, left)):
                    if isinstance(one.type, Maybe) and isinstance(other.type, Element):
                        found.add(one)
            case Named(body=body):
                found |= granted(body)
    return frozenset(found)


def denied(expr: Expr) -> frozenset[Expr]:
    """What is known not to be None where `expr` is false."""
    match expr:
        case Apply(operator=Operator.OR, arguments=arguments):
            return frozenset().union(*(denied(part) for part in arguments))
        case Apply(operator=Operator.IMPLIES, arguments=(left, right)):
            return granted(left) | denied(right)
        case Named(body=body):
            return denied(body)
        case _:
            return granted(negation(expr))


def none_hint(node: ast.AST) -> str:
    """The hint for a value that may be None."""
    text = quoted(node, 40).strip("`")
    return f"test it first: require({text} is not None, ...), or `{text} is not None and ...`"
