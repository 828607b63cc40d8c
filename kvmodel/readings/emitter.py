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
from kvmodel.language.types import Domain, Enumeration, Maybe
from kvmodel.readings.search import Let, Literal, Plan, Scan, Support, Test, literals, plans
from kvmodel.readings.sparse import Store, StoreLayout

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
        if isinstance(domain, Enumeration):
            return repr(elements)
        first = elements[0] if elements else 0
        assert isinstance(first, int)
        return f"range({first}, {first + len(elements)})"

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
        inside, group, kind = member
        if loop.is_set and not inside:
            code = f"{loop.code}.difference({group})"
        elif not inside:
            return False
        elif kind == "set":
            code = f"{loop.code}.intersection({group})" if loop.is_set else f"{group}.intersection({loop.code})"
        else:
            within = loop.code if loop.is_set else f"set({loop.code})"
            # A set is quicker to subtract a dictionary from than to intersect with one.
            code = f"{within}.intersection({group})" if kind == "tuple" else f"{within}.difference({within}.difference({group}))"
        clauses[place] = Clause("for", loop.target, code, is_set=True)
        return True

    def _membership(self, literal: Literal, element: str, names: Names) -> tuple[bool, str, str] | None:
        """(True, a group) where the literal says that `element` is in the group, (False, a group) that it is not; and whether
        the group is a 'set', a 'tuple' (or a set) or a 'dictionary'."""
        match literal.expr:
            case Read(variable, index) if self.layout.stores[variable].relation:
                store = self.layout.stores[variable]
                keys = [self.value(part, names) for part in index]
                inside = literal.truth != store.default
                if store.arity == 1 and keys == [element]:
                    return inside, self.container(store.slot), "set"
                if store.rows and keys[1] == element and element not in _words(keys[0]):
                    return inside, f"{self.container(store.slot)}.get({keys[0]}, E)", "set"
            case Apply(operator=Operator.EQ, arguments=(Read(variable, (key,)), Const(value=value))):
                store = self.layout.stores[variable]
                if store.relation or self.value(key, names) != element:
                    return None
                if value == store.default:
                    return not literal.truth, self.container(store.slot), "dictionary"
                if (self._indexing and variable in self.layout.rigid) or self.layout.has_index(variable, (), True):
                    name = self.container(self.layout.index(variable, (), True))
                    return literal.truth, f"{name}.get({value!r}, E)", "tuple"
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
            name, is_set = self.container(store.slot), True
        elif key and (self._indexing or self.layout.has_index(step.variable, known, step.value is not None)):
            # What an index gives may be a tuple of one.
            name, is_set = self.container(self.layout.index(step.variable, known, step.value is not None)), False
        else:
            return self._through(store, step, dict(zip(known, key, strict=False)), targets, key)
        code = f"{name}.get({look}, E)"
        return [Clause("for", target, code, f"({look} in {name})", f"len({code})", is_set=is_set)]

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


def _words(code: str) -> list[str]:
    return re.findall(r"\w+", code)


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
