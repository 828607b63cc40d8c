"""What people read of `kvmodel defences`: the minimal sets that are enough, the maximal ones that are not; as text or Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from kvmodel.analyses.defences import Defences, Enough, NotEnough, Reversal
from kvmodel.errors import printable
from kvmodel.views.console import PLAIN_WIDTH, columns, draw, indented, words
from kvmodel.views.text import trace_text

__all__ = ["defences_markdown", "defences_text", "enough_rows", "not_enough_rows"]

MOST_UNDECIDED = 20  # rows; a long list of what was not decided helps nobody

ENOUGH = "enough, and with any one of these left out no longer: proved for any size with these flags on and no other"
NOT_ENOUGH = "not enough, and with any one of these on as well no longer violated: every flag is on but these"


def defences_text(result: Defences, command: str, *, verbose: bool = False, width: int = PLAIN_WIDTH, colour: bool = False) -> str:
    """Everything that was found, as text of at most `width` columns; `verbose` adds each proof's needs and each run."""
    parts: list[RenderableType] = [words(f"{result.spec}: {result.asked}", "bold")]
    parts += [words(line) for line in _setting(result)]
    parts.append(Text())
    if result.enough:
        parts += [words(ENOUGH, "green"), Text()]
        parts.append(indented(_table(ENOUGH_HEADS, enough_rows(result.enough))))
    else:
        parts.append(words("no set of flags was proved to be enough", "yellow"))
    parts.append(Text())
    if result.not_enough:
        parts += [words(NOT_ENOUGH, "bold red"), Text()]
        parts.append(indented(_table(NOT_ENOUGH_HEADS, not_enough_rows(result))))
    else:
        parts.append(words("no set of flags was found under which it is violated", "green"))
    if result.undecided:
        parts += [Text(), words("undecided", "yellow"), Text()]
        table = columns("flags on", "reason")
        for entry in result.undecided[:MOST_UNDECIDED]:
            table.add_row(words(_named(entry.on)), words(entry.reason))
        parts.append(indented(table))
        if len(result.undecided) > MOST_UNDECIDED:
            parts.append(indented(words(f"and {len(result.undecided) - MOST_UNDECIDED:,} more")))
    parts += [Text(), *(words(line) for line in _monotone(result))]
    if verbose:
        parts += list(_details(result))
    parts += [Text(), words("reproduce", "bold"), indented(words(command))]
    text = draw(parts, width=width, colour=colour)
    if verbose:
        for number, short in enumerate(result.not_enough, start=1):
            text += draw([Text(), words(f"run {number}: all on but {_but(result, short)}", "bold"), Text()], width=width, colour=colour)
            text += trace_text(short.trace, width=width, colour=colour)
    return text


def defences_markdown(result: Defences, command: str) -> str:
    """The same tables as Markdown, for a pull request."""
    lines = [f"### `{_cell(result.spec)}`: `{_cell(result.asked)}`", "", *(_escaped(line) + "  " for line in _setting(result)), ""]
    if result.enough:
        lines += [f"{ENOUGH.capitalize()}.", "", *_markdown(ENOUGH_HEADS, enough_rows(result.enough)), ""]
    else:
        lines += ["No set of flags was proved to be enough.", ""]
    if result.not_enough:
        lines += [f"{NOT_ENOUGH.capitalize()}.", "", *_markdown(NOT_ENOUGH_HEADS, not_enough_rows(result)), ""]
    else:
        lines += ["No set of flags was found under which it is violated.", ""]
    if result.undecided:
        rows = [(_named(entry.on), entry.reason) for entry in result.undecided[:MOST_UNDECIDED]]
        lines += ["Undecided:", "", *_markdown(("flags on", "reason"), rows), ""]
    lines += [_escaped(line) for line in _monotone(result)]
    return "\n".join([*lines, "", f"`{_cell(command)}`", ""])


ENOUGH_HEADS = ("flags on", "claims", "conditions", "seconds")
NOT_ENOUGH_HEADS = ("flags off, all others on", "shortest run", "size")


def enough_rows(enough: Sequence[Enough]) -> list[tuple[str, ...]]:
    """One row a minimal set: its flags, the claims and conditions of its proof, and how long the solver took for them."""
    return [
        (_named(entry.on), str(len(entry.proof.claims)), str(len(entry.proof.conditions)), f"{entry.proof.solver_seconds:.1f}")
        for entry in enough
    ]


def not_enough_rows(result: Defences) -> list[tuple[str, ...]]:
    """One row a maximal set: the flags that are off, the length of its run, and the size of the instance."""
    size = " ".join(f"{name}={count}" for name, count in result.size)
    return [(_but(result, entry), f"{entry.length} step{'' if entry.length == 1 else 's'}", size) for entry in result.not_enough]


def _but(result: Defences, entry: NotEnough) -> str:
    return _named(tuple(flag for flag in result.flags if flag not in entry.on))


def _named(flags: Sequence[str]) -> str:
    return ", ".join(flags) or "none"


def _setting(result: Defences) -> Iterator[str]:
    total = result.assignments.count
    yield f"every choice of {len(result.flags)} flag{'' if len(result.flags) == 1 else 's'}: {', '.join(result.flags)}"
    if result.fixed:
        yield f"the others as they are: {', '.join(f'{name}={_switch(value)}' for name, value in result.fixed)}"
    counts = [f"{result.proved.bit_count():,} proved (any size)", f"{result.violated.bit_count():,} violated"]
    if result.open:
        counts.append(f"{result.open.bit_count():,} undecided" + (f" ({result.stopped})" if result.stopped else ""))
    yield f"{total:,} sets of flags: {', '.join(counts)}"
    yield f"proofs: {result.proofs}, explorations: {result.explorations}, in {result.seconds:.1f} s"


def _switch(value: bool) -> str:
    return "on" if value else "off"


def _monotone(result: Defences) -> Iterator[str]:
    if result.monotone:
        yield "More is never worse here: with one more flag on, no proved set is violated (checked for every set)."
    elif result.open:
        yield "While some sets are undecided, the rows above are minimal and maximal only among those that are decided."
    if result.reversals:
        yield "More can be worse here:"
        yield from (f"  {_reversal(entry)}" for entry in result.reversals)


def _reversal(entry: Reversal) -> str:
    more = f" (and so for {entry.count - 1:,} more sets)" if entry.count > 1 else ""
    return f"proved with {_named(entry.on)} on, violated with {entry.flag} on as well{more}"


def _details(result: Defences) -> Iterator[RenderableType]:
    for number, entry in enumerate(result.enough, start=1):
        needs = ", ".join(f"{flag}={_switch(value)}" for flag, value in entry.proof.needs) or "no flag at all"
        yield Text()
        yield words(f"proof {number}: {_named(entry.on)}", "bold")
        yield indented(words(f"holds wherever {needs}"))
        yield indented(words(f"inductive together: {', '.join(entry.proof.claims)}"))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    table = columns("", *heads)
    for column in table.columns[2:]:
        column.justify = "right"
    for number, row in enumerate(rows, start=1):
        table.add_row(words(str(number), "dim"), *(words(cell) for cell in row))
    return table


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(heads)} |", f"|---{'|---:' * (len(heads) - 1)}|"]
    for first, *others in rows:
        names = ", ".join(f"`{_cell(name)}`" for name in first.split(", ")) if first != "none" else "none"
        lines.append(f"| {names} | {' | '.join(_escaped(cell) for cell in others)} |")
    return lines


def _cell(text: str) -> str:
    """`text` inside a code span."""
    return printable(text).replace("`", "'").replace("|", "\\|").replace("\n", " ")


def _escaped(text: str) -> str:
    """`text` as plain Markdown."""
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in printable(text).replace("\n", " "))
