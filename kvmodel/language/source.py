"""Spec files as syntax trees: read within limits, parsed, never run."""

from __future__ import annotations

import ast
import re
import stat
import warnings
from dataclasses import dataclass
from pathlib import Path

from kvmodel.errors import Diagnostic, SpecError, printable
from kvmodel.language.types import Span

__all__ = ["DEEPEST_NESTING", "LARGEST_FILE", "LARGEST_INTEGER", "LONGEST_LIST", "Source", "docstring", "parse", "quoted"]

LARGEST_FILE = 200_000  # bytes
DEEPEST_NESTING = 60  # brackets in the text, and levels of statements and expressions in the tree
LARGEST_INTEGER = 10**15  # a constant in the file
LONGEST_LIST = 500  # operands of one `and`, arguments of one call, ...; statements are bounded by the size of the file

# Brackets that nest, and what hides brackets: comments and strings (also unfinished ones, which run to the end of the line or file).
LEXICAL = re.compile(r"""#[^\n]*|\"{3}.*?(?:\"{3}|\Z)|'{3}.*?(?:'{3}|\Z)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|[()\[\]{}]""", re.DOTALL)


@dataclass(frozen=True, eq=False)
class Source:
    """A spec file that was read. `shown` is how messages call it."""

    shown: str
    lines: tuple[str, ...]
    tree: ast.Module

    def span(self, node: ast.AST) -> Span:
        """Where a node was written. Python's tree counts columns in bytes; a span counts characters."""
        line, offset = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        if not text.isascii():
            offset = len(text.encode()[:offset].decode(errors="ignore"))
        return Span(self.shown, line, offset + 1)


def parse(path: Path, shown: str) -> Source:
    """Read and parse a spec file.

    Raises SpecError for one that is missing, not a file, not UTF-8, over 200,000 bytes, nested deeper than 60 levels, or
    not Python. The limits on size and brackets are checked before Python's own parser sees the text.
    """
    text = _text(path, shown)
    _check_brackets(text, shown)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, filename=shown)
    except SyntaxError as problem:
        raise _error(shown, problem.lineno or 1, problem.offset or 1, f"not Python: {problem.msg}") from None
    except (RecursionError, MemoryError):
        raise _error(shown, 1, 1, "an expression is nested too deeply for Python to read") from None
    except ValueError as problem:
        raise _error(shown, 1, 1, f"not Python: {problem}") from None
    source = Source(shown, tuple(re.split(r"\r\n|\r|\n", text)), tree)
    _check_tree(source)
    return source


def quoted(node: ast.AST, limit: int = 60) -> str:
    """A node as messages quote it: its first line, in backquotes, cut at `limit` characters."""
    try:
        text = ast.unparse(node)
    except (ValueError, RecursionError):  # some f-strings have no spelling
        return f"this {type(node).__name__}"
    line, _, rest = text.partition("\n")
    return f"`{line[:limit]} ...`" if rest or len(line) > limit else f"`{line}`"


def docstring(node: ast.ClassDef | ast.FunctionDef) -> str:
    """What a class or method says of itself, safe to show; empty when it says nothing."""
    return printable(ast.get_docstring(node) or "")


def _text(path: Path, shown: str) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise _error(shown, 1, 1, "the file cannot be read: it is not a regular file")
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise _error(shown, 1, 1, f"the file is too large: a spec file has at most {LARGEST_FILE:,} bytes")
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = problem.object.count(b"\n", 0, problem.start) + 1
        raise _error(shown, line, 1, "the file is not UTF-8 text") from None
    except OSError as problem:
        raise _error(shown, 1, 1, f"the file cannot be read: {problem.strerror}") from None


def _check_brackets(text: str, shown: str) -> None:
    depth = 0
    for found in LEXICAL.finditer(text):
        match found.group():
            case "(" | "[" | "{":
                depth += 1
                if depth > DEEPEST_NESTING:
                    before = text[: found.start()]
                    line, column = before.count("\n") + 1, found.start() - before.rfind("\n")
                    raise _error(shown, line, column, f"brackets are nested deeper than {DEEPEST_NESTING} levels")
            case ")" | "]" | "}":
                depth = max(0, depth - 1)


def _check_tree(source: Source) -> None:
    level: list[ast.AST] = [source.tree]
    for _ in range(DEEPEST_NESTING):
        for node in level:
            _check_node(source, node)
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    placed = next((node for node in level if hasattr(node, "lineno")), source.tree)
    at = source.span(placed)
    raise _error(source.shown, at.line, at.column, f"statements and expressions are nested deeper than {DEEPEST_NESTING} levels")


def _check_node(source: Source, node: ast.AST) -> None:
    match node:
        case ast.Constant(value=int(value)) if abs(value) > LARGEST_INTEGER:
            message = f"an integer is larger than {LARGEST_INTEGER:,}"
        case (
            ast.BoolOp(values=parts) | ast.Compare(comparators=parts) | ast.Call(args=parts)
            | ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts)
        ) if len(parts) > LONGEST_LIST:
            message = f"an expression has {len(parts):,} operands; at most {LONGEST_LIST}"
        case _:
            return
    at = source.span(node)
    raise _error(source.shown, at.line, at.column, message)


def _error(shown: str, line: int, column: int, message: str) -> SpecError:
    return SpecError((Diagnostic(shown, line, column, "", message),))
