"""What a check answers: a verdict, how much was covered, and what else was noticed.

The same words are used in the API, on the command line, in JSON and in pytest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvmodel.traces.trace import Trace

__all__ = ["Coverage", "Finding", "FindingKind", "PropertyResult", "Result", "Verdict", "overall"]


class Verdict(Enum):
    """The answer to what was asked."""

    HOLDS = "holds"
    VIOLATED = "violated"
    UNDECIDED = "undecided"  # what was asked was not completed; never a pass


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much a verdict covers.

    `size`: the sizes of the instance as a user would ask for them, or None for any size. `steps`: every run up to that
    many steps, or None for all. `runs`: how many sampled runs, or None for all. `flags`: the effective flags as
    (name, value), or None for every assignment.
    """

    size: tuple[tuple[str, int], ...] | None = None
    steps: int | None = None
    runs: int | None = None
    flags: tuple[tuple[str, bool], ...] | None = None

    @property
    def word(self) -> str:
        """``any size``, ``this size``, ``this depth`` or ``sampled``."""
        if self.runs is not None:
            return "sampled"
        if self.steps is not None:
            return "this depth"
        return "any size" if self.size is None else "this size"

    def __str__(self) -> str:
        parts = []
        if self.size is not None:
            parts.append(" ".join(f"{name}={count}" for name, count in self.size))
        if self.steps is not None:
            parts.append(f"up to {self.steps} steps")
        if self.runs is not None:
            parts.append(f"{self.runs:,} runs")
        return f"{self.word} ({', '.join(parts)})" if parts else self.word


class FindingKind(Enum):
    """A kind of vacuity: something that makes a pass mean less than it seems to."""

    ACTION_NEVER_FIRED = "action never fired"
    GUARD_NEVER_DECIDED = "guard never decided"
    PREMISE_NEVER_TRUE = "premise never true"
    SORT_UNUSED = "sort unused"
    NOTHING_HAPPENED = "nothing happened"


@dataclass(frozen=True, slots=True)
class Finding:
    """One vacuity finding: its kind, what it is about, where that is written, and a sentence."""

    kind: FindingKind
    subject: str
    where: str
    message: str


@dataclass(frozen=True, slots=True)
class PropertyResult:
    """The answer for one property.

    `trace` is a shortest violation, or for a `@reachable` property that holds, a shortest witness; `length` is its
    number of steps. `reason` says why a verdict is undecided, or what a `this size` from a bounded check rests on.
    """

    name: str
    verdict: Verdict
    coverage: Coverage
    trace: Trace | None = None
    reason: str = ""
    reachable: bool = False

    @property
    def length(self) -> int | None:
        return None if self.trace is None else len(self.trace.steps)


@dataclass(frozen=True)
class Result:
    """The answer of a check: of every property, and of all together.

    `trace` is the headline: the first violated of the property that was asked for, `isolated_read`, and the others in
    order. `statistics` are counts that the method has to tell (states, transitions, depth, ...).
    """

    spec: str
    method: str
    verdict: Verdict
    coverage: Coverage
    properties: tuple[PropertyResult, ...]
    findings: tuple[Finding, ...] = ()
    statistics: tuple[tuple[str, int | float | str], ...] = ()
    seconds: float = field(default=0.0, compare=False)
    asked: tuple[str, ...] = ()
    fired: tuple[tuple[str, int], ...] = ()

    @property
    def violated(self) -> tuple[PropertyResult, ...]:
        """The violated properties: those asked for, `isolated_read`, the others in order."""
        first = [*self.asked, "isolated_read"]
        found = [result for result in self.properties if result.verdict is Verdict.VIOLATED]
        return tuple(sorted(found, key=lambda result: first.index(result.name) if result.name in first else len(first)))

    @property
    def headline(self) -> PropertyResult | None:
        """The violated property that is told first: one with a trace, if there is any (a behaviour that is not possible
        has none)."""
        return next((result for result in self.violated if result.trace is not None), next(iter(self.violated), None))

    @property
    def trace(self) -> Trace | None:
        headline = self.headline
        return None if headline is None else headline.trace

    def __getitem__(self, name: str) -> PropertyResult:
        for result in self.properties:
            if result.name == name:
                return result
        raise KeyError(name)


def overall(results: tuple[PropertyResult, ...]) -> Verdict:
    """Violated if any property is, otherwise undecided if any is, otherwise holds."""
    verdicts = {result.verdict for result in results}
    if Verdict.VIOLATED in verdicts:
        return Verdict.VIOLATED
    return Verdict.UNDECIDED if Verdict.UNDECIDED in verdicts or not results else Verdict.HOLDS
