"""From rich renderables to text: one place that decides on width, colour and what may reach a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kvmodel.errors import printable

__all__ = ["PLAIN_WIDTH", "columns", "draw", "indented", "words"]

PLAIN_WIDTH = 100  # columns of text that is piped: not a property of anybody's terminal


def words(text: str, style: str = "") -> Text:
    """Text from a spec or a file: never read as markup, without control characters."""
    return Text(printable(text), style=style)


def indented(renderable: RenderableType, by: int = 2) -> Padding:
    """`renderable`, `by` columns to the right; wrapped lines stay there."""
    return Padding(renderable, (0, 0, 0, by))


def columns(*names: str) -> Table:
    """A table without lines between its cells; without `names` it has no header either."""
    table = Table(box=None, show_header=any(names), header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def draw(renderables: Sequence[RenderableType], *, width: int = PLAIN_WIDTH, colour: bool = False) -> str:
    """The renderables as text of at most `width` columns that ends in a newline; no line ends in blanks."""
    file = StringIO()
    console = Console(
        file=file,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=False,
    )
    for renderable in renderables:
        console.print(renderable)
    return "".join(line.rstrip() + "\n" for line in file.getvalue().splitlines())
