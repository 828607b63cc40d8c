"""vLLM's start-up log: the formats of v0, of 0.11 (two lines) and of 0.33 (one line), and its refusals to start."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvmodel.engines.facts import Found, Source

__all__ = ["V0_PAGE", "read_vllm"]

V0_PAGE = 16  # tokens of a block of the releases that print blocks

NUMBER = r"([\d,]{1,20})(?![\d,]*\d)"
SIZE = re.compile(rf"(?:GPU|GPU \+ host) KV cache size: {NUMBER} tokens")
CONCURRENCY = re.compile(rf"(?:.{{0,200}}, )?Maximum concurrency for {NUMBER} tokens per request: (\d{{1,9}})\.(\d\d)x")
BLOCKS = re.compile(rf"# (?:GPU|\w{{1,10}}) blocks: {NUMBER}, # CPU blocks: ")
LENGTH = re.compile(rf"Using max model len {NUMBER}")
FITTED = re.compile(rf"Auto-fit max_model_len: reduced from {NUMBER} to {NUMBER} to fit")
STARTS = re.compile(r"Initializing (?:a V1|an) LLM engine \(v([\w.+-]{1,40})\) with config")
CONFIGURED = re.compile(rf"\bmax_seq_len={NUMBER}")
REFUSED = re.compile(
    rf"(?:ValueError: )?To serve at least one request with the models?'s max seq len \({NUMBER}\), ?.{{0,400}}?"
    rf"estimated maximum model length is {NUMBER}"
)
REFUSED_SHORT = re.compile(rf"(?:ValueError: )?To serve at least one request with the models?'s max seq len \({NUMBER}\)")
REFUSED_V0 = re.compile(
    rf"(?:ValueError: )?The model's max seq len \({NUMBER}\) is larger than the maximum number of tokens that can be stored in "
    rf"KV cache \({NUMBER}\)"
)


def read_vllm(message: str, source: Source) -> Iterator[Found]:
    """The facts in one message of a log, without its prefix."""
    facts = [*_facts(message, source)]
    if facts:
        yield Found("engine", "vllm", source)
    yield from facts


def _facts(message: str, source: Source) -> Iterator[Found]:
    if size := SIZE.match(message):
        yield Found("pool", _number(size[1]), source)
    if concurrency := CONCURRENCY.match(message):
        yield Found("context", _number(concurrency[1]), source)
        yield Found("concurrency", int(concurrency[2] + concurrency[3]), source)
    if blocks := BLOCKS.match(message):
        yield Found("blocks", _number(blocks[1]), source)
        yield Found("page", V0_PAGE, source)
    if length := LENGTH.match(message):
        yield Found("context", _number(length[1]), source)
    if fitted := FITTED.match(message):
        yield Found("fitted_from", _number(fitted[1]), source)
        yield Found("context", _number(fitted[2]), source)
    if starts := STARTS.match(message):
        yield Found("version", starts[1], source)
        if configured := CONFIGURED.search(message):
            yield Found("context", _number(configured[1]), source)
    if refused := REFUSED.match(message) or REFUSED_V0.match(message):
        yield Found("context", _number(refused[1]), source)
        yield Found("room", _number(refused[2]), source)
    elif short := REFUSED_SHORT.match(message):
        yield Found("context", _number(short[1]), source)
        yield Found("room", 0, source)


def _number(text: str) -> int:
    return int(text.replace(",", "") or "0")
