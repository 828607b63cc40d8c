"""What a log does not tell: nothing is called violated that might not be, and nothing is said to hold that might not."""

from __future__ import annotations

import json
from io import BytesIO
from random import Random

import msgspec
import pytest

from kvmodel.engines.log.check import LogResult, check_log
from kvmodel.engines.log.redact import Redaction
from kvmodel.verdict import Verdict
from tests.engines.log.runs import FAMILIES, Family, Outcome, mutated, plain, random_log, system_of

CASES = (
    ("handoff:sglang-0.5.16", ("content",), ()),
    ("handoff:sglang-0.5.21", ("writing", "client"), ()),
    ("handoff:sglang-0.5.16", (), ("reject", "land", "abort")),
    ("cached:abort-frees-target", ("references", "data"), ()),
    ("cached:double-free", (), ("compute",)),
    ("pages:one-pool-without-quarantine", (), ("land", "end_read")),
)  # fmt: skip


def less_told(family: Family, lines: list[bytes], unknown: tuple[str, ...], silent: tuple[str, ...]) -> tuple[bytes, dict[int, int]]:
    """The log without what is unknown and what happens unseen, and its lines by those of the whole log."""
    header = {**family.header, "unknown": dict.fromkeys(unknown, "not told"), "silent": dict.fromkeys(silent, "not seen")}
    kept, places = [json.dumps(header).encode()], {}
    brought: dict[str, dict[str, object]] = {}
    for number, line in enumerate(lines[1:], start=2):
        event = json.loads(line)
        if "kvmodel_log_end" in event:
            continue
        values = {name: value for name, value in event.pop("values", {}).items() if name not in unknown}
        if event["event"] in silent:
            brought.setdefault(event.get("request", ""), {}).update(values)
            continue
        values = {**brought.pop(event.get("request", ""), {}), **values}
        places[number] = len(kept) + 1
        kept.append(json.dumps({**event, "seq": len(kept), **({"values": values} if values else {})}).encode())
    return b"\n".join(kept) + b"\n", places


def checked(family: Family, log: bytes) -> LogResult:
    return check_log(BytesIO(log), lambda header: system_of(family.spec), Redaction())


def sound(result: LogResult, truth: Outcome, places: dict[int, int]) -> None:
    """What is said of the log with less in it is true of the whole one."""
    for entry in result.properties:
        if entry.name == "allowed_step":
            # What is not a step of the whole run may be one of another run with the same events.
            assert entry.verdict is not Verdict.VIOLATED or truth.refused
            if entry.verdict is Verdict.VIOLATED:
                (story,) = [story for story in result.stories if story.subject == entry.name]
                assert story.line >= places.get(truth.refused, 0)
        elif entry.verdict is Verdict.VIOLATED:
            assert entry.name in truth.broken or truth.refused, entry.name
        elif entry.verdict is Verdict.HOLDS and not truth.refused:
            assert entry.name not in truth.broken, entry.name


@pytest.mark.parametrize(("spec", "unknown", "silent"), CASES)
def test_nothing_wrong_is_said(spec: str, unknown: tuple[str, ...], silent: tuple[str, ...]) -> None:
    family = FAMILIES[spec]
    random = Random(5)
    decided = 0
    for seed in range(3):
        lines = random_log(family, seed, 60)
        for variant in (lines, mutated(random, lines)):
            truth = plain(family, variant)
            if truth.error:
                continue
            log, places = less_told(family, variant, unknown, silent)
            result = checked(family, log)
            if result.error is not None:
                continue
            if variant is lines:
                sound(result, truth, places)
                decided += sum(entry.verdict is not Verdict.UNDECIDED for entry in result.properties)
            elif not silent:
                sound(result, truth, places)
    assert decided


def test_what_rests_on_the_unknown_is_named() -> None:
    family = FAMILIES["handoff"]
    log, _ = less_told(family, random_log(family, 1, 60), ("content",), ())
    result = checked(family, log)
    reasons = {entry.name: entry.reason for entry in result.properties}
    assert reasons["fresh_read"] or next(e for e in result.properties if e.name == "fresh_read").verdict is Verdict.HOLDS
    assert "'content' is not known: not told" in result.remarks
    assert msgspec.json.decode(log.splitlines()[0])["unknown"] == {"content": "not told"}
