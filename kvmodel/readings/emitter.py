"""Python source of expressions, searches and writes over a sparse state: what the compiled step is made of.

The text consists of positional names (``a0`` parameters, ``b0`` quantified variables, ``v0`` containers), integers, and the
`repr` of members of enumerations. Nothing of a spec file's text reaches it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kvmodel.errors import InternalError
from kvmodel.language.expressions import Apply, Bound, Const, Expr, Named, Quantified, Read
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.types import Counter, Domain, Enumeration, Maybe
from kvmodel.readings.search import Let, Literal, Plan, Scan, Support, Test, literals, plans
from kvmodel.readings.sparse import Index, Store, StoreLayout

__all__ = ["Clause", "Emitter", "comprehension", "indented", "nest", "pack", "tuple_of"]

Names = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Clause:
    """A part of a loop: ``for target in code`` ('for'), ``target = code`` ('let') or ``if code`` ('if').

    `exists` and `size`, where not empty, are source of whether the loop has an element, and of how many; `is_set` says that
    `code` is a set.
    """

    kind: str
    target: str
    code: str
    exists: str = ""
    size: str = ""
    is_set: bool = False

    @property
    def inline(self) -> str:
        """The clause in a comprehension."""
        match self.kind:
            case "for":
                return f"for {self.target} in {self.code}"
            case "let":
                return f"for {self.target} in ({self.code},)"
            case _:
                return f"if {self.code}"

    @property
    def statement(self) -> str:
        """The clause as a statement; a block follows unless it is a 'let'."""
        match self.kind:
            case "for":
                return f"for {self.target} in {self.code}:"
            case "let":
                return f"{self.target} = {self.code}"
            case _:
                return f"if {self.code}:"


class Emitter:
    """Emits the source of one function; `prologue` then gives local names to the containers that it uses.

    With `indexing`, searches ask the layout for the indices that they want; without, they make do with those there are.
    """

    def __init__(self, layout: StoreLayout, indexing: bool = True) -> None:
        self.layout = layout
        self.used: set[int] = set()
        self._indexing = indexing
        self._count = 0

    def prologue(self) -> list[str]:
        """Statements that name every container used so far, from the list ``S``, and the empty set ``E``."""
        return [*(f"v{slot} = S[{slot}]" for slot in sorted(self.used)), "E = frozenset()"]

    def fresh(self) -> str:
        """A new name."""
        self._count += 1
        return f"b{self._count - 1}"

    def container(self, slot: int) -> str:
        """The local name of a container."""
        self.used.add(slot)
        return f"v{slot}"

    def value(self, expr: Expr, names: Names) -> str:
        """Source of the value of `expr`. Raises InternalError for what it does not know."""
        match expr:
            case Const(value=value):
                return repr(value)
            case Bound(name=name):
                return names[name]
            case Named(body=body):
                return self.value(body, names)
            case Read(variable, index):
                return self._read(self.layout.stores[variable], [self.value(part, names) for part in index])
            case Apply(operator, arguments):
                return self._apply(operator, [self.value(part, names) for part in arguments])
            case Quantified(binder, variables, body):
                match binder:
                    case Binder.ANY:
                        return self.some(variables, literals(body, True), names)
                    case Binder.ALL:
                        return f"(not {self.some(variables, literals(body, False), names)})"
                    case Binder.COUNT:
                        return self._count_of(variables, literals(body, True), names)
                raise InternalError(f"the compiled step has no source for binder {binder.value!r}")
        raise InternalError(f"the compiled step has no source for {expr!r}")

    def literal(self, literal: Literal, names: Names) -> str:
        """Source of a literal."""
        code = self.value(literal.expr, names)
        return code if literal.truth else f"(not {code})"

    def _apply(self, operator: Operator, parts: list[str]) -> str:
        match operator:
            case Operator.NOT:
                return f"(not {parts[0]})"
            case Operator.AND:
                return f"({' and '.join(parts)})" if parts else "True"
            case Operator.OR:
                return f"({' or '.join(parts)})" if parts else "False"
            case Operator.IMPLIES:
                return f"(not {parts[0]} or {parts[1]})"
            case Operator.EQ:
                return f"({parts[0]} == {parts[1]})"
            case Operator.LT:
                return f"({parts[0]} < {parts[1]})"
            case Operator.LE:
                return f"({parts[0]} <= {parts[1]})"
            case Operator.ADD:
                return f"({' + '.join(parts)})"
            case Operator.IF:
                return f"({parts[1]} if {parts[0]} else {parts[2]})"
            case Operator.IS_NONE:
                return f"({parts[0]} is None)"
            case Operator.THE:
                return parts[0]
        raise InternalError(f"the compiled step has no source for operator {operator.value!r}")

    def _read(self, store: Store, keys: list[str]) -> str:
        name = self.container(store.slot)
        if not store.arity:
            return f"{name}[0]"
        key = pack(keys)
        test = "in" if store.default is False else "not in"
        if store.rows:
            return f"({keys[1]} {test} {name}.get({keys[0]}, E))"
        if store.relation:
            return f"({key} {test} {name})"
        return f"{name}.get({key})" if store.default is None else f"{name}.get({key}, {store.default!r})"

    def domain(self, domain: Domain) -> str:
        """Source of an iterable over a domain."""
        elements = self.layout.instance.elements(domain)
        return repr(elements) if isinstance(domain, Enumeration) else f"range({len(elements)})"

    def search(self, variables: tuple[Bound, ...], condition: tuple[Literal, ...]) -> tuple[Plan, ...]:
        """Plans that find every binding of `variables` for which `condition` holds."""
        return plans(variables, condition, self.layout.defaults, self.layout.rigid)

    def some(self, variables: tuple[Bound, ...], condition: tuple[Literal, ...], names: Names) -> str:
        """Source of whether there is a binding of `variables` for which `condition` holds."""
        parts = [self._some(plan, names) for plan in self.search(variables, condition)]
        return parts[0] if len(parts) == 1 else f"({' or '.join(parts)})"

    def _some(self, plan: Plan, names: Names) -> str:
        clauses, _ = self.clauses(plan, names)
        if len(clauses) == 1 and clauses[0].exists:
            return clauses[0].exists
        if all(clause.kind == "if" for clause in clauses):
            return f"({' and '.join(clause.code for clause in clauses)})" if clauses else "True"
        return f"any(True {_inline(clauses)})"

    def _count_of(self, variables: tuple[Bound, ...], condition: tuple[Literal, ...], names: Names) -> str:
        parts = []
        for plan in self.search(variables, condition):
            clauses, inner = self.clauses(plan, names)
            parts.append((clauses, pack([inner[variable.name] for variable in variables])))
        if len(parts) > 1:
            return f"len({' | '.join(f'{{{target} {_inline(clauses)}}}' for clauses, target in parts)})"
        ((clauses, _),) = parts
        if len(clauses) == 1 and clauses[0].size:
            return clauses[0].size
        return f"sum(1 {_inline(clauses)})"

    def clauses(
        self, plan: Plan, names: Names, eager: bool = False, start: Iterable[Clause] = ()
    ) -> tuple[list[Clause], dict[str, str]]:
        """The loops and tests of a plan, and `names` with those that it finds.

        With `eager`, loops are narrowed by set operations where tests allow it: quicker where every element is wanted anyway.
        `start` are loops over what `names` has already, around and to be narrowed with the rest.
        """
        inner = dict(names)
        found = list(start)
        for step in plan:
            match step:
                case Scan(variable):
                    inner[variable.name] = self.fresh()
                    found.append(Clause("for", inner[variable.name], self.domain(variable.domain)))
                case Let(variable, value):
                    code = self.value(value, inner)
                    inner[variable.name] = self.fresh()
                    found.append(Clause("let", inner[variable.name], code))
                    if isinstance(value.type, Maybe):
                        found.append(Clause("if", "", f"{inner[variable.name]} is not None"))
                case Support():
                    found += self._support(step, inner)
                case Test(literal):
                    if not (eager and self._narrow(found, literal, inner)):
                        found.append(Clause("if", "", self.literal(literal, inner)))
        return found, inner

    def _narrow(self, clauses: list[Clause], literal: Literal, names: Names) -> bool:
        """Make the literal a set operation of the innermost loop, if it says that the loop's element is, or is not, in a set."""
        place = next((place for place in reversed(range(len(clauses))) if clauses[place].kind != "if"), None)
        if place is None or clauses[place].kind != "for":
            return False
        loop = clauses[place]
        member = self._membership(literal, loop.target, names)
        if member is None:
            return False
        inside, group = member
        if loop.is_set:
            code = f"{loop.code}.{'intersection' if inside else 'difference'}({group})"
        elif inside:
            code = f"{group}.intersection({loop.code})"
        else:
            return False
        clauses[place] = Clause("for", loop.target, code, is_set=True)
        return True

    def _membership(self, literal: Literal, element: str, names: Names) -> tuple[bool, str] | None:
        """(True, a set) where the literal says that `element` is in it, (False, a set or dictionary) that it is not."""
        match literal.expr:
            case Read(variable, index) if self.layout.stores[variable].relation:
                store = self.layout.stores[variable]
                keys = [self.value(part, names) for part in index]
                inside = literal.truth != store.default
                if store.arity == 1 and keys == [element]:
                    return inside, self.container(store.slot)
                if store.rows and keys[1] == element and element not in _words(keys[0]):
                    return inside, f"{self.container(store.slot)}.get({keys[0]}, E)"
            case Apply(operator=Operator.EQ, arguments=(Read(variable, (key,)), Const(value=value))):
                store = self.layout.stores[variable]
                if store.relation or self.value(key, names) != element:
                    return None
                if value == store.default:
                    return (False, self.container(store.slot)) if literal.truth else None
                if (self._indexing and variable in self.layout.rigid) or self.layout.has_index(variable, (), True):
                    return literal.truth, f"{self.container(self.layout.index(variable, (), True))}.get({value!r}, E)"
        return None

    def _support(self, step: Support, names: dict[str, str]) -> list[Clause]:
        store = self.layout.stores[step.variable]
        known = tuple(position for position in range(store.arity) if position not in step.find)
        key = [self.value(step.index[position], names) for position in known]
        if step.value is not None:
            key.append(self.value(step.value, names))
        targets = [self.fresh() for _ in step.find]
        for position, name in zip(step.find, targets, strict=True):
            part = step.index[position]
            assert isinstance(part, Bound)
            names[part.name] = name
        target = pack(targets)
        look = pack(key)
        if store.rows and known == (0,) and step.value is None:
            name = self.container(store.slot)
        elif key and (self._indexing or self.layout.has_index(step.variable, known, step.value is not None)):
            name = self.container(self.layout.index(step.variable, known, step.value is not None))
        else:
            return self._through(store, step, dict(zip(known, key, strict=False)), targets, key)
        code = f"{name}.get({look}, E)"
        return [Clause("for", target, code, f"({look} in {name})", f"len({code})", is_set=True)]

    def _through(self, store: Store, step: Support, known: Mapping[int, str], targets: list[str], key: list[str]) -> list[Clause]:
        """Loops through everything that is stored for a variable, keeping what agrees with the known keys and value."""
        main = self.container(store.slot)
        keys = dict(zip(step.find, targets, strict=True)) | {position: self.fresh() for position in known}
        order = [keys[position] for position in range(store.arity)]
        tests = [Clause("if", "", f"{keys[position]} == {code}") for position, code in known.items()]
        if store.rows:
            row = self.fresh()
            return [Clause("for", f"{order[0]}, {row}", f"{main}.items()"), Clause("for", order[1], row), *tests]
        if step.value is None:
            exists, size = ("", "") if key else (f"bool({main})", f"len({main})")
            return [Clause("for", pack(order), main, exists, size, store.relation), *tests]
        value = self.fresh()
        return [Clause("for", f"{pack(order)}, {value}", f"{main}.items()"), *tests, Clause("if", "", f"{value} == {key[-1]}")]

    def write(self, variable: str, keys: list[str], value: str, changed: str) -> list[str]:
        """Statements that write a value and note the place in `changed` if it differs from before.

        `keys` and `value` are names or constants; counters out of range are noted in the set ``R``.
        """
        store = self.layout.stores[variable]
        if store.relation and store.arity:
            return self._write_relation(store, keys, value, changed)
        main, old, default = self.container(store.slot), self.fresh(), repr(store.default)
        if not store.arity:
            lines, body = [f"{old} = {main}[0]"], [f"{main}[0] = {value}"]
        else:
            key = pack(keys)
            lines = [f"{old} = {main}.get({key}, {default})"]
            body = _either(value, default, [f"del {main}[{key}]"], [f"{main}[{key}] = {value}"])
            for index, slot in self.layout.indices_of(variable):
                body += self._index_value(index, slot, keys, (old, value, default))
        body.append(_note(store, keys, changed))
        kind = store.variable.type
        if isinstance(kind, Counter):
            place = f"({store.slot}, {tuple_of(keys)})"
            body += [f"if {kind.low} <= {value} <= {kind.high}:", f"    R.discard({place})", "else:", f"    R.add({place})"]
        return [*lines, f"if {old} != {value}:", *indented(body)]

    def write_block(self, variable: str, keys: list[str], position: int, group: str, value: str, changed: str) -> list[str]:
        """Statements that write one value at many places: `group` has the elements of the key at `position`, all of them
        places where the value differs from what is there."""
        store = self.layout.stores[variable]
        key, rest = keys[position], [part for place, part in enumerate(keys) if place != position]
        main, default = self.container(store.slot), repr(store.default)
        indices = self.layout.indices_of(variable)
        if store.relation and (store.arity == 1 or (store.rows and position == 1)):
            if store.rows:
                row = self.fresh()
                add = [
                    f"{row} = {main}.get({rest[0]})",
                    f"if {row} is None:",
                    f"    {row} = {main}[{rest[0]}] = set()",
                    f"{row}.update({group})",
                ]
                drop = [
                    f"{row} = {main}[{rest[0]}]",
                    f"{row}.difference_update({group})",
                    f"if not {row}:",
                    f"    del {main}[{rest[0]}]",
                ]
                note = f"{changed}.setdefault({rest[0]}, []).extend({group})"
            else:
                add, drop = [f"{main}.update({group})"], [f"{main}.difference_update({group})"]
                note = f"{changed}.extend({group})"
            if indices:
                add += [f"for {key} in {group}:", *indented(self._index_relation(store, keys, True))]
                drop += [f"for {key} in {group}:", *indented(self._index_relation(store, keys, False))]
            return [f"if {group}:", *indented([*_either(value, default, drop, add), note])]
        if store.arity == 1 and not store.relation and not indices and not isinstance(store.variable.type, Counter):
            drop, add = [f"for {key} in {group}:", f"    del {main}[{key}]"], [f"{main}.update(dict.fromkeys({group}, {value}))"]
            return [*_either(value, default, drop, add), f"{changed}.extend({group})"]
        return [f"for {key} in {group}:", *indented(self.write(variable, keys, value, changed))]

    def _write_relation(self, store: Store, keys: list[str], value: str, changed: str) -> list[str]:
        default = repr(store.default)
        if value in ("True", "False"):
            return self._drop(store, keys, changed) if value == default else self._put(store, keys, changed)
        return _either(value, default, self._drop(store, keys, changed), self._put(store, keys, changed))

    def _put(self, store: Store, keys: list[str], changed: str) -> list[str]:
        main = self.container(store.slot)
        note = [*self._index_relation(store, keys, True), _note(store, keys, changed)]
        if not store.rows:
            return [f"if {pack(keys)} not in {main}:", f"    {main}.add({pack(keys)})", *indented(note)]
        row = self.fresh()
        return [
            f"{row} = {main}.get({keys[0]})",
            f"if {row} is None:",
            f"    {row} = {main}[{keys[0]}] = set()",
            f"if {keys[1]} not in {row}:",
            f"    {row}.add({keys[1]})",
            *indented(note),
        ]

    def _drop(self, store: Store, keys: list[str], changed: str) -> list[str]:
        main = self.container(store.slot)
        note = [*self._index_relation(store, keys, False), _note(store, keys, changed)]
        if not store.rows:
            return [f"if {pack(keys)} in {main}:", f"    {main}.remove({pack(keys)})", *indented(note)]
        row = self.fresh()
        return [
            f"{row} = {main}.get({keys[0]})",
            f"if {row} is not None and {keys[1]} in {row}:",
            f"    {row}.remove({keys[1]})",
            f"    if not {row}:",
            f"        del {main}[{keys[0]}]",
            *indented(note),
        ]

    def _index_relation(self, store: Store, keys: list[str], add: bool) -> list[str]:
        lines: list[str] = []
        for index, slot in self.layout.indices_of(store.variable.name):
            key, rest = _split_key(keys, index.known, None)
            lines += self._index_add(slot, key, rest) if add else self._index_remove(slot, key, rest)
        return lines

    def _index_value(self, index: Index, slot: int, keys: list[str], values: tuple[str, str, str]) -> list[str]:
        old, new, default = values
        old_key, rest = _split_key(keys, index.known, old if index.by_value else None)
        new_key, _ = _split_key(keys, index.known, new if index.by_value else None)
        remove, add = self._index_remove(slot, old_key, rest), self._index_add(slot, new_key, rest)
        if index.by_value:
            return [f"if {old} != {default}:", *indented(remove), *_either(new, default, [], add)]
        return _either(new, default, remove, [f"if {old} == {default}:", *indented(add)])

    def _index_add(self, slot: int, key: str, rest: str) -> list[str]:
        name, group = self.container(slot), self.fresh()
        return [
            f"{group} = {name}.get({key})",
            f"if {group} is None:",
            f"    {name}[{key}] = {{{rest}}}",
            "else:",
            f"    {group}.add({rest})",
        ]

    def _index_remove(self, slot: int, key: str, rest: str) -> list[str]:
        name, group = self.container(slot), self.fresh()
        return [f"{group} = {name}[{key}]", f"{group}.remove({rest})", f"if not {group}:", f"    del {name}[{key}]"]


def pack(parts: list[str]) -> str:
    """Source of a key as containers hold it (and of a loop's target): a bare element, or a tuple."""
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


def indented(lines: Iterable[str]) -> list[str]:
    """`lines`, one level deeper."""
    return ["    " + line for line in lines]


def nest(clauses: list[Clause], body: list[str]) -> list[str]:
    """`body` inside the loops and tests of `clauses`."""
    lines: list[str] = []
    depth = 0
    for clause in clauses:
        lines.append("    " * depth + clause.statement)
        depth += clause.kind != "let"
    return [*lines, *("    " * depth + line for line in body)]


def _note(store: Store, keys: list[str], changed: str) -> str:
    """A statement that notes a changed place: in a list of keys, or for a relation with rows in a dictionary of lists."""
    return f"{changed}.setdefault({keys[0]}, []).append({keys[1]})" if store.rows else f"{changed}.append({pack(keys)})"


def _words(code: str) -> list[str]:
    return re.findall(r"\w+", code)


def _either(value: str, default: str, same: list[str], other: list[str]) -> list[str]:
    """`same` where the value is the default, `other` where it is not; decided here where the value is a constant."""
    if not value.isidentifier() or value in ("True", "False", "None"):
        return same if value == default else other
    if not same:
        return [f"if {value} != {default}:", *indented(other)]
    return [f"if {value} == {default}:", *indented(same), "else:", *indented(other)]


def tuple_of(parts: list[str]) -> str:
    """Source of a tuple, whatever its length."""
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def comprehension(element: str, clauses: list[Clause]) -> str:
    """Source of a list of `element` for everything that `clauses` find."""
    if len(clauses) == 1 and clauses[0].kind == "for" and clauses[0].target == element:
        return f"list({clauses[0].code})"
    return f"[{element} {_inline(clauses)}]"


def _inline(clauses: list[Clause]) -> str:
    # A comprehension starts with a loop.
    first = [] if clauses and clauses[0].kind != "if" else ["for _ in (0,)"]
    return " ".join([*first, *(clause.inline for clause in clauses)])


def _split_key(keys: list[str], known: tuple[int, ...], value: str | None) -> tuple[str, str]:
    front = [keys[position] for position in known] + ([] if value is None else [value])
    rest = [key for position, key in enumerate(keys) if position not in known]
    return pack(front), pack(rest)
