"""``kvmodel trace check``: exit codes, JSON, what people read, and what is kept when a line cannot be read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvmodel import cli
from kvmodel.engines.log.schema import Header
from kvmodel.engines.log.writer import LogWriter
from tests.engines.log.logs import HEADER, incident, late_write, served, written

Saved = Callable[[bytes], str]


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    def save(content: bytes) -> str:
        path = tmp_path / "events.jsonl"
        path.write_bytes(content)
        return str(path)

    return save


def found(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int) -> dict[str, Any]:
    assert cli.run(["trace", "check", *arguments, "--json"]) == code
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return content


def verdict(content: dict[str, Any], name: str) -> str:
    result: str = next(entry["verdict"] for entry in content["properties"] if entry["name"] == name)
    return result


def test_a_served_request(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    content = found([saved(written(lambda log: served(log, "r0", [1, 2], [3, 4]))), "--spec", "handoff"], capsys, 0)
    assert (content["verdict"], content["events"], content["requests"], content["pages"]["named"]) == ("holds", 12, 1, 4)
    assert content["coverage"]["word"] == "sampled"
    assert content["actions"]["allocate"] == 2
    assert "reject" in content["never_seen"]
    assert not content["findings"]
    assert {entry["verdict"] for entry in content["properties"]} == {"holds"}


def test_the_incident_is_no_run_of_the_design(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(written(incident))
    content = found([path, "--spec", "handoff"], capsys, 1)
    (finding,) = content["findings"]
    assert (finding["subject"], finding["line"], finding["seq"]) == ("allowed_step", 16, 15)
    assert finding["headline"] == "line 16: prefill_door(r1); but seen_as[r1] is STUB since line 15"
    assert "specs/handoff.py:" in finding["where"]
    assert "not rejected" in finding["what"]
    assert verdict(content, "isolated_read") == "undecided"  # nothing after line 16 was looked at
    assert content["events"] == 14


def test_the_incident_is_a_run_of_its_variant(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(written(incident))
    content = found([path, "--spec", "handoff:sglang-0.5.16"], capsys, 1)
    assert verdict(content, "allowed_step") == "holds"
    first = content["findings"][0]
    assert (first["subject"], first["line"]) == ("isolated_read", 25)
    assert {"fact": "r0's data is in decode.p4", "since_line": 9, "event": "land(r0, source=1 2, target=3 4)"} in first["facts"]
    ((page, history),) = [(entry["page"], entry["history"]) for entry in first["pages"]]
    assert page == "decode.p4"
    assert [entry["line"] for entry in history] == [5, 8, 9, 12, 13, 18, 25]
    assert history[4]["change"] == "free, no longer held by r0, no longer read by r0"
    assert verdict(content, "honest_status") == "violated"


def test_people_are_told_who_wrote_since_when(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(written(late_write))
    assert cli.run(["trace", "check", path, "--spec", "handoff:sglang-0.5.16"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "line 11: allocate(r2, 3) on decode, so that r2 holds decode.p3" in out
    assert "but a write for r1 to decode.p3 is in flight since line 8" in out
    assert "decode.p3, its last 3 changes line 5 allocate(r1, 3) on decode not free, held by r1" in out


def test_expected_verdicts(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(written(incident))
    assert cli.run(["trace", "check", path, "--spec", "handoff", "--expect", "violated"]) == 0
    assert cli.run(["trace", "check", path, "--spec", "handoff", "--expect", "holds"]) == 1
    capsys.readouterr()


def test_the_header_names_the_spec(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    header = msgspec.structs.replace(HEADER, spec="handoff:sglang-0.5.16")
    path = saved(written(incident, header))
    assert found([path], capsys, 1)["spec"] == "handoff:sglang-0.5.16"
    path = saved(written(incident))
    assert cli.run(["trace", "check", path]) == 2
    assert "--spec" in capsys.readouterr().err


def test_a_log_does_not_choose_files(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    header = msgspec.structs.replace(HEADER, spec="/etc/elsewhere.py:Mine")
    assert cli.run(["trace", "check", saved(written(incident, header))]) == 2
    assert "the header names a file" in capsys.readouterr().err


def test_nothing_happened_is_undecided(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    content = found([saved(written(lambda log: None)), "--spec", "handoff"], capsys, 3)
    assert content["verdict"] == "undecided"
    assert {entry["verdict"] for entry in content["properties"]} == {"undecided"}
    assert cli.run(["trace", "check", saved(b""), "--spec", "handoff"]) == 2
    assert "the log is empty" in capsys.readouterr().err


LINES = written(lambda log: served(log, "r0", [1, 2], [3, 4])).splitlines(keepends=True)


@pytest.mark.parametrize(
    ("lines", "line", "words", "events"),
    [
        ([*LINES[:5], *LINES[6:]], 6, "event 5 is missing", 4),
        ([*LINES[:5], *LINES[8:]], 6, "events 5 to 7 are missing", 4),
        ([*LINES[:5], LINES[4], *LINES[5:]], 6, "event 4 is there twice", 4),
        ([*LINES[:5], LINES[2], *LINES[5:]], 6, "event 2 comes after event 4: the lines are not in their order", 4),
        ([*LINES[:5], LINES[5][:20]], 6, "not an event of this spec", 4),
        ([*LINES[:5], b"\n", *LINES[5:]], 6, "the line is empty", 4),
        ([*LINES, LINES[-2]], 15, "after the end line", 12),
        ([*LINES[:-2], LINES[-1]], 13, "the end line says that there are 12 events, and there are 11", 11),
        ([*LINES[:5], LINES[5].replace(b"forward", b"forwards"), *LINES[6:]], 6, "Invalid value 'forwards'", 4),
        ([*LINES[:5], LINES[5].replace(b'"first":1', b'"first":1,"pages":[1]'), *LINES[6:]], 6, "pages are named in two ways", 4),
        ([*LINES[:5], LINES[5].replace(b'"first":1', b'"first":64'), *LINES[6:]], 6, "there is no page 64 in pool prefill", 4),
        ([*LINES[:5], LINES[5].replace(b'"first":1', b'"first":-1'), *LINES[6:]], 6, "there is no page -1", 4),
        ([*LINES[:3], LINES[3].replace(b'"node":"prefill"', b'"node":"nowhere"'), *LINES[4:]], 4, "of which pool", 2),
        ([LINES[0], LINES[1].replace(b',"values":{"prompt":100}', b""), *LINES[2:]], 2, "brings no value for 'prompt'", 0),
        ([*LINES[:2], LINES[2].replace(b'"request"', b'"values":{"prompt":99},"request"'), *LINES[3:]], 3, "'prompt' of the request", 1),
        ([*LINES[:2], LINES[2].replace(b'"event"', b'"node":"decode","event"'), *LINES[3:]], 3, "Invalid enum value 'decode'", 1),
        ([*LINES[:2], b"[" * 100_000 + b"\n"], 3, "not an event", 1),
        ([*LINES[:2], b'{"event":"prefill_door","seq":2,"request":"r0","ts":' + b"9" * 5000 + b"}\n", *LINES[3:]], 3, "not an event", 1),
        ([*LINES[:2], LINES[2].replace(b"r0", b"\xff\xfe"), *LINES[3:]], 3, "Invalid UTF-8", 1),
        ([*LINES[:2], LINES[2].replace(b'"ts":0.0', b'"ts":NaN'), *LINES[3:]], 3, "malformed", 1),
        ([*LINES[:2], b"x" * 2_000_000], 3, "the line is too long", 1),
    ],
)
def test_bad_lines(lines: list[bytes], line: int, words: str, events: int, saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    content = found([saved(b"".join(lines)), "--spec", "handoff"], capsys, 2)
    assert (content["error"]["line"], content["events"]) == (line, events)
    assert words in content["error"]["message"]
    assert content["verdict"] == "undecided"


def test_what_was_violated_before_a_bad_line_stays_so(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    lines = written(incident).splitlines(keepends=True)
    content = found([saved(b"".join(lines[:-1]) + b"{"), "--spec", "handoff:sglang-0.5.16"], capsys, 2)
    assert verdict(content, "isolated_read") == "violated"
    assert verdict(content, "no_internal_error") == "undecided"


def test_hostile_text_is_escaped(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    name = "\x1b[2J\u202e</script>`$(x)`"
    def write(log: LogWriter) -> None:
        served(log, name, [1], [2])
        log.event("commit", request=name)

    path = saved(written(write))
    assert cli.run(["trace", "check", path, "--spec", "handoff"]) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "\\x1b[2J\\u202e</script>" in out


def test_redaction(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(written(late_write).replace(b'"r1"', b'"tenant-secret"'))
    arguments = [path, "--spec", "handoff:sglang-0.5.16", "--redact"]
    outputs = []
    for key in ((), ("--redact-key", "k"), ("--redact-key", "k"), ("--redact-key", "other")):
        assert cli.run(["trace", "check", *arguments, "--json", *key]) == 1
        outputs.append(capsys.readouterr().out)
        assert "tenant-secret" not in outputs[-1]
    assert outputs[1] == outputs[2]
    assert len({*outputs}) == 3
    broken = saved(written(late_write).replace(b'"event":"abort"', b'"event":"tenant-secret"'))
    assert cli.run(["trace", "check", broken, "--spec", "handoff", "--redact"]) == 2
    assert "tenant-secret" not in capsys.readouterr().out
    assert cli.run(["trace", "check", path, "--spec", "handoff", "--redact-key", "k"]) == 2
    capsys.readouterr()


def test_what_is_not_known_is_undecided(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    values = {"context": 2000, "decode_limit": 2000}
    header = msgspec.structs.replace(HEADER, values=values)
    path = saved(written(incident, header))
    assert cli.run(["trace", "check", path, "--spec", "handoff"]) == 2
    assert "no value for 'prefill_limit', and does not declare it unknown" in capsys.readouterr().err
    header = msgspec.structs.replace(header, unknown={"prefill_limit": "not in this log"})
    content = found([saved(written(lambda log: served(log, "r0", [1, 2], [3, 4]), header)), "--spec", "handoff"], capsys, 3)
    assert verdict(content, "allowed_step") == "undecided"
    reason = next(entry["reason"] for entry in content["properties"] if entry["name"] == "allowed_step")
    assert "prefill_door: fits prefill's pool" in reason
    assert verdict(content, "exclusive_owner") == "holds"
    assert "'prefill_limit' is not known: not in this log" in content["remarks"]
    # What is violated whatever the limit is, is violated.
    content = found([saved(written(incident, header)), "--spec", "handoff"], capsys, 1)
    assert content["findings"][0]["line"] == 16


def test_what_happens_unseen(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    def without_land(log: LogWriter) -> None:
        lines = written(lambda inner: served(inner, "r0", [1, 2], [3, 4])).splitlines()[1:-1]
        for event in map(json.loads, lines):
            if event["event"] != "land":
                fields = {name: value for name, value in event.items() if name not in ("event", "seq", "ts")}
                log.event(event["event"], **fields)

    assert found([saved(written(without_land)), "--spec", "handoff"], capsys, 1)["findings"][0]["line"] == 9
    header = msgspec.structs.replace(HEADER, silent={"land": "remote writes land unseen"})
    content = found([saved(written(without_land, header)), "--spec", "handoff"], capsys, 3)
    assert verdict(content, "exclusive_owner") == "holds"
    assert verdict(content, "fresh_read") == "undecided"
    assert verdict(content, "allowed_step") == "holds"
    assert content["properties"][0]["reason"] == "with 2 unseen steps put in"
    # Without a declaration of what is lacking, nothing is put in.
    lines = written(without_land, header).splitlines(keepends=True)
    lacking = [line for line in lines[:-1] if b'"send"' not in line]
    for number, line in enumerate(lacking[7:], start=7):
        lacking[number] = line.replace(b'"seq":%d,' % (number + 1), b'"seq":%d,' % number)
    content = found([saved(b"".join(lacking)), "--spec", "handoff"], capsys, 1)
    assert content["findings"][0]["line"] == 8
    assert "land is taken to happen unseen: remote writes land unseen" in content["remarks"]


def test_a_pool_in_service(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    """What is in the pages at the beginning is not known, until they are written."""
    header = msgspec.structs.replace(HEADER, starts="unknown")
    content = found([saved(written(lambda log: served(log, "r0", [1, 2], [3, 4]), header)), "--spec", "handoff"], capsys, 0)
    assert content["verdict"] == "holds"
    assert "what was in the pages at the first event is not known" in content["remarks"]
    # r1 reads a page that nobody wrote: it may be blank or have somebody's data, and it is stale in any case.
    lines = [json.loads(line) for line in written(incident).splitlines()]
    rest = [{**event, "seq": number} for number, event in enumerate((line for line in lines if line.get("request") == "r1"), start=1)]
    log = b"\n".join([msgspec.json.encode(header), *(json.dumps(event).encode() for event in rest)])
    content = found([saved(log), "--spec", "handoff:sglang-0.5.16"], capsys, 1)
    assert verdict(content, "isolated_read") == "undecided"
    assert verdict(content, "fresh_read") == "violated"
    fact = {"fact": "an earlier request's data is in decode.p4", "since_line": None, "event": None}
    assert fact in next(finding for finding in content["findings"] if finding["subject"] == "fresh_read")["facts"]
    # Of data in pages that the requests of the log left there, more is known.
    content = found([saved(written(incident, header)), "--spec", "handoff:sglang-0.5.16"], capsys, 1)
    assert verdict(content, "isolated_read") == "violated"


def test_declared_loss(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    header = msgspec.structs.replace(HEADER, loss="the queue was full")
    lines = written(lambda log: served(log, "r0", [1, 2], [3, 4]), header).splitlines(keepends=True)
    content = found([saved(b"".join([*lines[:5], *lines[6:]])), "--spec", "handoff"], capsys, 3)
    assert content["events"] == 4
    assert "event 5 is missing before line 6, as the header says they may be: the queue was full" in content["properties"][0]["reason"]


def test_a_recorder_that_stopped(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    lines = written(lambda log: served(log, "r0", [1, 2], [3, 4])).splitlines(keepends=True)
    end = b'{"kvmodel_log_end":12,"lost":3,"reason":"No space left on device"}\n'
    content = found([saved(b"".join([*lines[:-1], end])), "--spec", "handoff"], capsys, 3)
    assert verdict(content, "allowed_step") == "undecided"
    assert "the recorder stopped and lost 3 events: No space left on device" in content["remarks"]


def test_a_recorder_that_gave_up_without_losing_a_line(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    lines = written(lambda log: served(log, "r0", [1, 2], [3, 4])).splitlines(keepends=True)
    end = {"kvmodel_log_end": len(lines) - 2, "lost": 0, "reason": "a hook has no target"}
    content = found([saved(b"".join([*lines[:-1], json.dumps(end).encode() + b"\n"])), "--spec", "handoff"], capsys, 3)
    assert "a hook has no target" in next(entry["reason"] for entry in content["properties"] if entry["name"] == "isolated_read")


def test_an_id_that_is_used_again(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    def write(log: LogWriter) -> None:
        for _ in range(3):
            served(log, "r0", [1, 2], [3, 4])

    path = saved(written(write))
    content = found([path, "--spec", "handoff"], capsys, 0)
    assert content["requests"] == 3
    assert "2 ids were used again for another request after theirs had ended" in content["remarks"]


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (Header(1, {"prefil": 64}, values=HEADER.values), "has no pool 'prefil'; did you mean 'prefill'?"),
        (Header(1, {}, values=HEADER.values), "no page"),
        (msgspec.structs.replace(HEADER, silent={"lnad": ""}), "no action 'lnad'; did you mean 'land'?"),
        (msgspec.structs.replace(HEADER, unknown={"promt": ""}), "no variable 'promt'; did you mean 'prompt'?"),
        (msgspec.structs.replace(HEADER, values={**HEADER.values, "contxt": 3}), "no value 'contxt'"),
        (msgspec.structs.replace(HEADER, values={**HEADER.values, "context": "long"}), "is not a number, as 'context' needs"),
        (msgspec.structs.replace(HEADER, flags={"quarantin": True}), "no flag 'quarantin'"),
        (msgspec.structs.replace(HEADER, flags={"prefill_pool_covers_context": True}), "'prefill_sizing' is false"),
        (msgspec.structs.replace(HEADER, pools={"prefill": 10**9, "decode": 1}), "at most 2,000,000"),
    ],
)
def test_headers_that_do_not_fit(header: Header, words: str, saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["trace", "check", saved(written(lambda log: None, header)), "--spec", "handoff"]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.startswith("error: line 1: ")


def test_files_that_are_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.run(["trace", "check", str(tmp_path / "none"), "--spec", "handoff"]) == 2
    assert cli.run(["trace", "check", str(tmp_path), "--spec", "handoff"]) == 2
    capsys.readouterr()


def test_what_says_nothing_of_a_log_is_named(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    def arrives(log: LogWriter) -> None:
        log.event("decode_door", request="r0", values={"prompt": 100})
        log.event("allocate", node="decode", request="r0", pages=[3])

    content = found([saved(written(arrives)), "--spec", "handoff"], capsys, 0)
    reasons = {entry["name"]: entry["reason"] for entry in content["properties"]}
    said = {name for name, reason in reasons.items() if reason == "says nothing of this log: its left side was never seen true"}
    assert said == {"isolated_read", "fresh_read", "isolated_write", "no_use_after_free", "ends_with_the_answer"}
    served_whole = found([saved(written(lambda log: served(log, "r0", [1, 2], [3, 4]))), "--spec", "handoff"], capsys, 0)
    assert not any(entry.get("reason") for entry in served_whole["properties"])
