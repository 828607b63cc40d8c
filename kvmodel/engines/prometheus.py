"""What SGLang and vLLM tell Prometheus of their pools (the text format of ``/metrics``)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kvmodel.engines.facts import Found, Kind, Source

__all__ = ["is_metrics", "read_metrics"]

SAMPLE = re.compile(r"(sglang|vllm):(\w{1,80})(?:\{(.{0,20000})\})? ([0-9.eE+]{1,30})(?: \d+)?\s*$")
LABEL = re.compile(r'(\w{1,80})="((?:[^"\\]|\\.)*)"')
SGLANG: dict[str, Kind] = {"max_total_num_tokens": "pool", "page_size": "page", "context_len": "context"}


def is_metrics(line: str) -> bool:
    """Whether the line is one of the text format's."""
    return line.startswith(("# HELP ", "# TYPE ")) or SAMPLE.match(line) is not None


def read_metrics(file: str, lines: Sequence[str], notes: list[str]) -> Iterator[Found]:
    """The facts in one answer of ``/metrics``. Every series counts, so several ranks and engines may be in one file. What people should
    know beside is added to `notes`."""
    engines: set[str] = set()
    summed: Source | None = None
    for number, line in enumerate(lines, start=1):
        sample = SAMPLE.match(line)
        if sample is None:
            continue
        engine, name, source = sample[1], sample[2], Source(file, number)
        labels = {label[1]: label[2] for label in LABEL.finditer(sample[3] or "")}
        yield Found("engine", engine, source)
        if engine == "vllm":
            if "engine" in labels and name != "cache_config_info":
                engines.add(labels["engine"])
            if name == "cache_config_info":
                yield from _cache(labels, source)
                summed = summed or source
        elif name in SGLANG:
            value = _whole(sample[4])
            if value is not None:
                yield Found(SGLANG[name], value, source)
            if labels.get("engine_type") in ("prefill", "decode"):
                yield Found("role", labels["engine_type"], source)
    if summed is not None and engines:
        yield Found("data_parallel", len(engines), summed)
    elif summed is not None:
        notes.append(f"{summed}: num_gpu_blocks is summed over data-parallel engines; it is taken to be one engine's")


def _cache(labels: dict[str, str], source: Source) -> Iterator[Found]:
    kinds: tuple[tuple[str, Kind], ...] = (("block_size", "page"), ("num_gpu_blocks", "blocks"), ("kv_cache_size_tokens", "pool"))
    for label, kind in kinds:
        value = _whole(labels.get(label, ""))
        if value is not None:
            yield Found(kind, value, source)
    concurrency = _number(labels.get("kv_cache_max_concurrency", ""))
    if concurrency is not None:
        yield Found("concurrency", round(concurrency * 100), source)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e15 else None


def _whole(text: str) -> int | None:
    value = _number(text)
    return int(value) if value is not None else None
