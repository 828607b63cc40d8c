"""The page graph of a state, for networkx: who owns a page, whose data is in it, and what is in flight.

Nodes have a `kind`:

- ``request``: with its `tenant` where the spec has one;
- ``page``: with its `pool`, its `position` there, `holders`, `content` (whose data is in it; None is blank) and `foreign`
  (somebody holds it and the data is somebody else's);
- ``operation``: one read or write in flight (`operation`, `request`, `page`);
- ``element``: an element of any other sort of the spec.

Edges have a `relation`, which is also their key:

- ``owns``: request to page;
- ``holds data of``: page to request;
- ``reads`` and ``writes``: operation to page;
- ``for``: operation to the request that it is in flight for.

The graph is the whole state: every other variable ``v`` is an attribute ``s.v``, as specs write it, of the node that it
is indexed by first, or of the graph. A relation of several keys is the list of its true indices without that first one, a
function of several keys a list of indices, each with its value at the end. `violates` names the properties that a node or
an edge takes part in breaking, and `offending` says whether there is one. Every text is printable.
"""

from __future__ import annotations

import json
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import networkx as nx

from kvmodel.errors import UsageError, printable
from kvmodel.language.expressions import Apply, Expr, Read, walk
from kvmodel.language.instance import Binding, Instance, Layout, State, Values
from kvmodel.language.operators import Operator
from kvmodel.language.system import Property, PropertyKind, Variable
from kvmodel.language.types import Bool, Counter, Domain, Element, Maybe, Sort, Type, Value
from kvmodel.readings.run import Interpreter
from kvmodel.traces.trace import Trace
from kvmodel.views.table import Ownership, node_of, ownership, step_text

if TYPE_CHECKING:
    from typing import TypeAlias

    Graph: TypeAlias = "nx.MultiDiGraph[str]"

__all__ = ["FOR", "HOLDS_DATA_OF", "OWNS", "READS", "WRITES", "dot", "graphml", "node_link_json", "node_names", "page_graph", "step_graph"]

OWNS, HOLDS_DATA_OF, READS, WRITES, FOR = "owns", "holds data of", "reads", "writes", "for"
IN_FLIGHT = {"writing": (WRITES, "write"), "reading": (READS, "read")}
RELATED = {"holds": OWNS, "content": HOLDS_DATA_OF, "writing": WRITES, "reading": READS}
MOST_BINDINGS = 50_000  # of a property, that are tried for a state; of more, the first that breaks it is marked


def page_graph(state: State, instance: Instance, properties: Sequence[str] | None = None) -> Graph:
    """The graph of `state`. What breaks `properties` (None: every invariant of the spec) is marked.

    Raises UsageError for a spec without the page vocabulary (see `Ownership`) and for an unknown property.
    """
    return _Maker(state, instance).graph(properties)


def step_graph(trace: Trace, step: int) -> Graph:
    """The graph of the state after `step` steps of a trace (0: the initial state), with what the step changed.

    The graph has `step`, `steps`, `action`, `node`, `property`, `violated`, and `ended`: what the step took away, each with its
    `relation`, `request` and `page`. A node that changed has `was`: what it had before, by attribute; an edge or node that is
    new has ``new``. Only the property that the trace is of is marked. Raises UsageError as `page_graph`, and for an unknown step.
    """
    if not 0 <= step < len(trace.states):
        raise UsageError(f"the trace has steps 0 to {len(trace.steps)}, no step {step}")
    instance = trace.instance
    invariant = bool(trace.property) and instance.system.property(trace.property).kind is PropertyKind.INVARIANT
    shown = [trace.property] if invariant else []
    graph = page_graph(trace.states[step], instance, shown)
    if trace.property and not invariant and step == len(trace.steps):
        _mark_end(graph, trace)
    graph.graph |= {"step": step, "steps": len(trace.steps), "property": printable(trace.property)}
    graph.graph["violated"] = bool(shown and _marked(graph)) or (
        step == len(trace.steps) and bool(trace.property) and instance.system.property(trace.property).kind is not PropertyKind.REACHABLE
    )
    graph.graph |= {"action": "", "node": "", "ended": []}
    if step:
        choice = trace.steps[step - 1]
        graph.graph |= {"action": printable(step_text(instance, choice)), "node": printable(node_of(instance, choice))}
        _compare(page_graph(trace.states[step - 1], instance, []), graph)
    return graph


def _marked(graph: Graph) -> bool:
    return any(data["offending"] for _, data in graph.nodes(data=True))


def _compare(before: Graph, after: Graph) -> None:
    """Mark in `after` what is not as in `before`."""
    for name, data in after.nodes(data=True):
        old = before.nodes.get(name)
        if old is None:
            data["new"] = True
            continue
        was = {key: value for key, value in old.items() if key not in ("violates", "offending") and data.get(key) != value}
        if was:
            data["was"] = was
    known = set(before.edges(keys=True))
    for source, target, key, data in after.edges(keys=True, data=True):
        if (source, target, key) not in known:
            data["new"] = True
    for source, target, key in before.edges(keys=True):
        if not after.has_edge(source, target, key) and key != FOR:
            page, other = (source, target) if key == HOLDS_DATA_OF else (target, source)
            after.graph["ended"].append({"relation": key, "request": before.nodes[other].get("request", other), "page": page})


def node_names(instance: Instance) -> Mapping[tuple[str, Value], str]:
    """The node of each (sort, element): its label, with the sort's name where labels alone are ambiguous."""
    sorts = instance.system.sorts
    labels = {(s.name, e): printable(instance.label(s, e)) for s in sorts for e in instance.elements(s)}
    often = Tally(labels.values())
    return {
        (sort, element): label if often[label] == 1 else f"{printable(sort, 100)}#{element} {label}"
        for (sort, element), label in labels.items()
    }


class _Maker:
    def __init__(self, state: State, instance: Instance) -> None:
        pages = ownership(instance.system)
        if pages is None:
            raise UsageError(
                f"{instance.system.name} has no page graph: it has no `holds: Relation[X, Page]` with `content: Function[Page, X | None]`;"
                " `kvmodel trace show` shows its traces as tables"
            )
        self.state = state
        self.instance = instance
        self.pages: Ownership = pages
        self.names = node_names(instance)
        self.made: Graph = nx.MultiDiGraph()

    def graph(self, properties: Sequence[str] | None) -> Graph:
        system = self.instance.system
        self.made.graph |= {
            "spec": printable(system.name),
            "sizes": {printable(name): size for name, size in self.instance.size_options()},
            "flags": {printable(flag): value for flag, value in system.flag_values.items()},
        }
        for sort in system.sorts:
            for element in self.instance.elements(sort):
                self.made.add_node(self.names[sort.name, element], **self.described(sort, element))
        for layout, values in ((self.instance.rigid_layout, self.state.rigid), (self.instance.state_layout, self.state.values)):
            for variable in layout.variables:
                self.add_variable(variable, layout, values)
        self.summarise()
        for _, data in self.made.nodes(data=True):
            data |= {"violates": [], "offending": False}
        for *_, data in self.made.edges(data=True):
            data |= {"violates": [], "offending": False}
        invariants = [p.name for p in system.properties if p.kind is PropertyKind.INVARIANT]
        for name in invariants if properties is None else properties:
            self.mark(system.property(name))
        return self.made

    def described(self, sort: Sort, element: Value) -> dict[str, object]:
        kind = {self.pages.holder: "request", self.pages.page: "page"}.get(sort, "element")
        data: dict[str, object] = {"kind": kind, "sort": printable(sort.name), "element": element}
        data["label"] = printable(self.instance.label(sort, element))
        if kind == "page":
            assert isinstance(element, int)
            pool = self.instance.part_of.get((sort.name, element), "")
            position = element - self.instance.first_of.get((sort.name, pool), 0)
            data |= {"pool": printable(pool.lower()), "position": position}
        return data

    def add_variable(self, variable: Variable, layout: Layout, values: Values) -> None:
        name = variable.name
        if name in RELATED and self.is_related(variable):
            for (holder, page), true in self.related(variable, layout, values):
                if true:
                    self.add_relation(name, self.names[self.pages.holder.name, holder], self.names[self.pages.page.name, page])
            return
        home = next((number for number, key in enumerate(variable.keys) if isinstance(key, Sort)), None)
        alone = len(variable.keys) == (0 if home is None else 1)
        attribute = f"s.{printable(name)}"
        if not alone:
            for owner in [self.made.graph] if home is None else [data for _, data in self.of_sort(variable.keys[home])]:
                owner[attribute] = []
        for (_, index), value in islice(zip(layout.places, values, strict=True), *self.span(layout, name)):
            at = self.made.graph if home is None else self.made.nodes[self.names[variable.keys[home].name, index[home]]]
            if alone:
                at[attribute] = self.shown(variable.type, value)
                continue
            rest = [self.label(key, part) for n, (key, part) in enumerate(zip(variable.keys, index, strict=True)) if n != home]
            if not isinstance(variable.type, Bool):
                at[attribute].append([*rest, self.shown(variable.type, value)])
            elif value:
                at[attribute].append(rest)

    def span(self, layout: Layout, name: str) -> tuple[int, int]:
        """Where the values of a variable begin and end."""
        offsets = list(layout.offsets.values())
        start = layout.offsets[name]
        return start, offsets[list(layout.offsets).index(name) + 1]

    def is_related(self, variable: Variable) -> bool:
        pair = (self.pages.holder, self.pages.page)
        return variable == self.pages.content or (variable.keys == pair and isinstance(variable.type, Bool))

    def related(self, variable: Variable, layout: Layout, values: Values) -> Iterator[tuple[Binding, bool]]:
        for (_, index), value in islice(zip(layout.places, values, strict=True), *self.span(layout, variable.name)):
            if variable == self.pages.content:
                yield (value, *index), value is not None
            else:
                yield index, bool(value)

    def add_relation(self, variable: str, holder: str, page: str) -> None:
        add = self.made.add_edge
        if variable == "holds":
            add(holder, page, OWNS, relation=OWNS, label=f"{holder} owns {page}")
        elif variable == "content":
            add(page, holder, HOLDS_DATA_OF, relation=HOLDS_DATA_OF, label=f"{page} holds data of {holder}")
        else:
            relation, word = IN_FLIGHT[variable]
            name = f"{word}: {holder}, {page}"
            label = f"{holder} reads {page}" if relation == READS else f"a write for {holder} to {page}"
            self.made.add_node(name, kind="operation", operation=word, request=holder, page=page, label=label)
            add(name, page, relation, relation=relation, label=label)
            add(name, holder, FOR, relation=FOR, label=f"the {word} is for {holder}")

    def summarise(self) -> None:
        """What is worth a name of its own: the holders and the content of a page, the tenant of a request."""
        for name, data in self.of_sort(self.pages.page):
            holders = [source for source, _, key in self.made.in_edges(name, keys=True) if key == OWNS]
            content = next((target for _, target, key in self.made.out_edges(name, keys=True) if key == HOLDS_DATA_OF), None)
            data |= {"holders": holders, "content": content, "foreign": bool(holders) and content is not None and content not in holders}
        tenant = self.instance.system.by_name.get("tenant")
        if tenant is not None and tenant.keys == (self.pages.holder,) and isinstance(tenant.type, Element):
            for _, data in self.of_sort(self.pages.holder):
                data["tenant"] = data["s.tenant"]

    def of_sort(self, sort: Domain) -> Iterator[tuple[str, dict[str, Any]]]:
        for element in self.instance.elements(sort):
            name = self.names[sort.name, element]
            yield name, self.made.nodes[name]

    def label(self, domain: Domain, value: Value) -> str:
        return self.names[domain.name, value] if isinstance(domain, Sort) else printable(self.instance.label(domain, value))

    def shown(self, kind: Type, value: Value) -> Value:
        return self.label(kind.domain, value) if isinstance(kind, Element | Maybe) and value is not None else value

    def mark(self, shown: Property) -> None:
        """Mark what breaks an invariant: the elements of each binding that does, and among them the relations that it is about."""
        interpreter = Interpreter(self.instance)
        size = 1
        for parameter in shown.parameters:
            size *= len(self.instance.elements(parameter.domain))
        if size > MOST_BINDINGS:
            first = interpreter.failing_binding(shown, self.state)
            found: Iterable[Binding] = () if first is None else (first,)
        else:
            found = (
                binding
                for binding in self.instance.bindings(shown.parameters)
                if not interpreter.evaluate(shown.condition, self.state, interpreter.environment(shown.parameters, binding))
            )
        for binding in found:
            _mark(self.made, shown, _nodes(self.names, shown, binding))


def _nodes(names: Mapping[tuple[str, Value], str], shown: Property, binding: Binding) -> set[str]:
    pairs = zip(shown.parameters, binding, strict=True)
    return {names[p.domain.name, value] for p, value in pairs if isinstance(p.domain, Sort)}


def _mark(graph: Graph, shown: Property, nodes: set[str]) -> None:
    about = {RELATED[name] for name in _premise_reads(shown.condition) if name in RELATED}
    marked: list[dict[str, Any]] = [graph.nodes[name] for name in nodes]
    for page in [name for name in nodes if graph.nodes[name]["kind"] == "page"]:
        for source, _, key, data in list(graph.in_edges(page, keys=True, data=True)):
            for_whom = graph.nodes[source].get("request", source)
            if key not in about or for_whom not in nodes:
                continue
            marked.append(data)
            if key in (READS, WRITES):
                marked += [graph.nodes[source], graph.edges[source, for_whom, FOR]]
            content = graph.nodes[page]["content"]
            if key != WRITES and content not in (None, for_whom):
                marked.append(graph.edges[page, content, HOLDS_DATA_OF])
    for data in marked:
        data["offending"] = True
        if (name := printable(shown.name)) not in data["violates"]:
            data["violates"] = [*data["violates"], name]


def _premise_reads(condition: Expr) -> set[str]:
    """The variables of the premise of an implication (what must not happen unless ...), or of a whole condition."""
    if isinstance(condition, Apply) and condition.operator is Operator.IMPLIES:
        condition = condition.arguments[0]
    return {node.variable for node in walk(condition) if isinstance(node, Read)}


def _mark_end(graph: Graph, trace: Trace) -> None:
    """Mark what the last step is wrong about where that is not a state: a failed assertion or a counter out of its range."""
    instance = trace.instance
    shown = instance.system.property(trace.property)
    names = node_names(instance)
    if shown.kind is PropertyKind.ASSERTION and trace.steps:
        _mark(graph, shown, _nodes(names, shown, trace.steps[-1].binding))
    if shown.kind is PropertyKind.RANGE:
        counter = instance.system.by_name[shown.subject]
        for (name, index), value in zip(instance.state_layout.places, trace.states[-1].values, strict=True):
            if name == counter.name and isinstance(counter.type, Counter) and isinstance(value, int):
                inside = counter.type.low <= value <= counter.type.high
                keys = zip(counter.keys, index, strict=True)
                nodes = {names[key.name, part] for key, part in keys if isinstance(key, Sort)}
                if not inside:
                    _mark(graph, shown, nodes)


# -- other formats


def node_link_json(graph: Graph) -> str:
    """The graph as node-link JSON (`networkx.node_link_graph` reads it), in ASCII."""
    return json.dumps(nx.node_link_data(graph, edges="edges"), ensure_ascii=True, indent=1) + "\n"


def graphml(graph: Graph) -> str:
    """The graph as GraphML. What is none is left out; lists and mappings are JSON texts."""
    plain: Graph = nx.MultiDiGraph()
    plain.graph |= _plain(graph.graph)
    for name, data in graph.nodes(data=True):
        plain.add_node(name, **_plain(data))
    for source, target, key, data in graph.edges(keys=True, data=True):
        plain.add_edge(source, target, key, **_plain(data))
    return '<?xml version="1.0" encoding="utf-8"?>\n' + "\n".join(nx.generate_graphml(plain)) + "\n"


def _plain(data: Mapping[str, Any]) -> dict[str, bool | int | str]:
    plain: dict[str, bool | int | str] = {}
    for key, value in data.items():
        if isinstance(value, bool | int | str):
            plain[key] = value
        elif value is not None:
            plain[key] = json.dumps(value, ensure_ascii=False)
    return plain


SHAPES = {"request": "ellipse", "page": "box", "operation": "hexagon", "element": "plaintext"}
LINES = {OWNS: "bold", HOLDS_DATA_OF: "dashed", READS: "solid", WRITES: "solid", FOR: "dotted"}


def dot(graph: Graph) -> str:
    """The graph in Graphviz's DOT, every attribute included; pages are in a cluster for each pool.

    Written here and not by pydot, which leaves a text that looks quoted or like HTML as it is.
    """
    lines = ["digraph {", f"  graph {_attributes({**_plain(graph.graph), 'rankdir': 'LR', 'label': _headline(graph)})};"]
    pools: dict[str | None, list[str]] = {}
    for name, data in graph.nodes(data=True):
        drawn = {"shape": SHAPES[data["kind"]], **_emphasis(data)}
        pool = data["pool"] if data["kind"] == "page" else None
        pools.setdefault(pool, []).append(f"{_quoted(name)} {_attributes({**_plain(data), **drawn})};")
    for number, (pool, nodes) in enumerate(pools.items()):
        if pool is None:
            lines += [f"  {node}" for node in nodes]
        else:
            label = f"{pool} pool" if pool else "pool"
            lines += [f"  subgraph cluster_{number} {{", f"    graph {_attributes({'label': label})};"]
            lines += [*(f"    {node}" for node in nodes), "  }"]
    for source, target, data in graph.edges(data=True):
        drawn = {"style": LINES[data["relation"]], **_emphasis(data), "label": data["relation"], "tooltip": data["label"]}
        lines.append(f"  {_quoted(source)} -> {_quoted(target)} {_attributes({**_plain(data), **drawn})};")
    return "\n".join([*lines, "}", ""])


def _headline(graph: Graph) -> str:
    if "step" not in graph.graph:
        return str(graph.graph["spec"])
    step = f"step {graph.graph['step']} of {graph.graph['steps']}"
    return ": ".join(part for part in (graph.graph["spec"], step, graph.graph["action"]) if part)


def _emphasis(data: Mapping[str, Any]) -> dict[str, bool | int | str]:
    return {"color": "red", "fontcolor": "red", "penwidth": 3} if data["offending"] else {}


def _attributes(data: Mapping[str, bool | int | str]) -> str:
    return "[" + ", ".join(f"{_quoted(key)}={_quoted(_word(value))}" for key, value in data.items()) + "]"


def _word(value: bool | int | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quoted(text: str) -> str:
    """A DOT string that Graphviz shows as `text`: neither its escapes (``\\N``) nor HTML's (``&lt;``) mean anything in it."""
    escaped = text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
