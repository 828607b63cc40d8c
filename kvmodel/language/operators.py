"""The closed table of operators. Every reading interprets all of them; anything else is rewritten when it is read."""

from __future__ import annotations

from enum import Enum

__all__ = ["Binder", "Operator"]


class Operator(Enum):
    """An operator on values; the comment gives the types of its arguments and of its result."""

    NOT = "not"  # bool -> bool
    AND = "and"  # bool, ... -> bool (any number of arguments; none is True)
    OR = "or"  # bool, ... -> bool (none is False)
    IMPLIES = "implies"  # bool, bool -> bool
    EQ = "=="  # two values of one kind, or an element and a maybe -> bool
    LT = "<"  # counts or numbers -> bool
    LE = "<="  # counts or numbers -> bool
    ADD = "+"  # count + count, or number + constant (the constant may be negative)
    IF = "if"  # bool, a, a -> a
    IS_NONE = "is None"  # maybe -> bool
    THE = "the"  # maybe -> element; only read under a membership test, where it is not None


class Binder(Enum):
    """An operator that binds variables over sorts or enumerations."""

    ALL = "all"  # bool -> bool
    ANY = "any"  # bool -> bool
    COUNT = "count"  # bool -> count: for how many bindings the body is true
