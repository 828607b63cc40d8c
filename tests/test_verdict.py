"""Verdicts and coverage: the words, and which violation is told first."""

from __future__ import annotations

from kvmodel.traces.trace import Trace
from kvmodel.verdict import Coverage, PropertyResult, Result, Verdict, overall
from tests import lending

HERE = Coverage((("Request", 2),))


def entry(name: str, verdict: Verdict = Verdict.VIOLATED, trace: Trace | None = None) -> PropertyResult:
    return PropertyResult(name, verdict, HERE, trace)


def headline(*entries: PropertyResult, asked: tuple[str, ...] = ()) -> str | None:
    found = Result("spec", "explore", overall(entries), HERE, entries, asked=asked).headline
    return None if found is None else found.name


def test_the_headline_is_what_was_asked_for_then_isolated_read_then_the_first() -> None:
    trace = lending.trace()
    a, b, isolated = entry("a", trace=trace), entry("b", trace=trace), entry("isolated_read", trace=trace)
    assert headline(a, isolated, b) == "isolated_read"
    assert headline(a, isolated, b, asked=("b", "a")) == "b"
    assert headline(a, b) == "a"
    assert headline(entry("a", Verdict.HOLDS), entry("b", Verdict.UNDECIDED)) is None


def test_a_violation_with_a_trace_comes_before_one_without() -> None:
    impossible, wrong = entry("can_be_served"), entry("wrong", trace=lending.trace())
    assert headline(impossible, wrong) == "wrong"
    assert headline(impossible, wrong, asked=("can_be_served", "wrong")) == "wrong"
    assert headline(impossible) == "can_be_served"


def test_coverage_in_a_word() -> None:
    size = (("Request", 2), ("Page", 1))
    assert str(Coverage()) == "any size"
    assert str(Coverage(size)) == "this size (Request=2 Page=1)"
    assert str(Coverage(size, 12)) == "this depth (Request=2 Page=1, up to 12 steps)"
    assert str(Coverage(size, 12, 1_000)) == "sampled (Request=2 Page=1, up to 12 steps, 1,000 runs)"


def test_the_worst_verdict_is_that_of_all() -> None:
    holds, violated, undecided = Verdict.HOLDS, Verdict.VIOLATED, Verdict.UNDECIDED
    assert overall((entry("a", holds), entry("b", undecided), entry("c", violated))) is violated
    assert overall((entry("a", holds), entry("b", undecided))) is undecided
    assert overall((entry("a", holds),)) is holds
    assert overall(()) is undecided
