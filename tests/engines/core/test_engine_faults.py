"""Two toy engines that keep the rules are not blamed; each fault of theirs is found, and not where it can do no harm."""

from __future__ import annotations

from contextlib import suppress

import pytest

from kvmodel.engines.adapter import Capability
from kvmodel.engines.check import engine_result
from kvmodel.engines.driver import EngineViolation, Make, Record
from kvmodel.engines.engine_driver import EngineDriver
from kvmodel.engines.levels import driver_for
from kvmodel.engines.machine import search
from kvmodel.engines.play import play
from kvmodel.traces.observed import Call
from kvmodel.verdict import FindingKind, Verdict
from tests.engines.core.toy import handoff, toy

EXPIRE = frozenset({Capability.EXPIRE})


def submit(request: str, *tokens: int, role: str = "LOCAL", salt: str | None = None, new: int = 1) -> Call:
    return {"verb": "submit", "request": request, "tokens": tokens, "salt": salt, "role": role, "new": new}


def about(verb: str, request: str) -> Call:
    return {"verb": verb, "request": request}


SCHEDULE: Call = {"verb": "schedule"}
RUN: Call = {"verb": "run", "token": 0}

# What a fault needs: the calls, and what the last of them violates.
STORIES: dict[str, tuple[str, Make, Make, list[Call]]] = {
    "an abort frees the target of a remote write": (
        "isolated_write", toy("abort-frees-target"), toy(),
        [submit("r0", 1, role="DECODE"), SCHEDULE, about("abort", "r0")],
    ),
    "a page is given back while a batch that writes it is queued": (
        "isolated_write", toy("freed-while-queued", pages=1, depth=2), toy(pages=1, depth=2),
        [submit("r0", 1), SCHEDULE, about("abort", "r0"), submit("r1", 2, role="DECODE"), SCHEDULE],
    ),
    "with one batch at a time that does no harm": (
        "", toy("freed-while-queued", pages=1), toy(pages=1),
        [submit("r0", 1), SCHEDULE, about("abort", "r0"), submit("r1", 2, role="DECODE"), SCHEDULE],
    ),
    "a lease runs out before the remote engine has read": (
        "isolated_read", toy(), toy(),
        [submit("r0", 1, role="PREFILL"), SCHEDULE, RUN, about("expire", "r0")],
    ),
    "another tenant finds pages": (
        "exclusive_owner", toy("key-without-salt"), toy(),
        [submit("r0", 1, 1, salt="tenant", new=2), SCHEDULE, RUN, submit("r1", 1, 1, 1), SCHEDULE],
    ),
    "pages of others are freed": (
        "pages_conserved", toy("free-ignores-count"), toy(),
        [submit("r0", 1, 1, new=3), submit("r1", 1, 1, 1), SCHEDULE, RUN],
    ),
    "pages are found before they are written from afar": (
        "index_matches_content", toy("indexed-before-arrival"), toy(),
        [submit("r0", 1, 1, role="DECODE"), SCHEDULE],
    ),
    "pages are found under the key of what was in them": (
        "index_matches_content", toy("key-survives-reuse", pages=1), toy(pages=1),
        [submit("r0", 1, 1), SCHEDULE, RUN, submit("r1", 2), SCHEDULE],
    ),
    "a shared page stays in the free list": (
        "pages_conserved", toy("hit-stays-free"), toy(),
        [submit("r0", 1, 1), SCHEDULE, RUN, submit("r1", 1, 1, 1), SCHEDULE],
    ),
    "pages are given back twice": ("no_double_free", toy("double-free"), toy(), [submit("r0", 1), SCHEDULE, RUN]),
    "decode reads what prefill never sent": (
        "fresh_read", handoff("stub"), handoff(),
        [submit("r0", 1, 1, 1, role="HANDOFF"), SCHEDULE, RUN, about("land", "r0"), SCHEDULE, RUN],
    ),
    "decode reads what others left in its pages": (
        "isolated_read", handoff("stub", decode=2), handoff(decode=2),
        [
            *(submit("r0", 1, role="HANDOFF", new=3), SCHEDULE, RUN, about("land", "r0"), SCHEDULE, RUN, SCHEDULE, RUN, SCHEDULE, RUN),
            *(submit("r1", 2, 2, 2, role="HANDOFF"), SCHEDULE, RUN, about("land", "r1"), SCHEDULE, RUN),
        ],
    ),
    "a transfer goes on into pages of an aborted request": (
        "isolated_write", handoff("abort-without-quarantine"), handoff(),
        [submit("r0", 1, role="HANDOFF"), SCHEDULE, RUN, about("abort", "r0")],
    ),
    "a deadline passes for what is held back": (
        "isolated_write", handoff("gives-up"), handoff(),
        [submit("r0", 1, role="HANDOFF"), SCHEDULE, RUN, about("abort", "r0"), about("expire", "r0")],
    ),
}  # fmt: skip


def violated_by(make: Make, calls: list[Call]) -> str:
    """The property that the last of the calls violates, or ''."""
    record = Record()
    with suppress(EngineViolation):
        play(make, "toy", calls, record)
    for name, trace in record.found.items():
        assert trace.observed is not None
        asked = [call["verb"] for call in trace.observed.calls if call["verb"] != "complete"]
        assert asked == [call["verb"] for call in calls]  # not before the last call
        assert trace.property == name
    return next(iter(record.found), "")


@pytest.mark.parametrize("story", STORIES)
def test_a_fault_is_seen_at_the_call_that_does_the_harm(story: str) -> None:
    expected, faulty, _, calls = STORIES[story]
    assert violated_by(faulty, calls) == expected


@pytest.mark.parametrize("story", [story for story in STORIES if "lease" not in story])
def test_without_the_fault_the_same_calls_do_no_harm(story: str) -> None:
    _, _, sound, calls = STORIES[story]
    driver = driver_for(sound(), "toy")
    done = [driver.do(call) for call in calls]
    driver.drain()
    assert done[0]
    assert all(done) or "one batch" in story or "decode reads" in story  # a batch must run first; the prompt is refused


@pytest.mark.parametrize(
    ("make", "steps"), [(toy(), 40), (toy(depth=2, pages=3), 30), (handoff(prefill=2), 40)], ids=["one batch", "two batches", "two nodes"]
)
def test_an_engine_that_keeps_the_rules_is_not_blamed(make: Make, steps: int) -> None:
    record = search(make, "toy", examples=25, steps=steps)
    verbs = driver_for(make(), "toy").usable()
    result = engine_result(record, "toy", verbs)
    assert record.found == {}
    assert result.verdict is Verdict.HOLDS
    assert {verb.name for verb in verbs} == set(record.done)
    assert "expire" not in record.done  # a hazard is driven only when asked for
    never_true = {finding.subject for finding in result.findings if finding.kind is FindingKind.PREMISE_NEVER_TRUE}
    assert never_true == ({"index_matches_content"} if make().engine == "toy-handoff" else set())


@pytest.mark.parametrize(
    ("name", "make", "calls"),
    [("isolated_write", toy("abort-frees-target"), 3), ("index_matches_content", toy("indexed-before-arrival"), 2)],
    ids=["abort", "index"],
)
def test_a_search_finds_a_fault_and_makes_it_short(name: str, make: Make, calls: int) -> None:
    record = search(make, "toy", [name], examples=60, steps=40)
    assert len(record.found[name].steps) == calls


def test_a_hazard_is_found_only_when_it_is_driven() -> None:
    record = search(toy(), "toy", examples=60, steps=40, hazards=EXPIRE)
    assert set(record.found) == {"isolated_read"}
    trace = record.found["isolated_read"]
    assert [step.action for step in trace.steps] == ["submit", "schedule", "run", "complete", "expire"]
    verbs = driver_for(toy()(), "toy").usable(EXPIRE)
    assert [verb.name for verb in verbs] == [verb.name for verb in EngineDriver.verbs]


def test_two_pools_are_told_apart() -> None:
    with pytest.raises(EngineViolation) as caught:
        play(handoff("abort-without-quarantine"), "toy", STORIES["a transfer goes on into pages of an aborted request"][3])
    trace = caught.value.trace
    assert trace.instance.describe_size() == "Page.PREFILL=1 Page.DECODE=3 Request=1 Prefix=1"
    page = trace.instance.system.domain("Page")
    assert [trace.instance.label(page, p) for p in trace.instance.elements(page)] == ["prefill.p0", "decode.p0", "decode.p1", "decode.p2"]
