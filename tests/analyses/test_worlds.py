"""Sets of assignments against sets of sets, and one run under every assignment against the interpreter under each."""

from __future__ import annotations

from functools import cache
from itertools import product
from random import Random
from typing import Any

import pytest

from kvmodel.analyses import worlds
from kvmodel.analyses.assignments import Assignments
from kvmodel.analyses.worlds import ManyWorlds
from kvmodel.errors import ReplayError
from kvmodel.language.build import Builder, add, and_, at_most, if_, implies, not_, or_
from kvmodel.language.expressions import FALSE
from kvmodel.language.instance import Instance, State
from kvmodel.language.load import load_spec
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import Property, PropertyKind
from kvmodel.readings.explore import explore
from kvmodel.readings.replay import make_trace
from kvmodel.readings.run import Interpreter
from kvmodel.traces.trace import Choice, Trace
from kvmodel.verdict import Result
from tests.agreement.operators import Board, View

FOUR = Assignments(("a", "b", "c", "d"))


def brute(number: int) -> frozenset[str]:
    return frozenset(FOUR.switched_on(number))


@pytest.mark.parametrize("seed", range(20))
def test_sets_of_assignments(seed: int) -> None:
    chosen = {number for number in range(16) if Random(seed * 100 + number).random() < 0.3}
    mask = sum(1 << number for number in chosen)
    assert set(FOUR.members(mask)) == chosen
    assert set(FOUR.members(FOUR.above(mask))) == {n for n in range(16) if any(brute(c) <= brute(n) for c in chosen)}
    assert set(FOUR.members(FOUR.below(mask))) == {n for n in range(16) if any(brute(c) >= brute(n) for c in chosen)}
    assert set(FOUR.minimal(mask)) == {n for n in chosen if not any(brute(c) < brute(n) for c in chosen)}
    assert set(FOUR.maximal(mask)) == {n for n in chosen if not any(brute(c) > brute(n) for c in chosen)}
    for flag in FOUR.flags:
        switched = {
            value: {FOUR.number(FOUR.values(n) | {flag: value}) for n in chosen if (flag in brute(n)) is not value}
            for value in (True, False)
        }
        assert set(FOUR.members(FOUR.more(mask, flag))) == switched[True]
        assert set(FOUR.members(FOUR.fewer(mask, flag))) == switched[False]


def test_cubes() -> None:
    assert FOUR.cube({}) == FOUR.all == 0xFFFF
    for values in ({"a": True}, {"b": False, "d": True}, {"a": True, "b": False, "c": True, "d": False}):
        assert set(FOUR.members(FOUR.cube(values))) == {
            n for n in range(16) if all((flag in brute(n)) is value for flag, value in values.items())
        }


# -- one run in many worlds --------------------------------------------------------------------------------------------


@cache
def board() -> Board:
    return Board()


def spread_errors(operator: Operator | Binder) -> list[str]:
    """Where an expression over two states, one in each of two worlds, has not the value that it means in each."""
    two = Assignments(("flag",))
    many = ManyWorlds(board().instance, two)
    found = []
    for row in board().rows[operator]:
        for one, other in zip(board().states, board().states[1:], strict=False):
            values = [{a: 3} if a == b else {a: 1, b: 2} for a, b in zip(one.values, other.values, strict=True)]
            rigid = [{a: 3} if a == b else {a: 1, b: 2} for a, b in zip(one.rigid, other.rigid, strict=True)]
            expected: dict[Any, int] = {}
            for world, state in ((1, one), (2, other)):
                value = row.meaning(View(board().instance, state))
                expected[value] = expected.get(value, 0) | world
            try:
                if (got := many.spread(row.expr, rigid, values, {}, 3)) != expected:
                    found.append(f"{row.expr}: {got}, not {expected}")
            except (AssertionError, TypeError, ValueError, IndexError) as problem:
                found.append(f"{row.expr}: {problem!r}")
    return found


@pytest.mark.parametrize("operator", [*Operator, *Binder])
def test_every_operator_in_two_worlds(operator: Operator | Binder) -> None:
    assert spread_errors(operator) == []


@pytest.mark.parametrize("operator", [*Operator, *Binder])
def test_a_mistake_in_any_operator_is_noticed(operator: Operator | Binder, monkeypatch: pytest.MonkeyPatch) -> None:
    if operator in worlds.STRICT:
        strict: Any = worlds.STRICT
        right = strict[operator]
        monkeypatch.setitem(strict, operator, lambda parts: not right(parts) if isinstance(right(parts), bool) else 1)
    else:
        lazy: Any = worlds.LAZY if operator in worlds.LAZY else worlds.BINDING
        monkeypatch.setitem(lazy, operator, lambda parts, within: parts[0](within))
    assert spread_errors(operator)


@cache
def explored(spec: str) -> Result:
    return explore(Instance.make(load_spec(spec)))


def runs_of(spec: str, name: str) -> Trace:
    trace = explored(spec)[name].trace
    assert trace is not None
    return trace


def replays(trace: Trace, values: dict[str, bool]) -> bool:
    """Whether the steps of `trace` are a run that shows the same under other flags, by the interpreter."""
    instance = trace.instance
    other = Instance(instance.system.with_flags(values), instance.sizes, instance.parts)
    try:
        make_trace(other, trace.states[0], trace.steps, trace.property)
    except ReplayError:
        return False
    return True


CASES = [
    ("handoff:buggy", "isolated_read"),
    ("handoff:buggy", "honest_status"),
    ("handoff:abort-without-quarantine", "isolated_write"),
    ("handoff:prefill-door-alone", "no_deadlock"),
    ("pages:one-pool-without-quarantine", "fresh_read"),
]


def wrong_worlds(spec: str, name: str, most: int) -> tuple[list[dict[str, bool]], int]:
    """Assignments, of at most `most` drawn ones, in which the two readings of one run differ; and how many show the violation."""
    trace = runs_of(spec, name)
    flags = tuple(trace.instance.system.flags_read())
    assignments = Assignments(tuple(sorted(flags)))
    found = ManyWorlds(trace.instance, assignments).violating(trace.states[0], trace.steps, trace.instance.system.property(name))
    effective = {flag: value for flag, value in trace.instance.system.flag_values.items() if flag in flags}
    near = [assignments.number(effective | {flag: not effective[flag]}) for flag in assignments.flags]
    numbers = [assignments.number(effective), *near, *Random(0).sample(range(assignments.count), min(most, assignments.count))]
    wrong = [assignments.values(n) for n in numbers if replays(trace, assignments.values(n)) is not bool(found >> n & 1)]
    return wrong, found.bit_count()


@pytest.mark.parametrize(("spec", "name"), CASES)
def test_a_run_in_many_worlds_is_a_run_in_each(spec: str, name: str) -> None:
    wrong, count = wrong_worlds(spec, name, 20)
    assert wrong == []
    assert count >= 1


@pytest.mark.parametrize("forgotten", ["initially", "enabled"])
def test_a_condition_that_is_forgotten_is_noticed(forgotten: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worlds in which the run does not start, or a guard stops it, would be taken for violated ones."""
    whole = lambda self, *rest: rest[-1] if forgotten == "enabled" else self.assignments.all  # noqa: E731
    monkeypatch.setattr(ManyWorlds, forgotten, whole)
    assert wrong_worlds("handoff:buggy", "isolated_read", 0)[0]


def test_an_update_under_a_flag_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeroing changes what is in a page: a reading that takes one world's update for all is noticed."""
    right = ManyWorlds.after

    def everywhere(self: ManyWorlds, choice: Choice, rigid: Any, values: Any, within: int) -> Any:
        return [{next(iter(spread)): within} for spread in right(self, choice, rigid, values, within)]

    monkeypatch.setattr(ManyWorlds, "after", everywhere)
    assert any(wrong_worlds(*case, 20)[0] for case in CASES)


def switches() -> Instance:
    """A lamp and a meter, with three flags and a property of each kind that a run can violate."""
    b = Builder("switches")
    dark, twice, careful = b.flag("dark", False), b.flag("twice", False), b.flag("careful", True)
    lit = b.relation("lit")
    level = b.counter("level", high=2)
    b.initially("starts_low", at_most(level(), 1))
    b.action(
        "press",
        guards={"not dark": not_(and_(dark, lit()))},
        asserts={"off, or may be twice": or_(not_(lit()), twice)},
        updates=[lit.set(True), level.set(add(level(), if_(careful, 0, 1)))],
    )
    b.action("leave", guards={"lit": and_(lit(), not_(twice))}, updates=[level.set(0, condition=careful)])
    b.invariant("low", implies(dark, at_most(level(), 0)))
    return Instance.make(b.build())


def test_every_run_of_a_small_system_and_every_kind_of_property() -> None:
    instance = switches()
    assignments = Assignments(("dark", "twice", "careful"))
    many = ManyWorlds(instance, assignments)
    interpreters = [Interpreter(Instance.make(instance.system.with_flags(assignments.values(n)))) for n in range(assignments.count)]
    start = State((), (False, 0))
    seen = set()
    for length in range(5):
        for names in product(("press", "leave"), repeat=length):
            steps = tuple(Choice(name, ()) for name in names)
            for candidate in instance.system.properties:
                expected = 0
                for number, interpreter in enumerate(interpreters):
                    try:
                        make_trace(interpreter.instance, start, steps, candidate.name)
                    except ReplayError:
                        continue
                    expected |= 1 << number
                assert many.violating(start, steps, candidate) == expected, (names, candidate.name)
                seen |= {candidate.kind} if 0 < expected < assignments.all else set()
    assert seen == {PropertyKind.INVARIANT, PropertyKind.ASSERTION, PropertyKind.RANGE, PropertyKind.NO_DEADLOCK}


def test_a_run_that_starts_nowhere_violates_nothing() -> None:
    instance = switches()
    false = Property("false", PropertyKind.INVARIANT, (), FALSE)
    many = ManyWorlds(instance, Assignments(("dark",)))
    assert many.violating(State((), (False, 0)), (), false) == 3
    assert many.violating(State((), (True, 0)), (), false) == 0
    assert many.violating(State((), (False, 2)), (), false) == 0
