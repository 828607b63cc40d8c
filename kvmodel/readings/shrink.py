"""Shrinking a sampled run: leave out what it does not need, as long as the rest still runs and shows the same.

Simple on purpose: it drops steps, alone, in blocks and in pairs, and prefers simpler initial states. It never adds or
invents a step, so the result is a local minimum and not always a shortest run; exact readings give those.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, islice

from kvmodel.errors import InternalError
from kvmodel.readings.sampled import Run, Sampler

__all__ = ["shrink"]

MOST_STARTS_TRIED = 64
LONGEST_FOR_PAIRS = 60  # pairs of steps are tried in runs up to this length


def shrink(sampler: Sampler, run: Run, name: str) -> Run:
    """A run that shows the property `name` with no more steps than `run`, which must show it.

    No single step, block of steps or pair of steps of the result can be left out.
    """
    shortest = sampler.shown(run, name)
    if shortest is None:
        raise InternalError(f"a sampled run does not show '{name}' when it is taken again")
    while True:
        better = next((found for candidate in _smaller(sampler, shortest) if (found := sampler.shown(candidate, name)) is not None), None)
        if better is None:
            return shortest
        shortest = better


def _smaller(sampler: Sampler, run: Run) -> Iterator[Run]:
    """Runs to try instead of `run`: large cuts first."""
    length = len(run)
    size = length
    while size:
        for end in range(length, size - 1, -1):
            yield Run(run.start, run.steps[: end - size] + run.steps[end:])
        size //= 2
    if length <= LONGEST_FOR_PAIRS:
        for first, second in combinations(range(length), 2):
            yield Run(run.start, run.steps[:first] + run.steps[first + 1 : second] + run.steps[second + 1 :])
    for start in islice(sampler.starts, MOST_STARTS_TRIED):
        if start == run.start:
            return
        yield Run(start, run.steps)
