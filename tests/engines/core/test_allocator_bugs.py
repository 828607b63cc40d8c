"""An allocator that keeps the rules is not blamed; each bug that is put into it is found, by the property that is meant for it."""

from __future__ import annotations

import pytest

from kvmodel.engines.allocator_driver import AllocatorDriver
from kvmodel.engines.check import engine_result
from kvmodel.engines.driver import Record
from kvmodel.engines.levels import driver_for
from kvmodel.engines.machine import search
from kvmodel.engines.play import shortened
from kvmodel.errors import InstanceError, UsageError
from kvmodel.verdict import Result, Verdict
from tests.engines.core.allocators import BUGS, make, plain

OF_STATES = (
    *("isolated_read", "fresh_read", "isolated_write", "exclusive_owner", "no_use_after_free"),
    *("pages_conserved", "no_double_free", "index_matches_content"),
)


def result_of(record: Record) -> Result:
    return engine_result(record, "reference 1 (full)", AllocatorDriver.verbs)


def verdicts(result: Result) -> dict[str, Verdict]:
    return {entry.name: entry.verdict for entry in result.properties}


@pytest.fixture(scope="module")
def sound() -> Record:
    return search(make(), "full", examples=25, steps=30)


def test_an_allocator_that_keeps_the_rules_is_not_blamed(sound: Record) -> None:
    result = result_of(sound)
    assert sound.found == {}
    assert result.verdict is Verdict.HOLDS
    assert set(verdicts(result)) >= {*OF_STATES, "engine_error", "allowed_step", "range:entries", "range:references"}
    assert [entry.coverage.word for entry in result.properties] == ["sampled"] * len(result.properties)
    assert result.findings == ()


def test_everything_that_it_can_was_asked_and_every_call_was_compared(sound: Record) -> None:
    assert set(sound.done) == {verb.name for verb in AllocatorDriver.verbs}
    assert sound.compared == sound.calls > 200


def test_it_is_said_what_a_verdict_rests_on(sound: Record) -> None:
    reasons = {entry.name: entry.reason for entry in result_of(sound).properties}
    assert reasons["no_double_free"] == ""  # everything that it reads comes from the engine
    assert "shadow memory" in reasons["fresh_read"]
    assert "operations that the machine has in flight" in reasons["fresh_read"]


SIMILAR = {"nothing goes back", "held back for nobody", "key of one page", "handed out and still free", "no page for growth"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name in SIMILAR else name for name in BUGS])
def test_a_bug_is_found_in_few_calls(name: str) -> None:
    bug = BUGS[name]
    record = search(make(bug), name, [bug.found], examples=60, steps=30, seed=bug.seed, shrink=False)
    assert record.stopped == "the search ended at a violation"
    assert verdicts(result_of(record))[bug.found] is Verdict.VIOLATED
    short = shortened(make(bug), name, bug.found, record.found[bug.found])
    assert short.property == (bug.found if bug.found in OF_STATES else "")
    assert len(short.steps) <= bug.steps


def test_only_a_comparison_with_the_spec_shows_an_index_that_is_dropped_while_pages_are_shared() -> None:
    record = search(make(BUGS["reset while used"]), "full", OF_STATES, examples=25, steps=30, shrink=False)
    assert set(record.found) == {"allowed_step"}
    assert record.stopped == ""  # it was not asked for
    observed = record.found["allowed_step"].observed
    assert observed is not None
    assert observed.finding == "no allowed step explains it: reset() is not possible, its guard 'nothing used' is false"


def test_a_search_ends_only_at_the_properties_that_are_named() -> None:
    bug = BUGS["handed out and still free"]
    record = search(make(bug), "full", ["isolated_read"], examples=20, steps=30, seed=3, shrink=False)
    assert len(record.found["pages_conserved"].steps) < len(record.found["isolated_read"].steps)
    anything = search(make(bug), "full", examples=20, steps=30, seed=3, shrink=False)
    assert "isolated_read" not in anything.found
    assert anything.calls < record.calls


def test_an_index_that_cannot_be_read_leaves_open_what_is_said_of_it() -> None:
    record = search(make(has_index=False), "full", examples=10, steps=20)
    result = result_of(record)
    open_ones = {entry.name: entry.reason for entry in result.properties if entry.verdict is Verdict.UNDECIDED}
    assert open_ones["index_matches_content"] == "the adapter does not map key"
    assert set(open_ones) <= {"index_matches_content", "exclusive_owner"}  # two may share what the index has under a common prefix
    assert "allowed_step" not in verdicts(result)
    assert record.compared == 0
    assert result.verdict is Verdict.UNDECIDED


def test_an_allocator_that_does_not_count_leaves_open_what_is_said_of_counts() -> None:
    record = search(make(has_references=False), "full", examples=10, steps=20)
    open_ones = {entry.name: entry.reason for entry in result_of(record).properties if entry.verdict is Verdict.UNDECIDED}
    assert open_ones == {"no_double_free": "the adapter does not map references"}


@pytest.mark.parametrize("name", ["double free", "indexed before data"])
def test_what_an_adapter_leaves_out_hides_no_more_than_it_must(name: str) -> None:
    bug = BUGS[name]
    record = search(make(bug, has_references=False), name, [bug.found], examples=40, steps=30, seed=bug.seed, shrink=False)
    assert bug.found in record.found


def test_the_reference_allocator_with_its_own_adapter() -> None:
    record = search(plain, "reference", examples=15, steps=30)
    assert record.found == {}
    assert record.compared == record.calls > 100
    verbs = driver_for(plain(), "reference").usable()
    assert [verb.name for verb in verbs] == ["admit", "free"]
    assert engine_result(record, "reference", verbs).verdict is Verdict.HOLDS


def test_what_is_not_asked_of_states_is_refused() -> None:
    from kvmodel.engines.check import require_known

    with pytest.raises((UsageError, InstanceError), match="isolated_read"):
        require_known(["isolated_reed"])
    with pytest.raises(UsageError, match="can_be_shared is not a property of states"):
        require_known(["can_be_shared"])
    require_known(["engine_error", "allowed_step", *OF_STATES])
