"""Spec classes before their methods are read: what each class body declares, and the order of inheritance."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from types import EllipsisType

from kvmodel.errors import nearest
from kvmodel.language.modules import BROKEN, SpecClass, Word
from kvmodel.language.source import docstring, quoted

__all__ = ["Body", "Method", "Report", "bases_of", "body_of", "linearise"]

DECORATORS = ("action", "effect", "define", "invariant", "reachable", "final", "assume", "initial", "lemma")
RESERVED = ("no_deadlock",)  # properties that every spec has
MOST_PARAMETERS = 8
MOST_CLASSES = 100  # that one spec extends
LONGEST_NODE = 40
SIZES_HINT = 'write sizes = {"Request": 2, "Page.DECODE": 3}'

Report = Callable[[SpecClass, ast.AST, str, str, str], None]
"""Called with (class, node, where, message, hint) for each mistake."""


@dataclass(frozen=True)
class Method:
    """A method of a spec class. `kind` is its decorator; `drop` names inherited guards that it removes,
    `node_name` the node on which an action happens."""

    name: str
    kind: str
    owner: SpecClass
    node: ast.FunctionDef
    override: bool
    drop: tuple[str, ...] = ()
    node_name: str = ""

    @property
    def where(self) -> str:
        return f"{self.owner.name}.{self.name}"

    @property
    def doc(self) -> str:
        return docstring(self.node)


@dataclass
class Body:
    """What one class body says. `broken` names methods that could not be made sense of."""

    variables: dict[str, ast.AnnAssign] = field(default_factory=dict)
    settings: dict[str, tuple[ast.Assign, bool]] = field(default_factory=dict)
    methods: dict[str, Method] = field(default_factory=dict)
    sizes: dict[str, tuple[ast.expr, int]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)


def bases_of(spec: SpecClass, report: Report) -> tuple[tuple[SpecClass, ...], bool]:
    """The base classes of a spec class, and whether all of them are known; one that is not a spec is reported."""
    bases: list[SpecClass] = []
    complete = True
    for node in spec.node.bases:
        found = spec.module.lookup(node.id) if isinstance(node, ast.Name) else None
        if isinstance(found, SpecClass):
            if any(isinstance(base, ast.Name) and spec.module.lookup(base.id) == Word("Spec") for base in spec.node.bases):
                report(spec, node, spec.name, f"{quoted(node)} is a spec already", "extend it alone, without Spec")
            bases.append(found)
        elif found != Word("Spec"):
            complete = False
            if found is not BROKEN:
                report(spec, node, spec.name, f"the base class {quoted(node)} is not a spec{nearest(ast.unparse(node), spec.module.names)}",
                       "a base class is a spec that stands above in this file, a shipped spec, or one of a file beside this one: "
                       "from kvmodel.specs.pages import Pages")
    return tuple(bases), complete


def linearise(spec: SpecClass, report: Report) -> tuple[SpecClass, ...]:
    """Python's method resolution order (C3) of a spec class, itself first."""
    orders: dict[SpecClass, tuple[SpecClass, ...]] = {}
    pending = [spec]
    while pending:
        entry = pending[-1]
        bases, _ = bases_of(entry, report)
        waiting = [base for base in bases if base not in orders]
        if waiting:
            pending += waiting
            continue
        pending.pop()
        if entry not in orders:
            orders[entry] = _merge(entry, bases, orders, report)
    return orders[spec]


def _merge(
    spec: SpecClass, bases: tuple[SpecClass, ...], orders: dict[SpecClass, tuple[SpecClass, ...]], report: Report
) -> tuple[SpecClass, ...]:
    sequences = [list(orders[base]) for base in bases] + [list(bases)]
    merged = [spec]
    while sequences := [sequence for sequence in sequences if sequence]:
        for head in (sequence[0] for sequence in sequences):
            if not any(head in rest[1:] for rest in sequences):
                break
        else:
            names = " and ".join(dict.fromkeys(sequence[0].name for sequence in sequences))
            report(spec, spec.node, spec.name, f"the order of the base classes contradicts itself: each of {names} has to come first",
                   "write the base classes in another order, the more special one first")
            return tuple(merged)
        if len(merged) >= MOST_CLASSES:
            report(spec, spec.node, spec.name, f"the class extends more than {MOST_CLASSES} classes", "extend fewer")
            return tuple(merged)
        merged.append(head)
        sequences = [[entry for entry in sequence if entry is not head] for sequence in sequences]
    return tuple(merged)


def body_of(spec: SpecClass, report: Report) -> Body:
    """Sort the statements of a class body; what does not belong there is reported."""
    body = Body()
    for statement in spec.node.body:
        match statement:
            case ast.Expr(value=ast.Constant(value=str() | EllipsisType())) | ast.Pass():
                pass
            case ast.Assign(targets=[ast.Name(id="sizes")], value=value) | ast.AnnAssign(target=ast.Name(id="sizes"), value=value):
                _add_sizes(spec, statement, value, body, report)
            case ast.AnnAssign(target=ast.Name(id=name)):
                if name in body.variables:
                    report(spec, statement, f"{spec.name}.{name}", f"'{name}' is declared twice", "rename one of them")
                body.variables.setdefault(name, statement)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=bool(value))):
                if name in body.settings:
                    report(spec, statement, f"{spec.name}.{name}", f"'{name}' is set twice", "delete one of the two lines")
                body.settings[name] = (statement, value)
            case ast.FunctionDef():
                _add_method(spec, statement, body, report)
            case _:
                report(spec, statement, spec.name, f"{quoted(statement)} does not belong in a spec class",
                       "a spec class has declarations (name: Kind), flag settings (name = True) and decorated methods")
    for keyword in spec.node.keywords:
        if keyword.arg != "variant":
            report(spec, keyword.value, spec.name, f"the class keyword '{keyword.arg}' is not in the language" if keyword.arg
                   else "class keywords are written out", 'the only one is variant="name"')
        elif not _is_variant(spec.variant):
            report(spec, keyword.value, spec.name, "the name of a variant is letters, digits, dots and dashes",
                   'write variant="zero-on-free"')
    for decorator in spec.node.decorator_list:
        report(spec, decorator, spec.name, "a spec class has no decorators", f"delete @{quoted(decorator).strip('`')}")
    return body


def _is_variant(name: str | None) -> bool:
    return name is not None and 0 < len(name) <= 60 and name.isascii() and all(c.isalnum() or c in ".-_" for c in name)


def _add_sizes(spec: SpecClass, statement: ast.stmt, value: ast.expr | None, body: Body, report: Report) -> None:
    if not isinstance(value, ast.Dict):
        report(spec, statement, spec.name, "sizes is not a table of sorts and integers", SIZES_HINT)
        return
    for key, size in zip(value.keys, value.values, strict=True):
        match key, size:
            case ast.Constant(value=str(sort)), ast.Constant(value=int(number)) if not isinstance(number, bool):
                body.sizes[sort] = (key, number)
            case _:
                report(spec, key or size, spec.name, "sizes is not a table of sorts and integers", SIZES_HINT)


def _add_method(spec: SpecClass, node: ast.FunctionDef, body: Body, report: Report) -> None:
    kinds: list[str] = []
    override = False
    node_name = ""
    drop: tuple[str, ...] = ()
    where = f"{spec.name}.{node.name}"
    body.broken.add(node.name)
    for decorator in node.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        name_node = call.func if call else decorator
        found = spec.module.lookup(name_node.id) if isinstance(name_node, ast.Name) else None
        if found is BROKEN:
            return
        if found == Word("override") and call is None:
            override = True
        elif isinstance(found, Word) and found.name in DECORATORS and (call is None or found.name == "action"):
            kinds.append(found.name)
            if call is not None:
                drop, node_name = _arguments(spec, call, where, report)
        else:
            name = name_node.id if isinstance(name_node, ast.Name) else ""
            if name not in (*DECORATORS, "override"):
                report(spec, decorator, where,
                       f"@{quoted(name_node).strip('`')} is not a decorator of the language{nearest(name, DECORATORS)}",
                       f"the decorators are @{', @'.join(DECORATORS)} and @override")
            elif isinstance(found, Word):
                report(spec, decorator, where, f"@{name} takes no arguments", f"write @{name}; only @action has some")
            else:
                report(spec, decorator, where, f"@{name} is not imported", f"write from kvmodel.language import {name}")
            return
    if len(kinds) != 1:
        what = "no decorator that says what it is" if not kinds else f"{len(kinds)} decorators that say what it is"
        report(spec, node, where, f"the method has {what}", f"give it one of @{', @'.join(DECORATORS)}")
        return
    if node.name in body.methods:
        report(spec, node, where, f"'{node.name}' is defined twice in one class", "rename one of them")
    if node.name in body.variables:
        report(spec, node, where, f"'{node.name}' is a variable and a method", "rename one of them")
    if node.name in RESERVED:
        report(spec, node, where, f"'{node.name}' is a property that every spec has", "give it another name")
    arguments = node.args
    names = [argument.arg for argument in arguments.args]
    others = [*arguments.defaults, arguments.vararg, arguments.kwarg, *arguments.kwonlyargs, *arguments.posonlyargs]
    odd = next((part for part in others if part is not None), None if names else node)
    if odd is not None:
        report(spec, odd, where, "parameters are the spec itself and named elements, nothing else", f"write def {node.name}(s, r: Request)")
        return
    twice = next((argument for argument in arguments.args if names.count(argument.arg) > 1), None)
    if twice is not None:
        report(spec, twice, where, f"two parameters are called '{twice.arg}'", "rename one of them")
        return
    if len(names) > MOST_PARAMETERS + 1:
        report(spec, node, where, f"the method has {len(names) - 1} parameters; at most {MOST_PARAMETERS}",
               "use any(... for ...) for the others")
        return
    body.broken.discard(node.name)
    body.methods[node.name] = Method(node.name, kinds[0], spec, node, override, drop, node_name)


def _arguments(spec: SpecClass, call: ast.Call, where: str, report: Report) -> tuple[tuple[str, ...], str]:
    """The guards that ``@action(drop=(...), node="...")`` drops, and the node."""
    hint = 'write @action(drop=("guard name",)) or @action(node="decode")'
    drop: list[str] = []
    node = ""
    for keyword in call.keywords:
        match keyword:
            case ast.keyword(arg="node", value=ast.Constant(value=str(name))) if 0 < len(name) <= LONGEST_NODE and name.isprintable():
                node = name
            case ast.keyword(arg="node"):
                report(spec, keyword.value, where, f"a node is given by its name, of at most {LONGEST_NODE} characters", hint)
            case ast.keyword(arg="drop", value=ast.Tuple(elts=elements) | ast.List(elts=elements)):
                for element in elements:
                    if isinstance(element, ast.Constant) and isinstance(element.value, str):
                        drop.append(element.value)
                    else:
                        report(spec, element, where, "a dropped guard is given by its name", hint)
            case ast.keyword(arg="drop"):
                report(spec, keyword.value, where, "drop is a tuple of names of guards", hint)
            case _:
                report(spec, keyword.value, where, f"@action has no argument '{keyword.arg}'", hint)
    for argument in call.args:
        report(spec, argument, where, "@action takes only drop= and node=", hint)
    return tuple(drop), node
