"""vLLM's own code: the newest release, and releases with known faults. Needs the package registry once, then the cache."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvmodel.engines.vllm.machines import MACHINES
from kvmodel.engines.vllm.release import RELEASES
from tests.engines.vllm.mutants import MUTANTS

pytestmark = pytest.mark.engines
NEWEST = RELEASES[-1]

# What is known to be wrong, the property that says so, and the most steps that its shortest run may have.
RED = {
    ("0.11.2", "scheduler"): ("isolated_write", 4),
    ("0.11.2", "nixl"): ("isolated_write", 4),  # with NIXL's own code, so it is no fault of our connector
    ("0.20.2", "hybrid"): ("exclusive_owner", 6),
    ("0.20.2", "scheduler-two-batches"): ("isolated_write", 14),
    (NEWEST, "leases"): ("isolated_read", 9),  # a hazard of the protocol
}


def drive(release: str, machine: str, *options: str) -> dict[str, Any]:
    """What ``kvmodel engines check --json`` says, in a process of its own."""
    command = [sys.executable, "-m", "kvmodel", "engines", "check", f"vllm=={release}", machine, "--seed", "1", "--json", *options]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1, 3), run.stdout + run.stderr
    result: dict[str, Any] = json.loads(run.stdout)
    return result


@pytest.mark.parametrize("machine", [machine.name for machine in MACHINES if not machine.hazards])
def test_the_newest_release_holds(machine: str) -> None:
    result = drive(NEWEST, machine, "--examples", "100")
    assert {entry["name"]: entry["verdict"] for entry in result["properties"] if entry["verdict"] != "holds"} == {}
    assert result["statistics"]["runs"] >= 100


@pytest.mark.parametrize(("release", "machine"), RED)
def test_known_faults_are_found(release: str, machine: str) -> None:
    name, steps = RED[release, machine]
    result = drive(release, machine)
    found = {entry["name"]: entry["length"] for entry in result["properties"] if entry["verdict"] == "violated"}
    assert name in found
    assert found[name] <= steps


@pytest.mark.slow
def test_seeded_bugs_are_caught() -> None:
    command = [sys.executable, "-m", "tests.engines.vllm.mutants"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.count("|\n") == len(MUTANTS) + 2
    assert "missed" not in run.stdout


def recorded(release: str, depth: int, log: str, steps: int = 20_000) -> float:
    command = [sys.executable, "-m", "tests.engines.vllm.recording", release, str(depth), str(steps), log]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize(
    ("release", "depth", "verdict", "says"),
    [
        (NEWEST, 1, "holds", ""),
        (NEWEST, 2, "holds", ""),
        ("0.11.2", 1, "violated", "a write for r"),  # drain or allocate, while a write is in flight
        ("0.20.2", 2, "violated", "isolated_write"),
    ],
)
def test_a_recorded_log_is_checked(tmp_path: Path, release: str, depth: int, verdict: str, says: str) -> None:
    log = tmp_path / "events.jsonl"
    recorded(release, depth, str(log))
    command = [sys.executable, "-m", "kvmodel", "trace", "check", str(log), "--expect", verdict]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    assert says in run.stdout


@pytest.mark.slow
def test_recording_costs_little(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    without, with_ = recorded(NEWEST, 1, ""), recorded(NEWEST, 1, str(tmp_path / "events.jsonl"))
    record_property("summary", f"vllm {NEWEST}: a step takes {without:.2f} ms, with the recorder {with_:.2f} ms")
    assert with_ - without < 2


def test_a_missing_method_makes_no_finding(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    script = f"""
from kvmodel.engines.vllm.release import boot
release = boot({NEWEST!r})
del release.scheduler_class._connector_finished
from kvmodel.engines.vllm.recorder import Recorder
recorder = Recorder({str(log)!r}, {NEWEST!r}).install()
from kvmodel.engines.vllm.manager import ManagerAdapter
adapter = ManagerAdapter(release)
adapter.admit("r0", (0, 1, 0), None, 0, False)
recorder.remove()
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert "incomplete: vllm" in log.read_text()
    command = [sys.executable, "-m", "kvmodel", "trace", "check", str(log), "--expect", "undecided"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
