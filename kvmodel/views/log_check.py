"""What people read of a checked log: what is wrong first and how it came to it, the verdicts, and what was seen."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from kvmodel.engines.log.check import LogResult
from kvmodel.engines.log.kv_events import KvResult
from kvmodel.engines.log.story import Story
from kvmodel.errors import printable
from kvmodel.verdict import PropertyResult, Verdict
from kvmodel.views.console import PLAIN_WIDTH, columns, draw, indented, words

__all__ = ["kv_text", "log_text"]

STYLES = {Verdict.HOLDS: "green", Verdict.VIOLATED: "bold red", Verdict.UNDECIDED: "yellow"}


def log_text(result: LogResult, *, width: int = PLAIN_WIDTH, colour: bool = False) -> str:
    """Everything that a check of a log has to say, as text of at most `width` columns."""
    parts: list[RenderableType] = []
    for number, story in enumerate(result.stories):
        parts += [*_story(story, whole=not number), Text()]
    parts += [_head(result), Text(), _table(result)]
    if result.remarks:
        parts += [Text(), words("not told by the log", "bold"), *(indented(words(remark)) for remark in result.remarks)]
    if result.never_seen and result.events:
        parts += [Text(), words("no event of", "bold"), indented(words(", ".join(result.never_seen)))]
    if result.error is not None:
        parts += [Text(), words(f"error: {result.error}", "bold red")]
        parts.append(words(f"{result.events:,} events before it were checked; nothing from there on was." if result.events else
                           "No event was checked."))  # fmt: skip
    return draw(parts, width=width, colour=colour)


def kv_text(result: KvResult, *, width: int = PLAIN_WIDTH, colour: bool = False) -> str:
    """Everything that a replay of KV events has to say, as text of at most `width` columns."""
    parts: list[RenderableType] = []
    for found in result.findings:
        parts += [words(f"batch {found.place}: {found.headline}", "bold"), indented(words(found.subject)), Text()]
    head = words("KV events: ", "bold")
    head.append(result.verdict.value, STYLES[result.verdict])
    counts = f"{result.stored:,} blocks stored, {result.removed:,} removed, {result.cleared:,} times all cleared"
    head.append(printable(f"\n{result.batches:,} batches, {counts}; {result.indexed:,} in the index; {result.seconds:.1f}s"))
    table = columns("property", "verdict", "")
    reasons: dict[str, list[str]] = {}
    for entry in result.properties:
        reasons.setdefault(f"{entry.verdict.value}|{entry.reason}", []).append(entry.name)
    shown = {entry.verdict.value: entry.verdict for entry in result.properties}
    for key, names in reasons.items():
        verdict, _, reason = key.partition("|")
        table.add_row(words("\n".join(names)), words(verdict, STYLES[shown[verdict]]), words(reason))
    parts += [head, Text(), table]
    if result.remarks:
        parts += [Text(), *(indented(words(remark)) for remark in result.remarks)]
    if result.error is not None:
        parts += [Text(), words(f"error: {result.error}", "bold red")]
    return draw(parts, width=width, colour=colour)


def _head(result: LogResult) -> Text:
    engine = " ".join(part for part in (result.header.engine, result.header.version) if part)
    line = words(f"{result.spec}: ", "bold")
    line.append(result.verdict.value, STYLES[result.verdict])
    broken = [entry.name for entry in result.properties if entry.verdict is Verdict.VIOLATED]
    if broken:
        line.append(printable(f", {', '.join(broken)}"))
    pages = f"{result.pages:,} of {result.pool_pages:,} pages named"
    counts = f"{result.events:,} events, {result.requests:,} requests, {pages}; {result.seconds:.1f}s"
    line.append(printable(f"\n{'log of ' + engine if engine else 'log'}: one run, sampled; {counts}"))
    return line


def _table(result: LogResult) -> RenderableType:
    table = columns("property", "verdict", "")
    for entry in result.properties:
        table.add_row(words(entry.name), words(entry.verdict.value, STYLES[entry.verdict]), words(_told(entry, result)))
    return table


def _told(entry: PropertyResult, result: LogResult) -> str:
    if entry.verdict is not Verdict.VIOLATED:
        return entry.reason
    return next((f"line {story.line}" for story in result.stories if story.subject == entry.name), "")


def _story(story: Story, *, whole: bool) -> Iterator[RenderableType]:
    """A story; those after the first without the history of pages, which is mostly the same."""
    yield words(story.headline, "bold")
    where = words(f"{story.subject}: {' '.join(story.what.split())}")
    where.append(printable(f"  ({story.where})" if story.where else ""), "dim")
    yield indented(where)
    for reason in story.reasons if whole else ():
        values = ", ".join(f"{name} is {value}" for name, value in reason.reads)
        line = Text.assemble(("because ", "bold"), printable(reason.text))
        line.append(printable(f"   [{values}]" if values else ""))
        yield indented(line)
    facts = [fact for fact in story.facts if fact.line and fact.line != story.line]
    if facts and whole:
        table = columns("", "", "")
        for fact in facts:
            table.add_row(words(fact.text), words(f"since line {fact.line:,}"), words(fact.event, "dim"))
        yield indented(table)
    for label, entries in story.histories if whole else ():
        if not entries:
            continue
        yield Text()
        yield indented(words(f"{label}, its last {len(entries)} changes" if len(entries) > 1 else f"{label}, its only change", "bold"))
        table = columns("", "", "")
        table.columns[0].justify = "right"
        for entry in entries:
            table.add_row(words(f"line {entry.line:,}", "dim"), words(entry.event), words(entry.change))
        yield indented(table)
