"""The naive reading of a whole instance: breadth-first search with the interpreter, straight from the definitions.

Slow and independent of every shortcut that the readings take; what they answer is compared with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

from kvmodel.language.instance import Instance, State
from kvmodel.language.system import Anything, PropertyKind
from kvmodel.language.types import Number
from kvmodel.readings.initial import initial_states
from kvmodel.readings.run import Interpreter
from kvmodel.traces.trace import Choice
from kvmodel.verdict import Result, Verdict

__all__ = ["Answer", "Oracle", "TooLarge", "answers_of", "brute_force_initial_states"]

Answer = tuple[Verdict, int | None]
"""A verdict, with the length of the shortest trace that shows it, if one does."""


def answers_of(result: Result) -> dict[str, Answer]:
    """The answers of a check."""
    return {found.name: (found.verdict, found.length) for found in result.properties}


class TooLarge(Exception):
    """The instance has more states than the oracle was told to look at."""


@dataclass
class Oracle:
    """Every state of `instance` that is reachable from `initial` (its initial states, unless given), with its depth and
    its successors. Raises TooLarge beyond `limit` states."""

    instance: Instance
    limit: int = 1_000
    initial: frozenset[State] = frozenset()
    depths: dict[State, int] = field(default_factory=dict)
    successors: dict[State, tuple[tuple[Choice, State], ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        interpreter = self.interpreter
        frontier = list(self.initial or initial_states(self.instance))
        self.initial = frozenset(frontier)
        depth = 0
        while frontier:
            for state in frontier:
                self.depths.setdefault(state, depth)
            if len(self.depths) > self.limit:
                raise TooLarge
            following: dict[State, None] = {}
            for state in frontier:
                found = tuple((choice, interpreter.successor(state, choice)) for choice in interpreter.enabled(state))
                self.successors[state] = found
                following.update((after, None) for _, after in found if after not in self.depths)
            frontier = list(following)
            depth += 1

    @cached_property
    def interpreter(self) -> Interpreter:
        return Interpreter(self.instance)

    @cached_property
    def answers(self) -> dict[str, Answer]:
        """What every exact reading must answer for each property."""
        system = self.instance.system
        shortest: dict[str, int] = {}
        for state, depth in self.depths.items():
            for name in self.interpreter.violated(state):
                shortest[name] = min(depth, shortest.get(name, depth))
            for candidate in system.declared:
                reachable = candidate.kind is PropertyKind.REACHABLE
                if reachable and candidate.name not in shortest and self.interpreter.satisfying_binding(candidate, state) is not None:
                    shortest[candidate.name] = depth
            for choice, _ in self.successors[state]:
                for name in self.interpreter.broken_assertions(state, choice):
                    shortest[name] = min(depth + 1, shortest.get(name, depth + 1))
        answers: dict[str, Answer] = {}
        for candidate in system.properties:
            seen = candidate.name in shortest
            good = seen if candidate.kind is PropertyKind.REACHABLE else not seen
            answers[candidate.name] = (Verdict.HOLDS if good else Verdict.VIOLATED, shortest.get(candidate.name))
        return answers


def brute_force_initial_states(instance: Instance, largest_number: int) -> Iterator[State]:
    """Every combination of values in which a run may start, with numbers up to `largest_number`."""
    system = instance.system
    rigid, values = instance.rigid_layout, instance.state_layout
    numbers = tuple(range(largest_number + 1))
    rigid_choices = [numbers if isinstance(kind, Number) else instance.values_of(kind) for kind in rigid.types]
    state_choices = []
    for (name, _), kind in zip(values.places, values.types, strict=True):
        initial = system.by_name[name].initial
        state_choices.append(instance.values_of(kind) if isinstance(initial, Anything) else (initial,))
    interpreter = Interpreter(instance)
    for first in product(*rigid_choices):
        for second in product(*state_choices):
            state = State(first, second)
            if interpreter.is_initial(state):
                yield state
