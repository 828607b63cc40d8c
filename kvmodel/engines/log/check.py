"""Checking an event log against a spec: the verdicts, what they rest on, and how it came to the first thing that is wrong."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO

import msgspec

from kvmodel.engines.log.monitor import Monitor, Stop
from kvmodel.engines.log.plan import plan_for
from kvmodel.engines.log.reader import LogError, LogReader
from kvmodel.engines.log.redact import Redaction
from kvmodel.engines.log.schema import Header
from kvmodel.engines.log.story import ALLOWED_STEP, Story, Watch
from kvmodel.engines.log.unseen import Explainer
from kvmodel.errors import UsageError
from kvmodel.language.expressions import FALSE
from kvmodel.language.system import TransitionSystem
from kvmodel.verdict import Coverage, PropertyResult, Verdict, overall

__all__ = ["ALLOWED_STEP", "LogResult", "check_log"]

@dataclass(frozen=True)
class LogResult:
    """What a log says. `properties` begins with `allowed_step`; `stories` tell of the first event that is no step and of the
    first violation of each property, in the order of the log. `error` is the line that could not be read, if there is one:
    everything else is then about the lines before."""

    spec: str
    header: Header
    verdict: Verdict
    coverage: Coverage
    properties: tuple[PropertyResult, ...]
    stories: tuple[Story, ...]
    events: int
    requests: int
    pages: int
    pool_pages: int
    seen: tuple[tuple[str, int], ...]
    never_seen: tuple[str, ...]
    never_told: tuple[str, ...]
    remarks: tuple[str, ...]
    error: LogError | None = None
    seconds: float = field(default=0.0, compare=False)


def check_log(
    file: BinaryIO,
    system: Callable[[Header], TransitionSystem],
    redaction: Redaction,
    progress: Callable[[str], None] | None = None,
) -> LogResult:
    """Check the log in `file` (binary; where it can be read twice, the stories have a history) against the spec that
    `system` gives for its header.

    Raises LogError where there is no header, and UsageError where header and spec do not fit.
    """
    began = told = time.monotonic()
    reader = LogReader(file)
    header = reader.header()
    try:
        monitor = Monitor(plan_for(system(header), msgspec.json.encode(header)))
    except UsageError as problem:
        raise LogError(str(problem), 1) from None
    watch = Watch(monitor, redaction)
    explainer = Explainer(monitor.plan) if header.silent else None
    monitor.on_broken = watch.broken
    error: LogError | None = None
    stopped = ""
    try:
        with _without_collector():
            for line, events in reader.blocks(monitor.events.decoder):
                monitor.feed(events, line)
                if explainer is not None:
                    explainer.feed(events, line)
                if monitor.unexplained is not None:
                    break
                if progress is not None and time.monotonic() - told > 0.3:
                    told = time.monotonic()
                    progress(f"{monitor.count:,} events, {monitor.count / (told - began):,.0f} a second")
        if monitor.unexplained is None:
            _check_end(reader, monitor)
    except LogError as problem:
        error = problem
    except Stop as problem:
        stopped = str(problem)
    if monitor.unexplained is not None:
        watch.unexplained(monitor.unexplained)
    stories = watch.stories(_from_start(file), progress)
    return _result(monitor, reader, redaction, stories, explainer, error, stopped, time.monotonic() - began)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Following a log makes no cycles, so that looking for them is lost time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _from_start(file: BinaryIO) -> BinaryIO | None:
    """The file at its beginning, or None for a pipe."""
    try:
        if not file.seekable():
            return None
        file.seek(0)
    except (OSError, ValueError):
        return None
    return file


def _check_end(reader: LogReader, monitor: Monitor) -> None:
    if reader.end is not None and reader.end.kvmodel_log_end != monitor.count:
        said, there = reader.end.kvmodel_log_end, monitor.count
        raise LogError(f"the end line says that there are {said:,} events, and there are {there:,}", monitor.line + 1)


def _result(
    monitor: Monitor,
    reader: LogReader,
    redaction: Redaction,
    stories: tuple[Story, ...],
    explainer: Explainer | None,
    error: LogError | None,
    stopped: str,
    seconds: float,
) -> LogResult:
    system = monitor.plan.original
    incomplete = _incomplete(monitor, reader, error, stopped)
    coverage = Coverage(monitor.sizes, monitor.count, 1, tuple(system.flag_values.items()))
    properties = [_allowed(monitor, coverage, incomplete, explainer)]
    for candidate in monitor.properties:
        verdict, reason = Verdict.HOLDS, ""
        if candidate.name in monitor.broken:
            verdict = Verdict.VIOLATED
        elif candidate.name in monitor.plan.undecidable:
            verdict, reason = Verdict.UNDECIDED, monitor.plan.undecidable[candidate.name]
        elif candidate.name in monitor.unsure:
            verdict, reason = Verdict.UNDECIDED, monitor.unsure[candidate.name][1]
        elif incomplete:
            verdict, reason = Verdict.UNDECIDED, incomplete
        elif candidate.name in monitor.idle:
            reason = "says nothing of this log: its left side was never seen true"
        properties.append(PropertyResult(candidate.name, verdict, coverage, None, reason))
    possible = [action for action in monitor.plan.folded.actions if not any(guard.condition == FALSE for guard in action.guards)]
    return LogResult(
        system.name,
        monitor.header,
        overall(tuple(properties)),
        coverage,
        tuple(properties),
        stories,
        monitor.count,
        monitor.names["Request"].given if "Request" in monitor.names else 0,
        sum(monitor.touched),
        len(monitor.touched),
        tuple((action.name, monitor.seen[action.name]) for action in monitor.plan.folded.actions if monitor.seen[action.name]),
        tuple(action.name for action in possible if not monitor.seen[action.name]),
        monitor.idle,
        tuple(_remarks(monitor, reader)),
        error if error is None else LogError(redaction.text(error.message), error.line),
        seconds,
    )


def _incomplete(monitor: Monitor, reader: LogReader, error: LogError | None, stopped: str) -> str:
    """Why what was not violated is not thereby true; empty where everything was looked at."""
    if stopped:
        return stopped
    if error is not None:
        return f"line {error.line} cannot be read; nothing from there on was checked"
    if monitor.unexplained is not None:
        return f"not checked after line {monitor.unexplained.line}"
    if not monitor.count:
        return "the log has no event: nothing was checked"
    if reader.end is not None and reader.end.lost:
        return f"the recorder lost {reader.end.lost:,} events at the end ({reader.end.reason or 'no reason given'})"
    if reader.end is not None and reader.end.reason:
        return f"the recorder stopped before the engine did: {reader.end.reason}"
    return ""


def _allowed(monitor: Monitor, coverage: Coverage, incomplete: str, explainer: Explainer | None) -> PropertyResult:
    verdict, reason = Verdict.HOLDS, ""
    guards = sorted(monitor.unsure_guards())
    if guards and explainer is not None and explainer.explained:
        guards, reason = [], f"with {explainer.put_in:,} unseen steps put in"
    if monitor.unexplained is not None:
        verdict = Verdict.VIOLATED
    elif guards:
        verdict, reason = Verdict.UNDECIDED, f"not known whether these were true: {'; '.join(guards)}"
        if explainer is not None and explainer.failed:
            reason += f"; no unseen steps were found that explain line {explainer.failed}"
    elif monitor.plan.uncertain:
        verdict = Verdict.UNDECIDED
        reason = "; ".join(f"{name}: {why}" for name, why in monitor.plan.uncertain.items())
    elif incomplete:
        verdict, reason = Verdict.UNDECIDED, incomplete
    return PropertyResult(ALLOWED_STEP, verdict, coverage, None, reason)


def _remarks(monitor: Monitor, reader: LogReader) -> list[str]:
    found = [f"{name} is taken to happen unseen: {reason}" for name, reason in monitor.header.silent.items()]
    found += [f"'{name}' is not known: {reason}" for name, reason in monitor.header.unknown.items()]
    if monitor.header.starts == "unknown":
        found.append("what was in the pages at the first event is not known")
    if reader.end is None and monitor.unexplained is None:
        found.append("the log has no end line: it was cut, or is still being written")
    elif reader.end is not None and reader.end.lost:
        found.append(f"the recorder stopped and lost {reader.end.lost:,} events: {reader.end.reason}")
    if monitor.reused:
        found.append(f"{monitor.reused:,} ids were used again for another request after theirs had ended")
    return found
