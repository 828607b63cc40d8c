"""The vocabulary of inferred lemmas: what can be said of one, two or three elements in the words of the spec itself.

A *template* is a few variables over sorts, that stand for different elements. A *feature* is an expression over them
with few values: a relation at an index, a member of an enumeration, which of the variables a function names, a comparison
of numbers as the spec makes it. A *box* gives some features a set of values each; a *clause* says that no elements are in
a box, for every choice of different elements. Nothing here looks at what anything is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, permutations, product
from keyword import iskeyword

from kvmodel.language.expressions import (
    FALSE,
    Apply,
    Bound,
    Const,
    Expr,
    Quantified,
    Read,
    conjunction,
    free_names,
    negation,
    substitute,
    walk,
)
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import Condition, TransitionSystem, Variable
from kvmodel.language.types import BOOL, Bool, Counter, Element, Enumeration, Maybe, Number, Sort, Value

__all__ = ["OTHER", "Box", "Clause", "Feature", "Option", "Template", "condition", "templates"]

MOST_OF_A_SORT = 2


@dataclass(frozen=True, slots=True)
class Other:
    """The value of a feature that names an element which no variable of the template stands for."""


OTHER = Other()
Option = bool | int | str | None | Bound | Other


@dataclass(frozen=True, slots=True)
class Feature:
    """An expression over the variables of a template, and the values that are told apart."""

    expr: Expr
    options: tuple[Option, ...]


@dataclass(frozen=True)
class Template:
    """Variables that stand for different elements, and the features that can be said of them."""

    variables: tuple[Bound, ...]
    features: tuple[Feature, ...]

    @cached_property
    def mentions(self) -> tuple[frozenset[int], ...]:
        """The variables, by position, that each feature's expression speaks of."""
        names = {variable.name: number for number, variable in enumerate(self.variables)}
        return tuple(frozenset(names[name] for name in free_names(feature.expr) if name in names) for feature in self.features)

    def link(self, position: int, value: int) -> frozenset[int]:
        """The variables that a feature brings together by having a value: those of a relation that holds, of a function
        and of the element that it names. Empty where there are not two."""
        feature = self.features[position]
        option = feature.options[value] if value < len(feature.options) else OTHER
        if option is True:
            found = self.mentions[position]
        elif isinstance(option, Bound):
            found = self.mentions[position] | {self.variables.index(option)}
        else:
            return frozenset()
        return found if len(found) > 1 else frozenset()

    def bindings(self, domains: Mapping[str, Sequence[Value]]) -> Iterator[tuple[Value, ...]]:
        """Every choice of different elements."""
        sorts = list(dict.fromkeys(variable.domain.name for variable in self.variables))
        counts = [sum(variable.domain.name == name for variable in self.variables) for name in sorts]
        for chosen in product(*(permutations(domains[name], count) for name, count in zip(sorts, counts, strict=True))):
            yield tuple(element for group in chosen for element in group)


@dataclass(frozen=True, slots=True)
class Box:
    """Values, by position among the options, for some features of a template, by position."""

    sides: tuple[tuple[int, frozenset[int]], ...]


@dataclass(frozen=True, slots=True)
class Clause:
    """No different elements are in `box`."""

    template: int
    box: Box


def templates(system: TransitionSystem, *, quantified: bool = False, most: int = 3) -> tuple[Template, ...]:
    """The largest templates of at most `most` variables, two of a sort. `system` has its flags folded in.

    With `quantified`, the quantified parts of the spec's expressions are features too.
    """
    sorts = [sort for sort in system.sorts if any(sort in variable.keys for variable in system.variables)]
    wanted = [
        counts
        for counts in product(range(MOST_OF_A_SORT + 1), repeat=len(sorts))
        if sum(counts) <= most
    ]
    largest = [c for c in wanted if not any(c != d and all(x <= y for x, y in zip(c, d, strict=True)) for d in wanted)]
    names = _names(sorts)
    found = []
    for counts in largest:
        variables = tuple(
            Bound(names[sort.name][number], sort) for sort, count in zip(sorts, counts, strict=True) for number in range(count)
        )
        found.append(Template(variables, tuple(_features(system, variables, quantified))))
    return tuple(found)


def _names(sorts: Sequence[Sort]) -> dict[str, tuple[str, ...]]:
    """Names of variables for each sort, that are short and differ."""
    found: dict[str, tuple[str, ...]] = {}
    taken: set[str] = set()
    for sort in sorts:
        letters = [*sort.name.lower(), *"xyzabcdefghijklmnopqrtuvw"]
        base = next(letter for letter in letters if letter.isalpha() and letter.isascii() and letter != "s" and letter not in taken)
        taken.add(base)
        found[sort.name] = (base, *(f"{base}{number}" for number in range(2, MOST_OF_A_SORT + 2)))
    assert not any(iskeyword(name) for group in found.values() for name in group)
    return found


def _features(system: TransitionSystem, variables: tuple[Bound, ...], quantified: bool) -> Iterator[Feature]:
    seen: set[Expr] = set()
    for variable in system.variables:
        if isinstance(variable.type, Number):
            continue
        for index in _indices(variable, variables):
            expr = Read(variable.name, index, variable.type)
            options = _options(variable, variables)
            if len(options) > 1:
                yield Feature(expr, options)
    for pattern in _patterns(system, quantified):
        free = sorted(free_names(pattern))
        kinds = {node.name: node.domain for node in walk(pattern) if isinstance(node, Bound) and node.name in free}
        choices = [[v for v in variables if v.domain == kinds[name]] for name in free]
        for chosen in product(*choices):
            if len(set(chosen)) < len(chosen):
                continue
            part = _ordered(substitute(pattern, dict(zip(free, chosen, strict=True))))
            if part not in seen:
                seen.add(part)
                yield Feature(part, (False, True))


def _indices(variable: Variable, variables: tuple[Bound, ...]) -> Iterator[tuple[Expr, ...]]:
    choices: list[list[Expr]] = []
    for key in variable.keys:
        if isinstance(key, Enumeration):
            choices.append([Const(member, Element(key)) for member in key.members])
        else:
            choices.append([v for v in variables if v.domain == key])
    yield from product(*choices)


def _options(variable: Variable, variables: tuple[Bound, ...]) -> tuple[Option, ...]:
    match variable.type:
        case Bool():
            return (False, True)
        case Counter(low, high):
            return tuple(range(low, high + 1))
        case Element(Enumeration() as enumeration):
            return enumeration.members
        case Maybe(Enumeration() as enumeration):
            return (None, *enumeration.members)
        case Element(domain) | Maybe(domain):
            own = tuple(v for v in variables if v.domain == domain)
            return (*((None,) if isinstance(variable.type, Maybe) else ()), *own, OTHER)
        case _:
            return ()


def _patterns(system: TransitionSystem, quantified: bool) -> Iterator[Expr]:
    """Parts of the spec's expressions that become features whatever elements they speak of."""
    found: dict[Expr, None] = {}
    for expr in system.expressions():
        for node in walk(expr):
            if isinstance(node, Apply) and node.operator in (Operator.LT, Operator.LE, Operator.EQ):
                if all(_is_plain(part) for part in node.arguments) and _is_comparison(node):
                    found[_comparison(node)] = None
            elif quantified and isinstance(node, Quantified) and node.binder is not Binder.COUNT:
                found[node] = None
    yield from found


def _is_plain(expr: Expr) -> bool:
    return not any(isinstance(node, Quantified) for node in walk(expr))


def _is_comparison(node: Apply) -> bool:
    """A comparison of numbers, or of two values of one function into a sort."""
    if any(isinstance(part.type, Number) for part in node.arguments):
        return True
    return node.operator is Operator.EQ and all(
        isinstance(part, Read) and isinstance(part.type, Element | Maybe) and isinstance(part.type.domain, Sort) for part in node.arguments
    )


def _comparison(node: Apply) -> Expr:
    """A comparison of which the negation is not told apart: ``a < b`` is ``not b <= a``."""
    if node.operator is Operator.LT:
        left, right = node.arguments
        return Apply(Operator.LE, (right, left), BOOL)
    return node


def _ordered(expr: Expr) -> Expr:
    """``a == b`` and ``b == a`` as one."""
    if isinstance(expr, Apply) and expr.operator is Operator.EQ:
        return Apply(Operator.EQ, tuple(sorted(expr.arguments, key=repr)), BOOL)
    return expr


# -- clauses as conditions of a spec


def condition(name: str, template: Template, box: Box) -> Condition:
    """The clause as a lemma: what must not be together, said as ``implies(premise, conclusion)``."""
    used: set[str] = set()
    for position, _ in box.sides:
        used |= free_names(template.features[position].expr)
    for position, chosen in box.sides:
        options = template.features[position].options
        used |= {option.name for number in _smaller(options, chosen)[0] if isinstance(option := options[number], Bound)}
    variables = tuple(variable for variable in template.variables if variable.name in used)
    premises: list[Expr] = []
    conclusions: list[Expr] = []
    for position, chosen in box.sides:
        feature = template.features[position]
        expr, inside = _said(feature, chosen)
        (premises if inside else conclusions).append(expr)
    same = [
        Apply(Operator.EQ, pair, BOOL) for pair in combinations(variables, 2) if pair[0].domain == pair[1].domain
    ]
    if not conclusions and same:
        conclusions, same = list(same), []
    premises += [negation(pair) for pair in same]
    if not conclusions:
        conclusions = [negation(premises.pop())]
    conclusion = conclusions[0] if len(conclusions) == 1 else Apply(Operator.OR, tuple(conclusions), BOOL)
    said = conclusion if not premises else Apply(Operator.IMPLIES, (conjunction(premises), conclusion), BOOL)
    first: dict[str, Expr] = {}  # a variable that is the only one of its sort has the name of the first
    kept: list[Bound] = []
    for variable in variables:
        same_sort = [other for other in template.variables if other.domain == variable.domain]
        name_of = same_sort[sum(other.domain == variable.domain for other in kept)]
        first[variable.name] = name_of
        kept.append(name_of)
    return Condition(name, tuple(kept), substitute(said, first))


def _smaller(options: Sequence[Option], chosen: frozenset[int]) -> tuple[tuple[int, ...], bool]:
    """The values to list, and whether they are those in the box (else: those outside of it)."""
    inside = tuple(number for number in range(len(options)) if number in chosen)
    outside = tuple(number for number in range(len(options)) if number not in chosen)
    others = [number for number, option in enumerate(options) if option is OTHER]
    if others:
        return (outside, False) if others[0] in chosen else (inside, True)
    if len(options) == 2:
        return ((1,), True) if 1 in chosen else ((1,), False)
    return (inside, True) if len(inside) < len(outside) else (outside, False)


def _said(feature: Feature, chosen: frozenset[int]) -> tuple[Expr, bool]:
    """An expression and whether it says that the feature is in the box (else: that it is not)."""
    listed, inside = _smaller(feature.options, chosen)
    parts = [_is(feature, feature.options[number]) for number in listed]
    if not parts:
        return FALSE, inside
    return (parts[0] if len(parts) == 1 else Apply(Operator.OR, tuple(parts), BOOL)), inside


def _is(feature: Feature, option: Option) -> Expr:
    kind = feature.expr.type
    if isinstance(option, bool):
        return feature.expr if option else negation(feature.expr)
    if option is None:
        return Apply(Operator.IS_NONE, (feature.expr,), BOOL)
    if isinstance(option, Bound):
        return Apply(Operator.EQ, (feature.expr, option), BOOL)
    assert not isinstance(option, Other)
    value = Const(option, Element(kind.domain)) if isinstance(kind, Element | Maybe) else Const(option, kind)
    return Apply(Operator.EQ, (feature.expr, value), BOOL)
