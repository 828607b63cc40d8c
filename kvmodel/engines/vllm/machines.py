"""What can be driven of a vLLM release."""

from __future__ import annotations

from kvmodel.engines.adapter import Capability
from kvmodel.engines.machines import Machine
from kvmodel.engines.vllm.manager import ManagerAdapter
from kvmodel.engines.vllm.scheduler import SchedulerAdapter

__all__ = ["MACHINES"]

FEW = frozenset({Capability.EVICT, Capability.RESET, Capability.REMOTE, Capability.DETACH})

MACHINES = (
    Machine("manager", "KVCacheManager with one cache group.", lambda release: ManagerAdapter(release, pages=6)),
    Machine(
        "hybrid",
        "KVCacheManager with a group of full attention and one of a sliding window, and tokens that come from elsewhere.",
        lambda release: ManagerAdapter(release, pages=7, windows=(None, 4), without=FEW),
        examples=600,
        variant="cached:hit-and-new",
    ),
    Machine(
        "scheduler",
        "Scheduler with a KV connector: prefill for others, decode for others, and both.",
        lambda release: SchedulerAdapter(release, pages=7),
        variant="cached:abort-frees-target",
    ),
    Machine(
        "scheduler-two-batches",
        "The same with two batches under way.",
        lambda release: SchedulerAdapter(release, pages=4, depth=2),
        examples=600,
        variant="cached:freed-while-queued",
    ),
    Machine(
        "nixl",
        "Scheduler with the scheduler side of NIXL's own connector.",
        lambda release: SchedulerAdapter(release, pages=7, nixl=True),
        variant="cached:abort-frees-target",
    ),
    Machine(
        "nixl-two-batches",
        "The same with two batches under way.",
        lambda release: SchedulerAdapter(release, pages=4, depth=2, nixl=True),
        examples=600,
        variant="cached:freed-while-queued",
    ),
    Machine(
        "leases",
        "NIXL's own connector, where the lease of a prefill request may pass before decode has read. A hazard of the protocol.",
        lambda release: SchedulerAdapter(release, pages=4, nixl=True),
        hazards=frozenset({Capability.EXPIRE}),
        variant="cached:lease-expires",
        hazard=True,
    ),
)
