"""ITF files: out and in again, and everything that a hostile or broken file can be."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvmodel.errors import ReplayError, TraceFileError, UsageError
from kvmodel.language.instance import Instance, State
from kvmodel.language.system import TransitionSystem
from kvmodel.readings.replay import replay
from kvmodel.traces import itf
from kvmodel.traces.itf import itf_object, parse_itf, read_itf, write_itf
from kvmodel.traces.trace import Trace
from tests import lending

Change = Callable[[dict[str, Any]], object]


def resolve(name: str) -> TransitionSystem:
    if name != lending.system("careless").name:
        raise UsageError(f"there is no spec {name!r}")
    return lending.system("careless")


def plain() -> dict[str, Any]:
    """The careless trace as a JSON object that a test may change."""
    found: dict[str, Any] = json.loads(json.dumps(itf_object(lending.trace())))
    return found


def refusal(change: Change) -> str:
    """The message about a file with `change` made to it."""
    found = plain()
    change(found)
    with pytest.raises(TraceFileError) as caught:
        parse_itf(json.dumps(found).encode(), resolve, "x.itf.json")
    return str(caught.value)


def test_a_trace_comes_back_as_it_was(tmp_path: Path) -> None:
    for variant, name in (("careless", "isolated_read"), ("greedy", "range:loans"), ("stuck", "no_deadlock"), ("", "served")):
        trace = lending.trace(variant, name)
        write_itf(trace, tmp_path / "trace.itf.json")
        again = read_itf(tmp_path / "trace.itf.json", lambda _, variant=variant: lending.system(variant))  # type: ignore[misc]
        assert again == trace
        replay(again)


def test_the_file_says_what_it_is_of() -> None:
    found = plain()
    meta = found["#meta"]
    assert meta["format"] == "ITF"
    assert meta["format-version"] == 1
    assert meta["spec"] == "tests/data/lending.py:Lending:careless"
    assert meta["flags"] == {"zero_on_free": False, "lends_far": False}
    assert meta["sizes"] == {"Page": 2, "Request": 2}
    assert meta["property"] == "isolated_read"
    assert meta["tool"].startswith("kvmodel ")
    assert found["params"] == ["pool", "limit", "need"]
    assert found["vars"] == ["phase", "holds", "content", "loans", "busy"]


def test_values_are_those_of_the_format() -> None:
    states = plain()["states"]
    assert states[0]["limit"] == 1
    assert "limit" not in states[1]
    assert states[0]["pool"] == {"#map": [["near.p0", "NEAR"], ["near.p1", "NEAR"], ["far.p0", "FAR"], ["far.p1", "FAR"]]}
    assert states[2]["#meta"] == {"index": 2, "action": "borrow", "arguments": {"r": "r0", "p": "near.p0"}}
    assert states[2]["holds"] == {"#set": [{"#tup": ["r0", "near.p0"]}]}
    assert states[2]["busy"] is True
    assert states[2]["loans"] == {"#map": [["r0", 1], ["r1", 0]]}
    blank, own = {"tag": "None", "value": {"#tup": []}}, {"tag": "Some", "value": "r0"}
    assert states[2]["content"]["#map"][0] == ["near.p0", blank]
    assert states[4]["content"]["#map"][0] == ["near.p0", own]


def test_a_file_has_a_line_for_each_state(tmp_path: Path) -> None:
    trace = lending.trace()
    write_itf(trace, tmp_path / "t.itf.json")
    lines = (tmp_path / "t.itf.json").read_text().splitlines()
    assert sum(line.startswith('{"#meta":{"index"') for line in lines) == len(trace.states)
    assert json.loads("\n".join(lines)) == plain()


def test_big_integers_go_through_bigint() -> None:
    trace = lending.trace()
    layout = trace.instance.rigid_layout
    rigid = list(trace.states[0].rigid)
    rigid[layout.slots["limit", ()]] = 2**60
    grown = Trace(trace.instance, tuple(State(tuple(rigid), s.values) for s in trace.states), trace.steps, trace.property)
    found = itf_object(grown)
    states = found["states"]
    assert isinstance(states, list)
    assert states[0]["limit"] == {"#bigint": str(2**60)}
    assert parse_itf(json.dumps(found).encode(), resolve) == grown


def test_a_trace_that_is_not_a_run_is_refused_at_its_first_bad_step() -> None:
    found = plain()
    del found["states"][4]  # the fill
    with pytest.raises(ReplayError) as caught:
        replay(parse_itf(json.dumps(found).encode(), resolve))
    assert caught.value.step == 4


HOSTILE: list[tuple[str, Change, str]] = [
    ("a newer version", lambda f: f["#meta"].update({"format-version": 2}),
     "x.itf.json: $.#meta.format-version: version 2 is not known; this kvmodel reads version 1"),
    ("no meta", lambda f: f.pop("#meta"), "x.itf.json: $: Object missing required field `#meta`"),
    ("an unknown spec", lambda f: f["#meta"].update(spec="nothing"),
     "x.itf.json: $.#meta.spec: the spec 'nothing' cannot be loaded:\nthere is no spec 'nothing'"),
    ("control characters in the spec's name", lambda f: f["#meta"].update(spec="a\x1b[2Jb"),
     "x.itf.json: $.#meta.spec: 'a\\x1b[2Jb' is not the name of a spec"),
    ("an unknown flag", lambda f: f["#meta"]["flags"].update(zero_on_fre=True),
     "x.itf.json: $.#meta.flags: tests/data/lending.py:Lending:careless has no flag 'zero_on_fre'; did you mean 'zero_on_free'?"),
    ("a flag that is no truth value", lambda f: f["#meta"]["flags"].update(zero_on_free=1),
     "x.itf.json: $.#meta.flags[...]: Expected `bool`, got `int`"),
    ("an unknown property", lambda f: f["#meta"].update(property="isolatedread"),
     "x.itf.json: $.#meta.property: tests/data/lending.py:Lending:careless has no property 'isolatedread'; did you mean 'isolated_read'?"),
    ("an unknown sort", lambda f: f["#meta"]["sizes"].update(Pages=2),
     "x.itf.json: $.#meta.sizes: tests/data/lending.py:Lending:careless has no sort 'Pages'; did you mean 'Page'?"),
    ("an empty sort", lambda f: f["#meta"]["sizes"].update(Request=0),
     "x.itf.json: $.#meta.sizes: size of Request is 0: a sort is never empty, so it must be at least 1"),
    ("a size beyond memory", lambda f: f["#meta"]["sizes"].update(Request=10**12),
     "x.itf.json: $.#meta.sizes: size of Request is 1,000,000,000,000; at most 2,000,000"),
    ("no states", lambda f: f.update(states=[]), "x.itf.json: $.states: there is no state"),
    ("states that are no list", lambda f: f.update(states={}), "x.itf.json: $.states: Expected `array`, got `object`"),
    ("a loop", lambda f: f.update(loop=1), "x.itf.json: $.loop: a trace with a loop is not a finite run"),
    ("a state that is no object", lambda f: f["states"].__setitem__(3, 7), "x.itf.json: $.states[3]: Expected `object`, got `int`"),
    ("a variable that the spec does not have", lambda f: f["vars"].append("phases"),
     "x.itf.json: $.vars: tests/data/lending.py:Lending:careless has no such variable 'phases'; did you mean 'phase'?"),
    ("a variable that is not listed", lambda f: f["vars"].remove("phase"), "x.itf.json: $.vars: the variable 'phase' is missing"),
    ("a variable without a value", lambda f: f["states"][3].pop("phase"), "x.itf.json: $.states[3]: the variable 'phase' is missing"),
    ("no step", lambda f: f["states"][3].pop("#meta"), "x.itf.json: $.states[3].#meta: Expected `object`, got `null`"),
    ("an unknown action", lambda f: f["states"][3]["#meta"].update(action="admitt"),
     "x.itf.json: $.states[3].#meta.action: tests/data/lending.py:Lending:careless has no action 'admitt'; did you mean 'admit'?"),
    ("an action with control characters", lambda f: f["states"][3]["#meta"].update(action="\x1b]0;x\x07"),
     "x.itf.json: $.states[3].#meta.action: tests/data/lending.py:Lending:careless has no action '\\x1b]0;x\\x07'"),
    ("arguments of another action", lambda f: f["states"][3]["#meta"].update(arguments={"p": "near.p0"}),
     "x.itf.json: $.states[3].#meta.arguments: admit takes r"),
    ("an argument that is no element", lambda f: f["states"][3]["#meta"].update(arguments={"r": "r7"}),
     "x.itf.json: $.states[3].#meta.arguments.r: 'r7' is not a Request of this size"),
    ("an argument that is no string", lambda f: f["states"][3]["#meta"].update(arguments={"r": 1}),
     "x.itf.json: $.states[3].#meta.arguments[...]: Expected `str`, got `int`"),
    ("a relation that is no set", lambda f: f["states"][2].update(holds=[]), 'x.itf.json: $.states[2].holds: expected {"#set": [...]}'),
    ("a relation over elements that are not there", lambda f: f["states"][2].update(holds={"#set": [{"#tup": ["r0", "p0"]}]}),
     "x.itf.json: $.states[2].holds.#set[0]: 'p0' is not a Page of this size"),
    ("a tuple of another length", lambda f: f["states"][2].update(holds={"#set": [{"#tup": ["r0"]}]}),
     "x.itf.json: $.states[2].holds.#set[0]: 'holds' has 2 keys, not 1"),
    ("a map with a key twice", lambda f: f["states"][2].update(loans={"#map": [["r0", 1], ["r0", 1]]}),
     "x.itf.json: $.states[2].loans.#map[1]: the key is there twice"),
    ("a map without a key", lambda f: f["states"][2].update(loans={"#map": [["r0", 1]]}),
     "x.itf.json: $.states[2].loans: the map has 1 entries and needs 2: one for every key"),
    ("a map entry that is no pair", lambda f: f["states"][2].update(loans={"#map": [["r0"]]}),
     "x.itf.json: $.states[2].loans.#map[0]: an entry of a map is a list of a key and a value"),
    ("a truth value that is a number", lambda f: f["states"][2].update(busy=1), "x.itf.json: $.states[2].busy: 1 is not true or false"),
    ("a counter that is a truth value", lambda f: f["states"][2].update(loans={"#map": [["r0", True], ["r1", 0]]}),
     "x.itf.json: $.states[2].loans.#map[0][1]: True is not an integer"),
    ("a counter that is a fraction", lambda f: f["states"][2].update(loans={"#map": [["r0", 0.5], ["r1", 0]]}),
     "x.itf.json: $.states[2].loans.#map[0][1]: 0.5 is not an integer"),
    ("a number below zero", lambda f: f["states"][0].update(limit=-1),
     "x.itf.json: $.states[0].limit: -1 is not a size: numbers are not negative"),
    ("a big integer that is none", lambda f: f["states"][0].update(limit={"#bigint": "1e9"}),
     "x.itf.json: $.states[0].limit: '1e9' is not an integer"),
    ("a big integer that is too big", lambda f: f["states"][0].update(limit={"#bigint": "9" * 5000}),
     "x.itf.json: $.states[0].limit: '9999"),
    ("a counter far out of its range", lambda f: f["states"][2].update(loans={"#map": [["r0", {"#bigint": "9" * 30}], ["r1", 0]]}),
     "x.itf.json: $.states[2].loans.#map[0][1]: the counter is far out of its range"),
    ("a none that is no variant", lambda f: f["states"][0]["content"]["#map"].__setitem__(0, ["near.p0", None]),
     'x.itf.json: $.states[0].content.#map[0][1]: expected {"tag": "Some", "value": ...} or {"tag": "None", "value": ...}'),
    ("a page in another pool", lambda f: f["states"][0]["pool"]["#map"].__setitem__(0, ["near.p0", "FAR"]),
     "x.itf.json: $.states[0].pool.#map[0][1]: the sizes put this Page elsewhere"),
    ("a member that the enumeration does not have", lambda f: f["states"][0]["phase"]["#map"].__setitem__(0, ["r0", "GONE\x00"]),
     "x.itf.json: $.states[0].phase.#map[0][1]: 'GONE\\x00' is not a Phase of this size"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), [entry[1:] for entry in HOSTILE], ids=[entry[0] for entry in HOSTILE])
def test_a_file_that_does_not_fit_is_refused_with_its_place(change: Change, message: str) -> None:
    found = refusal(change)
    assert found == message or (message.endswith("9999") and found.startswith(message) and len(found) < 200)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not JSON: Input data was truncated"),
        (json.dumps(plain()).encode()[:-300], "not JSON: Input data was truncated"),
        (b"\xff\xfe{}", "not JSON: JSON is malformed: invalid character (byte 0)"),
        (b"[]", "$: Expected `object`, got `array`"),
        (b"[" * 200_000, "$: Expected `object`, got `array`"),
        (b'{"#meta":' * 200_000, "not a trace: nested too deeply"),
        (b'{"states":[{"x":' + b"[" * 200_000, "not a trace: nested too deeply"),
        (b'{"#meta":{"format-version":1e999}}', "$.#meta.format-version: Number out of range"),
    ],
    ids=["empty", "truncated", "not text", "a list", "deep lists", "deep objects", "deep values", "a huge number"],
)
def test_what_is_not_a_trace_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(TraceFileError) as caught:
        parse_itf(data, resolve, "x.itf.json")
    assert str(caught.value) == f"x.itf.json: {message}"


def test_integers_of_thousands_of_digits_do_no_harm() -> None:
    text = json.dumps(plain()).replace('"limit": 1,', '"limit": ' + "9" * 20_000 + ",")
    with pytest.raises(TraceFileError):
        parse_itf(text.encode(), resolve)


def test_sizes_that_would_fill_memory_are_refused() -> None:
    def grow(file: dict[str, Any]) -> None:
        file["#meta"]["sizes"].update({"Request": 1_000, "Page": 900})
        file["states"].extend(file["states"] * 3)

    assert "at most 20,000,000" in refusal(grow)


def test_files_beyond_the_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_itf(lending.trace(), tmp_path / "t.itf.json")
    monkeypatch.setattr(itf, "LARGEST_FILE", 100)
    with pytest.raises(TraceFileError, match="more than 100 bytes"):
        read_itf(tmp_path / "t.itf.json", resolve)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TraceFileError, match="none.json: the file cannot be read: No such file or directory"):
        read_itf(tmp_path / "none.json", resolve)


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "t.itf.json"
    target.write_text("old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TraceFileError, match="t.itf.json: the trace was not saved: No space left on device"):
        write_itf(lending.trace(), target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TraceFileError, match="the trace was not saved: No such file or directory"):
        write_itf(lending.trace(), tmp_path / "nowhere" / "t.itf.json")


def test_traces_of_every_small_instance_come_back() -> None:
    instance = Instance.make(lending.system("careless"), {"Page.NEAR": 1, "Page.FAR": 0, "Request": 3})
    from kvmodel.readings.explore import explore

    trace = explore(instance)["isolated_read"].trace
    assert trace is not None
    assert parse_itf(json.dumps(itf_object(trace)).encode(), resolve) == trace
