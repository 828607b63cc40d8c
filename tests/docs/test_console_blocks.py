"""Every console block of the documentation is run, and what it prints is compared with what the page shows.

In a page, ``...`` alone on a line stands for any lines, and inside a line for any text; times are left to it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("proofs/*.md")])
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


def sessions(page: Path) -> Iterator[tuple[str, str]]:
    """Each command of the page's console blocks with the output that the page shows."""
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            while command.endswith("\\"):
                more, _, output = output.partition("\n")
                command = command[:-1] + more.strip()
            yield command, output


def matches(shown: str, printed: str) -> bool:
    """Whether `printed` is what the page shows, with ``...`` standing for anything."""
    lines = [line.rstrip() for line in shown.strip("\n").splitlines()]
    pattern = "\n".join(r"(?:.*\n?)*?" if line == "..." else r".*?".join(map(re.escape, line.split("..."))) for line in lines)
    pattern = pattern.replace("(?:.*\\n?)*?\n", "(?:.*\\n)*?")
    return re.fullmatch(pattern, "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())) is not None


CASES = [pytest.param(command, output, id=f"{page.name}: {command[:60]}") for page in PAGES for command, output in sessions(page)]


@pytest.mark.parametrize(("command", "output"), CASES)
def test_block(command: str, output: str, tmp_path: Path) -> None:
    environment = dict(os.environ, PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", COLUMNS="120", NO_COLOR="1")
    environment.pop("FORCE_COLOR", None)
    result = subprocess.run(command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    printed = result.stdout + result.stderr
    assert matches(output, printed), f"the page shows\n{output}\nbut the command prints\n{printed}"


def test_there_are_blocks() -> None:
    assert len(CASES) >= 8


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a\nc\n", False),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("a\n...\nd\n", "a\nb\nc\n", False),
        ("took ... s\n", "took 1.2 s\n", True),
        ("a\n", "a\nb\n", False),
        ("...\nend\n", "x\ny\nend\n", True),
    ],
)
def test_the_comparison(shown: str, printed: str, same: bool) -> None:
    assert matches(shown, printed) is same
