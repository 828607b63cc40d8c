"""Reading a spec: from its classes to the transition system. The file's methods are read, never run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvmodel.errors import Diagnostic, SpecError, nearest
from kvmodel.language.actions import Actions
from kvmodel.language.check import problems
from kvmodel.language.classes import Method
from kvmodel.language.expressions import Bound, Const, Expr, Quantified, walk
from kvmodel.language.members import Members
from kvmodel.language.modules import SpecClass, span
from kvmodel.language.scopes import Mistake
from kvmodel.language.system import Condition, Definition, Property, PropertyKind, TransitionSystem
from kvmodel.language.types import Domain, Element, Enumeration, Maybe, Sort

__all__ = ["read_spec"]

PROPERTY_KINDS = {"invariant": PropertyKind.INVARIANT, "reachable": PropertyKind.REACHABLE}


def read_spec(spec: SpecClass, name: str) -> TransitionSystem:
    """Read a spec class with everything that it inherits. Raises SpecError with every mistake found."""
    members = Members(spec)
    system = _Reader(members, name).system()
    if not members.mistakes and not spec.module.library.mistakes:
        for problem in problems(system):
            members.add(Diagnostic(problem.at.file, problem.at.line, problem.at.column, f"{spec.name}.{problem.where}",
                                   problem.message, problem.hint))
    mistakes = (*members.mistakes, *spec.module.library.mistakes)
    if mistakes:
        raise SpecError(mistakes)
    return system


class _Reader:
    """Makes the transition system of one spec."""

    def __init__(self, members: Members, name: str) -> None:
        self.members = members
        self.name = name

    def system(self) -> TransitionSystem:
        methods = [(level, method) for _, (level, method) in self._effective()]
        statements = Actions(self.members)
        actions = [action for level, method in methods if method.kind == "action" and (action := statements.action(level, method))]
        conditions = {kind: list(self._conditions(methods, kind)) for kind in ("assume", "initial", "final", "lemma", "define")}
        properties = [found for level, method in methods if method.kind in PROPERTY_KINDS for found in self._try_property(level, method)]
        for level, method in methods:
            if method.kind == "effect":
                statements.check_effect(level, method)
        system = TransitionSystem(
            self.name,
            (),
            (),
            tuple(self.members.flag_table.values()),
            tuple(self.members.variables.values()),
            tuple(conditions["assume"]),
            tuple(conditions["initial"]),
            tuple(actions),
            tuple(properties),
            tuple(conditions["final"]),
            tuple(conditions["lemma"]),
            tuple(Definition(c.name, c.parameters, c.condition, c.doc, c.at) for c in conditions["define"]),
            self.members.spec.doc,
            span(self.members.spec.module, self.members.spec.node),
        )
        domains = self._domains(system)
        sorts = tuple(domain for domain in domains if isinstance(domain, Sort))
        enumerations = tuple(domain for domain in domains if isinstance(domain, Enumeration))
        return replace(system, sorts=sorts, enumerations=enumerations, sizes=self._sizes(sorts))

    def _effective(self) -> Iterator[tuple[str, tuple[int, Method]]]:
        """The method that each name means, in the order in which base classes first declare the names."""
        names: dict[str, None] = {}
        for body in reversed(self.members.bodies):
            names.update(dict.fromkeys(body.methods))
        for name in names:
            yield name, self.members.by_name[name][0]

    def _domains(self, system: TransitionSystem) -> tuple[Domain, ...]:
        """Every sort and enumeration that the spec uses, and the sorts of its files that nobody uses (a finding of its own)."""
        found: dict[str, Domain] = {}
        for domain in self._mentioned(system):
            if found.setdefault(domain.name, domain) is not domain:
                self.members.report(self.members.spec, self.members.spec.node, self.members.spec.name,
                                    f"the spec uses two sorts or enumerations called '{domain.name}'",
                            "rename one of them, or import it from the file that declares it")
        for entry in reversed(self.members.order):
            for name in entry.module.classes:
                symbol = entry.module.lookup(name)
                if isinstance(symbol, Sort) and name not in entry.module.mentioned:
                    found.setdefault(symbol.name, symbol)
        return tuple(found.values())

    @staticmethod
    def _mentioned(system: TransitionSystem) -> Iterator[Domain]:
        for variable in system.variables:
            yield from variable.keys
            if isinstance(variable.type, Element | Maybe):
                yield variable.type.domain
        for action in system.actions:
            yield from (parameter.domain for parameter in action.parameters)
            yield from (bound.domain for update in action.updates for bound in update.over)
        for condition in (*system.assumptions, *system.initial, *system.finals, *system.lemmas):
            yield from (parameter.domain for parameter in condition.parameters)
        for declared in system.declared:
            yield from (parameter.domain for parameter in declared.parameters)
        for definition in system.definitions:
            yield from (parameter.domain for parameter in definition.parameters)
        unread = [lemma.condition for lemma in system.lemmas] + [definition.condition for definition in system.definitions]
        for expr in (*system.expressions(), *unread):
            for node in walk(expr):
                if isinstance(node, Quantified):
                    yield from (bound.domain for bound in node.variables)
                elif isinstance(node, Const) and isinstance(node.type, Element | Maybe):
                    yield node.type.domain

    def _sizes(self, sorts: tuple[Sort, ...]) -> tuple[tuple[str, int], ...]:
        known = [sort.name for sort in sorts]
        for variable in self.members.variables.values():
            if variable.partition and isinstance(variable.type, Element) and isinstance(variable.type.domain, Enumeration):
                known += [f"{variable.keys[0].name}.{member}" for member in variable.type.domain.members]
        sizes: dict[str, int] = {}
        for entry, body in reversed(list(zip(self.members.order, self.members.bodies, strict=True))):
            for name, (node, size) in body.sizes.items():
                if name not in known:
                    self.members.report(entry, node, entry.name,
                                        f"sizes names '{name}', which is not a sort of the spec{nearest(name, known)}",
                                f"its sorts are {', '.join(known)}")
                elif size < (0 if "." in name else 1):
                    self.members.report(entry, node, entry.name, f"the size of {name} is {size}",
                                        "a sort is never empty: it has at least 1 element")
                sizes[name] = size
        return tuple(sizes.items())

    def _conditions(self, methods: list[tuple[int, Method]], kind: str) -> Iterator[Condition]:
        for level, method in methods:
            if method.kind == kind:
                try:
                    parameters, expr = self._body(level, method)
                except Mistake as mistake:
                    self.members.mistake(method, mistake)
                    continue
                yield Condition(method.name, parameters, expr, method.doc, span(method.owner.module, method.node), method.where)

    def _try_property(self, level: int, method: Method) -> Iterator[Property]:
        try:
            parameters, expr = self._body(level, method)
        except Mistake as mistake:
            self.members.mistake(method, mistake)
            return
        at = span(method.owner.module, method.node)
        yield Property(method.name, PROPERTY_KINDS[method.kind], parameters, expr, method.doc, at)

    def _body(self, level: int, method: Method) -> tuple[tuple[Bound, ...], Expr]:
        parameters = self.members.parameters(method)
        scope = self.members.scope_of(level, method, {parameter.name: parameter for parameter in parameters})
        return parameters, self.members.returned(method, replace(scope, inside=(method.where,)))
