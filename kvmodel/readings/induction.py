"""The inductive reading: properties of every run at any size, proved by Z3 from the lemmas of the spec.

The claims that help (invariants, ranges and lemmas) are struck out as long as one of them is refuted with the others as
hypotheses (Houdini: Flanagan and Leino, FME 2001). What is left is the largest inductive set, whatever the order. Only
what the asked properties need is looked at: the claims that a proof used are proved in turn.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from kvmodel.errors import UsageError
from kvmodel.language.expressions import FALSE
from kvmodel.language.system import PropertyKind, TransitionSystem
from kvmodel.readings.conditions import NEVER, Induction
from kvmodel.readings.counterexample import Induced, smallest
from kvmodel.readings.solver import LIMIT, Answer, ConditionResult, ConditionSolver

__all__ = ["Proof", "provable", "prove"]

Ask: TypeAlias = "Callable[[str, str, frozenset[str]], Future[ConditionResult]]"
BETWEEN_PROGRESS = 0.25  # seconds
MOST_PROCESSES = 4


@dataclass(frozen=True)
class Proof:
    """What was found about the properties that were asked for.

    `claims` are the claims of an inductive set that shows every proved property; `conditions` are their conditions, each
    proved with the claims that it names. `open` maps every other claim that was looked at to why it is not in that set: a
    refuted condition, one that the solver gave up on, or the reason why the search was stopped.
    """

    system: TransitionSystem
    all_flags: bool
    asked: tuple[str, ...]
    claims: tuple[str, ...]
    conditions: tuple[ConditionResult, ...]
    open: Mapping[str, ConditionResult]
    counterexamples: Mapping[str, Induced] = field(default_factory=dict)
    never: tuple[str, ...] = ()
    """Actions that no state of the inductive set enables: what makes a proof mean less than it seems to."""
    stopped: str = ""
    seconds: float = field(default=0.0, compare=False)

    def proved(self, name: str) -> bool:
        """Whether the property or lemma called `name` holds at any size."""
        return name in self.claims


def provable(system: TransitionSystem, names: Sequence[str] = ()) -> tuple[str, ...]:
    """The properties called `names`, or all that a proof can be about. Raises UsageError for an unknown or a `@reachable` one."""
    for name in names:
        if system.property(name).kind is PropertyKind.REACHABLE:
            raise UsageError(
                f"'{name}' says that something is possible: a run shows that, and no proof does\n    kvmodel check {system.name} {name}"
            )
    return tuple(names) or tuple(p.name for p in system.properties if p.kind is not PropertyKind.REACHABLE)


def prove(
    system: TransitionSystem,
    properties: Sequence[str] = (),
    *,
    all_flags: bool = False,
    timeout: float | None = None,
    seed: int = 0,
    limit: int = LIMIT,
    jobs: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Proof:
    """Prove properties (all, or the named ones) for every number of elements of every sort.

    Flags have their effective values; with `all_flags` the proof is for every assignment at once. `limit` bounds Z3's work on
    one condition. `jobs` is the number of processes (None: one for each core, up to four; 1: no process is started). After
    `timeout` seconds, or at Ctrl-C, what is open stays so. Raises UsageError for an unknown property or a `@reachable` one.
    """
    started = time.monotonic()
    asked = provable(system, properties)
    search = _Search(Induction(system, all_flags=all_flags), asked)
    deadline = None if timeout is None else started + timeout
    stopped = ""
    processes = min(os.cpu_count() or 1, MOST_PROCESSES) if jobs is None else jobs
    with _workers(system, all_flags, seed, limit, processes) as ask:
        never: tuple[str, ...] = ()
        try:
            search.run(ask, deadline, progress, 2 * processes)
            never = _never(search, ask)
        except KeyboardInterrupt:
            stopped = "interrupted"
        except TimeoutError:
            stopped = f"stopped after {timeout:g} seconds"
    claims = search.inductive()
    counterexamples = {}
    if not stopped:
        solver = ConditionSolver(system, all_flags=all_flags, seed=seed, limit=limit)
        for name in asked:
            result = search.struck.get(name)
            if result is not None and result.answer is Answer.REFUTED:
                found = smallest(solver, result.step, name, search.alive)
                if found is not None:
                    counterexamples[name] = found
    conditions = tuple(result for (_, claim), result in search.proved.items() if claim in claims)
    seconds = time.monotonic() - started
    return Proof(system, all_flags, asked, tuple(claims), conditions, dict(search.struck), counterexamples, never, stopped, seconds)


class _Search:
    """The claims that are needed, those that are struck out, and the conditions that are proved, until nothing changes."""

    def __init__(self, induction: Induction, asked: Sequence[str]) -> None:
        self.induction = induction
        self.alive = frozenset(name for name, claim in induction.claims.items() if not claim.derived)
        self.asked = asked
        self.needed: dict[str, None] = dict.fromkeys(asked)
        self.struck: dict[str, ConditionResult] = {}
        self.proved: dict[tuple[str, str], ConditionResult] = {}
        self.pending: dict[tuple[str, str], None] = {}
        for name in asked:
            self._add(name)

    def _add(self, name: str) -> None:
        self.needed[name] = None
        self.pending |= dict.fromkeys((step, name) for step in self.induction.steps(name))

    def run(self, ask: Ask, deadline: float | None, progress: Callable[[str], None] | None, ahead: int) -> None:
        """Ask until every needed claim is proved or struck. Raises TimeoutError after `deadline`."""
        running: dict[Future[ConditionResult], tuple[frozenset[str], tuple[str, str]]] = {}
        told = 0.0
        while self.pending or running:
            while self.pending and len(running) < ahead:
                key = next(iter(self.pending))
                del self.pending[key]
                running[ask(*key, self.alive)] = (self.alive, key)
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError
            done, _ = wait(running, timeout=BETWEEN_PROGRESS, return_when=FIRST_COMPLETED)
            for future in [future for future in running if future in done]:  # in the order asked
                hypotheses, key = running.pop(future)
                self._take(future.result(), hypotheses)
            if progress is not None and time.monotonic() > told + BETWEEN_PROGRESS:
                told = time.monotonic()
                waiting = len(self.pending) + len(running)
                progress(f"{len(self.proved)} conditions proved, {waiting} open, {len(self.struck)} claims struck out")

    def _take(self, result: ConditionResult, hypotheses: frozenset[str]) -> None:
        if result.claim in self.struck:
            return
        key = (result.step, result.claim)
        if result.answer is Answer.PROVED:
            if result.used <= self.alive:
                self.proved[key] = result
                for name in sorted(result.used):
                    if name not in self.needed:
                        self._add(name)
            else:  # a claim that it used was struck out in the meantime
                self.pending[key] = None
        elif result.answer is Answer.UNKNOWN and not hypotheses <= self.alive:
            self.pending[key] = None  # with fewer hypotheses it may be refuted
        else:
            self._strike(result)

    def _strike(self, result: ConditionResult) -> None:
        name = result.claim
        self.struck[name] = result
        self.alive -= {name}
        self.pending = {key: None for key in self.pending if key[1] != name}
        again = [key for key, proof in self.proved.items() if name in proof.used]
        for key in again:
            del self.proved[key]
            if key[1] not in self.struck:
                self.pending[key] = None

    def inductive(self) -> list[str]:
        """The claims whose proofs are complete, with those that these proofs use."""
        done = {name for name in self.needed if all((step, name) in self.proved for step in self.induction.steps(name))}
        while True:
            kept = {name for name in done if all(self.proved[step, name].used <= done for step in self.induction.steps(name))}
            if kept == done:
                break
            done = kept
        wanted: dict[str, None] = {}
        pending = [name for name in self.asked if name in done]
        while pending:
            name = pending.pop(0)
            if name not in wanted:
                wanted[name] = None
                pending += sorted(used for step in self.induction.steps(name) for used in self.proved[step, name].used)
        return [name for name in self.induction.claims if name in wanted]


def _never(search: _Search, ask: Ask) -> tuple[str, ...]:
    """The actions that the inductive set shows to be enabled in no state, but for those that flags switch off."""
    claims = frozenset(search.inductive())
    actions = [a for a in search.induction.actions.values() if all(guard.condition != FALSE for guard in a.guards)]
    waiting = {action.name: ask(action.name, NEVER, claims) for action in actions}
    return tuple(name for name, future in waiting.items() if future.result().answer is Answer.PROVED)


_solver: ConditionSolver  # of a worker process, which is told once what it works on


def _begin(system: TransitionSystem, all_flags: bool, seed: int, limit: int) -> None:
    import signal

    global _solver
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that people see
    _solver = ConditionSolver(system, all_flags=all_flags, seed=seed, limit=limit)


def _work(step: str, claim: str, alive: frozenset[str]) -> ConditionResult:
    return _solver.check(step, claim, alive)


@contextmanager
def _workers(system: TransitionSystem, all_flags: bool, seed: int, limit: int, processes: int) -> Iterator[Ask]:
    """A function that asks about a condition, here or in other processes, which are stopped at the end whatever they do."""
    if processes <= 1:
        solver = ConditionSolver(system, all_flags=all_flags, seed=seed, limit=limit)

        def here(step: str, claim: str, alive: frozenset[str]) -> Future[ConditionResult]:
            future: Future[ConditionResult] = Future()
            future.set_result(solver.check(step, claim, alive))
            return future

        yield here
        return
    pool = ProcessPoolExecutor(processes, initializer=_begin, initargs=(system, all_flags, seed, limit))
    try:
        yield lambda step, claim, alive: pool.submit(_work, step, claim, alive)
    finally:
        running: Iterable[object] = list(getattr(pool, "_processes", None) or {})
        pool.shutdown(wait=False, cancel_futures=True)
        _stop(running)


def _stop(processes: Iterable[object]) -> None:
    """End worker processes at once: a solver in the middle of a condition does not listen."""
    import signal

    for number in processes:
        if isinstance(number, int):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
