"""``kvmodel report``: one page that explains a saved trace."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvmodel.commands import common
from kvmodel.errors import UsageError, nearest, printable

if TYPE_CHECKING:
    from kvmodel.traces.trace import Trace

__all__ = ["report"]

FORMATS = ("html", "markdown")
ENDINGS = {".html": "html", ".htm": "html", ".md": "markdown", ".markdown": "markdown"}


@click.command(
    epilog="""\b
Examples:
  kvmodel check handoff:buggy isolated_read --save incident.itf.json
  kvmodel report incident.itf.json -o report.html
  kvmodel report incident.itf.json -o report.html --check     and what else holds
  kvmodel report incident.itf.json --format markdown | gh pr comment -F -

\b
Exit code: 0, or 2 when TRACE is not a run of its spec or the output cannot be
written."""
)
@click.argument("file", metavar="TRACE")
@click.option("-o", "--output", metavar="PATH", help="Where to write; otherwise stdout.")
@click.option("--format", "wanted", type=click.Choice(FORMATS), help="What to write; otherwise as the ending of PATH says, or html.")
@click.option("--check", "checked", is_flag=True, help="Check every property at the trace's sizes too, and show what holds (html).")
@click.option("--spec", metavar="SPEC", help="Use this spec, not the one that the file names.")
def report(file: str, output: str | None, wanted: str | None, checked: bool, spec: str | None) -> int:
    """Explain the trace in TRACE (ITF JSON) to somebody who has never seen a model checker.

    html is one page that needs no network: what is broken, how it came about, each step with its picture and the rule that
    allowed it, what would have stopped the run. markdown is for a pull request.
    """
    chosen = wanted or _by_ending(output)
    if chosen == "html" and output is None and sys.stdout.isatty():
        raise UsageError("an HTML page is not for a terminal; say where to write it, as in -o report.html")
    if checked and chosen != "html":
        raise UsageError("--check is for html; `kvmodel check SPEC --format markdown` has every property")
    from kvmodel.api import read_trace

    trace = read_trace(file, spec)
    text = _html(trace, checked) if chosen == "html" else _markdown(trace)
    if output is None:
        common.emit(text)
        return common.ALL_HOLD
    try:
        Path(output).write_text(text, encoding="utf-8", newline="\n")
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        raise UsageError(f"{printable(output)}: cannot be written: {reason}") from None
    common.note(f"{output}: written")
    return common.ALL_HOLD


def _by_ending(output: str | None) -> str:
    if output is None:
        return "html"
    ending = Path(output).suffix
    if ending.lower() not in ENDINGS:
        known = ", ".join(ENDINGS)
        hint = nearest(ending, list(ENDINGS)) if ending else ""
        raise UsageError(f"{printable(output)}: no format has this ending{hint} (known: {known}); or choose one with --format")
    return ENDINGS[ending.lower()]


def _html(trace: Trace, checked: bool) -> str:
    from kvmodel.views.report import report_html

    if not checked:
        return report_html(trace)
    from kvmodel.api import CheckOptions, check_instance

    with common.progress_line() as progress:
        result = check_instance(trace.instance, (), CheckOptions(), progress)
    return report_html(trace, result)


def _markdown(trace: Trace) -> str:
    from kvmodel.views.formats import trace_as

    return trace_as("markdown", trace)
