"""Every flag assignment explored at once: which of them violate an invariant at one size, and after how many steps at least.

An oracle for `kvmodel defences` that shares neither its proofs nor its runs: each action is written out for every choice of
the flags that it reads, and a state is kept with the set of assignments under which it is reachable (a *featured* transition
system). Breadth first, so that lengths are shortest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from kvmodel.analyses.assignments import Assignments, Worlds
from kvmodel.language.expressions import Expr, FlagRead, walk
from kvmodel.language.instance import Instance, Values
from kvmodel.language.system import Action, TransitionSystem
from kvmodel.readings.fold import fold_system
from kvmodel.readings.initial import initial_values, rigid_valuations
from kvmodel.readings.steps import DenseSteps


@dataclass
class Family:
    """What was found: for each property the assignments that violate it by length, and how much was looked at."""

    assignments: Assignments
    violated: dict[str, dict[int, Worlds]] = field(default_factory=dict)
    states: int = 0

    def violating(self, name: str) -> Worlds:
        """The assignments under which some run violates the property."""
        found = 0
        for worlds in self.violated.get(name, {}).values():
            found |= worlds
        return found

    def length(self, name: str, number: int) -> int | None:
        """The length of a shortest run that violates the property under an assignment."""
        return next((length for length, worlds in sorted(self.violated.get(name, {}).items()) if worlds >> number & 1), None)


def explore_family(system: TransitionSystem, flags: Sequence[str], sizes: Mapping[str, int], names: Collection[str]) -> Family:
    """Explore `system` under every assignment of `flags`, the others as they are, and watch the invariants called `names`."""
    assignments = Assignments(tuple(flags))
    family = Family(assignments)
    fixed = {name: value for name, value in system.flag_values.items() if name not in flags}
    system = fold_system(system, fixed)
    split, worlds_of = _split(system, assignments)
    properties = [prop for prop in system.declared if prop.name in names]
    assert len(properties) == len(names)
    assert not _flags_in(prop.condition for prop in properties)
    for rigid, starts in _starts(system, assignments, sizes).items():
        steps = DenseSteps(Instance.make(replace(split, assumptions=(), initial=()), sizes), rigid)
        masks = [worlds_of[action.choice.action] for action in steps.actions]
        violations = steps.violations(properties)
        successors = steps.successors
        reached: dict[Values, Worlds] = {}
        level, depth = starts, 0
        while level:
            following: dict[Values, Worlds] = {}
            for values, worlds in level.items():
                reached[values] = reached.get(values, 0) | worlds
                for name in violations(values):
                    lengths = family.violated.setdefault(name, {})
                    lengths[depth] = lengths.get(depth, 0) | worlds
            for values, worlds in level.items():
                for position, after in successors(values):
                    there = worlds & masks[position]
                    if there:
                        fresh = there & ~reached.get(after, 0)
                        if fresh:
                            following[after] = following.get(after, 0) | fresh
            level, depth = following, depth + 1
        family.states += len(reached)
    return family


def _flags_in(exprs: Iterator[Expr] | Collection[Expr]) -> list[str]:
    return sorted({node.flag for expr in exprs for node in walk(expr) if isinstance(node, FlagRead)})


def _choices(flags: Sequence[str]) -> Iterator[dict[str, bool]]:
    for values in product((False, True), repeat=len(flags)):
        yield dict(zip(flags, values, strict=True))


def _split(system: TransitionSystem, assignments: Assignments) -> tuple[TransitionSystem, dict[str, Worlds]]:
    """The system with each action written out for every choice of its flags, and the assignments in which each copy exists."""
    actions: list[Action] = []
    worlds: dict[str, Worlds] = {}
    for action in system.actions:
        for number, choice in enumerate(_choices(_flags_in(action.expressions()))):
            copy = fold_system(replace(system, actions=(action,)), choice).actions[0]
            name = f"{action.name}@{number}"
            actions.append(replace(copy, name=name))
            worlds[name] = assignments.cube(choice)
    return replace(system, actions=tuple(actions)), worlds


def _starts(system: TransitionSystem, assignments: Assignments, sizes: Mapping[str, int]) -> dict[Values, dict[Values, Worlds]]:
    """The initial states by rigid valuation, each with the assignments under which it is one."""
    found: dict[Values, dict[Values, Worlds]] = {}
    read = _flags_in([part.condition for part in (*system.assumptions, *system.initial)])
    for choice in _choices(read):
        instance = Instance.make(fold_system(system, choice), sizes)
        for rigid in rigid_valuations(instance):
            starts = found.setdefault(rigid, {})
            for values in initial_values(instance, rigid):
                starts[values] = starts.get(values, 0) | assignments.cube(choice)
    return found
