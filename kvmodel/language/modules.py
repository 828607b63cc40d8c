"""What the names of a spec file stand for, found without importing anything.

A name comes from the file itself, from a shipped spec, or from a file beside it; nothing else is looked at.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from kvmodel.errors import Diagnostic, SpecError, nearest
from kvmodel.language import surface
from kvmodel.language.source import Source, docstring, parse, quoted
from kvmodel.language.types import Enumeration, Sort, Span

__all__ = ["BROKEN", "SHIPPED", "Broken", "Library", "Module", "SpecClass", "Symbol", "Word", "reserved", "span"]

SHIPPED = Path(__file__).resolve().parent.parent / "specs"
PACKAGE = "kvmodel.specs"
LANGUAGE = ("kvmodel.language", "kvmodel.language.surface")
OVERRIDE = ("typing", "typing_extensions")  # where Python's own `override` is
BUILTINS = ("all", "any", "super")  # words of the language that Python has anyway
MOST_FILES = 50
DEEPEST_INHERITANCE = 50
MOST_BASES = 10  # of one class
LONGEST_PATH = 300  # that a message shows


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the language, under whatever name the file imports it."""

    name: str


@dataclass(frozen=True, slots=True)
class Broken:
    """A name that has a mistake of its own, which is reported already: its uses are not mistakes."""


BROKEN = Broken()


@dataclass(frozen=True, eq=False)
class SpecClass:
    """A class of a spec file that extends `Spec`, not yet read. `depth` is how many classes it is away from `Spec`."""

    name: str
    module: Module
    node: ast.ClassDef
    depth: int = 1

    @cached_property
    def variant(self) -> str | None:
        """The variant that the class names, or None."""
        for keyword in self.node.keywords:
            if keyword.arg == "variant" and isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str):
                return keyword.value.value
        return None

    @property
    def doc(self) -> str:
        return docstring(self.node)


Symbol: TypeAlias = Word | SpecClass | Sort | Enumeration | Broken


@dataclass(eq=False)
class Module:
    """One spec file."""

    path: Path
    source: Source
    library: Library
    symbols: dict[str, Symbol | None] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)  # names that are being looked up

    @property
    def shown(self) -> str:
        """How messages call the file."""
        return self.source.shown

    @cached_property
    def bindings(self) -> Mapping[str, tuple[ast.stmt, ...]]:
        """Every name that a statement at module level binds, with the statements that do."""
        found: dict[str, list[ast.stmt]] = {}
        for statement in self.source.tree.body:
            for name in _bound(statement):
                found.setdefault(name, []).append(statement)
        return {name: tuple(statements) for name, statements in found.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that the file binds at module level."""
        return tuple(self.bindings)

    @property
    def classes(self) -> Iterator[str]:
        """Names of the classes of the file, in order."""
        return (statement.name for statement in self.source.tree.body if isinstance(statement, ast.ClassDef))

    @cached_property
    def _unread(self) -> Iterator[ast.ClassDef]:
        return (statement for statement in self.source.tree.body if isinstance(statement, ast.ClassDef))

    @property
    def own_names(self) -> tuple[str, ...]:
        """Every name that the file binds at module level and that is not a word of the language."""
        words = (*LANGUAGE, "enum")
        return tuple(name for name, (*_, last) in self.bindings.items() if not (isinstance(last, ast.ImportFrom) and last.module in words))

    @cached_property
    def mentioned(self) -> frozenset[str]:
        """Every name that the file uses anywhere."""
        return frozenset(node.id for node in ast.walk(self.source.tree) if isinstance(node, ast.Name))

    @property
    def specs(self) -> tuple[SpecClass, ...]:
        """The spec classes of the file, in order."""
        found = (self.lookup(name) for name in self.classes)
        return tuple(symbol for symbol in found if isinstance(symbol, SpecClass))

    def report(self, node: ast.AST, message: str, hint: str, where: str = "") -> None:
        """Note a mistake in what a name stands for."""
        at = self.source.span(node)
        self.library.mistakes.append(Diagnostic(at.file, at.line, at.column, where, message, hint))

    def lookup(self, name: str) -> Symbol | None:
        """What `name` stands for at module level, or None: then it is nothing that the language knows."""
        if name not in self.symbols and name not in self.busy:
            if isinstance(self.bindings.get(name, (None,))[-1], ast.ClassDef):
                # classes are taken in order, as Python does: a base class stands above the classes that extend it
                for statement in self._unread:
                    self._learn(statement.name, statement)
                    if statement.name == name:
                        break
            else:
                self._learn(name, None)
        return self.symbols.get(name, BROKEN)

    def _learn(self, name: str, node: ast.ClassDef | None) -> None:
        self.busy.add(name)
        self.symbols[name] = self._once(name) or (self._classify(node) if node else self._resolve(name))
        self.busy.discard(name)

    def _once(self, name: str) -> Broken | None:
        """BROKEN, and a report, for a name that the file binds twice when one of the two is a class or an import."""
        statements = self.bindings.get(name, ())
        if len(statements) > 1 and len({_binding(statement, name) for statement in statements}) > 1 and any(
            isinstance(statement, ast.ClassDef | ast.ImportFrom) for statement in statements
        ):
            self.report(statements[1], f"'{name}' is bound twice in this file", "rename one of them")
            return BROKEN
        return None

    def _resolve(self, name: str) -> Symbol | None:
        statements = self.bindings.get(name, ())
        if not statements:
            return self._starred(name)
        node = statements[-1]
        if not isinstance(node, ast.ImportFrom):
            return None
        original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
        if node.level == 0 and node.module in LANGUAGE:
            if original in surface.__all__:
                return Word(original)
            self.report(node, f"kvmodel.language has no '{original}'{nearest(original, surface.__all__)}",
                        "the words of the language are those of `help(kvmodel.language)`")
            return BROKEN
        if node.level == 0 and node.module == "enum":
            return Word(f"enum.{original}")
        if node.level == 0 and node.module in OVERRIDE and original == "override":
            return Word("override")
        module = self.library.imported(self, node)
        if not isinstance(module, Module):
            return module
        if original in module.busy or (module.busy and original in module.classes and original not in module.symbols):
            self.report(node, f"'{original}' is not there yet when it is imported: the files import each other",
                        "put the classes that need each other into one file")
            return BROKEN
        found = module.lookup(original)
        if found is None and original not in module.bindings:
            self.report(node, f"{module.shown} has no '{original}'{nearest(original, module.names)}",
                        "import a class that the file defines")
            return BROKEN
        return found

    def _starred(self, name: str) -> Broken | None:
        """BROKEN, and a report, for a name that may come from a ``from ... import *``."""
        for node in self.bindings.get("*", ()):
            assert isinstance(node, ast.ImportFrom)
            if node.module in LANGUAGE or self.library.imported(self, node):
                self.report(node, "`import *` is not followed", "write the names: from kvmodel.language import Relation, Spec, action")
                return BROKEN
        return None

    def _classify(self, node: ast.ClassDef) -> Symbol | None:
        bases = [(base, self._base(base, node)) for base in node.bases]
        for base, found in bases:
            if found == Word("Sort"):
                return Sort(node.name, docstring(node))
            if found in (Word("enum.Enum"), Word("enum.StrEnum")):
                return self._enumeration(node)
            if isinstance(found, Sort | Enumeration):
                self.report(base, f"'{found.name}' cannot be extended", "only specs can; declare another one: class Block(Sort)", node.name)
                return BROKEN
        if len(bases) > MOST_BASES:
            self.report(node, f"the class has {len(bases)} base classes; at most {MOST_BASES}",
                        "extend one that extends the others", node.name)
            return BROKEN
        specs = [found for _, found in bases if isinstance(found, SpecClass) or found == Word("Spec")]
        if not specs:
            return BROKEN if any(found is BROKEN for _, found in bases) else None
        depth = 1 + max(found.depth if isinstance(found, SpecClass) else 0 for found in specs)
        if depth > DEEPEST_INHERITANCE:
            self.report(node, f"the class is more than {DEEPEST_INHERITANCE} classes away from Spec", "extend a class nearer to it",
                        node.name)
            return BROKEN
        return SpecClass(node.name, self, node, depth)

    def _base(self, base: ast.expr, node: ast.ClassDef) -> Symbol | None:
        match base:
            case ast.Name(id=name):
                stands = self.bindings.get(name, (node,))[-1]
                if isinstance(stands, ast.ClassDef) and stands.lineno >= node.lineno and len(self.bindings.get(name, ())) == 1:
                    what = "extends itself" if stands is node else f"extends '{name}', which stands below it"
                    self.report(base, f"the class {what}", "a base class stands above the classes that extend it", node.name)
                    return BROKEN
                return self.lookup(name)
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                imported = self.bindings.get(owner, (None,))[-1]
                if isinstance(imported, ast.Import) and any(a.name == "enum" and (a.asname or a.name) == owner for a in imported.names):
                    return Word(f"enum.{name}")
        return None

    def _enumeration(self, node: ast.ClassDef) -> Symbol:
        members: dict[str, ast.stmt] = {}
        odd = False
        values: dict[object, str] = {}
        for statement in node.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(target=ast.Name(id=name),
                                value=ast.expr() as value):
                    if name.startswith("_"):
                        self.report(statement, f"'{name}' starts with an underscore, which Python keeps for itself", "rename it", node.name)
                    if name in members:
                        self.report(statement, f"'{name}' is a member twice", "delete one of them", node.name)
                    if isinstance(value, ast.Constant):
                        same = values.setdefault(value.value, name)
                        if same != name:
                            self.report(statement, f"'{name}' has the value of '{same}', so Python takes both for one member",
                                        f"write {name} = auto()", node.name)
                    members[name] = statement
                case ast.Assign() | ast.AugAssign() | ast.For() | ast.If() | ast.With() | ast.Try():
                    odd = True
                    self.report(statement, f"{quoted(statement)} is not a member", "write one line for each member: NEW = auto()",
                                node.name)
        if not members and not odd:
            self.report(node, "the enumeration has no members", "write one line for each member: NEW = auto()", node.name)
        if not members:
            return BROKEN
        return Enumeration(node.name, tuple(members), docstring(node))


class Library:
    """Spec files that were opened, each once, and the mistakes in what their names stand for."""

    def __init__(self) -> None:
        self._modules: dict[Path, Module] = {}
        self.mistakes: list[Diagnostic] = []

    def open(self, path: Path) -> Module:
        """Read a spec file. Raises SpecError."""
        try:
            resolved = path.resolve()
        except (OSError, RuntimeError, ValueError) as problem:  # a loop of links, a name that no file can have
            raise SpecError((Diagnostic(_shown(path, path), 1, 1, "", f"the file cannot be read: {problem}"),)) from None
        if resolved not in self._modules:
            shown = _shown(resolved, path)
            if len(self._modules) >= MOST_FILES:
                raise SpecError((Diagnostic(shown, 1, 1, "", f"more than {MOST_FILES} files are imported"),))
            self._modules[resolved] = Module(resolved, parse(path, shown), self)
        return self._modules[resolved]

    def imported(self, module: Module, node: ast.ImportFrom) -> Module | Broken | None:
        """The module that a ``from ... import`` names, or None when it is not a spec file. BROKEN, and a report, for a
        shipped spec that does not exist or a file in another folder. Raises SpecError for a file that cannot be read."""
        name = node.module or ""
        if node.level > 1:
            module.report(node, "the import is of a file in another folder",
                          "a base class is a spec of this file, of a shipped spec, or of a file beside this one")
            return BROKEN
        if not node.level and (name == PACKAGE or name.startswith(PACKAGE + ".")):
            found = self._open_if_there(SHIPPED.resolve().joinpath(*name.split(".")[2:]))
            if found is None:
                module.report(node, f"no shipped spec is called '{name}'",
                              "`kvmodel specs` lists them: from kvmodel.specs.pages import Pages")
                return BROKEN
            return found
        return self._open_if_there(module.path.parent.joinpath(*name.split("."))) if name else None

    def _open_if_there(self, path: Path) -> Module | None:
        file = path.with_name(path.name + ".py")
        try:
            there = file.is_file()
        except OSError:  # for example, a name that is too long
            there = False
        return self.open(file) if there else None


def _bound(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name
        case ast.Import(names=aliases):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in aliases)
        case ast.ImportFrom(names=aliases):
            yield from (alias.asname or alias.name for alias in aliases)
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def _binding(statement: ast.stmt, name: str) -> object:
    """What a statement binds `name` to: equal for two imports of one thing."""
    if isinstance(statement, ast.ImportFrom):
        return statement.level, statement.module, next(alias.name for alias in statement.names if (alias.asname or alias.name) == name)
    return statement


def _shown(resolved: Path, path: Path) -> str:
    folder = SHIPPED.resolve()
    text = f"specs/{resolved.relative_to(folder)}" if resolved.is_relative_to(folder) else str(path)
    return text if len(text) <= LONGEST_PATH else "..." + text[-LONGEST_PATH:]


def reserved(name: str, module: Module) -> bool:
    """Whether a parameter or loop variable of this name would hide something that the file or the language has."""
    return name in BUILTINS or name in module.bindings


def span(module: Module, node: ast.AST) -> Span:
    """Where a node was written."""
    return module.source.span(node)
