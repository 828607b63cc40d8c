"""What the sampled readings share, and shrinking."""

from __future__ import annotations

import pytest

from kvmodel.errors import InternalError, UsageError
from kvmodel.language.build import ANYTHING, Builder, not_
from kvmodel.language.instance import Instance, State
from kvmodel.readings.replay import make_trace
from kvmodel.readings.sampled import Run, Sampler, describe_run
from kvmodel.readings.shrink import shrink
from kvmodel.traces.trace import Choice
from tests.readings.sampled_systems import counter, starts, switches


def sampler(instance: Instance) -> Sampler:
    return Sampler(instance, instance.system.properties)


def on(*things: int) -> tuple[Choice, ...]:
    return tuple(Choice("turn_on", (thing,)) for thing in things)


def off(*things: int) -> tuple[Choice, ...]:
    return tuple(Choice("turn_off", (thing,)) for thing in things)


OPEN = (Choice("open_gate", ()),)


def test_initial_states_come_simplest_first_without_those_that_tell_nothing() -> None:
    """Of (ready, bad, done): nothing is enabled without ready; of those that violate `good` the first is kept."""
    assert [state.values for state in sampler(starts()).starts] == [(False, True, False), (True, False, False), (True, True, False)]


def test_contradictory_initial_conditions_are_refused() -> None:
    b = Builder("impossible")
    lit = b.relation("lit")
    b.initially("lit", lit())
    b.invariant("dark", not_(lit()))
    with pytest.raises(UsageError, match="impossible has no initial state at .*: its initial conditions contradict each other"):
        assert sampler(Instance.make(b.build())).starts


def test_a_sight_has_the_enabled_steps_in_the_order_of_all_bindings() -> None:
    instance = switches()
    found = sampler(instance)
    sight = found.steps(()).look((True, False, True, False))
    assert {name: [move.index for move in moves] for name, moves in sight.moves.items()} == {"turn_on": [1], "turn_off": [0, 2]}
    assert (sight.violated, sight.shown) == ((), ())
    sight = found.steps(()).look((True, True, True, True))
    assert (sight.violated, sight.shown) == (("stays_shut",), ("opens",))


def test_a_sight_remembers_only_so_many_states(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvmodel.readings import sampled

    monkeypatch.setattr(sampled, "MOST_SIGHTS", 2)
    steps = sampler(switches()).steps(())
    for number in range(5):
        values = (bool(number & 1), bool(number & 2), bool(number & 4), False)
        assert steps.look(values) == steps._look(values)
        assert len(steps._sights) <= 2


def test_a_run_is_cut_where_it_first_shows_a_property_and_loses_steps_that_are_not_enabled() -> None:
    instance = switches()
    start = sampler(instance).starts[0]
    run = Run(start, (*on(0, 1, 2), *OPEN, *off(1)))
    assert sampler(instance).shown(run, "stays_shut") == Run(start, run.steps[:4])
    assert sampler(instance).shown(run, "opens") == Run(start, run.steps[:4])
    assert sampler(instance).shown(Run(start, (*on(0, 0, 1, 2), *OPEN)), "stays_shut") == Run(start, run.steps[:4])
    assert sampler(instance).shown(Run(start, on(0, 1, 2)), "stays_shut") is None


def test_a_violated_assertion_includes_its_step_and_a_range_ends_the_run() -> None:
    instance = counter()
    start = sampler(instance).starts[0]
    uses = (Choice("use", ()),) * 3
    assert sampler(instance).shown(Run(start, uses), "assert:use:first") == Run(start, uses[:2])
    assert sampler(instance).shown(Run(start, uses), "range:used") == Run(start, uses)
    assert sampler(instance).steps(()).look((3, False)).moves == {}
    assert sampler(instance).steps(()).look((3, False)).violated == ("range:used",)
    assert sampler(instance).steps(()).look((2, True)).violated == ("no_deadlock",)


def test_shrinking_drops_single_steps_blocks_and_pairs() -> None:
    instance = switches()
    start = sampler(instance).starts[0]
    detours = (*on(0), *off(0), *on(2, 1), *off(2), *on(0), *off(1), *on(2), *off(0), *on(1, 0))
    found = shrink(sampler(instance), Run(start, (*detours, *OPEN, *off(0), *on(0))), "stays_shut")
    assert sorted(choice.action for choice in found.steps) == ["open_gate", "turn_on", "turn_on", "turn_on"]
    assert make_trace(instance, found.start, found.steps, "stays_shut").steps == found.steps


def test_shrinking_prefers_a_simpler_initial_state() -> None:
    instance = starts()
    found = shrink(sampler(instance), Run(State((), (True, True, False)), ()), "good")
    assert found.start.values == (False, True, False)


def test_shrinking_finds_an_initial_state_that_saves_steps() -> None:
    """The run lights the lamp itself; another initial state has it lit."""
    b = Builder("lamp")
    lit, seen = b.relation("lit", initial=ANYTHING), b.relation("seen")
    b.action("light", guards={"dark": not_(lit())}, updates=[lit.set(True)])
    b.action("look", guards={"lit": lit()}, updates=[seen.set(True)])
    b.invariant("unseen", not_(seen()))
    instance = Instance.make(b.build())
    run = Run(State((), (False, False)), (Choice("light", ()), Choice("look", ())))
    assert shrink(sampler(instance), run, "unseen") == Run(State((), (True, False)), (Choice("look", ()),))


def test_a_run_that_does_not_show_the_property_is_a_defect() -> None:
    instance = switches()
    with pytest.raises(InternalError, match="a sampled run does not show 'stays_shut' when it is taken again"):
        shrink(sampler(instance), Run(sampler(instance).starts[0], on(0)), "stays_shut")


def test_a_run_as_text() -> None:
    instance = switches()
    start = sampler(instance).starts[0]
    assert describe_run(instance, Run(start, (*on(2), *off(2)))) == "  start: as declared\n  1. turn_on(t2)\n  2. turn_off(t2)"
    instance = starts()
    assert describe_run(instance, Run(State((), (True, False, False)), ())) == "  start: ready = yes, bad = no"
