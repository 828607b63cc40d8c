"""Hypothesis drives a real engine through its adapter: it chooses requests, lengths, aborts, and when remote writes land.

Pools should be small: with three to six usable pages there is hardly a run in which they do not run out. Import this module
where it is needed: it imports Hypothesis.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, strategies
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from kvmodel.engines.adapter import Capability, Role, Submission, Tokens
from kvmodel.engines.allocator_driver import AllocatorDriver
from kvmodel.engines.driver import Driver, Halt, Make, Record
from kvmodel.engines.engine_driver import EngineDriver
from kvmodel.engines.levels import driver_for
from kvmodel.engines.play import shortened
from kvmodel.traces.trace import Trace

__all__ = ["AllocatorMachine", "EngineMachine", "machine_for", "search"]

MOST_REQUESTS = 6  # live at a time
LONGEST = 7  # pages that a request may need
ALPHABET = 2  # different tokens: few, so that prompts share prefixes
SALTS = (None, "tenant")


class OutOfTime(KeyboardInterrupt):
    """Ends a search that is out of time: Hypothesis lets an interrupt through, and takes anything else for a failure."""


class _Machine(RuleBasedStateMachine):
    """What both machines share. `started` is called at the beginning of each run, `describe` writes one that violates something."""

    make: ClassVar[Make]
    name: ClassVar[str]
    record: ClassVar[Record | None] = None
    started: ClassVar[tuple[Callable[[], None], ...]] = ()
    describe: ClassVar[tuple[Callable[[Trace], str], ...]] = ()
    hazards: ClassVar[frozenset[Capability]] = frozenset()

    def __init__(self) -> None:
        super().__init__()
        for tell in self.started:
            tell()
        self.driver: Any = driver_for(type(self).make(), self.name, self.record)
        for describe in self.describe:
            self.driver.describe = describe

    def teardown(self) -> None:
        driver: Driver = self.driver
        if not driver.over:
            driver.drain()


def _picked(names: Sequence[str], which: int) -> str:
    return names[which % len(names)]


def _prompts(page_size: int) -> strategies.SearchStrategy[Tokens]:
    """Token lists over a small alphabet, so that some share prefixes."""
    return strategies.lists(strategies.integers(0, ALPHABET - 1), min_size=1, max_size=LONGEST * page_size // 2).map(tuple)


def _lengths(lengths: Sequence[int]) -> strategies.SearchStrategy[int]:
    """Lengths of prompts, many of them those at which an admission check changes its mind."""
    return strategies.one_of(strategies.sampled_from(sorted(set(lengths))), strategies.integers(1, max(lengths)))


class AllocatorMachine(_Machine):
    """Drives the bookkeeping of one pool."""

    driver: AllocatorDriver

    @precondition(lambda self: len(self.driver.live) < MOST_REQUESTS)
    @rule(data=strategies.data(), salt=strategies.sampled_from(SALTS), external=strategies.integers(0, 4), remote=strategies.booleans())
    def admit(self, data: strategies.DataObject, salt: str | None, external: int, remote: bool) -> None:
        """A new request."""
        driver = self.driver
        tokens = data.draw(_prompts(driver.adapter.page_size), label="tokens")
        salt = salt if driver.can(Capability.SALT) else None
        driver.admit(f"r{len(driver.requests.tokens)}", tokens, salt, external * driver.adapter.page_size, remote)

    @precondition(lambda self: self.driver.ended and len(self.driver.live) < MOST_REQUESTS)
    @rule(which=strategies.integers(0, 9))
    def resume(self, which: int) -> None:
        """A request that was rejected or preempted is admitted again."""
        driver = self.driver
        request = _picked(driver.ended, which)
        driver.admit(request, driver.requests.tokens[request], driver.requests.salts[request], 0, False)

    @precondition(lambda self: self.driver.waiting)
    @rule(which=strategies.integers(0, 9))
    def arrived(self, which: int) -> None:
        """Remote writes land."""
        self.driver.arrived(_picked(list(self.driver.waiting), which))

    @precondition(lambda self: self.driver.can(Capability.EXTEND) and self.driver.settled())
    @rule(which=strategies.integers(0, 9), token=strategies.integers(0, ALPHABET - 1))
    def extend(self, which: int, token: int) -> None:
        """A token is generated."""
        request = _picked(self.driver.settled(), which)
        if len(self.driver.requests.tokens[request]) < LONGEST * self.driver.adapter.page_size:
            self.driver.extend(request, token)

    @precondition(lambda self: self.driver.settled())
    @rule(which=strategies.integers(0, 9))
    def free(self, which: int) -> None:
        """A request ends."""
        self.driver.end(_picked(self.driver.settled(), which), detach=False)

    @precondition(lambda self: self.driver.can(Capability.DETACH) and self.driver.settled())
    @rule(which=strategies.integers(0, 9))
    def detach(self, which: int) -> None:
        """A request ends, and its pages are held back."""
        self.driver.end(_picked(self.driver.settled(), which), detach=True)

    @precondition(lambda self: self.driver.held_back)
    @rule()
    def release(self) -> None:
        """What was held back longest goes back."""
        self.driver.release(self.driver.held_back[0])

    @precondition(lambda self: self.driver.can(Capability.EVICT))
    @rule(pages=strategies.frozensets(strategies.integers(0, 20), min_size=1, max_size=3), mind=strategies.integers(0, 2))
    def evict(self, pages: frozenset[int], mind: int) -> None:
        """Index entries are dropped, not too often."""
        if not mind:
            self.driver.evict(pages)

    @precondition(lambda self: self.driver.can(Capability.RESET))
    @rule(mind=strategies.integers(0, 3))
    def reset(self, mind: int) -> None:
        """The index is dropped, seldom: without one nothing is shared."""
        if not mind:
            self.driver.reset()


class EngineMachine(_Machine):
    """Drives an engine. With `hazards` it also lets deadlines pass at which the engine is entitled to give up.

    Remote operations of a request that is not *slow* end as soon as they have begun: choosing that once for each request
    leads further than choosing at every step.
    """

    driver: EngineDriver

    def __init__(self) -> None:
        self.slow: set[str] = set()
        super().__init__()

    @precondition(lambda self: len(self.driver.live()) < MOST_REQUESTS)
    @rule(
        data=strategies.data(),
        salt=strategies.sampled_from(SALTS),
        role=strategies.integers(0, 9),
        new=strategies.integers(1, 4),
        slow=strategies.booleans(),
    )
    def submit(self, data: strategies.DataObject, salt: str | None, role: int, new: int, slow: bool) -> None:
        """A client sends a request."""
        driver = self.driver
        request = f"r{len(driver.submitted)}"
        if driver.adapter.lengths:  # each has a token of its own: KV of equal prompts could not be told apart
            tokens = (len(driver.submitted) + 1,) * data.draw(_lengths(driver.adapter.lengths), label="length")
        else:
            tokens = data.draw(_prompts(driver.adapter.page_size), label="tokens")
        chosen: Role = driver.adapter.roles[role % len(driver.adapter.roles)]
        if slow:
            self.slow.add(request)
        salt = salt if driver.can(Capability.SALT) else None
        driver.submit(Submission(request, tokens, salt, chosen, 1 if chosen is Role.PREFILL else new))

    @precondition(lambda self: self.driver.can_schedule() and self.driver.has_work())
    @rule()
    def schedule(self) -> None:
        """The engine schedules a batch."""
        self.driver.schedule()
        self._land_quick()

    @precondition(lambda self: self.driver.queue)
    @rule(token=strategies.integers(0, ALPHABET - 1))
    def run(self, token: int) -> None:
        """The oldest batch runs."""
        self.driver.run(token)
        self._land_quick()

    @precondition(lambda self: self.driver.has_work())
    @rule(token=strategies.integers(0, ALPHABET - 1), times=strategies.integers(1, 3))
    def step(self, token: int, times: int) -> None:
        """Whole engine steps: with this rule short runs get somewhere."""
        for _ in range(times):
            if self.driver.can_schedule():
                self.schedule()
            if self.driver.queue:
                self.run(token)

    @precondition(lambda self: self.driver.flight)
    @rule(which=strategies.integers(0, 9))
    def land(self, which: int) -> None:
        """A remote operation ends."""
        self.driver.land(_picked(list(self.driver.flight), which))

    def _land_quick(self) -> None:
        for id, transfer in list(self.driver.flight.items()):
            if transfer.request not in self.slow and id in self.driver.flight:
                self.driver.land(id)

    @precondition(lambda self: self.driver.can(Capability.ABORT) and self.driver.live())
    @rule(which=strategies.integers(0, 9), mind=strategies.integers(0, 2))
    def abort(self, which: int, mind: int) -> None:
        """The client goes away; two of three change their mind, since a run in which everybody leaves gets nowhere."""
        if not mind:
            self.driver.abort(_picked(self.driver.live(), which))

    @precondition(lambda self: Capability.EXPIRE in self.hazards and self.driver.can(Capability.EXPIRE) and self.driver.flight)
    @rule(which=strategies.integers(0, 9))
    def expire(self, which: int) -> None:
        """A deadline passes."""
        self.driver.expire(_picked(list(self.driver.flight), which))


def machine_for(make: Make, name: str, *, hazards: frozenset[Capability] = frozenset(), **members: Any) -> type[_Machine]:
    """A Hypothesis state machine over the adapter that `make` gives, a new one for each run. Its `TestCase` goes into a test
    suite; a violation is raised as `EngineViolation`, with the run as a trace. `name` says which part of the engine is driven.
    """
    base: type[_Machine] = EngineMachine if hasattr(make(), "submit") else AllocatorMachine
    members |= {"make": staticmethod(make), "name": name, "hazards": hazards, "__module__": __name__}
    title = "".join(part.capitalize() for part in "".join(c if c.isalnum() else " " for c in name).split())
    return type(f"{title}Machine", (base,), members)


def search(
    make: Make,
    name: str,
    properties: Sequence[str] = (),
    *,
    examples: int = 200,
    steps: int = 50,
    seed: int = 0,
    timeout: float | None = None,
    hazards: frozenset[Capability] = frozenset(),
    shrink: bool = True,
    progress: Callable[[str], None] | None = None,
) -> Record:
    """Let Hypothesis drive an engine for `examples` runs of at most `steps` rules, until one violates one of `properties` (empty:
    any of them); then make that run shorter by playing parts of it again (`kvmodel.engines.play`), which takes seconds where
    Hypothesis takes minutes.

    Needs neither pytest nor Hypothesis' database; one seed gives one result. Raises EngineDriftError where the adapter does
    not fit the release. Ends early after `timeout` seconds, or at Ctrl-C, with what was found so far.
    """
    record = Record(halts=True, fatal=frozenset(properties))
    deadline = None if timeout is None else time.monotonic() + timeout
    told = 0.0

    def started() -> None:
        nonlocal told
        now = time.monotonic()
        if deadline is not None and now > deadline:
            raise OutOfTime
        record.runs += 1
        if progress is not None and now - told > 0.3:
            told = now
            progress(f"{record.runs:,} runs, {record.calls:,} calls")

    machine = machine_for(make, name, hazards=hazards, record=record, started=(started,))
    settings = hypothesis.settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        print_blob=False,
        verbosity=Verbosity.quiet,
    )
    try:
        run_state_machine_as_test(hypothesis.seed(seed)(machine), settings=settings)
    except Halt:
        record.stopped = "the search ended at a violation"
    except KeyboardInterrupt as stopped:
        record.stopped = "out of time" if isinstance(stopped, OutOfTime) else "interrupted"
    if shrink:
        for violated, trace in list(record.found.items()):
            record.found[violated] = shortened(make, name, violated, trace)
    return record
