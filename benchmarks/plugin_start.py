"""What the pytest plugin adds to the start of every pytest run, also of projects that have nothing to check (below 30 ms).

    python benchmarks/plugin_start.py [ROUNDS]

pytest collects one unmarked test, in turns with the plugin and with ``-p no:kvmodel``, each in a process of its own. What is
told is processor time, which other processes disturb least: the smallest and the median of the rounds, and the median of the
differences within a round.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

ROUNDS = 40
WITHOUT = ("-p", "no:kvmodel")


def start(folder: str, options: tuple[str, ...]) -> float:
    """Milliseconds of processor time that one start takes."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # as a user has it
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", *options]
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    return 1_000 * (usage.ru_utime + usage.ru_stime)


def main(rounds: int) -> None:
    """Print the table."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "test_it.py").write_text("def test_it():\n    pass\n")
        start(folder, ()), start(folder, WITHOUT)
        pairs = [(start(folder, ()), start(folder, WITHOUT)) for _ in range(rounds)]
    for name, times in (("with the plugin", [pair[0] for pair in pairs]), ("without", [pair[1] for pair in pairs])):
        print(f"{name:16} min {min(times):6.0f} ms   median {median(times):6.0f} ms")
    print(f"{'difference':16} {'':14} median {median(one - other for one, other in pairs):6.1f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
