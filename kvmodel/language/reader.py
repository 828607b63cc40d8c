"""Reading a spec: from its classes to the transition system. The file's methods are read, never run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from kvmodel.errors import Diagnostic, SpecError, nearest
from kvmodel.language.check import problems
from kvmodel.language.classes import Body, Method, body_of, linearise
from kvmodel.language.declarations import declare
from kvmodel.language.expressions import TRUE, Bound, Expr, Named, conjunction, negation
from kvmodel.language.modules import SpecClass, Word, span
from kvmodel.language.operators import Operator
from kvmodel.language.phrases import Mistake, Phrase, Scope, denied, granted
from kvmodel.language.system import (
    Action,
    Assertion,
    Condition,
    Definition,
    Flag,
    Guard,
    Property,
    PropertyKind,
    TransitionSystem,
    Update,
    Variable,
)
from kvmodel.language.typed import TypingError, apply, assignable, check_index, spelling
from kvmodel.language.types import BOOL, Domain, Element, Enumeration, Maybe, Sort, Span, describe

__all__ = ["read_spec"]

MOST_UPDATES = 500  # after effects and inherited parts are in place
PROPERTY_KINDS = {"invariant": PropertyKind.INVARIANT, "reachable": PropertyKind.REACHABLE}
STATEMENTS = "an action has require(...), assert, assignments to the spec's variables, if, for, effects and super() calls"


def read_spec(spec: SpecClass, name: str) -> TransitionSystem:
    """Read a spec class with everything that it inherits. Raises SpecError with every mistake found."""
    reader = _Reader(spec, name)
    system = reader.system()
    if not reader.mistakes:
        for problem in problems(system):
            reader.add(Diagnostic(problem.at.file, problem.at.line, problem.at.column, f"{spec.name}.{problem.where}",
                                  problem.message, problem.hint))
    if reader.mistakes:
        raise SpecError(tuple(reader.mistakes))
    return system


@dataclass
class _Steps:
    """What the body of an action has said so far."""

    guards: list[Guard] = field(default_factory=list)
    assertions: list[Assertion] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    written: dict[str, Span] = field(default_factory=dict)
    inherited: dict[str, list[str]] = field(default_factory=dict)  # method -> guards that its super() call brought


@dataclass(frozen=True)
class _Place:
    """Where a statement stands: its scope, the loops and the condition around it, and whether it is at the top."""

    scope: Scope
    method: Method
    over: tuple[Bound, ...] = ()
    condition: Expr = TRUE
    top: bool = True

    def within(self, scope: Scope, over: tuple[Bound, ...], condition: Expr) -> _Place:
        return _Place(scope, self.method, self.over + over, conjunction((self.condition, condition)), False)

    def at(self, node: ast.AST) -> Span:
        return span(self.scope.module, node)


class _Reader:
    """Reads one spec; an implementation of `phrases.Names`."""

    def __init__(self, spec: SpecClass, name: str) -> None:
        self.spec = spec
        self.name = name
        self.mistakes: list[Diagnostic] = []
        self.order = linearise(spec, self.report)
        self.bodies: list[Body] = [body_of(entry, self.report) for entry in self.order]
        self.variable_table: dict[str, Variable] = {}
        self.flag_table: dict[str, Flag] = {}
        self.broken: set[str] = set()
        self.phrase = Phrase(self)
        self._declare()
        self.by_name: dict[str, list[tuple[int, Method]]] = {}
        for level, body in enumerate(self.bodies):
            for method in body.methods.values():
                self.by_name.setdefault(method.name, []).append((level, method))
        self._check_overrides()

    # -- mistakes

    def add(self, diagnostic: Diagnostic) -> None:
        if diagnostic not in self.mistakes:
            self.mistakes.append(diagnostic)

    def report(self, spec: SpecClass, node: ast.AST, where: str, message: str, hint: str) -> None:
        at = span(spec.module, node)
        self.add(Diagnostic(at.file, at.line, at.column, where, message, hint))

    def mistake(self, method: Method, mistake: Mistake) -> None:
        if not mistake.message:
            return
        self.report(method.owner, mistake.node, method.where, mistake.message, mistake.hint)

    # -- what the spec offers to its expressions

    @property
    def variables(self) -> Mapping[str, Variable]:
        return self.variable_table

    @property
    def flags(self) -> tuple[str, ...]:
        return tuple(self.flag_table)

    def method_names(self, kind: str) -> tuple[str, ...]:
        return tuple(name for name, found in self.by_name.items() if found[0][1].kind == kind)

    def definition(self, node: ast.Call, name: str, scope: Scope, inherited: bool) -> Named:
        level, method = self._find(node, name, "define", scope, inherited)
        key = f"{method.owner.name}.{name}"
        if key in scope.inside:
            raise Mistake(node, f"the definition '{name}' uses itself", "definitions are not recursive")
        arguments = self._arguments(node, method, scope)
        inner = self._scope(level, method, arguments, scope)
        body = self._returned(method, replace(inner, inside=(*scope.inside, key)))
        return Named(name, tuple(arguments.values()), body, span(scope.module, node))

    def _find(self, node: ast.AST, name: str, kind: str, scope: Scope, inherited: bool) -> tuple[int, Method]:
        """The method that ``s.name`` (or ``super().name``) means. Raises Mistake."""
        found = [entry for entry in self.by_name.get(name, ()) if not inherited or entry[0] > scope.level]
        if not found:
            if inherited:
                raise Mistake(node, f"no base class has '{name}'{nearest(name, self._names_above(scope.level))}",
                              "super() stands for the next class in the order of inheritance")
            known = (*self.method_names(kind), *(self.variables if kind == "define" else ()))
            what = "definition" if kind == "define" else "effect"
            raise Mistake(node, f"the spec has no {what} '{name}'{nearest(name, known)}", f"declare it with @{kind}")
        level, method = found[0]
        if method.kind != kind:
            raise Mistake(node, f"'{name}' is an @{method.kind}, not an @{kind}",
                          "definitions are used in expressions, effects in actions, and actions only through super()")
        return level, method

    def _names_above(self, level: int) -> tuple[str, ...]:
        return tuple(name for name, found in self.by_name.items() if any(entry > level for entry, _ in found))

    def _arguments(self, node: ast.Call, method: Method, scope: Scope) -> dict[str, Expr]:
        """The arguments of a call to a definition, an effect or an inherited method, by parameter. Raises Mistake."""
        parameters = list(self._parameters(method))
        if node.keywords or len(node.args) != len(parameters):
            wanted = ", ".join(f"{p.name}: {p.domain.name}" for p in parameters) or "nothing"
            raise Mistake(node, f"'{method.name}' takes {len(parameters)} arguments ({wanted}), not {len(node.args) + len(node.keywords)}")
        return {
            parameter.name: self.phrase.element(argument, scope, parameter.domain, f"'{parameter.name}' of '{method.name}'")
            for parameter, argument in zip(parameters, node.args, strict=True)
        }

    def _scope(self, level: int, method: Method, names: Mapping[str, Expr], outer: Scope | None = None) -> Scope:
        known = outer.known if outer else frozenset()
        written = outer.written if outer else None
        inside = outer.inside if outer else ()
        return Scope(method.owner.module, level, method.name, method.node.args.args[0].arg, names, known, written, inside)

    def _returned(self, method: Method, scope: Scope) -> Expr:
        """The expression that a definition or a property returns. Raises Mistake."""
        match [s for s in method.node.body if not _is_docstring(s)]:
            case [ast.Return(value=ast.expr() as value)]:
                return self.phrase.read(value, scope)
        raise Mistake(method.node, f"an @{method.kind} is one returned expression", "write a docstring and one `return`")

    def _parameters(self, method: Method) -> Iterator[Bound]:
        for argument in method.node.args.args[1:]:
            if argument.annotation is None:
                raise Mistake(argument, f"the parameter '{argument.arg}' has no sort", f"write {argument.arg}: Request")
            domain = self.phrase.domain(argument.annotation, method.owner.module)
            yield Bound(argument.arg, domain, span(method.owner.module, argument))

    # -- declarations

    def _declare(self) -> None:
        for entry, body in reversed(list(zip(self.order, self.bodies, strict=True))):
            for name, node in body.variables.items():
                try:
                    found = declare(entry, name, node)
                except Mistake as mistake:
                    self.broken.add(name)
                    self.report(entry, mistake.node, f"{entry.name}.{name}", mistake.message, mistake.hint)
                    continue
                if name in self.variables or name in self.flag_table:
                    self.report(entry, node, f"{entry.name}.{name}", f"a base class already declares '{name}'",
                                "a flag is set with `name = True`; a variable needs another name")
                elif isinstance(found, Flag):
                    self.flag_table[name] = found
                else:
                    self.variable_table[name] = found
            for name, (setting, value) in body.settings.items():
                if name not in self.flag_table:
                    self.report(entry, setting, entry.name, f"there is no flag '{name}' to set{nearest(name, list(self.flag_table))}",
                                "a flag is declared with `name: Flag = flag(...)`")
                    continue
                self.flag_table[name] = replace(self.flag_table[name], value=value)

    def _check_overrides(self) -> None:
        for name, found in self.by_name.items():
            for level, method in found:
                above = self._inherits(level, name)
                if method.override and above is None:
                    self.report(method.owner, method.node, method.where,
                                f"'{name}' overrides nothing{nearest(name, self._names_above(level))}",
                                "no base class has a method of this name; drop @override or correct the name")
                elif above is not None and not method.override:
                    self.report(method.owner, method.node, method.where, f"'{name}' replaces the one of {above.owner.name} without saying so",
                                "mark it with @override")
                elif above is not None and above.kind != method.kind:
                    self.report(method.owner, method.node, method.where, f"'{name}' is an @{above.kind} in {above.owner.name}",
                                f"an override keeps its kind: use @{above.kind}")
                if name in self.variables or name in self.flag_table:
                    self.report(method.owner, method.node, method.where, f"'{name}' is a variable or a flag and a method", "rename one of them")

    def _inherits(self, level: int, name: str) -> Method | None:
        """The method of this name in a base class of the class at `level`."""
        bases = linearise(self.order[level], lambda *_: None)[1:]
        for entry, body in zip(self.order, self.bodies, strict=True):
            if any(entry is base for base in bases) and name in body.methods:
                return body.methods[name]
        return None

    # -- the system

    def system(self) -> TransitionSystem:
        methods = [(level, method) for _, (level, method) in self._effective()]
        actions = [action for level, method in methods if method.kind == "action" for action in self._try_action(level, method)]
        conditions = {kind: list(self._conditions(methods, kind)) for kind in ("assume", "initial", "final", "define")}
        properties = [found for level, method in methods if method.kind in PROPERTY_KINDS for found in self._try_property(level, method)]
        domains = self._domains(actions)
        sizes: dict[str, int] = {}
        for body in reversed(self.bodies):
            sizes |= body.sizes
        self._check_sizes(sizes, domains)
        return TransitionSystem(
            self.name,
            tuple(domain for domain in domains if isinstance(domain, Sort)),
            tuple(domain for domain in domains if isinstance(domain, Enumeration)),
            tuple(self.flag_table.values()),
            tuple(self.variables.values()),
            tuple(conditions["assume"]),
            tuple(conditions["initial"]),
            tuple(actions),
            tuple(properties),
            tuple(conditions["final"]),
            tuple(Definition(c.name, c.parameters, c.condition, c.doc, c.at) for c in conditions["define"]),
            self.spec.doc,
            span(self.spec.module, self.spec.node),
            tuple(sizes.items()),
        )

    def _effective(self) -> Iterator[tuple[str, tuple[int, Method]]]:
        """The method that each name means, in the order in which base classes first declare the names."""
        names: dict[str, None] = {}
        for body in reversed(self.bodies):
            names.update(dict.fromkeys(body.methods))
        for name in names:
            yield name, self.by_name[name][0]

    def _domains(self, actions: list[Action]) -> tuple[Domain, ...]:
        found: dict[str, Domain] = {}
        for variable in self.variables.values():
            kinds = [variable.type.domain] if isinstance(variable.type, Element | Maybe) else []
            for domain in (*variable.keys, *kinds):
                if found.setdefault(domain.name, domain) is not domain and found[domain.name] != domain:
                    self.report(self.spec, self.spec.node, self.spec.name, f"two sorts are called '{domain.name}'", "rename one of them")
        for action in actions:
            for parameter in action.parameters:
                found.setdefault(parameter.domain.name, parameter.domain)
        for entry in reversed(self.order):
            for name in entry.module.classes:
                symbol = entry.module.lookup(name)
                if isinstance(symbol, Sort):
                    found.setdefault(symbol.name, symbol)
        return tuple(found.values())

    def _check_sizes(self, sizes: Mapping[str, int], domains: tuple[Domain, ...]) -> None:
        known = [domain.name for domain in domains if isinstance(domain, Sort)]
        for name in sizes:
            if name.split(".")[0] not in known:
                self.report(self.spec, self.spec.node, self.spec.name, f"sizes names '{name}', which is not a sort{nearest(name, known)}", "")

    def _conditions(self, methods: list[tuple[int, Method]], kind: str) -> Iterator[Condition]:
        for level, method in methods:
            if method.kind == kind:
                try:
                    parameters, expr = self._body(level, method, kind != "define")
                except Mistake as mistake:
                    self.mistake(method, mistake)
                    continue
                yield Condition(method.name, parameters, expr, method.doc, span(method.owner.module, method.node))

    def _try_property(self, level: int, method: Method) -> Iterator[Property]:
        try:
            parameters, expr = self._body(level, method, True)
        except Mistake as mistake:
            self.mistake(method, mistake)
            return
        at = span(method.owner.module, method.node)
        yield Property(method.name, PROPERTY_KINDS[method.kind], parameters, expr, method.doc, at)

    def _body(self, level: int, method: Method, truth: bool) -> tuple[tuple[Bound, ...], Expr]:
        parameters = tuple(self._parameters(method))
        scope = self._scope(level, method, {parameter.name: parameter for parameter in parameters})
        expr = self._returned(method, replace(scope, inside=(f"{method.owner.name}.{method.name}",)))
        if truth and expr.type != BOOL:
            raise Mistake(method.node, f"the @{method.kind} is a {describe(expr.type)}, not a truth value", "return a comparison")
        return parameters, expr

    # -- actions

    def _try_action(self, level: int, method: Method) -> Iterator[Action]:
        steps = _Steps()
        try:
            parameters = tuple(self._parameters(method))
            names = {parameter.name: parameter for parameter in parameters}
            self._run(level, method, dict(names), steps, None)
        except Mistake as mistake:
            self.mistake(method, mistake)
            return
        if len(steps.updates) > MOST_UPDATES:
            self.report(method.owner, method.node, method.where, f"the action has {len(steps.updates)} updates; at most {MOST_UPDATES}", "")
            return
        doc = method.doc or next((m.doc for _, m in self.by_name[method.name] if m.doc), "")
        at = span(method.owner.module, method.node)
        node = next((m.node_name for _, m in self.by_name[method.name] if m.node_name), "")
        yield Action(method.name, parameters, tuple(steps.guards), tuple(steps.assertions), tuple(steps.updates), doc, at, node)

    def _run(self, level: int, method: Method, names: Mapping[str, Expr], steps: _Steps, caller: _Place | None) -> None:
        """Read the body of an action or an effect; a mistake in a statement is reported and the next one is read."""
        outer = caller.scope if caller else None
        scope = replace(self._scope(level, method, names, outer), written=steps.written)
        place = _Place(scope, method, caller.over if caller else (), caller.condition if caller else TRUE, caller.top if caller else True)
        self._block(method.node.body, place, steps)
        inherited = steps.inherited.get(method.where, [])
        for name in method.drop:
            if name not in inherited:
                self.report(method.owner, method.node, method.where, f"there is no inherited guard '{name}' to drop{nearest(name, inherited)}",
                            f"the guards are {', '.join(map(repr, inherited)) or 'none'}; guards are inherited through super().{method.name}(...)")

    def _block(self, body: list[ast.stmt], place: _Place, steps: _Steps) -> None:
        for statement in body:
            try:
                facts = self._statement(statement, place, steps)
            except Mistake as mistake:
                self.mistake(place.method, mistake)
                continue
            if facts:
                place = replace(place, scope=place.scope.knowing(facts))

    def _statement(self, statement: ast.stmt, place: _Place, steps: _Steps) -> frozenset[Expr]:
        """Read one statement; returns what is known not to be None from here on. Raises Mistake."""
        match statement:
            case _ if _is_docstring(statement) or isinstance(statement, ast.Pass):
                pass
            case ast.Expr(value=ast.Call() as call):
                return self._called(call, place, steps)
            case ast.Assert(test=test, msg=message):
                self._assertion(statement, test, message, place, steps)
            case ast.Assign(targets=[target], value=value):
                self._write(statement, target, value, place, steps)
            case ast.AugAssign(target=target, op=ast.Add() | ast.Sub() as operator, value=value):
                read = ast.copy_location(ast.BinOp(target, operator, value), statement)
                self._write(statement, target, read, place, steps)
            case ast.If(test=test, body=body, orelse=otherwise):
                self._branches(test, body, otherwise, place, steps)
            case ast.For(target=target, iter=source, body=body, orelse=[]):
                bound = self.phrase.loop_variable(target, source, place.scope)
                self._block(body, place.within(place.scope.binding({bound.name: bound}), (bound,), TRUE), steps)
            case _:
                raise Mistake(statement, f"`{ast.unparse(statement).splitlines()[0][:60]}` is not a statement of the language", STATEMENTS)
        return frozenset()

    def _branches(self, test: ast.expr, body: list[ast.stmt], otherwise: list[ast.stmt], place: _Place, steps: _Steps) -> None:
        condition = self.phrase.truth(test, place.scope)
        before = dict(steps.written)
        self._block(body, place.within(place.scope.knowing(granted(condition)), (), condition), steps)
        if otherwise:
            after = dict(steps.written)
            steps.written.clear()
            steps.written.update(before)
            self._block(otherwise, place.within(place.scope.knowing(denied(condition)), (), negation(condition)), steps)
            steps.written.update(after)

    def _called(self, call: ast.Call, place: _Place, steps: _Steps) -> frozenset[Expr]:
        match call.func:
            case ast.Name(id=name) if place.scope.module.lookup(name) == Word("require"):
                return self._guard(call, place, steps)
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == place.scope.self_name:
                level, method = self._find(call, name, "effect", place.scope, False)
                self._inline(call, level, method, place, steps)
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"), args=[], keywords=[]), attr=name):
                if name != place.method.name:
                    raise Mistake(call, f"super().{name} is called in '{place.method.name}'", f"only super().{place.method.name}(...) can be")
                level, method = self._find(call, name, place.method.kind, place.scope, True)
                if not place.top and method.kind == "action":
                    raise Mistake(call, "an inherited action stands at the top of its override", "move it out of the if or for")
                before = len(steps.guards)
                self._inline(call, level, method, place, steps)
                brought = steps.guards[before:]
                steps.inherited.setdefault(place.method.where, []).extend(guard.name for guard in brought)
                steps.guards[before:] = [guard for guard in brought if guard.name not in place.method.drop]
            case _:
                raise Mistake(call, f"`{ast.unparse(call.func)[:60]}` is not a statement of the language", STATEMENTS)
        return frozenset()

    def _inline(self, call: ast.Call, level: int, method: Method, place: _Place, steps: _Steps) -> None:
        key = f"{method.owner.name}.{method.name}()"
        if key in place.scope.inside:
            raise Mistake(call, f"'{method.name}' calls itself", "effects are not recursive")
        arguments = self._arguments(call, method, place.scope)
        inner = replace(place, scope=replace(place.scope, inside=(*place.scope.inside, key)))
        self._run(level, method, arguments, steps, inner)

    def _guard(self, call: ast.Call, place: _Place, steps: _Steps) -> frozenset[Expr]:
        if place.method.kind != "action":
            raise Mistake(call, "an effect has no guards", "require in the action that uses it")
        if not place.top:
            raise Mistake(call, "a guard stands at the top of an action", "write require(implies(condition, ...), ...) or all(... for ...)")
        match call.args:
            case [test, ast.Constant(value=str(name))] if not call.keywords and name:
                condition = self.phrase.truth(test, place.scope)
                if any(guard.name == name for guard in steps.guards):
                    raise Mistake(call, f"the action already has a guard '{name}'",
                                  f'an inherited guard is replaced by dropping it: @action(drop=("{name}",))')
                steps.guards.append(Guard(name, condition, place.at(call)))
                return granted(condition)
        raise Mistake(call, "a guard is a condition and a name", 'write require(s.free[p], "free")')

    def _assertion(self, node: ast.Assert, test: ast.expr, message: ast.expr | None, place: _Place, steps: _Steps) -> None:
        if not (isinstance(message, ast.Constant) and isinstance(message.value, str) and message.value):
            raise Mistake(node, "an assertion has a name", 'write assert condition, "name"')
        if place.over or place.method.kind != "action":
            raise Mistake(node, "an assertion stands in an action, outside loops", "write assert all(... for ...), ...")
        condition = self.phrase.truth(test, place.scope)
        if place.condition != TRUE:
            condition = apply(Operator.IMPLIES, (place.condition, condition), condition.at)
        if any(assertion.name == message.value for assertion in steps.assertions):
            raise Mistake(node, f"the action already has an assertion '{message.value}'", "give it another name")
        steps.assertions.append(Assertion(message.value, condition, place.at(node)))

    def _write(self, node: ast.stmt, target: ast.expr, value: ast.expr, place: _Place, steps: _Steps) -> None:
        base = target.value if isinstance(target, ast.Subscript) else target
        variable = self.phrase.variable(base, place.scope)
        if variable is None:
            match base:
                case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == place.scope.self_name:
                    if name in self.flag_table:
                        raise Mistake(node, f"'{name}' is a flag and cannot be written", "flags are a deployment's choice and never change in a run")
                    if name in self.broken:
                        raise Mistake(node, "")
                    raise Mistake(node, f"the spec has no variable '{name}'{nearest(name, list(self.variables))}", "declare it in the class")
            raise Mistake(node, f"`{ast.unparse(target)[:40]}` cannot be written", "an action writes the spec's own variables: s.holds[r, p] = True")
        if variable.rigid:
            raise Mistake(node, f"'{variable.name}' is rigid and cannot be written", "rigid things never change in a run")
        index, over = self._target_index(target, variable, place)
        written = self.phrase.read(value, place.scope, variable.type)
        if isinstance(variable.type, Element):
            written = self.phrase.settled(written, place.scope)
        if not assignable(written.type, variable.type):
            maybe = isinstance(written.type, Maybe) and variable.type == Element(written.type.domain)
            raise Mistake(value, f"'{variable.name}' holds a {describe(variable.type)}, not a {describe(written.type)}",
                          "test it first: require(x is not None, ...), or write under `if x is not None`" if maybe else "")
        at = place.at(node)
        steps.updates.append(Update(variable.name, index, written, (*place.over, *over), place.condition, at, place.method.where))
        steps.written[variable.name] = at

    def _target_index(self, target: ast.expr, variable: Variable, place: _Place) -> tuple[tuple[Expr, ...], tuple[Bound, ...]]:
        """The index of a write; each slice becomes a loop over the whole key. Raises Mistake."""
        if not isinstance(target, ast.Subscript):
            if variable.keys:
                raise Mistake(target, f"'{variable.name}' takes {len(variable.keys)} keys", f"write {spelling(variable)}")
            return (), ()
        parts = tuple(target.slice.elts) if isinstance(target.slice, ast.Tuple) else (target.slice,)
        over: list[Bound] = []
        index: list[Expr] = []
        for position, part in enumerate(parts):
            if isinstance(part, ast.Slice):
                if part.lower or part.upper or part.step:
                    raise Mistake(part, "a slice is the whole key", f"write {variable.name}[r, :]")
                if position >= len(variable.keys):
                    raise Mistake(target, f"'{variable.name}' takes {len(variable.keys)} keys, not {len(parts)}", f"write {spelling(variable)}")
                bound = Bound(f"_{variable.keys[position].name.lower()}{position}", variable.keys[position], place.at(part))
                over.append(bound)
                index.append(bound)
            else:
                index.extend(self.phrase.index(part, variable, place.scope))
        try:
            check_index(variable, tuple(index))
        except TypingError as problem:
            raise Mistake(target, problem.message, problem.hint) from None
        return tuple(index), tuple(over)


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)
