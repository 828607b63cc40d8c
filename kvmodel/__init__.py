"""Model checking for KV-cache page ownership: can one request ever read another request's pages?

Load a spec, check it, look at the trace:

>>> import kvmodel
>>> result = kvmodel.check("pages", size={"Request": 2, "Page": 1})
>>> result.verdict.value
'holds'

The names in `__all__` are the stable surface. They are imported when they are first used, so that importing this
package (and `kvmodel --help`) stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvmodel.analyses.why import why_not
    from kvmodel.api import check, explore, load, prove, read_trace, replay, save_trace
    from kvmodel.errors import (
        Diagnostic,
        InstanceError,
        InternalError,
        KvmodelError,
        ReplayError,
        SpecError,
        TraceFileError,
        UsageError,
    )
    from kvmodel.language.instance import Instance, State
    from kvmodel.language.system import TransitionSystem
    from kvmodel.readings.machine import machine_for
    from kvmodel.testing import StatefulSuite
    from kvmodel.traces.trace import Choice, Trace
    from kvmodel.verdict import Coverage, Finding, FindingKind, PropertyResult, Result, Verdict

    __version__: str

__all__ = [
    "Choice",
    "Coverage",
    "Diagnostic",
    "Finding",
    "FindingKind",
    "Instance",
    "InstanceError",
    "InternalError",
    "KvmodelError",
    "PropertyResult",
    "ReplayError",
    "Result",
    "SpecError",
    "State",
    "StatefulSuite",
    "Trace",
    "TraceFileError",
    "TransitionSystem",
    "UsageError",
    "Verdict",
    "__version__",
    "check",
    "explore",
    "load",
    "machine_for",
    "prove",
    "read_trace",
    "replay",
    "save_trace",
    "why_not",
]

_HOMES = {
    "kvmodel.analyses.why": ("why_not",),
    "kvmodel.api": ("check", "explore", "load", "prove", "read_trace", "replay", "save_trace"),
    "kvmodel.errors": (
        "Diagnostic", "InstanceError", "InternalError", "KvmodelError", "ReplayError", "SpecError", "TraceFileError", "UsageError",
    ),
    "kvmodel.language.instance": ("Instance", "State"),
    "kvmodel.language.system": ("TransitionSystem",),
    "kvmodel.readings.machine": ("machine_for",),
    "kvmodel.testing": ("StatefulSuite",),
    "kvmodel.traces.trace": ("Choice", "Trace"),
    "kvmodel.verdict": ("Coverage", "Finding", "FindingKind", "PropertyResult", "Result", "Verdict"),
}  # fmt: skip


if not TYPE_CHECKING:  # a type checker that saw it would accept every name

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name == "__version__":
            from importlib.metadata import version

            return version("kvmodel")
        for module, names in _HOMES.items():
            if name in names:
                value: object = getattr(import_module(module), name)
                globals()[name] = value
                return value
        raise AttributeError(f"module 'kvmodel' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
