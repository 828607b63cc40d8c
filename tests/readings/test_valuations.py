"""Columns of valuations: extended, filtered, in chunks and within a limit."""

from __future__ import annotations

import pytest

from kvmodel.language.expressions import Apply, Cell, Const, Expr
from kvmodel.language.operators import Operator
from kvmodel.language.types import BOOL, COUNT, Counter, Element, Enumeration, Maybe
from kvmodel.readings import valuations
from kvmodel.readings.ground import cells
from kvmodel.readings.valuations import NONE, Constraint, TooMany, Valuations, code

STAGE = Enumeration("Stage", ("NEW", "OLD"))


def of(condition: Expr) -> Constraint:
    return Constraint(condition, frozenset(cell.slot for cell in cells(condition)))


def ends(operator: Operator, *parts: Expr) -> Expr:
    return Apply(operator, parts, BOOL)


@pytest.mark.parametrize("chunk", [1, 7, 1 << 19])
def test_rows_that_satisfy_every_constraint_are_kept(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(valuations, "CHUNK", chunk)
    number, stage, on = Cell(0, False, Counter(0, 4)), Cell(1, False, Maybe(STAGE)), Cell(2, False, BOOL)
    table = Valuations(1_000)
    table.join(of(ends(Operator.LT, Apply(Operator.ADD, (number, Const(1, COUNT)), COUNT), Const(4, COUNT))), [(0, (0, 1, 2, 3, 4))])
    assert table.rows == 3
    table.join(of(ends(Operator.OR, ends(Operator.IS_NONE, stage), on)), [(1, (NONE, 0, 1)), (2, (0, 1))])
    assert table.rows == 3 * 4
    assert table.looked == 5 + 3 * 6
    table.join(of(ends(Operator.EQ, stage, Const("OLD", Element(STAGE)))), ())
    assert [dict(table.row(i)) for i in range(table.rows)] == [{0: n, 1: 1, 2: 1} for n in range(3)]
    table.join(of(ends(Operator.NOT, on)), ())
    assert table.rows == 0


def test_the_limit_is_kept_before_rows_are_made() -> None:
    table = Valuations(10)
    table.join(of(Cell(0, False, BOOL)), [(0, (0, 1))])
    with pytest.raises(TooMany, match="16 valuations"):
        table.join(of(Cell(1, False, Counter(0, 15))), [(1, tuple(range(16)))])
    assert table.looked == 2


def test_rows_can_be_judged_together() -> None:
    table = Valuations(100)
    both = ends(Operator.OR, Cell(0, False, BOOL), Cell(1, False, BOOL))
    table.join(of(both), [(0, (0, 1)), (1, (0, 1))])
    table.consistent([0, 1], lambda truth: truth != (True, True))
    assert sorted((row[0], row[1]) for row in (table.row(i) for i in range(table.rows))) == [(0, 1), (1, 0)]


def test_values_are_coded() -> None:
    assert [code(None, None), code(True, None), code(3, None), code("OLD", STAGE)] == [NONE, 1, 3, 1]


def test_sums_and_choices_are_not_cut_to_small_numbers() -> None:
    kind = Counter(0, 127)
    number, other = Cell(0, False, kind), Cell(1, False, kind)
    sum_ = Apply(Operator.ADD, (number, other, Const(100, COUNT)), COUNT)
    table = Valuations(100_000)
    table.join(of(ends(Operator.LT, Const(300, COUNT), sum_)), [(0, tuple(range(128))), (1, tuple(range(128)))])
    assert table.rows == sum(a + b + 100 > 300 for a in range(128) for b in range(128))
    chosen = Apply(Operator.IF, (ends(Operator.LT, number, other), number, Const(1_000, COUNT)), COUNT)
    table.join(of(ends(Operator.EQ, chosen, Const(1_000, COUNT))), ())
    assert table.rows == sum(a + b + 100 > 300 and a >= b for a in range(128) for b in range(128))


def test_what_does_not_fit_in_memory_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valuations, "MOST_KEPT", 10)
    table = Valuations(1_000)
    with pytest.raises(TooMany):
        table.join(of(ends(Operator.LE, Cell(0, False, Counter(0, 15)), Const(15, COUNT))), [(0, tuple(range(16)))])
