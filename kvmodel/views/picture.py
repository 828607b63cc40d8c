"""Pictures of the page graph, in SVG: one step of a trace, or a film strip of all of them.

Where something is drawn is data: pages stand in a row by pool and position, and each request has a lane below. A line between a page
and a lane is what the request has to do with the page: owning it (a thick line that ends in dots), a write in flight (dashed, the
arrow points to the page), a read (the arrow points to the request, which gets the data). Requests are told apart by shape and
name as well as by colour. What a step changed is marked, what it ended is drawn faint, and what breaks the property has a
stop sign. The same page and the same lane keep their place in all pictures of a trace.

Of more than 60 nodes the ones that the trace is about are drawn, the others are counted; the graph has them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from kvmodel.analyses.why import violation
from kvmodel.errors import UsageError
from kvmodel.traces.trace import Trace
from kvmodel.views.graph import OWNS, step_graph
from kvmodel.views.scene import CROWDED, DASHES, FRAME, STEP, Cast, Scene, copied
from kvmodel.views.story import described, facts, headline, is_plain, said, story
from kvmodel.views.svg import Pen, Theme, shortened, text_width, wrapped
from kvmodel.views.table import chosen

if TYPE_CHECKING:
    from kvmodel.views.graph import Graph

__all__ = ["Album", "film", "picture"]

MOST_FRAMES = 60
FAINT = "0.5"
MOST_STORIES = 3
MOST_WIDE = 6  # pages side by side in the larger look
MARGIN = 16
NARROWEST = 720
FILM_WIDTH = 1_240
FRAME_TOP = 56  # of a frame, above its pages
LEGEND = (OWNS, "a write in flight", "a read: the data goes to the request", "whose data is in the page", "changed by the step", "wrong")


def picture(trace: Trace, step: int, *, theme: Theme = "auto") -> str:
    """The state after `step` steps of `trace` (0: the initial state) as SVG; what the step changed is marked.

    Raises UsageError for a spec without pages (see `graph.page_graph`) and for an unknown step.
    """
    return Album(trace, theme).picture(step)


def film(trace: Trace, *, theme: Theme = "auto", relevant: frozenset[int] | None = None) -> str:
    """Every state of `trace` as one SVG, in rows; frames of steps that are not `relevant` are faint. Raises UsageError as `picture`."""
    return Album(trace, theme).film(relevant)


class Album:
    """The pictures of one trace. To draw several of them, make one album: the graphs are made once."""

    def __init__(self, trace: Trace, theme: Theme = "auto") -> None:
        self.trace = trace
        self.pen = Pen(theme)
        self.graphs = [step_graph(trace, step) for step in range(len(trace.states))]
        self.cast = Cast.of(self.graphs)
        self.copies = [copied(trace, step) for step in range(len(trace.states))]

    def picture(self, step: int) -> str:
        """See `picture`."""
        if not 0 <= step < len(self.graphs):
            raise UsageError(f"the trace has steps 0 to {len(self.trace.steps)}, no step {step}")
        look = CROWDED if sum(len(names) for _, names, _ in self.cast.pools) > MOST_WIDE else STEP
        scene = Scene(self.pen, look, self.cast, self.graphs, self.copies)
        graph = self.graphs[step]
        width = max(scene.width + 2 * MARGIN, NARROWEST)
        words = [*wrapped(self.doc(step), width - 32, 13, 2), *self.elsewhere(graph, width - 32)]
        top = 66 + 18 * len(words)
        end = self.ending(width - 32) if graph.graph["violated"] and step == len(self.trace.steps) else []
        below = top + scene.height + 14 + _legend_height(width - 32)
        height = below + (len(end) * 18 + 42 if end else 0) + 12
        title = f"{graph.graph['spec']}, step {step} of {len(self.trace.steps)}: {graph.graph['action'] or 'the initial state'}"
        root = self.pen.root(width, height, title, self.description(step))
        where = f" ({graph.graph['node']})" if graph.graph["node"] else ""
        self.pen.text(root, 16, 30, f"Step {step} of {len(self.trace.steps)}{where}", size=14, fill="soft", room=width - 32)
        self.pen.text(root, 16, 54, graph.graph["action"] or "the initial state", size=19, bold=True, room=width - 32)
        for number, line in enumerate(words):
            self.pen.text(root, 16, 76 + 18 * number, line, size=13, fill="soft")
        scene.draw(self.pen.group(root, 16, top), graph, self.copies[step])
        self.legend(self.pen.group(root, 16, top + scene.height + 14), width - 32)
        if end:
            self.banner(self.pen.group(root, 16, below + 12), end, width - 32)
        return _written(root)

    def film(self, relevant: frozenset[int] | None = None) -> str:
        """See `film`."""
        scene = Scene(self.pen, FRAME, self.cast, self.graphs, self.copies)
        steps = list(range(len(self.graphs)))
        left_out = max(0, len(steps) - MOST_FRAMES)
        steps = steps[:1] + steps[1 + left_out :]
        wide, high = scene.width + 20, scene.height + FRAME_TOP + 8
        columns = max(1, min(len(steps), int((FILM_WIDTH + 12) // (wide + 12))))
        rows = -(-len(steps) // columns)
        width = max(columns * (wide + 12) - 12 + 2 * MARGIN, NARROWEST)
        end = self.ending(width - 32) if self.graphs[-1].graph["violated"] else []
        banner = len(end) * 18 + 36 if end else 0
        top = 76 + banner + _legend_height(width - 32)
        height = top + rows * (high + 12) + 8
        last = self.graphs[-1].graph
        root = self.pen.root(width, height, f"{last['spec']}: {len(self.trace.steps)} steps", self.description(len(self.graphs) - 1))
        shown = f": how {last['property']} is {'violated' if last['violated'] else 'shown'}" if last["property"] else ""
        self.pen.text(root, 16, 34, f"{last['spec']}{shown}", size=19, bold=True, room=width - 32)
        note = f"steps 1 to {left_out} are left out" if left_out else "read from left to right, row by row"
        note += "" if relevant is None or relevant >= set(steps[1:]) else "; steps that do not matter to the end are faint"
        self.pen.text(root, 16, 56, f"{len(self.trace.steps)} steps; {note}", size=13, fill="soft")
        if end:
            self.banner(self.pen.group(root, 16, 70), end, width - 32)
        self.legend(self.pen.group(root, 16, 64 + banner), width - 32)
        for place, step in enumerate(steps):
            x, y = 16 + place % columns * (wide + 12), top + place // columns * (high + 12)
            frame = self.pen.group(root, x, y, self.description(step))
            if relevant is not None and step and step not in relevant:
                frame.set("opacity", FAINT)
            self.frame(frame, scene, step, wide, high)
        return _written(root)

    def frame(self, parent: ET.Element, scene: Scene, step: int, width: float, height: float) -> None:
        graph = self.graphs[step].graph
        wrong = graph["violated"] and step == len(self.trace.steps)
        self.pen.add(parent, "rect", stroke="wrong" if wrong else "line", stroke_width=3 if wrong else 1, width=width, height=height, rx=5)
        number = str(step)
        self.pen.text(parent, 10, 20, number, size=15, bold=True, fill="wrong" if wrong else "ink")
        x = 10 + text_width(number, 15, True) + 6
        words = graph["action"] or "the initial state"
        node = graph["node"]
        self.pen.text(parent, x, 20, words, size=12, bold=True, room=width - x - 16 - text_width(node, 11))
        self.pen.text(parent, width - 8, 20, node, size=11, fill="soft", anchor="end")
        for line, words in enumerate(wrapped(self.doc(step), width - 20, 11, 2)):
            self.pen.text(parent, 10, 36 + 14 * line, words, size=11, fill="soft")
        scene.draw(self.pen.group(parent, 10, FRAME_TOP), self.graphs[step], self.copies[step])

    def doc(self, step: int) -> str:
        """What the step is, in the spec's words; of the initial state, what it has that is not plain."""
        return self.trace.instance.system.action(self.trace.steps[step - 1].action).doc if step else ", ".join(chosen(self.trace))

    def elsewhere(self, graph: Graph, room: float) -> list[str]:
        """What is neither about a request nor about a page."""
        found = [f"{key[2:]} {said(value)}" for key, value in graph.graph.items() if key.startswith("s.") and not isinstance(value, list)]
        for _, data in graph.nodes(data=True):
            if data["kind"] == "element":
                found += [f"{key[2:]}[{data['label']}] {said(v)}" for key, v in data.items() if key.startswith("s.") and not is_plain(v)]
        return wrapped("given: " + ", ".join(found), room, 13, 2) if found else []

    def description(self, step: int) -> str:
        """The picture in words."""
        graph = self.graphs[step]
        told = [f"Step {step}: {graph.graph['action'] or 'the initial state'}."]
        for name, data in graph.nodes(data=True):
            if data["kind"] == "page":
                told.append(f"Page {name}: {described(data)}.")
            elif data["kind"] == "request":
                told.append(f"Request {name}: {', '.join(fact.text for fact in facts(data, every=True)) or 'nothing to tell'}.")
            elif data["kind"] == "operation":
                told.append(f"In flight: {data['label']}{', which breaks ' + ', '.join(data['violates']) if data['violates'] else ''}.")
        return " ".join(told)

    # -- what it comes to

    def ending(self, room: float) -> list[tuple[str, bool]]:
        """What the last state shows, and how it came to that: lines, and whether each is a heading."""
        graph = self.graphs[-1]
        shown = violation(self.trace)
        name = shortened(shown.property.name, room / 2, 14, True)
        lines = [(line, True) for line in wrapped(f"{name} is violated: {headline(self.trace, graph)}", room - 80, 14, 3)]
        lines += [(line, False) for line in wrapped(f"It promises: {shown.property.doc}" if shown.property.doc else "", room - 50, 13, 3)]
        marked = [name for name, data in graph.nodes(data=True) if data["offending"] and data["kind"] == "page"]
        marked = marked or [name for name, data in graph.nodes(data=True) if data["offending"] and data["kind"] == "request"]
        for name in marked[:MOST_STORIES]:
            lines.append((f"What happened to {name}:", True))
            for line in story(self.trace, self.graphs, name):
                lines += [(part, False) for part in wrapped(line, room - 50, 13, 2)]
        return lines

    def banner(self, parent: ET.Element, lines: Sequence[tuple[str, bool]], width: float) -> None:
        self.pen.add(parent, "rect", fill="wrong-paper", stroke="wrong", stroke_width=2, width=width, height=len(lines) * 18 + 22, rx=5)
        self.pen.stop(parent, 22, 24, 12)
        for number, (line, heading) in enumerate(lines):
            self.pen.text(parent, 44 if heading else 56, 25 + number * 18, line, size=14 if heading else 13, bold=heading)

    def legend(self, parent: ET.Element, width: float) -> None:
        """What the lines mean, on as many lines as `legend_height` says."""
        pen, x, y = self.pen, 0.0, 10.0
        for words in LEGEND:
            needed = 36 + text_width(words, 12) + 8
            if x + needed > width:
                x, y = 0, y + 20
            group = pen.group(parent, x, y)
            if words == OWNS:
                pen.add(group, "path", stroke="ink", stroke_width=4, d="M4 0H28")
                pen.add(group, "circle", fill="ink", cx=4, cy=0, r=4)
                pen.add(group, "circle", fill="ink", cx=28, cy=0, r=4)
            elif words.startswith("a "):
                dash = {"stroke_dasharray": DASHES} if "write" in words else {}
                pen.add(group, "path", stroke="ink", stroke_width=2, d="M2 0H24", **dash)
                pen.add(group, "polygon", fill="ink", points="24,-5 32,0 24,5")
            elif words.startswith("whose"):
                pen.shape(group, 8, 0, 0, 5)
                pen.shape(group, 24, 0, 1, 5)
            elif words == "wrong":
                pen.stop(group, 20, 0, 8)
            else:
                pen.add(group, "rect", fill="new", width=28, height=14, x=2, y=-7, rx=2)
            pen.text(group, 36, 4, words, size=12)
            x += needed


def _legend_height(width: float) -> float:
    lines, x = 1, 0.0
    for words in LEGEND:
        needed = 36 + text_width(words, 12) + 8
        lines, x = (lines + 1, needed) if x + needed > width else (lines, x + needed)
    return 20.0 * lines


def _written(root: ET.Element) -> str:
    ET.indent(root, " ")
    return ET.tostring(root, encoding="unicode") + "\n"


