"""``kvmodel specs``: what ships, what a spec says, and how two of them differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kvmodel.commands import common

if TYPE_CHECKING:
    from kvmodel.language.system import TransitionSystem

__all__ = ["specs"]


@click.command(
    epilog="""\b
Examples:
  kvmodel specs                          what ships
  kvmodel specs handoff                  its flags, actions and properties
  kvmodel specs handoff --text           the whole transition system
  kvmodel specs diff handoff handoff:buggy"""
)
@click.argument("names", nargs=-1, metavar="[SPEC | diff A B]")
@click.option("--text", is_flag=True, help="Print the transition system of SPEC: what every reading looks at.")
@common.json_option
def specs(names: tuple[str, ...], text: bool, as_json: bool) -> int:
    """List the specs that ship, describe one, or say how two differ."""
    match names:
        case () if not text:
            _list(as_json)
        case ("diff", first, second) if not text:
            _diff(first, second, as_json)
        case (name,) if name != "diff":
            _describe(name, text, as_json)
        case _:
            raise click.UsageError("write `kvmodel specs`, `kvmodel specs SPEC [--text]` or `kvmodel specs diff A B`")
    return common.ALL_HOLD


def _list(as_json: bool) -> None:
    from kvmodel.language.load import shipped

    listings = shipped()
    if as_json:
        common.emit_json("specs", {"specs": [{"name": entry.name, "doc": entry.doc} for entry in listings]})
        return
    from kvmodel.views.specs import listing_text

    width, colour = common.page()
    common.emit(listing_text(listings, width=width, colour=colour))


def _describe(name: str, text: bool, as_json: bool) -> None:
    from kvmodel import api
    from kvmodel.language.text import system_text

    system = api.load(name)
    if as_json:
        common.emit_json("specs", _object(system))
    elif text:
        from kvmodel.errors import printable

        common.emit(printable(system_text(system), 10_000_000))
    else:
        from kvmodel.language.load import shipped
        from kvmodel.views.specs import spec_text

        variants = [entry for entry in shipped() if entry.name.startswith(f"{name}:")]
        width, colour = common.page()
        common.emit(spec_text(system, variants, width=width, colour=colour))


def _diff(first: str, second: str, as_json: bool) -> None:
    from kvmodel import api
    from kvmodel.language.text import difference

    changes = difference(api.load(first), api.load(second))
    if as_json:
        objects = [{"kind": change.kind, "name": change.name, "lines": list(change.lines)} for change in changes]
        common.emit_json("specs diff", {"first": first, "second": second, "changes": objects})
        return
    from kvmodel.views.specs import difference_text

    width, colour = common.page()
    common.emit(difference_text(first, second, changes, width=width, colour=colour))


def _object(system: TransitionSystem) -> dict[str, object]:
    from kvmodel.language.text import system_text

    return {
        "spec": system.name,
        "doc": system.doc,
        "sizes": dict(system.sizes),
        "flags": [{"name": f.name, "value": f.value, "default": f.default, "kind": f.kind.value, "doc": f.doc} for f in system.flags],
        "actions": [{"name": a.name, "parameters": [p.name for p in a.parameters], "doc": a.doc} for a in system.actions],
        "properties": [{"name": p.name, "kind": p.kind.value, "doc": p.doc} for p in system.properties],
        "text": system_text(system),
    }
