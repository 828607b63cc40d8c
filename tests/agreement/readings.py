"""The exact readings behind one interface, so that a test can hold each to the oracle. A new reading is one more class.

`initial`, `successors` and `answers` are what has to agree. Where a reading has no such notion itself (the compiled step
is a step, not a search), the smallest search over it stands in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import islice
from typing import Protocol

from kvmodel.language.instance import Binding, Instance, State
from kvmodel.language.system import Anything, PropertyKind
from kvmodel.language.types import Value
from kvmodel.readings.compiled import CompiledSystem
from kvmodel.readings.explore import Deployment, explore, reachable
from kvmodel.traces.trace import Choice
from kvmodel.verdict import Verdict
from tests.agreement.bounded import Bounded
from tests.agreement.oracle import Answer, Oracle, answers_of

__all__ = ["READINGS", "Compiled", "ExactReading", "Explore", "disagreements"]

Successors = frozenset[tuple[Choice, State]]


class ExactReading(Protocol):
    """A reading that answers for every run of an instance. `looks_at` is how many states it can be asked about in a test."""

    looks_at: int

    def initial(self, candidates: Iterable[State]) -> frozenset[State]:
        """The initial states among `candidates`."""

    def successors(self, state: State) -> Successors: ...

    def answers(self, oracle: Oracle) -> dict[str, Answer]:
        """What it says of each property; `oracle` tells how far a bounded reading has to look."""


class Explore:
    """The exhaustive exploration and its dense steps."""

    looks_at = 1_000

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

    @cached_property
    def _deployments(self) -> dict[tuple[object, ...], Deployment]:
        graph = reachable(self.instance, self.instance.system.properties)
        return {deployment.steps.rigid: deployment for deployment in graph.deployments}

    def initial(self, candidates: Iterable[State]) -> frozenset[State]:
        found = set()
        for deployment in self._deployments.values():
            for values, parent in zip(deployment.states, deployment.parents, strict=True):
                if parent < 0:
                    found.add(State(deployment.steps.rigid, values))
        return frozenset(found)

    def successors(self, state: State) -> Successors:
        steps = self._deployments[state.rigid].steps
        return frozenset(
            (steps.actions[position].choice, State(state.rigid, after)) for position, after in steps.successors(state.values)
        )

    def answers(self, oracle: Oracle) -> dict[str, Answer]:
        return answers_of(explore(self.instance))


class Compiled:
    """The compiled step, under a search of its own."""

    looks_at = 5

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.compiled = CompiledSystem(instance.system, dict(instance.size_options()))

    def initial(self, candidates: Iterable[State]) -> frozenset[State]:
        return frozenset(state for state in candidates if self._starts_in(state))

    def _starts_in(self, state: State) -> bool:
        """Whether a run may start from the values that `state` has where a run may start with anything."""
        chosen: dict[str, dict[Binding, Value]] = {}
        for layout, values in ((self.instance.rigid_layout, state.rigid), (self.instance.state_layout, state.values)):
            for (name, index), value in zip(layout.places, values, strict=True):
                variable = self.instance.system.by_name[name]
                if isinstance(variable.initial, Anything) and not variable.partition:
                    chosen.setdefault(name, {})[index] = value
        start = self.compiled.valued(chosen)
        return self.compiled.to_dense(start) == state and not self.compiled.broken_conditions(start)

    def successors(self, state: State) -> Successors:
        return frozenset((choice, after) for choice, after, _ in self._steps(state))

    def _steps(self, state: State) -> list[tuple[Choice, State, frozenset[str]]]:
        """Each enabled step, the state after it, and the properties found broken by looking where it wrote."""
        before = self.compiled.from_dense(state)
        found = []
        for action in self.instance.system.actions:
            for binding in self.compiled.bindings(before, action.name):
                after = before.copy()
                changes = self.compiled.step(after, action.name, binding)
                noticed = frozenset(violation.property for violation in self.compiled.violations(after, changes))
                found.append((Choice(action.name, binding), self.compiled.to_dense(after), noticed))
        return found

    def answers(self, oracle: Oracle) -> dict[str, Answer]:
        """Invariants are judged in full for initial states, and after a step only where it wrote."""
        shortest: dict[str, int] = {}
        depth, frontier = 0, dict.fromkeys(sorted(oracle.initial, key=repr))
        seen = set(frontier)
        for state in frontier:
            for violation in self.compiled.violations(self.compiled.from_dense(state)):
                shortest.setdefault(violation.property, 0)
        while frontier:
            following: dict[State, None] = {}
            for state in frontier:
                self._witness(state, depth, shortest)
                for _, after, noticed in self._steps(state):
                    for name in noticed:
                        shortest.setdefault(name, depth + 1)
                    if after not in seen:
                        seen.add(after)
                        following[after] = None
            depth, frontier = depth + 1, following
        answers: dict[str, Answer] = {}
        for candidate in self.instance.system.properties:
            good = (candidate.name in shortest) is (candidate.kind is PropertyKind.REACHABLE)
            answers[candidate.name] = (Verdict.HOLDS if good else Verdict.VIOLATED, shortest.get(candidate.name))
        return answers

    def _witness(self, state: State, depth: int, shortest: dict[str, int]) -> None:
        sparse = None
        for candidate in self.instance.system.declared:
            if candidate.kind is PropertyKind.REACHABLE and candidate.name not in shortest:
                sparse = sparse or self.compiled.from_dense(state)
                bindings = sum(1 for _ in self.instance.bindings(candidate.parameters))
                if len(self.compiled.failing_bindings(sparse, candidate)) < bindings:
                    shortest[candidate.name] = depth


READINGS: dict[str, Callable[[Instance], ExactReading]] = {"explore": Explore, "compiled": Compiled, "bmc": Bounded}


def disagreements(oracle: Oracle, reading: ExactReading, candidates: Iterable[State], states: Iterable[State]) -> list[str]:
    """Where a reading differs from the oracle: initial states (among `candidates`), successors (of the first of `states`,
    as many as the reading looks at), answers."""
    found = []
    if reading.initial(candidates) != oracle.initial:
        found.append("initial states")
    for state in islice(states, reading.looks_at):
        if reading.successors(state) != frozenset(oracle.successors[state]):
            found.append(f"successors of {state}")
            break
    answers = reading.answers(oracle)
    for name, expected in oracle.answers.items():
        if answers.get(name) != expected:
            found.append(f"{name}: {answers.get(name)}, not {expected}")
    return found
