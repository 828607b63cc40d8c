"""A picture of a state of any size: some elements told apart, and of all others only whether some of them satisfies a formula.

Grounding an expression in a picture gives a formula over *cells*: places of variables at elements that are told apart,
comparisons of rigid numbers, and for each "some" in the expression whether some other element will do. The same question
about the others, however it is written, is one cell. Every state gives every cell a value, so what is false for all values
of the cells is false of every state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from kvmodel.errors import InternalError, KvmodelError
from kvmodel.language.expressions import FALSE, TRUE, Apply, Bound, Cell, Const, Expr, FlagRead, Named, Quantified, Read, negation
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import TransitionSystem, Variable
from kvmodel.language.types import BOOL, Bool, Counter, Element, Enumeration, Maybe, Number, Sort, Type, Value
from kvmodel.readings.ground import cells, simplify
from kvmodel.readings.orders import Difference, comparison
from kvmodel.readings.valuations import Constraint

__all__ = [
    "Cells",
    "Comparison",
    "Elsewhere",
    "Environment",
    "FlagValue",
    "NotPictured",
    "Picture",
    "Place",
    "Sizes",
    "SomeOther",
    "normal",
    "required",
]

Environment: TypeAlias = Mapping[str, Const]
Mention: TypeAlias = tuple[str, int]  # a sort and an element of it
Sizes: TypeAlias = Mapping[str, int]


class NotPictured(KvmodelError):
    """Something that is not enumerated."""


@dataclass(frozen=True, slots=True)
class Place:
    """A variable at an index of elements and members."""

    variable: str
    index: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class FlagValue:
    flag: str


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A variable at an index of which some part is another element, or none."""

    variable: str
    index: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class SomeOther:
    """Some element of `sort` that is told apart from none below `number` satisfies `body`, where it is called `number`."""

    sort: Sort
    number: int
    body: Expr


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of rigid numbers."""

    difference: Difference


Key: TypeAlias = Place | FlagValue | Elsewhere | SomeOther | Comparison


@dataclass(frozen=True, slots=True)
class Info:
    key: Key
    cell: Cell
    mentions: frozenset[Mention]


class Cells:
    """The places and truth values that ground expressions read, numbered as they come."""

    def __init__(self) -> None:
        self.all: list[Info] = []
        self._known: dict[Key, Cell] = {}

    def cell(self, key: Key, kind: Type, mentions: frozenset[Mention] = frozenset()) -> Cell:
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Cell(len(self.all), False, kind)
            self.all.append(Info(key, known, mentions))
        return known

    def mentions(self, expr: Expr) -> frozenset[Mention]:
        """The elements that a ground expression names."""
        match expr:
            case Const(value=int(value), type=Element(Sort() as sort) | Maybe(Sort() as sort)):
                return frozenset(((sort.name, value),))
            case Cell(slot=slot):
                return self.all[slot].mentions
            case Apply(arguments=arguments):
                return frozenset[Mention]().union(*(self.mentions(part) for part in arguments))
            case _:
                return frozenset()


class Picture:
    """Grounds expressions over `sizes` elements a sort that are told apart; the others are only 'some other element'."""

    def __init__(self, system: TransitionSystem, known: Cells, sizes: Sizes) -> None:
        self.system = system
        self.cells = known
        self.sizes = sizes
        self._instances: dict[tuple[int, tuple[Value, ...]], tuple[Expr, tuple[Constraint, ...]]] = {}
        self._inner: dict[int, tuple[Expr, Expr]] = {}

    def instances(self, expr: Expr) -> Iterator[Constraint]:
        """What a true expression says of the elements told apart: each instance of its outer 'for all'."""
        variables: list[Bound] = []
        body = expr
        while isinstance(body, Named) or (isinstance(body, Quantified) and body.binder is Binder.ALL):
            if isinstance(body, Quantified):
                if {v.name for v in body.variables} & {v.name for v in variables}:
                    break
                variables += body.variables
            body = body.body
        for values in product(*(self.elements(v.domain, 0) for v in variables)):
            key = (id(body), values)
            if key not in self._instances:
                environment = {v.name: Const(value, Element(v.domain)) for v, value in zip(variables, values, strict=True)}
                self._instances[key] = body, tuple(self.constraints(self.ground(body, environment)))
            yield from self._instances[key][1]

    def constraints(self, ground: Expr) -> Iterator[Constraint]:
        """The conjuncts of a ground expression."""
        for part in required(ground, True):
            yield Constraint(part, frozenset(cell.slot for cell in cells(part)))

    def elements(self, domain: Sort | Enumeration, more: int) -> tuple[Value, ...]:
        return domain.members if isinstance(domain, Enumeration) else tuple(range(self.sizes[domain.name] + more))

    def ground(self, expr: Expr, environment: Environment, scope: Mapping[str, int] | None = None) -> Expr:
        """`expr` over cells. `scope` says how many other elements of each sort are being spoken of."""
        scope = scope or {}
        match expr:
            case Const(value=int(), type=Element(Sort() as sort) | Maybe(Sort() as sort)):
                raise NotPictured(f"starts at an element of {sort.name} that it names by number")
            case Const():
                return expr
            case Bound(name=name):
                return environment[name]
            case FlagRead(flag=flag):
                return self.cells.cell(FlagValue(flag), BOOL)
            case Named(body=body):
                return self.ground(body, environment, scope)
            case Read(variable, index, kind):
                return self.read(variable, tuple(self.ground(part, environment, scope) for part in index), kind, scope)
            case Apply(operator, arguments, kind):
                return self.apply(operator, tuple(self.ground(part, environment, scope) for part in arguments), kind)
            case Quantified():
                return self.quantified(expr, environment, scope)
        raise InternalError(f"a picture has no rule for {expr!r}")

    def apply(self, operator: Operator, arguments: tuple[Expr, ...], kind: Type) -> Expr:
        found = simplify(operator, arguments, kind)
        if operator in (Operator.LT, Operator.LE, Operator.EQ) and isinstance(arguments[0].type, Number):
            return self.compared(found)
        return found

    def compared(self, expr: Expr) -> Expr:
        """Comparisons of numbers as truth values."""
        if not isinstance(expr, Apply):
            return expr
        if expr.operator in (Operator.LT, Operator.LE, Operator.EQ) and isinstance(expr.arguments[0].type, Number):
            return simplify(Operator.AND, tuple(self.difference(part) for part in comparison(expr)), BOOL)
        return simplify(expr.operator, tuple(self.compared(part) for part in expr.arguments), expr.type)

    def difference(self, wanted: Difference) -> Expr:
        if wanted.left == wanted.right:
            return TRUE if wanted.bound >= 0 else FALSE
        opposite = wanted.negated()
        mentions = frozenset[Mention]().union(*(self.cells.all[s].mentions for s in (wanted.left, wanted.right) if s is not None))
        order = (-1 if wanted.left is None else wanted.left) < (-1 if wanted.right is None else wanted.right)
        cell = self.cells.cell(Comparison(wanted if order else opposite), BOOL, mentions)
        return cell if order else negation(cell)

    def read(self, name: str, index: tuple[Expr, ...], kind: Type, scope: Mapping[str, int]) -> Expr:
        variable = self.system.by_name[name]
        if isinstance(kind, Counter) and (kind.low < -30_000 or kind.high > 30_000):
            raise NotPictured(f"the counter {name} has a large range")
        if all(isinstance(part, Const) for part in index):
            place = tuple(part.value for part in index if isinstance(part, Const))
            return self.place(variable, place)
        mentions = frozenset[Mention]().union(*(self.cells.mentions(part) for part in index))
        result: Expr | None = None
        if any(isinstance(k, Sort) and not isinstance(part, Const) for k, part in zip(variable.keys, index, strict=True)):
            result = self.cells.cell(Elsewhere(name, index), variable.type, mentions)
        for place in product(*(self.elements(key, scope.get(key.name, 0)) for key in variable.keys)):
            tests = tuple(
                simplify(Operator.EQ, (part, Const(value, Element(key))), BOOL)
                for part, value, key in zip(index, place, variable.keys, strict=True)
            )
            reached = simplify(Operator.AND, tests, BOOL)
            if reached != FALSE:
                cell = self.place(variable, place)
                result = cell if result is None else simplify(Operator.IF, (reached, cell, result), kind)
        assert result is not None
        return result

    def place(self, variable: Variable, index: tuple[Value, ...]) -> Cell:
        """The cell of a variable at elements and members."""
        parts = zip(variable.keys, index, strict=True)
        named = frozenset((key.name, part) for key, part in parts if isinstance(key, Sort) and isinstance(part, int))
        return self.cells.cell(Place(variable.name, index), variable.type, named)

    def quantified(self, expr: Quantified, environment: Environment, scope: Mapping[str, int]) -> Expr:
        first, rest = expr.variables[0], expr.variables[1:]
        if expr.binder is Binder.COUNT:
            return self.count(expr, environment, scope)
        body = expr.body
        if rest:
            if id(expr) not in self._inner:
                self._inner[id(expr)] = expr, Quantified(expr.binder, rest, expr.body, expr.at)
            body = self._inner[id(expr)][1]
        domain = first.domain
        more = scope.get(domain.name, 0)
        parts = [
            self.ground(body, {**environment, first.name: Const(value, Element(domain))}, scope)
            for value in self.elements(domain, more)
        ]
        if isinstance(domain, Sort):
            other = self.sizes[domain.name] + more
            inner = {**environment, first.name: Const(other, Element(domain))}
            spoken = self.ground(body, inner, {**scope, domain.name: more + 1})
            every = expr.binder is Binder.ALL
            found = self.some_other(domain, other, negation(spoken) if every else spoken)
            parts.append(negation(found) if every else found)
        return simplify(Operator.AND if expr.binder is Binder.ALL else Operator.OR, tuple(parts), BOOL)

    def count(self, expr: Quantified, environment: Environment, scope: Mapping[str, int]) -> Expr:
        if any(isinstance(v.domain, Sort) for v in expr.variables):
            raise NotPictured(f"counts elements of a sort ({expr.at})")
        one, zero = Const(1, expr.type), Const(0, expr.type)
        found = []
        for values in product(*(self.elements(v.domain, 0) for v in expr.variables)):
            inner = {v.name: Const(value, Element(v.domain)) for v, value in zip(expr.variables, values, strict=True)}
            found.append(simplify(Operator.IF, (self.ground(expr.body, {**environment, **inner}, scope), one, zero), expr.type))
        return simplify(Operator.ADD, tuple(found), expr.type)

    def some_other(self, sort: Sort, number: int, body: Expr) -> Expr:
        """Whether some element other than those told apart satisfies `body`, in which it has `number`.

        What of `body` does not speak of that element is taken out, so that one question has one cell.
        """
        return self._some_other(sort, number, normal(body, True))

    def _some_other(self, sort: Sort, number: int, body: Expr) -> Expr:
        about = (sort.name, number)
        if body == FALSE:
            return FALSE
        if isinstance(body, Apply) and body.operator is Operator.OR:
            return simplify(Operator.OR, tuple(self._some_other(sort, number, part) for part in body.arguments), BOOL)
        parts = tuple(_flat(body))
        apart = tuple(part for part in parts if about not in self.cells.mentions(part))
        spoken = tuple(sorted((part for part in parts if about in self.cells.mentions(part)), key=repr))
        inside = simplify(Operator.AND, spoken, BOOL)
        if isinstance(inside, Apply) and inside.operator is Operator.OR:
            return simplify(Operator.AND, (*apart, self._some_other(sort, number, inside)), BOOL)
        mentions = self.cells.mentions(inside) - {about}
        return simplify(Operator.AND, (*apart, self.cells.cell(SomeOther(sort, number, inside), BOOL, mentions)), BOOL)


def _flat(expr: Expr) -> Iterator[Expr]:
    if isinstance(expr, Apply) and expr.operator is Operator.AND:
        for part in expr.arguments:
            yield from _flat(part)
    else:
        yield expr


def normal(expr: Expr, positive: bool) -> Expr:
    """A ground truth value with negations moved inwards and choices written out."""
    match expr:
        case Apply(Operator.NOT, (part,)):
            return normal(part, not positive)
        case Apply(Operator.AND | Operator.OR as operator, arguments):
            kind = operator if positive else (Operator.OR if operator is Operator.AND else Operator.AND)
            return simplify(kind, tuple(normal(part, positive) for part in arguments), BOOL)
        case Apply(Operator.IF, (condition, then, otherwise), Bool()):
            yes = simplify(Operator.AND, (normal(condition, True), normal(then, positive)), BOOL)
            no = simplify(Operator.AND, (normal(condition, False), normal(otherwise, positive)), BOOL)
            return simplify(Operator.OR, (yes, no), BOOL)
        case _:
            return expr if positive else negation(expr)


def required(expr: Expr, positive: bool) -> Iterator[Expr]:
    """The parts of a ground truth value, or of its negation, that must all be true."""
    match expr:
        case Apply(Operator.NOT, (part,)):
            yield from required(part, not positive)
        case Apply(Operator.AND, arguments) if positive:
            for part in arguments:
                yield from required(part, True)
        case Apply(Operator.OR, arguments) if not positive:
            for part in arguments:
                yield from required(part, False)
        case _:
            found = expr if positive else negation(expr)
            if found != TRUE:
                yield found
