"""``kvmodel prove``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kvmodel.commands import common

if TYPE_CHECKING:
    from kvmodel.analyses.proving import Proving

__all__ = ["prove"]


@click.command(
    epilog="""\b
Examples:
  kvmodel prove handoff
  kvmodel prove handoff:buggy isolated_read
  kvmodel prove handoff isolated_read --verbose

\b
Exit code: 0 every property is proved, 1 one is violated (with a run), 2 wrong
usage or an unreadable spec, 3 undecided. With --expect: 0 as expected, 1 not,
3 undecided."""
)
@click.argument("spec")
@click.argument("properties", nargs=-1, metavar="[PROPERTY ...]")
@common.flag_options
@click.option("--all-flags", is_flag=True, help="Prove for every assignment of the spec's flags at once.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="S", help="Stop after S seconds; the rest is undecided.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Seed of the solver.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Z3's work on one condition, in its own units (default 20,000,000).")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes (default: one for each core, up to four).")
@click.option("--verbose", "-v", is_flag=True, help="A line for each condition: its time, and the claims that its proof used.")
@click.option("--expect", "expected", type=click.Choice(("holds", "violated", "undecided")), help="The verdict that is no failure.")
@common.json_option
def prove(
    spec: str,
    properties: tuple[str, ...],
    on: tuple[str, ...],
    off: tuple[str, ...],
    all_flags: bool,
    timeout: float | None,
    seed: int,
    limit: int | None,
    jobs: int | None,
    verbose: bool,
    expected: str | None,
    as_json: bool,
) -> int:
    """Prove the properties of SPEC (all, or those named) for any number of requests and pages.

    A proof shows that initial states satisfy the property and every action keeps it, given the spec's other
    invariants and its lemmas. What cannot be proved is looked for at the default size: it is violated with a run,
    and without one undecided, with the step that an added lemma would have to exclude.
    """
    from kvmodel import api

    system = api.load(spec, common.flags_of(on, off))
    with common.progress_line() as progress:
        proving = api.prove_system(
            system, properties, all_flags=all_flags, timeout=timeout, seed=seed, limit=limit, jobs=jobs, progress=progress
        )
    options: dict[str, object] = {}
    if all_flags:
        options["all-flags"] = True
    options |= {name: value for name, value in (("seed", seed or None), ("limit", limit), ("timeout", timeout and f"{timeout:g}")) if value}
    _print(proving, properties, options, verbose, as_json)
    return common.exit_code(proving.result.verdict, expected)


def _print(proving: Proving, properties: tuple[str, ...], options: dict[str, object], verbose: bool, as_json: bool) -> None:
    from kvmodel.verdict import Coverage
    from kvmodel.views.text import command_line

    flags = None if proving.proof.all_flags else tuple(proving.proof.system.flag_values.items())
    command = command_line("prove", proving.result.spec, properties, options=options, coverage=Coverage(flags=flags))
    if as_json:
        from kvmodel.views.proof import proof_object

        common.emit_json("prove", {**common.result_object(proving.result, command), **proof_object(proving)})
        return
    from kvmodel.views.proof import proof_text

    width, colour = common.page()
    common.emit(proof_text(proving, command, verbose=verbose, width=width, colour=colour))
