"""A trace as Markdown for a pull request: what is violated, a sequence diagram (Mermaid), the table, what led to it.

Names come from specs and logs of strangers. In Markdown they stand in code spans, where nothing is markup, a mention or a
link; in Mermaid every character that could mean something is written as its number.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from kvmodel.analyses.explain import Explanation
from kvmodel.analyses.why import Violation, violation
from kvmodel.errors import printable
from kvmodel.language.instance import Instance, State
from kvmodel.language.system import PropertyKind
from kvmodel.traces.trace import Trace
from kvmodel.verdict import Result
from kvmodel.views.table import Ownership, Row, given, node_of, ownership, rows, step_text
from kvmodel.views.text import ranges, refusal_head

__all__ = ["code", "mermaid_text", "prose", "result_markdown", "sequence_diagram", "trace_markdown"]

LONGEST_NAME = 120
LONGEST_PROSE = 400
LONGEST_COMMAND = 2_000
MOST_STEPS = 40  # that are drawn and listed; of a longer trace the last ones
MOST_PAGES = 4  # that have a lifeline and a column each
MOST_ARROWS = 2  # of one step
NAMELESS = "engine"  # where a spec says no node
FENCE = "```"


def trace_markdown(trace: Trace, explanation: Explanation | None, command: str) -> str:
    """A trace as Markdown, under 60 lines for a dozen steps; `command` reproduces it. Without a property there is neither a
    sentence nor an explanation."""
    lines: list[str] = []
    relevant = range(1, len(trace.steps) + 1) if explanation is None else explanation.relevant
    kept = _kept(trace, relevant)
    lines += [*_sentence(trace, kept, relevant), ""]
    lines += [FENCE + "mermaid", *sequence_diagram(trace, relevant).splitlines(), FENCE, ""]
    lines += [*_table(trace, kept, relevant), ""]
    if explanation is not None:
        lines += _explanation(trace, explanation)
    lines += ["", f"Reproduce: {code(command, LONGEST_COMMAND)}"]
    return "\n".join(lines) + "\n"


def result_markdown(result: Result, command: str, explanation: Explanation | None = None) -> str:
    """The result of a check as Markdown: a line for each property, and the trace that is shown, with its explanation."""
    lines = [f"### {code(result.spec)}: {result.verdict.value}", "", "| property | verdict | coverage |", "|---|---|---|"]
    for entry in result.properties:
        reason = f" ({prose(entry.reason)})" if entry.reason else ""
        lines.append(f"| {_cell(entry.name)} | {entry.verdict.value}{reason} | {prose(str(entry.coverage))} |")
    lines += ["", *(f"- **{prose(f.kind.value)}**: {code(f.subject)}, {prose(f.message)}" for f in result.findings)]
    if result.trace is None:
        return "\n".join([*lines, *([""] if result.findings else []), f"Reproduce: {code(command, LONGEST_COMMAND)}"]) + "\n"
    return "\n".join([*lines, ""]) + trace_markdown(result.trace, explanation, command)


def _kept(trace: Trace, relevant: Collection[int]) -> list[int]:
    """Numbers of the steps that are shown: all of them, or the last of those that matter."""
    numbers = list(range(1, len(trace.steps) + 1))
    return numbers if len(numbers) <= MOST_STEPS else sorted(relevant)[-MOST_STEPS:]


def _sentence(trace: Trace, kept: Sequence[int], relevant: Collection[int]) -> Iterator[str]:
    name, steps = code(trace.instance.system.name), len(trace.steps)
    length = f"{steps} step{'' if steps == 1 else 's'}"
    shown = violation(trace) if trace.property else None
    if shown is None:
        yield f"### A run of {name} of {length}"
        said = ""
    else:
        reached = shown.property.kind is PropertyKind.REACHABLE
        yield f"### {code(trace.property)} is {'shown' if reached else 'violated'} in {length}: {name}"
        said = _decided(shown, reached)
    notes = [said] if said else []
    facts = given(trace)
    if facts:
        notes.append(f"Given {code(', '.join(facts), 300)}.")
    if ownership(trace.instance.system) is not None:
        notes.append("Of a page: who holds it / whose data is in it (`-`: nobody, blank).")
    greyed = [number for number in range(1, steps + 1) if number not in relevant]
    if greyed:
        notes.append(f"Steps in brackets ({ranges(greyed)}) do not matter to it.")
    if len(kept) < steps:
        notes.append(f"{len(kept)} of the {steps} steps are shown.")
    yield ""
    yield " ".join(notes)


def _decided(shown: Violation, reached: bool) -> str:
    """The property in the spec's words, for which elements, and the part of it that decides."""
    arguments = ", ".join(f"{name} = {label}" for name, label in shown.arguments)
    doc = " ".join(shown.property.doc.split("\n\n")[0].split())
    parts = []
    for reason in shown.reasons[:2]:
        reads = ", ".join(f"{name} is {value}" for name, value in reason.reads)
        parts.append(f"{code(reason.text)} is {'true' if reached else 'not so'}{f' ({code(reads)})' if reads else ''}")
    told = f"For {code(arguments)}: " if arguments and parts else ""
    return f"{prose(doc)} {told}{' and '.join(parts)}{'.' if parts else ''}".strip()


def _explanation(trace: Trace, explanation: Explanation) -> Iterator[str]:
    for cause in explanation.chain:
        yield f"- **{_step(cause.step)}**: {prose(cause.sentence)}"
    refused = explanation.refused
    if refused is not None:
        where = f" ({code(refused.where)})" if refused.where else ""
        yield f"- **{prose(refusal_head(refused))}**: {prose(refused.what)}{where}"
    if explanation.stopped_by:
        flags = (f"{code(stopper.flag)}{'' if stopper.on else ' off'} ({_step(stopper.step)})" for stopper in explanation.stopped_by)
        others = f"; not {', '.join(map(code, explanation.not_stopped_by))}" if explanation.not_stopped_by else ""
        yield f"- **Would have stopped this run, alone**: {', '.join(flags)}{others}"


def _step(number: int) -> str:
    return f"step {number}" if number else "start"


# -- the table


def _table(trace: Trace, kept: Sequence[int], relevant: Collection[int]) -> Iterator[str]:
    lines = [row for row in rows(trace) if row.number == 0 or row.number in set(kept)]
    pages = ownership(trace.instance.system)
    labels = _page_labels(trace.instance, pages)
    columns = [i for i in range(len(labels)) if any(line.pages[i] != "-/-" for line in lines)]
    columns = columns if len(columns) <= MOST_PAGES else []
    nodes = any(line.node for line in lines)
    heads = ["step", *(["node"] if nodes else []), "action", "what changed", *(code(labels[i]) for i in columns)]
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    for line in lines:
        yield "| " + " | ".join(_cells(line, nodes, columns, relevant)) + " |"


def _cells(line: Row, nodes: bool, columns: Sequence[int], relevant: Collection[int]) -> Iterator[str]:
    yield str(line.number) if line.number == 0 or line.number in relevant else f"({line.number})"
    if nodes:
        yield _cell(line.node) if line.node else ""
    yield _cell(line.action) if line.number else "initial state"
    yield "<br>".join(map(_cell, line.changes))
    yield from (_cell(line.pages[i]) for i in columns)


def _page_labels(instance: Instance, pages: Ownership | None) -> list[str]:
    return [instance.label(pages.page, page) for page in instance.elements(pages.page)] if pages else []


# -- the diagram


def sequence_diagram(trace: Trace, relevant: Collection[int] | None = None) -> str:
    """A trace as the text of a Mermaid sequence diagram: a lifeline for each node and each page that changes (one for all
    pages when there are many), an arrow for each step; steps that are not in `relevant` have broken arrows."""
    matter = range(1, len(trace.steps) + 1) if relevant is None else relevant
    kept = _kept(trace, matter)
    instance = trace.instance
    pages = ownership(instance.system)
    labels = _page_labels(instance, pages)
    touched = {step: _touched(instance, pages, trace.states[step - 1], trace.states[step]) for step in kept}
    drawn = sorted({page for found in touched.values() for page in found})
    together = len(drawn) > MOST_PAGES
    nodes = {step: node_of(instance, trace.steps[step - 1]) or NAMELESS for step in kept}
    names = {name: f"n{number}" for number, name in enumerate(dict.fromkeys(nodes.values()))}
    lines = ["sequenceDiagram"]
    lines += [f"  participant {short} as {mermaid_text(name)}" for name, short in names.items()]
    lines += ["  participant p as pages"] if together else [f"  participant p{page} as {mermaid_text(labels[page])}" for page in drawn]
    for page in () if together else drawn:
        data = _page_text(instance, pages, trace.states[0], page)
        if data:
            lines.append(f"  Note over p{page}: {mermaid_text(data)}")
    for step in kept:
        source = names[nodes[step]]
        arrow = "->>" if step in matter else "-->>"
        targets = (["p"] if touched[step] else []) if together else [f"p{page}" for page in touched[step]]
        text = f"{step} {step_text(instance, trace.steps[step - 1])}"
        foreign = _foreign(instance, pages, trace.states[step - 1], trace.states[step])
        lines.append(f"  {source}{arrow}{(targets or [source])[-1]}: {mermaid_text(text + foreign)}")
        lines += [f"  {source}{arrow}{target}: {step}" for target in targets[:-1][-(MOST_ARROWS - 1) :]]
    if trace.property and kept:
        ends = [names[nodes[kept[-1]]], *([] if together else [f"p{page}" for page in touched[kept[-1]]][-1:])]
        lines.append(f"  Note over {','.join(ends)}: {mermaid_text(_end(trace))}")
    return "\n".join(lines) + "\n"


def _touched(instance: Instance, pages: Ownership | None, before: State, after: State) -> list[int]:
    """The pages of which a step changes something, in order."""
    if pages is None:
        return []
    found = set()
    for (name, index), old, new in zip(instance.state_layout.places, before.values, after.values, strict=True):
        if old != new:
            keys = instance.system.by_name[name].keys
            found |= {part for key, part in zip(keys, index, strict=True) if key == pages.page and isinstance(part, int)}
    return sorted(found)


def _page_text(instance: Instance, pages: Ownership | None, state: State, page: int) -> str:
    """``r0's data`` for a page that has some, or ''."""
    if pages is None:
        return ""
    content = state.values[instance.state_layout.slots["content", (page,)]]
    return "" if content is None else f"{instance.label(pages.holder, content)}'s data"


def _foreign(instance: Instance, pages: Ownership | None, before: State, after: State) -> str:
    """``, with r0's data in it`` for a step after which somebody holds a page with another one's data, and did not before."""
    if pages is None:
        return ""
    slots = instance.state_layout.slots

    def at_odds(state: State, page: int) -> bool:
        content = state.values[slots["content", (page,)]]
        holders = [holder for holder in instance.elements(pages.holder) if state.values[slots["holds", (holder, page)]]]
        return content is not None and bool(holders) and content not in holders

    for page in _touched(instance, pages, before, after):
        if at_odds(after, page) and not at_odds(before, page):
            return f", with {_page_text(instance, pages, after, page)} in it"
    return ""


def _end(trace: Trace) -> str:
    """The end of the diagram: the property, and what decides it."""
    shown = violation(trace)
    word = "shown" if shown.property.kind is PropertyKind.REACHABLE else "violated"
    reads = next((reason.reads for reason in shown.reasons if reason.reads), ())
    return f"{trace.property} is {word}" + (f", {reads[0][0]} is {reads[0][1]}" if reads else "")


# -- escaping


def code(text: str, limit: int = LONGEST_NAME) -> str:
    """`text` on one line as a code span, in which nothing is markup."""
    flat = " ".join(printable(text, limit).split("\n"))
    longest = max((len(run) for run in re.findall("`+", flat)), default=0)
    fence = "`" * (longest + 1)
    edge = " " if not flat.strip() or flat[0] in "` " or flat[-1] in "` " else ""
    return f"{fence}{edge}{flat}{edge}{fence}"


def _cell(text: str) -> str:
    """A code span in a cell of a table."""
    return code(text).replace("|", "\\|")


def prose(text: str, limit: int = LONGEST_PROSE) -> str:
    """`text` on one line, as it stands: no markup, no HTML, no link, no mention and no reference to an issue."""
    flat = " ".join(printable(text, limit).split())
    escaped = re.sub(r"([\\`*_{}\[\]<>|~$&!])", r"\\\1", flat)
    escaped = re.sub(r"([@#])", r"`\1`", escaped)
    return re.sub(r"(?i)(www|https?|ftp|mailto|xmpp)([.:])", r"\1\\\2", escaped)


def mermaid_text(text: str, limit: int = LONGEST_NAME) -> str:
    """`text` on one line for Mermaid: every character that is not a letter, a digit or harmless is written as its number."""
    flat = " ".join(printable(text, limit).split())
    return "".join(c if c.isascii() and (c.isalnum() or c in " ._,()='/-") else f"#{ord(c)};" for c in flat) or "#8203;"

