"""Reading the bodies of actions and effects: statements, one after the other, to guards, assertions and updates."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import EllipsisType

from kvmodel.errors import Diagnostic, nearest
from kvmodel.language.classes import Method
from kvmodel.language.expressions import TRUE, Bound, Expr, Read, conjunction, conjuncts, negation, walk
from kvmodel.language.members import Members, article, is_docstring
from kvmodel.language.modules import BROKEN, Word, span
from kvmodel.language.operators import Operator
from kvmodel.language.scopes import Mistake, Scope, denied, granted, none_hint
from kvmodel.language.source import quoted
from kvmodel.language.system import Action, Assertion, Guard, Update, Variable
from kvmodel.language.typed import TypingError, apply, assignable, check_index, keys_of, spelling
from kvmodel.language.types import Element, Maybe, Span, a_kind

__all__ = ["Actions"]

MOST_UPDATES = 100  # of one action, after effects and inherited parts are in place
LONGEST_NAME = 200  # of a guard or an assertion
STATEMENTS = "an action has require(...), assert, assignments to the spec's variables, if, for, effects and super() calls"


@dataclass
class _Steps:
    """What the body of an action has said so far."""

    guards: list[Guard] = field(default_factory=list)
    assertions: list[Assertion] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    written: dict[str, Span] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)  # of guards, also of those with a mistake, until they are dropped
    inherited: dict[str, list[str]] = field(default_factory=dict)  # method -> names of the guards that its super() call brought
    late: list[Mistake] = field(default_factory=list)  # reads in an effect of what was written before the effect was used
    untested: list[tuple[Mistake, Span]] = field(default_factory=list)  # what may be None because a guard was dropped


@dataclass(frozen=True)
class _Place:
    """Where a statement stands: its scope, the loops and the conditions around it, and whether it is at the top.

    `before` are the variables that were written before the method was used, `dropped` the guards that those who call it
    through super() drop.
    """

    scope: Scope
    method: Method
    over: tuple[Bound, ...] = ()
    conditions: tuple[Expr, ...] = ()
    top: bool = True
    before: frozenset[str] = frozenset()
    dropped: frozenset[str] = frozenset()

    def within(self, scope: Scope, over: tuple[Bound, ...], condition: Expr) -> _Place:
        return replace(self, scope=scope, over=self.over + over, conditions=(*self.conditions, condition), top=False)

    @property
    def condition(self) -> Expr:
        return conjunction(self.conditions)

    def at(self, node: ast.AST) -> Span:
        return span(self.scope.module, node)


class Actions:
    """Reads the actions and effects of one spec."""

    def __init__(self, members: Members) -> None:
        self.members = members
        self.phrase = members.phrase

    def action(self, level: int, method: Method) -> Action | None:
        """An action, without the statements that have mistakes; None when its parameters have."""
        steps = _Steps()
        parameters = self.members.known_parameters(method)
        if parameters is None:
            return None
        self._run(level, method, {parameter.name: parameter for parameter in parameters}, steps, None)
        doc = method.doc or next((m.doc for _, m in self.members.by_name[method.name] if m.doc), "")
        at = span(method.owner.module, method.node)
        node = next((m.node_name for _, m in self.members.by_name[method.name] if m.node_name), "")
        return Action(method.name, parameters, tuple(steps.guards), tuple(steps.assertions), tuple(steps.updates), doc, at, node)

    def check_effect(self, level: int, method: Method) -> None:
        """Read an effect by itself, so that one that nobody uses is checked too."""
        parameters = self.members.known_parameters(method)
        if parameters is not None:
            self._run(level, method, {parameter.name: parameter for parameter in parameters}, _Steps(), None)

    def _run(self, level: int, method: Method, names: Mapping[str, Expr], steps: _Steps, caller: _Place | None) -> None:
        """Read the body of an action or an effect; a mistake in a statement is reported and the next one is read."""
        scope = replace(self.members.scope_of(level, method, names, caller.scope if caller else None), written=steps.written)
        place = replace(caller or _Place(scope, method), scope=scope, method=method, before=frozenset(steps.written))
        self._block(method.node.body, place, steps)
        inherited = steps.inherited.get(method.where, [])
        for name in method.drop:
            if name not in inherited and method.name not in self.members.broken and self.members.complete:
                known = ", ".join(map(repr, inherited))
                self.members.report(method.owner, method.node, method.where,
                                    f"there is no inherited guard '{name}' to drop{nearest(name, inherited)}",
                            f"the guards that super().{method.name}(...) brings are {known}" if known
                            else f"guards are inherited by calling super().{method.name}(...)")

    def _block(self, body: list[ast.stmt], place: _Place, steps: _Steps) -> None:
        for statement in body:
            self.phrase.enter(statement, place.scope)
            try:
                facts = self._statement(statement, place, steps)
                place = replace(place, scope=place.scope.knowing(facts))
            except Mistake as mistake:
                if mistake.late and mistake.late in place.before:
                    steps.late.append(mistake)
                elif mistake.none and place.dropped:
                    steps.untested.append((mistake, place.at(mistake.node)))
                elif not (mistake.none and place.scope.unsure):
                    self.members.mistake(place.method, mistake)
                place = replace(place, scope=replace(place.scope, unsure=True))
            finally:
                self.phrase.nesting -= 1

    def _statement(self, statement: ast.stmt, place: _Place, steps: _Steps) -> frozenset[Expr]:
        """Read one statement; returns what is known not to be None from here on. Raises Mistake."""
        match statement:
            case _ if is_docstring(statement):
                pass
            case ast.Pass() | ast.Expr(value=ast.Constant(value=EllipsisType())):
                pass
            case ast.Expr(value=ast.Call() as call):
                return self._called(call, place, steps)
            case ast.Assert(test=test, msg=message):
                self._assertion(statement, test, message, place, steps)
            case ast.Assign(targets=[ast.Name(id=name) as target]) | ast.AnnAssign(target=ast.Name(id=name) as target):
                own = f"{place.scope.self_name}.{name}"
                hint = f"a derived value is a definition (@define); the spec's own variables are written {own} = ..."
                raise Mistake(target, f"'{name}' would be a local variable, which the language does not have", hint)
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)) if len(targets) == len(values):
                # as in Python, all values are read before any is written: a swap is s.a[p], s.b[p] = s.b[p], s.a[p]
                before = replace(place, scope=replace(place.scope, written=dict(steps.written)))
                for target, value in zip(targets, values, strict=True):
                    self._write(statement, target, value, before, steps)
            case ast.Assign(targets=[target], value=value):
                self._write(statement, target, value, place, steps)
            case ast.Assign(targets=targets):
                raise Mistake(statement, f"{len(targets)} places are written in one statement", "write one assignment for each")
            case ast.AugAssign(target=target, op=ast.Add() | ast.Sub() as operator, value=value):
                read = ast.copy_location(ast.BinOp(target, operator, value), statement)
                self._write(statement, target, read, place, steps)
            case ast.If(test=test, body=body, orelse=otherwise):
                self._branches(test, body, otherwise, place, steps)
            case ast.For(orelse=[other, *_]):
                raise Mistake(other, "a `for` has no `else`", "write it below the loop")
            case ast.For(target=target, iter=source, body=body):
                bound, scope = self.phrase.loop_variable(target, source, place.scope)
                first = len(steps.updates)
                self._block(body, place.within(scope, (bound,), TRUE), steps)
                self._check_turns(bound, place, steps.updates[first:])
            case ast.Expr(value=value):
                raise Mistake(statement, f"{quoted(value)} has no effect", f"{STATEMENTS}")
            case ast.Return():
                raise Mistake(statement, "an action returns nothing", "only definitions and properties do; delete the return")
            case _:
                raise Mistake(statement, f"{quoted(statement)} is not a statement of the language", STATEMENTS)
        return frozenset()

    def _check_turns(self, bound: Bound, place: _Place, updates: list[Update]) -> None:
        """A loop must not read what another turn of it writes: Python would see the new value, a step sees the old one."""
        outside = set(conjuncts(place.condition))
        for update in updates:
            if not any(part == bound for part in update.index):
                continue  # not one place for each turn: a collision, which is reported elsewhere
            for other in updates:
                inner = [part for part in conjuncts(other.condition) if part not in outside]
                for expr in (*inner, other.value, *other.index):
                    for node in walk(expr):
                        if isinstance(node, Read) and node.variable == update.variable and not any(
                            mine == bound == theirs for mine, theirs in zip(update.index, node.index, strict=True)
                        ):
                            self.members.add(Diagnostic(
                                node.at.file, node.at.line, node.at.column, place.method.where,
                                f"'{node.variable}' is read here by each turn of a loop that writes it at {update.at}",
                                "every turn reads the state before the step; put what is read in an `if` around the loop",
                            ))
                            return

    def _branches(self, test: ast.expr, body: list[ast.stmt], otherwise: list[ast.stmt], place: _Place, steps: _Steps) -> None:
        try:
            condition = self.phrase.truth(test, place.scope)
        except Mistake as mistake:
            if mistake.late:
                raise
            self.members.note(mistake, place.scope)
            condition = TRUE
            place = replace(place, scope=replace(place.scope, unsure=True))
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
            case ast.Name(id=name):
                word = place.scope.module.lookup(name)
                if word == Word("require"):
                    return self._guard(call, place, steps)
                if word is BROKEN:
                    raise Mistake(call, "")
                if name == "require":
                    raise Mistake(call, "'require' is not imported", "write from kvmodel.language import require")
                own = f"{place.scope.self_name}.{name}"
                hint = f"the spec's own are written with {place.scope.self_name}: {own}(...)"
                raise Mistake(call, f"{quoted(call.func)} is not a statement of the language",
                              hint if self.members.method_kind(name) == "effect" else STATEMENTS)
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == place.scope.self_name:
                level, method = self.members.find(call, name, "effect", place.scope, False)
                self._inline(call, level, method, place, steps)
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"), args=[], keywords=[]), attr=name):
                return self._inherit(call, name, place, steps)
            case _:
                raise Mistake(call, f"{quoted(call.func)} is not a statement of the language", STATEMENTS)
        return frozenset()

    def _inherit(self, call: ast.Call, name: str, place: _Place, steps: _Steps) -> frozenset[Expr]:
        """``super().name(...)``: the guards and updates of the next class; returns what the guards grant. Raises Mistake."""
        mine = place.method
        if name != mine.name:
            raise Mistake(call, f"super().{name} is called in '{mine.name}'", f"only super().{mine.name}(...) can be")
        level, method = self.members.find(call, name, mine.kind, place.scope, True)
        if not place.top and method.kind == "action":
            raise Mistake(call, "an inherited action stands at the top of its override", "move it out of the if or for")
        guards, names = len(steps.guards), len(steps.names)
        self._inline(call, level, method, replace(place, dropped=place.dropped.union(mine.drop)), steps)
        brought = steps.guards[guards:]
        steps.inherited.setdefault(mine.where, []).extend(steps.names[names:])
        steps.names[names:] = [name for name in steps.names[names:] if name not in mine.drop]
        for mistake, at in steps.untested:
            steps.untested.clear()
            raise Mistake(call, f"without the guards that it drops, {mistake.message} at {at}",
                          "keep the guard, or put another one in its place")
        return frozenset().union(*(granted(guard.condition) for guard in brought))

    def _inline(self, call: ast.Call, level: int, method: Method, place: _Place, steps: _Steps) -> None:
        key = f"{method.where}()"
        if key in place.scope.inside:
            raise Mistake(call, f"'{method.name}' uses itself", "an effect is a fixed group of updates, without recursion")
        arguments = self.members.arguments(call, method, place.scope)
        late = len(steps.late)
        inner = replace(place, scope=replace(place.scope, inside=(*place.scope.inside, key)))
        self._run(level, method, arguments, steps, inner)
        for mistake in steps.late[late:]:
            if mistake.late not in place.before:
                del steps.late[late:]
                raise Mistake(call, f"'{method.name}' reads '{mistake.late}', which was written at {steps.written[mistake.late]}",
                              "every right-hand side reads the state before the step; use it above the write")

    def _guard(self, call: ast.Call, place: _Place, steps: _Steps) -> frozenset[Expr]:
        if place.method.kind != "action":
            raise Mistake(call, "an effect has no guards", "require in the action that uses it")
        if not place.top:
            raise Mistake(call, "a guard stands at the top of an action",
                          "write require(implies(condition, ...), ...) or require(all(... for ...), ...)")
        match call.args:
            case [test, ast.Constant(value=str(name)) as label] if not call.keywords:
                self._check_label(label, name)
                twice = name in steps.names and name not in place.dropped
                steps.names.append(name)
                condition = self.phrase.truth(test, place.scope)
                if twice:
                    raise Mistake(call, f"the action already has a guard '{name}'",
                                  f'use another name; an inherited guard is replaced by dropping it: @action(drop=("{name}",))')
                if name in place.dropped:
                    return frozenset()
                steps.guards.append(Guard(name, condition, place.at(call)))
                return granted(condition)
        raise Mistake(call, "a guard is a condition and a name", 'write require(s.free[p], "free")')

    @staticmethod
    def _check_label(node: ast.AST, name: str) -> None:
        if not name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
            raise Mistake(node, f"the name of a guard or an assertion is a short line of text, of at most {LONGEST_NAME} characters",
                          'write "free"')

    def _assertion(self, node: ast.Assert, test: ast.expr, message: ast.expr | None, place: _Place, steps: _Steps) -> None:
        if not (isinstance(message, ast.Constant) and isinstance(message.value, str)):
            raise Mistake(node, "an assertion has a name", 'write assert condition, "name"')
        self._check_label(message, message.value)
        if place.over or place.method.kind != "action":
            raise Mistake(node, "an assertion stands in an action, outside loops", 'write assert all(... for p in Page), "name"')
        condition = self.phrase.truth(test, place.scope)
        if place.condition != TRUE:
            condition = apply(Operator.IMPLIES, (place.condition, condition), condition.at)
        if any(assertion.name == message.value for assertion in steps.assertions):
            raise Mistake(node, f"the action already has an assertion '{message.value}'", "give it another name")
        steps.assertions.append(Assertion(message.value, condition, place.at(node)))

    def _write(self, node: ast.stmt, target: ast.expr, value: ast.expr, place: _Place, steps: _Steps) -> None:
        variable = self._written(target, place)
        index, over = self._target_index(target, variable, place)
        if isinstance(value, ast.Constant) and value.value is None and not isinstance(variable.type, Maybe):
            raise Mistake(value, f"'{variable.name}' holds {a_kind(variable.type)}, never None",
                          "None is held by what is declared with it: Function[Page, Request | None]")
        written = self.phrase.read(value, place.scope, variable.type)
        if isinstance(variable.type, Element):
            written = self.phrase.settled(written, place.scope)
        if not assignable(written.type, variable.type):
            if isinstance(written.type, Maybe) and variable.type == Element(written.type.domain):
                raise Mistake(value, f"'{variable.name}' holds {a_kind(variable.type)}, and this may be None", none_hint(value), none=True)
            raise Mistake(value, f"'{variable.name}' holds {a_kind(variable.type)}, not {a_kind(written.type)}",
                          f"write a value that is {a_kind(variable.type)}")
        if len(steps.updates) >= MOST_UPDATES:
            self.members.give_up(node, place.scope, f"with effects in place the action has more than {MOST_UPDATES} updates")
        at = place.at(target)
        update = Update(variable.name, index, written, (*place.over, *over), place.condition, at, place.method.where)
        self.phrase.spend(node, place.scope, sum(self.phrase.measure(part)[1] for part in (place.condition, written, *index)))
        steps.updates.append(update)
        steps.written[variable.name] = at

    def _written(self, target: ast.expr, place: _Place) -> Variable:
        """The state variable that an assignment writes. Raises Mistake."""
        base = target.value if isinstance(target, ast.Subscript) else target
        variable = self.phrase.variable(base, place.scope)
        self_name = place.scope.self_name
        if variable is not None:
            if variable.rigid:
                raise Mistake(target, f"'{variable.name}' is rigid and cannot be written", "rigid things never change in a run")
            return variable
        match base:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == self_name:
                if name in self.members.flag_table:
                    raise Mistake(target, f"'{name}' is a flag and cannot be written",
                                  "flags are a deployment's choice and never change in a run")
                if name in self.members.broken or not self.members.complete:
                    raise Mistake(target, "")
                if name in self.members.by_name:
                    raise Mistake(target, f"'{name}' is {article(self.members.by_name[name][0][1].kind)} and cannot be written",
                                  "an action writes variables; what follows from them is not written")
                raise Mistake(target, f"the spec has no variable '{name}'{nearest(name, list(self.members.variables))}",
                              "declare it in the class: name: Relation[Page]")
        raise Mistake(target, f"{quoted(target)} cannot be written",
                      f"an action writes the spec's own variables: {self_name}.holds[r, p] = True")

    def _target_index(self, target: ast.expr, variable: Variable, place: _Place) -> tuple[tuple[Expr, ...], tuple[Bound, ...]]:
        """The index of a write; each slice becomes a loop over the whole key. Raises Mistake."""
        parts = (target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]) if isinstance(target, ast.Subscript) else []
        if len(parts) != len(variable.keys):
            given = len(parts) or "none"
            raise Mistake(target, f"'{variable.name}' takes {keys_of(variable)}, not {given}", f"write {spelling(variable)}")
        over: list[Bound] = []
        index: list[Expr] = []
        for position, part in enumerate(parts):
            if isinstance(part, ast.Slice):
                if part.lower or part.upper or part.step:
                    raise Mistake(part, "a slice is the whole key", f"write : alone, as in {variable.name}[r, :]")
                key = variable.keys[position]
                bound = Bound(place.scope.fresh(f"_{key.name.lower()}{position}"), key, place.at(part))
                over.append(bound)
                index.append(bound)
            else:
                index.append(self.phrase.key(part, variable, position, place.scope))
        try:
            check_index(variable, tuple(index))
        except TypingError as problem:
            raise Mistake(target, problem.message, problem.hint) from None
        return tuple(index), tuple(over)
