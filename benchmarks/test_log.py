"""Events a second: following a log of handoff, by the pages of a request; and what writing an event costs.

    pytest benchmarks/test_log.py --benchmark-only
    python benchmarks/test_log.py 10000000       events a second and memory of a log of that many events

Eight requests are served at a time, with twelve events each or more: a request of many pages has its writes land four at a time. Decoding
is included, the reading of the spec is not.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Iterator
from io import BytesIO
from random import Random
from typing import BinaryIO

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kvmodel.engines.log.monitor import Monitor
from kvmodel.engines.log.plan import Plan
from kvmodel.engines.log.reader import LogReader
from kvmodel.engines.log.schema import Header
from kvmodel.engines.log.writer import LogWriter
from kvmodel.language.load import load_spec

PREFILL, DECODE = 1_024, 2_048
HEADER = Header(
    1, {"prefill": PREFILL, "decode": DECODE}, values={"context": 10**6, "prefill_limit": 10**5, "decode_limit": 10**6}, engine="synthetic"
)
AT_A_TIME = 8
TOGETHER = 4  # writes that land in one event


def life(log: LogWriter, request: str, sources: list[int], targets: list[int], prompt: int) -> Iterator[None]:
    """A request from its arrival to its answer, an event at a time."""
    log.event("decode_door", node="decode", request=request, values={"prompt": prompt})
    yield
    log.event("prefill_door", node="prefill", request=request)
    yield
    log.event("allocate", node="prefill", request=request, pages=sources)
    yield
    log.event("allocate", node="decode", request=request, pages=targets)
    yield
    log.event("forward", node="prefill", request=request, first=sources[0])
    yield
    log.event("announce", node="decode", request=request)
    yield
    log.event("send", node="prefill", request=request, first=targets[0])
    yield
    for start in range(0, len(sources), TOGETHER):
        end = start + TOGETHER
        log.event("land", node="network", request=request, source=sources[start:end], target=targets[start:end])
        yield
    for node, action in (("prefill", "succeed"), ("decode", "commit"), ("decode", "read")):
        log.event(action, node=node, request=request)
        yield
    log.event("finish", node="decode", request=request)


def write_log(file: BinaryIO, events: int, fewest: int, most: int) -> int:
    """Write a log of at least that many events; gives how many pages were taken."""
    random = Random(0)
    free = [list(range(PREFILL)), list(range(DECODE))]
    pages = number = 0
    going: list[tuple[Iterator[None], list[int], list[int]]] = []
    with LogWriter(file, HEADER, clock=lambda: 0.0) as log:
        while going or log.noted < events:
            while len(going) < AT_A_TIME and log.noted < events:
                count = random.randint(fewest, most)
                sources, targets = ([pool.pop(random.randrange(len(pool))) for _ in range(count)] for pool in free)
                pages += 2 * count
                going.append((life(log, f"req-{number:08x}", sources, targets, count * 64), sources, targets))
                number += 1
            chosen = random.choice(going)
            if next(chosen[0], "ended") == "ended":
                going.remove(chosen)
                free[0] += chosen[1]
                free[1] += chosen[2]
    return pages


@pytest.mark.parametrize(("fewest", "most"), [(1, 1), (1, 2), (1, 8), (16, 64)])
def test_following(benchmark: BenchmarkFixture, fewest: int, most: int) -> None:
    file = BytesIO()
    pages = write_log(file, 20_000, fewest, most)
    log = file.getvalue()
    plan = Plan(load_spec("handoff"), HEADER)

    def follow() -> int:
        reader = LogReader(BytesIO(log))
        reader.header()
        monitor = Monitor(plan)
        for line, events in reader.blocks(plan.events.decoder):
            monitor.feed(events, line)
        assert monitor.unexplained is None
        assert not monitor.broken
        return monitor.count

    gc.collect()
    gc.disable()
    try:
        count: int = benchmark.pedantic(follow, rounds=15, warmup_rounds=2)  # type: ignore[no-untyped-call]
    finally:
        gc.enable()
    benchmark.extra_info["pages an event"] = round(pages / count, 2)
    if benchmark.stats is not None:
        benchmark.extra_info["events a second"] = round(count / benchmark.stats.stats.min)


def test_writing(benchmark: BenchmarkFixture) -> None:
    with open("/dev/null", "wb") as file, LogWriter(file, HEADER) as log:
        benchmark(lambda: log.event("allocate", node="decode", request="req-00000001", pages=[3, 4, 5]))


def main(events: int) -> None:
    """Write a log into a pipe and follow it from there."""
    import os

    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        os.close(read_end)
        with os.fdopen(write_end, "wb") as file:
            write_log(file, events, 1, 2)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as file:
        reader = LogReader(file)
        reader.header()
        monitor = Monitor(Plan(load_spec("handoff"), HEADER))
        gc.disable()
        began, told = time.process_time(), 1_000_000
        for line, found in reader.blocks(monitor.events.decoder):
            monitor.feed(found, line)
            if monitor.count >= told or monitor.count >= events:
                spent = time.process_time() - began
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                print(f"{monitor.count:,} events, {monitor.count / spent:,.0f} a second of processor time, {memory:.0f} MB", flush=True)
                told += 1_000_000
        assert monitor.unexplained is None
        assert not monitor.broken
    os.waitpid(child, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
