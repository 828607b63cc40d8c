"""``kvmodel render``: a picture or a graph of a saved trace."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvmodel.commands import common
from kvmodel.errors import UsageError, nearest, printable

if TYPE_CHECKING:
    from kvmodel.traces.trace import Trace
    from kvmodel.views.svg import Theme

__all__ = ["render"]

PICTURES = ("svg", "png")
GRAPHS = ("dot", "graphml", "json")
FORMATS = (*PICTURES, *GRAPHS)
ENDINGS = {".svg": "svg", ".png": "png", ".dot": "dot", ".gv": "dot", ".graphml": "graphml", ".json": "json"}


@click.command(
    epilog="""\b
Examples:
  kvmodel check handoff:buggy isolated_read --save incident.itf.json
  kvmodel render incident.itf.json -o film.svg               every step
  kvmodel render incident.itf.json --step 7 -o step7.png     one of them
  kvmodel render incident.itf.json --step 13 --format dot    a graph for other tools

\b
Exit code: 0, or 2 when FILE is not a run of its spec or the output cannot be written."""
)
@click.argument("file")
@click.option("--step", type=int, metavar="K", help="The state after K steps (0: the initial state); otherwise the film of all.")
@click.option("-o", "--output", metavar="PATH", help="Where to write; otherwise stdout.")
@click.option("--format", "wanted", type=click.Choice(FORMATS), help="What to write; otherwise as the ending of PATH says, or svg.")
@click.option("--theme", type=click.Choice(("auto", "light", "dark")), default="auto", show_default=True,
              help="Colours; auto is the reader's own mode (in PNG: light).")
@click.option("--spec", metavar="SPEC", help="Use this spec, not the one that the file names.")  # fmt: skip
def render(file: str, step: int | None, output: str | None, wanted: str | None, theme: Theme, spec: str | None) -> int:
    """Draw the trace in FILE (ITF JSON): who owns which page, whose data is in it, and where that goes wrong.

    svg and png are pictures. dot, graphml and json (node-link) are the page graph of one state, every variable of it included; without
    --step that of the last one. More than 60 nodes are summarised in pictures, never in graphs.
    """
    chosen = wanted or _by_ending(output)
    if chosen == "png" and output is None and sys.stdout.isatty():
        raise UsageError("a PNG is not for a terminal; say where to write it, as in -o trace.png")
    from kvmodel.api import read_trace

    data = _rendered(read_trace(file, spec), step, chosen, theme)
    if output is not None:
        try:
            Path(output).write_bytes(data)
        except (OSError, ValueError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
            raise UsageError(f"{printable(output)}: cannot be written: {reason}") from None
    elif chosen == "png":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        common.emit(data.decode())
    return common.ALL_HOLD


def _by_ending(output: str | None) -> str:
    if output is None:
        return "svg"
    ending = Path(output).suffix
    if ending.lower() not in ENDINGS:
        known = ", ".join(ENDINGS)
        hint = nearest(ending, list(ENDINGS)) if ending else ""
        raise UsageError(f"{printable(output)}: no format has this ending{hint} (known: {known}); or choose one with --format")
    return ENDINGS[ending.lower()]


def _rendered(trace: Trace, step: int | None, chosen: str, theme: Theme) -> bytes:
    if chosen in GRAPHS:
        from kvmodel.views.graph import dot, graphml, node_link_json, step_graph

        writer = {"dot": dot, "graphml": graphml, "json": node_link_json}[chosen]
        return writer(step_graph(trace, len(trace.steps) if step is None else step)).encode()
    from kvmodel.views.picture import film, picture
    from kvmodel.views.svg import png

    if chosen == "png" and theme == "auto":
        theme = "light"
    if step is not None:
        svg = picture(trace, step, theme=theme)
    else:
        from kvmodel.analyses.explain import explain

        svg = film(trace, theme=theme, relevant=explain(trace).relevant if trace.property else None)
    return png(svg) if chosen == "png" else svg.encode()
