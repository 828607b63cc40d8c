"""A partitioned sort taken apart: a sort for each member of the partition, and a variable of its own for each.

What a spec says of a page of *some* pool then becomes what it says of a page of *this* pool, and much of it is plainly true or
false: which pages a request holds in decode's pool is a variable, not a search. Elements keep their numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from kvmodel.errors import InternalError
from kvmodel.language.expressions import FALSE, Apply, Bound, Cell, Const, Expr, FlagRead, Named, Quantified, Read, walk
from kvmodel.language.instance import Binding, Instance
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import Action, Anything, TransitionSystem, Update, Variable
from kvmodel.language.types import COUNT, Domain, Element, Maybe, Sort, Value
from kvmodel.readings.ground import simplify
from kvmodel.readings.sparse import SparseState, StoreLayout

__all__ = ["Members", "Parts", "PartsState", "parts_of"]

Members = Mapping[str, str]
"""The member of the partition in which each parameter or quantified variable of the sort is, by its name."""

JOINED = {Binder.ALL: Operator.AND, Binder.ANY: Operator.OR, Binder.COUNT: Operator.ADD}


@dataclass(frozen=True)
class Parts:
    """`system`, flags folded, with the sort of its partition taken apart: `ranges` has the elements of each member.

    `apart` has the variables; `expression` and `action` give conditions and actions for one choice of members. `constant` has the
    values of what never changes, by the names of `apart`. Without a `partition` there is one choice, and nothing changes its name.
    """

    system: TransitionSystem
    partition: Variable | None
    ranges: Mapping[str, range]
    constant: Mapping[str, Const]

    @cached_property
    def sorts(self) -> Mapping[str, Sort]:
        """The sort of each member."""
        return {} if self.sort is None else {member: Sort(_name(self.sort.name, (member,))) for member in self.ranges}

    @property
    def sort(self) -> Domain | None:
        """The sort that is taken apart."""
        return None if self.partition is None else self.partition.keys[0]

    @cached_property
    def apart(self) -> TransitionSystem:
        """The system's variables, sorts and enumerations; nothing that happens."""
        variables = []
        for variable in self.system.variables:
            for members, name in self.names(variable).items() if variable != self.partition else ():
                parts = iter(members)
                keys = tuple(self.sorts[next(parts)] if key == self.sort else key for key in variable.keys)
                variables.append(replace(variable, name=name, keys=keys))
        sorts = [sort for sort in self.system.sorts if sort != self.sort]
        nothing: tuple[()] = ()
        return replace(
            self.system, sorts=(*sorts, *self.sorts.values()), variables=tuple(variables), actions=nothing, declared=nothing,
            assumptions=nothing, initial=nothing, finals=nothing, lemmas=nothing, definitions=nothing,
        )

    def layout(self, whole: Instance) -> StoreLayout:
        """Containers for a state of an instance of the whole system."""
        ranges = {sort.name: self.ranges[member] for member, sort in self.sorts.items()}
        others = [(name, size) for name, size in whole.sizes if self.sort is None or name != self.sort.name]
        sizes = (*others, *((name, len(elements)) for name, elements in ranges.items()))
        return StoreLayout(_Instance(self.apart, sizes, () if ranges else whole.parts, tuple(ranges.items())))

    def member(self, element: Value) -> str:
        """The member in which an element is."""
        return next(member for member, elements in self.ranges.items() if element in elements)

    def members(self, parameters: tuple[Bound, ...], binding: Binding) -> dict[str, str]:
        """The members in which the values of parameters are."""
        pairs = zip(parameters, binding, strict=True)
        return {parameter.name: self.member(value) for parameter, value in pairs if parameter.domain == self.sort}

    def name(self, variable: str, index: Binding) -> str:
        """The variable of `apart` that holds a variable at an index."""
        keys = self.system.by_name[variable].keys
        return _name(variable, tuple(self.member(part) for part, key in zip(index, keys, strict=True) if key == self.sort))

    def names(self, variable: Variable) -> dict[tuple[str, ...], str]:
        """What a variable is taken apart into, by the members of its keys."""
        places = sum(key == self.sort for key in variable.keys)
        return {members: _name(variable.name, members) for members in product(self.ranges, repeat=places)}

    @cached_property
    def origins(self) -> Mapping[str, str]:
        """The variable that each variable of `apart` is a part of."""
        return {name: variable.name for variable in self.system.variables for name in self.names(variable).values()}

    def choices(self, parameters: tuple[Bound, ...]) -> list[dict[str, str]]:
        """Every choice of members that have an element."""
        names = [parameter.name for parameter in parameters if parameter.domain == self.sort]
        some = [member for member, elements in self.ranges.items() if elements]
        return [dict(zip(names, members, strict=True)) for members in product(some, repeat=len(names))]

    def parameters(self, parameters: tuple[Bound, ...], members: Members) -> tuple[Bound, ...]:
        """Parameters in these members."""
        return tuple(self._bound(parameter, members) for parameter in parameters)

    def _bound(self, variable: Bound, members: Members) -> Bound:
        return replace(variable, domain=self.sorts[members[variable.name]]) if variable.domain == self.sort else variable

    def expression(self, expr: Expr, members: Members) -> Expr:
        """`expr` where its free variables are in these members, simplified."""
        match expr:
            case Const() | FlagRead() | Cell():
                return expr
            case Bound():
                return self._bound(expr, members)
            case Named(body=body):
                return self.expression(body, members)
            case Read():
                read = self._read(expr, members)
                return self.constant.get(read.variable, read) if isinstance(read, Read) else read
            case Apply(operator, arguments, kind):
                parts = tuple(self.expression(part, members) for part in arguments)
                if operator is Operator.EQ and len({part.domain for part in parts if isinstance(part, Bound)}) > 1:
                    return FALSE
                return simplify(operator, parts, kind)
            case Quantified(binder, variables, body, at):
                found: list[Expr] = []
                for choice in self.choices(variables):
                    inner = self.expression(body, {**members, **choice})
                    whole = Quantified(binder, self.parameters(variables, choice), inner, at)
                    if binder is Binder.COUNT:
                        found.append(Const(0, COUNT) if inner == FALSE else whole)
                    else:
                        found.append(inner if isinstance(inner, Const) else whole)
                return simplify(JOINED[binder], tuple(found), expr.type)
        raise InternalError(f"taking apart has no rule for {expr!r}")

    def _read(self, read: Read, members: Members) -> Read | Const:
        variable = self.system.by_name[read.variable]
        index = tuple(self.expression(part, members) for part in read.index)
        of: dict[Domain, str] = {sort: member for member, sort in self.sorts.items()}
        parts = tuple(of[part.domain] for part in index if isinstance(part, Bound) and part.domain in of)
        if variable == self.partition:
            return Const(parts[0], read.type)
        return replace(read, variable=_name(read.variable, parts), index=index)

    def action(self, action: Action, members: Members) -> Action:
        """An action whose parameters are in these members. Guards and assertions keep their numbers."""
        return replace(
            action,
            parameters=self.parameters(action.parameters, members),
            guards=tuple(replace(guard, condition=self.expression(guard.condition, members)) for guard in action.guards),
            assertions=tuple(replace(each, condition=self.expression(each.condition, members)) for each in action.assertions),
            updates=tuple(part for update in action.updates for part in self._updates(update, members)),
        )

    def settled(self, choices: Mapping[str, Iterable[Members]]) -> Parts:
        """The parts with what nothing ever writes as constants, which makes more conditions plainly true or false. `choices` has
        for each action the members in which its parameters can be."""
        happens = [self.action(action, members) for action in self.system.actions for members in choices[action.name]]
        happens = [action for action in happens if not any(guard.condition == FALSE for guard in action.guards)]
        written = {update.variable for action in happens for update in action.updates}
        constant = {
            variable.name: Const(variable.initial, variable.type)
            for variable in self.apart.state_variables
            if not isinstance(variable.initial, Anything) and variable.name not in written
        }
        return self if constant == self.constant else replace(self, constant=constant).settled(choices)

    def _updates(self, update: Update, members: Members) -> Iterator[Update]:
        """An update for each choice of members for what it runs over, where it can happen."""
        for choice in self.choices(update.over):
            inner = {**members, **choice}
            condition = self.expression(update.condition, inner)
            if condition == FALSE:
                continue
            place = self._read(Read(update.variable, update.index, update.value.type), inner)
            assert isinstance(place, Read)
            over, value = self.parameters(update.over, choice), self.expression(update.value, inner)
            yield replace(update, variable=place.variable, index=place.index, value=value, over=over, condition=condition)


@dataclass(frozen=True)
class _Instance(Instance):
    """An instance of what is taken apart: the elements of a part are numbered as in the whole."""

    ranges: tuple[tuple[str, range], ...] = ()

    @cached_property
    def domains(self) -> Mapping[str, tuple[Value, ...]]:
        domains: dict[str, tuple[Value, ...]] = {name: tuple(range(size)) for name, size in self.sizes}
        domains |= {name: tuple(elements) for name, elements in self.ranges}
        return domains | {enumeration.name: enumeration.members for enumeration in self.system.enumerations}


class PartsState:
    """A state of what is taken apart, `apart`, read by the names of the whole. `cells` and `out_of_range` are that state's."""

    __slots__ = ("apart", "cells", "out_of_range", "parts")

    def __init__(self, parts: Parts, layout: StoreLayout) -> None:
        self.parts = parts
        self.apart = SparseState(layout, layout.empty(), set())
        self.cells = self.apart.cells
        self.out_of_range = self.apart.out_of_range

    def get(self, variable: str, index: Binding = ()) -> Value:
        """The value of a variable at an index."""
        parts = self.parts
        if parts.partition is not None and variable == parts.partition.name:
            return parts.member(index[0])
        name = parts.name(variable, index)
        return parts.constant[name].value if name in parts.constant else self.apart.get(name, index)

    def stored(self, variable: str) -> Iterator[tuple[Binding, Value]]:
        """Each index at which a variable differs from its default, with its value there; in no particular order."""
        for name in self._names(variable):
            yield from self.apart.stored(name)

    def row(self, variable: str, first: Value) -> AbstractSet[Value]:
        """For a relation with two keys: the second keys at which it differs from its default, for a first key."""
        return frozenset[Value]().union(*(self.apart.row(name, first) for name in self._names(variable)))

    def column(self, variable: str, second: Value) -> frozenset[int] | None:
        """For a relation with two keys: the first keys at which it differs from its default; None if that would take a search."""
        whole, layout = self.parts.system.by_name[variable], self.apart.layout
        name = _name(variable, (self.parts.member(second),) if whole.keys[1] == self.parts.sort else ())
        if name in self.parts.constant or not layout.has_index(name, (1,), False):
            return None
        return frozenset(self.cells[layout.index(name, (1,), False)].get(second, ()))

    def _names(self, variable: str) -> list[str]:
        return [name for name in self.parts.names(self.parts.system.by_name[variable]).values() if name not in self.parts.constant]


def parts_of(system: TransitionSystem, partition: Variable | None, ranges: Mapping[str, range]) -> Parts:
    """`system` taken apart; as a whole where an element of the sort comes from anywhere but a parameter or a quantifier."""
    if partition is None:
        return Parts(system, None, {}, {})
    nodes = (node for expr in system.expressions() for node in walk(expr) if not isinstance(node, Bound))
    types = [*(variable.type for variable in system.variables), *(node.type for node in nodes)]
    if any(isinstance(kind, Element | Maybe) and kind.domain == partition.keys[0] for kind in types):
        return Parts(system, None, {}, {})
    return Parts(system, partition, ranges, {})


def _name(name: str, members: tuple[str, ...]) -> str:
    return " ".join((name, *members))
