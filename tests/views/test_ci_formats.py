"""JUnit XML and SARIF, structurally. tests/browser holds SARIF to the schema of the standard."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from junitparser import Error, Failure, JUnitXml

from kvmodel.errors import UsageError, printable
from kvmodel.language.instance import Instance
from kvmodel.verdict import Coverage, Finding, FindingKind, PropertyResult, Result, Verdict
from kvmodel.views.formats import RESULT_FORMATS, result_as, result_of, trace_as
from kvmodel.views.sarif import _uri
from tests import lending
from tests.hostile import NAMES, trace_of
from tests.violations import SHOWN, shortest, with_bystander

COVERAGE = Coverage((("Page", 2), ("Request", 2)), 5)


def undecided() -> Result:
    """A result with a property of each verdict."""
    entries = (
        lending.result("careless")["isolated_read"],
        PropertyResult("served", Verdict.VIOLATED, COVERAGE, None, "", True),
        PropertyResult("no_deadlock", Verdict.UNDECIDED, COVERAGE, None, "timeout at depth 5"),
        PropertyResult("range:loans", Verdict.HOLDS, COVERAGE),
    )
    findings = (Finding(FindingKind.ACTION_NEVER_FIRED, "borrow", "a.py:1", "It never happened."),)
    return Result("lending", "explore", Verdict.VIOLATED, COVERAGE, entries, findings, (("states", 7),), 1.25)


def written(form: str) -> str:
    return result_as(form, undecided(), Instance.make(lending.system("careless")), "kvmodel check lending")


# -- JUnit


def test_a_test_case_for_each_property() -> None:
    root = ElementTree.fromstring(written("junit"))
    (suite,) = root
    assert {name: suite.get(name) for name in ("name", "tests", "failures", "errors", "skipped", "time")} == {
        "name": "lending", "tests": "4", "failures": "2", "errors": "1", "skipped": "0", "time": "1.250",
    }  # fmt: skip
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert [child.tag for child in cases["isolated_read"]] == ["properties", "failure"]
    assert [child.tag for child in cases["no_deadlock"]] == ["properties", "error"]
    assert [child.tag for child in cases["range:loans"]] == ["properties"]
    failure = cases["isolated_read"].find("failure")
    assert failure is not None
    assert failure.get("message") == "isolated_read is violated in 6 steps"
    assert "what led to it" in str(failure.text)
    assert "(never reached)" in str(cases["served"].find("failure").get("message"))  # type: ignore[union-attr]
    assert "timeout at depth 5" in str(cases["no_deadlock"].find("error").get("message"))  # type: ignore[union-attr]
    properties = {entry.get("name"): entry.get("value") for entry in cases["no_deadlock"].iter("property")}
    assert properties == {"verdict": "undecided", "coverage": "this depth (Page=2 Request=2, up to 5 steps)"}
    told = {entry.get("name"): entry.get("value") for entry in suite.findall("properties/property")}
    assert told["reproduce"] == "kvmodel check lending"
    assert told["states"] == "7"
    assert told["finding: action never fired: borrow"] == "It never happened."


def test_other_tools_read_the_file() -> None:
    (suite,) = JUnitXml.fromstring(written("junit").encode())
    assert (suite.name, suite.tests, suite.failures, suite.errors) == ("lending", 4, 2, 1)
    assert [(case.name, [type(result) for result in case.result]) for case in suite] == [
        ("isolated_read", [Failure]), ("served", [Failure]), ("no_deadlock", [Error]), ("range:loans", []),
    ]  # fmt: skip


def test_a_witness_passes_and_is_shown() -> None:
    root = ElementTree.fromstring(trace_as("junit", lending.trace("", "served")))
    (case,) = root.iter("testcase")
    assert [child.tag for child in case] == ["properties", "system-out"]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:20])
def test_names_stay_text_in_junit(name: str) -> None:
    text = trace_as("junit", trace_of(name))
    root = ElementTree.fromstring(text.encode())
    assert {element.tag for element in root.iter()} <= {"testsuites", "testsuite", "properties", "property", "testcase", "failure"}
    (case,) = root.iter("testcase")
    assert case.get("name") == " ".join(printable(name + "~", 500).split())
    assert all(c.isprintable() or c == "\n" for c in text)


# -- SARIF


def log(text: str) -> Any:
    found = json.loads(text)
    assert (found["version"], len(found["runs"])) == ("2.1.0", 1)
    return found["runs"][0]


def messages(value: object) -> list[str]:
    """Every message of a log."""
    if isinstance(value, dict):
        own = [value["text"]] if isinstance(value.get("text"), str) else []
        return own + [text for inner in value.values() for text in messages(inner)]
    return [text for inner in value for text in messages(inner)] if isinstance(value, list) else []


def test_a_rule_for_each_property_and_a_result_for_each_that_does_not_hold() -> None:
    run = log(written("sarif"))
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["isolated_read", "served", "no_deadlock", "range:loans"]
    assert [(result["ruleId"], result["kind"], result["level"]) for result in run["results"]] == [
        ("isolated_read", "fail", "error"), ("served", "fail", "error"), ("no_deadlock", "open", "none"),
    ]  # fmt: skip
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in run["results"])
    assert "timeout at depth 5" in run["results"][2]["message"]["text"]
    assert run["properties"]["verdict"] == "violated"


@pytest.mark.parametrize(("spec", "name", "steps"), SHOWN)
def test_places_are_lines_of_the_spec(spec: str, name: str, steps: int) -> None:
    (result,) = log(trace_as("sarif", shortest(spec, name)))["results"]

    def line(location: Any) -> str:
        place = location["physicalLocation"]
        lines = (lending.ROOT / str(place["artifactLocation"]["uri"])).read_text().splitlines()
        return lines[int(place["region"]["startLine"]) - 1]

    assert line(result["locations"][0]).strip().startswith("@invariant") or f"def {name}" in line(result["locations"][0])
    flow = result["codeFlows"][0]["threadFlows"][0]["locations"]
    assert [location["executionOrder"] for location in flow] == list(range(1, steps + 1))
    for location in flow:
        action = re.match(r"\d+\. (\w+)", location["location"]["message"]["text"])
        assert action is not None
        assert f"def {action.group(1)}(" in line(location["location"])
    assert [location["id"] for location in result["relatedLocations"]] == list(range(1, len(result["relatedLocations"]) + 1))


def test_the_guards_that_refuse_are_related() -> None:
    (result,) = log(trace_as("sarif", shortest()))["results"]
    told = [location["message"]["text"] for location in result["relatedLocations"]]
    assert told[0] == "handoff: prefill_door(r=r1) is not enabled: its guard 'not rejected' is false"
    assert any(text.startswith("with compares_lengths on: commit(r=r1) is not enabled") for text in told)


def test_steps_that_do_not_matter_are_unimportant() -> None:
    trace, added = with_bystander(shortest(), 0)
    (result,) = log(trace_as("sarif", trace))["results"]
    flow = result["codeFlows"][0]["threadFlows"][0]["locations"]
    assert {location["executionOrder"] for location in flow if location["importance"] == "unimportant"} == added


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:20])
def test_names_stay_text_in_sarif(name: str) -> None:
    text = trace_as("sarif", trace_of(name))
    assert text.isascii()
    run = log(text)
    for message in messages(run):
        assert message
        bare = re.sub(r"\\[\\\[\]]|\{\{|\}\}", "", message)
        assert not re.search(r"[\[\]{}\\]", bare), message  # neither a link nor a placeholder
    (result,) = run["results"]
    assert all(c.isprintable() for message in messages(run) for c in message)
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert re.fullmatch(r"[A-Za-z0-9._~/%-]+", uri)
    assert unquote(uri).startswith("specs/")


def test_a_bracket_that_is_left_as_it_is_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvmodel.views.sarif._message", lambda text: text)
    with pytest.raises(AssertionError):
        test_names_stay_text_in_sarif(next(name for name in NAMES if name.startswith("[click]")))


def test_places_of_files_are_uris() -> None:
    assert [_uri(file) for file in ("specs/a b.py", "/tmp/x#y.py")] == ["specs/a%20b.py", "file:///tmp/x%23y.py"]


# -- both


def test_a_trace_alone_is_a_result() -> None:
    found = result_of(shortest())
    assert (found.verdict, found.spec, found.trace) == (Verdict.VIOLATED, "handoff:buggy", shortest())
    assert found.coverage.flags is not None
    assert ("compares_lengths", False) in found.coverage.flags


def test_a_trace_of_no_property_has_no_verdict() -> None:
    trace = replace(shortest(), property="")
    for form in ("junit", "sarif"):
        with pytest.raises(UsageError, match="no verdict"):
            trace_as(form, trace)
    assert trace_as("markdown", trace).startswith("### A run of `handoff:buggy` of 13 steps")


def test_an_unknown_format_gets_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'sarif'"):
        trace_as("sarf", shortest())
    assert RESULT_FORMATS == ("markdown", "junit", "sarif")
