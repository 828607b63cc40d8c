"""Footprints: which places of the state an action or a property reads and writes, and what follows from that.

A place is a variable at an index; each position of the index is a parameter, a constant, or anywhere. From an action's
footprint it follows which of its bindings commute, so that they can be taken as one batch.

>>> from kvmodel.language.build import Builder, var
>>> b = Builder("pages")
>>> page = b.sort("Page")
>>> free = b.relation("free", page, initial=True)
>>> p = var("p", page)
>>> take = b.action("take", p, guards={"free": free(p)}, updates=[free.set(False, p)])
>>> print(footprint(take, b.build()))
reads free[p]; writes free[p]
>>> bindings_commute(take, b.build())
Commutation(distinct=(frozenset({'p'}),), obstacle='')
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kvmodel.language.expressions import Bound, Const, Expr, Quantified, Read, children
from kvmodel.language.instance import Binding
from kvmodel.language.system import Action, Condition, Property, PropertyKind, TransitionSystem, Update, Variable
from kvmodel.language.types import Counter, Value

__all__ = [
    "ANYWHERE",
    "Access",
    "Anywhere",
    "Commutation",
    "Footprint",
    "Position",
    "accesses",
    "bindings_commute",
    "footprint",
    "property_footprint",
]


@dataclass(frozen=True, slots=True)
class Anywhere:
    """A position of an index that a footprint does not pin down: a loop's or a quantifier's variable, or a computed element."""


ANYWHERE = Anywhere()

Position: TypeAlias = Bound | Const | Anywhere


@dataclass(frozen=True, slots=True)
class Access:
    """Places of one state variable, by index: a parameter, a constant, or anywhere, for each key."""

    variable: str
    index: tuple[Position, ...]

    def covers(self, variable: str, index: Binding, environment: Mapping[str, Value]) -> bool:
        """Whether the place is among those of this access, with parameters as `environment` gives them."""
        return variable == self.variable and all(
            isinstance(position, Anywhere)
            or (environment[position.name] if isinstance(position, Bound) else position.value) == element
            for position, element in zip(self.index, index, strict=True)
        )

    def __str__(self) -> str:
        keys = ", ".join(_show(position) for position in self.index)
        return f"{self.variable}[{keys}]" if keys else self.variable


@dataclass(frozen=True, slots=True)
class Footprint:
    """What is read and written, without repetitions, in order of first appearance. Rigid variables are not part of it."""

    reads: tuple[Access, ...]
    writes: tuple[Access, ...]

    def __str__(self) -> str:
        reads = ", ".join(str(access) for access in self.reads) or "nothing"
        return f"reads {reads}; writes {', '.join(str(access) for access in self.writes) or 'nothing'}"


@dataclass(frozen=True, slots=True)
class Commutation:
    """Which bindings of an action commute, whatever the state: those that differ in at least one parameter of every set in
    `distinct`. `obstacle` is empty, or says why no two bindings are known to commute.
    """

    distinct: tuple[frozenset[str], ...]
    obstacle: str = ""


def footprint(action: Action, system: TransitionSystem) -> Footprint:
    """What a step of `action` reads (guards, assertions, updates) and writes.

    A write leaves a place as it was when its condition is false; a place that is written is not thereby read.
    """
    return Footprint(tuple(dict.fromkeys(_action_reads(action, system))), tuple(dict.fromkeys(_write(u, action) for u in action.updates)))


def property_footprint(candidate: Property, system: TransitionSystem) -> Footprint:
    """What a property depends on: re-evaluating it elsewhere gives what it gave before.

    An assertion is judged by steps of its action and depends on what it reads there; `no_deadlock` depends on the guards of
    all actions, the conditions of final states, and all counters (a state with one out of range is not a deadlock).
    """
    reads: list[Access] = []
    match candidate.kind:
        case PropertyKind.INVARIANT | PropertyKind.REACHABLE | PropertyKind.ASSERTION:
            reads += accesses(candidate.condition, candidate.parameters, system)
        case PropertyKind.RANGE:
            reads.append(_whole(system.by_name[candidate.subject]))
        case PropertyKind.NO_DEADLOCK:
            for action in system.actions:
                for guard in action.guards:
                    reads += accesses(guard.condition, (), system)
            finals: tuple[Condition, ...] = system.finals
            for final in finals:
                reads += accesses(final.condition, (), system)
            reads += [_whole(variable) for variable in system.state_variables if isinstance(variable.type, Counter)]
    return Footprint(tuple(dict.fromkeys(reads)), ())


def accesses(expr: Expr, parameters: tuple[Bound, ...], system: TransitionSystem) -> Iterator[Access]:
    """Each place of the state that `expr` reads, where `parameters` are known."""
    match expr:
        case Read(variable, index):
            if not system.by_name[variable].rigid:
                yield Access(variable, tuple(_position(part, parameters) for part in index))
            for part in index:
                yield from accesses(part, parameters, system)
        case Quantified(variables=variables, body=body):
            yield from accesses(body, _without(parameters, variables), system)
        case _:
            for child in children(expr):
                yield from accesses(child, parameters, system)


def bindings_commute(action: Action, system: TransitionSystem) -> Commutation:
    """Which bindings of `action` can be taken in any order with the same result.

    Two bindings are in each other's way where one writes a place that the other reads or writes. They are not when some
    position of both indices is one parameter in which they differ, or when both only write the same constant.
    """
    reads = tuple(dict.fromkeys(_action_reads(action, system)))
    writes = [(_write(update, action), update) for update in action.updates]
    needed: dict[frozenset[str], None] = {}
    for access, update in writes:
        rivals = [read for read in reads if read.variable == access.variable]
        rivals += [other for other, second in writes if other.variable == access.variable and not _same_constant(update, second)]
        for rival in rivals:
            if _apart(access, rival):
                continue
            shared = frozenset(a.name for a, b in zip(access.index, rival.index, strict=True) if isinstance(a, Bound) and a == b)
            if not shared:
                verb = "reads" if rival in reads else "writes"
                return Commutation((), f"one binding writes {access} and another {verb} {rival}: they may be one place")
            needed[shared] = None
    return Commutation(tuple(group for group in needed if not any(other < group for other in needed)))


def _action_reads(action: Action, system: TransitionSystem) -> Iterator[Access]:
    for guard in action.guards:
        yield from accesses(guard.condition, action.parameters, system)
    for assertion in action.assertions:
        yield from accesses(assertion.condition, action.parameters, system)
    for update in action.updates:
        known = _without(action.parameters, update.over)
        for expr in (update.condition, update.value, *update.index):
            yield from accesses(expr, known, system)


def _write(update: Update, action: Action) -> Access:
    known = _without(action.parameters, update.over)
    return Access(update.variable, tuple(_position(part, known) for part in update.index))


def _position(expr: Expr, known: tuple[Bound, ...]) -> Position:
    if isinstance(expr, Bound) and any(expr.name == parameter.name for parameter in known):
        return Bound(expr.name, expr.domain)
    return Const(expr.value, expr.type) if isinstance(expr, Const) else ANYWHERE


def _without(parameters: tuple[Bound, ...], hidden: tuple[Bound, ...]) -> tuple[Bound, ...]:
    names = {variable.name for variable in hidden}
    return tuple(parameter for parameter in parameters if parameter.name not in names)


def _whole(variable: Variable) -> Access:
    return Access(variable.name, (ANYWHERE,) * len(variable.keys))


def _same_constant(first: Update, second: Update) -> bool:
    return isinstance(first.value, Const) and isinstance(second.value, Const) and first.value.value == second.value.value


def _apart(first: Access, second: Access) -> bool:
    """Whether two accesses never meet: different constants at one position."""
    return any(
        isinstance(a, Const) and isinstance(b, Const) and a.value != b.value
        for a, b in zip(first.index, second.index, strict=True)
    )


def _show(position: Position) -> str:
    match position:
        case Bound(name=name):
            return name
        case Const(value=value):
            return str(value)
        case _:
            return "*"
