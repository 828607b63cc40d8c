"""``kvmodel preflight``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from kvmodel.commands import common
from kvmodel.errors import UsageError

if TYPE_CHECKING:
    from kvmodel.engines.facts import Fact, Node, Role
    from kvmodel.engines.preflight import Consequence, NodeReport, Preflight

__all__ = ["preflight", "preflight_object"]

V = TypeVar("V", int, str)
TOKENS = click.IntRange(min=1)
MOST_TOKENS = 10**15


@click.command(
    epilog="""\b
Examples:
  kvmodel preflight prefill=p0.log decode=d0.log --engine sglang==0.5.16
  kvmodel preflight --context 1048576 --prefill-pool 681280 --decode-pool 2000000 --page-size 64 --engine sglang==0.5.16
  kvmodel preflight vllm.log

\b
Exit code: 0 every pool covers what its door accepts, 1 one does not, 2 wrong usage or an
unreadable file, 3 undecided. With --expect: 0 as expected, 1 not, 3 undecided."""
)
@click.argument("files", metavar="[[ROLE=]FILE]...", nargs=-1)
@click.option("--context", type=TOKENS, metavar="TOKENS", help="The context that the front end checks.")
@click.option("--prefill-pool", type=TOKENS, metavar="TOKENS", help="The prefill node's KV pool.")
@click.option("--decode-pool", type=TOKENS, metavar="TOKENS", help="The decode node's KV pool.")
@click.option("--pool", type=TOKENS, metavar="TOKENS", help="The KV pool of a node that does both.")
@click.option("--page-size", type=TOKENS, metavar="TOKENS", help="Tokens of a page (a block).")
@click.option("--engine", metavar="NAME==VERSION", help="The engine: sglang==0.5.16, vllm==0.33.0, or the name alone.")
@click.option("--expect", "expected", type=click.Choice(("holds", "violated", "undecided")), help="The verdict that is no failure.")
@common.json_option
def preflight(
    files: tuple[str, ...],
    context: int | None,
    prefill_pool: int | None,
    decode_pool: int | None,
    pool: int | None,
    page_size: int | None,
    engine: str | None,
    expected: str | None,
    as_json: bool,
) -> int:
    """Does each pool cover what its door accepts?

    Each FILE describes a node: a start-up log of SGLang or vLLM, the text of /metrics, or the JSON of /server_info. ROLE is
    prefill or decode, where the file does not say. Numbers make nodes too, and fill in what files leave out.
    """
    pools: tuple[tuple[str, Role, int | None], ...] = (
        ("pool", "", pool),
        ("prefill-pool", "prefill", prefill_pool),
        ("decode-pool", "decode", decode_pool),
    )
    numbers = {"--context": context, "--page-size": page_size, **{f"--{option}": size for option, _, size in pools}}
    for option, number in numbers.items():
        if number is not None and number > MOST_TOKENS:
            raise UsageError(f"{option}: more than {MOST_TOKENS:,} tokens cannot be meant")
    nodes = _short([_of_file(file) for file in files])
    nodes += [_of_number(option, role, size) for option, role, size in pools if size is not None]
    if not nodes:
        raise UsageError("nothing to look at: give a start-up log, or --context and --prefill-pool; see kvmodel preflight --help")
    nodes = [_completed(node, context, page_size, engine) for node in nodes]
    from kvmodel.engines.preflight import preflight as judge

    result = judge(nodes)
    if as_json:
        common.emit_json("preflight", preflight_object(result))
    else:
        from kvmodel.views.preflight import preflight_text

        width, colour = common.page()
        common.emit(preflight_text(result, width=width, colour=colour))
    return common.exit_code(result.verdict, expected)


def _of_file(given: str) -> Node:
    from kvmodel.engines.facts import ROLES
    from kvmodel.engines.files import read_node

    role, equals, path = given.partition("=")
    for known in ROLES:
        if equals and role == known:
            return read_node(path, known)
    return read_node(given)


def _short(nodes: list[Node]) -> list[Node]:
    """The nodes called by their files' names alone, where these differ."""
    names = [Path(node.name).name for node in nodes]
    return [replace(node, name=name) for node, name in zip(nodes, names, strict=True)] if len(set(names)) == len(names) else nodes


def _of_number(option: str, role: Role, size: int) -> Node:
    from kvmodel.engines.facts import Fact, Node, Source

    return Node(role or "node", role, pool=Fact(size, Source(f"--{option}")))


def _completed(node: Node, context: int | None, page_size: int | None, engine: str | None) -> Node:
    """The node with what the command line says beside it. Raises UsageError where that contradicts the node's own file."""
    from kvmodel.engines.facts import Fact, Source

    if context is not None:
        node = replace(node, context=_agreed(node.context, Fact(context, Source("--context"))))
    if page_size is not None:
        node = replace(node, page=_agreed(node.page, Fact(page_size, Source("--page-size"))))
    if engine is None:
        return node
    name, equals, version = (part.strip() for part in engine.partition("=="))
    if name.lower() not in ("sglang", "vllm") or (equals and not version):
        raise UsageError(f"--engine {engine}: write sglang==VERSION or vllm==VERSION")
    node = replace(node, engine=_agreed(node.engine, Fact(name.lower(), Source("--engine"))))
    return replace(node, version=_agreed(node.version, Fact(version.removeprefix("v"), Source("--engine")))) if version else node


def _agreed(known: Fact[V] | None, given: Fact[V]) -> Fact[V]:
    if known is not None and known.value != given.value:
        raise UsageError(f"{given.source} {given.value} contradicts {known.source}, which says {known.value}; leave the option out")
    return known or given


def preflight_object(result: Preflight) -> dict[str, object]:
    """A preflight for JSON."""
    return {
        "verdict": result.verdict.value,
        "coverage": {**common.coverage_object(result.coverage), "nodes": len(result.nodes), "lengths": "all"},
        "reject_reachable": result.reject_reachable,
        "consequence": None if result.consequence is None else result.consequence.outcome.value,
        "basis": None if result.consequence is None else _consequence(result.consequence),
        "witness_length": min((report.witness for report in result.nodes if report.witness is not None), default=None),
        "nodes": [_node(report, entry) for report, entry in zip(result.nodes, result.consequences, strict=True)],
        "missing": list(result.missing),
        "warnings": [*result.warnings, *(warning for report in result.nodes for warning in report.warnings)],
        "advice": list(result.advice),
    }


def _consequence(consequence: Consequence) -> dict[str, object]:
    return {
        "reason": consequence.reason,
        "spec": consequence.spec or None,
        "flags": dict(consequence.flags),
        "steps": consequence.steps,
        "properties": [
            {"name": entry.name, "verdict": entry.verdict.value, "length": entry.length} for entry in consequence.properties
        ],
        "coverage": None if consequence.coverage is None else common.coverage_object(consequence.coverage),
    }


def _node(report: NodeReport, consequence: Consequence | None) -> dict[str, object]:
    node = report.node
    return {
        "name": node.name,
        "role": node.role or None,
        "engine": node.engine.value if node.engine else None,
        "version": node.version.value if node.version else None,
        "verdict": report.verdict.value,
        "consequence": None if consequence is None else consequence.outcome.value,
        "pool": report.pool,
        "usable": report.usable,
        "longest_accepted": report.accepted,
        "longest_served": report.served,
        "witness_length": report.witness,
        "margin_percent": None if report.margin is None else round(100 * report.margin, 2),
        "missing": list(report.missing),
        "warnings": list(report.warnings),
        "from": list(report.rules),
    }
