"""Random small transition systems, made with the builder API by a Hypothesis strategy.

Each has a protocol-like chain at its heart: things of a sort go through stages, one action a stage, with guards, side
effects and short cuts drawn at random. Uniformly random systems are nearly always dead or trivially violated; a chain
gives runs of some depth. Candidates for properties are drawn too, and judged by a naive search of the system without
them, so that one system can be asked to hold and another to be violated late.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import Any, TypeVar

from hypothesis import reject
from hypothesis import strategies as st

from kvmodel.errors import UsageError
from kvmodel.language.build import (
    ANYTHING,
    Builder,
    Place,
    add,
    all_,
    and_,
    any_,
    at_most,
    constant,
    count,
    eq,
    if_,
    implies,
    is_none,
    less,
    member,
    none,
    not_,
    or_,
    the,
    var,
)
from kvmodel.language.expressions import Bound, Expr, Named, conjuncts
from kvmodel.language.instance import Instance, State
from kvmodel.language.system import Condition, FlagKind, TransitionSystem, Update
from kvmodel.language.text import system_text
from kvmodel.language.types import Bool, Counter, Domain, Element, Enumeration, Maybe, Number, Sort
from kvmodel.verdict import Verdict
from tests.agreement.oracle import Oracle, TooLarge

__all__ = ["Case", "random_systems"]

MOST_STATES = 150
MOST_PLACES = 10

T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class Case:
    """A random system at a size."""

    system: TransitionSystem
    sizes: tuple[tuple[str, int], ...]

    def __repr__(self) -> str:
        return f"at {self.instance.describe_size()}:\n{system_text(self.system)}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How Hypothesis prints a failing case: as text, not field by field."""
        printer.text(repr(self))

    @property
    def instance(self) -> Instance:
        return Instance.make(self.system, dict(self.sizes))


@dataclass
class Draw:
    """Draws, by their purpose."""

    draw: st.DrawFn

    def pick(self, options: Sequence[T]) -> T:
        return self.draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def chance(self, percent: int) -> bool:
        return self.number(0, 99) < percent


@dataclass
class Vocabulary:
    """What a system has declared so far, and random expressions over it.

    `scope` is the tuple of parameters and quantified variables that an expression may use; `fuel` how deep it may go.
    """

    d: Draw
    sorts: list[Sort] = field(default_factory=list)
    enumerations: list[Enumeration] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    flags: list[Expr] = field(default_factory=list)
    rigid_only: bool = False
    fresh: int = 0

    def variable(self, domain: Domain) -> Bound:
        self.fresh += 1
        return var(f"v{self.fresh}", domain)

    def _of(self, wanted: Callable[[Place], bool]) -> list[Place]:
        return [place for place in self.places if wanted(place) and (place.variable.rigid or not self.rigid_only)]

    def index(self, place: Place, scope: tuple[Bound, ...], fuel: int) -> tuple[Expr, ...] | None:
        """Keys for a place, or None when there is nothing to key it with."""
        keys = [self.element(key, scope, fuel - 1) for key in place.variable.keys]
        return None if any(key is None for key in keys) else tuple(key for key in keys if key is not None)

    def read(self, wanted: Callable[[Place], bool], scope: tuple[Bound, ...], fuel: int) -> Expr | None:
        places = self._of(wanted)
        if not places:
            return None
        place = self.d.pick(places)
        index = self.index(place, scope, fuel)
        return None if index is None else place(*index)

    def element(self, domain: Domain, scope: tuple[Bound, ...], fuel: int) -> Expr | None:
        """An element of a sort or a member of an enumeration; None when there is no way to name one."""
        options: list[Callable[[], Expr | None]] = [lambda bound=bound: bound for bound in scope if bound.domain == domain]  # type: ignore[misc]
        if isinstance(domain, Enumeration):
            options.append(lambda: member(domain, self.d.pick(domain.members)))
        if fuel > 0:
            holders = self._of(lambda place: place.variable.type == Element(domain))
            if holders:
                options.append(lambda: self.read(lambda place: place.variable.type == Element(domain), scope, fuel))
            if options and fuel > 1 and self.d.chance(15):
                options.append(lambda: self._choice(domain, scope, fuel))
        return self.d.pick(options)() if options else None

    def _choice(self, domain: Domain, scope: tuple[Bound, ...], fuel: int) -> Expr | None:
        """``maybe if it is not None else other``, or a plain ``if``."""
        other = self.element(domain, scope, fuel - 1)
        maybe = self.read(lambda place: place.variable.type == Maybe(domain), scope, fuel - 1)
        if other is None:
            return None
        if maybe is not None:
            return if_(is_none(maybe), other, the(maybe))
        then = self.element(domain, scope, fuel - 1)
        return None if then is None else if_(self.truth(scope, fuel - 2), then, other)

    def maybe(self, domain: Domain, scope: tuple[Bound, ...], fuel: int) -> Expr:
        """An element of a sort, or None."""
        options = [none(domain)]
        options += [e for e in (self.element(domain, scope, fuel),) if e is not None] * 2
        options += [e for e in (self.read(lambda place: place.variable.type == Maybe(domain), scope, fuel),) if e is not None]
        return self.d.pick(options)

    def integer(self, scope: tuple[Bound, ...], fuel: int) -> Expr:
        """A counter, a count, a constant, a sum."""
        options: list[Callable[[], Expr | None]] = [lambda: constant(self.d.number(0, 2))]
        options += [lambda: self.read(lambda place: isinstance(place.variable.type, Counter), scope, fuel)] * 2
        if fuel > 0 and self.sorts and not self.rigid_only:
            options.append(lambda: self._count(scope, fuel))
            options.append(lambda: add(self.integer(scope, fuel - 1), self.integer(scope, 0)))
            options.append(lambda: if_(self.truth(scope, fuel - 1), self.integer(scope, 0), self.integer(scope, 0)))
        found = self.d.pick(options)()
        return constant(1) if found is None else found

    def _count(self, scope: tuple[Bound, ...], fuel: int) -> Expr:
        bound = self.variable(self.d.pick(self.sorts))
        return count([bound], self.truth((*scope, bound), fuel - 1))

    def _numbers(self, scope: tuple[Bound, ...], fuel: int) -> Expr | None:
        """A comparison of rigid numbers."""
        left, right = (self.read(lambda place: isinstance(place.variable.type, Number), scope, fuel) for _ in range(2))
        if left is None or right is None:
            return None
        shifted = add(left, self.d.number(-1, 2)) if self.d.chance(30) else left
        return self.d.pick([at_most, less, eq])(shifted, constant(self.d.number(0, 2)) if self.d.chance(15) else right)

    def truth(self, scope: tuple[Bound, ...], fuel: int) -> Expr:
        """A truth value."""
        options: list[Callable[[], Expr | None]] = []
        options += [lambda: self.read(lambda place: place.variable.type == Bool(), scope, fuel)] * 3
        options += [lambda: self._membership(scope, fuel)] * 4
        options += [lambda: self._equal(scope, fuel)] * 3
        options += [lambda: self._numbers(scope, fuel)]
        if self.flags:
            options += [lambda: self.d.pick(self.flags)]
        if fuel > 0:
            options += [lambda: not_(self.truth(scope, fuel - 1))] * 2
            options += [lambda: self.d.pick([and_, or_])(*(self.truth(scope, fuel - 1) for _ in range(self.d.number(2, 3))))] * 2
            options += [lambda: implies(self.truth(scope, fuel - 1), self.truth(scope, fuel - 1))]
            options += [lambda: if_(self.truth(scope, fuel - 1), self.truth(scope, fuel - 1), self.truth(scope, fuel - 1))]
            options += [lambda: self.d.pick([less, at_most, eq])(self.integer(scope, fuel - 1), self.integer(scope, fuel - 1))]
            options += [lambda: self._quantified(scope, fuel)] * 2
            options += [lambda: Named("notion", (), self.truth(scope, fuel - 1))]
        for _ in range(4):
            found = self.d.pick(options)()
            if found is not None:
                return found
        return constant(True)

    def _quantified(self, scope: tuple[Bound, ...], fuel: int) -> Expr:
        domains: list[Domain] = [*self.sorts, *self.enumerations]
        bound = self.variable(self.d.pick(domains))
        body = self.truth((*scope, bound), fuel - 1)
        return all_([bound], body) if self.d.chance(50) else any_([bound], body)

    def _membership(self, scope: tuple[Bound, ...], fuel: int) -> Expr | None:
        """Something about a possible none, under a membership test."""
        held = self.read(lambda place: isinstance(place.variable.type, Maybe), scope, fuel)
        if held is None:
            return None
        assert isinstance(held.type, Maybe)
        domain = held.type.domain
        ways: list[Callable[[], Expr | None]] = [lambda: is_none(held), lambda: eq(held, self.maybe(domain, scope, fuel - 1))]
        uses = self._of(lambda place: place.variable.keys == (domain,) and place.variable.type == Bool())
        staged = self._of(lambda place: place.variable.keys == (domain,) and isinstance(place.variable.type, Element))
        if staged:
            kept = self.d.pick(staged)
            assert isinstance(kept.variable.type, Element)
            value = self.element(kept.variable.type.domain, scope, 0)
            if value is not None:
                ways += [lambda: and_(not_(is_none(held)), eq(kept(the(held)), value))] * 2
                ways += [lambda: implies(not_(is_none(held)), not_(eq(kept(the(held)), value)))] * 2
        if uses:
            place = self.d.pick(uses)
            ways += [lambda: and_(not_(is_none(held)), place(the(held)))] * 2
            ways += [lambda: implies(not_(is_none(held)), place(the(held)))] * 2
            ways += [lambda: or_(is_none(held), not_(place(the(held))))] * 2
        return self.d.pick(ways)()

    def _equal(self, scope: tuple[Bound, ...], fuel: int) -> Expr | None:
        domains: list[Domain] = [*self.sorts, *self.enumerations, *self.enumerations]
        domain = self.d.pick(domains)
        left = self.read(lambda place: place.variable.type == Element(domain), scope, fuel) or self.element(domain, scope, fuel)
        right = self.element(domain, scope, fuel)
        return None if left is None or right is None or left == right else eq(left, right)


def _value(words: Vocabulary, place: Place, scope: tuple[Bound, ...]) -> Expr | bool | None:
    """A value to write to a place."""
    d = words.d
    match place.variable.type:
        case Bool():
            return d.pick([True, True, False]) if d.chance(75) else words.truth(scope, 1)
        case Element(domain):
            return words.element(domain, scope, 1)
        case Maybe(domain):
            return words.maybe(domain, scope, 1)
        case Counter(low, high):
            index = words.index(place, scope, 0)
            counted = constant(0) if index is None else place(*index)
            if d.chance(65):  # stays in its range
                return d.pick([if_(less(counted, high), add(counted, 1), counted), if_(at_most(counted, low), counted, add(-1, counted))])
            return d.pick([add(counted, 1), add(counted, -1), words.integer(scope, 1)])
    raise AssertionError(place.variable)


def _update(words: Vocabulary, place: Place, scope: tuple[Bound, ...]) -> list[Update]:
    """Updates of one variable: at one place, perhaps under a condition; at every place; or at two places that differ."""
    d = words.d
    keys = place.variable.keys
    if keys and d.chance(25):  # a loop over the last key, sometimes over every key
        loop = tuple(words.variable(key) for key in (keys if d.chance(40) else keys[-1:]))
        outer = [words.element(key, scope, 1) for key in keys[: len(keys) - len(loop)]]
        value = _value(words, place, (*scope, *loop))
        if value is None or any(part is None for part in outer):
            return []
        condition = words.truth((*scope, *loop), 1) if d.chance(70) else constant(True)
        return [place.set(value, *(part for part in outer if part is not None), *loop, over=loop, condition=condition)]
    index = words.index(place, scope, 1)
    value = _value(words, place, scope)
    if index is None or value is None:
        return []
    if d.chance(30):
        condition = words.truth(scope, 1)
        other = _value(words, place, scope)
        updates = [place.set(value, *index, condition=condition)]
        if other is not None and len(conjuncts(condition)) == 1 and d.chance(50):
            updates.append(place.set(other, *index, condition=not_(condition)))
        return updates
    return [place.set(value, *index)]


def _declare_places(b: Builder, words: Vocabulary, sizes: dict[str, int]) -> None:
    """State variables and rigid ones beside the stages, as many as the state stays small with."""
    d = words.d
    sorts = words.sorts
    def sort() -> Sort:
        return d.pick(sorts)

    def anything_or(value: bool | int | None, percent: int) -> Any:
        return ANYTHING if d.chance(percent) else value

    kinds: dict[str, tuple[int, Callable[[str, tuple[Domain, ...]], Place]]] = {
        "marked": (1, lambda name, keys: b.relation(name, *keys, initial=d.chance(30))),
        "pair": (2, lambda name, keys: b.relation(name, *keys)),
        "lit": (0, lambda name, keys: b.relation(name, initial=anything_or(False, 25))),
        "owner": (1, lambda name, keys: b.function(name, *keys, to=Maybe(sort()))),
        "holder": (0, lambda name, keys: b.function(name, to=Maybe(sort()), initial=anything_or(None, 25))),
        "leader": (0, lambda name, keys: b.function(name, to=sort(), initial=anything_or(0, 50))),
        "used": (0, lambda name, keys: b.counter(name, high=d.number(1, 2))),
        "tries": (1, lambda name, keys: b.counter(name, *keys, high=1)),
    }
    if d.chance(40):
        mode = b.enumeration("Mode", "IDLE", "BUSY")
        words.enumerations.append(mode)
        kinds["mode"] = (0, lambda name, keys: b.function(name, to=mode))
    taken = sizes[sorts[0].name]
    for name in d.draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=3, unique=True)):
        arity, make = kinds[name]
        keys = tuple(sort() for _ in range(arity))
        cells = prod(sizes[key.name] for key in keys)
        if taken + cells <= MOST_PLACES:
            taken += cells
            words.places.append(make(name, keys))
    rigid: dict[str, Callable[[str], Place]] = {
        "large": lambda name: b.relation(name, sort(), rigid=True),
        "team": lambda name: b.function(name, sort(), to=sort(), rigid=True),
        "need": lambda name: b.number(name, sort()),
        "capacity": lambda name: b.number(name),
    }
    if d.chance(45):
        names = d.draw(st.lists(st.sampled_from(sorted(rigid)), min_size=1, max_size=2, unique=True))
        words.places += [rigid[name](name) for name in names]
        if d.chance(60):
            words.rigid_only = True
            bound = words.variable(sorts[0])
            b.assume("sensible", words.truth((bound,), 1), bound)
            words.rigid_only = False
    if d.chance(15) and any(place.variable.initial is ANYTHING and not place.variable.rigid for place in words.places):
        b.initially("agreed", words.truth((), 1))


def _actions(b: Builder, words: Vocabulary, stage: Place, things: Sort, stages: Enumeration) -> None:
    """The chain, and what happens beside it."""
    d = words.d
    others = [place for place in words.places if not place.variable.rigid and place.variable != stage.variable]

    def effects(scope: tuple[Bound, ...], percent: int) -> list[Update]:
        updates: list[Update] = []
        for place in others:
            if d.chance(percent):
                updates += _update(words, place, scope)
        return updates

    def asserts(scope: tuple[Bound, ...]) -> dict[str, Expr | bool | int]:
        return {"sound": words.truth(scope, 1)} if d.chance(8) else {}

    flagged = {d.number(0, len(stages.members) - 2): flag for flag in words.flags}
    for number, (before, after) in enumerate(pairwise(stages.members)):
        thing = var("x", things)
        scope: tuple[Bound, ...] = (thing,)
        other = d.pick(words.sorts)
        if d.chance(25):
            scope = (thing, var("y", other))
        guards: dict[str, Expr | bool | int] = {"at stage": eq(stage(thing), member(stages, before))}
        if d.chance(35 if number else 15):
            guards["ready"] = words.truth(scope, d.number(1, 2))
        if number in flagged:
            other_way = words.truth(scope, 1)
            guards["allowed"] = or_(flagged[number], other_way) if d.chance(50) else implies(flagged[number], other_way)
        updates = [stage.set(member(stages, after), thing), *effects(scope, 40)]
        b.action(f"to_{after.lower()}", *scope, guards=guards, asserts=asserts(scope), updates=updates)
    for number in range(d.number(0, 2)):
        scope = tuple(var(name, d.pick(words.sorts)) for name in ("x", "y")[: d.number(0, 2)])
        guards = {"may": words.truth(scope, 2)}
        updates = effects(scope, 60)
        target = next((bound for bound in scope if bound.domain == things), None)
        if target is not None and d.chance(35):
            updates.append(stage.set(member(stages, d.pick(stages.members)), target))
        if len(scope) == 2 and scope[0].domain == scope[1].domain and d.chance(30):
            x, y = scope
            guards["two of them"] = not_(eq(x, y))
            if not any(update.variable == "stage" for update in updates) and x.domain == things:
                updates += [stage.set(stage(y), x), stage.set(stage(x), y)]  # both right-hand sides are of before the step
        b.action(f"also_{number}", *scope, guards=guards, asserts=asserts(scope), updates=updates)


def _late(oracle: Oracle, depth: int) -> Expr:
    """What is false of exactly one state, which is first reached at `depth` steps."""
    target = next(state for state, found in oracle.depths.items() if found == depth)
    return not_(and_(*_description(oracle.instance, target)))


def _description(instance: Instance, state: State) -> list[Expr]:
    """Conditions on counts and scalars that tell a state from most others, without naming elements."""
    parts: list[Expr] = []
    system = instance.system
    for variable in system.state_variables:
        if len(variable.keys) != 1 or not isinstance(variable.type, Bool | Element | Maybe):
            continue
        bound = var("z", variable.keys[0])
        read = Place(variable)(bound)
        slots = [state.values[instance.state_layout.slots[variable.name, (e,)]] for e in instance.elements(variable.keys[0])]
        if isinstance(variable.type, Bool):
            parts.append(eq(count([bound], read), sum(1 for value in slots if value)))
        elif isinstance(variable.type, Maybe):
            parts.append(eq(count([bound], is_none(read)), slots.count(None)))
        elif isinstance(variable.type.domain, Enumeration):
            parts += [eq(count([bound], eq(read, member(variable.type.domain, m))), slots.count(m)) for m in variable.type.domain.members]
    return parts


@dataclass(frozen=True)
class Candidate:
    """A condition that might become a property: its parameters, and where it is first false and first true (or None)."""

    condition: Expr
    parameters: tuple[Bound, ...]
    first_false: int | None
    first_true: int | None


def _judge(oracle: Oracle, condition: Expr, parameters: tuple[Bound, ...]) -> Candidate:
    named = Condition("candidate", parameters, condition)
    false = true = None
    for state, depth in oracle.depths.items():
        if false is None and oracle.interpreter.failing_binding(named, state) is not None:
            false = depth
        if true is None and oracle.interpreter.satisfying_binding(named, state) is not None:
            true = depth
        if false is not None and true is not None:
            break
    return Candidate(condition, parameters, false, true)


def _properties(b: Builder, words: Vocabulary, oracle: Oracle, intent: str) -> None:
    """Properties that fit the intent, as far as the drawn candidates allow."""
    d = words.d
    candidates = []
    for _ in range(d.number(3, 6)):
        parameters = tuple(words.variable(d.pick(words.sorts)) for _ in range(d.number(0, 2)))
        candidates.append(_judge(oracle, words.truth(parameters, d.number(1, 3)), parameters))
    held = [c for c in candidates if c.first_false is None]
    late = [c for c in candidates if c.first_false is not None and c.first_false >= 3]
    early = [c for c in candidates if c.first_false is not None and c.first_false < 3]
    chosen = held[:2]
    if intent == "violated":
        deepest = max(oracle.depths.values())
        chosen = [*late[:2], *held[:1]]
        if not late or (deepest > 3 and d.chance(30)):
            chosen.append(_judge(oracle, _late(oracle, d.number(3, deepest)), ()))
    elif intent == "any":
        chosen = [*late[:1], *early[:1], *held[:1]]
    for number, candidate in enumerate(chosen):
        b.invariant(f"kept_{number}", candidate.condition, *candidate.parameters)
    possible = [c for c in candidates if c.first_true is not None] if intent == "hold" else candidates
    for number, candidate in enumerate(possible[: d.number(0, 2)]):
        b.reachable(f"possible_{number}", candidate.condition, *candidate.parameters)
    stuck = [state for state, after in oracle.successors.items() if not after]
    ends = [c for c in candidates if all(oracle.interpreter.holds_for_all(Condition("", c.parameters, c.condition), s) for s in stuck)]
    if stuck and (intent == "hold" or d.chance(80)):
        if ends and d.chance(50):
            b.final("ended", ends[0].condition, *ends[0].parameters)
        else:
            b.final("anywhere", constant(True))
    elif d.chance(30):
        b.final("sometimes", words.truth((), 1))


@st.composite
def random_systems(draw: st.DrawFn, intent: str = "") -> Case:
    """A small system, its state space fully explored by the oracle within 150 states.

    `intent` is what it is made for: to be ``violated`` after three steps or more, to ``hold``, or ``any`` (drawn unless
    given). Nearly all systems do what they are made for.
    """
    d = Draw(draw)
    intent = intent or d.pick(["violated", "hold", "violated", "hold", "any"])
    words = Vocabulary(d)
    b = Builder("random")
    things = b.sort("Thing")
    words.sorts.append(things)
    sizes = {"Thing": d.pick([2, 2, 3, 1, 2, 3])}
    if d.chance(35):
        words.sorts.append(b.sort("Tool"))
        sizes["Tool"] = d.number(1, 2)
    members = ("NEW", "OPEN", "DONE", "GONE", "LOST")[: 3 if sizes["Thing"] == 3 else d.number(3, 5 if sizes["Thing"] == 1 else 4)]
    stages = b.enumeration("Stage", *members)
    words.enumerations.append(stages)
    sizes["Stage"], sizes["Mode"] = len(members), 2
    stage = b.function("stage", things, to=stages)
    words.places.append(stage)
    if d.chance(50):
        words.flags.append(b.flag("careful", d.chance(50), d.pick([FlagKind.DEFENCE, FlagKind.HAZARD])))
    _declare_places(b, words, sizes)
    _actions(b, words, stage, things, stages)
    wanted = {name: size for name, size in sizes.items() if name in ("Thing", "Tool")}
    try:
        oracle = Oracle(Instance.make(b.build(), wanted), MOST_STATES)
    except (TooLarge, UsageError):
        reject()
    broken = [name for name, (verdict, _) in oracle.answers.items() if verdict is Verdict.VIOLATED and name != "no_deadlock"]
    unfit = {
        "violated": max(oracle.depths.values()) < 3,
        "hold": bool(broken) or len(oracle.depths) < 4,
        "any": False,
    }
    if unfit[intent]:
        reject()
    _properties(b, words, oracle, intent)
    return Case(b.build(), tuple(wanted.items()))
