"""The typing rules of expressions, in one place: the reader of spec classes and the builder API both construct through here."""

from __future__ import annotations

from kvmodel.errors import KvmodelError
from kvmodel.language.expressions import Apply, Bound, Const, Expr, Quantified, Read
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import Variable
from kvmodel.language.types import (
    BOOL,
    COUNT,
    NUMBER,
    Bool,
    Count,
    Counter,
    Element,
    Enumeration,
    Maybe,
    Number,
    Span,
    Type,
    a_kind,
)

__all__ = ["NOWHERE", "TypingError", "apply", "assignable", "check_index", "keys_of", "quantify", "read", "spelling", "truth_hint"]

NOWHERE = Span()

ARITY = {
    Operator.NOT: 1,
    Operator.IMPLIES: 2,
    Operator.EQ: 2,
    Operator.LT: 2,
    Operator.LE: 2,
    Operator.IF: 3,
    Operator.IS_NONE: 1,
    Operator.THE: 1,
}


class TypingError(KvmodelError, ValueError):
    """An expression that does not type; `hint` says what to write instead."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}\n    {hint}" if hint else message)
        self.message = message
        self.hint = hint


def apply(operator: Operator, arguments: tuple[Expr, ...], at: Span = NOWHERE) -> Expr:
    """The typed application of an operator. Raises TypingError for a wrong arity or wrong types."""
    if operator in ARITY and len(arguments) != ARITY[operator]:
        raise TypingError(f"'{operator.value}' takes {ARITY[operator]} operands, not {len(arguments)}")
    match operator:
        case Operator.NOT | Operator.AND | Operator.OR | Operator.IMPLIES:
            for part in arguments:
                if not isinstance(part.type, Bool):
                    raise TypingError(f"'{operator.value}' needs truth values, not {a_kind(part.type)}", truth_hint(part.type))
            return Apply(operator, arguments, BOOL, at)
        case Operator.EQ:
            left, right = arguments
            if not _comparable(left, right):
                raise TypingError(f"{a_kind(left.type)} is never equal to {a_kind(right.type)}",
                                  "compare values of one kind")
            return Apply(operator, arguments, BOOL, at)
        case Operator.LT | Operator.LE:
            if not (all(_countlike(part.type) for part in arguments) or _numbers(arguments)):
                kinds = " with ".join(a_kind(part.type) for part in arguments)
                raise TypingError(f"'{operator.value}' compares {kinds}", "only two numbers or two counts have an order")
            return Apply(operator, arguments, BOOL, at)
        case Operator.ADD:
            if all(_countlike(part.type) for part in arguments):
                return Apply(operator, arguments, COUNT, at)
            number, *constants = sorted(arguments, key=lambda part: isinstance(part, Const))
            if isinstance(number.type, Number) and all(isinstance(part, Const) for part in constants) and len(constants) == 1:
                return Apply(operator, (number, constants[0]), NUMBER, at)
            kinds = " and ".join(a_kind(part.type) for part in arguments)
            numbers = any(isinstance(part.type, Number) for part in arguments)
            raise TypingError(f"{kinds} cannot be added",
                              "numbers are compared, never computed with: only a constant can be added" if numbers
                              else "only counters, count(...) and integers can be added")
        case Operator.IF:
            condition, then, otherwise = arguments
            if not isinstance(condition.type, Bool):
                raise TypingError(f"the condition is {a_kind(condition.type)}, not a truth value", truth_hint(condition.type))
            return Apply(operator, arguments, _join(then.type, otherwise.type), at)
        case Operator.IS_NONE:
            if not isinstance(arguments[0].type, Maybe):
                raise TypingError(f"{a_kind(arguments[0].type)} is never None", "drop the comparison with None")
            return Apply(operator, arguments, BOOL, at)
        case Operator.THE:
            kind = arguments[0].type
            if not isinstance(kind, Maybe):
                raise TypingError(f"{a_kind(kind)} is never None")
            return Apply(operator, arguments, Element(kind.domain), at)


def read(variable: Variable, index: tuple[Expr, ...], at: Span = NOWHERE) -> Expr:
    """The typed read of a variable. Raises TypingError for a wrong number or kind of keys."""
    check_index(variable, index)
    return Read(variable.name, index, variable.type, at)


def check_index(variable: Variable, index: tuple[Expr, ...]) -> None:
    """Raises TypingError when `index` does not fit the keys of `variable`."""
    if len(index) != len(variable.keys):
        raise TypingError(f"'{variable.name}' takes {keys_of(variable)}, not {len(index)}", f"write {spelling(variable)}")
    for part, key in zip(index, variable.keys, strict=True):
        if isinstance(part.type, Maybe) and part.type.domain == key:
            raise TypingError(
                f"the {key.name} that indexes '{variable.name}' may be None",
                "test it first: `x is not None and ...`, or `implies(x is not None, ...)`",
            )
        if part.type != Element(key):
            raise TypingError(f"'{variable.name}' is indexed by {a_kind(Element(key))}, not {a_kind(part.type)}",
                              f"write {spelling(variable)}")


def spelling(variable: Variable) -> str:
    """How a variable is read: ``s.holds[Request, Page]``."""
    keys = ", ".join(key.name for key in variable.keys)
    return f"s.{variable.name}[{keys}]" if keys else f"s.{variable.name}"


def keys_of(variable: Variable) -> str:
    """How many keys a variable has, and which: ``2 keys (Request, Page)``."""
    names = ", ".join(key.name for key in variable.keys)
    return f"{len(variable.keys)} key{'s' * (len(variable.keys) != 1)} ({names})" if names else "no keys"


def quantify(binder: Binder, variables: tuple[Bound, ...], body: Expr, at: Span = NOWHERE) -> Expr:
    """The typed binding of variables. Raises TypingError unless the body is a truth value."""
    if not isinstance(body.type, Bool):
        raise TypingError(f"'{binder.value}' is over truth values, not {a_kind(body.type)}", truth_hint(body.type))
    return Quantified(binder, variables, body, at)


def assignable(value: Type, target: Type) -> bool:
    """Whether a value of one type can be written to a variable of another."""
    match target:
        case Maybe(domain):
            return value in (Maybe(domain), Element(domain))
        case Counter():
            return _countlike(value)
        case _:
            return value == target


def _comparable(left: Expr, right: Expr) -> bool:
    if _countlike(left.type) and _countlike(right.type):
        return True
    if _numbers((left, right)):
        return True
    if isinstance(left.type, Element | Maybe) and isinstance(right.type, Element | Maybe):
        return left.type.domain == right.type.domain
    return isinstance(left.type, Bool) and isinstance(right.type, Bool)


def _countlike(kind: Type) -> bool:
    return isinstance(kind, Counter | Count)


def _numbers(parts: tuple[Expr, ...]) -> bool:
    """Two numbers, or a number and an integer constant."""
    return any(isinstance(part.type, Number) for part in parts) and all(
        isinstance(part.type, Number) or (isinstance(part, Const) and isinstance(part.type, Count)) for part in parts
    )


def _join(then: Type, otherwise: Type) -> Type:
    if then == otherwise:
        return then
    if _countlike(then) and _countlike(otherwise):
        return COUNT
    if isinstance(then, Element | Maybe) and isinstance(otherwise, Element | Maybe) and then.domain == otherwise.domain:
        return Maybe(then.domain)
    raise TypingError(f"the two branches are {a_kind(then)} and {a_kind(otherwise)}", "both branches need one kind of value")


def truth_hint(kind: Type) -> str:
    if isinstance(kind, Maybe):
        return "write `... is not None`"
    if isinstance(kind, Element) and isinstance(kind.domain, Enumeration):
        return f"compare it: `... == {kind.domain.name}.{kind.domain.members[0]}`"
    return "write a comparison"
