"""Updates that share a loop take the step that the interpreter takes, on random systems and on what is made to go wrong."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from kvmodel.engines.log import loops
from kvmodel.engines.log.loops import LoopedSource
from kvmodel.errors import InternalError
from kvmodel.language.build import ANYTHING, Builder, Place, all_, and_, any_, eq, is_none, none, not_, or_, var
from kvmodel.language.expressions import Bound, Expr
from kvmodel.language.instance import Instance, State
from kvmodel.language.load import load_spec
from kvmodel.language.system import TransitionSystem, Update
from kvmodel.language.types import Maybe
from kvmodel.readings.dense import compile_function
from kvmodel.readings.emitter import indented
from kvmodel.readings.fold import fold_system
from kvmodel.readings.generated import put
from kvmodel.readings.run import Interpreter
from kvmodel.readings.sparse import SparseState, StoreLayout
from kvmodel.traces.trace import Choice
from tests.readings.held import states_of


def shuffle() -> TransitionSystem:
    """Updates that read what another one writes: for the same page, for another page, and through a quantifier."""
    b = Builder("shuffle")
    page, request = b.sort("Page"), b.sort("Request")
    red, blue = b.relation("red", page), b.relation("blue", page, initial=True)
    held, old = b.relation("held", request, page), b.relation("old", request, page)
    last = b.function("last", page, to=Maybe(request))
    p, q, r = var("p", page), var("q", page), var("r", request)
    own = held(r, p)

    def each(place: Place, value: Any, *index: Bound, where: Expr) -> Update:
        return place.set(value, *index, over=[p], condition=where)

    b.action("take", r, p, updates=[held.set(True, r, p), last.set(r, p), old.set(not_(held(r, p)), r, p)])
    b.action("paint", p, updates=[red.set(True, p)])
    b.action("fade", p, updates=[blue.set(False, p)])
    b.action(
        "swap", r,
        updates=[
            each(red, True, p, where=and_(own, blue(p))),
            each(red, False, p, where=and_(own, not_(blue(p)))),
            each(blue, True, p, where=and_(own, red(p))),
            each(blue, False, p, where=and_(own, not_(red(p)))),
        ],
    )  # fmt: skip
    b.action("age", r, updates=[each(old, True, r, p, where=own), each(held, False, r, p, where=and_(own, old(r, p)))])
    b.action("dim", r, updates=[each(red, False, p, where=and_(own, any_([q], and_(red(q), blue(q))))), each(last, r, p, where=own)])
    # No loop of their own keys: one loop would read what another wrote, or what it wrote itself for another page.
    b.action("empty", r, updates=[each(held, False, r, p, where=own), each(old, False, r, p, where=or_(own, red(p)))])
    b.action("first", r, updates=[each(red, True, p, where=and_(own, all_([q], or_(eq(p, q), not_(red(q))))))])
    b.action("across", r, updates=[each(held, False, r, p, where=own), each(blue, False, p, where=and_(red(p), any_([r], own)))])
    return b.build()


def drawn(random: Random) -> TransitionSystem:
    """A system whose actions run over pages with a few updates each, drawn at random."""
    b = Builder("drawn")
    page, request = b.sort("Page"), b.sort("Request")
    red, blue = b.relation("red", page, initial=ANYTHING), b.relation("blue", page, initial=ANYTHING)
    held, old = b.relation("held", request, page, initial=ANYTHING), b.relation("old", request, page, initial=ANYTHING)
    last = b.function("last", page, to=Maybe(request), initial=ANYTHING)
    p, q, r, s = var("p", page), var("q", page), var("r", request), var("s", request)
    places: list[tuple[Place, tuple[Bound, ...]]] = [(red, (p,)), (blue, (p,)), (held, (r, p)), (old, (r, p)), (last, (p,))]
    literals = [
        held(r, p), held(r, p), old(r, p), red(p), blue(p), eq(last(p), r), is_none(last(p)), any_([q], red(q)), any_([q], held(r, q)),
        any_([s], held(s, p)), any_([q], and_(old(r, q), not_(eq(p, q)))), any_([q], and_(red(q), blue(q))),
    ]  # fmt: skip

    def condition() -> Expr:
        parts = [literal if random.random() < 0.7 else not_(literal) for literal in random.choices(literals, k=random.choice((1, 2, 2, 3)))]
        return and_(*parts) if random.random() < 0.8 else or_(*parts)

    for number in range(4):
        updates = []
        for place, index in random.sample(places, k=random.choice((1, 2, 3))):
            values: tuple[Any, ...] = (none(request), r) if place is last else (True, False)
            where = and_(held(r, p), condition()) if random.random() < 0.7 else condition()
            if random.random() < 0.3:
                where = random.choice(literals)
                updates.append(place.set(values[0], *index, over=[p], condition=not_(where)))
            updates.append(place.set(random.choice(values), *index, over=[p], condition=where))
        b.action(f"step_{number}", r, updates=updates)
    return b.build()


def drawn_states(instance: Instance, random: Random, number: int) -> list[State]:
    kinds = instance.state_layout.types
    return [State((), tuple(random.choice(instance.values_of(kind)) for kind in kinds)) for _ in range(number)]


class Looped:
    """The steps of an instance, taken with loops."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.layout = StoreLayout(instance)
        sources = [LoopedSource(action, fold_system(instance.system), self.layout) for action in fold_system(instance.system).actions]
        self.in_loops = {source.action.name for source in sources if source._loops is not None}
        self.others = {source.action.name for source in sources if source._loops is None and any(u.over for u in source.action.updates)}
        self._take = {source.action.name: function_of(source) for source in sources}
        self._put = {name: put(store, self.layout) for name, store in self.layout.stores.items()}

    def after(self, state: State, choice: Choice) -> State:
        """The state after a step."""
        layouts = (self.instance.rigid_layout, self.instance.state_layout)
        sparse = SparseState(self.layout, self.layout.empty(), set())
        for layout, values in zip(layouts, (state.rigid, state.values), strict=True):
            for (name, index), value in zip(layout.places, values, strict=True):
                self._put[name](sparse.cells, sparse.out_of_range, index, value)
        self._take[choice.action](sparse.cells, sparse.out_of_range, choice.binding)
        sparse.check_indices()
        assert all(all(sparse.cells[store.slot].values()) for store in self.layout.stores.values() if store.rows), "an empty row is kept"
        rigid, values = (tuple(sparse.get(name, index) for name, index in layout.places) for layout in layouts)
        return State(rigid, values)


def function_of(source: LoopedSource) -> Callable[..., Any]:
    """A function that takes the step of a source."""
    body = [f"{source._binding} = B" if source.names else "pass", *source.writes(frozenset())]
    lines = ["def take(S, R, B):", *indented([*source._emitter.prologue(), *body])]
    return compile_function(lines, "take")


def compared(instance: Instance, states: Iterable[State]) -> Counter[str]:
    """Take every enabled step of some states with loops and with the interpreter; gives how many were taken, by their kind."""
    looped, interpreter = Looped(instance), Interpreter(instance)
    found: Counter[str] = Counter()
    for state in states:
        for choice in interpreter.enabled(state):
            assert looped.after(state, choice) == interpreter.successor(state, choice), (choice, state)
            found["loops" if choice.action in looped.in_loops else "others" if choice.action in looped.others else "plain"] += 1
    return found


def shuffled() -> Counter[str]:
    instance = Instance.make(shuffle(), {"Page": 3, "Request": 2})
    return compared(instance, [state for seed in range(12) for state in states_of(instance, seed, 12)])


def test_what_reads_what_another_update_writes() -> None:
    found = shuffled()
    assert found["loops"] >= 300
    assert found["others"] >= 300
    looped = Looped(Instance.make(shuffle(), {"Page": 2, "Request": 1}))
    assert looped.in_loops == {"swap", "age", "dim"}
    assert looped.others == {"empty", "first", "across"}


def random_systems(seeds: Iterable[int], states: int) -> Counter[str]:
    total: Counter[str] = Counter()
    for seed in seeds:
        random = Random(seed)
        instance = Instance.make(drawn(random), {"Page": 3, "Request": 2})
        total += compared(instance, drawn_states(instance, random, states))
    return total


def all_compared() -> Counter[str]:
    return shuffled() + random_systems(range(60), 12)


def test_random_systems() -> None:
    total = random_systems(range(60), 12)
    assert total["loops"] >= 1_500
    assert total["others"] >= 500


@pytest.mark.slow
def test_many_random_systems() -> None:
    random_systems(range(1_000, 4_000), 30)


@pytest.mark.parametrize("spec", ["handoff", "handoff:sglang-0.5.16", "handoff:sglang-0.5.21", "pages:one-pool", "tenants", "cached"])
def test_shipped_specs(spec: str) -> None:
    instance = Instance.make(load_spec(spec))
    found = compared(instance, states_of(instance, 3, 12))
    assert found
    if spec != "cached":  # which counts references, page by page
        assert not found["others"], "updates that share no loop"


@pytest.mark.parametrize("fault", ["independence", "early tests", "early values", "a copy to go through", "empty rows"])
def test_a_loop_that_is_wrong_is_noticed(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    make, lines = loops._Member, loops.Loops.lines
    match fault:
        case "independence":
            monkeypatch.setattr(loops.Loops, "_independent", lambda self: True)
        case "early tests":
            monkeypatch.setattr(loops, "_Member", lambda *given: replace(make(*given), reads=frozenset()))
        case "early values":
            monkeypatch.setattr(loops.Loops, "_hoist", lambda self, code: code)
        case "a copy to go through":
            monkeypatch.setattr(loops.Loops, "lines", lambda self, wanted: [line.replace("tuple(", "(") for line in lines(self, wanted)])
        case "empty rows":
            kept = re.compile(r"if not q|else: v")
            monkeypatch.setattr(loops.Loops, "lines", lambda self, wanted: [line for line in lines(self, wanted) if not kept.match(line)])
    with pytest.raises((AssertionError, RuntimeError, InternalError)):
        all_compared()
