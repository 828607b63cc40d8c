"""The machines that ship: for each engine, which part of it can be driven, at which sizes, and what is expected to be found."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING

from kvmodel.engines.adapter import Capability
from kvmodel.errors import UsageError, nearest

if TYPE_CHECKING:
    from kvmodel.engines.driver import Adapter
    from kvmodel.verdict import Result

__all__ = ["ENGINES", "NEWEST", "Machine", "check_release", "default_machine", "machine", "machines"]

ENGINES = ("vllm", "sglang")
"""Engines that have adapters here, in ``kvmodel.engines.NAME.machines``."""

NEWEST = {"vllm": "0.33.0", "sglang": "0.5.23"}
"""The newest release that is known of each engine."""

DEFAULT = {"vllm": "scheduler", "sglang": "handoff"}


@dataclass(frozen=True, slots=True)
class Machine:
    """A part of an engine that can be driven. `make` gives its adapter for a release, whose code it imports.

    `examples` runs of at most `steps` rules are the search that is known to find what there is to find. `hazard`: it drives what
    the engine is entitled to do (with the capabilities `hazards`, or by its settings), so that what it finds is a hazard of the
    protocol, not a bug of the release.
    `variant` is the spec variant whose counterexample a violation is to be compared with ('' : there is none).
    """

    name: str
    doc: str
    make: Callable[[str], Adapter]
    examples: int = 200
    steps: int = 50
    hazards: frozenset[Capability] = frozenset()
    variant: str = ""
    hazard: bool = False


def machines(engine: str) -> tuple[Machine, ...]:
    """The machines of an engine. Raises UsageError for an engine that has none."""
    if engine not in ENGINES:
        raise UsageError(f"there is no adapter for '{engine}'{nearest(engine, ENGINES)} (known: {', '.join(ENGINES)})")
    found: tuple[Machine, ...] = import_module(f"kvmodel.engines.{engine}.machines").MACHINES
    return found


def machine(engine: str, name: str) -> Machine:
    """The machine of that name. Raises UsageError, with the nearest known name."""
    known = machines(engine)
    for each in known:
        if each.name == name:
            return each
    names = [each.name for each in known]
    raise UsageError(f"{engine} has no machine '{name}'{nearest(name, names)} (known: {', '.join(names)})")


def default_machine(engine: str) -> Machine:
    """The machine that drives most of an engine. Raises UsageError for an engine that has none."""
    machines(engine)
    return machine(engine, DEFAULT[engine])


def check_release(
    chosen: Machine,
    release: str,
    properties: Sequence[str] = (),
    *,
    examples: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    timeout: float | None = None,
    shrink: bool = True,
    progress: Callable[[str], None] | None = None,
) -> Result:
    """Drive a machine on a release until one of `properties` (empty: any) is violated, and say what was found. One release can be
    imported in one process.

    Raises EngineDriftError where the release is not as the adapter knows it, UsageError for an unknown property.
    """
    from kvmodel.engines.check import engine_result, require_known
    from kvmodel.engines.levels import driver_for
    from kvmodel.engines.machine import search

    require_known(properties)
    adapter = chosen.make(release)
    usable = driver_for(adapter, chosen.name).usable(chosen.hazards)
    started = time.monotonic()
    record = search(
        lambda: chosen.make(release),
        chosen.name,
        properties,
        examples=examples or chosen.examples,
        steps=steps or chosen.steps,
        seed=seed,
        timeout=timeout,
        hazards=chosen.hazards,
        shrink=shrink,
        progress=progress,
    )
    result = engine_result(record, f"{adapter.engine} {adapter.version} ({chosen.name})", usable, time.monotonic() - started)
    return replace(result, seconds=time.monotonic() - started, asked=tuple(properties))
