"""``kvmodel recheck``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from kvmodel.commands import common

if TYPE_CHECKING:
    from kvmodel.analyses.recheck import Recheck

__all__ = ["recheck", "recheck_object"]


@click.command(
    epilog="""\b
Examples:
  kvmodel recheck                        the certificates in proofs/ of a checkout
  kvmodel recheck proofs --solver z3     ask another SMT-LIB 2 solver

\b
Exit code: 0 everything agrees, 1 something does not, 2 wrong usage, no cvc5, or
files that are not certificates."""
)
@click.argument("directory", metavar="[DIR]", required=False)
@click.option("--solver", metavar="PROGRAM", help="Ask a program that takes an SMT-LIB 2 file, instead of the Python package cvc5.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, metavar="S",
    help="Seconds for one condition.",
)  # fmt: skip
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes (default: one for each core, up to four).")
@common.json_option
def recheck(directory: str | None, solver: str | None, timeout: float, jobs: int | None, as_json: bool) -> int:
    """Check certificates again with a second solver, cvc5.

    Every condition is made again from the spec that the certificate names and compared with its file; then the second
    solver answers it. A certificate cannot vouch for itself.
    """
    from kvmodel.analyses import recheck as checking
    from kvmodel.analyses import smtlib

    second = smtlib.Cvc5(timeout) if solver is None else smtlib.Program(solver, timeout)
    folder = _shipped() if directory is None else directory
    with common.progress_line() as progress:
        result = checking.recheck(folder, second, jobs=jobs or min(os.cpu_count() or 1, 4), progress=progress)
    if as_json:
        common.emit_json("recheck", recheck_object(result))
    else:
        from kvmodel.views.recheck import recheck_text

        width, colour = common.page()
        common.emit(recheck_text(result, width=width, colour=colour))
    return common.VIOLATED if result.problems else common.ALL_HOLD


def _shipped() -> str:
    """The certificates of the specs that ship."""
    from importlib.resources import files

    return str(files("kvmodel") / "proofs")


def recheck_object(result: Recheck) -> dict[str, object]:
    """An outcome for JSON."""
    return {
        "agrees": not result.problems,
        "solver": result.solver,
        "certificates": [
            {
                "manifest": entry.manifest,
                "spec": entry.spec,
                "properties": list(entry.properties),
                "all_flags": entry.all_flags,
                "conditions": entry.conditions,
            }
            for entry in result.certificates
        ],
        "conditions": result.conditions,
        "asked": result.asked,
        "problems": [
            {"manifest": problem.manifest, "condition": problem.condition, "message": problem.message} for problem in result.problems
        ],
        "slowest": {"condition": result.slowest[0], "seconds": round(result.slowest[1], 3)},
        "seconds": round(result.seconds, 3),
    }
