"""Drive machines of one release in this process, each in a fork: ``python -m tests.engines.sglang.child RELEASE JOB ...``.

A job is a machine's name, or ``mutant:NAME``. Prints a line of JSON for each.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import Any

from kvmodel.engines.machines import check_release, machine
from kvmodel.traces.observed import call_text
from tests.engines.sglang.mutants import MUTANTS

TIMEOUT = float(os.environ.get("KVMODEL_ENGINE_TIMEOUT", "300"))  # seconds of a job
EXAMPLES = int(os.environ.get("KVMODEL_ENGINE_EXAMPLES", "0")) or None  # otherwise as the machine says


def job(release: str, name: str) -> dict[str, Any]:
    """The result of one job."""
    kind, _, mutant = name.partition(":")
    found = [each for each in MUTANTS if kind == "mutant" and each.name == mutant]
    for each in found:
        each.change()
    started = time.monotonic()
    result = check_release(machine("sglang", found[0].machine if found else name), release, timeout=TIMEOUT, examples=EXAMPLES)
    violated = {p.name: p.trace for p in result.properties if p.trace is not None}
    return {
        "job": name,
        "release": release,
        "verdict": result.verdict.name.lower(),
        "violated": {each: len(trace.steps) for each, trace in violated.items()},
        "steps": [call_text(call) for trace in violated.values() if trace.observed for call in trace.observed.calls],
        "undecided": {p.name: p.reason for p in result.properties if p.verdict.name == "UNDECIDED"},
        "statistics": dict(result.statistics),
        "seconds": round(time.monotonic() - started, 1),
    }


def forked(release: str, name: str) -> dict[str, Any]:
    """The result of one job, done in a fork of this process."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            answer = job(release, name)
        except BaseException as problem:
            answer = {"job": name, "release": release, "error": f"{type(problem).__name__}: {problem}", "trace": traceback.format_exc()}
        with os.fdopen(write, "w") as file:
            json.dump(answer, file)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"job": name, "release": release, "error": "the process died"}


def main(release: str, *names: str) -> None:
    """Boot once, then fork for each job."""
    from kvmodel.engines.sglang.boot import release_for

    started = time.monotonic()
    release_for(release)
    print(json.dumps({"job": "boot", "release": release, "seconds": round(time.monotonic() - started, 1)}), flush=True)
    for name in names:
        print(json.dumps(forked(release, name)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
