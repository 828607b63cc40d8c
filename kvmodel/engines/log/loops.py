"""Updates that run over pages, in one loop for all that run over the same ones: what a request gives back is looked at page by page,
which for a few pages is several times quicker than a set operation for each update.

All updates of a step read the state before it. A loop may write as it goes only where what it reads later is not what it wrote:
places of the page at hand, tested before they are written. `Loops.of` gives None for an action of which that is not plain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kvmodel.language.expressions import Apply, Bound, Const, Expr, Quantified, Read, children, free_names, rebuild, walk
from kvmodel.language.operators import Operator
from kvmodel.language.system import Action, Update
from kvmodel.language.types import Counter, Enumeration
from kvmodel.readings.emitter import Emitter, indented, pack
from kvmodel.readings.generated import ActionSource, Prepared, block_position, differs
from kvmodel.readings.search import Literal, Support, Test, literals
from kvmodel.readings.sparse import Store
from kvmodel.readings.writer import Writer

__all__ = ["ROW", "LoopedSource", "hoisted", "replaced"]

ROW = re.compile(r"v\d+\.get\([ai]\d+, E\)")
CHANGED = "changed"
UNNAMED = Enumeration("", ())


@dataclass(frozen=True, slots=True)
class _Member:
    """An update in a loop: it writes where `tests` are true. `row` names the row that it writes, where it is a relation with rows;
    `whole` says that it empties the row that the loop goes through."""

    number: int
    update: Update
    tests: list[str]
    reads: frozenset[str]
    keys: list[str]
    value: str
    row: str
    whole: bool


@dataclass(slots=True)
class _Loop:
    """One loop: through `code`, by the name `key`. `all` names what it goes through."""

    key: str
    code: str
    variable: str
    all: str
    members: list[_Member] = field(default_factory=list)


class Loops:
    """The loops of an action. `prepared` has what checks need to know of each update in one, `lists` the name of what has the keys
    at which it wrote."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.loops: dict[str, _Loop] = {}
        self.prepared: dict[int, Prepared] = {}
        self.lists: dict[int, str] = {}
        self._rows: dict[tuple[str, str], tuple[str, set[str]]] = {}
        self._hoisted: dict[str, str] = {}

    @staticmethod
    def of(action: Action, emitter: Emitter, names: Mapping[str, str]) -> Loops | None:
        """The loops of the updates of `action` that run over something; None where one of them does not fit into any."""
        found = Loops(emitter)
        numbered = [(number, update) for number, update in enumerate(action.updates) if update.over]
        if {update.variable for _, update in numbered} & {update.variable for update in action.updates if not update.over}:
            return None
        try:
            for number, update in numbered:
                found._add(number, update, names, action)
        except _Unfit:
            return None
        return found if numbered and found._independent() else None

    def _add(self, number: int, update: Update, names: Mapping[str, str], action: Action) -> None:
        position = block_position(update)
        plans = self.emitter.search(update.over, tuple(dict.fromkeys((*literals(update.condition, True), *differs(update)))))
        if position is None or len(plans) != 1:
            raise _Unfit
        (variable,) = update.over
        supports = [step for step in plans[0] if isinstance(step, Support)]
        tests = [step.literal for step in plans[0] if isinstance(step, Test)]
        if len(supports) != 1 or len(tests) + 1 != len(plans[0]):
            raise _Unfit
        clauses, _ = self.emitter.clauses((supports[0],), names)
        if len(clauses) != 1:
            raise _Unfit
        code = clauses[0].code
        loop = self.loops.setdefault(code, _Loop(f"k{number}", code, supports[0].variable, f"z{number}"))
        inside = {**names, variable.name: loop.key}
        keys = [loop.key if place == position else self._early(part, names) for place, part in enumerate(update.index)]
        store = self.emitter.layout.stores[update.variable]
        rows = store.rows and position == 1
        writers = [other for other in action.updates if other.variable == update.variable]
        whole = (
            rows
            and not tests
            and update.variable == supports[0].variable
            and supports[0].index[0] == update.index[0]
            and writers == [update]
            and isinstance(update.value, Const)
            and update.value.value == store.default
        )
        row = self._row(store, keys[0], update, writers) if rows and not whole else ""
        codes = [self._test(test, variable.name, inside, names) for test in tests]
        reads = frozenset(read.variable for test in tests for read in _reads(test.expr, variable.name))
        member = _Member(number, update, codes, reads, keys, self._early(update.value, names), row, whole)
        loop.members.append(member)
        # Where it has the value already, what is known after the write is known as well.
        self.lists[number] = loop.all if set(tests) <= set(differs(update)) else f"w{number}"
        self.prepared[number] = Prepared([], keys, member.value, block=position)

    def _early(self, expr: Expr, names: Mapping[str, str]) -> str:
        """Source of a value as it is before the step."""
        code = self.emitter.value(expr, names)
        return code if isinstance(expr, Const | Bound) else self._hoist(code)

    def _hoist(self, code: str) -> str:
        return self._hoisted.setdefault(code, f"i{len(self._hoisted)}")

    def _test(self, literal: Literal, key: str, inside: Mapping[str, str], names: Mapping[str, str]) -> str:
        """Source of a test, with what does not depend on the key evaluated before the loops."""
        known = dict(inside)

        def settle(expr: Expr) -> Expr:
            if isinstance(expr, Const | Bound):
                return expr
            if key not in free_names(expr):
                name = self._hoist(self.emitter.value(expr, names))
                known[name] = name
                return Bound(name, UNNAMED)
            if isinstance(expr, Quantified):
                return expr
            changed = rebuild(expr, settle)
            if isinstance(changed, Apply) and changed.operator in (Operator.AND, Operator.OR):
                quick = sorted(changed.arguments, key=lambda part: not isinstance(part, Bound))
                return Apply(changed.operator, tuple(quick), changed.type)
            return changed

        if any(isinstance(node, Quantified) and any(bound.name == key for bound in node.variables) for node in walk(literal.expr)):
            raise _Unfit
        return self.emitter.literal(Literal(settle(literal.expr), literal.truth), known)

    def _row(self, store: Store, first: str, update: Update, writers: list[Update]) -> str:
        """The name of the row that an update writes; '' where other writes of its variable do not go through it."""
        if not isinstance(update.value, Const) or any(
            block_position(other) != 1 or other.index[0] != update.index[0] or not isinstance(other.value, Const) for other in writers
        ):
            return ""
        name, kinds = self._rows.setdefault((store.variable.name, first), (f"q{len(self._rows)}", set()))
        kinds.add("drop" if update.value.value == store.default else "add")
        return name

    def _independent(self) -> bool:
        """Whether no loop reads what another, or itself for another key, has written by then."""
        written = {member.update.variable: loop for loop in self.loops.values() for member in loop.members}
        for loop in self.loops.values():
            places = {(member.update.variable, block_position(member.update)) for member in loop.members}
            if len({variable for variable, _ in places}) != len(places):
                return False
            if loop.variable in written and written[loop.variable] is not loop:
                return False
            for member in loop.members:
                if written[member.update.variable] is not loop:
                    return False
                (variable,) = member.update.over
                for expr in (member.update.condition, *(literal.expr for literal in differs(member.update))):
                    for read in _reads(expr, variable.name):
                        if read.variable not in written:
                            continue
                        at = [place for place, part in enumerate(read.index) if part == variable]
                        if not any((read.variable, place) in places for place in at):
                            return False
        return True

    def lines(self, wanted: frozenset[str]) -> list[str]:
        """The statements. `wanted` names the lists that something looks at later. Only once every index is known."""
        rows: list[str] = []
        after: list[str] = []
        for (variable, first), (name, kinds) in self._rows.items():
            main = self.emitter.container(self.emitter.layout.stores[variable].slot)
            if "add" in kinds:
                rows += [f"{name} = {main}.get({first})", f"if {name} is None: {name} = set()"]
                after += [f"if {name}: {main}[{first}] = {name}"]
                after += [f"else: {main}.pop({first}, None)"] if "drop" in kinds else []
            else:
                rows.append(f"{name} = {main}.get({first}, E)")
                after.append(f"if not {name} and {name} is not E: del {main}[{first}]")
        written = {
            f"{self.emitter.container(self.emitter.layout.stores[variable].slot)}.get({first}, E)": name
            for (variable, first), (name, _) in self._rows.items()
        }
        loops = [replaced(line, written) for loop in self.loops.values() for line in self._loop(loop, wanted)]
        with_rows = {f"v{store.slot}" for store in self.emitter.layout.stores.values() if store.rows}
        loops, others = hoisted(loops, ROW, "p", lambda code: code.partition(".")[0] in with_rows)
        early = [f"{name} = {code}" for code, name in self._hoisted.items()]
        return [*early, *rows, *others, *loops, *after]

    def _loop(self, loop: _Loop, wanted: frozenset[str]) -> list[str]:
        writer = Writer(self.emitter)
        changes = any(member.update.variable == loop.variable and not member.whole for member in loop.members)
        lines = [f"{loop.all} = {f'tuple({loop.code})' if changes else loop.code}"]
        lines += [f"{name} = []" for member in loop.members if (name := self.lists[member.number]) != loop.all and name in wanted]
        body: list[str] = []
        first: list[str] = []
        done: set[str] = set()
        for member in loop.members:
            name = self.lists[member.number]
            write = self._write(writer, member)
            write += [f"{name}.append({loop.key})"] if name != loop.all and name in wanted else []
            tests = " and ".join(member.tests)
            if tests and member.reads & done:
                first.append(f"c{member.number} = {tests}")
                tests = f"c{member.number}"
            done.add(member.update.variable)
            if write:
                body += [f"if {tests}:", *indented(write)] if tests else write
        lines += [f"for {loop.key} in {loop.all}:", *indented([*first, *body])] if body else []
        for member in loop.members:
            if member.whole:
                lines.append(f"if {loop.all}: del {self.emitter.container(self._store(member).slot)}[{member.keys[0]}]")
        return lines

    def _store(self, member: _Member) -> Store:
        return self.emitter.layout.stores[member.update.variable]

    def _write(self, writer: Writer, member: _Member) -> list[str]:
        """The write of a member at a place where it changes something."""
        store, value = self._store(member), member.update.value
        key = member.keys[-1]
        drops = isinstance(value, Const) and value.value == store.default
        if member.whole:
            return writer.index(store, member.keys, False)
        if member.row:
            return [f"{member.row}.{'remove' if drops else 'add'}({key})", *writer.index(store, member.keys, not drops)]
        main = self.emitter.container(store.slot)
        if store.relation and store.arity == 1 and isinstance(value, Const):
            return [f"{main}.{'remove' if drops else 'add'}({key})", *writer.index(store, member.keys, not drops)]
        plain = store.arity == 1 and not store.relation and not isinstance(store.variable.type, Counter)
        sure = isinstance(value, Const) or (isinstance(value, Bound) and store.default is None)
        if plain and sure and not self.emitter.layout.indices_of(store.variable.name):
            return [f"del {main}[{key}]"] if drops else [f"{main}[{key}] = {member.value}"]
        return writer.write(member.update.variable, member.keys, member.value, CHANGED)


class LoopedSource(ActionSource):
    """The source of an action with its updates in loops, as far as they fit, and without notes of what changed."""

    @cached_property
    def _loops(self) -> Loops | None:
        return Loops.of(self.action, self._emitter, self.names)

    def _prepare(self, update: Update, number: int) -> Prepared:
        return self._loops.prepared[number] if update.over and self._loops is not None else super()._prepare(update, number)

    def list_of(self, number: int) -> str:
        """The name of what has the keys at which an update over a block of places wrote."""
        return f"w{number}" if self._loops is None else self._loops.lists[number]

    def writes(self, wanted: frozenset[str]) -> list[str]:
        """Statements that take the step; they leave lists of keys that are `wanted`. Only once every index is known."""
        lines = [line for prepared in self._prepared for line in prepared.lines]
        lines += [] if self._loops is None else self._loops.lines(wanted)
        for number, (update, prepared) in enumerate(zip(self.action.updates, self._prepared, strict=True)):
            if self._loops is None or not update.over:
                lines += self._write_one(update, prepared) or self._write_lines(update, prepared, f"w{number}", CHANGED)
        return [line for line in lines if not line.strip().startswith(f"{CHANGED}.")]

    def _write_one(self, update: Update, prepared: Prepared) -> list[str]:
        """A write where nothing depends on what was there; nothing where something does."""
        store, value = self.layout.stores[update.variable], update.value
        kept = isinstance(store.variable.type, Counter) or bool(self.layout.indices_of(update.variable))
        if update.over or not store.arity or store.rows or kept:
            return []
        main, key = self._emitter.container(store.slot), pack(prepared.keys)
        drop, put = f"{main}.pop({key}, None)", f"{main}[{key}] = {prepared.value}"
        if store.relation:
            drop, put = f"{main}.discard({key})", f"{main}.add({key})"
        if isinstance(value, Const):
            write = [drop if value.value == store.default else put]
        elif isinstance(value, Bound) and store.default is None:
            write = [put]
        elif store.relation or store.default is None:
            write = [f"if {prepared.value} {'==' if store.relation else 'is'} {store.default!r}: {drop}", f"else: {put}"]
        else:
            return []
        return [prepared.around, *indented(write)] if prepared.around else write


class _Unfit(Exception):
    """An update that does not fit into a loop."""


def _reads(expr: Expr, key: str) -> Iterator[Read]:
    """What an expression reads for each key anew: what does not depend on the key is read before the loops."""
    if key not in free_names(expr):
        return
    if isinstance(expr, Quantified):
        yield from (node for node in walk(expr) if isinstance(node, Read))
        return
    if isinstance(expr, Read):
        yield expr
    for child in children(expr):
        yield from _reads(child, key)


def hoisted(lines: list[str], pattern: re.Pattern[str], name: str, wanted: Callable[[str], bool]) -> tuple[list[str], list[str]]:
    """The lines with the expressions that match, where `wanted`, under names; and statements that give them these names."""
    found = dict.fromkeys(code for line in lines for code in pattern.findall(line) if wanted(code))
    names = {code: f"{name}{number}" for number, code in enumerate(found)}
    return [replaced(line, names) for line in lines], [f"{short} = {code}" for code, short in names.items()]


def replaced(line: str, names: Mapping[str, str]) -> str:
    """A line with expressions under their names."""
    for code, short in names.items():
        line = line.replace(code, short)
    return line
