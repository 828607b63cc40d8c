"""The functions of a compiled system: guards, updates, searches and property checks, as Python source over a sparse state.

Generation has two phases. First everything that reads is emitted, which settles the indices that a state keeps; then the
writes, which maintain them. A function takes the state's containers as ``S`` and its out-of-range counters as ``R``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from kvmodel.language.expressions import TRUE, Apply, Bound, Const, Expr, Quantified, Read, conjunction, free_names, substitute
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import Action, Condition, Guard, Property, TransitionSystem, Update
from kvmodel.language.types import BOOL, Bool, Counter, Domain, Enumeration, Sort
from kvmodel.readings.dense import compile_function
from kvmodel.readings.emitter import Clause, Emitter, comprehension, indented, nest, pack, tuple_of
from kvmodel.readings.fold import fold
from kvmodel.readings.footprint import Access, Anywhere, Commutation, accesses, bindings_commute, firm
from kvmodel.readings.search import Literal, cases, literals
from kvmodel.readings.sparse import Store, StoreLayout, batch_variable
from kvmodel.readings.writer import Writer

__all__ = [
    "ActionCode",
    "ActionSource",
    "BlockCode",
    "Prepared",
    "TouchedCheck",
    "block_position",
    "differs",
    "failing",
    "put",
    "touched_checks",
    "value_of",
]

NO_SUCH_ELEMENT = -1


@dataclass(frozen=True)
class ActionCode:
    """The compiled functions of one action.

    `admit(S, bindings)` gives None, or (number of the first false guard, binding), with number -1 for arguments outside
    their domains; `overflow(S, bindings)` gives None, or a binding that would take a counter out of its range;
    `apply(S, R, bindings, broken)` takes the steps, adds (number of the assertion, binding) to `broken` and gives the
    changed keys of each variable in `written` (a list, or for a relation with rows a dictionary of lists); `search(S)` gives
    every enabled binding, `some(S)` whether there is one.
    `admit_firm` gives an `admit` whose guards do without some reads; `along` the functions for a batch in which only the
    parameter at one position varies, likewise, or None.
    """

    action: Action
    written: tuple[str, ...]
    commutation: Commutation
    admit: Callable[..., Any]
    admit_firm: Callable[[frozenset[Access]], Callable[..., Any]]
    along: Callable[[int, frozenset[Access]], BlockCode | None]
    overflow: Callable[..., Any] | None
    apply: Callable[..., Any]
    search: Callable[..., Any]
    some: Callable[..., Any]


@dataclass(frozen=True)
class BlockCode:
    """The functions of a batch over one parameter; its elements are in container `slot` while they run.

    `admit(S, others)` gives whether every step is enabled, for the values of the other parameters; `apply(S, R, [others],
    broken)` takes them all.
    """

    slot: int
    admit: Callable[..., Any]
    apply: Callable[..., Any]


@dataclass(frozen=True)
class TouchedCheck:
    """Finds what is violated among the bindings of a property that a change of `variable` touches.

    `check(S, keys, found)` adds (number of the property, binding) to the set `found`, for changed keys of the variable (at
    least one), as `apply` gives them.
    """

    variable: str
    check: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Prepared:
    """An update up to its write: statements that evaluate everything, what is written where (names or constants), and the
    line around the write ('' for none), or the position of the one key that varies in a block of writes."""

    lines: list[str]
    keys: list[str]
    value: str
    around: str = ""
    block: int | None = None


class ActionSource:
    """The source of one action's functions. Making one is the first phase of generation, `finish` the second."""

    def __init__(self, action: Action, system: TransitionSystem, layout: StoreLayout, indexing: bool = True) -> None:
        self.action = action
        self.system = system
        self.layout = layout
        self.names = _parameter_names(action.parameters)
        self.written = tuple(dict.fromkeys(update.variable for update in action.updates))
        self._admit = self._admit_source(action.guards, Emitter(layout, indexing))
        self._overflow = self._overflow_source(Emitter(layout, indexing))
        self._emitter = Emitter(layout, indexing)
        self._asserted = self._assertion_lines()
        self._prepared = [self._prepare(update, number) for number, update in enumerate(action.updates)]

    def finish(self, indexing: bool) -> ActionCode:
        """The compiled functions. `indexing` says that `search` and `some` were announced by `announce_searches`."""
        search, some = self._search_sources(indexing)
        return ActionCode(
            self.action,
            self.written,
            bindings_commute(self.action, self.system),
            compile_function(self._admit, "admit"),
            cache(self._admit_firm),
            cache(self._along),
            compile_function(self._overflow, "overflow") if self._overflow else None,
            compile_function(self._apply_source(), "apply"),
            compile_function(search, "search"),
            compile_function(some, "some"),
        )

    def announce_searches(self) -> None:
        """Let the searches for enabled bindings have their own indices."""
        self._search_sources(True)

    @property
    def _binding(self) -> str:
        return tuple_of(list(self.names.values()))

    def _for_each_binding(self, body: list[str]) -> list[str]:
        target = self._binding if self.names else "_"
        return [f"for {target} in B:", *indented(body or ["pass"])]

    def _admit_source(self, guards: tuple[Guard, ...], emitter: Emitter) -> list[str]:
        tests = [
            (NO_SUCH_ELEMENT, _belongs(self.names[parameter.name], parameter.domain, self.layout)) for parameter in self.action.parameters
        ]
        tests += [(number, emitter.value(guard.condition, self.names)) for number, guard in enumerate(guards)]
        body = [line for number, test in tests for line in (f"if not {test}:", f"    return {number}, {self._binding}")]
        return _function("admit", "S, B", emitter, [*self._for_each_binding(body), "return None"])

    def _firm_guards(self, shaky: frozenset[Access]) -> tuple[Guard, ...]:
        if not shaky:
            return self.action.guards
        return tuple(
            replace(guard, condition=fold(firm(guard.condition, self.action.parameters, shaky, self.system), {}))
            for guard in self.action.guards
        )

    def _admit_firm(self, shaky: frozenset[Access]) -> Callable[..., Any]:
        return compile_function(self._admit_source(self._firm_guards(shaky), Emitter(self.layout, indexing=False)), "admit")

    def _along(self, position: int, shaky: frozenset[Access]) -> BlockCode | None:
        """A batch over one parameter is one step of another action, in which every update runs over that parameter."""
        parameter = self.action.parameters[position]
        if not isinstance(parameter.domain, Sort) or self.action.assertions or self._overflow:
            return None
        relation = batch_variable(parameter.domain)
        member = Read(relation.name, (Bound(parameter.name, parameter.domain),), BOOL)
        others = tuple(other for other in self.action.parameters if other is not parameter)
        updates = tuple(
            replace(update, over=(parameter, *update.over), condition=conjunction([member, update.condition]))
            if any(parameter.name in free_names(part) for part in (update.condition, update.value, *update.index))
            else update
            for update in self.action.updates
        )
        block = replace(self.action, parameters=others, guards=(), updates=updates)
        source = ActionSource(block, self.system, self.layout, indexing=False)
        names = _parameter_names(others)
        emitter = Emitter(self.layout, indexing=False)
        lines = [f"{tuple_of(list(names.values()))} = B" if names else "pass"]
        for other in others:
            lines += [f"if not {_belongs(names[other.name], other.domain, self.layout)}:", "    return False"]
        for guard in self._firm_guards(shaky):
            for case in cases(literals(guard.condition, False)):
                for plan in emitter.search((parameter,), (Literal(member, True), *case)):
                    clauses, _ = emitter.clauses(plan, names, eager=True)
                    lines += nest(clauses, ["return False"])
        admit = _function("admit", "S, B", emitter, [*lines, "return True"])
        slot = self.layout.stores[relation.name].slot
        return BlockCode(slot, compile_function(admit, "admit"), compile_function(source._apply_source(), "apply"))

    def _overflow_source(self, emitter: Emitter) -> list[str] | None:
        body: list[str] = []
        for update in self.action.updates:
            kind = self.system.by_name[update.variable].type
            if isinstance(kind, Counter):
                for plan in emitter.search(update.over, literals(update.condition, True)):
                    clauses, names = emitter.clauses(plan, self.names)
                    value = emitter.value(update.value, names)
                    body += nest(clauses, [f"if not {kind.low} <= {value} <= {kind.high}:", f"    return {self._binding}"])
        return _function("overflow", "S, B", emitter, [*self._for_each_binding(body), "return None"]) if body else None

    def _assertion_lines(self) -> list[str]:
        lines: list[str] = []
        for number, assertion in enumerate(self.action.assertions):
            condition = self._emitter.value(assertion.condition, self.names)
            lines += [f"if not {condition}:", f"    broken.append(({number}, {self._binding}))"]
        return lines

    def _prepare(self, update: Update, number: int) -> Prepared:
        return self._prepare_loop(update, number) if update.over else self._prepare_one(update, number)

    def _early(self, expr: Expr, name: str, lines: list[str]) -> str:
        """Source of a value that no later write changes: constants and parameters as they are, the rest evaluated in `lines`."""
        code = self._emitter.value(expr, self.names)
        if isinstance(expr, Const | Bound):
            return code
        lines.append(f"{name} = {code}")
        return name

    def _prepare_one(self, update: Update, number: int) -> Prepared:
        lines: list[str] = []
        keys = [self._early(part, f"k{number}_{position}", lines) for position, part in enumerate(update.index)]
        value = self._early(update.value, f"t{number}", lines)
        around = "" if update.condition == TRUE else f"if {self._early(update.condition, f'u{number}', lines)}:"
        return Prepared(lines, keys, value, around)

    def _prepare_loop(self, update: Update, number: int) -> Prepared:
        block = block_position(update)
        return self._prepare_each(update, number) if block is None else self._prepare_block(update, number, block)

    def _prepare_each(self, update: Update, number: int) -> Prepared:
        """A list of keys and values, made before the first write."""
        keys = [f"k{number}_{position}" for position in range(len(update.index))]
        constant = repr(update.value.value) if isinstance(update.value, Const) else ""
        parts = []
        for clauses, names in self._matches(update, isinstance(update.value, Const)):
            wanted = update.index if constant else (*update.index, update.value)
            parts.append(comprehension(pack([self._emitter.value(part, names) for part in wanted]), clauses))
        target = pack(keys if constant else [*keys, f"t{number}"])
        return Prepared([f"w{number} = {' + '.join(parts)}"], keys, constant or f"t{number}", f"for {target} in w{number}:")

    def _prepare_block(self, update: Update, number: int, block: int) -> Prepared:
        """A list of the one key that varies, made before the first write."""
        lines: list[str] = []
        keys = [
            f"k{number}" if position == block else self._early(part, f"k{number}_{position}", lines)
            for position, part in enumerate(update.index)
        ]
        value = self._early(update.value, f"t{number}", lines)
        parts = [
            comprehension(self._emitter.value(update.index[block], names), clauses) for clauses, names in self._matches(update, True)
        ]
        lines.append(f"w{number} = {parts[0]}" if len(parts) == 1 else f"w{number} = set().union({', '.join(parts)})")
        return Prepared(lines, keys, value, block=block)

    def _matches(self, update: Update, differing: bool) -> list[tuple[list[Clause], dict[str, str]]]:
        """Loops that find where an update writes; with `differing`, only places that have another value."""
        condition = dict.fromkeys((*literals(update.condition, True), *(differs(update) if differing else ())))
        plans = self._emitter.search(update.over, tuple(condition))
        return [self._emitter.clauses(plan, self.names, eager=True) for plan in plans]

    def _apply_source(self) -> list[str]:
        changed = {name: f"c{position}" for position, name in enumerate(self.written)}
        body = [*self._asserted, *(line for prepared in self._prepared for line in prepared.lines)]
        for number, (update, prepared) in enumerate(zip(self.action.updates, self._prepared, strict=True)):
            body += self._write_lines(update, prepared, f"w{number}", changed[update.variable])
        start = [f"{name} = {'{}' if self.layout.stores[variable].rows else '[]'}" for variable, name in changed.items()]
        lines = [*start, *self._for_each_binding(body), f"return {tuple_of(list(changed.values()))}"]
        return _function("apply", "S, R, B, broken", self._emitter, lines)

    def _write_lines(self, update: Update, prepared: Prepared, group: str, changed: str) -> list[str]:
        writer = Writer(self._emitter)
        if prepared.block is not None:
            return writer.write_block(update.variable, prepared.keys, prepared.block, group, prepared.value, changed)
        write = writer.write(update.variable, prepared.keys, prepared.value, changed)
        return [prepared.around, *indented(write)] if prepared.around else write

    def _search_sources(self, indexing: bool) -> tuple[list[str], list[str]]:
        condition = literals(conjunction([guard.condition for guard in self.action.guards]), True)
        emitter = Emitter(self.layout, indexing)
        search = _function("search", "S", emitter, _gather(emitter, self.action.parameters, condition))
        emitter = Emitter(self.layout, indexing)
        some = _function("some", "S", emitter, [f"return {emitter.some(self.action.parameters, condition, {})}"])
        return search, some


def touched_checks(number: int, candidate: Property, system: TransitionSystem, layout: StoreLayout) -> tuple[TouchedCheck, ...]:
    """The checks that find new violations of an invariant: one for each way in which it reads a variable of the state.

    A changed key is unified with the index of the read; parameters that this leaves open are searched for.
    """
    variables, condition = _flatten(candidate.parameters, literals(candidate.condition, False))
    reads = dict.fromkeys(access for literal in condition for access in accesses(literal.expr, variables, system))
    checks = []
    for access in reads:
        emitter = Emitter(layout)
        names, loops = _unify(access, layout.stores[access.variable], emitter)
        rest = tuple(variable for variable in variables if variable.name not in names)
        body = []
        for plan in emitter.search(rest, condition):
            clauses, inner = emitter.clauses(plan, names, eager=True, start=loops)
            binding = tuple_of([inner[parameter.name] for parameter in candidate.parameters])
            body += nest(clauses, [f"F.add(({number}, {binding}))"])
        checks.append(TouchedCheck(access.variable, compile_function(_function("check", "S, C, F", emitter, body), "check")))
    return tuple(checks)


def failing(condition: Condition | Property, layout: StoreLayout, indexing: bool) -> Callable[..., Any]:
    """A function of ``S``: the set of bindings for which the condition is false."""
    emitter = Emitter(layout, indexing)
    variables, formula = _flatten(condition.parameters, literals(condition.condition, False))
    lines = _gather(emitter, variables, formula, condition.parameters)
    return compile_function(_function("failing", "S", emitter, lines), "failing")


def value_of(expr: Expr, parameters: tuple[Bound, ...], layout: StoreLayout) -> Callable[..., Any]:
    """A function of ``S`` and a value for each parameter: the value of the expression."""
    emitter = Emitter(layout, indexing=False)
    names = _parameter_names(parameters)
    lines = [f"return {emitter.value(expr, names)}"]
    return compile_function(_function("value", ", ".join(["S", *names.values()]), emitter, lines), "value")


def put(store: Store, layout: StoreLayout) -> Callable[..., Any]:
    """A function of ``S``, ``R``, a key (a tuple) and a value that stores the value. Second phase."""
    emitter = Emitter(layout)
    keys = [f"a{position}" for position in range(store.arity)]
    write = Writer(emitter).write(store.variable.name, keys, "t", "c")
    lines = [f"{tuple_of(keys)} = k" if keys else "pass", f"c = {'{}' if store.rows else '[]'}", *write]
    return compile_function(_function("put", "S, R, k, t", emitter, lines), "put")


def _function(name: str, parameters: str, emitter: Emitter, body: list[str]) -> list[str]:
    return [f"def {name}({parameters}):", *indented([*emitter.prologue(), *body])]


def _parameter_names(parameters: tuple[Bound, ...]) -> dict[str, str]:
    return {parameter.name: f"a{position}" for position, parameter in enumerate(parameters)}


def _belongs(name: str, domain: Domain, layout: StoreLayout) -> str:
    elements = layout.instance.elements(domain)
    return f"{name} in {elements!r}" if isinstance(domain, Enumeration) else f"0 <= {name} < {len(elements)}"


def _gather(
    emitter: Emitter, variables: tuple[Bound, ...], condition: tuple[Literal, ...], wanted: tuple[Bound, ...] | None = None
) -> list[str]:
    """Statements that return the set of bindings of `wanted` (all variables, unless given) for which `condition` holds."""
    lines = ["found = set()"]
    for plan in emitter.search(variables, condition):
        clauses, names = emitter.clauses(plan, {})
        binding = tuple_of([names[variable.name] for variable in (variables if wanted is None else wanted)])
        lines += nest(clauses, [f"found.add({binding})"])
    return [*lines, "return found"]


def _flatten(variables: tuple[Bound, ...], condition: tuple[Literal, ...]) -> tuple[tuple[Bound, ...], tuple[Literal, ...]]:
    """`condition` without its outermost existential quantifiers, whose variables join `variables` under new names."""
    flat: list[Literal] = []
    found = list(variables)
    waiting = list(condition)
    while waiting:
        literal = waiting.pop(0)
        expr = literal.expr
        if isinstance(expr, Quantified) and expr.binder is (Binder.ANY if literal.truth else Binder.ALL):
            fresh = {variable.name: Bound(f"{variable.name}'{len(found)}", variable.domain) for variable in expr.variables}
            found += fresh.values()
            waiting = [*literals(substitute(expr.body, dict(fresh)), literal.truth), *waiting]
        else:
            flat.append(literal)
    return tuple(found), tuple(flat)


def block_position(update: Update) -> int | None:
    """The position of the index at which the only loop variable stands, where nothing else that is written depends on it."""
    if len(update.over) != 1:
        return None
    name = update.over[0].name
    places = [position for position, part in enumerate(update.index) if name in free_names(part)]
    if len(places) != 1 or not isinstance(update.index[places[0]], Bound) or name in free_names(update.value):
        return None
    return places[0]


def differs(update: Update) -> tuple[Literal, ...]:
    """The condition that a write changes something."""
    kind = update.value.type
    place = Read(update.variable, update.index, kind)
    if isinstance(update.value, Const) and isinstance(kind, Bool):
        return (Literal(place, not update.value.value),)
    return (Literal(Apply(Operator.EQ, (place, update.value), BOOL), False),)


def _unify(access: Access, store: Store, emitter: Emitter) -> tuple[dict[str, str], list[Clause]]:
    """Names for what a changed key says of a property's variables, and the loops through the changed keys ``C``."""
    names: dict[str, str] = {}
    targets = [emitter.fresh() for _ in access.index]
    tests: list[list[Clause]] = []
    for position, name in zip(access.index, targets, strict=True):
        tests.append([])
        if isinstance(position, Const):
            tests[-1].append(Clause("if", "", f"{name} == {position.value!r}"))
        elif isinstance(position, Bound) and position.name in names:
            tests[-1].append(Clause("if", "", f"{name} == {names[position.name]}"))
        elif isinstance(position, Bound):
            names[position.name] = name
    if not names and not any(tests):
        # The key says nothing about the property: one search does for all changes.
        return names, [Clause("for", "_", "(0,)")]
    if not store.rows:
        return names, [Clause("for", pack(targets), "C"), *(test for group in tests for test in group)]
    block = emitter.fresh()
    loops = [Clause("for", f"{targets[0]}, {block}", "C.items()"), *tests[0]]
    if not isinstance(access.index[1], Anywhere):
        loops += [Clause("for", targets[1], block), *tests[1]]
    return names, loops
