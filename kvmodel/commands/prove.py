"""``kvmodel prove``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kvmodel.commands import common
from kvmodel.errors import InternalError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvmodel.analyses.proving import Proving
    from kvmodel.analyses.second import SecondOpinions
    from kvmodel.language.system import TransitionSystem

__all__ = ["prove"]


@click.command(
    epilog="""\b
Examples:
  kvmodel prove handoff
  kvmodel prove handoff:buggy isolated_read
  kvmodel prove handoff isolated_read --verbose
  kvmodel prove handoff isolated_write --second-opinion
  kvmodel prove handoff isolated_read --infer
  kvmodel prove handoff --certificate proof && kvmodel recheck proof

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
@click.option(
    "--second-opinion", is_flag=True,
    help="Check each proved condition again without any solver, by enumerating every state of the size that it needs.",
)
@click.option("--infer", is_flag=True, help="Find the lemmas by machine; those of the spec are not used. Prints them to paste in.")
@click.option("--certificate", "directory", metavar="DIR", help="Write what is proved as SMT-LIB certificates; see `kvmodel recheck`.")
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
    second_opinion: bool,
    infer: bool,
    directory: str | None,
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
    options: dict[str, object] = {"infer": True} if infer else {}
    if all_flags:
        options["all-flags"] = True
    options |= {name: value for name, value in (("seed", seed or None), ("limit", limit), ("timeout", timeout and f"{timeout:g}")) if value}
    if infer:
        wrong = {"--all-flags": all_flags, "--second-opinion": second_opinion, "--certificate": directory, "--limit": limit, "--jobs": jobs}
        if given := next((name for name, value in wrong.items() if value), None):
            raise UsageError(f"--infer and {given} do not go together: infer lemmas first, paste them in, and prove")
        return _infer(system, properties, options, timeout, seed, expected, as_json)
    with common.progress_line() as progress:
        proving = api.prove_system(
            system, properties, all_flags=all_flags, timeout=timeout, seed=seed, limit=limit, jobs=jobs, progress=progress
        )
        second = _second_opinion(proving, progress) if second_opinion else None
    _print(proving, second, properties, options, verbose, as_json)
    if directory is not None:
        _certify(proving, directory)
    if second is not None and second.disagreed:
        raise InternalError(f"enumeration breaks {second.disagreed[0]}, which Z3 proved: a defect of kvmodel, please report it")
    return common.exit_code(proving.result.verdict, expected)


def _command(proving_system: TransitionSystem, properties: tuple[str, ...], options: dict[str, object], all_flags: bool) -> str:
    from kvmodel.verdict import Coverage
    from kvmodel.views.text import command_line

    flags = None if all_flags else tuple(proving_system.flag_values.items())
    return command_line("prove", proving_system.name, properties, options=options, coverage=Coverage(flags=flags))


def _print(
    proving: Proving,
    second: SecondOpinions | None,
    properties: tuple[str, ...],
    options: dict[str, object],
    verbose: bool,
    as_json: bool,
) -> None:
    if second is not None:
        options = {**options, "second-opinion": True}
    command = _command(proving.proof.system, properties, options, proving.proof.all_flags)
    if as_json:
        from kvmodel.views.proof import proof_object, second_object

        evidence = proof_object(proving) | ({} if second is None else {"second_opinion": second_object(second)})
        common.emit_json("prove", {**common.result_object(proving.result, command), **evidence})
        return
    from kvmodel.views.proof import proof_text

    width, colour = common.page()
    common.emit(proof_text(proving, command, second=second, verbose=verbose, width=width, colour=colour))


def _second_opinion(proving: Proving, progress: Callable[[str], None] | None) -> SecondOpinions:
    from kvmodel.analyses.second import second_opinions

    return second_opinions(proving.proof, progress=progress)


def _certify(proving: Proving, directory: str) -> None:
    """Write the certificate of what is proved; what is not is told."""
    from kvmodel.analyses.certificates import certificate, write_certificates

    proof = proving.proof
    proved = [name for name in proof.asked if proof.proved(name)]
    if not proved:
        common.note(f"{directory}: not written, nothing is proved")
        return
    written = certificate(proof.system, proof.conditions, proved, all_flags=proof.all_flags)
    write_certificates([written], directory)
    common.note(f"{directory}: certificates of {len(proof.conditions)} conditions; `kvmodel recheck {directory}` asks a second solver")


def _infer(
    system: TransitionSystem,
    properties: tuple[str, ...],
    options: dict[str, object],
    timeout: float | None,
    seed: int,
    expected: str | None,
    as_json: bool,
) -> int:
    from kvmodel.analyses.infer import infer
    from kvmodel.readings.induction import provable
    from kvmodel.views.inference import inference_object, inference_text

    with common.progress_line() as progress:
        found = infer(system, provable(system, properties), timeout=timeout, seed=seed, progress=progress)
    command = _command(system, properties, options, False)
    if as_json:
        common.emit_json("prove", {**inference_object(found), "reproduce": command})
    else:
        from kvmodel.views.text import trace_text

        width, colour = common.page()
        shown = "" if found.trace is None else trace_text(found.trace, width=width, colour=colour) + "\n"
        common.emit(shown + inference_text(found, width=width, colour=colour))
    return common.exit_code(found.verdict, expected)
