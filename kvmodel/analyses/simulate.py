"""The incident at its real size: what leaks, what the status shows, and what a canary shows.

Four deployments serve the same stream of requests: prefill's pool small or covering the context, the doors buggy or fixed.
Each runs the transitions of the handoff spec, page by page, through the compiled step; `kvmodel.analyses.scheduler` only
chooses which enabled step comes next. Whether a response leaked is what the spec's `isolated_read` says at the read.
"""

from __future__ import annotations

import gc
import math
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from multiprocessing.sharedctypes import RawArray
from typing import Any, Literal, TypeAlias

from kvmodel.analyses.detectors import Response, canary_test, status_test
from kvmodel.analyses.scheduler import GROUND_TRUTH, PATIENCE, Leak, Scheduler, Traffic
from kvmodel.errors import UsageError
from kvmodel.language.instance import Instance
from kvmodel.language.load import load_spec
from kvmodel.language.system import TransitionSystem
from kvmodel.readings.compiled import CompiledSystem, Valuation
from kvmodel.readings.explore import explore
from kvmodel.verdict import Verdict

__all__ = ["Cell", "CellResult", "Check", "SimulationOptions", "SimulationResult", "StartUp", "run_cell", "simulate"]

Progress: TypeAlias = Callable[[str], None]

POOLS = ("small", "covering")
DOORS = ("buggy", "fixed")
SIZING = "prefill_pool_covers_context"
REJECT = "reject"
NEEDED = {"prefill", "decode", "client", "seen_as", "content", "prompt", "context", "prefill_limit", "decode_limit"}


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """What is simulated. Sizes of pools and lengths of prompts are in tokens.

    `requests` prompts have log-normal lengths (`typical_prompt` is the median, `spread` the standard deviation of the
    logarithm), except `over_long` of them, which are longer than the small pool and fit the context. `aborts` is the share of
    clients that leave early. `buggy` and `fixed` name the specs of the two kinds of doors. The same `seed` gives the same
    result.
    """

    requests: int = 10_000
    over_long: int = 55
    context: int = 1_048_576
    prefill_pool: int = 681_280
    covering_pool: int = 2_040_000
    decode_pool: int = 2_040_000
    page_size: int = 64
    typical_prompt: int = 1_000
    spread: float = 1.2
    aborts: float = 0.0
    seed: int = 0
    buggy: str = "handoff:buggy"
    fixed: str = "handoff:fixed-doors"

    def __post_init__(self) -> None:
        for name in ("requests", "context", "prefill_pool", "covering_pool", "decode_pool", "page_size", "typical_prompt"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name.replace('_', ' ')} is {getattr(self, name)}; it must be at least 1")
        if not 0 <= self.over_long <= self.requests:
            raise UsageError(f"{self.over_long} over-long requests are not among {self.requests} requests")
        if not 0.0 <= self.aborts <= 1.0:
            raise UsageError(f"the share of aborts is {self.aborts}; it must be between 0 and 1")
        if not 0.0 <= self.spread <= 4.0:
            raise UsageError(f"the spread of prompt lengths is {self.spread}; it must be between 0 and 4")
        for name in ("prefill_pool", "covering_pool", "decode_pool"):
            if getattr(self, name) < self.page_size:
                raise UsageError(f"{name.replace('_', ' ')} of {getattr(self, name)} tokens has no page of {self.page_size}")

    def pages(self, tokens: int) -> int:
        """How many pages so many tokens take."""
        return -(-tokens // self.page_size)


@dataclass(frozen=True, slots=True)
class Cell:
    """One deployment of the two by two: `pool` is 'small' or 'covering', `doors` 'buggy' or 'fixed'."""

    pool: str
    doors: str

    def __str__(self) -> str:
        return f"{self.pool} pool, {self.doors} doors"


CELLS = tuple(Cell(pool, doors) for pool, doors in product(POOLS, DOORS))


@dataclass(frozen=True)
class CellResult:
    """What happened in one deployment.

    `over_long` counts prompts longer than the small pool, `rejected` how often prefill rejected one, `leaked` the answered
    requests that read another request's data (ground truth), `unanswered` the clients that got nothing because the engine had
    stalled. `steps` are transitions of the spec.
    """

    cell: Cell
    spec: str
    flags: tuple[tuple[str, bool], ...]
    requests: int
    over_long: int
    rejected: int
    leaked: tuple[Leak, ...]
    responses: tuple[Response, ...]
    aborted: int
    unanswered: int
    fired: tuple[tuple[str, int], ...]
    seconds: float

    @property
    def steps(self) -> int:
        return sum(count for _, count in self.fired)

    @cached_property
    def statuses(self) -> tuple[tuple[int, int], ...]:
        """How many responses had each HTTP status."""
        return tuple(sorted(Counter(response.status for response in self.responses).items()))

    @cached_property
    def leaked_requests(self) -> frozenset[int]:
        return frozenset(leak.request for leak in self.leaked)

    @cached_property
    def flagged_by_status(self) -> frozenset[int]:
        return status_test(self.responses)

    @cached_property
    def flagged_by_canary(self) -> frozenset[int]:
        return canary_test(self.responses)


@dataclass(frozen=True, slots=True)
class StartUp:
    """The start-up check of one pool: the assumptions of the spec that are false of its numbers if it claims to cover the
    context (none: it does cover it)."""

    pool: str
    tokens: int
    broken: tuple[str, ...]

    @property
    def flagged(self) -> bool:
        return bool(self.broken)


@dataclass(frozen=True, slots=True)
class Check:
    """One of the seven checks: a sentence, whether it passed (None: undecided) and what that rests on."""

    sentence: str
    passed: bool | None
    detail: str

    @property
    def word(self) -> str:
        """``PASS``, ``FAIL`` or ``UNDECIDED``."""
        return "UNDECIDED" if self.passed is None else "PASS" if self.passed else "FAIL"


@dataclass(frozen=True)
class SimulationResult:
    """Everything that a simulation has to tell. `explored` says for each kind of doors how often `reject` fired in an
    exhaustive exploration at small size with a covering pool (None: not completed)."""

    options: SimulationOptions
    cells: tuple[CellResult, ...]
    start_up: tuple[StartUp, ...]
    explored: tuple[tuple[str, int | None], ...]
    checks: tuple[Check, ...]
    reason: str
    seconds: float

    @property
    def verdict(self) -> Verdict:
        """Violated if a check failed, otherwise undecided if one is, otherwise holds."""
        outcomes = {check.passed for check in self.checks}
        return Verdict.VIOLATED if False in outcomes else Verdict.UNDECIDED if None in outcomes else Verdict.HOLDS

    def __getitem__(self, cell: Cell) -> CellResult:
        for result in self.cells:
            if result.cell == cell:
                return result
        raise KeyError(cell)


def simulate(options: SimulationOptions | None = None, progress: Progress | None = None, *, workers: int = 2) -> SimulationResult:
    """Simulate the four deployments, in `workers` processes (1: in this one), and judge the seven checks.

    `progress` is called a few times a second with a line of text. Ctrl-C ends early: checks that need a deployment which had
    not ended are undecided. Raises UsageError for options that the spec's assumptions do not allow.
    """
    options = options or SimulationOptions()
    started = time.monotonic()
    systems = {cell: system_of(options, cell) for cell in CELLS}
    start_up = tuple(start_up_check(options, pool, systems[Cell("covering", "buggy")]) for pool in POOLS)
    for cell, system in systems.items():
        require_possible(options, cell, system)
    cells: list[CellResult] = []
    explored: list[tuple[str, int | None]] = []
    reason = ""
    try:
        for doors in DOORS:
            explored.append((doors, rejects_at_small_size(systems[Cell("covering", doors)])))
        for result in _run_all(options, progress, workers):
            cells.append(result)
    except KeyboardInterrupt:
        reason = f"interrupted after {len(cells)} of {len(CELLS)} deployments"
    cells.sort(key=lambda result: CELLS.index(result.cell))
    checks = judge(cells, start_up, explored, reason)
    return SimulationResult(options, tuple(cells), start_up, tuple(explored), checks, reason, time.monotonic() - started)


# -- one deployment ----------------------------------------------------------------------------------------------------


def system_of(options: SimulationOptions, cell: Cell) -> TransitionSystem:
    """The spec of a deployment, with the flag that says whether prefill's pool covers the context. Raises UsageError for a
    spec that does not extend handoff."""
    system = load_spec(options.buggy if cell.doors == "buggy" else options.fixed)
    missing = NEEDED - system.by_name.keys()
    if missing:
        raise UsageError(f"simulate runs specs that extend handoff; {system.name} has no {', '.join(sorted(missing))}")
    return system.with_flags({SIZING: cell.pool == "covering"})


def limits(options: SimulationOptions, pool: str) -> Mapping[str, int]:
    """The spec's numbers of a deployment, in tokens: what whole pages hold."""
    prefill = options.prefill_pool if pool == "small" else options.covering_pool
    size = options.page_size
    return {"context": options.context, "prefill_limit": prefill // size * size, "decode_limit": options.decode_pool // size * size}


def traffic_of(options: SimulationOptions) -> tuple[tuple[int, ...], Traffic]:
    """The lengths of all prompts, in tokens, and what the clients do: the same for every deployment."""
    rng = random.Random(f"{options.seed}: traffic")
    longest = min(options.prefill_pool, options.context)
    lengths = [
        max(1, min(longest, round(rng.lognormvariate(math.log(options.typical_prompt), options.spread)))) for _ in range(options.requests)
    ]
    if longest < options.context:
        for number in rng.sample(range(options.requests), options.over_long):
            lengths[number] = rng.randint(longest + 1, options.context)
    canaries = tuple(f"canary-{rng.getrandbits(64):016x}" for _ in lengths)
    leaves = {number: rng.randint(0, PATIENCE) for number in range(options.requests) if rng.random() < options.aborts}
    return tuple(lengths), Traffic(tuple(options.pages(length) for length in lengths), canaries, leaves)


def run_cell(options: SimulationOptions, cell: Cell, tick: Callable[[int], None] = lambda ended: None) -> CellResult:
    """Simulate one deployment: a pure function of its options, for any executor."""
    started = time.monotonic()
    system = system_of(options, cell)
    lengths, traffic = traffic_of(options)
    numbers = limits(options, cell.pool)
    sizes = {
        "Request": options.requests,
        "Page.PREFILL": numbers["prefill_limit"] // options.page_size,
        "Page.DECODE": numbers["decode_limit"] // options.page_size,
    }
    compiled = CompiledSystem(system, sizes, [GROUND_TRUTH], searches=False)
    values: dict[str, Mapping[Any, Any]] = {name: {(): tokens} for name, tokens in numbers.items()}
    state = compiled.start({**values, "prompt": {(number,): length for number, length in enumerate(lengths)}})
    scheduler = Scheduler(compiled, state, traffic, options.seed, options.pages(numbers["prefill_limit"]))
    unanswered = scheduler.run(tick)
    return CellResult(
        cell,
        system.name,
        tuple(system.flag_values.items()),
        options.requests,
        sum(length > options.prefill_pool for length in lengths),
        scheduler.fired[REJECT],
        scheduler.leaked(),
        tuple(sorted(scheduler.responses, key=lambda response: response.request)),
        scheduler.fired["abort"],
        unanswered,
        tuple((action.name, scheduler.fired[action.name]) for action in system.actions),
        time.monotonic() - started,
    )


def start_up_check(options: SimulationOptions, pool: str, covering: TransitionSystem) -> StartUp:
    """What a node could check when it starts: the assumptions of a spec whose pool claims to cover the context."""
    tokens = options.prefill_pool if pool == "small" else options.covering_pool
    return StartUp(pool, tokens, broken_assumptions(covering, limits(options, pool)))


def require_possible(options: SimulationOptions, cell: Cell, system: TransitionSystem) -> None:
    """Raise UsageError, naming the assumptions, if the spec of a deployment does not allow its numbers."""
    numbers = limits(options, cell.pool)
    broken = broken_assumptions(system, numbers)
    if broken:
        shown = ", ".join(f"{name} {tokens:,}" for name, tokens in numbers.items())
        raise UsageError(f"{cell}: the spec does not allow these numbers ({shown}): {', '.join(broken)} is false")


def broken_assumptions(system: TransitionSystem, numbers: Mapping[str, int]) -> tuple[str, ...]:
    """Names of the assumptions of a handoff that are false of real numbers, with one request as long as the context."""
    rigid = replace(system, initial=(), actions=(), declared=(), finals=())
    compiled = CompiledSystem(rigid, {"Request": 1, "Page": 1})
    values: Valuation = {**{name: {(): tokens} for name, tokens in numbers.items()}, "prompt": {(0,): numbers["context"]}}
    return compiled.broken_conditions(compiled.valued(values))


def rejects_at_small_size(covering: TransitionSystem) -> int | None:
    """How often `reject` fires in all reachable states of the spec's default size; None if that was not completed."""
    result = explore(Instance.make(covering), [GROUND_TRUTH])
    return dict(result.fired)[REJECT] if result.coverage.word == "this size" else None


# -- all deployments ---------------------------------------------------------------------------------------------------


def _run_all(options: SimulationOptions, progress: Progress | None, workers: int) -> Iterator[CellResult]:
    """Each deployment's result, as it ends."""
    if workers <= 1:
        counts = [0] * len(CELLS)
        for position, cell in enumerate(CELLS):
            yield run_cell(options, cell, partial(_report, options, progress, counts, position))
        return
    shared = RawArray("q", len(CELLS) + 1)  # ended requests of each deployment; the last one tells workers to stop
    with ProcessPoolExecutor(workers, initializer=_join, initargs=(shared,)) as pool:
        waiting = {pool.submit(_run_counted, options, position) for position in range(len(CELLS))}
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=0.3, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
                if progress is not None:
                    progress(_progress_line(options, shared[: len(CELLS)]))
        finally:
            shared[-1] = 1
            for future in waiting:
                future.cancel()


_shared: Any = None  # in a worker process: the numbers that it shares with its parent


def _join(shared: Any) -> None:
    """Make a process a worker; Ctrl-C is its parent's business."""
    global _shared
    _shared = shared
    gc.set_threshold(500_000)  # many small sets come and go, and none of them is part of a cycle
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run_counted(options: SimulationOptions, position: int) -> CellResult:
    def tick(ended: int) -> None:
        _shared[position] = ended
        if _shared[-1]:
            raise InterruptedError("told to stop")

    return run_cell(options, CELLS[position], tick)


def _report(options: SimulationOptions, progress: Progress | None, counts: list[int], position: int, ended: int) -> None:
    counts[position] = ended
    if progress is not None:
        progress(_progress_line(options, counts))


def _progress_line(options: SimulationOptions, counts: Sequence[int]) -> str:
    return f"{sum(counts):,} of {options.requests * len(CELLS):,} requests in {len(CELLS)} deployments"


# -- the seven checks --------------------------------------------------------------------------------------------------


def judge(
    cells: Sequence[CellResult], start_up: Sequence[StartUp], explored: Sequence[tuple[str, int | None]], reason: str = ""
) -> tuple[Check, ...]:
    """The seven checks, from what happened; undecided, with `reason`, where something that they need is missing."""
    found = {result.cell: result for result in cells}
    leaky = found.get(Cell("small", "buggy"))
    return (
        _leaks_only_there(found, reason),
        _about_leaks(leaky, reason, "Every one of them has status 200.", _with_200, "all"),
        _about_leaks(leaky, reason, "A test that looks at the status only flags none of them.", _flagged_by_status, "none"),
        _about_leaks(leaky, reason, "A canary test flags every one of them.", _flagged_by_canary, "all"),
        _fixed_doors_stop_them(found.get(Cell("small", "fixed")), reason),
        _covering_never_rejects(found, dict(explored), reason),
        _start_up_flags(start_up),
    )


def _leaks_only_there(found: Mapping[Cell, CellResult], reason: str) -> Check:
    sentence = "Leaked responses exist only with the small pool and buggy doors."
    there = Cell("small", "buggy")
    elsewhere = [f"{len(result.leaked)} with {cell}" for cell, result in found.items() if cell != there and result.leaked]
    if elsewhere:
        return Check(sentence, False, ", ".join(elsewhere))
    if len(found) < len(CELLS):
        return Check(sentence, None, reason)
    return Check(sentence, bool(found[there].leaked), f"{len(found[there].leaked):,} there, none elsewhere")


def _about_leaks(
    leaky: CellResult | None, reason: str, sentence: str, count: Callable[[CellResult], int], wanted: Literal["all", "none"]
) -> Check:
    if leaky is None:
        return Check(sentence, None, reason)
    if not leaky.leaked:
        return Check(sentence, None, "nothing leaked, so there is nothing to judge")
    found, total = count(leaky), len(leaky.leaked)
    return Check(sentence, found == (total if wanted == "all" else 0), f"{found:,} of {total:,}")


def _with_200(result: CellResult) -> int:
    return sum(1 for response in result.responses if response.request in result.leaked_requests and response.status == 200)


def _flagged_by_status(result: CellResult) -> int:
    return len(result.leaked_requests & result.flagged_by_status)


def _flagged_by_canary(result: CellResult) -> int:
    return len(result.leaked_requests & result.flagged_by_canary)


def _fixed_doors_stop_them(result: CellResult | None, reason: str) -> Check:
    sentence = "Fixed doors alone stop them."
    if result is None:
        return Check(sentence, None, reason)
    if result.leaked:
        return Check(sentence, False, f"{len(result.leaked):,} leaked")
    if not result.rejected:
        return Check(sentence, None, "nothing was rejected, so the doors had nothing to stop")
    return Check(sentence, True, f"{result.rejected:,} rejected, none leaked")


def _covering_never_rejects(found: Mapping[Cell, CellResult], explored: Mapping[str, int | None], reason: str) -> Check:
    sentence = "A covering pool never takes the reject path."
    cells = [result for cell, result in found.items() if cell.pool == "covering"]
    taken = sum(result.rejected for result in cells) + sum(count or 0 for count in explored.values())
    if taken:
        return Check(sentence, False, f"it was taken {taken:,} times")
    if len(cells) < len(DOORS) or len(explored) < len(DOORS) or None in explored.values():
        return Check(sentence, None, reason or "the exploration did not complete")
    over_long = sum(result.over_long for result in cells)
    return Check(sentence, True, f"not for {over_long:,} over-long prompts; unreachable at small size, says explore")


def _start_up_flags(start_up: Sequence[StartUp]) -> Check:
    flagged = {entry.pool: entry for entry in start_up if entry.flagged}
    shown = "; ".join(f"{entry.pool} pool of {entry.tokens:,}: {_outcome(entry)}" for entry in start_up)
    return Check("The start-up check flags the small pool.", set(flagged) == {"small"}, shown)


def _outcome(entry: StartUp) -> str:
    return f"flagged ({', '.join(entry.broken)} is false)" if entry.flagged else "covers the context"
