"""Proofs for any size, and for every flag assignment that agrees on the flags whose values a proof used.

A claim (an invariant, a lemma) is proved when some set of claims that contains it is inductive. Flags stay open in every
condition; the assignment that is asked about only gives them values that a proof may use. What was not used is free, so one
proof answers for many assignments, and the answer for one condition is used again wherever it applies.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import z3

from kvmodel.language.system import TransitionSystem
from kvmodel.readings.first_order import NotFirstOrder
from kvmodel.readings.solver import Answer, ConditionResult, ConditionSolver

__all__ = ["FlaggedProof", "FlaggedProofs", "Unproved"]

QUICK, THOROUGH = 150_000, 5_000_000  # units of Z3's count of its work: a tenth of a second, and some seconds

Flags: TypeAlias = frozenset[tuple[str, bool]]


@dataclass(frozen=True, slots=True)
class FlaggedProof:
    """A claim is proved for any size under every assignment that has the flag values `needs`.

    `claims` is an inductive set that contains it, and `conditions` everything that had to be shown for that.
    """

    needs: tuple[tuple[str, bool], ...]
    claims: tuple[str, ...]
    conditions: tuple[ConditionResult, ...]
    seconds: float = field(default=0.0, compare=False)

    @property
    def solver_seconds(self) -> float:
        """How long the solver took for its conditions, also for those that were already known."""
        return sum(result.seconds for result in self.conditions)


@dataclass(frozen=True, slots=True)
class Unproved:
    """No set of claims that contains the claim was found to be inductive: the condition of it that failed, and why."""

    condition: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Known:
    """A condition that is proved for every assignment with the flag values `needs`."""

    result: ConditionResult
    needs: Flags


@dataclass(frozen=True, slots=True)
class _Literal:
    """Something that a proof may use: part of a claim, switched on by `term`, or the value of a flag."""

    term: Any  # z3 has no types
    means: Any
    claim: str = ""
    flag: str = ""


@dataclass(frozen=True, slots=True)
class _Formulas:
    """A condition for Z3: what is satisfiable if and only if the condition does not hold, and apart from it the hypotheses."""

    base: tuple[Any, ...]
    hypotheses: tuple[_Literal, ...]


@dataclass(frozen=True, slots=True)
class _Failed:
    """A condition that was not proved with the flag values `given`, without the claims in `struck`, within `limit`."""

    result: ConditionResult
    given: Flags
    struck: frozenset[str]
    limit: int


class FlaggedProofs:
    """Proves claims of one system under one assignment after the other. `varied` names the flags that assignments differ in: a
    proof is made to use as few of them as possible."""

    def __init__(self, system: TransitionSystem, varied: Collection[str], *, seed: int = 0) -> None:
        self.solver = ConditionSolver(system, all_flags=True, seed=seed)
        self.induction = self.solver.induction
        self.varied = frozenset(varied)
        self._formulas: dict[tuple[str, str], _Formulas] = {}
        self._literals: dict[str, _Literal] = {}
        self._flags = self.solver.formulas.flags
        self._not_flags = {flag: z3.Not(term) for flag, term in self._flags.items()}
        self.deadline: float | None = None
        self._known: dict[tuple[str, str], list[_Known]] = {}
        self._failed: dict[tuple[str, str], list[_Failed]] = {}
        self.asked = 0

    def prove(
        self,
        name: str,
        flags: Mapping[str, bool],
        without: Collection[str] = (),
        *,
        limit: int = THOROUGH,
        deadline: float | None = None,
    ) -> FlaggedProof | Unproved:
        """A proof of the claim called `name` under `flags` (a value for each flag), or the condition of it that failed.

        Claims in `without` are known to be violated, so that nobody tries to prove them. Starting from all other claims, one
        that turns out not to be kept is struck, and what rested on it is asked again: the rest is the largest inductive set
        of claims, as far as the solver can tell, or at least what `name` needs of it. Raises TimeoutError when the clock
        (`time.monotonic`) has passed `deadline`; what was proved until then is kept.
        """
        self.deadline = deadline
        started = time.monotonic()
        struck = set(without) - {name}
        while True:
            done: dict[str, ConditionResult] = {}
            needs: set[tuple[str, bool]] = set()
            claims, waiting = {name: None}, [name]
            broken = ""
            while waiting and not broken:
                claim = waiting.pop()
                for step in self.induction.steps(claim):
                    known = self._condition(step, claim, flags, struck, limit)
                    if not isinstance(known, _Known):
                        broken = claim
                        failed = known
                        break
                    done[known.result.name] = known.result
                    needs |= known.needs
                    for used in sorted(known.result.used):
                        if used not in claims:
                            claims[used] = None
                            waiting.append(used)
            if not broken:
                return FlaggedProof(tuple(sorted(needs)), tuple(claims), tuple(done.values()), time.monotonic() - started)
            if broken == name:
                return Unproved(failed.name, failed.reason or "the claims given do not imply it")
            struck.add(broken)

    def _condition(
        self, step: str, claim: str, flags: Mapping[str, bool], struck: Collection[str], limit: int
    ) -> _Known | ConditionResult:
        given = frozenset(flags.items())
        known = self._known.setdefault((step, claim), [])
        for entry in known:
            if entry.needs <= given and entry.result.used.isdisjoint(struck):
                return entry
        free = self._ask(step, claim, frozenset(), struck, QUICK)
        result = free if free.answer is Answer.PROVED else self._ask(step, claim, given, struck, limit)
        if result.answer is not Answer.PROVED:
            return result
        needs = frozenset(pair for pair in given if pair[0] in result.flags)
        for pair in sorted(needs):  # a proof that is found first may use more flags than it has to
            if pair in needs and pair[0] in self.varied:
                fewer = self._ask(step, claim, needs - {pair}, struck, QUICK)
                if fewer.answer is Answer.PROVED:
                    result, needs = fewer, frozenset(kept for kept in needs if kept[0] in fewer.flags)
        found = _Known(result, needs)
        known.append(found)
        known.sort(key=lambda entry: len(entry.needs))
        return found

    def _ask(self, step: str, claim: str, given: Flags, struck: Collection[str], limit: int) -> ConditionResult:
        """The answer for a condition, where it does not follow from one that is known to have failed with more to go on."""
        failed = self._failed.setdefault((step, claim), [])
        for entry in failed:
            if entry.limit >= limit and given <= entry.given and entry.struck <= frozenset(struck):
                return entry.result
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise TimeoutError
        self.asked += 1
        result = self._solve(step, claim, dict(given), struck, limit)
        if result.answer is not Answer.PROVED:
            failed.append(_Failed(result, given, frozenset(struck), limit))
        return result

    def _solve(self, step: str, claim: str, given: Mapping[str, bool], struck: Collection[str], limit: int) -> ConditionResult:
        """Ask Z3 for a proof: with the claim's own hypotheses, which most conditions need at most; with those of lemmas, which
        seldom depend on flags; and then with all that are left.

        Whether a condition that is not proved has a counterexample is not asked: that is the question of an exploration.
        """
        started = time.monotonic()
        try:
            formulas = self._formulas_of(step, claim)
        except NotFirstOrder as problem:
            return ConditionResult(step, claim, Answer.UNKNOWN, reason=f"{problem} ({problem.at})")
        alive = [literal for literal in formulas.hypotheses if literal.claim not in struck]
        answer, reason = Answer.UNKNOWN, ""
        own = [literal for literal in alive if literal.claim == claim]
        lemmas = [literal for literal in alive if literal.claim == claim or self.induction.claims[literal.claim].lemma]
        for tried in (own, lemmas, alive):
            solver = self.solver.fresh(limit)
            solver.set("ctrl_c", False)  # Z3 would take the signal for itself, and give the answer of a limit that is reached
            solver.add(*formulas.base)
            uses: dict[int, _Literal] = {}
            for literal in tried:
                solver.add(literal.means)
                uses[literal.term.get_id()] = literal
            for flag, value in given.items():
                term = self._flags[flag] if value else self._not_flags[flag]
                uses[term.get_id()] = _Literal(term, None, flag=flag)
            result = solver.check(*(literal.term for literal in uses.values()))
            if result == z3.unsat:
                core = [uses[term.get_id()] for term in solver.unsat_core()]
                return ConditionResult(
                    step,
                    claim,
                    Answer.PROVED,
                    frozenset(literal.claim for literal in core if literal.claim),
                    frozenset(literal.flag for literal in core if literal.flag),
                    time.monotonic() - started,
                )
            reason = "the claims given do not imply it" if result == z3.sat else f"Z3 gave up ({solver.reason_unknown()})"
            answer = Answer.REFUTED if result == z3.sat else Answer.UNKNOWN
        return ConditionResult(step, claim, answer, seconds=time.monotonic() - started, reason=reason)

    def _formulas_of(self, step: str, claim: str) -> _Formulas:
        if (step, claim) not in self._formulas:
            base, hypotheses = self.solver.formulas.negated(self.induction.condition(step, claim))
            self._formulas[step, claim] = _Formulas(tuple(base), tuple(self._literal(*entry) for entry in hypotheses.items()))
        return self._formulas[step, claim]

    def _literal(self, label: str, formula: Any) -> _Literal:
        """The literal of a hypothesis, which is the same in every condition."""
        if label not in self._literals:
            term = z3.Bool(f"use {label}", ctx=self.solver.formulas.context)
            self._literals[label] = _Literal(term, z3.Implies(term, formula), claim=label.partition(":")[2])
        return self._literals[label]
