"""Reading declarations: from annotated names in a class body to variables and flags."""

from __future__ import annotations

import ast
from itertools import pairwise

from kvmodel.errors import nearest, printable
from kvmodel.language.modules import BROKEN, SpecClass, Word, span
from kvmodel.language.scopes import Mistake
from kvmodel.language.source import quoted
from kvmodel.language.system import ANYTHING, Anything, Flag, FlagKind, Variable
from kvmodel.language.types import (
    BOOL,
    NUMBER,
    Counter,
    Domain,
    Element,
    Enumeration,
    Maybe,
    Number,
    Sort,
    Type,
    Value,
)

__all__ = ["declare"]

KINDS = ("Relation", "Function", "Counter", "Number", "Single", "Scalar", "Flag")
INITIALISERS = ("flag", "starts", "anything", "rigid", "partition", "counter")
MOST_KEYS = 6
MOST_VALUES = 65  # of a counter
KINDS_HINT = "the kinds are Relation[K, ...], Function[K, V], Counter[K], Number[K], Single[V], Scalar and Flag"
FLAG_HINT = 'write name: Flag = flag(False, kind="defence", doc="one sentence")'


def declare(spec: SpecClass, name: str, node: ast.AnnAssign) -> Variable | Flag:
    """The variable or flag that ``name: Kind = ...`` declares. Raises Mistake."""
    head = node.annotation.value if isinstance(node.annotation, ast.Subscript) else node.annotation
    word = spec.module.lookup(head.id) if isinstance(head, ast.Name) else None
    if word is BROKEN:
        raise Mistake(node, "")
    if not isinstance(word, Word) or word.name not in KINDS:
        plain = head.id if isinstance(head, ast.Name) else ""
        hint = f"import it: from kvmodel.language import {plain}" if plain in KINDS else KINDS_HINT
        raise Mistake(node.annotation, f"{quoted(head)} is not a kind of value{'' if plain in KINDS else nearest(plain, KINDS)}", hint)
    arguments = _arguments(node.annotation)
    call = _initialiser(spec, node)
    if word.name == "Flag":
        return _flag(spec, name, node, arguments, call)
    keys, kind = _shape(spec, word.name, node, arguments, call)
    if len(keys) > MOST_KEYS:
        raise Mistake(node, f"'{name}' has {len(keys)} keys; at most {MOST_KEYS}", "split it into several variables")
    initial, rigid, partition = _start(spec, kind, node, call)
    if partition:
        if not (len(keys) == 1 and isinstance(keys[0], Sort) and isinstance(kind, Element) and isinstance(kind.domain, Enumeration)):
            raise Mistake(node, "a partition is a function from one sort into an enumeration",
                          "write pool: Function[Page, Pool] = partition()")
        rigid = True
    if rigid and isinstance(kind, Counter):
        raise Mistake(node, "a counter is never rigid", "a rigid integer is a Number[...] or a Scalar")
    return Variable(name, keys, kind, initial, rigid, partition, _comment(spec, name), span(spec.module, node))


def _arguments(annotation: ast.expr) -> tuple[ast.expr, ...]:
    if not isinstance(annotation, ast.Subscript):
        return ()
    return tuple(annotation.slice.elts) if isinstance(annotation.slice, ast.Tuple) else (annotation.slice,)


def _initialiser(spec: SpecClass, node: ast.AnnAssign) -> tuple[str, ast.Call] | None:
    if node.value is None:
        return None
    match node.value:
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords):
            found = spec.module.lookup(name)
            if found is BROKEN:
                raise Mistake(node, "")
            if isinstance(found, Word) and found.name in INITIALISERS:
                if found.name in ("anything", "rigid", "partition") and (arguments or keywords):
                    raise Mistake(node.value, f"{found.name} takes no arguments", f"write {found.name}()")
                if found.name == "starts" and (len(arguments) != 1 or keywords):
                    raise Mistake(node.value, "starts takes one value", "write starts(True), starts(None) or starts(Phase.NEW)")
                return found.name, node.value
            if name in INITIALISERS:
                raise Mistake(node.value, f"'{name}' is not imported", f"write from kvmodel.language import {name}")
    raise Mistake(node.value, f"{quoted(node.value)} is not an initial value of the language",
                  "write starts(value), anything(), rigid(), partition(), counter(low, high) or flag(...)")


def _flag(spec: SpecClass, name: str, node: ast.AnnAssign, arguments: tuple[ast.expr, ...], call: tuple[str, ast.Call] | None) -> Flag:
    if arguments or call is None or call[0] != "flag":
        raise Mistake(node, "a flag is declared with its default, kind and one sentence", FLAG_HINT)
    keywords = {keyword.arg: keyword.value for keyword in call[1].keywords}
    match call[1].args, keywords.get("kind"), keywords.get("doc"):
        case [ast.Constant(value=bool(value))], ast.Constant(value=str(kind)), ast.Constant(value=str(doc)) if len(keywords) == 2:
            kinds = [entry.value for entry in FlagKind]
            if kind not in kinds:
                raise Mistake(keywords["kind"], f"'{kind}' is not a kind of flag{nearest(kind, kinds)}",
                              f"the kinds are {', '.join(kinds)}")
            return Flag(name, value, value, FlagKind(kind), printable(" ".join(doc.split())), span(spec.module, node))
    raise Mistake(node, "a flag is declared with its default, kind and one sentence", FLAG_HINT)


def _shape(
    spec: SpecClass, word: str, node: ast.AnnAssign, arguments: tuple[ast.expr, ...], call: tuple[str, ast.Call] | None
) -> tuple[tuple[Domain, ...], Type]:
    match word:
        case "Relation":
            if not arguments:
                raise Mistake(node, "a relation without keys is a single truth value", "write Single[bool]")
            return tuple(_domain(spec, part) for part in arguments), BOOL
        case "Function":
            if len(arguments) < 2:
                raise Mistake(node, "a function has keys and a value", "write Function[Page, Request | None]; without keys: Single[...]")
            return tuple(_domain(spec, part) for part in arguments[:-1]), _value(spec, arguments[-1], call)
        case "Counter":
            if not arguments:
                raise Mistake(node, "a counter without keys is a single integer", "write Single[int] = counter(0, 3)")
            return tuple(_domain(spec, part) for part in arguments), _range(node, call)
        case "Number":
            if not arguments:
                raise Mistake(node, "a number without keys is a Scalar", "write Scalar")
            return tuple(_domain(spec, part) for part in arguments), NUMBER
        case "Scalar":
            return (), NUMBER
        case _:
            if len(arguments) != 1:
                raise Mistake(node, "Single has one value", "write Single[bool], Single[Phase] or Single[Request | None]")
            return (), _value(spec, arguments[0], call, node)


def _value(spec: SpecClass, node: ast.expr, call: tuple[str, ast.Call] | None, whole: ast.AnnAssign | None = None) -> Type:
    match node:
        case ast.Name(id="bool"):
            return BOOL
        case ast.Name(id="int"):
            return _range(whole or node, call)
        case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
            domain = _domain(spec, left)
            if isinstance(domain, Enumeration):
                raise Mistake(node, f"{domain.name} is an enumeration and is never None", "add a member that says so")
            return Maybe(domain)
    return Element(_domain(spec, node))


def _domain(spec: SpecClass, node: ast.expr) -> Domain:
    found = spec.module.lookup(node.id) if isinstance(node, ast.Name) else None
    if isinstance(found, Sort | Enumeration):
        return found
    if found is BROKEN:
        raise Mistake(node, "")
    close = nearest(node.id, [name for name in spec.module.own_names if name != node.id]) if isinstance(node, ast.Name) else ""
    raise Mistake(node, f"{quoted(node)} is not a sort or an enumeration{close}", "declare it at module level: class Page(Sort)")


def _range(node: ast.AST, call: tuple[str, ast.Call] | None) -> Counter:
    hint = "write refs: Counter[Page] = counter(0, 3)"
    if call is None or call[0] != "counter":
        raise Mistake(node, "a counter is declared with its range", hint)
    match [_integer(argument) for argument in call[1].args]:
        case [int(low), int(high)]:
            if not low <= high < low + MOST_VALUES:
                raise Mistake(call[1], f"the range {low}..{high} is not that of a small counter",
                              f"a counter has 1 to {MOST_VALUES} values")
            return Counter(low, high)
    raise Mistake(call[1], "the range of a counter is two integers", hint)


def _integer(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))) if not isinstance(value, bool):
            return -value
    return None


def _start(
    spec: SpecClass, kind: Type, node: ast.AnnAssign, call: tuple[str, ast.Call] | None
) -> tuple[Value | Anything, bool, bool]:
    """The initial value, whether the variable is rigid, and whether it is a partition."""
    word = call[0] if call else ""
    if isinstance(kind, Number):
        if call is not None:
            raise Mistake(node, "a number is rigid and has no initial value", "say what is known of it with @assume")
        return ANYTHING, True, False
    if call is not None and word == "flag":
        raise Mistake(node, "only a flag is made with flag(...)", "write starts(...)")
    if isinstance(kind, Counter):
        assert call is not None
        unknown = next((keyword for keyword in call[1].keywords if keyword.arg != "starts"), None)
        if unknown is not None:
            raise Mistake(unknown.value, f"counter has no argument '{unknown.arg}'", "write counter(0, 3, starts=1)")
        starts = next((keyword.value for keyword in call[1].keywords), None)
        value = 0 if starts is None else _integer(starts)
        if value is None or not kind.low <= value <= kind.high:
            raise Mistake(starts or node, f"the counter does not start within {kind.low}..{kind.high}",
                          f"write starts={kind.low}, for example")
        return value, False, False
    if word == "counter":
        raise Mistake(node, "only a counter has a range", "write Counter[K] = counter(0, 3) or Single[int] = counter(0, 3)")
    if word in ("anything", "rigid", "partition"):
        return ANYTHING, word == "rigid", word == "partition"
    if word == "starts":
        assert call is not None
        return _constant(spec, kind, call[1]), False, False
    match kind:
        case Maybe():
            return None, False, False
        case Element(domain):
            return (domain.members[0] if isinstance(domain, Enumeration) else ANYTHING), False, False
        case _:
            return False, False, False


def _constant(spec: SpecClass, kind: Type, call: ast.Call) -> Value:
    match kind, call.args:
        case _, [ast.Constant(value=bool(value))] if kind == BOOL:
            return value
        case Maybe(), [ast.Constant(value=None)]:
            return None
        case Element(domain), [ast.Attribute(value=ast.Name(id=owner), attr=name)]:
            if spec.module.lookup(owner) == domain and isinstance(domain, Enumeration) and name in domain.members:
                return name
    raise Mistake(call, "the initial value is not a constant of the variable's kind",
                  "write starts(True), starts(None) or starts(Phase.NEW)")


def _comment(spec: SpecClass, name: str) -> str:
    """The string that follows a declaration, as documentation."""
    body = spec.node.body
    for statement, following in pairwise(body):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=declared)), ast.Expr(value=ast.Constant(value=str(text))) if declared == name:
                return printable(" ".join(text.split()))
    return ""
