"""Which defences are enough for a property, and which are not: every assignment of a system's flags, proved or violated.

Two kinds of evidence cover the assignments. A proof for any size covers those that agree on the flags whose values it used
(`FlaggedProofs`). A run that violates the property covers those under which the same steps are such a run (`ManyWorlds`).
Each is looked for under one assignment that nothing covers yet, until everything is covered. That more defences are never
worse is not assumed anywhere: whether it is so is a result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kvmodel.analyses.assignments import Assignments, Worlds
from kvmodel.analyses.estimate import refuse_endless
from kvmodel.analyses.flagged_proofs import QUICK, THOROUGH, FlaggedProof, FlaggedProofs
from kvmodel.analyses.worlds import ManyWorlds
from kvmodel.errors import InternalError, UsageError
from kvmodel.language.instance import Instance, State
from kvmodel.language.system import FlagKind, Property, PropertyKind, TransitionSystem
from kvmodel.readings.explore import reachable
from kvmodel.readings.replay import make_trace
from kvmodel.traces.trace import Choice, Trace

__all__ = ["Defences", "Enough", "NotEnough", "Reversal", "Undecided", "defences", "varied_flags"]

MOST_FLAGS = 16
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Enough:
    """A minimal set: with the flags in `on` and no other the property is proved for any size, and with fewer it is not."""

    on: tuple[str, ...]
    proof: FlaggedProof


@dataclass(frozen=True)
class NotEnough:
    """A maximal set: with the flags in `on` and no other the property is violated, as `trace` shows, and with more it is not."""

    on: tuple[str, ...]
    trace: Trace

    @property
    def length(self) -> int:
        """Steps of the run: as few as possible at its size."""
        return len(self.trace.steps)


@dataclass(frozen=True, slots=True)
class Undecided:
    """With the flags in `on` and no other the property was neither proved nor violated."""

    on: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Reversal:
    """With the flags in `on` the property is proved; with `flag` on as well it is violated. `count`: of how many sets this is true."""

    flag: str
    on: tuple[str, ...]
    count: int


@dataclass(frozen=True)
class Defences:
    """What was found about the property `asked` under every assignment of `flags`; `fixed` are the other flags and their values.

    `proved`, `violated` and `open` are the sets of assignments by verdict, as `assignments` has them: disjoint, and together
    everything. `enough`, `not_enough` and `reversals` are drawn from them; while something is `open`, a set may be minimal or
    maximal only among those that are decided. `undecided` are the assignments that were tried in vain, `stopped` says why others
    were not tried. `size` is that of the instance that was explored for violations.
    """

    spec: str
    asked: str
    flags: tuple[str, ...]
    fixed: tuple[tuple[str, bool], ...]
    enough: tuple[Enough, ...]
    not_enough: tuple[NotEnough, ...]
    undecided: tuple[Undecided, ...]
    reversals: tuple[Reversal, ...]
    proved: Worlds
    violated: Worlds
    size: tuple[tuple[str, int], ...]
    proofs: int
    explorations: int
    stopped: str = ""
    seconds: float = field(default=0.0, compare=False)

    @property
    def assignments(self) -> Assignments:
        """The assignments that `proved` and `violated` are sets of."""
        return Assignments(self.flags)

    @property
    def open(self) -> Worlds:
        """The assignments that are neither proved nor violated."""
        return self.assignments.all & ~self.proved & ~self.violated

    @property
    def monotone(self) -> bool | None:
        """Whether switching on one more flag never makes a proved set a violated one; None while something is undecided."""
        if self.reversals:
            return False
        return None if self.open else True


@dataclass(frozen=True, slots=True)
class _Run:
    """A violating run: its first state, its steps, and the assignments under which they are one."""

    start: State
    steps: tuple[Choice, ...]
    worlds: Worlds


def varied_flags(system: TransitionSystem) -> tuple[str, ...]:
    """The flags of kind defence and sizing that the system reads, in order."""
    read = system.flags_read()
    return tuple(flag.name for flag in system.flags if flag.kind is not FlagKind.HAZARD and flag.name in read)


def defences(
    system: TransitionSystem,
    name: str,
    *,
    flags: Sequence[str] | None = None,
    sizes: Mapping[str, int] | None = None,
    timeout: float | None = None,
    prover: FlaggedProofs | None = None,
    progress: Progress | None = None,
) -> Defences:
    """Judge the property called `name` under every assignment of `flags` (None: all of kind defence and sizing); the other
    flags keep their effective values. Violations are looked for at `sizes` (left out: the spec's own), proofs are for any size.

    `prover` is one of the same system and flags, so that what it has proved already, perhaps for another property, is used again.
    After `timeout` seconds, or at Ctrl-C, what is not yet decided stays open. Raises UsageError for an unknown property, one
    that is `@reachable`, an unknown flag, no flag at all, or too many.
    """
    candidate = system.property(name)
    if candidate.kind is PropertyKind.REACHABLE:
        raise UsageError(f"'{name}' says that something is possible; defences are asked of what must always hold")
    varied = varied_flags(system) if flags is None else tuple(dict.fromkeys(flags))
    if not varied:
        raise UsageError(f"{system.name} has no flag of kind defence or sizing that is left open")
    system.with_flags(dict.fromkeys(varied, True))
    if len(varied) > MOST_FLAGS:
        raise UsageError(
            f"{len(varied)} flags have {1 << len(varied):,} assignments; leave at most {MOST_FLAGS} open (--flag and --no-flag set one)"
        )
    return _Search(system, candidate, Assignments(varied), sizes or {}, timeout, prover or FlaggedProofs(system, varied), progress).run()


class _Search:
    """Covers the assignments, one proof or run after the other."""

    def __init__(
        self,
        system: TransitionSystem,
        candidate: Property,
        assignments: Assignments,
        sizes: Mapping[str, int],
        timeout: float | None,
        prover: FlaggedProofs,
        progress: Progress | None,
    ) -> None:
        self.system = system
        self.candidate = candidate
        self.assignments = assignments
        self.sizes = sizes
        self.progress = progress
        self.started = time.monotonic()
        self.deadline = None if timeout is None else self.started + timeout
        self.instance = Instance.make(system, sizes)
        refuse_endless(self.instance, "explore")
        self.worlds = ManyWorlds(self.instance, assignments)
        self.prover = prover
        lemmas = (Property(part.name, PropertyKind.INVARIANT, part.parameters, part.condition) for part in system.lemmas)
        self.watched = (*(p for p in system.properties if p.kind is PropertyKind.INVARIANT or p == candidate), *lemmas)
        self.proofs: list[tuple[FlaggedProof, Worlds]] = []
        self.runs: dict[str, list[_Run]] = {}
        self.explored: set[int] = set()
        self.undecided: dict[int, str] = {}

    @property
    def proved(self) -> Worlds:
        found = 0
        for _, worlds in self.proofs:
            found |= worlds
        return found

    def violated(self, name: str) -> Worlds:
        """The assignments under which a known run violates a claim."""
        found = 0
        for run in self.runs.get(name, ()):
            found |= run.worlds
        return found

    def run(self) -> Defences:
        """Cover everything, then say what that comes to."""
        stopped = ""
        try:
            while (number := self._next()) is not None:
                self._tell()
                self._decide(number)
            for number in self.assignments.maximal(self.violated(self.candidate.name)):
                if number not in self.explored:  # a run that was found under other flags need not be a shortest one
                    self._tell()
                    self._explore(number)
        except TimeoutError:
            stopped = "timeout"
        except KeyboardInterrupt:
            stopped = "interrupted"
        return self._result(stopped)

    def _next(self) -> int | None:
        """An assignment that nothing covers, with as few flags on as possible: a proof for it can use no flag that it does not need."""
        tried = 0
        for number in self.undecided:
            tried |= 1 << number
        left = self.assignments.all & ~self.proved & ~self.violated(self.candidate.name) & ~tried
        return min(self.assignments.members(left), key=lambda number: (number.bit_count(), number)) if left else None

    def _tell(self) -> None:
        if self.progress is not None:
            done = (self.proved | self.violated(self.candidate.name)).bit_count()
            found = f"{len(self.proofs)} proofs, {len(self.explored)} explorations"
            self.progress(f"{done:,} of {self.assignments.count:,} sets of flags decided; {found}")

    def _flags(self, number: int) -> dict[str, bool]:
        return {**self.system.flag_values, **self.assignments.values(number)}

    def _decide(self, number: int) -> None:
        """Prove the property under one assignment, or find a run that violates it; otherwise note why neither was found."""
        if self._prove(number, QUICK) is None:
            return
        for tried in dict.fromkeys((self._grown(number), number)):
            self._explore(tried)
            if self.violated(self.candidate.name) >> number & 1:
                return
        reason = self._prove(number, THOROUGH)
        if reason is not None:
            self.undecided[number] = reason

    def _grown(self, number: int) -> int:
        """More and more flags on, as long as there is no quick proof: a run found there needs the fewest flags to be off."""
        for position in range(len(self.assignments.flags)):
            more = number | 1 << position
            if more != number and not self.proved >> more & 1 and self._prove(more, QUICK) is not None:
                number = more
        return number

    def _prove(self, number: int, limit: int) -> str | None:
        """Add a proof, or say why there is none."""
        without = [claim.name for claim in self.watched if self.violated(claim.name) >> number & 1]
        found = self.prover.prove(self.candidate.name, self._flags(number), without, limit=limit, deadline=self.deadline)
        if not isinstance(found, FlaggedProof):
            return f"no violation at {self.instance.describe_size()}, and {found.condition} was not proved: {found.reason}"
        worlds = self.assignments.cube({flag: value for flag, value in found.needs if flag in self.assignments.flags})
        self.proofs.append((found, worlds))
        self._require_disjoint()
        return None

    def _explore(self, number: int) -> None:
        """Add the shortest runs, under one assignment, that violate the property and the claims that might help to prove it."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise TimeoutError
        self.explored.add(number)
        system = self.system.with_flags(self.assignments.values(number))
        instance = Instance.make(system, self.sizes)
        left = None if self.deadline is None else max(self.deadline - time.monotonic(), 0.1)
        graph = reachable(instance, self.watched, timeout=left)
        for claim in self.watched:
            if claim.name in graph.seen:
                deployment, state, last = graph.seen[claim.name]
                start, steps = deployment.path(state)
                steps = steps if last is None else (*steps, last)
                run = _Run(start, steps, self.worlds.violating(start, steps, claim))
                if not run.worlds >> number & 1:
                    raise InternalError(f"a run that violates '{claim.name}' does not replay under the flags that it was found with")
                self.runs.setdefault(claim.name, []).append(run)
        self._require_disjoint()
        if graph.stopped.startswith("interrupted"):
            raise KeyboardInterrupt

    def _require_disjoint(self) -> None:
        both = self.proved & self.violated(self.candidate.name)
        if both:
            on = ", ".join(self.assignments.switched_on(next(self.assignments.members(both)))) or "none"
            raise InternalError(f"'{self.candidate.name}' of {self.system.name} is both proved and violated with these flags on: {on}")

    def _result(self, stopped: str) -> Defences:
        proved, violated = self.proved, self.violated(self.candidate.name)
        assignments = self.assignments
        return Defences(
            self.system.name,
            self.candidate.name,
            assignments.flags,
            tuple((flag, value) for flag, value in self.system.flag_values.items() if flag not in assignments.flags),
            tuple(Enough(assignments.switched_on(number), self._proof(number)) for number in assignments.minimal(proved)),
            tuple(NotEnough(assignments.switched_on(number), self._trace(number)) for number in assignments.maximal(violated)),
            tuple(Undecided(assignments.switched_on(number), reason) for number, reason in self.undecided.items()),
            tuple(self._reversals(proved, violated)),
            proved,
            violated,
            self.instance.size_options(),
            len(self.proofs),
            len(self.explored),
            stopped,
            time.monotonic() - self.started,
        )

    def _proof(self, number: int) -> FlaggedProof:
        """The smallest proof that covers an assignment."""
        return min((proof for proof, worlds in self.proofs if worlds >> number & 1), key=lambda proof: len(proof.conditions))

    def _trace(self, number: int) -> Trace:
        """The shortest run that is known for an assignment, replayed on the system with exactly these flags."""
        runs = [run for run in self.runs[self.candidate.name] if run.worlds >> number & 1]
        run = min(runs, key=lambda run: len(run.steps))
        instance = Instance.make(self.system.with_flags(self.assignments.values(number)), self.sizes)
        return make_trace(instance, run.start, run.steps, self.candidate.name)

    def _reversals(self, proved: Worlds, violated: Worlds) -> list[Reversal]:
        found = []
        for flag in self.assignments.flags:
            worse = self.assignments.more(proved, flag) & violated
            if worse:
                before = self.assignments.fewer(worse, flag)
                found.append(Reversal(flag, self.assignments.switched_on(self.assignments.minimal(before)[0]), worse.bit_count()))
        return found
