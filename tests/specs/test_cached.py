"""The cache spec: what each fault breaks and how, that nothing in it is there for nothing, and that it judges what engines do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest

from kvmodel.language.instance import Instance, State
from kvmodel.language.load import load_spec
from kvmodel.language.system import FlagKind, PropertyKind, TransitionSystem
from kvmodel.language.types import Value
from kvmodel.readings.compiled import CompiledSystem
from kvmodel.readings.explore import explore, reachable
from kvmodel.readings.partial import partial
from kvmodel.readings.run import Interpreter
from kvmodel.readings.solver import Answer, ConditionSolver
from kvmodel.verdict import Verdict

CACHED = load_spec("cached")
SMALL = {"Request": 2, "Page": 1, "Prefix": 1}

STORIES = {
    ("key-survives-reuse", "index_matches_content"): "allocate fill compute index release allocate fill compute",
    ("key-without-salt", "exclusive_owner"): "allocate fill compute index hit",
    ("key-without-salt", "isolated_read"): "allocate fill compute index hit begin_read",
    ("indexed-before-arrival", "index_matches_content"): "allocate index",
    ("free-ignores-count", "pages_conserved"): "allocate fill compute index hit release",
    ("hit-stays-free", "pages_conserved"): "allocate fill compute index release hit",
    ("hit-stays-free", "exclusive_owner"): "allocate fill compute index release hit allocate",
    ("double-free", "no_double_free"): "allocate release",
    ("hit-and-new", "exclusive_owner"): "allocate fill compute index release hit_and_allocate",
    ("freed-while-queued", "isolated_write"): "allocate fill abort allocate post",
    ("abort-frees-target", "isolated_write"): "allocate post abort",
    ("abort-frees-target", "no_use_after_free"): "allocate post abort allocate",
    ("lease-expires", "isolated_read"): "allocate fill compute begin_read abort give_up",
}
"""What happens in a shortest run, a write by computation standing for one from afar where either will do."""


@pytest.mark.parametrize(("variant", "name"), STORIES)
def test_a_fault_is_a_short_story(variant: str, name: str) -> None:
    trace = explore(Instance.make(load_spec(f"cached:{variant}"), SMALL), [name])[name].trace
    assert trace is not None
    told = " ".join({"post": "fill", "land": "compute"}.get(step.action, step.action) for step in trace.steps)
    assert told == STORIES[variant, name].replace("post", "fill").replace("land", "compute")


def test_every_fault_has_its_story() -> None:
    switched = {flag.name for variant, _ in STORIES for flag in load_spec(f"cached:{variant}").flags if flag.value != flag.default}
    assert switched == {flag.name for flag in CACHED.flags} - {"zero_on_free"}


def broken(system: TransitionSystem, sizes: Mapping[str, int]) -> set[str]:
    """Names of the properties that are violated at a size."""
    properties = [p for p in system.properties if p.kind is not PropertyKind.REACHABLE]
    return set(reachable(Instance.make(system, sizes), properties).seen)


@pytest.mark.parametrize("flag", [flag.name for flag in CACHED.flags])
def test_a_flag_the_other_way_round_is_noticed(flag: str) -> None:
    (given,) = (entry for entry in CACHED.flags if entry.name == flag)
    violated = broken(CACHED.with_flags({flag: not given.value}), SMALL)
    assert bool(violated) == (given.value == (given.kind is FlagKind.DEFENCE))  # one more defence breaks nothing


REDUNDANT = {
    ("abort", "something in flight"): "with nothing in flight an abort is a release",
    ("abort", "known"): "a request that ended holds nothing",
    ("begin_read", "held"): "what is held back is there to be read",
    ("end_read", "in flight"): "nothing ends",
    ("hit_and_allocate", "live"): "the action is switched off",
    ("index", "not indexed"): "the prefix of a page that is there is settled",
    ("evict", "indexed"): "there is nothing to drop",
    ("reset", "nothing used"): "dropping keys frees nothing; vLLM refuses, and so its users see it",
    ("reset", "something indexed"): "there is nothing to drop",
    ("fill", "nothing queued before"): "a page is filled once anyway",
    ("release", "holds pages"): "a request without pages may end too",
    ("release", "nothing in flight"): "what is in flight is held back",
}
LARGER = {("allocate", "in service"): {"Request": 1, "Page": 2, "Prefix": 1}}  # a null page and another one
GUARDS = [(action.name, guard.name) for action in CACHED.actions for guard in action.guards]


@pytest.mark.parametrize(("action", "guard"), GUARDS)
def test_dropping_a_guard_is_noticed(action: str, guard: str) -> None:
    changed = tuple(
        replace(entry, guards=tuple(g for g in entry.guards if g.name != guard)) if entry.name == action else entry
        for entry in CACHED.actions
    )
    violated = broken(replace(CACHED, actions=changed), LARGER.get((action, guard), SMALL))
    assert bool(violated) != ((action, guard) in REDUNDANT)


def test_the_default_size_is_checked_without_a_finding() -> None:
    result = explore(Instance.make(CACHED))
    assert result.verdict is Verdict.HOLDS
    assert result.findings == ()


def test_more_of_each_holds_too() -> None:
    for sizes in ({"Request": 3, "Page": 1, "Prefix": 1}, {"Request": 2, "Page": 1, "Prefix": 2}):
        assert broken(CACHED, sizes) == set()


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [{"Request": 3, "Page": 2, "Prefix": 1}, {"Request": 2, "Page": 2, "Prefix": 2}])
def test_larger_sizes_hold(sizes: Mapping[str, int]) -> None:
    assert broken(CACHED, sizes) == set()


def test_lemmas_are_kept_under_every_assignment_of_flags() -> None:
    """They name the flags that they need, so that `kvmodel defences` can use them."""
    solver = ConditionSolver(load_spec("cached:uncounted"), all_flags=True)
    lemmas = [name for name, claim in solver.induction.claims.items() if claim.lemma]
    helping = {*lemmas, "range:entries"}
    open_conditions = [
        result.name
        for name in lemmas
        for step in solver.induction.steps(name)
        if (result := solver.check(step, name, solver.induction.claims.keys() - {"range:references"})).answer is not Answer.PROVED
    ]
    assert helping
    assert open_conditions == []


# -- states as engines have them

Values = dict[tuple[int, ...], Value]
PAGES = 4
REQUESTS = ("r0", "r1", "r2")


@cache
def judge() -> tuple[CompiledSystem, Interpreter]:
    sizes = {"Request": len(REQUESTS), "Page": PAGES, "Prefix": 2}
    return CompiledSystem(CACHED, sizes), Interpreter(Instance.make(CACHED, sizes))


def violated(**facts: Values) -> set[str]:
    """What is violated in a pool whose page 0 is null and whose pages are free, but for what is given. Two readings agree."""
    compiled, interpreter = judge()
    taken = {page for name in ("holds", "detached") for (_, page), value in facts.get(name, {}).items() if value}
    whole: dict[str, Values] = {
        "null": {(0,): True},
        "known": {(request,): True for request in range(len(REQUESTS))},
        "free": {(page,): page not in taken | {0} for page in range(PAGES)},
        "entries": {(page,): int(page not in taken | {0}) for page in range(PAGES)},
        "references": {
            (page,): sum(facts.get(n, {}).get((r, page), False) is True for n in ("holds", "detached") for r in range(len(REQUESTS)))
            for page in range(PAGES)
        },
        "quarantined": {(page,): any(facts.get("detached", {}).get((r, page)) for r in range(len(REQUESTS))) for page in range(PAGES)},
    }
    for name, values in facts.items():
        whole.setdefault(name, {}).update(values)
    instance = interpreter.instance

    def values_of(layout: object) -> tuple[Value, ...]:
        blank = {"key": None, "data": None, "content": None, "entries": 0, "references": 0}
        return tuple(whole.get(name, {}).get(index, blank.get(name, False)) for name, index in layout.places)  # type: ignore[attr-defined]

    state = State(values_of(instance.rigid_layout), values_of(instance.state_layout))
    found = set(interpreter.violated(state))
    assert {violation.property for violation in compiled.violations(compiled.from_dense(state))} == found
    return found


SHARED: dict[str, Values] = {
    "holds": {(0, 1): True, (1, 1): True},
    "begins_with": {(0, 0): True, (1, 0): True},
    "data": {(1,): 0},
    "key": {(1,): 0},
}


def test_a_pool_at_rest_is_sound() -> None:
    assert violated() == set()
    assert violated(key={(2,): 1}, data={(2,): 1}) == set()  # cached, and in the free list


def test_sharing_by_entitlement() -> None:
    assert violated(**SHARED) == set()
    both: Values = {(0, 1): True, (1, 1): True}
    assert violated(**SHARED | {"reading": both, "written": both, "content": {(1,): 0}}) == set()
    assert violated(**SHARED | {"key": {}}) == set()  # evicted while it is shared
    assert violated(**SHARED | {"begins_with": {(0, 0): True}}) == {"exclusive_owner"}
    assert violated(**SHARED | {"begins_with": {(0, 0): True, (1, 1): True}}) == {"exclusive_owner"}
    assert violated(**SHARED | {"data": {}}) == {"index_matches_content"}
    assert violated(**SHARED | {"data": {}, "key": {}}) == {"exclusive_owner"}


def test_reads_and_writes_of_a_shared_page() -> None:
    read: dict[str, Values] = {"reading": {(1, 1): True}, "written": {(1, 1): True}}
    assert violated(**SHARED | read | {"content": {(1,): 0}}) == set()
    assert violated(**SHARED | read | {"content": {(1,): 2}, "data": {}}) >= {"isolated_read", "fresh_read"}
    assert violated(**SHARED | {"writing": {(1, 1): True}}) == {"no_use_after_free"}
    assert violated(holds={(0, 1): True}, writing={(0, 1): True}, pending={(1, 1): True}) == {"isolated_write"}
    assert violated(holds={(0, 1): True}, pending={(0, 1): True, (1, 1): True}) == set()  # one after the other


def test_what_is_held_back() -> None:
    late: dict[str, Values] = {"detached": {(0, 1): True}, "known": {(0,): False}}
    assert violated(**late, writing={(0, 1): True}) == set()
    assert violated(**late, reading={(0, 1): True}, written={(0, 1): True}, content={(1,): 0}) == set()
    assert violated(**late, references={(1,): 0}) == {"no_double_free"}
    assert violated(known={(0,): False}, writing={(0, 1): True}) == {"isolated_write"}
    assert violated(known={(0,): False}, holds={(1, 1): True}, writing={(0, 1): True}) == {"isolated_write", "no_use_after_free"}
    assert violated(**late, holds={(1, 1): True}) == {"exclusive_owner"}  # held back, and handed out
    assert violated(**late, quarantined={(1,): False}) == {"pages_conserved"}


def test_lists_and_counts() -> None:
    assert violated(entries={(2,): 2}) == {"no_double_free"}
    assert violated(holds={(0, 1): True}, references={(1,): 2}) == {"no_double_free"}
    assert violated(holds={(0, 1): True}, twice={(0, 1): True}) == {"exclusive_owner"}
    assert violated(holds={(0, 1): True}, free={(1,): True}, entries={(1,): 1}) == {"pages_conserved"}
    assert violated(free={(3,): False}, entries={(3,): 0}) == {"pages_conserved"}  # lost
    assert violated(free={(3,): False}) == {"pages_conserved"}
    assert violated(holds={(0, 1): True}, known={(0,): False}) == {"pages_conserved"}  # held for nobody


def test_the_null_page() -> None:
    assert violated(holds={(0, 0): True}) == {"pages_conserved"}
    assert violated(key={(0,): 1}, data={(0,): 1}) == {"pages_conserved"}
    null_is_free: dict[str, Values] = {"free": {(0,): True}, "entries": {(0,): 1}}
    assert violated(**null_is_free) == set()  # before service
    assert violated(**null_is_free, holds={(0, 1): True}) == {"pages_conserved"}


def test_without_what_some_engines_cannot_tell() -> None:
    """An allocator without reference counts, or without an index, is judged by the rest."""
    seen = partial(CACHED, frozenset({"references", "key"}))
    assert set(seen.undecidable) == {"range:references", "no_deadlock"}
    possible, sure = (Interpreter(Instance.make(system, {"Request": 2, "Page": 2, "Prefix": 1})) for system in seen.systems)
    start = State(possible.instance.rigid_layout.length * (False,), tuple(
        {"known": True, "free": True, "entries": 1, "content": None, "key": None, "data": None, "references": 0}.get(name, False)
        for name, _ in possible.instance.state_layout.places
    ))
    wrong = {name for name in possible.violated(start) if name in {p.name for p in CACHED.declared}}
    unsure = {name for name in sure.violated(start) if name in {p.name for p in CACHED.declared}} - wrong
    assert (wrong, unsure) == (set(), {"no_double_free", "index_matches_content"})
    slots = possible.instance.state_layout.slots
    values = list(start.values)
    values[slots["entries", (0,)]] = 2
    assert "no_double_free" in possible.violated(State(start.rigid, tuple(values)))
