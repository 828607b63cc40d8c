"""The value kinds of a spec: what a variable can hold and what an expression can be.

Concrete values are plain Python: `bool`, `int` (an element of a sort, a counter or a number), `str` (a member of an
enumeration) and `None`. Elements of a sort are numbered from 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = [
    "BOOL",
    "COUNT",
    "NUMBER",
    "Bool",
    "Count",
    "Counter",
    "Domain",
    "Element",
    "Enumeration",
    "Maybe",
    "Number",
    "Sort",
    "Span",
    "Type",
    "Value",
    "a_kind",
    "describe",
]

Value: TypeAlias = bool | int | str | None


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a spec file; `line` and `column` count from 1. `Span()` is 'made by the builder API'."""

    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else "(built)"


@dataclass(frozen=True, slots=True)
class Sort:
    """A set of things that a spec names but does not count: requests, pages. Finite when run, any size when proved."""

    name: str
    doc: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Enumeration:
    """A fixed, small set of named values."""

    name: str
    members: tuple[str, ...]
    doc: str = field(default="", compare=False)


Domain: TypeAlias = Sort | Enumeration


@dataclass(frozen=True, slots=True)
class Bool:
    """True or False."""


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a sort, or a member of an enumeration."""

    domain: Domain


@dataclass(frozen=True, slots=True)
class Maybe:
    """An element of a sort, or None."""

    domain: Domain


@dataclass(frozen=True, slots=True)
class Counter:
    """A small integer variable; a value outside `low`..`high` violates the property ``range:NAME``."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Count:
    """An integer expression made of counters, `count(...)` and constants."""


@dataclass(frozen=True, slots=True)
class Number:
    """A rigid number (tokens, pages): compared as ``a + constant <= b + constant``, never computed with."""


Type: TypeAlias = Bool | Element | Maybe | Counter | Count | Number

BOOL = Bool()
COUNT = Count()
NUMBER = Number()


def describe(kind: Type) -> str:
    """Name a type as a spec author would: ``Request``, ``Page | None``, ``truth value``."""
    match kind:
        case Bool():
            return "truth value"
        case Element(domain):
            return domain.name
        case Maybe(domain):
            return f"{domain.name} | None"
        case Counter(low, high):
            return f"counter {low}..{high}"
        case Count():
            return "count"
        case Number():
            return "number"


def a_kind(kind: Type) -> str:
    """A type with its article: ``a Page | None``, ``an Index``."""
    name = describe(kind)
    return f"{'an' if name[0] in 'AEIOaeiou' else 'a'} {name}"
