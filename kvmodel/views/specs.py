"""What people read about specs: the list of what ships, one spec, and how two differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import RenderableType
from rich.text import Text

from kvmodel.language.load import Listing
from kvmodel.language.system import TransitionSystem
from kvmodel.language.text import Change, signature
from kvmodel.views.console import PLAIN_WIDTH, columns, draw, indented, words

__all__ = ["difference_text", "listing_text", "spec_text"]


def listing_text(listings: Sequence[Listing], *, width: int = PLAIN_WIDTH, colour: bool = False) -> str:
    """The specs that ship, one paragraph each."""
    table = columns("spec", "what it is")
    for entry in listings:
        table.add_row(words(entry.name, "bold"), words(entry.doc))
    return draw([table], width=width, colour=colour)


def spec_text(system: TransitionSystem, variants: Sequence[Listing] = (), *, width: int = PLAIN_WIDTH, colour: bool = False) -> str:
    """A spec for somebody who wants to check it: variants, flags, actions and properties with a sentence each."""
    parts: list[RenderableType] = [words(system.name, "bold")]
    if system.doc:
        parts.append(indented(words(_flowing(system.doc))))
    if system.sizes:
        parts += [Text(), words("default size: " + " ".join(f"{name}={size}" for name, size in system.sizes))]
    flags = ((f"{flag.name} = {'on' if flag.value else 'off'}", f"({flag.kind.value}) {flag.doc}") for flag in system.flags)
    parts += _section("variants", ((entry.name, entry.doc) for entry in variants))
    parts += _section("flags", flags)
    parts += _section("actions", ((signature(action.name, action.parameters), action.doc) for action in system.actions))
    parts += _section("properties", ((entry.name, f"({entry.kind.value}) {entry.doc}") for entry in system.properties))
    parts += [Text(), words(f"the whole transition system: kvmodel specs {system.name} --text", "dim")]
    return draw(parts, width=width, colour=colour)


def _section(title: str, entries: Iterable[tuple[str, str]]) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for name, doc in entries:
        lines += [indented(words(name, "cyan")), indented(words(_flowing(doc)), 6)]
    return [Text(), words(title, "bold"), *lines] if lines else []


def _flowing(doc: str) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in doc.split("\n\n"))


def difference_text(first: str, second: str, changes: Sequence[Change], *, width: int = PLAIN_WIDTH, colour: bool = False) -> str:
    """The declarations that two specs do not share; ``-`` is of the first and ``+`` of the second."""
    if not changes:
        return draw([words(f"{first} and {second} mean the same")], width=width, colour=colour)
    parts: list[RenderableType] = [words(f"- {first}", "red"), words(f"+ {second}", "green")]
    styles = {"- ": "red", "+ ": "green"}
    for change in changes:
        parts += [Text(), *(words(line, styles.get(line[:2], "")) for line in change.lines)]
    return draw(parts, width=width, colour=colour)
