"""``kvmodel defences``: tables, Markdown, JSON, exit codes. What it finds is tested with the analysis."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kvmodel import cli
from kvmodel.analyses import defences as analysis
from kvmodel.analyses.defences import defences
from kvmodel.language.build import Builder, not_
from kvmodel.readings.solver import ConditionSolver
from kvmodel.views.defences import defences_markdown, defences_text

ASKED = ["defences", "pages:one-pool", "isolated_write"]
UNPROVABLE = '''"""A spec that needs a lemma."""

from kvmodel.language import Flag, Single, Spec, action, flag, invariant, require


class Chain(Spec):
    """The lamp is lit only after a step that never comes."""

    careful: Flag = flag(True, kind="defence", doc="Nobody prepares.")
    ready: Single[bool]
    lit: Single[bool]

    @action
    def prepare(s) -> None:
        """Get ready."""
        require(not s.careful, "not careful")
        s.ready = True

    @action
    def press(s) -> None:
        """Light it."""
        require(s.ready, "ready")
        s.lit = True

    @invariant
    def dark(s) -> bool:
        """The lamp is dark."""
        return not s.lit
'''


def test_people_see_both_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(ASKED) == 0
    out = capsys.readouterr().out
    enough, _, rest = out.partition("not enough")
    assert "quarantine_gives_up=off" in enough
    assert [line.split()[:2] for line in enough.splitlines() if line.startswith("  1")] == [["1", "quarantine"]]
    assert any(line.split()[:4] == ["1", "quarantine", "3", "steps"] for line in rest.splitlines())
    assert "More is never worse" in rest
    assert max(map(len, out.splitlines())) <= 100


def test_verbose_shows_needs_and_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*ASKED, "--verbose"]) == 0
    out = capsys.readouterr().out
    assert "holds wherever quarantine=on" in out
    assert "inductive together: isolated_write" in out
    assert "isolated_write is violated by step 3" in out


def test_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*ASKED, "--format", "markdown"]) == 0
    out = capsys.readouterr().out
    assert "| flags on | claims | conditions | seconds |" in out
    assert "| `quarantine` | 3 steps | Page=2 Request=2 |" in out


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*ASKED, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {
        "schema", "command", "spec", "property", "flags", "fixed", "size", "assignments", "enough", "not_enough", "undecided",
        "monotone", "reversals", "proofs", "explorations", "stopped", "seconds", "reproduce",
    }  # fmt: skip
    assert found["assignments"] == {"all": 4, "proved": 2, "violated": 2, "undecided": 0}
    assert [row["on"] for row in found["enough"]] == [["quarantine"]]
    (row,) = found["not_enough"]
    assert (row["on"], row["off"], row["length"]) == (["zero_on_free"], ["quarantine"], 3)
    assert row["trace"]["#meta"]["flags"] == {"zero_on_free": True, "quarantine": False, "quarantine_gives_up": False}
    assert found["monotone"] is True


def test_the_command_that_is_shown_gives_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    cli.run([*ASKED, "--json", "--flag", "quarantine_gives_up"])
    first = json.loads(capsys.readouterr().out)
    assert shlex.split(first["reproduce"])[:2] == ["kvmodel", "defences"]
    cli.run([*shlex.split(first["reproduce"])[1:], "--json"])
    second = json.loads(capsys.readouterr().out)
    assert {**first, "seconds": 0} == {**second, "seconds": 0}
    assert first["enough"] == []


def test_a_flag_on_the_command_line_is_not_varied(capsys: pytest.CaptureFixture[str]) -> None:
    cli.run([*ASKED, "--json", "--flag", "zero_on_free"])
    found = json.loads(capsys.readouterr().out)
    assert found["flags"] == ["quarantine"]
    assert found["fixed"] == {"zero_on_free": True, "quarantine_gives_up": False}


def test_undecided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "chain.py"
    file.write_text(UNPROVABLE)
    assert cli.run(["defences", f"{file}:Chain", "dark"]) == 3
    out = capsys.readouterr().out
    assert "no set of flags was proved to be enough" in out
    assert "press/dark was not proved" in out
    assert cli.run(["defences", f"{file}:Chain", "dark", "--format", "markdown"]) == 3
    assert "| `careful` | no violation at" in capsys.readouterr().out


def test_out_of_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["defences", "handoff", "isolated_read", "--timeout", "0.01"]) == 3
    assert "undecided (timeout)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pages:one-pool", "isolatd_read"], "did you mean 'isolated_read'"),
        (["pages:one-pool", "can_be_read"], "possible"),
        (["pages:one-pool"], "PROPERTY"),
        (["pages:one-pol", "isolated_read"], "no variant"),
        (["pages:one-pool", "isolated_read", "--flag", "quarantin"], "did you mean 'quarantine'"),
        (["pages:one-pool", "isolated_read", "--flag", "quarantine", "--flag", "zero_on_free"], "left open"),
        (["pages:one-pool", "isolated_read", "--size", "Page=0"], "at least 1"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["defences", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert "Traceback" not in captured.err


def test_an_interrupt_shows_what_was_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    explored = analysis._Search._explore

    def once(self: analysis._Search, number: int) -> None:
        explored(self, number)
        raise KeyboardInterrupt

    monkeypatch.setattr(analysis._Search, "_explore", once)
    monkeypatch.setattr(analysis._Search, "_grown", lambda self, number: number)
    assert cli.run(ASKED) == 3
    out = capsys.readouterr().out
    assert "undecided (interrupted)" in out
    assert "3 steps" in out
    assert "only among those that are decided" in " ".join(out.split())


def test_more_that_is_worse_is_told() -> None:
    b = Builder("lamp")
    eager = b.flag("eager_[bold]|`x`", False)
    lit = b.relation("lit")
    b.action("press", guards={"eager": eager}, updates=[lit.set(True)])
    b.invariant("dark", not_(lit()))
    result = defences(b.build(), "dark")
    text = defences_text(result, "again")
    assert "proved with none on, violated with eager_[bold]|`x` on as well" in text
    markdown = defences_markdown(result, "again")
    assert "| none |" in markdown
    assert "eager\\_\\[bold\\]\\|\\`x\\` on as well" in markdown


def test_ctrl_c_reaches_us_while_z3_works() -> None:
    """A signal during a proof ends it at once, with what was found; the rest is undecided."""
    code = (
        "import os, signal, sys\n"
        "from kvmodel import cli\n"
        "from kvmodel.analyses.flagged_proofs import FlaggedProofs\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "solve, count = FlaggedProofs._solve, []\n"
        "def slow(self, *given):\n"
        "    count.append(1)\n"
        "    if len(count) == 3:\n"
        "        signal.setitimer(signal.ITIMER_REAL, 0.0001)\n"
        "    return solve(self, *given)\n"
        "signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))\n"
        "FlaggedProofs._solve = slow\n"
        "sys.exit(cli.run(['defences', 'handoff', 'isolated_read']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 3, done.stderr
    assert "undecided (interrupted)" in done.stdout


def test_no_solver_takes_the_signal_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[tuple[object, ...]] = []
    fresh = ConditionSolver.fresh

    def noted(self: ConditionSolver, limit: int) -> object:
        solver = fresh(self, limit)
        right = solver.set

        def told(*given: object) -> None:
            set_to.append(given)
            right(*given)

        monkeypatch.setattr(solver, "set", told)
        return solver

    monkeypatch.setattr(ConditionSolver, "fresh", noted)
    assert cli.run([*ASKED, "--json"]) == 0
    assert set_to
    assert set(set_to) == {("ctrl_c", False)}
