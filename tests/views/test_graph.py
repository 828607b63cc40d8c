"""The page graph: it is the whole state, marks what is wrong, and keeps its content in every format."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import networkx as nx
import pydot
import pytest

import kvmodel
from kvmodel.errors import UsageError
from kvmodel.language.instance import Instance, Layout, State
from kvmodel.language.system import Variable
from kvmodel.language.types import Bool, Element, Maybe, Sort, Type, Value
from kvmodel.readings.explore import reachable
from kvmodel.traces.itf import write_itf
from kvmodel.traces.trace import Trace
from kvmodel.views.graph import FOR, HOLDS_DATA_OF, OWNS, READS, WRITES, dot, graphml, node_link_json, node_names, page_graph, step_graph
from tests import lending
from tests.views import hostile
from tests.violations import shortest as violation

VIOLATIONS = (
    ("handoff:buggy", "isolated_read"),
    ("tenants:buggy", "isolated_read"),
    ("handoff:abort-without-quarantine", "isolated_write"),
    ("pages:one-pool-without-quarantine", "isolated_read"),
)


def traces() -> list[Trace]:
    found = [violation(*shown) for shown in VIOLATIONS]
    return [*found, lending.trace(), lending.trace("greedy", "range:loans"), hostile.trace()]


# -- from a graph back to the state: an inverse of `page_graph` that shares nothing with it but the names of nodes


def state_of(graph: Any, instance: Instance) -> State:
    rigid, layout = instance.rigid_layout, instance.state_layout
    return State(tuple(values_of(graph, instance, rigid)), tuple(values_of(graph, instance, layout)))


def values_of(graph: Any, instance: Instance, layout: Layout) -> list[Value]:
    names = node_names(instance)
    return [value_at(graph, instance, names, instance.system.by_name[name], index) for name, index in layout.places]


def value_at(
    graph: Any, instance: Instance, names: Mapping[tuple[str, Value], str], variable: Variable, index: tuple[Value, ...]
) -> Value:
    keys = [names.get((key.name, part), str(part)) for key, part in zip(variable.keys, index, strict=True)]
    if variable.name == "holds":
        return bool(graph.has_edge(keys[0], keys[1], OWNS))
    if variable.name == "content":
        found = [target for _, target, key in graph.out_edges(keys[0], keys=True) if key == HOLDS_DATA_OF]
        return value_called(instance, names, variable.type, found[0] if found else None)
    if variable.name in ("reading", "writing"):
        relation = READS if variable.name == "reading" else WRITES
        return any(
            key == relation and graph.has_edge(operation, keys[0], FOR) for operation, _, key in graph.in_edges(keys[1], keys=True)
        )
    home = next((number for number, key in enumerate(variable.keys) if isinstance(key, Sort)), None)
    owner = graph.graph if home is None else graph.nodes[keys[home]]
    stored = owner.get(f"s.{hostile.shown(variable.name)}")
    rest = [key for number, key in enumerate(keys) if number != home]
    if not rest:
        return value_called(instance, names, variable.type, stored)
    entries = json.loads(stored) if isinstance(stored, str) else stored
    if isinstance(variable.type, Bool):
        return rest in entries
    return value_called(instance, names, variable.type, next(entry[-1] for entry in entries if entry[:-1] == rest))


def value_called(instance: Instance, names: Mapping[tuple[str, Value], str], kind: Type, stored: Value) -> Value:
    if stored is None or not isinstance(kind, Element | Maybe):
        return stored
    if isinstance(kind.domain, Sort):
        return next(element for (sort, element), name in names.items() if sort == kind.domain.name and name == stored)
    return next(member for member in instance.elements(kind.domain) if hostile.shown(str(member)) == stored)


def test_every_state_of_a_trace_is_in_its_graph() -> None:
    for trace in traces():
        for step, state in enumerate(trace.states):
            assert state_of(page_graph(state, trace.instance), trace.instance) == state
            assert state_of(step_graph(trace, step), trace.instance) == state


def test_the_states_are_in_every_format() -> None:
    for trace in traces():
        graph = step_graph(trace, len(trace.steps))
        for again in (from_json(graph), from_graphml(graph)):
            assert state_of(again, trace.instance) == trace.states[-1]


def test_every_state_that_can_be_reached_is_in_its_graph() -> None:
    instance = Instance.make(kvmodel.load("pages:one-pool"), {"Request": 2, "Page": 2})
    states = [State((), values) for deployment in reachable(instance, ()).deployments for values in deployment.states]
    assert len(states) > 500
    for state in states:
        assert state_of(page_graph(state, instance, []), instance) == state


def test_a_wrong_graph_is_noticed() -> None:
    trace = violation("handoff:buggy", "isolated_read")
    graph = step_graph(trace, 13)
    graph.remove_edge("r1", "decode.p1", OWNS)
    assert state_of(graph, trace.instance) != trace.states[13]


# -- what it says


def test_nodes_and_edges_of_the_incident() -> None:
    graph = step_graph(violation("tenants:buggy", "isolated_read"), 13)
    assert graph.nodes["r1"]["kind"] == "request"
    assert graph.nodes["r1"]["tenant"] == "t1"
    assert graph.nodes["r1"]["s.seen_as"] == "STUB"
    page = graph.nodes["decode.p1"]
    assert (page["kind"], page["pool"], page["position"]) == ("page", "decode", 1)
    assert (page["holders"], page["content"], page["foreign"]) == (["r1"], "r0", True)
    reads = [(graph.nodes[source]["request"], target) for source, target, key in graph.edges(keys=True) if key == READS]
    assert reads == [("r1", "decode.p0"), ("r1", "decode.p1")]
    assert {key for *_, key in graph.edges(keys=True)} == {OWNS, HOLDS_DATA_OF, READS, FOR}
    assert graph.graph["spec"] == "tenants:buggy"
    assert graph.graph["action"] == "read(r=r1)"


def offending(graph: Any) -> list[tuple[str, str, str]]:
    edges = graph.edges(keys=True, data="offending")
    return [(graph.nodes[source].get("request", source), key, target) for source, target, key, bad in edges if bad]


def test_the_offending_read_is_marked_and_nothing_else() -> None:
    trace = violation("handoff:buggy", "isolated_read")
    graph = step_graph(trace, 13)
    assert offending(graph) == [("decode.p1", HOLDS_DATA_OF, "r0"), ("r1", READS, "decode.p1"), ("r1", FOR, "r1")]
    assert [name for name, bad in graph.nodes(data="offending") if bad] == ["decode.p1", "r1", "read: r1, decode.p1"]
    assert graph.graph["violated"]
    for step in range(13):
        before = step_graph(trace, step)
        assert not offending(before)
        assert not before.graph["violated"]


def test_the_offending_write_is_marked() -> None:
    graph = step_graph(violation("handoff:abort-without-quarantine", "isolated_write"), 8)
    assert ("r0", WRITES, "decode.p0") in offending(graph)
    assert graph.graph["ended"] == [{"relation": OWNS, "request": "r0", "page": "decode.p0"}]


def test_without_a_trace_every_invariant_is_looked_at() -> None:
    trace = violation("handoff:buggy", "isolated_read")
    graph = page_graph(trace.states[13], trace.instance)
    assert graph.nodes["read: r1, decode.p1"]["violates"] == ["isolated_read", "fresh_read"]
    assert graph.nodes["read: r1, decode.p0"]["violates"] == []


def test_a_counter_out_of_range_is_marked_where_it_is() -> None:
    trace = lending.trace("greedy", "range:loans")
    graph = step_graph(trace, len(trace.steps))
    assert trace.steps[-1].binding[0] == 1
    assert [name for name, bad in graph.nodes(data="offending") if bad] == ["r1"]


def test_what_a_step_changed() -> None:
    graph = step_graph(violation("handoff:buggy", "isolated_read"), 10)
    assert graph.nodes["decode.p0"]["was"] == {"content": None}
    assert "was" not in graph.nodes["decode.p1"]
    assert graph.edges["decode.p0", "r1", HOLDS_DATA_OF]["new"]
    assert graph.graph["ended"] == [{"relation": WRITES, "request": "r1", "page": "decode.p0"}]


def test_the_graph_is_complete_however_large() -> None:
    instance = Instance.make(kvmodel.load("pages"), {"Request": 5, "Page": 200})
    state = State((), tuple(variable_value(name) for name, _ in instance.state_layout.places))
    graph = page_graph(state, instance, ["exclusive_owner"])
    assert graph.number_of_nodes() == 205
    assert state_of(graph, instance) == state


def variable_value(name: str) -> Value:
    return None if name == "content" else name == "free"


def test_a_spec_without_pages_is_told_so() -> None:
    from kvmodel.language.build import Builder

    b = Builder("light")
    on = b.relation("on")
    b.action("switch", updates=[on.set(True)])
    instance = Instance.make(b.build())
    with pytest.raises(UsageError, match="light has no page graph"):
        page_graph(State((), (False,)), instance)


@pytest.mark.parametrize("step", [-1, 14])
def test_a_step_is_one_of_the_trace(step: int) -> None:
    with pytest.raises(UsageError, match="steps 0 to 13"):
        step_graph(violation("handoff:buggy", "isolated_read"), step)


# -- formats


def from_json(graph: Any) -> Any:
    return nx.node_link_graph(json.loads(node_link_json(graph)), edges="edges")


def from_graphml(graph: Any) -> Any:
    return nx.read_graphml(io.BytesIO(graphml(graph).encode()), force_multigraph=True)


def texts(graph: Any) -> set[str]:
    return {value for _, data in graph.nodes(data=True) for value in data.values() if isinstance(value, str)}


def test_hostile_names_stay_text_in_json_and_graphml() -> None:
    graph = step_graph(hostile.trace(), 2)
    assert texts(from_json(graph)) == texts(graph)
    assert texts(from_graphml(graph)) >= texts(graph)
    assert node_link_json(graph).isascii()
    for written in (graphml(graph), dot(graph), node_link_json(graph)):
        assert all(character.isprintable() or character == "\n" for character in written)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # in the parser of pydot
def test_hostile_names_stay_text_in_dot() -> None:
    graph = step_graph(hostile.trace(), 2)
    parsed = pydot.graph_from_dot_data(dot(graph))
    assert parsed is not None
    assert len(parsed) == 1
    parts = (parsed[0], *parsed[0].get_subgraphs())
    nodes = {unquoted(node.get_name()): node for part in parts for node in part.get_nodes() if node.get_name() != "graph"}
    assert set(nodes) == set(graph.nodes)
    assert len(parsed[0].get_edges()) == graph.number_of_edges()
    for name, data in graph.nodes(data=True):
        found = {unquoted(key): unquoted(value) for key, value in nodes[name].get_attributes().items()}
        assert found["label"] == data["label"]
        assert found["kind"] == data["kind"]


def unquoted(text: str) -> str:
    """What Graphviz shows for a quoted string."""
    if not text.startswith('"'):
        return text
    plain = re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), text[1:-1], flags=re.DOTALL)
    return plain.replace("&amp;", "&")


def test_the_same_text_every_time(tmp_path: Path) -> None:
    trace = violation("pages:one-pool-without-quarantine", "isolated_read")
    write_itf(trace, tmp_path / "trace")
    program = (
        "import sys; from kvmodel.api import read_trace; from kvmodel.views.graph import *; "
        "g = step_graph(read_trace(sys.argv[1]), 8); print(dot(g) + graphml(g) + node_link_json(g), end='')"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "trace")]
    there = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": "7"})
    graph = step_graph(trace, 8)
    assert there.stdout == dot(graph) + graphml(graph) + node_link_json(graph)
