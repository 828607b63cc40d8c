"""``kvmodel trace show``, ``kvmodel trace why``, ``kvmodel trace convert`` and ``kvmodel trace check``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

import click

from kvmodel.commands import common
from kvmodel.errors import UsageError, printable

if TYPE_CHECKING:
    from kvmodel.analyses.explain import Explanation
    from kvmodel.analyses.why import Blocked, Reason
    from kvmodel.engines.log.check import LogResult
    from kvmodel.engines.log.kv_events import KvResult
    from kvmodel.engines.log.redact import Redaction
    from kvmodel.engines.log.schema import Header
    from kvmodel.engines.log.story import Story
    from kvmodel.language.system import TransitionSystem
    from kvmodel.language.types import Value
    from kvmodel.traces.trace import Trace

__all__ = ["trace"]

FORMATS = ("markdown", "junit", "sarif", "itf")
LOG_FORMATS = ("kvmodel", "vllm-kv-events", "sglang-kv-events")


@click.group(
    epilog="""\b
Examples:
  kvmodel trace show incident.itf.json
  kvmodel trace why incident.itf.json 4 free r=r0
  kvmodel trace convert incident.itf.json --format markdown
  kvmodel trace check events.jsonl --spec handoff"""
)
def trace() -> None:
    """Look at a saved trace: show it, ask why an action was not enabled, or write it in another format. Check an engine's log."""


def spec_option(command: common.F) -> common.F:
    """``--spec``."""
    return click.option("--spec", metavar="SPEC", help="Use this spec, not the one that the file names.")(command)


@trace.command(
    epilog="""\b
Example:
  kvmodel trace show incident.itf.json

\b
Exit code: 0, or 2 when the file is not a run of its spec."""
)
@click.argument("file")
@spec_option
@common.json_option
def show(file: str, spec: str | None, as_json: bool) -> int:
    """Replay the trace in FILE (ITF JSON), show it as a table and say what led to its end.

    A trace that is not a run of its spec is refused at its first bad step. Steps that do not matter to what the trace shows
    are dimmed. At the end it says which steps led to it, where the design that the spec departs from stops the run, and
    which single defences would have.
    """
    from kvmodel.analyses.explain import explain
    from kvmodel.api import read_trace

    found = read_trace(file, spec)
    explanation = explain(found) if found.property else None
    if as_json:
        from kvmodel.traces.itf import itf_object

        content = {"spec": found.instance.system.name, "length": len(found.steps), "trace": itf_object(found)}
        common.emit_json("trace show", content | {"explanation": None if explanation is None else _explanation(explanation)})
        return common.ALL_HOLD
    from kvmodel.views.text import trace_text

    width, colour = common.page()
    steps = f"{len(found.steps)} step{'' if len(found.steps) == 1 else 's'}"
    common.emit(f"{found.instance.system.name} at {found.instance.describe_size()}, {steps}; replayed\n\n")
    common.emit(trace_text(found, explanation, width=width, colour=colour))
    return common.ALL_HOLD


@trace.command(
    epilog="""\b
Examples:
  kvmodel trace why incident.itf.json 4 free r=r0
  kvmodel trace why incident.itf.json 0 land            every binding; the nearest first
  kvmodel trace why incident.itf.json 7 land r=r1 target=decode.p0"""
)
@click.argument("file")
@click.argument("step", type=int)
@click.argument("action")
@click.argument("arguments", nargs=-1, metavar="[ARG=VALUE ...]")
@spec_option
@common.json_option
def why(file: str, step: int, action: str, arguments: tuple[str, ...], spec: str | None, as_json: bool) -> int:
    """Say why ACTION is not enabled after STEP of the trace in FILE, guard by guard.

    STEP is a number of the table that `kvmodel trace show` prints; the action is tried in the state of that line (0 is
    the initial state). Arguments that are left out are tried with every value.
    """
    from kvmodel.analyses.why import element, why_not
    from kvmodel.api import read_trace

    found = read_trace(file, spec)
    if found.observed is not None:
        raise UsageError(f"{file} was observed on {found.observed.title}: its steps are what the engine was asked, and have no guards")
    tried = found.instance.system.action(action)
    domains = {parameter.name: parameter.domain for parameter in tried.parameters}
    given: dict[str, Value] = {}
    for argument in arguments:
        name, equals, label = argument.partition("=")
        if not equals:
            raise UsageError(f"'{argument}': write ARG=VALUE, as in r=r0")
        # A parameter that the action does not have is refused by `why_not`.
        given[name] = element(found.instance, domains[name], label) if name in domains else None
    reports = why_not(found, step, action, given)
    if as_json:
        common.emit_json("trace why", {"step": step, "action": action, "bindings": [_object(found, report) for report in reports]})
        return common.ALL_HOLD
    from kvmodel.views.text import why_text

    width, colour = common.page()
    common.emit(why_text(found, reports, width=width, colour=colour))
    return common.ALL_HOLD


@trace.command(
    epilog="""\b
Examples:
  kvmodel trace convert incident.itf.json --format markdown | gh pr comment -F -
  kvmodel trace convert incident.itf.json --format sarif -o incident.sarif
  kvmodel trace convert incident.itf.json --to pytest --adapter sglang -o test_incident.py

\b
Exit code: 0, or 2 when the file is not a run of its spec or the output cannot
be written."""
)
@click.argument("file")
@click.option("--format", "--to", "form", type=click.Choice((*FORMATS, "pytest")), required=True, help="What to write.")
@click.option("--adapter", metavar="ENGINE[:MACHINE]", help="With pytest: the engine that is to play the steps, and which part of it.")
@click.option("--release", metavar="VERSION", help="With pytest: the release (default: of the trace, or the newest that is known).")
@click.option("-o", "--output", "target", metavar="OUT", help="Write to this file (default: stdout).")
@spec_option
def convert(file: str, form: str, adapter: str | None, release: str | None, target: str | None, spec: str | None) -> int:
    """Replay the trace in FILE (ITF JSON) and write it in another format.

    markdown is for a pull request: a sentence, a sequence diagram (Mermaid), the table of steps, and what led to it. junit
    and sarif are for CI. itf is the same trace, written anew. pytest is a test that plays the steps on a real engine (see
    `kvmodel engines machines`): those of a run of an engine as they are, those of a counterexample of handoff, cached or pages
    as what an engine would have been asked.
    """
    from kvmodel.api import read_trace

    if form != "pytest" and (adapter or release):
        raise UsageError("--adapter and --release are for --to pytest")
    found = read_trace(file, spec)
    if form == "pytest":
        text = _regression(found, adapter, release)
    elif form == "itf":
        import json

        from kvmodel.traces.itf import itf_object

        text = json.dumps(itf_object(found)) + "\n"
    else:
        from kvmodel.views.formats import trace_as

        text = trace_as(form, found)
    if target is None:
        common.emit(text)
        return common.ALL_HOLD
    try:
        with open(target, "w", encoding="utf-8") as output:
            output.write(text)
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        raise UsageError(f"{target}: not written: {reason}") from None
    common.note(f"{target}: written")
    return common.ALL_HOLD


@trace.command(
    epilog="""\b
Examples:
  kvmodel trace check events.jsonl --spec handoff
  kvmodel trace check events.jsonl --redact --json
  zcat events.jsonl.gz | kvmodel trace check -

\b
Exit code: 0 everything holds, 1 something is violated, 2 wrong usage or a line that cannot be read (what was
checked before it is printed), 3 undecided. With --expect: 0 as expected, 1 not, 3 undecided."""
)
@click.argument("log")
@click.option("--spec", metavar="SPEC", help="The spec (default: the one that the log's header names).")
@click.option(
    "--format", "form", type=click.Choice(LOG_FORMATS), default="kvmodel", show_default=True,
    help="What LOG is: an event log, or KV events as the engine publishes them.",
)  # fmt: skip
@click.option("--redact", is_flag=True, help="Show ids and hashes as keyed digests.")
@click.option("--redact-key", metavar="KEY", help="The key of the digests, so that two runs can be compared (default: a random one).")
@click.option("--expect", "expected", type=click.Choice(("holds", "violated", "undecided")), help="The verdict that is no failure.")
@common.json_option
def check(
    log: str, spec: str | None, form: str, redact: bool, redact_key: str | None, expected: str | None, as_json: bool
) -> int:
    """Check the event log in LOG (JSON Lines; - is stdin) against a spec.

    Each event must be a step that the spec allows, and no property may become false. It says which event is the first that no
    allowed step explains, and what happened to its pages before. docs/event-log.md describes the format.
    """
    from kvmodel.engines.log.check import check_log
    from kvmodel.engines.log.redact import Redaction

    if redact_key is not None and not redact:
        raise UsageError("--redact-key is the key of --redact: give both")
    redaction = Redaction(redact, (redact_key or "").encode())
    if form != "kvmodel":
        return _check_kv_events(log, spec, redaction, expected, as_json)
    with _opened(log) as file, common.progress_line() as progress:
        result = check_log(file, lambda header: _spec_of(header, spec), redaction, progress)
    if as_json:
        common.emit_json("trace check", log_object(result))
    else:
        from kvmodel.views.log_check import log_text

        width, colour = common.page()
        common.emit(log_text(result, width=width, colour=colour))
    return common.USAGE if result.error is not None else common.exit_code(result.verdict, expected)


def _check_kv_events(path: str, spec: str | None, redaction: Redaction, expected: str | None, as_json: bool) -> int:
    from kvmodel.api import load
    from kvmodel.engines.log.kv_events import check_kv_events

    system = load(spec or "cached")
    with _opened(path) as file:
        result = check_kv_events(file, system, redaction)
    if as_json:
        common.emit_json("trace check", kv_object(result))
    else:
        from kvmodel.views.log_check import kv_text

        width, colour = common.page()
        common.emit(kv_text(result, width=width, colour=colour))
    return common.USAGE if result.error is not None else common.exit_code(result.verdict, expected)


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """A file to read, or stdin. Raises UsageError when it cannot be opened."""
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        raise UsageError(f"{path}: not readable: {reason}") from None
    with file:
        yield file


def _spec_of(header: Header, given: str | None) -> TransitionSystem:
    from kvmodel.api import load

    if given is None and not header.spec:
        raise UsageError("the header names no spec: give one with --spec")
    if given is None and ".py" in header.spec:  # a file from a stranger does not choose which files are read
        raise UsageError("the header names a file: say which spec to use with --spec")
    return load(given or header.spec, dict(header.flags))


def log_object(result: LogResult) -> dict[str, object]:
    """A checked log for JSON."""
    return {
        "spec": result.spec,
        "engine": result.header.engine or None,
        "version": result.header.version or None,
        "verdict": result.verdict.value,
        "coverage": common.coverage_object(result.coverage),
        "events": result.events,
        "requests": result.requests,
        "pages": {"named": result.pages, "in_pools": result.pool_pages},
        "actions": dict(result.seen),
        "never_seen": list(result.never_seen),
        "never_true": list(result.never_told),
        "properties": [{"name": entry.name, "verdict": entry.verdict.value, "reason": entry.reason} for entry in result.properties],
        "findings": [_finding(story) for story in result.stories],
        "remarks": list(result.remarks),
        "error": None if result.error is None else {"line": result.error.line, "message": printable(result.error.message, 500)},
    }


def kv_object(result: KvResult) -> dict[str, object]:
    """Checked KV events for JSON."""
    return {
        "verdict": result.verdict.value,
        "batches": result.batches,
        "stored": result.stored,
        "removed": result.removed,
        "cleared": result.cleared,
        "in_index": result.indexed,
        "properties": [{"name": entry.name, "verdict": entry.verdict.value, "reason": entry.reason} for entry in result.properties],
        "findings": [{"subject": found.subject, "batch": found.place, "headline": found.headline} for found in result.findings],
        "remarks": list(result.remarks),
        "error": None if result.error is None else {"line": result.error.line, "message": printable(result.error.message, 500)},
    }


def _finding(story: Story) -> dict[str, object]:
    return {
        "subject": story.subject,
        "line": story.line,
        "seq": story.seq,
        "event": story.event,
        "headline": story.headline,
        "what": story.what,
        "where": story.where,
        "reasons": [_reason(reason) for reason in story.reasons],
        "facts": [{"fact": fact.text, "since_line": fact.line or None, "event": fact.event or None} for fact in story.facts],
        "pages": [
            {"page": label, "history": [{"line": entry.line, "event": entry.event, "change": entry.change} for entry in entries]}
            for label, entries in story.histories
        ],
    }


def _explanation(explanation: Explanation) -> dict[str, object]:
    from dataclasses import asdict

    return {
        "relevant": sorted(explanation.relevant),
        "chain": [asdict(cause) for cause in explanation.chain],
        "refused": None if explanation.refused is None else asdict(explanation.refused),
        "stopped_by": [asdict(stopper) for stopper in explanation.stopped_by],
        "not_stopped_by": list(explanation.not_stopped_by),
    }


def _regression(found: Trace, adapter: str | None, release: str | None) -> str:
    """The regression test for a trace; the adapter's sizes are asked of a release, which is fetched where it is not there."""
    from kvmodel.engines.machines import NEWEST, default_machine, machine
    from kvmodel.engines.translate import calls_for
    from kvmodel.views.regression import regression_test

    observed = found.observed
    if adapter is None:
        if observed is None:
            raise UsageError("--to pytest needs --adapter: which engine is to play the steps")
        adapter = f"{observed.engine}:{observed.adapter}"
    engine, _, name = adapter.partition(":")
    chosen = machine(engine, name) if name else default_machine(engine)
    version = release or (observed.version if observed and observed.engine == engine else NEWEST[engine])
    if observed is not None:
        return regression_test(found, observed.calls, engine, chosen.name, version)
    made = chosen.make(version)
    return regression_test(found, calls_for(found, made.page_size, getattr(made, "lengths", ())), engine, chosen.name, version)


def _object(trace: Trace, report: Blocked) -> dict[str, object]:
    parameters = report.action.parameters
    return {
        "arguments": {p.name: trace.instance.label(p.domain, value) for p, value in zip(parameters, report.binding, strict=True)},
        "enabled": report.enabled,
        "ended": report.ended,
        "guards": [
            {
                "name": guard.name,
                "condition": guard.condition,
                "where": str(guard.at),
                "holds": guard.holds,
                "reasons": [_reason(reason) for reason in guard.reasons],
            }
            for guard in report.guards
        ],
    }


def _reason(reason: Reason) -> dict[str, object]:
    return {"text": reason.text, "value": reason.value, "reads": dict(reason.reads), "inside": list(reason.inside), "where": str(reason.at)}
