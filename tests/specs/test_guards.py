"""Nothing in the recommended design is there for nothing: each guard and each defence, dropped, breaks a named property.

What is redundant at the default size is listed with the reason, and the exploration shows that it is.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvmodel.language.instance import Instance
from kvmodel.language.load import load_spec
from kvmodel.language.system import FlagKind, PropertyKind, TransitionSystem
from kvmodel.readings.explore import reachable

HANDOFF = load_spec("handoff")
GUARDS = [(action.name, guard.name) for action in HANDOFF.actions for guard in action.guards]
DEFENCES = [flag.name for flag in HANDOFF.flags if flag.kind is FlagKind.DEFENCE and flag.value]
ENOUGH_STATES = (20_000, 200_000)  # most violations are near; a few are not

REDUNDANT = {
    ("decode_door", "fits decode's pool"): "decode's pool covers the context, so nothing is longer than it",
    ("commit", "transfer accepted"): "a rejected request stops at prefill's door, so no short transfer reaches the length check",
    "compares_lengths": "the same: the second line of defence behind prefill's door",
}


def broken(system: TransitionSystem) -> set[str]:
    """Names of the properties that are violated in what is explored of `system` at the default size."""
    properties = [p for p in system.properties if p.kind is not PropertyKind.REACHABLE]
    for limit in ENOUGH_STATES:
        graph = reachable(Instance.make(system), properties, limit=limit)
        if graph.seen or graph.complete:
            return set(graph.seen)
    raise AssertionError(f"nothing violated in {ENOUGH_STATES[-1]:,} states, and there are more")


def without_guard(action: str, guard: str) -> TransitionSystem:
    """`handoff` with one guard dropped."""
    changed = tuple(
        replace(entry, guards=tuple(g for g in entry.guards if g.name != guard)) if entry.name == action else entry
        for entry in HANDOFF.actions
    )
    return replace(HANDOFF, actions=changed)


@pytest.mark.parametrize(("action", "guard"), GUARDS)
def test_dropping_a_guard_is_noticed(action: str, guard: str) -> None:
    violated = broken(without_guard(action, guard))
    if (action, guard) in REDUNDANT:
        assert violated == set()
    else:
        assert violated


@pytest.mark.parametrize("defence", DEFENCES)
def test_switching_a_defence_off_is_noticed(defence: str) -> None:
    violated = broken(HANDOFF.with_flags({defence: False}))
    if defence in REDUNDANT:
        assert violated == set()
    else:
        assert violated


def test_at_most_three_are_redundant() -> None:
    assert len(REDUNDANT) <= 3
    assert set(REDUNDANT) <= {*GUARDS, *DEFENCES}


def test_behind_a_broken_door_the_length_check_is_what_holds() -> None:
    """The redundant defence is not an idle one: with prefill's door broken it is what keeps reads isolated."""
    open_door = HANDOFF.with_flags({"prefill_door_honours_reject": False})
    isolated = [HANDOFF.property("isolated_read")]
    graph = reachable(Instance.make(open_door), isolated)
    assert graph.complete
    assert not graph.seen
    assert reachable(Instance.make(open_door.with_flags({"compares_lengths": False})), isolated).seen
