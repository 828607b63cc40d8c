"""How the explanation of a trace is shown."""

from __future__ import annotations

import re

from kvmodel.analyses.explain import explain
from kvmodel.language.build import Builder, is_none
from kvmodel.language.instance import Instance, State
from kvmodel.language.system import ANYTHING
from kvmodel.language.types import Maybe
from kvmodel.readings.replay import make_trace
from kvmodel.views.text import ranges, trace_text
from tests import lending
from tests.violations import shortest, with_bystander


def test_a_trace_ends_with_its_explanation() -> None:
    trace = shortest()
    text = trace_text(trace, explain(trace))
    assert text.startswith(trace_text(trace))
    rest = text.removeprefix(trace_text(trace))
    assert [line for line in rest.splitlines() if line and not line.startswith(" ")] == [
        "what led to it",
        "handoff refuses this run at step 2",
        "what would have stopped this run, alone",
    ]
    assert "\n   7  The allocator gives the free page decode.p1 to the live request r1, with r0's data in it\n" in rest
    assert "  prefill_door(r=r1) is not enabled: its guard 'not rejected' is false  (specs/handoff.py:" in rest
    assert "\n  not decode_door_waits, prefill_tells_decode, checksum_of_sent\n" in rest
    assert "`kvmodel defences handoff:buggy isolated_read`" in rest
    assert max(len(line) for line in text.splitlines()) <= 100


def test_a_run_that_ends_otherwise() -> None:
    trace = shortest("handoff:abort-without-quarantine", "isolated_write")
    assert "\nhandoff ends otherwise, from step 8\n  after abort(r=r0), " in trace_text(trace, explain(trace))


def test_steps_that_do_not_matter_are_dimmed_and_named() -> None:
    trace, added = with_bystander(shortest(), 0)
    found = explain(trace)
    assert sorted(added) == [1, 4, 6, 8]
    assert "\ndoes not matter to isolated_read: steps 1, 4, 6, 8\n" in trace_text(trace, found)
    coloured = trace_text(trace, found, colour=True)
    for number in range(1, len(trace.steps) + 1):
        line = next(line for line in coloured.splitlines() if re.sub(r"\x1b\[[0-9;]*m", "", line).lstrip().startswith(f"{number} "))
        assert ("\x1b[36m" in line) == (number not in added)
        assert line.count("\x1b[2m") >= (4 if number in added else 1)


def test_a_violation_in_the_initial_state_has_nothing_that_led_to_it() -> None:
    trace = lending.trace("stuck", "no_deadlock")
    assert not trace.steps
    assert "what led to it" not in trace_text(trace, explain(trace))


def test_nothing_is_said_twice() -> None:
    trace = lending.trace()
    assert "  6  The running request r1 gets the idle page near.p0, with r0's data in it\n" in trace_text(trace, explain(trace))


def test_an_initial_state_names_the_first_element_of_a_sort() -> None:
    """The first element is the number 0, which Python takes for False."""
    b = Builder("posted")
    request = b.sort("Request")
    last = b.function("last", to=Maybe(request), initial=ANYTHING)
    b.invariant("unset", is_none(last()))
    instance = Instance.make(b.build())
    line = trace_text(make_trace(instance, State((), (0,)), (), "unset")).splitlines()[1]
    assert line.split() == ["0", "(initial", "state)", "last", "=", "r0"]


def test_ranges() -> None:
    assert ranges([]) == ""
    assert ranges([1, 2, 3, 5, 7, 8]) == "1-3, 5, 7-8"
