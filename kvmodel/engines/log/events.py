"""Which events a spec has: for each action the fields of its lines, and how its parameters are taken from them.

Requests, and elements of other sorts without a number, go by a name: the first parameter of a sort is in the field called
like the sort (``request``), a second one in the field of its own name. Pages go by their number within a pool: a lone page
parameter is in ``pages`` (one step for each) or in the field of its name, several in the fields of their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import msgspec

from kvmodel.engines.log.schema import Header, Index, Name
from kvmodel.errors import UsageError, nearest
from kvmodel.language.expressions import Apply, Bound, Const, Read
from kvmodel.language.operators import Operator
from kvmodel.language.system import Action, TransitionSystem, Variable
from kvmodel.language.types import Bool, Element, Enumeration, Maybe, Number, Sort
from kvmodel.readings.search import literals

__all__ = ["ActionEvents", "Events", "PAGE", "Place", "Taken", "field_of"]

PAGE = "Page"
COMMON = ("seq", "event", "ts", "node", "pool", "pages", "values", "request")

Pool: TypeAlias = tuple[int, int]
"""The first page of a pool and how many it has."""


@dataclass(frozen=True, slots=True)
class Taken:
    """How a parameter gets its element: from `field`, as a name, a page's number or a member of an enumeration.

    `pool` is where the page is, where the action's guards say so; otherwise the event tells (`pool` or `node`).
    """

    parameter: Bound
    field: str
    pool: Pool | None = None

    @property
    def is_page(self) -> bool:
        return self.parameter.domain.name == PAGE

    @property
    def is_name(self) -> bool:
        return isinstance(self.parameter.domain, Sort) and not self.is_page


@dataclass(frozen=True, slots=True)
class Place:
    """Where the pages of an event are, by the names of the parameters: the pools, and the members of the spec's partition that
    these are. `name` is the pool that the event names, or '' where the action says all of it."""

    name: str
    names: Mapping[str, str]
    pools: Mapping[str, Pool]
    members: Mapping[str, str]


@dataclass(frozen=True)
class ActionEvents:
    """The events of one action. `listed` says that its only page is in ``pages``, or in the field of its name."""

    action: Action
    takes: tuple[Taken, ...]
    type: type[msgspec.Struct]
    named_sorts: frozenset[str]
    """Sorts of the spec whose elements go by a name."""

    @property
    def listed(self) -> bool:
        return sum(taken.is_page for taken in self.takes) == 1


class Events:
    """The events of `system`, its flags folded, for the pools of `header`.

    Raises UsageError for pools that do not fit the spec, for a value that the header lacks, and for names in `silent` or
    `unknown` that the spec does not have.
    """

    def __init__(self, system: TransitionSystem, header: Header) -> None:
        self.system = system
        self.header = header
        self.partition = next((v for v in system.variables if v.partition and v.keys[0].name == PAGE), None)
        self.members = {} if self.partition is None else {member.lower(): member for member in _members(self.partition)}
        """The members of the partition, by the names of the pools."""
        self.sizes, self.pools = self._pools()
        self._check_names()
        self.rigid = self._rigid()
        self.actions = {action.name: self._action(action) for action in system.actions}

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[Any]:
        """Decodes one line, or many by `decode_lines`, to the events' types."""
        kinds = tuple(entry.type for entry in self.actions.values())
        union: Any = kinds[0]
        for kind in kinds[1:]:
            union = union | kind
        return msgspec.json.Decoder(union)

    def rigid_of(self, sort: str) -> tuple[Variable, ...]:
        """The variables that an element of a sort brings with it in its first event."""
        return tuple(variable for variable in self.rigid if len(variable.keys) == 1 and variable.keys[0].name == sort)

    def lists_of(self, sort: str) -> tuple[Variable, ...]:
        """The rigid relations of an element of a sort to others with a name: events tell of them as they become known."""
        return tuple(variable for variable in self.rigid if len(variable.keys) == 2 and variable.keys[0].name == sort)

    def places(self, action: str) -> list[Place]:
        """Where the pages of an action's events can be."""
        pages = [taken for taken in self.actions[action].takes if taken.is_page]
        found = []
        for name in self.pools if any(taken.pool is None for taken in pages) else [""]:
            names = {
                taken.parameter.name: name if taken.pool is None else next(n for n, p in self.pools.items() if p == taken.pool)
                for taken in pages
            }
            members = {parameter: self.members[pool] for parameter, pool in names.items() if pool in self.members}
            found.append(Place(name, names, {parameter: self.pools[pool] for parameter, pool in names.items()}, members))
        return found

    def _pools(self) -> tuple[dict[str, int], dict[str, Pool]]:
        given = self.header.pools
        if not any(sort.name == PAGE for sort in self.system.sorts):
            raise UsageError(f"{self.system.name} has no sort '{PAGE}': an event log is about pages")
        if self.partition is None:
            if len(given) != 1:
                raise UsageError(f"{self.system.name} has one pool; the header has {len(given)}")
            ((name, size),) = given.items()
            return {PAGE: size}, {name: (0, size)}
        members = list(self.members)
        for name in given:
            if name not in members:
                raise UsageError(f"{self.system.name} has no pool '{name}'{nearest(name, members)} (it has {', '.join(members)})")
        pools: dict[str, Pool] = {}
        first = 0
        for member in members:
            pools[member] = (first, given.get(member, 0))
            first += given.get(member, 0)
        return {f"{PAGE}.{self.members[name]}": size for name, (_, size) in pools.items()}, pools

    def _check_names(self) -> None:
        actions = [action.name for action in self.system.actions]
        variables = [variable.name for variable in self.system.variables]
        for what, names, known in (("action", self.header.silent, actions), ("variable", self.header.unknown, variables)):
            for name in names:
                if name not in known:
                    raise UsageError(f"{self.system.name} has no {what} '{name}'{nearest(name, known)}")

    def _rigid(self) -> tuple[Variable, ...]:
        """The rigid variables that the log tells: those that are read and not declared unknown."""
        read = self.system.variables_read()
        found = []
        for variable in self.system.rigid_variables:
            if variable.partition or variable.name in self.header.unknown or variable.name not in read:
                continue
            named = [isinstance(key, Sort) and key.name != PAGE for key in variable.keys]
            match named:
                case []:
                    if variable.name not in self.header.values:
                        raise UsageError(f"the header has no value for '{variable.name}', and does not declare it unknown")
                case [False] if isinstance(variable.type, Bool) and variable.keys[0].name == PAGE and self.partition is None:
                    pass  # pages that are not listed are not in it
                case [True]:
                    found.append(variable)
                case [True, True] if isinstance(variable.type, Bool):
                    found.append(variable)
                case _:
                    raise UsageError(f"{self.system.name}: '{variable.name}' has no place in an event log: declare it unknown")
        known = [v.name for v in self.system.rigid_variables if not v.keys or [key.name for key in v.keys] == [PAGE]]
        for name in self.header.values:
            if name not in known:
                raise UsageError(f"{self.system.name} has no value '{name}' for a header{nearest(name, known)}")
        return tuple(found)

    def _action(self, action: Action) -> ActionEvents:
        seen: set[str] = set()
        takes = []
        for parameter in action.parameters:
            name = field_of(parameter.domain.name)
            if not isinstance(parameter.domain, Sort) or parameter.domain.name == PAGE or name in seen:
                name = f"{parameter.name}_" if parameter.name in COMMON else parameter.name
            seen.add(name)
            takes.append(Taken(parameter, name, self._fixed_pool(action, parameter)))
        named = frozenset(sort.name for sort in self.system.sorts if sort.name != PAGE)
        return ActionEvents(action, tuple(takes), self._type(action, takes), named)

    def _fixed_pool(self, action: Action, parameter: Bound) -> Pool | None:
        if parameter.domain.name != PAGE:
            return None
        if self.partition is None:
            return next(iter(self.pools.values()))
        for guard in action.guards:
            for literal in literals(guard.condition, True):
                match literal.expr:
                    case Apply(operator=Operator.EQ, arguments=(Read(variable, (Bound(name=name),)), Const(value=str(value)))):
                        if literal.truth and variable == self.partition.name and name == parameter.name:
                            return self.pools[value.lower()]
        return None

    def _type(self, action: Action, takes: list[Taken]) -> type[msgspec.Struct]:
        node: Any = Literal[("", action.node)] if action.node else str
        fields: list[Any] = [("seq", int), ("ts", float, 0.0), ("node", node, "")]
        pages = [taken for taken in takes if taken.is_page]
        for taken in takes:
            if taken.is_name:
                fields.append((taken.field, str))
            elif not taken.is_page:
                fields.append((taken.field, _literal(taken.parameter.domain)))
            elif len(pages) > 1:
                fields.append((taken.field, int | list[int]))
            else:
                fields += [("pages", list[int] | None, None), (taken.field, int | None, None)]
        if any(taken.pool is None for taken in pages):
            fields.append(("pool", str, ""))
        sorts = {taken.parameter.domain.name for taken in takes if taken.is_name}
        values: list[tuple[str, Any, None]] = []
        for sort in sorted(sorts):
            values += [(variable.name, _value_type(variable) | None, None) for variable in self.rigid_of(sort)]
            values += [(variable.name, list[Name] | None, None) for variable in self.lists_of(sort)]
        if values:
            kind: Any = msgspec.defstruct("Values", values, forbid_unknown_fields=True)
            fields.append(("values", kind | None, None))
        fields.sort(key=len)  # what is required comes first
        made: Any = msgspec.defstruct(
            action.name, fields, tag_field="event", tag=action.name, forbid_unknown_fields=True, gc=False, kw_only=False
        )
        kind_of_event: type[msgspec.Struct] = made
        return kind_of_event


def field_of(sort: str) -> str:
    """The field that names an element of a sort."""
    return sort.lower()


def _members(variable: Variable) -> tuple[str, ...]:
    assert isinstance(variable.type, Element)
    assert isinstance(variable.type.domain, Enumeration)
    return variable.type.domain.members


def _literal(domain: object) -> Any:
    assert isinstance(domain, Enumeration)
    return Literal[domain.members]


def _value_type(variable: Variable) -> Any:
    match variable.type:
        case Bool():
            return bool
        case Number():
            return Index
        case Element(Enumeration() as domain) | Maybe(Enumeration() as domain):
            return _literal(domain)
        case Element() | Maybe():
            return Name
    raise UsageError(f"'{variable.name}' has no place in an event log: declare it unknown")


def page_pools(pools: Mapping[str, Pool]) -> str:
    """The pools in words: ``prefill (64 pages), decode (128 pages)``."""
    return ", ".join(f"{name} ({size:,} pages)" for name, (_, size) in pools.items())
