"""Playing the calls of an observed run again, on a new engine: all of them, to see the violation once more, or fewer and
fewer of them, to find a short run that still shows it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, takewhile
from typing import cast

from kvmodel.engines.driver import EngineViolation, Make, Record
from kvmodel.engines.levels import driver_for
from kvmodel.traces.observed import Call
from kvmodel.traces.trace import Trace

__all__ = ["play", "shortened"]

PATIENCE = 30.0  # seconds for making one run shorter
LONGEST_FOR_PAIRS = 40  # pairs of calls are left out of runs up to this length


def play(make: Make, name: str, calls: Sequence[Call], record: Record | None = None, *, drain: bool = True) -> int:
    """Make `calls` on a new engine, then (with `drain`) let everything end. A call that makes no sense where it comes is left out:
    how many were made.

    Raises EngineViolation for the first violation.
    """
    driver = driver_for(make(), name, record)
    made = sum(driver.do(call) for call in calls)
    if drain:
        driver.drain()
    return made


def shortened(make: Make, name: str, violated: str, trace: Trace) -> Trace:
    """A run that violates the same property as `trace` and from which no request, no call, no token and no page to evict can be
    left out, nor two calls at once; the best so far when time runs out. A trace that does not show its violation again is given
    back as it is."""
    limit = time.monotonic() + PATIENCE
    unsure: set[str] = set()  # shared, so that what cannot be told is not asked again

    def attempt(calls: Sequence[Call]) -> Trace | None:
        record = Record(fatal=frozenset({violated}), unsure=unsure)
        try:
            play(make, name, calls, record)
        except EngineViolation:
            return record.found.get(violated)
        return None

    best = attempt(_calls(trace))
    if best is None:
        return trace
    improved = True
    while improved:
        improved = False
        for smaller in (_without_requests, _without_calls, _folded, _simpler, _without_two):
            while True:
                found = _first(takewhile(lambda _: time.monotonic() < limit, smaller(_calls(best))), attempt, best)
                if found is None:
                    break
                best, improved = found, True
    return attempt(_renamed(_calls(best))) or best


def _calls(trace: Trace) -> tuple[Call, ...]:
    """What was asked for; `complete` is part of `run`."""
    assert trace.observed is not None
    return tuple(call for call in trace.observed.calls if call["verb"] != "complete")


def _first(candidates: Iterator[Sequence[Call]], attempt: Callable[[Sequence[Call]], Trace | None], best: Trace) -> Trace | None:
    """The run of the first candidate that is simpler than `best`: of fewer calls, or as many with fewer tokens."""
    for calls in candidates:
        found = attempt(calls)
        if found is not None and _size(_calls(found)) < _size(_calls(best)):
            return found
    return None


def _size(calls: Sequence[Call]) -> tuple[int, int, int]:
    tokens = [token for call in calls for token in _list(call, "tokens")]
    pages = sum(len(_list(call, "pages")) for call in calls)
    extra = sum(1 for call in calls for name in ("salt", "external", "remote") if call.get(name))
    return len(calls), len(tokens) + pages + sum(cast("int", call.get("new", 0)) for call in calls), sum(tokens) + extra


def _list(call: Call, name: str) -> Sequence[int]:
    return cast("Sequence[int]", call.get(name, ()))


def _without_requests(calls: Sequence[Call]) -> Iterator[Sequence[Call]]:
    for request in dict.fromkeys(call["request"] for call in calls if "request" in call):
        yield [call for call in calls if call.get("request") != request]


def _without_calls(calls: Sequence[Call]) -> Iterator[Sequence[Call]]:
    size = len(calls) // 2
    while size:
        for start in range(len(calls) - size, -1, -size):
            yield [*calls[:start], *calls[start + size :]]
        size //= 2


def _without_two(calls: Sequence[Call]) -> Iterator[Sequence[Call]]:
    """Without a request and one more call, or without two calls: what comes too early when one is left out may be just in time."""
    for fewer in _without_requests(calls):
        yield from ([*fewer[:i], *fewer[i + 1 :]] for i in range(len(fewer)))
    if len(calls) <= LONGEST_FOR_PAIRS:
        for first, second in combinations(range(len(calls)), 2):
            yield [*calls[:first], *calls[first + 1 : second], *calls[second + 1 :]]


def _folded(calls: Sequence[Call]) -> Iterator[Sequence[Call]]:
    """Two calls as one: a request that grows by a token asks for it at once; what is held back and released is given back at once."""
    for number, call in enumerate(calls):
        mine = [i for i, other in enumerate(calls[:number]) if other.get("request", number) == call.get("request")]
        before = mine[-1] if mine else None
        match call["verb"], calls[before]["verb"] if before is not None else "":
            case "extend", "admit" if before is not None:
                grown = {**calls[before], "tokens": (*_list(calls[before], "tokens"), call["token"])}
                yield [*calls[:before], grown, *calls[before + 1 : number], *calls[number + 1 :]]
            case "release", "detach" if before is not None:
                yield [*calls[:before], {"verb": "free", "request": call["request"]}, *calls[before + 1 : number], *calls[number + 1 :]]


def _simpler(calls: Sequence[Call]) -> Iterator[Sequence[Call]]:
    """One call with fewer tokens, plainer ones, fewer pages, or without an option; and all calls without a salt."""
    yield [{**call, "salt": None} if call.get("salt") else call for call in calls]
    for number, call in enumerate(calls):
        tokens, pages = _list(call, "tokens"), _list(call, "pages")
        changes: list[dict[str, object]] = [{"tokens": tokens[:-shorter]} for shorter in (len(tokens) // 2, 1) if 0 < shorter < len(tokens)]
        changes += [{"tokens": (*tokens[:i], 0, *tokens[i + 1 :])} for i, token in enumerate(tokens) if token]
        changes += [{"pages": (*pages[:i], *pages[i + 1 :])} for i in range(len(pages)) if len(pages) > 1]
        changes += [{name: plain} for name, plain in (("salt", None), ("external", 0), ("remote", False)) if call.get(name)]
        changes += [{"new": cast("int", call["new"]) - 1} for _ in range(1) if cast("int", call.get("new", 0)) > 1]
        for change in changes:
            yield [*calls[:number], {**call, **change}, *calls[number + 1 :]]


def _renamed(calls: Sequence[Call]) -> Sequence[Call]:
    """The requests that are left, as r0, r1, ... in their order."""
    names = {name: f"r{number}" for number, name in enumerate(dict.fromkeys(call["request"] for call in calls if "request" in call))}
    return [{**call, "request": names[call["request"]]} if "request" in call else call for call in calls]
