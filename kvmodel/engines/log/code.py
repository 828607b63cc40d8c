"""The code that follows a log: for each action one function that takes an event, tests the guards, writes, and looks for new
violations, without an object or a call between. Generated from the transition system, like the compiled step.

A property is looked at only where a step touches what it reads, and not where what the step wrote decides that it cannot have
become false. The text consists of positional names, integers and the `repr` of members: nothing of a log or a spec reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvmodel.engines.log.events import ActionEvents, Events
from kvmodel.language.expressions import FALSE, TRUE, Apply, Bound, Const, Expr, Quantified, Read, negation, rebuild, substitute, walk
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import Action, TransitionSystem, Update
from kvmodel.language.types import BOOL, Bool, Counter
from kvmodel.readings.dense import compile_function
from kvmodel.readings.emitter import Clause, indented, nest, tuple_of
from kvmodel.readings.footprint import Access, accesses
from kvmodel.readings.generated import ActionSource
from kvmodel.readings.ground import simplify
from kvmodel.readings.partial import rails
from kvmodel.readings.search import Literal, alternatives, literals
from kvmodel.readings.sparse import StoreLayout

__all__ = ["Check", "SureGuard", "handlers"]

CHANGED = "changed"
MOST_CASES = 32
Facts = Mapping[Expr, Const]


@dataclass(frozen=True, slots=True)
class Check:
    """A condition that must be true of every state, for every binding of its parameters. `number` names it."""

    number: int
    parameters: tuple[Bound, ...]
    condition: Expr


@dataclass(frozen=True, slots=True)
class SureGuard:
    """Where the guard `number` of `action` is true whatever the unknown variables hold."""

    action: str
    number: int
    condition: Expr


def handlers(
    system: TransitionSystem,
    layout: StoreLayout,
    events: Events,
    checks: Sequence[Check],
    assertions: Mapping[tuple[str, int], int],
    sure: Sequence[SureGuard],
) -> tuple[dict[str, Callable[..., Any]], dict[str, str]]:
    """For each action a function that makes its handler, and its source.

    The function takes ``S`` (containers), ``R`` (counters out of range), ``F`` (a list, for (number, binding) of what is
    violated), ``U`` (a set, for (action, guard) that is not sure) and ``K``, the names and what to do with a bad event
    (`kvmodel.engines.log.monitor.Hooks`). `assertions` numbers the assertions of actions by (action, position).
    """
    # First everything that reads, which settles the indices; then the writes, which keep them.
    sources = [_Handler(events.actions[action.name], action, system, layout, checks, assertions, sure) for action in system.actions]
    texts = {source.action.name: "\n".join(source.finished()) for source in sources}
    return {name: compile_function([text], "make") for name, text in texts.items()}, texts


class _Handler(ActionSource):
    """The source of one action's handler."""

    def __init__(
        self,
        events: ActionEvents,
        action: Action,
        system: TransitionSystem,
        layout: StoreLayout,
        checks: Sequence[Check],
        assertions: Mapping[tuple[str, int], int],
        sure: Sequence[SureGuard],
    ) -> None:
        super().__init__(action, system, layout)
        self.events = events
        self.tokens = {parameter.name: Bound(f"{parameter.name}#", parameter.domain) for parameter in action.parameters}
        self.known_names = {f"{name}#": code for name, code in self.names.items()}
        self.unwritten = self._guard_facts()
        self._guards = [self._emitter.value(guard.condition, self.names) for guard in action.guards]
        self._sure = [(part.number, self._emitter.value(part.condition, self.names)) for part in sure if part.action == action.name]
        self._assertions = [
            (assertions[action.name, number], self._emitter.value(assertion.condition, self.names))
            for number, assertion in enumerate(action.assertions)
            if (action.name, number) in assertions
        ]
        self._checks = [self._look(update, number, checks) for number, update in enumerate(action.updates)]

    # -- second phase

    def finished(self) -> list[str]:
        """The source of the function that makes the handler. Only once every action has been read."""
        body = self._taking(self._step())
        return [
            "def make(S, R, F, U, K):",
            *indented(self._emitter.prologue()),
            *indented(["refused, bad = K.refused, K.bad", "broken = F.append", "pools = K.pools", "touched = K.touched"]),
            *indented([f"get{i}, new{i}, same{i} = K.naming({taken.parameter.domain.name!r})" for i, taken in self._named()]),
            "    def handle(e):",
            *indented(indented(body)),
            "    return handle",
        ]

    def _named(self) -> list[tuple[int, Any]]:
        return [(i, taken) for i, taken in enumerate(self.events.takes) if taken.is_name]

    def _taking(self, step: list[str]) -> list[str]:
        """Statements that take the parameters from the event `e`, around `step`."""
        lines = []
        has_values = "values" in self.events.type.__struct_fields__
        for i, taken in self._named():
            values = "e.values" if has_values else "None"
            lines += [f"a{i} = get{i}(e.{taken.field})", f"if a{i} is None:", f"    a{i} = new{i}(e.{taken.field}, {values}, e)"]
            if has_values:
                lines += ["elif e.values is not None:", f"    same{i}(a{i}, e.values, e)"]
        for i, taken in enumerate(self.events.takes):
            if not taken.is_name and not taken.is_page:
                lines.append(f"a{i} = e.{taken.field}")
        pages = [(i, taken) for i, taken in enumerate(self.events.takes) if taken.is_page]
        if not pages:
            return [*lines, "moved = False", *step]
        first, lone = pages[0]
        if len(pages) == 1:
            lines += [
                f"x{first} = e.pages",
                f"if x{first} is None:",
                f"    if e.{lone.field} is None: bad('no page is named')",
                f"    x{first} = (e.{lone.field},)",
                f"elif e.{lone.field} is not None:",
                "    bad('pages are named in two ways')",
            ]
        else:
            for i, taken in pages:
                lines += [f"x{i} = e.{taken.field}", f"if x{i}.__class__ is int: x{i} = (x{i},)"]
            same = " == ".join(f"len(x{i})" for i, _ in pages)
            lines.append(f"if not {same}: bad('as many pages are needed in each list')")
        lines.append(f"if not x{first}: bad('no page is named')")
        inside = []
        for i, taken in pages:
            if taken.pool is None:
                lines += ["found = pools.get(e.pool or e.node)", "if found is None: bad('it does not say of which pool the pages are')"]
                lines += [f"base{i}, size{i} = found"]
                base, size = f"base{i}", f"size{i}"
            else:
                base, size = str(taken.pool[0]), str(taken.pool[1])
            inside.append(f"if not 0 <= y{i} < {size}: bad(K.no_page(y{i}, {base}))")
            inside += [f"a{i} = y{i} + {base}" if base != "0" else f"a{i} = y{i}", f"touched[a{i}] = 1"]
        targets = ", ".join(f"y{i}" for i, _ in pages)
        over = f"x{first}" if len(pages) == 1 else f"zip({', '.join(f'x{i}' for i, _ in pages)})"
        return [*lines, "moved = False", f"for {targets} in {over}:", *indented([*inside, *step, "moved = True"])]

    def _step(self) -> list[str]:
        counters = any(isinstance(variable.type, Counter) for variable in self.system.state_variables)
        lines = [f"if R: refused(-1, {self._binding}, moved)"] if counters else []
        for number, test in enumerate(self._guards):
            lines += [f"if not {test}:", f"    refused({number}, {self._binding}, moved)"]
        for number, test in self._sure:
            lines += [f"if not {test}: U.add(({self.action.name!r}, {number}))"]
        for number, test in self._assertions:
            lines += [f"if not {test}: broken(({number}, {self._binding}))"]
        lines += [line for prepared in self._prepared for line in prepared.lines]
        for number, (update, prepared) in enumerate(zip(self.action.updates, self._prepared, strict=True)):
            lines += _without_notes(self._write_lines(update, prepared, f"w{number}", CHANGED))
        done: set[tuple[str, ...]] = set()
        for found in self._checks:
            for check in found:
                if tuple(check) not in done:
                    done.add(tuple(check))
                    lines += check
        return lines

    # -- first phase: which checks an update calls for

    def _guard_facts(self) -> dict[Expr, Const]:
        """What the guards say of places that the step does not write, in tokens."""
        facts: dict[Expr, Const] = {}
        for guard in self.action.guards:
            for literal in literals(guard.condition, True):
                fact = _fact(literal)
                if fact is not None and fact[0].variable not in self.written:
                    facts[substitute(fact[0], self.tokens)] = fact[1]
        return facts

    def _look(self, update: Update, number: int, checks: Sequence[Check]) -> list[list[str]]:
        """Statements that find what the update may have made false."""
        keys, loops, names = self._places(update, number)
        facts = dict(self.unwritten)
        for position, other in enumerate(self.action.updates):
            index = self._index_of(other, position)
            if (position == number or (not other.over and other.condition == TRUE)) and index and self._settled(other):
                assert isinstance(other.value, Const)
                variable = self.system.by_name[other.variable]
                facts[Read(other.variable, index, variable.type)] = other.value
        place = _Place(keys, loops, names, facts)
        found = []
        for check in checks:
            seen: set[frozenset[Literal]] = set()
            for case in _cases(check):
                for access in dict.fromkeys(a for literal in case.condition for a in accesses(literal.expr, case.variables, self.system)):
                    if access.variable == update.variable:
                        found.append(self._check(check, case, access, place, seen))
        return [lines for lines in found if lines]

    def _index_of(self, update: Update, number: int) -> tuple[Expr, ...]:
        return self._places(update, number)[0]

    def _places(self, update: Update, number: int) -> tuple[tuple[Expr, ...], list[Clause], dict[str, str]]:
        """The index that an update writes, in tokens; the loops and tests around; and names for the tokens."""
        prepared = self._prepared[number]
        variable = self.system.by_name[update.variable]
        names = dict(self.known_names)
        index: list[Expr] = []
        for part, code, domain in zip(update.index, prepared.keys, variable.keys, strict=True):
            if isinstance(part, Const):
                index.append(part)
            elif isinstance(part, Bound) and part.name in self.tokens and not any(part.name == over.name for over in update.over):
                index.append(self.tokens[part.name])
            else:
                names[f"{code}#"] = code
                index.append(Bound(f"{code}#", domain))
        loops = []
        if prepared.block is not None:
            loops.append(Clause("for", prepared.keys[prepared.block], f"w{number}"))
        elif prepared.around:
            word, rest = prepared.around[:-1].split(" ", 1)
            target, _, group = rest.partition(" in ")
            loops.append(Clause("if", "", rest) if word == "if" else Clause("for", target, group))
        return tuple(index), loops, names

    def _settled(self, update: Update) -> bool:
        """Whether what the update writes is a constant that no other update of the step replaces by another."""
        return isinstance(update.value, Const) and all(
            isinstance(other.value, Const) and other.value.value == update.value.value
            for other in self.action.updates
            if other.variable == update.variable
        )

    def _check(self, check: Check, case: _Case, access: Access, place: _Place, seen: set[frozenset[Literal]]) -> list[str]:
        """Statements that find where the case of the check is true now, and the place that was written is read by `access`."""
        mapping: dict[str, Expr] = {}
        tests: list[Clause] = []
        names = place.names
        for position, key in zip(access.index, place.keys, strict=True):
            if isinstance(position, Const):
                if isinstance(key, Const):
                    if key.value != position.value:
                        return []
                else:
                    tests.append(Clause("if", "", f"{_code(key, names)} == {position.value!r}"))
            elif isinstance(position, Bound):
                earlier = mapping.setdefault(position.name, key)
                if earlier != key:
                    tests.append(Clause("if", "", f"{_code(earlier, names)} == {_code(key, names)}"))
        placed = [Literal(substitute(literal.expr, mapping), literal.truth) for literal in case.condition]
        after = _with_facts(placed, place.facts)
        if after is None or self._cannot_be_new(placed, after):
            return []
        rest = tuple(variable for variable in case.variables if variable.name not in mapping)
        key_of = _without_names(after, rest)
        if not tests and key_of in seen:  # the same with two parameters exchanged
            return []
        if not tests:
            seen.add(key_of)
        lines = []
        for plan in self._emitter.search(rest, after):
            clauses, inner = self._emitter.clauses(plan, names, eager=bool(place.loops), start=[*place.loops, *tests])
            binding = tuple_of([
                _code(mapping[parameter.name], names) if parameter.name in mapping else inner[parameter.name]
                for parameter in case.variables[:len(check.parameters)]
            ])
            lines += nest(clauses, [f"broken(({check.number}, {binding}))"])
        return lines

    def _cannot_be_new(self, placed: list[Literal], after: tuple[Literal, ...]) -> bool:
        """Whether the violation that is left to look for was one before the step, whatever the written variables held."""
        whole = simplify(Operator.AND, tuple(literal.expr if literal.truth else negation(literal.expr) for literal in placed), BOOL)
        before = _with_facts(literals(rails(whole, frozenset(self.written)).yes, True), self.unwritten)
        return before is not None and frozenset(before) == frozenset(after)


@dataclass(frozen=True, slots=True)
class _Case:
    """One way in which a check fails: literals that are all true, over its parameters and then the variables of quantifiers that
    some element satisfies. Names are unlike any other."""

    variables: tuple[Bound, ...]
    condition: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """What an update writes: its index in tokens, the loops around, names of the tokens, and what is known after the step."""

    keys: tuple[Expr, ...]
    loops: list[Clause]
    names: dict[str, str]
    facts: Facts


def _cases(check: Check) -> list[_Case]:
    """Cases of which one is true wherever the check fails."""
    variables = tuple(Bound(f"{parameter.name}'{number}", parameter.domain) for number, parameter in enumerate(check.parameters))
    renamed: dict[str, Expr] = {old.name: new for old, new in zip(check.parameters, variables, strict=True)}
    done: list[_Case] = []
    waiting: list[tuple[tuple[Bound, ...], list[Literal], list[Literal]]] = [
        (variables, [], list(literals(substitute(check.condition, renamed), False)))
    ]
    while waiting:
        known, flat, open_ = waiting.pop()
        if not open_:
            done.append(_Case(known, tuple(dict.fromkeys(flat))))
            continue
        literal, *others = open_
        expr = literal.expr
        groups = alternatives(literal)
        if isinstance(expr, Quantified) and expr.binder is (Binder.ANY if literal.truth else Binder.ALL):
            fresh = {v.name: Bound(f"{v.name}'{len(known) + number}", v.domain) for number, v in enumerate(expr.variables)}
            body = literals(substitute(expr.body, dict(fresh)), literal.truth)
            waiting.append(((*known, *fresh.values()), flat, [*body, *others]))
        elif groups and len(waiting) + len(done) + len(groups) <= MOST_CASES:
            waiting += [(known, list(flat), [*group, *others]) for group in groups]
        else:
            waiting.append((known, [*flat, literal], others))
    return done


def _without_names(condition: tuple[Literal, ...], variables: tuple[Bound, ...]) -> frozenset[Literal]:
    """The condition with `variables` called by their positions, and equations one way round."""
    places: dict[str, Expr] = {variable.name: Bound(f"_{number}", variable.domain) for number, variable in enumerate(variables)}

    def ordered(expr: Expr) -> Expr:
        changed = rebuild(expr, ordered)
        if isinstance(changed, Apply) and changed.operator is Operator.EQ:
            return Apply(Operator.EQ, tuple(sorted(changed.arguments, key=repr)), changed.type)
        return changed

    return frozenset(Literal(ordered(substitute(literal.expr, places)), literal.truth) for literal in condition)


def _fact(literal: Literal) -> tuple[Read, Const] | None:
    """The place and the value that a literal fixes."""
    match literal.expr:
        case Read() as place if isinstance(place.type, Bool):
            return place, Const(literal.truth, BOOL)
        case Apply(operator=Operator.EQ, arguments=(Read() as place, Const() as value) | (Const() as value, Read() as place)):
            return (place, value) if literal.truth else None
    return None


def _with_facts(condition: Sequence[Literal], facts: Facts) -> tuple[Literal, ...] | None:
    """The condition where `facts` are true: fewer literals, or None where it is false."""
    found: dict[Literal, None] = {}
    for literal in condition:
        expr = _known(literal.expr, facts)
        if isinstance(expr, Const):
            if expr.value is not literal.truth:
                return None
            continue
        for part in literals(expr, literal.truth):
            if part.expr in (TRUE, FALSE):
                if (part.expr == TRUE) is not part.truth:
                    return None
                continue
            found[part] = None
    return tuple(found)


def _known(expr: Expr, facts: Facts) -> Expr:
    """`expr` with the places that `facts` fix in place, simplified."""
    if isinstance(expr, Read) and expr in facts:
        return facts[expr]
    if not any(isinstance(node, Read) and node in facts for node in walk(expr)):
        return expr
    changed = rebuild(expr, lambda part: _known(part, facts))
    if isinstance(changed, Apply):
        return simplify(changed.operator, changed.arguments, changed.type)
    if isinstance(changed, Quantified) and changed.binder is not Binder.COUNT and isinstance(changed.body, Const):
        return changed.body
    return changed


def _code(key: Expr, names: Mapping[str, str]) -> str:
    if isinstance(key, Const):
        return repr(key.value)
    assert isinstance(key, Bound)
    return names[key.name]


def _without_notes(lines: list[str]) -> list[str]:
    """Writes without the notes of what they changed."""
    return [line for line in lines if not line.strip().startswith(CHANGED + ".")]
