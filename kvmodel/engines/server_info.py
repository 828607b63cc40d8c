"""SGLang's ``/server_info`` (also ``/get_server_info``): one JSON object."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from kvmodel.engines.facts import Found, Kind, Source
from kvmodel.errors import UsageError

__all__ = ["read_server_info"]

KINDS: dict[str, Kind] = {
    "max_total_num_tokens": "pool",
    "context_length": "context",
    "page_size": "page",
    "max_req_input_len": "door",
}
MOST = 10**15


def read_server_info(file: str, text: str) -> Iterator[Found]:
    """The facts in one answer. Raises UsageError, with the file, for text that is not a JSON object."""
    try:
        content = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as problem:
        position = re.search(r"byte (\d+)", str(problem))
        ahead = text.encode()[: int(position[1])].decode(errors="replace") if position else text
        line = ahead.count("\n") + 1
        raise UsageError(f"{file}:{line}: begins like the JSON of /server_info and is not readable: {problem}") from None
    if not isinstance(content, dict):
        raise UsageError(f"{file}: /server_info is one JSON object, this is something else")

    def place(key: str) -> Source:
        return Source(file, text.count("\n", 0, max(0, text.find(f'"{key}"'))) + 1)

    for key, kind in KINDS.items():
        yield from _number(kind, content.get(key), place(key))
    states = content.get("internal_states")
    for state in states if isinstance(states, list) else []:
        usage = state.get("memory_usage") if isinstance(state, dict) else None
        if isinstance(usage, dict):
            yield from _number("pool", usage.get("token_capacity"), place("token_capacity"))
    if content.get("disaggregation_mode") in ("prefill", "decode"):
        yield Found("role", content["disaggregation_mode"], place("disaggregation_mode"))
    if isinstance(content.get("allow_auto_truncate"), bool):
        yield Found("truncates", int(content["allow_auto_truncate"]), place("allow_auto_truncate"))
    if any(key in content for key in (*KINDS, "internal_states", "disaggregation_mode")):
        yield Found("engine", "sglang", Source(file, 1))
        if isinstance(content.get("version"), str) and len(content["version"]) <= 80:
            yield Found("version", content["version"], place("version"))


def _number(kind: Kind, value: object, source: Source) -> Iterator[Found]:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < MOST:
        yield Found(kind, value, source)
