"""The dense step: all ground actions and properties of one instance and one rigid valuation, compiled to Python.

States are plain tuples (`State.values`). Used by the exhaustive exploration, the random walk and the Hypothesis machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from kvmodel.language.expressions import Apply, Const, Expr, conjuncts, negation
from kvmodel.language.instance import Instance, Values
from kvmodel.language.operators import Operator
from kvmodel.language.system import Property, PropertyKind
from kvmodel.language.types import BOOL, Counter
from kvmodel.readings.dense import compile_function, source, unpack
from kvmodel.readings.ground import GroundAction, Grounder, simplify

__all__ = ["DenseSteps"]


@dataclass(frozen=True)
class DenseSteps:
    """Steps and properties of `instance` with the rigid values `rigid`."""

    instance: Instance
    rigid: Values

    @cached_property
    def grounder(self) -> Grounder:
        return Grounder(self.instance, self.rigid)

    @cached_property
    def actions(self) -> tuple[GroundAction, ...]:
        """The ground actions that can be enabled at all; successors name them by position."""
        return tuple(action for action in self.grounder.actions() if action.guard != Const(False, BOOL))

    @cached_property
    def length(self) -> int:
        return self.instance.state_layout.length

    @cached_property
    def in_range(self) -> Expr:
        """Whether every counter is in its range; a state where one is not has no successors."""
        return simplify(Operator.AND, tuple(part for _, part in self._ranges), BOOL)

    @cached_property
    def _ranges(self) -> tuple[tuple[str, Expr], ...]:
        layout = self.instance.state_layout
        found = []
        for slot, ((name, _), kind) in enumerate(zip(layout.places, layout.types, strict=True)):
            if isinstance(kind, Counter):
                cell = self.grounder.cell(self.instance.system.by_name[name], layout.places[slot][1], kind)
                above = Apply(Operator.LE, (Const(kind.low, kind), cell), BOOL)
                below = Apply(Operator.LE, (cell, Const(kind.high, kind)), BOOL)
                found.append((f"range:{name}", simplify(Operator.AND, (above, below), BOOL)))
        return tuple(found)

    @cached_property
    def successors(self) -> Callable[[Values], list[tuple[int, Values]]]:
        """A function from state values to the list of (position of the action, values after it)."""
        lines = ["def successors(s):", f"    {unpack('s', self.length, 's')}", "    out = []"]
        if self.in_range != Const(True, BOOL):
            lines.append(f"    if not {source(self.in_range)}: return out")
        entries = [(position, conjuncts(action.guard)) for position, action in enumerate(self.actions)]
        lines += _decide(entries, self._emit, 1)
        lines.append("    return out")
        function: Callable[[Values], list[tuple[int, Values]]] = compile_function(lines, "successors")
        return function

    def _emit(self, position: int) -> str:
        updates = dict(self.actions[position].updates)
        after = ", ".join(source(updates[slot]) if slot in updates else f"s{slot}" for slot in range(self.length))
        return f"out.append(({position}, ({after},)))" if self.length else f"out.append(({position}, ()))"

    def predicate(self, expr: Expr) -> Callable[[Values], bool]:
        """A ground expression as a function of state values."""
        lines = ["def predicate(s):", f"    {unpack('s', self.length, 's')}", f"    return {source(expr)}"]
        function: Callable[[Values], bool] = compile_function(lines, "predicate")
        return function

    def violations(self, properties: Sequence[Property]) -> Callable[[Values], tuple[str, ...]]:
        """A function from state values to the names of the violated ones among `properties`: invariants and ranges."""
        lines = ["def violations(s):", f"    {unpack('s', self.length, 's')}", "    bad = ()"]
        for candidate in properties:
            if candidate.kind is PropertyKind.INVARIANT:
                good = self.grounder.for_all(candidate)
            elif candidate.kind is PropertyKind.RANGE:
                good = simplify(Operator.AND, tuple(part for name, part in self._ranges if name == candidate.name), BOOL)
            else:
                continue
            lines.append(f"    if not {source(good)}: bad += ({candidate.name!r},)")
        lines.append("    return bad")
        function: Callable[[Values], tuple[str, ...]] = compile_function(lines, "violations")
        return function

    @cached_property
    def broken_assertions(self) -> Callable[[int, Values], tuple[str, ...]]:
        """A function from (position of an enabled action, state values) to the assertions that this step violates."""
        tests = {
            position: [(name, self.predicate(condition)) for name, condition in action.assertions]
            for position, action in enumerate(self.actions)
            if action.assertions
        }

        def broken(position: int, values: Values) -> tuple[str, ...]:
            return tuple(name for name, test in tests.get(position, ()) if not test(values))

        return broken

    @cached_property
    def is_final(self) -> Callable[[Values], bool]:
        """Whether a state may have no successor."""
        return self.predicate(self.grounder.final())

    @cached_property
    def is_in_range(self) -> Callable[[Values], bool]:
        """Whether every counter is in its range."""
        return self.predicate(self.in_range)

    def deciding(self, position_of_guard: tuple[str, int]) -> Expr:
        """Where one guard alone stops an action: for some binding the other guards are true and this one is false."""
        name, number = position_of_guard
        action = self.instance.system.action(name)
        cases = []
        for binding in self.instance.bindings(action.parameters):
            environment = dict(zip((p.name for p in action.parameters), binding, strict=True))
            parts = [self.grounder.expression(guard.condition, environment) for guard in action.guards]
            parts[number] = simplify(Operator.NOT, (parts[number],), BOOL)
            cases.append(simplify(Operator.AND, tuple(parts), BOOL))
        return simplify(Operator.OR, tuple(cases), BOOL)


def _decide(entries: list[tuple[int, tuple[Expr, ...]]], emit: Callable[[int], str], depth: int) -> list[str]:
    """Nested ifs over conjunctions: the condition that most entries share is tested once."""
    lines: list[str] = []
    pad = "    " * depth
    rest = []
    for position, parts in entries:
        if all(part == Const(True, BOOL) for part in parts):
            lines.append(pad + emit(position))
        else:
            rest.append((position, parts))
    if not rest:
        return lines
    counts: dict[Expr, int] = {}
    for _, parts in rest:
        for part in parts:
            counts[part] = counts.get(part, 0) + 1
    best = max(counts, key=lambda part: counts[part])
    if counts[best] == 1 or depth > 15:
        for position, parts in rest:
            lines.append(f"{pad}if {' and '.join(source(part) for part in parts)}: {emit(position)}")
        return lines
    inside = [(position, tuple(p for p in parts if p != best)) for position, parts in rest if best in parts]
    opposite = negation(best)
    against = [(position, tuple(p for p in parts if p != opposite)) for position, parts in rest if opposite in parts and best not in parts]
    others = [(position, parts) for position, parts in rest if best not in parts and opposite not in parts]
    lines.append(f"{pad}if {source(best)}:")
    lines += _decide(inside, emit, depth + 1)
    if against:
        lines.append(f"{pad}else:")
        lines += _decide(against, emit, depth + 1)
    if others:
        lines += _decide(others, emit, depth)
    return lines


