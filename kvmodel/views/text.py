"""What people read: a result, a trace, and why an action was not enabled, as text.

Each function returns text of at most `width` columns, with colour codes only when `colour` is true.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kvmodel.analyses.explain import Explanation, Refusal
from kvmodel.analyses.why import Blocked, Reason, violation
from kvmodel.errors import printable
from kvmodel.language.instance import Instance
from kvmodel.language.system import PropertyKind, TransitionSystem
from kvmodel.language.types import Span
from kvmodel.traces.trace import Choice, Trace
from kvmodel.verdict import Coverage, PropertyResult, Result, Verdict
from kvmodel.views.console import PLAIN_WIDTH, columns, draw, indented, words
from kvmodel.views.table import given, step_text, trace_table

__all__ = [
    "command_line",
    "ending",
    "explanation_parts",
    "exploration_text",
    "findings_parts",
    "flags_text",
    "properties_table",
    "ranges",
    "refusal_head",
    "reproduction",
    "result_text",
    "trace_parts",
    "trace_text",
    "verdict_line",
    "why_text",
]

STYLES = {Verdict.HOLDS: "green", Verdict.VIOLATED: "bold red", Verdict.UNDECIDED: "yellow"}
MOST_BLOCKED = 3  # bindings that are explained when not all arguments were given


def result_text(result: Result, instance: Instance, command: str, *, width: int = PLAIN_WIDTH, colour: bool = False) -> str:
    """Everything that a check has to say; `command` reproduces it."""
    parts: list[RenderableType] = []
    headline = result.headline
    if headline is not None and headline.trace is not None:
        parts += [*trace_parts(headline.trace, width), Text()]
    parts += [verdict_line(result), Text(), properties_table(result), *findings_parts(result), *ending(instance.system, command, width)]
    return draw(parts, width=width, colour=colour)


def exploration_text(result: Result, instance: Instance, command: str, *, width: int = PLAIN_WIDTH, colour: bool = False) -> str:
    """The statistics of an exploration: counts, how often each action fired, findings and properties."""
    fired = columns("action", "fired")
    fired.columns[1].justify = "right"
    for name, count in result.fired:
        fired.add_row(words(name, "" if count else "yellow"), words(f"{count:,}"))
    parts: list[RenderableType] = [verdict_line(result), Text(), fired, Text(), properties_table(result)]
    return draw([*parts, *findings_parts(result), *ending(instance.system, command, width)], width=width, colour=colour)


def trace_text(trace: Trace, explanation: Explanation | None = None, *, width: int = PLAIN_WIDTH, colour: bool = False) -> str:
    """A trace as a table, with the sentence that says what it shows, and its explanation."""
    return draw(trace_parts(trace, width, explanation), width=width, colour=colour)


def trace_parts(trace: Trace, width: int, explanation: Explanation | None = None) -> list[RenderableType]:
    """What `trace_text` draws."""
    faint = () if explanation is None else [n for n in range(1, len(trace.steps) + 1) if n not in explanation.relevant]
    table, legend = trace_table(trace, width, faint=faint)
    facts = given(trace)
    parts: list[RenderableType] = []
    if trace.observed is not None:
        parts += [words(f"observed on {trace.observed.title}"), Text()]
    if facts:
        parts += [words("given: " + ", ".join(facts)), Text()]
    parts.append(table)
    if legend:
        parts += [Text(), words(legend, "dim")]
    if faint:
        parts += [Text(), words(f"does not matter to {trace.property}: step{'s' if len(faint) > 1 else ''} {ranges(faint)}", "dim")]
    if trace.property:
        parts += [Text(), *_shows(trace)]
    elif trace.observed is not None and trace.observed.finding:
        parts += [Text(), words(f"step {len(trace.steps)}: {trace.observed.finding}")]
    if explanation is not None:
        parts += explanation_parts(trace, explanation)
    return parts


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers, runs of them as one: ``1, 4-6``."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def explanation_parts(trace: Trace, explanation: Explanation) -> Iterator[RenderableType]:
    """What led to the end of a trace, where the design that its spec departs from refuses it, and what would have stopped it."""
    if explanation.chain:
        yield Text()
        yield words("what led to it", "bold")
        chain = columns("", "")
        chain.columns[0].justify = "right"
        for cause in explanation.chain:
            chain.add_row(words(str(cause.step), "dim"), words(cause.sentence))
        yield indented(chain)
    refused = explanation.refused
    if refused is not None:
        yield Text()
        yield words(refusal_head(refused), "bold")
        yield indented(_placed(refused.what, refused.where))
    if explanation.stopped_by or explanation.not_stopped_by:
        yield Text()
        yield words("what would have stopped this run, alone", "bold")
        table = columns("", "", "")
        for stopper in explanation.stopped_by:
            flag = stopper.flag if stopper.on else f"{stopper.flag} off"
            table.add_row(words(flag), words(_step_or_start(stopper.step), "dim"), _placed(stopper.guard_or_change, stopper.where))
        if explanation.stopped_by:
            yield indented(table)
        if explanation.not_stopped_by:
            yield indented(words(f"{'not' if explanation.stopped_by else 'nothing: not'} {', '.join(explanation.not_stopped_by)}"))
        flagged = explanation.stopped_by and trace.instance.system.flags
        if flagged and trace.property:
            command = shlex.join(["kvmodel", "defences", trace.instance.system.name, trace.property])
            yield indented(words(f"Other runs may go on: `{command}` asks about all of them.", "dim"))


def refusal_head(refused: Refusal) -> str:
    """``handoff refuses this run at step 2``."""
    word = "refuses this run" if refused.guard or not refused.step else "ends otherwise, from"
    return f"{refused.spec} {word} {'at ' if refused.guard or not refused.step else ''}{_step_or_start(refused.step)}"


def _step_or_start(step: int) -> str:
    return f"step {step}" if step else "its start"


def _placed(text: str, where: str) -> Text:
    line = words(text)
    line.append(printable(f"  ({where})" if where else ""), "dim")
    return line


def _shows(trace: Trace) -> Iterator[RenderableType]:
    """The property in the spec's own words, for which parameters, and which part of it decides."""
    shown = violation(trace)
    kind = shown.property.kind
    reached = kind is PropertyKind.REACHABLE
    word = "shown by the last step" if reached else "violated"
    step = f"step {len(trace.steps)}" if trace.steps else "the initial state"
    arguments = ", ".join(f"{name} = {label}" for name, label in shown.arguments)
    head = Text.assemble((printable(shown.property.name), "bold"), " is ", (word, "green" if reached else "bold red"))
    head.append(printable(f"{'' if reached else f' by {step}'}{f' for {arguments}' if arguments else ''}:"))
    yield head
    yield indented(words(_paragraphs(shown.property.doc) or f"{shown.property.name} has no description."))
    if kind is PropertyKind.NO_DEADLOCK:
        yield indented(words("Nothing is enabled here, and the state is not final."))
    for reason in shown.reasons:
        yield from _reason(reason, shown.property.at, reached)
    if shown.property.at.file:
        yield indented(words(f"({shown.property.at})", "dim"))


def _reason(reason: Reason, known: Span, holds: bool = False) -> Iterator[RenderableType]:
    """One reason; its line in the spec is left out where it is the one already `known`."""
    values = ", ".join(f"{name} is {value}" for name, value in reason.reads if not (len(reason.reads) == 1 and name == reason.text))
    single = len(reason.reads) == 1 and reason.reads[0][0] == reason.text
    line = Text.assemble(("because " if holds else "broken: ", "bold"), printable(reason.text))
    if single or not reason.reads:
        line.append(f" is {printable(reason.value)}")
    elif values:
        line.append(printable(f"   [{values}]"))
    if reason.at.file and (reason.at.file, reason.at.line) != (known.file, known.line):
        line.append(printable(f"  ({reason.at})"), "dim")
    yield indented(line)
    if reason.inside:
        yield indented(words("where " + ", ".join(reason.inside), "dim"), 4)


def _paragraphs(doc: str) -> str:
    """A docstring with its own line breaks undone."""
    return "\n".join(" ".join(paragraph.split()) for paragraph in textwrap.dedent(doc).strip().split("\n\n")) if doc.strip() else ""


def verdict_line(result: Result) -> Text:
    """The verdict, the headline, and what was covered, on two lines."""
    line = words(f"{result.spec}: ", "bold")
    line.append(result.verdict.value, STYLES[result.verdict])
    headline = result.headline
    if headline is not None:
        line.append(f", {printable(headline.name)}{_length(headline)}")
    counts = ", ".join(f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}" for name, value in result.statistics)
    line.append(f"\n{result.method}: {result.coverage}{'; ' if counts else ''}{counts}; {result.seconds:.1f}s")
    return line


def _length(result: PropertyResult) -> str:
    if result.length is None:
        return ""
    return f" in {result.length} step{'' if result.length == 1 else 's'}" if result.length else " in the initial state"


def properties_table(result: Result) -> Table:
    """A line for each property."""
    table = columns("property", "verdict", "coverage", "")
    for entry in result.properties:
        table.add_row(
            words(entry.name), words(entry.verdict.value, STYLES[entry.verdict]), words(entry.coverage.word), words(_told(entry))
        )
    return table


def _told(entry: PropertyResult) -> str:
    length = _length(entry).strip()
    if entry.reachable and entry.verdict is Verdict.HOLDS:
        told = f"reached {length}"
    elif entry.reachable and entry.verdict is Verdict.VIOLATED:
        told = "never reached"
    else:
        told = length
    return "; ".join(part for part in (told, entry.reason) if part)


def findings_parts(result: Result) -> Iterator[RenderableType]:
    """What makes a verdict mean less than it seems to."""
    if not result.findings:
        return
    yield Text()
    yield words("findings", "bold")
    for finding in result.findings:
        line = words(f"{finding.kind.value}: ", "yellow")
        line.append(printable(f"{finding.subject} ({finding.where})" if ":" in finding.where else finding.subject))
        yield indented(line)
        yield indented(words(finding.message), 4)


def ending(system: TransitionSystem, command: str, width: int, *, all_flags: bool = False) -> Iterator[RenderableType]:
    """The effective flags (`all_flags`: that there are none) and the command that reproduces a result."""
    if system.flags:
        yield Text()
        yield words("flags", "bold")
        yield indented(words("every assignment of " + ", ".join(flag.name for flag in system.flags)) if all_flags else _flags(system))
    yield Text()
    yield words("reproduce", "bold")
    for line in _wrapped_command(command, width - 2):
        yield Text("  " + printable(line), no_wrap=True, overflow="ignore")


def flags_text(system: TransitionSystem, *, width: int = PLAIN_WIDTH, colour: bool = False) -> str:
    """The effective flags of a system by kind."""
    return draw([_flags(system)], width=width, colour=colour)


def _flags(system: TransitionSystem) -> Table:
    table = columns("", "")
    for kind in dict.fromkeys(flag.kind for flag in system.flags):
        values = [f"{flag.name}={'on' if flag.value else 'off'}" for flag in system.flags if flag.kind is kind]
        table.add_row(words(kind.value), words("  ".join(values)))
    return table


def reproduction(trace: Trace) -> str:
    """The command that finds a trace again: of the spec at its sizes, or of the engine on which it was observed."""
    shown = [trace.property] if trace.property else []
    if trace.observed is not None:
        observed = trace.observed
        return shlex.join(["kvmodel", "engines", "check", f"{observed.engine}=={observed.version}", observed.adapter, *shown])
    system = trace.instance.system
    coverage = Coverage(trace.instance.size_options(), flags=tuple(system.flag_values.items()))
    return command_line("check", system.name, shown, coverage=coverage)


def command_line(
    verb: str,
    spec: str,
    properties: Sequence[str] = (),
    *,
    options: Mapping[str, object] | None = None,
    coverage: Coverage,
) -> str:
    """The command that reproduces a result: sizes and every effective flag are spelled out."""
    parts = ["kvmodel", verb, spec, *properties]
    for name, value in (options or {}).items():
        parts += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    for name, size in coverage.size or ():
        parts += ["--size", f"{name}={size}"]
    for name, on in coverage.flags or ():
        parts += ["--flag" if on else "--no-flag", name]
    return shlex.join(parts)


def _wrapped_command(command: str, width: int) -> list[str]:
    """A command over several lines that a shell reads as one; an option stays with its value."""
    words_of = shlex.split(command)
    groups: list[str] = []
    for position, word in enumerate(words_of):
        previous = words_of[position - 1] if position else ""
        if groups and previous.startswith("--") and not word.startswith("--"):
            groups[-1] += " " + shlex.quote(word)
        else:
            groups.append(shlex.quote(word))
    lines = [""]
    for group in groups:
        if lines[-1] and len(lines[-1]) + len(group) + 3 > width:
            lines[-1] += " \\"
            lines.append("    " + group)
        else:
            lines[-1] += (" " if lines[-1].strip() else "") + group
    return lines


def why_text(trace: Trace, blocked: Sequence[Blocked], *, width: int = PLAIN_WIDTH, colour: bool = False) -> str:
    """Why an action is not enabled after a step: its guards, and for each false one the part that is false."""
    parts: list[RenderableType] = []
    step = blocked[0].step
    after = f"step {step}, {step_text(trace.instance, trace.steps[step - 1])}" if step else "the initial state"
    enabled = [report for report in blocked if report.enabled]
    shown = enabled[:MOST_BLOCKED] or list(blocked[:MOST_BLOCKED])
    for report in shown:
        parts += _blocked(trace, report, after)
        parts.append(Text())
    hidden = len(blocked) - len(shown)
    if hidden:
        what = "not enabled" if enabled else "no nearer to being enabled"
        bindings = "other binding is" if hidden == 1 else "other bindings are"
        parts += [words(f"{hidden:,} {bindings} {what}", "dim"), Text()]
    return draw(parts[:-1], width=width, colour=colour)


def _blocked(trace: Trace, report: Blocked, after: str) -> Iterator[RenderableType]:
    call = step_text(trace.instance, Choice(report.action.name, report.binding))
    verdict = ("is enabled", "green") if report.enabled else ("is not enabled", "bold red")
    head = Text.assemble(f"After {printable(after)}: ", (printable(call), "bold"), " ", verdict)
    yield head
    if report.ended:
        yield indented(words(report.ended))
    for guard in report.guards:
        mark = words("true   " if guard.holds else "FALSE  ", "green" if guard.holds else "bold red")
        mark.append(printable(guard.name), "bold")
        mark.append(printable(f"  ({guard.at})" if guard.at.file else ""), "dim")
        yield indented(mark)
        yield indented(words(guard.condition), 9)
        for reason in guard.reasons:
            for line in _reason(reason, guard.at):
                yield indented(line, 9)
