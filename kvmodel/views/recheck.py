"""What people read when certificates are checked again."""

from __future__ import annotations

from collections import Counter

from rich.console import RenderableType
from rich.text import Text

from kvmodel.analyses.recheck import Recheck
from kvmodel.views.console import PLAIN_WIDTH, columns, draw, words

__all__ = ["recheck_text"]

MOST_SHOWN = 40  # problems


def recheck_text(result: Recheck, *, width: int = PLAIN_WIDTH, colour: bool = False) -> str:
    """One line for each certificate, one for each problem, and what it comes to."""
    broken = Counter(problem.manifest for problem in result.problems)
    table = columns("certificate of", "properties", "conditions", "")
    for column in table.columns[1:3]:
        column.justify = "right"
    for entry in result.certificates:
        wrong = broken[entry.manifest]
        outcome = words(f"{wrong:,} {_plural('problem', wrong)}", "bold red") if wrong else words("agrees", "green")
        name = f"{entry.spec}, any flags" if entry.all_flags else entry.spec
        table.add_row(words(name), str(len(entry.properties)), f"{entry.conditions:,}", outcome)
    parts: list[RenderableType] = [table, Text()]
    parts += [words(str(problem), "red") for problem in result.problems[:MOST_SHOWN]]
    if len(result.problems) > MOST_SHOWN:
        parts.append(words(f"... and {len(result.problems) - MOST_SHOWN:,} problems more"))
    parts += [words(line) for line in _summary(result)]
    return draw(parts, width=width, colour=colour)


def _summary(result: Recheck) -> list[str]:
    made = f"{result.conditions:,} conditions made again from the specs, {result.asked:,} of them different"
    name, seconds = result.slowest
    slowest = f"; the slowest answer took {seconds:.1f} s ({name})" if name else ""
    if result.problems:
        count = len(result.problems)
        return [f"{made}; {count:,} {_plural('problem', count)}, {result.seconds:.1f} s"]
    return [f"{made}", f"{result.solver} answers unsat to each, {result.seconds:.1f} s in all{slowest}"]


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
