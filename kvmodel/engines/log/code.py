"""The code that follows a log: for each action one function that takes an event, tests the guards, writes, and looks for new
violations, without an object or a call between. Generated from the transition system, like the compiled step.

A property is looked at only where a step touches what it reads, and not where what the step wrote decides that it cannot have
become false. The text consists of positional names, integers and the `repr` of members: nothing of a log or a spec reaches it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kvmodel.engines.log.checks import Case, Check, Facts, Touching, fact_of, touching, with_facts, without_names
from kvmodel.engines.log.events import ActionEvents, Events, Place
from kvmodel.engines.log.loops import ROW, LoopedSource, hoisted, replaced
from kvmodel.language.expressions import (
    TRUE,
    Bound,
    Const,
    Expr,
    Read,
    free_names,
    negation,
    substitute,
    walk,
)
from kvmodel.language.operators import Operator
from kvmodel.language.system import Action, Update
from kvmodel.language.types import BOOL, Counter
from kvmodel.readings.dense import compile_function
from kvmodel.readings.emitter import Clause, Emitter, indented, nest, tuple_of
from kvmodel.readings.footprint import Access
from kvmodel.readings.ground import simplify
from kvmodel.readings.partial import rails
from kvmodel.readings.parts import Parts
from kvmodel.readings.search import Literal, Plan, Scan, literals
from kvmodel.readings.sparse import StoreLayout

__all__ = ["Handlers", "SureGuard", "handlers"]

HEAD = re.compile(r"for k\d+ in [wz]\d+:")
READ = re.compile(r"v\d+\.get\(a\d+(?:, (?:E|'\w+'))?\)")
GROUP = re.compile(r"(v\d+)\.get\((\w+), E\)")
OTHER = re.compile(r"\(not \((\w+) == (\w+)\)\)")
FIND = re.compile(r"b\d+ = v(\d+)\.get\((a\d+)\)")
MINE = re.compile(r"oa\d+ = \((a\d+),\)")
TUPLE = re.compile(r"(b\d+) = \((a\d+),\)")
ALONE = re.compile(r"\bo(a\d+)\b")
LIST = re.compile(r"\b[wz]\d+\b")


@dataclass(frozen=True, slots=True)
class SureGuard:
    """Where the guard `number` of `action` is true whatever the unknown variables hold."""

    action: str
    number: int
    condition: Expr


class Handlers(NamedTuple):
    """What `handlers` gives."""

    makers: dict[str, Callable[..., Any]]
    sources: dict[str, str]
    unsearchable: frozenset[int]


def handlers(
    parts: Parts,
    layout: StoreLayout,
    events: Events,
    checks: Sequence[Check],
    assertions: Mapping[tuple[str, int], int],
    sure: Sequence[SureGuard],
) -> Handlers:
    """For each action a function that makes its handler, and its source; and the checks that cannot be made.

    The function takes ``S`` (containers), ``R`` (counters out of range), ``F`` (a list, for (number, binding) of what is
    violated), ``U`` (a set, for (action, guard) that is not sure) and ``K``, the names and what to do with a bad event
    (`kvmodel.engines.log.monitor.Monitor`). `assertions` numbers the assertions of actions by (action, position).
    """
    # First everything that reads, which settles the indices; then the writes, which keep them.
    reads = touching(checks, parts)
    sources = [
        [
            _Handler(events.actions[action.name], action, parts, place, layout, reads, assertions, sure)
            for place in events.places(action.name)
        ]
        for action in parts.system.actions
    ]
    texts = {variants[0].action.name: "\n".join(_made(variants)) for variants in sources}
    unsearchable = frozenset(number for variants in sources for variant in variants for number in variant.unsearchable)
    return Handlers({name: compile_function([text], "make") for name, text in texts.items()}, texts, unsearchable)


def _made(variants: list[_Handler]) -> list[str]:
    """The source of the function that makes a handler. Only once every action has been read."""
    lines = ["def make(S, R, F, U, K):"]
    bodies = [variant.taking(variant.step()) for variant in variants]
    used = {slot for variant in variants for slot in variant.used}
    lines += indented([*(f"v{slot} = S[{slot}]" for slot in sorted(used)), "E = frozenset()"])
    lines += indented(["refused, bad = K.refused, K.bad", "broken = F.append", "touched = K.touched"])
    lines += indented([f"number{i}, new{i}, same{i} = K.naming({taken.parameter.domain.name!r})" for i, taken in variants[0].named()])
    if len(variants) == 1:
        body = bodies[0]
    else:
        body = ["pool = e.pool or e.node"]
        for word, variant, taking in zip(["if", *["elif"] * len(variants)], variants, bodies, strict=False):
            body += [f"{word} pool == {variant.place.name!r}:", *indented(taking)]
        body += ["else:", "    bad('it does not say of which pool the pages are')"]
    return [*lines, "    def handle(e):", *indented(indented(body)), "    return handle"]


class _Guards(Emitter):
    """Emits guards: whether there is an element is asked of a set where one says it, which is quicker than going through it."""

    def _some(self, plan: Plan, names: Mapping[str, str]) -> str:
        clauses, _ = self.clauses(plan, names, eager=True)
        if len(clauses) == 1 and clauses[0].is_set and not clauses[0].exists:
            return f"bool({clauses[0].code})"
        return super()._some(plan, names)


class _Handler(LoopedSource):
    """The source of one action's handler, for pages in the pools of `place`."""

    def __init__(
        self,
        events: ActionEvents,
        action: Action,
        parts: Parts,
        place: Place,
        layout: StoreLayout,
        reads: Touching,
        assertions: Mapping[tuple[str, int], int],
        sure: Sequence[SureGuard],
    ) -> None:
        action = parts.action(action, place.members)
        super().__init__(action, parts.apart, layout)
        self.events = events
        self.place = place
        self.unsearchable: set[int] = set()
        """Checks that would have to go through everything that can have a name."""
        self.tokens = {parameter.name: Bound(f"{parameter.name}#", parameter.domain) for parameter in action.parameters}
        self.known_names = {f"{name}#": code for name, code in self.names.items()}
        self.unwritten = self._guard_facts()
        self._guard_emitter = _Guards(layout)
        self._guards = [self._guard_emitter.value(guard.condition, self.names) for guard in action.guards]
        pages = {taken.parameter.name for taken in events.takes if taken.is_page}
        self._steady = [
            number
            for number, guard in enumerate(action.guards)
            if pages
            and self._guards[number] != "True"
            and not pages & free_names(guard.condition)
            and not any(isinstance(node, Read) and node.variable in self.written for node in walk(guard.condition))
        ]
        """Guards that are the same for all pages of an event."""
        self._sure = [
            (part.number, self._emitter.value(parts.expression(part.condition, place.members), self.names))
            for part in sure
            if part.action == action.name
        ]
        self._assertions = [
            (assertions[action.name, number], self._emitter.value(assertion.condition, self.names))
            for number, assertion in enumerate(action.assertions)
            if (action.name, number) in assertions
        ]
        self._checks = [self._look(update, number, reads) for number, update in enumerate(action.updates)]

    # -- second phase

    @property
    def used(self) -> frozenset[int]:
        """The containers that the source names. Only after `step`."""
        return frozenset(self._emitter.used | self._guard_emitter.used)

    def named(self) -> list[tuple[int, Any]]:
        """The parameters that are taken by name, with their positions."""
        return [(i, taken) for i, taken in enumerate(self.events.takes) if taken.is_name]

    def taking(self, step: list[str]) -> list[str]:
        """Statements that take the parameters from the event `e`, around `step`."""
        lines = []
        has_values = "values" in self.events.type.__struct_fields__
        for i, taken in self.named():
            values = "e.values" if has_values else "None"
            known, new = f"number{i}[e.{taken.field}]", f"new{i}(e.{taken.field}, {values}, e)"
            lines += ["try:", f"    a{i} = {known}", "except KeyError:", f"    a{i} = {new}"]
            if has_values:
                lines += ["else:", f"    if e.values is not None: same{i}(a{i}, e.values, e)"]
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
            base, size = (str(number) for number in self.place.pools[taken.parameter.name])
            inside.append(f"if not 0 <= y{i} < {size}: bad(K.no_page(y{i}, {self.place.names[taken.parameter.name]!r}))")
            inside += [f"a{i} = y{i} + {base}" if base != "0" else f"a{i} = y{i}", f"touched[a{i}] = 1"]
        targets = ", ".join(f"y{i}" for i, _ in pages)
        steady = {f"a{i}" for i, taken in enumerate(self.events.takes) if not taken.is_page}
        over = f"x{first}" if len(pages) == 1 else f"zip({', '.join(f'x{i}' for i, _ in pages)})"
        lines += [f"g{number} = {self._guards[number]}" for number in self._steady]
        step, rows = hoisted(step, ROW, "h", lambda code: self._stays(code) and code.partition("(")[2].partition(",")[0] in steady)
        step, once = self._once(step, {f"a{i}" for i, _ in pages})
        lines += [*rows, *once]
        return [*lines, "moved = False", f"for {targets} in {over}:", *indented([*inside, *step, "moved = True"])]

    def _stays(self, code: str) -> bool:
        """Whether the container that an expression begins with is not written by the step, or is one of rows from which it only
        takes out: then a row is the same object for every page."""
        slot = int(code[1:].partition(".")[0])
        variables = {store.slot: name for name, store in self.layout.stores.items()}
        rows = self.layout.stores[variables[slot]].rows if slot in variables else False
        variables |= {place: index.variable for index, place in self.layout.indices.items()}
        writes = [update for update in self.action.updates if update.variable == variables[slot]]
        default = Const(False, BOOL)
        return not writes or (rows and all(update.value == default and not update.over for update in writes))

    def _once(self, step: list[str], pages: set[str]) -> tuple[list[str], list[str]]:
        """The step without the statements that do the same for every page: that look up the row which its only write of a relation
        is to, and that make the tuple of a parameter."""
        alone = {
            self.layout.stores[update.variable].slot
            for update in self.action.updates
            if not update.over
            and isinstance(update.value, Const)
            and sum(other.variable == update.variable for other in self.action.updates) == 1
        }
        kept, once = [], []
        for line in step:
            row, mine = FIND.fullmatch(line.strip()), MINE.fullmatch(line.strip())
            if (row is not None and int(row[1]) in alone and row[2] not in pages) or (mine is not None and mine[1] not in pages):
                once.append(line.strip())
            else:
                kept.append(line)
        return kept, once

    def step(self) -> list[str]:
        counters = any(isinstance(variable.type, Counter) for variable in self.system.state_variables)
        lines = [f"if R: refused(-1, {self._binding}, moved)"] if counters else []
        for number, test in enumerate(self._guards):
            if test == "True":
                continue
            if number in self._steady:
                test = f"g{number}"
            lines += [f"if not {test}:", f"    refused({number}, {self._binding}, moved)"]
        for number, test in self._sure:
            lines += [f"if not {test}: U.add(({self.action.name!r}, {number}))"]
        for number, test in self._assertions:
            lines += [f"if not {test}: broken(({number}, {self._binding}))"]
        checks = _fused([list(check) for check in dict.fromkeys(tuple(check) for found in self._checks for check in found)])
        lines += self.writes(frozenset(LIST.findall("\n".join(checks))))
        lines = _with_own(lines)
        alone = dict.fromkeys(ALONE.findall("\n".join([*lines, *checks])))
        return [*(f"o{name} = ({name},)" for name in alone), *lines, *checks]

    # -- first phase: which checks an update calls for

    def _guard_facts(self) -> dict[Expr, Const]:
        """What the guards say of places that the step does not write, in tokens."""
        facts: dict[Expr, Const] = {}
        for guard in self.action.guards:
            for literal in literals(guard.condition, True):
                fact = fact_of(literal)
                if fact is not None and fact[0].variable not in self.written:
                    facts[substitute(fact[0], self.tokens)] = fact[1]
        return facts

    def _look(self, update: Update, number: int, reads: Touching) -> list[list[str]]:
        """Statements that find what the update may have made false."""
        keys, loops, names = self._places(update, number)
        over = self._over_tokens(update, keys)
        facts: dict[Expr, Expr] = {**self.unwritten}
        complete = all(variable.name in over for variable in update.over)
        for literal in literals(update.condition, True) if complete else ():
            fact = fact_of(literal)
            if fact is not None and fact[0].variable not in self.written:
                facts[substitute(fact[0], over)] = fact[1]
        for position, other in enumerate(self.action.updates):
            everywhere = not other.over and other.condition == TRUE
            alongside = bool(other.over) and other.over == update.over and other.condition == update.condition and complete
            if not (everywhere or alongside or position == number) or not self._settled(other):
                continue
            index = tuple(substitute(part, over) for part in other.index) if alongside else self._places(other, position)[0]
            value = substitute(other.value, self.tokens)
            facts[Read(other.variable, index, self.system.by_name[other.variable].type)] = value
        place = _Place(keys, loops, names, facts)
        seen: dict[int, set[frozenset[Literal]]] = {}
        found = [
            self._check(touch.check, touch.case, touch.access, place, seen.setdefault(touch.check.number, set()))
            for touch in reads.get(update.variable, ())
        ]
        return [lines for lines in found if lines]

    def _over_tokens(self, update: Update, keys: tuple[Expr, ...]) -> dict[str, Expr]:
        """Tokens for the parameters, and for those loop variables of an update that stand in its index."""
        found: dict[str, Expr] = dict(self.tokens)
        for variable in update.over:
            found.pop(variable.name, None)
        for part, key in zip(update.index, keys, strict=True):
            if isinstance(part, Bound) and any(part.name == variable.name for variable in update.over):
                found[part.name] = key
        return found

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
            loops.append(Clause("for", prepared.keys[prepared.block], self.list_of(number)))
        elif prepared.around:
            word, rest = prepared.around[:-1].split(" ", 1)
            target, _, group = rest.partition(" in ")
            loops.append(Clause("if", "", rest) if word == "if" else Clause("for", target, group))
        return tuple(index), loops, names

    def _settled(self, update: Update) -> bool:
        """Whether what the update writes is a constant or a parameter, and no other update of the step writes anything else."""
        fixed = isinstance(update.value, Const) or (isinstance(update.value, Bound) and update.value.name in self.tokens)
        shadowed = {variable.name for variable in update.over}
        return fixed and not shadowed & free_names(update.value) and all(
            other.value == update.value for other in self.action.updates if other.variable == update.variable
        )

    def _check(self, check: Check, case: Case, access: Access, place: _Place, seen: set[frozenset[Literal]]) -> list[str]:
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
        after = with_facts(placed, place.facts)
        if after is None or self._cannot_be_new(placed, after):
            return []
        rest = tuple(variable for variable in case.variables if variable.name not in mapping)
        key_of = without_names(after, rest)
        if not tests and key_of in seen:  # the same with two parameters exchanged
            return []
        if not tests:
            seen.add(key_of)
        lines = []
        plans = self._emitter.search(rest, after)
        if any(isinstance(step, Scan) and step.variable.domain.name in self.events.named_sorts for plan in plans for step in plan):
            self.unsearchable.add(check.number)
            return []
        for plan in plans:
            clauses, inner = self._emitter.clauses(plan, names, start=[*place.loops, *tests])
            binding = tuple_of([
                _code(mapping[parameter.name], names) if parameter.name in mapping else inner[parameter.name]
                for parameter in case.variables[:len(check.parameters)]
            ])
            lines += nest(_alone(clauses), [f"broken(({check.number}, {binding}))"])
        return lines

    def _cannot_be_new(self, placed: list[Literal], after: tuple[Literal, ...]) -> bool:
        """Whether the violation that is left to look for was one before the step, whatever the written variables held."""
        whole = simplify(Operator.AND, tuple(literal.expr if literal.truth else negation(literal.expr) for literal in placed), BOOL)
        before = with_facts(literals(rails(whole, frozenset(self.written)).yes, True), self.unwritten)
        return before is not None and frozenset(before) == frozenset(after)


@dataclass(frozen=True, slots=True)
class _Place:
    """What an update writes: its index in tokens, the loops around, names of the tokens, and what is known after the step."""

    keys: tuple[Expr, ...]
    loops: list[Clause]
    names: dict[str, str]
    facts: Facts


def _fused(checks: list[list[str]]) -> list[str]:
    """Checks one after the other, those that go through the same places in one loop."""
    loops: dict[str, list[str]] = {}
    plain: list[str] = []
    for lines in checks:
        if HEAD.fullmatch(lines[0]):
            loops.setdefault(lines[0], []).extend(lines[1:])
        else:
            plain += lines
    text = "\n".join(plain)
    plain, lines = hoisted(plain, READ, "m", lambda code: text.count(code) > 1)
    lines += plain
    for number, (head, body) in enumerate(loops.items()):
        element = head.split(" ", 2)[1]
        body, before = hoisted(body, ROW, f"r{number}_", lambda code: True)
        value = re.compile(rf"v\d+\.get\({element}\)")
        text = "\n".join(body)
        often = {code for code in value.findall(text) if text.count(code) > 1}
        body, inside = hoisted(body, value, f"s{number}_", often.__contains__)
        lines += [*before, head, *indented(inside), *body]
    return lines


def _with_own(lines: list[str]) -> list[str]:
    """Writes in which the tuple of a parameter that goes into an index is made once."""
    found: list[str] = []
    known: dict[str, str] = {}
    for line in lines:
        made = TUPLE.fullmatch(line.strip())
        if made is not None:
            known = {f", {made[1]}) is not {made[1]}:": f", o{made[2]}) is not o{made[2]}:"}
        else:
            found.append(replaced(line, known))
            known = {}
    return found


def _alone(clauses: list[Clause]) -> list[Clause]:
    """Clauses that look for another one beside a parameter, with a quick test before: whether the parameter is the only one there."""
    found: list[Clause] = []
    for number, clause in enumerate(clauses):
        group = GROUP.fullmatch(clause.code) if clause.kind == "for" else None
        tests = [after.code for after in clauses[number + 1 :][:1] if after.kind == "if"]
        other = OTHER.fullmatch(tests[0]) if tests else None
        if group is not None and other is not None and clause.target in other.groups():
            mine = next(name for name in other.groups() if name != clause.target)
            if mine.startswith("a"):
                found.append(Clause("if", "", f"{group[1]}.get({group[2]}, o{mine}) != o{mine}"))
        found.append(clause)
    return found


def _code(key: Expr, names: Mapping[str, str]) -> str:
    if isinstance(key, Const):
        return repr(key.value)
    assert isinstance(key, Bound)
    return names[key.name]
