"""The readable text of a transition system: what `kvmodel specs NAME --text` prints and what `specs diff` compares.

Expressions are printed as a spec writes them (Python's operators and precedence), without the leading ``s.``; a use of
a definition is printed as a call. The text depends on the system alone, so equal systems have equal text.
"""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from kvmodel.errors import InternalError
from kvmodel.language.expressions import (
    TRUE,
    Apply,
    Bound,
    Cell,
    Const,
    Expr,
    FlagRead,
    Named,
    Quantified,
    Read,
    free_names,
)
from kvmodel.language.operators import Operator
from kvmodel.language.system import (
    Action,
    Anything,
    Condition,
    Definition,
    Flag,
    Property,
    PropertyKind,
    TransitionSystem,
    Update,
    Variable,
)
from kvmodel.language.types import Bool, Counter, Element, Enumeration, Maybe, Number, Type, Value, describe

__all__ = [
    "Change",
    "Item",
    "difference",
    "expression",
    "expression_lines",
    "items",
    "membership",
    "place",
    "signature",
    "system_text",
    "update",
]

WIDTH = 100
INDENT = "    "


class Level(IntEnum):
    """How tightly an expression binds, as in Python."""

    IF = 0
    OR = 1
    AND = 2
    NOT = 3
    COMPARISON = 4
    SUM = 5
    ATOM = 6


INFIX = {
    Operator.AND: (" and ", Level.AND),
    Operator.OR: (" or ", Level.OR),
    Operator.EQ: (" == ", Level.COMPARISON),
    Operator.LT: (" < ", Level.COMPARISON),
    Operator.LE: (" <= ", Level.COMPARISON),
}
JOINED = (Operator.AND, Operator.OR)
KINDS = ("sort", "enum", "flag", "variable", "assume", "initially", "define", "action", "invariant", "reachable", "final", "lemma")
LISTED = ("sort", "enum", "flag", "variable")  # kinds whose declarations stand in one block


def expression(expr: Expr) -> str:
    """`expr` on one line.

    >>> from kvmodel.language.build import Builder, and_, not_, or_
    >>> b = Builder("light")
    >>> on, hot = b.relation("on"), b.relation("hot")
    >>> expression(and_(not_(on()), or_(on(), hot())))
    'not on and (on or hot)'
    """
    return _render(expr)[0]


def expression_lines(expr: Expr, width: int = WIDTH) -> list[str]:
    """`expr` on as many lines as a width of `width` columns takes, broken at its operators."""
    flat = expression(expr)
    if len(flat) <= width:
        return [flat]
    inner = width - len(INDENT)
    match expr:
        case Apply(operator=operator, arguments=arguments) if operator in JOINED and membership(expr) is None:
            word = INFIX[operator][0]
            lines: list[str] = []
            for part in arguments:
                first, *rest = _enclosed_lines(part, _inside(operator), inner)
                lines += [f"{word.strip()} {first}" if lines else first, *(INDENT + line for line in rest)]
            return lines
        case Apply(operator=Operator.IMPLIES, arguments=(premise, conclusion)):
            return ["implies(", *_indented(expression_lines(premise, inner), ","), *_indented(expression_lines(conclusion, inner)), ")"]
        case Apply(operator=Operator.NOT, arguments=(part,)) if flat.startswith("not "):
            first, *rest = _enclosed_lines(part, Level.NOT, width)
            return [f"not {first}", *rest]
        case Quantified(binder, variables, body):
            return [f"{binder.value}(", *_indented(expression_lines(body, inner)), INDENT + _loops(variables), ")"]
        case _:
            return [flat]


def _enclosed_lines(expr: Expr, level: Level, width: int) -> list[str]:
    lines = expression_lines(expr, width)
    if _render(expr)[1] >= level:
        return lines
    lines[0] = "(" + lines[0]
    lines[-1] += ")"
    return lines


def _indented(lines: list[str], end: str = "") -> list[str]:
    return [INDENT + line for line in (*lines[:-1], lines[-1] + end)]


def _render(expr: Expr) -> tuple[str, Level]:
    match expr:
        case Const(value, kind):
            return _constant(value, kind), Level.ATOM
        case Bound(name=name) | FlagRead(flag=name):
            return name, Level.ATOM
        case Read(variable, index):
            return place(variable, tuple(expression(part) for part in index)), Level.ATOM
        case Named(definition, arguments):
            return f"{definition}({', '.join(expression(part) for part in arguments)})", Level.ATOM
        case Quantified(binder, variables, body):
            return f"{binder.value}({expression(body)} {_loops(variables)})", Level.ATOM
        case Cell(slot, rigid):
            return f"{'rigid' if rigid else 'cell'}{slot}", Level.ATOM
        case Apply(operator, arguments):
            return _operation(operator, arguments, expr)


def _operation(operator: Operator, arguments: tuple[Expr, ...], expr: Apply) -> tuple[str, Level]:
    if operator in JOINED and not arguments:
        return str(operator is Operator.AND), Level.ATOM
    choices = membership(expr)
    if choices is not None:
        return _spelled(*choices, " in "), Level.COMPARISON
    if operator in INFIX:
        word, level = INFIX[operator]
        return word.join(_enclosed(part, _inside(operator)) for part in arguments), level
    match operator:
        case Operator.NOT:
            return _negation(arguments[0])
        case Operator.IMPLIES:
            return f"implies({expression(arguments[0])}, {expression(arguments[1])})", Level.ATOM
        case Operator.IS_NONE:
            return f"{_enclosed(arguments[0], Level.SUM)} is None", Level.COMPARISON
        case Operator.THE:
            return _render(arguments[0])
        case Operator.IF:
            condition, then, otherwise = arguments
            return f"{_enclosed(then, Level.OR)} if {_enclosed(condition, Level.OR)} else {expression(otherwise)}", Level.IF
        case Operator.ADD:
            text = ""
            for part in arguments:
                shown, sign = _enclosed(part, Level.ATOM), " + "
                if text and shown.startswith("-"):
                    shown, sign = shown[1:], " - "
                text += sign + shown if text else shown
            return text or "0", Level.SUM
    raise InternalError(f"the text form has no spelling for operator {operator.value!r}")


def _inside(operator: Operator) -> Level:
    """How tightly an operand must bind. An `and` inside an `or` gets parentheses that Python does not need and people do."""
    return Level.NOT if operator is Operator.OR else Level(INFIX[operator][1] + 1)


def _negation(part: Expr) -> tuple[str, Level]:
    choices = membership(part)
    if choices is not None:
        return _spelled(*choices, " not in "), Level.COMPARISON
    match part:
        case Apply(operator=Operator.EQ, arguments=(left, right)):
            return f"{_enclosed(left, Level.SUM)} != {_enclosed(right, Level.SUM)}", Level.COMPARISON
        case Apply(operator=Operator.IS_NONE, arguments=(left,)):
            return f"{_enclosed(left, Level.SUM)} is not None", Level.COMPARISON
    return f"not {_enclosed(part, Level.NOT)}", Level.NOT


def membership(expr: Expr) -> tuple[Expr, tuple[Expr | None, ...]] | None:
    """For ``x == a or x is None or ...``, which is ``x in (a, None, ...)``: `x` and the values (None for none)."""
    if not isinstance(expr, Apply) or expr.operator is not Operator.OR or len(expr.arguments) < 2:
        return None
    subjects: list[Expr] = []
    values: list[Expr | None] = []
    for part in expr.arguments:
        match part:
            case Apply(operator=Operator.EQ, arguments=(left, right)):
                subjects.append(left)
                values.append(right)
            case Apply(operator=Operator.IS_NONE, arguments=(left,)):
                subjects.append(left)
                values.append(None)
            case _:
                return None
    return (subjects[0], tuple(values)) if all(subject == subjects[0] for subject in subjects) else None


def _spelled(subject: Expr, values: tuple[Expr | None, ...], word: str) -> str:
    listed = ", ".join("None" if value is None else expression(value) for value in values)
    return f"{_enclosed(subject, Level.SUM)}{word}({listed})"


def _enclosed(expr: Expr, level: Level) -> str:
    text, own = _render(expr)
    return text if own >= level else f"({text})"


def _loops(variables: tuple[Bound, ...]) -> str:
    return " ".join(f"for {variable.name} in {variable.domain.name}" for variable in variables)


def _constant(value: Value, kind: Type) -> str:
    if isinstance(kind, Element | Maybe) and isinstance(kind.domain, Enumeration) and value is not None:
        return f"{kind.domain.name}.{value}"
    return str(value)


def place(variable: str, index: tuple[str, ...]) -> str:
    """A variable at an index: ``holds[r, p]``, or its name alone when it has no keys."""
    return f"{variable}[{', '.join(index)}]" if index else variable


def signature(name: str, parameters: tuple[Bound, ...]) -> str:
    """``land(r: Request, p: Page)``."""
    return f"{name}({', '.join(f'{parameter.name}: {parameter.domain.name}' for parameter in parameters)})"


def update(written: Update) -> str:
    """An update as a spec writes it; a loop that only fills an index is a slice: ``holds[r, :] = False``."""
    used = free_names(written.value) | free_names(written.condition)
    names = [part.name if isinstance(part, Bound) else "" for part in written.index]
    nested = frozenset().union(*(free_names(part) for part in written.index if not isinstance(part, Bound)))
    slices = {bound.name for bound in written.over if names.count(bound.name) == 1 and bound.name not in used | nested}
    index = tuple(":" if name in slices else expression(part) for name, part in zip(names, written.index, strict=True))
    loops = "".join(f"for {bound.name} in {bound.domain.name}: " for bound in written.over if bound.name not in slices)
    condition = "" if written.condition == TRUE else f"if {expression(written.condition)}: "
    return f"{loops}{condition}{place(written.variable, index)} = {expression(written.value)}"


@dataclass(frozen=True, slots=True)
class Item:
    """One declaration of a system: ``kind`` (flag, action, invariant, ...), name, and its lines of text."""

    kind: str
    name: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A declaration that two systems do not share; each line starts with ``- ``, ``+ `` or two blanks."""

    kind: str
    name: str
    lines: tuple[str, ...]


def system_text(system: TransitionSystem, docs: bool = True) -> str:
    """The whole system as text, ending in a newline; without `docs`, only what has a meaning."""
    blocks = ["\n".join((f"spec {system.name}", *(_comment(system.doc) if docs else ())))]
    previous = ""
    for item in items(system, docs):
        text = "\n".join(item.lines)
        if item.kind == previous and item.kind in LISTED:
            blocks[-1] += "\n" + text
        else:
            blocks.append(text)
        previous = item.kind
    return "\n\n".join(blocks) + "\n"


def items(system: TransitionSystem, docs: bool = True) -> tuple[Item, ...]:
    """Every declaration in the order of the text; implicit properties are left out."""
    return tuple(_items(system, docs))


def _items(system: TransitionSystem, docs: bool) -> Iterator[Item]:
    for sort in system.sorts:
        yield Item("sort", sort.name, (f"sort {sort.name}", *(_comment(sort.doc) if docs else ())))
    for enumeration in system.enumerations:
        line = f"enum {enumeration.name}: {', '.join(enumeration.members)}"
        yield Item("enum", enumeration.name, (line, *(_comment(enumeration.doc) if docs else ())))
    for flag in system.flags:
        yield Item("flag", flag.name, tuple(_flag(flag, docs)))
    for variable in system.variables:
        yield Item("variable", variable.name, tuple(_variable(variable, docs)))
    for condition in system.assumptions:
        yield Item("assume", condition.name, tuple(_condition("assume", condition, docs)))
    for condition in system.initial:
        yield Item("initially", condition.name, tuple(_condition("initially", condition, docs)))
    for definition in system.definitions:
        yield Item("define", definition.name, tuple(_condition("define", definition, docs)))
    for action in system.actions:
        yield Item("action", action.name, tuple(_action(action, docs)))
    for declared in system.declared:
        kind = "reachable" if declared.kind is PropertyKind.REACHABLE else "invariant"
        yield Item(kind, declared.name, tuple(_condition(kind, declared, docs)))
    for condition in system.finals:
        yield Item("final", condition.name, tuple(_condition("final", condition, docs)))
    for condition in system.lemmas:
        yield Item("lemma", condition.name, tuple(_condition("lemma", condition, docs)))


def _comment(doc: str) -> list[str]:
    paragraphs = textwrap.dedent(doc).strip().split("\n\n") if doc.strip() else []
    return [
        f"{INDENT}# {line}"
        for paragraph in paragraphs
        for line in textwrap.wrap(" ".join(paragraph.split()), WIDTH - len(INDENT) - 2, break_long_words=False)
    ]


def _flag(flag: Flag, docs: bool) -> Iterator[str]:
    default = "" if flag.value == flag.default else f", default {flag.default}"
    yield f"flag {flag.name} = {flag.value}  ({flag.kind.value}{default})"
    if docs:
        yield from _comment(flag.doc)


def _variable(variable: Variable, docs: bool) -> Iterator[str]:
    keys = ", ".join(key.name for key in variable.keys)
    match variable.type:
        case Bool():
            kind = f"Relation[{keys}]" if keys else "Single[bool]"
        case Number():
            kind = f"Number[{keys}]" if keys else "Scalar"
        case Counter(low, high):
            kind = (f"Counter[{keys}]" if keys else "Single[int]") + f" {low}..{high}"
        case other:
            kind = f"Function[{keys}, {describe(other)}]" if keys else f"Single[{describe(other)}]"
    start = "anything" if isinstance(variable.initial, Anything) else _constant(variable.initial, variable.type)
    words = "partition " if variable.partition else "rigid " if variable.rigid else "var "
    yield f"{words}{variable.name}: {kind}" + ("" if variable.rigid else f" = {start}")
    if docs:
        yield from _comment(variable.doc)


def _condition(word: str, condition: Condition | Property | Definition, docs: bool) -> Iterator[str]:
    head = f"{word} {signature(condition.name, condition.parameters)}:"
    comment = _comment(condition.doc) if docs else []
    lines = expression_lines(condition.condition, WIDTH - len(INDENT))
    yield head
    yield from comment
    yield from (INDENT + line for line in lines)


def _action(action: Action, docs: bool) -> Iterator[str]:
    yield f"action {signature(action.name, action.parameters)}:" + (f"  on {action.node}" if docs and action.node else "")
    if docs:
        yield from _comment(action.doc)
    for guard in action.guards:
        yield from _statement("require(", guard.condition, f', "{guard.name}")')
    for assertion in action.assertions:
        yield from _statement("assert ", assertion.condition, f', "{assertion.name}"')
    for written in action.updates:
        yield INDENT + update(written)


def _statement(start: str, condition: Expr, end: str) -> Iterator[str]:
    flat = f"{INDENT}{start}{expression(condition)}{end}"
    if len(flat) <= WIDTH:
        yield flat
        return
    lines = [2 * INDENT + line for line in expression_lines(condition, WIDTH - 2 * len(INDENT))]
    if start.endswith("("):
        yield INDENT + start
        yield from lines[:-1]
        yield lines[-1] + end
    else:
        yield f"{INDENT}{start}("
        yield from lines
        yield f"{INDENT}){end}"


def difference(first: TransitionSystem, second: TransitionSystem, docs: bool = False) -> tuple[Change, ...]:
    """The declarations that differ, in the order of the text: of `first` (``- ``) and of `second` (``+ ``).

    The first line of a declaration that both have is kept as context.
    """
    ours = {(item.kind, item.name): item.lines for item in items(first, docs)}
    theirs = {(item.kind, item.name): item.lines for item in items(second, docs)}
    changes = []
    for key in sorted(dict.fromkeys((*ours, *theirs)), key=lambda key: KINDS.index(key[0])):
        before, after = ours.get(key, ()), theirs.get(key, ())
        if before == after:
            continue
        compared = [line for line in difflib.ndiff(before, after) if not line.startswith("? ")]
        kept = [line for position, line in enumerate(compared) if position == 0 or not line.startswith("  ")]
        changes.append(Change(*key, tuple(kept)))
    return tuple(changes)
