"""What an observed trace is about: a run of a real engine, seen as states of a spec.

Its steps are what the engine was asked to do, so such a trace is not a run of the spec, and cannot be replayed without the
engine; what can be checked is that its last state violates the property that it claims to violate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kvmodel.errors import printable

__all__ = ["Call", "Observed", "Verb", "call_text"]

LONGEST_CALL = 500  # characters

Call: TypeAlias = Mapping[str, object]
"""What the engine was asked to do, ready for JSON: ``{"verb": "admit", "request": "r0", "tokens": [0, 1]}``."""


@dataclass(frozen=True, slots=True)
class Verb:
    """Something that an engine can be asked to do, or that happens to it; `request`: it is about one request."""

    name: str
    doc: str
    request: bool = False


@dataclass(frozen=True, slots=True)
class Observed:
    """The engine and its release, the adapter that drove it, and what it was asked at each step.

    `unknown` are variables of the spec that the adapter does not map; `pools` the names of its pools, in the order of their
    pages; `finding` is what the last call ended in, where that is not a property of a state (the engine raised an error).
    """

    engine: str
    version: str
    adapter: str
    pools: tuple[str, ...]
    unknown: tuple[str, ...]
    verbs: tuple[Verb, ...]
    calls: tuple[Call, ...]
    finding: str = ""

    @property
    def title(self) -> str:
        """``vllm 0.33.0 (manager)``."""
        return f"{self.engine} {self.version} ({self.adapter})"


def call_text(call: Call) -> str:
    """A call as text, without what is false or empty.

    >>> call_text({"verb": "admit", "request": "r0", "tokens": (0, 1), "salt": None})
    'admit(r0, tokens=0 1)'
    """
    parts = [str(call["request"])] if "request" in call else []
    for name, value in call.items():
        if name not in ("verb", "request") and value not in (None, False, 0, (), []):
            parts.append(name if value is True else f"{name}={_shown(value)}")
    return printable(f"{call.get('verb', '')}({', '.join(parts)})", LONGEST_CALL).replace("\n", " ")


def _shown(value: object) -> str:
    if not isinstance(value, tuple | list):
        return str(value)
    if len(value) > 8 and all(part == value[0] for part in value):
        return f"{len(value)} times {value[0]}"
    return " ".join(map(str, value))
