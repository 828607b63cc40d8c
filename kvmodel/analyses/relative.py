"""Induction at one size, asked of a SAT solver: fast answers while lemmas are being looked for.

One state and one step of an instance (`readings.encoding`), from any state in which the lemmas so far hold. What is found
here is not proved; `analyses.infer` asks for every condition at any size in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kvmodel.analyses.vocabulary import OTHER, Clause, Template
from kvmodel.errors import InternalError
from kvmodel.language.expressions import Bound, Cell, Expr
from kvmodel.language.instance import Instance
from kvmodel.language.types import Value
from kvmodel.readings.circuit import FALSE, TRUE, Literal, Unrolling
from kvmodel.readings.conditions import Claim
from kvmodel.readings.encoding import Encoding
from kvmodel.readings.ground import GroundAction, Grounder, cells
from kvmodel.readings.symmetry import Symmetry
from kvmodel.traces.trace import Choice

if TYPE_CHECKING:
    import z3

__all__ = ["Counterexample", "Relative"]

Matrix = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A counterexample to induction as rows: of each template, in the state before the step and in the state after it.

    `relevant` has, for each template and each of its rows, the features (by position) that speak only of what the step and
    the claim depend on: whatever else the state is like, the step breaks the claim.
    """

    before: tuple[Matrix, ...]
    after: tuple[Matrix, ...]
    relevant: tuple[tuple[frozenset[int], ...], ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """A template's features for one binding: the literal for each of their options."""

    options: tuple[tuple[Literal, ...], ...]
    cells: tuple[frozenset[Cell], ...]
    representative: bool


class Relative:
    """Whether claims and clauses are kept by every step of one instance, given those that were added."""

    def __init__(self, instance: Instance, templates: Sequence[Template], goals: Sequence[Claim], seed: int) -> None:
        import z3 as solver

        self._z3 = solver
        self.instance = instance
        self.queries = 0
        self.encoding = Encoding(instance, ())
        self._grounder = Grounder(instance)
        self._steps: dict[Choice, GroundAction] = {}
        self.places = [self._places(template) for template in templates]
        self._instances = {goal.name: self._claim(goal) for goal in goals}
        self._goals = {
            name: self.encoding.circuit.conjunction([literal for literal, _ in found]) for name, found in self._instances.items()
        }
        self._derived = {goal.name for goal in goals if goal.derived}
        self._roots = {
            literal for places in self.places for place in places for option in place.options for literal in option
        } | {literal for found in self._instances.values() for literal, _ in found} | set(self._goals.values())
        self._stepping = self.encoding.circuit.variable(static=True)  # a derived goal is asked of a state from which no step may lead
        self.unrolling = Unrolling(self.encoding.circuit, self.encoding.following)
        self._context = solver.Context()
        self._solver = solver.SolverFor("QF_FD", ctx=self._context)
        self._solver.set("random_seed", seed)
        self._model: z3.ModelRef | None = None
        self._load()
        self._active: dict[Clause, int] = {}
        self._violated: dict[Clause, int] = {}
        self._assumed: list[int] = []
        for name, literal in self._goals.items():
            if name not in self._derived:
                self._add([(self.unrolling.number(literal, 0),)])

    # encoding

    def _places(self, template: Template) -> list[_Place]:
        domains = [variable.domain for variable in template.variables]
        first = set(Symmetry(self.instance).representatives(domains))
        found = []
        for binding in template.bindings(self.instance.domains):
            environment = dict(zip((v.name for v in template.variables), binding, strict=True))
            options = tuple(self._options(feature.expr, feature.options, environment) for feature in template.features)
            read = tuple(cells(self._grounder.expression(feature.expr, environment)) for feature in template.features)
            found.append(_Place(options, read, binding in first))
        return found

    def _options(self, expr: Expr, options: Sequence[object], environment: Mapping[str, Value]) -> tuple[Literal, ...]:
        signal = self.encoding.signal(expr, environment)
        if isinstance(signal, int):
            return (-signal, signal)
        values: dict[object, Literal] = dict(signal.items())
        found = []
        for option in options:
            key = environment[option.name] if isinstance(option, Bound) else option
            found.append(FALSE if option is OTHER else values.get(key, FALSE))
        if OTHER in options:
            found[-1] = self.encoding.circuit.conjunction(-literal for literal in found[:-1])
        return tuple(found)

    def _claim(self, claim: Claim) -> list[tuple[Literal, frozenset[Cell]]]:
        """For each binding: the literal that says that the claim holds, and what it reads."""
        names = [parameter.name for parameter in claim.parameters]
        found = []
        for binding in self.instance.bindings(claim.parameters):
            environment = dict(zip(names, binding, strict=True))
            read = cells(self._grounder.expression(claim.condition, environment))
            found.append((self.encoding.truth(claim.condition, environment), read))
        return found

    def _load(self) -> None:
        encoding, circuit = self.encoding, self.encoding.circuit
        blocks = encoding.blocks
        state = circuit.definitions([*chain.from_iterable(blocks.state), *self._roots])
        step = circuit.definitions(chain.from_iterable(blocks.step), state)
        once = circuit.definitions(chain.from_iterable(blocks.once), {**state, **step})
        static = [c for gates in (state, step, once) for gate, clauses in gates.items() if gate in circuit.static for c in clauses]
        states = [*blocks.state, *(c for gate, clauses in state.items() if gate not in circuit.static for c in clauses)]
        steps: list[tuple[int, ...]] = [(-self._stepping, *clause) for clause in blocks.step]
        steps += [c for gate, clauses in step.items() if gate not in circuit.static for c in clauses]
        lines = self.unrolling.lines([(TRUE,), *blocks.once, *static], 0)
        lines += self.unrolling.lines(states, 0)
        lines += self.unrolling.lines(states, 1)
        lines += self.unrolling.lines(steps, 0)
        self._give(lines)

    def _give(self, lines: Sequence[str]) -> None:
        self._solver.from_string("\n".join([f"p cnf {self.unrolling.top} {len(lines)}", *lines, ""]))

    def _add(self, clauses: Iterable[tuple[int, ...]]) -> None:
        self._give([" ".join(map(str, (*clause, 0))) for clause in clauses])

    def _outside(self, clause: Clause, place: _Place, depth: int) -> list[int] | None:
        """The literals of which one is true where the place is not in the clause's box; None when it never is in the box."""
        found = []
        for position, chosen in clause.box.sides:
            options = place.options[position]
            outside = [literal for number, literal in enumerate(options) if number not in chosen]
            inside = [options[number] for number in chosen]
            if all(literal == FALSE for literal in inside) or TRUE in outside:
                return None
            if len(options) == 2 or len(inside) > 1:
                found += [literal for literal in outside if literal != FALSE]
            else:
                found.append(-inside[0])
        return [self.unrolling.number(literal, depth) for literal in dict.fromkeys(found)]

    # what is assumed and asked

    def activate(self, clause: Clause) -> int:
        """The literal under which `clause` holds in the state before the step."""
        if clause not in self._active:
            number = self.unrolling.fresh()
            places = [self._outside(clause, place, 0) for place in self.places[clause.template]]
            self._add([(-number, *literals) for literals in places if literals is not None])
            self._active[clause] = number
        return self._active[clause]

    def _violation(self, clause: Clause) -> int:
        """The literal under which `clause` does not hold in the state after the step."""
        if clause not in self._violated:
            some = self.unrolling.fresh()
            clauses: list[tuple[int, ...]] = []
            here = []
            for place in self.places[clause.template]:
                literals = self._outside(clause, place, 1) if place.representative else None
                if literals is not None:
                    one = self.unrolling.fresh()
                    here.append(one)
                    clauses += [(-one, -literal) for literal in literals]
            self._add([*clauses, (-some, *here)])
            self._violated[clause] = some
        return self._violated[clause]

    def breaks(self, claim: str | Clause, given: Iterable[Clause], *, rows: bool = True) -> Counterexample | bool:
        """A step from a state in which the goals and `given` hold that breaks `claim`; False when there is none.

        A derived goal is broken by a state. Without `rows`, True instead of the counterexample, also when no integers show
        how the numbers in it compare.
        """
        assumptions = [self.activate(clause) for clause in given]
        if isinstance(claim, str):
            depth = 0 if claim in self._derived else 1
            literal = self._goals[claim]
            if literal == TRUE:
                return False
            assumptions.append(-self.unrolling.number(literal, depth))
        else:
            depth = 1
            assumptions.append(self._violation(claim))
        if depth:
            assumptions.append(self.unrolling.number(self._stepping, 0))
        if not self._check(assumptions, numbers=rows):
            return False
        return self._counterexample(claim) if rows else True

    def _check(self, literals: Sequence[int], *, numbers: bool) -> bool:
        self.queries += 1
        assumptions = [self._bool(literal) for literal in literals]
        while True:
            answer = self._solver.check(*assumptions)
            if answer == self._z3.unsat:
                return False
            if answer != self._z3.sat:
                if "interrupt" in self._solver.reason_unknown():
                    raise KeyboardInterrupt
                raise InternalError(f"the SAT solver gave up: {self._solver.reason_unknown()}")
            if not numbers:
                return True
            self._model = self._solver.model()
            if self._numbers_exist():
                return True

    def _bool(self, number: int) -> z3.BoolRef:
        variable: z3.BoolRef = self._z3.Bool(abs(number), self._context)
        return variable if number > 0 else self._z3.Not(variable)

    def _true(self, literal: Literal, depth: int) -> bool:
        assert self._model is not None
        number = self.unrolling.number(literal, depth)
        value = self._model.eval(self._z3.Bool(abs(number), self._context), model_completion=True)
        return self._z3.is_true(value) is (number > 0)

    def _counterexample(self, claim: str | Clause) -> Counterexample:
        known: dict[tuple[Literal, int], bool] = {}

        def true(literal: Literal, depth: int) -> bool:
            key = abs(literal), depth
            if key not in known:
                known[key] = self._true(abs(literal), depth)
            return known[key] is (literal > 0)

        def matrix(places: Sequence[_Place], depth: int) -> Matrix:
            rows = [
                [next((n for n, literal in enumerate(options) if true(literal, depth)), len(options)) for options in place.options]
                for place in places
            ]
            return np.array(rows, np.uint8).reshape(len(places), -1)

        after = tuple(matrix(places, 1) for places in self.places)
        footprint = self._footprint(claim, after, true)
        relevant = tuple(
            tuple(frozenset(n for n, read in enumerate(place.cells) if read <= footprint) for place in places) for places in self.places
        )
        return Counterexample(tuple(matrix(places, 0) for places in self.places), after, relevant)

    def _footprint(self, claim: str | Clause, after: Sequence[Matrix], true: Callable[[Literal, int], bool]) -> frozenset[Cell]:
        """What the step of the model, and one way in which it breaks `claim`, depend on."""
        if isinstance(claim, str):
            depth = 0 if claim in self._derived else 1
            read = min((read for literal, read in self._instances[claim] if not true(literal, depth)), key=len)
            if claim in self._derived:
                return read
        else:
            broken = (
                place
                for place, row in zip(self.places[claim.template], after[claim.template], strict=True)
                if all(int(row[position]) in chosen for position, chosen in claim.box.sides)
            )
            place = next(broken)
            read = frozenset[Cell]().union(*(place.cells[position] for position, _ in claim.box.sides))
        step = self._step(true)
        updates = dict(step.updates)
        before = [cells(updates[cell.slot]) if not cell.rigid and cell.slot in updates else frozenset((cell,)) for cell in read]
        return cells(step.guard).union(*before)

    def _step(self, true: Callable[[Literal, int], bool]) -> GroundAction:
        """The step of the model."""
        (name,) = [name for name, literal in self.encoding.actions.items() if true(literal, 0)]
        action = self.instance.system.action(name)
        seen: dict[str, int] = {}
        binding = []
        for parameter in action.parameters:
            domain = parameter.domain.name
            picks = self.encoding.picks[domain, seen.get(domain, 0)]
            binding.append(next(value for value, literal in picks.items() if true(literal, 0)))
            seen[domain] = seen.get(domain, 0) + 1
        choice = Choice(name, tuple(binding))
        if choice not in self._steps:
            ground = self._grounder.action(action, choice.binding)
            if ground is None:
                raise InternalError(f"a counterexample to induction takes {choice}, which is never enabled")
            self._steps[choice] = ground
        return self._steps[choice]

    def _numbers_exist(self) -> bool:
        """Whether integers show the comparisons of the model; if not, a smallest part that none show is ruled out."""
        found, impossible = self.encoding.numbers(lambda literal: self._true(literal, 0))
        if found is None:
            self._add([tuple(-self.unrolling.number(literal, 0) for literal in impossible)])
        return found is not None
