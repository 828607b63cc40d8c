"""What a verdict's exit code says does not depend on whether somebody reads the output, or on where a trace goes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kvmodel
from kvmodel.api import Method
from kvmodel.errors import UsageError
from kvmodel.language.build import Builder, add, not_, var
from kvmodel.verdict import Verdict

COMMAND = f'"{sys.executable}" -m kvmodel.cli'
SMALL = "--size Request=1 --size Page=1"


def exit_code(line: str) -> tuple[int, str]:
    found = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, check=False)
    return found.returncode, found.stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("check nothing 2>/dev/full", 2),
        (f"check pages {SMALL} --json >/dev/full", 3),
        (f"check pages {SMALL} >/dev/full", 3),
        (f"check pages {SMALL} --save x.json 2>/dev/full", 0),
    ],
)
def test_an_output_that_cannot_be_written_is_never_a_violation(arguments: str, code: int) -> None:
    assert exit_code(f"{COMMAND} {arguments}")[0] == code


def test_a_failed_save_keeps_the_result(tmp_path: Path) -> None:
    code, out = exit_code(f"{COMMAND} check pages:one-pool-without-quarantine --save {tmp_path}/nowhere/x.json")
    assert code == 2
    assert "isolated_write" in out


@pytest.mark.parametrize("timeout", [float("nan"), float("inf"), 0.0])
def test_a_timeout_is_a_positive_number(timeout: float) -> None:
    with pytest.raises(UsageError, match="must be more than 0"):
        kvmodel.check("pages", timeout=timeout)


def test_a_variant_has_a_name() -> None:
    with pytest.raises(UsageError, match="names no variant"):
        kvmodel.load("handoff:")


@pytest.mark.parametrize("method", ["explore", "bmc", "walk", "hypothesis"])
def test_runs_that_a_counter_cuts_short_are_told_of(method: Method) -> None:
    b = Builder("out")
    page = b.sort("Page")
    p = var("p", page)
    n, bad = b.counter("n", page, high=1), b.relation("bad")
    b.action("up", p, updates=[n.set(add(n(p), 1), p)])
    b.invariant("never_bad", not_(bad()))
    result = kvmodel.check(b.build(), ["never_bad"], method=method, size={"Page": 1}, depth=None if method == "explore" else 4)
    assert result["never_bad"].verdict is Verdict.HOLDS
    assert result.verdict is Verdict.VIOLATED
    assert result["range:n"].length == 2


def test_hypothesis_looks_for_what_must_be_possible() -> None:
    result = kvmodel.check("handoff", ["can_be_rejected"], method="hypothesis", runs=50)
    assert result.verdict is Verdict.HOLDS
