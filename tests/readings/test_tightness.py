"""States that satisfy the claims, counted against those that are reachable."""

from __future__ import annotations

from itertools import product

from kvmodel.language.instance import Instance, State
from kvmodel.language.load import load_spec
from kvmodel.readings.conditions import Induction
from kvmodel.readings.explore import reachable
from kvmodel.readings.run import Interpreter
from kvmodel.readings.tightness import tightness
from kvmodel.views.console import draw
from kvmodel.views.cutoff import tightness_lines


def claims(instance: Instance) -> list[str]:
    return [claim.name for claim in Induction(instance.system).claims.values() if not claim.derived]


def test_it_counts_what_the_interpreter_counts() -> None:
    instance = Instance.make(load_spec("pages:one-pool"), {"Request": 1, "Page": 1})
    interpreter = Interpreter(instance)
    invariants = [Induction(instance.system).claims[name] for name in claims(instance)]
    values = product(*(instance.values_of(kind) for kind in instance.state_layout.types))
    satisfying = sum(
        all(interpreter.evaluate(part, State((), state), {}) for claim in invariants for part in claim.parts) for state in values
    )
    found = tightness(instance, claims(instance))
    assert found.states == 128
    assert found.satisfying == satisfying
    assert found.reachable == reachable(instance, ()).states
    assert found.reachable <= found.satisfying


def test_a_claim_less_is_less_tight_and_none_is_everything() -> None:
    instance = Instance.make(load_spec("pages:one-pool"), {"Request": 2, "Page": 1})
    whole = tightness(instance, claims(instance))
    less = tightness(instance, [name for name in claims(instance) if name != "pages_conserved"])
    assert whole.satisfying is not None
    assert less.satisfying is not None
    assert whole.satisfying < less.satisfying < whole.states
    assert tightness(instance, ()).satisfying == whole.states


def test_deployments_are_counted_together() -> None:
    instance = Instance.make(load_spec("handoff"), {"Request": 1, "Page": 1})
    found = tightness(instance, claims(instance))
    assert found.satisfying is not None
    assert found.reachable == reachable(instance, ()).states
    assert 1 <= found.reachable <= found.satisfying < 5_000
    assert f"{found.satisfying} satisfy the claims; {found.reachable} are reachable" in draw(tightness_lines(found), width=200)


def test_what_is_not_counted_is_undecided_with_the_figure() -> None:
    instance = Instance.make(load_spec("pages:one-pool"), {"Request": 2, "Page": 1})
    found = tightness(instance, claims(instance), limit=5)
    assert found.satisfying is None
    assert "more than 5" in found.reason
    text = draw(tightness_lines(found))
    assert "undecided" in text
    assert "not counted" in text
