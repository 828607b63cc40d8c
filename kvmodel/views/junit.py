"""The result of a check as JUnit XML, which CI servers show: a test case for each property.

Violated is a failure, undecided an error, never a skip. Verdict and coverage stand as properties of each case.
"""

from __future__ import annotations

from xml.etree import ElementTree

from kvmodel.analyses.explain import Explanation
from kvmodel.errors import printable
from kvmodel.verdict import PropertyResult, Result, Verdict
from kvmodel.views.text import trace_text

__all__ = ["junit"]

LONGEST = 500


def junit(result: Result, command: str, explanation: Explanation | None = None) -> str:
    """The text of a JUnit XML file; `command` reproduces the result, `explanation` is that of the trace that is told first."""
    cases = result.properties
    counts = {
        "tests": len(cases),
        "failures": sum(case.verdict is Verdict.VIOLATED for case in cases),
        "errors": sum(case.verdict is Verdict.UNDECIDED for case in cases),
        "skipped": 0,
    }
    totals = {name: str(count) for name, count in counts.items()} | {"time": f"{result.seconds:.3f}"}
    root = ElementTree.Element("testsuites", {"name": "kvmodel", **totals})
    suite = ElementTree.SubElement(root, "testsuite", {"name": _flat(result.spec), **totals})
    told = {
        "method": result.method,
        "verdict": result.verdict.value,
        "coverage": str(result.coverage),
        "flags": " ".join(f"{name}={'on' if on else 'off'}" for name, on in result.coverage.flags or ()),
        "reproduce": command,
        **{name: str(value) for name, value in result.statistics},
    }
    told |= {f"finding: {finding.kind.value}: {finding.subject}": finding.message for finding in result.findings}
    _properties(suite, told)
    for case in cases:
        _case(suite, result, case, explanation if case is result.headline else None)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, result: Result, case: PropertyResult, explanation: Explanation | None) -> None:
    attributes = {"classname": _flat(result.spec), "name": _flat(case.name), "time": "0"}
    element = ElementTree.SubElement(suite, "testcase", attributes)
    _properties(element, {"verdict": case.verdict.value, "coverage": str(case.coverage)})
    if case.verdict is Verdict.VIOLATED:
        message = f"{case.name} is violated" + (" (never reached)" if case.reachable else f" in {case.length} steps")
        failure = ElementTree.SubElement(element, "failure", {"type": "violated", "message": _flat(message)})
        if case.trace is not None:
            failure.text = _text(trace_text(case.trace, explanation))
    elif case.verdict is Verdict.UNDECIDED:
        message = f"{case.name} is undecided" + (f": {case.reason}" if case.reason else "")
        ElementTree.SubElement(element, "error", {"type": "undecided", "message": _flat(message)})
    elif case.trace is not None:
        ElementTree.SubElement(element, "system-out").text = _text(trace_text(case.trace))


def _properties(parent: ElementTree.Element, values: dict[str, str]) -> None:
    found = ElementTree.SubElement(parent, "properties")
    for name, value in values.items():
        ElementTree.SubElement(found, "property", {"name": _flat(name), "value": _flat(value, 10_000)})


def _flat(text: str, limit: int = LONGEST) -> str:
    return " ".join(printable(text, limit).split())


def _text(text: str) -> str:
    """Text of an element: what XML cannot hold is escaped already, as everything that a terminal is shown."""
    return printable(text, 1_000_000)
