"""The tables of docs/defences.md: which defences are enough, which are not, and what each buys alone and together.

    python -m tests.specs.defences          writes the tables into docs/defences.md again (some minutes)

Rows have names (E1, N1, A1, H1), so that the text can cite them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from kvmodel.analyses.defences import Defences, defences, varied_flags
from kvmodel.analyses.flagged_proofs import FlaggedProofs
from kvmodel.language.instance import Instance
from kvmodel.language.load import load_spec
from kvmodel.language.system import TransitionSystem
from kvmodel.readings.explore import explore
from tests.analyses.families import Family, explore_family

PAGE = Path(__file__).resolve().parents[2] / "docs" / "defences.md"
PROVED = ("isolated_read", "fresh_read", "isolated_write", "honest_status")
EXPLORED = ("pages_conserved", "no_internal_error", "no_deadlock")  # judged at the default size
HAZARDS = ("truncates_automatically", "sends_reserved_row", "quarantine_gives_up")
INCIDENT = ("quarantine", "decode_pool_covers_context")  # what the deployment of the incident has on

ALONE: tuple[tuple[str, ...], ...] = (
    (),
    ("prefill_pool_covers_context",),
    ("prefill_door_honours_reject",),
    ("decode_door_waits",),
    ("prefill_tells_decode",),
    ("reject_honoured_after_forward",),
    ("compares_lengths",),
    ("checksum_of_sent",),
    ("checksum_of_each_side",),
    ("zero_on_free",),
    ("checks_reads",),
)
TOGETHER: tuple[tuple[str, ...], ...] = (
    ("prefill_door_honours_reject", "prefill_tells_decode"),
    ("reject_honoured_after_forward", "prefill_tells_decode"),
    ("decode_door_waits", "prefill_tells_decode"),
    ("prefill_door_honours_reject", "decode_door_waits"),
    ("prefill_door_honours_reject", "decode_door_waits", "prefill_tells_decode"),
    ("zero_on_free", "checksum_of_sent"),
    ("zero_on_free", "compares_lengths"),
    ("prefill_door_honours_reject", "prefill_tells_decode", "compares_lengths"),
    ("prefill_pool_covers_context", "prefill_door_honours_reject", "prefill_tells_decode", "compares_lengths"),
)
WITHOUT: tuple[tuple[str, ...], ...] = (
    (),
    ("prefill_pool_covers_context",),
    ("zero_on_free",),
    ("checks_reads",),
    ("prefill_door_honours_reject", "prefill_tells_decode", "compares_lengths"),
)


def rows() -> Iterator[tuple[str, str, frozenset[str]]]:
    """The rows of the table of choices: a name, what a reader calls it, and the flags that are on."""
    system = load_spec("handoff")
    base = frozenset(INCIDENT)
    number = 0
    for group, start in ((ALONE, base), (TOGETHER, base), (WITHOUT, base - {"quarantine"})):
        for added in group:
            number += 1
            words = ["the incident's deployment"] if start == base else ["the incident's deployment without `quarantine`"]
            words += [f"`{flag}`" for flag in added]
            yield f"A{number}", " + ".join(words), start | set(added)
    varied = varied_flags(system)
    yield f"A{number + 1}", "everything on", frozenset(varied)
    yield f"A{number + 2}", "everything on but `quarantine`", frozenset(varied) - {"quarantine"}
    yield f"A{number + 3}", "the incident's deployment without `decode_pool_covers_context`", base - {"decode_pool_covers_context"}


@cache
def system(hazard: str = "") -> TransitionSystem:
    """`handoff`, with a hazard."""
    found = load_spec("handoff")
    return found.with_flags({hazard: True}) if hazard else found


@cache
def prover(hazard: str) -> FlaggedProofs:
    """One prover for all properties."""
    return FlaggedProofs(system(hazard), varied_flags(system(hazard)))


@cache
def judged(name: str, hazard: str = "") -> Defences:
    """What `kvmodel defences` finds."""
    return defences(system(hazard), name, prover=prover(hazard))


@cache
def lengths() -> Family:
    """Shortest violations under every assignment."""
    return explore_family(system(), varied_flags(system()), {}, PROVED)


def enough_table() -> Iterator[str]:
    """Every minimal set that is enough."""
    yield from head("", "property", "these on are enough")
    number = 0
    for name in PROVED:
        for row in judged(name).enough:
            number += 1
            yield line(f"E{number}", f"`{name}`", flags(row.on))


def not_enough_table() -> Iterator[str]:
    """Every maximal set that is not enough."""
    yield from head("", "property", "with these off, all others are not enough", "shortest run")
    number = 0
    for name in PROVED:
        result = judged(name)
        for row in result.not_enough:
            number += 1
            yield line(f"N{number}", f"`{name}`", flags(f for f in result.flags if f not in row.on), str(row.length))


def choices_table(wanted: Iterable[str] | None = None) -> Iterator[str]:
    """What a choice of flags is good for."""
    yield from head("", "flags on", *(name.replace("_", " ") for name in (*PROVED, *EXPLORED)))
    for label, words, on in rows():
        if wanted is None or label in wanted:
            yield line(label, words, *(proved_cell(name, on) for name in PROVED), *explored_cells(on))


def proved_cell(name: str, on: frozenset[str]) -> str:
    """``proved``, or the length of a shortest run."""
    result = judged(name)
    number = result.assignments.number({flag: flag in on for flag in result.flags})
    if result.proved >> number & 1:
        return "proved"
    length = lengths().length(name, number)
    assert result.violated >> number & 1
    assert length is not None
    return f"**{length}**"


def explored_cells(on: frozenset[str], names: Sequence[str] = EXPLORED) -> list[str]:
    """``holds`` at the default size, or the length of a shortest run."""
    chosen = system().with_flags({flag: flag in on for flag in varied_flags(system())})
    found = explore(Instance.make(chosen), names)
    return [f"**{found[name].length}**" if found[name].length is not None else found[name].verdict.value for name in names]


def hazards_table() -> Iterator[str]:
    """What is enough where a hazard is on."""
    yield from head("", "hazard that is on", "property", "these on are enough")
    number = 0
    for hazard in HAZARDS:
        for name in PROVED:
            result = judged(name, hazard)
            assert not result.open
            for cell in [flags(row.on) for row in result.enough] or ["nothing is"]:
                number += 1
                yield line(f"H{number}", f"`{hazard}`", f"`{name}`", cell)


def flags(names: Iterable[str]) -> str:
    """Flags as code."""
    return ", ".join(f"`{name}`" for name in names) or "(none)"


def line(*cells: str) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"


def head(*names: str) -> Iterator[str]:
    """The first two lines of a table."""
    yield line(*names)
    yield "|---" * len(names) + "|"


TABLES = {"enough": enough_table, "not enough": not_enough_table, "choices": choices_table, "hazards": hazards_table}


def markers(name: str) -> tuple[str, str]:
    """What stands before and after a table in the page."""
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def pinned(name: str) -> list[str]:
    """The lines of a table in the documentation."""
    begin, end = markers(name)
    text = PAGE.read_text(encoding="utf-8")
    return text[text.index(begin) + len(begin) : text.index(end)].strip().splitlines()


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        begin, end = markers(name)
        made = "\n".join(table())
        text = f"{text[: text.index(begin) + len(begin)]}\n{made}\n{text[text.index(end) :]}"
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
