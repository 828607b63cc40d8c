"""The rules that every transition system obeys; above all, that no step writes one place twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import pytest

from kvmodel.errors import MalformedSystem
from kvmodel.language import check
from kvmodel.language.build import Builder, Place, and_, at_most, eq, implies, is_none, member, not_, the, var
from kvmodel.language.check import problems, writes_that_collide
from kvmodel.language.expressions import Bound, Expr
from kvmodel.language.instance import Binding, Instance, State
from kvmodel.language.system import Action, Update
from kvmodel.language.types import Enumeration, Maybe, Sort, Value
from kvmodel.readings.run import Interpreter

PAGE, REQUEST = Sort("Page"), Sort("Request")
PHASE = Enumeration("Phase", ("NEW", "OLD"))
P, Q, X, R = var("p", PAGE), var("q", PAGE), var("x", PAGE), var("r", REQUEST)


@dataclass(frozen=True)
class World:
    """Places to write, over two sorts and an enumeration."""

    builder: Builder
    free: Place
    holds: Place
    owner: Place
    phase: Place
    step: Place


def world() -> World:
    b = Builder("world")
    assert (b.sort("Page"), b.sort("Request"), b.enumeration("Phase", "NEW", "OLD")) == (PAGE, REQUEST, PHASE)
    return World(
        b,
        b.relation("free", PAGE),
        b.relation("holds", REQUEST, PAGE),
        b.function("owner", PAGE, to=Maybe(REQUEST)),
        b.function("phase", REQUEST, to=PHASE),
        b.relation("step", PHASE),
    )


W = world()
NEW, OLD = member(PHASE, "NEW"), member(PHASE, "OLD")
IS_NEW, HAS_OWNER = eq(W.phase(R), NEW), not_(is_none(W.owner(P)))


def collides(*updates: Update, distinct: tuple[Bound, Bound] | None = None, guard: Expr | None = None) -> bool:
    guards = {} if distinct is None else {"distinct": not_(eq(*distinct))}
    if guard is not None:
        guards["guard"] = guard
    action = Builder("x").action("act", P, Q, R, guards=guards, updates=updates)
    return any(True for _ in writes_that_collide(action))


APART = {
    "different variables": (W.free.set(True, P), W.holds.set(True, R, P)),
    "different constants": (W.step.set(True, NEW), W.step.set(False, OLD)),
    "then and else": (W.free.set(True, P, condition=IS_NEW), W.free.set(False, P, condition=not_(IS_NEW))),
    "two members": (W.free.set(True, P, condition=IS_NEW), W.free.set(False, P, condition=eq(W.phase(R), OLD))),
    "else of one part": (
        W.free.set(True, P, condition=and_(IS_NEW, W.free(Q))),
        W.free.set(False, P, condition=and_(W.free(P), not_(IS_NEW))),
    ),
    "loop but one": (W.free.set(True, P), W.free.set(False, X, over=(X,), condition=not_(eq(X, P)))),
    "two loops": (
        W.free.set(True, X, over=(X,), condition=W.holds(R, X)),
        W.free.set(False, X, over=(X,), condition=not_(W.holds(R, X))),
    ),
    "never": (W.free.set(True, P), W.free.set(False, P, condition=False)),
}
TOGETHER = {
    "one place": (W.free.set(True, P), W.free.set(False, P)),
    "one place, one value": (W.free.set(True, P), W.free.set(True, P)),
    "two parameters": (W.free.set(True, P), W.free.set(False, Q)),
    "loop and place": (W.free.set(True, P), W.free.set(False, X, over=(X,))),
    "loops": (W.free.set(True, X, over=(X,)), W.free.set(False, X, over=(X,))),
    "loop over one place": (W.free.set(True, P, over=(X,)),),
    "loop over one key": (W.holds.set(True, R, P, over=(X,), condition=W.free(X)),),
    "conditions that can both be true": (W.free.set(True, P, condition=IS_NEW), W.free.set(False, P, condition=W.free(Q))),
    "conditions on two requests": (W.free.set(True, P, condition=W.free(P)), W.free.set(False, P, condition=not_(W.free(Q)))),
    "read index": (W.holds.set(True, the(W.owner(P)), Q), W.holds.set(False, R, Q)),
    "loop that is not kept apart": (W.free.set(True, P), W.free.set(False, X, over=(X,), condition=not_(eq(X, Q)))),
}


@pytest.mark.parametrize("name", APART)
def test_updates_that_never_meet(name: str) -> None:
    assert not collides(*APART[name])


@pytest.mark.parametrize("name", TOGETHER)
def test_updates_that_can_meet(name: str) -> None:
    assert collides(*TOGETHER[name])


def test_a_guard_keeps_two_parameters_apart() -> None:
    both = TOGETHER["two parameters"]
    assert not collides(*both, distinct=(P, Q))
    assert not collides(*both, distinct=(Q, P))
    assert collides(*both, guard=not_(eq(W.owner(P), R)))
    loop = (W.free.set(True, P), W.free.set(False, X, over=(X,), condition=eq(X, Q)))
    assert not collides(*loop, distinct=(P, Q))


def test_the_builder_refuses_a_collision_and_names_the_action() -> None:
    made = world()
    made.builder.action("act", P, updates=[made.free.set(True, P), made.free.set(False, P)])
    with pytest.raises(MalformedSystem, match="world: act: 'free' is written twice at one place: two of its updates can meet"):
        made.builder.build()


# -- held to what steps really write

def _random_update(random_: random.Random, scope: tuple[Bound, ...]) -> Update:
    over = (X,) if random_.random() < 0.4 else ()
    pages = [bound for bound in (*scope, *over) if bound.domain == PAGE]
    condition = _random_condition(random_, pages, 2)
    if random_.random() < 0.6:
        return W.free.set(random_.random() < 0.5, random_.choice(pages), over=over, condition=condition)
    return W.holds.set(random_.random() < 0.5, R, random_.choice(pages), over=over, condition=condition)


def _random_condition(random_: random.Random, pages: list[Bound], fuel: int) -> Expr | bool:
    choices: list[Callable[[], Expr | bool]] = [
        lambda: True,
        lambda: W.free(random_.choice(pages)),
        lambda: W.holds(R, random_.choice(pages)),
        lambda: eq(W.phase(R), random_.choice((NEW, OLD))),
        lambda: eq(random_.choice(pages), random_.choice(pages)),
    ]
    if fuel:
        choices += [
            lambda: not_(_random_condition(random_, pages, fuel - 1)),
            lambda: and_(_random_condition(random_, pages, fuel - 1), _random_condition(random_, pages, fuel - 1)),
        ] * 2
    return random_.choice(choices)()


def _random_action(seed: int) -> Action:
    random_ = random.Random(seed)
    guards: dict[str, Expr | bool | int] = {"distinct": not_(eq(P, Q))} if random_.random() < 0.5 else {}
    if random_.random() < 0.3:
        guards["other"] = _random_condition(random_, [P, Q], 2)
    return Builder("x").action("act", P, Q, R, guards=guards, updates=[_random_update(random_, (P, Q, R)) for _ in range(2)])


def _writes_twice(instance: Instance, action: Action) -> bool:
    """Whether some step of `action`, from any state at all, writes one place twice."""
    interpreter = Interpreter(instance)
    layout = instance.state_layout
    kept = [("free", "holds", "phase").count(name) > 0 for name, _ in layout.places]
    choices = [instance.values_of(kind) if keep else (None,) for kind, keep in zip(layout.types, kept, strict=True)]
    for values in product(*choices):
        state = State((), values)
        for binding in instance.bindings(action.parameters):
            if interpreter.allows(state, action, binding) and _places_written(interpreter, state, action, binding):
                return True
    return False


def _places_written(interpreter: Interpreter, state: State, action: Action, binding: Binding) -> bool:
    seen: set[tuple[str, tuple[Value, ...]]] = set()
    for update in action.updates:
        for chosen in interpreter.instance.bindings(update.over):
            environment = {**interpreter.environment(action.parameters, binding), **interpreter.environment(update.over, chosen)}
            if interpreter.evaluate(update.condition, state, environment):
                place = update.variable, tuple(interpreter.evaluate(part, state, environment) for part in update.index)
                if place in seen:
                    return True
                seen.add(place)
    return False


def _missed(seeds: range) -> tuple[int, int]:
    """How many random actions really write a place twice, and how many of these the rule lets pass."""
    instance = Instance.make(world().builder.build(), {"Page": 2, "Request": 1})
    real = missed = 0
    for seed in seeds:
        action = _random_action(seed)
        found = any(True for _ in writes_that_collide(action))
        if _writes_twice(instance, action):
            real += 1
            missed += not found
    return real, missed


def test_no_collision_is_missed() -> None:
    real, missed = _missed(range(400))
    assert real > 60
    assert missed == 0


def test_a_rule_that_misses_collisions_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_contradict", lambda facts, distinct: len(facts) > 1)
    assert _missed(range(400))[1] > 0


# -- the other rules

def test_rigid_things_are_not_written_and_assumptions_read_nothing_else() -> None:
    b = Builder("bad")
    page = b.sort("Page")
    p = var("p", page)
    near, free = b.relation("near", page, rigid=True), b.relation("free", page)
    b.action("move", p, updates=[near.set(True, p)])
    b.assume("open", free(p), p)
    with pytest.raises(MalformedSystem) as caught:
        b.build()
    assert str(caught.value) == (
        "bad: move: 'near' is rigid and cannot be written; open: an assumption reads 'free', which changes in a run"
    )


def test_a_flag_that_nothing_reads() -> None:
    b = Builder("bad")
    on = b.relation("on")
    b.action("go", updates=[on.set(True)])
    b.flag("late", True)
    with pytest.raises(MalformedSystem, match="bad: late: the flag 'late' is set and never read"):
        b.build()


def test_a_flag_is_read_by_an_assumption_too() -> None:
    b = Builder("sizing")
    covers, context, limit = b.flag("covers", True), b.number("context"), b.number("limit")
    b.assume("covered", implies(covers, at_most(context(), limit())))
    on = b.relation("on")
    b.action("go", updates=[on.set(True)])
    assert list(problems(b.build())) == []
