"""Whether a verification condition stays in a fragment of logic that is decided, and what takes it out.

Effectively propositional logic with stratified functions: negate the condition and move negations inwards; draw an edge
from sort S to sort T for each function from S into T, and for each "there is a T" inside of a "for all S". Without a
cycle, a counterexample needs no more elements than there are terms, so a solver always comes to an end (Padon and
others, "Paxos made EPR", 2017). Numbers and counters are never quantified over, so that they stay beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeAlias

from kvmodel.language.expressions import Apply, Bound, Expr, Named, Quantified, Read, children, free_names, walk
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import TransitionSystem
from kvmodel.language.types import Bool, Counter, Element, Maybe, Number, Sort, Span
from kvmodel.readings.conditions import VerificationCondition

__all__ = ["Edge", "Fragment", "Terms", "fragment"]

NOWHERE = Span()
GOAL = "the goal"
PREMISE = "a premise"
ASSUMPTION = "an assumption"


@dataclass(frozen=True, slots=True)
class Edge:
    """Each element of `source` can call for one of `target`.

    Made by the variable called `function`, or (where that is empty) by a quantifier; `at` is where the variable is
    declared, or the quantifier written. `part` says which part of the condition it is in: the name of the claim that is
    a hypothesis, ``the goal``, ``a premise`` or ``an assumption``. One edge stands for all that are alike.
    """

    source: str
    target: str
    function: str = ""
    part: str = ""
    at: Span = NOWHERE

    @property
    def maker(self) -> str:
        """What makes the edge: ``the function content``, ``'some Page' for every Request, in computed_in_pages``."""
        return f"the function {self.function}" if self.function else f"'some {self.target}' for every {self.source}, in {self.part}"

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}: {self.maker} ({self.at})"


@dataclass(frozen=True, slots=True)
class Terms:
    """Elements of `sort` that a condition can call for: one for each combination of values of `needs` (names of sorts and
    enumerations). Made by a function (`function`), or by a "some" that is written at `at` in `part`."""

    sort: str
    needs: tuple[str, ...]
    function: str = ""
    part: str = ""
    at: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Fragment:
    """Where a condition lies.

    `decidable`: in the fragment. `arithmetic`: it compares numbers or counters, beside linear arithmetic. `cycle`: a
    shortest cycle of sorts, when there is one. `counts`: where it counts elements, when it does, which has no meaning at
    any size. `advice` says what to change, and is empty where nothing has to change. `edges` are all there are, and
    `terms` what calls for elements.
    """

    decidable: bool
    arithmetic: bool = False
    cycle: tuple[Edge, ...] = ()
    counts: Span | None = None
    advice: str = ""
    edges: tuple[Edge, ...] = ()
    terms: tuple[Terms, ...] = ()

    def __str__(self) -> str:
        if self.counts is not None:
            return f"outside the fragment: counts elements of a sort ({self.counts})"
        if self.cycle:
            return f"outside the fragment: {' -> '.join((*(edge.source for edge in self.cycle), self.cycle[-1].target))}"
        return "in the fragment, beside linear arithmetic" if self.arithmetic else "in the fragment"


@dataclass(frozen=True, slots=True)
class _Same:
    """An expression that is equal to itself only: hashing a tree costs more than looking at it again."""

    expr: Expr = field(compare=False)
    identity: int

    @staticmethod
    def of(expr: Expr) -> _Same:
        return _Same(expr, id(expr))


@dataclass(slots=True)
class _Facts:
    """What one expression brings: functions it uses and its quantifiers (both as terms), whether it counts."""

    functions: dict[str, Terms] = field(default_factory=dict)
    quantifiers: list[Terms] = field(default_factory=list)
    arithmetic: bool = False
    counts: Span | None = None


def fragment(system: TransitionSystem, condition: VerificationCondition) -> Fragment:
    """Where the negation of `condition` lies. `system` is the one that the condition was made from."""
    parts: list[tuple[str, _Facts]] = [(GOAL, _facts(_Same.of(condition.goal), False))]
    parts += [(PREMISE, _facts(_Same.of(expr), True)) for expr in condition.premises]
    parts += [(name, _facts(_Same.of(expr), True)) for name, expr in condition.hypotheses]
    parts += [(ASSUMPTION, _facts(_Same.of(expr), True)) for expr in condition.assumptions]
    functions = {name: terms for _, facts in parts for name, terms in facts.functions.items()}
    found = [replace(terms, at=system.by_name[name].at) for name, terms in functions.items()]
    found += [replace(terms, part=part) for part, facts in parts for terms in facts.quantifiers]
    sorts = {sort.name for sort in system.sorts}
    edges = tuple(
        dict.fromkeys(Edge(need, t.sort, t.function, t.part, t.at) for t in found for need in t.needs if need in sorts)
    )
    arithmetic = any(facts.arithmetic for _, facts in parts)
    counting = next(((part, facts.counts) for part, facts in parts if facts.counts is not None), None)
    if counting is not None:
        part, at = counting
        return Fragment(False, True, (), at, f"keep who it is as a relation, and count on finite instances ({part}, {at})", edges)
    cycle = _cycle(edges)
    return Fragment(not cycle, arithmetic, cycle, None, _advice(edges, cycle) if cycle else "", edges, tuple(found))


@lru_cache(maxsize=4096)
def _facts(same: _Same, positive: bool) -> _Facts:
    facts = _Facts()
    for node in walk(same.expr):
        match node:
            case Read(variable, index, kind):
                if isinstance(kind, Element | Maybe) and isinstance(kind.domain, Sort):
                    keys = tuple(part.type.domain.name for part in index if isinstance(part.type, Element | Maybe))
                    facts.functions[variable] = Terms(kind.domain.name, keys, variable)
                facts.arithmetic |= isinstance(kind, Number | Counter)
            case Quantified(Binder.COUNT, variables, _, at):
                facts.arithmetic = True
                if any(isinstance(variable.domain, Sort) for variable in variables):
                    facts.counts = at
            case _:
                pass
    _quantifiers(same.expr, positive, {}, facts.quantifiers)
    return facts


Scope: TypeAlias = Mapping[str, frozenset[Bound]]


def _quantifiers(expr: Expr, positive: bool, scope: Scope, found: list[Terms]) -> None:
    """The terms of the existential quantifiers in `expr`, which is asserted (`positive`) or denied.

    `scope` has, for each variable in whose scope this is, the universal variables that it depends on: itself when it is
    universal, those of its Skolem function otherwise. An existential depends on the variables that its body mentions, and
    on no others.
    """
    match expr:
        case Named(body=body):
            _quantifiers(body, positive, scope, found)
        case Quantified(binder, variables, body, at) if binder is not Binder.COUNT:
            if (binder is Binder.ALL) == positive:
                _quantifiers(body, positive, {**scope, **{v.name: frozenset((v,)) for v in variables}}, found)
                return
            mentioned = free_names(body) - {v.name for v in variables}
            needs = frozenset[Bound]().union(*(scope.get(name, frozenset()) for name in mentioned))
            names = tuple(sorted(need.domain.name for need in needs))
            found += [Terms(v.domain.name, names, at=at) for v in variables if isinstance(v.domain, Sort)]
            _quantifiers(body, positive, {**scope, **{v.name: needs for v in variables}}, found)
        case Apply(Operator.AND | Operator.OR, arguments):
            for part in arguments:
                _quantifiers(part, positive, scope, found)
        case Apply(Operator.NOT, (part,)):
            _quantifiers(part, not positive, scope, found)
        case Apply(Operator.IMPLIES, (premise, conclusion)):
            _quantifiers(premise, not positive, scope, found)
            _quantifiers(conclusion, positive, scope, found)
        case Apply(Operator.IF, (condition, then, otherwise), Bool()):
            for polarity in _both(condition):
                _quantifiers(condition, polarity, scope, found)
            _quantifiers(then, positive, scope, found)
            _quantifiers(otherwise, positive, scope, found)
        case _:
            # a truth value that is compared, chosen by or counted is asserted in one case and denied in the other
            inside: Scope = {**scope, **{v.name: frozenset((v,)) for v in expr.variables}} if isinstance(expr, Quantified) else scope
            for part in children(expr):
                for polarity in _both(part):
                    _quantifiers(part, polarity, inside, found)


def _both(expr: Expr) -> tuple[bool, ...]:
    return (True, False) if any(isinstance(node, Quantified) for node in walk(expr)) else ()


def _cycle(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """A shortest cycle, or nothing."""
    leaving: dict[str, dict[str, Edge]] = {}
    for edge in edges:
        leaving.setdefault(edge.source, {}).setdefault(edge.target, edge)
    best: tuple[Edge, ...] = ()
    for start in leaving:
        paths: dict[str, tuple[Edge, ...]] = {start: ()}
        queue = [start]
        for sort in queue:
            for target, edge in leaving.get(sort, {}).items():
                path = (*paths[sort], edge)
                if target == start:
                    if not best or len(path) < len(best):
                        best = path
                elif target not in paths:
                    paths[target] = path
                    queue.append(target)
    return best


def _advice(edges: tuple[Edge, ...], cycle: tuple[Edge, ...]) -> str:
    """What to change so that no cycle is left."""
    ends = {(edge.source, edge.target) for edge in cycle}
    alike = [edge for edge in edges if (edge.source, edge.target) in ends]
    lemmas = list(dict.fromkeys(e.part for e in alike if not e.function and e.part not in (GOAL, PREMISE, ASSUMPTION)))
    functions = list(dict.fromkeys(e.function for e in alike if e.function))
    ways = []
    if lemmas and not _cycle(edge for edge in edges if edge.part not in lemmas):
        ways.append(f"leave {_listed(lemmas)} out of this condition")
    for name in functions:
        if not _cycle(edge for edge in edges if edge.function != name):
            ways.append(f"make {name} a relation instead of a function")
    if not ways:
        kept = [f"make {name} a relation" for name in functions] + ([f"leave out {_listed(lemmas)}"] if lemmas else [])
        return "it takes more than one change: " + ", ".join(kept or ["say it without 'some' inside of 'every'"])
    return ", or ".join(ways)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
