"""One verification condition, asked of Z3: proved, refuted or unknown, and which claims the proof used.

Each condition gets a solver of its own, with the same seed and a limit on the solver's work instead of on time, so that
an answer does not depend on the machine or on what was asked before.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import z3

from kvmodel.language.expressions import FlagRead, negation
from kvmodel.language.system import TransitionSystem
from kvmodel.readings.conditions import NEVER, Induction, VerificationCondition, calls_for_elements
from kvmodel.readings.first_order import Formulas, NotFirstOrder
from kvmodel.readings.models import MOST_ELEMENTS, small_model
from kvmodel.readings.terms import implication

__all__ = ["LIMIT", "Answer", "ConditionResult", "ConditionSolver"]

LIMIT = 20_000_000  # units of Z3's own count of its work; about ten seconds
QUICK = 500_000
FEW_ELEMENTS = 5
OTHER_SEEDS = 3
GLANCE = 50_000  # enough to see what is plain


class Answer(Enum):
    """What is known of a condition."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ConditionResult:
    """The answer for one condition.

    `used` names the claims that the proof used, and `flags` the flags whose value it used (where flags were left open);
    `reason` says why an answer is unknown.
    """

    step: str
    claim: str
    answer: Answer
    used: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()
    seconds: float = 0.0
    reason: str = ""

    @property
    def name(self) -> str:
        """``land/isolated_read``."""
        return f"{self.step}/{self.claim}"


class ConditionSolver:
    """Asks Z3 about the conditions of one system. Flags have their effective values, or with `all_flags` any."""

    def __init__(self, system: TransitionSystem, *, all_flags: bool = False, seed: int = 0, limit: int = LIMIT) -> None:
        self.induction = Induction(system, all_flags=all_flags)
        self.formulas = Formulas(self.induction.system)
        self.seed = seed
        self.limit = limit
        self._calling: dict[int, bool] = {}  # of the expressions of `induction.hypotheses`, which stay

    def check(
        self, step: str, claim: str, alive: Collection[str] | None = None, flags: Mapping[str, bool] | None = None
    ) -> ConditionResult:
        """The answer for the condition of `claim` at `step`, with the claims in `alive` as hypotheses (None: all).

        `flags` gives open flags a value; `ConditionResult.flags` then says which of these values a proof used.
        """
        started = time.monotonic()
        condition = self.induction.condition(step, claim)
        if alive is not None:
            condition = condition.under(alive)
        try:
            base, hypotheses = self.formulas.negated(condition)
        except NotFirstOrder as problem:
            return ConditionResult(step, claim, Answer.UNKNOWN, reason=f"{problem} ({problem.at})")
        # The fewest hypotheses first, then those that stay decidable, then all.
        own = {label: formula for label, formula in hypotheses.items() if label.partition(":")[2] == claim}
        answer, reason, core = Answer.UNKNOWN, "", frozenset[str]()
        if claim != NEVER:
            rigid = len(self.formulas.numbers) + len(condition.assumptions)
            answer, reason, core = self._ask(base[rigid:], own, flags or {}, QUICK)  # nearly always without what is known of numbers
        if answer is not Answer.PROVED:
            plain = own | {label: hypotheses[label] for label in hypotheses if not self._calls(condition, label)}
            for tried, limit in ((plain, QUICK // 3), (hypotheses, QUICK)) if claim != NEVER else ((plain, GLANCE),):
                answer, reason, core = self._ask(base, tried, flags or {}, limit)
                if answer is Answer.PROVED:
                    break
        if answer is Answer.UNKNOWN and claim != NEVER:
            answer, reason, core = self._again(condition, base, hypotheses, flags or {})
        used = frozenset(label.partition(":")[2] for label in core if ":" in label)
        return ConditionResult(
            step, claim, answer, used, frozenset(label for label in core if ":" not in label), time.monotonic() - started, reason
        )

    def _calls(self, condition: VerificationCondition, label: str) -> bool:
        """Whether the hypothesis with this label calls for elements; by identity, since hashing a tree costs more than the answer."""
        expr = condition.hypotheses[int(label.partition(":")[0])][1]
        if id(expr) not in self._calling:
            self._calling[id(expr)] = calls_for_elements(expr)
        return self._calling[id(expr)]

    def _again(
        self, condition: VerificationCondition, base: Sequence[Any], hypotheses: Mapping[str, Any], flags: Mapping[str, bool]
    ) -> tuple[Answer, str, frozenset[str]]:
        """What is done when Z3 gives up: look for a model in a small universe, which Z3 seldom finds where quantifiers alternate; try
        other seeds, in an order that is always the same; and last, a larger universe and all the work that the limit allows."""
        if self.refutes(condition, flags, FEW_ELEMENTS):
            return Answer.REFUTED, "", frozenset()
        for other in range(1, 1 + OTHER_SEEDS):
            found = self._ask(base, hypotheses, flags, QUICK, self.seed + other)
            if found[0] is not Answer.UNKNOWN:
                return found
        if self.refutes(condition, flags):
            return Answer.REFUTED, "", frozenset()
        return self._ask(base, hypotheses, flags, self.limit)

    def _ask(
        self, base: Sequence[Any], hypotheses: Mapping[str, Any], flags: Mapping[str, bool], limit: int, seed: int | None = None
    ) -> tuple[Answer, str, frozenset[str]]:
        solver = self.fresh(min(limit, self.limit), seed)
        literals, tracked = [], []
        for label, formula in hypotheses.items():
            literal = z3.Bool(f"use {label}", ctx=self.formulas.context)
            tracked.append(implication(literal, formula))
            literals.append(literal)
        for formula in (*base, *tracked):
            z3.Z3_solver_assert(solver.ctx.ref(), solver.solver, formula.ast)
        names = {literal.get_id(): label for literal, label in zip(literals, hypotheses, strict=True)}
        for name, value in flags.items():
            literal = self.formulas.flags[name] if value else z3.Not(self.formulas.flags[name])
            names[literal.get_id()] = name
            literals.append(literal)
        result = solver.check(*literals)
        if result == z3.unsat:
            return Answer.PROVED, "", frozenset(names[literal.get_id()] for literal in solver.unsat_core())
        if result == z3.sat:
            return Answer.REFUTED, "", frozenset()
        return Answer.UNKNOWN, f"Z3 gave up: {solver.reason_unknown()}", frozenset()

    def refutes(self, condition: VerificationCondition, flags: Mapping[str, bool], most: int = MOST_ELEMENTS) -> bool:
        """Whether a model of at most `most` elements shows that `condition` does not hold, with open flags as in `flags`."""
        given = tuple(FlagRead(name) if value else negation(FlagRead(name)) for name, value in flags.items())
        assumed = replace(condition, assumptions=(*condition.assumptions, *given))
        return small_model(self.induction.system, assumed, self.seed, most) is not None

    def fresh(self, limit: int, seed: int | None = None) -> Any:
        """A Z3 solver of its own, with the seed (or another one) and a limit on its work."""
        solver = z3.SimpleSolver(ctx=self.formulas.context)
        solver.set("random_seed", self.seed if seed is None else seed)
        solver.set("rlimit", limit)
        solver.set("ctrl_c", False)  # or Z3 takes Ctrl-C for itself, and answers that it gave up
        return solver
