"""All valuations of some cells, as columns of numpy arrays: extended by one cell at a time, filtered by ground conditions.

Values are coded as small integers: no and yes as 0 and 1, members of an enumeration and elements of a sort by their
number, none as -1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvmodel.errors import InternalError, KvmodelError
from kvmodel.language.expressions import Apply, Cell, Const, Expr
from kvmodel.language.operators import Operator
from kvmodel.language.types import Element, Enumeration, Maybe, Value

__all__ = ["NONE", "Codes", "Constraint", "TooMany", "Valuations", "code"]

NONE = -1
CHUNK = 1 << 19  # valuations that are looked at together
SAMPLE = 64
MOST_KEPT = 200_000_000  # values in memory
Column: TypeAlias = NDArray[Any]  # int8 where the codes fit, otherwise int16
Mask: TypeAlias = NDArray[np.bool_]
Codes: TypeAlias = tuple[int, ...]


class TooMany(KvmodelError):
    """More valuations than the limit would have to be looked at."""

    def __init__(self, valuations: int) -> None:
        super().__init__(f"{valuations:,} valuations")
        self.valuations = valuations


def code(value: Value, domain: object) -> int:
    """The code of a value; `domain` is its enumeration, when it has one."""
    if value is None:
        return NONE
    if isinstance(value, str):
        assert isinstance(domain, Enumeration)
        return domain.members.index(value)
    return int(value)


@dataclass(frozen=True, slots=True)
class Constraint:
    """A ground condition and the slots of the cells that it reads."""

    condition: Expr
    slots: frozenset[int]


@dataclass
class Valuations:
    """Rows of values, one column a slot. `looked` counts every row that was ever made.

    `limit` bounds it, and MOST_KEPT what is in memory; TooMany is raised before an extension beyond it, with its number of rows.
    """

    limit: int
    columns: dict[int, Column] = field(default_factory=dict)
    rows: int = 1
    looked: int = 0

    def join(self, constraint: Constraint, missing: Sequence[tuple[int, Codes]]) -> None:
        """Extend by every combination of the values of the `missing` cells, and keep the rows that satisfy `constraint`."""
        growth = prod(len(codes) for _, codes in missing)
        if self.looked + self.rows * growth > self.limit:
            raise TooMany(self.rows * growth)
        self.looked += self.rows * growth
        if growth == 1 and not missing:
            self._keep(_mask(constraint.condition, self.columns, self.rows))
            return
        step = max(1, CHUNK // growth)
        combinations = np.array(list(_combinations([codes for _, codes in missing])), dtype=np.int16).reshape(growth, len(missing))
        new = [_small(combinations[:, position]) for position in range(len(missing))]
        pieces: list[dict[int, Column]] = []
        counts = 0
        for start in range(0, self.rows, step):
            old = {slot: column[start : start + step] for slot, column in self.columns.items()}
            size = min(step, self.rows - start)
            wide = {slot: np.repeat(column, growth) for slot, column in old.items() if slot in constraint.slots}
            wide |= {slot: np.tile(new[position], size) for position, (slot, _) in enumerate(missing)}
            kept = np.flatnonzero(_mask(constraint.condition, wide, size * growth))
            counts += len(kept)
            if counts * (len(old) + len(missing)) > MOST_KEPT:
                raise TooMany(self.rows * growth)
            piece = {slot: wide[slot][kept] if slot in wide else old[slot][kept // growth] for slot in (*old, *wide)}
            pieces.append(piece)
        self.rows = counts
        slots = [*self.columns, *(slot for slot, _ in missing)]
        self.columns = {slot: np.concatenate([piece[slot] for piece in pieces]) for slot in slots} if pieces else {}

    def trial(self, constraint: Constraint, missing: Sequence[tuple[int, Codes]]) -> float:
        """About how many rows a row becomes in `join`, from a sample of the rows."""
        growth = prod(len(codes) for _, codes in missing)
        chosen = np.unique(np.linspace(0, self.rows - 1, SAMPLE).astype(np.int64))
        columns = {slot: self.columns[slot][chosen] for slot in constraint.slots & self.columns.keys()}
        sample = Valuations(growth * len(chosen), columns, len(chosen))
        sample.join(constraint, missing)
        return sample.rows / len(chosen)

    def keep(self, rows: Mask) -> None:
        """Keep the rows where `rows` is true."""
        self._keep(rows)

    def _keep(self, rows: Mask) -> None:
        if not rows.all():
            self.columns = {slot: column[rows] for slot, column in self.columns.items()}
            self.rows = int(rows.sum())

    def consistent(self, slots: Sequence[int], judge: Callable[[tuple[bool, ...]], bool]) -> None:
        """Keep the rows for whose truth values of `slots` the judge says yes."""
        if not slots or not self.rows:
            return
        key = np.zeros(self.rows, dtype=np.int64)
        for position, slot in enumerate(slots):
            key |= self.columns[slot].astype(np.int64) << position
        patterns, place = np.unique(key, return_inverse=True)
        good = np.array([judge(tuple(bool(pattern >> position & 1) for position in range(len(slots)))) for pattern in patterns.tolist()])
        self._keep(good[place])

    def row(self, number: int) -> Mapping[int, int]:
        """One valuation: the code of each slot."""
        return {slot: int(column[number]) for slot, column in self.columns.items()}


def _small(column: NDArray[np.int16]) -> Column:
    """The column in as few bytes as its codes need."""
    return column.astype(np.int8) if column.size and column.min() >= -128 and column.max() < 128 else column


def _combinations(choices: Sequence[Codes]) -> Iterator[tuple[int, ...]]:
    if not choices:
        yield ()
        return
    for rest in _combinations(choices[:-1]):
        for value in choices[-1]:
            yield (*rest, value)


def _mask(condition: Expr, columns: Mapping[int, Column], rows: int) -> Mask:
    found = _value(condition, columns)
    return np.full(rows, bool(found)) if np.ndim(found) == 0 else np.asarray(found, dtype=bool)


Coded: TypeAlias = NDArray[Any] | int | bool


def _value(expr: Expr, columns: Mapping[int, Column]) -> Coded:
    match expr:
        case Const(value=value, type=kind):
            return code(value, kind.domain if isinstance(kind, Element | Maybe) else None)
        case Cell(slot=slot):
            return columns[slot]
        case Apply(operator=operator, arguments=arguments):
            parts = [_value(part, columns) for part in arguments]
    match operator:
        case Operator.NOT:
            return np.equal(parts[0], 0)
        case Operator.AND | Operator.OR:
            combine = np.logical_and if operator is Operator.AND else np.logical_or
            result: Coded = operator is Operator.AND
            for part in parts:
                result = combine(result, part)
            return result
        case Operator.IMPLIES:
            return np.logical_or(np.equal(parts[0], 0), parts[1])
        case Operator.EQ:
            return np.equal(parts[0], parts[1])
        case Operator.LT:
            return np.less(parts[0], parts[1])
        case Operator.LE:
            return np.less_equal(parts[0], parts[1])
        case Operator.ADD:
            total: Coded = 0
            for part in parts:
                total = np.add(total, np.asarray(part, dtype=np.int64))  # small columns would overflow
            return total
        case Operator.IF:
            return np.where(np.not_equal(parts[0], 0), np.asarray(parts[1]), np.asarray(parts[2]))
        case Operator.IS_NONE:
            return np.equal(parts[0], NONE)
        case Operator.THE:
            return parts[0]
    raise InternalError(f"valuations have no rule for {expr!r}")
