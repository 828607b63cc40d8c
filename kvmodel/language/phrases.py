"""Reading expressions: from Python's syntax tree to typed expressions, with every mistake reported where it is."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace

from kvmodel.errors import nearest
from kvmodel.language.expressions import TRUE, Bound, Const, Expr, FlagRead, children, conjunction
from kvmodel.language.modules import BROKEN, Module, Word, reserved, span
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.scopes import Mistake, Names, Scope, denied, granted, none_hint
from kvmodel.language.source import quoted
from kvmodel.language.system import Variable
from kvmodel.language.typed import TypingError, apply, keys_of, quantify, read, spelling, truth_hint
from kvmodel.language.types import BOOL, COUNT, Domain, Element, Enumeration, Maybe, Sort, Span, Type, a_kind

__all__ = ["Phrase"]

DEEPEST_EXPRESSION = 40  # levels, with definitions in place
LARGEST_EXPRESSION = 20_000  # parts, with definitions in place
DEEPEST_READING = 100  # statements, expressions and uses of definitions and effects inside each other
MOST_READING = 50_000  # parts of one spec, with definitions and effects in place
MOST_LOOPS = 10  # parameters, loops and quantifiers inside each other

COMPARISONS: Mapping[type[ast.cmpop], Callable[[Expr, Expr, Span], Expr]] = {
    ast.Lt: lambda a, b, at: apply(Operator.LT, (a, b), at),
    ast.LtE: lambda a, b, at: apply(Operator.LE, (a, b), at),
    ast.Gt: lambda a, b, at: apply(Operator.LT, (b, a), at),
    ast.GtE: lambda a, b, at: apply(Operator.LE, (b, a), at),
}

SYMBOLS: Mapping[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}

CALLS = "implies(a, b), all(... for ...), any(... for ...), count(... for ...) and definitions: s.in_use(p)"
ARITHMETIC = "numbers are compared, never computed with: only a constant can be added or subtracted"


class Phrase:
    """Reads the expressions of one spec."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.nesting = 0
        self._amount = 0
        self._measures: dict[int, tuple[Expr, int, int]] = {}  # by identity: the expression (kept alive), its levels and parts

    def truth(self, node: ast.expr, scope: Scope) -> Expr:
        """An expression that must be a truth value. Raises Mistake."""
        expr = self.read(node, scope)
        if expr.type != BOOL:
            raise Mistake(node, f"this is {a_kind(expr.type)}, not a truth value", truth_hint(expr.type))
        return expr

    def read(self, node: ast.expr, scope: Scope, wanted: Type | None = None) -> Expr:
        """An expression; `wanted` is the type that a bare None would have. Raises Mistake."""
        self.enter(node, scope)
        try:
            expr = self._read(node, scope, wanted)
        except TypingError as problem:
            raise Mistake(node, problem.message, problem.hint) from None
        finally:
            self.nesting -= 1
        levels, parts = self.measure(expr)
        if levels > DEEPEST_EXPRESSION:
            raise Mistake(node, f"with definitions in place the expression is nested deeper than {DEEPEST_EXPRESSION} levels",
                          "use fewer definitions inside each other")
        if parts > LARGEST_EXPRESSION:
            raise Mistake(node, f"with definitions in place the expression has more than {LARGEST_EXPRESSION:,} parts",
                          "use fewer definitions inside each other")
        return expr

    def enter(self, node: ast.AST, scope: Scope) -> None:
        """Count a statement or an expression that is about to be read; the caller lowers `nesting` when it is done."""
        self.nesting += 1
        if self.nesting > DEEPEST_READING:
            self.names.give_up(node, scope, f"definitions and effects are used inside each other deeper than {DEEPEST_READING} levels")
        self.spend(node, scope, 1)

    def spend(self, node: ast.AST, scope: Scope, parts: int) -> None:
        """Count parts of the spec; over the limit, the spec is given up."""
        self._amount += parts
        if self._amount > MOST_READING:
            self.names.give_up(node, scope, f"with definitions and effects in place the spec has more than {MOST_READING:,} parts")

    def measure(self, expr: Expr) -> tuple[int, int]:
        """How many levels and how many parts an expression has."""
        found = self._measures.get(id(expr))
        if found is None:
            inner = [self.measure(child) for child in children(expr)]
            found = (expr, 1 + max((levels for levels, _ in inner), default=0), 1 + sum(parts for _, parts in inner))
            self._measures[id(expr)] = found
        return found[1:]

    def element(self, node: ast.expr, scope: Scope, domain: Domain, what: str) -> Expr:
        """An expression that must be an element of `domain`; a maybe that was tested counts. Raises Mistake."""
        expr = self.settled(self.read(node, scope), scope)
        if isinstance(expr.type, Maybe) and expr.type.domain == domain:
            raise Mistake(node, f"{what} may be None", none_hint(node), none=True)
        if expr.type != Element(domain):
            raise Mistake(node, f"{what} is a {domain.name}, not {a_kind(expr.type)}", f"give it a {domain.name}")
        return expr

    def index(self, nodes: list[ast.expr], variable: Variable, scope: Scope) -> tuple[Expr, ...]:
        """The index of a read. Raises Mistake."""
        if len(nodes) != len(variable.keys):
            raise Mistake(nodes[0], f"'{variable.name}' takes {keys_of(variable)}, not {len(nodes)}", f"write {spelling(variable)}")
        for node in nodes:
            if isinstance(node, ast.Slice):
                raise Mistake(node, "a slice can be written but not read",
                              f"use all(... for ...) or any(... for ...) over {spelling(variable)}")
        return tuple(self.key(node, variable, position, scope) for position, node in enumerate(nodes))

    def key(self, node: ast.expr, variable: Variable, position: int, scope: Scope) -> Expr:
        """The key of a variable at a position of its index. Raises Mistake."""
        part = self.settled(self.read(node, scope), scope)
        key = variable.keys[position]
        if isinstance(part.type, Maybe) and part.type.domain == key:
            raise Mistake(node, f"the {key.name} that indexes '{variable.name}' may be None", none_hint(node), none=True)
        return part

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
            bound, inner = self.loop_variable(clause.target, clause.iter, inner)
            variables.append(bound)
            for test in clause.ifs:
                condition = self.truth(test, inner)
                conditions.append(condition)
                inner = inner.knowing(granted(condition))
        return tuple(variables), conjunction(conditions), inner

    def loop_variable(self, target: ast.expr, source: ast.expr, scope: Scope) -> tuple[Bound, Scope]:
        """The variable of ``for target in Sort``, and the scope inside the loop. Raises Mistake."""
        if not isinstance(target, ast.Name):
            raise Mistake(target, "a loop has one variable", "write `for p in Page`, and another `for` for another sort")
        self.check_name(target, target.id, scope)
        if target.id in scope.names:
            raise Mistake(target, f"'{target.id}' already stands for something here", "choose another name")
        if len(scope.taken) >= MOST_LOOPS:
            raise Mistake(target, f"more than {MOST_LOOPS} parameters and loops are inside each other", "split the method")
        domain = self.domain(source, scope.module, "a loop ranges over a whole sort or enumeration: for p in Page")
        bound = Bound(scope.fresh(target.id), domain, span(scope.module, target))
        return bound, scope.binding(target.id, bound)

    def check_name(self, node: ast.AST, name: str, scope: Scope) -> None:
        """Raises Mistake for a parameter or loop variable that hides something else."""
        if name == scope.self_name or reserved(name, scope.module):
            raise Mistake(node, f"'{name}' already stands for something in this file", "choose another name")

    def domain(self, node: ast.expr, module: Module, hint: str) -> Domain:
        """The sort or enumeration that a name stands for. Raises Mistake."""
        found = module.lookup(node.id) if isinstance(node, ast.Name) else None
        if isinstance(found, Sort | Enumeration):
            return found
        if found is BROKEN:
            raise Mistake(node, "")
        close = nearest(node.id, [name for name in module.own_names if name != node.id]) if isinstance(node, ast.Name) else ""
        raise Mistake(node, f"{quoted(node)} is not a sort or an enumeration{close}", hint)

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
                raise Mistake(node, "None has no meaning here", "compare with it, `x is None`, or write it to a variable that can hold it")
            case ast.Constant():
                raise Mistake(node, f"the constant {quoted(node)} is not in the language", "constants are True, False, None and integers")
            case ast.Name(id=name):
                return self._name(node, name, scope)
            case ast.Attribute():
                return self._attribute(node, scope, at)
            case ast.Subscript(value=value, slice=index):
                variable = self.variable(value, scope)
                if variable is None:
                    raise self._unknown(node, value, scope)
                self._check_unwritten(node, variable, scope)
                return read(variable, self.index(index.elts if isinstance(index, ast.Tuple) else [index], variable, scope), at)
            case ast.Call():
                return self._call(node, scope, at)
            case ast.Compare(left=left, ops=operators, comparators=comparators):
                return self._compare(left, operators, comparators, scope, at)
            case ast.BoolOp(op=operator, values=values):
                return self._logic(operator, values, scope, at)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return apply(Operator.NOT, (self.read(operand, scope),), at)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))) if not isinstance(value, bool):
                return Const(-value, COUNT, at)
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                return self._sum(node, scope, at)
            case ast.BinOp(op=ast.BitAnd() | ast.BitOr() | ast.BitXor()) | ast.UnaryOp(op=ast.Invert()):
                raise Mistake(node, f"{quoted(node)} is not in the language", "write and, or, not, or != for exclusive or")
            case ast.BinOp() | ast.UnaryOp():
                raise Mistake(node, f"{quoted(node)} is not in the language", f"integers are added and subtracted; {ARITHMETIC}")
            case ast.IfExp(test=test, body=then, orelse=otherwise):
                condition = self.truth(test, scope)
                yes = self.read(then, scope.knowing(granted(condition)), wanted or self._kind(otherwise, scope.knowing(denied(condition))))
                no = self.read(otherwise, scope.knowing(denied(condition)), wanted or _maybe(yes.type))
                return apply(Operator.IF, (condition, yes, no), at)
        raise Mistake(node, f"{quoted(node)} is not in the language", f"expressions are comparisons, and/or/not, {CALLS}")

    def _sum(self, node: ast.BinOp, scope: Scope, at: Span) -> Expr:
        left = self.read(node.left, scope)
        match node.op, node.right:
            case ast.Sub(), ast.Constant(value=int(value)) if not isinstance(value, bool):
                right: Expr = Const(-value, COUNT, at)
            case ast.Sub(), _:
                raise Mistake(node, f"{quoted(node.right)} cannot be subtracted",
                              "compare the two, as in a <= b + 1: only a constant can be subtracted")
            case _:
                right = self.read(node.right, scope)
        return apply(Operator.ADD, (left, right), at)

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
        if scope.module.lookup(name) is not None:
            raise Mistake(node, f"'{name}' alone is not a value here", "loop over a sort, `for p in Page`; name a member, `Phase.NEW`")
        raise self._unknown_name(node, name, scope)

    def _unknown_name(self, node: ast.AST, name: str, scope: Scope) -> Mistake:
        if name in (*self.names.variables, *self.names.flags):
            return Mistake(node, f"unknown name '{name}'", f"the spec's own are written with {scope.self_name}: {scope.self_name}.{name}")
        return Mistake(node, f"unknown name '{name}'{nearest(name, (*scope.names, *scope.module.own_names))}",
                       f"names are parameters and loop variables ({', '.join(scope.names) or 'none here'}), sorts and enumerations")

    def _attribute(self, node: ast.Attribute, scope: Scope, at: Span) -> Expr:
        variable = self.variable(node, scope)
        if variable is not None:
            if variable.keys:
                raise Mistake(node, f"'{variable.name}' takes {keys_of(variable)}, not none", f"write {spelling(variable)}")
            self._check_unwritten(node, variable, scope)
            return read(variable, (), at)
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == scope.self_name and name in self.names.flags:
                return FlagRead(name, at)
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner not in scope.names:
                found = scope.module.lookup(owner)
                if found is BROKEN:
                    raise Mistake(node, "")
                if isinstance(found, Enumeration):
                    if name not in found.members:
                        raise Mistake(node, f"{owner} has no member '{name}'{nearest(name, found.members)}",
                                      f"its members are {', '.join(found.members)}")
                    return Const(name, Element(found), at)
        raise self._unknown(node, node, scope)

    def _unknown(self, node: ast.AST, value: ast.expr, scope: Scope) -> Mistake:
        match value:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == scope.self_name:
                kind = self.names.method_kind(name)
                known = (*self.names.variables, *self.names.flags, *self.names.method_names("define"))
                if name in self.names.flags:
                    return Mistake(node, f"the flag '{name}' has no keys", f"write {owner}.{name}")
                if kind == "define":
                    return Mistake(node, f"'{name}' is a definition", f"call it: {owner}.{name}(...)")
                if kind is not None:
                    return Mistake(node, f"'{name}' is marked @{kind}: it is no value", "expressions use variables, flags and definitions")
                if name in self.names.broken or not self.names.complete:
                    return Mistake(node, "")
                return Mistake(node, f"the spec has no '{name}'{nearest(name, known)}",
                               "a variable, flag or definition is declared in the class or in a base class")
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in scope.names and name in self.names.variables:
                return Mistake(node, f"{quoted(value)} is not something that can be read here", f"write {scope.self_name}.{name}[{owner}]")
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner not in scope.names and scope.module.lookup(owner) is None:
                if name in (*self.names.variables, *self.names.flags) or self.names.method_kind(name):
                    return Mistake(node, f"unknown name '{owner}'",
                                   f"the spec is called {scope.self_name} here, as the method's first parameter says")
                return self._unknown_name(node, owner, scope)
            case ast.Name(id=name) if name not in scope.names and scope.module.lookup(name) is None:
                return self._unknown_name(node, name, scope)
        return Mistake(node, f"{quoted(value)} is not something that can be read here",
                       f"only the spec's own variables can: {scope.self_name}.holds[r, p]")

    def _check_unwritten(self, node: ast.AST, variable: Variable, scope: Scope) -> None:
        if scope.written and variable.name in scope.written:
            raise Mistake(
                node,
                f"'{variable.name}' is read after it was written at {scope.written[variable.name]}",
                "every right-hand side reads the state before the step; read it above the write",
                late=variable.name,
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
                if _is_none(left):
                    left, right = right, left
                if isinstance(operator, ast.Is | ast.IsNot) and not _is_none(right):
                    raise Mistake(right, "`is` compares with None only", "write == or !=")
                equal = self._equal(self.read(left, scope), right, scope, at)
                return equal if isinstance(operator, ast.Is | ast.Eq) else apply(Operator.NOT, (equal,), at)
            case ast.In() | ast.NotIn():
                if not isinstance(right, ast.Tuple | ast.List | ast.Set) or not right.elts:
                    raise Mistake(right, "`in` is followed by the values, in parentheses", "write x in (None, r)")
                value = self.read(left, scope)
                self.spend(node=right, scope=scope, parts=self.measure(value)[1] * len(right.elts))
                found = apply(Operator.OR, tuple(self._equal(value, part, scope, at) for part in right.elts), at)
                return found if isinstance(operator, ast.In) else apply(Operator.NOT, (found,), at)
        first, second = self.read(left, scope), self.read(right, scope)
        try:
            return COMPARISONS[type(operator)](first, second, at)
        except TypingError:
            symbol = SYMBOLS[type(operator)]
            raise Mistake(left, f"'{symbol}' compares {a_kind(first.type)} with {a_kind(second.type)}",
                          "only two numbers or two counts have an order") from None

    def _equal(self, value: Expr, other: ast.expr, scope: Scope, at: Span) -> Expr:
        if _is_none(other):
            return apply(Operator.IS_NONE, (value,), at)
        return apply(Operator.EQ, (value, self.read(other, scope)), at)

    def _logic(self, operator: ast.boolop, values: list[ast.expr], scope: Scope, at: Span) -> Expr:
        conjunctive = isinstance(operator, ast.And)
        parts: list[Expr] = []
        for value in values:
            try:
                part = self.truth(value, scope)
            except Mistake as mistake:
                self.names.note(mistake, scope)
                scope = replace(scope, unsure=True)
                continue
            scope = scope.knowing(granted(part) if conjunctive else denied(part))
            parts.append(part)
        if len(parts) < len(values):
            raise Mistake(values[0], "")
        return apply(Operator.AND if conjunctive else Operator.OR, tuple(parts), at)

    def _call(self, node: ast.Call, scope: Scope, at: Span) -> Expr:
        if node.keywords:
            raise Mistake(node, "arguments are given by position", f"write {quoted(node.func).strip('`')}(a, b)")
        match node.func:
            case ast.Name(id=name):
                word = scope.module.lookup(name)
                if word is BROKEN:
                    raise Mistake(node, "")
                if word == Word("implies"):
                    if len(node.args) != 2:
                        raise Mistake(node, f"implies takes 2 arguments, not {len(node.args)}", "write implies(premise, conclusion)")
                    premise = self.truth(node.args[0], scope)
                    conclusion = self.truth(node.args[1], scope.knowing(granted(premise)))
                    return apply(Operator.IMPLIES, (premise, conclusion), at)
                if word == Word("count") or (name in ("all", "any") and name not in scope.module.bindings):
                    return self._quantified(node, "count" if word == Word("count") else name, scope, at)
                if word == Word("require"):
                    raise Mistake(node, "require is not a value", "it is a statement of its own at the top of an action")
                if word is None and name in ("implies", "count"):
                    raise Mistake(node, f"'{name}' is not imported", f"write from kvmodel.language import {name}")
                if word is None and self.names.method_kind(name) == "define":
                    raise Mistake(node, f"'{name}' is not a call of the language", f"the spec's own are written with {scope.self_name}: "
                                  f"{scope.self_name}.{name}(...)")
                raise Mistake(node, f"'{name}' is not a call of the language{nearest(name, ('implies', 'all', 'any', 'count'))}",
                              f"the calls are {CALLS}")
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == scope.self_name:
                return self.names.definition(node, name, scope, False)
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"), args=[], keywords=[]), attr=name):
                return self.names.definition(node, name, scope, True)
        raise Mistake(node, f"{quoted(node.func)} is not a call of the language", f"the calls are {CALLS}")

    def _quantified(self, node: ast.Call, name: str, scope: Scope, at: Span) -> Expr:
        if len(node.args) != 1 or not isinstance(node.args[0], ast.GeneratorExp):
            brackets = len(node.args) == 1 and isinstance(node.args[0], ast.ListComp | ast.SetComp)
            hint = "drop the brackets: " if brackets else f"write {name}"
            raise Mistake(node, f"{name} is over a comprehension", f"{hint}(s.holds[r, p] for p in Page)")
        generator = node.args[0]
        variables, condition, inner = self.generator(generator, scope)
        body = self.truth(generator.elt, inner)
        if name == "all":
            return quantify(Binder.ALL, variables, body if condition == TRUE else apply(Operator.IMPLIES, (condition, body), at), at)
        return quantify(Binder.ANY if name == "any" else Binder.COUNT, variables, conjunction((condition, body)), at)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _maybe(kind: Type) -> Type:
    return Maybe(kind.domain) if isinstance(kind, Element) else kind
