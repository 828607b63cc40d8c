"""How it came to what is wrong: the log is read a second time, up to there, with an eye on the pages and requests that
decide it. What is told is when each decisive fact became true, and what happened to each page."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

from kvmodel.analyses.why import Reason, reasons
from kvmodel.engines.log.events import PAGE
from kvmodel.engines.log.monitor import Broken, Monitor, Stop, Unexplained
from kvmodel.engines.log.reader import LogError, LogReader
from kvmodel.engines.log.redact import Redaction
from kvmodel.errors import printable
from kvmodel.language.expressions import Bound, Expr, Quantified, Read, children
from kvmodel.language.instance import Binding, Instance, State
from kvmodel.language.system import Guard, Variable
from kvmodel.language.text import expression, place
from kvmodel.language.types import Domain, Element, Maybe, Sort, Value
from kvmodel.readings.run import Interpreter
from kvmodel.readings.sparse import default_value

__all__ = ["ALLOWED_STEP", "Entry", "Fact", "Story", "Watch"]

ALLOWED_STEP = "allowed_step"
"""What is asked beside the spec's own properties: every event is a step that the spec allows."""

MOST_PAGES, MOST_REQUESTS = 48, 12
"""Of what is around, for finding out what decides."""
MOST_HISTORIES = 3
LONGEST_HISTORY = 12
MOST_STORIES = 5
MOST_NAMED = 6

PHRASES = {
    ("holds", True): "{0} holds {1}",
    ("holds", False): "{0} does not hold {1}",
    ("writing", True): "a write for {0} to {1} is in flight",
    ("reading", True): "{0} reads {1}",
    ("written", True): "{1} was written for {0}",
    ("written", False): "{1} is not written for {0}",
    ("free", True): "{0} is free",
    ("free", False): "{0} is not free",
    ("quarantined", True): "{0} is held back",
}
SAID = {"holds": "held by {0}", "writing": "write for {0} in flight", "reading": "read by {0}", "written": "written for {0}"}


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that decides, in words; `line` is where it became so (0: it was so at the beginning)."""

    text: str
    line: int
    event: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the log that changed something about a page, and what it changed."""

    line: int
    event: str
    change: str


@dataclass(frozen=True)
class Story:
    """What is wrong in the event of line `line`: `subject` is `allowed_step` or a property, `what` the guard or the property's
    description, `reasons` what decides it in the spec's notation, `facts` the same in words with the lines where it became
    so, `histories` what happened to each page. `headline` is all of it in a sentence."""

    line: int
    seq: int
    event: str
    subject: str
    what: str
    where: str
    headline: str
    reasons: tuple[Reason, ...] = ()
    facts: tuple[Fact, ...] = ()
    histories: tuple[tuple[str, tuple[Entry, ...]], ...] = field(default=())
    earlier: int = 0


@dataclass(frozen=True)
class _Slice(Instance):
    """A few elements of a large instance, called as the log calls them."""

    labels: Mapping[tuple[str, int], str] = field(default_factory=dict)

    def label(self, domain: Domain, value: Value) -> str:
        return self.labels.get((domain.name, cast(int, value))) or super().label(domain, value)


class _Teller:
    """Tells of one thing that is wrong."""

    def __init__(self, monitor: Monitor, redaction: Redaction) -> None:
        self.monitor = monitor
        self.redaction = redaction
        self.system = monitor.plan.original if monitor.plan.partial is None else monitor.plan.system

    def label(self, sort: str, element: int) -> str:
        if sort == PAGE:
            pools = self.monitor.events.pools
            name, first = next((n, f) for n, (f, size) in pools.items() if f <= element < f + size)
            return f"{name}.p{element - first}" if len(pools) > 1 else f"p{element}"
        if element == self.monitor.plan.stranger:
            return f"an earlier {sort.lower()}"
        name = self.monitor.names[sort].name[element] if element < len(self.monitor.names[sort].name) else ""
        return self.redaction.name(name) if name else f"{sort.lower()} {element}"

    def event(self, event: Any) -> str:
        """An event as a call: ``allocate(r2, 3 4) on decode``."""
        entry = self.monitor.events.actions[event.__class__.__name__]
        parts = []
        for taken in entry.takes:
            if taken.is_name:
                parts.append(self.redaction.name(getattr(event, taken.field)))
                continue
            value = getattr(event, taken.field)
            listed = taken.is_page and value is None
            if listed:
                value = event.pages
            shown = [str(page) for page in value[:MOST_NAMED]] if isinstance(value, list) else [str(value)]
            if isinstance(value, list) and len(value) > MOST_NAMED:
                shown.append(f"... {len(value):,} in all")
            parts.append(" ".join(shown) if listed else f"{taken.parameter.name}={' '.join(shown)}")
        where = getattr(event, "pool", "") or event.node
        return f"{entry.action.name}({', '.join(parts)})" + (f" on {printable(where, 40)}" if where and not entry.action.node else "")

    # -- what decides, in the state as it is

    def draft(self, subject: str, condition: Expr, parameters: Sequence[Bound], binding: Binding, line: int) -> _Draft:
        """What decides that a condition is false for a binding: reasons, and the places that they look at."""
        elements: dict[str, set[int]] = {}
        for parameter, element in zip(parameters, binding, strict=True):
            if isinstance(element, int):
                elements.setdefault(parameter.domain.name, set()).add(element)
        small, state, order = self.slice(self.around(elements))
        numbers = {sort: {element: number for number, element in enumerate(found)} for sort, found in order.items()}
        environment = {
            parameter.name: numbers[parameter.domain.name].get(element, 0) if isinstance(element, int) else element
            for parameter, element in zip(parameters, binding, strict=True)
        }
        interpreter = Interpreter(small)
        found = reasons(interpreter, condition, state, environment)
        wanted = [read for reason in found for read, _ in reason.reads]
        cells: dict[tuple[str, Binding], Value] = {}
        layout, values = small.state_layout, dict(zip(small.state_layout.places, state.values, strict=True))
        direct = set(_direct_reads(condition, environment))
        for name, index in layout.places:
            variable = self.system.by_name[name]
            keys = variable.keys
            text = place(name, tuple(small.label(key, part) for key, part in zip(keys, index, strict=True)))
            value, default = values[name, index], default_value(self.monitor.plan.instance, variable)
            if text in wanted or ((name, index) in direct and value != default):
                full = _full(keys, index, order)
                cells[name, full] = self.monitor.state.get(name, full)
        return _Draft(subject, line, tuple(found), cells)

    def slice(self, elements: Mapping[str, set[int]]) -> tuple[_Slice, State, dict[str, list[int]]]:
        """An instance of the given elements alone, the state as it is for them, and which they are."""
        monitor, system = self.monitor, self.system
        order = {sort.name: sorted(elements.get(sort.name, ())) or [0] for sort in system.sorts}
        sizes = tuple((sort, len(found)) for sort, found in order.items())
        parts: tuple[tuple[str, tuple[int, ...]], ...] = ()
        if monitor.events.partition is not None:
            pools = monitor.events.pools.values()
            parts = ((PAGE, tuple(sum(first <= page < first + size for page in order[PAGE]) for first, size in pools)),)
        labels = {(sort, number): self.label(sort, element) for sort, found in order.items() for number, element in enumerate(found)}
        small = _Slice(system, sizes, parts, labels)

        def value(name: str, index: Binding) -> Value:
            variable = system.by_name[name]
            if variable.partition:
                return small.part_of[PAGE, cast(int, index[0])]
            found = monitor.state.get(name, _full(variable.keys, index, order))
            match variable.type:
                case Maybe(Sort(name=sort)) | Element(Sort(name=sort)) if found is not None:
                    members = order[sort]
                    return members.index(found) if found in members else None if isinstance(variable.type, Maybe) else 0
            return found

        rigid = tuple(value(name, index) for name, index in small.rigid_layout.places)
        return small, State(rigid, tuple(value(name, index) for name, index in small.state_layout.places)), order

    def around(self, elements: Mapping[str, set[int]]) -> dict[str, set[int]]:
        """The elements, the pages that are related to them now, and what is related to these pages; a few of each."""
        found = {sort: set(members) for sort, members in elements.items()}
        related = [
            (dict.fromkeys(names), self.monitor.state.stored(variable.name), names)
            for variable in self.system.state_variables
            if PAGE in (names := _sorts_of(variable)) and len(names) > 1
        ]
        tuples = [dict(zip(names, (*index, value), strict=False)) for _, stored, names in related for index, value in stored]
        pages = found.setdefault(PAGE, set())
        wanted = [(sort, members) for sort, members in elements.items() if sort != PAGE]
        for whole in tuples:
            if len(pages) < MOST_PAGES and any(whole.get(sort) in members for sort, members in wanted):
                pages.add(cast(int, whole[PAGE]))
        for whole in tuples:
            if whole[PAGE] in pages:
                for sort, element in whole.items():
                    members = found.setdefault(sort, set())
                    if sort != PAGE and isinstance(element, int) and len(members) < MOST_REQUESTS:
                        members.add(element)
        return found

    # -- in words

    def fact(self, name: str, index: Binding, value: Value) -> str:
        """A place and its value as a clause."""
        variable = self.system.by_name[name]
        pairs = zip(variable.keys, index, strict=True)
        labels = tuple(self.label(key.name, cast(int, part)) if isinstance(key, Sort) else str(part) for key, part in pairs)
        phrase = PHRASES.get((name, value)) if isinstance(value, bool) else None
        if phrase is not None:
            return phrase.format(*labels)
        if name == "content" and len(labels) == 1:
            return f"nobody's data is in {labels[0]}" if value is None else f"{self.value(variable, value)}'s data is in {labels[0]}"
        return f"{place(name, labels)} is {self.value(variable, value)}"

    def value(self, variable: Variable, value: Value) -> str:
        match variable.type:
            case Maybe(Sort(name=sort)) | Element(Sort(name=sort)) if value is not None:
                return self.label(sort, cast(int, value))
        return "none" if value is None else {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)

    def page(self, page: int) -> dict[str, Value | frozenset[int]]:
        """What can quickly be told of a page."""
        state = self.monitor.state
        found: dict[str, Value | frozenset[int]] = {}
        for variable in self.system.state_variables:
            keys = [key.name for key in variable.keys]
            if keys == [PAGE]:
                found[variable.name] = state.get(variable.name, (page,))
            elif len(keys) == 2 and keys[1] == PAGE and (column := state.column(variable.name, page)) is not None:
                found[variable.name] = column
        return found

    def change(self, page: int, before: Mapping[str, Value | frozenset[int]], after: Mapping[str, Value | frozenset[int]]) -> str:
        """What changed about a page, in words."""
        parts = []
        for name, new in after.items():
            old = before.get(name)
            variable = self.system.by_name[name]
            if isinstance(new, frozenset):
                sort = variable.keys[0].name
                gone = old if isinstance(old, frozenset) else frozenset[int]()
                said = SAID.get(name, f"{name} {{0}}")
                parts += [said.format(self.label(sort, element)) for element in sorted(new - gone)]
                parts += [f"no longer {said.format(self.label(sort, element))}" for element in sorted(gone - new)]
            elif new != old:
                label = self.label(PAGE, page)
                parts.append(self.fact(name, (page,), new).replace(f"{label} is ", "").replace(f" is in {label}", ""))
        return ", ".join(parts)


@dataclass
class _Draft:
    """What is wrong in a line, before its history is known."""

    subject: str
    line: int
    reasons: tuple[Reason, ...]
    cells: dict[tuple[str, Binding], Value]
    seq: int = 0
    event: str = ""
    what: str = ""
    where: str = ""


def _full(keys: Sequence[Domain], index: Binding, order: Mapping[str, Sequence[int]]) -> Binding:
    """An index of a slice as one of the whole state."""
    return tuple(
        order[key.name][part] if isinstance(part, int) and isinstance(key, Sort) else part for key, part in zip(keys, index, strict=True)
    )


def _sorts_of(variable: Variable) -> list[str]:
    """The sorts of the keys of a variable, then of its values."""
    names = [key.name for key in variable.keys]
    match variable.type:
        case Maybe(Sort(name=sort)) | Element(Sort(name=sort)):
            names.append(sort)
    return names


def _direct_reads(expr: Expr, environment: Mapping[str, Value]) -> Iterator[tuple[str, Binding]]:
    """The places that a condition looks at for the parameters in `environment` themselves."""
    if isinstance(expr, Quantified):
        hidden = {variable.name for variable in expr.variables}
        environment = {name: value for name, value in environment.items() if name not in hidden}
    if isinstance(expr, Read) and all(isinstance(part, Bound) and part.name in environment for part in expr.index):
        yield expr.variable, tuple(environment[part.name] for part in expr.index if isinstance(part, Bound))
    for child in children(expr):
        yield from _direct_reads(child, environment)


class Watch:
    """Collects what is wrong while a log is followed, and tells of it afterwards."""

    def __init__(self, monitor: Monitor, redaction: Redaction) -> None:
        self.monitor = monitor
        self.teller = _Teller(monitor, redaction)
        self.drafts: list[_Draft] = []
        self.left_out = 0

    def broken(self, found: Broken, event: Any) -> None:
        """Note the first violation of a property."""
        if len(self.drafts) >= MOST_STORIES:
            self.left_out += 1
            return
        system = self.teller.system
        candidate = system.property(found.name)
        condition: Expr = candidate.condition
        draft = self.teller.draft(found.name, condition, candidate.parameters, found.binding, found.line)
        draft.seq, draft.event, draft.what, draft.where = found.seq, self.teller.event(event), candidate.doc, str(candidate.at)
        self.drafts.append(draft)

    def unexplained(self, found: Unexplained) -> None:
        """Note the event that is no step."""
        guard = found.guard
        action = self.teller.system.action(found.action.name)
        text, where = "a counter is out of its range", str(action.at)
        draft = _Draft(ALLOWED_STEP, found.line, (), {})
        if isinstance(guard, Guard):
            own = next((own for own in action.guards if own.name == guard.name and own.at == guard.at), guard)
            draft = self.teller.draft(ALLOWED_STEP, own.condition, action.parameters, found.binding, found.line)
            text, where = f"the guard '{guard.name}' of {action.name} is false: {expression(own.condition)}", str(guard.at)
        elif guard is not None:
            own_condition = next(c for c in (*self.teller.system.assumptions, *self.teller.system.initial) if c.name == guard.name)
            sort = own_condition.parameters[0].domain.name
            element = next(e for p, e in zip(action.parameters, found.binding, strict=True) if p.domain.name == sort)
            draft = self.teller.draft(ALLOWED_STEP, own_condition.condition, own_condition.parameters, (element,), found.line)
            text, where = f"'{guard.name}' is false of what it brings: {expression(own_condition.condition)}", str(guard.at)
        draft.seq, draft.event, draft.what, draft.where = found.seq, self.teller.event(found.event), text, where
        self.drafts.append(draft)

    def stories(self, file: BinaryIO | None, progress: Callable[[str], None] | None = None) -> tuple[Story, ...]:
        """Tell of everything that was noted. `file` is the log from its beginning, or None where it cannot be read again."""
        told = {} if file is None or not self.drafts else self._again(file, progress)
        return tuple(self._story(draft, told.get(number)) for number, draft in enumerate(self.drafts))

    def _again(self, file: BinaryIO, progress: Callable[[str], None] | None) -> dict[int, _Past]:
        """Read the log a second time, and note what became of the places and pages that matter."""
        monitor = Monitor(self.monitor.plan)
        teller = _Teller(monitor, self.teller.redaction)
        past = _Past(teller, self.drafts)
        reader = LogReader(file)
        reader.header()
        waiting = sorted(range(len(self.drafts)), key=lambda number: self.drafts[number].line)
        found: dict[int, _Past] = {}
        try:
            for line, events in reader.blocks(monitor.events.decoder):
                for position, event in enumerate(events):
                    monitor.feed([event], line + position, gather=False)
                    past.look(line + position, event)
                    while waiting and self.drafts[waiting[0]].line <= line + position:
                        found[waiting.pop(0)] = past.copy()
                    if not waiting or monitor.unexplained is not None:
                        break
                if not waiting or monitor.unexplained is not None:
                    break
                monitor.gather()
                if progress is not None:
                    progress(f"looking for what led to line {self.drafts[waiting[0]].line:,}: line {line:,}")
        except (LogError, Stop):
            pass
        for number in waiting:
            found[number] = past.copy()
        return found

    def _story(self, draft: _Draft, past: _Past | None) -> Story:
        facts = []
        for (name, index), value in draft.cells.items():
            line, event = past.since(name, index) if past is not None else (0, "")
            facts.append(Fact(self.teller.fact(name, index, value), line, event))
        facts.sort(key=lambda fact: -fact.line)
        histories = () if past is None else past.histories(draft)
        return Story(
            draft.line, draft.seq, draft.event, draft.subject, draft.what, draft.where, _headline(draft, facts),
            draft.reasons, tuple(facts), histories,
        )  # fmt: skip


class _Past:
    """When places that matter changed last, and what happened to pages."""

    def __init__(self, teller: _Teller, drafts: Sequence[_Draft]) -> None:
        self._teller = teller
        self._cells = {cell: teller.monitor.state.get(*cell) for draft in drafts for cell in draft.cells}
        self._since: dict[tuple[str, Binding], tuple[int, str]] = {}
        pages = dict.fromkeys(page for draft in drafts for page in _pages(draft, teller.system.by_name))
        self._pages = {page: teller.page(page) for page in pages}
        self._entries: dict[int, deque[Entry]] = {page: deque(maxlen=LONGEST_HISTORY) for page in pages}

    def look(self, line: int, event: Any) -> None:
        """Note what the event in `line` changed."""
        get = self._teller.monitor.state.get
        for cell, value in self._cells.items():
            now = get(*cell)
            if now != value:
                self._cells[cell] = now
                self._since[cell] = (line, self._teller.event(event))
        for page, before in self._pages.items():
            after = self._teller.page(page)
            if after != before:
                self._pages[page] = after
                change = self._teller.change(page, before, after)
                self._entries[page].append(Entry(line, self._teller.event(event), change))

    def copy(self) -> _Past:
        made = object.__new__(_Past)
        made._teller, made._cells, made._since, made._pages = self._teller, dict(self._cells), dict(self._since), dict(self._pages)
        made._entries = {page: deque(entries) for page, entries in self._entries.items()}
        return made

    def since(self, name: str, index: Binding) -> tuple[int, str]:
        """The line, and the event, that last changed a place; (0, '') for none since its elements are what they are."""
        line, event = self._since.get((name, index), (0, ""))
        for key, part in zip(self._teller.system.by_name[name].keys, index, strict=True):
            names = self._teller.monitor.names.get(key.name)
            if names is not None and isinstance(part, int) and part < len(names.line) and names.line[part] > line:
                return 0, ""
        return line, event

    def histories(self, draft: _Draft) -> tuple[tuple[str, tuple[Entry, ...]], ...]:
        """What happened to the pages that a draft is about."""
        pages = _pages(draft, self._teller.system.by_name)[:MOST_HISTORIES]
        return tuple((self._teller.label(PAGE, page), tuple(self._entries[page])) for page in pages if page in self._entries)


def _pages(draft: _Draft, variables: Mapping[str, Variable]) -> list[int]:
    found = dict.fromkeys(
        cast(int, part)
        for name, index in draft.cells
        for key, part in zip(variables[name].keys, index, strict=True)
        if key.name == PAGE
    )
    return list(found)[:MOST_HISTORIES]


def _headline(draft: _Draft, facts: Sequence[Fact]) -> str:
    """One sentence: what happened, and what was the case, since when."""
    told = [f"{fact.text} since line {fact.line}" if fact.line else fact.text for fact in facts if fact.line != draft.line]
    now = [fact.text for fact in facts if fact.line == draft.line]
    start = f"line {draft.line}: {draft.event}"
    if now:
        start += f", so that {' and '.join(now[:2])}"
    return f"{start}; but {', and '.join(told[:3])}" if told else start
