"""Seeded random walks: a quick look at deep runs of instances that are too large to explore.

A walk chooses among *enabled* steps, never among rules: first an action, with a bias to those fired less often so far,
then one of its bindings, with a bias to successor states seen less often. A walk proves nothing: its coverage is
`sampled`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random

from kvmodel.language.instance import Instance, State
from kvmodel.language.system import PropertyKind
from kvmodel.readings.replay import make_trace
from kvmodel.readings.sampled import Move, Run, Sampler, Sight, judge
from kvmodel.readings.shrink import shrink
from kvmodel.traces.trace import Choice
from kvmodel.verdict import Coverage, PropertyResult, Result, overall

__all__ = ["Walker", "walk"]

MOST_SEEN = 1_000_000  # states whose visits are counted; later new ones count as never seen
SOMETIMES_PLAIN = 0.25  # share of steps that are chosen without bias among the enabled ones


class Walker:
    """Walks an instance at random. `fired` counts steps by action, `seen` visits by state; `found` has the shortest run
    met so far for each property that was violated (or, for `@reachable`, shown)."""

    def __init__(self, sampler: Sampler, seed: int) -> None:
        self.sampler = sampler
        self.random = Random(seed)
        self.fired = {action.name: 0 for action in sampler.instance.system.actions}
        self.seen: dict[State, int] = {}
        self.found: dict[str, Run] = {}
        self.taken = 0
        self._starts: list[State] = []

    def run(self, steps: int) -> None:
        """One walk of at most `steps` steps; it ends early where nothing is enabled."""
        start = self._start()
        watched = self.sampler.steps(start.rigid)
        values = start.values
        choices: list[Choice] = []
        while True:
            state = State(start.rigid, values)
            if state in self.seen or len(self.seen) < MOST_SEEN:
                self.seen[state] = self.seen.get(state, 0) + 1
            sight = watched.look(values)
            self._note(start, choices, (*sight.violated, *sight.shown))
            if not sight.moves or len(choices) == steps:
                return
            move = self._choose(start, sight)
            choices.append(move.choice)
            self.fired[move.choice.action] += 1
            self.taken += 1
            self._note(start, choices, watched.broken(values, move))
            values = move.after

    def _start(self) -> State:
        """Every initial state once, in random order, before any is taken again."""
        if not self._starts:
            self._starts = list(self.sampler.starts)
            self.random.shuffle(self._starts)
        return self._starts.pop()

    def _note(self, start: State, choices: list[Choice], names: tuple[str, ...]) -> None:
        for name in names:
            if name not in self.found or len(choices) < len(self.found[name]):
                self.found[name] = Run(start, tuple(choices))

    def _choose(self, start: State, sight: Sight) -> Move:
        if self.random.random() < SOMETIMES_PLAIN:
            moves = [move for found in sight.moves.values() for move in found]
            return moves[self.random.randrange(len(moves))]
        actions = list(sight.moves)
        action = actions[self._pick([self.fired[name] for name in actions])]
        moves = list(sight.moves[action])
        return moves[self._pick([self.seen.get(State(start.rigid, move.after), 0) for move in moves])]

    def _pick(self, counts: list[int]) -> int:
        """A position in `counts`, likely one with a small count."""
        if len(counts) == 1:
            return 0
        return self.random.choices(range(len(counts)), [1 / (1 + count) for count in counts])[0]


def walk(
    instance: Instance,
    properties: Sequence[str] = (),
    *,
    runs: int,
    steps: int,
    seed: int = 0,
    timeout: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> Result:
    """Walk `instance` at random, `runs` times up to `steps` steps, and judge its properties (all, or the named ones).

    One seed gives one result. Violations are shrunk by leaving out steps (`readings.shrink`) and replayed. A property
    that was not violated `holds` with coverage `sampled`; a `@reachable` one that was not seen is undecided. Stops early
    after `timeout` seconds or at Ctrl-C: what is then not violated is undecided. `Result.fired` counts the steps of each
    action. Raises UsageError for an unknown property or contradictory assumptions.
    """
    started = time.monotonic()
    system = instance.system
    asked = tuple(system.property(name) for name in properties) or system.properties
    walker = Walker(Sampler(instance, asked), seed)
    done, stopped = 0, ""
    told = started
    try:
        while done < runs:
            walker.run(steps)
            done += 1
            now = time.monotonic()
            if timeout is not None and now - started > timeout and done < runs:
                stopped = f"timeout after {done:,} of {runs:,} runs"
                break
            if progress is not None and now - told > 0.3:
                told = now
                progress(f"{done:,} of {runs:,} runs, {walker.taken:,} steps, {len(walker.seen):,} states")
    except KeyboardInterrupt:
        stopped = f"interrupted after {done:,} of {runs:,} runs"
    coverage = Coverage(instance.size_options(), steps, done, tuple(system.flag_values.items()))
    results = []
    for candidate in asked:
        verdict, reason = judge(candidate, coverage, walker.found, stopped)
        trace = None
        if candidate.name in walker.found:
            run = walker.found[candidate.name]
            with suppress(KeyboardInterrupt):  # a run that is found is shown, shrunk or not
                run = shrink(walker.sampler, run, candidate.name)
            trace = make_trace(instance, run.start, run.steps, candidate.name)
        results.append(PropertyResult(candidate.name, verdict, coverage, trace, reason, candidate.kind is PropertyKind.REACHABLE))
    return Result(
        system.name,
        "walk",
        overall(tuple(results)),
        coverage,
        tuple(results),
        (),
        (("runs", done), ("steps", walker.taken), ("states", len(walker.seen)), ("seed", seed)),
        time.monotonic() - started,
        tuple(properties),
        tuple(walker.fired.items()),
    )
