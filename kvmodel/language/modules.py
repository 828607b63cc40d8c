"""What the names of a spec file stand for, found without importing anything.

A name comes from the file itself, from a shipped spec, or from a file beside it; nothing else is looked at.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from kvmodel.errors import Diagnostic, SpecError
from kvmodel.language import surface
from kvmodel.language.source import parse
from kvmodel.language.types import Enumeration, Sort, Span

__all__ = ["SHIPPED", "Library", "Module", "SpecClass", "Symbol", "Word", "span"]

SHIPPED = Path(__file__).resolve().parent.parent / "specs"
PACKAGE = "kvmodel.specs"
LANGUAGE = ("kvmodel.language", "kvmodel.language.surface")


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the language, under whatever name the file imports it."""

    name: str


@dataclass(frozen=True, eq=False)
class SpecClass:
    """A class of a spec file that extends `Spec`, not yet read."""

    name: str
    module: Module
    node: ast.ClassDef

    @cached_property
    def variant(self) -> str | None:
        """The variant that the class names, or None."""
        for keyword in self.node.keywords:
            if keyword.arg == "variant" and isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str):
                return keyword.value.value
        return None

    @property
    def doc(self) -> str:
        return ast.get_docstring(self.node) or ""


Symbol: TypeAlias = Word | SpecClass | Sort | Enumeration


@dataclass(eq=False)
class Module:
    """One spec file. `shown` is how messages call it."""

    path: Path
    shown: str
    tree: ast.Module
    library: Library
    symbols: dict[str, Symbol | None] = field(default_factory=dict)

    @cached_property
    def classes(self) -> Mapping[str, ast.ClassDef]:
        return {node.name: node for node in self.tree.body if isinstance(node, ast.ClassDef)}

    @cached_property
    def imports(self) -> Mapping[str, tuple[ast.ImportFrom, str]]:
        """Local name -> (import statement, name in the imported module)."""
        return {
            alias.asname or alias.name: (node, alias.name)
            for node in self.tree.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that the file defines or imports."""
        return (*self.classes, *self.imports)

    def lookup(self, name: str) -> Symbol | None:
        """What `name` stands for at module level, or None."""
        if name not in self.symbols:
            self.symbols[name] = None  # a class that extends itself finds None
            self.symbols[name] = self._resolve(name)
        return self.symbols[name]

    def _resolve(self, name: str) -> Symbol | None:
        if name in self.classes:
            return self._classify(self.classes[name])
        if name not in self.imports:
            return None
        node, original = self.imports[name]
        if node.level == 0 and node.module in LANGUAGE:
            return Word(original) if original in surface.__all__ else None
        if node.level == 0 and node.module == "enum":
            return Word(f"enum.{original}")
        module = self.library.imported(self, node)
        return None if module is None else module.lookup(original)

    def _classify(self, node: ast.ClassDef) -> Symbol | None:
        for base in node.bases:
            found = self.lookup(base.id) if isinstance(base, ast.Name) else None
            if found == Word("Sort"):
                return Sort(node.name, ast.get_docstring(node) or "")
            if found in (Word("enum.Enum"), Word("enum.StrEnum")):
                members = tuple(
                    target.id
                    for statement in node.body
                    if isinstance(statement, ast.Assign)
                    for target in statement.targets
                    if isinstance(target, ast.Name)
                )
                return Enumeration(node.name, members, ast.get_docstring(node) or "")
            if found == Word("Spec") or isinstance(found, SpecClass):
                return SpecClass(node.name, self, node)
        return None

    @property
    def specs(self) -> tuple[SpecClass, ...]:
        """The spec classes of the file, in order."""
        found = (self.lookup(name) for name in self.classes)
        return tuple(symbol for symbol in found if isinstance(symbol, SpecClass))


class Library:
    """Spec files that were opened, each once."""

    def __init__(self) -> None:
        self._modules: dict[Path, Module] = {}

    def open(self, path: Path) -> Module:
        """Read a spec file. Raises SpecError."""
        resolved = path.resolve()
        if resolved not in self._modules:
            shown = _shown(resolved, path)
            self._modules[resolved] = Module(resolved, shown, parse(path, shown), self)
        return self._modules[resolved]

    def imported(self, module: Module, node: ast.ImportFrom) -> Module | None:
        """The module that a ``from ... import`` names, or None when it is not a spec file.

        Raises SpecError for a shipped spec that does not exist.
        """
        name = node.module or ""
        if node.level:
            folder = module.path.parent
            for _ in range(node.level - 1):
                folder = folder.parent
            return self._open_if_there(folder.joinpath(*name.split(".")))
        if name == PACKAGE or name.startswith(PACKAGE + "."):
            found = self._open_if_there(SHIPPED.resolve().joinpath(*name.split(".")[2:]))
            if found is None:
                raise SpecError((Diagnostic(module.shown, node.lineno, node.col_offset + 1, "", f"no shipped spec is called '{name}'",
                                            "`kvmodel specs` lists them"),))
            return found
        return self._open_if_there(module.path.parent.joinpath(*name.split("."))) if name else None

    def _open_if_there(self, path: Path) -> Module | None:
        file = path.with_suffix(".py") if path.name else path
        return self.open(file) if file.is_file() else None


def _shown(resolved: Path, path: Path) -> str:
    folder = SHIPPED.resolve()
    return f"specs/{resolved.relative_to(folder)}" if resolved.is_relative_to(folder) else str(path)


def span(module: Module, node: ast.AST) -> Span:
    """Where a node was written."""
    return Span(module.shown, getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1)
