"""Logs of specs that use what the shipped ones do not use together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from kvmodel.engines.log import monitor, plan
from kvmodel.engines.log.check import LogResult, check_log
from kvmodel.engines.log.reader import LogError
from kvmodel.engines.log.redact import Redaction
from kvmodel.language.load import load_spec
from kvmodel.verdict import Verdict

SPECS = Path(__file__).with_name("unusual.py")


def event(action: str, *pages: int, **fields: Any) -> dict[str, Any]:
    return {"event": action, **({"pages": list(pages), "pool": "a"} if pages else {}), **fields}


def checked(name: str, *events: dict[str, Any], **header: Any) -> LogResult:
    lines = [{"kvmodel_log": 1, "pools": {"a": 3, "b": 3}, **header}]
    lines += [{**each, "seq": number} for number, each in enumerate(events, start=1)]
    log = "\n".join(map(json.dumps, [*lines, {"kvmodel_log_end": len(events)}])).encode()
    return check_log(BytesIO(log), lambda _: load_spec(f"{SPECS}:{name}"), Redaction())


def broken(result: LogResult) -> dict[str, int]:
    """The line of each violation."""
    return {story.subject: story.line for story in result.stories}


def verdicts(result: LogResult) -> dict[str, Verdict]:
    return {entry.name: entry.verdict for entry in result.properties}


def test_a_value_that_is_no_constant_is_written_for_each_page() -> None:
    events = [event("take", 0, request="r0"), event("soil", 1), event("sync", 0, 1, request="r0"), event("close", 1, request="r0")]
    assert broken(checked("Toggle", *events)) == {"never": 4, "allowed_step": 5}
    assert broken(checked("Toggle", event("soil", 0), event("take", 1, request="r0"), event("sync", 1, 0, 1, request="r0"))) == {"never": 4}


def test_what_is_counted_from_the_start() -> None:
    assert verdicts(checked("Counts", event("paint", 0)))["few_free"] is Verdict.UNDECIDED
    assert verdicts(checked("Counts", event("paint", 0), pools={"a": 2, "b": 2}))["few_free"] is Verdict.HOLDS


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What can be forgotten is forgotten after every event."""
    monkeypatch.setattr("kvmodel.engines.log.reader.BLOCK", 1)
    monkeypatch.setattr(monitor, "FIRST_COLLECTION", 0)
    plan.plan_for.cache_clear()
    yield
    plan.plan_for.cache_clear()


@pytest.mark.usefixtures("forgetful")
def test_requests_that_have_ended_are_counted() -> None:
    ended = [event("finish", request=f"q{number}") for number in range(4)]
    assert broken(checked("Ended", *ended)) == {"few": 4}
    assert broken(checked("Ended", *ended[:2], event("begin", request="q9"))) == {"allowed_step": 4}
    assert broken(checked("Lit", ended[0], ended[1], event("light", 0))) == {"dark": 4}


@pytest.mark.usefixtures("forgetful")
def test_forgetting_what_is_counted_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "needs_the_ended", lambda *given: False)
    with pytest.raises(AssertionError):
        test_requests_that_have_ended_are_counted()


def test_a_write_to_what_has_no_name_yet_cannot_be_followed() -> None:
    with pytest.raises(LogError, match="sort_out writes 'small' of what has no name yet"):
        checked("Everyone", event("sort_out"), event("big", request="q0", values={"prompt": 9}), values={"limit": 5})


def test_assertions_of_what_nobody_saw() -> None:
    told = checked("Asserting", event("paint", 0), event("look", 1))
    assert verdicts(told)["assert:look:clean"] is Verdict.HOLDS
    unseen = checked("Asserting", event("paint", 0), silent={"look": "not traced"})
    assert verdicts(unseen)["assert:look:clean"] is Verdict.UNDECIDED


def test_a_row_of_another_request() -> None:
    events = [event("take", 0, request="r0"), event("mark", 1, request="r0")]
    assert not broken(checked("Hoist", *events))
    assert broken(checked("Hoist", *events, event("mark", 0, request="r0"))) == {"plain": 4}


def test_a_story_about_a_variable_that_holds_nobody() -> None:
    assert broken(checked("Owned", event("paint", 0), unknown={"free": "not told"})) == {"owned": 2}


def test_one_request_in_two_roles_that_has_ended() -> None:
    result = checked("Twice", event("finish", request="q0"), event("share", request="q0", other="q0"))
    assert verdicts(result) == {"allowed_step": Verdict.HOLDS}


def test_what_an_earlier_page_of_a_refused_event_violates() -> None:
    taken = event("take", 0, request="q0")
    assert broken(checked("Taken", taken, event("take", 0, 0, request="q1"))) == {"exclusive": 3, "allowed_step": 3}
    assert broken(checked("Taken", event("take", 0, 1, 2, 0, request="q0"))) == {"range:uses": 2, "allowed_step": 2}


def test_silent_steps_where_something_is_counted_for_each_page() -> None:
    take, use = event("take", 0, request="r0"), event("use", 0, request="r0")
    explained = checked("Unseen", take, use, take, use, silent={"drop": "not traced", "prepare": "not traced"})
    assert verdicts(explained)["allowed_step"] is Verdict.HOLDS
    assert broken(checked("Unseen", take, use, take, use)) == {"allowed_step": 4}


def test_an_empty_pool_is_named() -> None:
    error = checked("Asserting", event("paint", 0), pools={"a": 0, "b": 3}).error
    assert error is not None
    assert "there is no page 0 in pool a, which has 0" in str(error)


def test_members_in_letters_of_both_kinds() -> None:
    pools = {"gpu": 2, "host": 2}
    assert not broken(checked("Mixed", {**event("paint", 0), "pool": "gpu"}, pools=pools))
    assert broken(checked("Mixed", {**event("paint", 0), "pool": "host"}, pools=pools)) == {"plain": 2}
