"""What the commands share: options, output for people and for programs, progress, and exit codes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

import click

from kvmodel.errors import UsageError, printable

if TYPE_CHECKING:
    from kvmodel.verdict import Coverage, Result, Verdict

__all__ = [
    "ALL_HOLD",
    "METHODS",
    "OTHERWISE",
    "Option",
    "SCHEMA",
    "USAGE",
    "VIOLATED",
    "coverage_object",
    "emit",
    "emit_json",
    "exit_code",
    "flag_options",
    "flags_of",
    "instance_options",
    "json_option",
    "note",
    "page",
    "progress_line",
    "result_object",
    "sizes_of",
]

METHODS = ("explore", "bmc", "walk", "hypothesis")  # those of `kvmodel.api`, which is not imported for `--help`
SCHEMA = 1  # the version of the JSON objects that commands print; it grows when a reader of the old ones would break
F = TypeVar("F", bound=Callable[..., object])


class Option(Protocol):
    """A decorator of a command's function."""

    def __call__(self, command: F, /) -> F: ...


ALL_HOLD, VIOLATED, USAGE, OTHERWISE = 0, 1, 2, 3


def json_option(command: F) -> F:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else.")(command)


def flag_options(command: F) -> F:
    """``--flag`` and ``--no-flag``."""
    command = click.option("--no-flag", "off", metavar="NAME", multiple=True, help="Unset a flag of the spec.")(command)
    return click.option("--flag", "on", metavar="NAME", multiple=True, help="Set a flag of the spec.")(command)


def instance_options(command: F) -> F:
    """``--size``, ``--flag``, ``--no-flag`` and ``--timeout``."""
    more_than_zero = click.FloatRange(min=0, min_open=True)
    sizes = click.option(
        "--size", "sizes", metavar="NAME=N", multiple=True,
        help="Elements of a sort: Request=3, Page=2 (in each pool), Page.DECODE=4.",
    )  # fmt: skip
    timeout = click.option("--timeout", type=more_than_zero, metavar="S", help="Stop after S seconds; the rest is undecided.")
    return sizes(flag_options(timeout(command)))


def sizes_of(given: Sequence[str]) -> dict[str, int]:
    """``("Request=3",)`` as a mapping. Raises UsageError for anything else."""
    sizes: dict[str, int] = {}
    for text in given:
        name, equals, number = text.partition("=")
        if not name or not equals or not number.isascii() or not number.isdigit() or len(number) > 12:
            raise UsageError(f"--size {text}: write NAME=N, as in --size Request=3")
        if name in sizes:
            raise UsageError(f"--size {name} is given twice")
        sizes[name] = int(number)
    return sizes


def flags_of(on: Sequence[str], off: Sequence[str]) -> dict[str, bool]:
    """The flags that the command line sets. Raises UsageError for one that it sets both ways."""
    both = sorted(set(on) & set(off))
    if both:
        raise UsageError(f"--flag {both[0]} and --no-flag {both[0]} contradict each other")
    return dict.fromkeys(on, True) | dict.fromkeys(off, False)


def emit(text: str) -> None:
    """Write to stdout; a reader that went away (`| head`) is not an error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def emit_json(command: str, content: Mapping[str, object]) -> None:
    """Write the one JSON object of a command."""
    emit(json.dumps({"schema": SCHEMA, "command": command, **content}, ensure_ascii=True) + "\n")


def note(text: str) -> None:
    """Tell people something that is not the result."""
    with suppress(OSError):  # nobody listens: no reason to lose the exit code
        click.echo(printable(text), err=True)


def page() -> tuple[int, bool]:
    """The width of people's output, and whether it has colour: those of the terminal, or 100 and plain when piped."""
    if not sys.stdout.isatty():
        return 100, False
    import shutil

    return max(60, shutil.get_terminal_size().columns), "NO_COLOR" not in os.environ


@contextmanager
def progress_line() -> Iterator[Callable[[str], None] | None]:
    """A line on the terminal that says how far a check is; nothing when stderr is not one."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text("starting")) as status:
        yield lambda line: status.update(Text(printable(line, 200)))


def exit_code(verdict: Verdict, expected: str | None = None, vacuous: bool = False) -> int:
    """0 when everything holds (or the verdict is the expected one), 1 when something is violated (or it is another), 3
    otherwise: undecided, or `vacuous` under ``--strict``."""
    from kvmodel.verdict import Verdict

    if expected is not None:
        if verdict.value == expected:
            return OTHERWISE if vacuous else ALL_HOLD
        return OTHERWISE if verdict is Verdict.UNDECIDED else VIOLATED
    if verdict is Verdict.VIOLATED:
        return VIOLATED
    return ALL_HOLD if verdict is Verdict.HOLDS and not vacuous else OTHERWISE


def coverage_object(coverage: Coverage) -> dict[str, object]:
    """A coverage for JSON: null where it is everything."""
    return {
        "word": coverage.word,
        "size": None if coverage.size is None else dict(coverage.size),
        "steps": coverage.steps,
        "runs": coverage.runs,
        "flags": None if coverage.flags is None else dict(coverage.flags),
    }


def result_object(result: Result, command: str) -> dict[str, object]:
    """A result for JSON; `command` reproduces it."""
    from kvmodel.traces.itf import itf_object

    headline = result.headline
    return {
        "spec": result.spec,
        "method": result.method,
        "verdict": result.verdict.value,
        "coverage": coverage_object(result.coverage),
        "properties": [
            {
                "name": entry.name,
                "verdict": entry.verdict.value,
                "coverage": coverage_object(entry.coverage),
                "length": entry.length,
                "reason": entry.reason,
                "reachable": entry.reachable,
            }
            for entry in result.properties
        ],
        "findings": [
            {"kind": finding.kind.value, "subject": finding.subject, "where": finding.where, "message": finding.message}
            for finding in result.findings
        ],
        "statistics": dict(result.statistics),
        "fired": dict(result.fired),
        "seconds": round(result.seconds, 3),
        "headline": None if headline is None else headline.name,
        "trace": None if result.trace is None else itf_object(result.trace),
        "reproduce": command,
    }
