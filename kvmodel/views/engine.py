"""What a search on a real engine has to say, as text."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from kvmodel.verdict import Result
from kvmodel.views.console import PLAIN_WIDTH, draw, indented, words
from kvmodel.views.text import findings_parts, properties_table, trace_parts, verdict_line

__all__ = ["engine_text"]


def engine_text(result: Result, command: str, *, width: int = PLAIN_WIDTH, colour: bool = False) -> str:
    """The shortest run that violates something, then the verdict of every property, findings, and how often each verb was called;
    `command` makes the search again."""
    parts: list[RenderableType] = []
    headline = result.headline
    if headline is not None and headline.trace is not None:
        parts += [*trace_parts(headline.trace, width), Text()]
    parts += [verdict_line(result), Text(), properties_table(result), *findings_parts(result)]
    if result.fired:
        calls = ", ".join(f"{name} {count:,}" for name, count in result.fired)
        parts += [Text(), words("calls", "bold"), indented(words(calls))]
    parts += [Text(), words("reproduce", "bold"), indented(words(command))]
    return draw(parts, width=width, colour=colour)
