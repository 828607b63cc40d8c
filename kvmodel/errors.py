"""Everything kvmodel raises on purpose.

Each error says what happened, where, and what to do instead. The command line prints `str(error)` and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "Diagnostic",
    "EngineDriftError",
    "FetchError",
    "InstanceError",
    "InternalError",
    "KvmodelError",
    "ReplayError",
    "SpecError",
    "MalformedSystem",
    "TraceFileError",
    "UsageError",
    "nearest",
    "printable",
]


MOST_SHOWN = 50  # mistakes of one file


class KvmodelError(Exception):
    """Base of every error that a user can cause or act on."""


class UsageError(KvmodelError, ValueError):
    """The request itself is wrong: an unknown spec, property, flag or size."""


class InstanceError(UsageError):
    """The sizes asked for cannot be used: unknown sort, zero, or too large to end."""


class MalformedSystem(KvmodelError, ValueError):
    """A transition system made through the builder API is not well formed."""


class TraceFileError(KvmodelError, ValueError):
    """A trace file is not readable, or is not of the format that it claims."""


class ReplayError(KvmodelError, ValueError):
    """A trace is not a run of the spec; `step` is the number of the first bad step (0 is the initial state)."""

    def __init__(self, message: str, step: int) -> None:
        super().__init__(message)
        self.step = step


class FetchError(KvmodelError, RuntimeError):
    """A release of an engine was not fetched, or what is in the cache is not what was fetched."""


class EngineDriftError(KvmodelError, RuntimeError):
    """A release of an engine is not as kvmodel knows it: `symbol` is missing or means something else. Never a finding.

    `known` is the range of releases that kvmodel knows, as in ``0.11.2 to 0.33.0``. Where there is no symbol to name, `engine` is
    the whole message.
    """

    def __init__(self, engine: str, release: str = "", symbol: str = "", known: str = "", reason: str = "") -> None:
        detail = f" ({printable(reason, 300)})" if reason else ""
        super().__init__(f"{engine} {release} has no {symbol}{detail}: kvmodel knows {known}" if symbol else engine)
        self.engine, self.release, self.symbol = engine, release, symbol


class InternalError(KvmodelError, AssertionError):
    """Two readings of one spec disagree: a defect of kvmodel, never of the spec."""


@dataclass(frozen=True, slots=True, order=True)
class Diagnostic:
    """One mistake in a spec file.

    `line` counts from 1 and `column` from 1, as editors show them; `where` names the spec and the action or
    declaration; `message` says what is wrong, `hint` what to write instead (may be empty).
    """

    file: str
    line: int
    column: int
    where: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}: "
        subject = f"{self.where}: " if self.where else ""
        hint = f"\n    {self.hint}" if self.hint else ""
        return printable(f"{place}{subject}{self.message}{hint}", 2_000)


class SpecError(KvmodelError, ValueError):
    """A spec file has mistakes. `diagnostics` holds all of them, in file order."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        self.diagnostics = tuple(sorted(set(diagnostics)))
        count = len(self.diagnostics)
        lines = [str(diagnostic) for diagnostic in self.diagnostics[:MOST_SHOWN]]
        if count > 1:
            lines.append(f"{count} mistakes" + (f", of which the first {MOST_SHOWN} are shown" if count > MOST_SHOWN else ""))
        super().__init__("\n".join(lines))


def nearest(name: str, known: tuple[str, ...] | list[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the known name closest to `name`, or an empty string."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""


def printable(text: str, limit: int = 10_000) -> str:
    """`text` from outside, safe to show: control and other invisible characters escaped, line ends kept, length bounded.

    >>> printable("r0\\x1b[2J")
    'r0\\\\x1b[2J'
    """
    kept = text if len(text) <= limit else text[:limit] + "..."
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode("ascii") for c in kept)
