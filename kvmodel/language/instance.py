"""A finite instance of a transition system: how many elements each sort has, and where each value is kept.

A state of an instance is two flat tuples of plain values: the rigid ones and the ones that steps change. `Layout` says
which slot holds which variable at which index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TypeAlias

from kvmodel.errors import InstanceError, nearest
from kvmodel.language.system import TransitionSystem, Variable
from kvmodel.language.types import (
    Bool,
    Count,
    Counter,
    Domain,
    Element,
    Enumeration,
    Maybe,
    Number,
    Type,
    Value,
)

__all__ = ["Binding", "Instance", "Layout", "State", "Values"]

Values: TypeAlias = tuple[Value, ...]
Binding: TypeAlias = tuple[Value, ...]

DEFAULT_SIZE = 2
LARGEST_LAYOUT = 2_000_000


@dataclass(frozen=True, slots=True)
class State:
    """A state of an instance: rigid values and changing values, as their layouts order them."""

    rigid: Values
    values: Values


@dataclass(frozen=True)
class Layout:
    """Where the values of some variables are kept in a flat tuple, row by row in order of declaration."""

    variables: tuple[Variable, ...]
    domains: Mapping[str, tuple[Value, ...]]

    @cached_property
    def offsets(self) -> Mapping[str, int]:
        offsets: dict[str, int] = {}
        offset = 0
        for variable in self.variables:
            offsets[variable.name] = offset
            size = 1
            for key in variable.keys:
                size *= len(self.domains[key.name])
            offset += size
        offsets[""] = offset
        return offsets

    @property
    def length(self) -> int:
        """How many values the tuple holds."""
        return self.offsets[""]

    @cached_property
    def slots(self) -> Mapping[tuple[str, Binding], int]:
        """The slot of each (variable name, index)."""
        return {place: slot for slot, place in enumerate(self.places)}

    @cached_property
    def places(self) -> tuple[tuple[str, Binding], ...]:
        """The (variable name, index) of each slot."""
        return tuple(
            (variable.name, index)
            for variable in self.variables
            for index in product(*(self.domains[key.name] for key in variable.keys))
        )

    @cached_property
    def types(self) -> tuple[Type, ...]:
        """The type of each slot."""
        kinds = {variable.name: variable.type for variable in self.variables}
        return tuple(kinds[name] for name, _ in self.places)


@dataclass(frozen=True)
class Instance:
    """A transition system with a number of elements for each sort.

    `sizes` maps a sort to its number of elements; `parts` maps a partitioned sort to the number of elements in each
    member of the partition, in the enumeration's order (elements are numbered in that order).
    """

    system: TransitionSystem
    sizes: tuple[tuple[str, int], ...]
    parts: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @staticmethod
    def make(system: TransitionSystem, sizes: Mapping[str, int] | None = None, *, limit: int | None = LARGEST_LAYOUT) -> Instance:
        """An instance of `system`. `sizes` may name a sort (``Page``: that many in each part) or a part
        (``Page.DECODE``); what it leaves out has the spec's own default, or 2.

        Raises InstanceError for an unknown sort, a size below 1, or a state of more than `limit` values (None: any number,
        for readings that never lay a whole state out).
        """
        partitions = {v.keys[0].name: v for v in system.variables if v.partition}
        wanted = _ordered(dict(system.sizes)) | _ordered(dict(sizes or {}))
        if sizes:
            for name in sizes:
                if "." not in name:
                    wanted = {k: v for k, v in wanted.items() if not k.startswith(name + ".") or k in sizes}
        known = [sort.name for sort in system.sorts]
        for sort, variable in partitions.items():
            known += [f"{sort}.{member}" for member in _members(variable)]
        for name, size in wanted.items():
            if name not in known:
                raise InstanceError(f"{system.name} has no sort '{name}'{nearest(name, known)}")
            if size < (1 if "." not in name else 0):
                raise InstanceError(f"size of {name} is {size}: a sort is never empty, so it must be at least 1")
            if size > LARGEST_LAYOUT:
                raise InstanceError(f"size of {name} is {size:,}; at most {LARGEST_LAYOUT:,}")
        counts: list[tuple[str, int]] = []
        parts: list[tuple[str, tuple[int, ...]]] = []
        for entry in system.sorts:
            each = wanted.get(entry.name, DEFAULT_SIZE)
            if entry.name in partitions:
                split = tuple(wanted.get(f"{entry.name}.{m}", each) for m in _members(partitions[entry.name]))
                if sum(split) < 1:
                    raise InstanceError(f"{entry.name} has no element in any part")
                parts.append((entry.name, split))
                counts.append((entry.name, sum(split)))
            else:
                counts.append((entry.name, each))
        instance = Instance(system, tuple(counts), tuple(parts))
        total = sum(_cells(instance, variable) for variable in system.variables)
        if limit is not None and total > limit:
            raise InstanceError(f"a state of {system.name} at this size has {total:,} values; at most {limit:,}")
        return instance

    @cached_property
    def domains(self) -> Mapping[str, tuple[Value, ...]]:
        """The elements of every sort (integers from 0) and the members of every enumeration."""
        domains: dict[str, tuple[Value, ...]] = {name: tuple(range(size)) for name, size in self.sizes}
        for enumeration in self.system.enumerations:
            domains[enumeration.name] = enumeration.members
        return domains

    @cached_property
    def state_layout(self) -> Layout:
        return Layout(self.system.state_variables, self.domains)

    @cached_property
    def rigid_layout(self) -> Layout:
        return Layout(self.system.rigid_variables, self.domains)

    @cached_property
    def part_of(self) -> Mapping[tuple[str, int], str]:
        """For each (partitioned sort, element): the member of the partition that it belongs to."""
        found: dict[tuple[str, int], str] = {}
        members = {v.keys[0].name: _members(v) for v in self.system.variables if v.partition}
        for sort, split in self.parts:
            element = 0
            for member, size in zip(members[sort], split, strict=True):
                for _ in range(size):
                    found[sort, element] = member
                    element += 1
        return found

    @cached_property
    def first_of(self) -> Mapping[tuple[str, str], int]:
        """For each (partitioned sort, member): its first element."""
        first: dict[tuple[str, str], int] = {}
        for (sort, element), member in self.part_of.items():
            first.setdefault((sort, member), element)
        return first

    @cached_property
    def _letters(self) -> Mapping[str, str]:
        """For each sort the beginning of its name, in lower case, that no sort before it has: ``p`` for Page, ``pr`` for Prefix."""
        taken: dict[str, str] = {}
        for name, _ in self.sizes:
            lower = name.lower()
            short = next((lower[:n] for n in range(1, len(lower)) if lower[:n] not in taken.values()), lower)
            taken[name] = short
        return taken

    def elements(self, domain: Domain) -> tuple[Value, ...]:
        """The elements of a sort or the members of an enumeration."""
        return self.domains[domain.name]

    def bindings(self, parameters: tuple[object, ...]) -> Iterator[Binding]:
        """Every binding of `parameters` (each with a `domain`), the last one changing fastest."""
        return product(*(self.domains[p.domain.name] for p in parameters))  # type: ignore[attr-defined]

    def values_of(self, kind: Type) -> tuple[Value, ...]:
        """Every value that a place of type `kind` can hold; empty for rigid numbers, which are not enumerated."""
        match kind:
            case Bool():
                return (False, True)
            case Element(domain):
                return self.elements(domain)
            case Maybe(domain):
                return (None, *self.elements(domain))
            case Counter(low, high):
                return tuple(range(low, high + 1))
            case Number() | Count():
                return ()

    def label(self, domain: Domain, value: Value) -> str:
        """How people see a value of `domain`: ``r0``, ``decode.p1``, ``RUNNING``."""
        if isinstance(domain, Enumeration) or not isinstance(value, int):
            return str(value)
        letter = self._letters[domain.name]
        member = self.part_of.get((domain.name, value))
        if member is None:
            return f"{letter}{value}"
        return f"{member.lower()}.{letter}{value - self.first_of[domain.name, member]}"

    def show(self, kind: Type, value: Value) -> str:
        """How people see a value of type `kind`."""
        if value is None:
            return "none"
        if isinstance(kind, Element | Maybe):
            return self.label(kind.domain, value)
        return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)

    def describe_size(self) -> str:
        """The sizes as a user would ask for them: ``Request=2 Page.PREFILL=1 Page.DECODE=2``."""
        return " ".join(f"{name}={size}" for name, size in self.size_options())

    def size_options(self) -> tuple[tuple[str, int], ...]:
        """The sizes as `Instance.make` takes them; a partition of equal parts is given as one size."""
        options: list[tuple[str, int]] = []
        split = dict(self.parts)
        members = {v.keys[0].name: _members(v) for v in self.system.variables if v.partition}
        for name, size in self.sizes:
            if name not in split:
                options.append((name, size))
            elif len(set(split[name])) == 1:
                options.append((name, split[name][0]))
            else:
                options += [(f"{name}.{m}", n) for m, n in zip(members[name], split[name], strict=True)]
        return tuple(options)


def _members(variable: Variable) -> tuple[str, ...]:
    assert isinstance(variable.type, Element)
    assert isinstance(variable.type.domain, Enumeration)
    return variable.type.domain.members


def _ordered(sizes: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(sizes.items()))


def _cells(instance: Instance, variable: Variable) -> int:
    size = 1
    for key in variable.keys:
        size *= len(instance.domains[key.name]) if isinstance(key, Enumeration) else dict(instance.sizes)[key.name]
    return size


