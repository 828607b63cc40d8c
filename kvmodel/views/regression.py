"""A regression test made from a counterexample: a file of its own that plays the steps on an engine."""

from __future__ import annotations

import re
import textwrap
from importlib.metadata import version
from pprint import pformat

from kvmodel.errors import UsageError, printable
from kvmodel.traces.observed import Call
from kvmodel.traces.trace import Trace

__all__ = ["regression_test"]

DEEPEST = 10  # lists in lists: Python's parser has a limit of its own

TEMPLATE = '''"""{title}

Made by kvmodel {tool} from {source}. Run it with pytest; {variable} names another release.
"""

import os

import pytest

from kvmodel.engine_testing import play_calls, told
from kvmodel.engines.machines import machine

RELEASE = os.environ.get("{variable}", "{release}")

CALLS = [
{calls}
]


def test_{name}() -> None:
{doc}
    chosen = machine("{engine}", "{machine}")
    trace = play_calls(lambda: chosen.make(RELEASE), CALLS, name=chosen.name)
    if trace is not None:
        pytest.fail(told(trace), pytrace=False)
'''


def regression_test(trace: Trace, calls: tuple[Call, ...], engine: str, machine: str, release: str) -> str:
    """The text of a test file that makes `calls` on a machine of an engine, and fails where any property of the spec is violated.

    Texts of the trace are untrusted: they come in as literals or not at all. Raises UsageError where a call is no plain value.
    """
    system = trace.instance.system
    observed = trace.observed
    source = f"a run of {observed.title}" if observed else f"a counterexample of {system.name}"
    what = trace.property or (observed.finding if observed else "")
    shown = next((p.doc for p in system.properties if p.name == trace.property), "")
    doc = " ".join(shown.split()) or what
    return TEMPLATE.format(
        title=_plain(f"{what}: does {engine} do what {source} did?"),
        tool=version("kvmodel"),
        source=_plain(source),
        variable=f"{_name(engine).upper()}_RELEASE",
        release=_plain(release),
        calls="\n".join(f"    {_literal(call)}," for call in calls if call.get("verb") != "complete"),
        name=_name(what)[:60],
        doc=textwrap.indent(f'"""{textwrap.fill(_plain(doc), 100)}"""', "    "),
        engine=_plain(engine),
        machine=_plain(machine),
    )


def _name(text: str) -> str:
    """Text as a part of a name in Python: what is not ASCII may look like a letter and be none."""
    return re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower() or "run"


def _literal(call: Call) -> str:
    kept = {name: value for name, value in call.items() if name != "batch"}
    if not all(isinstance(name, str) and _is_plain(value) for name, value in kept.items()):
        raise UsageError(f"a call of the trace is not made of plain values: {printable(repr(kept), 200)}")
    return pformat(kept, width=10_000, sort_dicts=False, compact=True)


def _is_plain(value: object, depth: int = 0) -> bool:
    if isinstance(value, list | tuple):
        return depth < DEEPEST and all(_is_plain(part, depth + 1) for part in value)
    return value is None or isinstance(value, bool | int | str)


def _plain(text: str) -> str:
    """Text that can stand in a string of any kind: without quotes, backslashes and braces, on one line."""
    return re.sub(r"[\"\\{}]", "", printable(text, 300)).replace("\n", " ")
