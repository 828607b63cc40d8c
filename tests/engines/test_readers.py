"""What the readers find in each format, where they say it stands, and what they do with files that are not what they seem."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvmodel.engines.facts import Node
from kvmodel.engines.files import message_of, read_node
from kvmodel.engines.preflight import preflight
from kvmodel.errors import UsageError
from kvmodel.verdict import Verdict

SIZES = "max_total_num_tokens=681280, chunked_prefill_size=1, context_len=1048576, available_gpu_mem=8.75 GB"
INFO = {
    "page_size": 64, "context_length": 1_048_576, "disaggregation_mode": "prefill", "max_total_num_tokens": 681_280,
    "max_req_input_len": 681_274, "internal_states": [{"memory_usage": {"token_capacity": 681_280}}], "version": "0.5.16",
}  # fmt: skip
SGLANG_METRICS = """# HELP sglang:max_total_num_tokens Maximum total number of tokens.
# TYPE sglang:max_total_num_tokens gauge
sglang:max_total_num_tokens{engine_type="prefill",tp_rank="0"} 681280.0
sglang:max_total_num_tokens{engine_type="prefill",tp_rank="1"} 681216.0
sglang:page_size{tp_rank="0"} 64.0
sglang:context_len{tp_rank="0"} 1.048576e+06
"""


def read(folder: Path, text: str, name: str = "node") -> Node:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_node(str(path))


def values(node: Node) -> dict[str, object]:
    names = ("engine", "version", "context", "pool", "blocks", "page", "concurrency", "room", "door", "truncates")
    facts = {name: getattr(node, name) for name in names}
    return {"role": node.role, **{name: fact.value for name, fact in facts.items() if fact is not None}}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[2026-09-01 08:00:02 TP0] m", "m"),
        ("pod-7 | [2026-09-01 08:00:02 DP0 TP0] m", "m"),
        ("(EngineCore_DP0 pid=4242) INFO 04-23 11:00:00 [kv_cache_utils.py:1319] m", "m"),
        ("INFO 12-02 09:10:11 gpu_executor.py:76] m", "m"),
        ("(EngineCore_DP0 pid=1) ValueError: m", "ValueError: m"),
        ("ValueError: m", "ValueError: m"),
        ("\x1b[1;36m(EngineCore_DP0 pid=1)\x1b[0;0m INFO 04-23 11:00:00 [a.py:1] m", "m"),
        ("\x1b[32m[2026-09-01 08:00:02]\x1b[0m m", "m"),
    ],
)
def test_prefixes(line: str, message: str) -> None:
    assert message_of(line) == message


@pytest.mark.parametrize(
    "arguments",
    [
        "ServerArgs(model_path='m', page_size=64, context_length=None, disaggregation_mode='decode', allow_auto_truncate=False)",
        "{'model_path': 'm', 'page_size': 64, 'context_length': None, 'disaggregation_mode': 'decode', 'allow_auto_truncate': False}",
        "ServerArgs(model_path='x, page_size=128, y=5', page_size=64, disaggregation_mode='decode', allow_auto_truncate=False)",
    ],
)
def test_server_arguments(arguments: str, tmp_path: Path) -> None:
    found = values(read(tmp_path, f"[2026-09-01 08:00:00] server_args={arguments}\n[2026-09-01 08:00:02 TP0] {SIZES}\n"))
    assert found == {"role": "decode", "engine": "sglang", "context": 1_048_576, "pool": 681_280, "page": 64, "truncates": 0}


def test_allocated_pools_count_where_nothing_else_is_said(tmp_path: Path) -> None:
    lines = "[t] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 1000, K size: 1 GB\n"
    lines += "[t] KV Cache is allocated. #tokens: 900, K size: 1 GB\n"
    assert values(read(tmp_path, lines))["pool"] == 900
    assert values(read(tmp_path, lines + f"[t] Post-capture KV sizing: {SIZES}\n"))["pool"] == 681_280


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "INFO 01-30 03:18:12 [kv_cache_utils.py:1229] GPU KV cache size: 1,234 tokens, "
            "Maximum concurrency for 4,096 tokens per request: 1.25x",
            {"pool": 1_234, "context": 4_096, "concurrency": 125},
        ),
        ("(W pid=1) INFO 01-30 03:18:12 [a.py:1] GPU + host KV cache size: 5,000 tokens", {"pool": 5_000}),
        ("INFO 01-30 03:18:12 [a.py:1] Initializing a V1 LLM engine (v0.33.0) with config: model='m', max_seq_len=4096, x=1",
         {"version": "0.33.0", "context": 4_096}),
        ("INFO 01-30 03:18:12 [a.py:1] Using max model len 131072\n"
         "INFO 01-30 03:18:12 [a.py:1] Auto-fit max_model_len: reduced from 131072 to 9000 to fit in available KV cache memory (1 GiB)",
         {"context": 9_000}),
        ("ValueError: To serve at least one request with the model's max seq len (131072), (16.00 GiB KV cache is needed, which is larger",
         {"context": 131_072, "room": 0}),
    ],
)  # fmt: skip
def test_vllm_lines(text: str, expected: dict[str, object], tmp_path: Path) -> None:
    assert values(read(tmp_path, text)) == {"role": "", "engine": "vllm", **expected}


def test_server_info(tmp_path: Path) -> None:
    node = read(tmp_path, json.dumps(INFO, indent=1))
    assert values(node) == {
        "role": "prefill", "engine": "sglang", "version": "0.5.16", "context": 1_048_576, "pool": 681_280, "page": 64, "door": 681_274,
    }  # fmt: skip
    assert node.pool is not None
    assert node.pool.source.line == 5
    assert preflight([node]).verdict is Verdict.VIOLATED


def test_the_context_follows_from_the_limit(tmp_path: Path) -> None:
    told = {"max_total_num_tokens": 681_280, "max_req_input_len": 9_994, "version": "0.5.16"}
    assert preflight([read(tmp_path, json.dumps(told))]).verdict is Verdict.HOLDS
    assert preflight([read(tmp_path, json.dumps({**told, "max_req_input_len": 681_274}))]).verdict is Verdict.UNDECIDED


def test_metrics_of_sglang(tmp_path: Path) -> None:
    node = read(tmp_path, SGLANG_METRICS)
    assert values(node) == {"role": "prefill", "engine": "sglang", "context": 1_048_576, "pool": 681_216, "page": 64}
    assert str(node.pool and node.pool.source).endswith(":4")


def test_metrics_of_vllm(tmp_path: Path) -> None:
    labels = 'block_size="16",engine="0",enable_prefix_caching="True",num_gpu_blocks="514",num_gpu_blocks_override="None"'
    one = f'vllm:cache_config_info{{{labels}}} 1.0\nvllm:kv_cache_usage_perc{{engine="0"}} 0.0\n'
    assert values(read(tmp_path, one))["blocks"] == 514
    assert values(read(tmp_path, one + 'vllm:kv_cache_usage_perc{engine="1"} 0.0\n'))["blocks"] == 257
    told = f'vllm:cache_config_info{{{labels},kv_cache_size_tokens="8224",kv_cache_max_concurrency="2.0078125"}} 1.0\n'
    node = read(tmp_path, told)
    assert values(node)["concurrency"] == 201
    assert preflight([node]).verdict is Verdict.HOLDS
    assert any("summed" in note for note in node.notes)


@pytest.mark.parametrize(
    ("text", "said"),
    [('{"page_size":\n\n oops}', "node:3: "), ("{", "node:1: "), ("{" * 100_000, "node"), ('{"a": 1e999}', "node:1: ")],
)
def test_json_that_is_none(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        read(tmp_path, text)


@pytest.mark.parametrize("value", [None, "64", True, [], {}, -1, 0, 10**30, 1.5])
@pytest.mark.parametrize("key", ["max_total_num_tokens", "context_length", "internal_states", "version", "disaggregation_mode"])
def test_values_of_another_kind_are_not_believed(key: str, value: object, tmp_path: Path) -> None:
    told = {"max_total_num_tokens": 10, "context_length": 1_000_000, key: value}
    assert preflight([read(tmp_path, json.dumps(told))]).verdict in (Verdict.VIOLATED, Verdict.UNDECIDED)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (str(tmp_path), str(tmp_path / "none"), "a\0b"):
        with pytest.raises(UsageError, match="cannot be read"):
            read_node(path)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=400), middle=st.sampled_from([b"", SIZES.encode(), SGLANG_METRICS.encode(), b"[x] # GPU blocks: 1"]))
def test_any_bytes_are_read_or_refused(content: bytes, middle: bytes, tmp_path: Path) -> None:
    path = tmp_path / "any"
    path.write_bytes(content[:200] + middle + content[200:])
    with suppress(UsageError):
        read_node(str(path))


@pytest.mark.parametrize(
    "line", ["[" * 90_000, "(" * 90_000, "[a] server_args={" + "'a': '" * 15_000, "vllm:a{" + 'b="' * 30_000 + "} 1", "# " * 45_000]
)
def test_hostile_lines_take_no_time(line: str, tmp_path: Path) -> None:
    started = time.monotonic()
    read(tmp_path, (line + "\n") * 5)
    assert time.monotonic() - started < 3
