"""Writes docs/incident.html, the incident's shortest violation explained, and the README's picture of its last step.
``make report`` runs it."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from kvmodel import cli

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "incident.html"
PICTURE = DOCS / "images" / "incident.svg"
STEP = 13
SPEC, PROPERTY = "handoff:buggy", "isolated_read"

__all__ = ["PAGE", "PICTURE", "PROPERTY", "SPEC", "STEP", "main"]


def main() -> int:
    """The commands that a user would give; the exit code of the last one."""
    with TemporaryDirectory() as folder:
        trace = str(Path(folder) / "incident.itf.json")
        cli.run(["check", SPEC, PROPERTY, "--save", trace])
        cli.run(["render", trace, "--step", str(STEP), "-o", str(PICTURE)])
        return cli.run(["report", trace, "--check", "-o", str(PAGE)])


if __name__ == "__main__":
    sys.exit(main())
