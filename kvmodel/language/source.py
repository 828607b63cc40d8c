"""Spec files as syntax trees: read within limits, parsed, never run."""

from __future__ import annotations

import ast
from pathlib import Path

from kvmodel.errors import Diagnostic, SpecError

__all__ = ["LARGEST_FILE", "DEEPEST_NESTING", "parse"]

LARGEST_FILE = 1_000_000  # bytes
DEEPEST_NESTING = 100  # brackets in the text, and levels in the tree


def parse(path: Path, shown: str) -> ast.Module:
    """The syntax tree of a spec file; `shown` is how messages call it.

    Raises SpecError for a file that is missing, not UTF-8, over one million bytes, nested deeper than 100 levels, or
    not Python. The limits are checked before Python's own parser sees the text.
    """
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise _error(shown, 1, 1, f"the file has {size:,} bytes; a spec file has at most {LARGEST_FILE:,}")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise _error(shown, 1, 1, "the file is not UTF-8 text") from None
    except OSError as problem:
        raise _error(shown, 1, 1, f"the file cannot be read: {problem.strerror}") from None
    _check_brackets(text, shown)
    try:
        tree = ast.parse(text, filename=shown)
    except SyntaxError as problem:
        raise _error(shown, problem.lineno or 1, problem.offset or 1, f"not Python: {problem.msg}") from None
    except (RecursionError, MemoryError, ValueError) as problem:
        raise _error(shown, 1, 1, f"not readable as Python: {type(problem).__name__}") from None
    _check_depth(tree, shown)
    return tree


def _check_brackets(text: str, shown: str) -> None:
    depth = 0
    for number, line in enumerate(text.splitlines(), start=1):
        for column, character in enumerate(line, start=1):
            if character in "([{":
                depth += 1
                if depth > DEEPEST_NESTING:
                    raise _error(shown, number, column, f"brackets are nested deeper than {DEEPEST_NESTING} levels")
            elif character in ")]}":
                depth = max(0, depth - 1)


def _check_depth(tree: ast.Module, shown: str) -> None:
    level: list[ast.AST] = [tree]
    for _ in range(DEEPEST_NESTING):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    line = next((node.lineno for node in level if isinstance(node, ast.expr | ast.stmt)), 1)
    raise _error(shown, line, 1, f"expressions are nested deeper than {DEEPEST_NESTING} levels")


def _error(shown: str, line: int, column: int, message: str) -> SpecError:
    return SpecError((Diagnostic(shown, line, column, "", message),))
