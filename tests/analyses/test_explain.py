"""A trace in words: what its end depends on, who would have refused it, and which single flags would have stopped it."""

from __future__ import annotations

from dataclasses import replace

import pytest

import kvmodel
from kvmodel.analyses import slices
from kvmodel.analyses.explain import Explanation, explain, said
from kvmodel.analyses.refusals import base_of, obstacle
from kvmodel.analyses.slices import backward_slice, runs_without, source
from kvmodel.errors import ReplayError, UsageError
from kvmodel.language.build import Builder, not_, var
from kvmodel.language.instance import Instance
from kvmodel.language.load import load_spec
from kvmodel.language.system import FlagKind
from kvmodel.readings.explore import explore
from kvmodel.readings.replay import make_trace
from kvmodel.traces.trace import Choice, Trace
from tests import lending
from tests.violations import SHOWN, shortest, with_bystander

CASES = [pytest.param(spec, name, id=f"{spec} {name}") for spec, name, _ in SHOWN]


def chain(trace: Trace) -> list[str]:
    return [f"{cause.step}: {cause.sentence}" for cause in explain(trace).chain]


# -- which steps matter


@pytest.mark.parametrize(("spec", "name"), CASES)
def test_every_step_of_a_shortest_trace_matters(spec: str, name: str) -> None:
    trace = shortest(spec, name)
    assert backward_slice(trace).relevant == frozenset(range(1, len(trace.steps) + 1))


@pytest.mark.parametrize(("spec", "name"), CASES)
@pytest.mark.parametrize("seed", range(4))
def test_steps_of_a_bystander_do_not_matter(spec: str, name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "_by_trial", lambda _: pytest.fail("the slice alone is a run"))
    trace, added = with_bystander(shortest(spec, name), seed)
    found = backward_slice(trace)
    everything = frozenset(range(1, len(trace.steps) + 1))
    assert found.relevant == everything - added
    assert runs_without(trace, added)
    # whatever the property, a guard or an update looks at was written by a step that is kept
    assert all(step in found.relevant for step in found.used if step)
    assert all(enabling <= found.relevant for enabling in found.enabled_by.values())
    at = len(trace.steps)
    assert all(source(trace, slot, at) in found.relevant | {0} for slot in found.shown)
    for step in found.relevant:
        assert not runs_without(trace, added | {step})


def test_a_slice_that_is_no_run_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With guards that are not looked at, what is left is no run: then each step is left out on trial."""
    monkeypatch.setattr(slices._Slicer, "guards", lambda *_: ())
    trace, added = with_bystander(shortest(), 0)
    assert added
    assert backward_slice(trace).relevant == frozenset(range(1, len(trace.steps) + 1)) - added


def test_a_long_slice_that_is_no_run_keeps_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices._Slicer, "guards", lambda *_: ())
    monkeypatch.setattr(slices, "LONGEST_TO_TRY", 5)
    trace, _ = with_bystander(shortest(), 0)
    assert len(backward_slice(trace).relevant) == len(trace.steps)


def test_steps_after_the_violation_do_not_matter() -> None:
    trace = shortest("handoff:abort-without-quarantine", "isolated_write")
    before = Choice("prefill_door", (1,))
    longer = make_trace(trace.instance, trace.states[0], (*trace.steps, before), trace.property)
    assert backward_slice(longer).relevant == frozenset(range(1, 9))


@pytest.mark.parametrize(
    ("variant", "name"), [("careless", "isolated_read"), ("eager", "assert:finish:holds something"), ("greedy", "range:loans"),
                          ("stuck", "no_deadlock"), ("", "served")]
)
def test_each_kind_of_property_has_a_slice(variant: str, name: str) -> None:
    trace = lending.trace(variant, name)
    found = explain(trace)
    assert found.relevant == frozenset(range(1, len(trace.steps) + 1))
    if trace.steps:
        assert found.chain[-1].step == len(trace.steps)


def test_a_trace_of_no_property_has_no_explanation() -> None:
    with pytest.raises(UsageError, match="shows no property"):
        explain(replace(shortest(), property=""))


# -- in words


def test_the_incident_in_seven_sentences() -> None:
    assert chain(shortest()) == [
        "0: At the start, decode.p1 has r0's data in it",
        "1: Prefill's intake marks a prompt longer than its pool as rejected and swaps it for a one-token stub (r1);"
        " now seen_as[r1] is STUB",
        "2: Prefill lets r1 into its queue; now prefill[r1] is QUEUED",
        "7: The allocator gives the free page decode.p1 to the live request r1, with r0's data in it",
        "9: Prefill posts its remote writes, one a page (r1, first decode.p0); now prefill[r1] is SENDING",
        "12: Decode takes prefill's success as complete and lets r1 run; now decode[r1] is RUNNING",
        "13: A decode step attends to every page that r1 holds; now reading[r1, decode.p1] is yes and decode.p1 has r0's data in it",
    ]


def test_a_write_that_outlives_its_request() -> None:
    found = chain(shortest("pages:one-pool-without-quarantine"))
    assert "2: A remote write to the page p0 that r0 holds is posted; nothing can cancel it; now writing[r0, p0] is yes" in found
    assert "7: The write lands, whoever owns p0 by now (r0); now p0 has r0's data in it" in found
    assert found[-1] == "8: A read of the written page p0 begins (r1); now reading[r1, p0] is yes and p0 has r0's data in it"


@pytest.mark.parametrize(("spec", "name"), CASES)
def test_a_chain_has_three_to_seven_sentences_in_order(spec: str, name: str) -> None:
    trace, added = with_bystander(shortest(spec, name), 1)
    steps = [cause.step for cause in explain(trace).chain]
    assert 3 <= len(steps) <= 7
    assert steps == sorted(set(steps))
    assert not set(steps) & added


def test_sentences_are_made_of_docstrings() -> None:
    b = Builder("words")
    thing = b.sort("Thing")
    on = b.relation("on", thing)
    t, u = var("t", thing), var("u", thing)
    docs = {
        "take": "Somebody takes the thing's place on a thing list. More.",
        "two": "A thing meets a thing.",
        "silent": "",
        "that": "The thing that waits, one a thing, goes to an old thing.",
    }
    for name in docs:
        b.action(name, t, *([u] if name == "two" else []), updates=[on.set(True, t)])
    b.invariant("never", not_(on(t)), t)
    system = b.build()
    system = replace(system, actions=tuple(replace(action, doc=docs[action.name]) for action in system.actions))
    instance = Instance.make(system, {"Thing": 2})
    assert said(instance, Choice("take", (1,))) == "Somebody takes t1's place on a thing list"
    assert said(instance, Choice("two", (0, 1))) == "A thing meets a thing (t t0, u t1)"
    assert said(instance, Choice("silent", (0,))) == "silent (t0)"
    assert said(instance, Choice("that", (0,))) == "The thing t0 that waits, one a thing, goes to the old thing t0"


def test_hostile_docstrings_stay_short_and_printable() -> None:
    trace = shortest("pages:one-pool-without-quarantine")
    doc = "clear\x1b[2J \u202e" + "x" * 10_000
    system = trace.instance.system
    hostile = replace(system, actions=tuple(replace(action, doc=doc) for action in system.actions))
    for cause in explain(replace(trace, instance=replace(trace.instance, system=hostile))).chain:
        assert cause.sentence.isprintable()
        assert len(cause.sentence) < 400


# -- who would have refused it


def test_the_recommended_design_refuses_the_incident_at_prefills_door() -> None:
    refused = explain(shortest()).refused
    assert refused is not None
    assert (refused.spec, refused.step, refused.action, refused.guard) == ("handoff", 2, "prefill_door(r=r1)", "not rejected")
    file, _, line = refused.where.partition(":")
    assert file == "specs/handoff.py"
    assert '"not rejected"' in (lending.ROOT / file).read_text().splitlines()[int(line) - 1]


def test_a_design_that_refuses_no_step_is_told_by_what_comes_out_otherwise() -> None:
    refused = explain(shortest("handoff:abort-without-quarantine", "isolated_write")).refused
    assert refused is not None
    assert (refused.step, refused.guard) == (8, "")
    assert "quarantined[decode.p0] is yes, not no" in refused.what


@pytest.mark.parametrize(
    ("variant", "base"),
    [("handoff:sglang-0.5.21-truncating", "handoff"), ("tenants:buggy", "tenants"), ("pages:one-pool-without-quarantine", "pages:one-pool"),
     ("handoff", None), ("pages:one-pool", None)],
)  # fmt: skip
def test_the_design_that_a_spec_departs_from(variant: str, base: str | None) -> None:
    found = base_of(load_spec(variant))
    assert (found and found.name) == base


def test_flags_of_the_command_line_depart_from_a_design_too() -> None:
    found = base_of(load_spec("handoff").with_flags({"quarantine": False}))
    assert found is not None
    assert found.flag_values["quarantine"]


def test_the_design_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lending.ROOT)
    trace = lending.trace("careless")
    refused = explain(trace).refused
    assert refused is not None
    assert refused.what == "after finish(r=r0), content[near.p0] is none, not r0"
    assert (refused.spec, refused.step) == ("tests/data/lending.py:Lending", 5)


def test_a_built_system_departs_from_nothing() -> None:
    b = Builder("light")
    on = b.relation("on")
    b.action("switch", guards={"off": not_(on())}, updates=[on.set(True)])
    b.invariant("dark", not_(on()))
    trace = explore(Instance.make(b.build()), ["dark"]).trace
    assert trace is not None
    assert explain(trace) == Explanation(frozenset({1}), explain(trace).chain)


# -- what would have stopped it


def test_single_defences_against_the_incident() -> None:
    found = explain(shortest())
    assert {stopper.flag: stopper.step for stopper in found.stopped_by} == {
        "zero_on_free": 0,
        "prefill_pool_covers_context": 0,
        "prefill_door_honours_reject": 2,
        "reject_honoured_after_forward": 9,
        "compares_lengths": 12,
        "checksum_of_each_side": 12,
        "checks_reads": 13,
    }
    assert found.not_stopped_by == ("decode_door_waits", "prefill_tells_decode", "checksum_of_sent")
    sizing = next(stopper for stopper in found.stopped_by if stopper.flag == "prefill_pool_covers_context")
    assert "the numbers of the run are not allowed (context = 1, prefill_limit = 0" in sizing.guard_or_change


@pytest.mark.parametrize(("spec", "name"), CASES)
def test_each_stopper_is_what_replay_says(spec: str, name: str) -> None:
    """Independently of how it is explained: the same steps, taken by `make_trace` with the flag on, fail at that step."""
    trace = shortest(spec, name)
    system = trace.instance.system
    found = explain(trace)
    stopped = {stopper.flag: stopper for stopper in found.stopped_by}
    open_flags = [flag.name for flag in system.flags if flag.name in system.flags_read() and flag.value == (flag.kind is FlagKind.HAZARD)]
    assert sorted([*stopped, *found.not_stopped_by]) == sorted(open_flags)
    for flag in open_flags:
        instance = replace(trace.instance, system=system.with_flags({flag: flag not in hazards(trace)}))
        failed = first_bad_step(instance, trace)
        assert (failed is None) == (flag in found.not_stopped_by)
        # a run that goes on to the end and shows nothing is refused by replay at its last step
        assert failed is None or failed in (stopped[flag].step, len(trace.steps))


def first_bad_step(instance: Instance, trace: Trace) -> int | None:
    try:
        make_trace(instance, trace.states[0], trace.steps, trace.property)
    except ReplayError as problem:
        return problem.step
    return None


def hazards(trace: Trace) -> set[str]:
    return {flag.name for flag in trace.instance.system.flags if flag.kind is FlagKind.HAZARD}


def test_a_hazard_that_is_on_is_switched_off() -> None:
    trace = kvmodel.check("pages:one-pool", ["isolated_write"], flags={"quarantine_gives_up": True}, size={"Request": 2, "Page": 1}).trace
    assert trace is not None
    stopper = next(stopper for stopper in explain(trace).stopped_by if stopper.flag == "quarantine_gives_up")
    assert not stopper.on
    assert "give_up(p=p0) is not enabled" in stopper.guard_or_change


def test_the_system_itself_does_not_stop_its_run() -> None:
    for spec, name, _ in SHOWN:
        trace = shortest(spec, name)
        assert obstacle(trace, trace.instance.system) is None


def test_a_wanted_behaviour_is_not_stopped_by_anything() -> None:
    found = explain(lending.trace("", "served"))
    assert (found.refused, found.stopped_by, found.not_stopped_by) == (None, (), ())
