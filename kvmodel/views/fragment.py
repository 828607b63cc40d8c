"""Where conditions lie in the decidable fragment, for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from kvmodel.readings.fragment import Fragment
from kvmodel.views.console import columns, indented, words

__all__ = ["fragments"]

MOST_NAMES = 6


def fragments(entries: Sequence[tuple[str, Fragment]]) -> tuple[RenderableType, ...]:
    """Conditions by name, each with where it lies: one line for those inside, and for each way out its cycle, edge by
    edge with source lines, and what to change."""
    inside = [found for _, found in entries if found.decidable]
    beside = sum(found.arithmetic for found in inside)
    arithmetic = f" ({beside} beside linear arithmetic)" if beside else ""
    drawn: list[RenderableType] = [
        words(f"{len(inside)} of {len(entries)} conditions in the effectively propositional fragment{arithmetic}", "bold")
    ]
    alike: dict[Fragment, list[str]] = {}
    for name, found in entries:
        if not found.decidable:
            alike.setdefault(Fragment(False, cycle=found.cycle, counts=found.counts, advice=found.advice), []).append(name)
    for found, names in alike.items():
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        drawn.append(words(f"{', '.join(names[:MOST_NAMES])}{more}: {found}", "yellow"))
        if found.cycle:
            table = columns("edge", "made by", "at")
            for edge in found.cycle:
                table.add_row(words(f"{edge.source} -> {edge.target}"), words(edge.maker), words(str(edge.at), "dim"))
            drawn.append(indented(table))
        drawn.append(indented(words(f"to change: {found.advice}")))
    return tuple(drawn)
