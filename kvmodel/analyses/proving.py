"""From a proof to verdicts: what is not proved is looked for on a finite instance, and is violated only with a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kvmodel.analyses.estimate import states_that_fit
from kvmodel.errors import InternalError
from kvmodel.language.instance import Instance
from kvmodel.language.system import TransitionSystem
from kvmodel.readings.conditions import INITIALLY
from kvmodel.readings.counterexample import Induced, Reached, reached
from kvmodel.readings.explore import explore
from kvmodel.readings.induction import Proof, prove
from kvmodel.readings.solver import LIMIT, Answer, ConditionResult
from kvmodel.verdict import Coverage, Finding, FindingKind, PropertyResult, Result, Verdict, overall

__all__ = ["Proving", "Unproved", "prove_properties"]

Progress = Callable[[str], None]
PATIENCE = 60.0  # seconds for a look for a run, unless there is a timeout


@dataclass(frozen=True)
class Unproved:
    """A counterexample to induction for a property that is not decided, and whether a run gets to its first state."""

    induced: Induced
    reached: Reached


@dataclass(frozen=True)
class Proving:
    """The verdicts of `kvmodel prove` with their evidence."""

    result: Result
    proof: Proof
    unproved: tuple[Unproved, ...] = ()


def prove_properties(
    system: TransitionSystem,
    properties: Sequence[str] = (),
    *,
    all_flags: bool = False,
    timeout: float | None = None,
    seed: int = 0,
    limit: int = LIMIT,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Proving:
    """Prove properties (all, or the named ones) for any number of elements, and look for a run that violates what is not proved.

    A property that is not proved is explored at the spec's default size (with the flags of its counterexample to induction,
    where flags were left open), and where that counterexample starts from a reachable state, at its size. Without a run it is
    undecided. Raises as `readings.induction.prove` does.
    """
    started = time.monotonic()
    proof = prove(system, properties, all_flags=all_flags, timeout=timeout, seed=seed, limit=limit, jobs=jobs, progress=progress)
    flags = None if all_flags else tuple(system.flag_values.items())
    covered = Coverage(flags=flags)
    remaining = PATIENCE if timeout is None else max(0.1, timeout - (time.monotonic() - started))
    open_names = tuple(name for name in proof.asked if not proof.proved(name))
    found: dict[str, PropertyResult] = {}
    stopped = proof.stopped
    try:
        if open_names and not stopped:
            found = _explored(system, proof, open_names, remaining, progress)
        unproved = tuple(
            Unproved(proof.counterexamples[name], reached(proof.counterexamples[name]))
            for name in open_names
            if name in proof.counterexamples and found.get(name, _NOTHING).verdict is not Verdict.VIOLATED
        )
        for entry in unproved:
            if entry.reached is Reached.YES and entry.induced.claim in open_names:
                found |= _violated(entry.induced.instance, (entry.induced.claim,), remaining, progress)
    except KeyboardInterrupt:
        stopped, unproved = "interrupted", ()
    results = tuple(_judged(name, proof, found, covered, stopped) for name in proof.asked)
    statistics: tuple[tuple[str, int | float | str], ...] = (("conditions", len(proof.conditions)), ("claims", len(proof.claims)))
    verdict = overall(results)
    coverage = next((entry.coverage for entry in results if entry.verdict is verdict), covered)
    result = Result(
        system.name, "prove", verdict, coverage, results, _findings(proof),
        statistics=statistics, seconds=time.monotonic() - started, asked=tuple(properties),
    )  # fmt: skip
    decided = {entry.name for entry in results if entry.verdict is Verdict.VIOLATED}
    return Proving(result, proof, tuple(entry for entry in unproved if entry.induced.claim not in decided))


def _findings(proof: Proof) -> tuple[Finding, ...]:
    actions = (proof.system.action(name) for name in proof.never)
    message = "no state that satisfies what is proved enables it, at any size"
    return tuple(Finding(FindingKind.ACTION_NEVER_FIRED, action.name, str(action.at), message) for action in actions)


_NOTHING = PropertyResult("", Verdict.UNDECIDED, Coverage())


def _explored(
    system: TransitionSystem, proof: Proof, names: Sequence[str], timeout: float | None, progress: Progress | None
) -> dict[str, PropertyResult]:
    """What exploring finds at the default size, for each assignment of flags that some counterexample to induction has."""
    by_flags: dict[tuple[tuple[str, bool], ...], list[str]] = {}
    for name in names:
        chosen = proof.counterexamples[name].instance.system if name in proof.counterexamples else system
        by_flags.setdefault(tuple(chosen.flag_values.items()), []).append(name)
    found: dict[str, PropertyResult] = {}
    for flags, asked in by_flags.items():
        values = dict(flags)
        chosen = replace(system, flags=tuple(replace(flag, value=values[flag.name]) for flag in system.flags))
        found |= _entries(Instance.make(chosen), asked, timeout, progress)
    return found


def _entries(instance: Instance, names: Sequence[str], timeout: float | None, progress: Progress | None) -> dict[str, PropertyResult]:
    result = explore(instance, names, timeout=timeout, limit=states_that_fit(instance), progress=progress)
    return {entry.name: entry for entry in result.properties}


def _violated(instance: Instance, names: Sequence[str], timeout: float | None, progress: Progress | None) -> dict[str, PropertyResult]:
    entries = _entries(instance, names, timeout, progress)
    return {name: entry for name, entry in entries.items() if entry.verdict is Verdict.VIOLATED}


def _judged(name: str, proof: Proof, found: Mapping[str, PropertyResult], covered: Coverage, stopped: str) -> PropertyResult:
    entry = found.get(name)
    if proof.proved(name):
        if entry is not None and entry.verdict is Verdict.VIOLATED:
            raise InternalError(f"{name} is proved for any size and violated at {entry.coverage}: a defect of kvmodel, please report it")
        return PropertyResult(name, Verdict.HOLDS, covered)
    if entry is not None and entry.verdict is Verdict.VIOLATED:
        return entry
    why = _reason(proof.open.get(name), stopped)
    if entry is not None and entry.verdict is Verdict.HOLDS:
        why = f"{why}; no violation at {entry.coverage}"
    nothing = replace(covered, size=Instance.make(proof.system).size_options(), steps=0)
    return PropertyResult(name, Verdict.UNDECIDED, nothing if entry is None else entry.coverage, reason=why)


def _reason(result: ConditionResult | None, stopped: str) -> str:
    if result is None:
        return stopped or "a claim that its proof needs is open"
    if result.answer is Answer.UNKNOWN:
        return f"open condition {result.name}: {result.reason}"
    where = "an initial state may not satisfy it" if result.step == INITIALLY else "not inductive"
    return f"{where}: {result.name}"
