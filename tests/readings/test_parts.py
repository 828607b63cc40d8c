"""A system that is taken apart says what the whole says: its conditions, its steps, and what can be read of a state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kvmodel.engines.log.loops import LoopedSource
from kvmodel.language.instance import Instance, State
from kvmodel.language.load import load_spec
from kvmodel.language.system import TransitionSystem, Variable
from kvmodel.language.types import Maybe
from kvmodel.readings.dense import compile_function
from kvmodel.readings.emitter import indented
from kvmodel.readings.fold import fold_system
from kvmodel.readings.generated import put, value_of
from kvmodel.readings.parts import Parts, PartsState, parts_of
from kvmodel.readings.run import Interpreter
from kvmodel.traces.trace import Choice
from tests.readings.held import states_of

SIZES = {"Request": 2, "Page.PREFILL": 1, "Page.DECODE": 2}
SPECS = ("handoff", "handoff:sglang-0.5.16", "handoff:sglang-0.5.21-truncating", "handoff:zero-on-free-alone")


class Apart:
    """An instance taken apart, beside the whole."""

    def __init__(self, whole: Instance) -> None:
        self.whole = whole
        self.system = fold_system(whole.system)
        partition = next(variable for variable in self.system.variables if variable.partition)
        ranges: dict[str, list[int]] = {}
        for (_, element), member in whole.part_of.items():
            ranges.setdefault(member, []).append(element)
        found = {member: range(elements[0], elements[-1] + 1) for member, elements in ranges.items()}
        parts = parts_of(self.system, partition, found)
        assert parts.partition == partition
        self.parts = parts.settled({action.name: parts.choices(action.parameters) for action in self.system.actions})
        self.layout = self.parts.layout(whole)

    def state(self, state: State) -> PartsState:
        made = PartsState(self.parts, self.layout)
        writes = {name: put(store, self.layout) for name, store in self.layout.stores.items()}
        for layout, values in ((self.whole.rigid_layout, state.rigid), (self.whole.state_layout, state.values)):
            for (name, index), value in zip(layout.places, values, strict=True):
                if self.whole.system.by_name[name].partition:
                    continue
                apart = self.parts.name(name, index)
                if apart in self.parts.constant:
                    assert self.parts.constant[apart].value == value
                else:
                    writes[apart](made.cells, made.out_of_range, index, value)
        made.apart.check_indices()
        return made

    def after(self, state: State, choice: Choice) -> State:
        action = self.system.action(choice.action)
        members = self.parts.members(action.parameters, choice.binding)
        source = LoopedSource(self.parts.action(action, members), self.parts.apart, self.layout)
        body = [f"{source._binding} = B" if source.names else "pass", *source.writes(frozenset())]
        take = compile_function(["def take(S, R, B):", *indented([*source._emitter.prologue(), *body])], "take")
        made = self.state(state)
        take(made.cells, made.out_of_range, choice.binding)
        return State(state.rigid, tuple(made.get(name, index) for name, index in self.whole.state_layout.places))


def compare(system: TransitionSystem, sizes: Mapping[str, int], seeds: range) -> int:
    """Compare conditions, reads and steps in states of some walks; gives how many values were compared."""
    whole = Instance.make(system, sizes)
    apart, interpreter = Apart(whole), Interpreter(whole)
    parts, compared = apart.parts, 0
    for seed in seeds:
        for state in states_of(whole, seed, 14):
            made = apart.state(state)
            same_reads(whole, made, state)
            conditions = [(action.parameters, guard.condition) for action in apart.system.actions for guard in action.guards]
            conditions += [(each.parameters, each.condition) for each in apart.system.declared]
            conditions += [(each.parameters, each.condition) for each in apart.system.finals]
            for parameters, condition in conditions:
                for binding in whole.bindings(parameters):
                    members = parts.members(parameters, binding)
                    value = value_of(parts.expression(condition, members), parts.parameters(parameters, members), apart.layout)
                    expected = interpreter.evaluate(condition, state, interpreter.environment(parameters, binding))
                    assert value(made.cells, *binding) == expected, (condition, binding)
                    compared += 1
            for choice in interpreter.enabled(state):
                assert apart.after(state, choice) == interpreter.successor(state, choice), choice
    return compared


def same_reads(whole: Instance, made: PartsState, state: State) -> None:
    values = dict(zip(whole.state_layout.places, state.values, strict=True))
    for (name, index), value in values.items():
        assert made.get(name, index) == value
    for variable in whole.system.state_variables:
        stored = dict(made.stored(variable.name))
        default = made.parts.constant.get(variable.name, None)
        for index, value in stored.items():
            assert values[variable.name, index] == value
        missing = [value for (name, index), value in values.items() if name == variable.name and index not in stored]
        assert len(set(missing)) <= 1 or default is not None
        if [key.name for key in variable.keys] == ["Request", "Page"]:
            for request in whole.elements(variable.keys[0]):
                row = {page for page in whole.elements(variable.keys[1]) if values[variable.name, (request, page)]}
                assert made.row(variable.name, request) == row
            for page in whole.elements(variable.keys[1]):
                column = made.column(variable.name, page)
                assert column is None or column == {r for r in whole.elements(variable.keys[0]) if values[variable.name, (r, page)]}


@pytest.mark.parametrize("spec", SPECS)
def test_shipped_specs(spec: str) -> None:
    assert compare(load_spec(spec), SIZES, range(4)) > 5_000


def test_what_nothing_writes_is_a_constant() -> None:
    apart = Apart(Instance.make(load_spec("handoff"), SIZES))
    assert {"writing PREFILL"} <= apart.parts.constant.keys()
    assert apart.parts.origins["writing DECODE"] == "writing"
    assert [apart.parts.origins[variable.name] for variable in apart.parts.apart.variables if variable.rigid][-1] == "prompt"
    assert not {"writing DECODE", "content PREFILL", "holds PREFILL"} & apart.parts.constant.keys()


def test_an_element_that_a_variable_holds_keeps_the_whole_together() -> None:
    handoff = load_spec("handoff")
    ranges = {"PREFILL": range(1), "DECODE": range(1, 3)}
    assert parts_of(handoff, handoff.by_name["pool"], ranges).partition is not None
    holder = Variable("latest", (), Maybe(handoff.by_name["pool"].keys[0]), None)
    parts = parts_of(replace(handoff, variables=(*handoff.variables, holder)), handoff.by_name["pool"], ranges)
    assert parts.partition is None
    assert parts.apart.by_name.keys() == handoff.by_name.keys() | {"latest"}


@pytest.mark.parametrize("fault", ["a member left out", "another variable", "a constant that is none"])
def test_a_wrong_part_is_noticed(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    choices, settled = Parts.choices, Parts.settled
    match fault:
        case "a member left out":
            monkeypatch.setattr(Parts, "choices", lambda self, given: choices(self, given)[:1])
        case "another variable":
            monkeypatch.setattr("kvmodel.readings.parts._name", lambda name, members: " ".join((name, *("DECODE" for _ in members))))
        case "a constant that is none":
            monkeypatch.setattr(Parts, "settled", lambda self, given: settled(self, dict.fromkeys(given, ())))
    with pytest.raises((AssertionError, KeyError)):
        compare(load_spec("handoff"), SIZES, range(2))
