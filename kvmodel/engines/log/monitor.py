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
from typing import Any, NoReturn, cast

from kvmodel.engines.log.code import Check, SureGuard, handlers
from kvmodel.engines.log.events import PAGE, Events
from kvmodel.engines.log.names import Names
from kvmodel.engines.log.reader import LogError
from kvmodel.engines.log.schema import Header
from kvmodel.errors import UsageError, printable
from kvmodel.language.expressions import TRUE, Apply, Bound, Const, Expr, Named, Quantified, Read, rebuild, walk
from kvmodel.language.instance import Binding, Instance, State
from kvmodel.language.operators import Binder
from kvmodel.language.system import Action, Anything, Condition, Guard, Property, PropertyKind, TransitionSystem, Variable
from kvmodel.language.types import Bool, Element, Enumeration, Maybe, Number, Sort, Value, describe
from kvmodel.readings.fold import fold_system
from kvmodel.readings.generated import put, value_of
from kvmodel.readings.ground import simplify
from kvmodel.readings.partial import Partial, partial, rails
from kvmodel.readings.run import Interpreter
from kvmodel.readings.sparse import SparseState, StoreLayout, default_value
from kvmodel.readings.vacuity import premise

__all__ = ["Broken", "Monitor", "Stop", "Unexplained"]

LIVE = 1 << 17  # elements of a sort that can have a name at one time, beside one for each page
FIRST_COLLECTION = 4_096
CLOSELY = 10_000  # events after each of which premises are looked at; then it is every 64th
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
    """Follows a log of `system` with the header `header`.

    `feed` takes events; then `unexplained` is the first one that is not a step, `broken` has for each violated property where
    that was first seen, `unsure` for each property or guard that is not surely true where that was first so, `undecidable`
    what cannot be decided at all. Raises UsageError where header and spec do not fit.
    """

    def __init__(self, system: TransitionSystem, header: Header) -> None:
        self.header = header
        self.original = system
        self.folded = fold_system(system)
        self.events = Events(self.folded, header)
        self.hidden = self._hidden()
        self.partial: Partial | None = partial(system, self.hidden).following if self.hidden else None
        self.system = self.folded if self.partial is None else self.partial.systems.possible
        self.properties = tuple(
            candidate for candidate in self.folded.properties if candidate.kind not in (PropertyKind.REACHABLE, PropertyKind.NO_DEADLOCK)
        )
        self.undecidable: dict[str, str] = {}
        self.broken: dict[str, Broken] = {}
        self.unsure: dict[str, tuple[int, str]] = {}
        self.unexplained: Unexplained | None = None
        self.count = 0
        self.reused = 0
        self.seen: Counter[str] = Counter()
        self.line = 1
        self.on_broken: Callable[[Broken, Any], None] | None = None
        """Called at the first violation of each property, while the state is what it is then."""
        self._offset = 1
        self._build()

    # -- building

    def _hidden(self) -> frozenset[str]:
        """The variables whose values the log does not tell: those declared unknown, and what silent actions write."""
        written = {
            update.variable for action in self.folded.actions if action.name in self.header.silent for update in action.updates
        }
        if self.header.starts == "unknown":
            pages = [v for v in self.folded.state_variables if isinstance(v.initial, Anything) and any(key.name == PAGE for key in v.keys)]
            written |= {variable.name for variable in pages}
        return frozenset(self.header.unknown) | written

    def _build(self) -> None:
        pages = sum(size for _, size in self.events.pools.values())
        if not pages:
            raise UsageError("the header's pools have no page")
        sorts = [sort.name for sort in self.system.sorts if sort.name != PAGE]
        sizes = dict.fromkeys(sorts, LIVE + pages) | self.events.sizes
        self.instance = Instance.make(self.system, sizes, limit=None)
        self.layout = StoreLayout(self.instance)
        self.names = {sort: Names(sort, LIVE + pages) for sort in sorts}
        self.touched = bytearray(pages)
        """Which pages an event has named."""
        self._limits = dict.fromkeys(sorts, FIRST_COLLECTION)
        self._gathered = {sort for sort in sorts if not self._is_value(sort)}
        self._found: list[tuple[int, Binding]] = []
        self._maybe: set[tuple[str, int]] = set()
        self.state = SparseState(self.layout, self.layout.empty(), set())
        self._checks = self._make_checks()
        self._assertions = self._make_assertions()
        self._sure = self._make_sure_guards()
        self._over = self._finals(possible=False)
        self._maybe_over = self._finals(possible=True) if self.partial is not None else {}
        self._compile()
        self._put = {name: put(store, self.layout) for name, store in self.layout.stores.items()}
        self._start()
        self._introduced = self._conditions_of_new()
        self._premises = self._make_premises()

    def _is_value(self, sort: str) -> bool:
        return any(isinstance(v.type, Element) and v.type.domain.name == sort for v in self.system.variables)

    def _make_checks(self) -> list[Check]:
        """A check for each invariant that must not be false; then, by numbers after those of all properties, one for each that
        must be surely true."""
        checks, sure = [], []
        for number, candidate in enumerate(self.properties):
            if self.partial is not None and candidate.name in self.partial.undecidable:
                self.undecidable[candidate.name] = self._lacking(self.partial.undecidable[candidate.name])
                continue
            if candidate.kind is not PropertyKind.INVARIANT:
                continue
            if self.partial is None:
                checks.append(Check(number, candidate.parameters, candidate.condition))
                self._about_new(candidate, candidate.condition)
                continue
            possible = self.partial.systems.possible.property(candidate.name).condition
            surely = self.partial.systems.sure.property(candidate.name).condition
            if possible != TRUE:
                checks.append(Check(number, candidate.parameters, possible))
            if surely != possible:
                sure.append(Check(number + len(self.properties), candidate.parameters, surely))
            self._about_new(candidate, surely)
        return checks + sure

    def _about_new(self, candidate: Property, condition: Expr) -> None:
        """Whether a property can be false of a new request by the values that it brings: nothing looks for that."""
        brought = {v.name for v in self.folded.rigid_variables if v.keys and not v.partition}
        if not any(isinstance(node, Read) and node.variable in brought for node in walk(condition)):
            return
        for parameter in candidate.parameters:
            facts = _defaults(condition, parameter, self.layout)
            if facts != TRUE and any(isinstance(node, Read) and node.variable in brought for node in walk(facts)):
                self.undecidable.setdefault(candidate.name, f"it may depend on what a new {parameter.domain.name} brings alone")

    def _lacking(self, variables: tuple[str, ...]) -> str:
        return "it needs " + " and ".join(self.why_hidden(name) for name in variables)

    def why_hidden(self, variable: str) -> str:
        """A variable with the reason why its values are not known."""
        if variable in self.header.unknown:
            return f"'{variable}', which the log does not tell: {self.header.unknown[variable]}"
        for name, reason in self.header.silent.items():
            if any(update.variable == variable for update in self.folded.action(name).updates):
                return f"'{variable}', which {name} changes unseen: {reason}"
        if self.header.starts == "unknown" and isinstance(self.folded.by_name[variable].initial, Anything):
            return f"'{variable}', which is not known at the first event"
        tainted = partial(self.original, self.hidden).tainted.get(variable, "")
        return f"'{variable}' ({tainted})" if tainted else f"'{variable}'"

    def _make_assertions(self) -> dict[tuple[str, int], int]:
        numbers = {candidate.name: number for number, candidate in enumerate(self.properties)}
        found = {}
        for action in self.folded.actions:
            for position, assertion in enumerate(action.assertions):
                name = f"assert:{action.name}:{assertion.name}"
                found[action.name, position] = numbers[name]
                if self.partial is not None:
                    both = rails(assertion.condition, self.partial.unknown)
                    if both.possible != both.yes:
                        self.undecidable[name] = "it reads what the log does not tell"
        return found

    def _make_sure_guards(self) -> list[SureGuard]:
        if self.partial is None:
            return []
        found = []
        for action in self.folded.actions:
            for number, guard in enumerate(action.guards):
                both = rails(guard.condition, self.partial.unknown)
                if both.possible != both.yes:
                    found.append(SureGuard(action.name, number, both.yes))
        return found

    def _finals(self, *, possible: bool) -> dict[str, list[Callable[..., Any]]]:
        """For each sort whether an element of it has ended."""
        found: dict[str, list[Callable[..., Any]]] = {}
        for final in self.folded.finals:
            if len(final.parameters) == 1 and final.parameters[0].domain.name in self.names:
                condition = final.condition
                if self.partial is not None:
                    both = rails(condition, self.partial.unknown)
                    condition = both.possible if possible else both.yes
                found.setdefault(final.parameters[0].domain.name, []).append(value_of(condition, final.parameters, self.layout))
        return found

    def _compile(self) -> None:
        makers, self.sources = handlers(self.system, self.layout, self.events, self._checks, self._assertions, self._sure)
        # Containers of indices that were asked for while compiling.
        self.state.cells += [{} for _ in range(len(self.layout.stores) + len(self.layout.indices) - len(self.state.cells))]
        hooks = cast(Any, self)
        self._handlers = {
            self.events.actions[name].type: make(self.state.cells, self.state.out_of_range, self._found, self._maybe, hooks)
            for name, make in makers.items()
        }

    def _start(self) -> None:
        """The state before the first event. Raises UsageError where header or spec do not allow it."""
        cells, ranges = self.state.cells, self.state.out_of_range
        if self.events.partition is not None:
            for (_, element), member in self.instance.part_of.items():
                self._put[self.events.partition.name](cells, ranges, (element,), member)
        given = {}
        for name, value in self.header.values.items():
            given[name] = self._value(self.folded.by_name[name], value)
            self._put[name](cells, ranges, (), given[name])
        # Before anything has happened one element is like another, so that two of each sort tell everything.
        sizes = dict.fromkeys(self.names, 2) | {name: min(size, 2) for name, size in self.events.sizes.items()}
        small = Instance.make(self.system, sizes)
        plain = {variable.name: default_value(small, variable) for variable in small.system.variables} | given
        start = State(
            tuple(
                small.part_of[PAGE, cast(int, index[0])] if self._is_partition(name) else plain[name]
                for name, index in small.rigid_layout.places
            ),
            tuple(plain[name] for name, _ in small.state_layout.places),
        )
        interpreter = Interpreter(small)
        for condition in (*self.system.assumptions, *self.system.initial):
            if not interpreter.holds_for_all(condition, start):
                raise UsageError(f"{self.system.name} cannot start as the header says: '{condition.name}' is false ({condition.at})")
        for check in self._checks:
            if not interpreter.holds_for_all(Condition("", check.parameters, check.condition), start):
                name = self.properties[check.number % len(self.properties)].name
                self.undecidable[name] = "it is not surely true before the first event"

    def _is_partition(self, name: str) -> bool:
        return self.events.partition is not None and name == self.events.partition.name

    def _value(self, variable: Variable, value: object, event: Any = None) -> Value:
        """A value of the log as one of the variable. Raises UsageError for one that it cannot have."""
        match variable.type:
            case Bool() if isinstance(value, bool):
                return value
            case Number() if isinstance(value, int) and not isinstance(value, bool):
                return value
            case Element(Enumeration(members=members)) | Maybe(Enumeration(members=members)) if value in members:
                return value
            case Element(Sort(name=sort)) | Maybe(Sort(name=sort)) if isinstance(value, str) and sort in self.names:
                return self._number(sort, value, 1 if event is None else self._offset + event.seq)
        raise UsageError(f"{printable(repr(value), 80)} is not a {describe(variable.type)}, as '{variable.name}' needs")

    def _conditions_of_new(self) -> dict[str, list[tuple[Condition, Callable[..., Any]]]]:
        """What must be true of the values that an element brings."""
        found: dict[str, list[tuple[Condition, Callable[..., Any]]]] = {}
        brought = {v.name: v.keys[0].name for v in self.folded.rigid_variables if v.keys and not v.partition}
        for condition in (*self.system.assumptions, *self.system.initial):
            sorts = {brought[node.variable] for node in walk(condition.condition) if isinstance(node, Read) and node.variable in brought}
            for sort in sorts:
                if [parameter.domain.name for parameter in condition.parameters] != [sort]:
                    self.unsure[condition.name] = (1, f"{condition.name} cannot be told of one {sort} at a time")
                else:
                    function = value_of(condition.condition, condition.parameters, self.layout)
                    found.setdefault(sort, []).append((condition, function))
        return found

    def _make_premises(self) -> dict[str, Callable[..., Any]]:
        """For each property whether the left side of its implication is true of anything, as far as the log tells that."""
        hidden = self.partial.unknown if self.partial is not None else frozenset[str]()
        found = {}
        for candidate in self.properties:
            left = premise(candidate.condition) if candidate.kind is PropertyKind.INVARIANT else None
            if left is not None and not any(isinstance(node, Read) and node.variable in hidden for node in walk(left)):
                some = Quantified(Binder.ANY, candidate.parameters, left)
                found[candidate.name] = value_of(some, (), self.layout)
        return found

    # -- following

    def feed(self, events: list[Any], line: int, gather: bool = True) -> None:
        """Take events, the first of them from line `line`. Ends early, with `unexplained` set, at one that no step explains.
        With `gather`, what is no longer referred to may be forgotten afterwards.

        Raises LogError for an event that cannot be read as one of the spec, Stop where the check cannot go on.
        """
        handlers, found, ranges, offset = self._handlers, self._found, self.state.out_of_range, line - self.count - 1
        self._offset = offset
        number = done = self.count
        try:
            for event in events:
                number += 1
                if event.seq != number:
                    self._out_of_order(event, number, offset + number)
                try:
                    handlers[event.__class__](event)
                except Refused as refused:
                    self._refused(refused, event, offset + number)
                if found or ranges:
                    self._note(event, offset + number)
                if self._premises and (number < CLOSELY or not number & 63):
                    self._look_at_premises()
                done = number
        except _Bad as problem:
            raise LogError(f"{event.__class__.__name__}: {problem}", offset + number) from None
        except _Unexplained:
            pass
        finally:
            self.seen.update(event.__class__.__name__ for event in events[: done - self.count])
            self.count = done
            self.line = offset + done
        if gather:
            self.gather()

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
        entry = self.events.actions[event.__class__.__name__]
        again = False
        for taken, element in zip(entry.takes, refused.binding, strict=True):
            sort = taken.parameter.domain.name
            if not taken.is_name or refused.moved or not isinstance(element, int):
                continue
            if any(ended(self.state.cells, element) for ended in self._over.get(sort, ())):
                self.names[sort].detach(getattr(event, taken.field))
                self.reused += 1
                again = True
            elif any(ended(self.state.cells, element) for ended in self._maybe_over.get(sort, ())):
                raise Stop(f"line {line}: the {sort.lower()} may have ended, as far as is known, and its id may be used again")
        if again:
            try:
                self._handlers[event.__class__](event)
                return
            except (Refused, _Bad):  # no first event of another request either
                self.reused -= 1
        guard: Guard | Condition | None = refused.condition
        if guard is None and refused.number >= 0:
            guard = self.system.action(entry.action.name).guards[refused.number]
        self.unexplained = Unexplained(entry.action, refused.binding, guard, line, event.seq, event)
        raise _Unexplained

    def _note(self, event: Any, line: int) -> None:
        total = len(self.properties)
        for number, binding in self._found:
            name = self.properties[number % total].name
            if number >= total:
                self.unsure.setdefault(name, (line, f"what the log does not tell decides it, first in line {line}"))
            elif name not in self.broken:
                self._broke(Broken(name, binding, line, event.seq), event)
        self._found.clear()
        for slot, _ in self.state.out_of_range:
            name = f"range:{self.system.variables[slot].name}"
            if name not in self.broken:
                self._broke(Broken(name, (), line, event.seq), event)

    def _broke(self, found: Broken, event: Any) -> None:
        self.broken[found.name] = found
        if self.on_broken is not None:
            self.on_broken(found, event)

    def _look_at_premises(self) -> None:
        for name in [name for name, some in self._premises.items() if some(self.state.cells)]:
            del self._premises[name]

    @property
    def idle(self) -> tuple[str, ...]:
        """Properties of which the left side was never true, whenever it was looked at."""
        return tuple(self._premises)

    def unsure_guards(self) -> set[str]:
        """Guards of events that were taken though nothing says that they were true."""
        return {f"{action}: {self.folded.action(action).guards[number].name}" for action, number in self._maybe}

    @property
    def instance_sizes(self) -> tuple[tuple[str, int], ...]:
        """The sizes of the pools."""
        return tuple(self.events.sizes.items())

    # -- what generated code calls (`K`)

    @property
    def pools(self) -> dict[str, tuple[int, int]]:
        return self.events.pools

    def naming(self, sort: str) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
        """Functions for the names of a sort: get one, introduce one, and compare what is said of one with what is known."""
        rigid = self.events.rigid_of(sort)

        def new(name: str, values: Any, event: Any) -> int:
            return self._introduce(sort, rigid, name, values, event)

        def same(element: int, values: Any) -> None:
            self._same(sort, rigid, element, values)

        return self.names[sort].number.get, new, same

    def refused(self, number: int, binding: Binding, moved: bool) -> NoReturn:
        raise Refused(number, binding, moved)

    def bad(self, message: str) -> NoReturn:
        raise _Bad(message)

    def no_page(self, page: int, base: int) -> str:
        """That there is no such page, in words."""
        pools = self.events.pools.items()
        name, size = next((name, size) for name, (first, size) in reversed(pools) if first <= base)
        return f"there is no page {page:,} in pool {name}, which has {size:,}"

    def _introduce(self, sort: str, rigid: tuple[Variable, ...], name: str, values: Any, event: Any) -> int:
        if not 0 < len(name) <= LONGEST_NAME:
            raise _Bad(f"the name of a {sort.lower()} has 1 to {LONGEST_NAME} characters")
        brought: list[tuple[str, Value]] = []
        for variable in rigid:
            value = getattr(values, variable.name, None)
            if value is None:
                raise _Bad(
                    f"it is the first event of a {sort.lower()} and brings no value for '{variable.name}', "
                    "which the header does not declare unknown"
                )
            brought.append((variable.name, self._value(variable, value, event)))
        element = self._number(sort, name, self._offset + event.seq)
        cells, ranges = self.state.cells, self.state.out_of_range
        for variable_name, value in brought:
            self._put[variable_name](cells, ranges, (element,), value)
        for condition, holds in self._introduced.get(sort, ()):
            if not holds(cells, element):
                raise Refused(ASSUMPTION, self._binding_of(sort, element, event), False, condition)
        return element

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

    def _same(self, sort: str, rigid: tuple[Variable, ...], element: int, values: Any) -> None:
        for variable in rigid:
            value = getattr(values, variable.name)
            if value is not None and self._value(variable, value) != self.state.get(variable.name, (element,)):
                raise _Bad(f"'{variable.name}' of the {sort.lower()} is not what it was in an earlier event")

    # -- forgetting

    def gather(self) -> None:
        """Forget what nothing refers to, where much has come together."""
        for sort, limit in self._limits.items():
            if self.names[sort].held > limit and sort in self._gathered:
                self.collect(sort)
                self._limits[sort] = max(FIRST_COLLECTION, 2 * self.names[sort].held)

    def collect(self, sort: str) -> None:
        """Forget the elements that nothing refers to, and whose own state is what a new one's is or that have ended."""
        names = self.names[sort]
        referred: set[Any] = set()
        own: set[Any] = set()
        singles = []
        for variable in self.system.variables:
            keys = [position for position, key in enumerate(variable.keys) if key.name == sort]
            as_value = isinstance(variable.type, Maybe | Element) and variable.type.domain.name == sort
            if keys == [0] and len(variable.keys) == 1:
                singles.append(variable)
            if not keys and not as_value:
                continue
            for index, value in self.state.stored(variable.name):
                if as_value and value is not None:
                    referred.add(value)
                if len(variable.keys) > 1:
                    referred.update(index[position] for position in keys)
                elif keys and not variable.rigid:
                    own.add(index[0])
        cells, ranges = self.state.cells, self.state.out_of_range
        ended = self._over.get(sort, ())
        for element in names.elements():
            if element in referred or (element in own and not any(over(cells, element) for over in ended)):
                continue
            for variable in singles:
                default = self.layout.stores[variable.name].default
                if self.state.get(variable.name, (element,)) != default:
                    self._put[variable.name](cells, ranges, (element,), default)
            names.take(element)


class _Unexplained(Exception):
    """The event that was just noted is no step."""


def _defaults(condition: Expr, parameter: Bound, layout: StoreLayout) -> Expr:
    """A condition for an element of which nothing has been said yet: every variable of the state has its default there."""
    if isinstance(condition, Named):
        return _defaults(condition.body, parameter, layout)
    if isinstance(condition, Read) and parameter in condition.index and not layout.stores[condition.variable].variable.rigid:
        return Const(layout.stores[condition.variable].default, condition.type)
    if isinstance(condition, Quantified) and any(variable.name == parameter.name for variable in condition.variables):
        return condition
    changed = rebuild(condition, lambda part: _defaults(part, parameter, layout))
    if isinstance(changed, Apply):
        return simplify(changed.operator, changed.arguments, changed.type)
    if isinstance(changed, Quantified) and changed.binder is not Binder.COUNT and isinstance(changed.body, Const):
        return changed.body
    return changed
