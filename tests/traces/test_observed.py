"""Observed traces as files: out and in again, what is refused, and that nothing a file says can act on whoever reads it."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from kvmodel.api import read_trace
from kvmodel.cli import run
from kvmodel.engine_testing import told
from kvmodel.engines.driver import EngineViolation, Make
from kvmodel.engines.play import play
from kvmodel.errors import ReplayError, TraceFileError, UsageError
from kvmodel.language.load import load_spec
from kvmodel.readings.observed import observed_system
from kvmodel.readings.replay import replay
from kvmodel.traces.itf import itf_object, parse_itf, write_itf
from kvmodel.traces.observed import Call, call_text
from kvmodel.traces.trace import Trace
from kvmodel.views.regression import regression_test
from kvmodel.views.text import reproduction
from tests.engines.core.allocators import BUGS, Full, make
from tests.engines.core.toy import handoff

Change = Callable[[dict[str, Any]], object]
HOSTILE = (
    'quotes " and \' and """ and \'\'\' back\\slash \\ {braces} {0} {{}} % # ; \u00b2\u00bc \u212b \\',
    '"""\nimport os\nos.abort()\n""" [bold]markup[/bold] </script><script>alert(1)</script> | a `code` \u202egnp.exe\u2066 "',
    "line\nend\r\u2028\u0085 \x1b[2J\x07\x00 cleared " + "A" * 100_000,
)


def run_of(build: Make, name: str, calls: list[Call]) -> Trace:
    with pytest.raises(EngineViolation) as caught:
        play(build, name, calls)
    return caught.value.trace


@cache
def small() -> Trace:
    """Two calls to an allocator that frees what it evicts."""
    admit: Call = {"verb": "admit", "request": "r0", "tokens": (1, 1)}
    return run_of(make(BUGS["evict frees"]), "manager", [admit, {"verb": "evict", "pages": (0,)}])


@cache
def of_two_pools() -> Trace:
    submitted: Call = {"verb": "submit", "request": "r0", "tokens": (1,), "salt": None, "role": "HANDOFF", "new": 1}
    calls: list[Call] = [submitted, {"verb": "schedule"}, {"verb": "run", "token": 0}, {"verb": "abort", "request": "r0"}]
    return run_of(handoff("abort-without-quarantine"), "toy", calls)


@cache
def partly() -> Trace:
    """Of an adapter that shows neither the index nor counts."""
    build = make(BUGS["double free"], has_index=False, has_references=False)
    return run_of(build, "manager", [{"verb": "admit", "request": "r0", "tokens": (1, 1)}, {"verb": "free", "request": "r0"}])


@cache
def ended_in_an_error() -> Trace:
    def free(self: Full, request: str) -> None:
        raise ValueError("count is 0")

    return run_of(make(free=free), "manager", [{"verb": "admit", "request": "r0", "tokens": (1,)}, {"verb": "free", "request": "r0"}])


TRACES = (small, of_two_pools, partly, ended_in_an_error)


def plain(trace: Trace) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(itf_object(trace)))
    return found


def parsed(found: object) -> Trace:
    return parse_itf(json.dumps(found).encode(), load_spec, "x.itf.json", observed_system)


def command(*words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command line."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(list(words))
    return code, out.getvalue(), err.getvalue()


# -- out and in again


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: str(trace.__name__))
def test_a_trace_comes_back_as_it_was(trace: Callable[[], Trace], tmp_path: Path) -> None:
    first = trace()
    write_itf(first, tmp_path / "x.itf.json")
    again = read_trace(tmp_path / "x.itf.json")
    assert plain(again) == plain(first)
    assert (again.instance, again.states, again.steps, again.property) == (first.instance, first.states, first.steps, first.property)
    assert again.observed is not None
    assert first.observed is not None
    assert again.observed.title == first.observed.title
    assert told(again) == told(first)
    replay(again)


def test_what_nobody_maps_is_not_in_the_file() -> None:
    found = plain(partly())
    assert found["#meta"]["observed"]["unknown"] == ["key", "references"]
    assert not {"key", "references"} & {*found["vars"], *found["states"][0]}


def test_where_an_observed_trace_makes_no_sense_it_is_refused() -> None:
    with pytest.raises(TraceFileError, match="this trace was observed on an engine, and a run of the spec is asked for"):
        parse_itf(json.dumps(plain(small())).encode(), load_spec, "x.itf.json")


def test_the_last_state_must_show_what_the_file_claims() -> None:
    changes: list[Change] = [
        lambda found: found["#meta"].update(property="isolated_read"),
        lambda found: found["states"].pop(),
        lambda found: found["states"][-1].update(free=found["states"][-2]["free"], entries=found["states"][-2]["entries"]),
    ]
    for change in changes:
        found = plain(small())
        change(found)
        with pytest.raises(ReplayError, match="the run does not show"):
            replay(parsed(found))


def test_the_command_line_refuses_it_too(tmp_path: Path) -> None:
    found = plain(small())
    found["#meta"]["property"] = "isolated_read"
    (tmp_path / "x.itf.json").write_text(json.dumps(found))
    code, out, err = command("trace", "show", str(tmp_path / "x.itf.json"))
    assert (code, out) == (2, "")
    assert "the run does not show 'isolated_read'" in err


@pytest.mark.parametrize("trace", [of_two_pools, ended_in_an_error], ids=lambda trace: str(trace.__name__))
def test_every_command_takes_a_saved_trace(trace: Callable[[], Trace], tmp_path: Path) -> None:
    file = str(tmp_path / "x.itf.json")
    write_itf(trace(), file)
    code, out, err = command("trace", "show", file)
    assert (code, err) == (0, "")
    assert "observed on " in out
    assert "free(r0)" in out or "abort(r0)" in out or "evict(pages=0)" in out
    for form in ("markdown", "junit", "sarif", "itf") if trace().property else ("markdown", "itf"):  # an error is no property of a spec
        code, out, err = command("trace", "convert", file, "--format", form)
        assert (code, err, bool(out)) == (0, "", True), form
    again = tmp_path / "again.itf.json"
    again.write_text(out)
    assert plain(read_trace(again)) == plain(trace())
    assert command("trace", "show", file, "--json")[0] == 0
    assert command("report", file, "-o", str(tmp_path / "x.html"))[0] == 0
    assert "<html" in (tmp_path / "x.html").read_text()
    assert command("render", file, "-o", str(tmp_path / "x.svg"))[0] == 0


# -- broken and hostile files


def observed_of(found: dict[str, Any]) -> dict[str, Any]:
    meta: dict[str, Any] = found["#meta"]["observed"]
    return meta


BROKEN: dict[str, tuple[Change, str]] = {
    "a pool with a strange name": (lambda f: observed_of(f).update(pools=["a\x1b[2J"]), r"'a\x1b[2J' is not a name of a pool or of a verb"),
    "a pool twice": (lambda f: observed_of(f).update(pools=["a", "a"]), "no names of their own"),
    "a pool twice but for case": (lambda f: observed_of(f).update(pools=["a", "A"]), "no names of their own"),
    "a pool without a name beside another": (lambda f: observed_of(f).update(pools=["", "a"]), "'' is not a name of a pool or of a verb"),
    "no pools": (lambda f: observed_of(f).update(pools=[]), "no names of their own"),
    "a verb twice": (lambda f: observed_of(f)["verbs"].append(dict(observed_of(f)["verbs"][0])), "no names of their own"),
    "a verb with a strange name": (lambda f: observed_of(f)["verbs"][0].update(name="free(r0); import os"), "is not a name"),
    "a verb without a name": (lambda f: observed_of(f)["verbs"][0].update(name=""), "'' is not a name of a pool or of a verb"),
    "an unknown variable that there is not": (lambda f: observed_of(f)["unknown"].append("kye"), "no variable 'kye'; did you mean 'key'?"),
    "... with a strange name": (lambda f: observed_of(f)["unknown"].append("\x1b[2J"), r"no variable '\x1b[2J'"),
    "no engine": (lambda f: observed_of(f).pop("engine"), "$.#meta.observed: Object missing required field `engine`"),
    "an engine that is a number": (lambda f: observed_of(f).update(engine=3), "$.#meta.observed.engine: Expected `str`, got `int`"),
    "verbs that are none": (lambda f: observed_of(f).update(verbs=[3]), "$.#meta.observed.verbs[0]: Expected `object`, got `int`"),
    "no call": (lambda f: f["states"][1]["#meta"].pop("call"), "$.states[1].#meta.call: an observed trace says for every step"),
    "a call without a verb": (lambda f: f["states"][1]["#meta"]["call"].pop("verb"), "$.states[1].#meta.call: an observed trace"),
    "a call that is a list": (lambda f: f["states"][1]["#meta"].update(call=["free"]), "$.states[1].#meta.call: an observed trace"),
    "a step that is no verb": (lambda f: f["states"][1]["#meta"].update(action="allocate"), "cached has no action 'allocate'"),
    "a request that there is not": (lambda f: f["states"][1]["#meta"]["arguments"].update(r="r9"), "'r9' is not a Request of this size"),
    "more pages than fit": (lambda f: f["#meta"]["sizes"].update(Page=10**9), "$.#meta.sizes"),
    "a property of calls": (lambda f: f["#meta"].update(property="engine_error"), "cached has no property 'engine_error'"),
    "a spec without pages": (lambda f: f["#meta"].update(spec="tenants"), "$"),
    "a variable less": (lambda f: f["states"][1].pop("free"), "the variable 'free' is missing"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_one_clear_error(name: str, tmp_path: Path) -> None:
    change, message = BROKEN[name]
    found = plain(small())
    change(found)
    with pytest.raises(TraceFileError) as caught:
        parsed(found)
    assert str(caught.value).startswith("x.itf.json: $")
    assert message in str(caught.value)
    (tmp_path / "x.itf.json").write_text(json.dumps(found))
    code, out, err = command("trace", "show", str(tmp_path / "x.itf.json"))
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    assert "\x1b" not in err


def deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


ODD: dict[str, dict[str, object]] = {
    "objects": {"tokens": {"a": [{"b": None}]}, "salt": [[1], [1]]},
    "many lists": {"tokens": [[1]] * 20},
    "a verb of another kind": {"verb": "\x1b[2J"},
    "a request that is a list": {"request": [["r0"]], "tokens": 3},
    "very large numbers": {"tokens": [10**3000]},
    "numbers that are none": {"tokens": [1e300, 0.5]},
    "deep lists": {"tokens": deep(300)},
    "many names": {f"name{number}": number for number in range(5_000)},
    "long texts": {"salt": "x" * 1_000_000},
    **{f"text {number}": {"salt": text, text[:50]: text, "request": text} for number, text in enumerate(HOSTILE)},
}


def escaped(text: str) -> bool:
    return not any(c != "\n" and not c.isprintable() for c in text)


@pytest.mark.parametrize("name", ODD)
def test_a_strange_call_is_shown_and_harms_nobody(name: str, tmp_path: Path) -> None:
    found = plain(small())
    found["states"][1]["#meta"]["call"].update(ODD[name])
    file = tmp_path / "x.itf.json"
    file.write_text(json.dumps(found))
    try:
        trace = read_trace(file)
    except TraceFileError:
        return
    assert trace.observed is not None
    assert escaped(told(trace))
    assert len(call_text(trace.observed.calls[0])) < 600
    check_generated(trace)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_come_out_escaped_everywhere(text: str, tmp_path: Path) -> None:
    for trace in (small, ended_in_an_error)[: 1 if text is not HOSTILE[1] else 2]:
        found = plain(trace())
        observed_of(found).update(engine=text, version=text, adapter=text)
        if trace is ended_in_an_error:
            observed_of(found)["finding"] = text
        for verb in observed_of(found)["verbs"]:
            verb["doc"] = text
        file = tmp_path / "x.itf.json"
        file.write_text(json.dumps(found))
        code, out, err = command("trace", "show", str(file))
        assert (code, err) == (0, "")
        assert escaped(out)
        for form in ("markdown", "junit", "sarif") if trace is small else ("markdown",):
            code, out, err = command("trace", "convert", str(file), "--format", form)
            assert (code, err) == (0, "")
            assert escaped(out)
        assert command("report", str(file), "-o", str(tmp_path / "x.html"))[0] == 0
        assert "<script>alert" not in (tmp_path / "x.html").read_text()
        check_generated(read_trace(file))


def check_generated(trace: Trace) -> None:
    """The regression test of a trace is Python, and does nothing but what it is meant to do; or there is none."""
    assert trace.observed is not None
    try:
        text = regression_test(trace, trace.observed.calls, "vllm", trace.observed.adapter, trace.observed.version)
    except UsageError:
        return
    tree = ast.parse(text)
    compile(tree, "test_x.py", "exec")
    kinds = [type(node).__name__ for node in tree.body]
    assert kinds == ["Expr", "Import", "Import", "ImportFrom", "ImportFrom", "Assign", "Assign", "FunctionDef"]
    documentation, release, calls, function = tree.body[0], tree.body[5], tree.body[6], tree.body[7]
    assert isinstance(documentation, ast.Expr)
    assert isinstance(documentation.value, ast.Constant)
    assert isinstance(release, ast.Assign)
    assert isinstance(release.value, ast.Call)
    assert [type(part).__name__ for part in release.value.args] == ["Constant", "Constant"]
    assert isinstance(calls, ast.Assign)
    assert ast.literal_eval(calls.value)
    assert isinstance(function, ast.FunctionDef)
    assert [type(node).__name__ for node in function.body] == ["Expr", "Assign", "Assign", "If"]
    assert escaped(text)


def test_ten_thousand_verbs_are_read_in_no_time() -> None:
    found = plain(small())
    observed_of(found)["verbs"] += [{"name": f"v{number}", "doc": "x"} for number in range(10_000)]
    trace = parsed(found)
    replay(trace)
    assert trace.observed is not None
    assert len(trace.observed.verbs) > 10_000


def test_a_call_of_no_plain_values_makes_no_test() -> None:
    with pytest.raises(UsageError, match="a call of the trace is not made of plain values"):
        regression_test(small(), ({"verb": "free", "tokens": {"a": 1}},), "vllm", "manager", "0.33.0")


def test_any_engine_name_is_quoted() -> None:
    text = regression_test(small(), ({"verb": "reset"},), 'x"; import os', 'm"', '"0')
    assert [type(node).__name__ for node in ast.parse(text).body][-1] == "FunctionDef"
    assert "import os\n\nimport pytest" in text


def test_calls_as_text() -> None:
    call: Call = {"verb": "submit", "request": "r0", "tokens": (7,) * 9, "salt": "a\nb", "new": 0}
    assert call_text(call) == "submit(r0, tokens=9 times 7, salt=a b)"
    assert call_text({"verb": "reset", "rejected": True, "pages": []}) == "reset(rejected)"
    assert call_text({"verb": "x", "tokens": [[1]] * 9}) == "x(tokens=9 times [1])"


def test_an_observed_system_says_what_it_cannot_be_made_of() -> None:
    observed = small().observed
    assert observed is not None
    with pytest.raises(UsageError, match="cached has no variable 'kye'; did you mean 'key'"):
        observed_system(load_spec("cached"), replace(observed, unknown=("kye",)))


def test_a_step_of_an_engine_has_no_guards(tmp_path: Path) -> None:
    file = tmp_path / "run.itf.json"
    write_itf(small(), file)
    with redirect_stderr(StringIO()) as err:
        assert run(["trace", "why", str(file), "1", "admit"]) == 2
    assert "its steps are what the engine was asked" in err.getvalue()


def test_it_is_found_again_on_the_engine() -> None:
    observed = small().observed
    assert observed is not None
    assert reproduction(small()) == f"kvmodel engines check {observed.engine}=={observed.version} manager {small().property}"
