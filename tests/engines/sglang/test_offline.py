"""What can be said of the SGLang adapters without SGLang."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest

from kvmodel.engines.machines import machines
from kvmodel.engines.sglang import drift
from kvmodel.engines.sglang.boot import KNOWN, PLAN, Release, StandIn
from kvmodel.engines.sglang.recorder import HOOKS, header_for
from kvmodel.engines.standins import StandIns
from kvmodel.errors import EngineDriftError


@pytest.fixture
def release() -> Release:
    return Release("0.5.99", Path("."), StandIns(PLAN), whole=False)


def test_nothing_is_imported_before_it_is_needed() -> None:
    script = "import sys, kvmodel.engines.sglang.machines, kvmodel.engines.sglang.recorder; print({'torch', 'sglang'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"


def test_what_is_not_installed_is_named() -> None:
    script = """
import sys
sys.modules["regex"] = None
from pathlib import Path
from kvmodel.engines.sglang.boot import boot
from kvmodel.engines.wheels import Wheel
try:
    boot(Wheel("sglang", "0.5.23", "", "", Path("."), 0, 0))
except ValueError as problem:
    print(problem)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "regex" in run.stdout
    assert "pip install 'kvmodel[engines]'" in run.stdout


def test_machines() -> None:
    assert [machine.name for machine in machines("sglang")] == ["tokens", "pages", "handoff", "late-write", "deadline", "truncating"]


def test_what_a_stand_in_lacks_is_drift(release: Release) -> None:
    with pytest.raises(EngineDriftError) as caught, release.calling("Scheduler.run"):
        _ = StandIn().novelty
    assert str(caught.value) == f"sglang 0.5.99 has no Scheduler.run that does without StandIn.novelty: kvmodel knows {KNOWN}"


def test_what_an_object_of_the_engine_lacks_is_its_own(release: Release) -> None:
    with pytest.raises(AttributeError), release.calling("Scheduler.run"):
        _ = SimpleNamespace().novelty


def test_arguments_are_those_that_the_signature_has(release: Release) -> None:
    def now(size: int, device: str = "cpu") -> tuple[int, str]:
        return size, device

    assert release.call(now, size=3, page_size=4) == (3, "cpu")
    with pytest.raises(EngineDriftError, match="now needs 'size'"):
        release.call(now, page_size=4)


def test_the_paged_kernels_in_python() -> None:
    out = numpy.zeros(5, int)
    before, after, last, free = map(numpy.array, ([3], [8], [6], [5, 9]))
    drift.extend(before, after, last, free, out, 1, 4)
    assert out.tolist() == [7, 20, 21, 22, 23]
    out = numpy.zeros(2, int)
    after, last, free = map(numpy.array, ([5, 7], [3, 9], [6]))
    drift.decode(after, last, free, out, 1, 4)
    assert out.tolist() == [24, 10]


@pytest.mark.parametrize(
    ("allocator", "pages"),
    [
        (SimpleNamespace(free_pages=numpy.array([3, 1]), release_pages=numpy.array([2])), (3, 1, 2)),
        (SimpleNamespace(free_pages=numpy.array([3]), staged_pages=[numpy.array([2]), numpy.array([2])]), (3, 2, 2)),
    ],
)
def test_the_free_list(allocator: object, pages: tuple[int, ...]) -> None:
    assert drift.free_list(allocator) == pages


@pytest.mark.parametrize(("entry", "expected"), [((1.0, 0, 1), (float("-inf"), 0, 1)), ((5.0, 1.0, 0, 1), (5.0, float("-inf"), 0, 1))])
def test_a_deadline_passes(entry: tuple[float, ...], expected: tuple[float, ...]) -> None:
    request = object()
    queue = SimpleNamespace(_deferred_releases=[(SimpleNamespace(req=request), *entry)])
    drift.expire(queue, request)
    assert queue._deferred_releases[0][1:] == expected


def test_a_log_of_a_release_without_any_target_says_so() -> None:
    header = header_for("0.5.99", {"prefill_limit": 5, "context": 64}, {"prefill": 4})
    told = {action for hook in HOOKS if hook.required for action in hook.actions}
    assert told <= header.silent.keys()
    assert header.unknown == {"decode_limit": "the other node is another process"}
    assert header.flags == {"prefill_pool_covers_context": False}
