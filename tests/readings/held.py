"""What holding the compiled step to the interpreter means: the comparisons that tests make on any system."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice

from kvmodel.errors import UsageError
from kvmodel.language.instance import Binding, Instance, State
from kvmodel.language.system import PropertyKind
from kvmodel.language.types import Value
from kvmodel.readings import compiled
from kvmodel.readings.compiled import Changes, CompiledSystem
from kvmodel.readings.initial import initial_states
from kvmodel.readings.run import Interpreter
from kvmodel.readings.sparse import SparseState
from kvmodel.traces.trace import Choice

__all__ = ["Held", "batches_agree", "footprints_are_sound", "states_of", "walk_together"]


class Held:
    """A compiled system beside the interpreter of the same instance."""

    def __init__(self, instance: Instance, searches: bool = True) -> None:
        self.instance = instance
        self.system = instance.system
        self.interpreter = Interpreter(instance)
        self.compiled = CompiledSystem(instance.system, dict(instance.size_options()), searches=searches)
        assert self.compiled.instance == instance

    def same_state(self, sparse: SparseState, state: State) -> set[tuple[str, Binding]]:
        """Values, indices, enabled bindings, reasons, finality and violations are the same; gives the violations."""
        assert self.compiled.to_dense(sparse) == state
        sparse.check_indices()
        enabled = self.interpreter.enabled(state)
        found = tuple(
            Choice(action.name, binding) for action in self.system.actions for binding in self.compiled.bindings(sparse, action.name)
        )
        assert found == enabled
        for action in self.system.actions:
            for binding in self.instance.bindings(action.parameters):
                assert self.compiled.enabled(sparse, action.name, binding) == (Choice(action.name, binding) in enabled)
                assert (self.compiled.blocked_by(sparse, action.name, binding) == "") == (Choice(action.name, binding) in enabled)
        assert self.compiled.some_enabled(sparse) == bool(enabled)
        assert self.compiled.is_final(sparse) == self.interpreter.is_final(state)
        violations = {(violation.property, violation.binding) for violation in self.compiled.violations(sparse)}
        assert {name for name, _ in violations} == set(self.interpreter.violated(state))
        for candidate in self.system.declared:
            if candidate.kind is PropertyKind.INVARIANT:
                for binding in self.instance.bindings(candidate.parameters):
                    environment = self.interpreter.environment(candidate.parameters, binding)
                    holds = self.interpreter.evaluate(candidate.condition, state, environment)
                    assert holds == ((candidate.name, binding) not in violations), (candidate.name, binding)
        return violations


def states_of(instance: Instance, seed: int, steps: int) -> list[State]:
    """States along a random walk of the interpreter, from a random initial state with something enabled."""
    rng = random.Random(seed)
    interpreter = Interpreter(instance)
    starts = list(islice(initial_states(instance), 1_000))
    states = [max(rng.sample(starts, min(20, len(starts))), key=lambda state: len(interpreter.enabled(state)))]
    for _ in range(steps):
        enabled = interpreter.enabled(states[-1])
        if not enabled:
            break
        states.append(interpreter.successor(states[-1], _chosen(enabled, rng)))
    return states


def _chosen(enabled: tuple[Choice, ...], rng: random.Random) -> Choice:
    """First an action, then a binding: actions with many bindings would crowd the others out. Clients seldom leave: a run
    that nobody leaves goes on for longer."""
    actions = sorted({choice.action for choice in enabled})
    lasting = [action for action in actions if action not in ("abort", "stop")]
    action = rng.choice(lasting if lasting and rng.random() < 0.9 else actions)
    return rng.choice([choice for choice in enabled if choice.action == action])


def walk_together(held: Held, seed: int, steps: int) -> int:
    """Take a random walk with both; every state, step and incremental violation agrees. Gives the number of steps taken."""
    rng = random.Random(seed)
    state = states_of(held.instance, seed, 0)[0]
    sparse = held.compiled.from_dense(state)
    assert held.compiled.broken_conditions(sparse) == ()
    before = held.same_state(sparse, state)
    for taken in range(steps):
        enabled = held.interpreter.enabled(state)
        if not enabled:
            return taken
        choice = _chosen(enabled, rng)
        broken = held.interpreter.broken_assertions(state, choice)
        after = held.interpreter.successor(state, choice)
        changes = held.compiled.step(sparse, choice.action, choice.binding)
        assert_changes(held, state, after, changes)
        violations = held.same_state(sparse, after)
        touched = {(violation.property, violation.binding) for violation in held.compiled.violations(sparse, changes)}
        assert {(name, choice.binding) for name in broken} == {found for found in touched if found[0].startswith("assert:")}
        touched = {found for found in touched if not found[0].startswith("assert:")}
        assert touched <= violations
        assert violations - before <= touched, "a new violation was not noticed where the step touched"
        state, before = after, violations
    return steps


def assert_changes(held: Held, before: State, after: State, changes: Changes) -> None:
    """The changed places are exactly those that a step or a batch is said to change."""
    layout = held.instance.state_layout
    expected = {place for place, old, new in zip(layout.places, before.values, after.values, strict=True) if old != new}
    found = set()
    for name in changes.variables:
        arity = len(held.system.by_name[name].keys)
        noted = list(changes.of(name))
        assert len(noted) == len(set(noted))
        found |= {(name, (key,) if arity == 1 else key) for key in noted}
    assert found == expected


def batches_agree(held: Held, states: list[State], seed: int) -> Counter[str]:
    """Try batches in each state: what is taken equals one step after the other, in any order; what is refused changes nothing.

    Counts 'taken', 'refused' and 'not enabled'.
    """
    rng = random.Random(seed)
    outcomes: Counter[str] = Counter()
    for state in states:
        for action in held.system.actions:
            everything = list(held.instance.bindings(action.parameters))
            enabled = [binding for binding in everything if Choice(action.name, binding) in held.interpreter.enabled(state)]
            for pool in (enabled, enabled, _along(enabled, rng), _along(enabled, rng), everything):
                if len(pool) < 2:
                    continue
                chosen = rng.sample(pool, min(len(pool), rng.randint(2, 4)))
                if rng.random() < 0.1:
                    chosen.append(chosen[0])
                outcomes[_batch_agrees(held, state, action.name, chosen, rng)] += 1
    return outcomes


def _along(bindings: list[Binding], rng: random.Random) -> list[Binding]:
    """Those bindings that differ from one of them in one parameter only."""
    if not bindings or not bindings[0]:
        return []
    base = rng.choice(bindings)
    position = rng.randrange(len(base))
    return [binding for binding in bindings if all(binding[place] == base[place] for place in range(len(base)) if place != position)]


def _batch_agrees(held: Held, state: State, name: str, chosen: list[Binding], rng: random.Random) -> str:
    action = held.system.action(name)
    sparse = held.compiled.from_dense(state)
    smallest, compiled.SMALLEST_BLOCK = compiled.SMALLEST_BLOCK, rng.choice((2, 100))
    try:
        changes = held.compiled.batch(sparse, name, chosen)
    except UsageError as refusal:
        assert held.compiled.to_dense(sparse) == state
        sparse.check_indices()
        if "is not enabled" not in str(refusal):
            return "refused"
        assert held.interpreter.out_of_range(state) or not all(held.interpreter.allows(state, action, binding) for binding in chosen)
        return "not enabled"
    finally:
        compiled.SMALLEST_BLOCK = smallest
    sparse.check_indices()
    assert_changes(held, state, held.compiled.to_dense(sparse), changes)
    for _ in range(3):
        rng.shuffle(chosen)
        current = state
        broken = []
        for binding in chosen:
            choice = Choice(name, binding)
            assert choice in held.interpreter.enabled(current)
            broken += [(assertion, binding) for assertion in held.interpreter.broken_assertions(current, choice)]
            current = held.interpreter.successor(current, choice)
        assert held.compiled.to_dense(sparse) == current
        assert sorted(broken) == sorted((violation.property, violation.binding) for violation in changes.broken)
    return "taken"


def footprints_are_sound(held: Held, states: list[State], seed: int, tries: int = 3) -> int:
    """Cells outside the read footprint do not matter to a step or a property, and cells outside the write footprint do not
    change. Gives the number of cells that were perturbed."""
    rng = random.Random(seed)
    layout = held.instance.state_layout
    perturbed = 0
    for state in states:
        for action in held.system.actions:
            footprint = held.compiled.footprint(action.name)
            for binding in rng.sample(bindings := list(held.instance.bindings(action.parameters)), min(2, len(bindings))):
                environment = held.interpreter.environment(action.parameters, binding)
                outside = [
                    slot for slot, (name, index) in enumerate(layout.places)
                    if not any(access.covers(name, index, environment) for access in footprint.reads)
                ]  # fmt: skip
                written = {
                    slot for slot, (name, index) in enumerate(layout.places)
                    if any(access.covers(name, index, environment) for access in footprint.writes)
                }  # fmt: skip
                choice = Choice(action.name, binding)
                for slot in rng.sample(outside, min(tries, len(outside))):
                    other = _perturb(held, state, slot, rng)
                    perturbed += 1
                    allowed = held.interpreter.allows(state, action, binding)
                    assert held.interpreter.allows(other, action, binding) == allowed
                    if not allowed:
                        continue
                    assert held.interpreter.broken_assertions(other, choice) == held.interpreter.broken_assertions(state, choice)
                    first, second = held.interpreter.successor(state, choice).values, held.interpreter.successor(other, choice).values
                    for place in range(layout.length):
                        if place not in written:
                            assert first[place] == state.values[place]
                            assert second[place] == other.values[place]
                        elif place != slot:
                            assert first[place] == second[place]
        for candidate in held.system.declared:
            footprint = held.compiled.property_footprint(candidate.name)
            for binding in rng.sample(bindings := list(held.instance.bindings(candidate.parameters)), min(2, len(bindings))):
                environment = held.interpreter.environment(candidate.parameters, binding)
                value = held.interpreter.evaluate(candidate.condition, state, environment)
                for slot in rng.sample(range(layout.length), min(tries, layout.length)):
                    name, index = layout.places[slot]
                    if not any(access.covers(name, index, environment) for access in footprint.reads):
                        perturbed += 1
                        other = _perturb(held, state, slot, rng)
                        assert held.interpreter.evaluate(candidate.condition, other, environment) == value
    return perturbed


def _perturb(held: Held, state: State, slot: int, rng: random.Random) -> State:
    values: list[Value] = list(state.values)
    values[slot] = rng.choice(held.instance.values_of(held.instance.state_layout.types[slot]))
    return State(state.rigid, tuple(values))
