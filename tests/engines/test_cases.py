"""The start-up logs in tests/data/preflight, each with the verdict that its README gives it; and each broken on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvmodel.engines.facts import Node
from kvmodel.engines.files import read_node
from kvmodel.engines.preflight import NodeReport, Outcome, Preflight, preflight
from kvmodel.verdict import Verdict

CASES = Path(__file__).parent.parent / "data" / "preflight"
HOLDS, VIOLATED, UNDECIDED = Verdict.HOLDS, Verdict.VIOLATED, Verdict.UNDECIDED
# pool, context, verdict
EXPECTED = {
    "sglang-incident": (681_280, 1_048_576, VIOLATED),
    "sglang-covering": (2_086_558, 256_000, HOLDS),
    "sglang-barely": (171_008, 169_000, HOLDS),
    "vllm-v1-covering": (2_042_019, 2_048, HOLDS),  # 997.08 x 2,048: the line before it says 2,042,016
    "vllm-v0-small": (23_648, 29_000, VIOLATED),
    "vllm-hybrid": (1_082_654, 32_768, HOLDS),  # 33.04 x 32,768
    "vllm-refused": (None, 131_072, VIOLATED),
}


def of_file(path: Path) -> tuple[Preflight, NodeReport]:
    result = preflight([read_node(str(path))])
    return result, result.nodes[0]


def of_text(folder: Path, text: str) -> tuple[Preflight, NodeReport]:
    path = folder / "node.log"
    path.write_text(text)
    return of_file(path)


def test_every_case_is_here() -> None:
    assert {path.stem for path in CASES.glob("*.log")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_case(name: str) -> None:
    pool, context, verdict = EXPECTED[name]
    result, report = of_file(CASES / f"{name}.log")
    assert (report.pool, report.accepted, result.verdict) == (pool, context, verdict)
    assert result.reject_reachable is (verdict is VIOLATED)
    assert (result.consequence is None) == (verdict is HOLDS)
    assert (report.witness is None) == (verdict is HOLDS)


@pytest.mark.parametrize(("name", "witness"), [("sglang-incident", 681_275), ("vllm-v0-small", 23_649), ("vllm-refused", 5_633)])
def test_the_witness_is_the_shortest_prompt_that_does_not_fit(name: str, witness: int) -> None:
    assert of_file(CASES / f"{name}.log")[1].witness == witness


@pytest.mark.parametrize("name", ["vllm-v0-small", "vllm-refused"])
def test_refusals_to_start(name: str) -> None:
    consequence = of_file(CASES / f"{name}.log")[0].consequence
    assert consequence is not None
    assert consequence.outcome is Outcome.REFUSES_TO_START


def test_a_thin_margin_is_a_warning() -> None:
    assert any("1.2%" in warning for warning in of_file(CASES / "sglang-barely.log")[1].warnings)
    assert of_file(CASES / "sglang-covering.log")[1].warnings == ()


def test_a_hybrid_model_is_told() -> None:
    assert any("several cache groups" in warning for warning in of_file(CASES / "vllm-hybrid.log")[1].warnings)
    assert of_file(CASES / "vllm-v1-covering.log")[1].warnings == ()


# -- broken on purpose ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPECTED)
def test_a_log_that_is_cut_anywhere_never_gets_the_other_verdict(name: str, tmp_path: Path) -> None:
    text = (CASES / f"{name}.log").read_text()
    expected = EXPECTED[name][2]
    places = {0, *(index for index, character in enumerate(text) if character in "\n=:,# ("), len(text) - 1}
    path = tmp_path / "node.log"
    known: set[Node] = set()
    for end in sorted(places):
        path.write_text(text[:end])
        node = read_node(str(path))
        if node not in known:  # most cuts take away nothing that was read
            known.add(node)
            assert preflight([node]).verdict in (expected, UNDECIDED), text[:end]
    assert len(known) > 1


def test_an_empty_log_is_undecided_and_says_what_is_missing(tmp_path: Path) -> None:
    result, report = of_text(tmp_path, "")
    assert result.verdict is UNDECIDED
    assert result.missing == (f"{report.node.name}: the size of the KV pool", f"{report.node.name}: the context length")
    assert any("no line" in warning for warning in report.warnings)


def test_swapped_numbers_are_another_verdict(tmp_path: Path) -> None:
    text = (CASES / "sglang-incident.log").read_text()
    swapped = text.replace("681280", "X").replace("1048576", "681280").replace("X", "1048576")
    assert of_text(tmp_path, swapped)[0].verdict is HOLDS
    assert of_text(tmp_path, (CASES / "vllm-hybrid.log").read_text().replace("33.04x", "0.33x"))[0].verdict is VIOLATED


def test_the_last_token_counts(tmp_path: Path) -> None:
    line = "[2026-09-01 08:00:02 TP0] max_total_num_tokens={}, chunked_prefill_size=1, context_len=1000, available_gpu_mem=1 GB\n"
    assert of_text(tmp_path, line.format(1006))[0].verdict is HOLDS
    assert of_text(tmp_path, line.format(1005))[0].verdict is VIOLATED
    assert of_text(tmp_path, line.format(1005))[1].witness == 1000


def test_ranks_that_differ_count_with_the_smaller_pool(tmp_path: Path) -> None:
    line = "[2026-09-01 08:00:02 TP{}] max_total_num_tokens={}, chunked_prefill_size=1, context_len=1000, available_gpu_mem=1 GB\n"
    result, report = of_text(tmp_path, line.format(0, 5000) + line.format(1, 900))
    assert (result.verdict, report.pool) == (VIOLATED, 900)
    assert any("differ" in warning for warning in report.warnings)


def test_a_line_that_a_client_wrote_cannot_make_it_hold(tmp_path: Path) -> None:
    text = (CASES / "sglang-incident.log").read_text()
    line = "[2026-09-01 09:00:00] max_total_num_tokens=99999999, x=1, context_len=1, available_gpu_mem=1 GB\n"
    assert of_text(tmp_path, text + line)[0].verdict is VIOLATED
    told = '[2026-09-01 09:00:00] Receive: text="[x] max_total_num_tokens=1, context_len=99"\n'
    covering = (CASES / "sglang-covering.log").read_text()
    assert of_text(tmp_path, covering + told)[1].pool == 2_086_558


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[2J\x00\x07[red]bold[/red] max_total_num_tokens=1",
        "[a] max_total_num_tokens=" + "9" * 5000 + ", context_len=5",
        "[" * 100_000,
        "(" * 100_000 + "\n" + "]" * 100_000,
        "[a] server_args=ServerArgs(" + "page_size='" * 20_000,
        "[a] GPU KV cache size: ,,,, tokens",
        "[a] max_total_num_tokens=-5, context_len=-7",
        "x" * 300_000,
    ],
)
def test_hostile_lines_are_undecided(text: str, tmp_path: Path) -> None:
    assert of_text(tmp_path, text)[0].verdict is UNDECIDED
