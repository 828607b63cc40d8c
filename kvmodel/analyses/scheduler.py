"""A scheduler for the handoff spec at real size: it chooses which enabled step comes next, and every step is the spec's.

It plays the parts that a spec leaves open: when requests arrive, which free pages an allocator hands out (first in, first
out), in which order nodes get their turn (seeded), in how many pieces a transfer lands, and when a client loses patience.
Both nodes hand out pages in order of arrival, so that two requests never wait for each other's.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kvmodel.analyses.detectors import Response
from kvmodel.language.instance import Binding
from kvmodel.readings.compiled import Changes, CompiledSystem
from kvmodel.readings.sparse import SparseState

__all__ = ["Leak", "Scheduler", "Traffic"]

IN_FLIGHT = 48  # requests that are being worked on at a time
PATIENCE = 12  # a client that leaves does so within so many of its request's turns
TICK = 50  # ended requests between two reports of progress
GROUND_TRUTH = "isolated_read"

# What a node can do with a request in each phase, in the order in which it is tried.
PREFILL: Mapping[str, tuple[str, ...]] = {
    "NEW": ("stop", "reject", "truncate", "refuse", "prefill_door"),
    "QUEUED": ("stop", "forward"),
    "COMPUTED": ("retire", "stop", "send"),
    "SENDING": ("succeed",),
}
DECODE: Mapping[str, tuple[str, ...]] = {
    "NEW": ("hear_reject", "refuse_at_decode", "decode_door"),
    "ADMITTED": ("hear_reject", "announce"),
    "LISTED": ("hear_reject", "fail", "commit"),
    "RUNNING": ("fail", "finish", "read"),
}
STATUS: Mapping[str, int] = {"OK": 200, "REFUSED": 400, "FAILED": 500}


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the clients do. `pages[r]` is how many pages request r's prompt takes, `canaries[r]` what is in the prompt, and
    `leaves` maps a request whose client aborts to the turn after which it does."""

    pages: tuple[int, ...]
    canaries: tuple[str, ...]
    leaves: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Leak:
    """Ground truth: a request that read pages with another request's data, and how many."""

    request: int
    pages: int


@dataclass
class _Request:
    """The scheduler's own notes on a request: its page tables, the writes that have not landed, the text so far."""

    number: int
    sources: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    in_flight: list[tuple[int, int]] = field(default_factory=list)
    text: dict[str, None] = field(default_factory=dict)
    turns: int = 0


class Scheduler:
    """Runs the requests of `traffic` through a compiled handoff from `state`; `limit_pages` is what prefill reserves for a
    prompt that it has shortened to its limit.

    `fired` counts steps by action, `responses` are in order of completion, `leaks` has the foreign pages that each request
    read, by what the spec's own property says after every step.
    """

    def __init__(self, compiled: CompiledSystem, state: SparseState, traffic: Traffic, seed: int, limit_pages: int) -> None:
        self.compiled = compiled
        self.state = state
        self.traffic = traffic
        self.fired: Counter[str] = Counter()
        self.responses: list[Response] = []
        self.leaks: dict[int, set[int]] = {}
        self._random = random.Random(f"{seed}: turns")
        self._prefill_pages, decode_pages = dict(compiled.instance.parts)["Page"]
        self._free = (deque(range(self._prefill_pages)), deque(range(self._prefill_pages, self._prefill_pages + decode_pages)))
        self._reserve = {"STUB": 1, "SHORTENED": limit_pages}
        self._possible = {action.name for action in compiled.system.actions if compiled.possible(action.name)}
        self._quarantined: set[int] = set()
        self._open: dict[int, _Request] = {}
        self._ready: list[int] = []  # requests that may have a step to take
        self._parked: set[int] = set()  # requests that wait for pages
        self._lines: tuple[deque[int], deque[int]] = (deque(), deque())  # who has yet to get pages, in order of arrival

    def run(self, tick: Callable[[int], None]) -> int:
        """Run until every request has ended, or nothing can happen any more; calls `tick` now and then with the number of
        requests that have ended. Gives the number of requests whose clients got no answer."""
        arrivals = iter(range(len(self.traffic.pages)))
        ended = 0
        while True:
            while len(self._open) < IN_FLIGHT and (number := next(arrivals, None)) is not None:
                self._open[number] = _Request(number)
                self._ready.append(number)
                for line in self._lines:
                    line.append(number)
            if not self._ready:
                return sum(1 for number in range(len(self.traffic.pages)) if self.state.get("client", (number,)) == "WAITING")
            place = self._random.randrange(len(self._ready))
            number = self._ready[place]
            progressed = self._turn(self._open[number])
            over = progressed and self._ended(number)
            if over or not progressed:
                self._ready[place] = self._ready[-1]
                self._ready.pop()
            if over:
                del self._open[number]
                ended += 1
                if ended % TICK == 0:
                    tick(ended)
            elif not progressed:
                self._parked.add(number)
            if progressed and self._parked:
                self._wake(0)
                self._wake(1)

    def _wake(self, node: int) -> None:
        """Let the first in line try again, if there are pages enough for it."""
        number = self._first(node)
        if number in self._parked and len(self._free[node]) >= self._needed(number, node):
            self._parked.remove(number)
            self._ready.append(number)

    def _first(self, node: int) -> int:
        """The earliest request that has yet to get pages on a node; -1 for none."""
        line = self._lines[node]
        while line and (line[0] not in self._open or self._is_served(self._open[line[0]], node)):
            line.popleft()
        return line[0] if line else -1

    def _needed(self, number: int, node: int) -> int:
        needed = self.traffic.pages[number]
        return needed if node else self._reserve.get(str(self.state.get("seen_as", (number,))), needed)

    # -- one turn of one request: at most one step on one of the nodes ------------------------------------------------

    def _turn(self, request: _Request) -> bool:
        request.turns += 1
        leaves = self.traffic.leaves.get(request.number)
        if leaves is not None and request.turns > leaves and self._try("abort", (request.number,)):
            return True
        nodes = (self._at_prefill, self._at_decode)
        first = self._random.random() < 0.5
        return nodes[first](request) or nodes[not first](request)

    def _at_prefill(self, request: _Request) -> bool:
        number = request.number
        phase = self.state.get("prefill", (number,))
        if phase == "SENDING" and request.in_flight:
            return self._land(request)
        for action in PREFILL.get(str(phase), ()):
            binding: Binding = (number,)
            if action == "forward":
                if not request.sources and not self._allocate(request, 0):
                    return False
                binding = (number, request.sources[0])
            elif action == "send":
                if not request.targets:
                    continue
                binding = (number, request.targets[0])
            if self._try(action, binding):
                return True
        return False

    def _at_decode(self, request: _Request) -> bool:
        phase = self.state.get("decode", (request.number,))
        for action in DECODE.get(str(phase), ()):
            if action == "announce" and not request.targets and not self._allocate(request, 1):
                return False
            if self._try(action, (request.number,)):
                return True
        return False

    def _allocate(self, request: _Request, node: int) -> bool:
        """Give a request its pages on a node, all at once and in order of arrival."""
        number, free = request.number, self._free[node]
        needed = self._needed(number, node)
        if len(free) < needed or self._first(node) != number:
            return False
        pages = [free.popleft() for _ in range(needed)]
        (request.targets if node else request.sources).extend(pages)
        self._note("allocate", number, self.compiled.batch(self.state, "allocate", [(number, page) for page in pages]), needed)
        return True

    def _is_served(self, request: _Request, node: int) -> bool:
        if node == 0:
            return bool(request.sources) or str(self.state.get("prefill", (request.number,))) not in ("NEW", "QUEUED")
        return bool(request.targets) or str(self.state.get("decode", (request.number,))) not in ("NEW", "ADMITTED")

    def _land(self, request: _Request) -> bool:
        """Some of the writes in flight land, in no particular order of requests."""
        count = self._random.randint(1, len(request.in_flight))
        landing, request.in_flight = request.in_flight[:count], request.in_flight[count:]
        bindings = [(request.number, source, target) for source, target in landing]
        self._note("land", request.number, self.compiled.batch(self.state, "land", bindings), count)
        return True

    def _try(self, action: str, binding: Binding) -> bool:
        """Take a step if it is enabled."""
        if action not in self._possible:
            return False
        number = binding[0]
        assert isinstance(number, int)
        request = self._open[number]
        if action == "finish" and number in self.leaks:
            self._look(request)  # what it read may have changed under it
        changes = self.compiled.attempt(self.state, action, binding)
        if changes is None:
            return False
        if action == "read":
            self._look(request)
        self._note(action, number, changes, 1)
        return True

    # -- what a step entails for the scheduler ------------------------------------------------------------------------

    def _note(self, action: str, number: int, changes: Changes, steps: int) -> None:
        self.fired[action] += steps
        for violation in self.compiled.violations(self.state, changes):
            reader, page = violation.binding
            if violation.property == GROUND_TRUTH and isinstance(reader, int) and isinstance(page, int) and page >= self._prefill_pages:
                self.leaks.setdefault(reader, set()).add(page)
        if action != "allocate":
            freed, first = changes.of("free"), self._prefill_pages
            self._free[0].extend(page for page in freed if page < first)
            self._free[1].extend(page for page in freed if page >= first)
        if action == "send":
            # Prefill writes its pages into decode's in the order of the two page tables.
            request, posted = self._open[number], self.state.row("writing", number)
            request.in_flight = [pair for pair in zip(request.sources, request.targets, strict=False) if pair[1] in posted]
        if action != "drain":
            self._quarantined.update(changes.of("quarantined"))
            if self._quarantined and action in ("land", "succeed"):
                self._drain()
        for client in changes.of("client"):
            self._answer(client)

    def _drain(self) -> None:
        ready = sorted(page for page in self._quarantined if self.compiled.enabled(self.state, "drain", (page,)))
        if ready:
            self._quarantined.difference_update(ready)
            self._note("drain", -1, self.compiled.batch(self.state, "drain", [(page,) for page in ready]), len(ready))

    def _look(self, request: _Request) -> None:
        """Add to the answer what is in the pages that the request reads at this moment, in the order of its page table."""
        for owner in dict.fromkeys(self.state.values_at("content", request.targets)):
            if isinstance(owner, int):
                request.text[self.traffic.canaries[owner]] = None

    def _answer(self, number: int) -> None:
        status = STATUS.get(str(self.state.get("client", (number,))))
        if status is not None:
            text = " ".join(self._open[number].text) if status == 200 else ""
            self.responses.append(Response(number, status, self.traffic.canaries[number], text))

    def leaked(self) -> tuple[Leak, ...]:
        """The answered requests that read another request's data, in order."""
        answered = {response.request for response in self.responses}
        return tuple(Leak(number, len(pages)) for number, pages in sorted(self.leaks.items()) if number in answered)

    def _ended(self, number: int) -> bool:
        return self.state.get("decode", (number,)) == "CLOSED" and self.state.get("prefill", (number,)) in ("SENT", "REFUSED", "CLOSED")
