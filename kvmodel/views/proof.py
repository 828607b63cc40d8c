"""A proof for people: verdicts, counterexamples to induction, and where the evidence stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from kvmodel.analyses.proving import Proving, Unproved
from kvmodel.language.system import TransitionSystem
from kvmodel.language.types import Domain
from kvmodel.readings.conditions import INITIALLY, Induction
from kvmodel.readings.counterexample import Reached
from kvmodel.readings.fragment import fragment
from kvmodel.readings.solver import Answer, ConditionResult
from kvmodel.traces.trace import Trace
from kvmodel.views.console import PLAIN_WIDTH, columns, draw, indented, words
from kvmodel.views.fragment import fragments
from kvmodel.views.table import given, step_text, trace_table
from kvmodel.views.text import ending, findings_parts, properties_table, trace_parts, verdict_line

if TYPE_CHECKING:  # numpy, which most proofs do without
    from kvmodel.analyses.second import SecondOpinions

__all__ = ["proof_object", "proof_text", "second_object"]

MOST_NAMES = 4
REACHED = {
    Reached.YES: "A run gets to this state.",
    Reached.NO: "No run gets to this state at this size: a lemma that excludes it is missing.",
    Reached.UNKNOWN: "Whether a run gets to this state is not known: the exploration of this size was cut short.",
}
ANSWERS = {Answer.PROVED: "green", Answer.REFUTED: "bold red", Answer.UNKNOWN: "yellow"}


def proof_text(
    proving: Proving,
    command: str,
    *,
    second: SecondOpinions | None = None,
    verbose: bool = False,
    width: int = PLAIN_WIDTH,
    colour: bool = False,
) -> str:
    """Everything that a proof has to say; `command` reproduces it. With `verbose`, each condition has its line."""
    result, system = proving.result, proving.proof.system
    parts: list[RenderableType] = []
    headline = result.headline
    if headline is not None and headline.trace is not None:
        parts += [*trace_parts(headline.trace, width), Text()]
    for entry in proving.unproved:
        parts += [*_induced(entry, width), Text()]
    parts += [verdict_line(result), Text(), properties_table(result), *_lemmas(proving)]
    parts += [*_decidable(proving), *findings_parts(result)]
    if second is not None:
        parts += [Text(), *_second(second, verbose)]
    if verbose:
        parts += [Text(), *_conditions((*proving.proof.conditions, *proving.proof.open.values()))]
    return draw([*parts, *ending(system, command, width, all_flags=proving.proof.all_flags)], width=width, colour=colour)


def _induced(entry: Unproved, width: int) -> Iterator[RenderableType]:
    """A counterexample to induction as a table of one step."""
    found = entry.induced
    instance = found.instance
    steps = () if found.choice is None else (found.choice,)
    trace = Trace(instance, (found.before, found.after) if steps else (found.before,), steps)
    what = f"{step_text(instance, found.choice)} breaks" if found.choice else "this state breaks"
    claim = _parameters(instance.system, found.claim)
    arguments = ", ".join(
        f"{name} = {instance.label(domain, value)}" for (name, domain), value in zip(claim, found.binding, strict=True)
    )
    head = Text.assemble((found.claim, "bold"), " is ", ("not inductive", "yellow"))
    yield head.append(f": {what} it{f' for {arguments}' if arguments else ''}")
    yield indented(words("The first state satisfies every other claim; it need not be one that a run gets to.", "dim"))
    facts = given(trace)
    if facts:
        yield indented(words("given: " + ", ".join(facts)))
    table, legend = trace_table(trace, width - 2, any_state=True)
    yield indented(table)
    if legend:
        yield indented(words(legend, "dim"))
    yield indented(words(REACHED[entry.reached]))


def _parameters(system: TransitionSystem, claim: str) -> tuple[tuple[str, Domain], ...]:
    return tuple((parameter.name, parameter.domain) for parameter in Induction(system).claims[claim].parameters)


def _lemmas(proving: Proving) -> Iterator[RenderableType]:
    claims = Induction(proving.proof.system, all_flags=proving.proof.all_flags).claims
    used = [name for name in proving.proof.claims if claims[name].lemma]
    if used:
        yield Text()
        yield Text.assemble(("lemmas used  ", "bold"), ", ".join(used))
    struck = [(name, why) for name, why in proving.proof.open.items() if name in claims and claims[name].lemma]
    if struck:
        yield Text()
        yield words("lemmas that do not hold inductively here", "bold")
        for name, why in struck:
            yield indented(words(f"{name}: {_where(why)}"))


def _where(result: ConditionResult) -> str:
    if result.answer is Answer.UNKNOWN:
        return f"{result.name} is open: {result.reason}"
    return "an initial state may break it" if result.step == INITIALLY else f"{result.step} breaks it"


def _decidable(proving: Proving) -> Iterator[RenderableType]:
    """Where the proved conditions lie, with the claims that their proofs used."""
    induction = Induction(proving.proof.system, all_flags=proving.proof.all_flags)
    entries = []
    for result in proving.proof.conditions:
        condition = induction.condition(result.step, result.claim).under(result.used)
        entries.append((result.name, fragment(induction.system, condition)))
    if entries:
        yield Text()
        yield from fragments(entries)


def _second(second: SecondOpinions, verbose: bool) -> Iterator[RenderableType]:
    from kvmodel.views.cutoff import second_opinions, tightness_lines

    yield from second_opinions(second.opinions, verbose=verbose)
    for name, lacking in second.lack:
        if lacking:
            first = ", ".join(lacking[:MOST_NAMES]) + (", ..." if len(lacking) > MOST_NAMES else "")
            yield words(f"{name}: {len(lacking)} of its conditions are not agreed: {first}", "yellow")
        else:
            yield words(f"{name}: holds at any size also by enumeration alone", "green")
    if second.tightness is not None:
        yield from tightness_lines(second.tightness)


def second_object(second: SecondOpinions) -> dict[str, object]:
    """A second opinion for JSON."""
    found = second.tightness
    return {
        "conditions": [
            {
                "name": opinion.name,
                "judgement": opinion.judgement.value,
                "cut_off": dict(opinion.cut_off.sizes),
                "elements": dict(opinion.elements),
                "states": opinion.states,
                "seconds": round(opinion.seconds, 4),
                "reason": opinion.reason,
            }
            for opinion in second.opinions
        ],
        "lacking": {name: list(lacking) for name, lacking in second.lack},
        "tightness": None if found is None else {
            "sizes": dict(found.sizes), "states": found.states, "satisfying": found.satisfying,
            "reachable": found.reachable, "reason": found.reason,
        },
    }  # fmt: skip


def proof_object(proving: Proving) -> dict[str, object]:
    """The evidence for JSON: each condition, the claims of the inductive set, and what is open."""
    proof = proving.proof
    return {
        "claims": list(proof.claims),
        "conditions": [_condition_object(result) for result in proof.conditions],
        "open": [_condition_object(result) for result in proof.open.values()],
        "counterexamples": [
            {
                "property": entry.induced.claim,
                "step": None if entry.induced.choice is None else step_text(entry.induced.instance, entry.induced.choice),
                "size": dict(entry.induced.instance.size_options()),
                "reached": entry.reached.value,
            }
            for entry in proving.unproved
        ],
    }


def _condition_object(result: ConditionResult) -> dict[str, object]:
    return {
        "name": result.name,
        "answer": result.answer.value,
        "used": sorted(result.used),
        "seconds": round(result.seconds, 4),
        "reason": result.reason,
    }


def _conditions(results: Sequence[ConditionResult]) -> Iterator[RenderableType]:
    table = columns("condition", "", "seconds", "with the help of")
    for result in results:
        table.add_row(
            words(result.name), words(result.answer.value, ANSWERS[result.answer]), words(f"{result.seconds:.3f}"),
            words(", ".join(sorted(result.used)) or result.reason),
        )  # fmt: skip
    yield table
