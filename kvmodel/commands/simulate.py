"""``kvmodel simulate``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from kvmodel.analyses import simulate as simulation
from kvmodel.commands import common

__all__ = ["simulate", "simulation_object"]

DEFAULTS = simulation.SimulationOptions()


def option(name: str, metavar: str, text: str) -> common.Option:
    """An option with the type and the default that `SimulationOptions` has for it; the simulation checks its range."""
    default = getattr(DEFAULTS, name)
    flag = f"--{name.replace('_', '-')}"
    return click.option(flag, name, type=type(default), default=default, show_default=True, metavar=metavar, help=text)


@click.command(
    epilog="""\b
Examples:
  kvmodel simulate
  kvmodel simulate --requests 2000 --aborts 0.05 --seed 7

\b
Exit code: 0 all seven checks pass, 1 one fails, 2 wrong usage, 3 not finished."""
)
@option("requests", "N", "Requests of each deployment.")
@option("over_long", "N", "Prompts that are longer than the small pool.")
@option("context", "TOKENS", "The model's declared context.")
@option("prefill_pool", "TOKENS", "The small prefill pool.")
@option("covering_pool", "TOKENS", "The covering prefill pool.")
@option("decode_pool", "TOKENS", "Decode's pool.")
@option("page_size", "TOKENS", "Tokens of a page.")
@option("typical_prompt", "TOKENS", "Median length of a prompt.")
@option("spread", "X", "Spread of the lengths (log-normal sigma).")
@option("aborts", "SHARE", "Share of clients that leave early.")
@option("seed", "N", "Seed of the traffic and of the schedule.")
@option("buggy", "SPEC", "The spec with the buggy doors.")
@option("fixed", "SPEC", "The spec with the fixed doors.")
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, metavar="N", help="Processes.")
@common.json_option
def simulate(workers: int, as_json: bool, **options: Any) -> int:
    """Simulate the incident at its real size.

    The handoff spec runs page by page on a stream of requests: prefill's pool small or covering the context, the doors
    buggy or fixed. Which responses leak, what does a test of the status see, and what does a canary?
    """
    with common.progress_line() as progress:
        result = simulation.simulate(simulation.SimulationOptions(**options), progress, workers=workers)
    if as_json:
        common.emit_json("simulate", simulation_object(result))
    else:
        from kvmodel.views.simulation import simulation_text

        width, colour = common.page()
        common.emit(simulation_text(result, width=width, colour=colour))
    return common.exit_code(result.verdict)


def simulation_object(result: simulation.SimulationResult) -> dict[str, object]:
    """A simulation for JSON."""
    return {
        "verdict": result.verdict.value,
        "options": asdict(result.options),
        "deployments": [_deployment(cell) for cell in result.cells],
        "start_up": [{"pool": entry.pool, "tokens": entry.tokens, "broken": list(entry.broken)} for entry in result.start_up],
        "explored": dict(result.explored),
        "checks": [{"sentence": check.sentence, "result": check.word, "detail": check.detail} for check in result.checks],
        "reason": result.reason,
        "seconds": round(result.seconds, 3),
    }


def _deployment(cell: simulation.CellResult) -> dict[str, object]:
    return {
        "pool": cell.cell.pool,
        "doors": cell.cell.doors,
        "spec": cell.spec,
        "flags": dict(cell.flags),
        "requests": cell.requests,
        "over_long": cell.over_long,
        "rejected": cell.rejected,
        "leaked": len(cell.leaked),
        "statuses": {str(status): count for status, count in cell.statuses},
        "aborted": cell.aborted,
        "unanswered": cell.unanswered,
        "flagged_by_status": len(cell.flagged_by_status),
        "flagged_by_canary": len(cell.flagged_by_canary),
        "steps": cell.steps,
    }
