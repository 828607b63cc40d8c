"""Finding a spec by the name that people give it, and listing what ships.

    NAME[:VARIANT]            a shipped spec: handoff, handoff:buggy
    PATH.py:CLASS[:VARIANT]   a class of a file: my.py:Mine
    fault:NAME                a shipped fault
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvmodel.errors import Diagnostic, SpecError, UsageError, nearest
from kvmodel.language.modules import SHIPPED, Library, Module, SpecClass
from kvmodel.language.reader import read_spec
from kvmodel.language.surface import Spec
from kvmodel.language.system import TransitionSystem

__all__ = ["Listing", "load_class", "load_spec", "shipped"]


@dataclass(frozen=True, slots=True)
class Listing:
    """A shipped spec or variant: how to ask for it, and the first paragraph of its documentation."""

    name: str
    doc: str


def load_spec(spec: str) -> TransitionSystem:
    """The transition system of SPEC. Raises UsageError for an unknown name and SpecError for a spec with mistakes."""
    if spec.endswith(":"):
        raise UsageError(f"'{spec}' names no variant; write {spec.rstrip(':')}")
    library = Library()
    path, _, rest = spec.rpartition(".py:") if ".py:" in spec else ("", "", "")
    if path:
        name, _, variant = rest.partition(":")
        module = library.open(Path(path + ".py"))
        main = _class(module, name)
    elif spec.endswith(".py"):
        module = library.open(Path(spec))
        known = ", ".join(f"{spec}:{entry.name}" for entry in module.specs) or "none"
        raise UsageError(f"'{spec}' does not say which class; the file has {known}")
    elif "/" in spec or "\\" in spec:
        raise UsageError(f"'{spec}' is not a spec; a file's spec is written PATH.py:CLASS")
    else:
        name, _, variant = spec.partition(":")
        module, main, variant = _shipped(library, spec, name, variant)
    return read_spec(_variant(module, main, variant, spec) if variant else main, spec)


def load_class(cls: type[Spec]) -> TransitionSystem:
    """The transition system of an imported spec class: its file is read as `load_spec` would. Raises as `load_spec`."""
    try:
        path = inspect.getsourcefile(cls)
    except TypeError:
        path = None
    if path is None:
        raise UsageError(f"the source file of {cls.__name__} is not known, and a spec is read from its source")
    if cls.__qualname__ != cls.__name__:
        raise UsageError(f"{cls.__qualname__} is not at module level, and a spec is read from its file, where it has to be")
    module = Library().open(Path(path))
    main = _class(module, cls.__name__)
    return read_spec(main, _name_of(module, main))


def shipped() -> tuple[Listing, ...]:
    """What ships: every spec and its variants, in order of name and of declaration."""
    found = []
    library = Library()
    for name in _shipped_names():
        for entry in library.open(_shipped_path(name)).specs:
            found.append(Listing(_name_of(entry.module, entry), entry.doc.split("\n\n")[0].replace("\n", " ")))
    return tuple(found)


def _shipped_names() -> Iterator[str]:
    for path in sorted(SHIPPED.glob("*.py")):
        if not path.stem.startswith("_"):
            yield path.stem
    for path in sorted(SHIPPED.glob("faults/*.py")):
        if not path.stem.startswith("_"):
            yield f"fault:{path.stem}"


def _shipped_path(name: str) -> Path:
    return SHIPPED / "faults" / f"{name.removeprefix('fault:')}.py" if name.startswith("fault:") else SHIPPED / f"{name}.py"


def _shipped(library: Library, spec: str, name: str, variant: str) -> tuple[Module, SpecClass, str]:
    if name == "fault":
        name, _, variant = variant.partition(":")
        name = f"fault:{name}"
    known = list(_shipped_names())
    if name not in known:
        hint = "`kvmodel specs` lists what ships; a file's spec is PATH.py:CLASS"
        raise UsageError(f"there is no spec '{spec}'{nearest(name, known)}\n    {hint}")
    module = library.open(_shipped_path(name))
    return module, _main(module), variant


def _main(module: Module) -> SpecClass:
    """The spec that a file is named for: its first class that is not a variant."""
    for entry in module.specs:
        if entry.variant is None:
            return entry
    raise UsageError(f"{module.shown} has no spec class")


def _class(module: Module, name: str) -> SpecClass:
    known = [entry.name for entry in module.specs]
    found = module.lookup(name)
    if isinstance(found, SpecClass) and name in known:
        return found
    if name in module.classes:
        mistakes = tuple(module.library.mistakes)
        at = module.source.span(module.bindings[name][-1])
        node = module.bindings[name][-1]
        dotted = isinstance(node, ast.ClassDef) and any(isinstance(base, ast.Attribute) for base in node.bases)
        hint = "import the base class itself: from kvmodel.language import Spec" if dotted else (
            "extend Spec, from kvmodel.language import Spec, or a spec of a shipped file or of one beside this"
        )
        unknown = Diagnostic(at.file, at.line, at.column, name, "the class is not a spec: none of its base classes is one", hint)
        raise SpecError(mistakes or (unknown,))
    raise UsageError(f"{module.shown} has no spec class '{name}'{nearest(name, known)}{_listed(known)}")


def _variant(module: Module, main: SpecClass, variant: str, spec: str) -> SpecClass:
    named = [entry for entry in module.specs if entry.variant and _extends(entry, main)]
    found = [entry for entry in named if entry.variant == variant]
    if not found:
        known = [entry.variant for entry in named if entry.variant]
        raise UsageError(f"{main.name} has no variant '{variant}'{nearest(variant, known)}{_listed(known)}")
    if len(found) > 1:
        at = module.source.span(found[1].node)
        raise SpecError((Diagnostic(at.file, at.line, at.column, found[1].name, f"{found[0].name} is called '{variant}' too",
                                    "two variants of a spec need two names"),))
    return found[0]


def _listed(known: list[str]) -> str:
    return f" (known: {', '.join(known[:20])}{', ...' if len(known) > 20 else ''})" if known else ""


def _extends(entry: SpecClass, main: SpecClass) -> bool:
    names = {main.name}
    for candidate in entry.module.specs:
        if {getattr(base, "id", None) for base in candidate.node.bases} & names:
            names.add(candidate.name)
    return entry.name in names


def _name_of(module: Module, entry: SpecClass) -> str:
    """How to ask for a class: by its shipped name where it has one."""
    folder = SHIPPED.resolve()
    if module.path.is_relative_to(folder):
        prefix = "fault:" if module.path.parent.name == "faults" else ""
        main = _main(module)
        if entry is main or entry.variant is None:
            return f"{prefix}{module.path.stem}" if entry is main else f"{module.path}:{entry.name}"
        return f"{prefix}{module.path.stem}:{entry.variant}"
    return f"{module.path}:{entry.name}"
