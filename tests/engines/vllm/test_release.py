"""A release that is not as kvmodel knows it is said to be so, by name and symbol, and never taken for a finding. No engine is needed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvmodel.engines.vllm import release
from kvmodel.engines.vllm.release import KNOWN, RELEASES, boot
from kvmodel.engines.wheels import Wheel
from kvmodel.errors import EngineDriftError, UsageError

# The least that a release has to have. Each test takes something away.
FILES = {
    "vllm/__init__.py": "raise RuntimeError('is never run')\n",
    "vllm/utils/hashing.py": "def sha256(value): return b''\n",
    "vllm/v1/core/__init__.py": "",
    "vllm/v1/core/kv_cache_utils.py": "import torch\ndef init_none_hash(hashing): ...\ndef get_request_block_hasher(*a): ...\n"
    "def make_block_hash_with_group_id(*a): ...\n",
    "vllm/v1/core/block_pool.py": "class BlockPool: ...\n",
    "vllm/v1/core/kv_cache_manager.py": "class KVCacheManager:\n    def __init__(self, blocks): ...\n"
    "    def allocate_slots(self, request): ...\n",
    "vllm/v1/core/sched/scheduler.py": "from vllm.config import VllmConfig\nclass Scheduler: ...\n",
    "vllm/v1/kv_cache_interface.py": "class FullAttentionSpec: ...\nclass KVCacheGroupSpec:\n    def __init__(self, layers, spec): ...\n"
    "class KVCacheConfig: ...\n",
    "vllm/v1/request.py": "class Request:\n    def __init__(self, name): ...\nclass RequestStatus: ...\n",
}


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    """Makes ``vllm==9.9.9`` of files."""
    monkeypatch.setattr(release, "_booted", None)
    root = tmp_path / "site"
    monkeypatch.setattr(release, "fetch", lambda *given: Wheel("vllm", "9.9.9", "", "", root, 0, 0))

    def write(files: dict[str, str]) -> None:
        for name, content in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content)

    return write


def forget() -> None:
    """Undo a boot that succeeded."""
    booted = release._booted
    assert booted is not None
    assert booted.stand_ins is not None
    booted.stand_ins.remove()
    sys.path.remove(str(booted.stand_ins.root))
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        del sys.modules[name]


def without(name: str, text: str = "") -> dict[str, str]:
    return {file: content.replace(text, "") if file == name else content for file, content in FILES.items() if file != name or text}


@pytest.mark.parametrize(
    ("files", "symbol"),
    [
        (without("vllm/v1/core/block_pool.py"), "vllm.v1.core.block_pool"),
        (without("vllm/v1/core/block_pool.py", "class BlockPool: ..."), "vllm.v1.core.block_pool.BlockPool"),
        (without("vllm/v1/core/kv_cache_manager.py", "def allocate_slots(self, request): ..."),
         "vllm.v1.core.kv_cache_manager.KVCacheManager.allocate_slots"),
        (without("vllm/v1/core/kv_cache_utils.py", "def init_none_hash(hashing): ..."), "vllm.v1.core.kv_cache_utils.init_none_hash"),
        ({**FILES, "vllm/v1/request.py": "1 / 0\n"}, "vllm.v1.request"),
        ({**FILES, "vllm/v1/request.py": "import a_package_that_is_new\n"}, "vllm.v1.request"),
    ],
)  # fmt: skip
def test_drift_names_release_and_symbol(make: Callable[[dict[str, str]], None], files: dict[str, str], symbol: str) -> None:
    make(files)
    with pytest.raises(EngineDriftError) as caught:
        boot("9.9.9")
    assert str(caught.value).startswith(f"vllm 9.9.9 has no {symbol}")
    assert str(caught.value).endswith(f": kvmodel knows {KNOWN}")
    assert (caught.value.release, caught.value.symbol) == ("9.9.9", symbol)
    # and nothing of it is left
    assert not [name for name in sys.modules if name.partition(".")[0] == "vllm"]
    assert not [finder for finder in sys.meta_path if type(finder).__name__ == "StandIns"]
    assert importlib.util.find_spec("vllm") is None


def test_objects_that_cannot_be_made_as_before(make: Callable[[dict[str, str]], None]) -> None:
    make(FILES)
    booted = boot("9.9.9")
    try:
        with pytest.raises(EngineDriftError, match=r"has no vllm\.v1\.core\.kv_cache_manager\.KVCacheManager that can be made as before"):
            booted.manager(4, 2, (None,))
        with pytest.raises(EngineDriftError, match="Request that can be made as before"):
            booted.request("r0", (1, 2), None, 2)
        with pytest.raises(UsageError, match=r"has vllm 9\.9\.9 already; vllm 1\.0 needs a process of its own"):
            boot("1.0")
        assert boot("9.9.9") is booted
        assert (booted.can_detach, booted.can_evict) == (False, False)
    finally:
        forget()


def test_the_releases_are_in_order() -> None:
    numbers = [tuple(map(int, each.split("."))) for each in RELEASES]
    assert numbers == sorted(numbers)
    assert f"{RELEASES[0]} to {RELEASES[-1]}" == KNOWN
