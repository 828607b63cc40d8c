"""Stand-ins: everything passes an import, nothing is emulated, and calling one after sealing is drift."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from abc import ABC
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvmodel.engines.standins import Plan, StandIns
from kvmodel.errors import EngineDriftError

PLAN = Plan(
    missing=frozenset({"gpulib", "json"}),  # json is there, so it stays itself
    forced=frozenset({"colorsys", "enginex.heavy"}),
    package="enginex",
    real=("enginex.core",),
    values={"gpulib.runtime": {"__version__": "3.7", "cdiv": lambda a, b: -(-a // b)}, "enginex.log": {"level": "quiet"}},
    called=("gpulib.compile",),
)


@pytest.fixture
def stand_ins(tmp_path: Path) -> Iterator[StandIns]:
    core = tmp_path / "enginex" / "core"
    core.mkdir(parents=True)
    (tmp_path / "enginex" / "__init__.py").write_text("raise RuntimeError('the package itself does not run')\n")
    (tmp_path / "enginex" / "heavy.py").write_text("raise RuntimeError('nor does this')\n")
    (core / "__init__.py").write_text("")
    (core / "pool.py").write_text(
        "from __future__ import annotations\n"
        "from gpulib import Tensor, kernel, float16\n"
        "from enginex.heavy import Config\n"
        "from enginex.log import level\n"
        "from enginex import core\n"
        "class Pool(Config):\n    size: Tensor | None = None\n    def __init__(self, n): self.n = n\n"
        "@kernel\ndef run(): return 1\n"
        "@kernel(fast=True)\ndef walk(): return 2\n"
    )
    before = set(sys.modules)
    removed = sys.modules.pop("colorsys", None)
    found = StandIns(PLAN, tmp_path, "enginex", "1.2", "1.0 to 1.1").install()
    sys.path.insert(0, str(tmp_path))
    yield found
    sys.path.remove(str(tmp_path))
    found.remove()
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("enginex", "gpulib"):
            del sys.modules[name]
    if removed is not None:
        sys.modules["colorsys"] = removed


def test_real_modules_import_through_stand_ins(stand_ins: StandIns) -> None:
    pool: Any = importlib.import_module("enginex.core.pool")
    assert (pool.Pool(3).n, pool.run(), pool.walk(), pool.level, pool.core.__name__) == (3, 1, 2, "quiet", "enginex.core")
    assert set(stand_ins.modules) == {"enginex", "enginex.heavy", "enginex.log", "gpulib"}
    assert stand_ins.modules["gpulib"] == {"Tensor", "kernel", "float16"}
    assert stand_ins.calls == {"gpulib.kernel": 2, "gpulib.kernel()": 1}


def test_what_is_installed_stays_itself(stand_ins: StandIns) -> None:
    assert importlib.import_module("json").dumps([1]) == "[1]"
    assert not stand_ins.stands_in("json")
    assert stand_ins.stands_in("colorsys")  # forced
    assert repr(importlib.import_module("colorsys").rgb_to_hsv) == "<stand-in for colorsys.rgb_to_hsv>"


def test_values_are_given(stand_ins: StandIns) -> None:
    gpulib: Any = importlib.import_module("gpulib")
    assert (gpulib.runtime.__version__, gpulib.runtime.cdiv(7, 2)) == ("3.7", 4)


def test_a_stand_in_passes_what_modules_do_when_they_are_imported(stand_ins: StandIns) -> None:
    gpulib: Any = importlib.import_module("gpulib")

    class Layer(gpulib.Module, ABC):  # type: ignore[misc]
        pass

    class Other(gpulib.factory):  # type: ignore[misc]
        pass

    assert not Layer().anything
    assert gpulib.Tensor | None is gpulib.Tensor
    assert gpulib.Tensor["a"] is gpulib.Tensor
    assert not isinstance(1, gpulib.Tensor)
    assert not isinstance(1, gpulib.dtype)
    assert list(gpulib.Modes) == []
    assert "fast" not in gpulib.modes
    assert not hasattr(gpulib, "__wrapped__")
    with gpulib.no_grad():
        assert Other.__bases__ == (object,)
    with pytest.raises(TypeError):
        gpulib.limit + 1  # a value that matters is never made up


def test_probes_are_told_that_it_is_missing(stand_ins: StandIns) -> None:
    assert importlib.util.find_spec("gpulib") is None
    importlib.import_module("gpulib")
    assert importlib.util.find_spec("gpulib") is None
    assert importlib.util.find_spec("json") is not None


def test_a_call_after_sealing_is_drift(stand_ins: StandIns) -> None:
    gpulib: Any = importlib.import_module("gpulib")
    gpulib.setup()
    stand_ins.seal()
    gpulib.compile()
    for call in (gpulib.setup, gpulib.Tensor, gpulib.Tensor.zeros):
        with pytest.raises(EngineDriftError, match=r"^enginex 1\.2 has no bookkeeping without gpulib\.(setup|Tensor)"):
            call()


def test_removed_without_a_trace(tmp_path: Path) -> None:
    probe = importlib.util.find_spec
    found = StandIns(Plan(missing=frozenset({"gpulib2"}))).install()
    importlib.import_module("gpulib2.kernels")
    found.remove()
    assert importlib.util.find_spec is probe
    assert not {"gpulib2", "gpulib2.kernels"} & set(sys.modules)
    with pytest.raises(ImportError):
        importlib.import_module("gpulib2")
