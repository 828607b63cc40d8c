"""Spec classes before their methods are read: what each class body declares, and the order of inheritance."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kvmodel.errors import nearest
from kvmodel.language.modules import SpecClass, Word

__all__ = ["Body", "Method", "body_of", "linearise"]

DECORATORS = ("action", "effect", "define", "invariant", "reachable", "final", "assume", "initial")

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
        return ast.get_docstring(self.node) or ""


@dataclass
class Body:
    """What one class body says."""

    variables: dict[str, ast.AnnAssign] = field(default_factory=dict)
    settings: dict[str, tuple[ast.Assign, bool]] = field(default_factory=dict)
    methods: dict[str, Method] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)


def linearise(spec: SpecClass, report: Report) -> tuple[SpecClass, ...]:
    """Python's method resolution order (C3) of a spec class, itself first."""
    return tuple(_merge(spec, report, ()))


def _merge(spec: SpecClass, report: Report, under: tuple[SpecClass, ...]) -> list[SpecClass]:
    if any(spec is other for other in under):
        report(spec, spec.node, spec.name, "the class extends itself", "")
        return [spec]
    bases = []
    for node in spec.node.bases:
        found = spec.module.lookup(node.id) if isinstance(node, ast.Name) else None
        if isinstance(found, SpecClass):
            bases.append(found)
        elif found != Word("Spec"):
            name = ast.unparse(node)
            report(spec, node, spec.name, f"the base class '{name}' is not a spec{nearest(name, spec.module.names)}",
                   "a base class is a spec of this file, of a shipped spec, or of a file beside this one")
    orders = [_merge(base, report, (*under, spec)) for base in bases]
    sequences = [*orders, bases]
    merged = [spec]
    while any(sequences):
        sequences = [sequence for sequence in sequences if sequence]
        for sequence in sequences:
            head = sequence[0]
            if not any(head is other for rest in sequences for other in rest[1:]):
                break
        else:
            report(spec, spec.node, spec.name, "the order of the base classes contradicts itself", "reorder the base classes")
            return merged
        merged.append(head)
        sequences = [[entry for entry in sequence if entry is not head] for sequence in sequences]
    return merged


def body_of(spec: SpecClass, report: Report) -> Body:
    """Sort the statements of a class body; what does not belong there is reported."""
    body = Body()
    for statement in spec.node.body:
        match statement:
            case ast.Expr(value=ast.Constant(value=str())) | ast.Pass():
                pass
            case ast.AnnAssign(target=ast.Name(id=name)):
                if name in body.variables:
                    report(spec, statement, spec.name, f"'{name}' is declared twice", "rename one of them")
                body.variables[name] = statement
            case ast.Assign(targets=[ast.Name(id="sizes")], value=ast.Dict(keys=keys, values=values)):
                for key, value in zip(keys, values, strict=True):
                    match key, value:
                        case ast.Constant(value=str(sort)), ast.Constant(value=int(size)):
                            body.sizes[sort] = size
                        case _:
                            report(spec, statement, spec.name, "sizes is not a table of sorts and integers", 'write sizes = {"Request": 2}')
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=bool(value))):
                body.settings[name] = (statement, value)
            case ast.FunctionDef():
                _add_method(spec, statement, body, report)
            case _:
                report(spec, statement, spec.name, f"`{ast.unparse(statement).splitlines()[0][:60]}` does not belong in a spec class",
                       "a spec class has declarations (name: Kind), flag settings (name = True) and decorated methods")
    for keyword in spec.node.keywords:
        if keyword.arg != "variant" or spec.variant is None:
            report(spec, keyword.value, spec.name, f"the class keyword '{keyword.arg}' is not in the language",
                   'the only one is variant="name"')
    return body


def _add_method(spec: SpecClass, node: ast.FunctionDef, body: Body, report: Report) -> None:
    kinds: list[str] = []
    override = False
    drop: tuple[str, ...] = ()
    node_name = ""
    where = f"{spec.name}.{node.name}"
    for decorator in node.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        name_node = call.func if call else decorator
        found = spec.module.lookup(name_node.id) if isinstance(name_node, ast.Name) else None
        if found == Word("override"):
            override = True
        elif isinstance(found, Word) and found.name in DECORATORS and (call is None or found.name == "action"):
            kinds.append(found.name)
            if call is not None:
                drop = tuple(_drops(spec, call, where, report))
                node_name = _node(call)
        else:
            text = ast.unparse(decorator)
            report(spec, decorator, where, f"@{text} is not a decorator of the language{nearest(text, DECORATORS)}",
                   f"the decorators are @{', @'.join(DECORATORS)} and @override")
            return
    if len(kinds) != 1:
        what = "no decorator" if not kinds else f"{len(kinds)} decorators"
        report(spec, node, where, f"the method has {what} that says what it is", f"give it one of @{', @'.join(DECORATORS)}")
        return
    if node.name in body.methods:
        report(spec, node, where, f"'{node.name}' is defined twice in one class", "rename one of them")
    if node.name in body.variables:
        report(spec, node, where, f"'{node.name}' is a variable and a method", "rename one of them")
    arguments = node.args
    if not arguments.args or arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs or arguments.defaults:
        report(spec, node, where, "parameters are the spec itself and named elements, nothing else", f"write def {node.name}(s, r: Request)")
        return
    body.methods[node.name] = Method(node.name, kinds[0], spec, node, override, drop, node_name)


def _drops(spec: SpecClass, call: ast.Call, where: str, report: Report) -> Iterator[str]:
    hint = 'write @action(drop=("guard name",))'
    for keyword in call.keywords:
        match keyword:
            case ast.keyword(arg="node", value=ast.Constant(value=str())):
                pass
            case ast.keyword(arg="drop", value=ast.Tuple(elts=elements) | ast.List(elts=elements)):
                for element in elements:
                    if isinstance(element, ast.Constant) and isinstance(element.value, str):
                        yield element.value
                    else:
                        report(spec, element, where, "a dropped guard is given by its name", hint)
            case _:
                report(spec, keyword.value, where, f"@action has no argument '{keyword.arg}' of this form", hint)
    for argument in call.args:
        report(spec, argument, where, "@action takes only drop= and node=", hint)


def _node(call: ast.Call) -> str:
    for keyword in call.keywords:
        if keyword.arg == "node" and isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str):
            return keyword.value.value
    return ""
