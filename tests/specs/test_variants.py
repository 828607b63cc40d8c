"""Every shipped variant gives exactly the verdicts and shortest lengths that the documentation shows."""

from __future__ import annotations

import pytest

from kvmodel.language.instance import Instance
from kvmodel.language.load import load_spec
from kvmodel.readings.explore import explore
from tests.specs.variants import SPECS, pinned, row


def test_the_table_has_every_variant() -> None:
    assert tuple(pinned()) == SPECS


@pytest.mark.parametrize("spec", SPECS)
def test_row(spec: str) -> None:
    assert row(spec) == pinned()[spec]


def test_headline_is_the_incident() -> None:
    """The first trace that a user sees is the incident's (reject, doors, preallocation, short send, commit, read)."""
    result = explore(Instance.make(load_spec("handoff:buggy")))
    assert result.headline is not None
    assert result.headline.name == "isolated_read"
    trace = result.trace
    assert trace is not None
    assert [step.action for step in trace.steps] == [
        "reject",
        "prefill_door",
        "allocate",
        "forward",
        "decode_door",
        "allocate",
        "allocate",
        "announce",
        "send",
        "land",
        "succeed",
        "commit",
        "read",
    ]
    victim = trace.steps[0].binding[0]
    assert all(step.binding[0] == victim for step in trace.steps)
    system, slots, last = trace.instance.system, trace.instance.state_layout.slots, trace.states[-1].values
    pages = [step.binding[1] for step in trace.steps if step.action == "allocate"][1:]
    sent = next(step.binding[1] for step in trace.steps if step.action == "send")
    assert sent in pages
    unsent = next(page for page in pages if page != sent)
    assert last[slots["holds", (victim, unsent)]] is True
    assert last[slots["content", (unsent,)]] not in (None, victim)
    assert system.flag_values["quarantine"] is True


def test_a_covering_pool_never_takes_the_reject_path() -> None:
    result = explore(Instance.make(load_spec("handoff:covering-pools")))
    assert dict(result.fired)["reject"] == 0
    assert dict(explore(Instance.make(load_spec("handoff:buggy"))).fired)["reject"] > 0
