"""docs/defences.md says what is found, and cites rows that exist."""

from __future__ import annotations

import re

import pytest

from kvmodel.analyses.defences import varied_flags
from kvmodel.language.instance import Instance
from kvmodel.readings.explore import explore
from tests.specs.defences import EXPLORED, INCIDENT, PAGE, PROVED, TABLES, explored_cells, flags, pinned, rows, system

TEXT = PAGE.read_text(encoding="utf-8")


def cells(name: str) -> dict[str, list[str]]:
    """The cells of a pinned table, by the name of the row."""
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in pinned(name)[2:]]
    return {first: rest for first, *rest in found}


ROWS = {label: row for name in TABLES for label, row in cells(name).items()}


def cited() -> list[str]:
    """Every row that the text cites; `E1 to E7` cites all seven."""
    found = []
    for group in re.findall(r"\[([AENH]\d+[^\]]*)\]", TEXT):
        for part in group.replace("\n", " ").split(","):
            ends = [end.strip() for end in part.split(" to ")]
            low, high = int(ends[0][1:]), int(ends[-1][1:])
            found += [f"{ends[0][0]}{number}" for number in range(low, high + 1)]
    return found


def test_what_is_cited_is_a_row() -> None:
    assert [label for label in cited() if label not in ROWS] == []
    assert len(set(cited())) > 60


def test_every_choice_is_cited() -> None:
    """No row of the table of choices is left without a word."""
    assert [label for label in cells("choices") if label not in cited()] == []


def test_the_choices_are_those_of_the_generator() -> None:
    assert {label: row[0] for label, row in cells("choices").items()} == {label: words for label, words, _ in rows()}


@pytest.mark.parametrize("label", ["A3", "A10", "A17", "A26"])
def test_some_choices_as_explored(label: str) -> None:
    """What is proved holds at the default size; what is violated has the length that the table shows."""
    on = next(on for name, _, on in rows() if name == label)
    shown = [{"proved": "holds"}.get(cell, cell) for cell in cells("choices")[label][1:]]
    assert explored_cells(on, (*PROVED, *EXPLORED)) == shown


def test_some_maximal_set_as_explored() -> None:
    """With the flags of N5 off, the shortest run has the length that is shown; with one of them on there is none."""
    name, off, length = cells("not enough")["N5"]
    assert (name, off) == ("`isolated_write`", flags(["quarantine"]))
    chosen = dict.fromkeys(varied_flags(system()), True) | {"quarantine": False}
    assert explore(Instance.make(system().with_flags(chosen)), ["isolated_write"])["isolated_write"].length == int(length)


def test_every_minimal_set_is_in_a_proved_choice() -> None:
    """The tables agree with each other: a choice is proved if and only if it has a minimal set, as more is never worse."""
    enough = [(row[0].strip("`"), set(re.findall(r"`(\w+)`", row[1]))) for row in cells("enough").values()]
    for label, _, on in rows():
        for name, cell in zip(PROVED, cells("choices")[label][1:], strict=False):
            assert (cell == "proved") is any(asked == name and minimal <= on for asked, minimal in enough), (label, name)


def test_the_table_of_flags_has_every_flag() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)) == set(varied_flags(system()))
    assert set(INCIDENT) <= set(varied_flags(system()))


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_table(name: str) -> None:
    assert list(TABLES[name]()) == pinned(name)
