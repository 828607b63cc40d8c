"""Which defences are enough: every assignment of flags is judged as exploration judges it, and mistakes are noticed.

Proofs are for any size and exploration is for one, so the two agree where the size shows every violation that there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import pytest

from kvmodel.analyses.assignments import Assignments
from kvmodel.analyses.defences import Defences, defences, varied_flags
from kvmodel.analyses.flagged_proofs import FlaggedProof, FlaggedProofs, Unproved
from kvmodel.analyses.worlds import ManyWorlds
from kvmodel.errors import InternalError, KvmodelError, UsageError
from kvmodel.language.build import Builder, implies, not_
from kvmodel.language.expressions import FALSE, TRUE
from kvmodel.language.instance import Instance
from kvmodel.language.load import load_spec
from kvmodel.language.system import Condition, FlagKind, TransitionSystem
from kvmodel.readings.explore import explore
from kvmodel.readings.induction import prove
from kvmodel.readings.replay import replay
from kvmodel.verdict import Verdict
from tests.analyses.families import Family, explore_family

FOUR = ("isolated_read", "fresh_read", "isolated_write", "honest_status")
SOME = ("zero_on_free", "prefill_door_honours_reject", "compares_lengths", "checksum_of_sent")
SMALL = {"Request": 2, "Page.PREFILL": 1, "Page.DECODE": 2}  # enough for the incident, not for every late write


def sets(rows: Sequence[Any]) -> set[frozenset[str]]:
    return {frozenset(row.on) for row in rows}


def disagreements(result: Defences, family: Family) -> list[str]:
    """Where rows, sets or lengths differ from those of an exploration of the same property under the same assignments."""
    assignments = result.assignments
    assert family.assignments == assignments
    violated = family.violating(result.asked)
    found = [] if result.violated == violated else [f"{(result.violated ^ violated).bit_count()} sets are judged otherwise"]
    if result.proved & violated:
        found.append("a violated set is proved")
    proved = assignments.all & ~violated
    for word, rows, numbers in (
        ("enough", result.enough, assignments.minimal(proved)),
        ("not enough", result.not_enough, assignments.maximal(violated)),
    ):
        expected = {frozenset(assignments.switched_on(number)) for number in numbers}
        if sets(rows) != expected:
            found.append(f"rows that are {word}: {sets(rows) ^ expected}")
    for row in result.not_enough:
        number = assignments.number({flag: flag in row.on for flag in result.flags})
        if row.length != family.length(result.asked, number):
            found.append(f"{row.on}: {row.length} steps, not {family.length(result.asked, number)}")
    return found


def require_evidence(result: Defences, system: TransitionSystem) -> None:
    """Each violating run replays on the system with exactly the flags of its row; each proof's set of claims is closed."""
    for row in result.not_enough:
        assert row.trace.instance.system.flag_values == {**system.flag_values, **{flag: flag in row.on for flag in result.flags}}
        assert row.trace.property == result.asked
        replay(row.trace)
    for entry in result.enough:
        values = {**system.flag_values, **{flag: flag in entry.on for flag in result.flags}}
        assert all(values[flag] is value for flag, value in entry.proof.needs)
        for condition in entry.proof.conditions:
            assert condition.claim in entry.proof.claims
            assert condition.used <= set(entry.proof.claims)
            assert condition.flags <= {flag for flag, _ in entry.proof.needs}


# -- one pool ----------------------------------------------------------------------------------------------------------


@cache
def pool(variant: str = "one-pool") -> TransitionSystem:
    return load_spec(f"pages:{variant}")


def explored_one_by_one(name: str) -> int:
    """The assignments of one pool's flags under which exploration finds the property violated."""
    assignments = Assignments(varied_flags(pool()))
    found = 0
    for number in range(assignments.count):
        verdict = explore(Instance.make(pool().with_flags(assignments.values(number))), [name])[name].verdict
        found |= (verdict is Verdict.VIOLATED) << number
    return found


@pytest.mark.parametrize("name", ["isolated_read", "fresh_read", "isolated_write", "exclusive_owner", "no_deadlock"])
def test_one_pool_as_explored_under_each_assignment(name: str) -> None:
    result = defences(pool(), name)
    assert result.flags == ("zero_on_free", "quarantine")
    assert dict(result.fixed) == {"quarantine_gives_up": False}
    assert result.violated == explored_one_by_one(name)
    assert result.proved == result.assignments.all & ~result.violated
    require_evidence(result, pool())


def test_a_hazard_stays_as_it_is() -> None:
    result = defences(pool().with_flags({"quarantine_gives_up": True}), "isolated_write")
    assert dict(result.fixed) == {"quarantine_gives_up": True}
    assert result.enough == ()
    assert sets(result.not_enough) == {frozenset({"zero_on_free", "quarantine"})}
    assert result.monotone is True


def test_rows_do_not_depend_on_the_effective_values_of_what_is_varied() -> None:
    one, other = (defences(pool(variant), "isolated_write") for variant in ("one-pool", "one-pool-without-quarantine"))
    assert (one.proved, one.violated) == (other.proved, other.violated)
    assert [(row.on, row.proof.needs) for row in one.enough] == [(row.on, row.proof.needs) for row in other.enough]


# -- handoff -----------------------------------------------------------------------------------------------------------


@cache
def buggy() -> TransitionSystem:
    return load_spec("handoff:buggy")


@cache
def family(flags: tuple[str, ...]) -> Family:
    return explore_family(buggy(), flags, SMALL, FOUR)


@cache
def prover() -> FlaggedProofs:
    return FlaggedProofs(buggy(), SOME)


@cache
def some(name: str) -> Defences:
    return defences(buggy(), name, flags=SOME, sizes=SMALL, prover=prover())


@pytest.mark.parametrize("name", ["isolated_read", "honest_status"])
def test_some_flags_of_handoff_as_explored(name: str) -> None:
    result = some(name)
    assert disagreements(result, family(SOME)) == []
    assert not result.open
    assert result.monotone
    require_evidence(result, buggy())


def test_the_exploration_of_all_assignments_at_once_is_that_of_each() -> None:
    """The oracle is itself held to plain exploration."""
    flags = ("quarantine", "compares_lengths")
    found = explore_family(buggy(), flags, SMALL, FOUR)
    for number in range(found.assignments.count):
        result = explore(Instance.make(buggy().with_flags(found.assignments.values(number)), SMALL), FOUR)
        assert [result[name].length for name in FOUR] == [found.length(name, number) for name in FOUR]
    assert found.violating("isolated_read")


@cache
def whole_prover() -> FlaggedProofs:
    return FlaggedProofs(load_spec("handoff"), varied_flags(load_spec("handoff")))


@cache
def whole(name: str) -> Defences:
    return defences(load_spec("handoff"), name, prover=whole_prover())


@cache
def whole_family() -> Family:
    return explore_family(load_spec("handoff"), varied_flags(load_spec("handoff")), {}, FOUR)


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUR)
def test_every_assignment_of_handoff_as_explored(name: str) -> None:
    """All 4,096, with no row undecided: the same sets, the same rows, the same lengths."""
    result = whole(name)
    assert result.assignments.count == 4096
    assert not result.open
    assert disagreements(result, whole_family()) == []
    require_evidence(result, load_spec("handoff"))


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUR)
def test_every_minimal_set_of_handoff_is_proved_by_the_prover(name: str) -> None:
    """`kvmodel prove`, on the system with exactly these flags, proves what the open flags proved."""
    for row in whole(name).enough:
        system = load_spec("handoff").with_flags({flag: flag in row.on for flag in whole(name).flags})
        assert name in prove(system, [name], jobs=1).claims, row.on


@pytest.mark.slow
def test_some_assignments_of_handoff_as_explored_one_by_one() -> None:
    assignments = whole_family().assignments
    for number in Random(0).sample(range(assignments.count), 12):
        result = explore(Instance.make(load_spec("handoff").with_flags(assignments.values(number))), FOUR)
        assert [result[name].length for name in FOUR] == [whole_family().length(name, number) for name in FOUR]


@cache
def with_hazard(hazard: str) -> tuple[TransitionSystem, FlaggedProofs, Family]:
    system = load_spec("handoff").with_flags({hazard: True})
    return system, FlaggedProofs(system, varied_flags(system)), explore_family(system, varied_flags(system), {}, FOUR)


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUR)
@pytest.mark.parametrize("hazard", ["truncates_automatically", "sends_reserved_row", "quarantine_gives_up"])
def test_handoff_with_a_hazard_as_explored(hazard: str, name: str) -> None:
    system, prover, family = with_hazard(hazard)
    result = defences(system, name, prover=prover)
    assert not result.open
    assert disagreements(result, family) == []


# -- flags that make things worse, and what cannot be decided ----------------------------------------------------------


def lamp() -> TransitionSystem:
    """`eager` lights the lamp, `guarded` keeps it dark: more is worse with the first alone."""
    b = Builder("lamp")
    eager, guarded = b.flag("eager", False), b.flag("guarded", False, FlagKind.SIZING)
    lit = b.relation("lit")
    b.action("press", guards={"eager": eager, "not guarded": not_(guarded)}, updates=[lit.set(True)])
    b.invariant("dark", not_(lit()))
    return b.build()


def test_a_flag_that_makes_it_worse_is_told() -> None:
    result = defences(lamp(), "dark")
    assert result.flags == ("eager", "guarded")
    assert sets(result.enough) == {frozenset()}
    assert [(row.on, row.length) for row in result.not_enough] == [(("eager",), 1)]
    assert result.monotone is False
    (reversal,) = result.reversals
    assert (reversal.flag, reversal.on, reversal.count) == ("eager", (), 1)
    assert result.proved == 0b1101
    assert not result.open


def chain(lemma: bool = False) -> TransitionSystem:
    """The lamp is lit only after a step that never comes; without a lemma that says so, nothing is inductive."""
    b = Builder("chain")
    careful = b.flag("careful", True)
    ready, lit = b.relation("ready"), b.relation("lit")
    b.action("prepare", guards={"not careful": not_(careful)}, updates=[ready.set(True)])
    b.action("press", guards={"ready": ready()}, updates=[lit.set(True)])
    b.action("repeat", guards={"ready": ready()}, updates=[ready.set(True)])
    b.invariant("dark", not_(lit()))
    if lemma:
        b.lemma("never_ready", implies(careful, not_(ready())))
    return b.build()


def test_what_is_neither_proved_nor_violated_is_undecided() -> None:
    result = defences(chain(), "dark")
    (row,) = result.undecided
    assert row.on == ("careful",)
    assert "no violation" in row.reason
    assert "press/dark" in row.reason
    assert result.open == 0b10
    assert result.violated == 0b01
    assert result.monotone is None


def test_a_lemma_decides_it() -> None:
    result = defences(chain(lemma=True), "dark")
    assert not result.open
    (row,) = result.enough
    assert row.on == ("careful",)
    assert set(row.proof.claims) == {"dark", "never_ready"}


# -- broken on purpose -------------------------------------------------------------------------------------------------


def with_lemma(system: TransitionSystem, condition: Condition) -> TransitionSystem:
    return replace(system, lemmas=(*system.lemmas, condition))


def test_a_false_lemma_is_struck_and_changes_nothing() -> None:
    """A lemma that would prove everything is not kept by any action, so that no proof rests on it."""
    right = defences(pool(), "isolated_write")
    result = defences(with_lemma(pool(), Condition("too_good", (), FALSE)), "isolated_write")
    assert (result.proved, result.violated) == (right.proved, right.violated)
    assert all("too_good" not in row.proof.claims for row in result.enough)


def test_a_false_lemma_that_is_believed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    believed = FlaggedProofs._condition

    def condition(self: FlaggedProofs, step: str, claim: str, *rest: Any) -> Any:
        return believed(self, "initially", "exclusive_owner", *rest) if claim == "too_good" else believed(self, step, claim, *rest)

    monkeypatch.setattr(FlaggedProofs, "_condition", condition)
    result = defences(with_lemma(pool(), Condition("too_good", (), FALSE)), "isolated_write")
    assert result.violated != explored_one_by_one("isolated_write")


def test_a_property_with_a_hole_is_judged_otherwise() -> None:
    """The exploration of the real property is not fooled by one that says nothing."""
    hollow = replace(buggy(), declared=tuple(replace(p, condition=TRUE) if p.name == "isolated_read" else p for p in buggy().declared))
    result = defences(hollow, "isolated_read", flags=SOME, sizes=SMALL)
    assert sets(result.enough) == {frozenset()}
    assert disagreements(result, family(SOME))


@pytest.mark.parametrize("forgotten", ["quarantine"])
def test_a_proof_that_claims_too_many_assignments_is_noticed(forgotten: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = FlaggedProofs.prove

    def prove_too_much(self: FlaggedProofs, *given: Any, **options: Any) -> FlaggedProof | Unproved:
        found = right(self, *given, **options)
        if isinstance(found, FlaggedProof):
            return replace(found, needs=tuple(pair for pair in found.needs if pair[0] != forgotten))
        return found

    monkeypatch.setattr(FlaggedProofs, "prove", prove_too_much)
    with pytest.raises(InternalError, match="both proved and violated"):
        defences(pool(), "isolated_write")


def test_a_run_that_claims_too_many_assignments_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ManyWorlds.violating
    monkeypatch.setattr(ManyWorlds, "violating", lambda self, *rest: self.assignments.all if right(self, *rest) else 0)
    with pytest.raises(KvmodelError):
        defences(pool(), "isolated_write")


def test_every_wrong_row_set_or_length_differs_from_exploration() -> None:
    """What the comparison rests on."""
    right = some("isolated_read")
    assert disagreements(right, family(SOME)) == []
    wrong = (
        replace(right, violated=right.violated & (right.violated - 1)),
        replace(right, proved=right.assignments.all),
        replace(right, enough=right.enough[1:]),
        replace(right, not_enough=right.not_enough[1:]),
        replace(right, not_enough=tuple(replace(row, trace=replace(row.trace, steps=row.trace.steps[1:])) for row in right.not_enough)),
    )
    assert all(disagreements(entry, family(SOME)) for entry in wrong)


# -- asking ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "flags", "words"),
    [
        ("can_be_read", None, "possible"),
        ("isolatd_read", None, "did you mean 'isolated_read'"),
        ("isolated_read", (), "no flag"),
        ("isolated_read", ("quarantin",), "did you mean 'quarantine'"),
    ],
)
def test_wrong_usage(name: str, flags: tuple[str, ...] | None, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        defences(pool(), name, flags=flags)


def test_too_many_flags_are_refused() -> None:
    b = Builder("many")
    lit = b.relation("lit")
    for number in range(17):
        b.action(f"a{number}", guards={"on": b.flag(f"f{number}", False)}, updates=[lit.set(False)])
    b.invariant("dark", not_(lit()))
    with pytest.raises(UsageError, match="131,072"):
        defences(b.build(), "dark")


def test_out_of_time_keeps_what_was_found() -> None:
    result = defences(load_spec("handoff"), "isolated_read", timeout=0.01)
    assert result.stopped == "timeout"
    assert result.open
    assert result.monotone is None
    assert (result.proved | result.violated | result.open) == result.assignments.all


@pytest.mark.parametrize("after", [0, 1])
def test_an_interrupt_keeps_what_was_found(after: int) -> None:
    calls = []

    def progress(line: str) -> None:
        calls.append(line)
        if len(calls) > after:
            raise KeyboardInterrupt

    result = defences(lamp(), "dark", progress=progress)
    assert len(calls) == after + 1
    assert result.stopped == "interrupted"
    decided = (result.proved | result.violated).bit_count()
    assert (decided > 0) is (after > 0)
    assert bool(result.enough or result.not_enough) is (after > 0)


def test_a_set_of_assignments_is_numbered_by_its_flags() -> None:
    assignments = Assignments(varied_flags(load_spec("handoff")))
    assert assignments.count == 4096
    assert assignments.values(0b10)["quarantine"] is True
