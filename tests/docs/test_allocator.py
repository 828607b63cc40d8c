"""docs/allocator as a user would run it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "allocator"


def lines_of_code(file: Path) -> int:
    """Lines that are not blank, no comment and no documentation."""
    text = file.read_text()
    documented = [node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))]
    strings = [node.body[0] for node in documented if ast.get_docstring(node)]
    hidden = {number for node in strings for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    lines = enumerate(text.splitlines(), start=1)
    return sum(1 for number, line in lines if line.strip() and not line.strip().startswith("#") and number not in hidden)


def test_the_reference_allocator_is_small() -> None:
    assert 30 <= lines_of_code(FOLDER / "allocator.py") <= 42
    assert lines_of_code(FOLDER / "adapter.py") <= 30


def test_its_tests_pass_as_a_user_would_run_them() -> None:
    command = [sys.executable, "-m", "pytest", str(FOLDER), "-p", "no:cacheprovider"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=FOLDER.parents[1])
    assert run.returncode == 0, run.stdout + run.stderr
    assert "2 passed" in run.stdout
