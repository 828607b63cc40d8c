"""The table of variants and properties: computed by exploration, kept in docs/variants.md.

    python -m tests.specs.variants          writes the table into docs/variants.md again
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kvmodel.language.instance import Instance
from kvmodel.language.load import load_spec, shipped
from kvmodel.readings.explore import explore
from kvmodel.verdict import PropertyResult, Verdict

PAGE = Path(__file__).resolve().parents[2] / "docs" / "variants.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
SPECS = tuple(listing.name for listing in shipped() if listing.name.startswith(("cached", "handoff", "pages", "tenants")))
COLUMNS = (
    "isolated_read",
    "fresh_read",
    "isolated_write",
    "exclusive_owner",
    "no_use_after_free",
    "pages_conserved",
    "no_double_free",
    "index_matches_content",
    "honest_status",
    "no_internal_error",
    "ends_with_the_answer",
    "fits_pools",
    "no_deadlock",
)


def cell(result: PropertyResult | None) -> str:
    """What the table says of one property: blank when the spec does not have it."""
    if result is None:
        return ""
    return f"**{result.length}**" if result.verdict is Verdict.VIOLATED else result.verdict.value


def row(spec: str) -> str:
    """One line of the table."""
    result = explore(Instance.make(load_spec(spec)))
    found = {entry.name: entry for entry in result.properties}
    states = dict(result.statistics)["states"]
    return f"| `{spec}` | {' | '.join(cell(found.get(name)) for name in COLUMNS)} | {states:,} |"


def heading() -> Iterator[str]:
    yield f"| variant | {' | '.join(name.replace('_', ' ') for name in COLUMNS)} | states |"
    yield "|---" * (len(COLUMNS) + 2) + "|"


def pinned() -> dict[str, str]:
    """The lines of the table in the documentation, by variant."""
    text = PAGE.read_text(encoding="utf-8")
    lines = text[text.index(BEGIN) : text.index(END)].splitlines()
    return {line.split("`")[1]: line for line in lines if line.startswith("| `")}


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = "\n".join([*heading(), *(row(spec) for spec in SPECS)])
    before, after = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    PAGE.write_text(f"{before}\n{table}\n{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
