"""Following a log: each event must be a step that the spec allows, and no property may become false.

The state is that of the compiled step. With unknown variables, or actions that happen unseen, the spec is read without what
these variables hold (`kvmodel.readings.partial`): what is violated then is violated whatever they hold, and what is not surely
true is undecided.

An id is another request's once its request has ended (the spec's final condition is true of it): such a request takes no step any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from kvmodel.engines.log.events import PAGE
from kvmodel.engines.log.forget import forgettable
from kvmodel.engines.log.names import Names
from kvmodel.engines.log.plan import Plan, plain_value
from kvmodel.engines.log.reader import LogError
from kvmodel.language.instance import Binding
from kvmodel.language.system import Action, Condition, Guard, PropertyKind, Variable
from kvmodel.language.types import Element, Maybe, Sort, Value

__all__ = ["Broken", "Monitor", "Refused", "Stop", "Unexplained"]

FIRST_COLLECTION = 1_024
CLOSELY = 10_000  # events after each of which premises are looked at
SOMETIMES = 64  # events after which they are looked at from then on
LONGEST_NAME = 1_000  # characters
ASSUMPTION = -2


class Refused(Exception):
    """An event that no allowed step explains: the guard `guard` is false for `binding` (or an assumption about what it brings)."""

    def __init__(self, number: int, binding: Binding, moved: bool, condition: Condition | None = None) -> None:
        super().__init__()
        self.number = number
        self.binding = binding
        self.moved = moved
        self.condition = condition


class Stop(Exception):
    """The check cannot go on, and what it was asked is undecided from here."""


class _Bad(Exception):
    """The event is not well formed."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A property that became false, with the binding, in the event of `line`."""

    name: str
    binding: Binding
    line: int
    seq: int


@dataclass(frozen=True, slots=True)
class Unexplained:
    """The first event that no allowed step explains. `guard` is what refuses it: a guard of the action, or an assumption."""

    action: Action
    binding: Binding
    guard: Guard | Condition | None
    line: int
    seq: int
    event: Any


class Monitor:
    """Follows a log of `plan`.

    `feed` takes events; then `unexplained` is the first one that is not a step, `broken` has for each violated property where
    that was first seen, and `unsure` for each property that is not surely true where that was first so.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.header = plan.header
        self.events = plan.events
        self.properties = plan.properties
        self.names = {sort: Names(sort, plan.stranger) for sort in plan.sorts}
        self.touched = bytearray(plan.pages)
        """Which pages an event has named."""
        self.state = plan.start()
        self.broken: dict[str, Broken] = {}
        self.unsure: dict[str, tuple[int, str]] = {}
        self.unexplained: Unexplained | None = None
        self.count = 0
        self.reused = 0
        self._seen: Counter[type] = Counter()
        self.line = 1
        self.on_broken: Callable[[Broken, Any], None] | None = None
        """Called at the first violation of each property, while the state is what it is then."""
        self.explain: Callable[[Any, Refused], bool] | None = None
        """Called for an event that is refused; whether it has taken it after all."""
        self._offset = 1
        self._limits = dict.fromkeys(plan.gathered, FIRST_COLLECTION)
        self._found: list[tuple[int, Binding]] = []
        self._maybe: set[tuple[str, int]] = set()
        self._premises = dict(plan.premises)
        self._conditions: dict[tuple[int, tuple[str, ...]], Callable[..., Any]] = {}
        self._put = partial(plan.put, self.state)
        self._naming = {sort: self._name_functions(sort) for sort in plan.sorts}
        self._handlers: dict[type, Callable[[Any], None]] = {
            self.events.actions[name].type: make(self.state.cells, self.state.out_of_range, self._found, self._maybe, self)
            for name, make in plan.makers.items()
        }

    # -- following

    def feed(self, events: list[Any], line: int, gather: bool = True) -> None:
        """Take events, the first of them from line `line`. Ends early, with `unexplained` set, at one that no step explains.
        With `gather`, what is no longer referred to may be forgotten afterwards.

        Raises LogError for an event that cannot be read as one of the spec, Stop where the check cannot go on.
        """
        self._offset = line - self.count - 1
        ordered = [event.seq for event in events] == list(range(self.count + 1, self.count + 1 + len(events)))
        at = 0
        while at < len(events) and self.unexplained is None:
            # Where a premise has not been seen true yet, it is looked for after few events.
            some = len(events) if not self._premises else 1 if self.count < CLOSELY else SOMETIMES
            self._follow(events[at : at + some], ordered)
            self._look_at_premises()
            at += some
        if gather:
            self.gather()

    def _follow(self, events: list[Any], ordered: bool) -> None:
        """Take events; `ordered` says that they are known to be in their order."""
        found, ranges, offset = self._found, self.state.out_of_range, self._offset
        done = self.count
        try:
            for event, handle in zip(events, map(self._handlers.__getitem__, map(type, events)), strict=True):
                if not ordered and event.seq != done + 1:
                    self._out_of_order(event, done + 1, offset + done + 1)
                try:
                    handle(event)
                except Refused as refused:
                    self._refused(refused, event, offset + done + 1)
                done += 1
                if found or ranges:
                    self._note(event, offset + done)
        except _Bad as problem:
            raise LogError(f"{event.__class__.__name__}: {problem}", offset + done + 1) from None
        except _Unexplained:
            pass
        finally:
            self._seen.update(map(type, events[: done - self.count]))
            self.count = done
            self.line = offset + done

    def _out_of_order(self, event: Any, expected: int, line: int) -> NoReturn:
        got = event.seq
        if got == expected - 1:
            raise LogError(f"event {got} is there twice", line)
        if got < expected:
            raise LogError(f"event {got} comes after event {expected - 1}: the lines are not in their order", line)
        missing = f"event {expected} is missing" if got == expected + 1 else f"events {expected:,} to {got - 1:,} are missing"
        if self.header.loss:
            raise Stop(f"{missing} before line {line}, as the header says they may be: {self.header.loss}")
        raise LogError(missing, line)

    def _refused(self, refused: Refused, event: Any, line: int) -> None:
        """An event that is not a step of the requests as they are known: perhaps one has ended and the id is another's now."""
        if self.explain is not None and self.explain(event, refused):
            return
        entry = self.events.actions[event.__class__.__name__]
        again: set[tuple[str, str]] = set()
        for taken, element in zip(entry.takes, refused.binding, strict=True):
            sort = taken.parameter.domain.name
            if not taken.is_name or refused.moved or not isinstance(element, int):
                continue
            if any(ended(self.state.cells, element) for ended in self.plan.over.get(sort, ())):
                if self._related(sort, element):
                    raise Stop(f"line {line}: the {sort.lower()} has ended with something in flight, and its id appears again")
                again.add((sort, getattr(event, taken.field)))
            elif any(ended(self.state.cells, element) for ended in self.plan.maybe_over.get(sort, ())):
                raise Stop(f"line {line}: the {sort.lower()} may have ended, as far as is known, and its id may be used again")
        if again:
            for sort, name in again:
                self.names[sort].detach(name)
            try:
                self._handlers[event.__class__](event)
                self.reused += len(again)
                return
            except (Refused, _Bad):  # no first event of another request either
                pass
        guard: Guard | Condition | None = refused.condition
        if guard is None and refused.number >= 0:
            guard = self.plan.system.action(entry.action.name).guards[refused.number]
        if refused.moved:  # the steps for its earlier pages were taken
            self._note(event, line)
        self.unexplained = Unexplained(entry.action, refused.binding, guard, line, event.seq, event)
        raise _Unexplained

    def _note(self, event: Any, line: int) -> None:
        total = len(self.properties)
        for number, binding in self._found:
            name = self.properties[number % total].name
            if number >= total:
                self.unsure.setdefault(name, (line, f"what the log does not tell decides it, first in line {line}"))
            elif name not in self.broken and self.plan.strangers and not self._surely_broken(number, binding):
                self.unsure.setdefault(name, (line, f"what was in a page at the first event decides it, first in line {line}"))
            elif name not in self.broken:
                self._broke(Broken(name, binding, line, event.seq), event)
        self._found.clear()
        for slot, _ in self.state.out_of_range:
            name = f"range:{self.plan.parts.origins[self.plan.parts.apart.variables[slot].name]}"
            if name not in self.broken:
                self._broke(Broken(name, (), line, event.seq), event)

    def _broke(self, found: Broken, event: Any) -> None:
        self.broken[found.name] = found
        if self.on_broken is not None:
            self.on_broken(found, event)

    def _surely_broken(self, number: int, binding: Binding) -> bool:
        """Whether a violation is one as well if the strangers' data in the pages that it is about is nobody's."""
        candidate = self.properties[number]
        if self.plan.stranger in binding or candidate.kind is not PropertyKind.INVARIANT:
            return candidate.kind is not PropertyKind.INVARIANT
        pages = [part for parameter, part in zip(candidate.parameters, binding, strict=True) if parameter.domain.name == PAGE]
        changed = [(v.name, page) for v in self.plan.strangers for page in pages if self.state.get(v.name, (page,)) == self.plan.stranger]
        for name, page in changed:
            self._put(name, (page,), None)
        members = self.plan.parts.members(candidate.parameters, binding)
        which = number, tuple(members.values())
        if which not in self._conditions:
            self._conditions[which] = self.plan.value_of(candidate.condition, candidate.parameters, members)
        holds = self._conditions[which](self.state.cells, *binding)
        for name, page in changed:
            self._put(name, (page,), self.plan.stranger)
        return not holds

    def _look_at_premises(self) -> None:
        for name in [name for name, some in self._premises.items() if some(self.state.cells)]:
            del self._premises[name]

    def handler(self, kind: type) -> Callable[[Any], None]:
        """What takes an event of a type."""
        return self._handlers[kind]

    @property
    def seen(self) -> Counter[str]:
        """How many events of each action were followed."""
        return Counter({kind.__name__: count for kind, count in self._seen.items()})

    @property
    def idle(self) -> tuple[str, ...]:
        """Properties of which the left side was never true, whenever it was looked at."""
        return tuple(self._premises)

    def unsure_guards(self) -> set[str]:
        """Guards of events that were taken though nothing says that they were true."""
        return {f"{action}: {self.plan.folded.action(action).guards[number].name}" for action, number in self._maybe}

    @property
    def sizes(self) -> tuple[tuple[str, int], ...]:
        """The sizes of the pools."""
        return tuple(self.events.sizes.items())

    # -- what generated code calls (`K`)

    def naming(self, sort: str) -> tuple[dict[str, int], Callable[..., Any], Callable[..., Any]]:
        """The elements of the names of a sort, and functions that introduce one, and compare what is said of one with what is known."""
        return self._naming[sort]

    def _name_functions(self, sort: str) -> tuple[dict[str, int], Callable[..., Any], Callable[..., Any]]:
        names, cells, put = self.names[sort], self.state.cells, self._put
        rigid = self.events.rigid_of(sort)
        lists = self.events.lists_of(sort)
        layout = self.plan.layout
        writes = [(v.name, v, _is_named(v)) for v in rigid if v.name not in self.plan.plain]
        plain = [(v.name, cells[layout.stores[v.name].slot], layout.stores[v.name].default) for v in rigid if v.name in self.plan.plain]
        give = names.give
        conditions = self.plan.introduced.get(sort, [])

        def new(name: str, values: Any, event: Any) -> int:
            if not 0 < len(name) <= LONGEST_NAME:
                raise _Bad(f"the name of a {sort.lower()} has 1 to {LONGEST_NAME} characters")
            if names.full:
                raise Stop(f"more than {names.capacity:,} {sort.lower()}s at one time")
            element = give(name, self._offset + event.seq)
            for attribute, cell, default in plain:
                value = getattr(values, attribute, None)
                if value is None:
                    raise _Bad(_no_value(sort, attribute))
                if value != default:
                    cell[element] = value
            for attribute, variable, named in writes:
                value = getattr(values, attribute, None)
                if value is None:
                    raise _Bad(_no_value(sort, attribute))
                put(attribute, (element,), self._value(variable, value, self._offset + event.seq) if named else value)
            for condition, holds in conditions:
                if not holds(cells, element):
                    raise Refused(ASSUMPTION, self._binding_of(sort, element, event), False, condition)
            if lists and values is not None:
                self._add(lists, element, values, event)
            return element

        def same(element: int, values: Any, event: Any) -> None:
            for variable in rigid:
                value = getattr(values, variable.name)
                known = self.state.get(variable.name, (element,))
                if value is not None and self._value(variable, value, self._offset + event.seq) != known:
                    raise _Bad(f"'{variable.name}' of the {sort.lower()} is not what it was in an earlier event")
            if lists:
                self._add(lists, element, values, event)

        return names.number, new, same

    def refused(self, number: int, binding: Binding, moved: bool) -> NoReturn:
        raise Refused(number, binding, moved)

    def bad(self, message: str) -> NoReturn:
        raise _Bad(message)

    def no_page(self, page: int, pool: str) -> str:
        """That there is no such page, in words."""
        return f"there is no page {page:,} in pool {pool}, which has {self.events.pools[pool][1]:,}"

    def _binding_of(self, sort: str, element: int, event: Any) -> Binding:
        entry = self.events.actions[event.__class__.__name__]
        return tuple(element if taken.parameter.domain.name == sort else None for taken in entry.takes)

    def _number(self, sort: str, name: str, line: int) -> int:
        names = self.names[sort]
        element = names.number.get(name)
        if element is None:
            if names.full:
                raise Stop(f"more than {names.capacity:,} {sort.lower()}s at one time")
            element = names.give(name, line)
        return element

    def _add(self, lists: tuple[Variable, ...], element: int, values: Any, event: Any) -> None:
        """Note what an event adds to the rigid relations of an element."""
        for variable in lists:
            for name in getattr(values, variable.name) or ():
                other = self._number(variable.keys[1].name, name, self._offset + event.seq)
                self._put(variable.name, (element, other), True)

    def _value(self, variable: Variable, value: object, line: int) -> Value:
        """A value of the log as one of the variable; a name becomes an element."""
        match variable.type:
            case Element(Sort(name=sort)) | Maybe(Sort(name=sort)) if isinstance(value, str) and sort in self.names:
                return self._number(sort, value, line)
        return plain_value(variable, value)

    def _related(self, sort: str, element: int) -> bool:
        """Whether a relation of the state has the element beside another: it holds something, or an operation is in flight."""
        for variable in self.plan.system.state_variables:
            places = [position for position, key in enumerate(variable.keys) if key.name == sort]
            if len(variable.keys) > 1 and any(
                index[position] == element for index, _ in self.state.stored(variable.name) for position in places
            ):
                return True
        return False

    # -- forgetting

    def gather(self) -> None:
        """Forget what nothing refers to, where much has come together."""
        for sort, limit in self._limits.items():
            if self.names[sort].held > limit:
                self.collect(sort)
                self._limits[sort] = max(FIRST_COLLECTION, 2 * self.names[sort].held)

    def collect(self, sort: str) -> None:
        """Forget what can be forgotten of a sort."""
        names, layout, cells = self.names[sort], self.plan.layout, self.state.cells
        gone = forgettable(self.state.apart, names, self.plan.forgets.get(sort, ()))
        singles = [variable for variable in self.plan.system.variables if [key.name for key in variable.keys] == [sort]]
        for variable in singles:
            store = layout.stores[variable.name]
            if layout.indices_of(variable.name):
                for element in gone:
                    self._put(variable.name, (element,), store.default)
            elif store.relation:
                cells[store.slot].difference_update(gone)
            else:
                forget = cells[store.slot].pop
                for element in gone:
                    forget(element, None)
        for variable in self.events.lists_of(sort):
            for element in gone:
                for other in tuple(self.state.row(variable.name, element)):
                    self._put(variable.name, (element, other), False)
        for element in gone:
            names.take(element)


def _is_named(variable: Variable) -> bool:
    """Whether the values of a variable go by a name."""
    return isinstance(variable.type, Maybe | Element) and isinstance(variable.type.domain, Sort)


def _no_value(sort: str, name: str) -> str:
    return f"it is the first event of a {sort.lower()} and brings no value for '{name}', which the header does not declare unknown"


class _Unexplained(Exception):
    """The event that was just noted is no step."""


