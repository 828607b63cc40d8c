"""The recorder on an engine of a few lines that has what it wraps, where vLLM would be: what it writes, and that it never disturbs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import kvmodel
from kvmodel.engines.log.check import check_log
from kvmodel.engines.log.redact import Redaction
from kvmodel.engines.vllm import recorder
from kvmodel.engines.vllm.recorder import TARGETS, Recorder, plugin


class Block(SimpleNamespace):
    """A block of the fake pool."""


class BlockPool:
    def __init__(self, size: int) -> None:
        self.blocks = [Block(block_id=number, is_null=number == 0, block_hash=None) for number in range(size)]
        self.null_block = self.blocks[0]
        self.free = self.blocks[1:]

    def get_new_blocks(self, count: int) -> list[Block]:
        taken, self.free = self.free[:count], self.free[count:]
        return taken

    def touch(self, blocks: Any) -> None: ...

    def free_blocks(self, ordered_blocks: Any) -> None:
        self.free += list(ordered_blocks)

    def cache_full_blocks(self, request: Any, blocks: list[Block], num_cached_blocks: int, num_full_blocks: int, block_size: int) -> None:
        for number in range(num_cached_blocks, num_full_blocks):
            blocks[number].block_hash = request.block_hashes[number] + b"\0\0\0\0"

    def reset_prefix_cache(self) -> bool:
        return True


class KVCacheManager:
    def __init__(self, pool: BlockPool) -> None:
        self.block_pool = pool
        self.tables: dict[str, list[Block]] = {}

    def allocate_slots(self, request: Any, count: int) -> None:
        self.tables[request.request_id] = self.block_pool.get_new_blocks(count)
        self.block_pool.cache_full_blocks(request, self.tables[request.request_id], 0, 1, 2)

    def free(self, request: Any) -> None:
        self.block_pool.free_blocks(reversed(self.tables.pop(request.request_id)))


class Scheduler:
    def schedule(self) -> None: ...

    def update_from_output(self) -> None: ...

    def _connector_finished(self) -> None: ...

    def _update_from_kv_xfer_finished(self) -> None: ...


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Modules named as vLLM's, with classes that a test may change."""
    kinds = (BlockPool, KVCacheManager, Scheduler)
    classes: dict[str, Any] = {kind.__name__: type(kind.__name__, (kind,), dict(vars(kind))) for kind in kinds}
    for module, name in TARGETS:
        made = ModuleType(module)
        setattr(made, name, classes[name])
        monkeypatch.setitem(sys.modules, module, made)
    return classes


def request(name: str = "r0", finished: bool = True) -> Any:
    return SimpleNamespace(request_id=name, block_hashes=[b"\x01\x02"], num_computed_tokens=0, is_finished=lambda: finished)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_is_written(vllm: dict[str, Any], tmp_path: Path) -> None:
    recording = Recorder(str(tmp_path / "log-{pid}"), "9.9").install()
    manager = vllm["KVCacheManager"](vllm["BlockPool"](4))
    for finished in (False, False, True, True):  # preempted twice, ends, and the name is used again
        made = request(finished=finished)
        manager.allocate_slots(made, 2)
        manager.free(made)
    recording.remove()
    (path,) = tmp_path.iterdir()
    header, *events, end = lines(path)
    assert (header["engine"], header["version"], header["spec"], header["pools"]) == ("vllm", "9.9", "cached", {"gpu": 4})
    assert header["values"] == {"null": [0]}
    told = [(event["event"], event.get("request"), event.get("pages")) for event in events]
    assert told[:6] == [
        ("set_aside", None, [0]),
        ("allocate", "r0", [1, 2]),
        ("fill", "r0", [1]),
        ("compute", "r0", [1]),
        ("index", "r0", [1]),
        ("release", "r0", None),
    ]
    assert events[4]["prefix"] == "0102"
    assert events[4]["values"] == {"begins_with": ["0102"]}
    assert [name for what, name, _ in told if what == "release"] == ["r0", "r0~2", "r0~3", "r0"]
    assert end == {"kvmodel_log_end": len(events)}


def test_removed_without_a_trace(vllm: dict[str, Any], tmp_path: Path) -> None:
    before = {name: dict(vars(kind)) for name, kind in vllm.items()}
    recording = Recorder(str(tmp_path / "log"), "9.9").install()
    assert {name: dict(vars(kind)) for name, kind in vllm.items()} != before
    recording.remove()
    assert {name: {key: value for key, value in vars(kind).items() if key in before[name]} for name, kind in vllm.items()} == before


def test_a_missing_method_is_named_and_nothing_else_is_written(vllm: dict[str, Any], tmp_path: Path) -> None:
    del vllm["Scheduler"].schedule
    original = Scheduler.schedule
    del Scheduler.schedule  # also of its base
    try:
        recording = Recorder(str(tmp_path / "log"), "9.9").install()
        manager = vllm["KVCacheManager"](vllm["BlockPool"](4))
        manager.allocate_slots(request(), 2)
        recording.remove()
    finally:
        Scheduler.schedule = original  # type: ignore[method-assign]
    header, end = lines(tmp_path / "log")
    assert header["engine"] == "vllm"
    assert end == {"kvmodel_log_end": 0, "reason": "incomplete: vllm 9.9 has no vllm.v1.core.sched.scheduler.Scheduler.schedule"}


def test_what_the_recorder_does_not_understand_stops_it_and_not_the_engine(vllm: dict[str, Any], tmp_path: Path) -> None:
    recording = Recorder(str(tmp_path / "log"), "9.9").install()
    manager = vllm["KVCacheManager"](vllm["BlockPool"](4))
    manager.allocate_slots(request("r0"), 1)
    strange = request("r1")
    del strange.is_finished
    manager.allocate_slots(strange, 1)
    manager.free(strange)
    manager.allocate_slots(request("r2"), 1)
    recording.remove()
    end = lines(tmp_path / "log")[-1]
    assert "the recorder failed in end: AttributeError" in end["reason"]
    assert end["lost"] > 0


def test_a_page_that_is_given_back_twice_is_a_step_that_nothing_explains(vllm: dict[str, Any], tmp_path: Path) -> None:
    recording = Recorder(str(tmp_path / "log"), "9.9").install()
    manager = vllm["KVCacheManager"](vllm["BlockPool"](4))
    manager.allocate_slots(request(), 2)
    blocks = manager.tables["r0"]
    manager.free(request())
    manager.block_pool.free_blocks(blocks[:1])
    recording.remove()
    events = lines(tmp_path / "log")[1:-1]
    assert [(event["event"], event["request"], event.get("pages")) for event in events[-2:]] == [
        ("release", "r0", None),
        ("drain", "r0", [1]),
    ]
    with open(tmp_path / "log", "rb") as file:
        result = check_log(file, lambda header: kvmodel.load(header.spec), Redaction())
    assert {entry.name: entry.verdict.value for entry in result.properties}["allowed_step"] == "violated"


def test_a_page_that_is_given_back_alone_stops_it(vllm: dict[str, Any], tmp_path: Path) -> None:
    def allocate_slots(self: Any, made: Any, count: int) -> None:
        self.block_pool.free_blocks(self.block_pool.get_new_blocks(1))

    vllm["KVCacheManager"].allocate_slots = allocate_slots
    recording = Recorder(str(tmp_path / "log"), "9.9").install()
    vllm["KVCacheManager"](vllm["BlockPool"](4)).allocate_slots(request(), 1)
    recording.remove()
    assert "cache groups with a window are not recorded" in lines(tmp_path / "log")[-1]["reason"]


def test_a_second_pool_has_a_file_of_its_own(vllm: dict[str, Any], tmp_path: Path) -> None:
    recording = Recorder(str(tmp_path / "log"), "9.9").install()
    for size in (4, 6):
        vllm["KVCacheManager"](vllm["BlockPool"](size)).allocate_slots(request(), 1)
    recording.remove()
    assert [lines(tmp_path / name)[0]["pools"]["gpu"] for name in ("log", "log-2")] == [4, 6]


def test_the_plugin_asks_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed: list[str] = []

    class Fake:
        def __init__(self, path: str) -> None:
            installed.append(path)

        def install(self) -> Fake:
            return self

        def close(self) -> None: ...

    monkeypatch.setattr(recorder, "Recorder", Fake)
    monkeypatch.delenv("KVMODEL_LOG", raising=False)
    plugin()
    assert installed == []
    monkeypatch.setenv("KVMODEL_LOG", str(tmp_path / "log"))
    plugin()
    assert installed == [str(tmp_path / "log")]
