"""Rows: how a template's features look for every choice of elements in every state seen, and the boxes that no row is in.

A row has one small integer for each feature. All work is done on whole columns with numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import numpy.typing as npt

from kvmodel.analyses.vocabulary import OTHER, Box, Feature, Template
from kvmodel.errors import InternalError
from kvmodel.language.expressions import Apply, Bound, Cell, Const, Expr
from kvmodel.language.instance import Instance, Values
from kvmodel.language.operators import Operator
from kvmodel.language.types import Element, Enumeration, Maybe, Type, Value
from kvmodel.readings.ground import Grounder

__all__ = ["MOST_FEATURES", "Candidate", "Projection", "Rows"]

Column = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.uint8]

NONE = -1
MOST_FEATURES = 63  # of a template: sets of features are bits of one integer
MOST_SETS = 100  # ways to tell a row from all others that are looked at
MOST_ORDERS = 6  # in which the sides of a box are widened


# -- states as rows


class Projection:
    """Takes the rows of one template from states of one deployment."""

    def __init__(self, template: Template, instance: Instance, rigid: Values) -> None:
        self.template = template
        self.kinds = instance.state_layout.types
        grounder = Grounder(instance, rigid)
        names = [variable.name for variable in template.variables]
        self._ground: dict[tuple[Expr, tuple[int, ...], int], int] = {}
        self.places: list[list[int]] = []
        for binding in template.bindings(instance.domains):
            environment: dict[str, Value] = dict(zip(names, binding, strict=True))
            place = []
            for feature in template.features:
                ground = grounder.expression(feature.expr, environment)
                place.append(self._number(ground, feature, environment))
            self.places.append(place)

    def _number(self, ground: Expr, feature: Feature, environment: Mapping[str, Value]) -> int:
        """The number of a column: what is evaluated, and which value has which code."""
        kind = feature.expr.type
        codes = tuple(
            _code(kind, environment[option.name] if isinstance(option, Bound) else option)  # type: ignore[arg-type]
            for option in feature.options
            if option is not OTHER
        )
        rest = len(feature.options) - 1 if OTHER in feature.options else len(feature.options)
        return self._ground.setdefault((ground, codes, rest), len(self._ground))

    def rows(self, states: Sequence[Values]) -> tuple[Matrix, Column]:
        """The rows in `states`, each once, and the position of a state that it is in."""
        columns = [_column(kind, values) for kind, values in zip(self.kinds, zip(*states, strict=True), strict=True)]
        coded = [_coded(_evaluate(ground, columns), codes, rest, len(states)) for ground, codes, rest in self._ground]
        matrices: list[Matrix] = [np.empty((0, len(self.template.features)), np.uint8)]
        sources: list[Column] = [np.empty(0, np.int64)]
        for place in self.places:
            matrix = np.stack([coded[number] for number in place], axis=1)
            first = _first(matrix)
            matrices.append(matrix[first])
            sources.append(first)
        matrix, source = np.concatenate(matrices), np.concatenate(sources)
        first = _first(matrix)
        return matrix[first], source[first]


def _column(kind: Type, values: Sequence[Value]) -> Column:
    codes = _Codes(kind)
    return np.fromiter(map(codes.__getitem__, values), np.int64, len(values))


class _Codes(dict[Value, int]):
    """The integer that stands for a value of a type."""

    def __init__(self, kind: Type) -> None:
        super().__init__()
        self.kind = kind

    def __missing__(self, value: Value) -> int:
        self[value] = code = _code(self.kind, value)
        return code


def _code(kind: Type, value: Value) -> int:
    if value is None:
        return NONE
    if isinstance(kind, Element | Maybe) and isinstance(kind.domain, Enumeration):
        return kind.domain.members.index(str(value))
    return int(value)


def _evaluate(expr: Expr, columns: Sequence[Column]) -> Column:
    match expr:
        case Const(value=value, type=kind):
            return np.int64(_code(kind, value))  # type: ignore[return-value]
        case Cell(slot=slot, rigid=False):
            return columns[slot]
        case Apply(operator=operator, arguments=arguments):
            return _MEANING[operator]([_evaluate(part, columns) for part in arguments])
    raise InternalError(f"rows have no rule for {expr!r}")


def _all(parts: Sequence[Column]) -> Column:
    found = np.int64(1)
    for part in parts:
        found = found & part  # type: ignore[assignment]
    return found  # type: ignore[return-value]


def _any(parts: Sequence[Column]) -> Column:
    found = np.int64(0)
    for part in parts:
        found = found | part  # type: ignore[assignment]
    return found  # type: ignore[return-value]


def _truth(values: object) -> Column:
    return np.asarray(values, np.int64)


_MEANING: Mapping[Operator, Callable[[Sequence[Column]], Column]] = {
    Operator.NOT: lambda parts: 1 - parts[0],
    Operator.AND: _all,
    Operator.OR: _any,
    Operator.IMPLIES: lambda parts: (1 - parts[0]) | parts[1],
    Operator.EQ: lambda parts: _truth(parts[0] == parts[1]),
    Operator.LT: lambda parts: _truth(parts[0] < parts[1]),
    Operator.LE: lambda parts: _truth(parts[0] <= parts[1]),
    Operator.ADD: lambda parts: _truth(sum(parts)),
    Operator.IF: lambda parts: _truth(np.where(parts[0] != 0, parts[1], parts[2])),
    Operator.IS_NONE: lambda parts: _truth(parts[0] == NONE),
    Operator.THE: lambda parts: parts[0],
}


def _coded(values: Column, codes: Sequence[int], rest: int, count: int) -> Matrix:
    """The position of each value among `codes`, or `rest`."""
    found = np.full(count, rest, np.uint8)
    for position, code in enumerate(codes):
        found[np.broadcast_to(values == code, (count,))] = position
    return found


def _first(matrix: Matrix) -> Column:
    """The position of the first of each kind of row."""
    if not len(matrix) or not matrix.shape[1]:
        return np.arange(min(len(matrix), 1))
    top = [int(size) + 1 for size in matrix.max(axis=0)]
    if _product(top) < 2**62:
        codes = np.zeros(len(matrix), np.int64)
        for position, size in enumerate(top):
            codes *= size
            codes += matrix[:, position]
        return np.unique(codes, return_index=True)[1]
    return np.unique(matrix, axis=0, return_index=True)[1]


def _product(sizes: Sequence[int]) -> int:
    total = 1
    for size in sizes:
        total *= int(size)
    return total


# -- rows and the boxes between them


@dataclass(frozen=True, slots=True)
class Candidate:
    """A box without rows. `size` is the share of all conceivable rows that are in it."""

    box: Box
    size: float


class Rows:
    """The rows of one template, and boxes that no row is in."""

    def __init__(self, template: Template) -> None:
        self.template = template
        self.domains = [len(feature.options) + (feature.options[-1] is not OTHER and isinstance(feature.options[-1], int)
                        and not isinstance(feature.options[-1], bool)) for feature in template.features]
        self.matrix: Matrix = np.empty((0, len(template.features)), np.uint8)
        self._columns: list[Matrix] = [self.matrix[:, position] for position in range(len(template.features))]
        self._tables: dict[tuple[int, ...], npt.NDArray[np.bool_]] = {}
        self._known: set[bytes] = set()
        self._certain = 0
        self._found: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[Candidate, ...]] = {}

    def add(self, matrix: Matrix, *, supposed: bool = False) -> Column:
        """More rows that are possible; the positions of those that are new. Those that are only `supposed` to be can be
        forgotten."""
        fresh = np.array([n for n, row in enumerate(matrix) if row.tobytes() not in self._known], np.int64)
        if len(fresh):
            more = matrix[fresh]
            self._set(np.concatenate((self.matrix, more[_first(more)])))
        if not supposed:
            self._certain = len(self.matrix)
        return fresh

    def forget(self) -> None:
        """Forget what was only supposed since the last certain row."""
        self._set(self.matrix[: self._certain])

    def _set(self, matrix: Matrix) -> None:
        self.matrix = matrix
        self._known = {row.tobytes() for row in matrix}
        self._columns = [np.ascontiguousarray(matrix[:, position]) for position in range(matrix.shape[1])]
        self._tables.clear()
        self._found.clear()

    def __contains__(self, row: Matrix) -> bool:
        return row.tobytes() in self._known

    def is_empty(self, box: Box) -> bool:
        """Whether no row is in `box`."""
        inside = np.ones(len(self.matrix), np.bool_)
        for position, chosen in box.sides:
            inside &= np.isin(self._columns[position], list(chosen))
        return not inside.any()

    def candidates(self, row: Matrix, most: int, within: frozenset[int], *, linked: bool) -> Iterator[Candidate]:
        """Boxes around `row` that no known row is in, with at most `most` sides, of which none can be left out, for features
        in `within`.

        With `linked`, only boxes whose variables are brought together by what holds in them (see `Template.links`): a
        clause about elements that have nothing to do with each other is seldom more than an accident of small instances.
        """
        values = [int(value) for value in row]
        links = [self.template.link(position, value) for position, value in enumerate(values)]
        everything = frozenset(range(len(self.template.variables)))
        groups = _joined([frozenset((number,)) for number in everything], links) if linked else [everything]
        differs = None
        for group in groups:
            allowed = [position for position, names in enumerate(self.template.mentions) if names <= group and position in within]
            allowed = [position for position in allowed if links[position] <= group]
            if differs is None:
                differs = self._differences(row)
            for features in _hitting_sets(differs, allowed, most):
                if linked:
                    spoken = frozenset[int]().union(*(self.template.mentions[p] | links[p] for p in features))
                    if len(_joined([frozenset((n,)) for n in spoken], [links[p] for p in features])) > 1:
                        continue
                yield from self._boxes(row, features)

    def _differences(self, row: Matrix) -> npt.NDArray[np.uint64]:
        """For each known row the features in which it differs from `row`, as bits; each set of features once."""
        differs = np.zeros(len(self.matrix), np.uint64)
        for position, column in enumerate(self._columns):
            differs |= (column != row[position]).astype(np.uint64) << np.uint64(position)
        return np.unique(differs)

    def _table(self, features: tuple[int, ...]) -> npt.NDArray[np.bool_]:
        if features not in self._tables:
            sizes = [self.domains[position] for position in features]
            table = np.zeros(sizes, np.bool_)
            table[tuple(self._columns[position] for position in features)] = True
            self._tables[features] = table
        return self._tables[features]

    def _boxes(self, row: Matrix, features: tuple[int, ...]) -> tuple[Candidate, ...]:
        """Boxes with these sides around `row` that cannot be widened."""
        values = tuple(int(row[position]) for position in features)
        key = features, values
        if key not in self._found:
            self._found[key] = tuple(self._widened(features, values))
        return self._found[key]

    def _widened(self, features: tuple[int, ...], values: tuple[int, ...]) -> Iterator[Candidate]:
        counts = [len(self.template.features[position].options) for position in features]
        wide = [number for number, count in enumerate(counts) if count > 2]
        # A side of two options cannot be widened: the feature could be left out then.
        table = self._table(features)[tuple(slice(None) if number in wide else value for number, value in enumerate(values))]
        occupied = [tuple(int(place) for place in places) for places in np.argwhere(table)]
        seen = set()
        for count, order in enumerate(permutations(range(len(wide)))):
            if count == MOST_ORDERS:
                break
            sides = [{values[number]} for number in wide]
            for axis in order:
                others = [(number, side) for number, side in enumerate(sides) if number != axis]
                barred = {places[axis] for places in occupied if all(places[number] in side for number, side in others)}
                sides[axis] = set(range(counts[wide[axis]])) - barred
            chosen = [frozenset((value,)) for value in values]
            for number, found in zip(wide, sides, strict=True):
                chosen[number] = frozenset(found)
            box = Box(tuple(zip(features, chosen, strict=True)))
            if box not in seen:
                seen.add(box)
                size = 1.0
                for side, of in zip(chosen, counts, strict=True):
                    size *= len(side) / of
                yield Candidate(box, size)


def _hitting_sets(differences: npt.NDArray[np.uint64], allowed: Sequence[int], most: int) -> list[tuple[int, ...]]:
    """The smallest sets of `allowed` features such that every known row differs in one of them."""
    masks = _smallest(np.unique(differences & np.uint64(_mask(allowed))))
    if masks and not masks[0]:
        return []
    found: list[int] = []
    for size in range(1, most + 1):
        chosen: set[int] = set()
        _hit(masks, 0, size, chosen)
        found += [mask for mask in sorted(chosen) if not any(old & mask == old for old in found)]
        if len(found) > MOST_SETS:
            break
    return [tuple(position for position in allowed if mask >> position & 1) for mask in found[:MOST_SETS]]


def _joined(groups: Sequence[frozenset[int]], links: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    """`groups`, with those that a link has parts of put together."""
    for link in links:
        if len(link) > 1:
            touched = [group for group in groups if group & link]
            groups = [group for group in groups if not group & link]
            groups = [*groups, frozenset[int]().union(*touched)]
    return list(groups)


def _mask(positions: Sequence[int]) -> int:
    return sum(1 << position for position in positions)


def _smallest(masks: npt.NDArray[np.uint64]) -> list[int]:
    """Those masks that contain no other, the smallest first."""
    order = np.argsort(_bits(masks), kind="stable")
    masks = masks[order]
    found: list[int] = []
    while len(masks):
        first = masks[0]
        found.append(int(first))
        masks = masks[(masks & first) != first]
    return found


def _bits(masks: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    count = np.zeros(len(masks), np.int64)
    for position in range(64):
        count += ((masks >> np.uint64(position)) & np.uint64(1)).astype(np.int64)
    return count


def _hit(masks: Sequence[int], chosen: int, left: int, found: set[int]) -> None:
    """Every set of exactly `left` more bits that meets every mask."""
    for mask in masks:
        if not mask & chosen:
            break
    else:
        if not left:
            found.add(chosen)
        return
    if not left or len(found) > MOST_SETS:
        return
    position = 0
    while mask >> position:
        if mask >> position & 1:
            _hit(masks, chosen | 1 << position, left - 1, found)
        position += 1
