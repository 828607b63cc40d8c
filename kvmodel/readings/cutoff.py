"""A second opinion on verification conditions that trusts no solver: every valuation that matters, enumerated.

A counterexample to a condition needs the elements that its parameters name, those that a "some" in it calls for, and the
values of functions at these (`cut_off` counts them). Here a condition is looked at with the elements of its parameters
alone, for every way in which these can coincide: of all other elements only *whether some other element* satisfies a
formula is kept, as one more truth value, and a function's value among them is "another". Every state of every size has
such a picture, so a condition without a bad picture holds at any size. Where a bad picture says that some other element
satisfies a formula, that element is drawn into it, and so on; a bad picture that needs no other element is a
counterexample, complete in itself.

Only the *footprint* is enumerated: the places that premises and goal mention, then, while bad pictures are left, those of
instances of hypotheses, the ones that bring fewest new values first. Leaving hypotheses out makes a condition stronger,
so that the names of those to use are a hint and nothing more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import product
from math import prod

import numpy as np

from kvmodel.errors import InternalError
from kvmodel.language.expressions import FALSE, Apply, Bound, Const, Expr, Named, Quantified, Read, walk
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import TransitionSystem
from kvmodel.language.types import BOOL, Bool, Counter, Element, Enumeration, Maybe, Sort, Span, Type, Value
from kvmodel.readings.conditions import Induction, VerificationCondition
from kvmodel.readings.fragment import fragment
from kvmodel.readings.ground import cells
from kvmodel.readings.orders import Difference, smallest_numbers
from kvmodel.readings.picture import (
    Cells,
    Comparison,
    Environment,
    FlagValue,
    NotPictured,
    Picture,
    Place,
    Sizes,
    SomeOther,
    normal,
    required,
)
from kvmodel.readings.valuations import NONE, Codes, Constraint, TooMany, Valuations

__all__ = ["LIMIT", "CutOff", "Judgement", "Need", "SecondOpinion", "SecondReader", "cut_off", "missing", "second_opinion"]

LIMIT = 50_000_000  # valuations that are looked at for one condition
MOST_PICTURES = 1_000  # for one condition: patterns of its parameters, and elements drawn
WIDE = 6  # places of one disjunction; a wider one is looked at case by case
MANY = 100_000  # new valuations; before so many are made, other constraints are tried on a sample of them
MOST_TRIED = 12
APART = 1_000_000  # what shares no place with the footprint comes last
EXTRA = 2  # elements drawn beyond the cut-off: which one a row needs first is a guess. Without a cut-off, beyond the parameters


NOWHERE = Span()


@dataclass(frozen=True, slots=True)
class Need:
    """`count` elements of `sort` that a counterexample may need, and what for."""

    sort: str
    count: int
    why: str
    at: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class CutOff:
    """How many elements of each sort a smallest counterexample can need. `reason` says why there is no such number, when
    there is none; then `needs` is empty."""

    needs: tuple[Need, ...]
    reason: str = ""

    @property
    def sizes(self) -> Mapping[str, int]:
        """The number of elements by sort: never less than one."""
        found: dict[str, int] = {}
        for need in self.needs:
            found[need.sort] = found.get(need.sort, 0) + need.count
        return found


def cut_off(system: TransitionSystem, condition: VerificationCondition) -> CutOff:
    """The cut-off of a condition: its parameters, an element for each "some" in its negation (for each value of the "for
    all" that it depends on), and the values of functions. Outside of the decidable fragment there is none."""
    found = fragment(system, condition)
    if not found.decidable:
        return CutOff((), f"{found}; {found.advice}")
    needs = [Need(c.domain.name, 1, f"parameter {c.name}", c.at) for c in condition.constants if isinstance(c.domain, Sort)]
    members = {enumeration.name: len(enumeration.members) for enumeration in system.enumerations}
    waiting = [sort.name for sort in system.sorts]
    done: dict[str, int] = {}
    while waiting:
        ready = next(s for s in waiting if not any(e.target == s and e.source in waiting for e in found.edges))
        for terms in found.terms:
            if terms.sort == ready:
                count = prod(members[need] if need in members else done[need] for need in terms.needs)
                per = f" for each {' and '.join(terms.needs)}" if terms.needs else ""
                why = f"value of {terms.function}{per}" if terms.function else f"some {ready}{per} in {terms.part}"
                needs.append(Need(ready, count, why, terms.at))
        if not any(need.sort == ready for need in needs):
            needs.append(Need(ready, 1, "a sort is never empty"))
        done[ready] = sum(need.count for need in needs if need.sort == ready)
        waiting.remove(ready)
    return CutOff(tuple(needs))


class Judgement(Enum):
    """What the second opinion says of a condition."""

    AGREED = "agreed"  # no state of any size breaks it
    DISAGREED = "disagreed"  # a state breaks it
    TOO_LARGE = "too large"  # more valuations than the limit
    OUTSIDE = "outside its terms"  # no cut-off, or something that is not enumerated


@dataclass(frozen=True, slots=True)
class SecondOpinion:
    """What enumeration says of one condition with the hypotheses of the claims in `used`.

    `states` counts the valuations that were looked at, `places` the largest footprint, `elements` the most elements of each
    sort that were told apart, in `pictures` pictures. `valuation` is the state that breaks the condition, place by place.
    """

    step: str
    claim: str
    judgement: Judgement
    used: frozenset[str] = frozenset()
    cut_off: CutOff = CutOff(())
    elements: tuple[tuple[str, int], ...] = ()
    states: int = 0
    places: int = 0
    pictures: int = 0
    seconds: float = 0.0
    reason: str = ""
    valuation: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """``land/isolated_read``."""
        return f"{self.step}/{self.claim}"


def _cases(picture: Picture, constraints: list[Constraint]) -> Iterator[list[Constraint]]:
    """Constraints case by case, where one of them is a disjunction over many places: each case has fewer."""
    widest = max(constraints, key=lambda constraint: len(constraint.slots), default=None)
    if widest is None or len(widest.slots) <= WIDE:
        yield constraints
        return
    spread = normal(widest.condition, True)
    if not isinstance(spread, Apply) or spread.operator is not Operator.OR:
        yield constraints
        return
    rest = [constraint for constraint in constraints if constraint is not widest]
    for part in spread.arguments:
        yield from _cases(picture, [*rest, *picture.constraints(part)])


@dataclass
class _Run:
    """What one condition needs while it is looked at, and its figures."""

    condition: VerificationCondition
    most: Sizes | None
    states: int = 0
    places: int = 0
    pictures: int = 0
    elements: dict[str, int] = field(default_factory=dict)


class SecondReader:
    """Gives second opinions on the conditions of one system; it remembers what it has grounded.

    `system` is the one that the conditions were made from (`Induction.system`); `limit` bounds the valuations of one condition.
    """

    def __init__(self, system: TransitionSystem, *, limit: int = LIMIT) -> None:
        self.system = system
        self.limit = limit
        self.cells = Cells()
        self._pictures: dict[tuple[tuple[str, int], ...], Picture] = {}
        self._consistent: dict[tuple[tuple[int, ...], tuple[bool, ...]], bool] = {}

    def opinion(self, condition: VerificationCondition, used: Collection[str] | None = None) -> SecondOpinion:
        """Whether `condition` holds at any size with the hypotheses of the claims in `used` (None: all)."""
        started = time.monotonic()
        if used is not None:
            condition = condition.under(used)
        names = frozenset(name for name, _ in condition.hypotheses)
        limits = cut_off(self.system, condition)
        run = _Run(condition, None if limits.reason else limits.sizes)
        judgement, reason = Judgement.AGREED, ""
        valuation: tuple[str, ...] = ()
        try:
            self._refuse_counters(condition, names)
            for environment, sizes in self._patterns(condition):
                bad = self._search(run, sizes, environment, ())
                if bad is not None:
                    judgement, valuation = Judgement.DISAGREED, bad
                    reason = "a state satisfies the hypotheses and premises and not the goal"
                    break
        except TooMany as problem:
            judgement = Judgement.TOO_LARGE
            figure = run.states + problem.valuations
            over = f"over the limit of {self.limit:,}" if figure > self.limit else "more at a time than fits in memory"
            reason = f"{figure:,} valuations or more, {over}"
        except NotPictured as problem:
            judgement, reason = Judgement.OUTSIDE, str(problem)
        return SecondOpinion(
            condition.step, condition.claim, judgement, names, limits, tuple(sorted(run.elements.items())), run.states, run.places,
            run.pictures, time.monotonic() - started, reason, valuation,
        )

    def _refuse_counters(self, condition: VerificationCondition, used: frozenset[str]) -> None:
        """A counter is enumerated within its range, which has to be among the hypotheses."""
        for name in _variables(condition):
            if isinstance(self.system.by_name[name].type, Counter) and f"range:{name}" not in used:
                raise NotPictured(f"the counter {name} is enumerated within its range only, and range:{name} is not a hypothesis")

    def _patterns(self, condition: VerificationCondition) -> Iterator[tuple[Environment, Sizes]]:
        """Every way in which the parameters can coincide, with the number of different elements a sort."""
        groups: dict[str, list[Bound]] = {}
        for constant in condition.constants:
            groups.setdefault(constant.domain.name, []).append(constant)
        choices: list[list[tuple[dict[str, Const], str, int]]] = []
        for group in groups.values():
            domain = group[0].domain
            kind = Element(domain)
            ways: Iterable[tuple[Value, ...]] = _partitions(len(group))
            if isinstance(domain, Enumeration):
                ways = product(domain.members, repeat=len(group))
            choices.append(
                [({c.name: Const(v, kind) for c, v in zip(group, way, strict=True)}, domain.name, len(set(way))) for way in ways]
            )
        for chosen in product(*choices):
            environment: dict[str, Const] = {}
            sizes = {sort.name: 0 for sort in self.system.sorts}
            for part, name, count in chosen:
                environment |= part
                if name in sizes:
                    sizes[name] = count
            yield environment, sizes

    def picture(self, sizes: Sizes) -> Picture:
        key = tuple(sizes.items())
        if key not in self._pictures:
            self._pictures[key] = Picture(self.system, self.cells, dict(sizes))
        return self._pictures[key]

    def _search(self, run: _Run, sizes: Sizes, environment: Environment, drawn: tuple[Expr, ...]) -> tuple[str, ...] | None:
        """A valuation that breaks the condition, for the given number of elements told apart; None when there is none.

        `drawn` says what the elements that were drawn into the picture satisfy.
        """
        condition = run.condition
        picture = self.picture(sizes)
        run.pictures += 1
        if run.pictures > MOST_PICTURES:
            raise NotPictured(f"more than {MOST_PICTURES:,} ways in which elements can coincide or be drawn")
        for name, size in sizes.items():
            run.elements[name] = max(run.elements.get(name, 0), size)
        first: list[Constraint] = []
        for part in drawn:
            first += picture.constraints(part)
        for premise in condition.premises:
            if not _universal(premise):
                first += picture.constraints(picture.ground(premise, environment))
        first += [
            Constraint(part, frozenset(cell.slot for cell in cells(part)))
            for part in required(picture.ground(condition.goal, environment), False)
        ]
        later: list[Constraint] | None = None
        for case in _cases(picture, first):
            table = Valuations(self.limit - run.states)
            try:
                if not self._filter(table, case, sizes):
                    continue
                if later is None:
                    later = self._later(picture, condition, environment)
                if not self._filter(table, later, sizes):
                    continue
            finally:
                run.states += table.looked
                run.places = max(run.places, len(table.columns))
            found = self._draw(run, table, sizes, environment, drawn)
            if found is not None:
                return found
        return None

    def _later(self, picture: Picture, condition: VerificationCondition, environment: Environment) -> list[Constraint]:
        """Instances of universal premises, of assumptions and of hypotheses."""
        found = [c for premise in condition.premises if _universal(premise) for c in self._open(picture, premise, environment)]
        found += [c for part in condition.assumptions for c in picture.instances(part)]
        found += [c for _, part in condition.hypotheses for c in picture.instances(part)]
        return list(dict.fromkeys(found))

    def _open(self, picture: Picture, premise: Expr, environment: Environment) -> Iterator[Constraint]:
        """Instances of a 'for all' that may mention parameters."""
        if not environment:
            yield from picture.instances(premise)
            return
        yield from picture.constraints(picture.ground(premise, environment))

    def _filter(self, table: Valuations, constraints: Sequence[Constraint], sizes: Sizes) -> bool:
        """Join the table with constraints, those first that bring fewest new valuations; False when no row is left."""
        waiting = list(constraints)
        if any(constraint.condition == FALSE for constraint in waiting):
            return False
        compared = 0
        while waiting:
            ranks: list[tuple[int, int, int]] = []
            ready = []
            others = self._others(table)
            for position, constraint in enumerate(waiting):
                missing = constraint.slots - table.columns.keys()
                if not missing:
                    ready.append(position)
                elif not ready:
                    growth = prod(len(self._codes(slot, sizes, others)) for slot in missing)
                    shared = len(constraint.slots) - len(missing)
                    ranks.append((growth if shared or not table.columns else growth * APART, -shared, position))
            for position in ready:
                table.join(waiting[position], ())
                if not table.rows:
                    return False
            if ready:
                gone = set(ready)
                waiting = [constraint for position, constraint in enumerate(waiting) if position not in gone]
            elif ranks:
                constraint = waiting.pop(self._best(table, waiting, ranks, sizes))
                table.join(constraint, self._missing(table, constraint, sizes))
            orders = [slot for slot in table.columns if isinstance(self.cells.all[slot].key, Comparison)]
            if len(orders) > compared:
                compared = len(orders)
                table.consistent(orders, lambda truth, slots=tuple(orders): self._possible(slots, truth))  # type: ignore[misc]
            if not table.rows:
                return False
        return True

    def _best(self, table: Valuations, waiting: Sequence[Constraint], ranks: list[tuple[int, int, int]], sizes: Sizes) -> int:
        """The position of the constraint to join next: of those that bring fewest new valuations, where these are many, the
        one that leaves fewest of them."""
        growth, _, position = min(ranks)
        if growth >= APART or growth * table.rows < MANY:
            return position
        tried = [candidate for candidate in sorted(ranks)[:MOST_TRIED] if candidate[0] <= growth * MOST_TRIED]
        return min((table.trial(waiting[i], self._missing(table, waiting[i], sizes)), g, i) for g, _, i in tried)[2]

    def _missing(self, table: Valuations, constraint: Constraint, sizes: Sizes) -> list[tuple[int, Codes]]:
        """The cells of a constraint that have no column yet, with the codes that they range over."""
        missing: list[tuple[int, Codes]] = []
        others = self._others(table)
        for slot in sorted(constraint.slots - table.columns.keys()):
            missing.append((slot, self._codes(slot, sizes, others)))
            sort = _valued_in(self.cells.all[slot].cell.type)
            if sort:
                others[sort] = others.get(sort, 0) + 1
        return missing

    def _others(self, table: Valuations) -> dict[str, int]:
        """How many columns have values in each sort: as many other elements can be told apart."""
        found: dict[str, int] = {}
        for slot in table.columns:
            sort = _valued_in(self.cells.all[slot].cell.type)
            if sort:
                found[sort] = found.get(sort, 0) + 1
        return found

    def _codes(self, slot: int, sizes: Sizes, others: Mapping[str, int]) -> Codes:
        """The codes that a cell ranges over. A value among the other elements is `sizes` or more: as many codes as there can
        be different ones."""
        kind = self.cells.all[slot].cell.type
        match kind:
            case Bool():
                return (0, 1)
            case Element(Enumeration() as domain):
                return tuple(range(len(domain.members)))
            case Maybe(Enumeration() as domain):
                return (NONE, *range(len(domain.members)))
            case Element(Sort() as sort) | Maybe(Sort() as sort):
                within = tuple(range(sizes[sort.name] + others.get(sort.name, 0) + 1))
                return (NONE, *within) if isinstance(kind, Maybe) else within
            case Counter(low, high):
                return tuple(range(low, high + 1))
            case _:
                raise InternalError(f"a cell of type {kind!r} is not enumerated")

    def _possible(self, slots: tuple[int, ...], truth: tuple[bool, ...]) -> bool:
        """Whether comparisons of numbers can have these truth values together."""
        key = (slots, truth)
        if key not in self._consistent:
            chosen: list[Difference] = []
            for slot, value in zip(slots, truth, strict=True):
                entry = self.cells.all[slot].key
                assert isinstance(entry, Comparison)
                chosen.append(entry.difference if value else entry.difference.negated())
            numbers = sorted({side for d in chosen for side in (d.left, d.right) if side is not None})
            base = [Difference(None, number, 0) for number in numbers]
            self._consistent[key] = smallest_numbers(numbers, [*base, *chosen]) is not None
        return self._consistent[key]

    def _draw(
        self, run: _Run, table: Valuations, sizes: Sizes, environment: Environment, drawn: tuple[Expr, ...]
    ) -> tuple[str, ...] | None:
        """Rows are left: each that needs another element is looked at again with that element in the picture."""
        while table.rows:
            needing = []
            for slot, column in table.columns.items():
                entry = self.cells.all[slot]
                sort = _valued_in(entry.cell.type)
                if isinstance(entry.key, SomeOther):
                    # a question from before an element was drawn is in what drawn elements satisfy, and asked anew elsewhere
                    if entry.key.number == sizes[entry.key.sort.name]:
                        needing.append((slot, column != 0))
                elif sort:
                    needing.append((slot, column >= sizes[sort]))
            needs = sum((mask.astype(np.int16) for _, mask in needing), np.zeros(table.rows, dtype=np.int16))
            simplest = int(needs.argmin())
            if needs[simplest] == 0:
                empty = [name for name, size in sizes.items() if size == 0]
                if not empty:
                    return self._shown(table.row(simplest), sizes, environment)
                # no sort is empty, so that drawing any element loses nothing
                return self._search(run, {**sizes, empty[0]: 1}, environment, drawn)
            slot, mask = next((slot, mask) for slot, mask in needing if mask[simplest])
            entry = self.cells.all[slot]
            if isinstance(entry.key, SomeOther):
                name, fact = entry.key.sort.name, entry.key.body
            else:
                kind = entry.cell.type
                assert isinstance(kind, Element | Maybe)
                name = kind.domain.name
                fact = Apply(Operator.EQ, (entry.cell, Const(sizes[name], Element(kind.domain))), BOOL)
            self._refuse_more(run, name, sizes)
            found = self._search(run, {**sizes, name: sizes[name] + 1}, environment, (*drawn, fact))
            if found is not None:
                return found
            table.keep(~mask)
        return None

    def _refuse_more(self, run: _Run, sort: str, sizes: Sizes) -> None:
        own = sum(c.domain.name == sort for c in run.condition.constants)
        most = (run.most[sort] if run.most is not None else own) + EXTRA
        if sizes[sort] + 1 > most:
            if run.most is None:
                found = fragment(self.system, run.condition)
                raise NotPictured(f"{found}; {found.advice}")
            raise NotPictured(f"it took more than {most} elements of {sort}")

    def _shown(self, row: Mapping[int, int], sizes: Sizes, environment: Environment) -> tuple[str, ...]:
        lines = [f"{name} = {_label(value, value.type)}" for name, value in environment.items()]
        for slot, number in sorted(row.items()):
            entry = self.cells.all[slot]
            match entry.key:
                case Place(variable, index):
                    kinds = self.system.by_name[variable].keys
                    where = ", ".join(_label(Const(v, Element(k)), Element(k)) for v, k in zip(index, kinds, strict=True))
                    lines.append(f"{variable}[{where}] = {_decoded(number, entry.cell.type)}")
                case FlagValue(flag):
                    lines.append(f"{flag} = {_decoded(number, BOOL)}")
                case Comparison(difference):
                    left, right = (self._number(side) for side in (difference.left, difference.right))
                    lines.append(f"{left} - {right} {'<=' if number else '>'} {difference.bound}")
                case _:
                    pass
        return tuple(lines)

    def _number(self, slot: int | None) -> str:
        if slot is None:
            return "0"
        key = self.cells.all[slot].key
        if not isinstance(key, Place):
            return "a number"
        kinds = self.system.by_name[key.variable].keys
        where = ", ".join(_label(Const(v, Element(k)), Element(k)) for v, k in zip(key.index, kinds, strict=True))
        return f"{key.variable}[{where}]" if where else key.variable


def _label(value: Const, kind: Type) -> str:
    domain = kind.domain if isinstance(kind, Element | Maybe) else None
    return f"{domain.name[0].lower()}{value.value}" if isinstance(domain, Sort) else str(value.value)


def _decoded(number: int, kind: Type) -> str:
    if isinstance(kind, Bool):
        return "yes" if number else "no"
    if number == NONE:
        return "none"
    if isinstance(kind, Element | Maybe):
        domain = kind.domain
        return domain.members[number] if isinstance(domain, Enumeration) else f"{domain.name[0].lower()}{number}"
    return str(number)


def _valued_in(kind: Type) -> str:
    """The sort in which a value of type `kind` is, or nothing."""
    return kind.domain.name if isinstance(kind, Element | Maybe) and isinstance(kind.domain, Sort) else ""


def _universal(expr: Expr) -> bool:
    while isinstance(expr, Named):
        expr = expr.body
    return isinstance(expr, Quantified) and expr.binder is Binder.ALL


def _variables(condition: VerificationCondition) -> frozenset[str]:
    return frozenset(node.variable for expr in condition.expressions() for node in walk(expr) if isinstance(node, Read))


def _partitions(count: int) -> Iterator[tuple[int, ...]]:
    """Every way in which `count` names can stand for the same or different elements, numbered in order of first use."""
    if count == 0:
        yield ()
        return
    for start in _partitions(count - 1):
        for value in range(max(start, default=-1) + 2):
            yield (*start, value)


def second_opinion(
    induction: Induction,
    results: Iterable[tuple[str, str, Collection[str]]],
    *,
    limit: int = LIMIT,
    progress: Callable[[str], None] | None = None,
) -> tuple[SecondOpinion, ...]:
    """Second opinions on conditions, each a step, a claim and the claims whose hypotheses are to be used.

    The opinions come in the order asked for. Ctrl-C ends it early: those reached so far are returned.
    """
    reader = SecondReader(induction.system, limit=limit)
    found: list[SecondOpinion] = []
    try:
        for step, claim, used in results:
            if progress is not None:
                progress(f"{len(found):,} conditions looked at; {step}/{claim}")
            found.append(reader.opinion(induction.condition(step, claim), used))
    except KeyboardInterrupt:
        pass
    return tuple(found)


def missing(induction: Induction, opinions: Iterable[SecondOpinion], names: Iterable[str]) -> tuple[str, ...]:
    """The conditions that `opinions` would have to agree with, and do not, for the claims called `names` to be proved by them
    alone: every condition of these claims, of the claims that were used for them, and so on."""
    agreed = {(o.step, o.claim): o.used for o in opinions if o.judgement is Judgement.AGREED}
    wanted = list(dict.fromkeys(names))
    lacking = []
    for claim in wanted:  # grows while it is walked
        for step in induction.steps(claim):
            used = agreed.get((step, claim))
            if used is None:
                lacking.append(f"{step}/{claim}")
            else:
                wanted += sorted(used - set(wanted))
    return tuple(lacking)
