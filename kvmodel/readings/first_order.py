"""Expressions as Z3 formulas over sorts of any size.

A sort becomes an uninterpreted sort, an enumeration a datatype, a variable a function. A value that may be none is two
functions: whether it is none, and which element it is otherwise. Rigid numbers are integers that are not negative.

With sizes given, a sort is a datatype too and quantifiers are written out: the same formulas, over a finite universe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import z3

from kvmodel.errors import InternalError, KvmodelError
from kvmodel.language.expressions import Apply, Bound, Cell, Const, Expr, FlagRead, Named, Quantified, Read
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import TransitionSystem, Variable
from kvmodel.language.types import Bool, Domain, Element, Enumeration, Maybe, Number, Span, Type
from kvmodel.readings.conditions import VerificationCondition
from kvmodel.readings.terms import application, choice, conjunction, disjunction, equality, implication, negation

__all__ = ["Formulas", "NotFirstOrder"]

Term: TypeAlias = Any  # z3 has no types
Environment: TypeAlias = Mapping[str, Term]


class NotFirstOrder(KvmodelError):
    """An expression that has no meaning without a number of elements: a count over a sort of any size."""

    def __init__(self, at: Span) -> None:
        super().__init__("a count over a sort has no meaning at any size")
        self.at = at


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be none."""

    none: Term
    value: Term


Meaning: TypeAlias = Any  # a term, or an `Optional`


class Formulas:
    """The Z3 formulas of one system, in a context of their own: over sorts of any size, or of the given `sizes`."""

    def __init__(self, system: TransitionSystem, sizes: Mapping[str, int] | None = None) -> None:
        self.system = system
        self.context = z3.Context()
        self._sorts: dict[str, Term] = {}
        self.members: dict[str, tuple[Term, ...]] = {}
        for sort in system.sorts:
            if sizes is None:
                self._sorts[sort.name] = z3.DeclareSort(sort.name, ctx=self.context)
            else:
                self._list(sort.name, [str(number) for number in range(sizes[sort.name])])
        for enumeration in system.enumerations:
            self._list(enumeration.name, enumeration.members)
        self.values = {variable.name: self._declare(variable, variable.name, self._range(variable.type)) for variable in system.variables}
        self.nones = {
            variable.name: self._declare(variable, f"{variable.name}.none", z3.BoolSort(ctx=self.context))
            for variable in system.variables
            if isinstance(variable.type, Maybe)
        }
        self.flags = {flag.name: z3.Bool(flag.name, ctx=self.context) for flag in system.flags}
        self._known: dict[int, tuple[Expr, Term]] = {}

    def _list(self, name: str, members: Sequence[str]) -> None:
        self._sorts[name], constants = z3.EnumSort(name, [f"{name}.{member}" for member in members], ctx=self.context)
        self.members[name] = tuple(constants)

    def _declare(self, variable: Variable, name: str, result: Term) -> Term:
        return z3.Function(name, *(self.sort(key) for key in variable.keys), result)

    def sort(self, domain: Domain) -> Term:
        """The Z3 sort of a sort or enumeration."""
        return self._sorts[domain.name]

    def member(self, enumeration: Enumeration, name: str) -> Term:
        """The Z3 constant of a member."""
        return self.members[enumeration.name][enumeration.members.index(name)]

    def _range(self, kind: Type) -> Term:
        match kind:
            case Bool():
                return z3.BoolSort(ctx=self.context)
            case Element(domain) | Maybe(domain):
                return self.sort(domain)
            case _:
                return z3.IntSort(ctx=self.context)

    def constant(self, parameter: Bound) -> Term:
        """The free constant that a parameter is."""
        return z3.Const(parameter.name, self.sort(parameter.domain))

    def negated(self, condition: VerificationCondition) -> tuple[list[Term], dict[str, Term]]:
        """Formulas that are satisfiable together if and only if `condition` does not hold: assumptions, premises, the negated goal
        and facts about numbers; and apart from them, each hypothesis by its number in the condition.

        Raises NotFirstOrder for a count over a sort.
        """
        environment = {parameter.name: self.constant(parameter) for parameter in condition.constants}
        formulas = [*self.numbers]
        formulas += [self.formula(expr) for expr in condition.assumptions]
        formulas += [self.formula(expr, environment) for expr in condition.premises]
        formulas.append(negation(self.meaning(condition.goal, environment)))
        hypotheses = {f"{number}:{name}": self.formula(expr) for number, (name, expr) in enumerate(condition.hypotheses)}
        return formulas, hypotheses

    @cached_property
    def numbers(self) -> tuple[Term, ...]:
        """Rigid numbers are not negative."""
        found = []
        for variable in self.system.variables:
            if isinstance(variable.type, Number):
                keys = [z3.Const(f"i{i}", self.sort(key)) for i, key in enumerate(variable.keys)]
                fact = self.values[variable.name](*keys) >= 0
                found.append(z3.ForAll(keys, fact) if keys else fact)
        return tuple(found)

    def formula(self, expr: Expr, environment: Environment | None = None) -> Term:
        """The meaning of a truth value that is asked for again and again, translated once: closed, or over the parameters of one
        action, which are the same constants in every condition."""
        if id(expr) not in self._known:  # by identity: hashing a tree costs more than it saves
            self._known[id(expr)] = expr, self.meaning(expr, environment or {})
        return self._known[id(expr)][1]

    def meaning(self, expr: Expr, environment: Environment) -> Meaning:
        """The meaning of `expr` with its free names given by `environment`."""
        match expr:
            case Const(value=value, type=kind):
                return self._constant(value, kind)
            case Bound(name=name):
                return environment[name]
            case FlagRead(flag=flag):
                return self.flags[flag]
            case Named(body=body):
                return self.meaning(body, environment)
            case Read(variable=variable, index=index):
                places = [_element(self.meaning(part, environment)) for part in index]
                value = application(self.values[variable], places)
                return Optional(application(self.nones[variable], places), value) if variable in self.nones else value
            case Apply(operator=operator, arguments=arguments):
                if operator not in MEANING:
                    raise InternalError(f"the first-order reading has no meaning for operator {operator.value!r}")
                return MEANING[operator](self, [self.meaning(part, environment) for part in arguments])
            case Quantified(binder, variables, body, at):
                return self._quantified(binder, variables, body, environment, at)
            case Cell():
                raise InternalError("the first-order reading took a cell of a finite instance")

    def _quantified(self, binder: Binder, variables: tuple[Bound, ...], body: Expr, environment: Environment, at: Span) -> Term:
        # Quantifiers over a few listed members are written out.
        listed = next((variable for variable in variables if variable.domain.name in self.members), None)
        if listed is not None:
            others = tuple(variable for variable in variables if variable is not listed)
            insides = [{**environment, listed.name: member} for member in self.members[listed.domain.name]]
            return BINDING[binder](
                self, [self._quantified(binder, others, body, inside, at) if others else self.meaning(body, inside) for inside in insides],
                bool(others),
            )
        if binder is Binder.COUNT:
            raise NotFirstOrder(at)
        bound = [self.constant(variable) for variable in variables]
        inner = {**environment, **{variable.name: constant for variable, constant in zip(variables, bound, strict=True)}}
        return (z3.ForAll if binder is Binder.ALL else z3.Exists)(bound, self.meaning(body, inner))

    def _constant(self, value: object, kind: Type) -> Meaning:
        match kind:
            case Bool():
                return z3.BoolVal(bool(value), ctx=self.context)
            case Element(Enumeration() as enumeration) | Maybe(Enumeration() as enumeration):
                some = self.member(enumeration, enumeration.members[0] if value is None else str(value))
                return some if isinstance(kind, Element) else Optional(z3.BoolVal(value is None, ctx=self.context), some)
            case Maybe(domain) if value is None:
                return Optional(z3.BoolVal(True, ctx=self.context), z3.Const(f"some.{domain.name}", self.sort(domain)))
            case Maybe(domain) | Element(domain) if isinstance(value, int):
                # Only systems made by a program name an element, to start with. That two such elements differ is left open.
                members = self.members.get(domain.name)
                some = z3.Const(f"{domain.name} {value}", self.sort(domain)) if members is None else members[value % len(members)]
                return some if isinstance(kind, Element) else Optional(z3.BoolVal(False, ctx=self.context), some)
            case _ if isinstance(value, int):
                return z3.IntVal(value, ctx=self.context)
        raise InternalError(f"the first-order reading has no constant for {value!r}")


def _count(formulas: Formulas, parts: Sequence[Term], counted: bool) -> Term:
    return z3.Sum(*(part if counted else z3.If(part, z3.IntVal(1, formulas.context), z3.IntVal(0, formulas.context)) for part in parts))


# Over listed members. `counted`: the parts of a count are counts themselves, of variables that are bound inside.
BINDING: Mapping[Binder, Callable[[Formulas, Sequence[Term], bool], Term]] = {
    Binder.ALL: lambda formulas, parts, counted: conjunction(parts, formulas.context),
    Binder.ANY: lambda formulas, parts, counted: disjunction(parts, formulas.context),
    Binder.COUNT: _count,
}


def _element(meaning: Meaning) -> Term:
    return meaning.value if isinstance(meaning, Optional) else meaning


def _optional(meaning: Meaning, like: Optional) -> Optional:
    return meaning if isinstance(meaning, Optional) else Optional(z3.BoolVal(False, ctx=like.none.ctx), meaning)


def _equal(formulas: Formulas, parts: Sequence[Meaning]) -> Term:
    left, right = parts
    if not isinstance(left, Optional) and not isinstance(right, Optional):
        return equality(left, right)
    if not isinstance(left, Optional):
        left, right = right, left
    assert isinstance(left, Optional)
    context = formulas.context
    if not isinstance(right, Optional):
        return conjunction((negation(left.none), equality(left.value, right)), context)
    same = disjunction((left.none, equality(left.value, right.value)), context)
    return conjunction((equality(left.none, right.none), same), context)


def _choice(formulas: Formulas, parts: Sequence[Meaning]) -> Meaning:
    condition, then, otherwise = parts
    if isinstance(then, Optional) or isinstance(otherwise, Optional):
        like = then if isinstance(then, Optional) else otherwise
        one, other = _optional(then, like), _optional(otherwise, like)
        return Optional(choice(condition, one.none, other.none), choice(condition, one.value, other.value))
    return choice(condition, then, otherwise)


def _none(formulas: Formulas, parts: Sequence[Meaning]) -> Term:
    (part,) = parts
    return part.none if isinstance(part, Optional) else z3.BoolVal(False, ctx=formulas.context)


MEANING: Mapping[Operator, Callable[[Formulas, Sequence[Meaning]], Meaning]] = {
    Operator.NOT: lambda _, parts: negation(parts[0]),
    Operator.AND: lambda formulas, parts: conjunction(parts, formulas.context),
    Operator.OR: lambda formulas, parts: disjunction(parts, formulas.context),
    Operator.IMPLIES: lambda _, parts: implication(parts[0], parts[1]),
    Operator.EQ: _equal,
    Operator.LT: lambda _, parts: parts[0] < parts[1],
    Operator.LE: lambda _, parts: parts[0] <= parts[1],
    Operator.ADD: lambda _, parts: z3.Sum(*parts),
    Operator.IF: _choice,
    Operator.IS_NONE: _none,
    Operator.THE: lambda _, parts: _element(parts[0]),
}
