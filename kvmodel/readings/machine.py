"""The Hypothesis reading: a spec as a `RuleBasedStateMachine`, on Hypothesis' public interface only.

There is one rule for each action, so that a printed run names actions. Everything that a run depends on is drawn, and
nothing that is drawn changes its meaning when something before it is deleted: a rule draws an index into the *full* list
of bindings of its action and takes the next enabled one. That is what lets Hypothesis shrink a run.

Import this module where it is needed: it imports Hypothesis.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from kvmodel.language.instance import Instance
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
    """What a check keeps of all the runs of a machine, those that Hypothesis makes while it shrinks included.

    `found` has the shortest run for each property that was violated (or, for `@reachable`, shown).
    """

    deadline: float | None
    progress: Callable[[str], None] | None
    found: dict[str, Run] = field(default_factory=dict)
    fired: dict[str, int] = field(default_factory=dict)
    runs: int = 0
    told: float = 0.0

    def started(self) -> None:
        self.runs += 1
        now = time.monotonic()
        if self.deadline is not None and now > self.deadline:
            raise _OutOfTime
        if self.progress is not None and now - self.told > 0.3:
            self.told = now
            self.progress(f"{self.runs:,} runs, {sum(self.fired.values()):,} steps")

    def stepped(self, action: str) -> None:
        self.fired[action] = self.fired.get(action, 0) + 1

    def seen(self, name: str, run: Run) -> None:
        if name not in self.found or len(run) < len(self.found[name]):
            self.found[name] = run


class _OutOfTime(BaseException):
    """Ends a check that is out of time. Not an Exception, which Hypothesis would take for a failure of the run."""


class SpecMachine(RuleBasedStateMachine):
    """Runs a spec. `start` is the initial state of the run so far, `choices` are its steps."""

    sampler: ClassVar[Sampler]
    failures: ClassVar[Mapping[str, type[PropertyViolated]]]
    record: ClassVar[_Record | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.choices: list[Choice] = []
        self._start_at(0)
        if self.record is not None:
            self.record.started()

    def _start_at(self, index: int) -> None:
        self.start = self.sampler.starts[index]
        self._watched = self.sampler.steps(self.start.rigid)
        self._values = self.start.values
        self._sight = self._watched.look(self._values)

    def _begin(self, index: int) -> None:
        self._start_at(index)
        self._judge((*self._sight.violated, *self._sight.shown))

    def _can(self, action: str) -> bool:
        return action in self._sight.moves

    def _can_nothing(self) -> bool:
        return not self._sight.moves

    def _take(self, action: str, index: int) -> None:
        moves = self._sight.moves[action]
        move = next((move for move in moves if move.index >= index), moves[0])
        broken = self._watched.broken(self._values, move)
        self.choices.append(move.choice)
        self._values = move.after
        self._sight = self._watched.look(move.after)
        if self.record is not None:
            self.record.stepped(action)
        self._judge((*broken, *self._sight.violated, *self._sight.shown))

    def _judge(self, names: tuple[str, ...]) -> None:
        if not names:
            return
        run = Run(self.start, tuple(self.choices))
        if self.record is not None:
            for name in names:
                self.record.seen(name, run)
        for name in names:
            if name in self.failures:
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
    return _machine(Sampler(instance, asked), [p.name for p in asked])


def _machine(sampler: Sampler, fatal: Sequence[str], record: _Record | None = None) -> type[SpecMachine]:
    """A machine that stops at violations of the `fatal` properties and notes everything in `record`."""
    system = sampler.instance.system
    title = "".join(part.capitalize() for part in "".join(c if c.isalnum() else " " for c in system.name).split())
    namespace: dict[str, Any] = {
        "__doc__": system.doc or SpecMachine.__doc__,
        "__module__": __name__,
        "sampler": sampler,
        "failures": {name: _failure(name) for name in fatal},
        "record": record,
        "initial_state": initialize(index=strategies.integers(0, len(sampler.starts) - 1))(SpecMachine._begin),
        "idle": precondition(SpecMachine._can_nothing)(rule()(_idle)),
    }
    for action in system.actions:
        namespace[f"action_{action.name}"] = _rule(action, sampler.instance)  # a prefix, so that an action may have any name
    return type(title, (SpecMachine,), namespace)


def _failure(name: str) -> type[PropertyViolated]:
    return type("PropertyViolated", (PropertyViolated,), {"__doc__": f"{name} is violated.", "__module__": __name__})


def _idle(self: SpecMachine) -> None:
    """Nothing is enabled. This is not a step."""


def _rule(action: Action, instance: Instance) -> Any:
    """The rule of an action: its binding is drawn by its number in the full list, and the next enabled one is taken."""
    bindings = sum(1 for _ in instance.bindings(action.parameters))
    if bindings == 1:
        def take_it(self: SpecMachine) -> None:
            self._take(action.name, 0)

        take: Callable[..., None] = take_it
        drawn: dict[str, Any] = {}
    else:
        def take_next(self: SpecMachine, index: int) -> None:
            self._take(action.name, index)

        take = take_next
        drawn = {"index": strategies.integers(0, bindings - 1)}
    take.__name__ = take.__qualname__ = action.name
    take.__doc__ = action.doc

    def enabled(self: SpecMachine) -> bool:
        return self._can(action.name)

    return precondition(enabled)(rule(**drawn)(take))


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
    short. A run that Hypothesis has shrunk is then shrunk by `readings.shrink` (it drops steps, and is the better of the
    two at pairs of steps that belong together) and replayed.

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
        while fatal:
            before = record.runs
            failures = _search(_machine(sampler, fatal, record), examples, steps, seed + number)
            number += 1
            settled |= {failure.name for failure in failures}
            remaining = [name for name in judged if name not in settled]
            if not failures:
                complete = record.runs - before
                if fatal == remaining or not any(name in record.found for name in remaining):
                    break
            fatal = remaining
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
            run = shrink(sampler, record.found[candidate.name], candidate.name)
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


def _search(machine: type[SpecMachine], examples: int, steps: int, seed: int) -> tuple[PropertyViolated, ...]:
    """The violations that Hypothesis finds, shrunk; one for each of the machine's properties at most."""
    settings = hypothesis.settings(
        max_examples=examples,
        stateful_step_count=steps + 1,  # the choice of the initial state is one for Hypothesis
        database=None,
        deadline=None,
        derandomize=False,
        # Phase.explain would run every failure many more times, to find which draws matter; a trace says more.
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=len(machine.failures) > 1,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
        print_blob=False,
    )
    try:
        run_state_machine_as_test(hypothesis.seed(seed)(machine), settings=settings)
    except PropertyViolated as failure:
        return (failure,)
    except ExceptionGroup as group:
        failures = tuple(error for error in group.exceptions if isinstance(error, PropertyViolated))
        if len(failures) < len(group.exceptions):
            raise
        return failures
    return ()
