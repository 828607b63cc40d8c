"""Lemmas found by the machine: they are proved, they can be pasted, they hang on no name, and nothing false is proved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pytest

from kvmodel.analyses.infer import Inference, infer
from kvmodel.analyses.rows import Projection, Rows
from kvmodel.analyses.vocabulary import Box, condition, templates
from kvmodel.errors import UsageError
from kvmodel.language.build import Builder, and_, any_, constant, eq, implies, is_none, member, none, not_, var
from kvmodel.language.expressions import Expr
from kvmodel.language.instance import Instance, State
from kvmodel.language.load import load_spec
from kvmodel.language.system import TransitionSystem
from kvmodel.language.text import expression
from kvmodel.language.types import Maybe
from kvmodel.readings.explore import explore, reachable
from kvmodel.readings.fold import fold_system
from kvmodel.readings.run import Interpreter
from kvmodel.readings.solver import Answer, ConditionSolver
from kvmodel.verdict import Verdict
from kvmodel.views.inference import inference_text, lemma_source
from tests.analyses.renaming import Renaming, reordered


def proved_again(system: TransitionSystem, inference: Inference) -> bool:
    """Whether a solver of its own proves every condition with what was found and nothing else."""
    solver = ConditionSolver(replace(system, lemmas=inference.lemmas), seed=7)
    claims = [*inference.properties, *(lemma.name for lemma in inference.lemmas)]
    return all(solver.check(step, claim, claims).answer is Answer.PROVED for claim in claims for step in solver.induction.steps(claim))


@cache
def one_pool() -> Inference:
    return infer(load_spec("pages:one-pool"), ["isolated_read", "fresh_read"])


def lock(*, broken: bool = False) -> TransitionSystem:
    """Threads wait for a lock. When `broken`, it is taken whoever holds it."""
    b = Builder("lock")
    thread = b.sort("Thread")
    phase = b.enumeration("Phase", "IDLE", "WAITS", "INSIDE")
    at = b.function("at", thread, to=phase)
    owner = b.function("owner", to=Maybe(thread))
    t, u = var("t", thread), var("u", thread)
    idle, waits, inside = (member(phase, name) for name in phase.members)
    b.action("ask", t, guards={"idle": eq(at(t), idle)}, updates=[at.set(waits, t)])
    free: Expr = constant(True) if broken else is_none(owner())
    b.action("enter", t, guards={"waits": eq(at(t), waits), "free": free}, updates=[at.set(inside, t), owner.set(t)])
    b.action("leave", t, guards={"inside": eq(at(t), inside)}, updates=[at.set(idle, t), owner.set(none(thread))])
    b.invariant("alone", implies(and_(eq(at(t), inside), eq(at(u), inside)), eq(t, u)), t, u)
    b.reachable("in", any_([t], eq(at(t), inside)))
    return b.build()


def gate() -> TransitionSystem:
    """As a lock that nobody owns: what has to be said of two threads is linked by nothing that holds between them."""
    b = Builder("gate")
    thread = b.sort("Thread")
    phase = b.enumeration("Phase", "OUT", "IN", "LEAVING")
    at, shut = b.function("at", thread, to=phase), b.relation("shut")
    t, u = var("t", thread), var("u", thread)
    out, inside, leaving = (member(phase, name) for name in phase.members)
    b.action("enter", t, guards={"out": eq(at(t), out), "open": not_(shut())}, updates=[at.set(inside, t), shut.set(True)])
    b.action("turn", t, guards={"in": eq(at(t), inside)}, updates=[at.set(leaving, t)])
    b.action("leave", t, guards={"leaving": eq(at(t), leaving)}, updates=[at.set(out, t), shut.set(False)])
    b.invariant("alone", implies(and_(eq(at(t), inside), eq(at(u), inside)), eq(t, u)), t, u)
    return b.build()


def three() -> TransitionSystem:
    """An invariant that three different things can violate, and two cannot."""
    b = Builder("three")
    thing = b.sort("Thing")
    bad = b.relation("bad")
    x, y, z = (var(name, thing) for name in "xyz")
    differ = and_(not_(eq(x, y)), not_(eq(x, z)), not_(eq(y, z)))
    b.action("meet", x, y, z, guards={"different": differ}, updates=[bad.set(True)])
    b.invariant("good", not_(bad()))
    return b.build()


# -- what is found is proved


def test_lemmas_of_a_lock() -> None:
    inference = infer(lock(), ["alone"])
    assert (inference.verdict, inference.reason, inference.violated) == (Verdict.HOLDS, "", "")
    assert [expression(lemma.condition) for lemma in inference.lemmas] == ["implies(at[t] == Phase.INSIDE, owner == t)"]
    assert proved_again(lock(), inference)
    assert inference.counterexamples == 1
    assert all(result.answer is Answer.PROVED for result in inference.conditions)


def test_without_the_lemma_the_property_is_not_proved() -> None:
    inference = infer(lock(), ["alone"])
    assert not proved_again(lock(), replace(inference, lemmas=()))


def test_a_clause_about_elements_that_nothing_links_is_the_last_resort() -> None:
    inference = infer(gate(), ["alone"])
    assert inference.complete
    assert proved_again(gate(), inference)


def test_lemmas_of_one_pool_need_none_of_the_spec_s_own() -> None:
    system = load_spec("pages:one-pool")
    inference = one_pool()
    assert inference.complete
    assert 1 <= len(inference.lemmas) <= 15
    assert proved_again(system, inference)
    assert {lemma.name for lemma in inference.lemmas}.isdisjoint(lemma.name for lemma in system.lemmas)


def test_one_seed_gives_one_answer() -> None:
    one, other = (infer(load_spec("pages:one-pool"), ["exclusive_owner"], seed=3) for _ in range(2))
    assert (one.lemmas, one.states, one.candidates) == (other.lemmas, other.states, other.candidates)


def test_each_lemma_holds_in_every_reachable_state() -> None:
    system = load_spec("pages:one-pool")
    instance = Instance.make(system, {"Request": 2, "Page": 2})
    interpreter = Interpreter(instance)
    for deployment in reachable(instance, ()).deployments:
        for values in deployment.states:
            state = State(deployment.steps.rigid, values)
            assert all(interpreter.holds_for_all(lemma, state) for lemma in one_pool().lemmas)


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_hangs_on_names_or_order(seed: int) -> None:
    renaming = Renaming(load_spec("pages:one-pool"))
    system = reordered(renaming.system, seed)
    inference = infer(system, [renaming.names["isolated_read"]], seed=seed)
    assert inference.complete
    assert proved_again(system, inference)


# -- nothing false is proved


def test_a_violated_property_ends_in_a_shortest_run() -> None:
    system = load_spec("pages:one-pool-without-quarantine")
    inference = infer(system, ["isolated_write"])
    shortest = explore(Instance.make(system), ["isolated_write"])["isolated_write"].trace
    assert inference.verdict is Verdict.VIOLATED
    assert (inference.violated, inference.lemmas, inference.conditions) == ("isolated_write", (), ())
    assert inference.trace is not None
    assert shortest is not None
    assert len(inference.trace.steps) == len(shortest.steps) == 3
    assert "isolated_write is violated after 3 steps" in inference_text(inference)


def test_a_broken_lock_is_noticed() -> None:
    assert infer(lock(broken=True), ["alone"]).verdict is Verdict.VIOLATED


def test_what_only_larger_instances_violate_is_not_proved() -> None:
    assert explore(Instance.make(three()), ["good"])["good"].verdict is Verdict.HOLDS
    inference = infer(three(), ["good"])
    assert inference.verdict is Verdict.UNDECIDED
    assert inference.reason == "no clause of the vocabulary excludes a state that leads to a violation of 'good'"


def test_time_that_is_over_is_no_proof() -> None:
    inference = infer(lock(), ["alone"], timeout=0)
    assert (inference.verdict, inference.reason, inference.conditions) == (Verdict.UNDECIDED, "timeout", ())


@pytest.mark.parametrize("moment", ["Thread=", "rows", "encoding", "at any size"])
def test_an_interrupt_is_no_proof(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvmodel.analyses.infer.BETWEEN_PROGRESS", 0.0)

    def interrupt(line: str) -> None:
        if moment in line:
            raise KeyboardInterrupt

    inference = infer(lock(), ["alone"], progress=interrupt)
    assert (inference.verdict, inference.reason, inference.conditions) == (Verdict.UNDECIDED, "interrupted", ())
    assert len(inference.lemmas) == (1 if moment == "at any size" else 0)
    text = inference_text(inference)
    assert "undecided" in text
    assert ("nothing is proved with them" in text) is bool(inference.lemmas)


def test_a_spec_that_is_too_large_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvmodel.analyses.infer.MOST_FEATURES", 1)
    inference = infer(lock(), ["alone"])
    assert inference.verdict is Verdict.UNDECIDED
    assert inference.reason == "the spec has too many variables for a template: more than 1 features"


def test_what_cannot_be_asked_is_said() -> None:
    with pytest.raises(UsageError, match="did you mean"):
        infer(lock(), ["alon"])
    with pytest.raises(UsageError, match="'in' is shown by a run, not proved"):
        infer(lock(), ["in"])
    with pytest.raises(UsageError, match="no property"):
        infer(lock(), [])


# -- the lemmas as text


def test_printed_lemmas_can_be_pasted(tmp_path: Path) -> None:
    inference = one_pool()
    file = tmp_path / "pasted.py"
    file.write_text(
        "from kvmodel.language import implies, lemma\n"
        "from kvmodel.specs.pages import OnePool, Page, Request\n\n\n"
        "class Pasted(OnePool):\n" + lemma_source(inference.lemmas),
        encoding="utf-8",
    )
    system = load_spec(f"{file}:Pasted")
    names = {lemma.name for lemma in inference.lemmas}
    pasted = tuple(lemma for lemma in system.lemmas if lemma.name in names)
    assert len(pasted) == len(names)
    assert proved_again(system, replace(inference, lemmas=pasted))


def test_the_text_of_an_inference() -> None:
    lines = inference_text(infer(lock(), ["alone"])).splitlines()
    assert lines[0] == "alone: holds   any size, with 1 inferred lemma"
    assert lines[-3:] == [
        "    @lemma",
        "    def lemma_1(s, t: Thread) -> bool:",
        "        return implies(s.at[t] == Phase.INSIDE, s.owner == t)",
    ]


# -- data and clauses


@pytest.mark.parametrize("spec", ["pages:one-pool", "handoff"])
def test_rows_and_clauses_mean_the_same(spec: str) -> None:
    """A box is free of rows exactly when the oracle finds its clause true in all of these states."""
    system = fold_system(load_spec(spec))
    instance = Instance.make(system, {"Request": 2, "Page": 2})
    graph = reachable(instance, (), limit=3_000)
    interpreter = Interpreter(instance)
    deployment = graph.deployments[-1]
    states = deployment.states[:: max(1, len(deployment.states) // 60)]
    random = Random(5)
    judged = set()
    for number, template in enumerate(templates(system)):
        rows = Rows(template)
        rows.add(Projection(template, instance, deployment.steps.rigid).rows(states)[0])
        for _ in range(60):
            positions = random.sample(range(len(template.features)), random.choice((1, 2, 3)))
            box = Box(
                tuple(
                    (position, frozenset(random.sample(range(len(options)), random.randrange(1, len(options)))))
                    for position in sorted(positions)
                    for options in (template.features[position].options,)
                )
            )
            claim = condition("claim", template, box)
            holds = all(interpreter.holds_for_all(claim, State(deployment.steps.rigid, values)) for values in states)
            assert rows.is_empty(box) is holds, expression(claim.condition)
            judged.add((number, holds))
    assert {holds for _, holds in judged} == {True, False}


def test_candidates_exclude_the_row_and_no_known_one() -> None:
    template = templates(fold_system(lock()))[0]
    instance = Instance.make(lock())
    (deployment,) = reachable(instance, ()).deployments
    rows = Rows(template)
    rows.add(Projection(template, instance, deployment.steps.rigid).rows(deployment.states)[0])
    row = rows.matrix[0].copy()
    assert row in rows
    everything = frozenset(range(len(template.features)))
    assert list(rows.candidates(row, 4, everything, linked=False)) == []
    inside = np.array([feature.options.index("INSIDE") if "INSIDE" in feature.options else 0 for feature in template.features], np.uint8)
    found = list(rows.candidates(inside, 4, everything, linked=False))
    assert found
    for candidate in found:
        assert rows.is_empty(candidate.box)
        assert all(int(inside[position]) in chosen for position, chosen in candidate.box.sides)


# -- the targets at their real size


@pytest.mark.slow
@pytest.mark.parametrize("name", ["isolated_read", "isolated_write"])
@pytest.mark.parametrize("spec", ["handoff", "handoff:prefill-door-alone", "handoff:length-check-alone", "tenants"])
def test_handoff(spec: str, name: str, record_property: Callable[[str, object], None]) -> None:
    system = load_spec(spec)
    inference = infer(system, [name], timeout=300)
    record_property("summary", f"{spec} {name}: {inference_text(inference).splitlines()[1].strip()}")
    assert inference.complete, inference.reason
    assert proved_again(system, inference)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", ["isolated_read", "isolated_write"])
@pytest.mark.parametrize("spec", ["handoff", "handoff:prefill-door-alone", "handoff:length-check-alone"])
def test_handoff_renamed(spec: str, name: str, seed: int, record_property: Callable[[str, object], None]) -> None:
    renaming = Renaming(load_spec(spec))
    system = reordered(renaming.system, seed)
    inference = infer(system, [renaming.names[name]], timeout=300, seed=seed)
    record_property("summary", f"{spec} {name}, renamed, seed {seed}: {inference_text(inference).splitlines()[1].strip()}")
    assert inference.complete, inference.reason
    assert proved_again(system, inference)


@pytest.mark.slow
def test_the_incident_is_not_proved() -> None:
    inference = infer(load_spec("handoff:buggy"), ["isolated_read"])
    assert inference.verdict is Verdict.VIOLATED
    assert inference.trace is not None
