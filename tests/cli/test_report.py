"""`kvmodel report`: formats by ending and by option, the assurance table, and what is refused."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvmodel import cli
from kvmodel.traces.itf import write_itf
from tests.violations import shortest

Run = Callable[..., tuple[int, str, str]]
SPEC = "pages:one-pool-without-quarantine"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("traces") / "late.itf.json"
    write_itf(shortest(SPEC, "isolated_read"), path)
    return str(path)


@pytest.fixture
def kvmodel(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.run(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_html_on_stdout_for_a_pipe(kvmodel: Run, trace: str) -> None:
    code, out, err = kvmodel("report", trace)
    assert (code, err) == (0, "")
    assert out.startswith("<!DOCTYPE html>\n")
    assert out.endswith("</html>\n")


def test_html_is_not_for_a_terminal(kvmodel: Run, trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdout", terminal)
    code, _, err = kvmodel("report", trace)
    assert code == 2
    assert "-o report.html" in err
    assert terminal.getvalue() == ""


@pytest.mark.parametrize(("name", "start"), [("r.html", "<!DOCTYPE"), ("R.HTM", "<!DOCTYPE"), ("r.md", "### `isolated_read`")])
def test_the_ending_says_the_format(kvmodel: Run, trace: str, tmp_path: Path, name: str, start: str) -> None:
    code, out, err = kvmodel("report", trace, "-o", str(tmp_path / name))
    assert (code, out) == (0, "")
    assert "written" in err
    assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)


def test_the_option_goes_before_the_ending(kvmodel: Run, trace: str, tmp_path: Path) -> None:
    assert kvmodel("report", trace, "--format", "markdown", "-o", str(tmp_path / "r.html"))[0] == 0
    assert (tmp_path / "r.html").read_text(encoding="utf-8").startswith("###")


def test_with_a_check_every_property_has_its_line(kvmodel: Run, trace: str) -> None:
    code, out, _ = kvmodel("report", trace, "--check")
    assert code == 0
    assert "was checked by explore: violated; this size" in out
    assert "This page was made from one run" not in out
    assert "exclusive_owner" in out


def test_a_file_that_is_no_trace(kvmodel: Run, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    code, out, err = kvmodel("report", str(tmp_path / "x.json"))
    assert (code, out) == (2, "")
    assert "x.json" in err


def test_a_trace_that_is_not_a_run(kvmodel: Run, trace: str, tmp_path: Path) -> None:
    file = json.loads(Path(trace).read_text())
    file["states"][3]["content"]["#map"][0][1] = {"tag": "Some", "value": "r1"}
    (tmp_path / "forged.itf.json").write_text(json.dumps(file))
    code, out, err = kvmodel("report", str(tmp_path / "forged.itf.json"))
    assert (code, out) == (2, "")
    assert "step 3" in err


def test_what_cannot_be_written(kvmodel: Run, trace: str, tmp_path: Path) -> None:
    code, _, err = kvmodel("report", trace, "-o", str(tmp_path / "none" / "r.html"))
    assert code == 2
    assert "cannot be written: No such file or directory" in err
    code, _, err = kvmodel("report", trace, "-o", str(tmp_path / "r.pdf"))
    assert code == 2
    assert "no format has this ending" in err
    code, _, err = kvmodel("report", trace, "--check", "--format", "markdown")
    assert code == 2
    assert "--check" in err


def test_help_names_it(kvmodel: Run) -> None:
    assert "report" in kvmodel("--help")[1]
    assert "kvmodel report incident.itf.json -o report.html" in kvmodel("report", "--help")[1]
