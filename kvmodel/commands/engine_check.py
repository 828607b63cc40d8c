"""``kvmodel engines check`` and ``machines``."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from kvmodel.commands import common
from kvmodel.errors import UsageError

if TYPE_CHECKING:
    from kvmodel.verdict import Result

__all__ = ["check_command", "machines_command"]


@click.command(
    "check",
    epilog="""\b
Examples:
  kvmodel engines check vllm==0.33.0 manager
  kvmodel engines check sglang==0.5.16 handoff --save incident.itf.json

\b
Exit code: 0 every property holds, 1 one is violated, 2 wrong usage, a release
that cannot be had or that the adapter does not fit, 3 undecided.""",
)
@click.argument("release", metavar="NAME==VERSION")
@click.argument("machine")
@click.argument("properties", nargs=-1, metavar="[PROPERTY ...]")
@click.option("--examples", type=click.IntRange(min=1), metavar="N", help="Runs (default: as `kvmodel engines machines` says).")
@click.option("--steps", type=click.IntRange(min=1), metavar="N", help="Rules of a run at most.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Seed of the runs.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="S", help="Seconds after which to stop.")
@click.option("--no-shrink", is_flag=True, help="Show the run that was found as it is.")
@click.option("--save", "target", metavar="FILE", help="Save the trace that is shown (ITF JSON).")
@click.option("--expect", "expected", type=click.Choice(("holds", "violated", "undecided")), help="The verdict that is no failure.")
@common.json_option
def check_command(
    release: str,
    machine: str,
    properties: tuple[str, ...],
    examples: int | None,
    steps: int | None,
    seed: int,
    timeout: float | None,
    no_shrink: bool,
    target: str | None,
    expected: str | None,
    as_json: bool,
) -> int:
    """Drive MACHINE of a release with Hypothesis, and hold it to the spec `cached`.

    The release is fetched if it is not in the cache. After every call the engine's state is mapped to a state of the spec,
    and the spec's properties are evaluated on it; one that needs what the adapter cannot see is undecided. A violation is
    shown as the shortest run that was found. The search ends at the first violation: of any property, or of those named.
    """
    from kvmodel.commands.check import save_trace_of
    from kvmodel.engines.machines import check_release
    from kvmodel.engines.machines import machine as machine_of

    engine, separator, version = release.partition("==")
    if not separator or not version:
        raise UsageError(f"'{release}' is not a release; write it as vllm==0.33.0")
    chosen = machine_of(engine, machine)
    with common.progress_line() as progress:
        result = check_release(
            chosen, version, properties, examples=examples, steps=steps, seed=seed, timeout=timeout, shrink=not no_shrink,
            progress=progress,
        )  # fmt: skip
    options = {"examples": examples or chosen.examples, "steps": steps or chosen.steps, "seed": seed}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    command = shlex.join(["kvmodel", "engines", "check", release, machine, *properties, *words])
    if as_json:
        common.emit_json("engines check", common.result_object(result, command))
    else:
        _emit(result, command)
    if target is not None and not save_trace_of(result, target):
        return common.USAGE
    return common.exit_code(result.verdict, expected)


def _emit(result: Result, command: str) -> None:
    from kvmodel.views.engine import engine_text

    width, colour = common.page()
    common.emit(engine_text(result, command, width=width, colour=colour))


@click.command("machines", epilog="Example: kvmodel engines machines vllm")
@click.argument("engine", required=False)
@common.json_option
def machines_command(engine: str | None, as_json: bool) -> int:
    """List what can be driven of ENGINE (of all engines)."""
    from kvmodel.engines.machines import ENGINES, machines

    names = [engine] if engine else list(ENGINES)
    found = [(name, each) for name in names for each in machines(name)]
    if as_json:
        rows = [
            {"engine": name, "machine": m.name, "doc": m.doc, "examples": m.examples, "steps": m.steps, "hazard": m.hazard}
            for name, m in found
        ]
        common.emit_json("engines machines", {"machines": rows})
    else:
        common.emit("".join(f"{name} {m.name}: {m.doc} ({m.examples} runs of up to {m.steps} rules)\n" for name, m in found))
    return common.ALL_HOLD
