"""What a search on a real engine has to say, in the words of every other check."""

from __future__ import annotations

from collections.abc import Sequence

from kvmodel.engines.conformance import ALLOWED
from kvmodel.engines.driver import ENGINE_ERROR, Record
from kvmodel.engines.observer import SPEC, Watch
from kvmodel.errors import UsageError
from kvmodel.language.expressions import Read, walk
from kvmodel.language.load import load_spec
from kvmodel.language.system import PropertyKind
from kvmodel.readings.vacuity import premise
from kvmodel.traces.observed import Verb
from kvmodel.verdict import Coverage, Finding, FindingKind, PropertyResult, Result, Verdict, overall

__all__ = ["engine_result", "require_known"]


def require_known(properties: Sequence[str]) -> None:
    """Raise UsageError, with the nearest known name, for what is not a property of a run of an engine."""
    system = load_spec(SPEC)
    for name in properties:
        if name not in (ENGINE_ERROR, ALLOWED) and system.property(name).kind not in (PropertyKind.INVARIANT, PropertyKind.RANGE):
            raise UsageError(f"{name} is not a property of states, and an engine is judged by its states")


def engine_result(record: Record, title: str, verbs: Sequence[Verb], seconds: float = 0.0) -> Result:
    """The result of a search. `title` names the engine, its release and the machine; `verbs` are those that it could use.

    A property that was never violated `holds`, with coverage `sampled`, only where it was true whatever the unmapped variables
    hold; otherwise it is undecided, and says what is missing. Two properties are not the spec's: `engine_error` (the engine raised none),
    and where the mapping is complete `allowed_step` (what a call did is a sequence of the spec's steps).
    """
    watch = record.watch
    if watch is None:
        return Result(f"{SPEC} on {title}", "engine", Verdict.UNDECIDED, Coverage(runs=0), (), seconds=seconds)
    coverage = Coverage(runs=record.runs)
    results = [_property(name, watch, record, coverage) for name in watch.properties]
    results += [_beside(name, record, coverage) for name in (ENGINE_ERROR, ALLOWED) if name != ALLOWED or record.compared]
    findings = [
        Finding(FindingKind.ACTION_NEVER_FIRED, verb.name, "", f"{verb.name} was never called: {verb.doc}")
        for verb in verbs
        if not record.done.get(verb.name)
    ]
    findings += [finding for name in watch.properties if (finding := _vacuous(name, watch, record)) is not None]
    found = tuple(results)
    calls = tuple(sorted(record.done.items()))
    statistics = (("runs", record.runs), ("calls", record.calls))
    return Result(f"{SPEC} on {title}", "engine", overall(found), coverage, found, tuple(findings), statistics, seconds, (), calls)


def _property(name: str, watch: Watch, record: Record, coverage: Coverage) -> PropertyResult:
    if name in record.found:
        return PropertyResult(name, Verdict.VIOLATED, coverage, record.found[name])
    missing = watch.reading.undecidable.get(name) or (_unknown(name, watch) if name in record.unsure else ())
    if missing:
        return PropertyResult(name, Verdict.UNDECIDED, coverage, reason=f"the adapter does not map {', '.join(missing)}")
    if record.stopped:
        return PropertyResult(name, Verdict.UNDECIDED, coverage, reason=record.stopped)
    rests = watch.rests_on(name)
    return PropertyResult(name, Verdict.HOLDS, coverage, reason=f"rests on {' and '.join(rests)}" if rests else "")


def _beside(name: str, record: Record, coverage: Coverage) -> PropertyResult:
    """A property of calls, which the spec does not have."""
    if name in record.found:
        trace = record.found[name]
        return PropertyResult(name, Verdict.VIOLATED, coverage, trace, trace.observed.finding if trace.observed else "")
    if record.stopped:
        return PropertyResult(name, Verdict.UNDECIDED, coverage, reason=record.stopped)
    return PropertyResult(name, Verdict.HOLDS, coverage)


def _unknown(name: str, watch: Watch) -> tuple[str, ...]:
    read = {node.variable for node in walk(watch.system.property(name).condition) if isinstance(node, Read)}
    return tuple(sorted(read & watch.reading.unknown))


def _vacuous(name: str, watch: Watch, record: Record) -> Finding | None:
    """A finding where the left side of an invariant reads only what was never true in any run."""
    candidate = watch.system.property(name)
    left = premise(candidate.condition) if candidate.kind is PropertyKind.INVARIANT else None
    if left is None:
        return None
    read = {node.variable for node in walk(left) if isinstance(node, Read)}
    if not read or read & (record.seen | watch.reading.unknown):
        return None
    what = f"{', '.join(sorted(read))} was never true in any run, so {name} says nothing"
    return Finding(FindingKind.PREMISE_NEVER_TRUE, name, str(candidate.at), what)
