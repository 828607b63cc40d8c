"""Pictures: well-formed, complete in words, the same every time, places that stay, nothing that a name can break out of."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import kvmodel
from kvmodel.errors import UsageError
from kvmodel.language.instance import Instance, State
from kvmodel.readings.replay import make_trace
from kvmodel.traces.itf import write_itf
from kvmodel.traces.trace import Choice, Trace
from kvmodel.views import svg as svg_module
from kvmodel.views.picture import Album, film, picture
from kvmodel.views.svg import PALETTE, png, shortened, text_width, wrapped
from tests import lending
from tests.views import hostile
from tests.violations import shortest as violation

SVG = "{http://www.w3.org/2000/svg}"


def incident() -> Trace:
    return violation("handoff:buggy", "isolated_read")


def titles(svg: str) -> list[str]:
    return [found.text or "" for found in ET.fromstring(svg).iter(f"{SVG}title")]


def texts(svg: str) -> list[str]:
    return [found.text or "" for found in ET.fromstring(svg).iter(f"{SVG}text")]


def places(svg: str) -> dict[str, str]:
    """Where each page and lane is, by the start of its title."""
    found = {}
    for group in ET.fromstring(svg).iter(f"{SVG}g"):
        title = group.find(f"{SVG}title")
        if title is not None and (title.text or "").startswith(("Page ", "Request ")):
            found[str(title.text).split(":")[0]] = group.get("transform", "")
    return found


def traces() -> list[Trace]:
    shown = (
        ("handoff:buggy", "isolated_read"),
        ("handoff:abort-without-quarantine", "isolated_write"),
        ("pages:one-pool-without-quarantine", "isolated_read"),
    )
    return [*(violation(*names) for names in shown), lending.trace(), lending.trace("stuck", "no_deadlock"), lending.trace("", "served")]


def test_every_picture_is_xml_with_a_title_and_a_description() -> None:
    for trace in [*traces(), hostile.trace()]:
        album = Album(trace)
        for svg in (album.film(), *(album.picture(step) for step in range(len(trace.states)))):
            root = ET.fromstring(svg)
            assert root[0].tag == f"{SVG}title"
            assert root[0].text
            assert root[1].tag == f"{SVG}desc"
            assert len(root[1].text or "") > 40


def test_a_page_and_a_lane_keep_their_place() -> None:
    album = Album(incident())
    pictures = [places(album.picture(step)) for step in range(14)]
    assert set(pictures[0]) == {"Page prefill.p0", "Page prefill.p1", "Page decode.p0", "Page decode.p1", "Request r0", "Request r1"}
    across = [{name: re.split("[( )]", where)[1] for name, where in found.items()} for found in pictures]
    assert all(found == across[0] for found in across)


def test_the_last_picture_says_who_read_whose_data() -> None:
    trace = incident()
    said = texts(picture(trace, 13))
    assert "isolated_read is violated: r1 reads decode.p1, but the data in it is r0's" in said
    assert "reads r0's data" in said
    assert "step 7, allocate: given to r1, with r0's data still in it" in said
    assert not any("violated" in line for line in texts(picture(trace, 12)))


def test_the_description_is_the_picture_in_words() -> None:
    described = ET.fromstring(picture(incident(), 13))[1].text or ""
    assert "Page decode.p1: held by r1, with data of r0." in described
    assert "In flight: r1 reads decode.p1, which breaks isolated_read." in described
    assert "Request r1: prompt 1, prefill SENT, decode RUNNING, client WAITING, seen_as STUB." in described


def test_a_late_write_is_told_from_when_it_was_left_behind() -> None:
    said = texts(picture(violation("pages:one-pool-without-quarantine", "isolated_read"), 8))
    assert "step 3, abort: r0 gives it back, while a write for r0 is in flight" in said
    assert "step 7, land: r0's data is written into it, the write for r0 ends" in said


def test_data_that_a_step_copies_has_an_arrow() -> None:
    trace = incident()
    assert "r1's data goes from prefill.p0 to decode.p0" in titles(picture(trace, 10))
    assert not any("goes from" in title for title in titles(picture(trace, 9)))


def test_what_has_ended_is_drawn_and_what_is_new_is_marked() -> None:
    svg = picture(incident(), 11)
    assert "ended: r1 owns prefill.p0" in titles(svg)
    assert "gave back" in texts(svg)
    assert "prefill SENT, was SENDING" in texts(svg)


def test_something_wanted_is_not_called_a_violation() -> None:
    svg = film(lending.trace("", "served"))
    assert not any("violated" in line for line in texts(svg))
    assert "kv-stroke-wrong" not in re.sub(r"<style>.*?</style>", "", svg, flags=re.DOTALL)


def test_the_film_has_a_frame_for_each_step_and_greys_what_does_not_matter() -> None:
    svg = film(incident(), relevant=frozenset({7, 13}))
    frames = [title for title in titles(svg) if title.startswith("Step ")]
    assert [title.split(":")[0] for title in frames] == [f"Step {step}" for step in range(14)]
    assert svg.count(' opacity="0.5"') == 11


def test_the_film_of_a_long_run_leaves_out_its_beginning() -> None:
    system = kvmodel.load("pages")
    instance = Instance.make(system, {"Request": 1, "Page": 1})
    layout = instance.state_layout
    start = State((), tuple({"free": True, "content": None}.get(name, False) for name, _ in layout.places))
    trace = make_trace(instance, start, (Choice("allocate", (0, 0)), Choice("abort", (0,))) * 50)
    svg = film(trace)
    assert "100 steps; steps 1 to 41 are left out" in texts(svg)
    assert [title.split(":")[0] for title in titles(svg) if title.startswith("Step ")][:2] == ["Step 0", "Step 42"]


def test_a_large_state_is_summarised_around_what_is_wrong() -> None:
    instance = Instance.make(kvmodel.load("pages:one-pool-without-quarantine"), {"Request": 12, "Page": 60})
    start = State((), tuple({"free": True, "content": None}.get(name, False) for name, _ in instance.state_layout.places))
    taken = tuple(Choice("allocate", (r, p)) for r, p in ((0, 3), (1, 4), (2, 5)))
    late = (Choice("allocate", (11, 59)), Choice("post", (11, 59)), Choice("abort", (11,)))
    trace = make_trace(instance, start, (*taken, *late), "isolated_write")
    svg = picture(trace, 6)
    shown = places(svg)
    assert set(shown) == {f"Page p{n}" for n in (3, 4, 5, 59)} | {f"Request r{n}" for n in (0, 1, 2, 11)}
    assert {"56 more", "0 held", "8 more requests, 0 of them with pages"} <= set(texts(svg))
    assert places(picture(trace, 0)).keys() == shown.keys()


def test_a_crowded_state_has_no_more_than_60_nodes() -> None:
    instance = Instance.make(kvmodel.load("pages:one-pool"), {"Request": 12, "Page": 40})
    start = State((), tuple({"free": True, "content": None}.get(name, False) for name, _ in instance.state_layout.places))
    steps = [Choice("allocate", (page % 12, page)) for page in range(40)] + [Choice("post", (page % 12, page)) for page in range(40)]
    svg = picture(make_trace(instance, start, tuple(steps)), 80)
    found = titles(svg)
    shown = len(places(svg)) + sum(title.startswith("a write for") for title in found)
    assert 20 < shown <= 60
    assert {"20 more", "20 held", "4 more requests, 4 of them with pages"} <= set(texts(svg))


def test_two_lines_of_one_kind_are_side_by_side() -> None:
    """Two writes to one page: neither hides the other."""
    svg = picture(violation("pages:one-pool-without-quarantine", "isolated_read"), 5)
    points = {}
    for group in ET.fromstring(svg).iter(f"{SVG}g"):
        title = group.find(f"{SVG}title")
        if title is not None and (title.text or "").startswith("a write for"):
            polygon = group.find(f"{SVG}polygon")
            assert polygon is not None
            points[title.text] = polygon.get("points")
    assert len(set(points.values())) == 2


def test_hostile_names_are_text() -> None:
    for svg in (film(hostile.trace()), picture(hostile.trace(), 2), picture(hostile.trace(), 2, theme="dark")):
        tags = {element.tag.removeprefix(SVG) for element in ET.fromstring(svg).iter()}
        assert tags <= {"svg", "title", "desc", "style", "rect", "text", "g", "path", "circle", "polygon"}
        assert all(character.isprintable() or character == "\n" for character in svg)
        assert all(len(line) < 200 for line in texts(svg))
        attributes = {name for element in ET.fromstring(svg).iter() for name in element.attrib}
        assert not any(name.startswith("on") or "href" in name for name in attributes)


def test_long_texts_are_short_in_the_picture_and_whole_in_its_title() -> None:
    svg = picture(hostile.trace(), 2)
    assert any(hostile.LONG in title for title in titles(svg))
    assert not any("x" * 100 in line for line in texts(svg))


def test_themes() -> None:
    trace = incident()
    auto, light, dark = (picture(trace, 13, theme=theme) for theme in ("auto", "light", "dark"))
    assert "prefers-color-scheme:dark" in auto
    assert "--kv-wrong" in auto
    for svg, mine, other in ((light, 0, 1), (dark, 1, 0)):
        assert "<style>" not in svg
        assert PALETTE["wrong"][mine] in svg
        assert PALETTE["wrong"][other] not in svg


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("mode", [0, 1])
def test_colours_have_contrast(mode: int) -> None:
    """As WCAG asks: 4.5 for text, 3 for lines and shapes."""
    for text in ("ink", "soft", "wrong"):
        for ground in ("paper", "panel", "card", "new") if text == "ink" else ("paper", "panel", "card"):
            assert contrast(PALETTE[text][mode], PALETTE[ground][mode]) >= 4.5, (text, ground)
    assert contrast(PALETTE["ink"][mode], PALETTE["wrong-paper"][mode]) >= 4.5
    for number in range(8):
        for ground in ("paper", "panel", "card"):
            assert contrast(PALETTE[f"id{number}"][mode], PALETTE[ground][mode]) >= 3, (number, ground)


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_png() -> None:
    trace = incident()
    light, dark = (png(picture(trace, 13, theme=theme), 1) for theme in ("light", "dark"))
    assert light.startswith(b"\x89PNG\r\n\x1a\n")
    assert light != dark
    assert png(picture(trace, 13, theme="light"), 1) == light


def test_a_png_is_never_larger_than_a_machine_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svg_module, "LARGEST_PNG", 5_000)
    data = png('<svg xmlns="http://www.w3.org/2000/svg" width="300" height="200"></svg>')
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    assert 4_000 < width * height <= 5_200


def test_a_png_has_the_letters_of_its_font() -> None:
    """Two pictures that differ in one letter only differ: text is drawn, on machines without fonts too."""
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"><text y="15" font-family="sans-serif">{}</text></svg>'
    assert png(svg.format("a")) != png(svg.format("b"))


def test_the_same_picture_every_time(tmp_path: Path) -> None:
    trace = violation("pages:one-pool-without-quarantine", "isolated_read")
    write_itf(trace, tmp_path / "trace")
    program = (
        "import sys; from kvmodel.api import read_trace; from kvmodel.views.picture import film, picture; "
        "t = read_trace(sys.argv[1]); print(film(t) + picture(t, 8), end='')"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "trace")]
    there = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": "3"})
    assert there.stdout == film(trace) + picture(trace, 8)


def test_an_unknown_step_is_refused() -> None:
    with pytest.raises(UsageError, match="steps 0 to 13, no step 14"):
        picture(incident(), 14)


def test_texts_fit() -> None:
    long = "a page of decode's whose name is much too long for its card"
    short = shortened(long, 120, 12)
    assert text_width(short, 12) <= 120
    assert short.startswith("a page")
    assert short.endswith("card")
    assert shortened("p0", 120, 12) == "p0"
    assert shortened("日本" * 50, 120, 12).count("日") < 8
    lines = wrapped(long * 10, 200, 12, 3)
    assert len(lines) == 3
    assert all(text_width(line, 12) <= 200 for line in lines)
