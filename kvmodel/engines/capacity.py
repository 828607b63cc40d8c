"""What a node's facts say about the numbers of a spec: the context, and the longest prompt that the pool holds.

Facts become linear inequalities over whole numbers, with an engine's own corrections among them. What is not known stays
open within the bounds that are; nothing here decides anything.

The corrections, as measured on the releases' code:

- SGLang serves prompts up to ``min(context - 1, pool - 1) - 5`` (0.5.16, `srt/managers/tp_worker.py`), so its pool holds six tokens
  less than its size; the front end checks the context alone. A pool holds whole pages.
- vLLM keeps block 0 as its null block (0.33.0, `vllm/v1/core/block_pool.py`), so a pool of N blocks has N - 1, and a context fits if
  ``ceil(max_model_len / block_size) <= N - 1``. ``Maximum concurrency`` is blocks over blocks of a request, for hybrid models with
  several cache groups as well, where the size in tokens is another figure: the concurrency is the one to trust.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvmodel.engines.facts import Fact, Node

__all__ = ["BLOCKS", "CONTEXT", "LARGEST_PAGE", "LIMIT", "SGLANG_RESERVE", "Capacity", "Inequality", "capacity_of"]

CONTEXT, LIMIT, BLOCKS = "context", "limit", "blocks"
SGLANG_RESERVE = 6
LARGEST_PAGE = 4096  # tokens of a page, where no page size is known
USUAL_PAGE = 256


@dataclass(frozen=True, slots=True)
class Inequality:
    """The sum of the terms (name, factor) and `constant` is not negative; `why` says where that comes from."""

    terms: tuple[tuple[str, int], ...]
    constant: int
    why: str


@dataclass(frozen=True, slots=True)
class Capacity:
    """What is known of one node's numbers.

    `page` is the number of tokens that one unit stands for: 1 where lengths are counted in tokens, or tokens of a page (0: not known)
    where they are counted in pages. `missing` names the facts that would decide more; `door` is the longest prompt that
    the engine's own limit lets through, in tokens.
    """

    inequalities: tuple[Inequality, ...]
    page: int = 1
    missing: tuple[str, ...] = ()
    door: int | None = None
    notes: tuple[str, ...] = ()


def _exactly(name: str, value: int, why: str) -> tuple[Inequality, Inequality]:
    return Inequality(((name, 1),), -value, why), Inequality(((name, -1),), value, why)


def _between(name: str, low: int, high: int, why: str) -> tuple[Inequality, Inequality]:
    return Inequality(((name, 1),), -low, why), Inequality(((name, -1),), high, why)


def capacity_of(node: Node) -> Capacity:
    """The inequalities of a node. Facts that are missing leave numbers open."""
    node = _with_context(node)
    if node.room is not None:
        return _refused(node, node.room)
    engine = node.engine.value if node.engine else ""
    if engine == "vllm" and node.concurrency is not None:
        return _by_concurrency(node, node.concurrency)
    if engine == "vllm" and node.page is not None and (node.blocks is not None or node.pool is not None):
        return _by_blocks(node, node.page)
    return _by_tokens(node, engine)


def _with_context(node: Node) -> Node:
    """SGLang's limit gives the context away where it is below what the pool allows."""
    if node.context is None and node.door is not None and node.pool is not None and node.door.value < node.pool.value - SGLANG_RESERVE:
        return replace(node, context=Fact(node.door.value + SGLANG_RESERVE, node.door.source))
    return node


def _context(node: Node) -> tuple[tuple[Inequality, ...], tuple[str, ...]]:
    if node.context is None:
        return (), ("the context length",)
    return _exactly(CONTEXT, node.context.value, f"context {node.context.value:,} ({node.context.source})"), ()


def _refused(node: Node, room: Fact[int]) -> Capacity:
    known, missing = _context(node)
    smaller = Inequality(((CONTEXT, 1), (LIMIT, -1)), -1, f"the engine refused to start ({room.source})")
    if room.value == 0:  # it says that there is too little room, not how much
        return Capacity((*known, smaller, Inequality(((LIMIT, 1),), 0, smaller.why)), missing=missing)
    return Capacity((*known, smaller, *_exactly(LIMIT, room.value, f"room for {room.value:,} tokens ({room.source})")), missing=missing)


def _by_tokens(node: Node, engine: str) -> Capacity:
    known, missing = _context(node)
    pool = node.pool
    page = node.page.value if node.page else None
    if pool is None and node.blocks is not None and page is not None:
        pool = Fact(node.blocks.value * page, node.blocks.source)
    if pool is None:
        return Capacity(known, missing=("the size of the KV pool", *missing))
    size, where = pool.value, f"pool {pool.value:,} ({pool.source})"
    whole = size if page is None else size // page * page
    if engine == "sglang":
        usable = max(0, min(size - SGLANG_RESERVE, whole))
        why = f"{where}, of which SGLang keeps {SGLANG_RESERVE} tokens (tp_worker.py) and uses whole pages"
        door = None if node.context is None else max(0, min(node.context.value - 1, size - 1) - 5)
        notes: tuple[str, ...] = ()
        if node.door is not None:
            if door is not None and node.door.value != door and not node.wider:
                notes = (
                    f"{node.door.source}: the node says that it serves {node.door.value:,} tokens; from its pool and context it is "
                    f"{door:,}. The smaller one counts.",
                )
            if node.door.value < size - SGLANG_RESERVE and (node.context is None or node.door.value < node.context.value - SGLANG_RESERVE):
                usable = min(usable, node.door.value)
            door = node.door.value if door is None else min(door, node.door.value)
        return Capacity((*known, *_exactly(LIMIT, usable, why)), missing=missing, door=door, notes=notes)
    null = page or LARGEST_PAGE
    if engine == "vllm":
        why = f"{where}, of which one block, of at most {null:,} tokens, is the null block (block_pool.py)"
        lacking = () if page is not None else ("the page size",)
        return Capacity((*known, *_between(LIMIT, max(0, whole - null), max(0, size - 1), why)), missing=(*missing, *lacking))
    why = f"{where}, of which an engine that is not named may keep up to {null:,} tokens"
    return Capacity((*known, *_between(LIMIT, max(0, whole - null), whole, why)), missing=(*missing, "the engine"))


def _by_blocks(node: Node, page: Fact[int]) -> Capacity:
    size = page.value
    if node.blocks is not None:
        blocks, source = node.blocks.value, node.blocks.source
    else:
        assert node.pool is not None
        blocks, source = node.pool.value // size, node.pool.source
    facts: list[Inequality] = [*_exactly(BLOCKS, blocks, f"{blocks:,} blocks ({source})"), *_null_block()]
    missing: tuple[str, ...] = ("the context length",)
    if node.context is not None:
        missing = ()
        length, where = node.context.value, node.context.source
        facts += _exactly(CONTEXT, -(-length // size), f"context {length:,} ({where}) in whole blocks")
    return Capacity(tuple(facts), page=size, missing=missing)


def _null_block() -> tuple[Inequality, ...]:
    why = "one block is the null block (block_pool.py)"
    return Inequality(((BLOCKS, 1), (LIMIT, -1)), -1, why), Inequality(((LIMIT, 1), (BLOCKS, -1)), 1, why)


def _by_concurrency(node: Node, concurrency: Fact[int]) -> Capacity:
    """Blocks over blocks of a request, rounded to hundredths."""
    hundredths, source = concurrency.value, concurrency.source
    why = f"room for {hundredths / 100:,.2f} requests of full length ({source})"
    facts: list[Inequality] = [
        *_null_block(),
        Inequality(((CONTEXT, 1),), -1, "a request takes a block"),
        Inequality(((BLOCKS, 200), (CONTEXT, 1 - 2 * hundredths)), 0, why),
        Inequality(((BLOCKS, -200), (CONTEXT, 1 + 2 * hundredths)), 0, why),
    ]
    if node.context is None or node.pool is None:
        return Capacity(tuple(facts), page=0, missing=("the page size", "the context length"))
    length, pool = node.context.value, node.pool.value
    page = node.page.value if node.page else None
    # Rounding of the concurrency, and the last block of a request, which need not be full.
    slack = length + (2 * hundredths + 2) * (page or USUAL_PAGE) + 200
    if abs(200 * pool - 2 * hundredths * length) > slack:
        said = hundredths * length // 100
        note = (
            f"{node.pool.source}: {pool:,} tokens, while {hundredths / 100:,.2f} requests of {length:,} tokens are {said:,}: "
            "a hybrid model with several cache groups. The concurrency is the one to trust."
        )
        return Capacity(tuple(facts), page=0, missing=("the number of blocks of each cache group",), notes=(note,))
    if page is None:
        return Capacity(tuple(facts), page=0, missing=("the page size",))
    need = -(-length // page)
    facts += _exactly(CONTEXT, need, f"context {length:,} ({node.context.source}) in whole blocks")
    where = f"pool {pool:,} ({node.pool.source})"
    facts.append(Inequality(((BLOCKS, page),), -pool, where))
    facts.append(Inequality(((BLOCKS, -length), (CONTEXT, pool + 1)), 0, where))
    return Capacity(tuple(facts), page=page)
