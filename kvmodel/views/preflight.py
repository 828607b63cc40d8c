"""What people read of a preflight: the verdict, a table of the nodes, what happens otherwise, and what to set."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from kvmodel.engines.preflight import Consequence, NodeReport, Preflight
from kvmodel.verdict import Verdict
from kvmodel.views.console import PLAIN_WIDTH, columns, draw, indented, words

__all__ = ["preflight_text"]

STYLES = {Verdict.HOLDS: "green", Verdict.VIOLATED: "bold red", Verdict.UNDECIDED: "yellow"}
QUESTION = "does each pool cover what its door accepts?"


def preflight_text(result: Preflight, *, width: int = PLAIN_WIDTH, colour: bool = False) -> str:
    """Everything that a preflight has to say, as text of at most `width` columns."""
    count = len(result.nodes)
    head = words(f"{result.verdict.value}", STYLES[result.verdict])
    head.append_text(words(f"  {QUESTION} {count} node{'' if count == 1 else 's'}, prompts of every length"))
    parts: list[RenderableType] = [head, Text()]
    table = columns("node", "verdict", "pool", "a prompt can have", "door accepts", "served", "margin")
    for column in table.columns[2:]:
        column.justify = "right"
    for report in result.nodes:
        table.add_row(
            words(_name(report)),
            words(report.verdict.value, STYLES[report.verdict]),
            *(_tokens(number) for number in (report.pool, report.usable, report.accepted, report.served)),
            "" if report.margin is None else f"{report.margin:+.1%}",
        )
    parts.append(table)
    for report in result.nodes:
        if report.witness is not None:
            parts += [Text(), words(_witness(report))]
    if result.missing:
        parts += [Text(), words("not known, and it would decide:"), *(indented(words(fact)) for fact in result.missing)]
    if result.consequence is not None:
        parts += [Text(), *_consequence(result.consequence)]
        parts += [
            indented(words(f"{report.node.name}: {entry.outcome.value}: {entry.reason}"))
            for report, entry in zip(result.nodes, result.consequences, strict=True)
            if entry is not None and entry is not result.consequence
        ]
    warnings = [*result.warnings, *(warning for report in result.nodes for warning in report.warnings)]
    for title, sentences in (("warnings:", warnings), ("what to set:", result.advice), ("from:", _rules(result))):
        if sentences:
            parts += [Text(), words(title), *(indented(words(sentence)) for sentence in sentences)]
    return draw(parts, width=width, colour=colour)


def _name(report: NodeReport) -> str:
    role = "" if report.node.role == report.node.name else report.node.role
    told = " ".join(part for part in (role, report.node.release) if part)
    return f"{report.node.name}\n{told}" if told and told != report.node.name else report.node.name


def _tokens(number: int | None) -> str:
    return "not known" if number is None else f"{number:,}"


def _witness(report: NodeReport) -> str:
    return (
        f"{report.node.name}: a prompt of {report.witness:,} tokens is the shortest that the door lets through and the pool does not hold; "
        f"the longest is {_tokens(report.accepted)}"
    )


def _consequence(consequence: Consequence) -> list[RenderableType]:
    lines: list[RenderableType] = [words(f"what happens then: {consequence.outcome.value}", "bold"), indented(words(consequence.reason))]
    if consequence.properties:
        verdicts = ", ".join(
            f"{entry.name} {entry.verdict.value}" + ("" if entry.length is None else f" in {entry.length} steps")
            for entry in consequence.properties
        )
        lines.append(indented(words(f"{consequence.spec}, {consequence.coverage}: {verdicts}")))
        lines.append(indented(words("writes that outlive an aborted request are another matter: kvmodel check " + consequence.spec)))
    return lines


def _rules(result: Preflight) -> list[str]:
    return list(dict.fromkeys(rule for report in result.nodes for rule in report.rules))
