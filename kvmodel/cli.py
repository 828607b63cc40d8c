"""The command line. Nothing heavy is imported before a command needs it.

Exit codes of every command that checks: 0 everything holds, 1 something is violated, 2 wrong usage or unreadable
input, 3 otherwise (undecided, interrupted, or an error of kvmodel itself). With ``--json`` an error is one JSON object on
stdout too, with ``error`` instead of a result.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

from kvmodel.commands import common
from kvmodel.errors import InternalError, KvmodelError, SpecError, nearest, printable

__all__ = ["cli", "main", "run"]

# Name, the module it is in, and the line of `kvmodel --help`: to show the list, no command is imported.
COMMANDS = {
    "specs": ("kvmodel.commands.specs", "What ships; what a spec says; how two specs differ."),
    "new": ("kvmodel.commands.new", "Write a small spec of your own that already checks."),
    "check": ("kvmodel.commands.check", "Check the properties of a spec; show the shortest violation."),
    "prove": ("kvmodel.commands.prove", "Prove properties for any number of requests and pages."),
    "defences": ("kvmodel.commands.defences", "Which defences are enough for a property, and which are not."),
    "explore": ("kvmodel.commands.check", "Count what a spec can reach: states, depth, actions, findings."),
    "simulate": ("kvmodel.commands.simulate", "Run the incident at its real size: what leaks, which test sees it."),
    "preflight": ("kvmodel.commands.preflight", "Does each pool cover what its door accepts? From logs or numbers."),
    "engines": ("kvmodel.commands.engines", "Drive real releases of vLLM and SGLang, held to a spec."),
    "recheck": ("kvmodel.commands.recheck", "Let a second solver check the proofs that ship, or yours, again."),
    "trace": ("kvmodel.commands.trace", "Show a saved trace, or say why not; check an engine's event log."),
    "render": ("kvmodel.commands.render", "Draw a saved trace: a step or a film; a graph for other tools."),
    "report": ("kvmodel.commands.report", "Explain a saved trace: one HTML page, or Markdown."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for; an unknown name gets the nearest known one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(COMMANDS[cmd_name][0]), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"there is no command '{args[0]}'{nearest(args[0], list(COMMANDS))}", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  kvmodel check handoff:buggy     the incident: why responses carried other requests' data
  kvmodel check handoff           the recommended design: everything holds
  kvmodel specs                   what ships""",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=lambda ctx, _, value: _version(ctx, value),
              help="Show the version and exit.")
def cli() -> None:
    """Model checking for KV-cache page ownership: can one request ever read another request's pages?"""


def _version(ctx: click.Context, value: bool) -> None:
    if value:
        from importlib.metadata import version

        click.echo(f"kvmodel {version('kvmodel')}")
        ctx.exit()


def main() -> NoReturn:
    """The entry point of the ``kvmodel`` script."""
    try:
        code = run(sys.argv[1:])
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:  # the output cannot be written: never exit code 1, which means "violated"
        code = common.OTHERWISE
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; errors are shown, never raised."""
    as_json = "--json" in arguments
    try:
        code = cli.main(list(arguments), prog_name="kvmodel", standalone_mode=False)
    except click.ClickException as problem:
        if as_json:
            return _failed_json("UsageError", problem.format_message(), common.USAGE)
        problem.show()
        return common.USAGE
    except KvmodelError as problem:
        code = common.OTHERWISE if isinstance(problem, InternalError) else common.USAGE
        return _failed(problem, code, as_json)
    except (KeyboardInterrupt, click.Abort):
        if as_json:
            return _failed_json("Interrupted", "interrupted", common.OTHERWISE)
        common.note("interrupted")
        return common.OTHERWISE
    except SystemExit:  # click's answer to a closed pipe
        return common.OTHERWISE
    except OSError as problem:
        return _told(f"the output cannot be written: {problem.strerror}")
    except (MemoryError, RecursionError) as problem:
        message = f"{type(problem).__name__}: this is too large for the memory here; ask for smaller sizes"
        return _failed_json(type(problem).__name__, message, common.OTHERWISE) if as_json else _told(message)
    except Exception:
        # A traceback, because it is a defect of kvmodel; but never with exit code 1, which means "violated".
        import traceback

        traceback.print_exc()
        common.note("this is a defect of kvmodel, not of the spec; please report it")
        return _failed_json("Defect", "kvmodel failed; see stderr", common.OTHERWISE) if as_json else common.OTHERWISE
    return code if isinstance(code, int) else common.ALL_HOLD


def _failed(problem: KvmodelError, code: int, as_json: bool) -> int:
    if as_json:
        return _failed_json(type(problem).__name__, str(problem), code, problem.diagnostics if isinstance(problem, SpecError) else ())
    kind = "internal error" if isinstance(problem, InternalError) else "error"
    # A list of mistakes has places that editors understand; they stand alone on their lines.
    common.note(str(problem) if isinstance(problem, SpecError) else f"{kind}: {problem}")
    return code


def _told(message: str) -> int:
    common.note(f"error: {message}")
    return common.OTHERWISE


def _failed_json(kind: str, message: str, code: int, diagnostics: Sequence[object] = ()) -> int:
    from dataclasses import asdict

    error: dict[str, object] = {"kind": kind, "message": printable(message)}
    if diagnostics:
        error["diagnostics"] = [asdict(diagnostic) for diagnostic in diagnostics]  # type: ignore[call-overload]
    common.emit_json("", {"error": error, "exit": code})
    return code


if __name__ == "__main__":
    main()
