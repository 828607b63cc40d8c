"""``kvmodel engines machines`` and the arguments of ``engines check``, without a release and without the network."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any, NoReturn

import pytest

from kvmodel.cli import run
from kvmodel.engines import machines as shipped
from kvmodel.engines.machines import ENGINES, Machine, machines
from kvmodel.traces.itf import itf_object
from tests.engines.core.allocators import BUGS, make
from tests.engines.core.toy import toy


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*arguments: object, **named: object) -> NoReturn:
        raise AssertionError("the network is asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("KVMODEL_CACHE", str(tmp_path / "cache"))


def test_machines_are_listed_without_an_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["engines", "machines"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert len(out.splitlines()) == sum(len(machines(engine)) for engine in ENGINES)
    assert run(["engines", "machines", "sglang", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["machines"]
    assert {row["engine"] for row in rows} == {"sglang"}
    assert [row["machine"] for row in rows] == [machine.name for machine in machines("sglang")]
    assert any(row["hazard"] for row in rows)
    assert not all(row["hazard"] for row in rows)


def test_every_machine_names_a_spec_variant_that_there_is() -> None:
    from kvmodel.language.load import load_spec

    for engine in ENGINES:
        for machine in machines(engine):
            assert machine.doc.endswith(".")
            if machine.variant:
                assert load_spec(machine.variant).name == machine.variant


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["vllm", "manager"], "'vllm' is not a release; write it as vllm==0.33.0"),
        (["vllm==", "manager"], "'vllm==' is not a release"),
        (["vlm==0.33.0", "manager"], "there is no adapter for 'vlm'; did you mean 'vllm'? (known: vllm, sglang)"),
        (["vllm==0.33.0", "manger"], "vllm has no machine 'manger'; did you mean 'manager'?"),
        (["vllm==0.33.0", "manager", "isolated_reed"], "did you mean 'isolated_read'"),
        (["vllm==0.33.0", "manager", "can_be_shared"], "can_be_shared is not a property of states"),
        (["vllm==0.33.0"], "Missing argument 'MACHINE'"),
        (["vllm==0.33.0", "manager", "--examples", "0"], "Invalid value for '--examples'"),
        (["vllm==0.33.0", "manager", "--timeout", "0"], "Invalid value for '--timeout'"),
    ],
)
def test_wrong_usage_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["engines", "check", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err


def test_an_unknown_engine_has_no_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["engines", "machines", "sgl"]) == 2
    assert "there is no adapter for 'sgl'; did you mean 'sglang'?" in capsys.readouterr().err


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines that need no release."""
    made = (
        Machine("sound", "Keeps the rules.", lambda release: make()(), 10, 20),
        Machine("buggy", "Does not.", lambda release: make(BUGS["double free"])(), 30, 20),
        Machine("partly", "Does not count.", lambda release: make(has_references=False)(), 5, 10),
        Machine("engine", "Two calls are enough.", lambda release: toy("abort-frees-target")(), 40, 30),
    )
    monkeypatch.setattr(shipped, "machines", lambda engine: made)


def checked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = run(["engines", "check", "vllm==1", *words])
    return code, capsys.readouterr().out


def test_exit_codes_say_what_was_found(toys: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(capsys, "sound")[0] == 0
    assert checked(capsys, "buggy")[0] == 1
    assert checked(capsys, "partly")[0] == 3
    assert checked(capsys, "buggy", "--expect", "violated")[0] == 0


def test_what_is_shown_can_be_made_again(toys: None, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = checked(capsys, "buggy", "no_double_free", "--seed", "3")
    assert code == 1
    command = next(line.strip() for line in out.splitlines() if line.strip().startswith("kvmodel engines check"))
    assert command == "kvmodel engines check vllm==1 buggy no_double_free --examples 30 --steps 20 --seed 3"
    assert run(command.split()[1:]) == 1
    again = capsys.readouterr().out
    assert again.split("engine: sampled")[0] == out.split("engine: sampled")[0]  # all but the seconds
    assert "observed on reference 1 (buggy)" in out


def test_a_found_run_is_saved_and_read_again(toys: None, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from kvmodel.api import read_trace

    file = tmp_path / "found.itf.json"
    code, out = checked(capsys, "engine", "isolated_write", "--save", str(file), "--json")
    assert code == 1
    result: dict[str, Any] = json.loads(out)
    assert result["verdict"] == "violated"
    assert result["headline"] == "isolated_write"
    assert result["trace"] == json.loads(json.dumps(itf_object(read_trace(file))))
    assert {entry["name"]: entry["verdict"] for entry in result["properties"]}["isolated_write"] == "violated"
    assert result["fired"]["submit"] > 0
    assert run(["trace", "show", str(file)]) == 0
    assert "abort(r0)" in capsys.readouterr().out
