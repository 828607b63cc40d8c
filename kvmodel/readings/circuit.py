"""Propositional circuits: gates over literals, shared and simplified as they are made, and their clauses.

A literal is a non-zero integer, negative for a negation, as in DIMACS; 1 is true and -1 is false. The bounded reading
makes the circuit of one state and one step once, and then writes its clauses again for every depth.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import TypeAlias

__all__ = ["FALSE", "TRUE", "Circuit", "Clause", "Literal", "Unrolling"]

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

    def definitions(self, literals: Iterable[Literal], known: Container[int] = ()) -> dict[int, tuple[Clause, ...]]:
        """The clauses of every gate that `literals` rest on, without the gates in `known` and what is below them."""
        found: dict[int, tuple[Clause, ...]] = {}
        stack = [abs(literal) for literal in literals]
        while stack:
            gate = stack.pop()
            if gate in found or gate in known or gate not in self._definitions:
                continue
            found[gate] = self._definitions[gate]
            stack += sorted({abs(literal) for clause in found[gate] for literal in clause} - {gate})
        return found


class Unrolling:
    """Gives the variables of a circuit numbers at every depth, and writes its clauses in DIMACS for a depth.

    `following` names, for variables of a state, the variables that stand for them in the state after. A depth takes its
    numbers when it is first written or asked for, so that a solver never sees more of them than it needs.
    """

    def __init__(self, circuit: Circuit, following: Mapping[Literal, Literal]) -> None:
        self._static = {variable: number for number, variable in enumerate(sorted(circuit.static), start=1)}
        self._before = {after: now for now, after in following.items()}
        moving = [v for v in range(2, circuit.variables + 1) if v not in self._static and v not in self._before]
        self._rank = {variable: rank for rank, variable in enumerate(moving, start=1)}
        self._circuit = circuit
        self._bases: list[int] = []
        self.top = len(self._static)

    def fresh(self) -> int:
        """A number that stands for nothing in the circuit."""
        self.top += 1
        return self.top

    def number(self, literal: Literal, depth: int) -> int:
        """The number of a literal at a depth, negative for a negation."""
        variable = abs(literal)
        number = self._static.get(variable)
        if number is None:
            depth, variable = (depth + 1, self._before[variable]) if variable in self._before else (depth, variable)
            number = self._base(depth) + self._rank[variable]
        return number if literal > 0 else -number

    def lines(self, clauses: Iterable[Clause], depth: int) -> list[str]:
        """The clauses as they are at a depth, each a line of a DIMACS problem."""
        names = [""] * (2 * self._circuit.variables + 1)  # names[-3] is the name of the literal -3
        for variable in range(1, self._circuit.variables + 1):
            name = str(self.number(variable, depth))
            names[variable], names[-variable] = name, f"-{name}"
        return [" ".join([*map(names.__getitem__, clause), "0"]) for clause in clauses]

    def _base(self, depth: int) -> int:
        while len(self._bases) <= depth:
            self._bases.append(self.top)
            self.top += len(self._rank)
        return self._bases[depth]
