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
>>> [sorted(group) for group, _ in bindings_commute(take, b.build()).soft]
[['p']]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kvmodel.language.expressions import FALSE, Apply, Bound, Const, Expr, Named, Quantified, Read, children, negation
from kvmodel.language.instance import Binding
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import Action, Condition, Property, PropertyKind, TransitionSystem, Update, Variable
from kvmodel.language.types import BOOL, Counter, Value
from kvmodel.readings.search import Literal, literals

__all__ = [
    "ANYWHERE",
    "Access",
    "Anywhere",
    "Commutation",
    "Footprint",
    "Position",
    "accesses",
    "bindings_commute",
    "firm",
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
    """Which bindings of an action commute: those that differ in at least one parameter of every group in `distinct`, and
    whose guards hold without what `soft` lists.

    `soft` are reads of guards that another binding may overwrite unless the two differ in the group; a guard that is true
    whatever is there (`firm`) does not mind. `obstacle` is empty, or says why no two bindings are known to commute.
    """

    distinct: tuple[frozenset[str], ...] = ()
    soft: tuple[tuple[frozenset[str], Access], ...] = ()
    obstacle: str = ""


def footprint(action: Action, system: TransitionSystem) -> Footprint:
    """What a step of `action` reads (guards, assertions, updates) and writes.

    A write leaves a place as it was when its condition is false; a place that is written is not thereby read.
    """
    reads = dict.fromkeys([*_guard_reads(action, system), *_other_reads(action, system)])
    return Footprint(tuple(reads), tuple(dict.fromkeys(_write(update, action) for update in action.updates)))


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
    """Which bindings of `action` can be taken in any order, with the same result and all of them enabled.

    Two bindings are in each other's way where one writes a place that the other reads or writes. They are not when some
    position of both indices is one parameter in which they differ, when guards put the two places in different parts
    (``pool[source] == PREFILL``, ``pool[target] == DECODE``), or when both only write the same constant.
    """
    guard_reads = tuple(dict.fromkeys(_guard_reads(action, system)))
    other_reads = tuple(dict.fromkeys(_other_reads(action, system)))
    writes = [(_write(update, action), update) for update in action.updates]
    parts = _parts(action, system)
    hard: dict[frozenset[str], None] = {}
    soft: dict[tuple[frozenset[str], Access], None] = {}
    for access, update in writes:
        rivals = [(read, "reads") for read in other_reads]
        rivals += [(other, "writes") for other, second in writes if not _same_constant(update, second)]
        for rival, verb in rivals:
            if _may_meet(access, rival, parts):
                shared = _shared(access, rival)
                if not shared:
                    return Commutation(obstacle=f"one binding writes {access} and another {verb} {rival}: they may be one place")
                hard[shared] = None
        for read in guard_reads:
            if _may_meet(access, read, parts):
                soft[_shared(access, read), read] = None
    distinct = tuple(group for group in hard if not any(other < group for other in hard))
    kept = tuple((group, read) for group, read in soft if not any(other <= group for other in distinct))
    return Commutation(distinct, kept)


def firm(expr: Expr, parameters: tuple[Bound, ...], shaky: frozenset[Access], system: TransitionSystem) -> Expr:
    """A condition without the reads in `shaky` that implies `expr`, whatever is in those places."""
    return _firm(expr, True, parameters, shaky, system)


def _firm(expr: Expr, truth: bool, known: tuple[Bound, ...], shaky: frozenset[Access], system: TransitionSystem) -> Expr:
    if shaky.isdisjoint(accesses(expr, known, system)):
        return expr if truth else negation(expr)

    def part(inner: Expr, wanted: bool) -> Expr:
        return _firm(inner, wanted, known, shaky, system)

    match expr:
        case Named(body=body):
            return part(body, truth)
        case Apply(operator=Operator.NOT, arguments=(inner,)):
            return part(inner, not truth)
        case Apply(operator=Operator.AND | Operator.OR as operator, arguments=arguments):
            joined = operator if truth else (Operator.OR if operator is Operator.AND else Operator.AND)
            return Apply(joined, tuple(part(argument, truth) for argument in arguments), BOOL)
        case Apply(operator=Operator.IMPLIES, arguments=(premise, conclusion)):
            return Apply(Operator.OR if truth else Operator.AND, (part(premise, not truth), part(conclusion, truth)), BOOL)
        case Quantified(binder=Binder.ALL | Binder.ANY as binder, variables=variables, body=body):
            inside = _firm(body, truth, _without(known, variables), shaky, system)
            return Quantified(binder if truth else (Binder.ANY if binder is Binder.ALL else Binder.ALL), variables, inside)
        case _:
            return FALSE


def _parts(action: Action, system: TransitionSystem) -> dict[str, dict[str, Value]]:
    """For each parameter, the values of rigid functions of it that the guards ask for."""
    found: dict[str, dict[str, Value]] = {}
    for guard in action.guards:
        for literal in literals(guard.condition, True):
            match literal:
                case Literal(Apply(operator=Operator.EQ, arguments=(Read(variable, (Bound(name=name),)), Const(value=value))), True):
                    if system.by_name[variable].rigid:
                        found.setdefault(name, {})[variable] = value
    return found


def _may_meet(first: Access, second: Access, parts: Mapping[str, Mapping[str, Value]]) -> bool:
    """Whether accesses of two bindings can be to one place."""
    return first.variable == second.variable and not any(
        _apart(a, b, parts) for a, b in zip(first.index, second.index, strict=True)
    )


def _apart(first: Position, second: Position, parts: Mapping[str, Mapping[str, Value]]) -> bool:
    if isinstance(first, Const) and isinstance(second, Const):
        return first.value != second.value
    if isinstance(first, Bound) and isinstance(second, Bound):
        ours, theirs = parts.get(first.name, {}), parts.get(second.name, {})
        return any(ours[function] != theirs[function] for function in ours.keys() & theirs.keys())
    return False


def _shared(first: Access, second: Access) -> frozenset[str]:
    """Parameters that stand at one position of both indices: where bindings differ in one of them, the places differ."""
    return frozenset(a.name for a, b in zip(first.index, second.index, strict=True) if isinstance(a, Bound) and a == b)


def _guard_reads(action: Action, system: TransitionSystem) -> Iterator[Access]:
    for guard in action.guards:
        yield from accesses(guard.condition, action.parameters, system)


def _other_reads(action: Action, system: TransitionSystem) -> Iterator[Access]:
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


def _show(position: Position) -> str:
    match position:
        case Bound(name=name):
            return name
        case Const(value=value):
            return str(value)
        case _:
            return "*"
