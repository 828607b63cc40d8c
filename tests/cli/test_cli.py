"""The command line: exit codes, JSON, help, and what a user's mistakes look like."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

from kvmodel import cli
from kvmodel.commands import common
from kvmodel.errors import InternalError
from kvmodel.verdict import Verdict
from tests.lending import ROOT, SPEC

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def kvmodel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command from the root of the repository: exit code, stdout, stderr."""
    monkeypatch.chdir(ROOT)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.run(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([SPEC], 0),
        ([f"{SPEC}:careless"], 1),
        ([f"{SPEC}:careless", "served"], 0),
        ([f"{SPEC}:careless", "--expect", "violated"], 0),
        ([f"{SPEC}:careless", "--expect", "holds"], 1),
        ([SPEC, "--expect", "violated"], 1),
        ([SPEC, "--strict"], 3),  # a guard that never decided
        ([SPEC, "--flag", "lends_far"], 1),
        ([SPEC, "--no-flag", "zero_on_free"], 1),
        ([SPEC, "--size", "Page=1", "--size", "Request=1"], 0),
        ([SPEC, "--method", "walk", "--runs", "20"], 0),
        ([SPEC, "--method", "bmc", "--depth", "3"], 0),
        ([f"{SPEC}:careless", "--method", "bmc", "--depth", "6"], 1),
        ([f"{SPEC}:careless", "isolated_read", "--method", "bmc", "--depth", "5"], 0),
        ([SPEC, "served", "--method", "bmc", "--depth", "2"], 3),  # not shown within two steps
        ([f"{SPEC}:careless", "--method", "hypothesis", "--runs", "200"], 1),
        ([SPEC, "--timeout", "0"], 2),
        ([SPEC, "--limit", "5", "--method", "walk"], 2),
        ([SPEC, "--depth", "3"], 2),
        ([SPEC, "--method", "walk", "--complete"], 2),
        ([SPEC, "--method", "guess"], 2),
        ([SPEC, "--size", "Page"], 2),
        ([SPEC, "--size", "Page=0"], 2),
        ([SPEC, "--size", "Pages=2"], 2),
        ([SPEC, "--size", "Page=2", "--size", "Page=3"], 2),
        ([SPEC, "--size", "Request=1000"], 2),
        ([SPEC, "--flag", "lends_far", "--no-flag", "lends_far"], 2),
        ([SPEC, "--flag", "lends"], 2),
        ([SPEC, "isolated"], 2),
        (["nothing"], 2),
        (["tests/data/nothing.py:Nothing"], 2),
        ([], 2),
    ],
)
def test_exit_codes_of_check(kvmodel: Run, arguments: list[str], code: int) -> None:
    found, out, err = kvmodel("check", *arguments)
    assert found == code
    assert (out == "") == (code == 2)
    assert "Traceback" not in err


def test_exit_codes_follow_from_the_verdict() -> None:
    holds, violated, undecided = Verdict.HOLDS, Verdict.VIOLATED, Verdict.UNDECIDED
    assert [common.exit_code(verdict) for verdict in (holds, violated, undecided)] == [0, 1, 3]
    assert [common.exit_code(verdict, "holds") for verdict in (holds, violated, undecided)] == [0, 1, 3]
    assert [common.exit_code(verdict, "violated") for verdict in (holds, violated, undecided)] == [1, 0, 3]
    assert [common.exit_code(verdict, "undecided") for verdict in (holds, violated, undecided)] == [1, 1, 0]
    assert [common.exit_code(verdict, None, True) for verdict in (holds, violated, undecided)] == [3, 1, 3]
    assert common.exit_code(violated, "violated", True) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chekc"], "Error: there is no command 'chekc'; did you mean 'check'?"),
        (["check", "handof"], "error: there is no spec 'handof'; did you mean 'handoff'?"),
        (["check", f"{SPEC}:carless"], "error: Lending has no variant 'carless'; did you mean 'careless'?"),
        (["check", SPEC, "isolated"], f"error: {SPEC} has no property 'isolated'; did you mean 'isolated_read'?"),
        (["check", SPEC, "--flag", "zero_on_fre"], f"error: {SPEC} has no flag 'zero_on_fre'; did you mean 'zero_on_free'?"),
        (["check", SPEC, "--size", "Pages=2"], f"error: {SPEC} has no sort 'Pages'; did you mean 'Page'?"),
        (["check", SPEC, "--size", "Page=two"], "error: --size Page=two: write NAME=N, as in --size Request=3"),
        (["check", SPEC, "--depth", "3"], "error: explore looks at every depth; a depth is for bmc, walk, hypothesis"),
        (["check", SPEC, "--sizes", "Page=2"], "No such option"),  # the rest is click's
        (["specs", "diff", "handoff"], "Error: write `kvmodel specs`, `kvmodel specs SPEC [--text]` or `kvmodel specs diff A B`"),
        (["trace", "show", "none.itf.json"], "error: none.itf.json: the file cannot be read: No such file or directory"),
    ],
)
def test_mistakes_are_told_with_the_nearest_known_name(kvmodel: Run, arguments: list[str], message: str) -> None:
    code, out, err = kvmodel(*arguments)
    assert code == 2
    assert out == ""
    assert message in err
    assert "Traceback" not in err


def test_what_cannot_end_is_refused_with_what_to_do(kvmodel: Run) -> None:
    code, _, err = kvmodel("check", SPEC, "--size", "Request=1000")
    assert code == 2
    assert "would not end: a state has 7,010 values (at most 2,000), 10,000 steps to try (at most 5,000) and" in err


def test_every_mistake_of_a_file_is_told_at_once(kvmodel: Run, tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    right, wrong = "s.holds[r, p] = True", "s.hold[r, p] = True\n        s.bussy = True"
    file.write_text((ROOT / "tests/data/lending.py").read_text().replace(right, wrong))
    code, out, err = kvmodel("check", f"{file}:Lending")
    assert (code, out) == (2, "")
    assert "'hold'; did you mean 'holds'?" in err
    assert "'bussy'; did you mean 'busy'?" in err
    assert "2 mistakes" in err
    assert ":94:" in err


RESULT = {
    "schema", "command", "spec", "method", "verdict", "coverage", "properties", "findings", "statistics", "fired", "seconds", "headline",
    "trace", "reproduce",
}  # fmt: skip


def one_object(text: str) -> dict[str, Any]:
    assert text.count("\n") == 1
    found: dict[str, Any] = json.loads(text)
    return found


def test_json_is_one_object_and_nothing_else(kvmodel: Run) -> None:
    code, out, err = kvmodel("check", f"{SPEC}:careless", "--json")
    found = one_object(out)
    assert (code, err) == (1, "")
    assert set(found) == RESULT
    assert found["schema"] == 1
    assert found["command"] == "check"
    assert (found["verdict"], found["headline"]) == ("violated", "isolated_read")
    assert found["coverage"] == {
        "word": "this size",
        "size": {"Page": 2, "Request": 2},
        "steps": None,
        "runs": None,
        "flags": {"zero_on_free": False, "lends_far": False},
    }
    first = found["properties"][0]
    assert {**first, "coverage": None} == {
        "name": "isolated_read", "verdict": "violated", "coverage": None, "length": 6, "reason": "", "reachable": False,
    }  # fmt: skip
    assert found["findings"][0]["kind"] == "guard never decided"
    assert found["statistics"]["states"] == 217
    assert found["fired"]["admit"] > 0
    assert found["trace"]["#meta"]["property"] == "isolated_read"
    assert found["reproduce"].startswith("kvmodel check ")


def test_json_of_an_exploration(kvmodel: Run) -> None:
    code, out, _ = kvmodel("explore", SPEC, "--json")
    found = one_object(out)
    assert code == 0
    assert set(found) == RESULT
    assert (found["command"], found["trace"], found["headline"]) == ("explore", None, None)


def test_json_of_an_error(kvmodel: Run) -> None:
    code, out, err = kvmodel("check", "handof", "--json")
    assert (code, err) == (2, "")
    found = one_object(out)
    assert found["error"]["kind"] == "UsageError"
    assert "did you mean 'handoff'?" in found["error"]["message"]
    assert found["exit"] == 2
    assert one_object(kvmodel("check", "--json")[1])["error"]["message"] == "Missing argument 'SPEC'."


def test_json_of_mistakes_in_a_file(kvmodel: Run, tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("class Mine(Nothing):\n    pass\n")
    code, out, _ = kvmodel("check", f"{file}:Mine", "--json")
    assert code == 2
    error = one_object(out)["error"]
    assert error["kind"] in ("SpecError", "UsageError")
    assert all({"file", "line", "column", "message"} <= set(entry) for entry in error.get("diagnostics", []))


def test_the_command_that_is_printed_reproduces_the_result(kvmodel: Run) -> None:
    first = one_object(kvmodel("check", f"{SPEC}:careless", "isolated_read", "--size", "Page=1", "--json")[1])
    again = one_object(kvmodel(*shlex.split(first["reproduce"])[1:], "--json")[1])
    assert {**again, "seconds": 0} == {**first, "seconds": 0}


def test_a_trace_is_saved_and_shown_again(kvmodel: Run, tmp_path: Path) -> None:
    target = tmp_path / "t.itf.json"
    code, out, err = kvmodel("check", f"{SPEC}:careless", "--save", str(target))
    assert code == 1
    assert f"{target}: a trace of 6 steps" in err
    code, shown, _ = kvmodel("trace", "show", str(target))
    assert code == 0
    header, _, table = shown.partition("\n\n")
    assert header == f"{SPEC}:careless at Page=2 Request=2, 6 steps; replayed"
    table, what, explanation = table.partition("\nwhat led to it\n")
    assert what
    assert out.startswith(table)
    assert "zero_on_free  step 5" in explanation
    found = one_object(kvmodel("trace", "show", str(target), "--json")[1])
    assert (found["command"], found["length"]) == ("trace show", 6)
    assert found["explanation"]["relevant"] == [1, 2, 3, 4, 5, 6]
    assert found["explanation"]["chain"][-1]["step"] == 6
    assert [stopper["flag"] for stopper in found["explanation"]["stopped_by"]] == ["zero_on_free"]


def test_a_trace_that_is_no_run_is_refused(kvmodel: Run, tmp_path: Path) -> None:
    target = tmp_path / "t.itf.json"
    kvmodel("check", f"{SPEC}:careless", "--save", str(target))
    target.write_text(target.read_text().replace('"action":"fill"', '"action":"borrow"'))
    code, out, err = kvmodel("trace", "show", str(target))
    assert (code, out) == (2, "")
    assert "step 4: borrow is not enabled: its guard 'lendable' is false" in err


def test_without_a_violation_nothing_is_saved(kvmodel: Run, tmp_path: Path) -> None:
    code, _, err = kvmodel("check", SPEC, "--save", str(tmp_path / "t.itf.json"))
    assert code == 0
    assert "not written, there is no trace to save" in err
    assert not list(tmp_path.iterdir())
    kvmodel("check", SPEC, "served", "--save", str(tmp_path / "witness.itf.json"))
    assert (tmp_path / "witness.itf.json").exists()


def test_a_trace_names_no_file_outside_the_folder(kvmodel: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "t.itf.json"
    kvmodel("check", f"{SPEC}:careless", "--save", str(target))
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    code = cli.run(["trace", "show", str(target)])
    assert code == 2  # the relative name leads nowhere here
    target.write_text(target.read_text().replace(SPEC, f"{ROOT}/{SPEC}"))
    assert cli.run(["trace", "show", str(target)]) == 2
    assert cli.run(["trace", "show", str(target), "--spec", f"{ROOT}/{SPEC}:careless"]) == 0


def test_trace_why(kvmodel: Run, tmp_path: Path) -> None:
    target = str(tmp_path / "t.itf.json")
    kvmodel("check", f"{SPEC}:careless", "--save", target)
    code, out, _ = kvmodel("trace", "why", target, "2", "borrow", "r=r1", "p=near.p0")
    assert code == 0
    assert "borrow(r=r1, p=near.p0) is not enabled" in out
    assert "broken: phase[r] == Phase.RUNNING   [phase[r1] is WAITING]" in out
    found = one_object(kvmodel("trace", "why", target, "2", "borrow", "p=near.p1", "--json")[1])
    assert [binding["enabled"] for binding in found["bindings"]] == [True, False]
    for arguments, message in (
        (["2", "borow"], "did you mean 'borrow'?"),
        (["2", "borrow", "r"], "'r': write ARG=VALUE, as in r=r0"),
        (["2", "borrow", "q=r0"], "borrow has no parameter 'q' (it takes r, p)"),
        (["2", "borrow", "p=p0"], "'p0' is not a Page of this size"),
        (["7", "borrow"], "the trace has steps 0 to 6, no step 7"),
    ):
        code, _, err = kvmodel("trace", "why", target, *arguments)
        assert code == 2
        assert message in err


def test_specs(kvmodel: Run) -> None:
    code, out, _ = kvmodel("specs")
    assert code == 0
    assert out.splitlines()[0].split() == ["spec", "what", "it", "is"]
    for name in ("handoff ", "handoff:buggy ", "pages "):
        assert f"\n{name}" in out
    code, out, _ = kvmodel("specs", "handoff")
    for part in ("variants\n", "  handoff:buggy\n", "flags\n", "actions\n", "properties\n", "  isolated_read\n"):
        assert part in out
    listed = one_object(kvmodel("specs", "--json")[1])["specs"]
    assert {"name", "doc"} == set(listed[0])
    assert one_object(kvmodel("specs", SPEC, "--json")[1])["sizes"] == {}


def test_specs_text_and_difference(kvmodel: Run) -> None:
    from tests.language.test_text import EXPECTED

    assert kvmodel("specs", SPEC, "--text") == (0, EXPECTED, "")
    assert kvmodel("specs", "diff", SPEC, f"{SPEC}:eager") == (
        0,
        f"- {SPEC}\n+ {SPEC}:eager\n\n  action finish(r: Request):\n"
        '-     require(any(holds[r, p] for p in Page), "served")\n',
        "",
    )
    assert kvmodel("specs", "diff", SPEC, SPEC)[1] == f"{SPEC} and {SPEC} mean the same\n"
    assert one_object(kvmodel("specs", "diff", SPEC, f"{SPEC}:careless", "--json")[1])["changes"][0]["name"] == "zero_on_free"


def test_new_writes_a_spec_that_checks(kvmodel: Run, tmp_path: Path) -> None:
    file = tmp_path / "my_lease.py"
    code, out, _ = kvmodel("new", str(file))
    assert code == 0
    assert f"kvmodel check {file}:MyLease\n" in out
    assert kvmodel("check", f"{file}:MyLease", "--strict")[0] == 0
    assert kvmodel("check", f"{file}:MyLease:careless")[0] == 1
    before = file.read_text()
    code, _, err = kvmodel("new", str(file))
    assert code == 2
    assert "exists; it was not changed" in err
    assert file.read_text() == before
    assert kvmodel("new", str(tmp_path / "1.py"))[0] == 2
    assert kvmodel("new", str(tmp_path / "spec.txt"))[0] == 2
    assert kvmodel("new", str(tmp_path / "nowhere" / "lease.py"))[0] == 2


def test_ctrl_c_tells_what_was_found(kvmodel: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(_: str) -> None:
        raise KeyboardInterrupt

    @contextmanager
    def progress_line() -> Iterator[Callable[[str], None]]:
        yield stop

    monkeypatch.setattr(common, "progress_line", progress_line)
    code, out, _ = kvmodel("check", SPEC)
    assert code == 3
    assert "undecided  this depth  interrupted" in out
    assert one_object(kvmodel("check", SPEC, "--json")[1])["verdict"] == "undecided"


def test_a_limit_of_states_leaves_the_rest_undecided(kvmodel: Run) -> None:
    code, out, _ = kvmodel("check", "handoff", "--limit", "3000")
    assert code == 3
    assert "undecided" in out
    assert "limit of 3,000 states" in out


def failing(problem: BaseException) -> Callable[..., object]:
    def command(*_: object, **__: object) -> object:
        raise problem

    return command


@pytest.mark.parametrize(
    ("problem", "code", "message"),
    [
        (InternalError("the readings disagree"), 3, "internal error: the readings disagree"),
        (KeyboardInterrupt(), 3, "interrupted"),
        (MemoryError(), 3, "error: MemoryError: this is too large for the memory here; ask for smaller sizes"),
        (RecursionError(), 3, "error: RecursionError: this is too large for the memory here; ask for smaller sizes"),
        (ZeroDivisionError("a defect"), 3, "this is a defect of kvmodel, not of the spec; please report it"),
    ],
)
def test_no_failure_of_kvmodel_looks_like_a_violation(
    kvmodel: Run, monkeypatch: pytest.MonkeyPatch, problem: BaseException, code: int, message: str
) -> None:
    monkeypatch.setattr(cli.cli, "main", failing(problem))
    found, out, err = kvmodel("check", SPEC)
    assert (found, out) == (code, "")
    assert message in err
    assert one_object(kvmodel("check", SPEC, "--json")[1])["exit"] == code


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.mark.parametrize("path", list(commands(cli.cli)), ids=" ".join)
def test_every_command_has_an_example(kvmodel: Run, path: tuple[str, ...]) -> None:
    code, out, _ = kvmodel(*path, "--help")
    assert code == 0
    assert f"kvmodel {' '.join(path)}" in out.partition("Example")[2]


def test_help(kvmodel: Run) -> None:
    assert kvmodel("--help")[1] == HELP
    assert kvmodel("--version")[1].startswith("kvmodel 0.")


HELP = """\
Usage: kvmodel [OPTIONS] COMMAND [ARGS]...

  Model checking for KV-cache page ownership: can one request ever read
  another request's pages?

Options:
  --version   Show the version and exit.
  -h, --help  Show this message and exit.

Commands:
  specs      What ships; what a spec says; how two specs differ.
  new        Write a small spec of your own that already checks.
  check      Check the properties of a spec; show the shortest violation.
  prove      Prove properties for any number of requests and pages.
  defences   Which defences are enough for a property, and which are not.
  explore    Count what a spec can reach: states, depth, actions, findings.
  simulate   Run the incident at its real size: what leaks, which test sees
             it.
  preflight  Does each pool cover what its door accepts? From logs or numbers.
  engines    Drive real releases of vLLM and SGLang, held to a spec.
  recheck    Let a second solver check the proofs that ship, or yours, again.
  trace      Show a saved trace, or say why not; check an engine's event log.
  render     Draw a saved trace: a step or a film; a graph for other tools.
  report     Explain a saved trace: one HTML page, or Markdown.

  Examples:
    kvmodel check handoff:buggy     the incident: why responses carried other requests' data
    kvmodel check handoff           the recommended design: everything holds
    kvmodel specs                   what ships
"""


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout


def test_help_imports_nothing_heavy() -> None:
    heavy = python(
        "import sys\n"
        "from kvmodel import cli\n"
        "code = cli.run(['--help'])\n"
        "heavy = {'z3', 'hypothesis', 'rich', 'networkx', 'numpy', 'msgspec', 'kvmodel.language', 'kvmodel.api'}\n"
        "print('loaded:', sorted(heavy & set(sys.modules)), file=sys.stdout)\n"
    )
    assert heavy.endswith("loaded: []\n")


def test_a_reader_that_goes_away_is_no_error() -> None:
    script = f"{sys.executable} -m kvmodel.cli specs --json | true; exit ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (result.returncode, result.stderr) == (0, "")
