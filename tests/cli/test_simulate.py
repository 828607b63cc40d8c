"""``kvmodel simulate``: its options, its output and its JSON. What it finds is tested with the simulation itself."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from kvmodel import cli
from kvmodel.analyses.simulate import SimulationOptions
from kvmodel.commands.simulate import simulate

SMALL = ["simulate", "--requests", "30", "--over-long", "3", "--context", "2000", "--prefill-pool", "1000", "--covering-pool", "4000",
         "--decode-pool", "4000", "--page-size", "16", "--typical-prompt", "200", "--workers", "1"]  # fmt: skip


def test_the_defaults_are_those_of_the_simulation() -> None:
    defaults = {parameter.name: parameter.default for parameter in simulate.params}
    assert {name: defaults[name] for name in asdict(SimulationOptions())} == asdict(SimulationOptions())


def test_people_see_the_two_by_two_and_the_checks(capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.run(SMALL)
    out = capsys.readouterr().out
    assert "leaked responses" in out
    assert out.count("PASS") + out.count("FAIL") == 7
    assert code == (1 if "FAIL" in out else 0)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.run([*SMALL, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["command"]) == (1, "simulate")
    assert set(found) == {
        "schema", "command", "verdict", "options", "deployments", "start_up", "explored", "checks", "reason", "seconds",
    }  # fmt: skip
    assert code == {"holds": 0, "violated": 1, "undecided": 3}[found["verdict"]]
    assert [(entry["pool"], entry["doors"]) for entry in found["deployments"]] == [
        ("small", "buggy"), ("small", "fixed"), ("covering", "buggy"), ("covering", "fixed"),
    ]  # fmt: skip
    assert sum(entry["leaked"] for entry in found["deployments"][1:]) == 0
    assert len(found["checks"]) == 7


@pytest.mark.parametrize(
    "options", [["--aborts", "2"], ["--requests", "0"], ["--context", "100", "--covering-pool", "50"], ["--buggy", "handof"]]
)
def test_wrong_usage(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["simulate", *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
