"""The result of a check as SARIF 2.1.0, which code scanning services show beside the lines of a spec.

A rule for each property; a result for each one that is violated or undecided, at the line of the property. The steps of its
trace are a code flow through the lines of their actions, and the guards that would have refused it are related locations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import PurePath
from urllib.parse import quote

from kvmodel.analyses.explain import Explanation
from kvmodel.analyses.why import violation
from kvmodel.errors import printable
from kvmodel.language.system import Property, TransitionSystem
from kvmodel.language.types import Span
from kvmodel.traces.trace import Trace
from kvmodel.verdict import PropertyResult, Result, Verdict
from kvmodel.views.table import changes, step_text

__all__ = ["SCHEMA", "sarif"]

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LONGEST = 1_000
LONGEST_NAME = 200
NOWHERE = Span()


def sarif(result: Result, system: TransitionSystem, command: str, explanation: Explanation | None = None) -> str:
    """The text of a SARIF file; `command` reproduces the result, `explanation` is that of the trace that is told first."""
    known = {candidate.name: candidate for candidate in system.properties}
    rules = [known[entry.name] for entry in result.properties if entry.name in known]
    log = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "kvmodel",
                        "semanticVersion": version("kvmodel"),
                        "rules": [_rule(candidate) for candidate in rules],
                    }
                },
                "invocations": [{"commandLine": _line(command, 10_000), "executionSuccessful": True}],
                "columnKind": "unicodeCodePoints",
                "results": [
                    _result(entry, known[entry.name], number, system, explanation if entry is result.headline else None)
                    for number, entry in enumerate(result.properties)
                    if entry.name in known and entry.verdict is not Verdict.HOLDS
                ],
                "properties": {
                    "spec": _line(result.spec),
                    "method": result.method,
                    "verdict": result.verdict.value,
                    "coverage": _line(str(result.coverage)),
                    "flags": {_line(name): on for name, on in result.coverage.flags or ()},
                },
            }
        ],
    }
    return json.dumps(log, indent=2, ensure_ascii=True) + "\n"


def _rule(candidate: Property) -> dict[str, object]:
    doc = candidate.doc.split("\n\n")[0] or f"{candidate.name} has no description."
    return {
        "id": _line(candidate.name, LONGEST_NAME),
        "shortDescription": {"text": _message(doc)},
        "defaultConfiguration": {"level": "error"},
        "properties": {"kind": candidate.kind.value},
    }


def _result(
    entry: PropertyResult, shown: Property, number: int, system: TransitionSystem, explanation: Explanation | None
) -> dict[str, object]:
    violated = entry.verdict is Verdict.VIOLATED
    found: dict[str, object] = {
        "ruleId": _line(entry.name, LONGEST_NAME),
        "ruleIndex": number,
        "kind": "fail" if violated else "open",
        "level": "error" if violated else "none",
        "message": {"text": _message(_told(entry))},
        "locations": [_location(shown.at)],
        "partialFingerprints": {"property/v1": _line(f"{system.name}:{entry.name}")},
        "properties": {"coverage": _line(str(entry.coverage)), "verdict": entry.verdict.value},
    }
    if entry.trace is not None and entry.trace.steps:
        found["codeFlows"] = [{"threadFlows": [{"locations": list(_steps(entry.trace, explanation))}]}]
    if entry.trace is not None:
        related = list(_related(entry.trace, explanation))
        if related:
            found["relatedLocations"] = [location | {"id": identity} for identity, location in enumerate(related, start=1)]
    return found


def _told(entry: PropertyResult) -> str:
    if entry.verdict is Verdict.UNDECIDED:
        return f"{entry.name} is undecided: {entry.reason or entry.coverage}"
    if entry.trace is None:
        return f"{entry.name} is never reached."
    shown = violation(entry.trace)
    arguments = ", ".join(f"{name} = {label}" for name, label in shown.arguments)
    reasons = "; ".join(f"{reason.text} is not so" for reason in shown.reasons[:2])
    return f"{entry.name} is violated in {entry.length} steps{f' for {arguments}' if arguments else ''}{f': {reasons}' if reasons else ''}."


def _steps(trace: Trace, explanation: Explanation | None) -> Iterator[dict[str, object]]:
    instance = trace.instance
    sentences = {} if explanation is None else {cause.step: cause.sentence for cause in explanation.chain}
    for number, choice in enumerate(trace.steps, start=1):
        action = instance.system.action(choice.action)
        told = f"{number}. {step_text(instance, choice)}"
        if number in sentences:
            told += f": {sentences[number]}"
        found: dict[str, object] = {
            "location": _location(action.at, told),
            "executionOrder": number,
            "importance": "essential" if explanation is None or number in explanation.relevant else "unimportant",
        }
        after = dict(_states(changes(instance, trace.states[number - 1], trace.states[number])))
        if after:
            found["state"] = after
        yield found


def _states(lines: tuple[str, ...]) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Each change as the place that changes and a message, as SARIF wants a state."""
    for line in lines:
        places, _, values = line.rpartition(": ")
        yield _line(places or line), {"text": _message(values or line)}


def _related(trace: Trace, explanation: Explanation | None) -> Iterator[dict[str, object]]:
    """The guard of the design that refuses the run, and the guards or conditions of what would have stopped it."""
    if explanation is None:
        return
    if explanation.refused is not None and explanation.refused.where:
        yield _location(_span(explanation.refused.where), f"{explanation.refused.spec}: {explanation.refused.what}")
    for stopper in explanation.stopped_by:
        if stopper.where:
            switch = "on" if stopper.on else "off"
            yield _location(_span(stopper.where), f"with {stopper.flag} {switch}: {stopper.guard_or_change}")
    for cause in explanation.chain:
        if cause.step:
            at = trace.instance.system.action(trace.steps[cause.step - 1].action).at
            yield _location(at, f"step {cause.step}: {cause.sentence}")


def _span(where: str) -> Span:
    """The place that ``FILE:LINE`` names."""
    file, _, line = where.rpartition(":")
    return Span(file, int(line) if line.isdigit() else 0)


def _location(at: Span, told: str = "") -> dict[str, object]:
    """A place in a spec as SARIF has it; a system that was built has none, so its place is a name."""
    found: dict[str, object] = {}
    if at.file:
        region = {"startLine": at.line} | ({"startColumn": at.column} if at.column else {})
        found["physicalLocation"] = {"artifactLocation": {"uri": _uri(at.file)}} | ({"region": region} if at.line else {})
    else:
        found["logicalLocations"] = [{"name": "(built)"}]
    if told:
        found["message"] = {"text": _message(told)}
    return found


def _uri(file: str) -> str:
    """A path as a URI reference: a relative one stays relative, to the root of the repository."""
    path = PurePath(file)
    quoted = quote(path.as_posix(), errors="replace")
    return f"file://{'' if quoted.startswith('/') else '/'}{quoted}" if path.is_absolute() else quoted


def _line(text: str, limit: int = LONGEST) -> str:
    return " ".join(printable(text, limit).split()) or "(nothing)"


def _message(text: str) -> str:
    """Text of a message, in which brackets would make a link and braces a placeholder."""
    return re.sub(r"([{}])", r"\1\1", re.sub(r"([\\\[\]])", r"\\\1", _line(text)))
