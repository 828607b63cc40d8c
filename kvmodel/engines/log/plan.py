"""A spec made ready for following logs with one header: what is watched, the code, and what cannot be decided at all."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import msgspec

from kvmodel.engines.log.checks import Check
from kvmodel.engines.log.code import SureGuard, handlers
from kvmodel.engines.log.events import PAGE, Events
from kvmodel.engines.log.schema import Header
from kvmodel.engines.log.unnamed import (
    at_default,
    can_be_a_strangers,
    counts,
    counts_unnamed,
    needs_the_ended,
    only_helps,
    updates_unnamed,
    variables_of,
)
from kvmodel.errors import UsageError, printable
from kvmodel.language.expressions import TRUE, Bound, Expr, Quantified, Read, walk
from kvmodel.language.instance import Binding, Instance, State
from kvmodel.language.operators import Binder
from kvmodel.language.system import Anything, Condition, Property, PropertyKind, TransitionSystem, Variable
from kvmodel.language.types import Bool, Element, Enumeration, Maybe, Number, Value, describe
from kvmodel.readings.fold import fold, fold_system
from kvmodel.readings.generated import put, value_of
from kvmodel.readings.partial import Partial, partial, rails
from kvmodel.readings.parts import Members, Parts, PartsState, parts_of
from kvmodel.readings.run import Interpreter
from kvmodel.readings.sparse import default_value
from kvmodel.readings.vacuity import premise

__all__ = ["Plan", "plain_value", "plan_for"]

LIVE = 1 << 17  # elements of a sort that can have a name at one time, beside one for each page


class Plan:
    """`system` for logs with the header `header`. A plan has no state of its own: many monitors can share one.

    `undecidable` has for each property about which nothing can be said the reason, `uncertain` what else is not sure. Raises
    UsageError where header and spec do not fit.
    """

    def __init__(self, system: TransitionSystem, header: Header) -> None:
        self.header = header
        self.original = system
        self.folded = fold_system(system)
        self.events = Events(self.folded, header)
        self.hidden, self.strangers = self._hidden()
        """What is unknown throughout; and what holds a stranger for each page at the first event, of whom nothing else is known."""
        self.partial: Partial | None = partial(system, self.hidden).following if self.hidden else None
        self.system = self.folded if self.partial is None else self.partial.systems.possible
        self.properties = tuple(
            candidate for candidate in self.folded.properties if candidate.kind not in (PropertyKind.REACHABLE, PropertyKind.NO_DEADLOCK)
        )
        self.undecidable: dict[str, str] = {}
        self.uncertain: dict[str, str] = {}
        self.pages = sum(size for _, size in self.events.pools.values())
        if not self.pages:
            raise UsageError("the header's pools have no page")
        self.sorts = [sort.name for sort in self.system.sorts if sort.name != PAGE]
        self.capacity = LIVE + self.pages
        self.instance = Instance.make(self.system, dict.fromkeys(self.sorts, self.capacity) | self.events.sizes, limit=None)
        self.stranger = self.capacity - 1
        self.parts = self._take_apart()
        """What the code is about: pages of one pool are not those of another."""
        self.layout = self.parts.layout(self.instance)
        self.gathered = [sort for sort in self.sorts if not self._is_value(sort)]
        self.checks = self._make_checks()
        self.over = self._finals(possible=False)
        self.maybe_over = self._finals(possible=True) if self.partial is not None else {}
        for action, update in updates_unnamed(self.system, self.sorts, self.instance):
            what = f"{action.name} writes '{update.variable}' of what has no name yet"
            raise UsageError(f"{what}: a log of such a spec cannot be followed ({update.at})")
        self.forgets = {sort: over for sort, over in self.over.items() if not needs_the_ended(self.system, sort, self.instance)}
        """For each sort of which an element that has ended can be forgotten whether one has."""
        self.makers, self.sources, unsearchable = handlers(
            self.parts, self.layout, self.events, self.checks, self._make_assertions(), self._make_sure_guards()
        )
        for number in sorted(unsearchable):
            candidate = self.properties[number % len(self.properties)]
            hidden = frozenset[str]() if self.partial is None else self.partial.unknown
            missing = tuple(sorted({node.variable for node in walk(candidate.condition) if isinstance(node, Read)} & hidden))
            self.undecidable.setdefault(candidate.name, self._lacking(missing) if missing else "it is about all that can have a name")
        # Every index is known now: the functions that write.
        self._put = {name: put(store, self.layout) for name, store in self.layout.stores.items()}
        self.plain = {
            variable.name
            for variable in self.events.rigid
            if len(variable.keys) == 1 and not self.layout.stores[variable.name].relation and not self.layout.indices_of(variable.name)
            and isinstance(variable.type, Number)
        }
        """Rigid numbers of which there is no index: they can be stored as they come."""
        self.told: list[tuple[str, Binding, Value]] = []
        if self.events.partition is not None and self.parts.partition is None:
            self.told += [(self.events.partition.name, (element,), member) for (_, element), member in self.instance.part_of.items()]
        self.told += [(stranger.name, (page,), self.stranger) for stranger in self.strangers for page in range(self.pages)]
        self._check_start()
        self.introduced = self._conditions_of_new()
        self.premises = self._make_premises()

    def start(self) -> PartsState:
        """The state before the first event."""
        state = PartsState(self.parts, self.layout)
        for name, index, value in self.told:
            self.put(state, name, index, value)
        return state

    def put(self, state: PartsState, name: str, index: Binding, value: Value) -> None:
        """Store a value of a variable."""
        self._put[self.parts.name(name, index)](state.cells, state.out_of_range, index, value)

    def value_of(self, expr: Expr, parameters: tuple[Bound, ...], members: Members | None = None) -> Callable[..., Any]:
        """A function of the containers and a value for each parameter: the value of an expression, where parameters that are pages
        are in pools of these `members`."""
        members = members or {}
        return value_of(self.parts.expression(expr, members), self.parts.parameters(parameters, members), self.layout)

    def _take_apart(self) -> Parts:
        """The system with a variable for each pool; what nothing can write is a constant."""
        ranges = {self.events.members.get(name, name): range(first, first + size) for name, (first, size) in self.events.pools.items()}
        places = {action.name: [place.members for place in self.events.places(action.name)] for action in self.system.actions}
        return parts_of(self.system, self.events.partition, ranges).settled(places)

    def _hidden(self) -> tuple[frozenset[str], tuple[Variable, ...]]:
        """The variables whose values the log does not tell: those declared unknown, and what silent actions write; and those
        whose values at the first event can be followed as a stranger's."""
        written = {
            update.variable for action in self.folded.actions if action.name in self.header.silent for update in action.updates
        }
        strangers: tuple[Variable, ...] = ()
        if self.header.starts == "unknown":
            old = [v for v in self.folded.state_variables if isinstance(v.initial, Anything) and any(key.name == PAGE for key in v.keys)]
            plain = not written and not self.header.unknown
            strangers = tuple(v for v in old if plain and can_be_a_strangers(v, self.folded))
            written |= {v.name for v in old if v not in strangers}
        return frozenset(self.header.unknown) | written, strangers

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
        brought = {v.name for v in self.events.rigid}
        if not any(isinstance(node, Read) and node.variable in brought for node in walk(condition)):
            return
        for variable in self.folded.rigid_variables:
            if len(variable.keys) == 2 and not only_helps(condition, variable.name, True):
                self.undecidable.setdefault(candidate.name, f"what is told later of '{variable.name}' may make it false")
        for parameter in candidate.parameters:
            facts = at_default(condition, parameter, self.instance)
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
                if action.name in self.header.silent:
                    self.undecidable[name] = f"{action.name} happens unseen: {self.header.silent[action.name]}"
                elif self.partial is not None:
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
        """For each sort whether an element of it has ended, as far as a final condition says."""
        found: dict[str, list[Callable[..., Any]]] = {}
        for final in self.folded.finals:
            own = [parameter for parameter in final.parameters if parameter.domain.name in self.sorts]
            if len(own) != 1:
                continue
            condition = final.condition
            if self.partial is not None:
                both = rails(condition, self.partial.unknown)
                condition = both.possible if possible else both.yes
            others = tuple(parameter for parameter in final.parameters if parameter is not own[0])
            if others:
                condition = Quantified(Binder.ALL, others, condition)
            found.setdefault(own[0].domain.name, []).append(self.value_of(condition, (own[0],)))
        return found

    def _check_start(self) -> None:
        """What is true before the first event. Raises UsageError where header or spec do not allow it."""
        given: dict[str, Value] = {}
        for name, told in self.header.values.items():
            variable = self.folded.by_name[name]
            if variable.keys:
                self.told += [(name, (page,), True) for page in self._listed(variable, told)]
            else:
                given[name] = plain_value(variable, told)
                self.told.append((name, (), given[name]))
        cells = self.start().cells
        conditions = (*self.system.assumptions, *self.system.initial)
        for condition in conditions:
            if self._is_false(condition, cells):
                raise UsageError(f"{self.system.name} cannot start as the header says: '{condition.name}' is false ({condition.at})")
        lists = any(self.folded.by_name[name].keys for name in self.header.values)
        for check in self.checks:
            if (lists or counts(check.condition)) and self._is_false(Condition("", check.parameters, check.condition), cells):
                self.undecidable[self.properties[check.number % len(self.properties)].name] = "it is not surely true before the first event"
        checked = [(check, Condition("", check.parameters, check.condition)) for check in self.checks]
        everything = (*conditions, *(condition for _, condition in checked))
        # Before anything has happened one element is like another: as many as a condition can tell apart tell everything, but for counts.
        most = {sort: max([2, *(_apart(condition, sort) for condition in everything)]) for sort in (*self.sorts, PAGE)}
        sizes = {sort: most[sort] for sort in self.sorts} | {name: min(size, most[PAGE]) for name, size in self.events.sizes.items()}
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
        for condition in conditions:
            if self._cannot_count(condition):
                self.uncertain[condition.name] = "it counts what can have a name"
            elif not counts(condition.condition) and not interpreter.holds_for_all(condition, start):
                raise UsageError(f"{self.system.name} cannot start as the header says: '{condition.name}' is false ({condition.at})")
        for check, condition in checked:
            name = self.properties[check.number % len(self.properties)].name
            if self._cannot_count(condition):
                self.undecidable[name] = "it counts what can have a name"
            elif not counts(check.condition) and not interpreter.holds_for_all(condition, start):
                self.undecidable[name] = "it is not surely true before the first event"

    def _cannot_count(self, condition: Condition) -> bool:
        """Whether a condition counts, and is about more than pages: then it is not known before the first event."""
        expr, named = condition.condition, any(parameter.domain.name != PAGE for parameter in condition.parameters)
        return counts_unnamed(expr, self.sorts, self.instance) or (counts(expr) and named)

    def _is_false(self, condition: Condition, cells: list[Any]) -> bool:
        """Whether a condition that is about pages alone is false of any."""
        if not all(parameter.domain.name == PAGE for parameter in condition.parameters):
            return False
        everywhere = Quantified(Binder.ALL, condition.parameters, condition.condition) if condition.parameters else condition.condition
        return not self.value_of(everywhere, ())(cells)

    def _listed(self, variable: Variable, told: object) -> list[int]:
        """The pages of a relation in the header."""
        size = self.pages
        if not isinstance(told, list) or not all(isinstance(page, int) and page < size for page in told):
            raise UsageError(f"'{variable.name}' is a list of pages, of which there are {size:,}")
        return told

    def _is_partition(self, name: str) -> bool:
        return self.events.partition is not None and name == self.events.partition.name

    def _conditions_of_new(self) -> dict[str, list[tuple[Condition, Callable[..., Any]]]]:
        """What must be true of the values that an element brings."""
        found: dict[str, list[tuple[Condition, Callable[..., Any]]]] = {}
        brought = {v.name: v.keys[0].name for v in self.events.rigid}
        for condition in (*self.system.assumptions, *self.system.initial):
            sorts = {brought[node.variable] for node in walk(condition.condition) if isinstance(node, Read) and node.variable in brought}
            for sort in sorts:
                if [parameter.domain.name for parameter in condition.parameters] != [sort]:
                    self.uncertain[condition.name] = f"it cannot be told of one {sort} at a time"
                else:
                    found.setdefault(sort, []).append((condition, self.value_of(condition.condition, condition.parameters)))
        return found

    def _make_premises(self) -> dict[str, Callable[..., Any]]:
        """For each property whether the left side of its implication is true of anything, as far as the log tells that."""
        hidden = self.partial.unknown if self.partial is not None else frozenset[str]()
        found = {}
        for candidate in self.original.declared:
            # Folding leaves no implication to see.
            left = premise(candidate.condition) if candidate.kind is PropertyKind.INVARIANT else None
            if left is not None and not any(isinstance(node, Read) and node.variable in hidden for node in walk(left)):
                some = Quantified(Binder.ANY, candidate.parameters, fold(left, self.original.flag_values))
                found[candidate.name] = self.value_of(some, ())
        return found


@lru_cache(maxsize=4)
def plan_for(system: TransitionSystem, header: bytes) -> Plan:
    """The plan of a spec for a header as JSON; those made last are kept."""
    return Plan(system, msgspec.json.decode(header, type=Header))


def plain_value(variable: Variable, value: object) -> Value:
    """A value of the log as one of the variable, where that is no name. Raises UsageError for one that it cannot have."""
    match variable.type:
        case Bool() if isinstance(value, bool):
            return value
        case Number() if isinstance(value, int) and not isinstance(value, bool):
            return value
        case Element(Enumeration(members=members)) | Maybe(Enumeration(members=members)) if value in members:
            return value
    raise UsageError(f"{printable(repr(value), 80)} is not a {describe(variable.type)}, as '{variable.name}' needs")


def _apart(condition: Condition, sort: str) -> int:
    """How many elements of a sort a condition can tell apart, where it does not count."""
    return sum(parameter.domain.name == sort for parameter in condition.parameters) + variables_of(condition.condition, sort)
