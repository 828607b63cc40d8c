"""Releases in the cache, from a folder that pip is told to look in instead of a registry; and each thing that can go wrong."""

from __future__ import annotations

import errno
import json
import os
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kvmodel import cli
from kvmodel.engines import wheels
from kvmodel.engines.wheels import cached, fetch, find
from kvmodel.errors import FetchError, UsageError

FILES = {
    "vllm/__init__.py": "",
    "vllm/version.py": "__version__ = '1.2.3'\n",
    "vllm/v1/core/block_pool.py": "class BlockPool: ...\n",
    "vllm/models/llama.py": "import torch\n",
    "vllm/_C.abi3.so": "compiled",
    "vllm/v1/table.json": "{}",
}
KEPT = {"vllm/__init__.py", "vllm/version.py", "vllm/v1/core/block_pool.py", "vllm-1.2.3.dist-info/METADATA"}


def make_wheel(folder: Path, files: Mapping[str, str] = FILES, version: str = "1.2.3", tag: str = "py3-none-any") -> Path:
    info = f"vllm-{version}.dist-info"
    path = folder / f"vllm-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in files.items():
            archive.writestr(member, content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\nRequires-Python: ==2.7\n")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip looks in, and nowhere else; the cache is beside it."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "registry"))
    monkeypatch.setenv("KVMODEL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "registry").mkdir()
    return tmp_path / "registry"


@pytest.fixture
def offered(registry: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same without starting pip: its download is a copy."""

    def download(name: str, version: str, scratch: Path) -> Path:
        path = next(registry.glob(f"{name}-{version}-*.whl"))
        copy = scratch / path.name
        copy.write_bytes(path.read_bytes())
        return copy

    monkeypatch.setattr(wheels, "_download", download)
    return registry


def left(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.rglob("*") if path.is_file())


def test_what_takes_part_is_kept(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = make_wheel(registry, tag="cp38-abi3-manylinux_2_28_x86_64")
    told: list[str] = []
    found = fetch("vllm==1.2.3", progress=told.append)
    assert {path.relative_to(found.root).as_posix() for path in found.root.rglob("*") if path.is_file()} == KEPT
    assert (found.name, found.version, found.file, found.files) == ("vllm", "1.2.3", wheel.name, len(KEPT))
    assert found.sha256 == wheels._digest(wheel)[0]
    assert told == ["downloading vllm 1.2.3", f"unpacking {wheel.name}"]
    # and the second call asks nobody
    monkeypatch.setattr(wheels, "_download", None)
    assert fetch(" vLLM == 1.2.3 ", progress=told.append) == found == find("vllm==1.2.3")
    assert (len(told), cached()) == (2, (found,))
    assert not list(registry.parent.glob("cache/**/*.whl"))


def test_no_such_release(registry: Path) -> None:
    for version in ("0.9.2", "0.10.0", "0.11.0", "0.11.2", "0.12.0", "0.33.0", "0.34.0", "1.0.0"):
        make_wheel(registry, version=version)
    with pytest.raises(FetchError, match="no such release with a wheel; nearest: 0.10.0, 0.11.0, 0.11.2, 0.12.0, 0.33.0, 0.34.0$"):
        fetch("vllm==0.11.7")
    assert left(registry.parent / "cache") == []


def test_no_registry(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(FetchError, match="the package registry cannot be reached"):
        fetch("vllm==1.2.3")
    assert left(registry.parent / "cache") == []


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "the disk is full"),
        ("/usr/bin/python3: No module named pip", "has no pip"),
        ("ERROR: Could not find a version that satisfies the requirement vllm==1 (from versions: none)", "has no wheel of vllm at all"),
        ("WARNING: something\nERROR: \x1b[31mHTTP error 403 while getting it", r"pip says: ERROR: \\x1b\[31mHTTP error 403"),
        ("", "pip says: nothing"),
    ],
)
def test_what_pip_says(output: str, message: str) -> None:
    with pytest.raises(FetchError, match=message):
        raise wheels._refused("vllm", "1", output)


@pytest.mark.parametrize(
    "requirement", ["vllm", "vllm>=1", "vllm==", "==1", "vllm==1==2", "vllm==1;x", "vllm @ file:///x", "--pre", "", "vllm==../1"]
)
def test_what_is_no_requirement(requirement: str) -> None:
    with pytest.raises(UsageError, match="write NAME==VERSION"):
        fetch(requirement)


def test_an_engine_that_is_not_known() -> None:
    with pytest.raises(UsageError, match="no adapter for 'vlm'; did you mean 'vllm'"):
        fetch("vlm==1.0")


@pytest.mark.parametrize("member", ["../evil.py", "/evil.py", "vllm/../../evil.py", "vllm\\..\\evil.py", "C:evil.py", "vllm/\x1bevil.py"])
def test_members_that_leave_their_folder(offered: Path, member: str) -> None:
    make_wheel(offered, {**FILES, member: "evil"})
    with pytest.raises(FetchError, match="refused, because of a member named"):
        fetch("vllm==1.2.3")
    assert left(offered.parent) == ["vllm-1.2.3-py3-none-any.whl"]  # the registry's own


def test_wheels_that_are_too_much(offered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheel(offered, {**FILES, "vllm/v1/large.py": "#" * 5_000})
    monkeypatch.setattr(wheels, "MOST_FILE", 4_000)
    with pytest.raises(FetchError, match="vllm/v1/large.py has more than"):
        fetch("vllm==1.2.3")
    monkeypatch.setattr(wheels, "MOST_FILE", 6_000)
    monkeypatch.setattr(wheels, "MOST_TOTAL", 4_500)
    with pytest.raises(FetchError, match="unpacks to more than"):
        fetch("vllm==1.2.3")
    assert left(offered.parent / "cache") == []


def test_wheels_that_are_none(offered: Path) -> None:
    path = make_wheel(offered, {"vllm/models/llama.py": ""})
    with pytest.raises(FetchError, match="has no Python file below vllm/"):
        fetch("vllm==1.2.3")
    path.write_bytes(b"PK, but no archive")
    with pytest.raises(FetchError, match="is not a readable wheel"):
        fetch("vllm==1.2.3")
    content = bytearray(make_wheel(offered).read_bytes())
    content[content.index(b"class BlockPool") + 2] ^= 1  # the archive's own checksum notices
    path.write_bytes(content)
    with pytest.raises(FetchError, match="is not a readable wheel"):
        fetch("vllm==1.2.3")
    assert left(offered.parent / "cache") == []


@pytest.mark.parametrize(("number", "message"), [(errno.ENOSPC, "the disk is full"), (errno.EROFS, "Read-only file system")])
def test_a_disk_that_takes_no_more(offered: Path, monkeypatch: pytest.MonkeyPatch, number: int, message: str) -> None:
    make_wheel(offered)
    write = Path.write_bytes

    def failing(self: Path, content: bytes) -> int:
        if self.name == "block_pool.py":
            raise OSError(number, os.strerror(number), str(self))
        return write(self, content)

    monkeypatch.setattr(Path, "write_bytes", failing)
    with pytest.raises(FetchError, match=message):
        fetch("vllm==1.2.3")
    assert (left(offered.parent / "cache"), find("vllm==1.2.3")) == ([], None)


def test_a_cache_that_cannot_be_made(offered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (offered.parent / "file").write_text("")
    monkeypatch.setenv("KVMODEL_CACHE", str(offered.parent / "file"))
    with pytest.raises(FetchError, match="KVMODEL_CACHE names another folder"):
        fetch("vllm==1.2.3")


def changed(root: Path) -> None:
    (root / "vllm/v1/core/block_pool.py").write_text("class BlockPool: evil = True\n")


def removed(root: Path) -> None:
    (root / "vllm/version.py").unlink()


def added(root: Path) -> None:
    (root / "vllm/v1/extra.py").write_text("")


def unreadable(root: Path) -> None:
    (root.parent / "manifest.json").write_text('{"layout": 1')


def without_manifest(root: Path) -> None:
    (root.parent / "manifest.json").unlink()


def of_another(root: Path) -> None:
    path = root.parent / "manifest.json"
    path.write_text(path.read_text().replace('"version":"1.2.3"', '"version":"1.2.4"'))


@pytest.mark.parametrize("damage", [changed, removed, added, unreadable, without_manifest, of_another])
def test_a_cache_that_was_changed(offered: Path, damage: Any) -> None:
    make_wheel(offered)
    found = fetch("vllm==1.2.3")
    damage(found.root)
    for use in (fetch, find):
        with pytest.raises(FetchError, match="nothing of it is used. Fetch it again: kvmodel engines fetch --again vllm==1.2.3"):
            use("vllm==1.2.3")
    assert fetch("vllm==1.2.3", again=True) == found == fetch("vllm==1.2.3")


def test_what_importing_leaves_is_no_damage(offered: Path) -> None:
    make_wheel(offered)
    found = fetch("vllm==1.2.3")
    (found.root / "vllm/__pycache__").mkdir()
    (found.root / "vllm/__pycache__/version.cpython-311.pyc").write_bytes(b"")
    assert fetch("vllm==1.2.3") == found


def test_a_cache_of_another_kvmodel_is_fetched_again(offered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheel(offered)
    assert fetch("vllm==1.2.3").files == len(KEPT)
    monkeypatch.setattr(wheels, "ENGINES", {"vllm": wheels.Unpack(("vllm/",))})
    assert fetch("vllm==1.2.3").files == len(KEPT) + 1


def test_what_a_killed_fetch_left(offered: Path) -> None:
    make_wheel(offered)
    old, new = (offered.parent / "cache/engines" / f".partial-{age}" for age in ("old", "new"))
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (time.time() - 2 * wheels.STALE,) * 2)
    fetch("vllm==1.2.3")
    assert (old.exists(), new.exists(), len(cached())) == (False, True, 1)


def test_another_process_was_first(offered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheel(offered)
    publish = wheels._publish

    def second(release: Path, folder: Path) -> None:
        publish(release, folder)
        changed_copy = release.parent / "mine"
        changed_copy.mkdir()
        (changed_copy / "manifest.json").write_text("")
        publish(changed_copy, folder)

    monkeypatch.setattr(wheels, "_publish", second)
    assert fetch("vllm==1.2.3").files == len(KEPT)


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KVMODEL_CACHE", "~/mine")
    assert wheels.cache_folder() == Path.home() / "mine"
    monkeypatch.delenv("KVMODEL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert wheels.cache_folder() == tmp_path / "kvmodel"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the XDG rules say to ignore it
    assert wheels.cache_folder() == Path.home() / ".cache/kvmodel"


def test_the_command(offered: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = make_wheel(offered)
    assert cli.run(["engines", "list"]) == 0
    assert "no releases in" in capsys.readouterr().out
    assert cli.run(["engines", "fetch", "vllm==1.2.3"]) == 0
    out = capsys.readouterr().out
    for words in ("vllm 1.2.3: 4 Python files", wheel.name, wheels._digest(wheel)[0], str(offered.parent / "cache")):
        assert words in out
    assert cli.run(["engines", "list"]) == 0
    assert capsys.readouterr().out == out
    assert cli.run(["engines", "fetch", "vllm==1.2.3", "--json"]) == 0
    fetched = json.loads(capsys.readouterr().out)
    assert cli.run(["engines", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert fetched["releases"] == listed["releases"]
    assert (listed["releases"][0]["sha256"], listed["cache"]) == (wheels._digest(wheel)[0], str(offered.parent / "cache"))


def test_errors_of_the_command(registry: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["engines", "fetch", "vllm==1.2.3", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["kind"] == "FetchError"
    assert "has no wheel of vllm at all" in error["message"]
    assert cli.run(["engines", "fetch"]) == 2
    assert cli.run(["engines", "fetch", "vllm"]) == 2
    assert "write NAME==VERSION" in capsys.readouterr().err
