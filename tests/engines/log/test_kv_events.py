"""KV events: what they show, what they cannot, in both forms and of both shapes."""

from __future__ import annotations

import json
import struct
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from kvmodel import cli
from kvmodel.engines.log.kv_events import INDEX, REMOVED, KvResult, check_kv_events
from kvmodel.engines.log.redact import Redaction
from kvmodel.language.load import load_spec
from kvmodel.verdict import Verdict


def stored(hashes: list[Any], parent: Any = None, tokens: list[int] | None = None, **more: Any) -> dict[str, Any]:
    tokens = list(range(4 * len(hashes))) if tokens is None else tokens
    return {"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent, "token_ids": tokens, "block_size": 4, **more}


def removed(hashes: list[Any], **more: Any) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": hashes, **more}


CLEARED = {"type": "AllBlocksCleared"}


def as_array(event: dict[str, Any]) -> list[Any]:
    names = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium")
    if event["type"] == "BlockRemoved":
        names = ("block_hashes", "medium")  # type: ignore[assignment]
    return [event["type"], *(event.get(name) for name in names if event["type"] != "AllBlocksCleared")]


def replayed(*batches: list[dict[str, Any]], arrays: bool = False, binary: bool = False, first: int = 0, redact: bool = False) -> KvResult:
    content = b""
    for seq, events in enumerate(batches, start=first):
        batch: Any = {"ts": 1.5, "events": events, "data_parallel_rank": 0}
        if arrays:
            batch = [1.5, [as_array(event) for event in events], 0]
        if binary:
            body = msgspec.msgpack.encode(batch)
            content += struct.pack(">QI", seq, len(body)) + body
        else:
            content += json.dumps({"seq": seq, "batch": batch}).encode() + b"\n"
    return check_kv_events(BytesIO(content), load_spec("cached"), Redaction(redact))


def verdict(result: KvResult, name: str) -> Verdict:
    return next(entry.verdict for entry in result.properties if entry.name == name)


@pytest.mark.parametrize("arrays", [False, True])
@pytest.mark.parametrize("binary", [False, True])
def test_a_consistent_index(arrays: bool, binary: bool) -> None:
    batches = ([stored([1, 2]), stored([3], 2, [9, 9, 9, 9])], [stored([1, 2]), removed([3])], [CLEARED])
    result = replayed(*batches, arrays=arrays, binary=binary)
    assert (result.stored, result.removed, result.cleared, result.indexed, result.batches) == (5, 1, 1, 0, 3)
    assert verdict(result, INDEX) is Verdict.HOLDS
    assert verdict(result, REMOVED) is Verdict.HOLDS
    assert verdict(result, "exclusive_owner") is Verdict.UNDECIDED
    assert result.verdict is Verdict.UNDECIDED  # never more than they show
    assert all("no request" in entry.reason for entry in result.properties if entry.name not in (INDEX, REMOVED))


@pytest.mark.parametrize(
    ("again", "wrong"),
    [
        (stored([1], None, [0, 1, 2, 3]), False),
        (stored([1], None, [0, 1, 2, 4]), True),
        (stored([1], 7, [0, 1, 2, 3]), True),
        (stored([1], None, [0, 1, 2, 3], lora_id=3), True),
        (stored([1], None, [0, 1, 2, 3], extra_keys=[["salt-of-another"]]), True),
        (stored([1], None, [9, 9, 9, 9], medium="CPU"), False),
    ],
)
def test_a_hash_that_stands_for_something_else(again: dict[str, Any], wrong: bool) -> None:
    result = replayed([stored([1], None, [0, 1, 2, 3])], [again])
    assert verdict(result, INDEX) is (Verdict.VIOLATED if wrong else Verdict.HOLDS)
    assert [found.place for found in result.findings] == [2] * wrong


def test_after_an_eviction_a_hash_may_not_stand_for_something_else_unnoticed() -> None:
    result = replayed([stored([1], None, [0, 1, 2, 3]), removed([1]), stored([1], None, [0, 1, 2, 4])])
    assert verdict(result, INDEX) is Verdict.HOLDS  # the first entry is gone: hashes are not remembered for ever


def test_a_block_that_was_never_stored() -> None:
    assert verdict(replayed([removed([1])]), REMOVED) is Verdict.VIOLATED
    assert verdict(replayed([removed([1])], first=7), REMOVED) is Verdict.UNDECIDED  # it may have been stored before
    assert verdict(replayed([removed([1]), CLEARED, removed([1])], first=7), REMOVED) is Verdict.VIOLATED
    assert verdict(replayed([stored([1]), stored([1]), removed([1]), removed([1])]), REMOVED) is Verdict.HOLDS
    assert verdict(replayed([stored([1]), removed([1]), removed([1])]), REMOVED) is Verdict.VIOLATED


def test_a_gap_makes_it_undecided() -> None:
    lines = [json.dumps({"seq": seq, "batch": [1.0, [as_array(event)], 0]}) for seq, event in ((0, stored([1])), (2, removed([5])))]
    result = check_kv_events(BytesIO("\n".join(lines).encode()), load_spec("cached"), Redaction())
    assert verdict(result, INDEX) is Verdict.UNDECIDED
    assert verdict(result, REMOVED) is Verdict.UNDECIDED
    assert any("1 gaps" in remark for remark in result.remarks)


def test_nothing_is_not_a_pass() -> None:
    assert {entry.verdict for entry in replayed([]).properties} == {Verdict.UNDECIDED}


@pytest.mark.parametrize(
    "content",
    [b"", b"[1.0]\n", b"{}\n", b"[1.0, 3]\n", b'[1.0, [["BlockStored", 3]]]\n', b'[1.0, [["Nothing"]]]\n', b"[" * 100_000,
     b"\x00\x01", b"\xff" * 40, b'[1.0, [["BlockStored", [1], null, [1, 2], 0]]]\n', b'[1.0, [["BlockStored", [[1]], null, [1], 1]]]\n',
     b'{"seq":"x","batch":[]}\n'],
)  # fmt: skip
def test_what_is_no_dump(content: bytes) -> None:
    result = check_kv_events(BytesIO(content), load_spec("cached"), Redaction())
    assert result.error is not None
    assert result.verdict is Verdict.UNDECIDED


def test_random_damage() -> None:
    random = Random(3)
    body = msgspec.msgpack.encode([1.5, [as_array(stored([1, 2])), as_array(removed([2]))], 0])
    good = (struct.pack(">QI", 0, len(body)) + body) * 1
    lines = json.dumps([1.5, [as_array(stored([1, 2])), as_array(removed([2]))], 0]).encode()
    system = load_spec("cached")
    for _ in range(2_000):
        content = bytearray(random.choice([good, lines]))
        for _ in range(random.randint(1, 3)):
            content[random.randrange(len(content))] = random.randrange(256)
        assert check_kv_events(BytesIO(bytes(content)), system, Redaction()).verdict is not Verdict.HOLDS


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "events.jsonl"
    events = [stored(["aa"], None, [1, 2, 3, 4], extra_keys=[["secret-salt"]]), stored(["aa"], None, [5, 6, 7, 8])]
    path.write_text(json.dumps([1.5, events, 0]))
    assert cli.run(["trace", "check", str(path), "--format", "vllm-kv-events"]) == 1
    out = capsys.readouterr().out
    assert "batch 1: block aa was stored for other tokens" in out
    assert "secret-salt" not in out
    assert cli.run(["trace", "check", str(path), "--format", "sglang-kv-events", "--redact", "--json"]) == 1
    content = json.loads(capsys.readouterr().out)
    assert content["findings"][0]["batch"] == 1
    assert "block aa" not in content["findings"][0]["headline"]
