"""The HTML report in a real browser: stepping, deep links, no request, no error, accessibility, paper, and without scripts."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvmodel.views.report import report_html
from tests import hostile, lending
from tests.browser.node import asked, require_node
from tests.views import hostile as drawn
from tests.violations import shortest, with_bystander

pytestmark = pytest.mark.browser

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
STEPS = 13


@pytest.fixture(scope="module", autouse=True)
def _browser() -> None:
    require_node()
    if CHROMIUM is None:
        pytest.fail("Chromium is not installed; CHROMIUM names another one")
    os.environ["CHROMIUM"] = CHROMIUM


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "a report #1 %20?.html"  # a name that has to be quoted in an address
    path.write_text(report_html(shortest()), encoding="utf-8")
    return str(path)


def seen(*wanted: dict[str, Any]) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = asked("report.mjs", list(wanted))
    return answers


def serious(found: dict[str, Any]) -> list[Any]:
    return [entry for entry in found["violations"] if entry["impact"] in ("serious", "critical")]


def test_stepping(page: str) -> None:
    keys = ["key:ArrowRight", "key:ArrowRight", "key:ArrowLeft", "key:End", "key:ArrowRight", "key:Home", "key:ArrowLeft"]
    buttons = ["click:Next", "click:Next", "click:Back", "click:Last", "click:Next", "click:First", "click:Back"]
    for actions in (keys, buttons):
        (found,) = seen({"path": page, "do": actions})
        assert found["state"]["shown"] == ["step=0"]
        assert found["state"]["controls"]
        for step, after in zip([1, 2, 1, STEPS, STEPS, 0, 0], found["after"], strict=True):
            assert after["shown"] == [f"step={step}"]
            assert after["hash"] == f"#step={step}"
            assert after["current"] == [f"#step={step}"]
            assert after["status"].startswith(f"Step {step} of {STEPS}: " if step else "The start")
            assert after["inView"]
            assert after["off"] == (["First", "Back"] if step == 0 else ["Next", "Last"] if step == STEPS else [])
        assert (found["console"], found["requests"]) == ([], [])


def test_deep_links(page: str) -> None:
    follows = ["link:step 7", "key:ArrowRight", "hash:#step=99", "hash:#step=x", "hash:#step=3", "back:"]
    wide, narrow, wrong = seen(
        {"path": page, "hash": "#step=4", "do": follows},
        {"path": page, "hash": "#step=4", "width": 320, "height": 640},
        {"path": page, "hash": "#step=400", "do": ["key:ArrowRight"]},
    )
    assert wide["state"]["shown"] == narrow["state"]["shown"] == ["step=4"]
    assert wide["state"]["inView"]
    assert narrow["state"]["inView"]
    assert [after["shown"] for after in wide["after"]] == [[f"step={n}"] for n in (7, 8, 8, 8, 3, 3)]
    assert wide["after"][0]["focus"] == "H3"
    assert wide["after"][1]["focus"] == "H3"  # what had the focus is hidden; it goes to the next heading
    assert wrong["state"]["shown"] == ["step=0"]
    assert wrong["after"][0]["shown"] == ["step=1"]


def test_without_scripts_and_on_paper_every_step_is_there(page: str) -> None:
    plain, paper, dark = seen(
        {"path": page, "script": False}, {"path": page, "print": True}, {"path": page, "print": True, "scheme": "dark"}
    )
    for found in (plain, paper, dark):
        assert found["state"]["shown"] == [f"step={number}" for number in range(STEPS + 1)]
        assert not found["state"]["controls"]
        assert found["paper"] == "rgb(255, 255, 255)"
        assert (found["console"], found["requests"]) == ([], [])


@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(page: str, scheme: str, width: int) -> None:
    wanted: dict[str, Any] = {"path": page, "axe": True, "scheme": scheme, "width": width}
    *screens, paper = seen(*(wanted | {"hash": hash} for hash in ("", "#step=7", "#step=13")), wanted | {"print": True})
    for found in (*screens, paper):
        assert found["passes"] > 20
        assert found["violations"] == []
    assert [found["width"] for found in screens] == [width] * 3  # nothing sticks out
    assert paper["paper"] == "rgb(255, 255, 255)"


def test_it_follows_the_readers_colours(page: str) -> None:
    light, dark = seen({"path": page}, {"path": page, "scheme": "dark"})
    assert light["paper"] != dark["paper"]


def test_names_of_strangers_do_nothing(tmp_path: Path) -> None:
    shown = [drawn.trace(), *(hostile.trace_of(name) for name in (*hostile.NAMES, "{{ 7*7 }}", "'\"><svg/onload=alert(1)>"))]
    asks = []
    for number, trace in enumerate(shown):
        path = tmp_path / f"{number}.html"
        path.write_text(report_html(trace), encoding="utf-8")
        asks.append({"path": str(path), "wait": 30, "width": 320, "do": ["key:ArrowRight", "key:End"]})
    for found in seen(*asks):
        assert (found["console"], found["requests"], found["dialogs"]) == ([], [], 0)
        assert found["width"] == 320
        assert found["after"][-1]["shown"] == ["step=2"]


def test_other_pages(tmp_path: Path) -> None:
    careless = lending.result("careless")
    assert careless.trace is not None
    pages = [
        report_html(careless.trace, careless),
        report_html(lending.trace("greedy", "range:loans")),
        report_html(with_bystander(shortest(), 1)[0]),
        report_html(replace(lending.trace(), property="")),
        report_html(drawn.trace()),
    ]
    asks = []
    for number, text in enumerate(pages):
        (tmp_path / f"{number}.html").write_text(text, encoding="utf-8")
        asks += [{"path": str(tmp_path / f"{number}.html"), "axe": True, "scheme": scheme, "width": 320} for scheme in ("light", "dark")]
    for found in seen(*asks):
        assert found["violations"] == []
        assert (found["requests"], found["dialogs"], found["width"]) == ([], 0, 320)


def test_the_policy_stops_what_gets_in(page: str, tmp_path: Path) -> None:
    text = Path(page).read_text(encoding="utf-8")
    forged = '<script>alert(1)</script><img src=x onerror=alert(2)><img src="http://127.0.0.1:9/x.png">'
    (tmp_path / "in.html").write_text(text.replace("</main>", forged + "</main>"), encoding="utf-8")
    (found,) = seen({"path": str(tmp_path / "in.html")})
    assert found["dialogs"] == 0
    assert sum("Content Security Policy" in line for line in found["console"]) >= 3


def test_what_is_broken_is_noticed(page: str, tmp_path: Path) -> None:
    """The checks above see a request, an error, a dialog and an inaccessible picture where there is one."""
    text = Path(page).read_text(encoding="utf-8")
    start, end = text.index('<meta http-equiv="Content'), text.index('<meta name="viewport"')
    open_page = text[:start] + text[end:]
    forged = '<script>alert(1); console.error("no")</script><img src="http://127.0.0.1:9/x.png">'
    (tmp_path / "out.html").write_text(open_page.replace("</main>", forged + "</main>"), encoding="utf-8")
    (found,) = seen({"path": str(tmp_path / "out.html"), "axe": True})
    assert found["dialogs"] == 1
    assert found["requests"] == ["http://127.0.0.1:9/x.png"]
    assert any("no" in line for line in found["console"])
    assert [entry["id"] for entry in serious(found)] == ["image-alt"]
