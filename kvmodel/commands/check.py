"""``kvmodel check`` and ``kvmodel explore``."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import click

from kvmodel.commands import common
from kvmodel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvmodel.api import Method
    from kvmodel.language.instance import Instance
    from kvmodel.verdict import Result

__all__ = ["check", "explore", "save_trace_of"]

FORMATS = ("markdown", "junit", "sarif")  # those of `kvmodel.views.formats`, which is not imported for `--help`

limit_option = click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="Stop explore at N states, or a few more (default: what fits in 4 GB)."
)
strict_option = click.option(
    "--strict", is_flag=True, help="A finding (something that never happened) is a failure too: exit code 3."
)


@click.command(
    epilog="""\b
Examples:
  kvmodel check handoff
  kvmodel check handoff:buggy isolated_read --save incident.itf.json
  kvmodel check my.py:Mine --method bmc --depth 12 --size Request=3

\b
Exit code: 0 every property holds, 1 one is violated, 2 wrong usage or an
unreadable spec, 3 undecided. With --expect: 0 as expected, 1 not, 3 undecided."""
)
@click.argument("spec")
@click.argument("properties", nargs=-1, metavar="[PROPERTY ...]")
@click.option("--method", type=click.Choice(common.METHODS), help="How to look: every state (explore, the default), Z3 (bmc), or samples.")
@common.instance_options
@click.option("--depth", type=click.IntRange(min=1), metavar="N", help="Steps: of every run for bmc, of a sampled run for the others.")
@click.option("--runs", type=click.IntRange(min=1), metavar="N", help="Sampled runs of walk and hypothesis.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Seed of samples and of the solver.")
@click.option("--complete", is_flag=True, help="Let bmc also find out whether its depth is all there is.")
@limit_option
@click.option("--save", "target", metavar="FILE", help="Save the trace that is shown (ITF JSON).")
@click.option("--expect", "expected", type=click.Choice(("holds", "violated", "undecided")), help="The verdict that is no failure.")
@strict_option
@click.option("--format", "form", type=click.Choice(FORMATS), help="Print this instead: for a pull request, or for CI.")
@common.json_option
def check(
    spec: str,
    properties: tuple[str, ...],
    method: str | None,
    sizes: tuple[str, ...],
    on: tuple[str, ...],
    off: tuple[str, ...],
    timeout: float | None,
    depth: int | None,
    runs: int | None,
    seed: int,
    complete: bool,
    limit: int | None,
    target: str | None,
    expected: str | None,
    strict: bool,
    form: str | None,
    as_json: bool,
) -> int:
    """Check the properties of SPEC (all, or those named) on a finite instance.

    SPEC is NAME[:VARIANT] of what ships (see `kvmodel specs`), or PATH.py:CLASS of a file of your own. A violation is
    shown as a shortest trace; every property has its line.
    """
    from kvmodel import api
    from kvmodel.commands.project import project_settings

    if form is not None and as_json:
        raise UsageError(f"--json and --format {form} contradict each other: stdout has one of them")
    settings = project_settings()
    chosen = cast("Method", method or settings.method or "explore")
    if depth is None and chosen != "explore":
        depth = settings.depth
    system = api.load(spec, common.flags_of(on, off))
    instance = settings.instance(system, common.sizes_of(sizes))
    options = api.CheckOptions(chosen, depth=depth, runs=runs, seed=seed, timeout=timeout, complete=complete, limit=limit)
    with common.progress_line() as progress:
        result = api.check_instance(instance, properties, options, progress)
    command = _command("check", result, properties, options.on_command_line())
    if form is None:
        _print("check", result, instance, command, as_json)
    else:
        from kvmodel.views.formats import result_as

        common.emit(result_as(form, result, instance, command))
    if target is not None and not save_trace_of(result, target):
        return common.USAGE
    return common.exit_code(result.verdict, expected, strict and bool(result.findings))


@click.command(
    epilog="""\b
Examples:
  kvmodel explore handoff
  kvmodel explore handoff:buggy --size Request=2 --size Page=1 --timeout 30

\b
Exit code: as of `kvmodel check`."""
)
@click.argument("spec")
@common.instance_options
@limit_option
@strict_option
@common.json_option
def explore(
    spec: str,
    sizes: tuple[str, ...],
    on: tuple[str, ...],
    off: tuple[str, ...],
    timeout: float | None,
    limit: int | None,
    strict: bool,
    as_json: bool,
) -> int:
    """Count what SPEC can reach on a finite instance: states, transitions, depth, how often each action fired.

    What never happened is a finding: an action that never fired, a guard that never decided.
    """
    from kvmodel import api
    from kvmodel.commands.project import project_settings

    system = api.load(spec, common.flags_of(on, off))
    instance = project_settings().instance(system, common.sizes_of(sizes))
    options = api.CheckOptions("explore", timeout=timeout, limit=limit)
    with common.progress_line() as progress:
        result = api.check_instance(instance, (), options, progress)
    command = _command("explore", result, (), {name: value for name, value in options.on_command_line().items() if name != "method"})
    _print("explore", result, instance, command, as_json)
    return common.exit_code(result.verdict, None, strict and bool(result.findings))


def _command(verb: str, result: Result, properties: tuple[str, ...], options: Mapping[str, object]) -> str:
    from kvmodel.views.text import command_line

    return command_line(verb, result.spec, properties, options=options, coverage=result.coverage)


def save_trace_of(result: Result, target: str) -> bool:
    """Save the trace that is shown; False, with a note, when that cannot be done."""
    from kvmodel.api import save_trace
    from kvmodel.errors import TraceFileError

    witness = next((entry.trace for entry in result.properties if entry.name in result.asked and entry.trace is not None), None)
    trace = result.trace or witness
    if trace is None:
        common.note(f"{target}: not written, there is no trace to save")
        return True
    try:
        save_trace(trace, target)
    except TraceFileError as problem:
        common.note(f"error: {problem}")
        return False
    common.note(f"{target}: a trace of {len(trace.steps)} steps; `kvmodel trace show {target}` shows it")
    return True


def _print(verb: str, result: Result, instance: Instance, command: str, as_json: bool) -> None:
    if as_json:
        common.emit_json(verb, common.result_object(result, command))
        return
    from kvmodel.views.text import exploration_text, result_text

    width, colour = common.page()
    render = exploration_text if verb == "explore" else result_text
    common.emit(render(result, instance, command, width=width, colour=colour))
