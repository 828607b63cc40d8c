"""A release of SGLang in this process: on ``sys.path``, with stand-ins, its scheduler imported."""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

from kvmodel.engines.standins import Plan, StandIns
from kvmodel.engines.wheels import Progress, Wheel, fetch
from kvmodel.errors import EngineDriftError, UsageError

__all__ = ["KNOWN", "PLAN", "RELEASES", "Release", "StandIn", "boot", "release_for"]

RELEASES = ("0.5.11", "0.5.16", "0.5.17", "0.5.18", "0.5.19", "0.5.20", "0.5.21", "0.5.22", "0.5.23")
KNOWN = f"{RELEASES[0]} and {RELEASES[1]} to {RELEASES[-1]}"

NEEDED = ("torch", "psutil", "packaging", "starlette", "pydantic", "safetensors", "regex", "yaml", "zmq")
"""What SGLang imports and is not stood in for: the extra `engines`."""

# Kernels, model code, tokenizers, images and sound, HTTP servers, metrics, other transports.
MISSING = frozenset(
    {
        "IPython", "PIL", "aiohttp", "anthropic", "apache_tvm_ffi", "av", "blobfile", "cloudpickle",
        "compressed_tensors", "cuda", "cuda_tile", "cutlass", "datasets", "decord", "decord2", "deep_ep", "deep_gemm",
        "dill", "distro", "easydict", "einops", "fastapi", "flashinfer", "gguf", "grpc", "helion", "humming",
        "interegular", "kernels", "llguidance", "mistral_common", "modelscope", "mooncake", "multipart", "nixl",
        "numba", "nvshmem", "openai", "openai_harmony", "opentelemetry", "orjson", "outlines", "outlines_core",
        "partial_json_parser", "prometheus_client", "py_spy", "pybase64", "pynvml", "quack", "ray", "requests", "scipy",
        "sentencepiece", "setproctitle", "sgl_kernel", "smg_grpc_proto", "smg_grpc_servicer", "soundfile", "tiktoken",
        "tilelang", "timm", "torch_memory_saver", "torchao", "torchaudio", "torchcodec", "torchvision", "tqdm",
        "tvm_ffi", "uvicorn", "uvloop", "watchfiles", "xgrammar", "xxhash", "zstandard",
    }
)  # fmt: skip


class Driver:
    """What Triton says of a machine without a GPU."""

    class active:
        """The active driver."""

        @staticmethod
        def get_current_target() -> Any:
            return SimpleNamespace(backend="cpu", arch="cpu", warp_size=1)

        @staticmethod
        def get_current_device() -> int:
            return 0

        @staticmethod
        def get_active_torch_device() -> Any:
            return importlib.import_module("torch").device("cpu")


class Registry:
    """What model configurations are registered with."""

    _extra_content: ClassVar[dict[str, object]] = {}

    @classmethod
    def register(cls, *arguments: Any, **named: Any) -> None:
        return None


REGISTRIES: dict[str, object] = {
    name: type(name, (Registry,), {})
    for name in ("AutoConfig", "AutoImageProcessor", "AutoModel", "AutoProcessor", "AutoTokenizer", "CONFIG_MAPPING", "TOKENIZER_MAPPING")
}

PLAN = Plan(
    missing=MISSING,
    # Heavy where they are installed; patches of transformers; compilers; chat formats and weights. Half of the time of an import.
    forced=frozenset(
        {
            *("transformers", "huggingface_hub", "triton"),
            *("sglang.srt.utils.hf_transformers_patches", "sglang.srt.compilation.compiler_interface"),
            *("torch._dynamo", "torch._inductor"),
            *("sglang.srt.parser.reasoning_parser", "sglang.srt.entrypoints.openai"),
            *(f"sglang.srt.layers.quantization.{name}" for name in ("awq", "compressed_tensors", "modelopt_quant")),
        }
    ),
    package="sglang",
    called=("torch._dynamo", "torch._inductor"),
    values={
        "triton": {
            "__version__": "3.7.0",
            "cdiv": lambda a, b: -(-a // b),
            "next_power_of_2": lambda n: 1 << max(0, n - 1).bit_length(),
        },
        "triton.runtime": {"driver": Driver},
        "triton.compiler": {"CompiledKernel": type("CompiledKernel", (), {})},  # torch compares annotations with it
        **{f"transformers{part}": REGISTRIES for part in ("", ".models.auto", ".models.auto.configuration_auto")},
        "dill": {"dumps": lambda *arguments, **named: b"", "loads": lambda *arguments, **named: None},
        "cloudpickle": {"dumps": lambda *arguments, **named: b""},
    },
)


class StandIn(SimpleNamespace):
    """An object of ours in the place of one of SGLang's. What it lacks is drift, never a finding."""


@dataclass(frozen=True)
class Release:
    """A booted release."""

    version: str
    root: Path
    standins: StandIns
    whole: bool

    def module(self, name: str) -> Any:
        """The module ``sglang.NAME``. Raises EngineDriftError."""
        try:
            return importlib.import_module(f"sglang.{name}")
        except ImportError as problem:
            raise self.drift(f"sglang.{name}", str(problem)) from problem

    def symbol(self, module: str, name: str) -> Any:
        """What ``sglang.MODULE`` has by this name. Raises EngineDriftError."""
        found = self.module(module)
        if not hasattr(found, name):
            raise self.drift(f"sglang.{module}.{name}")
        return getattr(found, name)

    def optional(self, module: str, name: str) -> Any | None:
        """What ``sglang.MODULE`` has by this name, or None where only some of the known releases have it."""
        try:
            return getattr(importlib.import_module(f"sglang.{module}"), name, None)
        except ModuleNotFoundError:
            return None

    def drift(self, symbol: str, reason: str = "") -> EngineDriftError:
        """The error that says what this release lacks."""
        return EngineDriftError("sglang", self.version, symbol, KNOWN, reason)

    def call(self, function: Callable[..., Any], **named: Any) -> Any:
        """Call with those of the arguments that this release's signature has. Raises EngineDriftError where it wants others."""
        parameters = inspect.signature(function).parameters
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        accepted = named if takes_all else {name: value for name, value in named.items() if name in parameters}
        for name, parameter in parameters.items():
            required = parameter.default is parameter.empty and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            if required and name not in accepted:
                raise self.drift(f"{function.__qualname__} as it was", f"it now needs '{name}'")
        return function(**accepted)

    @contextmanager
    def calling(self, what: str, *standins: type) -> Iterator[None]:
        """SGLang's code runs. What it misses in a stand-in, in an object of one of the classes `standins` or in a module is drift.

        Anything else that it raises is its own.
        """
        try:
            yield
        except AttributeError as problem:
            owner = problem.obj
            if isinstance(owner, (ModuleType, StandIn, *standins)) and problem.name:
                where = owner.__name__ if isinstance(owner, ModuleType) else type(owner).__name__
                raise self.drift(f"{what} that does without {where}.{problem.name}") from problem
            raise
        except ImportError as problem:
            raise self.drift(f"{what} that does without {problem.name}") from problem


def release_for(release: str | Release, progress: Progress | None = None, *, whole: bool = True) -> Release:
    """The release of that version, fetched where it is not in the cache, and booted. Raises as `fetch` and `boot`."""
    if isinstance(release, Release):
        return release
    known = BOOTED.get(release)
    if known is not None and (known.whole or not whole):
        return known
    return boot(fetch(f"sglang=={release}", progress=progress), whole=whole)


BOOTED: dict[str, Release] = {}


def boot(wheel: Wheel, *, whole: bool = True) -> Release:
    """Import the release: with `whole` its schedulers, otherwise its token allocators alone, which takes a third of the time.

    A process can do so with one release; the same one may be asked for again. Raises UsageError for a second release,
    EngineDriftError where it does not import.
    """
    if wheel.version in BOOTED:
        release = BOOTED[wheel.version]
        if whole and not release.whole:
            release.standins.sealed = False
            BOOTED[wheel.version] = imported(replace(release, whole=True))
        return BOOTED[wheel.version]
    if BOOTED or "sglang" in sys.modules:
        other = next(iter(BOOTED), "another")
        raise UsageError(f"sglang {other} is imported in this process: boot {wheel.version} in a process of its own")
    lacking = [name for name in NEEDED if find_spec(name) is None]
    if lacking:
        raise UsageError(f"SGLang's bookkeeping needs {', '.join(lacking)}: pip install 'kvmodel[engines]'")
    warnings.filterwarnings("ignore")
    os.environ.setdefault("SGLANG_LOGGING_CONFIG_PATH", "")
    standins = StandIns(PLAN, wheel.root, "sglang", wheel.version, KNOWN).install()
    sys.path.insert(0, str(as_installed(wheel.root)))
    release = imported(Release(wheel.version, wheel.root, standins, whole))
    BOOTED[wheel.version] = release
    return release


def imported(release: Release) -> Release:
    """Import what the adapters need, and hold the stand-ins to being called no more."""
    whole = ("managers.scheduler", "disaggregation.prefill", "disaggregation.decode")
    logging.disable(logging.CRITICAL)
    try:
        with kernel_sources_claimed(release.root):
            for name in ("mem_cache.allocator", *(whole if release.whole else ())):
                release.module(f"srt.{name}")
    except EngineDriftError:
        raise
    except Exception as problem:  # whatever importing 300 modules can raise
        raise release.drift("modules that import on CPU", f"{type(problem).__name__}: {problem}") from problem
    finally:
        logging.disable(logging.NOTSET)
    logging.getLogger("sglang").setLevel(logging.CRITICAL + 1)
    release.standins.seal()
    return release


def as_installed(root: Path) -> Path:
    """The folder by a name with which tools take what is in it for installed packages.

    Hypothesis reads the source of every other module for constants to try: a minute for SGLang, and its numbers in our draws.
    """
    other = root.parent / "site-packages"
    if root.name == other.name:
        return root
    try:
        other.symlink_to(root.name, target_is_directory=True)
    except FileExistsError:
        pass
    except OSError:  # a cache that cannot be written, or a system without links
        return root
    return other


@contextmanager
def kernel_sources_claimed(root: Path) -> Iterator[None]:
    """Importing looks for folders of kernel sources, which are not kept: only Python files are."""
    exists = Path.exists

    def claimed(path: Path, *arguments: Any, **named: Any) -> bool:
        return exists(path, *arguments, **named) or (path.name in ("include", "csrc") and path.is_relative_to(root.resolve()))

    replaced: Any = Path
    replaced.exists = claimed
    try:
        yield
    finally:
        replaced.exists = exists
