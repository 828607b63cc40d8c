"""``kvmodel trace convert`` and ``kvmodel check --format``."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

import kvmodel
from kvmodel.cli import cli, run
from tests.lending import ROOT, SPEC
from tests.violations import shortest


@pytest.fixture
def incident(tmp_path: Path) -> Path:
    target = tmp_path / "incident.itf.json"
    kvmodel.save_trace(shortest(), target)
    return target


def called(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(list(arguments))
    found = capfd.readouterr()
    return code, found.out, found.err


def test_markdown_on_stdout(incident: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capfd, "trace", "convert", str(incident), "--format", "markdown")
    assert code == 0
    assert out.startswith("### `isolated_read` is violated in 13 steps: `handoff:buggy`\n")


def test_each_format_is_written_to_a_file(incident: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for form in ("markdown", "junit", "sarif", "itf"):
        target = tmp_path / form
        code, out, err = called(capfd, "trace", "convert", str(incident), "--format", form, "-o", str(target))
        assert (code, out, err) == (0, "", f"{target}: written\n")
    assert ElementTree.parse(tmp_path / "junit").getroot().get("failures") == "1"
    assert json.loads((tmp_path / "sarif").read_text())["version"] == "2.1.0"
    assert kvmodel.read_trace(tmp_path / "itf") == kvmodel.read_trace(incident)


def test_what_cannot_be_written_is_told(incident: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = called(capfd, "trace", "convert", str(incident), "--format", "junit", "-o", str(tmp_path / "no" / "x"))
    assert (code, out) == (2, "")
    assert "not written: No such file or directory" in err


def test_a_trace_that_is_no_run_is_not_converted(incident: Path, capfd: pytest.CaptureFixture[str]) -> None:
    incident.write_text(incident.read_text().replace('"action":"reject"', '"action":"refuse"'))
    code, out, err = called(capfd, "trace", "convert", str(incident), "--format", "sarif")
    assert (code, out) == (2, "")
    assert "step 1: refuse is not enabled" in err


def test_check_prints_a_format(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    code, out, _ = called(capfd, "check", f"{SPEC}:careless", "--format", "junit")
    assert code == 1
    (suite,) = ElementTree.fromstring(out)
    assert (suite.get("name"), suite.get("failures")) == (f"{SPEC}:careless", "1")
    code, out, _ = called(capfd, "check", SPEC, "isolated_read", "--format", "markdown")
    assert code == 0
    assert out.startswith(f"### `{SPEC}`: holds\n")
    code, out, _ = called(capfd, "check", f"{SPEC}:careless", "--format", "sarif")
    assert [result["ruleId"] for result in json.loads(out)["runs"][0]["results"]] == ["isolated_read"]


def test_one_format_at_a_time(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capfd, "check", SPEC, "--format", "junit", "--json")
    assert code == 2
    assert "contradict each other" in json.loads(out)["error"]["message"]


def test_help_names_the_formats() -> None:
    assert "[markdown|junit|sarif|itf|pytest]" in CliRunner().invoke(cli, ["trace", "convert", "--help"]).output
