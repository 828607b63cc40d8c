"""Reading expressions: from Python's syntax tree to typed expressions, with every mistake reported where it is."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from kvmodel.errors import nearest
from kvmodel.language.expressions import (
    Apply,
    Bound,
    Const,
    Expr,
    FlagRead,
    Named,
    conjunction,
    conjuncts,
    negation,
)
from kvmodel.language.modules import Module, Word, span
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import Variable
from kvmodel.language.typed import TypingError, apply, quantify, read, spelling
from kvmodel.language.types import (
    BOOL,
    COUNT,
    Domain,
    Element,
    Enumeration,
    Maybe,
    Sort,
    Span,
    Type,
    describe,
)

__all__ = ["Mistake", "Names", "Phrase", "Scope", "denied", "granted"]


class Mistake(Exception):  # noqa: N818  (never seen outside the reader)
    """One mistake in an expression: unwinds to the statement, which reports it and goes on with the next.

    An empty message is a mistake that follows from one already reported.
    """

    def __init__(self, node: ast.AST, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.node = node
        self.message = message
        self.hint = hint


class Names(Protocol):
    """What a spec offers to its expressions."""

    broken: set[str]  # names whose declaration has a mistake of its own

    @property
    def variables(self) -> Mapping[str, Variable]:
        """The variables by name."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Names of the flags."""

    def definition(self, node: ast.Call, name: str, scope: Scope, inherited: bool) -> Named:
        """The definition called `name` (of the classes after the scope's own, if `inherited`) with a call's arguments."""

    def method_names(self, kind: str) -> tuple[str, ...]:
        """Names of the methods of a kind."""


@dataclass(frozen=True)
class Scope:
    """Where an expression stands: the file, the class (by position in the resolution order) and method, the names in
    scope, what is known not to be None, and what was already written in this action."""

    module: Module
    level: int
    method: str
    self_name: str
    names: Mapping[str, Expr]
    known: frozenset[Expr] = frozenset()
    written: Mapping[str, Span] | None = None
    inside: tuple[str, ...] = ()

    def knowing(self, facts: frozenset[Expr]) -> Scope:
        return replace(self, known=self.known | facts)

    def binding(self, names: Mapping[str, Expr]) -> Scope:
        return replace(self, names={**self.names, **names})


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


COMPARISONS: Mapping[type[ast.cmpop], Callable[[Expr, Expr, Span], Expr]] = {
    ast.Lt: lambda a, b, at: apply(Operator.LT, (a, b), at),
    ast.LtE: lambda a, b, at: apply(Operator.LE, (a, b), at),
    ast.Gt: lambda a, b, at: apply(Operator.LT, (b, a), at),
    ast.GtE: lambda a, b, at: apply(Operator.LE, (b, a), at),
}

CALLS = "implies(a, b), all(... for ...), any(... for ...), count(... for ...), and definitions of the spec"


class Phrase:
    """Reads the expressions of one spec."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def truth(self, node: ast.expr, scope: Scope) -> Expr:
        """An expression that must be a truth value. Raises Mistake."""
        expr = self.read(node, scope)
        if expr.type != BOOL:
            raise Mistake(node, f"this is a {describe(expr.type)}, not a truth value", "write a comparison")
        return expr

    def read(self, node: ast.expr, scope: Scope, wanted: Type | None = None) -> Expr:
        """An expression; `wanted` is the type that a bare None would have. Raises Mistake."""
        try:
            return self._read(node, scope, wanted)
        except TypingError as problem:
            raise Mistake(node, problem.message, problem.hint) from None

    def element(self, node: ast.expr, scope: Scope, domain: Domain, what: str) -> Expr:
        """An expression that must be an element of `domain`; a maybe that was tested counts. Raises Mistake."""
        expr = self.settled(self.read(node, scope), scope)
        if isinstance(expr.type, Maybe) and expr.type.domain == domain:
            raise Mistake(node, f"{what} may be None", "test it first: `x is not None and ...`, or `implies(x is not None, ...)`")
        if expr.type != Element(domain):
            raise Mistake(node, f"{what} is a {domain.name}, not a {describe(expr.type)}")
        return expr

    def index(self, node: ast.expr, variable: Variable, scope: Scope) -> tuple[Expr, ...]:
        """The index of a read or of a write without slices. Raises Mistake."""
        parts = tuple(node.elts) if isinstance(node, ast.Tuple) else (node,)
        if any(isinstance(part, ast.Slice) for part in parts):
            raise Mistake(node, "a slice can be written but not read", f"use all(...) or any(...) over {spelling(variable)}")
        return tuple(self.settled(self.read(part, scope), scope) for part in parts)

    def variable(self, node: ast.expr, scope: Scope) -> Variable | None:
        """The variable that ``s.name`` stands for, or None for any other expression."""
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == scope.self_name:
                return self.names.variables.get(name)
        return None

    def generator(self, node: ast.GeneratorExp, scope: Scope) -> tuple[tuple[Bound, ...], Expr, Scope]:
        """The bound variables, the condition and the inner scope of a comprehension. Raises Mistake."""
        variables: list[Bound] = []
        conditions: list[Expr] = []
        inner = scope
        for clause in node.generators:
            bound = self.loop_variable(clause.target, clause.iter, inner)
            variables.append(bound)
            inner = inner.binding({bound.name: bound})
            for test in clause.ifs:
                condition = self.truth(test, inner)
                conditions.append(condition)
                inner = inner.knowing(granted(condition))
        return tuple(variables), conjunction(conditions), inner

    def loop_variable(self, target: ast.expr, source: ast.expr, scope: Scope) -> Bound:
        """The variable of ``for target in Sort``. Raises Mistake."""
        if not isinstance(target, ast.Name):
            raise Mistake(target, "a loop has one variable", "write `for p in Page`, and another `for` for another sort")
        if target.id in scope.names:
            raise Mistake(target, f"'{target.id}' already stands for something here", "choose another name")
        domain = self.domain(source, scope.module)
        return Bound(target.id, domain, span(scope.module, target))

    def domain(self, node: ast.expr, module: Module) -> Domain:
        """The sort or enumeration that a name stands for. Raises Mistake."""
        if isinstance(node, ast.Name):
            found = module.lookup(node.id)
            if isinstance(found, Sort | Enumeration):
                return found
            raise Mistake(node, f"'{node.id}' is not a sort or an enumeration{nearest(node.id, module.names)}",
                          "declare it at module level: class Page(Sort)")
        raise Mistake(node, f"`{ast.unparse(node)}` is not a sort or an enumeration", "loops and parameters range over a whole sort")

    def settled(self, expr: Expr, scope: Scope) -> Expr:
        """A maybe that is known not to be None, as an element."""
        return apply(Operator.THE, (expr,), expr.at) if isinstance(expr.type, Maybe) and expr in scope.known else expr

    def _read(self, node: ast.expr, scope: Scope, wanted: Type | None) -> Expr:
        at = span(scope.module, node)
        match node:
            case ast.Constant(value=bool(value)):
                return Const(value, BOOL, at)
            case ast.Constant(value=int(value)):
                return Const(value, COUNT, at)
            case ast.Constant(value=None):
                if isinstance(wanted, Maybe):
                    return Const(None, wanted, at)
                raise Mistake(node, "None has no meaning here", "None stands only where an element or None is held")
            case ast.Constant(value=value):
                raise Mistake(node, f"the constant {value!r} is not in the language", "constants are True, False, None and integers")
            case ast.Name(id=name):
                return self._name(node, name, scope)
            case ast.Attribute():
                return self._attribute(node, scope, at)
            case ast.Subscript(value=value, slice=index):
                variable = self.variable(value, scope)
                if variable is None:
                    raise self._unknown(node, value, scope)
                self._check_unwritten(node, variable, scope)
                return read(variable, self.index(index, variable, scope), at)
            case ast.Call():
                return self._call(node, scope, at)
            case ast.Compare(left=left, ops=operators, comparators=comparators):
                return self._compare(left, operators, comparators, scope, at)
            case ast.BoolOp(op=operator, values=values):
                return self._logic(operator, values, scope, at)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return apply(Operator.NOT, (self.read(operand, scope),), at)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
                return Const(-value, COUNT, at)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return apply(Operator.ADD, (self.read(left, scope), self.read(right, scope)), at)
            case ast.BinOp(left=left, op=ast.Sub(), right=ast.Constant(value=int(value))):
                return apply(Operator.ADD, (self.read(left, scope), Const(-value, COUNT, at)), at)
            case ast.IfExp(test=test, body=then, orelse=otherwise):
                condition = self.truth(test, scope)
                yes = self.read(then, scope.knowing(granted(condition)), wanted or self._kind(otherwise, scope))
                no = self.read(otherwise, scope.knowing(denied(condition)), wanted or _maybe(yes.type))
                return apply(Operator.IF, (condition, yes, no), at)
        raise Mistake(node, f"`{ast.unparse(node)[:60]}` is not in the language", f"expressions are comparisons, and/or/not, {CALLS}")

    def _kind(self, node: ast.expr, scope: Scope) -> Type | None:
        if isinstance(node, ast.Constant) and node.value is None:
            return None
        return _maybe(self.read(node, scope).type)

    def _name(self, node: ast.expr, name: str, scope: Scope) -> Expr:
        found = scope.names.get(name)
        if found is not None:
            return found
        if name == scope.self_name:
            raise Mistake(node, f"'{name}' alone is not a value", f"write {name}.something")
        known = (*scope.names, *scope.module.names)
        raise Mistake(node, f"unknown name '{name}'{nearest(name, known)}", "names are parameters, loop variables, sorts and enumerations")

    def _attribute(self, node: ast.Attribute, scope: Scope, at: Span) -> Expr:
        variable = self.variable(node, scope)
        if variable is not None:
            if variable.keys:
                raise Mistake(node, f"'{variable.name}' takes {len(variable.keys)} keys", f"write {spelling(variable)}")
            self._check_unwritten(node, variable, scope)
            return read(variable, (), at)
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == scope.self_name and name in self.names.flags:
                return FlagRead(name, at)
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                found = scope.module.lookup(owner)
                if isinstance(found, Enumeration):
                    if name not in found.members:
                        raise Mistake(node, f"{owner} has no member '{name}'{nearest(name, found.members)}",
                                      f"its members are {', '.join(found.members)}")
                    return Const(name, Element(found), at)
        raise self._unknown(node, node, scope)

    def _unknown(self, node: ast.AST, value: ast.expr, scope: Scope) -> Mistake:
        match value:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == scope.self_name:
                if name in self.names.broken:
                    return Mistake(node, "")
                known = (*self.names.variables, *self.names.flags, *self.names.method_names("define"))
                if name in self.names.flags:
                    return Mistake(node, f"the flag '{name}' has no keys", f"write s.{name}")
                if name in self.names.method_names("define"):
                    return Mistake(node, f"'{name}' is a definition", f"call it: s.{name}(...)")
                return Mistake(node, f"the spec has no '{name}'{nearest(name, known)}",
                               "a variable, flag or definition is declared in the class or in a base class")
        return Mistake(node, f"`{ast.unparse(value)[:60]}` is not something that can be read here", "only the spec's own variables can")

    def _check_unwritten(self, node: ast.AST, variable: Variable, scope: Scope) -> None:
        if scope.written and variable.name in scope.written:
            raise Mistake(
                node,
                f"'{variable.name}' is read after it was written at {scope.written[variable.name]}",
                "every right-hand side reads the state before the step; read it above the write",
            )

    def _compare(self, left: ast.expr, ops: list[ast.cmpop], others: list[ast.expr], scope: Scope, at: Span) -> Expr:
        parts = []
        for operator, right in zip(ops, others, strict=True):
            parts.append(self._comparison(left, operator, right, scope, at))
            left = right
        return parts[0] if len(parts) == 1 else apply(Operator.AND, tuple(parts), at)

    def _comparison(self, left: ast.expr, operator: ast.cmpop, right: ast.expr, scope: Scope, at: Span) -> Expr:
        match operator:
            case ast.Is() | ast.IsNot() | ast.Eq() | ast.NotEq():
                if isinstance(operator, ast.Is | ast.IsNot) and not _is_none(right):
                    raise Mistake(right, "`is` compares with None only", "write == or !=")
                equal = self._equal(self.read(left, scope), right, scope, at)
                return equal if isinstance(operator, ast.Is | ast.Eq) else apply(Operator.NOT, (equal,), at)
            case ast.In() | ast.NotIn():
                if not isinstance(right, ast.Tuple | ast.List | ast.Set) or not right.elts:
                    raise Mistake(right, "`in` is followed by the values, in parentheses", "write x in (None, r)")
                value = self.read(left, scope)
                found = apply(Operator.OR, tuple(self._equal(value, part, scope, at) for part in right.elts), at)
                return found if isinstance(operator, ast.In) else apply(Operator.NOT, (found,), at)
        return COMPARISONS[type(operator)](self.read(left, scope), self.read(right, scope), at)

    def _equal(self, value: Expr, other: ast.expr, scope: Scope, at: Span) -> Expr:
        if _is_none(other):
            return apply(Operator.IS_NONE, (value,), at)
        return apply(Operator.EQ, (value, self.read(other, scope)), at)

    def _logic(self, operator: ast.boolop, values: list[ast.expr], scope: Scope, at: Span) -> Expr:
        parts = []
        for value in values:
            part = self.truth(value, scope)
            scope = scope.knowing(granted(part) if isinstance(operator, ast.And) else denied(part))
            parts.append(part)
        return apply(Operator.AND if isinstance(operator, ast.And) else Operator.OR, tuple(parts), at)

    def _call(self, node: ast.Call, scope: Scope, at: Span) -> Expr:
        if node.keywords:
            raise Mistake(node, "arguments are given by position", f"write {ast.unparse(node.func)}(a, b)")
        match node.func:
            case ast.Name(id=name):
                if scope.module.lookup(name) == Word("implies"):
                    if len(node.args) != 2:
                        raise Mistake(node, f"implies takes 2 arguments, not {len(node.args)}", "write implies(premise, conclusion)")
                    premise = self.truth(node.args[0], scope)
                    conclusion = self.truth(node.args[1], scope.knowing(granted(premise)))
                    return apply(Operator.IMPLIES, (premise, conclusion), at)
                counting = scope.module.lookup(name) == Word("count")
                if counting or name in ("all", "any"):
                    return self._quantified(node, name if not counting else "count", scope, at)
                raise Mistake(node, f"'{name}' is not a call of the language{nearest(name, ('implies', 'all', 'any', 'count'))}",
                              f"the calls are {CALLS}")
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == scope.self_name:
                return self.names.definition(node, name, scope, False)
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"), args=[], keywords=[]), attr=name):
                return self.names.definition(node, name, scope, True)
        raise Mistake(node, f"`{ast.unparse(node.func)[:60]}` is not a call of the language", f"the calls are {CALLS}")

    def _quantified(self, node: ast.Call, name: str, scope: Scope, at: Span) -> Expr:
        if len(node.args) != 1 or not isinstance(node.args[0], ast.GeneratorExp):
            raise Mistake(node, f"{name} is over a comprehension", f"write {name}(s.holds[r, p] for p in Page)")
        generator = node.args[0]
        variables, condition, inner = self.generator(generator, scope)
        body = self.truth(generator.elt, inner)
        if name == "all":
            return quantify(Binder.ALL, variables, body if not _says(condition) else apply(Operator.IMPLIES, (condition, body), at), at)
        return quantify(Binder.ANY if name == "any" else Binder.COUNT, variables, conjunction((condition, body)), at)


def _says(condition: Expr) -> bool:
    return condition != conjunction(())


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _maybe(kind: Type) -> Type:
    return Maybe(kind.domain) if isinstance(kind, Element) else kind
