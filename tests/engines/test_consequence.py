"""What happens where a pool does not cover: it comes from the spec's variants, with the deployment's own numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvmodel.engines import preflight as module
from kvmodel.engines.facts import Fact, Node, Role, Source
from kvmodel.engines.preflight import Outcome, Preflight, preflight, variant_of
from kvmodel.language.expressions import Apply
from kvmodel.language.load import load_spec
from kvmodel.verdict import Verdict

HERE = Source("--test")


def node(engine: str, version: str, pool: int, context: int = 10_000, role: Role = "prefill", page: int | None = 16) -> Node:
    return Node(
        role or "node", role, Fact(engine, HERE), Fact(version, HERE), Fact(context, HERE), Fact(pool, HERE),
        page=None if page is None else Fact(page, HERE),
    )  # fmt: skip


def pair(version: str, prefill: int, decode: int) -> Preflight:
    return preflight([node("sglang", version, prefill), node("sglang", version, decode, role="decode")])


def outcome(result: Preflight) -> Outcome:
    assert result.consequence is not None
    return result.consequence.outcome


@pytest.mark.parametrize(
    ("version", "expected", "steps"),
    [
        ("0.5.11", Outcome.LEAK, 13),
        ("0.5.20", Outcome.HELD_PAGES, 7),
        ("0.5.23", Outcome.HELD_PAGES, 4),
        ("0.5.24", Outcome.UNKNOWN, None),
        ("0.5.16.post1", Outcome.UNKNOWN, None),
    ],
)
def test_a_small_prefill_pool(version: str, expected: Outcome, steps: int | None) -> None:
    result = pair(version, 8_000, 20_000)
    assert outcome(result) is expected
    assert result.consequence is not None
    assert result.consequence.steps == steps


@pytest.mark.parametrize("pools", [(8_000, 8_000), (20_000, 8_000)])
def test_what_decode_refuses_too_is_a_clean_400(pools: tuple[int, int]) -> None:
    result = pair("0.5.16", *pools)
    assert (result.verdict, outcome(result)) == (Verdict.VIOLATED, Outcome.CLEAN_400)


def test_a_decode_limit_between_prefills_and_the_context_leaks() -> None:
    assert outcome(pair("0.5.16", 8_000, 8_016)) is Outcome.LEAK


def test_automatic_truncation_brings_the_leak_back() -> None:
    prefill = replace(node("sglang", "0.5.23", 8_000), truncates=Fact(1, HERE))
    assert outcome(preflight([prefill, node("sglang", "0.5.23", 20_000, role="decode")])) is Outcome.LEAK


@pytest.mark.parametrize(
    ("version", "variant"),
    [("0.5.11", "0.5.16"), ("0.5.19", "0.5.16"), ("0.5.20", "0.5.20"), ("0.5.21", "0.5.21"), ("v0.5.23", "0.5.21"), ("0.5", None)],
)
def test_releases(version: str, variant: str | None) -> None:
    assert variant_of(version) == (variant and f"sglang-{variant}")


def test_what_is_assumed_is_said() -> None:
    result = preflight([node("sglang", "0.5.16", 8_000, role="")])
    assert result.consequence is not None
    assert "taken to be a prefill node" in result.consequence.reason
    assert "the decode node is taken to cover" in result.consequence.reason


def test_the_worst_of_several_nodes_counts() -> None:
    refused = replace(node("vllm", "0.33.0", 8_000, role=""), room=Fact(8_000, HERE))
    result = preflight([refused, node("sglang", "0.5.16", 8_000)])
    assert outcome(result) is Outcome.LEAK
    assert [entry and entry.outcome for entry in result.consequences] == [Outcome.REFUSES_TO_START, Outcome.LEAK]


@pytest.mark.parametrize(("contexts", "expected"), [((10_000, 20_000), Outcome.LEAK), ((20_000, 10_000), Outcome.CLEAN_400)])
def test_contexts_that_differ(contexts: tuple[int, int], expected: Outcome) -> None:
    """Each pool covers its own node's context, but both nodes get every request."""
    prefill = node("sglang", "0.5.16", 40_000, contexts[0])
    result = preflight([prefill, node("sglang", "0.5.16", 40_000, contexts[1], "decode")])
    assert preflight([prefill]).verdict is Verdict.HOLDS
    assert (result.verdict, outcome(result)) == (Verdict.VIOLATED, expected)
    assert [report.witness for report in result.nodes if report.witness] == [9_995]
    assert any("contexts differ" in warning for report in result.nodes for warning in report.warnings)


# -- vLLM's null block ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "pool", "verdict", "expected"),
    [
        ("0.33.0", 4112, Verdict.HOLDS, None),
        ("0.33.0", 4096, Verdict.VIOLATED, Outcome.REFUSES_TO_START),
        ("0.11.2", 4112, Verdict.HOLDS, None),
        ("0.11.2", 4096, Verdict.VIOLATED, Outcome.UNKNOWN),  # starts, and the request waits for ever
        ("0.11.2", 4080, Verdict.VIOLATED, Outcome.REFUSES_TO_START),
        ("0.40.0", 4080, Verdict.VIOLATED, Outcome.UNKNOWN),
    ],
)
def test_the_null_block(version: str, pool: int, verdict: Verdict, expected: Outcome | None) -> None:
    result = preflight([node("vllm", version, pool, 4096, "")])
    assert result.verdict is verdict
    assert (result.consequence and result.consequence.outcome) is expected


@pytest.mark.parametrize(
    ("pool", "page", "verdict"), [(4112, None, Verdict.UNDECIDED), (10_000, None, Verdict.HOLDS), (4_000, None, Verdict.VIOLATED)]
)
def test_without_a_page_size_the_null_block_is_open(pool: int, page: int | None, verdict: Verdict) -> None:
    result = preflight([node("vllm", "0.33.0", pool, 4096, "", page)])
    assert result.verdict is verdict
    assert result.missing == (("node: the page size",) if verdict is Verdict.UNDECIDED else ())


@pytest.mark.parametrize(
    ("hundredths", "pool", "page", "verdict"),
    [
        (101, 4140, None, Verdict.HOLDS),  # more than one request: at least a block is left over, whatever its size
        (100, 4112, None, Verdict.UNDECIDED),
        (100, 4112, 16, Verdict.HOLDS),  # 257 blocks, 256 of them usable
        (100, 4096, 16, Verdict.VIOLATED),
        (99, 4056, None, Verdict.VIOLATED),
    ],
)
def test_the_concurrency_decides(hundredths: int, pool: int, page: int | None, verdict: Verdict) -> None:
    told = replace(node("vllm", "0.11.2", pool, 4096, "", page), concurrency=Fact(hundredths, HERE))
    assert preflight([told]).verdict is verdict


def test_facts_that_contradict_each_other_are_undecided() -> None:
    refused = replace(node("vllm", "0.33.0", 8_000, 4_000, ""), room=Fact(9_000, HERE))
    result = preflight([refused])
    assert result.verdict is Verdict.UNDECIDED
    assert "contradict" in result.missing[0]


# -- the verdict is the spec's --------------------------------------------------------------------------------------------


def test_variants_ship() -> None:
    for first, last, name in module.VARIANTS:
        assert load_spec(f"handoff:{name}").name == f"handoff:{name}"
        assert first <= last
    assert variant_of("0.5.10") is None


def test_a_spec_that_says_something_else_gives_another_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    system = load_spec("handoff")
    turned = tuple(
        replace(entry, condition=replace(entry.condition, arguments=entry.condition.arguments[::-1]))
        if entry.name == "oversize_for_prefill" and isinstance(entry.condition, Apply)
        else entry
        for entry in system.definitions
    )
    assert turned != system.definitions
    covering = node("sglang", "0.5.16", 20_000)
    assert preflight([covering]).verdict is Verdict.HOLDS
    monkeypatch.setattr(module, "_handoff", lambda: replace(system, definitions=turned))
    assert preflight([covering]).verdict is not Verdict.HOLDS


def test_a_variant_that_says_something_else_gives_another_consequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VARIANTS", (((0, 5, 16), (0, 5, 16), "fixed-doors"),))
    assert outcome(pair("0.5.16", 8_000, 20_000)) is Outcome.CLEAN_400


def test_an_exploration_that_is_cut_short_is_no_consequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXPLORE_FOR", 0.0)
    assert outcome(pair("0.5.21", 8_000, 20_000)) is Outcome.UNKNOWN
