"""Propositional circuits: gates over literals, shared and simplified as they are made, and their clauses.

A literal is a non-zero integer, negative for a negation, as in DIMACS; 1 is true and -1 is false. The bounded reading
makes the circuit of one state and one step once, and then writes its clauses again for every depth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

__all__ = ["FALSE", "TRUE", "Circuit", "Clause", "Literal"]

Literal: TypeAlias = int
Clause: TypeAlias = tuple[Literal, ...]

TRUE: Literal = 1
FALSE: Literal = -1


class Circuit:
    """Variables and gates. Equal gates are one gate; a gate over static variables alone is static itself.

    A static variable has one value for a whole run; any other has a value at every depth.
    """

    def __init__(self) -> None:
        self.variables = 1
        self.static = {1}
        self._gates: dict[tuple[str, Clause], Literal] = {}
        self._definitions: dict[int, tuple[Clause, ...]] = {}

    def variable(self, *, static: bool = False) -> Literal:
        """A new variable."""
        self.variables += 1
        if static:
            self.static.add(self.variables)
        return self.variables

    def conjunction(self, parts: Iterable[Literal]) -> Literal:
        """True when all parts are."""
        kept = set(parts)
        kept.discard(TRUE)
        if FALSE in kept or any(-part in kept for part in kept):
            return FALSE
        if not kept:
            return TRUE
        if len(kept) == 1:
            return kept.pop()
        inputs = tuple(sorted(kept))
        key = ("and", inputs)
        if key not in self._gates:
            gate = self._gate(key)
            self._definitions[gate] = (*((-gate, part) for part in inputs), (gate, *(-part for part in inputs)))
        return self._gates[key]

    def disjunction(self, parts: Iterable[Literal]) -> Literal:
        """True when some part is."""
        return -self.conjunction([-part for part in parts])

    def choice(self, condition: Literal, then: Literal, otherwise: Literal) -> Literal:
        """`then` where the condition is true, else `otherwise`."""
        if condition < 0:
            condition, then, otherwise = -condition, otherwise, then
        if condition == TRUE or then == otherwise:
            return then
        if then == -otherwise:
            return self.equal(condition, then)
        if then in (TRUE, condition):
            return self.disjunction((condition, otherwise))
        if then in (FALSE, -condition):
            return self.conjunction((-condition, otherwise))
        if otherwise in (FALSE, condition):
            return self.conjunction((condition, then))
        if otherwise in (TRUE, -condition):
            return self.disjunction((-condition, then))
        if then < 0:
            return -self.choice(condition, -then, -otherwise)
        key = ("if", (condition, then, otherwise))
        if key not in self._gates:
            gate = self._gate(key)
            self._definitions[gate] = (
                (-condition, -then, gate), (-condition, then, -gate), (condition, -otherwise, gate), (condition, otherwise, -gate),
                (-then, -otherwise, gate), (then, otherwise, -gate),
            )  # fmt: skip
        return self._gates[key]

    def equal(self, left: Literal, right: Literal) -> Literal:
        """True when both have one value."""
        if left == right:
            return TRUE
        if left == -right:
            return FALSE
        if abs(left) > abs(right):
            left, right = right, left
        if abs(left) == TRUE:
            return right if left == TRUE else -right
        negated = (left < 0) != (right < 0)
        left, right = abs(left), abs(right)
        key = ("equal", (left, right))
        if key not in self._gates:
            gate = self._gate(key)
            self._definitions[gate] = ((-gate, -left, right), (-gate, left, -right), (gate, left, right), (gate, -left, -right))
        return -self._gates[key] if negated else self._gates[key]

    def _gate(self, key: tuple[str, Clause]) -> Literal:
        gate = self.variable(static=all(abs(part) in self.static for part in key[1]))
        self._gates[key] = gate
        return gate

    def definitions(self, literals: Iterable[Literal], known: Mapping[int, object] | set[int]) -> dict[int, tuple[Clause, ...]]:
        """The clauses of every gate that `literals` rest on, without the gates in `known`."""
        found: dict[int, tuple[Clause, ...]] = {}
        stack = [abs(literal) for literal in literals]
        while stack:
            gate = stack.pop()
            if gate in found or gate in known or gate not in self._definitions:
                continue
            found[gate] = self._definitions[gate]
            stack += {abs(literal) for clause in found[gate] for literal in clause} - {gate}
        return found
