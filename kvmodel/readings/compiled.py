"""The compiled step: a transition system as generated Python over a sparse, mutable state.

For instances of real size: tens of thousands of pages, ten thousand requests. It says the same as the interpreter
(`kvmodel.readings.run`), which is what tests hold it to.

>>> from kvmodel.language.build import Builder, var
>>> b = Builder("pages")
>>> page = b.sort("Page")
>>> free = b.relation("free", page, initial=True)
>>> p = var("p", page)
>>> _ = b.action("take", p, guards={"free": free(p)}, updates=[free.set(False, p)])
>>> compiled = CompiledSystem(b.build(), {"Page": 30_000})
>>> state = compiled.start()
>>> changes = compiled.batch(state, "take", [(page,) for page in range(10_000)])
>>> state.get("free", (9_999,)), state.get("free", (10_000,)), len(changes.of("free"))
(False, True, 10000)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from kvmodel.errors import UsageError, nearest
from kvmodel.language.expressions import FALSE, Bound, Expr
from kvmodel.language.instance import Binding, Instance, State
from kvmodel.language.system import Anything, Condition, Property, PropertyKind, TransitionSystem, Variable
from kvmodel.language.types import Enumeration, Value
from kvmodel.readings.fold import fold, fold_system
from kvmodel.readings.footprint import Access, Footprint, footprint, property_footprint
from kvmodel.readings.generated import NO_SUCH_ELEMENT, ActionCode, ActionSource, failing, put, touched_checks, value_of
from kvmodel.readings.sparse import SparseState, StoreLayout

__all__ = ["Changes", "CompiledSystem", "Valuation", "Violation"]

SMALLEST_BLOCK = 8  # bindings from which on set operations pay

Valuation: TypeAlias = Mapping[str, Mapping[Binding, Value]]


class Violation(NamedTuple):
    """A property, and the binding of its parameters for which it is false (of the action's, for an assertion)."""

    property: str
    binding: Binding


class Changes(NamedTuple):
    """What a step or a batch changed, and the assertions ``assert:ACTION:NAME`` that it broke.

    `keys` has for each of `variables` where it changed, as generated code notes it; `of` gives it in a plain form.
    """

    layout: StoreLayout
    variables: tuple[str, ...]
    keys: tuple[Any, ...]
    broken: tuple[Violation, ...] = ()

    def of(self, variable: str) -> Sequence[Any]:
        """The keys at which a variable changed: elements where it has one key, tuples where it has another number."""
        if variable not in self.variables:
            return ()
        keys = self.keys[self.variables.index(variable)]
        return [(first, second) for first, group in keys.items() for second in group] if self.layout.stores[variable].rows else keys


class CompiledSystem:
    """A transition system compiled for one instance. Flags are folded; sizes are as for `Instance.make`, without its limit.

    `properties` are those that `violations` watches (all that a single state can violate, unless given). `searches` keeps
    indices for the searches through whole states (`bindings`, `some_enabled`, `no_deadlock`): off, these are slow and
    steps a little faster.

    Raises UsageError for an unknown property, InstanceError for unknown sorts or sizes.
    """

    def __init__(
        self,
        system: TransitionSystem,
        sizes: Mapping[str, int] | None = None,
        properties: Sequence[str] | None = None,
        searches: bool = True,
    ) -> None:
        self.instance = Instance.make(system, sizes, limit=None)
        self.system = fold_system(system)
        names = [p.name for p in self.system.properties if p.kind is not PropertyKind.REACHABLE] if properties is None else properties
        self.watched = tuple(self.system.property(name) for name in names)
        self._sizes = dict(self.instance.sizes)
        self._layout = StoreLayout(self.instance)
        self._order = {candidate.name: number for number, candidate in enumerate(self.watched)}
        invariants = [candidate for candidate in self.watched if candidate.kind is PropertyKind.INVARIANT]
        sources = [ActionSource(action, self.system, self._layout) for action in self.system.actions]
        self._touched: dict[str, list[Any]] = {variable.name: [] for variable in self.system.state_variables}
        for candidate in invariants:
            for check in touched_checks(self._order[candidate.name], candidate, self.system, self._layout):
                self._touched[check.variable].append(check.check)
        if searches:
            for source in sources:
                source.announce_searches()
        self._failing = {candidate.name: failing(candidate, self._layout, searches) for candidate in invariants}
        self._finals = tuple(failing(final, self._layout, searches) for final in self.system.finals)
        conditions = (*self.system.assumptions, *self.system.initial)
        self._conditions = tuple((condition, failing(condition, self._layout, False)) for condition in conditions)
        # Every reading function is there, so the indices are settled: now the functions that write.
        self._actions: dict[str, ActionCode] = {source.action.name: source.finish(searches) for source in sources}
        self._put = {name: put(store, self._layout) for name, store in self._layout.stores.items()}

    # -- states ----------------------------------------------------------------------------------------------------

    def valued(self, values: Valuation | None = None) -> SparseState:
        """A state with the given values of rigid variables, and of those state variables that may start with anything; what
        is left out has the first value of its type (zero for numbers). Nothing is checked; see `broken_conditions`.

        `values` maps a variable to its value at each index: ``{"prompt": {(0,): 700}, "context": {(): 1048576}}``.
        Raises UsageError for a variable that is unknown or has an initial value, or an index outside its domains.
        """
        state = SparseState(self._layout, self._layout.empty(), set())
        for (sort, element), member in self.instance.part_of.items():
            for variable in self.system.rigid_variables:
                if variable.partition and variable.keys[0].name == sort:
                    self._store(state, variable.name, (element,), member)
        for name, entries in (values or {}).items():
            variable = self._variable(name)
            if variable.partition or not isinstance(variable.initial, Anything):
                fixed = "the sizes fix it" if variable.partition else "it has an initial value"
                raise UsageError(f"{self.system.name}: '{name}' cannot be given a value: {fixed}")
            for index, value in entries.items():
                self._check_index(variable, index)
                self._store(state, name, index, value)
        return state

    def start(self, values: Valuation | None = None) -> SparseState:
        """An initial state: `valued`, with every assumption and every condition on initial states true of it.

        Raises UsageError that names the broken ones.
        """
        state = self.valued(values)
        broken = self.broken_conditions(state)
        if broken:
            raise UsageError(f"{self.system.name} cannot start with these values: {', '.join(broken)} is false")
        return state

    def broken_conditions(self, state: SparseState) -> tuple[str, ...]:
        """Names of the assumptions, and of the conditions on initial states, that are false of `state`."""
        return tuple(condition.name for condition, broken in self._conditions if broken(state.cells))

    def at(self, values: Valuation) -> SparseState:
        """A state with the given values of any variables; everything else is as for `valued`. Nothing is checked: for states
        that come from elsewhere, whose indices are known to fit."""
        state = self.valued()
        for name, entries in values.items():
            self.change(state, name, entries)
        return state

    def change(self, state: SparseState, variable: str, entries: Mapping[Binding, Value]) -> None:
        """Change values of one variable in place. Nothing is checked, as for `at`."""
        store, out = self._put[variable], state.out_of_range
        for index, value in entries.items():
            store(state.cells, out, index, value)

    def from_dense(self, dense: State) -> SparseState:
        """The sparse form of a state of `instance`."""
        state = SparseState(self._layout, self._layout.empty(), set())
        for layout, values in ((self.instance.rigid_layout, dense.rigid), (self.instance.state_layout, dense.values)):
            for (name, index), value in zip(layout.places, values, strict=True):
                self._store(state, name, index, value)
        return state

    def to_dense(self, state: SparseState) -> State:
        """The state as the other readings have it: only for small sizes."""
        layouts = (self.instance.rigid_layout, self.instance.state_layout)
        rigid, values = (tuple(state.get(name, index) for name, index in layout.places) for layout in layouts)
        return State(rigid, values)

    # -- steps -----------------------------------------------------------------------------------------------------

    def enabled(self, state: SparseState, action: str, binding: Binding) -> bool:
        """Whether every guard is true, and no counter is out of its range."""
        return not state.out_of_range and self._code(action).admit(state.cells, (binding,)) is None

    def blocked_by(self, state: SparseState, action: str, binding: Binding) -> str:
        """Why a step cannot be taken, in a clause (``its guard 'free' is false``); empty when it can."""
        if state.out_of_range:
            return "a counter is out of its range"
        refused = self._code(action).admit(state.cells, (binding,))
        return "" if refused is None else self._reason(action, refused[0])

    def step(self, state: SparseState, action: str, binding: Binding) -> Changes:
        """Take one step. Raises UsageError, and changes nothing, when it is not enabled."""
        return self._take(state, self._code(action), (binding,))

    def attempt(self, state: SparseState, action: str, binding: Binding) -> Changes | None:
        """Take one step if it is enabled; otherwise change nothing and give None."""
        code = self._code(action)
        if state.out_of_range or code.admit(state.cells, (binding,)) is not None:
            return None
        return self._apply(state, code, (binding,))

    def batch(self, state: SparseState, action: str, bindings: Sequence[Binding]) -> Changes:
        """Take one step for each binding, all of one action, as if one after the other in any order.

        Raises UsageError, and changes nothing, when a step is not enabled, when the bindings are not known to commute, or
        when a counter would leave its range.
        """
        code = self._code(action)
        line = _only_varying(bindings) if len(bindings) >= SMALLEST_BLOCK else None
        shaky = self._shaky(code, bindings, line) if len(bindings) > 1 else frozenset()
        if len(bindings) > 1 and code.overflow:
            overflow = code.overflow(state.cells, bindings)
            if overflow is not None:
                raise UsageError(f"{self._show(action, overflow)} takes a counter out of its range: take it as a step of its own")
        changes = self._take_line(state, code, bindings[0], line, shaky) if line else None
        return self._take(state, code, bindings, shaky) if changes is None else changes

    def _take_line(
        self, state: SparseState, code: ActionCode, first: Binding, line: tuple[int, set[Any]], shaky: frozenset[Access]
    ) -> Changes | None:
        """A batch in which one parameter varies, with set operations. None, and nothing changed, where some step is not enabled
        or that does not work."""
        position, elements = line
        block = code.along(position, shaky)
        size = self._sizes.get(code.action.parameters[position].domain.name, 0)
        if block is None or state.out_of_range or min(elements) < 0 or max(elements) >= size:
            return None
        others = (*first[:position], *first[position + 1:])
        state.cells[block.slot] = elements
        try:
            if block.admit(state.cells, others):
                return Changes(self._layout, code.written, block.apply(state.cells, state.out_of_range, [others], []))
            return None
        finally:
            state.cells[block.slot] = set()

    def _take(self, state: SparseState, code: ActionCode, bindings: Sequence[Binding], shaky: frozenset[Access] = frozenset()) -> Changes:
        name = code.action.name
        if state.out_of_range:
            raise UsageError(f"{name} is not enabled: a counter is out of its range")
        # A firm guard that is true is enough; otherwise it takes the real one to say what is wrong.
        unsure = code.admit_firm(shaky)(state.cells, bindings) if shaky else None
        refused = code.admit(state.cells, bindings) if unsure or not shaky else None
        if refused is not None:
            number, binding = refused
            raise UsageError(f"{self._show(name, binding)} is not enabled: {self._reason(name, number)}")
        if unsure is not None:
            number, binding = unsure
            raise UsageError(
                f"{name} cannot be taken in this batch: the guard '{code.action.guards[number].name}' of "
                f"{self._show(name, binding)} depends on {', '.join(sorted(map(str, shaky)))}, which another of its bindings may write"
            )
        return self._apply(state, code, bindings)

    def _apply(self, state: SparseState, code: ActionCode, bindings: Sequence[Binding]) -> Changes:
        broken: list[tuple[int, Binding]] = []
        keys = code.apply(state.cells, state.out_of_range, bindings, broken)
        if not broken:
            return Changes(self._layout, code.written, keys)
        assertions = [f"assert:{code.action.name}:{assertion.name}" for assertion in code.action.assertions]
        return Changes(self._layout, code.written, keys, tuple(Violation(assertions[number], binding) for number, binding in broken))

    def bindings(self, state: SparseState, action: str) -> tuple[Binding, ...]:
        """Every binding for which an action is enabled, the last parameter changing fastest."""
        if state.out_of_range:
            return ()
        code = self._code(action)
        return self._sorted(code.search(state.cells), code.action.parameters)

    def possible(self, action: str) -> bool:
        """Whether the flags leave the action any chance to happen."""
        return not any(guard.condition == FALSE for guard in self._code(action).action.guards)

    def some_enabled(self, state: SparseState) -> bool:
        """Whether any step can be taken."""
        return not state.out_of_range and any(code.some(state.cells) for code in self._actions.values())

    def is_final(self, state: SparseState) -> bool:
        """Whether `state` may have no successor (no `@final`: no state may)."""
        return any(not failing(state.cells) for failing in self._finals)

    # -- properties ------------------------------------------------------------------------------------------------

    def violations(self, state: SparseState, changes: Changes | None = None) -> tuple[Violation, ...]:
        """The watched properties that `state` violates, with their bindings: for `changes` (those of the last step or batch)
        only where its writes touch what a property reads, and with the assertions that it broke; otherwise all.

        A binding that became violated by the changes is always among them. `no_deadlock` and ``range:COUNTER`` are
        properties of the whole state and are always judged.
        """
        found: set[tuple[int, Binding]] = set()
        if changes is None:
            for name, broken in self._failing.items():
                found.update((self._order[name], binding) for binding in broken(state.cells))
        else:
            for variable, keys in zip(changes.variables, changes.keys, strict=True):
                if keys:
                    for check in self._touched[variable]:
                        check(state.cells, keys, found)
            found.update((self._order[v.property], v.binding) for v in changes.broken if v.property in self._order)
        for slot, _ in state.out_of_range:
            name = f"range:{self.system.variables[slot].name}"
            if name in self._order:
                found.add((self._order[name], ()))
        if "no_deadlock" in self._order and not state.out_of_range and not self.some_enabled(state) and not self.is_final(state):
            found.add((self._order["no_deadlock"], ()))
        return self._listed(found)

    def evaluate(self, state: SparseState, expr: Expr, environment: Mapping[Bound, Value] | None = None) -> Value:
        """The value of an expression, with its free parameters given by `environment`. Compiles it; not for inner loops."""
        given = dict(environment or {})
        value: Value = value_of(fold(expr, self.system.flag_values), tuple(given), self._layout)(state.cells, *given.values())
        return value

    def failing_bindings(self, state: SparseState, condition: Condition | Property) -> tuple[Binding, ...]:
        """Every binding for which a condition (of any kind) is false. Compiles it; not for inner loops."""
        folded = replace(condition, condition=fold(condition.condition, self.system.flag_values))
        return self._sorted(failing(folded, self._layout, False)(state.cells), condition.parameters)

    def footprint(self, action: str) -> Footprint:
        """What a step of the action reads and writes, under the system's flags."""
        return footprint(self._code(action).action, self.system)

    def property_footprint(self, name: str) -> Footprint:
        """What a property depends on, under the system's flags."""
        return property_footprint(self.system.property(name), self.system)

    # -- private ---------------------------------------------------------------------------------------------------

    def _code(self, action: str) -> ActionCode:
        code = self._actions.get(action)
        if code is None:
            self.system.action(action)  # raises, with the nearest known name
        assert code is not None
        return code

    def _variable(self, name: str) -> Variable:
        if name not in self.system.by_name:
            raise UsageError(f"{self.system.name} has no variable '{name}'{nearest(name, list(self.system.by_name))}")
        return self.system.by_name[name]

    def _check_index(self, variable: Variable, index: Binding) -> None:
        fits = len(index) == len(variable.keys) and all(
            element in key.members if isinstance(key, Enumeration) else isinstance(element, int) and 0 <= element < self._sizes[key.name]
            for element, key in zip(index, variable.keys, strict=True)
        )
        if not fits:
            keys = ", ".join(key.name for key in variable.keys) or "no keys"
            raise UsageError(f"{self.system.name}: '{variable.name}' has no index {index!r} at this size (it takes {keys})")

    def _store(self, state: SparseState, name: str, index: Binding, value: Value) -> None:
        self._put[name](state.cells, state.out_of_range, index, value)

    def _shaky(self, code: ActionCode, bindings: Sequence[Binding], line: tuple[int, set[Any]] | None = None) -> frozenset[Access]:
        """What a guard reads and another binding may write. Raises UsageError when the bindings are not known to commute."""
        commutation = code.commutation
        if commutation.obstacle:
            raise UsageError(f"{code.action.name} cannot be taken in a batch: {commutation.obstacle}")
        names = [parameter.name for parameter in code.action.parameters]

        def differ(group: frozenset[str]) -> bool:
            if not group or line is not None:
                return line is not None and names[line[0]] in group
            chosen = itemgetter(*map(names.index, group))
            return chosen(bindings[0]) != chosen(bindings[1]) and len(set(map(chosen, bindings))) == len(bindings)

        for group in commutation.distinct:
            if not differ(group):
                raise UsageError(
                    f"{code.action.name} cannot be taken in this batch: two of its bindings have the same {', '.join(sorted(group))}"
                )
        together = {group: differ(group) for group in {group for group, _ in commutation.soft}}
        return frozenset(access for group, access in commutation.soft if not together[group])

    def _reason(self, action: str, number: int) -> str:
        guards = self._actions[action].action.guards
        return "there is no such element at this size" if number == NO_SUCH_ELEMENT else f"its guard '{guards[number].name}' is false"

    def _show(self, action: str, binding: Binding) -> str:
        parameters = self._actions[action].action.parameters
        return f"{action}({', '.join(f'{p.name}={value}' for p, value in zip(parameters, binding, strict=True))})"

    def _listed(self, found: set[tuple[int, Binding]]) -> tuple[Violation, ...]:
        violations: list[Violation] = []
        for number in sorted({number for number, _ in found}):
            candidate = self.watched[number]
            bindings = [binding for n, binding in found if n == number]
            violations += [Violation(candidate.name, binding) for binding in self._sorted(bindings, candidate.parameters)]
        return tuple(violations)

    def _sorted(self, bindings: Iterable[Binding], parameters: tuple[Bound, ...]) -> tuple[Binding, ...]:
        """Bindings in the order of their domains (members of an enumeration as declared)."""
        ranks = {
            position: {value: rank for rank, value in enumerate(self.instance.elements(parameter.domain))}
            for position, parameter in enumerate(parameters)
            if isinstance(parameter.domain, Enumeration)
        }
        if not ranks:
            return tuple(sorted(bindings))
        return tuple(
            sorted(bindings, key=lambda b: [ranks[i][value] if i in ranks else value for i, value in enumerate(b)])
        )


def _only_varying(bindings: Sequence[Binding]) -> tuple[int, set[Any]] | None:
    """The position at which bindings differ, and the elements there, if they all differ there and nowhere else."""
    first, last = bindings[0], bindings[-1]
    varying = [position for position in range(len(first)) if first[position] != last[position]]
    if len(varying) != 1:
        return None
    (position,) = varying
    elements = set(map(itemgetter(position), bindings))
    others = [other for other in range(len(first)) if other != position]
    same = not others or len(set(map(itemgetter(*others), bindings))) == 1
    return (position, elements) if same and len(elements) == len(bindings) else None
