"""Rigid numbers in finite readings: one witness for every way in which they can compare.

A spec compares numbers as ``a + c <= b + d`` and never computes with them, so only the truth values of those
comparisons matter. `order_classes` lists every consistent combination of them, each with integers that show it: a
depth-first search over the comparisons, with the difference constraints kept consistent by shortest paths
(Bellman-Ford). Numbers are not negative.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvmodel.errors import InstanceError, InternalError
from kvmodel.language.expressions import Apply, Cell, Const, Expr
from kvmodel.language.operators import Operator

__all__ = ["Difference", "comparison", "order_classes", "smallest_numbers"]

LARGEST_CLASSES = 20_000


@dataclass(frozen=True, slots=True)
class Difference:
    """``left - right <= bound`` over number slots; slot None stands for zero."""

    left: int | None
    right: int | None
    bound: int

    def negated(self) -> Difference:
        """``left - right > bound``, as ``right - left <= -bound - 1``."""
        return Difference(self.right, self.left, -self.bound - 1)


def comparison(expr: Expr) -> tuple[Difference, ...]:
    """A ground comparison of numbers as differences that must all hold: one for ``<`` and ``<=``, two for ``==``."""
    if not isinstance(expr, Apply) or expr.operator not in (Operator.LT, Operator.LE, Operator.EQ):
        raise InternalError(f"not a comparison of numbers: {expr!r}")
    (left, left_constant), (right, right_constant) = (_linear(part) for part in expr.arguments)
    bound = right_constant - left_constant
    if expr.operator is Operator.LT:
        return (Difference(left, right, bound - 1),)
    if expr.operator is Operator.LE:
        return (Difference(left, right, bound),)
    return (Difference(left, right, bound), Difference(right, left, -bound))


def _linear(expr: Expr) -> tuple[int | None, int]:
    match expr:
        case Const(value=int(value)):
            return None, value
        case Cell(slot):
            return slot, 0
        case Apply(operator=Operator.ADD, arguments=(Cell(slot), Const(value=int(value)))):
            return slot, value
    raise InternalError(f"a number is computed with: {expr!r}")


def order_classes(slots: Sequence[int], atoms: Sequence[Difference]) -> Iterator[dict[int, int]]:
    """A witness (slot -> non-negative integer) for each consistent combination of truth values of `atoms`.

    Raises InstanceError when there are more than 20,000 combinations.
    """
    base = [Difference(None, slot, 0) for slot in slots]
    count = 0
    stack: list[tuple[int, list[Difference]]] = [(0, base)]
    while stack:
        depth, chosen = stack.pop()
        solution = smallest_numbers(slots, chosen)
        if solution is None:
            continue
        if depth == len(atoms):
            count += 1
            if count > LARGEST_CLASSES:
                raise InstanceError(f"the numbers of this instance compare in more than {LARGEST_CLASSES:,} ways; use smaller sizes")
            yield solution
            continue
        atom = atoms[depth]
        stack.append((depth + 1, [*chosen, atom]))
        stack.append((depth + 1, [*chosen, atom.negated()]))


def smallest_numbers(slots: Sequence[int], differences: Sequence[Difference]) -> dict[int, int] | None:
    """Integers that satisfy all differences (the smallest non-negative ones), or None."""
    # left - right <= bound: an edge right -> left of length `bound` gives upper bounds; lower bounds come from the
    # longest paths of the reversed constraint right >= left - bound, started at zero.
    lowest: dict[int | None, int] = dict.fromkeys(slots, 0)
    lowest[None] = 0
    for _ in range(len(lowest) + 1):
        changed = False
        for difference in differences:
            needed = lowest[difference.left] - difference.bound
            if needed > lowest[difference.right]:
                if difference.right is None:
                    return None
                lowest[difference.right] = needed
                changed = True
        if not changed:
            return {slot: lowest[slot] for slot in slots}
    return None
