"""The bounded reading, asked about single states and steps beside its answers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import chain

import z3

from kvmodel.language.instance import Instance, State
from kvmodel.language.types import Value
from kvmodel.readings.bmc import bmc
from kvmodel.readings.circuit import TRUE, Clause
from kvmodel.readings.encoding import Encoding, Term
from kvmodel.traces.trace import Choice
from kvmodel.verdict import Verdict
from tests.agreement.oracle import Answer, Oracle, answers_of

__all__ = ["Bounded"]

FEW_STATES = 12


class Solver:
    """The clauses of an encoding at some depths, in a SAT solver. Variables are numbered by (variable, depth)."""

    def __init__(self, encoding: Encoding, clauses: Iterable[Clause], judged: Iterable[int] = ()) -> None:
        self.encoding = encoding
        self.before = {after: now for now, after in encoding.following.items()}
        self.numbers: dict[tuple[int, int], int] = {}
        self.solver = z3.SolverFor("QF_FD")
        self.add([(TRUE,), *clauses], 0, judged)

    def add(self, clauses: Iterable[Clause], depth: int, judged: Iterable[int] = ()) -> None:
        """Add clauses at a depth, with the gates that they and the `judged` literals rest on."""
        some = list(clauses)
        for definition in self.encoding.circuit.definitions([*chain.from_iterable(some), *judged]).values():
            some += definition
        self.give([[self.at(literal, depth) for literal in clause] for clause in some])

    def give(self, clauses: Iterable[Iterable[int]]) -> None:
        """Add clauses over numbers."""
        lines = [" ".join(map(str, (*clause, 0))) for clause in clauses]
        self.solver.from_string("\n".join([f"p cnf {len(self.numbers)} {len(lines)}", *lines, ""]))

    def at(self, literal: int, depth: int) -> int:
        """The number of a literal at a depth, negative for a negation."""
        variable = abs(literal)
        if variable in self.before:
            variable, depth = self.before[variable], depth + 1
        place = (variable, -1 if variable in self.encoding.circuit.static else depth)
        number = self.numbers.setdefault(place, len(self.numbers) + 1)
        return number if literal > 0 else -number

    def fresh(self) -> int:
        """A number that stands for nothing yet."""
        return self.numbers.setdefault((0, len(self.numbers)), len(self.numbers) + 1)

    def satisfiable(self, literals: Iterable[int], *numbers: int) -> bool:
        """Whether the clauses are, with literals at depth 0 and numbers true."""
        wanted = [*(self.at(literal, 0) for literal in literals), *numbers]
        answer = self.solver.check(*(z3.Bool(number) if number > 0 else z3.Not(z3.Bool(-number)) for number in wanted))
        assert answer != z3.unknown
        return bool(answer == z3.sat)

    def true(self, literal: int, depth: int) -> bool:
        """Whether a literal is true in the last model."""
        number = self.at(literal, depth)
        return bool(z3.is_true(self.solver.model().eval(z3.Bool(abs(number)), model_completion=True))) is (number > 0)

    def value(self, signal: object, depth: int) -> Value:
        """The value of a place in the last model."""
        if isinstance(signal, int):
            return self.true(signal, depth)
        assert isinstance(signal, dict)
        (found,) = [key for key, literal in signal.items() if self.true(literal, depth)]
        assert isinstance(found, bool | int | str | None)
        return found


class Bounded:
    """The bounded reading: its answers, and its encoding asked about single states and steps."""

    looks_at = 2

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

    @cached_property
    def encoding(self) -> Encoding:
        """The circuit of one state and one step."""
        return Encoding(self.instance, ())

    @cached_property
    def _starting(self) -> Solver:
        blocks = self.encoding.blocks
        return Solver(self.encoding, [*blocks.once, *blocks.state, *blocks.first])

    @cached_property
    def _stepping(self) -> Solver:
        """One step from any state, reachable or not."""
        blocks = self.encoding.blocks
        solver = Solver(self.encoding, [*blocks.once, *blocks.state, *blocks.step])
        solver.add(blocks.state, 1)
        return solver

    def solver_of(self, literals: Iterable[int]) -> Solver:
        """A solver for what `literals` of one state mean."""
        return Solver(self.encoding, [*self.encoding.blocks.once, *self.encoding.blocks.state], literals)

    def in_state(self, state: State) -> list[int]:
        """What is true at depth 0 of a run that is in `state` there."""
        found: list[int] = []
        cells = [*zip(self.encoding.rigid, state.rigid, strict=True), *zip(self.encoding.now, state.values, strict=True)]
        for cell, value in cells:
            if isinstance(cell, int):
                found.append(cell if value else -cell)
            elif not any(isinstance(key, Term) for key in cell):
                found.append(cell[value])

        def number(slot: int | None) -> int:
            value = 0 if slot is None else state.rigid[slot]
            assert isinstance(value, int)
            return value

        for difference, literal in self.encoding.comparisons.items():
            true = number(difference.left) - number(difference.right) <= difference.bound
            found.append(literal if true else -literal)
        return found

    def initial(self, candidates: Iterable[State]) -> frozenset[State]:
        return frozenset(state for state in candidates if self._starting.satisfiable(self.in_state(state)))

    def successors(self, state: State) -> frozenset[tuple[Choice, State]]:
        solver, encoding = self._stepping, self.encoding
        chosen = [*encoding.actions.values(), *(one for options in encoding.picks.values() for one in options.values())]
        here = self.in_state(state)
        found = set()
        going = solver.fresh()
        while solver.satisfiable(here, going):
            (name,) = [name for name, literal in encoding.actions.items() if solver.true(literal, 0)]
            seen: dict[str, int] = {}
            binding = []
            for parameter in self.instance.system.action(name).parameters:
                domain = parameter.domain.name
                binding.append(solver.value(encoding.picks[domain, seen.get(domain, 0)], 0))
                seen[domain] = seen.get(domain, 0) + 1
            step = (Choice(name, tuple(binding)), State(state.rigid, tuple(solver.value(cell, 1) for cell in encoding.now)))
            assert step not in found
            found.add(step)
            solver.give([(-going, *(-solver.at(one, 0) for one in chosen if solver.true(one, 0)))])
        return frozenset(found)

    def answers(self, oracle: Oracle) -> dict[str, Answer]:
        """Followed one step beyond the deepest state, or to its completeness threshold where there are few states."""
        deepest = max(oracle.depths.values()) + 1
        if len(oracle.depths) <= FEW_STATES:
            return answers_of(bmc(self.instance, depth=len(oracle.depths) + 1, complete=True))
        result = bmc(self.instance, depth=deepest)
        answers = answers_of(result)
        unshown = {found.name: (Verdict.VIOLATED, None) for found in result.properties if found.reachable and found.trace is None}
        return {**answers, **unshown}
