"""What is driven of a release of SGLang: which adapter, with which pools, and how long a search has to be to find what it can find."""

from __future__ import annotations

from kvmodel.engines.adapter import Capability
from kvmodel.engines.machines import Machine
from kvmodel.engines.sglang.allocators import PagedAdapter, TokenAdapter
from kvmodel.engines.sglang.engine import HandoffAdapter
from kvmodel.engines.sglang.nodes import Settings

__all__ = ["MACHINES"]

# Prefill's pool is the smaller one: prompts of 6 to 13 tokens are longer than prefill takes, and not longer than decode does.
SMALL_PREFILL = Settings(prefill_pages=3, decode_pages=5)
# Equal pools: no prompt that decode takes is too long for prefill, and what is given back is soon wanted by others.
EQUAL = Settings(prefill_pages=5, decode_pages=5)
TRUNCATING = Settings(prefill_pages=3, decode_pages=5, truncates=True)

MACHINES = (
    Machine("tokens", "TokenToKVPoolAllocator: pages of one token.", TokenAdapter, 100),
    Machine("pages", "PagedTokenToKVPoolAllocator.", PagedAdapter, 100),
    Machine(
        "handoff",
        "Prefill and decode node, prefill's pool the smaller one.",
        lambda release: HandoffAdapter(release, SMALL_PREFILL),
        100,
        30,
        variant="handoff:sglang-0.5.16",
    ),
    Machine(
        "late-write",
        "Prefill and decode node, pools of one size: writes land after their request is gone.",
        lambda release: HandoffAdapter(release, EQUAL),
        150,
        30,
        variant="handoff:abort-without-quarantine",
    ),
    Machine(
        "deadline",
        "As late-write, and the deadline of a deferred release passes before its write has landed. A hazard, from 0.5.21.",
        lambda release: HandoffAdapter(release, EQUAL),
        300,
        30,
        frozenset({Capability.EXPIRE}),
        variant="handoff:quarantine-gives-up",
        hazard=True,
    ),
    Machine(
        "truncating",
        "As handoff, with automatic truncation on both nodes. A hazard: give both nodes one limit, or do not truncate.",
        lambda release: HandoffAdapter(release, TRUNCATING),
        100,
        30,
        variant="handoff:sglang-0.5.21-truncating",
        hazard=True,
    ),
)
