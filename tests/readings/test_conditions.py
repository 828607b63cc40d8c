"""Weakest preconditions say of a state before a step what the claim says of the state after it; the interpreter is the judge."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from random import Random

import pytest

from kvmodel.language.build import Builder, all_, and_, any_, eq, implies, not_, or_, var
from kvmodel.language.expressions import Const, Expr
from kvmodel.language.instance import Instance, State
from kvmodel.language.load import load_spec
from kvmodel.language.system import Action, TransitionSystem, Update
from kvmodel.language.types import BOOL, Number, Value
from kvmodel.readings import conditions
from kvmodel.readings.conditions import INITIALLY, OBVIOUSLY, Induction, after, calls_for_elements
from kvmodel.readings.run import Interpreter
from kvmodel.traces.trace import Choice
from tests.agreement.test_random_systems import collected


def random_state(instance: Instance, random: Random) -> State:
    """A state of the right types, reachable or not; pages are in the pools that the instance says."""
    rigid: list[Value] = []
    for (name, index), kind in zip(instance.rigid_layout.places, instance.rigid_layout.types, strict=True):
        if instance.system.by_name[name].partition:
            assert isinstance(index[0], int)
            rigid.append(instance.part_of[instance.system.by_name[name].keys[0].name, index[0]])
        else:
            rigid.append(random.randrange(3) if isinstance(kind, Number) else random.choice(instance.values_of(kind)))
    return State(tuple(rigid), tuple(random.choice(instance.values_of(kind)) for kind in instance.state_layout.types))


def disagreements(system: TransitionSystem, sizes: dict[str, int] | None, states: int) -> tuple[int, list[str]]:
    """How many steps were compared, and where a claim after a step differs from its weakest precondition before it."""
    induction, instance, random = Induction(system), Instance.make(system, sizes), Random(0)
    interpreter = Interpreter(instance)
    compared, found = 0, []
    for _ in range(states):
        before = random_state(instance, random)
        for action in induction.actions.values():
            binding = tuple(random.choice(instance.elements(p.domain)) for p in action.parameters)
            names = interpreter.environment(action.parameters, binding)
            following = interpreter.successor(before, Choice(action.name, binding))
            for claim in induction.claims.values():
                if claim.derived:
                    continue
                chosen = tuple(random.choice(instance.elements(p.domain)) for p in claim.parameters)
                bound = interpreter.environment(claim.parameters, chosen)
                expected = interpreter.evaluate(claim.condition, following, bound)
                got = interpreter.evaluate(after(claim.condition, action), before, {**names, **bound})
                compared += 1
                if got != expected:
                    found.append(f"{action.name}/{claim.name}")
    return compared, found


@pytest.mark.parametrize("spec", ["pages:one-pool", "handoff", "handoff:checksum-of-each-side-blind", "tenants"])
def test_after_a_step_and_before_it_a_claim_is_the_same(spec: str) -> None:
    compared, found = disagreements(load_spec(spec), None, 4)
    assert compared > 100
    assert not found


def test_also_in_random_systems() -> None:
    compared = 0
    for case in islice(collected(40, 7), 30):
        count, found = disagreements(case.system, dict(case.instance.sizes), 5)
        assert not found
        compared += count
    assert compared > 300


def test_a_lost_update_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = conditions._written

    def wrong(update: Update, places: tuple[Expr, ...], action: Action) -> tuple[Expr, Expr]:
        condition, value = original(update, places, action)
        return (Const(False, BOOL) if update.variable == "written" else condition), value

    monkeypatch.setattr(conditions, "_written", wrong)
    assert disagreements(load_spec("pages:one-pool"), None, 4)[1]


def test_conditions_of_a_claim() -> None:
    induction = Induction(load_spec("pages:one-pool"))
    assert induction.steps("exclusive_owner") == (INITIALLY, "allocate", "abort")  # the actions that write `holds`
    assert induction.steps("no_deadlock") == (OBVIOUSLY,)
    kept = induction.condition("allocate", "exclusive_owner")
    assert kept.name == "allocate/exclusive_owner"
    assert [constant.name for constant in kept.constants] == ["allocate.r", "allocate.p", "r", "q", "p"]
    assert {name for name, _ in kept.under(["written_is_held"]).hypotheses} == {"written_is_held"}
    assert {name for name, _ in kept.hypotheses} == {name for name, claim in induction.claims.items() if not claim.derived}


def test_lemmas_are_read_and_nothing_else_looks_at_them() -> None:
    system = load_spec("handoff")
    assert "written_is_held" in {lemma.name for lemma in system.lemmas}
    assert "written_is_held" not in {p.name for p in system.properties}
    assert replace(system, lemmas=()).flags_read() == system.flags_read()


def test_which_hypotheses_call_for_elements() -> None:
    b = Builder("calls")
    thing = b.sort("Thing")
    on, near = b.relation("on", thing), b.relation("near", thing, thing)
    x, y = var("x", thing), var("y", thing)
    some: Expr = any_([y], near(x, y))
    assert calls_for_elements(all_([x], implies(on(x), some)))
    assert calls_for_elements(not_(all_([x], on(x))))
    assert calls_for_elements(all_([x], eq(on(x), some)))  # an equality looks both ways
    assert not calls_for_elements(all_([x], implies(some, on(x))))
    assert not calls_for_elements(all_([x], or_(on(x), not_(some))))
    assert not calls_for_elements(all_([x, y], and_(near(x, y), on(x))))
