"""A trace as the rows of a table: the step, what it changed, and for each page who holds it and whose data is in it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.table import Column, Table
from rich.text import Text

from kvmodel.analyses.ownership import Ownership, ownership
from kvmodel.language.instance import Binding, Instance, State
from kvmodel.language.system import Anything, Variable
from kvmodel.language.types import Bool, Number, Type, Value
from kvmodel.traces.observed import call_text
from kvmodel.traces.trace import Choice, Trace
from kvmodel.views.console import words

__all__ = ["Ownership", "Row", "changes", "chosen", "given", "ownership", "rows", "step_text", "trace_table"]

MOST_PLACES = 4  # places of one change that are named; of more, the number is told
NOBODY = "-"
SHORT = 16  # columns that a column of text gets even where there is no room


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a trace: the step that was taken (0: the initial state) and the state after it."""

    number: int
    node: str
    action: str
    changes: tuple[str, ...]
    pages: tuple[str, ...]


def step_text(instance: Instance, choice: Choice) -> str:
    """A step by the names of its parameters: ``land(r=r0, source=prefill.p0, target=decode.p0)``."""
    parameters = instance.system.action(choice.action).parameters
    arguments = [f"{p.name}={instance.label(p.domain, value)}" for p, value in zip(parameters, choice.binding, strict=True)]
    return f"{choice.action}({', '.join(arguments)})"


def given(trace: Trace) -> tuple[str, ...]:
    """The rigid values of the run, each as ``prompt[r0] = 2``; of relations only the places that are true."""
    instance, layout = trace.instance, trace.instance.rigid_layout
    found = []
    for (name, index), value in zip(layout.places, trace.states[0].rigid, strict=True):
        variable = instance.system.by_name[name]
        if variable.partition or value is False or (isinstance(variable.type, Bool) and not value):
            continue
        label = _place(instance, variable, index)
        found.append(label if isinstance(variable.type, Bool) else f"{label} = {_shown(instance, variable.type, value)}")
    return tuple(found)


def chosen(trace: Trace, *, any_state: bool = False) -> tuple[str, ...]:
    """What the initial state has where a run may start with anything, as ``client[r0] = OK``; plain values (false, none,
    the first member of an enumeration) are left out, and so is what the page columns show. With `any_state`, of every
    variable."""
    instance, layout = trace.instance, trace.instance.state_layout
    pages = ownership(instance.system)
    found = []
    for (name, index), value in zip(layout.places, trace.states[0].values, strict=True):
        variable = instance.system.by_name[name]
        plain = value is None or value is False or value == instance.values_of(variable.type)[0]
        if not (any_state or isinstance(variable.initial, Anything)) or plain or (pages and name in (pages.holds.name, pages.content.name)):
            continue
        place = _place(instance, variable, index)
        found.append(place if any_state and value is True else f"{place} = {_shown(instance, variable.type, value)}")
    return tuple(found)


def changes(instance: Instance, before: State, after: State) -> tuple[str, ...]:
    """What differs between two states, in order of declaration: ``holds[r0,decode.p0]: no -> yes``."""
    layout = instance.state_layout
    found: list[tuple[str, str, str]] = []
    for (name, index), old, new in zip(layout.places, before.values, after.values, strict=True):
        if old != new:
            variable = instance.system.by_name[name]
            change = f"{_shown(instance, variable.type, old)} -> {_shown(instance, variable.type, new)}"
            found.append((name, _place(instance, variable, index), change))
    lines = []
    for name, mine in groupby(found, key=lambda entry: entry[0]):
        together: dict[str, list[str]] = {}
        for _, where, change in mine:
            together.setdefault(change, []).append(where)
        for change, places in together.items():
            shown = f"{name}[{len(places)} places]" if len(places) > MOST_PLACES else " ".join(places)
            lines.append(f"{shown}: {change}")
    return tuple(lines)


def _place(instance: Instance, variable: Variable, index: Binding) -> str:
    """A variable at an index, without blanks, so that a line of a table does not break inside it."""
    keys = ",".join(instance.label(key, part) for key, part in zip(variable.keys, index, strict=True))
    return f"{variable.name}[{keys}]" if keys else variable.name


def _shown(instance: Instance, kind: Type, value: Value) -> str:
    return str(value) if isinstance(kind, Number) else instance.show(kind, value)


def rows(trace: Trace, *, any_state: bool = False) -> Iterator[Row]:
    """The initial state and every step; `pages` has ``HOLDERS/CONTENT`` for each page of the instance. With `any_state` the
    run starts somewhere: whatever is not plain in its first state is told."""
    instance = trace.instance
    pages = ownership(instance.system)
    first = "(some state)" if any_state else "(initial state)"
    yield Row(0, "", first, chosen(trace, any_state=any_state), _pages(instance, pages, trace.states[0]))
    for number, choice in enumerate(trace.steps, start=1):
        before, after = trace.states[number - 1], trace.states[number]
        step = step_text(instance, choice) if trace.observed is None else call_text(trace.observed.calls[number - 1])
        yield Row(number, node_of(instance, choice), step, changes(instance, before, after), _pages(instance, pages, after))


def node_of(instance: Instance, choice: Choice) -> str:
    """The node on which a step happens: as its action says, otherwise that of the one page that it is about."""
    action = instance.system.action(choice.action)
    if action.node:
        return action.node
    pairs = zip(action.parameters, choice.binding, strict=True)
    parts = {instance.part_of.get((p.domain.name, value)) for p, value in pairs if isinstance(value, int)} - {None}
    only = parts.pop() if len(parts) == 1 else None
    return only.lower() if only else ""


def _pages(instance: Instance, pages: Ownership | None, state: State) -> tuple[str, ...]:
    if pages is None:
        return ()
    slots = instance.state_layout.slots
    holders = instance.elements(pages.holder)
    found = []
    for page in instance.elements(pages.page):
        held = [instance.label(pages.holder, h) for h in holders if state.values[slots["holds", (h, page)]]]
        content = state.values[slots["content", (page,)]]
        found.append(f"{'+'.join(held) or NOBODY}/{NOBODY if content is None else instance.label(pages.holder, content)}")
    return tuple(found)


def trace_table(trace: Trace, width: int, *, any_state: bool = False, faint: Collection[int] = ()) -> tuple[Table, str]:
    """The trace as a table for `width` columns, and a sentence that explains its page columns (or ''). The steps whose numbers
    are in `faint` are dimmed.

    Pages that the run never touches are left out; when the rest does not fit either, one column names the pages that
    the step changed.
    """
    lines = list(rows(trace, any_state=any_state))
    pages = ownership(trace.instance.system)
    labels = [trace.instance.label(pages.page, page) for page in trace.instance.elements(pages.page)] if pages else []
    touched = [i for i in range(len(labels)) if any(line.pages[i] != f"{NOBODY}/{NOBODY}" for line in lines)]
    widths = [max(*(len(part) for part in _header(labels[i]).split("\n")), *(len(line.pages[i]) for line in lines)) for i in touched]
    apart = sum(widths) + 2 * len(widths) <= width * 0.45
    nodes = max(len(line.node) for line in lines)
    narrow = [len("step"), *([nodes] if nodes else []), *(widths if apart else [])]
    action, change = _shares(lines, width - sum(narrow) - 2 * len(narrow) - 2 - (0 if apart else SHORT))
    heads = [Column("step", justify="right", no_wrap=True)]
    heads += [Column("node", no_wrap=True)] if nodes else []
    heads += [Column("action", overflow="fold", width=action), Column("what changed", overflow="fold", width=change)]
    heads += [Column(_header(labels[i]), no_wrap=True) for i in touched] if apart else [Column("pages", overflow="fold")]
    table = Table(*heads, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    previous: tuple[str, ...] = lines[0].pages
    for line in lines:
        cells = [words(str(line.number), "dim"), *([words(line.node)] if nodes else [])]
        dimmed = line.number in faint
        style = "dim" if line.number == 0 or dimmed else "cyan"
        cells += [words(line.action, style), words("\n".join(_fitted(line.changes, change)))]
        changed = [i for i in touched if line.pages[i] != previous[i]]
        if apart:
            cells += [_page(line.pages[i], i in changed) for i in touched]
        else:
            shown = changed if line.number else touched[:0]
            cells.append(words("\n".join(f"{labels[i]} {line.pages[i]}" for i in shown)))
        table.add_row(*cells, style="dim" if dimmed else None)
        previous = line.pages
    legend = f"pages: who holds it / whose data is in it ({NOBODY}: nobody, blank)" if touched else ""
    return table, legend


def _shares(lines: Sequence[Row], room: int) -> tuple[int, int]:
    """The widths of the columns of actions and of changes. A long action goes over two lines before a change does: most
    steps change several places, so that it costs no line."""
    actions = max(len("action"), *(len(line.action) for line in lines))
    changed = max((len(change) for line in lines for change in line.changes), default=0)
    single = max((len(change) for line in lines for change in line.changes if "] " not in change.split(":")[0]), default=0)
    changed = max(changed, len("what changed"))
    if actions + changed <= room:
        return actions, changed
    word = max(len(word) for line in lines for word in line.action.split())
    change = max(SHORT, min(max(single, room - actions), room - word))
    return max(word, room - change), change


def _fitted(lines: Sequence[str], width: int) -> Iterator[str]:
    """Changes that are too long for one line have their values on the next."""
    for line in lines:
        place, colon, values = line.partition(": ")
        yield line if len(line) <= width or not colon else f"{place}:\n  {values}"


def _header(label: str) -> str:
    """The label of a page above its column; the pool's name on a line of its own."""
    return label.replace(".", "\n", 1)


def _page(cell: str, changed: bool) -> Text:
    holders, _, content = cell.partition("/")
    foreign = content != NOBODY and content not in holders.split("+") and holders != NOBODY
    return words(cell, ("bold red" if foreign else "bold") if changed else ("red" if foreign else ""))
