"""How long Z3 takes to the incident: from the instance to the replayed shortest trace.

    pytest benchmarks/test_bmc.py --benchmark-only

Each round encodes, unrolls, refutes every shorter depth and finds the violation. `conflicts` in an entry's extra figures
are the SAT solver's: with the same seed and version they do not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kvmodel.language.instance import Instance
from kvmodel.language.load import load_spec
from kvmodel.readings.bmc import bmc
from kvmodel.verdict import Result


def timed(benchmark: BenchmarkFixture, check: Callable[[], Result]) -> Result:
    result: Result = benchmark.pedantic(check, rounds=3, warmup_rounds=1)  # type: ignore[no-untyped-call]
    benchmark.extra_info.update(result.statistics)
    return result


@pytest.mark.parametrize(("requests", "pages"), [(2, 2), (3, 4)])
def test_shortest_isolated_read(benchmark: BenchmarkFixture, requests: int, pages: int) -> None:
    """`pages` in each of the two pools."""
    instance = Instance.make(load_spec("handoff:buggy"), {"Request": requests, "Page": pages})
    result = timed(benchmark, lambda: bmc(instance, ["isolated_read"], depth=20))
    assert result["isolated_read"].length == 13


def test_every_property_of_the_recommended_design(benchmark: BenchmarkFixture) -> None:
    """What `kvmodel check handoff --method bmc --depth 14` does at 2 requests and 2 pages a pool."""
    instance = Instance.make(load_spec("handoff"), {"Request": 2, "Page": 2})
    result = timed(benchmark, lambda: bmc(instance, depth=14))
    assert not [found for found in result.properties if found.trace is not None and not found.reachable]
