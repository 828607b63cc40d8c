"""Drive two nodes with a recorder on them: ``python -m tests.engines.sglang.recording RELEASE STEPS LOG [SCENARIO]``.

Without a scenario, at random. "incident": requests are served, then one is longer than prefill takes. "late": a client goes away while its
pages are being sent, and they are wanted by others. "source": the same, with room on decode, so that only prefill's are.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvmodel.engines.adapter import Batch, Role, Submission
from kvmodel.engines.sglang.boot import release_for
from kvmodel.engines.sglang.engine import HandoffAdapter
from kvmodel.engines.sglang.nodes import Settings
from kvmodel.engines.sglang.recorder import Hook, Recorder, header_for

__all__ = ["SCENARIOS", "drive", "recorder_of"]

SMALL_PREFILL = Settings(prefill_pages=3, decode_pages=5)
EQUAL = Settings(prefill_pages=5, decode_pages=5)
LARGE_DECODE = Settings(prefill_pages=3, decode_pages=8)


def recorder_of(engine: HandoffAdapter, log: Path) -> Timed:
    """A recorder of both nodes."""
    nodes, settings = engine.nodes, engine.settings
    limits = {"prefill_limit": nodes.prefill.limit - 1, "decode_limit": nodes.decode.limit - 1, "context": settings.context}
    pools = {"prefill": settings.prefill_pages + 1, "decode": settings.decode_pages + 1}
    return Timed(header_for(engine.version, limits, pools), log.open("wb", buffering=0), settings.page_size)


class Timed(Recorder):
    """Adds up what its hooks take."""

    spent = 0.0

    def _guarded(self, hook: Hook) -> Callable[..., None]:
        noted = super()._guarded(hook)

        def timed(*arguments: Any, **named: Any) -> None:
            start = time.perf_counter()
            noted(*arguments, **named)
            self.spent += time.perf_counter() - start

        return timed


def rounds(engine: HandoffAdapter, count: int, *, landing: bool = True) -> None:
    """That many rounds of both nodes."""
    for _ in range(count):
        batch = engine.step()
        if batch is not None:
            engine.complete(batch, {work.request: 1 for work in batch.work})
        for transfer in engine.transfers() if landing else ():
            engine.land(transfer.id)


def prompt(request: str, length: int) -> Submission:
    """A request that asks both nodes for one token more than the first."""
    return Submission(request, (7,) * length, None, Role.HANDOFF, 1)


def incident(engine: HandoffAdapter) -> None:
    """Three requests are served, one before and one after the prompt that is too long for prefill."""
    for request, length in (("r0", 3), ("r1", 5), ("r2", 9), ("r3", 4)):
        engine.submit(prompt(request, length))
        rounds(engine, 5)


def late(engine: HandoffAdapter) -> None:
    """A request is aborted while its write is in flight."""
    engine.submit(prompt("r0", 9))
    rounds(engine, 5, landing=False)
    engine.abort("r0")
    rounds(engine, 2, landing=False)
    engine.submit(prompt("r1", 13))
    rounds(engine, 3, landing=False)
    rounds(engine, 6)


def source(engine: HandoffAdapter) -> None:
    """A request is aborted while its write is in flight, and the next one gets the pages that this reads from."""
    engine.submit(prompt("r0", 5))
    rounds(engine, 4, landing=False)
    engine.abort("r0")
    rounds(engine, 2, landing=False)
    engine.submit(prompt("r1", 5))
    rounds(engine, 4, landing=False)
    rounds(engine, 5)


SCENARIOS: dict[str, tuple[Settings, Callable[[HandoffAdapter], None]]] = {
    "incident": (SMALL_PREFILL, incident),
    "late": (EQUAL, late),
    "source": (LARGE_DECODE, source),
}


def drive(engine: HandoffAdapter, steps: int, seed: int = 1) -> tuple[int, float]:
    """Random steps. How many batches ran, and the seconds that both nodes took for all."""
    chance = random.Random(seed)
    submitted = batches = 0
    spent = 0.0
    pending: Batch | None = None
    for _ in range(steps):
        choice = chance.random()
        start = time.perf_counter()
        if choice < 0.2 and len(engine.live()) < 5:
            engine.submit(prompt(f"r{submitted}", chance.randint(1, max(engine.lengths))))
            submitted += 1
        elif choice < 0.8 and pending is None:
            pending = engine.step()
            batches += pending is not None
        elif choice < 0.8 and pending is not None:
            engine.complete(pending, {work.request: 1 for work in pending.work})
            pending = None
        elif choice < 0.97 and engine.transfers():
            engine.land(chance.choice(engine.transfers()).id)
        elif engine.live() and pending is None:
            engine.abort(chance.choice(sorted(engine.live())))
        spent += time.perf_counter() - start
    return batches, spent


def main(release: str, steps: str, log: str, scenario: str = "") -> None:
    """Print the milliseconds of a batch, and what the recorder takes of them."""
    settings, play = SCENARIOS.get(scenario, (EQUAL, None))
    engine = HandoffAdapter(release_for(release), settings)
    recorder = recorder_of(engine, Path(log))
    recorder.install()
    batches, spent = 1, 0.0
    if play is not None:
        play(engine)
    else:
        batches, spent = drive(engine, int(steps))
    recorder.close()
    print(f"{1_000 * spent / max(1, batches):.3f} {1_000 * recorder.spent / max(1, batches):.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
