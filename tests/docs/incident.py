"""Writes docs/incident.html: the incident's shortest violation explained, and what else holds. ``make report`` runs it."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from kvmodel import cli

PAGE = Path(__file__).resolve().parents[2] / "docs" / "incident.html"
SPEC, PROPERTY = "handoff:buggy", "isolated_read"

__all__ = ["PAGE", "PROPERTY", "SPEC", "main"]


def main() -> int:
    """The two commands that a user would give; the exit code of the second."""
    with TemporaryDirectory() as folder:
        trace = str(Path(folder) / "incident.itf.json")
        cli.run(["check", SPEC, PROPERTY, "--save", trace])
        return cli.run(["report", trace, "--check", "-o", str(PAGE)])


if __name__ == "__main__":
    sys.exit(main())
