"""The question of a preflight, asked of the handoff spec: is there a prompt that the door lets through and the pool does not hold?

The spec says what the door lets through (`prompts_fit_context`), what it means that a pool covers the context (`prefill_sizing`,
`decode_sizing`) and which prompt is oversize (`oversize_for_prefill`, `oversize_for_decode`). Z3 is asked with the numbers of a real node
as whole numbers; what is not known of them stays open. Both answers possible means that a fact is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from kvmodel.engines.capacity import CONTEXT, LIMIT, Inequality
from kvmodel.errors import InternalError
from kvmodel.language.expressions import Quantified
from kvmodel.language.operators import Binder
from kvmodel.language.system import Condition, TransitionSystem
from kvmodel.readings.first_order import Formulas

__all__ = ["Answers", "Numbers", "Question"]

PROMPT = "prompt"


@dataclass(frozen=True, slots=True)
class Numbers:
    """Values of the spec's numbers in one possible deployment; `prompt` is the length of one request's prompt."""

    context: int
    prefill_limit: int
    decode_limit: int
    prompt: int


@dataclass(frozen=True, slots=True)
class Answers:
    """What the solver said of one node.

    `witness`: the deployment with the shortest oversize prompt, None if there is none. `covers`: whether the pool can cover the context.
    `decided`: the solver answered everything. `context` and `limit`: least and greatest possible values (None: no bound).
    """

    witness: Numbers | None
    covers: bool
    decided: bool
    context: tuple[int | None, int | None]
    limit: tuple[int | None, int | None]


class Question:
    """The spec's assumptions about one request, as formulas."""

    def __init__(self, system: TransitionSystem) -> None:
        self.system = system
        self.formulas = Formulas(system, {sort.name: 1 for sort in system.sorts})
        self.scalars = {name: self.formulas.values[name]() for name in ("context", "prefill_limit", "decode_limit")}
        self.request = self.formulas.members["Request"][0]
        self.prompt = self.formulas.values["prompt"](self.request)
        positive = [number >= 0 for number in (self.prompt, *self.scalars.values())]
        self.known = [*positive, *(self.formulas.meaning(_closed(fact), {}) for fact in system.assumptions)]

    def oversize(self, role: str) -> Any:
        """The spec's own definition, of the one request."""
        name = f"oversize_for_{role}"
        definition = next((entry for entry in self.system.definitions if entry.name == name), None)
        if definition is None:
            raise InternalError(f"{self.system.name} does not define {name}")
        (parameter,) = definition.parameters
        return self.formulas.meaning(definition.condition, {parameter.name: self.request})

    def facts(self, role: str, inequalities: Sequence[Inequality], context: bool = True) -> list[Any]:
        """Inequalities of a node, over the numbers of the spec that are this node's. Without `context`, what is said of it is of
        another door."""
        names: Mapping[str, Any] = {CONTEXT: self.scalars["context"], LIMIT: self.scalars[f"{role}_limit"]}
        of = self.formulas.context
        found = []
        for fact in inequalities:
            if not context and any(name == CONTEXT for name, _ in fact.terms):
                continue
            terms = [z3.IntVal(factor, of) * names.get(name, z3.Int(f"{role} {name}", of)) for name, factor in fact.terms]
            found.append(z3.Sum(*terms, z3.IntVal(fact.constant, of)) >= 0)
        return found

    def ask(self, role: str, inequalities: Sequence[Inequality]) -> Answers:
        """All that the facts about one node decide."""
        facts = [*self.known, *self.facts(role, inequalities)]
        witness, first = self.model(facts, [self.oversize(role)])
        covering = self._solver([*facts, self.formulas.flags[f"{role}_pool_covers_context"]]).check()
        context, limit = (self.range(facts, name) for name in ("context", f"{role}_limit"))
        return Answers(witness, covering == z3.sat, first and covering != z3.unknown, context, limit)

    def model(self, facts: Sequence[Any], wanted: Sequence[Any]) -> tuple[Numbers | None, bool]:
        """The deployment with the shortest prompt that is as wanted, and whether the solver answered."""
        solver = z3.Optimize(ctx=self.formulas.context)
        solver.set("timeout", 10_000)
        solver.add(*facts, *wanted)
        for number in (self.prompt, *self.scalars.values()):
            solver.minimize(number)
        answer = solver.check()
        if answer != z3.sat:
            return None, answer == z3.unsat
        model = solver.model()
        values = {name: model.eval(term, model_completion=True).as_long() for name, term in {**self.scalars, PROMPT: self.prompt}.items()}
        return Numbers(**values), True

    def range(self, facts: Sequence[Any], name: str) -> tuple[int | None, int | None]:
        """The least and the greatest value that the facts allow."""
        ends: list[int | None] = []
        for least in (True, False):
            solver = z3.Optimize(ctx=self.formulas.context)
            solver.set("timeout", 10_000)
            solver.add(*facts)
            end = (solver.minimize if least else solver.maximize)(self.scalars[name])
            value = (end.lower() if least else end.upper()) if solver.check() == z3.sat else None
            ends.append(value.as_long() if value is not None and z3.is_int_value(value) else None)
        return ends[0], ends[1]

    def _solver(self, facts: Sequence[Any]) -> Any:
        solver = z3.Solver(ctx=self.formulas.context)
        solver.set("timeout", 10_000)
        solver.add(*facts)
        return solver


def _closed(fact: Condition) -> Any:
    return Quantified(Binder.ALL, fact.parameters, fact.condition, fact.at) if fact.parameters else fact.condition
