"""SGLang's start-up log, 0.5.11 to 0.5.23.

The formats are those of `managers/scheduler.py` (``max_total_num_tokens=...``), `mem_cache` (``KV Cache is allocated. #tokens: ...``),
`model_executor` (``Post-capture KV sizing: ...``) and `entrypoints/engine.py` (``server_args=``: a call's repr up to 0.5.18, a
dictionary's from 0.5.19). Nothing is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvmodel.engines.facts import Found, Kind, Source

__all__ = ["read_sglang"]

NUMBER = r"(\d{1,15})(?!\d)"
SIZES = re.compile(rf"(?:Post-capture KV sizing: )?max_total_num_tokens={NUMBER}")
CONTEXT = re.compile(rf", context_len={NUMBER}")
ALLOCATED = re.compile(rf"KV Cache is allocated\. .{{0,200}}?#tokens: {NUMBER}")
ARGUMENTS = re.compile(r"server_args=(?:ServerArgs\(|\{)")
# One argument of either repr. A quoted value is taken as a whole, so that what a path or a name contains is not read as an argument.
ARGUMENT = re.compile(r"""['"]?(\w+)['"]?\s*[=:]\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^,(){}\[\]]*)""")
READ: dict[str, Kind] = {
    "page_size": "page",
    "context_length": "context",
    "disaggregation_mode": "role",
    "allow_auto_truncate": "truncates",
}


def read_sglang(message: str, source: Source) -> Iterator[Found]:
    """The facts in one message of a log, without its prefix."""
    if sizes := SIZES.match(message):
        yield Found("engine", "sglang", source)
        yield Found("pool", int(sizes[1]), source)
        if context := CONTEXT.search(message):
            yield Found("context", int(context[1]), source)
    elif allocated := ALLOCATED.match(message):
        yield Found("engine", "sglang", source)
        yield Found("allocated", int(allocated[1]), source)
    elif arguments := ARGUMENTS.match(message):
        yield Found("engine", "sglang", source)
        for argument in ARGUMENT.finditer(message, arguments.end()):
            kind = READ.get(argument[1])
            if kind is not None:
                yield from _argument(kind, argument[2].strip().strip("'\""), source)


def _argument(kind: Kind, value: str, source: Source) -> Iterator[Found]:
    if kind == "role":
        if value in ("prefill", "decode"):
            yield Found("role", value, source)
    elif kind == "truncates":
        yield Found("truncates", int(value == "True"), source)
    elif value.isascii() and value.isdigit() and len(value) <= 15:  # None: the model's own
        yield Found(kind, int(value), source)
