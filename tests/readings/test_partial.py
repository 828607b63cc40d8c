"""What the partial reading says without some variables is true whatever they hold; the interpreter is the judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import product
from random import Random

import pytest

from kvmodel.errors import InternalError, UsageError
from kvmodel.language.build import Builder, add, all_, and_, any_, at_most, count, eq, if_, implies, is_none, less, not_, or_, the, var
from kvmodel.language.expressions import FALSE, TRUE, Apply, Expr
from kvmodel.language.instance import Instance, State
from kvmodel.language.load import load_spec
from kvmodel.language.operators import Operator
from kvmodel.language.system import PropertyKind, TransitionSystem
from kvmodel.language.types import BOOL, Maybe, Number, Value
from kvmodel.readings import partial as module
from kvmodel.readings.compiled import CompiledSystem
from kvmodel.readings.partial import Partial, Rails, partial, rails, reads
from kvmodel.readings.run import Interpreter
from kvmodel.verdict import Verdict
from tests.agreement.random_systems import Case
from tests.agreement.test_random_systems import collected
from tests.readings.test_conditions import random_state

MOST_COMPLETIONS = 40
JUDGED = (PropertyKind.INVARIANT, PropertyKind.REACHABLE, PropertyKind.ASSERTION)


@cache
def cases() -> tuple[Case, ...]:
    return tuple(collected(50, 1))


def some_unknown(system: TransitionSystem, random: Random) -> frozenset[str]:
    names = [variable.name for variable in system.variables if not variable.partition]
    return frozenset(random.sample(names, random.choice([0, 1, 1, 2, 2, min(3, len(names))]) if len(names) > 1 else 1))


def completions(instance: Instance, unknown: frozenset[str], state: State, random: Random) -> Iterator[State]:
    """`state` with every value in the unknown places, or with many values where there are too many."""
    choices: list[list[tuple[Value, ...]]] = []
    for layout, values in ((instance.rigid_layout, state.rigid), (instance.state_layout, state.values)):
        choices.append([
            (value,) if name not in unknown else (0, 1, 2) if isinstance(kind, Number) else instance.values_of(kind)
            for (name, _), kind, value in zip(layout.places, layout.types, values, strict=True)
        ])
    number = 1
    for options in (*choices[0], *choices[1]):
        number *= len(options)
    if number <= MOST_COMPLETIONS:
        for rigid in product(*choices[0]):
            for values in product(*choices[1]):
                yield State(rigid, values)
    else:
        for _ in range(MOST_COMPLETIONS):
            yield State(*(tuple(random.choice(options) for options in part) for part in choices))


def wrong(seen: Partial, instance: Instance, random: Random, states: int, tally: Counter[str]) -> list[str]:
    """Where the reading claims more than every completion bears out. `tally` counts what was decided and what was not."""
    interpreter, found = Interpreter(instance), []
    conditions = [
        (prop.name, prop.parameters, prop.condition, seen.surely(prop.name), seen.possibly(prop.name))
        for prop in seen.system.properties if prop.kind in JUDGED
    ]
    for action in seen.system.actions:
        for guard in action.guards:
            rail = rails(guard.condition, seen.unknown)
            conditions.append((f"{action.name} {guard.name}", action.parameters, guard.condition, rail.yes, rail.possible))
    for _ in range(states):
        state = random_state(instance, random)
        whole = list(completions(instance, seen.unknown, state, random))
        for name, parameters, condition, surely, possibly in conditions:
            binding = tuple(random.choice(instance.elements(p.domain)) for p in parameters)
            names = interpreter.environment(parameters, binding)
            truths = {bool(interpreter.evaluate(condition, each, names)) for each in whole}
            sure, possible = (bool(interpreter.evaluate(expr, state, names)) for expr in (surely, possibly))
            if (sure and False in truths) or (not possible and True in truths) or (sure and not possible):
                found.append(f"{name}: surely {sure}, possibly {possible}, and really {truths}")
            if len(truths) == 1:
                tally["decided" if sure or not possible else "missed"] += 1
                if not reads(condition, seen.unknown) and not (sure or not possible):
                    found.append(f"{name} reads nothing unknown and was not decided")
            else:
                tally["open"] += 1
    return found


def test_every_completion_bears_out_what_is_said() -> None:
    tally: Counter[str] = Counter()
    random = Random(0)
    for case in cases():
        for _ in range(2):
            seen = partial(case.system, some_unknown(case.system, random))
            for system in seen.systems:
                assert not system.variables_read() & seen.unknown
                assert system.variables == case.system.variables
                assert [p.name for p in system.properties] == [p.name for p in case.system.properties]
            assert not wrong(seen, case.instance, random, 5, tally), repr(case)
    assert tally["open"] > 200
    assert tally["decided"] > 10 * tally["missed"] > 0  # correlated atoms, such as x or not x, are missed


@pytest.mark.parametrize(
    ("spec", "unknown"),
    [
        ("handoff", {"holds"}),
        ("handoff", {"writing", "quarantined"}),
        ("handoff", {"prompt", "client"}),
        ("cached", {"data"}),
        ("cached", {"references", "key"}),
    ],
)
def test_a_shipped_spec(spec: str, unknown: set[str]) -> None:
    system = load_spec(spec)
    assert not wrong(partial(system, frozenset(unknown)), Instance.make(system), Random(1), 6, Counter())


def test_nothing_unknown_is_the_exact_reading() -> None:
    system = load_spec("pages:one-pool")
    seen = partial(system, frozenset())
    assert seen.undecidable == {} == seen.tainted
    assert seen.following is seen
    assert seen.systems.possible == seen.systems.sure
    random, instance = Random(2), Instance.make(system)
    for _ in range(100):
        state = random_state(instance, random)
        sure, possible = (Interpreter(Instance.make(s)).violated(state) for s in reversed(seen.systems))
        assert sure == possible == Interpreter(instance).violated(state)


@pytest.mark.parametrize("fault", [Rails(FALSE, TRUE), Rails(TRUE, FALSE), Rails(TRUE, TRUE)])
def test_an_unknown_atom_that_is_taken_for_something_is_noticed(fault: Rails, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NEITHER", fault)
    random = Random(0)
    assert any(
        wrong(partial(case.system, some_unknown(case.system, random)), case.instance, random, 4, Counter())
        for case in cases()[:15]
    )


def runs_apart(seen: Partial, instance: Instance, random: Random, steps: int) -> list[str]:
    """Where a run of the system and the same run of the weakened one part in what is not given up, or verdicts are wrong."""
    following = seen.following
    real = Interpreter(instance)
    possible, sure = (Interpreter(Instance(system, instance.sizes, instance.parts)) for system in following.systems)
    kept = [slot for slot, (name, _) in enumerate(instance.state_layout.places) if name not in following.unknown]
    state = random_state(instance, random)
    blind = random.choice(list(completions(instance, following.unknown, state, random)))
    found: list[str] = []
    for _ in range(steps):
        if real.out_of_range(state):
            break
        for name in {p.name for p in seen.system.declared}:
            prop = seen.system.property(name)
            if prop.kind is not PropertyKind.INVARIANT:
                continue
            truth = real.holds_for_all(prop, state)
            each = [side.holds_for_all(side.system.property(name), blind) for side in (possible, sure)]
            verdict = following.judge(name, possible=each[0], sure=each[1])
            if verdict is (Verdict.VIOLATED if truth else Verdict.HOLDS):
                found.append(f"{name} is {truth} and judged {verdict}")
        choices = real.enabled(state)
        if not choices:
            break
        choice = random.choice(choices)
        if not possible.allows(blind, possible.system.action(choice.action), choice.binding):
            found.append(f"{choice} happened and is not possible")
            break
        broken = real.broken_assertions(state, choice)
        if any(name not in broken for name in possible.broken_assertions(blind, choice)):
            found.append(f"{choice} breaks too much")
        if any(name not in sure.broken_assertions(blind, choice) for name in broken):
            found.append(f"{choice} breaks too little")
        state, blind = real.successor(state, choice), possible.successor(blind, choice)
        if any(state.values[slot] != blind.values[slot] for slot in kept):
            found.append(f"{choice} writes something else")
    return found


def test_runs_are_followed() -> None:
    random, tainted = Random(3), 0
    for case in cases():
        for _ in range(4):
            seen = partial(case.system, some_unknown(case.system, random))
            tainted += bool(seen.tainted)
            assert not runs_apart(seen, case.instance, random, 8), repr(case)
    assert tainted > 10


def test_a_variable_that_is_not_given_up_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partial, "tainted", {})
    random = Random(3)
    assert any(
        runs_apart(partial(case.system, some_unknown(case.system, random)), case.instance, random, 8)
        for case in cases() for _ in range(4)
    )


def test_the_compiled_step_says_the_same() -> None:
    system = load_spec("pages:one-pool")
    seen = partial(system, frozenset({"content", "reading"}))
    random, instance = Random(4), Instance.make(system)
    for rewritten in seen.systems:
        compiled, interpreter = CompiledSystem(rewritten), Interpreter(Instance.make(rewritten))
        for _ in range(60):
            state = random_state(instance, random)
            sparse = compiled.from_dense(state)
            for prop in rewritten.declared:
                if prop.kind is PropertyKind.INVARIANT:
                    assert (not compiled.failing_bindings(sparse, prop)) == interpreter.holds_for_all(prop, state)


def test_what_cannot_be_decided_and_what_is_lost() -> None:
    seen = partial(load_spec("pages:one-pool"), frozenset({"reading", "content"}))
    assert seen.undecidable == {
        **dict.fromkeys(("isolated_read", "fresh_read", "can_be_read"), ("content", "reading")), "no_deadlock": ("reading",)
    }
    assert seen.tainted == {name: f"abort writes '{name}' where 'reading' says" for name in ("free", "quarantined")}
    assert seen.following.undecidable.keys() - seen.undecidable.keys() == {"pages_conserved"}
    assert seen.judge("no_deadlock", possible=False, sure=False) is Verdict.UNDECIDED
    seen = partial(load_spec("pages:one-pool"), frozenset({"content"}))
    assert (seen.undecidable, seen.tainted) == ({}, {})
    assert seen.judge("fresh_read", possible=True, sure=False) is Verdict.UNDECIDED
    assert seen.judge("fresh_read", possible=False, sure=False) is Verdict.VIOLATED
    assert seen.judge("fresh_read", possible=True, sure=True) is Verdict.HOLDS


def test_the_range_of_an_unknown_counter_is_not_decided() -> None:
    b = Builder("counted")
    used = b.counter("used", high=1)
    b.action("use", updates=[used.set(add(used(), 1))])
    seen = partial(b.build(), frozenset({"used"}))
    assert seen.undecidable == {"range:used": ("used",)}
    assert seen.judge("range:used", possible=True, sure=True) is Verdict.UNDECIDED


def test_names_that_cannot_be_unknown() -> None:
    with pytest.raises(UsageError, match="no variable 'contents'; did you mean 'content'"):
        partial(load_spec("pages"), frozenset({"contents"}))
    with pytest.raises(UsageError, match="'pool' cannot be unknown"):
        partial(load_spec("handoff"), frozenset({"pool"}))
    with pytest.raises(UsageError, match="no property"):
        partial(load_spec("pages"), frozenset()).surely("isolated_reed")


def test_an_operator_without_a_rule_is_an_error() -> None:
    b = Builder("odd")
    lit = b.relation("lit")
    with pytest.raises(InternalError, match="no rule"):
        rails(Apply(Operator.ADD, (lit(), lit()), BOOL), frozenset({"lit"}))


def test_each_rule() -> None:
    """Small conditions, and what is left of them without `lit`, `owner` and `used`."""
    b = Builder("rules")
    page = b.sort("Page")
    lit, on = b.relation("lit", page), b.relation("on", page)
    owner = b.function("owner", page, to=Maybe(page))
    used = b.counter("used", high=3)
    p, q = var("p", page), var("q", page)
    unknown = frozenset({"lit", "owner", "used"})

    def both(expr: Expr) -> tuple[Expr, Expr]:
        found = rails(expr, unknown)
        return found.yes, found.possible

    assert both(lit(p)) == (FALSE, TRUE)
    assert both(on(p)) == (on(p), on(p))
    assert both(not_(lit(p))) == (FALSE, TRUE)
    assert both(and_(on(p), lit(p))) == (FALSE, on(p))
    assert both(or_(on(p), lit(p))) == (on(p), TRUE)
    assert both(implies(lit(p), on(p))) == (on(p), TRUE)
    assert both(implies(on(p), lit(p))) == (not_(on(p)), TRUE)
    assert both(eq(on(p), lit(p))) == (FALSE, TRUE)
    assert both(eq(owner(p), q)) == (FALSE, TRUE)
    assert both(is_none(owner(p))) == (FALSE, TRUE)
    assert both(and_(not_(is_none(owner(p))), on(the(owner(p))))) == (FALSE, TRUE)
    assert both(less(used(), 2)) == (FALSE, TRUE)
    assert both(at_most(add(used(), 1), 2)) == (FALSE, TRUE)
    assert both(all_([q], or_(on(q), lit(q)))) == (all_([q], on(q)), TRUE)
    assert both(any_([q], and_(on(q), lit(q))))[0] == FALSE
    assert both(if_(on(p), lit(p), on(q)))[0] == and_(not_(on(p)), on(q))
    assert both(if_(lit(p), on(p), on(q)))[0] == and_(on(p), on(q))
    assert both(at_most(count([q], and_(on(q), lit(q))), 0))[0] == all_([q], not_(on(q)))
    assert both(eq(if_(on(p), q, the(owner(p))), p))[0] == and_(on(p), eq(q, p))
