"""Released engines in a cache folder: a wheel from the package registry, of which the Python files that take part are kept.

Nothing of an engine is part of kvmodel. `fetch` asks the registry that pip is configured for, notes the SHA-256 of the wheel and of each
file it keeps, and deletes the wheel. A release is either completely in the cache or not there at all.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec

from kvmodel.errors import FetchError, UsageError, nearest, printable

__all__ = ["ENGINES", "Unpack", "Wheel", "cache_folder", "cached", "fetch", "find"]

Progress = Callable[[str], None]

LAYOUT = 1  # of the cache; a release with another one is fetched again
MANIFEST, SITE, PARTIAL = "manifest.json", "site", ".partial-"
MOST_FILE, MOST_TOTAL = 4 * 2**20, 256 * 2**20  # bytes after unpacking: a wheel that wants more is refused
MOST_SECONDS = 1800.0  # of one download
STALE = 86_400.0  # seconds after which what a killed fetch left is removed
CHUNK = 2**20
NEAREST = 6

# Wheels for Linux, whatever runs here: only Python files are kept.
PLATFORMS = ("manylinux1_x86_64", "manylinux2014_x86_64", *(f"manylinux_2_{minor}_x86_64" for minor in range(17, 40)))

REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]{0,60})\s*==\s*([0-9][0-9A-Za-z.+!_-]{0,60})\s*")
OFFERED = re.compile(r"\(from versions: ([^)]*)\)")
FULL = re.compile(r"No space left on device|Disk quota exceeded", re.IGNORECASE)
OFFLINE = re.compile(
    r"NewConnectionError|NameResolutionError|Failed to establish a new connection|Max retries exceeded|Connection (?:refused|reset)|"
    r"Temporary failure in name resolution|ProxyError|ReadTimeout|ConnectTimeout|Network is unreachable",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Unpack:
    """Which Python files of an engine's wheel are kept: those below `within` and not below `without`."""

    within: tuple[str, ...]
    without: tuple[str, ...] = ()

    def keeps(self, name: str) -> bool:
        """Whether the member `name` of a wheel is kept.

        >>> Unpack(("vllm/v1/", "vllm/*")).keeps("vllm/version.py"), Unpack(("vllm/v1/", "vllm/*")).keeps("vllm/models/llama.py")
        (True, False)
        """
        folder, _, file = name.rpartition("/")
        if folder.endswith(".dist-info"):
            return file in ("METADATA", "entry_points.txt")
        if not file.endswith(".py") or name.startswith(self.without or "\0"):
            return False
        return any(f"{folder}/*" == place or name.startswith(place) for place in self.within)


# ``folder/`` is everything below it, ``folder/*`` the files in it.
ENGINES: Mapping[str, Unpack] = {
    "vllm": Unpack(("vllm/*", "vllm/v1/", "vllm/distributed/", "vllm/utils/", "vllm/config/")),
    "sglang": Unpack(("sglang/",), without=("sglang/multimodal_gen/",)),
}


@dataclass(frozen=True, slots=True)
class Wheel:
    """A release in the cache. `root` goes on ``sys.path``; `sha256` is the wheel's, as it came from the registry."""

    name: str
    version: str
    file: str
    sha256: str
    root: Path
    files: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a manifest."""

    sha256: str
    bytes: int


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is recorded beside an unpacked wheel."""

    layout: int
    name: str
    version: str
    wheel: str
    sha256: str
    within: tuple[str, ...]
    without: tuple[str, ...]
    files: dict[str, Kept]

    def current(self, unpack: Unpack) -> bool:
        """Whether this kvmodel would keep the same files."""
        return self.layout == LAYOUT and (self.within, self.without) == (unpack.within, unpack.without)


def cache_folder() -> Path:
    """Where releases are kept: ``KVMODEL_CACHE``, or ``kvmodel`` in the user's cache folder (XDG)."""
    if chosen := os.environ.get("KVMODEL_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "kvmodel"


def fetch(requirement: str, cache: Path | None = None, progress: Progress | None = None, again: bool = False) -> Wheel:
    """A release, from the cache or from the registry.

    `requirement` is ``vllm==0.33.0``. What is in the cache already is verified and not downloaded; `again` removes it first.
    Raises UsageError for another requirement, FetchError where there is no such release, no registry, no space, or where the cache was
    changed.
    """
    name, version = _parsed(requirement)
    folder = _folder(cache, name, version)
    if again:
        shutil.rmtree(folder, ignore_errors=True)
    if (found := _verified(folder, name, version)) is not None:
        return found
    tell = progress or (lambda line: None)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder.parent)
        with tempfile.TemporaryDirectory(prefix=PARTIAL, dir=folder.parent) as scratch:
            tell(f"downloading {name} {version}")
            wheel = _download(name, version, Path(scratch))
            tell(f"unpacking {wheel.name}")
            _unpack(wheel, Path(scratch) / "release", name, version)
            _publish(Path(scratch) / "release", folder)
    except OSError as problem:
        raise _unwritable(name, version, folder.parent, problem) from None
    found = _verified(folder, name, version)
    if found is None:
        raise FetchError(f"{name} {version}: {printable(str(folder))} vanished while it was being written")
    return found


def find(requirement: str, cache: Path | None = None) -> Wheel | None:
    """The release if it is in the cache, verified; None if it is not. Never downloads. Raises as `fetch`."""
    name, version = _parsed(requirement)
    return _verified(_folder(cache, name, version), name, version)


def cached(cache: Path | None = None) -> tuple[Wheel, ...]:
    """The releases in the cache, oldest first for each engine. They are not verified; a damaged manifest is a FetchError."""
    base = (cache or cache_folder()) / "engines"
    found = []
    for path in sorted(base.glob(f"*/{MANIFEST}")) if base.is_dir() else ():
        if not path.parent.name.startswith(PARTIAL):
            found.append(_wheel(_manifest(path), path.parent))
    return tuple(sorted(found, key=lambda wheel: (wheel.name, _numbers(wheel.version))))


def _parsed(requirement: str) -> tuple[str, str]:
    shown = printable(requirement, 100)
    match = REQUIREMENT.fullmatch(requirement)
    if not match:
        raise UsageError(f"{shown}: write NAME==VERSION, as in vllm==0.33.0")
    name, version = match[1].lower(), match[2]
    if name not in ENGINES:
        raise UsageError(f"{shown}: kvmodel has no adapter for '{name}'{nearest(name, list(ENGINES))}; known: {', '.join(ENGINES)}")
    return name, version


def _folder(cache: Path | None, name: str, version: str) -> Path:
    return (cache or cache_folder()) / "engines" / f"{name}-{version}"


# --- what is there


def _verified(folder: Path, name: str, version: str) -> Wheel | None:
    if not folder.is_dir():
        return None
    manifest = _manifest(folder / MANIFEST)
    if not manifest.current(ENGINES[name]):
        shutil.rmtree(folder, ignore_errors=True)
        return None
    if (manifest.name, manifest.version) != (name, version):
        raise _damaged(folder, f"its manifest is that of {manifest.name} {manifest.version}")
    root = folder / SITE
    try:
        for path, kept in manifest.files.items():
            if _digest(root / path) != (kept.sha256, kept.bytes):
                raise _damaged(folder, f"{path} was changed")
        for path in _python_files(root):
            if path not in manifest.files:
                raise _damaged(folder, f"{path} is not of the wheel")
    except OSError as problem:
        raise _damaged(folder, f"{Path(problem.filename or folder).name}: {problem.strerror}") from None
    return _wheel(manifest, folder)


def _python_files(root: Path) -> Iterator[str]:
    for place, folders, files in os.walk(root):
        if "__pycache__" in folders:
            folders.remove("__pycache__")
        for file in files:
            yield (Path(place) / file).relative_to(root).as_posix()


def _manifest(path: Path) -> Manifest:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except OSError as problem:
        raise _damaged(path.parent, f"{MANIFEST}: {problem.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise _damaged(path.parent, f"{MANIFEST}: {problem}") from None


def _wheel(manifest: Manifest, folder: Path) -> Wheel:
    total = sum(kept.bytes for kept in manifest.files.values())
    return Wheel(manifest.name, manifest.version, manifest.wheel, manifest.sha256, folder / SITE, len(manifest.files), total)


def _damaged(folder: Path, reason: str) -> FetchError:
    command = f"kvmodel engines fetch --again {folder.name.replace('-', '==', 1)}"
    return FetchError(printable(f"{folder}: {reason}; nothing of it is used. Fetch it again: {command}"))


def _digest(path: Path) -> tuple[str, int]:
    hasher, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            hasher.update(chunk)
            size += len(chunk)
    return hasher.hexdigest(), size


# --- what is fetched


def _download(name: str, version: str, scratch: Path) -> Path:
    """The wheel in `scratch`, as pip saves it."""
    platforms = [argument for platform in PLATFORMS for argument in ("--platform", platform)]
    command = [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--no-cache-dir"),
        *("--progress-bar", "off", "--retries", "2", *platforms, "--dest", str(scratch), f"{name}=={version}"),
    ]
    environment = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "TMPDIR": str(scratch)}
    try:
        run = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", timeout=MOST_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise FetchError(f"{name} {version}: not downloaded within {MOST_SECONDS / 60:.0f} minutes; nothing was kept") from None
    wheels = sorted(scratch.glob("*.whl"))
    if run.returncode or len(wheels) != 1:
        raise _refused(name, version, f"{run.stdout}\n{run.stderr}")
    return wheels[0]


def _refused(name: str, version: str, output: str) -> FetchError:
    """What pip's output means."""
    what = f"{name} {version} was not downloaded"
    if "No module named pip" in output:
        return FetchError(f"{what}: this Python has no pip; python -m ensurepip adds it")
    if FULL.search(output):
        return FetchError(f"{what}: the disk is full; a wheel needs some 400 MB until it is unpacked")
    offered = [entry.strip() for match in OFFERED.findall(output) for entry in match.split(",")]
    releases = [entry for entry in offered if entry and entry != "none"]
    if releases:
        return FetchError(f"{name} {version}: there is no such release with a wheel; nearest: {', '.join(_nearest(version, releases))}")
    if OFFLINE.search(output):
        return FetchError(f"{what}: the package registry cannot be reached (pip config list shows which one is asked)")
    if offered:
        return FetchError(f"{what}: the package registry that pip asks has no wheel of {name} at all (pip config list shows which one)")
    last = [line for line in output.splitlines() if line.strip()][-1:]
    return FetchError(printable(f"{what}: pip says: {''.join(last) or 'nothing'}", 600))


def _nearest(version: str, releases: list[str]) -> list[str]:
    """The releases around `version`, oldest first."""
    ordered = sorted(dict.fromkeys(releases), key=_numbers)
    before = sum(_numbers(entry) < _numbers(version) for entry in ordered)
    start = max(0, min(before - NEAREST // 2, len(ordered) - NEAREST))
    return ordered[start : start + NEAREST]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d{1,12}", version))


def _unpack(wheel: Path, target: Path, name: str, version: str) -> None:
    """What is kept of `wheel`, with its manifest, in the new folder `target`. Raises FetchError for a wheel that is not one."""
    unpack, sha256 = ENGINES[name], _digest(wheel)[0]
    files: dict[str, Kept] = {}
    total = 0
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                _safe(wheel.name, member.filename)
                if member.is_dir() or not unpack.keeps(member.filename):
                    continue
                if member.filename in files:
                    raise FetchError(f"{wheel.name}: {printable(member.filename, 200)} is in it twice; nothing was unpacked")
                content = _content(archive, member, wheel.name)
                total += len(content)
                if total > MOST_TOTAL:
                    raise FetchError(f"{wheel.name}: unpacks to more than {MOST_TOTAL // 2**20} MiB of Python; nothing was kept")
                path = target / SITE / member.filename
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                files[member.filename] = Kept(hashlib.sha256(content).hexdigest(), len(content))
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as problem:
        if isinstance(problem, FetchError):
            raise
        raise FetchError(f"{wheel.name}: is not a readable wheel: {printable(str(problem), 200)}; nothing was kept") from None
    if not any(path.endswith(".py") for path in files):
        raise FetchError(f"{wheel.name}: has no Python file below {', '.join(unpack.within)}; nothing was kept")
    manifest = Manifest(LAYOUT, name, version, wheel.name, sha256, unpack.within, unpack.without, files)
    (target / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    wheel.unlink()


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo, wheel: str) -> bytes:
    with archive.open(member) as source:
        content = source.read(MOST_FILE + 1)  # what the archive says about sizes is not believed
    if len(content) > MOST_FILE:
        raise FetchError(f"{wheel}: {printable(member.filename, 200)} has more than {MOST_FILE // 2**20} MiB; nothing was kept")
    return content


def _safe(wheel: str, name: str) -> None:
    """Refuse a member that would be written outside of its folder."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\\" in name or ":" in name or not name.isprintable():
        raise FetchError(f"{wheel}: refused, because of a member named '{printable(name, 200)}'; nothing was unpacked")


def _publish(release: Path, folder: Path) -> None:
    """Move a complete release to its place; another process may have done so first."""
    try:
        release.rename(folder)
    except OSError as problem:
        if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _sweep(base: Path) -> None:
    """Remove what killed fetches left."""
    for path in base.glob(f"{PARTIAL}*"):
        if time.time() - path.stat().st_mtime > STALE:
            shutil.rmtree(path, ignore_errors=True)


def _unwritable(name: str, version: str, base: Path, problem: OSError) -> FetchError:
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        reason = "the disk is full; a wheel needs some 400 MB until it is unpacked"
    else:
        reason = problem.strerror or type(problem).__name__
    message = f"{name} {version}: {base} cannot be written: {reason}; nothing was kept. KVMODEL_CACHE names another folder"
    return FetchError(printable(message))
