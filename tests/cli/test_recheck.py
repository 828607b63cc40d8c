"""`kvmodel recheck`: exit codes, what people see, and another solver."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvmodel import cli
from kvmodel.analyses.certificates import certificate, write_certificates
from kvmodel.language.load import load_spec
from kvmodel.readings.induction import prove

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of two small specs; tests leave them alone."""
    found = []
    for spec in ("pages", "pages:one-pool"):
        proof = prove(load_spec(spec), ["exclusive_owner"], jobs=1)
        found.append(certificate(proof.system, proof.conditions, proof.asked))
    path = tmp_path_factory.mktemp("certificates")
    write_certificates(found, path)
    return path


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A certificate of which a file is gone."""
    proof = prove(load_spec("pages:one-pool"), ["exclusive_owner"], jobs=1)
    write_certificates([certificate(proof.system, proof.conditions, proof.asked)], tmp_path)
    next((tmp_path / "conditions").iterdir()).unlink()
    return tmp_path


@pytest.fixture
def kvmodel(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.run(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def solver(tmp_path: Path, body: str) -> str:
    """A program that answers as `body` does."""
    path = tmp_path / "solver"
    path.write_text(f"#!{sys.executable}\nimport sys\ntext = open(sys.argv[1]).read()\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_everything_agrees(kvmodel: Run, folder: Path) -> None:
    code, out, err = kvmodel("recheck", str(folder))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert [" ".join(line.split()) for line in lines[:3]] == [
        "certificate of properties conditions",
        "pages 1 8 agrees",
        "pages:one-pool 1 8 agrees",
    ]
    assert lines[4].startswith("16 conditions made again from the specs, ")
    assert lines[5].startswith("cvc5 1")
    assert " answers unsat to each, " in lines[5]


def test_json(kvmodel: Run, folder: Path) -> None:
    code, out, err = kvmodel("recheck", str(folder), "--json")
    assert (code, err) == (0, "")
    content = json.loads(out)
    assert content["command"] == "recheck"
    assert content["agrees"] is True
    assert content["problems"] == []
    assert [entry["spec"] for entry in content["certificates"]] == ["pages", "pages:one-pool"]
    assert content["conditions"] == sum(entry["conditions"] for entry in content["certificates"])


def test_what_does_not_agree(kvmodel: Run, broken: Path) -> None:
    code, out, _ = kvmodel("recheck", str(broken))
    assert code == 1
    assert "1 problem\n" in out
    assert ".smt2 is missing\n" in out
    code, out, _ = kvmodel("recheck", str(broken), "--json")
    assert code == 1
    (problem,) = json.loads(out)["problems"]
    assert problem["manifest"] == "pages.one-pool.json"
    assert problem["message"].endswith("is missing")


def test_another_solver(kvmodel: Run, folder: Path, tmp_path: Path) -> None:
    program = solver(tmp_path, "assert '(check-sat)' in text\nprint('unsat')")
    code, out, _ = kvmodel("recheck", str(folder), "--solver", program)
    assert code == 0
    assert "answers unsat to each" in out


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("print('sat')", "answers sat, not unsat"),
        ("print('unknown')", "answers unknown, not unsat"),
        ("print('unsat'); print('sat')", "answers unsat sat, not unsat"),
        ("pass", "answers no answer, exit code 0, not unsat"),
        ("sys.exit('no such logic')", "answers no such logic, not unsat"),
        ("print('\\x1b[2Junsat')", "answers \\x1b[2Junsat, not unsat"),
    ],
)
def test_any_other_answer(kvmodel: Run, folder: Path, tmp_path: Path, body: str, said: str) -> None:
    code, out, _ = kvmodel("recheck", str(folder), "--solver", solver(tmp_path, body))
    assert code == 1
    assert said in " ".join(out.split())
    assert "initially/exclusive_owner" in out


def test_a_solver_that_takes_too_long(kvmodel: Run, broken: Path, tmp_path: Path) -> None:
    program = solver(tmp_path, "import time\nif 'allocate/exclusive_owner:' in text: time.sleep(60)\nprint('unsat')")
    code, out, _ = kvmodel("recheck", str(broken), "--solver", program, "--timeout", "2", "--json")
    assert code == 1
    said = [problem["message"] for problem in json.loads(out)["problems"] if problem["condition"] == "allocate/exclusive_owner"]
    assert any("no answer in 2 seconds" in message for message in said)


def test_no_such_solver(kvmodel: Run, folder: Path) -> None:
    code, _, err = kvmodel("recheck", str(folder), "--solver", "no-such-program")
    assert code == 2
    assert "no such program" in err


def test_without_cvc5(kvmodel: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cvc5", None)
    code, out, err = kvmodel("recheck", str(folder))
    assert (code, out) == (2, "")
    assert "pip install 'kvmodel[recheck]'" in err


def test_what_is_no_certificate(kvmodel: Run, tmp_path: Path) -> None:
    code, _, err = kvmodel("recheck", str(tmp_path / "nowhere"))
    assert code == 2
    assert "is not a directory" in err
    (tmp_path / "x.json").write_text('{"schema": 1', encoding="utf-8")
    code, _, err = kvmodel("recheck", str(tmp_path))
    assert code == 2
    assert "x.json: not JSON" in err
    code, out, _ = kvmodel("recheck", str(tmp_path), "--json")
    assert code == 2
    assert json.loads(out)["error"]["kind"] == "CertificateError"
