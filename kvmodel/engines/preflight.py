"""Does each pool cover what its door accepts? The verdict, by node; and what happens otherwise, from the spec's variants.

The verdict is the solver's (`kvmodel.engines.question`). What happens when a pool does not cover is the exploration's: the variant of the
handoff spec that says what a release does is explored with the order of the deployment's own numbers, and its properties are judged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, lru_cache
from itertools import combinations

from kvmodel.engines.capacity import CONTEXT, LARGEST_PAGE, LIMIT, SGLANG_RESERVE, Capacity, Inequality, capacity_of
from kvmodel.engines.facts import ROLES, Fact, Node
from kvmodel.engines.question import Answers, Numbers, Question
from kvmodel.language.expressions import Apply, Read
from kvmodel.language.instance import Instance
from kvmodel.language.load import load_spec
from kvmodel.language.operators import Operator
from kvmodel.language.system import Condition, TransitionSystem
from kvmodel.language.types import BOOL
from kvmodel.readings.explore import explore
from kvmodel.verdict import Coverage, PropertyResult, Result, Verdict

__all__ = ["Consequence", "NodeReport", "Outcome", "Preflight", "preflight", "variant_of"]

THIN = 2  # per cent: a smaller margin is worth a warning
SPEC = "handoff"
SCALARS = ("context", "prefill_limit", "decode_limit")
LOOKED_AT = ("isolated_read", "fresh_read", "pages_conserved", "honest_status", "no_internal_error")
# What can go wrong without a reject is left out: the release's late writes into freed pages have properties of their own.
REJECTS_ALONE = {"quarantine": True, "quarantine_gives_up": False}
ANSWERS_400 = ("refuse", "retire", "refuse_at_decode")
EXPLORE_FOR = 120.0  # seconds


class Outcome(Enum):
    """What an engine does with a prompt that its door lets through and its pool does not hold."""

    LEAK = "leak"  # it answers from pages that hold other requests' data
    HELD_PAGES = "held_pages"  # nothing is read, and decode keeps its pages
    CLEAN_400 = "clean_400"
    REFUSES_TO_START = "refuses_to_start"
    UNKNOWN = "unknown"


WORST_FIRST = (Outcome.LEAK, Outcome.UNKNOWN, Outcome.HELD_PAGES, Outcome.CLEAN_400, Outcome.REFUSES_TO_START)


@dataclass(frozen=True, slots=True)
class Consequence:
    """What happens: the word, the sentence that says why, and what it rests on.

    `spec`, `flags` and `properties` are those of the exploration, empty where there was none; `coverage` is its own.
    """

    outcome: Outcome
    reason: str
    spec: str = ""
    flags: tuple[tuple[str, bool], ...] = ()
    properties: tuple[PropertyResult, ...] = ()
    coverage: Coverage | None = None

    @property
    def steps(self) -> int | None:
        """Steps of the shortest run that shows it."""
        name = {Outcome.LEAK: "isolated_read", Outcome.HELD_PAGES: "pages_conserved"}.get(self.outcome)
        return next((entry.length for entry in self.properties if entry.name == name), None)


@dataclass(frozen=True, slots=True)
class NodeReport:
    """The answer for one node; numbers are tokens, None where they are not known.

    `usable`: what of the pool a prompt can have. `accepted`: the longest prompt that the front end lets through; `served`: the longest one
    that the node also has room for. `witness`: the shortest prompt that is let through and does not fit.
    """

    node: Node
    verdict: Verdict
    pool: int | None
    usable: int | None
    accepted: int | None
    served: int | None
    witness: int | None
    margin: float | None  # of the context
    missing: tuple[str, ...]
    warnings: tuple[str, ...]
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Preflight:
    """The answer for a deployment.

    `consequences` are those of each node, None where it covers; `reject_reachable`: whether a prompt can get onto the path on which a
    node rejects it (None: not known).
    """

    verdict: Verdict
    nodes: tuple[NodeReport, ...]
    consequences: tuple[Consequence | None, ...]
    warnings: tuple[str, ...]
    advice: tuple[str, ...]
    coverage: Coverage

    @property
    def consequence(self) -> Consequence | None:
        """The worst of all nodes: a leak outweighs everything; what is not known outweighs what is harmless."""
        found = [entry for entry in self.consequences if entry is not None]
        return min(found, key=lambda entry: WORST_FIRST.index(entry.outcome), default=None)

    @property
    def reject_reachable(self) -> bool | None:
        return {Verdict.VIOLATED: True, Verdict.HOLDS: False}.get(self.verdict)

    @property
    def missing(self) -> tuple[str, ...]:
        """Facts that would decide what is undecided, by node."""
        return tuple(
            f"{report.node.name}: {fact}" for report in self.nodes if report.verdict is Verdict.UNDECIDED for fact in report.missing
        )


def preflight(nodes: Sequence[Node]) -> Preflight:
    """Judge every node, and say what happens where one does not cover what its door accepts."""
    question = Question(_handoff())
    nodes = _paired(nodes)
    capacities = [capacity_of(node) for node in nodes]
    answers = [question.ask(_side(node), capacity.inequalities) for node, capacity in zip(nodes, capacities, strict=True)]
    reports = tuple(
        _report(question, node, capacity, answer) for node, capacity, answer in zip(nodes, capacities, answers, strict=True)
    )
    verdicts = {report.verdict for report in reports}
    verdict = next((one for one in (Verdict.VIOLATED, Verdict.UNDECIDED, Verdict.HOLDS) if one in verdicts), Verdict.UNDECIDED)
    consequences = tuple(
        _of_node(question, position, reports, capacities) if report.verdict is Verdict.VIOLATED else None
        for position, report in enumerate(reports)
    )
    return Preflight(verdict, reports, consequences, _between_nodes(reports), _advice(reports, consequences), Coverage())


def _paired(nodes: Sequence[Node]) -> list[Node]:
    """The nodes, with the widest context among SGLang's prefill and decode nodes as that of each: both halves of a pair get every
    request, and a node whose own context is smaller rejects what the other admits."""
    contexts = [node.context for node in nodes if _is_half(node) and node.context is not None]
    widest = max(contexts, key=lambda fact: fact.value, default=None)
    found = []
    for node in nodes:
        if widest is not None and _is_half(node) and node.context is not None and node.context.value < widest.value:
            own = max(0, node.context.value - SGLANG_RESERVE)
            door = Fact(own if node.door is None else min(own, node.door.value), node.context.source)
            own_context = f"this node's is {node.context.value:,}"
            note = f"{node.name}: the contexts differ: {own_context}, another one lets through {widest.value:,} ({widest.source})"
            node = replace(node, context=widest, door=door, wider=True, notes=(*node.notes, note))
        found.append(node)
    return found


def _is_half(node: Node) -> bool:
    return bool(node.role) and node.engine is not None and node.engine.value == "sglang"


@cache
def _handoff() -> TransitionSystem:
    return load_spec(SPEC)


def _side(node: Node) -> str:
    """The role of the spec: a node that is no half of a pair computes prompts, as a prefill node does."""
    return node.role or "prefill"


# -- one node ------------------------------------------------------------------------------------------------------------


def _report(question: Question, node: Node, capacity: Capacity, answers: Answers) -> NodeReport:
    reachable, covers = answers.witness is not None, answers.covers
    missing = capacity.missing
    notes = [*node.notes, *capacity.notes]
    if not answers.decided:
        verdict, missing = Verdict.UNDECIDED, ("an answer of the solver",)
    elif reachable != covers:
        verdict = Verdict.VIOLATED if reachable else Verdict.HOLDS
    else:
        verdict = Verdict.UNDECIDED
        if not reachable:
            missing = ("facts that agree: those given contradict each other",)
    decided = verdict is not Verdict.UNDECIDED
    context = None if node.context is None else node.context.value
    if context is None and capacity.page == 1:
        context = _same(answers.context)
    usable = _tokens(_same(answers.limit), capacity.page)
    if usable is None and node.concurrency is not None and context is not None:
        usable = node.concurrency.value * context // 100
    margin = None if usable is None or not context else usable / context - 1
    if verdict is Verdict.HOLDS and _is_thin(question, node, capacity):
        exact = not capacity.missing
        notes.append(
            f"{node.name}: the pool covers the context by {margin:.1%} only: a change of memory settings is enough to lose that"
            if exact and margin is not None
            else f"{node.name}: the margin may be under {THIN} %: {capacity.missing[0] if capacity.missing else 'a fact'} is not known"
        )
    if context is not None and capacity.door is not None and capacity.door > context:
        notes.append(f"{node.name}: the node says that it serves {capacity.door:,} tokens, more than its context of {context:,}")
    served = None if usable is None or context is None else min(usable, context)
    if capacity.door is not None:
        served = capacity.door if served is None else min(served, capacity.door)
    witness = answers.witness.prompt if answers.witness is not None and verdict is Verdict.VIOLATED else None
    if witness is not None and capacity.page != 1:
        witness = (witness - 1) * capacity.page + 1 if capacity.page else None
    pool = node.pool.value if node.pool else node.blocks.value * node.page.value if node.blocks and node.page else None
    if node.concurrency is not None and usable is not None and capacity.page == 0:
        pool = usable
    return NodeReport(
        node, verdict, pool, usable, context, served, witness, margin, () if decided else missing or ("a fact",), tuple(notes),
        tuple(dict.fromkeys(fact.why for fact in capacity.inequalities)),
    )  # fmt: skip


def _same(ends: tuple[int | None, int | None]) -> int | None:
    return ends[0] if ends[0] == ends[1] else None


def _tokens(units: int | None, page: int) -> int | None:
    return None if units is None or page == 0 else units * page


def _is_thin(question: Question, node: Node, capacity: Capacity) -> bool:
    """Whether the facts allow a margin under two per cent of the context."""
    thin = Inequality(((CONTEXT, 100 + THIN), (LIMIT, -100)), -1, "thin")
    found, answered = question.model([*question.known, *question.facts(_side(node), (*capacity.inequalities, thin))], [])
    return found is not None or not answered


# -- the nodes together ----------------------------------------------------------------------------------------------------


def _between_nodes(reports: Sequence[NodeReport]) -> tuple[str, ...]:
    found = []
    prefill, decode = (any(report.node.role == role for report in reports) for role in ROLES)
    for engine in dict.fromkeys(report.node.engine and report.node.engine.value for report in reports):
        group = [report for report in reports if (report.node.engine and report.node.engine.value) == engine]
        served = sorted((report.served, report.node.name) for report in group if report.served is not None)
        if served and served[0][0] != served[-1][0]:
            (least, one), (most, other) = served[0], served[-1]
            found.append(
                f"the nodes have unequal limits: {one} serves {least:,} tokens, {other} {most:,}; "
                f"{'' if any(report.node.role for report in group) else 'if they get the same requests, '}"
                "what one of them refuses, the other admits"
            )
        accepted = sorted((report.accepted, report.node.name) for report in group if report.accepted is not None)
        if accepted and accepted[0][0] != accepted[-1][0]:
            (least, one), (most, other) = accepted[0], accepted[-1]
            found.append(f"the contexts differ: {least:,} ({one}) and {most:,} ({other})")
    if prefill != decode:
        found.append(f"nothing is said of the {'decode' if prefill else 'prefill'} node: the verdict is about the other one")
    return tuple(found)


def _advice(reports: Sequence[NodeReport], consequences: Sequence[Consequence | None]) -> tuple[str, ...]:
    """What to set."""
    found = []
    for report in reports:
        if report.verdict is not Verdict.VIOLATED or report.accepted is None:
            continue
        engine = report.node.engine.value if report.node.engine else ""
        context = {"sglang": "--context-length", "vllm": "--max-model-len"}.get(engine, "the context length")
        memory = {"sglang": "--mem-fraction-static", "vllm": "--gpu-memory-utilization"}.get(engine, "the pool's share of memory")
        room = report.accepted + (6 if engine == "sglang" else 0)
        if report.usable:
            found.append(f"{report.node.name}: set {context} to at most {report.usable:,}, on every node that serves the same requests")
        found.append(
            f"{report.node.name}: or make room for a prompt of {report.accepted:,} tokens "
            f"(a pool of at least {room:,}{', and the null block' if engine == 'vllm' else ''}): raise {memory}, or use more GPUs"
        )
    if {entry.outcome for entry in consequences if entry is not None} & {Outcome.LEAK, Outcome.HELD_PAGES}:
        found.append("until then: refuse longer prompts in front of both nodes")
    return tuple(found)


# -- what happens then -------------------------------------------------------------------------------------------------------

# Which variant of the spec says what a release does: measured on the releases' code (docs/variants.md). First and last release.
VARIANTS = (
    ((0, 5, 11), (0, 5, 19), "sglang-0.5.16"),
    ((0, 5, 20), (0, 5, 20), "sglang-0.5.20"),
    ((0, 5, 21), (0, 5, 23), "sglang-0.5.21"),
)
# vLLM refuses to start where a context does not fit: measured from the first to the last of these; from the third on its check
# leaves out the null block, as the pool does.
START_UP_CHECK = ((0, 11, 2), (0, 33, 0))
COUNTS_NULL_BLOCK_BEFORE = (0, 33, 0)


def variant_of(version: str) -> str | None:
    """The variant of handoff for a release of SGLang, None if none was measured.

    >>> variant_of("0.5.16")
    'sglang-0.5.16'
    """
    numbers = _release(version)
    return None if numbers is None else next((name for first, last, name in VARIANTS if first <= numbers <= last), None)


def _release(version: str) -> tuple[int, ...] | None:
    match = re.fullmatch(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})", version)
    return None if match is None else tuple(int(part) for part in match.groups())


def _of_node(question: Question, position: int, reports: Sequence[NodeReport], capacities: Sequence[Capacity]) -> Consequence:
    node = reports[position].node
    if node.room is not None:
        return Consequence(Outcome.REFUSES_TO_START, f"{node.room.source}: the engine refused to start")
    if node.engine is None:
        return Consequence(Outcome.UNKNOWN, f"{node.name}: the engine is not known; say it with --engine NAME==VERSION")
    if node.version is None:
        return Consequence(Outcome.UNKNOWN, f"{node.name}: the version of {node.engine.value} is not known; say it with --engine")
    if node.engine.value == "vllm":
        return _of_vllm(question, node, node.version.value, capacities[position])
    if node.engine.value != "sglang":
        return Consequence(Outcome.UNKNOWN, f"no spec says what {node.release} does")
    variant = variant_of(node.version.value)
    if variant is None:
        return Consequence(Outcome.UNKNOWN, f"no spec says what {node.release} does: measured are 0.5.11 and 0.5.16 to 0.5.23")
    numbers, assumed = _numbers(question, position, reports, capacities)
    if numbers is None:
        return Consequence(Outcome.UNKNOWN, "the solver gave no deployment in which it happens")
    return _explored(variant, node, numbers, assumed)


def _of_vllm(question: Question, node: Node, version: str, capacity: Capacity) -> Consequence:
    numbers = _release(version)
    first, last = START_UP_CHECK
    if numbers is None or not first <= numbers <= last:
        return Consequence(Outcome.UNKNOWN, f"no measurement says what {node.release} does; 0.11.2 to 0.33.0 were measured")
    if numbers < COUNTS_NULL_BLOCK_BEFORE:
        null = capacity.page if capacity.page > 1 else LARGEST_PAGE if capacity.page == 1 else 1
        passes = Inequality(((LIMIT, 1), (CONTEXT, -1)), null if capacity.page == 1 else 1, "a start-up check that counts the null block")
        facts = [*question.known, *question.facts(_side(node), (*capacity.inequalities, passes))]
        found, answered = question.model(facts, [question.oversize(_side(node))])
        if found is not None or not answered:
            return Consequence(
                Outcome.UNKNOWN,
                f"the start-up check of {node.release} counts the null block: it may start, and a request of full length then waits "
                "for ever",
            )
    return Consequence(
        Outcome.REFUSES_TO_START, f"the start-up check of {node.release} is the spec's assumption {_side(node)}_sizing, and it is false",
        SPEC, ((f"{_side(node)}_pool_covers_context", True),),
    )  # fmt: skip


def _numbers(
    question: Question, position: int, reports: Sequence[NodeReport], capacities: Sequence[Capacity]
) -> tuple[Numbers | None, str]:
    """A deployment in which the prompt does not fit: if it can be, one in which the other node admits it."""
    role = _side(reports[position].node)
    facts = [*question.known, *question.facts(role, capacities[position].inequalities)]
    other = "decode" if role == "prefill" else "prefill"
    partners = [
        question.facts(other, capacity.inequalities, context=False)
        for report, capacity in zip(reports, capacities, strict=True)
        if report.node.role == other
    ]
    assumed = "" if reports[position].node.role else "; it is taken to be a prefill node, because nothing says which"
    if not partners:
        assumed += f"; the {other} node is taken to cover the context, because nothing is said of it"
        partners = [[question.formulas.flags[f"{other}_pool_covers_context"]]]
    here, there = question.oversize(role), question.oversize(other)
    import z3

    for wanted in ([here, z3.Not(there)], [here]):
        for partner in partners:
            found, _ = question.model([*facts, *partner], wanted)
            if found is not None:
                return found, assumed
    return None, assumed


def _explored(variant: str, node: Node, numbers: Numbers, assumed: str) -> Consequence:
    """What the variant's exploration says, with numbers that compare as the deployment's do."""
    flags = {
        **REJECTS_ALONE,
        "prefill_pool_covers_context": numbers.context <= numbers.prefill_limit,
        "decode_pool_covers_context": numbers.context <= numbers.decode_limit,
        "truncates_automatically": _side(node) == "prefill" and node.truncates is not None and node.truncates.value == 1,
    }
    values = [getattr(numbers, name) for name in SCALARS]
    result = _exploration(variant, tuple(flags.items()), tuple(sorted(values).index(value) for value in values), EXPLORE_FOR)
    verdicts = {entry.name: entry.verdict for entry in result.properties}
    fired = dict(result.fired)
    if verdicts["isolated_read"] is Verdict.VIOLATED:
        outcome, reason = Outcome.LEAK, "a rejected request is served from pages that hold other requests' data"
        if flags["truncates_automatically"]:
            reason = "a prompt that prefill truncates is served from pages that hold other requests' data"
    elif any(verdicts[name] is Verdict.UNDECIDED for name in LOOKED_AT):
        outcome, reason = Outcome.UNKNOWN, "the exploration was not completed"
    elif verdicts["pages_conserved"] is Verdict.VIOLATED:
        outcome, reason = Outcome.HELD_PAGES, "nothing foreign is read, and decode keeps pages for a request that prefill refused"
    elif all(verdict is Verdict.HOLDS for verdict in verdicts.values()) and any(fired.get(name, 0) for name in ANSWERS_400):
        outcome, reason = Outcome.CLEAN_400, "the client is answered 400, nothing is read and nothing is kept"
    else:
        outcome, reason = Outcome.UNKNOWN, "the exploration shows none of the known consequences"
    return Consequence(outcome, reason + assumed, result.spec, tuple(flags.items()), result.properties, result.coverage)


@lru_cache(maxsize=64)
def _exploration(variant: str, flags: tuple[tuple[str, bool], ...], ranks: tuple[int, ...], timeout: float) -> Result:
    """The exploration of a variant whose context and limits compare as `ranks` do."""
    system = load_spec(f"{SPEC}:{variant}").with_flags(dict(flags))
    system = replace(system, assumptions=(*system.assumptions, *_order(system, dict(zip(SCALARS, ranks, strict=True)))))
    return explore(Instance.make(system), LOOKED_AT, timeout=timeout)


def _order(system: TransitionSystem, ranks: Mapping[str, int]) -> tuple[Condition, ...]:
    """That the numbers compare as their ranks do."""
    reads = {name: Read(name, (), system.by_name[name].type) for name in ranks}
    found = []
    for pair in combinations(ranks, 2):
        less, more = sorted(pair, key=lambda name: ranks[name])
        operator = Operator.LT if ranks[less] < ranks[more] else Operator.EQ
        found.append(Condition(f"{less}_{operator.name.lower()}_{more}", (), Apply(operator, (reads[less], reads[more]), BOOL)))
    return tuple(found)
