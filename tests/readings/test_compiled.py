"""The compiled step, held to the interpreter; and mistakes seeded into it, which the comparison notices."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kvmodel.errors import InternalError, UsageError
from kvmodel.language.build import (
    Builder,
    add,
    all_,
    and_,
    any_,
    at_most,
    count,
    eq,
    if_,
    implies,
    is_none,
    less,
    member,
    not_,
    or_,
    the,
    var,
)
from kvmodel.language.expressions import Apply, Const, Expr, Quantified
from kvmodel.language.instance import Instance
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import TransitionSystem
from kvmodel.language.types import BOOL, Maybe
from kvmodel.readings import search
from kvmodel.readings.compiled import CompiledSystem, Valuation, Violation
from kvmodel.readings.emitter import Emitter
from kvmodel.readings.run import Interpreter
from kvmodel.readings.sparse import StoreLayout
from kvmodel.readings.writer import Writer
from tests.readings.compiled_systems import everything, library, queues
from tests.readings.held import Held, batches_agree, footprints_are_sound, states_of, walk_together

SYSTEMS = everything()


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
@pytest.mark.parametrize("searches", [True, False], ids=["indexed", "bare"])
def test_walks_agree_with_the_interpreter(system: TransitionSystem, searches: bool) -> None:
    held = Held(Instance.make(system), searches)
    assert sum(walk_together(held, seed, 25) for seed in range(4)) > 50


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_batches_equal_single_steps(system: TransitionSystem) -> None:
    held = Held(Instance.make(system))
    outcomes: Counter[str] = sum((batches_agree(held, states_of(held.instance, seed, 12), seed) for seed in range(4)), Counter())
    assert outcomes["taken"] >= 10
    assert outcomes["refused"] >= 20


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_footprints_are_sound(system: TransitionSystem) -> None:
    held = Held(Instance.make(system))
    assert footprints_are_sound(held, states_of(held.instance, 1, 12), 1) > 300


# -- mistakes on purpose -----------------------------------------------------------------------------------------------


def seeded(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, change: Callable[[Any], Any]) -> bool:
    """Whether walks and batches over the hand-built systems notice a changed method of the compiled step."""
    original = getattr(owner, name)
    monkeypatch.setattr(owner, name, change(original))
    try:
        expressions_agree(1)
        for system in SYSTEMS:
            held = Held(Instance.make(system))
            for seed in range(3):
                walk_together(held, seed, 20)
                batches_agree(held, states_of(held.instance, seed, 8), seed)
    except (AssertionError, KeyError, InternalError, UsageError, TypeError):
        return True
    return False


def test_without_a_mistake_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not seeded(monkeypatch, Emitter, "_apply", lambda original: original)


WRONG_OPERATOR: dict[Operator, Callable[[list[str]], str]] = {
    Operator.NOT: lambda parts: parts[0],
    Operator.AND: lambda parts: f"({' or '.join(parts)})",
    Operator.OR: lambda parts: parts[0],
    Operator.EQ: lambda parts: f"({parts[0]} != {parts[1]})",
    Operator.LT: lambda parts: f"({parts[0]} <= {parts[1]})",
    Operator.LE: lambda parts: f"({parts[0]} < {parts[1]})",
    Operator.ADD: lambda parts: f"({' - '.join(parts)})",
    Operator.IF: lambda parts: f"({parts[2]} if {parts[0]} else {parts[1]})",
    Operator.IS_NONE: lambda parts: f"({parts[0]} is not None)",
}


@pytest.mark.parametrize("operator", WRONG_OPERATOR)
def test_a_wrong_operator_is_noticed(monkeypatch: pytest.MonkeyPatch, operator: Operator) -> None:
    def change(original: Callable[..., str]) -> Callable[..., str]:
        return lambda self, found, parts: WRONG_OPERATOR[found](parts) if found is operator else original(self, found, parts)

    assert seeded(monkeypatch, Emitter, "_apply", change)


@pytest.mark.parametrize("operator", [Operator.IMPLIES, Operator.THE])
def test_operators_that_folding_rewrites_are_emitted_too(operator: Operator) -> None:
    emitter = Emitter(StoreLayout(Instance.make(library())))
    assert emitter._apply(operator, ["a0", "a1"]) == {Operator.IMPLIES: "(not a0 or a1)", Operator.THE: "a0"}[operator]


@pytest.mark.parametrize("binder", Binder)
def test_a_wrong_binder_is_noticed(monkeypatch: pytest.MonkeyPatch, binder: Binder) -> None:
    swap = {Binder.ANY: Binder.ALL, Binder.ALL: Binder.ANY, Binder.COUNT: Binder.COUNT}

    def change(original: Callable[..., str]) -> Callable[..., str]:
        def value(self: Emitter, expr: Expr, names: Any) -> str:
            if isinstance(expr, Quantified) and expr.binder is binder:
                code = original(self, Quantified(swap[binder], expr.variables, expr.body), names)
                return f"({code} + 1)" if binder is Binder.COUNT else code
            return original(self, expr, names)

        return value

    assert seeded(monkeypatch, Emitter, "value", change)


def test_an_index_that_is_not_kept_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seeded(monkeypatch, Writer, "_index_add", lambda original: lambda self, slot, key, rest: ["pass"])


def test_an_empty_row_that_is_kept_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(original: Callable[..., list[str]]) -> Callable[..., list[str]]:
        return lambda *arguments: [re.sub(r"\bdel .*", "pass", line) for line in original(*arguments)]

    assert seeded(monkeypatch, Writer, "_drop", change)


def test_updates_that_see_each_other_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Right-hand sides read the state before the step: a write that is not held back shows in `swap`."""
    from kvmodel.readings.generated import ActionSource

    def change(original: Callable[..., Any]) -> Callable[..., Any]:
        def apply_source(self: ActionSource) -> list[str]:
            lines: list[str] = original(self)
            late = [line for line in lines if line.strip().startswith("w1 =")]
            rest = [line for line in lines if line not in late]
            uses = [number for number, line in enumerate(rest) if "in w1:" in line]
            return [*rest[: uses[-1]], *late, *rest[uses[-1]:]] if uses else lines

        return apply_source

    assert seeded(monkeypatch, ActionSource, "_apply_source", change)


def test_a_search_that_looks_in_the_wrong_place_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taking a literal that can be true at the default for a place to look loses bindings."""
    assert seeded(monkeypatch, search, "_never", lambda original: lambda expr, default: True)


def test_a_disjunction_that_loses_a_branch_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seeded(monkeypatch, search, "alternatives", lambda original: lambda literal: original(literal)[:1])


def test_a_narrowed_loop_with_the_wrong_set_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(original: Callable[..., Any]) -> Callable[..., Any]:
        def membership(*arguments: Any) -> tuple[bool, str, str] | None:
            found: tuple[bool, str, str] | None = original(*arguments)
            return None if found is None else (not found[0], *found[1:])

        return membership

    assert seeded(monkeypatch, Emitter, "_membership", change)


def test_a_property_that_misses_a_read_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Properties are re-evaluated where a step touched them; without some of the reads, a new violation goes unseen."""
    from kvmodel.readings import generated

    assert seeded(monkeypatch, generated, "accesses", lambda original: lambda *arguments: list(original(*arguments))[1:])


def test_a_batch_that_takes_what_does_not_commute_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seeded(monkeypatch, CompiledSystem, "_shaky", lambda original: lambda *arguments: frozenset())


def test_a_batch_over_one_parameter_that_forgets_the_guards_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvmodel.readings import generated

    assert seeded(monkeypatch, generated, "cases", lambda original: lambda condition: ())


def test_a_batch_that_leaves_out_an_element_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(original: Callable[..., Any]) -> Callable[..., Any]:
        def take_line(self: CompiledSystem, state: Any, code: Any, first: Any, line: Any, shaky: Any) -> Any:
            return original(self, state, code, first, (line[0], line[1] - {max(line[1])}), shaky)

        return take_line

    assert seeded(monkeypatch, CompiledSystem, "_take_line", change)


def test_a_footprint_that_misses_a_read_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvmodel.readings import footprint

    original = footprint._other_reads
    monkeypatch.setattr(footprint, "_other_reads", lambda *arguments: [a for a in original(*arguments) if a.variable != "loans"])
    held = Held(Instance.make(library()))
    states = [state for seed in range(5) for state in states_of(held.instance, seed, 12)]
    with pytest.raises(AssertionError):
        footprints_are_sound(held, states, 1)


# -- expressions -------------------------------------------------------------------------------------------------------


def one_of_each() -> tuple[TransitionSystem, dict[str, Expr]]:
    b = Builder("values")
    thing = b.sort("Thing")
    colour = b.enumeration("Colour", "RED", "GREEN")
    on = b.relation("on", thing)
    off = b.relation("off", thing, thing, initial=True)
    near = b.relation("near", thing, thing, thing)
    of = b.function("of", thing, to=Maybe(thing))
    hue = b.function("hue", thing, thing, to=colour)
    size = b.counter("size", thing, high=3)
    x, y, z = var("x", thing), var("y", thing), var("z", thing)
    b.action("flip", x, updates=[on.set(not_(on(x)), x)])
    b.action("set_off", x, y, updates=[off.set(on(x), x, y)])
    b.action("set_near", x, y, z, updates=[near.set(not_(near(x, y, z)), x, y, z)])
    b.action("set_of", x, y, updates=[of.set(y, x)])
    b.action("paint", x, y, updates=[hue.set(member(colour, "GREEN"), x, y)])
    b.action("grow", x, guards={"small": less(size(x), 3)}, updates=[size.set(add(size(x), 1), x)])
    green = member(colour, "GREEN")
    return b.build(), {
        "not": not_(on(x)),
        "and": and_(on(x), off(x, x)),
        "or": or_(on(x), off(x, x), near(x, x, x)),
        "empty and": Apply(Operator.AND, (), BOOL),
        "empty or": Apply(Operator.OR, (), BOOL),
        "implies": implies(on(x), off(x, x)),
        "equal": eq(of(x), x),
        "equal truth": eq(on(x), off(x, x)),
        "less": less(size(x), 1),
        "at most": at_most(size(x), 1),
        "add": eq(add(size(x), size(x), -1), 1),
        "if": if_(on(x), off(x, x), not_(near(x, x, x))),
        "none": is_none(of(x)),
        "the": or_(is_none(of(x)), on(the(of(x)))),
        "any row": any_([y], off(x, y)),
        "any column": any_([y], not_(off(y, x))),
        "any of three": any_([y, z], near(y, x, z)),
        "any same": any_([y], near(y, y, y)),
        "any value": any_([y], eq(of(y), x)),
        "any colour": any_([y], eq(hue(y, x), green)),
        "any other colour": any_([y], not_(eq(hue(x, y), green))),
        "any size": any_([y], less(0, size(y))),
        "any through": any_([y], and_(eq(of(x), y), on(y))),
        "any either": any_([y], or_(on(y), near(x, y, y))),
        "all": all_([y], implies(on(y), off(y, x))),
        "all nested": all_([y], any_([z], or_(near(y, z, x), and_(on(z), off(y, z))))),
        "count": eq(count([y], on(y)), size(x)),
        "count row": eq(count([y], not_(off(x, y))), size(x)),
        "count pairs": at_most(count([y, z], near(x, y, z)), 2),
        "count either": eq(count([y], or_(on(y), near(x, y, x))), size(x)),
        "count colours": less(count([y], eq(hue(y, x), green)), 2),
    }


def expressions_agree(seeds: int) -> dict[str, set[object]]:
    """Compare every expression of `one_of_each` in many states; gives the values that each had."""
    system, expressions = one_of_each()
    instance = Instance.make(system)
    interpreter = Interpreter(instance)
    compiled = CompiledSystem(system)
    x = var("x", system.sorts[0])
    seen: dict[str, set[object]] = {name: set() for name in expressions}
    for state in [state for seed in range(seeds) for state in states_of(instance, seed, 30)]:
        sparse = compiled.from_dense(state)
        for name, expr in expressions.items():
            for element in instance.elements(x.domain):
                expected = interpreter.evaluate(expr, state, {"x": element})
                assert compiled.evaluate(sparse, expr, {x: element}) == expected, name
                seen[name].add(expected)
    return seen


def test_every_form_of_expression_has_the_interpreters_value() -> None:
    seen = expressions_agree(4)
    assert {name for name, values in seen.items() if len(values) < 2} == {"empty and", "empty or"}


def test_what_it_does_not_know_is_an_internal_error() -> None:
    emitter = Emitter(StoreLayout(Instance.make(library())))
    with pytest.raises(InternalError, match="no source for operator 'xor'"):
        emitter._apply(type("Fake", (), {"value": "xor"})(), ["a0"])
    with pytest.raises(InternalError, match="no source for 'text'"):
        emitter.value("text", {})  # type: ignore[arg-type]


def test_no_text_of_a_spec_reaches_the_generated_source(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvmodel.readings import dense, generated

    sources: list[str] = []
    original = dense.compile_function

    def record(lines: list[str], name: str) -> Any:
        sources.extend(lines)
        return original(lines, name)

    monkeypatch.setattr(generated, "compile_function", record)
    system = library()
    CompiledSystem(system)
    text = "\n".join(sources)
    names = [v.name for v in system.variables] + [a.name for a in system.actions] + [g.name for a in system.actions for g in a.guards]
    assert sources
    assert not [name for name in names if name in text]


# -- the interface -----------------------------------------------------------------------------------------------------


def shelf(size: int) -> CompiledSystem:
    return CompiledSystem(library(), {"Book": size, "Reader": 3})


def test_a_step_that_is_not_enabled_is_refused_with_its_guard() -> None:
    compiled = shelf(3)
    state = compiled.start()
    before = compiled.to_dense(state)
    assert compiled.blocked_by(state, "lend", (0, 1)) == "its guard 'asked' is false"
    with pytest.raises(UsageError, match=r"^lend\(r=0, x=1\) is not enabled: its guard 'asked' is false$"):
        compiled.step(state, "lend", (0, 1))
    with pytest.raises(UsageError, match=r"^ask\(r=0, x=3\) is not enabled: there is no such element at this size$"):
        compiled.step(state, "ask", (0, 3))
    with pytest.raises(UsageError, match="has no action 'aks'; did you mean 'ask'"):
        compiled.step(state, "aks", (0, 0))
    assert compiled.attempt(state, "lend", (0, 1)) is None
    assert compiled.to_dense(state) == before
    taken = compiled.attempt(state, "ask", (0, 1))
    assert taken is not None
    assert taken.of("waits") == [(0, 1)]


def test_an_action_that_the_flags_rule_out_is_not_possible() -> None:
    b = Builder("switch")
    allowed = b.flag("allowed", False)
    on = b.relation("on")
    b.action("switch", guards={"allowed": allowed}, updates=[on.set(True)])
    system = b.build()
    assert not CompiledSystem(system).possible("switch")
    assert CompiledSystem(system.with_flags({"allowed": True})).possible("switch")
    assert CompiledSystem(system).bindings(CompiledSystem(system).start(), "switch") == ()


def test_a_batch_that_does_not_commute_is_refused_with_the_reason() -> None:
    compiled = shelf(3)
    state = compiled.start()
    compiled.batch(state, "ask", [(reader, book) for reader in range(3) for book in range(3)])
    with pytest.raises(UsageError, match="^lend cannot be taken in a batch: one binding writes total and another reads total: they"):
        compiled.batch(state, "lend", [(0, 0), (1, 1)])
    with pytest.raises(UsageError, match=r"^leave cannot be taken in a batch: one binding writes lent\[\*\] and another reads lent\[\*\]"):
        compiled.batch(state, "leave", [(0,), (1,)])
    with pytest.raises(UsageError, match=r"ask\(r=0, x=7\) is not enabled: there is no such element"):
        compiled.batch(state, "ask", [(0, 0), (0, 7)])


def test_a_guard_that_another_binding_may_falsify_needs_a_firm_one() -> None:
    """`take` reads what it writes for other seats of the same row; only where the guard holds anyway can it be batched."""
    b = Builder("cinema")
    row, seat = b.sort("Row"), b.sort("Seat")
    taken = b.relation("taken", row, seat)
    open_ = b.relation("open", row, rigid=True)
    r, s, t = var("r", row), var("s", seat), var("t", seat)
    b.action("take", r, s, guards={"open, or first": or_(open_(r), not_(any_([t], taken(r, t))))}, updates=[taken.set(True, r, s)])
    compiled = CompiledSystem(b.build(), {"Row": 2, "Seat": 50})
    state = compiled.start({"open": {(1,): True}})
    with pytest.raises(UsageError) as refusal:
        compiled.batch(state, "take", [(0, 1), (0, 2)])
    assert str(refusal.value) == (
        "take cannot be taken in this batch: the guard 'open, or first' of take(r=0, s=1) depends on taken[r, *], "
        "which another of its bindings may write"
    )
    assert len(compiled.batch(state, "take", [(1, seat) for seat in range(50)]).of("taken")) == 50
    assert compiled.batch(state, "take", [(0, 1)]).of("taken") == [(0, 1)]


def test_a_batch_over_one_parameter_is_taken_with_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bool] = []
    original = CompiledSystem._take_line

    def record(self: CompiledSystem, *arguments: Any) -> Any:
        changes = original(self, *arguments)
        taken.append(changes is not None)
        return changes

    monkeypatch.setattr(CompiledSystem, "_take_line", record)
    compiled = CompiledSystem(library(), {"Book": 40, "Reader": 9})
    state = compiled.start()
    compiled.batch(state, "ask", [(3, book) for book in range(40)])
    compiled.batch(state, "ask", [(reader, 7) for reader in range(9) if reader != 3])
    assert taken == [True, True]
    compiled.batch(state, "ask", [(reader, book) for reader in (1, 2) for book in range(20, 30)])
    assert taken == [True, True]
    state.check_indices()
    assert sum(1 for _ in state.stored("waits")) == 40 + 8 + 20
    with pytest.raises(UsageError, match=r"ask\(r=4, x=40\) is not enabled: there is no such element at this size"):
        compiled.batch(state, "ask", [(4, book) for book in range(41)])
    assert sum(1 for _ in state.stored("waits")) == 68


def test_a_counter_that_leaves_its_range_ends_the_run() -> None:
    compiled = shelf(4)
    state = compiled.start()
    for book in range(4):
        compiled.step(state, "ask", (book % 3, book))
    broken: list[Violation] = []
    for book in range(3):
        changes = compiled.step(state, "lend", (book % 3, book))
        broken += compiled.violations(state, changes)
    assert Violation("range:total", ()) in broken
    assert state.out_of_range
    assert compiled.blocked_by(state, "lend", (0, 3)) == "a counter is out of its range"
    assert compiled.bindings(state, "ask") == ()
    with pytest.raises(UsageError, match="ask is not enabled: a counter is out of its range"):
        compiled.step(state, "ask", (0, 0))
    assert not any(violation.property == "no_deadlock" for violation in compiled.violations(state))


def test_a_batch_does_not_take_a_counter_out_of_its_range() -> None:
    b = Builder("tallies")
    bin_ = b.sort("Bin")
    tally = b.counter("tally", bin_, high=1)
    x = var("x", bin_)
    b.action("drop", x, updates=[tally.set(add(tally(x), 1), x)])
    compiled = CompiledSystem(b.build(), {"Bin": 3})
    state = compiled.start()
    compiled.batch(state, "drop", [(0,), (1,)])
    with pytest.raises(UsageError, match=r"drop\(x=1\) takes a counter out of its range: take it as a step of its own"):
        compiled.batch(state, "drop", [(2,), (1,)])
    assert dict(state.stored("tally")) == {(0,): 1, (1,): 1}


def test_assertions_are_noted_with_their_bindings() -> None:
    compiled = CompiledSystem(library(), {"Book": 3, "Reader": 2})
    state = compiled.start()
    for book in (0, 1):
        compiled.step(state, "ask", (0, book))
    assert compiled.step(state, "lend", (0, 0)).broken == ()
    changes = compiled.step(state, "lend", (0, 1))
    assert changes.broken == (Violation("assert:lend:first loan", (0, 1)),)
    assert changes.broken[0] in compiled.violations(state, changes)


def test_only_watched_properties_are_evaluated() -> None:
    compiled = CompiledSystem(library(), {"Book": 2, "Reader": 2}, properties=["one_reader_waits"])
    state = compiled.start()
    changes = compiled.batch(state, "ask", [(0, 1), (1, 1)])
    assert compiled.violations(state, changes) == (Violation("one_reader_waits", (0, 1, 1)), Violation("one_reader_waits", (1, 0, 1)))
    with pytest.raises(UsageError, match="has no property 'one_reader_wait'; did you mean 'one_reader_waits'"):
        CompiledSystem(library(), properties=["one_reader_wait"])


def test_start_checks_assumptions_and_initial_conditions() -> None:
    compiled = CompiledSystem(queues(), {"Job": 2, "Node": 2})
    values: Valuation = {"limit": {(): 10}, "length": {(0,): 13, (1,): 14}, "link": {(1, 1, "LEFT"): True}}
    state = compiled.valued(values)
    assert compiled.broken_conditions(state) == ("short_enough", "no_loops")
    with pytest.raises(UsageError, match="queues cannot start with these values: short_enough, no_loops is false"):
        compiled.start(values)
    assert compiled.failing_bindings(state, compiled.system.assumptions[0]) == ((1,),)
    assert compiled.start({"limit": {(): 11}, "length": {(0,): 13, (1,): 14}}).get("length", (1,)) == 14
    with pytest.raises(UsageError, match="queues: 'at' cannot be given a value: it has an initial value"):
        compiled.start({"at": {(0,): "DONE"}})
    with pytest.raises(UsageError, match=r"queues: 'length' has no index \(2,\) at this size \(it takes Job\)"):
        compiled.start({"length": {(2,): 1}})
    with pytest.raises(UsageError, match="queues has no variable 'lenght'; did you mean 'length'"):
        compiled.start({"lenght": {}})


def test_a_copy_is_independent() -> None:
    compiled = shelf(3)
    state = compiled.start()
    copy = state.copy()
    compiled.step(state, "ask", (0, 0))
    assert copy.get("waits", (0, 0)) is False
    copy.check_indices()
    assert compiled.enabled(state, "lend", (0, 0))
    assert not compiled.enabled(copy, "lend", (0, 0))


def test_a_state_can_be_read_in_bulk() -> None:
    compiled = shelf(3)
    state = compiled.start()
    compiled.batch(state, "ask", [(0, 0), (0, 2)])
    compiled.step(state, "lend", (0, 2))
    assert state.values_at("lent", range(3)) == [None, None, 0]
    assert state.values_at("shelf", range(3)) == [True, True, False]
    assert state.row("waits", 0) == {0}
    assert state.row("waits", 1) == set()
    assert dict(state.stored("total")) == {(): 1}
    with pytest.raises(UsageError, match="'lent' is not a relation with two keys"):
        state.row("lent", 0)


def test_a_state_of_real_size_takes_no_room_for_what_has_not_changed() -> None:
    compiled = CompiledSystem(library(), {"Book": 40_000, "Reader": 10_000})
    state = compiled.start()
    compiled.batch(state, "ask", [(7, book) for book in range(10_000)])
    compiled.step(state, "lend", (7, 9))
    changes = compiled.step(state, "leave", (7,))
    assert len(changes.of("waits")) == 9_999
    assert [sum(1 for _ in state.stored(name)) for name in ("shelf", "lent", "waits", "loans")] == [0, 0, 0, 0]
    with pytest.raises(UsageError, match="at most 2,000,000"):
        Instance.make(library(), {"Book": 40_000, "Reader": 10_000})


def test_constants_fold_with_the_flags() -> None:
    loose = queues().with_flags({"strict": False})
    strict, folded = CompiledSystem(queues()), CompiledSystem(loose)
    assert "busy[*, d]" in str(strict.footprint("queue")).partition(";")[0]
    assert "busy" not in str(folded.footprint("queue")).partition(";")[0]
    assert isinstance(folded.system.actions[0].guards[0].condition, Apply | Const)
