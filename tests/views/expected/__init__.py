"""Texts that people see, kept by hand: a change of one is a change that a reader of the tool would notice."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent


def expected(name: str) -> str:
    """The text that is kept under `name`."""
    return (HERE / f"{name}.txt").read_text(encoding="utf-8")


def timeless(text: str) -> str:
    """`text` without how long a check took."""
    return re.sub(r"[;\n ]+\d+\.\ds\n", "; TIME\n", text)
