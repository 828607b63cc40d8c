"""``kvmodel engines``: ``fetch`` and ``list``, and what `engine_check` adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kvmodel.commands import common
from kvmodel.commands.engine_check import check_command, machines_command

if TYPE_CHECKING:
    from kvmodel.engines.wheels import Wheel

__all__ = ["engines", "wheel_object"]


@click.group(
    epilog="""\b
Examples:
  kvmodel engines fetch vllm==0.33.0    a release whose own code the tests drive
  kvmodel engines list                  what is in the cache
  kvmodel engines machines              what can be driven
  kvmodel engines check vllm==0.33.0 manager"""
)
def engines() -> None:
    """Fetch releases of vLLM and SGLang, and hold their own code to a spec."""


@engines.command(
    "fetch",
    epilog="""\b
Examples:
  kvmodel engines fetch vllm==0.33.0 sglang==0.5.23

\b
Exit code: 0, or 2 when a release cannot be had.""",
)
@click.argument("requirements", metavar="NAME==VERSION...", nargs=-1, required=True)
@click.option("--again", is_flag=True, help="Remove what the cache has of the release and download it again.")
@common.json_option
def fetch_command(requirements: tuple[str, ...], again: bool, as_json: bool) -> int:
    """Download releases from the package registry that pip is configured for.

    Of each wheel the Python files that take part are kept, in the cache folder (KVMODEL_CACHE names another one); nothing
    is installed. A release that is there already is verified.
    """
    from kvmodel.engines.wheels import fetch

    wheels = []
    for requirement in requirements:
        with common.progress_line() as progress:
            wheels.append(fetch(requirement, progress=progress, again=again))
        if not as_json:
            common.emit(_shown(wheels[-1]))
    if as_json:
        common.emit_json("engines fetch", {"releases": [wheel_object(wheel) for wheel in wheels]})
    return common.ALL_HOLD


@engines.command("list", epilog="Example: kvmodel engines list")
@common.json_option
def list_command(as_json: bool) -> int:
    """Show the releases in the cache."""
    from kvmodel.engines.wheels import cache_folder, cached

    wheels = cached()
    if as_json:
        common.emit_json("engines list", {"cache": str(cache_folder()), "releases": [wheel_object(wheel) for wheel in wheels]})
    elif wheels:
        common.emit("".join(_shown(wheel) for wheel in wheels))
    else:
        common.emit(f"no releases in {cache_folder()}; kvmodel engines fetch vllm==0.33.0 gets one\n")
    return common.ALL_HOLD


engines.add_command(check_command)
engines.add_command(machines_command)


def wheel_object(wheel: Wheel) -> dict[str, object]:
    """A release for JSON."""
    return {
        "name": wheel.name,
        "version": wheel.version,
        "wheel": wheel.file,
        "sha256": wheel.sha256,
        "root": str(wheel.root),
        "files": wheel.files,
        "bytes": wheel.bytes,
    }


def _shown(wheel: Wheel) -> str:
    return (
        f"{wheel.name} {wheel.version}: {wheel.files:,} Python files, {wheel.bytes / 2**20:.1f} MiB\n"
        f"  wheel   {wheel.file}\n  sha256  {wheel.sha256}\n  in      {wheel.root}\n"
    )
