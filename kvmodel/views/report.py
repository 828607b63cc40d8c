"""One HTML page that explains a trace to somebody who has never seen a model checker.

The page stands alone: style, script and pictures are inside, and its content security policy lets nothing else in. Every text
goes through `errors.printable` and the template's escaping, so that names of strangers stay text. Without JavaScript, and on
paper, every step is shown; with it, one at a time. The same trace makes the same page.
"""

from __future__ import annotations

import re
import shlex
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from kvmodel.analyses.explain import Explanation, explain, said
from kvmodel.analyses.refusals import base_of
from kvmodel.analyses.why import Violation, violation
from kvmodel.errors import UsageError, printable
from kvmodel.language.instance import State
from kvmodel.language.system import Action, PropertyKind, TransitionSystem, Variable
from kvmodel.language.text import expression, expression_lines, signature, update
from kvmodel.language.types import Element, Maybe
from kvmodel.traces.trace import Trace
from kvmodel.verdict import Result
from kvmodel.views.picture import Album
from kvmodel.views.scene import STEP, Scene
from kvmodel.views.story import headline, story
from kvmodel.views.svg import Pen
from kvmodel.views.table import changes, chosen, given, node_of, ownership, rows, step_text
from kvmodel.views.text import refusal_head, reproduction

if TYPE_CHECKING:
    from jinja2 import Environment

    from kvmodel.views.graph import Graph

__all__ = ["report_html"]

LONGEST = 400  # characters of one text; docstrings are shorter
LONGEST_COMMAND = 8_000
LONGEST_DESCRIPTION = 4_000
MOST_STEPS = 300  # that are shown; of a longer trace the last ones
MOST_PICTURES = 60
MOST_PAGES = 8  # that have a column of the table
MOST_ROWS = 12  # pages of a state that are listed although nothing is to be said of some
LONGEST_HEADING = 100
MOST_STORIES = 3
MEANINGS = {
    "any size": "Proved for every number of elements of every sort.",
    "this size": "Every state that can be reached at the sizes given was looked at. Larger ones were not.",
    "this depth": "Every run up to the number of steps given was looked at. Longer ones were not.",
    "sampled": "Some runs were tried, not all.",
}
WIDTH = 58  # of an expression, in columns
WIDEST = 1_100  # a wider picture is not made smaller to fit: it is scrolled
MARGIN = 8


@dataclass(frozen=True, slots=True)
class Said:
    """A named line, and where it is written."""

    name: str
    text: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """An action in the spec's notation."""

    signature: str
    doc: str
    guards: tuple[Said, ...]
    assertions: tuple[Said, ...]
    updates: tuple[str, ...]
    where: str


@dataclass(frozen=True, slots=True)
class PageLine:
    """A page in a state: who holds it and whose data is in it; `odd`: its holder is somebody else."""

    name: str
    held: str
    data: str
    odd: bool
    changed: bool

    @property
    def plain(self) -> bool:
        """Nobody holds it and nothing is in it."""
        return not self.held and not self.data


@dataclass(frozen=True, slots=True)
class Frame:
    """A step (0: the initial state) and the state after it."""

    number: int
    call: str
    node: str
    sentence: str
    matters: bool
    words: tuple[Said, ...]
    changes: tuple[str, ...]
    pages: tuple[PageLine, ...]
    rest: tuple[str, ...]
    rule: Rule | None
    notes: tuple[Said, ...]
    picture: Any = None  # Markup, or None
    wide: bool = False


def report_html(trace: Trace, result: Result | None = None, *, command: str = "", explanation: Explanation | None = None) -> str:
    """A trace as one HTML page. `result` is the check that found it: its verdicts and coverage are shown. `command` reproduces it
    (otherwise the one for the trace's spec, property, sizes and flags); `explanation` spares making it again."""
    system = trace.instance.system
    vocabulary = ownership(system)
    if explanation is None and trace.property:
        explanation = explain(trace)
    gallery = _Gallery(trace)
    environment = _environment()
    style, script = _part("report.css") + "\n" + gallery.style, _part("report.js")
    shown = violation(trace) if trace.property else None
    ending = _ending(trace, shown, gallery.graphs)
    page = environment.get_template("report.html").render(
        generator=f"kvmodel {version('kvmodel')}",
        policy=_policy(style, script),
        style=_trusted(style),
        script=_trusted(script),
        trace=trace,
        system=system,
        steps=len(trace.steps),
        begins=tuple(Said(c.name, c.doc or expression(c.condition), str(c.at) if c.at.file else "") for c in system.initial),
        base=None if explanation is None or explanation.refused is None else base_of(system),
        reached=shown is not None and shown.property.kind is PropertyKind.REACHABLE,
        shown=shown,
        ending=ending,
        short=0 < len(ending) <= LONGEST_HEADING and not ending.startswith("for "),
        cast=tuple(_cast(trace, ending)),
        explanation=explanation,
        refused=refusal_head(explanation.refused) if explanation and explanation.refused else "",
        frames=tuple(_frames(trace, explanation, gallery)),
        left_out=max(0, len(trace.steps) - MOST_STEPS),
        stories=tuple(_stories(trace, gallery.graphs)),
        vocabulary=vocabulary,
        elements=tuple(_elements(trace)),
        result=result,
        coverage=tuple(dict.fromkeys(entry.coverage.word for entry in result.properties)) if result else (),
        meanings=MEANINGS,
        promises={entry.name: entry.doc for entry in system.properties},
        size=trace.instance.describe_size(),
        numbers=given(trace),
        flags=_flags(system),
        flag_docs={flag.name: flag.doc for flag in system.flags},
        words=tuple(_words(system)),
        most_pages=MOST_PAGES,
        few=vocabulary is None or len(trace.instance.elements(vocabulary.page)) <= MOST_ROWS,
        defences=_long(shlex.join(["kvmodel", "defences", system.name, trace.property])),
        command=_long(command or reproduction(trace)),
    )
    return page + "\n"


# -- what the page says


def _ending(trace: Trace, shown: Violation | None, graphs: Sequence[Graph]) -> str:
    """What the last state shows, in a sentence without the property's name; '' when there is nothing to add to the name."""
    if shown is None:
        return ""
    if graphs and shown.property.kind is not PropertyKind.REACHABLE:
        return headline(trace, graphs[-1])
    parts = [", ".join(f"{name} = {label}" for name, label in shown.arguments)]
    parts += [f"{name} is {value}" for reason in shown.reasons for name, value in reason.reads or ((reason.text, reason.value),)]
    return ", ".join(dict.fromkeys(part for part in parts if part))


def _cast(trace: Trace, ending: str) -> Iterator[Said]:
    """The elements that a sentence names, by sort."""
    instance = trace.instance
    named = set(re.split(r"[\s,;\[\]()']+", ending))
    for sort in instance.system.sorts:
        labels = [instance.label(sort, value) for value in instance.elements(sort)]
        found = [label for label in labels if label in named or label + "." in named]
        if found:
            yield Said(f"a {sort.name}" if len(found) == 1 else f"{sort.name}s", ", ".join(found))


def _stories(trace: Trace, graphs: Sequence[Graph]) -> Iterator[tuple[str, tuple[Said, ...]]]:
    """What happened to each page that the property is broken at (or request, when it is not about a page)."""
    if not graphs or not trace.property:
        return
    marked = [(data["kind"], name) for name, data in graphs[-1].nodes(data=True) if data["offending"]]
    pages = [name for kind, name in marked if kind == "page"] or [name for kind, name in marked if kind == "request"]
    for name in pages[:MOST_STORIES]:
        lines = list(_told(trace, graphs, name))
        untouched = _untouched(graphs, name)
        if untouched:
            lines.insert(-1, untouched)
        yield name, tuple(lines)


def _untouched(graphs: Sequence[Graph], name: str) -> Said | None:
    """Why the data in a page is not its holder's: nothing was written into it since the holder got it; or None."""
    nodes = [graph.nodes[name] for graph in graphs]
    last = nodes[-1]
    if last["kind"] != "page" or not last["holders"] or last["content"] in (None, *last["holders"]):
        return None
    got = next((step for step in range(len(nodes) - 1, 0, -1) if nodes[step]["holders"] != nodes[step - 1]["holders"]), 0)
    if any(node["content"] != last["content"] for node in nodes[got:]):
        return None
    return Said("", f"nothing is written into it: the data is still {last['content']}'s")


def _told(trace: Trace, graphs: Sequence[Graph], name: str) -> Iterator[Said]:
    """The lines of a story, each with the number of its step."""
    step = 0
    for line in story(trace, graphs, name):
        if line.startswith("at the start: "):
            yield Said("0", line.removeprefix("at the start: "))
            continue
        while step < len(trace.steps):
            step += 1
            start = f"step {step}, {trace.steps[step - 1].action}: "
            if line.startswith(start):
                yield Said(str(step), line.removeprefix(start))
                break


def _elements(trace: Trace) -> Iterator[Said]:
    """Each sort, what it is, and how its elements are called."""
    instance = trace.instance
    for sort in instance.system.sorts:
        labels = [instance.label(sort, value) for value in instance.elements(sort)]
        few = labels if len(labels) <= 6 else [*labels[:3], "...", labels[-1]]
        yield Said(sort.name, sort.doc, ", ".join(few))


def _words(system: TransitionSystem) -> Iterator[Said]:
    """What the names in a state mean."""
    for variable in system.variables:
        domain = variable.type.domain if isinstance(variable.type, Element | Maybe) else None
        yield Said(_variable(variable), variable.doc or (domain.doc if domain else ""))
    for enumeration in system.enumerations:
        yield Said(enumeration.name, f"{enumeration.doc} ({', '.join(enumeration.members)})".strip())
    for definition in system.definitions:
        yield Said(signature(definition.name, definition.parameters), definition.doc, expression(definition.condition))


def _variable(variable: Variable) -> str:
    keys = ", ".join(key.name for key in variable.keys)
    return f"{variable.name}[{keys}]" if keys else variable.name


def _flags(system: TransitionSystem) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    kinds = dict.fromkeys(flag.kind for flag in system.flags)
    return tuple((kind.value, tuple(flag for flag in system.flags if flag.kind is kind)) for kind in kinds)


def _rule(action: Action) -> Rule:
    def condition(part: Any) -> Said:
        return Said(part.name, "\n".join(expression_lines(part.condition, WIDTH)), str(part.at) if part.at.file else "")

    return Rule(
        signature(action.name, action.parameters),
        action.doc,
        tuple(map(condition, action.guards)),
        tuple(map(condition, action.assertions)),
        tuple(map(update, action.updates)),
        str(action.at) if action.at.file else "",
    )


def _frames(trace: Trace, explanation: Explanation | None, gallery: _Gallery) -> Iterator[Frame]:
    instance = trace.instance
    total = len(trace.steps)
    words = dict(_changes_in_words(trace, gallery.graphs))
    words[0] = [Said(page.name, f"has {page.data}'s data in it") for page in _pages(trace, trace.states[0], ()) if page.data]
    notes = dict(_notes(explanation))
    rules: dict[str, Rule] = {}
    pages: tuple[PageLine, ...] = ()
    for row in rows(trace):
        number, state = row.number, trace.states[row.number]
        pages = tuple(_pages(trace, state, pages))
        if 0 < number <= total - MOST_STEPS:
            continue
        choice = trace.steps[number - 1] if number else None
        if choice is not None and choice.action not in rules:
            rules[choice.action] = _rule(instance.system.action(choice.action))
        picture, wide = gallery.picture(number)
        yield Frame(
            number,
            "" if choice is None else step_text(instance, choice),
            "" if choice is None else node_of(instance, choice),
            "How the run begins" if choice is None else said(instance, choice),
            number == 0 or explanation is None or number in explanation.relevant,
            tuple(words.get(number, ())),
            row.changes if choice is None else changes(instance, trace.states[number - 1], state),
            pages,
            chosen(replace(trace, states=(state,), steps=()), any_state=True),
            None if choice is None else rules[choice.action],
            tuple(notes.get(number, ())),
            picture,
            wide,
        )


def _pages(trace: Trace, state: State, before: Sequence[PageLine]) -> Iterator[PageLine]:
    instance = trace.instance
    vocabulary = ownership(instance.system)
    if vocabulary is None:
        return
    slots = instance.state_layout.slots
    for position, page in enumerate(instance.elements(vocabulary.page)):
        holders = [holder for holder in instance.elements(vocabulary.holder) if state.values[slots["holds", (holder, page)]]]
        content = state.values[slots["content", (page,)]]
        held = ", ".join(instance.label(vocabulary.holder, holder) for holder in holders)
        data = "" if content is None else instance.label(vocabulary.holder, content)
        odd = bool(holders) and content is not None and content not in holders
        changed = bool(before) and (before[position].held, before[position].data) != (held, data)
        yield PageLine(instance.label(vocabulary.page, page), held, data, odd, changed)


def _changes_in_words(trace: Trace, graphs: Sequence[Graph]) -> Mapping[int, Sequence[Said]]:
    found: dict[int, list[Said]] = {}
    names = [name for name, data in graphs[0].nodes(data=True) if data["kind"] in ("page", "request")] if graphs else []
    for name in names:
        for line in _told(trace, graphs, name):
            if line.name != "0":
                found.setdefault(int(line.name), []).append(Said(name, line.text))
    return found


def _notes(explanation: Explanation | None) -> Iterator[tuple[int, list[Said]]]:
    """What would have happened at a step: where the sound design refuses it, and which flags stop it."""
    if explanation is None:
        return
    found: dict[int, list[Said]] = {}
    refused = explanation.refused
    if refused is not None:
        found.setdefault(refused.step, []).append(Said(refusal_head(refused), refused.what, refused.where))
    for stopper in explanation.stopped_by:
        head = f"With {stopper.flag} {'on' if stopper.on else 'off'}, and all else the same, the run ends here"
        found.setdefault(stopper.step, []).append(Said(head, stopper.guard_or_change, stopper.where))
    yield from found.items()


# -- pictures


class _Gallery:
    """The pictures of a trace: of a spec without pages there are none, of a long trace those of the last steps."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.album: Album | None = None
        try:
            self.album = Album(trace)
        except UsageError:
            if ownership(trace.instance.system) is not None:
                raise
        pen = Pen()
        self.style = pen.root(1, 1, "", "").findtext("style") or ""
        self.scene = Scene(pen, STEP, self.album.cast, self.album.graphs, self.album.copies) if self.album else None

    @property
    def graphs(self) -> Sequence[Graph]:
        return self.album.graphs if self.album else ()

    def picture(self, step: int) -> tuple[Any, bool]:
        """The picture of a state, or None; and whether it is wide."""
        if self.album is None or self.scene is None or 0 < step <= len(self.trace.steps) - MOST_PICTURES:
            return None, False
        width = self.scene.width + 2 * MARGIN
        root = self.album.pen.root(width, self.scene.height + 2 * MARGIN, f"The state after step {step}", "")
        for element in [child for child in root if child.tag in ("style", "desc")]:
            root.remove(element)  # the style is the page's; what the picture says is beside it
        described = ET.Element("desc")
        described.text = printable(self.album.description(step), LONGEST_DESCRIPTION)
        root.insert(1, described)
        self.scene.draw(self.album.pen.group(root, MARGIN, MARGIN), self.album.graphs[step], self.album.copies[step])
        root.attrib.pop("xmlns")  # in HTML it is an SVG element without
        return _trusted(ET.tostring(root, encoding="unicode")), width > WIDEST


# -- the template


@cache
def _part(name: str) -> str:
    return files("kvmodel.views").joinpath(name).read_text(encoding="utf-8").strip()


@cache
def _environment() -> Environment:
    from jinja2 import DictLoader, Environment, StrictUndefined

    def shown(value: object) -> object:
        """Markup says what it is by this method, whichever import of the library it comes from; anything else is text."""
        return value if hasattr(value, "__html__") else printable(str(value), LONGEST)

    loader = DictLoader({"report.html": _part("report.html")})
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, finalize=shown, trim_blocks=True, lstrip_blocks=True)


def _trusted(text: str) -> Any:
    """Text that is markup already: made here, with every name in it escaped."""
    from markupsafe import Markup

    return Markup(text)


def _long(text: str) -> Any:
    from markupsafe import escape

    return escape(printable(text, LONGEST_COMMAND))


def _policy(style: str, script: str) -> str:
    """Nothing but this style and this script; no request for anything."""

    def digest(text: str) -> str:
        return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"

    return (
        f"default-src 'none'; style-src {digest(style)}; script-src {digest(script)}; img-src data:; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'"
    )
