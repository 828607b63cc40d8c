"""Counterexamples of specs as calls: on an engine that has the fault they end in a violation, and on another one they do not."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest

from kvmodel.engine_testing import play_calls
from kvmodel.engines.adapter import Role
from kvmodel.engines.driver import Make
from kvmodel.engines.translate import calls_for
from kvmodel.errors import UsageError
from kvmodel.language.instance import Instance
from kvmodel.language.load import load_spec
from kvmodel.readings.explore import explore
from kvmodel.traces.trace import Trace
from tests import lending
from tests.engines.core.test_engine_faults import RUN, SCHEDULE, STORIES, about, submit
from tests.engines.core.toy import handoff, toy

TINY = {"Request": 2, "Page": 1, "Prefix": 1}


@cache
def counterexample(spec: str, name: str) -> Trace:
    system = load_spec(spec)
    sizes = {sort: size for sort, size in TINY.items() if any(s.name == sort for s in system.sorts)} if "handoff" not in spec else {}
    trace = explore(Instance.make(system, sizes), [name])[name].trace
    assert trace is not None
    return trace


# A spec and property; the toy engine with its fault and without; what is violated there.
FAULTS: dict[str, tuple[str, str, Make, Make, str]] = {
    "abort": ("cached:abort-frees-target", "isolated_write", toy("abort-frees-target"), toy(), "isolated_write"),
    "queued": (
        "cached:freed-while-queued", "isolated_write",
        toy("freed-while-queued", pages=1, depth=2), toy(pages=1, depth=2), "isolated_write",
    ),
    "double free": ("cached:double-free", "no_double_free", toy("double-free"), toy(), "no_double_free"),
    "pages": ("pages:one-pool-without-quarantine", "isolated_write", toy("abort-frees-target"), toy(), "isolated_write"),
    "no quarantine": (
        "handoff:abort-without-quarantine", "isolated_write",
        handoff("abort-without-quarantine", prefill=2), handoff(prefill=2), "isolated_write",
    ),
    "deadline": ("handoff:quarantine-gives-up", "isolated_write", handoff("gives-up", prefill=2), handoff(prefill=2), "isolated_write"),
    "stub": ("handoff:sglang-0.5.16", "isolated_read", handoff("stub"), handoff(), "isolated_read"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_counterexample_is_seen_where_the_fault_is_and_nowhere_else(name: str) -> None:
    spec, shows, faulty, sound, expected = FAULTS[name]
    made = faulty()
    calls = calls_for(counterexample(spec, shows), made.page_size, getattr(made, "lengths", ()))
    trace = play_calls(faulty, calls)
    assert trace is not None
    assert trace.property == expected
    assert play_calls(sound, calls) is None


def test_a_lease_that_expires_is_one_of_a_prefill_request() -> None:
    calls = calls_for(counterexample("cached:lease-expires", "isolated_read"), 2, ())
    assert calls[0]["role"] == Role.PREFILL.name
    assert calls[-1] == {"verb": "expire", "request": calls[0]["request"]}
    trace = play_calls(toy(), calls)
    assert trace is not None
    assert trace.property == "isolated_read"
    assert play_calls(toy(), calls[:-1]) is None


def test_requests_of_a_handoff_have_names_in_order_and_tokens_of_their_own() -> None:
    calls = calls_for(counterexample("handoff:sglang-0.5.16", "isolated_read"), 2, (2, 5))
    submitted = [call for call in calls if call["verb"] == "submit"]
    assert [call["request"] for call in submitted] == ["r0", "r1", "r2", "r3"]
    assert [call["tokens"] for call in submitted] == [(1, 1), (2, 2), (3, 3), (4,) * 5]  # the last is longer than prefill takes
    assert {call["role"] for call in submitted} == {"HANDOFF"}


def test_nothing_is_asked_twice_in_a_row() -> None:
    for spec, shows, *_ in FAULTS.values():
        calls = calls_for(counterexample(spec, shows), 2, ())
        assert all(first != second for first, second in pairwise(calls))


def test_requests_that_begin_alike_have_one_token() -> None:
    calls = calls_for(counterexample("cached:free-ignores-count", "pages_conserved"), 2, ())
    tokens = {token for call in calls if call["verb"] == "submit" for token in call["tokens"]}  # type: ignore[attr-defined]
    assert tokens == {0}


def test_an_observed_run_has_its_calls_already() -> None:
    calls = [submit("r0", 1, role="DECODE"), SCHEDULE, about("abort", "r0"), RUN]
    trace = play_calls(STORIES["an abort frees the target of a remote write"][1], calls)
    assert trace is not None
    assert trace.observed is not None
    assert calls_for(trace, 2, ()) == trace.observed.calls


def test_runs_of_other_specs_cannot_be_asked() -> None:
    with pytest.raises(UsageError, match="runs of handoff, cached and pages can be played"):
        calls_for(lending.trace(), 2, ())
