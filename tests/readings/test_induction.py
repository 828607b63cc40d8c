"""Proofs for any size: what is proved, what is not, and what is said about it."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest

from kvmodel.analyses.proving import prove_properties
from kvmodel.errors import UsageError
from kvmodel.language.build import Builder, add, all_, and_, any_, at_most, count, eq, implies, less, not_, var
from kvmodel.language.load import load_spec
from kvmodel.language.system import Condition, FlagKind, TransitionSystem
from kvmodel.language.types import Sort
from kvmodel.readings import counterexample, induction
from kvmodel.readings.conditions import INITIALLY
from kvmodel.readings.counterexample import Reached
from kvmodel.readings.induction import prove
from kvmodel.readings.solver import Answer, ConditionResult, ConditionSolver
from kvmodel.verdict import FindingKind, Verdict, overall
from tests.agreement.oracle import Oracle
from tests.agreement.test_random_systems import collected


def tokens(*, lemma: bool = True, checked: bool = True, careless: bool = False) -> TransitionSystem:
    """A token is passed on only by whoever has it and was let in; nobody else is ever inside."""
    b = Builder("tokens")
    who = b.sort("Who")
    has, inside = b.relation("has", who, initial=False), b.relation("inside", who)
    free = b.relation("free", initial=True)
    lax = b.flag("lax", careless, FlagKind.HAZARD)
    r, q = var("r", who), var("q", who)
    b.action("take", r, guards={"free": free()}, updates=[free.set(False), has.set(True, r)])
    b.action("enter", r, guards={"has it": implies(not_(lax), has(r)) if checked else has(r)}, updates=[inside.set(True, r)])
    b.action("leave", r, guards={"inside": inside(r)}, updates=[inside.set(False, r)])
    b.action("give_back", r, guards={"outside": and_(has(r), not_(inside(r)))}, updates=[has.set(False, r), free.set(True)])
    b.invariant("one_inside", implies(and_(inside(r), inside(q)), eq(r, q)), r, q)
    b.reachable("can_enter", inside(r), r)
    if lemma:
        b.lemma("one_token", and_(implies(and_(has(r), has(q)), eq(r, q)), implies(free(), not_(has(r)))), r, q)
        b.lemma("inside_has", implies(and_(inside(r), not_(lax)), has(r)), r)
    return b.build()


def test_a_property_is_proved_with_lemmas() -> None:
    proof = prove(tokens(), ["one_inside"], jobs=1)
    assert proof.claims == ("one_inside", "one_token", "inside_has")
    assert {result.name for result in proof.conditions} >= {f"{INITIALLY}/one_inside", "enter/one_inside", "give_back/one_token"}
    assert not proof.open
    assert all(result.used <= set(proof.claims) for result in proof.conditions)


def test_without_lemmas_it_is_undecided_and_the_missing_step_is_shown() -> None:
    proving = prove_properties(tokens(lemma=False), ["one_inside"], jobs=1)
    (entry,) = proving.result.properties
    assert entry.verdict is Verdict.UNDECIDED
    assert entry.reason.startswith("not inductive: enter/one_inside; no violation at this size")
    (unproved,) = proving.unproved
    assert unproved.reached is Reached.NO
    assert unproved.induced.step == "enter"
    assert dict(unproved.induced.instance.sizes) == {"Who": 2}  # the fewest that can show it
    true = sum(value is True for value in unproved.induced.before.values)
    assert true == 2  # one is inside, the other has the token: no fact more than that


def test_a_violated_property_has_a_run() -> None:
    proving = prove_properties(tokens(careless=True), jobs=1)
    assert proving.result.verdict is Verdict.VIOLATED
    assert proving.result.trace is not None
    assert [choice.action for choice in proving.result.trace.steps] == ["enter", "enter"]
    assert proving.result["one_inside"].coverage.word == "this size"
    assert proving.result.coverage.word == "this size"
    assert not proving.unproved


def test_a_false_lemma_is_struck_out_and_the_rest_is_used() -> None:
    system = tokens()
    r = var("r", Sort("Who"))
    wrong = Condition("nobody_has", (r,), not_(Builder("x").relation("has", Sort("Who"))(r)))
    proof = prove(replace(system, lemmas=(wrong, *system.lemmas)), ["one_inside"], jobs=1)
    assert proof.proved("one_inside")
    assert not proof.proved("nobody_has")


def test_what_rests_on_a_struck_claim_is_proved_again_or_struck() -> None:
    """`inside_has` is kept by give_back only thanks to its guard; without it, what used the lemma is struck too."""
    system = tokens()
    careless = replace(
        system, actions=tuple(replace(a, guards=()) if a.name == "give_back" else a for a in system.actions)
    )
    proof = prove(careless, ["one_inside"], jobs=1)
    assert not proof.proved("one_inside")
    assert {"one_inside", "inside_has"} <= set(proof.open)
    assert not proof.claims


def test_all_flags_at_once() -> None:
    assert not prove(tokens(), ["one_inside"], all_flags=True, jobs=1).proved("one_inside")
    proving = prove_properties(tokens(), ["one_inside"], all_flags=True, jobs=1)
    assert proving.result.verdict is Verdict.VIOLATED  # with the flag of the counterexample to induction
    assert proving.result.trace is not None
    assert proving.result.trace.instance.system.flag_values == {"lax": True}
    proved = prove_properties(load_spec("pages:one-pool"), ["exclusive_owner"], all_flags=True, jobs=1)
    assert proved.result.verdict is Verdict.HOLDS
    assert proved.result.coverage.flags is None


def test_processes_give_the_same_answer() -> None:
    system = load_spec("pages:one-pool")
    one, two = prove(system, jobs=1), prove(system, jobs=2)
    assert one.claims == two.claims
    assert {(r.name, r.answer) for r in one.conditions} == {(r.name, r.answer) for r in two.conditions}


def test_a_reachable_property_is_refused() -> None:
    with pytest.raises(UsageError, match="'can_enter' says that something is possible: a run shows that"):
        prove(tokens(), ["can_enter"], jobs=1)
    with pytest.raises(UsageError, match="did you mean 'one_inside'"):
        prove(tokens(), ["one_insid"], jobs=1)


def test_a_count_over_a_sort_is_undecided_and_says_so() -> None:
    b = Builder("counted")
    thing = b.sort("Thing")
    on = b.relation("on", thing)
    x = var("x", thing)
    b.action("light", x, guards={"none": less(count([x], on(x)), 1)}, updates=[on.set(True, x)])
    b.invariant("few", at_most(count([x], on(x)), 1))
    (entry, _) = prove_properties(b.build(), jobs=1).result.properties
    assert entry.verdict is Verdict.UNDECIDED
    assert "a count over a sort has no meaning at any size" in entry.reason


def test_counters_assertions_and_deadlocks() -> None:
    def counter(high: int) -> TransitionSystem:
        b = Builder("counter")
        thing = b.sort("Thing")
        jobs, done = b.counter("jobs", thing, high=2), b.relation("done", thing)
        x = var("x", thing)
        b.action("start", x, guards={"room": less(jobs(x), high)}, updates=[jobs.set(add(jobs(x), 1), x)])
        b.action("stop", x, guards={"some": less(0, jobs(x))}, asserts={"not done": not_(done(x))}, updates=[jobs.set(0, x)])
        return b.build()

    good = prove(counter(2), jobs=1)
    assert good.claims  # and each of them is proved:
    assert all(good.proved(name) for name in ("range:jobs", "no_deadlock"))
    assert not good.proved("assert:stop:not done")  # nothing says that `done` stays false
    bad = prove_properties(counter(3), ["range:jobs"], jobs=1)
    assert bad.result["range:jobs"].verdict is Verdict.VIOLATED


def test_an_action_that_never_happens_is_a_finding() -> None:
    system = tokens()
    who = Sort("Who")
    r = var("r", who)
    on = Builder("x").relation("inside", who)
    has = Builder("x").relation("has", who)
    dead = replace(system.actions[0], name="ghost", parameters=(r,), guards=(
        replace(system.actions[0].guards[0], condition=and_(on(r), not_(has(r)))),
    ), updates=())  # fmt: skip
    proving = prove_properties(replace(system, actions=(*system.actions, dead)), ["one_inside"], jobs=1)
    assert [(finding.kind, finding.subject) for finding in proving.result.findings] == [(FindingKind.ACTION_NEVER_FIRED, "ghost")]
    assert not prove_properties(system, ["one_inside"], jobs=1).result.findings


def test_ctrl_c_and_time_keep_what_was_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    original = ConditionSolver.check

    def check(self: ConditionSolver, step: str, claim: str, *rest: object) -> ConditionResult:
        asked.append(claim)
        if len(asked) > 8:
            raise KeyboardInterrupt
        return original(self, step, claim, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(ConditionSolver, "check", check)
    proving = prove_properties(tokens(), jobs=1)
    assert proving.result.verdict is Verdict.UNDECIDED
    assert proving.result["one_inside"].reason == "interrupted"
    assert str(proving.result["one_inside"].coverage) == "this depth (Who=2, up to 0 steps)"  # nothing was covered
    monkeypatch.undo()
    late = prove_properties(load_spec("handoff"), timeout=0.05, jobs=1)
    assert late.result.verdict is Verdict.UNDECIDED
    assert "stopped after 0.05 seconds" in {entry.reason for entry in late.result.properties}


def test_a_limit_on_the_solver_names_the_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(*_: object) -> tuple[Answer, str, frozenset[str]]:
        return Answer.UNKNOWN, "Z3 gave up: too much work", frozenset()

    monkeypatch.setattr(ConditionSolver, "_ask", give_up)
    monkeypatch.setattr(ConditionSolver, "refutes", lambda *_: False)
    (entry,) = prove_properties(tokens(), ["one_inside"], jobs=1).result.properties
    assert entry.verdict is Verdict.UNDECIDED
    assert entry.reason.startswith(f"open condition {INITIALLY}/one_inside: Z3 gave up: too much work")


def test_a_counterexample_that_the_interpreter_does_not_confirm_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvmodel.errors import InternalError

    monkeypatch.setattr(counterexample, "_true", lambda *_: True)
    with pytest.raises(InternalError, match="does not confirm"):
        prove(tokens(lemma=False), ["one_inside"], jobs=1)


def test_a_proof_of_what_is_violated_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the solver said that everything is proved, the verdict would rest on nothing: the tests of this file see that."""
    monkeypatch.setattr(ConditionSolver, "check", lambda self, step, claim, *rest: ConditionResult(step, claim, Answer.PROVED))
    assert prove_properties(tokens(careless=True), jobs=1).result.verdict is Verdict.HOLDS


def test_what_is_false_from_the_start_is_shown_in_an_initial_state() -> None:
    """The condition has the initial values in place, so that the solver says nothing of the state."""
    b = Builder("shelf")
    book = b.sort("Book")
    x = var("x", book)
    on_shelf, lost = b.relation("on_shelf", book, initial=True), b.relation("lost", book)
    b.action("lend", x, updates=[on_shelf.set(False, x)])
    b.invariant("lent", not_(on_shelf(x)), x)
    b.invariant("found", implies(on_shelf(x), lost(x)), x)
    found = prove(b.build(), jobs=1).counterexamples
    for name in ("lent", "found"):
        values = dict(zip(found[name].instance.state_layout.places, found[name].before.values, strict=True))
        assert values == {("on_shelf", (0,)): True, ("lost", (0,)): False}


def test_random_systems_are_proved_only_where_the_oracle_agrees() -> None:
    proved = undecided = 0
    for case in islice(collected(60, 11), 45):
        oracle = Oracle(case.instance)
        proof = prove(case.system, jobs=1, limit=2_000_000)
        for name in proof.asked:
            verdict, _ = oracle.answers[name]
            if proof.proved(name):
                proved += 1
                assert verdict is Verdict.HOLDS, name
            else:
                undecided += 1
    assert proved >= 40
    assert undecided >= 10


def test_overall_of_a_mixed_proof() -> None:
    system = tokens(lemma=False)
    results = prove_properties(system, jobs=1).result.properties
    assert overall(results) is Verdict.UNDECIDED
    assert {entry.name: entry.verdict for entry in results}["no_deadlock"] is Verdict.UNDECIDED
    assert induction.provable(system) == ("one_inside", "no_deadlock")


def test_quantified_guards_are_read_for_any_size() -> None:
    """Whoever enters when all others are outside is alone, however many there are."""
    b = Builder("alone")
    who = b.sort("Who")
    inside = b.relation("inside", who)
    r, q = var("r", who), var("q", who)
    b.action("enter", r, guards={"empty": not_(any_([q], inside(q)))}, updates=[inside.set(True, r)])
    b.action("empty", updates=[inside.set(False, q, over=[q])])
    b.action("all_but_one", r, guards={"all in": all_([q], inside(q))}, updates=[inside.set(eq(q, r), q, over=[q])])
    b.invariant("alone", implies(and_(inside(r), inside(q)), eq(r, q)), r, q)
    assert prove(b.build(), ["alone"], jobs=1).proved("alone")
