"""The HTML report: what it says, that it stands alone, and that strangers' names stay text."""

from __future__ import annotations

import re
import sys
from base64 import b64encode
from dataclasses import replace
from functools import cache
from hashlib import sha256
from html.parser import HTMLParser

import pytest

import kvmodel
from kvmodel.errors import printable
from kvmodel.language.build import Builder, not_
from kvmodel.language.instance import Instance, State
from kvmodel.readings.explore import explore
from kvmodel.readings.replay import make_trace
from kvmodel.readings.run import Interpreter
from kvmodel.traces.trace import Choice, Trace
from kvmodel.views.report import report_html
from tests import hostile, lending
from tests.views import hostile as drawn
from tests.violations import SHOWN, shortest, with_bystander

VOID = {"meta", "link", "br", "img", "input", "hr"}
INLINE = {"code", "span", "em", "strong", "a", "kbd"}
# What the template and the pictures are made of: a name that became an element or an attribute is something else.
ELEMENTS = frozenset(re.findall(
    r"\S+",
    "html head meta link title style body a header p code h1 h2 h3 h4 span strong em main section div dl dt dd ol "
    "ul li nav button kbd article figure table caption thead tbody tr th td details summary pre footer script br "
    "svg desc g rect circle polygon path text tspan ",
))
ATTRIBUTES = frozenset(re.findall(
    r"\S+",
    "lang dir class data-label charset http-equiv content name rel href id hidden type role tabindex scope aria-labelledby "
    "aria-label aria-hidden aria-live width height viewbox font-family font-size font-weight fill stroke "
    "stroke-width stroke-dasharray stroke-linejoin stroke-linecap stroke-opacity fill-opacity opacity paint-order "
    "text-anchor transform d points cx cy r x y rx ry x1 x2 y1 y2 ",
))


class Page(HTMLParser):
    """A page taken apart: balanced elements, their attributes, and the text of each."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.inside: dict[str, str] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag not in INLINE:
            self.texts.append(" ")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("style", "script"):
            self.inside[self.open[-1]] = data
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())

    def values(self, name: str) -> list[str]:
        return [attributes[name] for _, attributes in self.tags if name in attributes]


@cache
def page(spec: str = "handoff:buggy", name: str = "isolated_read") -> Page:
    return Page(report_html(shortest(spec, name)))


def test_it_says_what_is_broken_and_how_it_came_about() -> None:
    text = page().text
    assert "r1 reads decode.p1, but the data in it is r0's. isolated_read is broken at step 13." in text
    assert "The broken promise: Every page that a request reads is held by it" in text
    assert "decode.p1: a Page; r0, r1: Requests." in text
    assert "At the start, decode.p1 has r0's data in it." in text
    assert "step 7 given to r1, with r0's data still in it" in text
    assert "between nothing is written into it: the data is still r0's step 13 r1 begins to read it" in text
    assert "handoff refuses this run at step 2:" in text
    assert "It departs from handoff: The recommended design:" in text


def test_a_step_has_the_rule_that_allowed_it() -> None:
    text = page().text
    assert "Step 7 of 13: allocate(r=r1, p=decode.p1) on decode The allocator gives the free page decode.p1 to the live request r1." in text
    assert "allocate(r: Request, p: Page) The allocator gives a free page to a live request. It may happen when free" in text
    assert re.search(r"free \(specs/pages.py:\d+\) free\[p\] live \(specs/pages.py:\d+\) live\(r, p\)", text)
    assert "Then free[p] = False holds[r, p] = True" in text
    assert "free[decode.p1]: yes -> no" in text
    assert "content[decode.p1] is r0" in text


def test_it_says_what_would_have_stopped_the_run_and_how_to_see_it_again() -> None:
    text = page().text
    assert "compares_lengths on Before it commits, decode compares" in text
    assert "These, alone, would not have stopped it: decode_door_waits:" in text
    assert "kvmodel check handoff:buggy isolated_read --size Page=2 --size Request=2 --no-flag zero_on_free --flag quarantine" in text
    assert "Sizes: Page=2 Request=2. Given: context = 1" in text


def test_every_step_is_there_without_a_script() -> None:
    found = [attributes for tag, attributes in page().tags if tag == "article"]
    assert [attributes["id"] for attributes in found] == [f"step={number}" for number in range(14)]
    assert not any("hidden" in attributes for attributes in found)
    assert sum(tag == "svg" and attributes.get("role") == "img" for tag, attributes in page().tags) == 14


def test_one_run_is_not_called_more() -> None:
    assert "This page was made from one run, and shows that isolated_read can be broken. It says nothing of other properties" in page().text


def test_the_assurance_table() -> None:
    result = lending.result("careless")
    assert result.trace is not None
    text = Page(report_html(result.trace, result)).text
    for entry in result.properties:
        assert f"{entry.name} {entry.verdict.value}" in text
        assert entry.length is None or f"in {entry.length} step" in text
        assert str(entry.coverage) in text
    assert "Every state that can be reached at the sizes given was looked at." in text
    assert "This page was made from one run" not in text


def test_a_run_that_shows_something_wanted_is_not_called_broken() -> None:
    text = Page(report_html(lending.trace("", "served"))).text
    assert "served happens at step" in text
    assert "broken" not in text.split("A model checker plays", 1)[0]
    assert "What would have stopped this run" not in text


def test_a_run_of_no_property() -> None:
    text = Page(report_html(replace(shortest(), property=""))).text
    assert "A run of 13 steps" in text
    assert "What would have stopped this run" not in text


def test_steps_that_do_not_matter_are_marked_and_readable() -> None:
    trace, added = with_bystander(shortest(), 1)
    text = Page(report_html(trace)).text
    assert added
    for number in added:
        assert f"({number})" in text
    assert text.count("(This step does not matter to isolated_read.)") >= len(added)


@pytest.mark.parametrize(("spec", "name", "_steps"), SHOWN[1:])
def test_other_violations(spec: str, name: str, _steps: int) -> None:
    text = page(spec, name).text
    assert f"{name} is broken at step {_steps}." in text


def test_what_is_wrong_is_the_heading_where_it_is_a_sentence() -> None:
    text = page("handoff:prefill-door-alone", "pages_conserved").text
    assert "pages_conserved is broken at step 4. The broken promise: Each page is free" in text
    assert "Here: for p = decode.p0, holds[r1, decode.p0] is yes" in text


def long_run(sizes: dict[str, int], steps: int) -> Trace:
    """A run of a pool, of no property, in which every request asks for a page in turn."""
    instance = Instance.make(kvmodel.load("pages:one-pool"), sizes)
    layout = instance.state_layout
    state = State((), tuple(True if name == "free" else None if name == "content" else False for name, _ in layout.places))
    interpreter, start, choices = Interpreter(instance), state, list[Choice]()
    for number in range(steps):
        enabled = list(interpreter.enabled(state))
        choices.append(enabled[number * 7 % len(enabled)])
        state = interpreter.successor(state, choices[-1])
    return make_trace(instance, start, tuple(choices), "")


def test_of_a_long_run_the_last_steps_are_shown() -> None:
    found = Page(report_html(long_run({"Page": 2, "Request": 2}, 320)))
    assert [a["id"] for tag, a in found.tags if tag == "article"] == ["step=0", *(f"step={number}" for number in range(21, 321))]
    assert "steps 1 to 20 are left out here" in found.text
    assert sum(a.get("role") == "img" for _, a in found.tags) == 61


def test_of_many_pages_those_are_listed_of_which_there_is_something_to_say() -> None:
    found = Page(report_html(long_run({"Page": 40, "Request": 3}, 2)))
    assert found.text.count("Pages that are not listed are held by nobody, and blank.") == 3
    assert sum(tag == "tr" for tag, _ in found.tags) < 40


# -- it stands alone


def parts(found: Page) -> tuple[str, str, str]:
    (policy,) = (a["content"] for tag, a in found.tags if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy")
    return policy, found.inside["style"], found.inside["script"]


def pages() -> list[Page]:
    return [page(), Page(report_html(drawn.trace())), Page(report_html(lending.trace("greedy", "range:loans")))]


def test_the_policy_lets_nothing_in_but_the_page_itself() -> None:
    for found in pages():
        policy, style, script = parts(found)
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        for text in (style, script):
            assert f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" in policy
        assert [tag for tag, _ in found.tags].count("script") == [tag for tag, _ in found.tags].count("style") == 1
        assert all(value.startswith("#") or value == "data:," for value in found.values("href"))
        assert "url(" not in style
        assert "innerHTML" not in script


def test_the_style_uses_only_colours_that_there_are() -> None:
    _, style, _ = parts(page())
    used = set(re.findall(r"var\((--[\w-]+)", style))
    assert used <= set(re.findall(r"(--[\w-]+):", style))
    classes = {part for value in page().values("class") for part in value.split() if part.startswith("kv-")}
    assert {name for name in classes if f".{name}" not in style} == set()


def test_links_and_labels_lead_somewhere() -> None:
    for found in pages():
        ids = found.values("id")
        assert len(ids) == len(set(ids))
        assert {value[1:] for value in found.values("href") if value.startswith("#")} <= set(ids)
        assert set(found.values("aria-labelledby")) <= set(ids)


def test_the_same_trace_makes_the_same_page() -> None:
    first = report_html(lending.trace())
    assert first == report_html(lending.trace())
    assert re.search(r"\b20\d\d-\d\d-\d\d\b", first) is None


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_text_can_be_read_in_light_and_dark() -> None:
    _, style, _ = parts(page())
    values = re.findall(r"(--[\w-]+):\s*(#\w{6})", style)
    for shade in (0, 1):
        colours = {name: [value for n, value in values if n == name][shade] for name, _ in values}
        for ink, papers in {
            "--kv-ink": ("--kv-paper", "--kv-panel", "--kv-new", "--kv-wrong-paper"),
            "--kv-soft": ("--kv-paper", "--kv-panel", "--kv-wrong-paper"),
            "--kv-wrong": ("--kv-paper", "--kv-wrong-paper"),
            "--kv-paper": ("--kv-ink",),
            "--link": ("--kv-paper", "--kv-panel"),
            "--good": ("--kv-paper",),
        }.items():
            for paper in papers:
                assert contrast(colours[ink], colours[paper]) >= 4.5, (shade, ink, paper)


def test_a_spec_without_pages_has_no_pictures() -> None:
    b = Builder("light")
    on = b.relation("on")
    b.action("switch_on", guards={"off": not_(on())}, updates=[on.set(True)])
    b.invariant("dark", not_(on()))
    trace = explore(Instance.make(b.build(), {})).trace
    assert trace is not None
    found = Page(report_html(trace))
    assert "on is yes. dark is broken at step 1." in found.text
    assert "Step 1 of 1: switch_on()" in found.text
    assert not any(attributes.get("role") == "img" for _, attributes in found.tags)
    assert "holder" not in found.text


# -- names of strangers


@pytest.mark.parametrize("name", hostile.NAMES, ids=lambda name: printable(name)[:20])
def test_names_stay_text(name: str) -> None:
    found = Page(report_html(hostile.trace_of(name)))
    assert {tag for tag, _ in found.tags} <= ELEMENTS
    assert {attribute for _, attributes in found.tags for attribute in attributes} <= ATTRIBUTES
    assert not [c for c in found.text if not c.isprintable()]
    wanted = " ".join(printable(name, 400).split())
    assert wanted in found.text


def test_names_of_pools_and_sorts_stay_text() -> None:
    text = report_html(drawn.trace())
    found = Page(text)
    assert {tag for tag, _ in found.tags} <= ELEMENTS
    assert {attribute for _, attributes in found.tags for attribute in attributes} <= ATTRIBUTES
    assert not [c for c in text if not c.isprintable() and c != "\n"]


def test_the_syntax_of_templates_stays_text() -> None:
    text = Page(report_html(hostile.trace_of("{{ 7 * 7 }} {% raw %} {# c #} ${7*7}"))).text
    assert "{{ 7 * 7 }} {% raw %} {# c #} ${7*7}" in text
    assert " 49 " not in text


def test_very_long_names_do_not_make_a_very_long_page() -> None:
    assert len(report_html(hostile.trace_of("A" * 10_000))) < 20 * len(report_html(hostile.trace_of("end")))


def test_a_page_that_is_not_escaped_is_noticed() -> None:
    name = hostile.NAMES[0]
    broken = report_html(hostile.trace_of(name)).replace("&lt;img", "<img").replace("&gt;", ">")
    assert not {tag for tag, _ in Page(broken).tags} <= ELEMENTS


def test_the_page_is_the_same_after_the_library_of_markup_was_imported_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # As after pytester has run tests in this process: it forgets the modules that these imported.
    before = report_html(shortest())
    monkeypatch.delitem(sys.modules, "markupsafe")
    assert report_html(shortest()) == before
