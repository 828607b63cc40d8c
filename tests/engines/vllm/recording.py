"""Drive a scheduler with a recorder on it: ``python -m tests.engines.vllm.recording RELEASE DEPTH STEPS LOG`` (LOG '' : none)."""

from __future__ import annotations

import random
import sys
import time

from kvmodel.engines.adapter import Batch, Submission
from kvmodel.engines.vllm.recorder import Recorder
from kvmodel.engines.vllm.release import boot
from kvmodel.engines.vllm.scheduler import SchedulerAdapter

__all__ = ["drive"]


def drive(engine: SchedulerAdapter, steps: int, seed: int = 1) -> int:
    """Random steps. How many batches were scheduled."""
    chance = random.Random(seed)
    queue: list[Batch] = []
    submitted = batches = 0
    for _ in range(steps):
        choice = chance.random()
        if choice < 0.25 and len(engine.live()) < 6:
            tokens = tuple(chance.randint(0, 1) for _ in range(chance.randint(1, 7)))
            role = chance.choice(engine.roles)
            engine.submit(Submission(f"r{submitted}", tokens, chance.choice((None, "tenant")), role, chance.randint(1, 4)))
            submitted += 1
        elif choice < 0.65 and len(queue) < engine.depth:
            batch = engine.step()
            if batch is not None:
                batches += 1
                queue.append(batch)
        elif choice < 0.9 and queue:
            batch = queue.pop(0)
            sampled = {work.request: chance.randint(0, 1) for work in batch.work}
            engine.complete(batch, sampled)
        elif choice < 0.95 and engine.transfers():
            engine.land(chance.choice(engine.transfers()).id)
        elif choice < 0.97 and engine.live():
            engine.abort(chance.choice(sorted(engine.live())))
    return batches


def main(release: str, depth: str, steps: str, log: str) -> None:
    """Print the milliseconds of processor time a batch, with all that happens between two batches."""
    imported = boot(release)
    recorder = Recorder(log, release).install() if log else None
    engine = SchedulerAdapter(imported, pages=7 if depth == "1" else 4, depth=int(depth))
    start = time.process_time()
    batches = drive(engine, int(steps))
    spent = time.process_time() - start
    if recorder is not None:
        recorder.remove()
    print(f"{1000 * spent / max(1, batches):.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
