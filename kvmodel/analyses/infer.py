"""Lemmas found by the machine: universally quantified clauses that make a property inductive at any size.

Data tells what may be claimed, counterexamples to induction tell what has to be. Every reachable state of small instances
becomes rows of a few templates (`vocabulary`, `rows`). A step that breaks a property or a lemma from a state in which all
hold (`relative`: at one size, by SAT) asks for a clause that excludes that state and that no row contradicts; the shortest
such clause that is kept by every step, or else the shortest, becomes a lemma, and is asked about next. When no clause
excludes the state, it is counted among the possible ones, with the state after it. In the end every condition is asked
at any size (`readings.solver`); what fails there is looked for again with more elements. Lemmas that no proof uses are
left out.

After DistAI and DuoAI (clauses that data does not refute, shortest first), ICE (implications as examples) and IC3.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, permutations, product
from random import Random

from kvmodel.analyses.relative import Counterexample, Relative
from kvmodel.analyses.rows import MOST_FEATURES, Projection, Rows
from kvmodel.analyses.vocabulary import Clause, Option, Template, condition, templates
from kvmodel.errors import UsageError
from kvmodel.language.expressions import Bound, Expr, substitute
from kvmodel.language.instance import Instance, Values
from kvmodel.language.system import Condition, Property, PropertyKind, TransitionSystem
from kvmodel.readings.conditions import INITIALLY, Claim, Induction
from kvmodel.readings.explore import StateGraph, reachable
from kvmodel.readings.fold import fold_system
from kvmodel.readings.initial import initial_values, rigid_valuations
from kvmodel.readings.solver import Answer, ConditionResult, ConditionSolver
from kvmodel.readings.steps import DenseSteps
from kvmodel.traces.trace import Trace
from kvmodel.verdict import Verdict

__all__ = ["Inference", "infer"]

BETWEEN_PROGRESS = 0.2  # seconds
MOST_STATES = 120_000  # of one instance, that become data
MOST_DEPLOYMENTS = 6  # rigid valuations that random walks visit
MOST_STARTS = 20
WALK_ROUNDS = 1  # of one batch for each of these valuations
WALK_STEPS = 12  # of one walk, from a start or from a state that had something new
WALK_STARTS = 500  # the latest, from which half of all walks start
WALK_BATCH = 4_000  # states
MOST_SIDES = 6  # of a box: literals of a clause
MOST_TRIED = 16  # candidates asked for each counterexample
MOST_GROWTHS = 3  # of the instance that counterexamples are looked for in


@dataclass(frozen=True)
class Inference:
    """What was found for `properties`: the lemmas that, together with the properties, are inductive at any size when `complete`.

    `candidates` counts clauses that were compared with the data, `counterexamples` the counterexamples to induction that
    were excluded. `reason` says why an inference is not complete, `trace` is the run that violates the property `violated`.
    `conditions` are the answers that make the proof.
    """

    system: str
    properties: tuple[str, ...]
    lemmas: tuple[Condition, ...] = ()
    candidates: int = 0
    counterexamples: int = 0
    states: int = 0
    rows: int = 0
    seconds: float = 0.0
    complete: bool = False
    reason: str = ""
    violated: str = ""
    trace: Trace | None = None
    conditions: tuple[ConditionResult, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """What is known of the properties together."""
        if self.trace is not None:
            return Verdict.VIOLATED
        return Verdict.HOLDS if self.complete else Verdict.UNDECIDED


class _Stopped(Exception):
    """The search ends without an answer; the message says why."""


class _TooWeak(Exception):
    """The vocabulary has no answer; the message says why."""


def infer(
    system: TransitionSystem,
    properties: Sequence[str],
    *,
    timeout: float | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Inference:
    """Lemmas that make `properties` inductive at any size, under the effective flags of `system`; its own lemmas are not used.

    Stops after `timeout` seconds or at Ctrl-C with the lemmas of that moment: then nothing is proved. A property that a run
    of a small instance violates ends in that run. Raises UsageError for an unknown property, or one that a run shows.
    """
    search = _Search(system, properties, timeout, seed, progress)
    try:
        search.run()
    except _Stopped as stop:
        search.reason = str(stop)
    except KeyboardInterrupt:
        search.reason = "interrupted"
    return search.result()


@dataclass
class _Walker:
    """Walks one deployment at random."""

    steps: DenseSteps
    projections: tuple[Projection, ...]
    random: Random
    starts: list[Values]
    seen: dict[Values, None] = field(default_factory=dict)  # in order, so that one seed gives one answer

    def walk(self, count: int) -> list[Values]:
        """About `count` states not seen before, on walks or one step beside them."""
        found: list[Values] = []
        successors = self.steps.successors
        for _ in range(count):
            state = self.random.choice(self.starts[-WALK_STARTS:] if self.random.random() < 0.5 else self.starts)
            for _ in range(WALK_STEPS):
                following = [after for _, after in successors(state)]
                if not following:
                    break
                fresh = [after for after in following if after not in self.seen]
                self.seen.update(dict.fromkeys(fresh))
                found += fresh
                state = self.random.choice(fresh or following)
            if len(found) >= count:
                break
        return found


@dataclass
class _Search:
    """One call of `infer`."""

    original: TransitionSystem
    properties: Sequence[str]
    timeout: float | None
    seed: int
    progress: Callable[[str], None] | None
    started: float = field(default_factory=time.monotonic)
    templates: tuple[Template, ...] = ()
    rows: list[Rows] = field(default_factory=list)
    lemmas: list[Clause] = field(default_factory=list)
    conditions: tuple[Condition, ...] = ()
    results: tuple[ConditionResult, ...] = ()
    candidates: int = 0
    counterexamples: int = 0
    states: int = 0
    complete: bool = False
    reason: str = ""
    violated: str = ""
    trace: Trace | None = None
    told: float = 0.0
    linked: bool = True
    banned: set[object] = field(default_factory=set)
    walkers: list[_Walker] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.system = replace(fold_system(self.original), lemmas=())
        self.asked = tuple(self.original.property(name) for name in self.properties)
        if not self.asked:
            raise UsageError("no property to look for lemmas for")
        for candidate in self.asked:
            if candidate.kind is PropertyKind.REACHABLE:
                raise UsageError(f"'{candidate.name}' is shown by a run, not proved")
        claims = Induction(replace(self.original, lemmas=())).claims
        names = [candidate.name for candidate in self.asked]
        names += [name for name in claims if name.startswith("range:") and name not in names]
        self.goals: tuple[Claim, ...] = tuple(claims[name] for name in names)

    def result(self) -> Inference:
        lemmas = self.conditions or self._as_conditions(self.lemmas)
        return Inference(
            self.original.name, tuple(self.properties), lemmas, self.candidates, self.counterexamples, self.states,
            sum(len(rows.matrix) for rows in self.rows), time.monotonic() - self.started, self.complete, self.reason,
            self.violated, self.trace, self.results,
        )  # fmt: skip

    def run(self) -> None:
        """Find lemmas and prove the goals with them. Raises _Stopped."""
        self.graph = self._explore()
        if self.trace is not None:
            return
        reason = ""
        for quantified, self.linked in ((False, True), (True, True), (False, False)):
            found = templates(self.system, quantified=quantified)
            if any(len(template.features) > MOST_FEATURES for template in found):
                reason = reason or f"the spec has too many variables for a template: more than {MOST_FEATURES} features"
                continue
            if found != self.templates:
                self._take(found)
            elif quantified:  # the spec has no quantified part to speak of
                continue
            try:
                self._find()
            except _TooWeak as problem:
                reason = reason or str(problem)
                continue
            return
        raise _Stopped(reason)

    def _find(self) -> None:
        """Find lemmas with the vocabulary of the moment. Raises _TooWeak when it has no answer."""
        self.lemmas = []
        for rows in self.rows:
            rows.forget()
        for growth in range(MOST_GROWTHS):
            self._tell("encoding one step" if not growth else f"encoding one step with {growth} more of each sort")
            relative = Relative(self._instance(growth), self.templates, self.goals, self.seed)
            while True:
                self._strengthen(relative)
                self._shrink(relative)
                refuted = self._prove()
                if refuted is None:
                    self._hold()
                    self.complete = True
                    return
                if refuted.step != INITIALLY:
                    break
                self._ban(refuted.claim)
        raise _TooWeak("a condition that holds for few elements does not hold for every number of them")

    def _ban(self, name: str) -> None:
        """Never again look at a lemma that some initial state does not satisfy."""
        for clause, lemma in zip(self.lemmas, self._as_conditions(self.lemmas), strict=True):
            if lemma.name == name:
                self.banned.add(self._key(clause))
                self.lemmas = [other for other in self.lemmas if other != clause]
                return
        raise _Stopped(f"some initial state violates '{name}'")

    # data

    def _explore(self) -> StateGraph:
        """The reachable states of a small instance, as far as time and number allow. Notes a violation."""
        instance = Instance.make(self.original)
        graph = reachable(
            instance, self.asked, timeout=None if self.timeout is None else self._left(), limit=MOST_STATES,
            progress=lambda line: self._tell(f"{instance.describe_size()}: {line}"),
        )  # fmt: skip
        if "interrupted" in graph.stopped:
            raise KeyboardInterrupt
        self.states += graph.states
        for candidate in self.asked:
            if candidate.name in graph.seen:
                self.violated = candidate.name
                self.trace = graph.trace(candidate.name)
                break
        return graph

    def _take(self, found: tuple[Template, ...]) -> None:
        """Use these templates, and learn their rows."""
        self.templates = found
        self.rows = [Rows(template) for template in found]
        self._keys = [_keys(template) for template in found]
        for deployment in self.graph.deployments:
            self._learn(self._projections(self.graph.instance, deployment.steps.rigid), deployment.states)
        if not self.walkers:
            self.walkers = self._walkers()
        for walker in self.walkers:
            walker.projections = self._projections(walker.steps.instance, walker.steps.rigid)
            self._learn(walker.projections, list(walker.seen))
        self._walk()

    def _projections(self, instance: Instance, rigid: Values) -> tuple[Projection, ...]:
        return tuple(Projection(template, instance, rigid) for template in self.templates)

    def _learn(self, projections: Sequence[Projection], states: Sequence[Values]) -> set[int]:
        """Take the rows of `states`; the positions of states that had new ones."""
        telling: set[int] = set()
        for rows, projection in zip(self.rows, projections, strict=True):
            if states:
                matrix, source = projection.rows(states)
                telling.update(source[rows.add(matrix)].tolist())
        self._tell(f"{sum(len(rows.matrix) for rows in self.rows):,} rows from {self.states:,} states")
        return telling

    def _walk(self) -> None:
        """Learn from random walks in a larger instance, that go on from states with something new."""
        for _ in range(WALK_ROUNDS):
            for walker in self.walkers:
                self._tick()
                states = walker.walk(WALK_BATCH)
                self.states += len(states)
                telling = self._learn(walker.projections, states)
                walker.starts += [states[number] for number in sorted(telling)]

    def _walkers(self) -> list[_Walker]:
        instance = self._instance(1)
        random = Random(self.seed)
        rigids = list(islice(rigid_valuations(instance), 1_000))
        found = []
        for rigid in random.sample(rigids, min(len(rigids), MOST_DEPLOYMENTS)):
            self._tick()
            starts = list(islice(initial_values(instance, rigid), MOST_STARTS))
            if starts:
                found.append(_Walker(DenseSteps(instance, rigid), (), random, starts))
        return found

    def _instance(self, growth: int) -> Instance:
        """The instance in which counterexamples are looked for."""
        parted = {v.keys[0].name for v in self.system.variables if v.partition}
        most = {
            sort.name: max((sum(v.domain == sort for v in t.variables) for t in self.templates), default=0)
            for sort in self.system.sorts
        }
        sizes = {name: max(1, count) + (0 if name in parted else 1) + growth for name, count in most.items()}
        return Instance.make(self.system, sizes)

    # search

    def _strengthen(self, relative: Relative) -> None:
        """Add lemmas until all of them and the goals are kept by every step of the instance."""
        work: list[str | Clause] = [*(goal.name for goal in self.goals), *self.lemmas]
        while work:
            self._tick()
            claim = work[-1]
            found = relative.breaks(claim, self.lemmas)
            if found is False:
                work.pop()
                continue
            assert isinstance(found, Counterexample)
            self.counterexamples += 1
            lemma = self._candidate(relative, found)
            self._tell(f"{self.counterexamples} counterexamples to induction, {len(self.lemmas)} lemmas, {len(work)} open")
            if lemma is not None:
                self.lemmas.append(lemma)
                work.append(lemma)
            elif isinstance(claim, str):
                raise _TooWeak(f"no clause of the vocabulary excludes a state that leads to a violation of '{claim}'")
            else:
                for rows, matrix in zip(self.rows, found.after, strict=True):
                    rows.add(matrix, supposed=True)
                self.lemmas = [kept for kept in self.lemmas if self.rows[kept.template].is_empty(kept.box)]
                work = [*(goal.name for goal in self.goals), *self.lemmas]

    def _candidate(self, relative: Relative, found: Counterexample) -> Clause | None:
        """The best clause that excludes the state before the step and that no row contradicts."""
        scored: dict[object, tuple[tuple[float, ...], Clause]] = {}
        for narrow in (True, False):
            for number, rows in enumerate(self.rows):
                seen: set[tuple[bytes, frozenset[int]]] = set()
                everything = frozenset(range(len(rows.template.features)))
                for row, relevant in zip(found.before[number], found.relevant[number], strict=True):
                    within = relevant if narrow else everything
                    if row in rows or (row.tobytes(), within) in seen:
                        continue
                    seen.add((row.tobytes(), within))
                    for candidate in rows.candidates(row, MOST_SIDES, within, linked=self.linked):
                        self.candidates += 1
                        clause = Clause(number, candidate.box)
                        key = self._key(clause)
                        if key not in scored and key not in self.banned:
                            variables = frozenset[int]().union(*(rows.template.mentions[p] for p, _ in candidate.box.sides))
                            scored[key] = (len(candidate.box.sides), len(variables), -candidate.size), clause
            if scored:
                break
        best = [clause for _, clause in sorted(scored.values(), key=lambda entry: entry[0])]
        for clause in best[:MOST_TRIED]:
            if not relative.breaks(clause, [*self.lemmas, clause], rows=False):
                return clause
        return best[0] if best else None

    def _key(self, clause: Clause) -> object:
        """The clause up to renaming its variables."""
        return min(
            tuple(sorted(tuple(sorted(names[position][number] for number in chosen)) for position, chosen in clause.box.sides))
            for names in self._keys[clause.template]
        )

    def _shrink(self, relative: Relative) -> None:
        """Leave out lemmas without which the others are still kept."""
        for lemma in list(self.lemmas):
            self._tick()
            rest = [other for other in self.lemmas if other != lemma]
            claims: list[str | Clause] = [*(goal.name for goal in self.goals), *rest]
            if not any(relative.breaks(claim, rest, rows=False) for claim in claims):
                self.lemmas = rest

    # proof

    def _as_conditions(self, lemmas: Sequence[Clause]) -> tuple[Condition, ...]:
        taken = {prop.name for prop in self.system.properties} | {variable.name for variable in self.system.variables}
        prefix = "lemma_"
        while any(name.startswith(prefix) for name in taken):
            prefix = "inferred_" + prefix
        return tuple(
            condition(f"{prefix}{number}", self.templates[lemma.template], lemma.box) for number, lemma in enumerate(lemmas, start=1)
        )

    def _prove(self) -> ConditionResult | None:
        """Ask for every condition at any size: one that does not hold, or None; then only what the proofs use is kept."""
        conditions = self._as_conditions(self.lemmas)
        solver = ConditionSolver(replace(self.original, lemmas=conditions), seed=self.seed)
        names = [*(goal.name for goal in self.goals), *(lemma.name for lemma in conditions)]
        alive = frozenset(names)
        results: dict[str, list[ConditionResult]] = {}
        for number, name in enumerate(names):
            self._tell(f"at any size: {number} of {len(names)} claims")
            results[name] = []
            for step in solver.induction.steps(name):
                self._tick()
                answer = solver.check(step, name, alive)
                if answer.answer is Answer.REFUTED:
                    return answer
                if answer.answer is Answer.UNKNOWN:
                    if "interrupt" in answer.reason:
                        raise KeyboardInterrupt
                    raise _Stopped(f"{answer.name}: {answer.reason}")
                results[name].append(answer)
        needed = {goal.name for goal in self.goals}
        while True:
            more = needed.union(*(answer.used for name in needed for answer in results[name]))
            if more == needed:
                break
            needed = more
        self.conditions = tuple(lemma for lemma in conditions if lemma.name in needed)
        self.results = tuple(answer for name in names if name in needed for answer in results[name])
        return None

    def _hold(self) -> None:
        """Each lemma holds in every state of the small instance, as the dense reading evaluates it."""
        claims = [Property(lemma.name, PropertyKind.INVARIANT, lemma.parameters, lemma.condition) for lemma in self.conditions]
        instance = Instance(self.system, self.graph.instance.sizes, self.graph.instance.parts)
        for deployment in self.graph.deployments:
            violations = DenseSteps(instance, deployment.steps.rigid).violations(claims)
            for values in deployment.states:
                if violations(values):
                    raise _Stopped(f"{violations(values)[0]} does not hold in a reachable state: please report this")

    # time

    def _left(self) -> float:
        return float("inf") if self.timeout is None else max(0.0, self.started + self.timeout - time.monotonic())

    def _tick(self) -> None:
        if self._left() <= 0:
            raise _Stopped("timeout")

    def _tell(self, line: str) -> None:
        now = time.monotonic()
        if self.progress is not None and now - self.told >= BETWEEN_PROGRESS:
            self.told = now
            self.progress(line)


def _keys(template: Template) -> list[list[list[str]]]:
    """For each exchange of variables of one sort: a name for each option of each feature."""
    groups: dict[str, list[Bound]] = {}
    for variable in template.variables:
        groups.setdefault(variable.domain.name, []).append(variable)
    found = []
    for orders in product(*(permutations(group) for group in groups.values())):
        renamed: dict[str, Expr] = {
            old.name: new for group, order in zip(groups.values(), orders, strict=True) for old, new in zip(group, order, strict=True)
        }
        found.append([
            [f"{substitute(feature.expr, renamed)!r} {_option(option, renamed)}" for option in feature.options]
            for feature in template.features
        ])  # fmt: skip
    return found


def _option(option: Option, renamed: Mapping[str, Expr]) -> str:
    return repr(renamed[option.name] if isinstance(option, Bound) else option)
