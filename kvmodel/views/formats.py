"""Results and traces in the formats of other tools: Markdown for a pull request, JUnit XML and SARIF for CI."""

from __future__ import annotations

from kvmodel.analyses.explain import Explanation, explain
from kvmodel.errors import UsageError, nearest
from kvmodel.language.instance import Instance
from kvmodel.language.system import PropertyKind
from kvmodel.traces.trace import Trace
from kvmodel.verdict import Coverage, PropertyResult, Result, Verdict
from kvmodel.views.text import reproduction

__all__ = ["RESULT_FORMATS", "result_as", "result_of", "trace_as"]

RESULT_FORMATS = ("markdown", "junit", "sarif")


def result_as(form: str, result: Result, instance: Instance, command: str) -> str:
    """A result in one of `RESULT_FORMATS`; `command` reproduces it. Raises UsageError for another format."""
    explanation = explain(result.trace) if result.trace is not None else None
    return _written(form, result, instance, command, explanation)


def trace_as(form: str, trace: Trace) -> str:
    """A replayed trace in one of `RESULT_FORMATS`. Raises UsageError for another format, and for JUnit and SARIF when the trace
    shows no property: there is no verdict to tell."""
    instance = trace.instance
    command = reproduction(trace)
    explanation = explain(trace) if trace.property else None
    if form == "markdown":
        from kvmodel.views.markdown import trace_markdown

        return trace_markdown(trace, explanation, command)
    if not trace.property:
        raise UsageError(f"the trace shows no property, so there is no verdict for {form}")
    return _written(form, result_of(trace), instance, command, explanation)


def result_of(trace: Trace) -> Result:
    """What a trace alone says of its property: violated or, of a `@reachable` one, that it holds."""
    reachable = trace.instance.system.property(trace.property).kind is PropertyKind.REACHABLE
    verdict = Verdict.HOLDS if reachable else Verdict.VIOLATED
    coverage = Coverage(trace.instance.size_options(), flags=tuple(trace.instance.system.flag_values.items()))
    entry = PropertyResult(trace.property, verdict, coverage, trace, reachable=reachable)
    return Result(trace.instance.system.name, "replay", verdict, coverage, (entry,), asked=(trace.property,))


def _written(form: str, result: Result, instance: Instance, command: str, explanation: Explanation | None) -> str:
    match form:
        case "markdown":
            from kvmodel.views.markdown import result_markdown

            return result_markdown(result, command, explanation)
        case "junit":
            from kvmodel.views.junit import junit

            return junit(result, command, explanation)
        case "sarif":
            from kvmodel.views.sarif import sarif

            return sarif(result, instance.system, command, explanation)
    raise UsageError(f"there is no format '{form}'{nearest(form, RESULT_FORMATS)} (known: {', '.join(RESULT_FORMATS)})")
