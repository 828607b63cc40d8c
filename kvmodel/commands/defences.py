"""``kvmodel defences``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kvmodel.commands import common

if TYPE_CHECKING:
    from kvmodel.analyses.defences import Defences

__all__ = ["defences", "defences_object"]


@click.command(
    epilog="""\b
Examples:
  kvmodel defences handoff isolated_read
  kvmodel defences handoff isolated_read --flag quarantine
  kvmodel defences handoff fresh_read --flag truncates_automatically --format markdown

\b
Exit code: 0 every set of flags is proved or violated, 2 wrong usage or an
unreadable spec, 3 some set is undecided."""
)
@click.argument("spec")
@click.argument("property_", metavar="PROPERTY")
@common.instance_options
@click.option(
    "--format", "layout", type=click.Choice(("table", "markdown")), default="table", show_default=True, help="For people, or for a PR."
)
@click.option("--verbose", is_flag=True, help="Also show what each proof needs and each violating run.")
@common.json_option
def defences(
    spec: str,
    property_: str,
    sizes: tuple[str, ...],
    on: tuple[str, ...],
    off: tuple[str, ...],
    timeout: float | None,
    layout: str,
    verbose: bool,
    as_json: bool,
) -> int:
    """Which defences are enough for PROPERTY of SPEC, and which are not.

    Looks at every choice of the flags of kind defence and sizing. Shows every minimal set of flags under which the
    property is proved, for any size, and every maximal one under which it is violated, with a shortest run. Hazards
    stay as they are. A flag given with --flag or --no-flag stays so; a violation is looked for at --size.
    """
    from kvmodel import api
    from kvmodel.analyses.defences import defences as judge
    from kvmodel.analyses.defences import varied_flags
    from kvmodel.commands.project import project_settings

    given = common.flags_of(on, off)
    system = api.load(spec, given)
    instance = project_settings().instance(system, common.sizes_of(sizes))
    varied = [flag for flag in varied_flags(system) if flag not in given]
    with common.progress_line() as progress:
        result = judge(system, property_, flags=varied, sizes=dict(instance.size_options()), timeout=timeout, progress=progress)
    command = _command(result, timeout)
    if as_json:
        common.emit_json("defences", defences_object(result, command))
    elif layout == "markdown":
        from kvmodel.views.defences import defences_markdown

        common.emit(defences_markdown(result, command))
    else:
        from kvmodel.views.defences import defences_text

        width, colour = common.page()
        common.emit(defences_text(result, command, verbose=verbose, width=width, colour=colour))
    return common.OTHERWISE if result.open else common.ALL_HOLD


def _command(result: Defences, timeout: float | None) -> str:
    from kvmodel.verdict import Coverage
    from kvmodel.views.text import command_line

    options = {} if timeout is None else {"timeout": f"{timeout:g}"}
    coverage = Coverage(result.size, flags=result.fixed)
    return command_line("defences", result.spec, (result.asked,), options=options, coverage=coverage)


def defences_object(result: Defences, command: str) -> dict[str, object]:
    """What was found, for JSON; `command` reproduces it."""
    from kvmodel.traces.itf import itf_object

    return {
        "spec": result.spec,
        "property": result.asked,
        "flags": list(result.flags),
        "fixed": dict(result.fixed),
        "size": dict(result.size),
        "assignments": {
            "all": result.assignments.count,
            "proved": result.proved.bit_count(),
            "violated": result.violated.bit_count(),
            "undecided": result.open.bit_count(),
        },
        "enough": [
            {
                "on": list(entry.on),
                "needs": dict(entry.proof.needs),
                "claims": list(entry.proof.claims),
                "conditions": len(entry.proof.conditions),
                "seconds": round(entry.proof.solver_seconds, 3),
            }
            for entry in result.enough
        ],
        "not_enough": [
            {
                "on": list(entry.on),
                "off": [flag for flag in result.flags if flag not in entry.on],
                "length": entry.length,
                "trace": itf_object(entry.trace),
            }
            for entry in result.not_enough
        ],
        "undecided": [{"on": list(entry.on), "reason": entry.reason} for entry in result.undecided],
        "monotone": result.monotone,
        "reversals": [{"on": list(entry.on), "flag": entry.flag, "sets": entry.count} for entry in result.reversals],
        "proofs": result.proofs,
        "explorations": result.explorations,
        "stopped": result.stopped,
        "seconds": round(result.seconds, 3),
        "reproduce": command,
    }
