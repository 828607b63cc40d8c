"""Shrinking a sampled run: leave out what it does not need, as long as the rest still shows the same.

Simple on purpose: it drops steps, alone, in blocks and in pairs, and with them those that are then not enabled; and it
tries the same steps from other initial states. It never invents a step, so the result is a local minimum and not always
a shortest run; exact readings give those.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, islice

from kvmodel.errors import InternalError
from kvmodel.readings.sampled import Run, Sampler
from kvmodel.traces.trace import Choice

__all__ = ["shrink"]

MOST_STARTS_TRIED = 1_000
LONGEST_FOR_PAIRS = 60  # pairs of steps are tried in runs up to this length


def shrink(sampler: Sampler, run: Run, name: str) -> Run:
    """A run that shows the property `name` with no more steps than `run`, which must show it.

    No single step, block of steps or pair of steps of the result can be left out, and no simpler initial state will do.
    """
    shortest = sampler.shown(run, name)
    if shortest is None:
        raise InternalError(f"a sampled run does not show '{name}' when it is taken again")
    while True:
        better = next(_better(sampler, shortest, name), None)
        if better is None:
            return shortest
        shortest = better


def _better(sampler: Sampler, run: Run, name: str) -> Iterator[Run]:
    """Runs that show the same with fewer steps, or with as many from a simpler initial state."""
    simpler = True
    for start in islice(sampler.starts, MOST_STARTS_TRIED):
        simpler = simpler and start != run.start
        found = sampler.shown(Run(start, run.steps), name)
        if found is not None and (len(found) < len(run) or (simpler and len(found) == len(run))):
            yield found
    for steps in _cuts(run):
        found = sampler.shown(Run(run.start, steps), name)
        if found is not None:
            yield found


def _cuts(run: Run) -> Iterator[tuple[Choice, ...]]:
    """The steps of `run` with some left out: large blocks first, then smaller ones, then pairs."""
    length = size = len(run)
    while size:
        for end in range(length, size - 1, -1):
            yield run.steps[: end - size] + run.steps[end:]
        size //= 2
    if length <= LONGEST_FOR_PAIRS:
        for first, second in combinations(range(length), 2):
            yield run.steps[:first] + run.steps[first + 1 : second] + run.steps[second + 1 :]
