"""The page graph in words: what is to be said of a page or a request, what happened to it in a run, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvmodel.analyses.why import violation
from kvmodel.traces.trace import Trace
from kvmodel.views.graph import READS, WRITES

if TYPE_CHECKING:
    from kvmodel.views.graph import Graph

__all__ = ["Fact", "described", "facts", "headline", "is_plain", "said", "status", "story"]


@dataclass(frozen=True, slots=True)
class Fact:
    """A line of text about a node, and whether the step changed it."""

    text: str
    changed: bool = False


def said(value: object) -> str:
    """A value of a variable, for people."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else "none" if value is None else str(value)


def is_plain(value: object) -> bool:
    """Whether a variable says nothing, or more than fits on a line."""
    return value is None or value is False or isinstance(value, list)


def status(page: Mapping[str, Any]) -> list[Fact]:
    """Who holds a page, and what else there is to say about it; never empty."""
    was = page.get("was", {})
    found = [Fact(f"held by {', '.join(page['holders'])}", "holders" in was)] if page["holders"] else []
    for key, value in page.items():
        if key.startswith("s.") and not is_plain(value) and str(value).lower() != page["pool"]:
            found.append(Fact(key[2:] if value is True else f"{key[2:]} {value}", key in was))
    return found or [Fact("held by nobody", "holders" in was)]


def described(page: Mapping[str, Any]) -> str:
    """All of `status`, and whose data is in the page."""
    data = "blank" if page["content"] is None else f"with data of {page['content']}"
    return ", ".join([*(fact.text for fact in status(page)), data])


def facts(request: Mapping[str, Any], *, every: bool) -> list[Fact]:
    """The variables of a request. What is plain (no, none) is left out unless it is `every` one or has just changed."""
    was = request.get("was", {})
    found = []
    for key, value in request.items():
        if not key.startswith("s.") or isinstance(value, list) or key == "s.tenant":
            continue
        changed = key in was
        if every or changed or not is_plain(value):
            words = key[2:] if value is True else f"{key[2:]} {said(value)}"
            found.append(Fact(f"{words}, was {said(was[key])}" if changed else words, changed))
    return found


def _page_events(graph: Graph, page: str) -> Iterator[str]:
    data = graph.nodes[page]
    was = data.get("was", {})
    before, after = was.get("holders", data["holders"]), data["holders"]
    others = [
        (graph.nodes[source]["request"], key)
        for source, _, key, edge in graph.in_edges(page, keys=True, data=True)
        if key in (READS, WRITES) and not edge.get("new") and graph.nodes[source]["request"] not in after
    ]
    flying = "".join(f", while a {'read' if key == READS else 'write'} for {request} is in flight" for request, key in others)
    for holder in after:
        if holder not in before:
            left = data["content"] not in (None, holder) and "content" not in was
            yield f"given to {holder}" + (f", with {data['content']}'s data still in it" if left else "") + flying
    for holder in before:
        if holder not in after:
            yield f"{holder} gives it back{flying}"
    if "content" in was:
        yield "cleared" if data["content"] is None else f"{data['content']}'s data is written into it"
    for source, _, key, edge in graph.in_edges(page, keys=True, data=True):
        if edge.get("new") and key in (READS, WRITES):
            request = graph.nodes[source]["request"]
            foreign = f", and gets {data['content']}'s data" if data["content"] not in (None, request) else ""
            yield f"{request} begins to read it{foreign}" if key == READS else f"a write for {request} begins"
    for past in graph.graph["ended"]:
        if past["page"] == page and past["relation"] in (READS, WRITES):
            yield f"{past['request']} has read it" if past["relation"] == READS else f"the write for {past['request']} ends"
    for key in was:
        if key == "s.quarantined":
            yield "held back" if data[key] else "no longer held back"


def _request_events(data: Mapping[str, Any]) -> Iterator[str]:
    for key, old in data.get("was", {}).items():
        if key.startswith("s.") and not isinstance(old, list):
            yield f"{key[2:]} {said(old)} becomes {said(data[key])}"


def headline(trace: Trace, graph: Graph) -> str:
    """What is wrong at the end of a trace, from the marks of its last graph."""
    wrong = list(_wrong_operations(graph)) or list(_wrong_pages(graph))
    if wrong:
        return "; ".join(wrong)
    shown = violation(trace)
    whom = f"for {', '.join(f'{name} = {label}' for name, label in shown.arguments)}" if shown.arguments else ""
    why = [f"{name} is {value}" for reason in shown.reasons for name, value in reason.reads or ((reason.text, reason.value),)]
    why += [part for reason in shown.reasons for part in reason.inside]
    return ", ".join(part for part in (whom, *dict.fromkeys(why)) if part) or f"step {len(trace.steps)}"


def _wrong_operations(graph: Graph) -> Iterator[str]:
    for source, target, key, data in graph.edges(keys=True, data=True):
        if not data["offending"] or key not in (READS, WRITES):
            continue
        page, request = graph.nodes[target], graph.nodes[source]["request"]
        why = []
        if key == READS and page["content"] != request:
            why.append("nothing was written there" if page["content"] is None else f"the data in it is {page['content']}'s")
        if request not in page["holders"]:
            why.append(f"{request} does not hold it (it is {', '.join(fact.text for fact in status(page))})")
        verb = f"{request} reads {target}" if key == READS else f"a write for {request} to {target} is in flight"
        yield f"{verb}, but {' and '.join(why)}" if why else verb


def _wrong_pages(graph: Graph) -> Iterator[str]:
    for name, data in graph.nodes(data=True):
        if data["offending"] and data["kind"] == "page" and len(data["holders"]) > 1:
            yield f"{name} is held by {' and '.join(data['holders'])}"
        elif data["offending"] and data["kind"] == "page" and data["foreign"]:
            yield f"{data['holders'][0]} holds {name}, but the data in it is {data['content']}'s"


def story(trace: Trace, graphs: Sequence[Graph], name: str) -> Iterator[str]:
    """What the run did to a page or a request, a line for each step that did."""
    for step, graph in enumerate(graphs):
        data = graph.nodes[name]
        if step == 0:
            start = described(data) if data["kind"] == "page" else ", ".join(fact.text for fact in facts(data, every=False))
            yield f"at the start: {start or 'as it begins'}"
            continue
        told = list(_page_events(graph, name) if data["kind"] == "page" else _request_events(data))
        if told:
            yield f"step {step}, {trace.steps[step - 1].action}: {', '.join(told)}"

