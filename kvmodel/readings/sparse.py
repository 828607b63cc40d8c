"""Sparse states: only values that differ from a variable's default are stored, with the indices that searches need.

The containers are plain dictionaries and sets, because generated code works on them directly:

- no keys: a list of one value;
- a relation with one key: the set of elements where it differs from its default; with two keys: a dictionary from the
  first key to the set of second keys (no empty sets); with more: a set of tuples;
- any other variable: a dictionary from the key (a tuple, when there are several) to the value;
- an index: a dictionary from what is known (a bare element, or a tuple when there are several) to the remaining keys
  (again bare or a tuple): a set of them, or a tuple of the only one. Nothing where there are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeAlias

from kvmodel.errors import InternalError, UsageError
from kvmodel.language.instance import Binding, Instance
from kvmodel.language.system import Anything, Variable
from kvmodel.language.types import BOOL, Bool, Counter, Element, Number, Sort, Value

__all__ = ["Index", "SparseState", "Store", "StoreLayout", "bare", "batch_variable", "default_value"]

Container: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Store:
    """Where the values of a variable are kept: container number `slot`; what is not stored has the value `default`.

    `arity` is the number of keys; `relation` says that there is one value beside the default, so that the keys say it all;
    `rows` that the main container is a dictionary of rows.
    """

    slot: int
    variable: Variable
    default: Value
    arity: int
    relation: bool
    rows: bool


@dataclass(frozen=True, slots=True)
class Index:
    """Another way into a variable's stored values: by the keys at positions `known`, and by the value if `by_value`."""

    variable: str
    known: tuple[int, ...]
    by_value: bool


class StoreLayout:
    """Which container holds what: one for each variable, one for the elements of each sort over which a batch runs, then one
    for each index, in the order in which they are asked for."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        variables = (*instance.system.variables, *(batch_variable(sort) for sort in instance.system.sorts))
        self.stores = {variable.name: _store(instance, slot, variable) for slot, variable in enumerate(variables)}
        self.indices: dict[Index, int] = {}
        self.defaults = {name: store.default for name, store in self.stores.items()}
        self.rigid = frozenset(variable.name for variable in instance.system.rigid_variables)

    def index(self, variable: str, known: tuple[int, ...], by_value: bool) -> int:
        """The container of an index; it is added if there is none yet."""
        wanted = Index(variable, known, by_value)
        return self.indices.setdefault(wanted, len(self.stores) + len(self.indices))

    def has_index(self, variable: str, known: tuple[int, ...], by_value: bool) -> bool:
        """Whether there is such an index."""
        return Index(variable, known, by_value) in self.indices

    def indices_of(self, variable: str) -> tuple[tuple[Index, int], ...]:
        """The indices of a variable, with their containers."""
        return tuple((index, slot) for index, slot in self.indices.items() if index.variable == variable)

    def empty(self) -> list[Container]:
        """Containers of a state in which every variable has its default everywhere."""
        cells: list[Container] = []
        for store in self.stores.values():
            if not store.arity:
                cells.append([store.default])
            elif store.relation and not store.rows:
                cells.append(set())
            else:
                cells.append({})
        cells += [{} for _ in self.indices]
        return cells


class SparseState:
    """A mutable state of a compiled system. Read it with `get` and `stored`; only the compiled step changes it."""

    __slots__ = ("cells", "layout", "out_of_range")

    def __init__(self, layout: StoreLayout, cells: list[Container], out_of_range: set[tuple[int, Binding]]) -> None:
        self.layout = layout
        self.cells = cells
        self.out_of_range = out_of_range
        """Counters out of their range, as (container, key)."""

    def get(self, variable: str, index: Binding = ()) -> Value:
        """The value of a variable (of the state, or rigid) at an index."""
        store = self.layout.stores[variable]
        cell = self.cells[store.slot]
        key = index[0] if store.arity == 1 else index
        found: Value
        if not store.arity:
            found = cell[0]
        elif not store.relation:
            found = cell.get(key, store.default)
        elif store.rows:
            found = (index[1] in cell.get(index[0], ())) != store.default
        else:
            found = (key in cell) != store.default
        return found

    def values_at(self, variable: str, keys: Iterable[Value]) -> list[Value]:
        """The values of a variable with one key, at many keys: quicker than `get` for each."""
        store = self.layout.stores[variable]
        cell = self.cells[store.slot]
        if store.relation:
            return [(key in cell) != store.default for key in keys]
        get, default = cell.get, store.default
        return [get(key, default) for key in keys]

    def row(self, variable: str, first: Value) -> AbstractSet[Value]:
        """For a relation with two keys: the second keys at which it differs from its default, for a first key."""
        store = self.layout.stores[variable]
        if not store.rows:
            raise UsageError(f"'{variable}' is not a relation with two keys")
        row: AbstractSet[Value] = self.cells[store.slot].get(first, frozenset())
        return row

    def stored(self, variable: str) -> Iterator[tuple[Binding, Value]]:
        """Each index at which a variable differs from its default, with its value there; in no particular order."""
        store = self.layout.stores[variable]
        cell = self.cells[store.slot]
        if not store.arity:
            if cell[0] != store.default:
                yield (), cell[0]
        elif store.rows:
            yield from (((first, second), not store.default) for first, row in cell.items() for second in row)
        elif store.relation:
            yield from ((_tuple(key, store.arity), not store.default) for key in cell)
        else:
            yield from ((_tuple(key, store.arity), value) for key, value in cell.items())

    def copy(self) -> SparseState:
        """An independent copy."""
        return SparseState(self.layout, [_copy(cell) for cell in self.cells], set(self.out_of_range))

    def check_indices(self) -> None:
        """Raise InternalError unless every index says exactly what the variables say."""
        for index, slot in self.layout.indices.items():
            expected: dict[Any, set[Any]] = {}
            for key, value in self.stored(index.variable):
                known = tuple(key[position] for position in index.known) + ((value,) if index.by_value else ())
                rest = tuple(element for position, element in enumerate(key) if position not in index.known)
                expected.setdefault(bare(known), set()).add(bare(rest))
            if expected != {known: set(rest) for known, rest in self.cells[slot].items()} or not all(self.cells[slot].values()):
                raise InternalError(f"the index {index} does not match what is stored")


def batch_variable(sort: Sort) -> Variable:
    """A relation that holds, while a batch runs, of the elements that it runs over. No spec can have a variable of that name."""
    return Variable(f"batch over {sort.name}", (sort,), BOOL, False)


def _store(instance: Instance, slot: int, variable: Variable) -> Store:
    arity, relation = len(variable.keys), isinstance(variable.type, Bool)
    return Store(slot, variable, default_value(instance, variable), arity, relation, relation and arity == 2)


def default_value(instance: Instance, variable: Variable) -> Value:
    """What a place of `variable` holds when nothing is stored for it: its initial value, or the first value of its type."""
    if not isinstance(variable.initial, Anything):
        return variable.initial
    match variable.type:
        case Bool():
            return False
        case Number():
            return 0
        case Counter(low=low):
            return low
        case Element(domain):
            return instance.elements(domain)[0]
        case _:
            return None


def bare(key: tuple[Any, ...]) -> Any:
    """A key as containers hold it: a single element without its tuple."""
    return key[0] if len(key) == 1 else key


def _tuple(key: Any, arity: int) -> Binding:
    return (key,) if arity == 1 else key


def _copy(cell: Container) -> Container:
    if isinstance(cell, dict):
        return {key: set(value) if isinstance(value, set) else value for key, value in cell.items()}
    return set(cell) if isinstance(cell, set) else list(cell)
