"""Gates mean what they say for every input, and are shared; the unrolling ties each state to the one before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import pytest

from kvmodel.readings.circuit import FALSE, TRUE, Circuit, Clause, Literal, Unrolling


def holds(clauses: Sequence[Clause], values: dict[int, bool]) -> bool:
    return all(any(values[abs(literal)] is (literal > 0) for literal in clause) for clause in clauses)


def values_of(circuit: Circuit, gate: Literal, inputs: dict[int, bool]) -> set[bool]:
    """The values of a literal that its clauses allow for some inputs."""
    clauses = [clause for definition in circuit.definitions([gate]).values() for clause in definition]
    inner = [variable for variable in range(1, circuit.variables + 1) if variable not in inputs]
    found = set()
    for chosen in product((False, True), repeat=len(inner)):
        values = {**inputs, **dict(zip(inner, chosen, strict=True)), TRUE: True}
        if holds(clauses, values):
            found.add(values[abs(gate)] is (gate > 0))
    return found


GATES: dict[str, tuple[Callable[[Circuit, Sequence[Literal]], Literal], Callable[[Sequence[bool]], bool]]] = {
    "conjunction": (lambda circuit, parts: circuit.conjunction(parts), all),
    "disjunction": (lambda circuit, parts: circuit.disjunction(parts), any),
    "choice": (lambda circuit, parts: circuit.choice(*parts), lambda values: values[1] if values[0] else values[2]),
    "equal": (lambda circuit, parts: circuit.equal(parts[0], parts[1]), lambda values: values[0] == values[1]),
}


@pytest.mark.parametrize("name", GATES)
def test_a_gate_has_one_value_and_it_is_right(name: str) -> None:
    """For every choice of arguments among two variables, their negations and the constants."""
    make, meaning = GATES[name]
    for chosen in product((2, 3, -2, -3, TRUE, FALSE), repeat=3):
        circuit = Circuit()
        assert (circuit.variable(), circuit.variable()) == (2, 3)
        gate = make(circuit, chosen)
        for a, b in product((False, True), repeat=2):
            inputs = {1: True, 2: a, 3: b}
            assert values_of(circuit, gate, inputs) == {meaning([inputs[abs(part)] is (part > 0) for part in chosen])}, (chosen, a, b)


def test_three_different_arguments_of_a_choice() -> None:
    circuit = Circuit()
    a, b, c = (circuit.variable() for _ in range(3))
    for signs in product((1, -1), repeat=3):
        gate = circuit.choice(signs[0] * a, signs[1] * b, signs[2] * c)
        for values in product((False, True), repeat=3):
            truth = [value is (sign > 0) for value, sign in zip(values, signs, strict=True)]
            inputs = dict(zip((TRUE, a, b, c), (True, *values), strict=True))
            known = {v for v in range(1, circuit.variables + 1) if v not in inputs and v != abs(gate)}
            assert values_of(circuit, gate, {**inputs, **dict.fromkeys(known, False)}) == {truth[1] if truth[0] else truth[2]}


def test_equal_gates_are_one_gate() -> None:
    circuit = Circuit()
    a, b = circuit.variable(), circuit.variable()
    assert circuit.conjunction((a, b)) == circuit.conjunction((b, a, a, TRUE))
    assert circuit.disjunction((a, b)) == -circuit.conjunction((-a, -b))
    assert circuit.equal(a, -b) == -circuit.equal(b, a)
    assert circuit.conjunction(()) == TRUE
    assert circuit.disjunction(()) == FALSE


def test_a_gate_over_static_variables_is_static() -> None:
    circuit = Circuit()
    fixed, other, moving = circuit.variable(static=True), circuit.variable(static=True), circuit.variable()
    assert circuit.conjunction((fixed, other)) in circuit.static
    assert circuit.conjunction((fixed, moving)) not in circuit.static


def test_definitions_leave_out_what_is_known() -> None:
    circuit = Circuit()
    a, b, c = (circuit.variable() for _ in range(3))
    inner = circuit.conjunction((a, b))
    outer = circuit.conjunction((inner, c))
    assert circuit.definitions([-outer]).keys() == {inner, outer}
    assert circuit.definitions([outer], {inner}).keys() == {outer}


def test_a_state_is_tied_to_the_one_before() -> None:
    circuit = Circuit()
    fixed, now, after = circuit.variable(static=True), circuit.variable(), circuit.variable()
    unrolling = Unrolling(circuit, {now: after})
    assert unrolling.number(after, 0) == unrolling.number(now, 1)
    assert unrolling.number(-after, 3) == -unrolling.number(now, 4)
    assert unrolling.number(now, 0) != unrolling.number(now, 1)
    assert unrolling.number(fixed, 0) == unrolling.number(fixed, 7)
    lines = unrolling.lines([(fixed, -now, after)], 1)
    assert lines == [f"{unrolling.number(fixed, 1)} -{unrolling.number(now, 1)} {unrolling.number(now, 2)} 0"]


def test_fresh_numbers_are_nobody_elses() -> None:
    circuit = Circuit()
    now, after = circuit.variable(), circuit.variable()
    unrolling = Unrolling(circuit, {now: after})
    before = [unrolling.number(now, depth) for depth in range(3)]
    fresh = unrolling.fresh()
    later = [unrolling.number(now, depth) for depth in range(6)]
    assert later[:3] == before
    assert fresh not in later
