"""``[tool.kvmodel]`` of the current project: default method, size and depth of `kvmodel check`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvmodel.commands.common import METHODS, note
from kvmodel.errors import UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvmodel.language.instance import Instance
    from kvmodel.language.system import TransitionSystem

__all__ = ["ProjectSettings", "project_settings"]

LARGEST_FILE = 1_000_000  # bytes
KNOWN = ("depth", "method", "size")


@dataclass(frozen=True)
class ProjectSettings:
    """What a project's pyproject.toml says; `source` is the file, or '' when there is none."""

    source: str = ""
    method: str | None = None
    depth: int | None = None
    size: tuple[tuple[str, int], ...] = ()

    def instance(self, system: TransitionSystem, given: Mapping[str, int]) -> Instance:
        """The instance of the sizes on the command line, then of the project, then of the spec.

        A size of the project for a sort that this spec does not have is told, not used: a project may have several
        specs. Raises InstanceError for sizes that cannot be used.
        """
        from kvmodel.language.instance import Instance

        sorts = {sort.name for sort in system.sorts}
        sizes: dict[str, int] = {}
        for name, size in self.size:
            sort = name.partition(".")[0]
            if sort not in sorts:
                note(f"note: {self.source} has a size for '{sort}', a sort that {system.name} does not have")
            elif sort not in given:
                sizes[name] = size
        return Instance.make(system, sizes | dict(given))


def project_settings(start: Path | None = None) -> ProjectSettings:
    """The settings of the nearest pyproject.toml, from the current folder up. Raises UsageError for one that is unusable."""
    folder = (start or Path.cwd()).resolve()
    for candidate in (folder, *folder.parents):
        file = candidate / "pyproject.toml"
        if file.is_file():
            return _read(file)
    return ProjectSettings()


def _read(file: Path) -> ProjectSettings:
    import tomllib

    try:
        if file.stat().st_size > LARGEST_FILE:
            raise UsageError(f"{file}: more than {LARGEST_FILE:,} bytes")
        table = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("kvmodel", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError, AttributeError) as problem:
        raise UsageError(f"{file}: not readable: {problem}") from None
    where = f"{file}: [tool.kvmodel]"
    if not isinstance(table, dict):
        raise UsageError(f"{where} is not a table")
    for key in table:
        if key not in KNOWN:
            raise UsageError(f"{where} has no setting '{key}'{nearest(key, KNOWN)} (known: {', '.join(KNOWN)})")
    method, depth, size = table.get("method"), table.get("depth"), table.get("size", {})
    if method is not None and method not in METHODS:
        raise UsageError(f"{where} method: {method!r} is not one of {', '.join(METHODS)}")
    if depth is not None and not (_is_count(depth) and depth > 0):
        raise UsageError(f"{where} depth: {depth!r} is not a number of steps")
    if not isinstance(size, dict) or not all(_is_count(value) for value in size.values()):
        raise UsageError(f"{where} size: write a table, as in size = {{ Request = 3, Page = 2 }}")
    return ProjectSettings(str(file), method, depth, tuple(size.items()))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
