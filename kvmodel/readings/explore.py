"""Exhaustive exploration: every reachable state of an instance, breadth first, with exact duplicate detection.

All rigid valuations advance together, one depth at a time, so that the first violation found is a shortest one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from kvmodel.errors import InstanceError
from kvmodel.language.instance import Instance, State, Values
from kvmodel.language.system import Property, PropertyKind
from kvmodel.readings.initial import initial_values, rigid_valuations
from kvmodel.readings.replay import make_trace
from kvmodel.readings.steps import DenseSteps
from kvmodel.readings.vacuity import vacuity
from kvmodel.traces.trace import Choice, Trace
from kvmodel.verdict import Coverage, Finding, PropertyResult, Result, Verdict, overall

__all__ = ["Deployment", "StateGraph", "explore", "reachable"]

CHECK_EVERY = 2_000  # states between two looks at the clock


@dataclass
class Deployment:
    """The exploration of one rigid valuation: states in order of discovery, and how each was first reached.

    `parents[i]` is the number of the state that state i came from and `reached_by[i]` the position of the action;
    both -1 for an initial state.
    """

    steps: DenseSteps
    numbers: dict[Values, int] = field(default_factory=dict)
    states: list[Values] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    reached_by: list[int] = field(default_factory=list)
    frontier: int = 0  # number of the first state not yet expanded

    def add(self, values: Values, parent: int, action: int) -> bool:
        """Record a state; False when it was known."""
        if values in self.numbers:
            return False
        self.numbers[values] = len(self.states)
        self.states.append(values)
        self.parents.append(parent)
        self.reached_by.append(action)
        return True

    def path(self, number: int) -> tuple[State, tuple[Choice, ...]]:
        """The initial state and the steps of a shortest run to a state."""
        choices = []
        while self.parents[number] >= 0:
            choices.append(self.steps.actions[self.reached_by[number]].choice)
            number = self.parents[number]
        return State(self.steps.rigid, self.states[number]), tuple(reversed(choices))


@dataclass
class StateGraph:
    """What an exploration has seen: states by deployment, counts, and the first sight of each property."""

    instance: Instance
    deployments: list[Deployment]
    depth: int = 0
    transitions: int = 0
    fired: dict[str, int] = field(default_factory=dict)
    seen: dict[str, tuple[Deployment, int, Choice | None]] = field(default_factory=dict)
    complete: bool = False
    stopped: str = ""

    @property
    def states(self) -> int:
        return sum(len(deployment.states) for deployment in self.deployments)

    def trace(self, name: str) -> Trace:
        """The shortest run that shows the property `name`, replayed."""
        deployment, number, last = self.seen[name]
        start, choices = deployment.path(number)
        return make_trace(self.instance, start, choices if last is None else (*choices, last), name)


def explore(
    instance: Instance,
    properties: Sequence[str] = (),
    *,
    timeout: float | None = None,
    limit: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Result:
    """Explore every reachable state of `instance` and judge its properties (all, or the named ones).

    Stops early after `timeout` seconds, at `limit` states, or at Ctrl-C: what is then not yet violated is undecided,
    with the depth that was completed as coverage. Raises UsageError for an unknown property or contradictory
    assumptions.
    """
    started = time.monotonic()
    asked = tuple(instance.system.property(name) for name in properties) or instance.system.properties
    graph = reachable(instance, asked, timeout=timeout, limit=limit, progress=progress)
    results = tuple(_judge(graph, candidate) for candidate in asked)
    coverage = _coverage(graph)
    findings: tuple[Finding, ...] = ()
    if graph.complete:
        with suppress(KeyboardInterrupt):  # verdicts that are reached are shown, with findings or without
            findings = vacuity(instance, [(d.steps, d.states) for d in graph.deployments], graph.fired)
    return Result(
        instance.system.name,
        "explore",
        overall(results),
        coverage,
        results,
        findings,
        (("states", graph.states), ("transitions", graph.transitions), ("depth", graph.depth), ("deployments", len(graph.deployments))),
        time.monotonic() - started,
        tuple(properties),
        tuple((action.name, graph.fired.get(action.name, 0)) for action in instance.system.actions),
    )


def _coverage(graph: StateGraph) -> Coverage:
    steps = None if graph.complete else graph.depth
    return Coverage(graph.instance.size_options(), steps, None, tuple(graph.instance.system.flag_values.items()))


def _judge(graph: StateGraph, candidate: Property) -> PropertyResult:
    coverage = _coverage(graph)
    shown = candidate.kind is PropertyKind.REACHABLE
    if candidate.name in graph.seen:
        verdict = Verdict.HOLDS if shown else Verdict.VIOLATED
        return PropertyResult(candidate.name, verdict, coverage, graph.trace(candidate.name), reachable=shown)
    if not graph.complete:
        return PropertyResult(candidate.name, Verdict.UNDECIDED, coverage, None, graph.stopped, shown)
    return PropertyResult(candidate.name, Verdict.VIOLATED if shown else Verdict.HOLDS, coverage, None, "", shown)


def reachable(
    instance: Instance,
    properties: Sequence[Property],
    *,
    timeout: float | None = None,
    limit: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> StateGraph:
    """The reachable states of `instance`, watching `properties`; see `explore`."""
    graph = StateGraph(instance, [])
    deadline = None if timeout is None else time.monotonic() + timeout
    try:
        watches = []
        for rigid in rigid_valuations(instance):
            deployment = Deployment(DenseSteps(instance, rigid))
            watch = _Watch(graph, deployment, properties)
            graph.deployments.append(deployment)
            watches.append(watch)
            for values in initial_values(instance, rigid):
                if deployment.add(values, -1, -1):
                    watch.state(values, len(deployment.states) - 1)
                if len(deployment.states) % CHECK_EVERY == 0:
                    if _is_over(graph, "in the initial states", deadline, limit):
                        return graph
                    if progress is not None:
                        progress(f"{graph.states:,} initial states")
        if not graph.states:
            raise InstanceError(
                f"{instance.system.name} has no initial state at {instance.describe_size()}: its initial conditions contradict each other"
            )
        for _ in _levels(graph, watches, deadline, limit):
            if progress is not None:
                progress(f"depth {graph.depth}: {graph.states:,} states, {graph.transitions:,} transitions")
    except KeyboardInterrupt:
        graph.stopped = f"interrupted at depth {graph.depth} after {graph.states:,} states"
    return graph


def _levels(graph: StateGraph, watches: list[_Watch], deadline: float | None, limit: int | None) -> Iterator[None]:
    """Expand one depth after the other; yields now and then, for progress."""
    while True:
        ends = [len(deployment.states) for deployment in graph.deployments]
        if all(d.frontier == end for d, end in zip(graph.deployments, ends, strict=True)):
            graph.complete = True
            return
        for watch, end in zip(watches, ends, strict=True):
            while watch.deployment.frontier < end:
                watch.expand(min(end, watch.deployment.frontier + CHECK_EVERY))
                if _is_over(graph, f"at depth {graph.depth}", deadline, limit):
                    return
                yield
        if any(len(deployment.states) > end for deployment, end in zip(graph.deployments, ends, strict=True)):
            graph.depth += 1


def _is_over(graph: StateGraph, where: str, deadline: float | None, limit: int | None) -> bool:
    """Whether time or the number of states has run out; the reason is noted in the graph."""
    if deadline is not None and time.monotonic() > deadline:
        graph.stopped = f"timeout {where} after {graph.states:,} states"
    elif limit is not None and graph.states > limit:
        graph.stopped = f"limit of {limit:,} states {where}"
    return bool(graph.stopped)


class _Watch:
    """Expands one deployment and notes the first sight of each property."""

    def __init__(self, graph: StateGraph, deployment: Deployment, properties: Sequence[Property]) -> None:
        self.graph = graph
        self.deployment = deployment
        steps = deployment.steps
        self.violations = steps.violations(properties)
        self.assertions = {p.name for p in properties if p.kind is PropertyKind.ASSERTION}
        self.deadlock = any(p.kind is PropertyKind.NO_DEADLOCK for p in properties)
        self.witnesses = [(p.name, steps.predicate(steps.grounder.for_some(p))) for p in properties if p.kind is PropertyKind.REACHABLE]

    def see(self, name: str, number: int, last: Choice | None = None) -> None:
        self.graph.seen.setdefault(name, (self.deployment, number, last))

    def state(self, values: Values, number: int) -> None:
        """Judge a new state."""
        for name in self.violations(values):
            self.see(name, number)
        for name, test in self.witnesses:
            if name not in self.graph.seen and test(values):
                self.see(name, number)

    def expand(self, end: int) -> None:
        """Expand the states from the frontier to number `end`."""
        deployment, graph = self.deployment, self.graph
        successors, actions = deployment.steps.successors, deployment.steps.actions
        broken = deployment.steps.broken_assertions
        numbers, states = deployment.numbers, deployment.states
        fired = [0] * len(actions)
        while deployment.frontier < end:
            number = deployment.frontier
            values = states[number]
            following = successors(values)
            if not following and self.deadlock and deployment.steps.is_in_range(values) and not deployment.steps.is_final(values):
                self.see("no_deadlock", number)
            for position, after in following:
                fired[position] += 1
                if self.assertions:
                    for name in broken(position, values):
                        if name in self.assertions:
                            self.see(name, number, actions[position].choice)
                if after not in numbers:
                    deployment.add(after, number, position)
                    self.state(after, len(states) - 1)
            deployment.frontier += 1
        graph.transitions += sum(fired)
        for position, count in enumerate(fired):
            if count:
                name = actions[position].choice.action
                graph.fired[name] = graph.fired.get(name, 0) + count
