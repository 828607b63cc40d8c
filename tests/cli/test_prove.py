"""``kvmodel prove``: verdicts, exit codes, what is printed, and what a user's mistakes look like."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from kvmodel import cli
from tests.lending import ROOT

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def kvmodel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(ROOT)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.run(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_the_incident_is_violated_with_a_run(kvmodel: Run) -> None:
    code, out, _ = kvmodel("prove", "handoff:buggy", "isolated_read")
    assert code == 1
    assert "isolated_read is violated by step 13 for r = r1, p = decode.p1:" in out
    assert "handoff:buggy: violated, isolated_read in 13 steps" in out


def test_the_core_holds_at_any_size(kvmodel: Run) -> None:
    code, out, _ = kvmodel("prove", "pages:one-pool", "--jobs", "1", "--verbose")
    assert code == 0
    assert "pages:one-pool: holds\nprove: any size; conditions" in out
    assert "isolated_write     holds    any size" in out
    assert "conditions in the effectively propositional fragment" in out
    assert "land/isolated_read" in out  # a line for each condition


def test_json_has_the_evidence(kvmodel: Run) -> None:
    code, out, _ = kvmodel("prove", "pages:one-pool", "isolated_read", "--jobs", "1", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["command"] == "prove"
    assert found["coverage"]["word"] == "any size"
    assert {entry["answer"] for entry in found["conditions"]} == {"proved"}
    assert {"initially/isolated_read", "land/isolated_read"} <= {entry["name"] for entry in found["conditions"]}
    assert set(found["claims"]) >= {claim for entry in found["conditions"] for claim in entry["used"]}


def test_undecided_shows_the_step_that_a_lemma_has_to_exclude(kvmodel: Run, tmp_path: object) -> None:
    spec = f"{tmp_path}/spec.py"
    with open(spec, "w", encoding="utf-8") as file:
        file.write(
            "from kvmodel.language import implies, lemma, override\n"
            "from kvmodel.specs.pages import OnePool, Page, Request\n\n\n"
            "class NoLemma(OnePool):\n"
            '    """The pool, with one lemma made useless."""\n\n'
            "    @override\n    @lemma\n"
            "    def written_is_own(s, r: Request, p: Page) -> bool:\n"
            '        """Says nothing."""\n'
            "        return implies(s.written[r, p], s.written[r, p])\n"
        )
    code, out, _ = kvmodel("prove", f"{spec}:NoLemma", "isolated_read", "--jobs", "1")
    assert code == 3
    assert "isolated_read is not inductive: " in out
    assert "(some state)" in out
    assert "No run gets to this state at this size: a lemma that excludes it is missing." in out
    assert "undecided  this size  not inductive:" in out
    code, _, _ = kvmodel("prove", f"{spec}:NoLemma", "isolated_read", "--jobs", "1", "--expect", "holds")
    assert code == 3


def test_mistakes_are_told(kvmodel: Run) -> None:
    code, _, err = kvmodel("prove", "handoff", "isolated_reed")
    assert code == 2
    assert err == "error: handoff has no property 'isolated_reed'; did you mean 'isolated_read'?\n"
    code, _, err = kvmodel("prove", "handoff", "can_be_served")
    assert code == 2
    assert err == (
        "error: 'can_be_served' says that something is possible: a run shows that, and no proof does\n"
        "    kvmodel check handoff can_be_served\n"
    )
    assert kvmodel("prove", "handoff", "--jobs", "0")[0] == 2


def test_the_command_that_is_printed_gives_the_same(kvmodel: Run) -> None:
    import shlex

    _, out, _ = kvmodel("prove", "pages:one-pool", "isolated_read", "--jobs", "1", "--json")
    arguments = shlex.split(json.loads(out)["reproduce"])[1:]
    code, again, _ = kvmodel(*arguments, "--json")
    assert code == 0
    assert json.loads(again)["claims"] == json.loads(out)["claims"]


def test_inferred_lemmas_are_printed_to_be_pasted(kvmodel: Run) -> None:
    code, out, _ = kvmodel("prove", "pages:one-pool", "isolated_read", "--infer")
    assert code == 0
    assert out.startswith("isolated_read: holds   any size, with ")
    assert "    @lemma\n    def lemma_1(s, " in out
    code, out, _ = kvmodel("prove", "pages:one-pool-without-quarantine", "isolated_read", "--infer")
    assert code == 1
    assert "isolated_read is violated by step 8" in out
    code, out, _ = kvmodel("prove", "pages:one-pool", "isolated_write", "--infer", "--json")
    assert code == 0
    assert json.loads(out)["verdict"] == "holds"
    code, _, err = kvmodel("prove", "pages:one-pool", "--infer", "--all-flags")
    assert code == 2
    assert err == "error: --infer and --all-flags do not go together: infer lemmas first, paste them in, and prove\n"


def test_a_second_opinion_and_a_certificate(kvmodel: Run, tmp_path: object) -> None:
    asked = ("prove", "pages:one-pool", "isolated_read", "--jobs", "1", "--second-opinion")
    code, out, err = kvmodel(*asked, "--certificate", f"{tmp_path}/proof")
    assert code == 0
    assert "isolated_read: holds at any size also by enumeration alone" in out
    assert "tightness at Page=1 Request=1: of 128 type-correct states, " in out
    assert "certificates of " in err
    assert kvmodel("recheck", f"{tmp_path}/proof", "--jobs", "1")[0] == 0
    code, out, _ = kvmodel(*asked, "--json")
    found = json.loads(out)["second_opinion"]
    assert {entry["judgement"] for entry in found["conditions"]} == {"agreed"}
    assert found["lacking"] == {"isolated_read": []}


def test_a_second_opinion_that_disagrees_is_a_defect(kvmodel: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """If Z3 called everything proved, enumeration would find the state that breaks it."""
    from kvmodel.readings.solver import Answer, ConditionResult, ConditionSolver

    monkeypatch.setattr(ConditionSolver, "check", lambda self, step, claim, *rest: ConditionResult(step, claim, Answer.PROVED))
    code, out, err = kvmodel("prove", "pages:one-pool-without-quarantine", "isolated_write", "--jobs", "1", "--second-opinion")
    assert code == 3
    assert "disagreed" in out
    assert re.match("internal error: enumeration breaks [a-z_]+/isolated_write, which Z3 proved", err)
