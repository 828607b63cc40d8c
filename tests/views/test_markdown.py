"""Traces as Markdown and Mermaid, structurally: what a renderer makes of them, line by line. tests/browser asks Mermaid itself."""

from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

import kvmodel
from kvmodel.analyses.explain import explain
from kvmodel.errors import printable
from kvmodel.language.instance import Instance
from kvmodel.readings.initial import initial_states
from kvmodel.readings.replay import make_trace
from kvmodel.traces.trace import Choice, Trace
from kvmodel.views.formats import result_as, trace_as
from kvmodel.views.markdown import code, mermaid_text, prose, sequence_diagram, trace_markdown
from tests import lending
from tests.hostile import NAMES, trace_of
from tests.violations import SHOWN, shortest, with_bystander

RENDERER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
SAFE = r"[A-Za-z0-9 ._,()='/#;-]*"
LINE = re.compile(rf"  (participant \w+ as {SAFE}|Note over \w+(,\w+)?: {SAFE}|\w+--?>>\w+: {SAFE})")
PLAIN = {"paragraph", "inline", "text", "code_inline", "strong", "bullet_list", "list_item", "heading", "fence", "softbreak",
         "table", "thead", "tbody", "tr", "th", "td", "html_inline"}  # fmt: skip


def tokens(text: str) -> list[Token]:
    found = []
    for token in RENDERER.parse(text):
        found += [token, *(token.children or [])]
    return found


def spans(text: str) -> list[str]:
    """What stands in code spans, as a reader sees it."""
    return [token.content.replace("\\|", "|") for token in tokens(text) if token.type == "code_inline"]


def rows(text: str) -> list[list[str]]:
    """The cells of the last table."""
    found: list[list[str]] = []
    for token, inline in zip(all_tokens := RENDERER.parse(text), all_tokens[1:], strict=False):
        if token.type == "tr_open":
            found.append([])
        if token.type in ("td_open", "th_open"):
            found[-1].append(inline.content)
    return found


def decoded(text: str) -> str:
    return re.sub(r"#(\d+);", lambda found: chr(int(found.group(1))), text)


@pytest.mark.parametrize(("spec", "name", "steps"), SHOWN)
def test_a_trace_fits_in_a_comment(spec: str, name: str, steps: int) -> None:
    trace = shortest(spec, name)
    text = trace_as("markdown", trace)
    assert len(text.splitlines()) < 60
    assert len(rows(text)) == steps + 2
    assert f"Reproduce: `kvmodel check {spec} {name} --size " in text
    assert text.splitlines()[0] == f"### `{name}` is violated in {steps} steps: `{spec}`"


def test_the_incident() -> None:
    text = trace_as("markdown", shortest())
    assert "Every page that a request reads is held by it, and is blank or has the request's own data in it." in text
    assert "`content[p] in (None, r)` is not so (`content[decode.p1] is r0, r is r1`)" in text
    assert "- **handoff refuses this run at step 2**: " in text
    assert "`checks_reads` (step 13); not `decode_door_waits`, `prefill_tells_decode`, `checksum_of_sent`" in text
    assert rows(text)[0] == ["step", "node", "action", "what changed", "`prefill.p0`", "`decode.p0`", "`decode.p1`"]
    assert rows(text)[8] == [
        "7", "`decode`", "`allocate(r=r1, p=decode.p1)`", "`free[decode.p1]: yes -> no`<br>`holds[r1,decode.p1]: no -> yes`",
        "`r1/r1`", "`r1/-`", "`r1/r0`",
    ]  # fmt: skip


def test_the_diagram_of_the_incident() -> None:
    lines = sequence_diagram(shortest()).splitlines()
    assert lines[:8] == [
        "sequenceDiagram",
        "  participant n0 as prefill",
        "  participant n1 as decode",
        "  participant n2 as network",
        "  participant p0 as prefill.p0",
        "  participant p2 as decode.p0",
        "  participant p3 as decode.p1",
        "  Note over p3: r0's data",
    ]
    assert "  n1->>p3: 7 allocate(r=r1, p=decode.p1), with r0's data in it" in lines
    assert decoded(lines[-1]) == "  Note over n1,p3: isolated_read is violated, content[decode.p1] is r0"


def test_steps_that_do_not_matter_are_in_brackets() -> None:
    trace, added = with_bystander(shortest(), 0)
    text = trace_as("markdown", trace)
    assert "Steps in brackets (1, 4, 6, 8) do not matter to it." in text
    assert [row[0] for row in rows(text)[2:]] == [f"({n})" if n in added else str(n) for n in range(1, len(trace.steps) + 1)]
    assert text.count("-->>") >= len(added)


def test_a_long_trace_is_cut_to_its_last_steps() -> None:
    trace = lending.trace("", "served")
    instance, start = trace.instance, trace.states[0]
    page = trace.steps[-2].binding
    steps = (*trace.steps[:-1], *[Choice("fill", page)] * 60, trace.steps[-1])
    text = trace_as("markdown", make_trace(instance, start, steps, "served"))
    assert len(rows(text)) < 45
    assert "steps are shown." in text


def test_many_pages_share_a_lifeline() -> None:
    instance = Instance.make(lending.system("greedy"), {"Page.NEAR": 6, "Page.FAR": 1, "Request": 3})
    limit = instance.rigid_layout.slots["limit", ()]
    needs = [instance.rigid_layout.slots["need", (request,)] for request in range(3)]
    start = next(state for state in initial_states(instance) if all(state.rigid[need] == state.rigid[limit] for need in needs))
    steps = [Choice("admit", (request,)) for request in range(3)] + [Choice("borrow", (page // 2, page)) for page in range(6)]
    text = trace_markdown(make_trace(instance, start, tuple(steps)), None, "kvmodel check x")
    assert "  participant p as pages\n" in text
    assert "->>p: 9 borrow(r=r2, p=near.p5)" in text
    assert rows(text)[0] == ["step", "node", "action", "what changed"]
    assert text.startswith("### A run of ")


def test_a_result_lists_every_property() -> None:
    result = kvmodel.check("pages:one-pool", size={"Request": 2, "Page": 1})
    instance = Instance.make(kvmodel.load("pages:one-pool"), {"Request": 2, "Page": 1})
    text = result_as("markdown", result, instance, "kvmodel check pages:one-pool")
    assert text.startswith("### `pages:one-pool`: holds\n")
    assert [row[0] for row in rows(text)[1:]] == [f"`{entry.name}`" for entry in result.properties]
    assert "mermaid" not in text


def test_a_violated_result_goes_on_with_its_trace() -> None:
    result = lending.result("careless")
    text = result_as("markdown", result, Instance.make(lending.system("careless")), "kvmodel check x")
    assert text.count("```mermaid\n") == 1
    assert "| `isolated_read` | violated |" in text


# -- names of strangers


def everything(trace: Trace) -> str:
    return trace_markdown(trace, explain(trace), f"kvmodel check {trace.instance.system.name}")


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:20])
def test_names_stay_text_in_markdown(name: str) -> None:
    text = everything(trace_of(name))
    for token in tokens(text):
        assert re.sub("_(open|close)$", "", token.type) in PLAIN, token
        assert token.type != "html_inline" or token.content == "<br>"
        assert token.type != "text" or not re.search(r"[@#]", token.content)  # no mention, no reference
    assert [token.tag for token in RENDERER.parse(text) if token.type == "heading_open"] == ["h3"]
    assert len([token for token in RENDERER.parse(text) if token.type == "fence"]) == 1
    assert all(c.isprintable() or c == "\n" for c in text)
    assert all(len(row) == len(rows(text)[0]) for row in rows(text))
    assert len(text) < 12_000
    shown = " ".join(printable(name, 60).removesuffix("...").split("\n"))[:60]
    assert any(shown in span for span in spans(text))


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:20])
def test_names_stay_text_in_a_diagram(name: str) -> None:
    head, *lines = sequence_diagram(trace_of(name)).splitlines()
    assert head == "sequenceDiagram"
    assert all(LINE.fullmatch(line) for line in lines)
    assert len([line for line in lines if "->>" in line]) == 2
    node = next(line for line in lines if line.startswith("  participant n0 as "))
    flat = " ".join(printable(name, 120).split())
    assert decoded(node.removeprefix("  participant n0 as ")) == (flat or "\u200b")


def test_an_escape_that_is_left_out_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvmodel.views.markdown.prose", lambda text, limit=0: text)
    with pytest.raises(AssertionError):
        test_names_stay_text_in_markdown(NAMES[0])
    monkeypatch.setattr("kvmodel.views.markdown.mermaid_text", lambda text, limit=0: text)
    with pytest.raises(AssertionError):
        test_names_stay_text_in_a_diagram("x; n0->>n0: forged")


@pytest.mark.parametrize("text", ["a", "`", "``a`", " a ", "", "a`b``c", "a\nb"])
def test_a_code_span_holds_any_text(text: str) -> None:
    (span,) = [token for token in tokens(code(text)) if token.type == "code_inline"]
    assert span.content.strip() == " ".join(text.split("\n")).strip()


def test_prose_and_diagram_text() -> None:
    assert prose("a_b [c] https://x www.y @z") == r"a\_b \[c\] https\://x www\.y `@`z"
    assert mermaid_text("a;b:c") == "a#59;b#58;c"
    assert mermaid_text("") == "#8203;"
