"""What people read of a check: tables, sentences, lines."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from kvmodel.analyses.why import why_not
from kvmodel.language.build import Builder, not_, var
from kvmodel.language.instance import Instance
from kvmodel.language.system import TransitionSystem
from kvmodel.readings.explore import explore
from kvmodel.readings.initial import initial_states
from kvmodel.readings.replay import make_trace
from kvmodel.traces.trace import Choice
from kvmodel.verdict import Coverage, PropertyResult, Result, Verdict
from kvmodel.views.text import command_line, exploration_text, result_text, trace_text, why_text
from tests import lending
from tests.views.expected import expected, timeless


def shown(variant: str, width: int = 100) -> str:
    result = lending.result(variant)
    command = command_line("check", result.spec, options={"method": "explore"}, coverage=result.coverage)
    return timeless(result_text(result, Instance.make(lending.system(variant)), command, width=width))


def test_a_violation_at_100_columns() -> None:
    assert shown("careless") == expected("careless-100")


def test_a_violation_at_60_columns() -> None:
    text = shown("careless", 60)
    assert text == expected("careless-60")
    assert max(len(line) for line in text.splitlines()) <= 60


def test_a_result_without_violation() -> None:
    assert shown("") == expected("holds-100")


@pytest.mark.parametrize("variant", ["eager", "greedy", "stuck"])
def test_each_kind_of_property_states_its_violation(variant: str) -> None:
    headline = lending.result(variant).headline
    assert headline is not None
    assert headline.trace is not None
    assert trace_text(headline.trace) == expected(f"trace-{variant}")


def test_a_witness_is_no_violation() -> None:
    text = trace_text(lending.trace("", "served"))
    assert "served is shown by the last step for r = r1:\n  A request can end.\n  because phase[r] == Phase.DONE" in text
    assert "violated" not in text


def test_the_statistics_of_an_exploration() -> None:
    text = timeless(exploration_text(lending.result(), Instance.make(lending.system()), "kvmodel explore lending"))
    assert text == expected("explore")


def test_no_line_is_wider_than_asked_or_ends_in_blanks() -> None:
    for width in (60, 80, 100, 120, 200):
        for line in shown("careless", width).splitlines():
            assert len(line) <= width
            assert line == line.rstrip()


def test_colour_changes_no_letter() -> None:
    trace = lending.trace()
    coloured = trace_text(trace, colour=True)
    assert "\x1b[" in coloured
    stripped = "\n".join(line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", coloured).splitlines())
    assert stripped == trace_text(trace).rstrip("\n")


def test_pages_that_do_not_fit_are_named_by_the_steps_that_change_them() -> None:
    instance = Instance.make(lending.system("greedy"), {"Page.NEAR": 6, "Page.FAR": 1, "Request": 3})
    limit = instance.rigid_layout.slots["limit", ()]
    needs = [instance.rigid_layout.slots["need", (request,)] for request in range(3)]
    start = next(state for state in initial_states(instance) if all(state.rigid[need] == state.rigid[limit] for need in needs))
    steps = [Choice("admit", (request,)) for request in range(3)]
    steps += [Choice(action, (page // 2, page)) for action in ("borrow", "fill") for page in range(6)]
    text = trace_text(make_trace(instance, start, tuple(steps)), width=80)
    header = next(line for line in text.splitlines() if line.startswith("step"))
    assert header.split() == ["step", "node", "action", "what", "changed", "pages"]
    assert "near.p0 r0/-\n" in text
    assert "near.p5 r2/r2\n" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_a_spec_without_pages_has_no_page_columns() -> None:
    b = Builder("light")
    on = b.relation("on")
    b.action("switch", guards={"off": not_(on())}, updates=[on.set(True)])
    b.invariant("dark", not_(on()))
    result = explore(Instance.make(b.build()), ["dark"])
    assert result.trace is not None
    assert trace_text(result.trace) == (
        "step  action           what changed\n"
        "   0  (initial state)\n"
        "   1  switch()         on: no -> yes\n"
        "\n"
        "dark is violated by step 1:\n"
        "  dark has no description.\n"
        "  broken: not on   [on is yes]\n"
    )


def test_many_changes_of_one_kind_are_counted() -> None:
    b = Builder("wide")
    page = b.sort("Page")
    full = b.relation("full", page)
    p = var("p", page)
    b.action("fill_all", updates=[full.set(True, p, over=[p])])
    b.invariant("empty", not_(full(p)), p)
    trace = explore(Instance.make(b.build(), {"Page": 9}), ["empty"]).trace
    assert trace is not None
    assert "full[9 places]: no -> yes" in trace_text(trace)


def with_docs(system: TransitionSystem, doc: str) -> TransitionSystem:
    return replace(system, declared=tuple(replace(entry, doc=doc) for entry in system.declared))


def test_text_of_a_spec_reaches_no_terminal_as_a_command() -> None:
    trace = lending.trace()
    instance = replace(trace.instance, system=with_docs(trace.instance.system, "clear\x1b[2J [red]me[/red] \u202e :boom:"))
    text = trace_text(replace(trace, instance=instance))
    assert "clear\\x1b[2J [red]me[/red] \\u202e :boom:" in text
    assert "\x1b" not in text


def test_what_is_undecided_says_why() -> None:
    coverage = Coverage((("Request", 2),), 4)
    entries = (
        PropertyResult("isolated_read", Verdict.UNDECIDED, coverage, None, "timeout at depth 4 after 2,000 states"),
        PropertyResult("served", Verdict.VIOLATED, coverage, None, "", True),
    )
    result = Result("lending", "explore", Verdict.UNDECIDED, coverage, entries)
    text = result_text(result, Instance.make(lending.system()), "kvmodel check lending")
    assert "isolated_read  undecided  this depth  timeout at depth 4 after 2,000 states" in text
    assert "served         violated   this depth  never reached" in text


def test_why_an_action_is_not_enabled() -> None:
    trace = lending.trace()
    assert why_text(trace, why_not(trace, 2, "borrow", {"r": 1})) == expected("why-borrow")


def test_why_says_when_it_is_enabled() -> None:
    trace = lending.trace()
    assert why_text(trace, why_not(trace, 1, "borrow", {"p": 0})) == (
        "After step 1, admit(r=r0): borrow(r=r0, p=near.p0) is enabled\n"
        "  true   running  (tests/data/lending.py:92)\n"
        "         phase[r] == Phase.RUNNING\n"
        "  true   lendable  (tests/data/lending.py:93)\n"
        "         idle(p) and (lends_far or pool[p] == Pool.NEAR)\n"
        "\n"
        "1 other binding is not enabled\n"
    )


def test_the_command_that_reproduces_spells_out_sizes_and_flags() -> None:
    coverage = Coverage((("Page.NEAR", 1), ("Page.FAR", 0)), None, None, (("zero_on_free", False), ("lends_far", True)))
    command = command_line("check", "my spec.py:Mine", ["isolated_read"], options={"method": "bmc", "complete": True}, coverage=coverage)
    assert command == (
        "kvmodel check 'my spec.py:Mine' isolated_read --method bmc --complete --size Page.NEAR=1 --size Page.FAR=0"
        " --no-flag zero_on_free --flag lends_far"
    )
