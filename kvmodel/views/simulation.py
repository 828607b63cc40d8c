"""What people read of a simulation: the two by two, what the detectors flag, and the seven checks."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from kvmodel.analyses.simulate import CellResult, SimulationOptions, SimulationResult
from kvmodel.views.console import PLAIN_WIDTH, columns, draw, words

__all__ = ["simulation_text"]

STYLES = {"PASS": "green", "FAIL": "bold red", "UNDECIDED": "yellow"}


def simulation_text(result: SimulationResult, *, width: int = PLAIN_WIDTH, colour: bool = False) -> str:
    """Everything that a simulation has to say, as text of at most `width` columns."""
    parts: list[RenderableType] = [words(line) for line in _setting(result.options)]
    parts.append(Text())
    table = columns("", *(f"{cell.cell.pool} pool\n{cell.cell.doors} doors" for cell in result.cells))
    for column in table.columns[1:]:
        column.justify = "right"
    for label, values in _rows(result.cells):
        table.add_row(label, *values)
    parts += [table, Text()]
    checks = columns("outcome", "", "check")
    for number, check in enumerate(result.checks, start=1):
        checks.add_row(words(check.word, STYLES[check.word]), f"{number}.", words(f"{check.sentence} ({check.detail})"))
    parts += [checks, Text()]
    steps = sum(cell.steps for cell in result.cells)
    end = f"{steps:,} steps of the spec in {result.seconds:.1f} s"
    parts.append(words(f"{end}; {result.reason}" if result.reason else end))
    return draw(parts, width=width, colour=colour)


def _setting(options: SimulationOptions) -> list[str]:
    return [
        f"context {options.context:,} tokens; prefill pool {options.prefill_pool:,} (small) or {options.covering_pool:,} (covering), "
        f"decode pool {options.decode_pool:,}, in pages of {options.page_size}",
        f"{options.requests:,} requests a deployment, seed {options.seed}"
        + (f", {options.aborts:.0%} of clients leave early" if options.aborts else ""),
    ]


def _rows(cells: tuple[CellResult, ...]) -> list[tuple[str, list[str]]]:
    rows = [
        ("requests", [f"{cell.requests:,}" for cell in cells]),
        ("longer than the small pool", [f"{cell.over_long:,}" for cell in cells]),
        ("rejected by prefill", [f"{cell.rejected:,}" for cell in cells]),
        ("leaked responses", [f"{len(cell.leaked):,}" for cell in cells]),
        ("  pages of others read", [f"{sum(leak.pages for leak in cell.leaked):,}" for cell in cells]),
    ]
    for status in sorted({status for cell in cells for status, _ in cell.statuses}):
        rows.append((f"HTTP {status}", [f"{dict(cell.statuses).get(status, 0):,}" for cell in cells]))
    for label, counts in (("client left", [cell.aborted for cell in cells]), ("no answer", [cell.unanswered for cell in cells])):
        if any(counts):
            rows.append((label, [f"{count:,}" for count in counts]))
    return [
        *rows,
        ("flagged by a status-only test", [f"{len(cell.flagged_by_status):,}" for cell in cells]),
        ("  of the leaked", [f"{len(cell.flagged_by_status & cell.leaked_requests):,}" for cell in cells]),
        ("flagged by a canary test", [f"{len(cell.flagged_by_canary):,}" for cell in cells]),
        ("  of the leaked", [f"{len(cell.flagged_by_canary & cell.leaked_requests):,}" for cell in cells]),
    ]
