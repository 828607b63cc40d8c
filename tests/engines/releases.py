"""Drive every machine on every release, and write docs/engines/measured.md: ``python -m tests.engines.releases [resume]``.

Each cell is a `kvmodel engines check` in a process of its own; two run at a time. What was measured is kept in
docs/engines/measured.json, with the shortest runs; the page is made from that and from the counterexamples of the spec
variants that the machines name, and a test holds the two to each other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import kvmodel
from kvmodel.engines.machines import Machine, machines
from kvmodel.engines.sglang import boot as sglang
from kvmodel.engines.vllm import release as vllm
from kvmodel.traces.observed import call_text
from kvmodel.views.table import step_text

__all__ = ["MEASURED", "PAGE", "RELEASES", "cell", "page"]

FOLDER = Path(__file__).parents[2] / "docs" / "engines"
MEASURED = FOLDER / "measured.json"
PAGE = FOLDER / "measured.md"

RELEASES = {"vllm": vllm.RELEASES, "sglang": sglang.RELEASES}
SEED = 1
STAR = "\\*"
LONGEST = 240  # seconds for one cell

INTRODUCTION = """# What was measured on releases of vLLM and SGLang

Every machine of `kvmodel engines machines` on every release, on a CPU, from the released wheels' own code: `make engines-table` measures
it again and writes this page. *violated* names the property of [specs/cached.py](../../specs/cached.py) and the length of the shortest run
that was found; *holds* means that no run violated anything; *undecided* that something could not be seen, or that time ran out.
Machines with a star drive something that the engine is entitled to do: what they find is a hazard of the protocol, not a bug of a release.

"""


def cell(engine: str, release: str, machine: str, *, seed: int = SEED, properties: Sequence[str] = ()) -> dict[str, Any]:
    """What ``kvmodel engines check --json`` says of a machine on a release. Raises AssertionError when the command fails."""
    words = ["engines", "check", f"{engine}=={release}", machine, *properties, "--seed", str(seed), "--timeout", str(LONGEST), "--json"]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    run = subprocess.run([sys.executable, "-m", "kvmodel", *words], capture_output=True, text=True, check=False, env=environment)
    if run.returncode not in (0, 1, 3):
        raise AssertionError(f"kvmodel {' '.join(words)} ended with {run.returncode}:\n{run.stdout[-500:]}\n{run.stderr[-3_000:]}")
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def measured(engine: str, release: str, machine: Machine) -> dict[str, Any]:
    """A cell as it is kept."""
    result = cell(engine, release, machine.name)
    violated = [entry for entry in result["properties"] if entry["verdict"] == "violated"]
    trace = result["trace"]
    calls = [state["#meta"]["call"] for state in trace["states"][1:]] if trace else []
    return {
        "engine": engine,
        "release": release,
        "machine": machine.name,
        "verdict": result["verdict"],
        "violated": {entry["name"]: entry["length"] for entry in violated},
        "shown": trace["#meta"]["property"] or trace["#meta"]["observed"]["finding"] if trace else "",
        "undecided": {entry["name"]: entry["reason"] for entry in result["properties"] if entry["verdict"] == "undecided"},
        "calls": [call_text(call) for call in calls],
        "runs": result["statistics"]["runs"],
        "total": result["statistics"]["calls"],
        "seconds": round(result["seconds"], 1),
    }


def page(cells: Iterable[dict[str, Any]], seconds: float) -> str:
    """The page that says what was measured."""
    kept = list(cells)
    parts = [INTRODUCTION, f"The whole table took {seconds / 60:.0f} minutes, two cells at a time on 2 cores.\n"]
    for engine, releases in RELEASES.items():
        parts += _table(engine, releases, [each for each in kept if each["engine"] == engine])
    parts.append("\n# Side by side\n\nFor each machine that found something: the shortest run on the first release that is red,"
                 " and the counterexample of the spec variant that has the same fault.\n")  # fmt: skip
    for engine in RELEASES:
        for machine in machines(engine):
            red = [each for each in kept if (each["engine"], each["machine"]) == (engine, machine.name) and each["calls"]]
            if red:
                parts += _side_by_side(machine, red)
    return "".join(parts)


def _table(engine: str, releases: Sequence[str], cells: list[dict[str, Any]]) -> Iterator[str]:
    known = machines(engine)
    by_place = {(each["release"], each["machine"]): each for each in cells}
    starred = [m.name + STAR * m.hazard for m in known]
    yield f"\n## {engine}\n\n| release | {' | '.join(starred)}"
    yield " |\n" + "|---" * (len(known) + 1) + "|\n"
    for release in releases:
        yield f"| {release} | " + " | ".join(_cell(by_place.get((release, m.name))) for m in known) + " |\n"
    yield "\n"
    for machine in known:
        yield f"- `{machine.name}`: {machine.doc}\n"


def _cell(each: dict[str, Any] | None) -> str:
    if each is None:
        return "not measured"
    red = ", ".join(f"**{name}** ({length})" for name, length in each["violated"].items())
    return f"{red or each['verdict']}; {each['runs']:,} runs, {each['seconds']:.0f} s"


def _side_by_side(machine: Machine, red: list[dict[str, Any]]) -> Iterator[str]:
    first = red[0]
    yield f"\n## {first['engine']} {machine.name}\n\nRed on {', '.join(each['release'] for each in red)}.\n\n"
    left = [f"{first['engine']} {first['release']}: `{first['shown']}` after {len(first['calls'])} calls", *first["calls"]]
    right = ["no variant of a spec is named for this machine"]
    if machine.variant:
        result = kvmodel.check(machine.variant, [first["shown"]] if first["shown"] in _names(machine.variant) else [])
        trace = result.trace
        right = [f"`kvmodel check {machine.variant}`: {result.verdict.value}"]
        if trace is not None:
            right = [f"`kvmodel check {machine.variant}`: `{trace.property}` after {len(trace.steps)} steps"]
            right += [step_text(trace.instance, choice) for choice in trace.steps]
    yield f"| | the engine | the spec |\n|---|---|---|\n| | {left[0]} | {right[0]} |\n"
    for number in range(1, max(len(left), len(right))):
        cells = [f"`{column[number]}`" if number < len(column) else "" for column in (left, right)]
        yield f"| {number} | {cells[0]} | {cells[1]} |\n"


def _names(spec: str) -> list[str]:
    return [candidate.name for candidate in kvmodel.load(spec).properties]


def main(arguments: Sequence[str]) -> None:
    """Measure everything, and write the page. With `resume` only what is not kept yet; what is measured is kept at once."""
    started = time.monotonic()
    kept: dict[str, Any] = {"seconds": 0, "cells": []}
    if "resume" in arguments and MEASURED.exists():
        kept = json.loads(MEASURED.read_text())
    cells: list[dict[str, Any]] = kept["cells"]
    done = {(each["engine"], each["release"], each["machine"]) for each in cells}
    every = [(engine, release, m) for engine, releases in RELEASES.items() for release in releases for m in machines(engine)]
    asked = [each for each in every if (each[0], each[1], each[2].name) not in done]
    FOLDER.mkdir(exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(lambda each: measured(*each), asked):
            cells.append(found)
            print(f"{found['engine']} {found['release']} {found['machine']}: {_cell(found)}", flush=True)
            seconds = kept["seconds"] + round(time.monotonic() - started)
            MEASURED.write_text(json.dumps({"seconds": seconds, "cells": cells}, indent=1) + "\n")
    PAGE.write_text(page(**json.loads(MEASURED.read_text())))


if __name__ == "__main__":
    main(sys.argv[1:])
