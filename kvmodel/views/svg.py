"""Drawing in SVG: colours for light and dark, shapes that tell identities apart, texts that fit, and PNG.

Elements are made with `xml.etree`, which escapes every text. A colour is a name of `PALETTE`; with the theme ``auto`` it is a
CSS custom property ``--kv-NAME`` of the class ``kv-picture``, so that a picture follows its reader's light or dark mode and a
page around it can set its own; ``light`` and ``dark`` are for what has no style sheets (print, PNG).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias
from xml.etree import ElementTree as ET

from kvmodel.errors import printable

__all__ = ["IDENTITIES", "PALETTE", "SHAPES", "Pen", "Theme", "png", "shortened", "text_width", "wrapped"]

Theme: TypeAlias = Literal["auto", "light", "dark"]

IDENTITIES = 8  # shapes, and colours, that tell requests apart; of more, shape and colour are combined anew

# The first colours of identities are told apart by colour-blind readers too, from each other and from the red of what is wrong.
PALETTE: dict[str, tuple[str, str]] = {
    "paper": ("#ffffff", "#14171b"),
    "ink": ("#1b1f24", "#eceff2"),
    "soft": ("#545d68", "#a9b3be"),
    "line": ("#8a939d", "#6d7784"),
    "faint": ("#d5dade", "#363d46"),
    "panel": ("#f1f3f5", "#1d2228"),
    "card": ("#ffffff", "#272d35"),
    "new": ("#ffec99", "#5c4a00"),
    "wrong": ("#b30000", "#ff8a80"),
    "wrong-paper": ("#ffe3e0", "#4b1a1a"),
    "id0": ("#006e63", "#5fd3c4"),
    "id1": ("#7a2f9b", "#d29bf0"),
    "id2": ("#0058a3", "#76b7ff"),
    "id3": ("#8a6100", "#e6b84d"),
    "id4": ("#a8256f", "#ff9fce"),
    "id5": ("#4d5a00", "#bccb4f"),
    "id6": ("#3b3b9e", "#a8a8ff"),
    "id7": ("#5b4a3f", "#cdb9aa"),
}

# Outlines in a square of side 2 around the origin; a circle has none.
SHAPES: tuple[tuple[tuple[float, float], ...], ...] = (
    (),
    ((0, -1.15), (1.15, 0), (0, 1.15), (-1.15, 0)),
    ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    ((0, -1.1), (1.1, 0.85), (-1.1, 0.85)),
    ((0, 1.1), (1.1, -0.85), (-1.1, -0.85)),
    ((-0.55, -0.95), (0.55, -0.95), (1.1, 0), (0.55, 0.95), (-0.55, 0.95), (-1.1, 0)),
    ((-0.37, -1), (0.37, -1), (0.37, -0.37), (1, -0.37), (1, 0.37), (0.37, 0.37), (0.37, 1), (-0.37, 1), (-0.37, 0.37), (-1, 0.37),
     (-1, -0.37), (-0.37, -0.37)),
    ((0, -1.15), (0.3, -0.4), (1.1, -0.35), (0.48, 0.15), (0.7, 0.95), (0, 0.5), (-0.7, 0.95), (-0.48, 0.15), (-1.1, -0.35), (-0.3, -0.4)),
)

FONT = "'Open Sans', 'Segoe UI', 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
NAMESPACE = "http://www.w3.org/2000/svg"
LARGEST_PNG = 50_000_000  # pixels
NARROW = frozenset("iljtfrI.,:;'|![]() /")
WIDE = frozenset("mwMW@%")


@dataclass(frozen=True, slots=True)
class Pen:
    """Adds elements to a drawing in the colours of a theme."""

    theme: Theme = "auto"

    def root(self, width: float, height: float, title: str, description: str) -> ET.Element:
        """An `svg` element with its title, its description and, for the theme ``auto``, its style sheet."""
        size = {"width": number(width), "height": number(height), "viewBox": f"0 0 {number(width)} {number(height)}"}
        root = ET.Element("svg", {"xmlns": NAMESPACE, **size, "class": "kv-picture", "role": "img", "font-family": FONT})
        self.titled(root, title)
        ET.SubElement(root, "desc").text = printable(description, 20_000)
        if self.theme == "auto":
            ET.SubElement(root, "style").text = "\n".join(_style_sheet())
        self.add(root, "rect", fill="paper", width=width, height=height)
        return root

    def add(self, parent: ET.Element, tag: str, *, fill: str = "", stroke: str = "", **attributes: float | str) -> ET.Element:
        """An element; `fill` and `stroke` are names of colours, an underscore in a name of `attributes` is a hyphen."""
        found = {name.replace("_", "-"): value if isinstance(value, str) else number(value) for name, value in attributes.items()}
        classes = []
        for kind, colour in (("fill", fill), ("stroke", stroke)):
            if colour:
                found[kind] = PALETTE[colour][self.theme == "dark"]
                classes.append(f"kv-{kind}-{colour}")
        if classes and self.theme == "auto":
            found["class"] = " ".join(classes)
        if not fill and tag in ("path", "rect", "circle", "polygon"):
            found["fill"] = "none"
        return ET.SubElement(parent, tag, found)

    def titled(self, parent: ET.Element, text: str) -> None:
        """What a reader sees who points at the element, or hears."""
        ET.SubElement(parent, "title").text = printable(text, 20_000)

    def group(self, parent: ET.Element, x: float = 0, y: float = 0, title: str = "") -> ET.Element:
        """A group of elements, moved to a place."""
        found = ET.SubElement(parent, "g", {"transform": f"translate({number(x)} {number(y)})"} if x or y else {})
        if title:
            self.titled(found, title)
        return found

    def text(
        self, parent: ET.Element, x: float, y: float, words: str, *, size: float = 12, fill: str = "ink", bold: bool = False,
        room: float = 0, anchor: str = "start", halo: str = "",
    ) -> None:
        """A line of text whose base line is at `y`; with `room` it is shortened to that width. `halo` is the colour around it."""
        shown = shortened(printable(words), room, size, bold) if room else printable(words)
        more: dict[str, float | str] = {"font_weight": "700"} if bold else {}
        if anchor != "start":
            more["text_anchor"] = anchor
        if halo:
            more |= {"paint_order": "stroke", "stroke_width": 3, "stroke_linejoin": "round"}
        self.add(parent, "text", fill=fill, stroke=halo, x=x, y=y, font_size=size, **more).text = shown

    def shape(self, parent: ET.Element, x: float, y: float, identity: int, radius: float = 6) -> None:
        """The shape that stands for an identity, in its colour."""
        outline = SHAPES[identity % IDENTITIES]
        colour = f"id{(identity + identity // IDENTITIES) % IDENTITIES}"
        if not outline:
            self.add(parent, "circle", fill=colour, cx=x, cy=y, r=radius)
        else:
            points = " ".join(f"{number(x + dx * radius)},{number(y + dy * radius)}" for dx, dy in outline)
            self.add(parent, "polygon", fill=colour, points=points)

    def stop(self, parent: ET.Element, x: float, y: float, radius: float = 9) -> None:
        """An octagon with an exclamation mark: here it is wrong."""
        near, far = radius * 0.414, radius
        corners = [(-near, -far), (near, -far), (far, -near), (far, near), (near, far), (-near, far), (-far, near), (-far, -near)]
        points = " ".join(f"{number(x + dx)},{number(y + dy)}" for dx, dy in corners)
        self.add(parent, "polygon", fill="wrong", stroke="paper", stroke_width=1.5, points=points)
        mark = f"M{number(x)} {number(y - radius * 0.6)}v{number(radius * 0.7)}"
        self.add(parent, "path", stroke="paper", stroke_width=radius / 4, d=mark)
        self.add(parent, "circle", fill="paper", cx=x, cy=y + radius * 0.5, r=radius / 7)


def colour_of(identity: int) -> str:
    """The name of the colour of an identity."""
    return f"id{(identity + identity // IDENTITIES) % IDENTITIES}"


def number(value: float) -> str:
    """A coordinate, rounded to hundredths."""
    return f"{round(value, 2):g}"


def _style_sheet() -> Iterator[str]:
    light = "".join(f"--kv-{name}:{value};" for name, (value, _) in PALETTE.items())
    dark = "".join(f"--kv-{name}:{value};" for name, (_, value) in PALETTE.items())
    yield f".kv-picture{{{light}}}"
    yield f"@media screen and (prefers-color-scheme:dark){{.kv-picture{{{dark}}}}}"
    for name in PALETTE:
        yield f".kv-fill-{name}{{fill:var(--kv-{name})}}.kv-stroke-{name}{{stroke:var(--kv-{name})}}"


def text_width(text: str, size: float, bold: bool = False) -> float:
    """How wide a line of text is, at most, in the fonts that pictures ask for."""
    units = 0.0
    for c in text:
        if unicodedata.combining(c):
            continue
        if unicodedata.east_asian_width(c) in "WF":
            units += 1.05
        elif c in NARROW:
            units += 0.38
        elif c in WIDE:
            units += 0.95
        else:
            units += 0.67 if c.isupper() else 0.57
    return units * size * (1.08 if bold else 1)


def shortened(text: str, room: float, size: float, bold: bool = False) -> str:
    """`text` on one line and not wider than `room`; of a longer one the beginning and the end."""
    line = " ".join(text.split())
    if text_width(line, size, bold) <= room:
        return line
    kept = min(len(line) - 1, int(room / (size * 0.38)))
    while kept > 1:
        tail = kept // 3
        short = f"{line[: kept - tail]}…{line[len(line) - tail :]}"
        if text_width(short, size, bold) <= room:
            return short
        kept -= 1
    return "…"


def wrapped(text: str, room: float, size: float, most: int = 4) -> list[str]:
    """`text` over lines not wider than `room`; when it takes more than `most`, the last one is cut."""
    lines: list[str] = []
    for word in printable(text).split():
        if lines and text_width(f"{lines[-1]} {word}", size) <= room:
            lines[-1] += f" {word}"
        elif len(lines) == most:
            lines[-1] = shortened(f"{lines[-1]} …", room, size)
            break
        else:
            lines.append(shortened(word, room, size))
    return lines


def png(svg: str, zoom: float = 2) -> bytes:
    """A picture (of the theme ``light`` or ``dark``) as PNG, in a font that comes with kvmodel: the same on every machine.

    A picture that would be very large at this zoom gets a smaller one."""
    from importlib.resources import as_file, files

    import resvg_py

    size = ET.fromstring(svg).attrib
    zoom = min(zoom, (LARGEST_PNG / (float(size["width"]) * float(size["height"]))) ** 0.5)
    with as_file(files("fontpkg_open_sans") / "files") as folder:
        fonts = sorted(str(path) for path in folder.glob("*.ttf"))
        family = "Open Sans"
        return resvg_py.svg_to_bytes(
            svg_string=svg, zoom=zoom, skip_system_fonts=True, font_files=fonts, font_family=family, sans_serif_family=family
        )
