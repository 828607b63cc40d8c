"""What a spec class and its bases offer: variables, flags, definitions and effects, and where each name leads."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import NoReturn

from kvmodel.errors import Diagnostic, SpecError, nearest
from kvmodel.language.classes import Body, Method, bases_of, body_of, linearise
from kvmodel.language.declarations import declare
from kvmodel.language.expressions import Bound, Expr, Named
from kvmodel.language.modules import SpecClass, span
from kvmodel.language.phrases import Phrase
from kvmodel.language.scopes import Mistake, Scope
from kvmodel.language.source import quoted
from kvmodel.language.system import Flag, Variable
from kvmodel.language.typed import spelling

__all__ = ["Members", "article", "is_docstring"]

TRUTHS = ("invariant", "reachable", "final", "assume", "initial", "lemma")


class Members:
    """The members of one spec, with every mistake found in it; an implementation of `phrases.Names`."""

    def __init__(self, spec: SpecClass) -> None:
        self.spec = spec
        self.mistakes: dict[Diagnostic, None] = {}
        self.order = linearise(spec, self.report)
        self.complete = all(bases_of(entry, self.report)[1] for entry in self.order)
        self.bodies: list[Body] = [body_of(entry, self.report) for entry in self.order]
        self.variable_table: dict[str, Variable] = {}
        self.flag_table: dict[str, Flag] = {}
        self.broken: set[str] = {name for body in self.bodies for name in body.broken}
        self.recursive: set[str] = set()  # definitions that use themselves
        self.phrase = Phrase(self)
        self._bounds: dict[Method, tuple[Bound, ...]] = {}
        self._ancestors: dict[int, frozenset[SpecClass]] = {}
        self._declare()
        self.by_name: dict[str, list[tuple[int, Method]]] = {}
        for level, body in enumerate(self.bodies):
            for method in body.methods.values():
                self.by_name.setdefault(method.name, []).append((level, method))
        self._check_overrides()

    # -- mistakes

    def add(self, diagnostic: Diagnostic) -> None:
        self.mistakes[diagnostic] = None

    def report(self, spec: SpecClass, node: ast.AST, where: str, message: str, hint: str) -> None:
        at = span(spec.module, node)
        self.add(Diagnostic(at.file, at.line, at.column, where, message, hint))

    def mistake(self, method: Method, mistake: Mistake) -> None:
        if mistake.message:
            self.report(method.owner, mistake.node, method.where, mistake.message, mistake.hint)

    def note(self, mistake: Mistake, scope: Scope) -> None:
        if mistake.late or (mistake.none and scope.unsure):
            if mistake.late:
                raise mistake
            return
        self.mistake(self._method_of(scope), mistake)

    def give_up(self, node: ast.AST, scope: Scope, message: str) -> NoReturn:
        method = self._method_of(scope)
        self.report(method.owner, node, method.where, message, "split the spec, or write less of it by definitions and effects")
        raise SpecError((*self.mistakes, *self.spec.module.library.mistakes))

    def _method_of(self, scope: Scope) -> Method:
        return self.bodies[scope.level].methods[scope.method]

    # -- what the spec offers to its expressions

    @property
    def variables(self) -> Mapping[str, Variable]:
        return self.variable_table

    @property
    def flags(self) -> tuple[str, ...]:
        return tuple(self.flag_table)

    def method_kind(self, name: str) -> str | None:
        return self.by_name[name][0][1].kind if name in self.by_name else None

    def method_names(self, kind: str) -> tuple[str, ...]:
        return tuple(name for name, found in self.by_name.items() if found[0][1].kind == kind)

    def definition(self, node: ast.Call, name: str, scope: Scope, inherited: bool) -> Expr:
        """A use of a definition; in a property, ``super()`` also stands for the property that it overrides. Raises Mistake."""
        own = self._method_of(scope)
        overridden = inherited and name == own.name and own.kind in TRUTHS
        level, method = self.find(node, name, own.kind if overridden else "define", scope, inherited)
        key = method.where
        if key in scope.inside:
            if key in self.recursive:
                raise Mistake(node, "")
            self.recursive.update(scope.inside[scope.inside.index(key):])
            raise Mistake(node, f"the definition '{name}' uses itself", "a definition is one expression over the state, without recursion")
        arguments = self.arguments(node, method, scope)
        inner = self.scope_of(level, method, arguments, scope)
        try:
            body = self.returned(method, replace(inner, inside=(*scope.inside, key)))
        except Mistake as mistake:
            if mistake.late:
                said = f" at {scope.written[mistake.late]}" if scope.written else ""
                raise Mistake(node, f"'{name}' reads '{mistake.late}', which was written{said}",
                              "every right-hand side reads the state before the step; use the definition above the write",
                              late=mistake.late) from None
            self.mistake(method, mistake)
            raise Mistake(node, "") from None
        return body if overridden else Named(name, tuple(arguments.values()), body, span(scope.module, node))

    def find(self, node: ast.AST, name: str, kind: str, scope: Scope, inherited: bool) -> tuple[int, Method]:
        """The method that ``s.name`` (or ``super().name``) means. Raises Mistake."""
        found = [entry for entry in self.by_name.get(name, ()) if not inherited or entry[0] > scope.level]
        if not found:
            if name in self.broken or not self.complete:
                raise Mistake(node, "")
            if inherited:
                raise Mistake(node, f"no base class has '{name}'{nearest(name, self._names_above(scope.level))}",
                              "super() stands for the next class in the order of inheritance")
            if kind == "define" and name in self.variables:
                raise Mistake(node, f"'{name}' is a variable, not a definition", f"write {spelling(self.variables[name])}")
            known = self.method_names(kind)
            what = "definition" if kind == "define" else "effect"
            raise Mistake(node, f"the spec has no {what} '{name}'{nearest(name, known)}",
                          f"declare it with @{kind} in the class or in a base class")
        level, method = found[0]
        if method.kind != kind:
            raise Mistake(node, f"'{name}' is {article(method.kind)}, not {article(kind)}",
                          "definitions are used in expressions, effects in actions, and actions only through super()")
        return level, method

    def _names_above(self, level: int) -> tuple[str, ...]:
        return tuple(name for name, found in self.by_name.items() if any(entry > level for entry, _ in found))

    def arguments(self, node: ast.Call, method: Method, scope: Scope) -> dict[str, Expr]:
        """The arguments of a call to a definition, an effect or an inherited method, by parameter. Raises Mistake."""
        parameters = self.known_parameters(method)
        if parameters is None or method.name in self.broken:
            raise Mistake(node, "")
        if node.keywords or len(node.args) != len(parameters):
            wanted = ", ".join(f"{p.name}: {p.domain.name}" for p in parameters)
            count = f"{len(parameters)} argument{'s' * (len(parameters) != 1)} ({wanted})" if wanted else "no arguments"
            raise Mistake(node, f"'{method.name}' takes {count}, not {len(node.args) + len(node.keywords)}",
                          f"write {quoted(node.func).strip('`')}({', '.join(p.name for p in parameters)})")
        return {
            parameter.name: self.phrase.element(argument, scope, parameter.domain, f"'{parameter.name}' of '{method.name}'")
            for parameter, argument in zip(parameters, node.args, strict=True)
        }

    def scope_of(self, level: int, method: Method, names: Mapping[str, Expr], outer: Scope | None = None) -> Scope:
        self_name = method.node.args.args[0].arg
        if outer is None:
            taken = frozenset(expr.name for expr in names.values() if isinstance(expr, Bound))
            return Scope(method.owner.module, level, method.name, self_name, names, taken=taken)
        return replace(outer, module=method.owner.module, level=level, method=method.name, self_name=self_name, names=names)

    def returned(self, method: Method, scope: Scope) -> Expr:
        """The expression that a definition or a property returns. Raises Mistake."""
        match [s for s in method.node.body if not is_docstring(s)]:
            case [ast.Return(value=ast.expr() as value)]:
                return self.phrase.truth(value, scope) if method.kind in TRUTHS else self.phrase.read(value, scope)
            case [ast.Return()] | []:
                node: ast.AST = method.node
            case [*_, other] if isinstance(other, ast.Return):
                node = next(s for s in method.node.body if not is_docstring(s))
            case rest:
                node = rest[0]
        raise Mistake(node, f"the body of {article(method.kind)} is one returned expression", "write a docstring and one `return`")

    def parameters(self, method: Method) -> tuple[Bound, ...]:
        """The parameters of a method. Raises Mistake."""
        if method not in self._bounds:
            found = []
            scope = self.scope_of(0, method, {})
            for argument in method.node.args.args[1:]:
                self.phrase.check_name(argument, argument.arg, scope)
                if argument.annotation is None:
                    raise Mistake(argument, f"the parameter '{argument.arg}' has no sort", f"write {argument.arg}: Request")
                domain = self.phrase.domain(argument.annotation, method.owner.module, f"a parameter is an element: {argument.arg}: Request")
                found.append(Bound(argument.arg, domain, span(method.owner.module, argument)))
            self._bounds[method] = tuple(found)
        return self._bounds[method]

    def known_parameters(self, method: Method) -> tuple[Bound, ...] | None:
        """The parameters of a method, or None where they have a mistake, which is then reported there."""
        try:
            return self.parameters(method)
        except Mistake as mistake:
            self.mistake(method, mistake)
            return None

    # -- declarations

    def _declare(self) -> None:
        for entry, body in reversed(list(zip(self.order, self.bodies, strict=True))):
            for name, node in body.variables.items():
                where = f"{entry.name}.{name}"
                if name in self.flag_table:
                    self.report(entry, node, where, f"'{name}' is a flag already", f"a flag is set without its kind: {name} = True")
                    continue
                if name in self.variable_table:
                    self.report(entry, node, where, f"'{name}' is declared already at {self.variables[name].at}",
                                "a variable is declared once; this one needs another name")
                    continue
                try:
                    found = declare(entry, name, node)
                except Mistake as mistake:
                    self.broken.add(name)
                    if mistake.message:
                        self.report(entry, mistake.node, where, mistake.message, mistake.hint)
                    continue
                if isinstance(found, Flag):
                    self.flag_table[name] = found
                else:
                    self.variable_table[name] = found
            for name, (setting, value) in body.settings.items():
                if name in self.flag_table:
                    self.flag_table[name] = replace(self.flag_table[name], value=value)
                elif name not in self.broken and self.complete:
                    message = f"there is no flag '{name}' to set{nearest(name, list(self.flag_table))}"
                    hint = 'a flag is declared with `name: Flag = flag(False, kind="defence", doc="...")`'
                    if name in self.variables:
                        message = f"'{name}' is a variable, not a flag"
                        hint = "the initial value of a variable stands where it is declared: free: Relation[Page] = starts(True)"
                    self.report(entry, setting, f"{entry.name}.{name}", message, hint)

    def _check_overrides(self) -> None:
        for name, found in self.by_name.items():
            for level, method in found:
                above = self._inherits(level, name)
                if name in self.variables or name in self.flag_table:
                    self.report(method.owner, method.node, method.where, f"'{name}' is a variable or a flag and a method",
                                "rename one of them")
                elif above is None:
                    self._check_new(level, method)
                elif not method.override:
                    self.report(method.owner, method.node, method.where,
                                f"'{name}' replaces the one of {above.owner.name} without saying so",
                                "mark it with @override, or give it another name")
                elif above.kind != method.kind:
                    self.report(method.owner, method.node, method.where, f"'{name}' is {article(above.kind)} in {above.owner.name}",
                                f"an override keeps its kind: use @{above.kind}")
                elif method.kind in ("define", "effect"):
                    self._check_parameters(method, above)

    def _check_new(self, level: int, method: Method) -> None:
        """A method that none of its class's bases has: it says so, and hides nothing of a class beside its own."""
        if method.override:
            if self.complete and method.name not in self.broken:
                self.report(method.owner, method.node, method.where,
                            f"'{method.name}' overrides nothing{nearest(method.name, self._names_above(level))}",
                            "no base class has a method of this name; drop @override or correct the name")
            return
        beside = next((other for entry, other in self.by_name[method.name] if entry > level), None)
        if beside is not None and not any(entry < level and other.override for entry, other in self.by_name[method.name]):
            self.report(self.spec, self.spec.node, self.spec.name,
                        f"{method.owner.name} and {beside.owner.name} both have '{method.name}', and the second is never used",
                        f"rename one of them, or override '{method.name}' in {self.spec.name}")

    def _check_parameters(self, method: Method, above: Method) -> None:
        mine, theirs = self.known_parameters(method), self.known_parameters(above)
        if mine is not None and theirs is not None and [p.domain for p in mine] != [p.domain for p in theirs]:
            wanted = ", ".join(f"{p.name}: {p.domain.name}" for p in theirs)
            self.report(method.owner, method.node, method.where, f"the parameters are not those of {above.where}",
                        f"those who use it give it what {above.owner.name} declares: {wanted or 'nothing'}")
            self.broken.add(method.name)

    def _inherits(self, level: int, name: str) -> Method | None:
        """The method of this name in a base class of the class at `level`."""
        bases = self._bases(level)
        for entry, body in zip(self.order, self.bodies, strict=True):
            if entry in bases and name in body.methods:
                return body.methods[name]
        return None

    def _bases(self, level: int) -> frozenset[SpecClass]:
        if level not in self._ancestors:
            self._ancestors[level] = frozenset(linearise(self.order[level], lambda *_: None)[1:])
        return self._ancestors[level]


def article(kind: str) -> str:
    return f"an @{kind}" if kind[0] in "aeiou" else f"a @{kind}"


def is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)
