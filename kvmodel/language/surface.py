"""The words that spec files are written in.

A spec file imports these names, so that editors and type checkers understand it. kvmodel itself *reads* spec files and
never runs them: nothing here does anything when called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar, overload

from typing_extensions import TypeVarTuple, override

__all__ = [
    "Counter",
    "Flag",
    "Function",
    "Number",
    "Relation",
    "Scalar",
    "Single",
    "Sort",
    "Spec",
    "action",
    "anything",
    "assume",
    "count",
    "counter",
    "define",
    "effect",
    "final",
    "flag",
    "implies",
    "initial",
    "invariant",
    "lemma",
    "override",
    "partition",
    "reachable",
    "require",
    "rigid",
    "starts",
]

K = TypeVarTuple("K")
V = TypeVar("V")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

Flag: TypeAlias = bool
"""A rigid choice of a deployment: ``zero_on_free: Flag = flag(False, kind="defence", doc="...")``."""

Scalar: TypeAlias = int
"""A single rigid number: ``context: Scalar``."""

Single = Annotated[V, "a single value"]
"""A variable without keys: ``Single[bool]``, ``Single[Phase]``, ``Single[Request | None]``, ``Single[int] = counter(0, 3)``."""


class _Iterable(type):
    def __iter__(cls: type[T]) -> Iterator[T]:
        raise TypeError("spec files are read, not run")


class Sort(metaclass=_Iterable):
    """A set of things: ``class Page(Sort)``. ``for p in Page`` ranges over it."""


class Spec:
    """Base of every spec; ``class Buggy(Handoff, variant="buggy")`` names a variant."""

    def __init_subclass__(cls, variant: str | None = None) -> None:
        super().__init_subclass__()


class Relation(Generic[*K]):
    """A truth value for every combination of keys: ``holds: Relation[Request, Page]``. Starts False."""

    def __getitem__(self, key: Any) -> bool:
        raise TypeError("spec files are read, not run")

    def __setitem__(self, key: Any, value: bool) -> None:
        raise TypeError("spec files are read, not run")


class Function(Generic[*K, V]):
    """A value for every combination of keys: ``content: Function[Page, Request | None]``.

    Starts at None, or at the first member of an enumeration; a function into a sort starts anywhere.
    """

    def __getitem__(self, key: Any) -> V:
        raise TypeError("spec files are read, not run")

    def __setitem__(self, key: Any, value: V) -> None:
        raise TypeError("spec files are read, not run")


class Counter(Generic[*K]):
    """A small integer for every combination of keys: ``refs: Counter[Page] = counter(0, 3)``."""

    def __getitem__(self, key: Any) -> int:
        raise TypeError("spec files are read, not run")

    def __setitem__(self, key: Any, value: int) -> None:
        raise TypeError("spec files are read, not run")


class Number(Generic[*K]):
    """A rigid number for every combination of keys, compared and never computed with: ``prompt: Number[Request]``."""

    def __getitem__(self, key: Any) -> int:
        raise TypeError("spec files are read, not run")


def flag(value: bool, *, kind: Literal["defence", "sizing", "hazard"], doc: str) -> bool:
    """Declare a flag with its default. A subclass sets it: ``zero_on_free = True``."""
    return value


def starts(value: Any) -> Any:
    """The initial value of a state variable, for every key."""
    return value


def anything() -> Any:
    """The variable may start with any value; `@initial` conditions say which."""


def rigid() -> Any:
    """The variable never changes in a run."""


def partition() -> Any:
    """A rigid function that puts each element of a sort into a member of an enumeration: each page into its pool."""


def counter(low: int, high: int, *, starts: int = 0) -> Any:
    """The range of a counter (both ends included) and its initial value; leaving the range violates ``range:NAME``."""


@overload
def action(method: F) -> F: ...
@overload
def action(*, drop: tuple[str, ...] = ..., node: str = ...) -> Callable[[F], F]: ...
def action(method: Any = None, *, drop: tuple[str, ...] = (), node: str = "") -> Any:
    """A step of the protocol: `require`, then updates. ``drop`` removes inherited guards by name; ``node`` says where
    the step happens, for the tables that people read."""
    return method if method is not None else lambda inner: inner


def effect(method: F) -> F:
    """A named group of updates that actions share: ``s.give_back(r, p)``."""
    return method


def define(method: F) -> F:
    """A derived notion: one returned expression. Not state; a subclass may override it."""
    return method


def invariant(method: F) -> F:
    """True of every reachable state, for all parameters."""
    return method


def reachable(method: F) -> F:
    """True of some reachable state, for some parameters: what must be possible."""
    return method


def lemma(method: F) -> F:
    """True of every reachable state, for all parameters, like an invariant, but not a promise: it helps `kvmodel prove`."""
    return method


def final(method: F) -> F:
    """Describes states that may have no successor: all parameters must satisfy it."""
    return method


def assume(method: F) -> F:
    """A fact about rigid things, for all parameters."""
    return method


def initial(method: F) -> F:
    """A condition on initial states, for all parameters."""
    return method


def require(condition: bool, name: str) -> None:
    """A named guard of an action."""


def implies(premise: bool, conclusion: bool) -> bool:
    """``not premise or conclusion``."""
    return not premise or conclusion


def count(values: Iterable[bool]) -> int:
    """How many are true: ``count(s.holds[r, p] for r in Request)``."""
    return sum(values)
