"""One state drawn: pages in a row by pool, a lane for each request below, and lines between them. See `picture`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree as ET

from kvmodel.language.types import Sort
from kvmodel.traces.trace import Trace
from kvmodel.views.graph import HOLDS_DATA_OF, OWNS, READS, WRITES, node_names
from kvmodel.views.story import Fact, described, facts
from kvmodel.views.story import status as status_of
from kvmodel.views.svg import Pen, colour_of, shortened, text_width
from kvmodel.views.table import ownership

if TYPE_CHECKING:
    from kvmodel.views.graph import Graph

__all__ = ["CROWDED", "DASHES", "FRAME", "STEP", "Cast", "Copy", "Look", "Scene", "copied"]

MOST_NODES = 60
MOST_PAGES, MOST_REQUESTS, MOST_OPERATIONS = 20, 8, 32  # of a picture with more nodes than that; they add up to it
MOST_FACTS = 8  # variables of a request that are written in its lane
MOST_CHANGES = 3  # of a request, in a frame of a film
DASHES = "5 4"
ENDED = "2 4"
# Where a line leaves a page, as a part of its width. Whose data is in it has a line only where the holder is somebody else.
SLOTS = {OWNS: 1 / 7, HOLDS_DATA_OF: 2.7 / 7, WRITES: 4.3 / 7, READS: 6 / 7}


@dataclass(frozen=True, slots=True)
class Look:
    """Sizes of a kind of picture, in pixels."""

    head: float  # the names at the left of lanes
    card: float  # the width of a page
    gap: float
    size: float  # of text
    single: bool  # a picture that stands alone: it says more

    @property
    def line(self) -> float:
        return self.size * 1.35

    @property
    def small(self) -> float:
        return self.size - 1


STEP = Look(head=232, card=164, gap=14, size=13, single=True)
CROWDED = Look(head=180, card=124, gap=8, size=12, single=True)
FRAME = Look(head=126, card=104, gap=6, size=11, single=False)


class Copy(NamedTuple):
    """Data that a step copied from page to page."""

    source: str
    target: str
    whose: str


class Link(NamedTuple):
    """A line between a request and a page; `data` is the edge's, `ended` says that the step took it away."""

    request: str
    page: str
    relation: str
    data: Mapping[str, Any]
    ended: bool = False

    @property
    def wrong(self) -> bool:
        return bool(self.data.get("offending"))

    @property
    def new(self) -> bool:
        return bool(self.data.get("new"))


def copied(trace: Trace, step: int) -> Copy | None:
    """What a step copied: its action names two pages, and what was in one of them is now in the other."""
    pages = ownership(trace.instance.system)
    if not step or pages is None:
        return None
    names, slots = node_names(trace.instance), trace.instance.state_layout.slots
    before, after = trace.states[step - 1].values, trace.states[step].values
    choice = trace.steps[step - 1]
    parameters = trace.instance.system.action(choice.action).parameters
    named = [value for p, value in zip(parameters, choice.binding, strict=True) if isinstance(p.domain, Sort) and p.domain == pages.page]
    for target in named:
        slot = slots["content", (target,)]
        whose = after[slot]
        if whose is None or before[slot] == whose:
            continue
        for source in named:
            if source != target and before[slots["content", (source,)]] == whose:
                return Copy(names[pages.page.name, source], names[pages.page.name, target], names[pages.holder.name, whose])
    return None


@dataclass(frozen=True)
class Cast:
    """Who is in the pictures of a trace, in the order in which they stand; and who is only counted.

    `pools` has the pages of each pool that are drawn and those that are not."""

    requests: tuple[str, ...]
    other_requests: tuple[str, ...]
    pools: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]
    identity: Mapping[str, int]

    @property
    def whole(self) -> bool:
        """Nobody is left out."""
        return not self.other_requests and not any(others for *_, others in self.pools)

    @staticmethod
    def of(graphs: Sequence[Graph]) -> Cast:
        first = graphs[0]
        requests = [name for name, data in first.nodes(data=True) if data["kind"] == "request"]
        pages = [name for name, data in first.nodes(data=True) if data["kind"] == "page"]
        left_out: set[str] = set()
        if max(sum(data["kind"] != "element" for _, data in graph.nodes(data=True)) for graph in graphs) > MOST_NODES:
            weights = _importance(graphs)
            for names, most in ((requests, MOST_REQUESTS), (pages, MOST_PAGES)):
                ranked = sorted(names, key=lambda name: -weights[name])
                left_out.update(ranked[max(1, min(most, sum(weights[name] > 0 for name in names))) :])
        shown = [name for name in requests if name not in left_out]
        shown.sort(key=lambda name: str(first.nodes[name].get("tenant", "")))
        pools: dict[str, list[str]] = {}
        for name in pages:
            pools.setdefault(first.nodes[name]["pool"], []).append(name)
        split = tuple(
            (pool, tuple(n for n in names if n not in left_out), tuple(n for n in names if n in left_out)) for pool, names in pools.items()
        )
        others = tuple(name for name in requests if name in left_out)
        return Cast(tuple(shown), others, split, {name: number for number, name in enumerate(requests)})


def _importance(graphs: Sequence[Graph]) -> dict[str, int]:
    """What a picture must not leave out: what is wrong, then what is in flight, changes, holds or is held, has data."""
    found: dict[str, int] = {}
    for graph in graphs:
        for name, data in graph.nodes(data=True):
            if data["kind"] in ("request", "page"):
                edges = [key for *_, key in (*graph.in_edges(name, keys=True), *graph.out_edges(name, keys=True))]
                weight = 16 * data["offending"] + 8 * any(key not in (OWNS, HOLDS_DATA_OF) for key in edges)
                weight += 4 * ("was" in data) + 2 * (OWNS in edges) + (HOLDS_DATA_OF in edges)
                found[name] = max(found.get(name, 0), weight)
    return found


class Scene:
    """Pages and lanes in one look; the same places for every state of a trace."""

    def __init__(self, pen: Pen, look: Look, cast: Cast, graphs: Sequence[Graph], copies: Sequence[Copy | None]) -> None:
        self.pen = pen
        self.look = look
        self.cast = cast
        line = look.line
        pages = [graph.nodes[name] for graph in graphs for _, names, _ in cast.pools for name in names]
        status_lines = max((len(status_of(page)) for page in pages), default=1)
        foreign_line = any(page["foreign"] for page in pages)
        self.card_height = line * (2.8 + status_lines + foreign_line) + 4
        self.pools_top = (line * 1.6 if any(copies) else 0.0) + 2
        self.cards_top = self.pools_top + line + 6
        self.cards_end = self.cards_top + self.card_height
        self.lanes_top = self.cards_end + line * 1.3
        lines = max((len(self.lane_facts(graph.nodes[name])) for graph in graphs for name in cast.requests), default=0)
        self.lane_height = max(line * (1.9 + lines) + 4, line * (4.8 if look.single else 4.3))
        self.place: dict[str, float] = {}
        self.panels: list[tuple[str, float, float, tuple[str, ...]]] = []
        x = look.head + look.gap
        for pool, names, others in cast.pools:
            start = x
            x += look.gap / 2
            for name in names:
                self.place[name] = x
                x += look.card + look.gap
            x += look.card * 0.7 + look.gap if others else 0
            x -= look.gap / 2
            self.panels.append((pool, start, x - start, others))
            x += look.gap
        self.width = x - look.gap
        self.height = self.lane_y(len(cast.requests)) + (line * 1.4 if cast.other_requests else 0)

    def lane_y(self, number: int) -> float:
        return self.lanes_top + number * (self.lane_height + 4)

    def lane_facts(self, data: Mapping[str, Any]) -> list[Fact]:
        found = facts(data, every=False)
        if self.look.single:
            return found[:MOST_FACTS]
        return [Fact(fact.text.partition(", was ")[0], True) for fact in found if fact.changed][:MOST_CHANGES]

    def draw(self, parent: ET.Element, graph: Graph, copy: Copy | None) -> None:
        """Draw a state whose graph is `graph`."""
        for number, name in enumerate(self.cast.requests):
            self.lane(parent, graph, name, number)
        for pool, x, width, others in self.panels:
            self.panel(parent, pool, x, width)
            if others:
                self.others(parent, [graph.nodes[name] for name in others], x + width - self.look.card * 0.7 - self.look.gap / 2)
        self.links(parent, graph)
        for name in self.place:
            self.card(parent, graph.nodes[name], name)
        if copy is not None:
            self.arc(parent, copy)
        if self.cast.other_requests:
            holding = sum(any(key == OWNS for *_, key in graph.out_edges(name, keys=True)) for name in self.cast.other_requests)
            words = f"{len(self.cast.other_requests):,} more requests, {holding:,} of them with pages"
            self.pen.text(parent, 8, self.height - self.look.line * 0.4, words, size=self.look.size, fill="soft")

    def panel(self, parent: ET.Element, pool: str, x: float, width: float) -> None:
        pen, look, y = self.pen, self.look, self.pools_top
        pen.add(parent, "rect", fill="panel", stroke="faint", x=x, y=y, width=width, height=self.cards_end - y + 6, rx=4)
        label = f"{pool} pool" if pool else "pool"
        pen.text(parent, x + 7, y + look.line * 0.95, label, size=look.small, fill="soft", bold=True, room=width - 12)

    def others(self, parent: ET.Element, pages: Sequence[Mapping[str, Any]], x: float) -> None:
        """Pages of a pool that are not drawn, counted."""
        pen, look, width = self.pen, self.look, self.look.card * 0.7
        frame: dict[str, Any] = {"x": x, "y": self.cards_top, "width": width, "height": self.card_height}
        pen.add(parent, "rect", stroke="line", stroke_dasharray="2 3", rx=4, **frame)
        held = sum(bool(page["holders"]) for page in pages)
        data = sum(page["content"] is not None for page in pages)
        for number, words in enumerate((f"{len(pages):,} more", f"{held:,} held", f"{data:,} with data")):
            pen.text(parent, x + 6, self.cards_top + look.line * (1.1 + number * 1.1), words, size=look.small, fill="soft", room=width - 10)

    def card(self, parent: ET.Element, data: Mapping[str, Any], name: str) -> None:
        """A page: its name, whose data is in it, who holds it."""
        pen, look, line = self.pen, self.look, self.look.line
        was, wrong = data.get("was", {}), data["offending"]
        card = pen.group(parent, self.place[name], self.cards_top, f"Page {name}: {described(data)}")
        stroke, heavy = ("wrong", 3.5) if wrong else ("ink", 2.2) if was else ("line", 1.0)
        pen.add(card, "rect", fill="card", stroke=stroke, stroke_width=heavy, width=look.card, height=self.card_height, rx=4)
        pen.text(card, 7, line, name, size=look.size, bold=True, room=look.card - (30 if wrong else 12))
        if wrong:
            pen.stop(card, look.card - 11, line * 0.75, look.size * 0.62)
        self.content(card, data, line * 1.35)
        y = line * 3.7
        for fact in status_of(data):
            self.fact(card, 7, y, fact, look.card - 12)
            y += line
        if data["foreign"]:
            words = f"not {', '.join(data['holders'])}'s data"
            pen.text(card, 7, y, words, size=look.small, bold=True, fill="wrong" if wrong else "ink", room=look.card - 12)

    def content(self, card: ET.Element, data: Mapping[str, Any], y: float) -> None:
        """The band of a page that says whose data is in it."""
        pen, look, line = self.pen, self.look, self.look.line
        changed, content = "content" in data.get("was", {}), data["content"]
        band: dict[str, Any] = {"x": 5.0, "y": y, "width": look.card - 10, "height": line * 1.35, "rx": 3.0}
        if content is None:
            pen.add(card, "rect", fill="new" if changed else "", stroke="line", stroke_dasharray="3 3", **band)
            pen.text(card, 12, y + line * 0.97, "blank", size=look.small, fill="ink" if changed else "soft", bold=changed)
            return
        identity = self.cast.identity[content]
        fill, opacity = ("new", 1.0) if changed else (colour_of(identity), 0.14)
        pen.add(card, "rect", fill=fill, fill_opacity=opacity, stroke=colour_of(identity), stroke_width=1.5, **band)
        pen.shape(card, 16, y + line * 0.675, identity, look.size * 0.42)
        words = f"{content}'s data"
        if changed and look.single and data["was"]["content"] is not None:
            words += f", was {data['was']['content']}'s"
        pen.text(card, 27, y + line * 0.97, words, size=look.small, bold=changed, room=look.card - 34)

    def fact(self, parent: ET.Element, x: float, y: float, fact: Fact, room: float) -> None:
        """A line of text, marked when it has changed."""
        look = self.look
        if fact.changed:
            width = text_width(shortened(fact.text, room, look.small, True), look.small, True)
            frame: dict[str, Any] = {"x": x - 3, "y": y - look.line * 0.78, "width": min(room, width) + 5, "height": look.line}
            self.pen.add(parent, "rect", fill="new", rx=2, **frame)
        self.pen.text(parent, x, y, fact.text, size=look.small, bold=fact.changed, room=room)

    def lane(self, parent: ET.Element, graph: Graph, name: str, number: int) -> None:
        """A request: its name, its variables, and the band in which its lines end."""
        pen, look, data = self.pen, self.look, graph.nodes[name]
        title = ", ".join(fact.text for fact in facts(data, every=True))
        lane = pen.group(parent, 0, self.lane_y(number), f"Request {name}: {title}" if title else f"Request {name}")
        stroke, heavy = ("wrong", 2.0) if data["offending"] else ("faint", 1.0)
        pen.add(lane, "rect", fill="panel", stroke=stroke, stroke_width=heavy, width=self.width, height=self.lane_height, rx=4)
        pen.shape(lane, 15, look.line * 0.85, self.cast.identity[name], look.size * 0.5)
        tenant = f", tenant {data['tenant']}" if "tenant" in data else ""
        pen.text(lane, 28, look.line * 1.2, f"{name}{tenant}", size=look.size + 1, bold=True, room=look.head - 30)
        for line, fact in enumerate(self.lane_facts(data)):
            self.fact(lane, 10, look.line * (2.3 + line), fact, look.head - 12)

    # -- lines between pages and lanes

    def links(self, parent: ET.Element, graph: Graph) -> None:
        links = [link for link in _links(graph) if link.request in self.cast.requests and link.page in self.place]
        if not self.cast.whole:
            flights = [link for link in links if link.relation in (READS, WRITES)]
            dropped = sorted(flights, key=lambda link: (not link.wrong, not link.new))[MOST_OPERATIONS:]
            links = [link for link in links if link not in dropped]
        links.sort(key=lambda link: link.wrong)
        for link in links:
            if link.new:
                x, top, end = self.ends(link)
                path = f"M{x:g} {top + 8:g}V{end:g}"
                self.pen.add(parent, "path", stroke="new", stroke_width=self.look.size + 2, stroke_linecap="round", d=path)
        for link in links:
            self.link(parent, link)
        for link in links:
            self.link_label(parent, graph, link)
        if self.look.single:
            for number, name in enumerate(self.cast.requests):
                for page, words in _also(graph.nodes[name]):
                    if page in self.place:
                        x, y = self.place[page] + self.look.card / 2, self.lane_y(number) + self.look.line * 4.2
                        soft: dict[str, Any] = {"size": self.look.small - 1, "room": self.look.card, "fill": "soft"}
                        self.pen.text(parent, x, y, words, anchor="middle", halo="panel", **soft)

    def ends(self, link: Link) -> tuple[float, float, float]:
        """Where a line is: its x, where it leaves the page and where it ends in the lane. Lines of two lanes are side by side."""
        number, count = self.cast.requests.index(link.request), len(self.cast.requests)
        apart = min(12.0, self.look.card / 6 / max(count - 1, 1))
        x = self.place[link.page] + self.look.card * SLOTS[link.relation] + (number - (count - 1) / 2) * apart
        return x, self.cards_end, self.lane_y(number) + self.look.line * 1.1

    def link(self, parent: ET.Element, link: Link) -> None:
        pen = self.pen
        x, top, end = self.ends(link)
        title = f"ended: {link.request} {link.relation} {link.page}" if link.ended else str(link.data["label"])
        group = pen.group(parent, title=title)
        colour = "wrong" if link.wrong else colour_of(self.cast.identity[link.request])
        heavy = 1.6 if link.wrong or link.new else 1.0
        end += self.look.line * 0.75 * (link.relation == HOLDS_DATA_OF)
        whole = f"M{x:g} {top:g}V{end:g}"
        if link.ended:
            pen.add(group, "path", stroke="line", stroke_width=1.5, stroke_dasharray=ENDED, d=whole)
        elif link.relation == OWNS:
            pen.add(group, "path", stroke=colour, stroke_width=3.2 * heavy, d=whole)
            pen.add(group, "circle", fill=colour, cx=x, cy=top + 1, r=4)
            pen.add(group, "circle", fill=colour, cx=x, cy=end, r=4)
        elif link.relation == HOLDS_DATA_OF:
            pen.add(group, "path", stroke=colour, stroke_width=3, stroke_linecap="round", stroke_dasharray="0.1 6", d=whole)
        elif link.relation == WRITES:
            pen.add(group, "path", stroke=colour, stroke_width=2 * heavy, stroke_dasharray=DASHES, d=f"M{x:g} {end:g}V{top + 9:g}")
            pen.add(group, "polygon", fill=colour, points=f"{x - 6:g},{top + 10:g} {x:g},{top + 1:g} {x + 6:g},{top + 10:g}")
        else:
            pen.add(group, "path", stroke=colour, stroke_width=2 * heavy, d=f"M{x:g} {top:g}V{end - 6:g}")
            pen.add(group, "polygon", fill=colour, points=f"{x - 6:g},{end - 8:g} {x:g},{end + 2:g} {x + 6:g},{end - 8:g}")
        if link.wrong and link.relation in (READS, WRITES):
            pen.stop(group, x - self.look.size * 1.4, self.lanes_top - self.look.line * 0.1, self.look.size * 0.7)

    def link_label(self, parent: ET.Element, graph: Graph, link: Link) -> None:
        look, size = self.look, self.look.small - (0 if link.wrong else 1)
        x, _, end = self.ends(link)
        words, row, anchor = link.relation, 1.05, "middle"
        if link.ended:
            words = "gave back" if link.relation == OWNS else "ended"
        elif link.relation == HOLDS_DATA_OF:
            words, row, anchor = "its data", 1.8, "start"
            x -= 5
        elif link.wrong and link.relation == READS:
            content = graph.nodes[link.page]["content"]
            if content not in (None, link.request):
                words, row = f"reads {content}'s data", 2.0
        fill = "wrong" if link.wrong else "soft" if link.ended else "ink"
        y, bold = end + look.line * row, link.wrong or link.new
        if anchor == "middle":  # a label stays below its page
            left, half = self.place[link.page], text_width(words, size, bold) / 2
            x = max(left + half, min(x, left + look.card - half))
        self.pen.text(parent, x, y, words, size=size, anchor=anchor, bold=bold, halo="panel", fill=fill, room=look.card)

    def arc(self, parent: ET.Element, copy: Copy) -> None:
        """An arrow from page to page: data that the step copied."""
        if copy.source not in self.place or copy.target not in self.place:
            return
        pen, look = self.pen, self.look
        start, end = (self.place[page] + look.card * 0.88 for page in (copy.source, copy.target))
        colour = colour_of(self.cast.identity[copy.whose])
        group = pen.group(parent, title=f"{copy.whose}'s data goes from {copy.source} to {copy.target}")
        y, low = look.line * 0.75, self.cards_top - 2
        path = f"M{start:g} {low:g}V{y:g}H{end:g}V{low - 6:g}"
        pen.add(group, "path", stroke="new", stroke_width=9, stroke_linejoin="round", d=path)
        pen.add(group, "path", stroke=colour, stroke_width=2.5, stroke_linejoin="round", d=path)
        pen.add(group, "polygon", fill=colour, points=f"{end - 6:g},{low - 8:g} {end:g},{low + 2:g} {end + 6:g},{low - 8:g}")
        middle, room = (start + end) / 2, abs(end - start) - 20
        pen.text(group, middle, y + 4, f"{copy.whose}'s data", size=look.small, bold=True, anchor="middle", halo="paper", room=room)


def _links(graph: Graph) -> Iterator[Link]:
    for source, target, key, data in graph.edges(keys=True, data=True):
        if key in (OWNS, READS, WRITES):
            yield Link(graph.nodes[source].get("request", source), target, key, data)
        elif key == HOLDS_DATA_OF and graph.nodes[source]["foreign"]:
            yield Link(target, source, key, data)
    for past in graph.graph["ended"]:
        if past["relation"] != HOLDS_DATA_OF:
            yield Link(past["request"], past["page"], past["relation"], {}, ended=True)


def _also(request: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Other relations between a request and pages, such as that a page was written for it."""
    found: dict[str, list[str]] = {}
    for key, value in request.items():
        if key.startswith("s.") and isinstance(value, list):
            for entry in value:
                if len(entry) == 1:
                    found.setdefault(entry[0], []).append(key[2:])
    for page, names in found.items():
        yield page, ", ".join(names)
