"""From snapshots to states: each fact from a snapshot made by hand, and states of the spec as an engine would show them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest

from kvmodel.engines.adapter import Pages, Transfer, TransferKind, Work
from kvmodel.engines.mapping import ENGINE, SOURCES, UNKNOWN_KEY, Facts, Read, Requests, map_snapshot
from kvmodel.engines.shadow import Prefixes, Shadow
from kvmodel.engines.snapshot import PoolSnapshot, Snapshot, walk_free_list
from kvmodel.errors import UsageError
from kvmodel.language.instance import Binding, Instance, State
from kvmodel.language.load import load_spec
from kvmodel.language.types import Value
from kvmodel.readings.initial import initial_states
from kvmodel.readings.run import Interpreter

P0, P1, P2 = ("", 0), ("", 1), ("", 2)


class World:
    """Requests, both memories, and what a snapshot of one pool becomes in them."""

    def __init__(self, page_size: int = 2, null: frozenset[int] = frozenset()) -> None:
        prefixes, places = Prefixes(), frozenset(("", page) for page in null)
        self.memory, self.ahead = Shadow(page_size, prefixes, places), Shadow(page_size, prefixes, places)
        self.requests = Requests()

    def request(self, name: str, *tokens: int, salt: str | None = None) -> None:
        self.requests.tokens[name], self.requests.salts[name] = tokens, salt

    def prefix(self, *tokens: int, salt: str | None = None, group: int = 0) -> int:
        return self.memory.prefixes.of(salt, group, tokens)[-1]

    def computed(self, name: str, *row: int, first: int = 0, only_ahead: bool = False) -> None:
        tokens, salt = self.requests.tokens[name], self.requests.salts[name]
        for shadow in (self.ahead,) if only_ahead else (self.memory, self.ahead):
            shadow.compute(name, tokens, salt, first, len(tokens), Pages("", (row,)))

    def read(self, name: str, *row: int, remote: bool = False) -> Read:
        tokens = self.requests.tokens[name]
        return Read(name, tokens, self.requests.salts[name], 0, len(tokens), Pages("", (row,)), remote)

    def transfer(self, name: str, *row: int, kind: TransferKind = TransferKind.WRITE, first: int = 0) -> Transfer:
        table = Pages("", (row,))
        source, target = (table, None) if kind is TransferKind.READ else (None, table)
        return Transfer(name, name, kind, self.requests.tokens[name], self.requests.salts[name], first, source, target)

    def facts(
        self, snapshot: Snapshot, reads: Sequence[Read] = (), transfers: Sequence[Transfer] = (), queued: Sequence[Work] = ()
    ) -> Facts:
        return map_snapshot(snapshot, self.requests, self.memory, self.ahead, reads, transfers, queued)


def pool(
    *free: int, pages: int = 3, tables: Mapping[str, tuple[tuple[int, ...], ...]] | None = None, null: frozenset[int] = frozenset(),
    detached: Mapping[str, tuple[int, ...]] | None = None, references: Mapping[int, int] | None = None,
    index: Mapping[str, frozenset[int]] | None = None, name: str = "",
) -> PoolSnapshot:  # fmt: skip
    return PoolSnapshot(name, pages, free, tables or {}, null, detached or {}, references, index)


def of_one(*pools: PoolSnapshot, known: frozenset[str] | None = frozenset()) -> Snapshot:
    return Snapshot(pools, known)


# -- what the engine says


def test_a_free_list_may_have_a_page_twice() -> None:
    facts = World().facts(of_one(pool(2, 0, 2)))
    assert facts["free"] == {(P2,): True, (P0,): True}
    assert facts["entries"] == {(P2,): 2, (P0,): 1}


def test_a_shared_page_is_held_by_each_and_a_page_in_two_places_is_noted() -> None:
    facts = World().facts(of_one(pool(tables={"r0": ((0, 1), (1,)), "r1": ((0,),)})))
    assert facts["holds"] == {("r0", P0): True, ("r0", P1): True, ("r1", P0): True}
    assert facts["twice"] == {("r0", P1): True}


def test_what_is_held_back_is_detached_and_quarantined() -> None:
    facts = World().facts(of_one(pool(detached={"r0": (0, 1), "r1": (1,)})))
    assert facts["detached"] == {("r0", P0): True, ("r0", P1): True, ("r1", P1): True}
    assert facts["quarantined"] == {(P0,): True, (P1,): True}


def test_a_null_page_is_held_by_nobody() -> None:
    snapshot = of_one(pool(null=frozenset({0}), tables={"r0": ((0, 0, 1),)}, detached={"r1": (0,)}, references={0: 5, 1: 1}))
    facts = World(null=frozenset({0})).facts(snapshot)
    assert facts["null"] == {(P0,): True}
    assert facts["holds"] == {("r0", P1): True}
    assert facts["twice"] == facts["detached"] == facts["quarantined"] == {}
    assert facts["references"] == {(P1,): 1}


def test_what_is_not_said_is_not_mapped() -> None:
    facts = World().facts(of_one(pool(), known=None))
    assert SOURCES.keys() - facts.keys() == {"references", "key", "known"}
    facts = World().facts(of_one(pool(references={0: 0, 1: 2}, index={}), known=frozenset({"r0"})))
    assert SOURCES.keys() == facts.keys()
    assert facts["references"] == {(P1,): 2}
    assert facts["known"] == {("r0",): True}


def test_one_pool_that_does_not_count_leaves_the_count_open() -> None:
    facts = World().facts(of_one(pool(references={0: 1}, index={}, name="prefill"), pool(references=None, index={}, name="decode")))
    assert "references" not in facts
    assert "key" in facts


def test_pages_of_two_pools_are_different_pages() -> None:
    facts = World().facts(of_one(pool(0, name="prefill"), pool(0, name="decode")))
    assert facts["free"] == {(("prefill", 0),): True, (("decode", 0),): True}
    snapshot = of_one(pool(name="prefill"), pool(name="decode"))
    assert snapshot.pool("decode").name == "decode"
    with pytest.raises(UsageError, match="no pool 'decoder'; it has 'prefill', 'decode'"):
        snapshot.pool("decoder")


# -- keys of the index


def test_a_key_stands_for_the_prefix_of_the_request_that_has_it() -> None:
    world = World()
    world.request("r0", 1, 2, 3, 4)
    world.computed("r0", 0, 1)
    world.requests.learn_keys("r0", [["k1", "k2"]], world.memory)
    facts = world.facts(of_one(pool(tables={"r0": ((0, 1),)}, index={"k1": frozenset({0}), "k2": frozenset({1})})))
    assert facts["key"] == {(P0,): world.prefix(1, 2), (P1,): world.prefix(1, 2, 3, 4)}
    assert facts["data"] == {(P0,): world.prefix(1, 2), (P1,): world.prefix(1, 2, 3, 4)}
    assert facts["begins_with"] == {("r0", world.prefix(1, 2)): True, ("r0", world.prefix(1, 2, 3, 4)): True}


def test_a_key_of_a_token_that_is_not_known_yet_is_learned_later() -> None:
    world = World()
    world.request("r0", 1, 2, 3)
    world.requests.learn_keys("r0", [["k1", "k2"]], world.memory)
    assert set(world.requests.meanings) == {"k1"}
    world.requests.learn_keys("r0", None, world.memory)
    world.request("r0", 1, 2, 3, 4)
    world.requests.learn_keys("r0", [["k1", "k2"]], world.memory)
    assert world.requests.meanings["k2"] == {world.prefix(1, 2, 3, 4)}


def test_of_a_key_with_two_meanings_the_one_that_is_not_in_the_page_counts() -> None:
    world = World()
    world.request("r0", 1, 2)
    world.request("r1", 1, 2, salt="tenant")
    for name in ("r0", "r1"):
        world.requests.learn_keys(name, [["k"]], world.memory)
    world.computed("r0", 0)
    facts = world.facts(of_one(pool(index={"k": frozenset({0})})))
    assert facts["data"][P0,] == world.prefix(1, 2)
    assert facts["key"][P0,] == world.prefix(1, 2, salt="tenant")


def test_a_key_that_no_request_has_stands_for_nothing_that_can_be_in_a_page() -> None:
    world = World()
    world.request("r0", 1, 2)
    world.computed("r0", 0)
    facts = world.facts(of_one(pool(index={"stranger": frozenset({0, 1})})))
    assert facts["key"] == {(P0,): UNKNOWN_KEY, (P1,): UNKNOWN_KEY}


def test_a_key_of_another_group_stands_for_other_kv() -> None:
    world = World()
    world.request("r0", 1, 2)
    world.requests.learn_keys("r0", [["a"], ["b"]], world.memory)
    assert world.requests.meanings == {"a": {world.prefix(1, 2)}, "b": {world.prefix(1, 2, group=1)}}
    assert world.prefix(1, 2) != world.prefix(1, 2, group=1)


# -- operations, and what is in the pages


def test_a_read_of_what_was_written_for_the_reader() -> None:
    world = World()
    world.request("r0", 1, 2, 3)
    world.computed("r0", 0, 1)
    facts = world.facts(of_one(pool(tables={"r0": ((0, 1),)})), [world.read("r0", 0, 1)])
    assert facts["reading"] == facts["written"] == {("r0", P0): True, ("r0", P1): True}
    assert facts["content"] == {(P0,): "r0", (P1,): "r0"}


def test_a_read_of_equal_kv_of_another_request_is_as_good() -> None:
    world = World()
    for name in ("r0", "r1"):
        world.request(name, 1, 2)
    world.computed("r0", 0)
    facts = world.facts(of_one(pool(tables={"r1": ((0,),)})), [world.read("r1", 0)])
    assert facts["written"] == {("r1", P0): True}
    assert facts["content"] == {(P0,): "r1"}  # as if it were its own
    assert facts["data"] == {(P0,): world.prefix(1, 2)}
    assert ("r1", world.prefix(1, 2)) in facts["begins_with"]


def test_a_read_of_foreign_data_says_so_whoever_wrote_last() -> None:
    world = World()
    world.request("r0", 1)
    world.request("r1", 2, 3)
    world.computed("r0", 0)
    world.memory.compute("r1", (2, 3), None, 1, 2, Pages("", ((0,),)))  # position 0 is r0's, position 1 r1's own
    facts = world.facts(of_one(pool(tables={"r1": ((0,),)})), [world.read("r1", 0)])
    assert facts["reading"] == {("r1", P0): True}
    assert facts["written"] == {}
    assert facts["content"] == {(P0,): "r0"}
    assert facts["data"] == {}


def test_a_read_of_what_was_never_written_is_stale_and_not_foreign() -> None:
    world = World()
    world.request("r0", 1, 2, 3)
    world.computed("r0", 0)
    facts = world.facts(of_one(pool(tables={"r0": ((0, 1),)})), [world.read("r0", 0, 1)])
    assert facts["reading"] == {("r0", P0): True, ("r0", P1): True}
    assert facts["written"] == {("r0", P0): True}
    assert facts["content"] == {(P0,): "r0"}


def test_a_read_of_own_data_of_other_tokens_is_stale() -> None:
    world = World()
    world.request("r0", 1, 2)
    world.computed("r0", 0)
    world.request("r0", 3, 4)
    facts = world.facts(of_one(pool(tables={"r0": ((0,),)})), [world.read("r0", 0)])
    assert facts["reading"] == {("r0", P0): True}
    assert facts["written"] == {}
    assert facts["content"] == {(P0,): "r0"}


def test_a_read_on_the_stream_of_a_page_that_went_back_is_over_before_anybody_gets_it() -> None:
    world = World()
    world.request("r0", 1, 2)
    world.computed("r0", 0)
    assert world.facts(of_one(pool(0)), [world.read("r0", 0)])["reading"] == {}
    assert world.facts(of_one(pool(0)), [world.read("r0", 0, remote=True)])["reading"] == {("r0", P0): True}
    transfer = world.transfer("r0", 0, kind=TransferKind.READ)
    assert world.facts(of_one(pool(0)), [], [transfer])["reading"] == {("r0", P0): True}


def test_such_a_read_counts_where_it_finds_foreign_data() -> None:
    world = World()
    world.request("r0", 1, 2)
    world.request("r1", 3, 4)
    world.computed("r1", 0)
    facts = world.facts(of_one(pool(tables={"r1": ((0,),)})), [world.read("r0", 0)])
    assert facts["reading"] == {("r0", P0): True}
    assert facts["content"] == {(P0,): "r1"}


def test_a_remote_write_is_in_flight_to_the_pages_that_it_covers() -> None:
    world = World()
    world.request("r0", 1, 2, 3, 4, 5)
    facts = world.facts(of_one(pool(tables={"r0": ((0, 1, 2),)})), [], [world.transfer("r0", 0, 1, 2, first=2)])
    assert facts["writing"] == {("r0", P1): True, ("r0", P2): True}
    assert facts["reading"] == {}


def test_a_queued_batch_will_have_written() -> None:
    """What it computes is pending, and counts as there for the index alone: whoever reads it is queued behind."""
    world = World()
    world.request("r0", 1, 2)
    world.computed("r0", 0, only_ahead=True)
    world.requests.learn_keys("r0", [["k"]], world.memory)
    work = Work("r0", (1, 2), None, 0, 2, Pages("", ((0,),)))
    facts = world.facts(of_one(pool(tables={"r0": ((0,),)}, index={"k": frozenset({0})})), queued=[work])
    assert facts["pending"] == {("r0", P0): True}
    assert facts["data"] == facts["key"] == {(P0,): world.prefix(1, 2)}
    assert facts["written"] == {}
    assert facts["content"] == {}


def test_a_holder_has_written_what_it_wrote_and_nobody_else() -> None:
    world = World()
    for name, tokens in (("r0", (1, 2)), ("r1", (3, 4))):
        world.request(name, *tokens)
    world.computed("r0", 0)
    facts = world.facts(of_one(pool(tables={"r1": ((0,),)})))
    assert facts["written"] == {}
    assert facts["content"] == {(P0,): "r0"}
    facts = world.facts(of_one(pool(tables={"r0": ((0,),), "r1": ((0,),)})))
    assert facts["written"] == {("r0", P0): True}


# -- linked free lists


class Node:
    def __init__(self, block: int) -> None:
        self.block = block
        self.after: object = None


def linked(*blocks: int) -> tuple[Node, Node]:
    head, tail = Node(-1), Node(-2)
    last = head
    for block in blocks:
        last.after = Node(block)
        last = last.after
    last.after = tail
    return head, tail


def test_a_linked_free_list_is_walked_from_behind_its_head_to_its_tail() -> None:
    assert walk_free_list(*(linked(3, 1, 2)[0], "after", linked()[1], "block", 3))[:3] == (3, 1, 2)
    head, tail = linked(3, 1, 2)
    assert walk_free_list(head, "after", tail, "block", 3) == (3, 1, 2)
    head, tail = linked()
    assert walk_free_list(head, "after", tail, "block", 3) == ()


def test_a_linked_free_list_that_has_become_a_cycle_ends_with_a_page_twice() -> None:
    head, tail = linked(3, 1)
    first = head.after
    assert isinstance(first, Node)
    assert isinstance(first.after, Node)
    first.after.after = first
    assert walk_free_list(head, "after", tail, "block", 2) == (3, 1, 3)


# -- states of the spec, as an engine would show them

ENGINE_SAYS = tuple(name for name, source in SOURCES.items() if source == ENGINE)
Values = Mapping[str, Mapping[Binding, Value]]


def values_of(instance: Instance, state: State) -> dict[str, dict[Binding, Value]]:
    """The values of a state that are not False, zero or None, by variable and index."""
    found: dict[str, dict[Binding, Value]] = {name: {} for name in SOURCES}
    for layout, values in ((instance.rigid_layout, state.rigid), (instance.state_layout, state.values)):
        for (name, index), value in zip(layout.places, values, strict=True):
            if name in found and (value is not None if name == "key" else value not in (False, None)):
                found[name][index] = value
    return found


def shown(values: Values, sizes: Mapping[str, int]) -> tuple[Snapshot, Requests]:
    """The snapshot of an engine in that state, and what its keys mean."""
    requests = Requests(meanings={f"k{k}": {k} for k in range(sizes["Prefix"])})
    tables: dict[str, tuple[tuple[int, ...], ...]] = {}
    detached: dict[str, tuple[int, ...]] = {}
    for r in range(sizes["Request"]):
        held = tuple(p for p in range(sizes["Page"]) if values["holds"].get((r, p)))
        again = tuple(p for p in held if values["twice"].get((r, p)))
        if held:
            tables[f"r{r}"] = (held, again)
        back = tuple(p for p in range(sizes["Page"]) if values["detached"].get((r, p)))
        if back:
            detached[f"r{r}"] = back
    free = [p for (p,), count in values["entries"].items() for _ in range(int(str(count)))]
    index: dict[str, frozenset[int]] = {}
    for (p,), key in values["key"].items():
        index[f"k{key}"] = index.get(f"k{key}", frozenset()) | {int(str(p))}
    mine = pool(
        *(int(str(p)) for p in free),
        pages=sizes["Page"],
        tables=tables,
        detached=detached,
        null=frozenset(int(str(p)) for (p,) in values["null"]),
        references={p: int(str(values["references"].get((p,), 0))) for p in range(sizes["Page"])},
        index=index,
    )
    return Snapshot((mine,), frozenset(f"r{r}" for (r,) in values["known"])), requests


def numbered(facts: Facts) -> dict[str, dict[Binding, Value]]:
    def number(part: object) -> Value:
        if isinstance(part, tuple):
            return int(part[1])
        return int(part[1:]) if isinstance(part, str) else part  # type: ignore[return-value]

    return {name: {tuple(map(number, index)): number(value) for index, value in facts[name].items()} for name in ENGINE_SAYS}


@pytest.mark.parametrize("variant", ["cached", "cached:double-free", "cached:hit-and-new"])
def test_states_of_the_spec_come_back_from_their_snapshots(variant: str) -> None:
    sizes = {"Request": 2, "Page": 3, "Prefix": 2}
    instance = Instance.make(load_spec(variant), sizes)
    interpreter = Interpreter(instance)
    starts = list(initial_states(instance))
    chance = random.Random(5)
    seen = set()
    for _ in range(4):
        state = chance.choice(starts)
        for _ in range(25):
            values = values_of(instance, state)
            snapshot, requests = shown(values, sizes)
            memory = Shadow(1, Prefixes())
            mapped = numbered(map_snapshot(snapshot, requests, memory, memory))
            assert mapped == {name: values[name] for name in ENGINE_SAYS}
            seen |= {name for name in ENGINE_SAYS if values[name]}
            enabled = interpreter.enabled(state)
            if not enabled or interpreter.out_of_range(state):
                break
            state = interpreter.successor(state, chance.choice(enabled))
    assert seen >= set(ENGINE_SAYS) - {"twice"} - ({"detached", "quarantined"} if variant != "cached" else set())
