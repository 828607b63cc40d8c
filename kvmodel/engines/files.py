"""Files that describe a node: which reader is for them, within bounds. What a file contains is text, and stays text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kvmodel.engines.facts import Found, Node, Role, Source, gather
from kvmodel.engines.prometheus import is_metrics, read_metrics
from kvmodel.engines.server_info import read_server_info
from kvmodel.engines.sglang_log import read_sglang
from kvmodel.engines.vllm_log import read_vllm
from kvmodel.errors import UsageError

__all__ = ["MOST_BYTES", "message_of", "read_node"]

MOST_BYTES = 64 * 2**20
LONGEST_LINE = 100_000  # a line of server arguments has some ten thousand

# ``[2026-09-01 08:00:02 TP0] ``, ``(EngineCore_DP0 pid=4242) INFO 04-23 11:00:00 [kv_cache_utils.py:1319] ``,
# ``INFO 12-02 09:10:11 gpu_executor.py:76] ``, and what a container runtime puts before them.
PREFIX = re.compile(r"[^\[\]]{0,300}(?:\[[^\[\]]{1,100}\]|\])\s+(?:\[[^\[\]]{1,100}\]\s+){0,2}")
COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
PROCESS = re.compile(r"\s*\([^()]{1,100}\)\s*")


def message_of(line: str) -> str:
    """A line of a log without its prefix and without colour."""
    if "\x1b" in line:
        line = COLOUR.sub("", line)
    if prefix := PREFIX.match(line):
        return line[prefix.end() :]
    process = PROCESS.match(line)
    return line[process.end() :] if process else line


def read_node(path: str, role: Role = "") -> Node:
    """The node that a file describes: a start-up log, the text of ``/metrics``, or the JSON of ``/server_info``.

    Raises UsageError, with the file, for one that cannot be read or is too large.
    """
    text = _text(path)
    notes: list[str] = []
    lines = text.split("\n")
    if text.lstrip()[:1] == "{":
        found = [*read_server_info(path, text)]
    elif any(is_metrics(line) for line in lines[:1000]):
        found = [*read_metrics(path, lines, notes)]
    else:
        found = [*_log(path, lines, notes)]
    if not found:
        notes.append(f"{path}: no line of it is known as SGLang's or vLLM's")
    return gather(path, found, role, notes)


def _text(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "this is not a file name"
        raise UsageError(f"{path}: cannot be read: {reason}") from None
    if len(content) > MOST_BYTES:
        raise UsageError(f"{path}: has more than {MOST_BYTES // 2**20} MiB; cut out the part that was printed at start-up")
    return content.decode("utf-8", errors="replace").replace("\r\n", "\n")


def _log(path: str, lines: list[str], notes: list[str]) -> Iterator[Found]:
    cut = 0
    for number, line in enumerate(lines, start=1):
        cut += len(line) > LONGEST_LINE
        message, source = message_of(line[:LONGEST_LINE]), Source(path, number)
        yield from read_sglang(message, source)
        yield from read_vllm(message, source)
    if cut:
        notes.append(f"{path}: of {cut} very long lines only the first {LONGEST_LINE:,} characters were read")
