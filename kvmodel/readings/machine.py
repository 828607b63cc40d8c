"""The Hypothesis reading: a spec as a `RuleBasedStateMachine`, on Hypothesis' public interface only.

There is one rule for each action, so that a printed run names actions. Everything that a run depends on is drawn, and
nothing that is drawn changes its meaning when something before it is deleted: a rule draws an index into the *full* list
of bindings of its action and takes the next enabled one. That is what lets Hypothesis shrink a run.

Two things make deep runs likely:

- Hypothesis switches off a random part of a machine's rules in each run (swarm testing), by their function's name. A
  protocol needs nearly all of its actions to get anywhere, so most runs would end early. All rules share one name here,
  and are told apart by the name of their argument: ``state.step(reject=0)``.
- A drawn *schedule* prefers actions that have become enabled lately (`_Schedule`). A uniform choice is lost in what is
  always possible, such as an abort. Schedule 0, to which Hypothesis shrinks, prefers nothing.

Import this module where it is needed: it imports Hypothesis.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from random import Random
from typing import Any, ClassVar

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, strategies
from hypothesis.errors import Unsatisfiable
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from kvmodel.language.instance import Instance, Values
from kvmodel.language.system import Action, PropertyKind, TransitionSystem
from kvmodel.readings.replay import make_trace
from kvmodel.readings.sampled import Run, Sampler, describe_run, judge
from kvmodel.readings.shrink import shrink
from kvmodel.traces.trace import Choice
from kvmodel.verdict import Coverage, PropertyResult, Result, overall

__all__ = ["PropertyViolated", "SpecMachine", "check_with_hypothesis", "machine_for"]


class PropertyViolated(AssertionError):
    """A run of a machine violated a property: its name, and the run.

    Each property is raised as a subclass of its own, so that Hypothesis tells their violations apart when it shrinks.
    """

    def __init__(self, name: str, run: Run, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.run = run


@dataclass
class _Record:
    """What a check keeps of all the runs of its machines, those that Hypothesis makes while it shrinks included.

    `found` has the shortest run for each property that was violated (or, for `@reachable`, shown); of equally short ones
    the last, which is the simplest that Hypothesis has got to. `shrinking` is the violation that it shrinks.
    """

    deadline: float | None
    progress: Callable[[str], None] | None
    enough: int = 0  # runs after which a search ends that has found nothing
    found: dict[str, Run] = field(default_factory=dict)
    fired: dict[str, int] = field(default_factory=dict)
    runs: int = 0
    shrinking: str = ""
    improved: int = 0  # number of the run that last made the violation in hand shorter
    told: float = 0.0

    def started(self) -> None:
        if not self.shrinking and self.runs >= self.enough:
            raise _Enough
        if self.shrinking and self.runs >= self.improved + PATIENCE:
            raise _Enough
        self.runs += 1
        now = time.monotonic()
        if self.deadline is not None and now > self.deadline:
            raise _OutOfTime
        if self.progress is not None and now - self.told > 0.3:
            self.told = now
            self.progress(f"{self.runs:,} runs, {sum(self.fired.values()):,} steps")

    def stepped(self, action: str) -> None:
        self.fired[action] = self.fired.get(action, 0) + 1

    def seen(self, names: Iterable[str], run: Run) -> None:
        for name in names:
            known = self.found.get(name)
            if known is None or len(run) <= len(known):
                self.found[name] = run
                if name == self.shrinking and (known is None or len(run) < len(known)):
                    self.improved = self.runs

    def failed(self, name: str) -> None:
        if not self.shrinking:
            self.shrinking, self.improved = name, self.runs


PATIENCE = 100  # runs that Hypothesis may spend on a violation without making it shorter


class _OutOfTime(KeyboardInterrupt):
    """Ends a check that is out of time: Hypothesis lets an interrupt through, and takes anything else for a failure."""


class _Enough(KeyboardInterrupt):
    """Ends a search that has made its runs, or that no longer makes the violation shorter (Hypothesis would go on with
    what was drawn)."""


@dataclass(frozen=True, slots=True)
class _Schedule:
    """Which of the enabled actions a run may choose from.

    The age of an action is the number of states of the run in which it was enabled. A run may take what is at most
    `spread` times as old as the youngest enabled action; of these it takes `reluctant` ones only when there is nothing
    else. In the steps of `free` it may take anything.
    """

    spread: float = inf
    free: frozenset[int] = frozenset()
    reluctant: frozenset[str] = frozenset()

    def allows(self, ages: Mapping[str, int], enabled: Iterable[str], step: int) -> frozenset[str]:
        """The actions among `enabled` that the step may take; never empty unless `enabled` is."""
        names = frozenset(enabled)
        if not names or step in self.free:
            return names
        oldest = self.spread * min(ages[name] for name in names)
        young = frozenset(name for name in names if ages[name] <= oldest)
        return young - self.reluctant or young


STEP = "step"  # the one name of all rules
SEED_STRIDE = 1_000_003  # between the seeds of the searches of one check
SCHEDULES = 1 << 16
SPREADS = (1.0, 1.0, 1.5, 2.0, 4.0, inf)
FREE_SHARES = (0.0, 0.05, 0.1, 0.2)
RELUCTANT_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
LONGEST_SCHEDULE = 200  # steps; later ones are never free


@lru_cache(maxsize=SCHEDULES)
def _schedule(number: int, actions: tuple[str, ...]) -> _Schedule:
    """Schedule `number` of SCHEDULES; 0 allows everything."""
    if not number:
        return _Schedule()
    random = Random(number)
    spread, free, reluctant = random.choice(SPREADS), random.choice(FREE_SHARES), random.choice(RELUCTANT_SHARES)
    return _Schedule(
        spread,
        frozenset(step for step in range(LONGEST_SCHEDULE) if random.random() < free),
        frozenset(action for action in actions if random.random() < reluctant),
    )


class SpecMachine(RuleBasedStateMachine):
    """Runs a spec. `start` is the initial state of the run so far, `choices` are its steps."""

    sampler: ClassVar[Sampler]
    actions: ClassVar[tuple[str, ...]]
    failures: ClassVar[Mapping[str, type[PropertyViolated]]]
    record: ClassVar[_Record | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.choices: list[Choice] = []
        self._ages: dict[str, int] = {}
        self._start_at(0, 0)
        if self.record is not None:
            self.record.started()

    def _start_at(self, index: int, schedule: int) -> None:
        self.start = self.sampler.starts[index]
        self._watched = self.sampler.steps(self.start.rigid)
        self._schedule = _schedule(schedule, self.actions)
        self._ages.clear()
        self._arrive(self.start.values)

    def _arrive(self, values: Values) -> None:
        self._values = values
        self._sight = self._watched.look(values)
        for action in self._sight.moves:
            self._ages[action] = self._ages.get(action, 0) + 1
        self._allowed = self._schedule.allows(self._ages, self._sight.moves, len(self.choices))

    def _begin(self, index: int, schedule: int) -> None:
        self._start_at(index, schedule)
        self._judge((*self._sight.violated, *self._sight.shown))
        self._end_early()

    def _end_early(self) -> None:
        """In a check, a run in which nothing is enabled any more ends there: the idle steps would take longer than the run
        did. Hypothesis counts it as invalid, so that it does not try variations of it, which hardly ever get further."""
        if self.record is not None and not self._sight.moves:
            hypothesis.reject()

    def _can(self, action: str) -> bool:
        return action in self._allowed

    def _can_nothing(self) -> bool:
        return not self._allowed

    def _take(self, action: str, index: int) -> None:
        moves = self._sight.moves[action]
        move = next((move for move in moves if move.index >= index), moves[0])
        broken = self._watched.broken(self._values, move)
        self.choices.append(move.choice)
        self._arrive(move.after)
        if self.record is not None:
            self.record.stepped(action)
        self._judge((*broken, *self._sight.violated, *self._sight.shown))
        self._end_early()

    def _judge(self, names: tuple[str, ...]) -> None:
        if not names:
            return
        run = Run(self.start, tuple(self.choices))
        if self.record is not None:
            self.record.seen(names, run)
        for name in names:
            if name in self.failures:
                if self.record is not None:
                    self.record.failed(name)
                instance = self.sampler.instance
                what = f"{name} is violated by this run of {instance.system.name} ({instance.describe_size()}):"
                raise self.failures[name](name, run, f"{what}\n{describe_run(instance, run)}")


def machine_for(
    system: TransitionSystem,
    size: Mapping[str, int] | None = None,
    properties: Sequence[str] = (),
) -> type[SpecMachine]:
    """A Hypothesis state machine for `system` at `size` that fails where a property (any, or one of those named) does.

    Its `TestCase` goes into a test suite. A failing run raises `PropertyViolated`, an AssertionError with the property's
    name and the run. An instance keeps its run as `start` (the initial state) and `choices` (the steps), ready for
    `readings.replay.make_trace`. `@reachable` properties are not judged: no single run violates one.

    Raises UsageError for an unknown property or contradictory assumptions, InstanceError for a size that cannot be.
    """
    instance = Instance.make(system, size)
    asked = tuple(system.property(name) for name in properties) or system.properties
    return _machine(Sampler(instance, asked), [p.name for p in asked if p.kind is not PropertyKind.REACHABLE])


def _machine(sampler: Sampler, fatal: Sequence[str], record: _Record | None = None) -> type[SpecMachine]:
    """A machine that stops at violations of the `fatal` properties and notes everything in `record`."""
    system = sampler.instance.system
    title = "".join(part.capitalize() for part in "".join(c if c.isalnum() else " " for c in system.name).split())
    namespace: dict[str, Any] = {
        "__doc__": system.doc or SpecMachine.__doc__,
        "__module__": __name__,
        "sampler": sampler,
        "actions": tuple(action.name for action in system.actions),
        "failures": {name: _failure(name) for name in fatal},
        "record": record,
        "initial_state": initialize(
            index=strategies.integers(0, len(sampler.starts) - 1), schedule=strategies.integers(0, SCHEDULES - 1)
        )(_initial_state),
        # Rules are asked in the order of their attributes' names; this one first is quicker when only it can be taken.
        "_idle": precondition(SpecMachine._can_nothing)(rule(idle=strategies.just(0))(_step_idle)),
    }
    for action in system.actions:
        namespace[f"action_{action.name}"] = _rule(action, sampler.instance)  # a prefix, so that an action may have any name
    return type(title, (SpecMachine,), namespace)


def _failure(name: str) -> type[PropertyViolated]:
    return type("PropertyViolated", (PropertyViolated,), {"__doc__": f"{name} is violated.", "__module__": __name__})


def _initial_state(self: SpecMachine, index: int, schedule: int) -> None:
    """A run starts: in one of the initial states, with a schedule."""
    self._begin(index, schedule)


_initial_state.__name__ = "initial_state"


def _step_idle(self: SpecMachine, idle: int) -> None:
    """Nothing is enabled. This is not a step."""


_step_idle.__name__ = STEP


def _rule(action: Action, instance: Instance) -> Any:
    """The rule of an action: its binding is drawn by its number in the full list, and the next enabled one is taken."""
    bindings = sum(1 for _ in instance.bindings(action.parameters))

    def step(self: SpecMachine, **drawn: int) -> None:
        self._take(action.name, drawn[action.name])

    def enabled(self: SpecMachine) -> bool:
        return self._can(action.name)

    step.__name__ = STEP
    step.__doc__ = action.doc
    index: strategies.SearchStrategy[int] = strategies.just(0) if bindings == 1 else strategies.integers(0, bindings - 1)
    named_by_argument: Any = rule
    return precondition(enabled)(named_by_argument(**{action.name: index})(step))


def check_with_hypothesis(
    instance: Instance,
    properties: Sequence[str] = (),
    *,
    examples: int,
    steps: int,
    seed: int = 0,
    timeout: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> Result:
    """Let Hypothesis look for violations: `examples` runs of up to `steps` steps, and shrink what it finds.

    Needs neither pytest nor Hypothesis' database, and one seed gives one result (with one version of Hypothesis). The
    first property asked for, or `isolated_read`, is looked for first and alone, so that no other violation cuts its runs
    short. Hypothesis shrinks a violation until 100 runs in a row have made it no shorter; then `readings.shrink` tries
    what Hypothesis cannot (the same steps from another initial state, steps that belong together), and the run is replayed.

    A property that was not violated `holds` with coverage `sampled`, whose `runs` are those in which it was watched to
    the end; a `@reachable` one that was not seen is undecided. Stops early after `timeout` seconds or at Ctrl-C: what is
    then not violated is undecided. Raises UsageError for an unknown property or contradictory assumptions.
    """
    started = time.monotonic()
    system = instance.system
    asked = tuple(system.property(name) for name in properties) or system.properties
    sampler = Sampler(instance, asked)
    record = _Record(None if timeout is None else started + timeout, progress)
    stopped, number, complete = "", 0, 0
    settled: set[str] = set()
    judged = [p.name for p in asked if p.kind is not PropertyKind.REACHABLE]
    fatal = [name for name in (*properties, "isolated_read") if name in judged][:1] or judged
    try:
        while True:
            before, record.shrinking, record.enough = record.runs, "", record.runs + examples
            machine = _machine(sampler, fatal, record)
            while record.runs < record.enough and _search(machine, record.enough - record.runs, steps, seed + SEED_STRIDE * number):
                number += 1
            number += 1
            settled.add(record.shrinking)
            remaining = [name for name in judged if name not in settled]
            if not record.shrinking:
                complete = record.runs - before
                if fatal == remaining or not any(name in record.found for name in remaining):
                    break
            fatal = remaining
            if not fatal:
                break
    except _OutOfTime:
        stopped = f"timeout after {record.runs:,} runs"
    except KeyboardInterrupt:
        stopped = f"interrupted after {record.runs:,} runs"
    coverage = Coverage(instance.size_options(), steps, complete or record.runs, tuple(system.flag_values.items()))
    results = []
    for candidate in asked:
        verdict, reason = judge(candidate, coverage, record.found, stopped)
        trace = None
        if candidate.name in record.found:
            run = record.found[candidate.name]
            with suppress(KeyboardInterrupt):  # a run that is found is shown, shrunk or not
                run = shrink(sampler, run, candidate.name)
            trace = make_trace(instance, run.start, run.steps, candidate.name)
        results.append(PropertyResult(candidate.name, verdict, coverage, trace, reason, candidate.kind is PropertyKind.REACHABLE))
    return Result(
        system.name,
        "hypothesis",
        overall(tuple(results)),
        coverage,
        tuple(results),
        (),
        (("runs", record.runs), ("steps", sum(record.fired.values())), ("seed", seed)),
        time.monotonic() - started,
        tuple(properties),
        tuple((action.name, record.fired.get(action.name, 0)) for action in system.actions),
    )


def _search(machine: type[SpecMachine], examples: int, steps: int, seed: int) -> bool:
    """Let Hypothesis look for a violation and shrink it; what it finds is in the machine's record.

    Returns whether it gave up early, as it does after some 450 runs when all of them came to an end (see `_end_early`).
    """
    settings = hypothesis.settings(
        max_examples=examples,
        stateful_step_count=steps + 1,  # the choice of the initial state is one for Hypothesis
        database=None,
        deadline=None,
        derandomize=False,
        # Phase.explain would run every failure many more times, to find which draws matter; a trace says more.
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
        print_blob=False,
    )
    try:
        run_state_machine_as_test(hypothesis.seed(seed)(machine), settings=settings)
    except Unsatisfiable:
        return True
    except (PropertyViolated, _Enough):
        pass
    return False
