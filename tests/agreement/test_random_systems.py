"""Every exact reading agrees with the oracle on random systems; sampled readings stay within what is reachable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from math import prod
from random import Random
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from kvmodel.language.expressions import Apply, Quantified, walk
from kvmodel.language.instance import Instance, State, Values
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import Anything
from kvmodel.language.text import system_text
from kvmodel.language.types import Number
from kvmodel.readings import machine
from kvmodel.readings.machine import SpecMachine, check_with_hypothesis
from kvmodel.readings.sampled import Sampler
from kvmodel.readings.walk import Walker
from kvmodel.readings.walk import walk as walk_at_random
from kvmodel.verdict import Result, Verdict
from tests.agreement.oracle import Answer, Oracle, TooLarge, brute_force_initial_states
from tests.agreement.random_systems import Case, random_systems
from tests.agreement.readings import READINGS, Explore, Successors, disagreements

SYSTEMS = 200
SEVERAL = 4  # states that a system must have to count as one that holds
MOST_BRUTE_FORCE = 2_000
MOST_ROUNDS = 5  # another release of Hypothesis draws other systems from a seed: enough are drawn, not counted on


def drawn(examples: int, number: int, intent: str = "") -> Callable[[Callable[[Case], None]], Callable[[], None]]:
    """Calls a function with random systems; a failure is shrunk to a small system."""
    chosen = settings(max_examples=examples, database=None, deadline=None, suppress_health_check=list(HealthCheck),
                      phases=(Phase.generate, Phase.shrink))

    def drawn_by(function: Callable[[Case], None]) -> Callable[[], None]:
        draw = seed(number)(chosen(given(random_systems(intent))(function)))

        def run() -> None:
            # Hypothesis also draws constants of the modules that are imported by then, which depends on the tests before.
            with mock.patch.object(providers, "_get_local_constants", Constants):
                draw()

        return run

    return drawn_by


def kind_of(oracle: Oracle) -> str:
    """The class of a system in the histogram: it holds, or the length of the longest of its shortest violations."""
    violated = [length for verdict, length in oracle.answers.values() if verdict is Verdict.VIOLATED]
    lengths = [length for length in violated if length is not None]
    if not violated:
        return "holds" if len(oracle.depths) >= SEVERAL else "holds, hardly any states"
    return f"violated at {max(lengths)}" if lengths else "never reachable"


def near_misses(oracle: Oracle, random: Random) -> list[State]:
    """States that look like initial ones and are not, by a change of one value."""
    instance = oracle.instance
    found = []
    for state in islice(sorted(oracle.initial, key=repr), 5):
        for _ in range(4):
            values = list(state.values)
            slot = random.randrange(len(values))
            values[slot] = random.choice(instance.values_of(instance.state_layout.types[slot]))
            changed = State(state.rigid, tuple(values))
            if not oracle.interpreter.is_initial(changed):
                found.append(changed)
    return found


def operators_of(case: Case) -> set[Operator | Binder]:
    """The operators in the expressions of a system."""
    nodes = [node for expr in case.system.expressions() for node in walk(expr)]
    return {node.operator for node in nodes if isinstance(node, Apply)} | {node.binder for node in nodes if isinstance(node, Quantified)}


def test_exact_readings_agree(record_property: Callable[[str, object], None]) -> None:
    histogram: Counter[str] = Counter()
    operators: Counter[Operator | Binder] = Counter()
    seen: set[Case] = set()

    def agree(case: Case) -> None:
        if case in seen or not is_small(case):
            return
        oracle = Oracle(case.instance)
        random = Random(len(oracle.depths))
        states = list(oracle.depths)
        candidates = [*oracle.initial, *near_misses(oracle, random)]
        for name, reading in READINGS.items():
            found = disagreements(oracle, reading(case.instance), candidates, random.sample(states, len(states)))
            assert not found, f"{name} differs in {'; '.join(found)}"
        seen.add(case)
        histogram[kind_of(oracle)] += 1
        operators.update(operators_of(case))

    for number in range(1, MOST_ROUNDS):
        for intent, examples in (("violated", 145), ("hold", 145), ("any", 45)):
            drawn(examples, number, intent)(agree)()
        if len(seen) >= SYSTEMS and min(operators[operator] for operator in (*Operator, *Binder)) >= 10:
            break
    record_property("summary", f"{len(seen)} random systems: {', '.join(f'{name}: {n}' for name, n in sorted(histogram.items()))}")
    late = sum(count for name, count in histogram.items() if name.startswith("violated at ") and int(name.split()[-1]) >= 3)
    assert len(seen) >= SYSTEMS
    assert late >= 0.3 * len(seen)
    assert histogram["holds"] >= 0.3 * len(seen)
    assert min(operators[operator] for operator in (*Operator, *Binder)) >= 10


def is_small(case: Case) -> bool:
    """Whether the oracle can look at every state: few systems are larger."""
    try:
        Oracle(case.instance)
    except TooLarge:
        return False
    return True


def collected(examples: int, *numbers: int) -> Iterator[Case]:
    """Distinct random systems that the oracle can look at, `examples` drawn for each seed."""
    found: dict[Case, None] = {}
    for number in numbers:
        before = len(found)
        drawn(examples, number)(lambda case: found.update({case: None}))()
        yield from filter(is_small, list(found)[before:])


def test_initial_states_are_those_of_brute_force() -> None:
    """Without numbers the very same; with numbers, which are enumerated up to how they compare, the same answers."""
    compared: Counter[bool] = Counter()
    for case in collected(80, *range(2, MOST_ROUNDS)):
        if compared[True] >= 5 and compared[False] >= 25:
            break
        instance = case.instance
        oracle = Oracle(instance)
        numbers = [slot for slot, kind in enumerate(instance.rigid_layout.types) if isinstance(kind, Number)]
        largest = 1 + max((int(state.rigid[slot] or 0) for state in oracle.initial for slot in numbers), default=0)
        if brute_force_size(instance, largest) > MOST_BRUTE_FORCE:
            continue
        brute = frozenset(brute_force_initial_states(instance, largest))
        if numbers:
            assert oracle.initial <= brute, system_text(case.system)
            if len(brute) * len(oracle.depths) < MOST_BRUTE_FORCE * 2:
                assert Oracle(instance, 10_000, brute).answers == oracle.answers, system_text(case.system)
                compared[True] += 1
        else:
            assert brute == oracle.initial, system_text(case.system)
            compared[False] += 1
    assert compared[True] >= 5
    assert compared[False] >= 25


def brute_force_size(instance: Instance, largest: int) -> int:
    """How many combinations of values brute force has to look at."""
    rigid = prod(largest + 1 if isinstance(kind, Number) else len(instance.values_of(kind)) for kind in instance.rigid_layout.types)
    state = prod(
        len(instance.values_of(kind))
        for (name, _), kind in zip(instance.state_layout.places, instance.state_layout.types, strict=True)
        if isinstance(instance.system.by_name[name].initial, Anything)
    )
    return rigid * state


def within(oracle: Oracle, states: set[State], result: Result) -> None:
    """What a sampled reading saw and said is part of what the oracle saw."""
    text = system_text(oracle.instance.system)
    assert states <= set(oracle.depths), text
    for found in result.properties:
        verdict, shortest = oracle.answers[found.name]
        if found.trace is not None:  # replayed by make_trace
            assert found.verdict is verdict, (found.name, text)
            assert found.length is not None
            assert shortest is not None
            assert found.length >= shortest, (found.name, text)
        else:
            assert found.verdict is (Verdict.UNDECIDED if found.reachable else Verdict.HOLDS), (found.name, text)


def test_sampled_readings_stay_within_what_is_reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    visited: set[State] = set()
    original = SpecMachine._arrive

    def arrive(self: SpecMachine, values: Values) -> None:
        visited.add(State(self.start.rigid, values))
        original(self, values)

    monkeypatch.setattr(SpecMachine, "_arrive", arrive)
    monkeypatch.setattr(machine, "PATIENCE", 5)  # how well a run is shrunk is not the matter here
    shortest = violated = 0
    for number, case in enumerate(collected(45, 3)):
        oracle = Oracle(case.instance)
        result = walk_at_random(case.instance, runs=30, steps=12, seed=number)
        walker = Walker(Sampler(case.instance, case.system.properties), number)
        for _ in range(30):
            walker.run(12)
        within(oracle, set(walker.seen), result)
        for found in result.properties:
            length = oracle.answers[found.name][1]
            violated += length is not None
            shortest += found.length == length is not None
        visited.clear()
        result = check_with_hypothesis(case.instance, examples=4, steps=8, seed=number)
        within(oracle, visited, result)
    assert shortest >= 0.8 * violated  # and most of them are found by a walk, at their shortest


def test_a_system_that_is_read_wrongly_is_noticed() -> None:
    """The comparison sees a reading that loses a successor, and one that answers too late."""
    cases = tuple(collected(12, 4))

    class Forgetful(Explore):
        def successors(self, state: State) -> Successors:
            return frozenset(list(super().successors(state))[1:])

    class Late(Explore):
        def answers(self, oracle: Oracle) -> dict[str, Answer]:
            return {name: (verdict, length and length + 1) for name, (verdict, length) in super().answers(oracle).items()}

    class Blind(Explore):
        def initial(self, candidates: Iterable[State]) -> frozenset[State]:
            return frozenset(list(super().initial(candidates))[1:])

    for case in cases:
        oracle = Oracle(case.instance)
        states = list(oracle.depths)
        if any(oracle.successors.values()):
            assert any("successors" in found for found in disagreements(oracle, Forgetful(case.instance), oracle.initial, states))
        if any(length for _, length in oracle.answers.values()):
            assert disagreements(oracle, Late(case.instance), oracle.initial, [])
        assert disagreements(oracle, Blind(case.instance), oracle.initial, []) == ["initial states"]
