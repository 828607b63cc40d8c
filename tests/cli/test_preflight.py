"""``kvmodel preflight``: exit codes, JSON, and what people read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvmodel import cli

CASES = Path(__file__).parent.parent / "data" / "preflight"
INCIDENT = ["--context", "1048576", "--prefill-pool", "681280", "--decode-pool", "2000000", "--page-size", "64",
            "--engine", "sglang==0.5.16"]  # fmt: skip


def found(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int) -> dict[str, Any]:
    assert cli.run(["preflight", *arguments, "--json"]) == code
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return content


def test_the_incident_from_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    result = found(INCIDENT, capsys, 1)
    assert (result["schema"], result["command"], result["verdict"]) == (1, "preflight", "violated")
    assert (result["reject_reachable"], result["consequence"], result["witness_length"]) == (True, "leak", 681_275)
    assert (result["basis"]["spec"], result["basis"]["steps"]) == ("handoff:sglang-0.5.16", 13)
    assert [node["longest_served"] for node in result["nodes"]] == [681_274, 1_048_570]
    assert [node["verdict"] for node in result["nodes"]] == ["violated", "holds"]
    assert any("unequal limits" in warning for warning in result["warnings"])
    assert any("681,274" in advice for advice in result["advice"])


def test_people_see_the_incident(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["preflight", *INCIDENT]) == 1
    out = capsys.readouterr().out
    for words in ("violated", "681,275", "what happens then: leak", "unequal limits", "what to set:"):
        assert words in out


def test_what_is_advised_holds(capsys: pytest.CaptureFixture[str]) -> None:
    limited = ["--context", "681274", *INCIDENT[2:]]
    assert found(limited, capsys, 0)["verdict"] == "holds"
    enlarged = [*INCIDENT[:3], str(1_048_582 + 63), *INCIDENT[4:]]
    assert found(enlarged, capsys, 0)["consequence"] is None


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["sglang-incident.log"], 1),
        (["sglang-incident.log", "--expect", "violated"], 0),
        (["sglang-covering.log"], 0),
        (["sglang-covering.log", "--expect", "violated"], 1),
        (["--context", "5"], 2),
        (["--context", "9" * 400, "--pool", "5"], 2),
        (["--context", "0", "--pool", "5"], 2),
        (["no-such.log"], 2),
        (["sglang-incident.log", "--context", "5"], 2),
        (["sglang-incident.log", "--engine", "vllm==0.33.0"], 2),
        (["sglang-incident.log", "--engine", "what"], 2),
        (["--prefill-pool", "5", "--engine", "sglang==0.5.16"], 3),
        (["--prefill-pool", "5", "--engine", "sglang==0.5.16", "--expect", "holds"], 3),
        (["sglang-covering.log", "sglang-incident.log"], 1),
    ],
)
def test_exit_codes(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    given = [str(CASES / argument) if argument.endswith(".log") and "no-such" not in argument else argument for argument in arguments]
    assert cli.run(["preflight", *given]) == code
    assert "Traceback" not in capsys.readouterr().err


def test_a_missing_fact_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert found(["--prefill-pool", "5", "--engine", "sglang==0.5.16"], capsys, 3)["missing"] == ["prefill: the context length"]
