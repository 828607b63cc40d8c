"""A second opinion without any solver, for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import RenderableType

from kvmodel.readings.cutoff import CutOff, Judgement, SecondOpinion
from kvmodel.readings.tightness import Tightness
from kvmodel.views.console import columns, indented, words

__all__ = ["cut_off_lines", "second_opinions", "tightness_lines"]

STYLES = {
    Judgement.AGREED: "green",
    Judgement.DISAGREED: "bold red",
    Judgement.TOO_LARGE: "yellow",
    Judgement.OUTSIDE: "yellow",
}


def second_opinions(opinions: Sequence[SecondOpinion], *, verbose: bool = False) -> tuple[RenderableType, ...]:
    """How many conditions the enumeration agrees with and what it looked at; then each one that it does not agree with, with
    the figure or the reason. With `verbose`, every condition has a line, and its cut-off."""
    agreed = sum(opinion.judgement is Judgement.AGREED for opinion in opinions)
    most: dict[str, int] = {}
    for opinion in opinions:
        for sort, count in opinion.elements:
            most[sort] = max(most.get(sort, 0), count)
    states = sum(opinion.states for opinion in opinions)
    seconds = sum(opinion.seconds for opinion in opinions)
    drawn: list[RenderableType] = [
        words(
            f"second opinion, without any solver: {agreed} of {len(opinions)} conditions agreed; {states:,} valuations looked at "
            f"in {seconds:.1f} s, with at most {_sizes(most.items())} told apart",
            "bold",
        )
    ]
    shown = [opinion for opinion in opinions if verbose or opinion.judgement is not Judgement.AGREED]
    if shown:
        table = columns("condition", "second opinion", "told apart", "cut-off", "places", "valuations", "seconds")
        for opinion in shown:
            table.add_row(
                words(opinion.name),
                words(opinion.judgement.value, STYLES[opinion.judgement]),
                words(_sizes(opinion.elements)),
                words(_sizes(opinion.cut_off.sizes.items()) if opinion.cut_off.needs else "none"),
                f"{opinion.places:,}",
                f"{opinion.states:,}",
                f"{opinion.seconds:.2f}",
            )
        drawn.append(table)
    for opinion in opinions:
        if opinion.reason:
            drawn.append(words(f"{opinion.name}: {opinion.judgement.value}: {opinion.reason}", STYLES[opinion.judgement]))
        drawn += [indented(words(line)) for line in opinion.valuation]
        if verbose:
            drawn.append(words(f"{opinion.name}: elements that a counterexample can need", "bold"))
            drawn += [indented(line) for line in cut_off_lines(opinion.cut_off)]
    return tuple(drawn)


def cut_off_lines(found: CutOff) -> tuple[RenderableType, ...]:
    """What each element of a cut-off is for, with source lines; or why there is no cut-off."""
    if found.reason:
        return (words(f"no cut-off: {found.reason}"),)
    table = columns("sort", "elements", "for", "at")
    for need in found.needs:
        table.add_row(words(need.sort), str(need.count), words(need.why), words(str(need.at) if need.at.file else "", "dim"))
    return (table,)


def tightness_lines(found: Tightness) -> tuple[RenderableType, ...]:
    """How many states satisfy the claims and how many are reachable."""
    satisfying = "not counted" if found.satisfying is None else f"{found.satisfying:,}"
    reached = "not counted" if found.reachable is None else f"{found.reachable:,}"
    size = " ".join(f"{name}={count}" for name, count in found.sizes)
    drawn: list[RenderableType] = [
        words(f"tightness at {size}: of {found.states:,} type-correct states, {satisfying} satisfy the claims; {reached} are reachable")
    ]
    if found.reason:
        drawn.append(words(f"undecided: {found.reason}", "yellow"))
    return tuple(drawn)


def _sizes(sizes: Iterable[tuple[str, int]]) -> str:
    return " ".join(f"{name}={count}" for name, count in sizes)
