"""Drive releases of vLLM and write what was found: ``python -m tests.engines.vllm.table [RELEASE[:MACHINE] ...]``.

Each release has a process of its own. Without arguments: every release and every machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from kvmodel.engines.vllm.machines import MACHINES
from kvmodel.engines.vllm.release import RELEASES

__all__ = ["drive"]


def drive(release: str, machine: str, seed: int = 1) -> dict[str, Any]:
    """What ``kvmodel engines check --json`` says."""
    command = [sys.executable, "-m", "kvmodel", "engines", "check", f"vllm=={release}", machine, "--seed", str(seed), "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1, 3):
        raise AssertionError(f"{' '.join(command)}\n{run.stdout[-500:]}\n{run.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(run.stdout)
    return result


def row(release: str, machine: str) -> str:
    """A row of the table."""
    result = drive(release, machine)
    red = {entry["name"]: entry["length"] for entry in result["properties"] if entry["verdict"] == "violated"}
    open_ = [entry["name"] for entry in result["properties"] if entry["verdict"] == "undecided"]
    found = ", ".join(f"`{name}` ({length})" for name, length in red.items()) or "-"
    counts = result["statistics"]
    cells = [release, machine, result["verdict"], found, f"{counts['runs']:,}", f"{counts['calls']:,}", f"{result['seconds']:.0f}"]
    return f"| {' | '.join(cells)} |{' open: ' + ', '.join(open_) if open_ and not red else ''}"


def main(arguments: list[str]) -> None:
    """Print the table."""
    asked = [argument.partition(":") for argument in arguments or RELEASES]
    print("| release | machine | verdict | violated (steps) | runs | calls | seconds |\n|---|---|---|---|---|---|---|")
    for release, _, machine in asked:
        for each in MACHINES:
            if machine in ("", each.name):
                print(row(release, each.name), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
