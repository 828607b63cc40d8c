"""The bounded reading: Z3 looks for a shortest violation of each property, one depth after the other.

The clauses of one state and one step (`encoding.Encoding`) are written again for every depth (`circuit.Unrolling`) into
one incremental SAT solver.
"""


from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from kvmodel.errors import InternalError, MalformedSystem, ReplayError, UsageError
from kvmodel.language.check import writes_that_collide
from kvmodel.language.instance import Instance, State
from kvmodel.language.system import Property, PropertyKind
from kvmodel.language.types import Number, Value
from kvmodel.readings.circuit import FALSE, TRUE, Clause, Literal, Unrolling
from kvmodel.readings.encoding import Encoding, Signal, Term, literals_of
from kvmodel.readings.replay import make_trace
from kvmodel.traces.trace import Choice, Trace
from kvmodel.verdict import Coverage, Finding, FindingKind, PropertyResult, Result, Verdict, overall

if TYPE_CHECKING:
    import z3

__all__ = ["bmc"]

BETWEEN_PROGRESS = 0.25  # seconds


class _Stopped(Exception):
    """The time is over, or the solver gave up; the message says which."""


def bmc(
    instance: Instance,
    properties: Sequence[str] = (),
    *,
    depth: int,
    timeout: float | None = None,
    seed: int = 0,
    complete: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Result:
    """Look for a shortest violation of each property (all, or the named ones) in every run of up to `depth` steps.

    A property that is not violated holds for ``this depth``; one that is `@reachable` and was not shown is undecided.
    With `complete`, each depth also asks for a longer run without a repeated state: when there is none, every reachable
    state was seen, and what was not violated holds for ``this size``, with the reason. After `timeout` seconds, at Ctrl-C
    or when the solver gives up, what is open is undecided, with the depth reached. The same `seed` gives the same answer.

    Raises UsageError for an unknown property, and for assumptions or initial conditions that contradict each other.
    """
    started = time.monotonic()
    asked = tuple(instance.system.property(name) for name in properties) or instance.system.properties
    for action in instance.system.actions:
        if any(writes_that_collide(action)):
            raise MalformedSystem(f"{instance.system.name}: {action.name} may write one place twice in one step")
    search = _Search(instance, asked, None if timeout is None else started + timeout, seed, progress)
    try:
        search.run(depth, complete)
    except _Stopped as stop:
        search.stopped = str(stop)
    except KeyboardInterrupt:
        search.stopped = "interrupted"
    results = tuple(search.judge(candidate, depth, complete) for candidate in asked)
    reached = min((search.covered[name] for name in search.open), default=search.depth)
    return Result(
        instance.system.name,
        "bmc",
        overall(results),
        search.coverage(None if search.threshold else reached),
        results,
        search.findings,
        (("depth", max(search.depth, 0)), ("queries", search.queries), ("conflicts", search.conflicts), ("variables", search.variables)),
        time.monotonic() - started,
        tuple(properties),
    )


class _Search:
    """The state of one call of `bmc`: what is open, how far each property was followed, and the traces found."""

    def __init__(
        self, instance: Instance, asked: Sequence[Property], deadline: float | None, seed: int, progress: Callable[[str], None] | None
    ) -> None:
        self.instance = instance
        self.asked = asked
        self.deadline = deadline
        self.seed = seed
        self.progress = progress
        self.open = [candidate.name for candidate in asked]
        self.covered = dict.fromkeys(self.open, -1)
        self.traces: dict[str, Trace] = {}
        self.findings: tuple[Finding, ...] = ()
        self.depth = -1
        self.stopped = ""
        self.threshold = ""
        self.queries = 0
        self._told = 0.0
        self._solver: _Solver | None = None

    @property
    def conflicts(self) -> int:
        return self._solver.conflicts if self._solver is not None else 0

    @property
    def variables(self) -> int:
        return self._solver.unrolling.top if self._solver is not None else 0

    def run(self, most: int, complete: bool) -> None:
        """Ask for each depth up to `most`. Raises _Stopped."""
        self._tell("encoding")
        encoding = Encoding(self.instance, self.asked, self._tick)
        solver = self._solver = _Solver(encoding, self.seed, self.deadline)
        solver.begin(self.instance)
        self._judge_state(encoding, solver, 0)
        for depth in range(most + 1):
            if not self.open or (depth == most and not complete):
                return
            solver.step(depth)
            if depth == 0 and not solver.satisfiable():
                system = self.instance.system
                message = "no action is enabled in any initial state: no step can violate anything"
                self.findings = (Finding(FindingKind.NOTHING_HAPPENED, system.name, str(system.at), message),)
            if complete and not solver.goes_on(depth + 1):
                self._judge_step(encoding, solver, depth + 1)  # a step from a state that was seen, to wherever
                self.threshold = f"no loop-free path of {depth + 1} steps: recurrence diameter {depth}"
                return
            if depth < most:
                self._judge_step(encoding, solver, depth + 1)
                self._judge_state(encoding, solver, depth + 1)

    def _judge_state(self, encoding: Encoding, solver: _Solver, depth: int) -> None:
        for candidate in self.asked:
            if candidate.kind is not PropertyKind.ASSERTION and candidate.name in self.open:
                self._ask(encoding, solver, candidate.name, depth, depth)
        if depth == 0:
            self.covered.update((p.name, 0) for p in self.asked if p.kind is PropertyKind.ASSERTION)
        self.depth = depth

    def _judge_step(self, encoding: Encoding, solver: _Solver, depth: int) -> None:
        """Assertions of the step that leads to `depth`."""
        for candidate in self.asked:
            if candidate.kind is PropertyKind.ASSERTION and candidate.name in self.open:
                self._ask(encoding, solver, candidate.name, depth - 1, depth)

    def _ask(self, encoding: Encoding, solver: _Solver, name: str, at: int, length: int) -> None:
        """Whether a run of `length` steps violates a property; its literal is one of the state or the step at depth `at`."""
        self._tick()
        self._tell(f"depth {length}: {name} ({len(self.open)} open)")
        self.queries += 1
        violation = encoding.violations[name]
        if violation != FALSE and solver.satisfiable((violation, at)):
            start, choices = solver.found(length)
            try:
                self.traces[name] = make_trace(self.instance, start, choices, name)
            except ReplayError as error:
                raise InternalError(f"the bounded reading's trace for '{name}' does not replay: {error}") from error
            self.open.remove(name)
        elif violation != FALSE:
            solver.never(violation, at)
        self.covered[name] = length

    def judge(self, candidate: Property, most: int, complete: bool) -> PropertyResult:
        """The answer for one property."""
        name, shown = candidate.name, candidate.kind is PropertyKind.REACHABLE
        coverage = self.coverage(self.covered[name])
        if name in self.traces:
            return PropertyResult(name, Verdict.HOLDS if shown else Verdict.VIOLATED, coverage, self.traces[name], reachable=shown)
        if self.threshold:
            verdict = Verdict.VIOLATED if shown else Verdict.HOLDS
            return PropertyResult(name, verdict, self.coverage(None), None, self.threshold, shown)
        if self.covered[name] < most:
            reached = f"after depth {self.covered[name]}" if self.covered[name] >= 0 else "before any state was looked at"
            return PropertyResult(name, Verdict.UNDECIDED, coverage, None, f"{self.stopped} {reached}", shown)
        if shown:
            return PropertyResult(name, Verdict.UNDECIDED, coverage, None, f"no run of up to {most} steps shows it", True)
        if complete and self.stopped:
            return PropertyResult(name, Verdict.UNDECIDED, coverage, None, f"{self.stopped} while looking for longer runs", shown)
        reason = f"longer runs reach new states: loop-free paths of {most + 1} steps exist" if complete else ""
        return PropertyResult(name, Verdict.HOLDS, coverage, None, reason)

    def coverage(self, steps: int | None) -> Coverage:
        flags = tuple(self.instance.system.flag_values.items())
        return Coverage(self.instance.size_options(), None if steps is None else max(steps, 0), None, flags)

    def _tick(self) -> None:
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise _Stopped("timeout")

    def _tell(self, line: str) -> None:
        now = time.monotonic()
        if self.progress is not None and now - self._told >= BETWEEN_PROGRESS:
            self._told = now
            self.progress(line)


class _Solver:
    """Z3's SAT solver with the runs of an encoding unrolled so far; a context of its own, so that calls do not mix."""

    def __init__(self, encoding: Encoding, seed: int, deadline: float | None) -> None:
        import z3

        self.encoding = encoding
        self.deadline = deadline
        self.unrolling = Unrolling(encoding.circuit, encoding.following)
        self._z3 = z3
        self._context = z3.Context()
        self._solver = z3.SolverFor("QF_FD", ctx=self._context)
        self._solver.set("random_seed", seed)
        self._loop_free = 0
        self._model: z3.ModelRef | None = None
        self._numbers: dict[int, int] = {}
        self._once: list[Clause] = [(TRUE,)]
        self._state, self._step, self._first = self._collect()

    def _collect(self) -> list[list[Clause]]:
        """The clauses of every state, of every step and of the first state, with the gates that they rest on; gates that
        are static go to what is loaded once."""
        circuit, blocks = self.encoding.circuit, self.encoding.blocks
        asserted: list[Literal] = []
        judged: list[Literal] = []
        for name, literal in self.encoding.violations.items():
            (asserted if self.encoding.system.property(name).kind is PropertyKind.ASSERTION else judged).append(literal)
        known: set[int] = set()
        collected = []
        for clauses, roots in ((blocks.state, judged), (blocks.step, asserted), (blocks.first, []), (blocks.once, [])):
            gates = circuit.definitions([*chain.from_iterable(clauses), *roots], known)
            known |= gates.keys()
            found = list(clauses)
            for gate, definition in gates.items():
                (self._once if gate in circuit.static else found).extend(definition)
            collected.append(found)
        self._once += collected.pop()
        return collected

    def begin(self, instance: Instance) -> None:
        """The rigid things and the first state. Raises UsageError when there is none."""
        self._load((self._once, 0))
        if not self.satisfiable():
            name, size = instance.system.name, instance.describe_size()
            raise UsageError(f"the assumptions of {name} contradict each other at {size}: no deployment satisfies them")
        self._load((self._first, 0), (self._state, 0))
        if not self.satisfiable():
            name, size = instance.system.name, instance.describe_size()
            raise UsageError(f"{name} has no initial state at {size}: its initial conditions contradict each other")

    def step(self, depth: int) -> None:
        """One more step, from the state at `depth`."""
        self._load((self._step, depth), (self._state, depth + 1))

    def satisfiable(self, *literals: tuple[Literal, int]) -> bool:
        """Whether there is a run, with each of the literals true at its depth. Raises _Stopped."""
        return self._check([self.unrolling.number(literal, depth) for literal, depth in literals])

    def never(self, literal: Literal, depth: int) -> None:
        """Note that a literal is false at a depth of every run."""
        self._solver.add(self._bool(-self.unrolling.number(literal, depth)))

    def goes_on(self, depth: int) -> bool:
        """Whether a run has `depth` steps and no state twice. Raises _Stopped."""
        if not self._loop_free:
            self._loop_free = self.unrolling.fresh()
        variables = sorted({abs(literal) for cell in self.encoding.now for literal in literals_of(cell)} - {TRUE})
        clauses: list[Clause] = []
        for earlier in range(depth):
            differs = []
            for variable in variables:
                a, b, one = self.unrolling.number(variable, earlier), self.unrolling.number(variable, depth), self.unrolling.fresh()
                differs.append(one)
                clauses += [(-one, a, b), (-one, -a, -b)]
            clauses.append((-self._loop_free, *differs))
        self._add(clauses)
        return self._check([self._loop_free])

    def found(self, length: int) -> tuple[State, tuple[Choice, ...]]:
        """The run that was found last: its initial state and its steps."""
        encoding, instance = self.encoding, self.encoding.instance
        rigid = tuple(
            self._numbers[slot] if isinstance(kind, Number) else self._value(encoding.rigid[slot], 0)
            for slot, kind in enumerate(instance.rigid_layout.types)
        )
        start = State(rigid, tuple(self._value(cell, 0) for cell in encoding.now))
        return start, tuple(self._choice(depth) for depth in range(length))

    def _choice(self, depth: int) -> Choice:
        (name,) = [name for name, literal in self.encoding.actions.items() if self._true(literal, depth)]
        seen: dict[str, int] = {}
        binding = []
        for parameter in self.encoding.system.action(name).parameters:
            domain = parameter.domain.name
            binding.append(self._value(self.encoding.picks[domain, seen.get(domain, 0)], depth))
            seen[domain] = seen.get(domain, 0) + 1
        return Choice(name, tuple(binding))

    def _value(self, signal: Signal | Mapping[Value, Literal], depth: int) -> Value:
        if isinstance(signal, int):
            return self._true(signal, depth)
        (key,) = [key for key, literal in signal.items() if self._true(literal, depth)]
        assert not isinstance(key, Term)
        return key

    def _true(self, literal: Literal, depth: int) -> bool:
        assert self._model is not None
        number = self.unrolling.number(literal, depth)
        variable = self._z3.Bool(abs(number), self._context)
        return self._z3.is_true(self._model.eval(variable, model_completion=True)) is (number > 0)

    def _load(self, *parts: tuple[Sequence[Clause], int]) -> None:
        self._give([line for clauses, depth in parts for line in self.unrolling.lines(clauses, depth)])

    def _add(self, clauses: Sequence[Clause]) -> None:
        """Clauses over numbers that the unrolling has given."""
        self._give([" ".join(map(str, (*clause, 0))) for clause in clauses])

    def _give(self, lines: Sequence[str]) -> None:
        """Clauses as lines of DIMACS: several times faster to load than Z3's expressions (measured: 4 against 24 microseconds each)."""
        self._solver.from_string("\n".join([f"p cnf {self.unrolling.top} {len(lines)}", *lines, ""]))

    def _check(self, numbers: Sequence[int]) -> bool:
        """Whether the clauses are satisfiable with these literals, and with integers for the comparisons. Raises _Stopped."""
        assumptions = [self._bool(number) for number in numbers]
        while True:
            if self.deadline is not None:
                left = self.deadline - time.monotonic()
                if left <= 0:
                    raise _Stopped("timeout")
                self._solver.set("timeout", max(1, int(left * 1000)))
            answer = self._solver.check(*assumptions)
            if answer == self._z3.unsat:
                return False
            if answer != self._z3.sat:
                raise _Stopped(_why(self._solver.reason_unknown(), self.deadline))
            self._model = self._solver.model()
            if self._find_numbers():
                return True

    def _bool(self, number: int) -> z3.BoolRef:
        variable: z3.BoolRef = self._z3.Bool(abs(number), self._context)
        return variable if number > 0 else self._z3.Not(variable)

    def _find_numbers(self) -> bool:
        """Whether integers show the comparisons of the model; if not, a smallest part that none show is ruled out."""
        found, impossible = self.encoding.numbers(lambda literal: self._true(literal, 0))
        if found is None:
            self._add([tuple(-self.unrolling.number(literal, 0) for literal in impossible)])
            return False
        self._numbers = found
        return True

    @property
    def conflicts(self) -> int:
        """Conflicts of the SAT solver so far."""
        return int(dict(list(self._solver.statistics())).get("sat conflicts", 0))


def _why(reason: str, deadline: float | None) -> str:
    """Why the solver did not answer."""
    if "interrupt" in reason:
        return "interrupted"
    if deadline is not None and ("timeout" in reason or "cancel" in reason):
        return "timeout"
    return f"the solver gave up ({reason})"
