"""Shadow memory: whose KV is where, and when two places hold the same."""

from __future__ import annotations

from kvmodel.engines.adapter import Pages
from kvmodel.engines.shadow import Prefixes, Shadow, Written

ONE = ("", 1)


def table(*row: int, pool: str = "") -> Pages:
    return Pages(pool, (row,))


def test_prefixes_are_the_same_where_all_tokens_before_are() -> None:
    prefixes = Prefixes()
    first, second = prefixes.of(None, 0, (1, 2, 3)), prefixes.of(None, 0, (1, 2, 4))
    assert first[:2] == second[:2]
    assert first[2] != second[2]
    assert prefixes.of(None, 0, (2, 2, 3))[1:] != first[1:]  # the same tokens after another one
    assert prefixes.of(None, 0, (1, 2)) == first[:2]
    assert len(set(prefixes.of(None, 0, (7, 7, 7)))) == 3
    assert prefixes.of(None, 0, ()) == ()


def test_salts_and_groups_have_prefixes_of_their_own() -> None:
    prefixes = Prefixes()
    seen = [prefixes.of(salt, group, (1, 2)) for salt in (None, "tenant", "") for group in (0, 1)]
    assert len({number for row in seen for number in row}) == 12


def test_a_path_leads_back_to_the_first_token_and_no_further() -> None:
    prefixes = Prefixes()
    row = prefixes.of(None, 0, (1, 2, 3))
    assert prefixes.path(row[2], 2) == row[1:]
    assert prefixes.path(row[1], 2) == row[:2]
    assert len(prefixes.path(row[0], 2)) == 2  # the root is no token, and whole() compares with tokens
    assert prefixes.path(row[0], 2) != row[:2]


def test_what_is_computed_is_where_the_table_says() -> None:
    memory = Shadow(2, Prefixes())
    memory.compute("r0", (1, 2, 3), None, 1, 3, table(4, 1))
    second, third = memory.prefixes.of(None, 0, (1, 2, 3))[1:]
    assert memory.page(("", 4)) == (None, Written("r0", second))
    assert memory.page(ONE) == (Written("r0", third), None)
    assert memory.page(("", 0)) == (None, None)
    assert list(memory.written_pages()) == [("", 4), ONE]
    assert memory.page(("decode", 4)) == (None, None)  # of another pool


def test_positions_behind_the_table_and_null_pages_are_not_written() -> None:
    memory = Shadow(2, Prefixes(), frozenset({("", 0)}))
    memory.compute("r0", (1, 2, 3, 4), None, 0, 4, table(0))
    memory.compute("r0", (1, 2, 3, 4), None, 0, 4, table(0, 1))
    assert list(memory.written_pages()) == [ONE]
    assert memory.whole(ONE) == memory.prefixes.of(None, 0, (1, 2, 3, 4))[3]


def test_each_group_has_its_own_row() -> None:
    memory = Shadow(1, Prefixes())
    memory.compute("r0", (1,), None, 0, 1, Pages("", ((1,), (2,))))
    assert memory.whole(ONE) != memory.whole(("", 2))
    assert memory.whole(("", 2)) == memory.prefixes.of(None, 1, (1,))[0]


def test_a_page_is_whole_when_it_holds_one_run_of_tokens() -> None:
    memory = Shadow(2, Prefixes())
    assert memory.whole(ONE) is None
    memory.compute("r0", (1, 2), None, 0, 1, table(1))
    assert memory.whole(ONE) is None  # half a page
    memory.compute("r0", (1, 2), None, 1, 2, table(1))
    assert memory.whole(ONE) == memory.prefixes.of(None, 0, (1, 2))[1]
    memory.compute("r1", (1, 2), None, 1, 2, table(1))
    assert memory.whole(ONE) == memory.prefixes.of(None, 0, (1, 2))[1]  # the same KV, whoever computed it
    memory.compute("r1", (5, 2), None, 1, 2, table(1))
    assert memory.whole(ONE) is None  # behind another first token
    memory.compute("r1", (1, 2), "tenant", 1, 2, table(1))
    assert memory.whole(ONE) is None


def test_a_run_of_tokens_begins_where_its_page_begins() -> None:
    """KV of positions 1 and 2 does not fill a page of positions 0 and 1, though it is one run."""
    memory = Shadow(2, Prefixes())
    memory.compute("r0", (1, 2, 3, 4), None, 2, 4, table(0, 1))
    assert memory.whole(ONE) == memory.prefixes.of(None, 0, (1, 2, 3, 4))[3]
    memory.compute("r0", (1, 2, 3, 4), None, 0, 2, table(0, 1))
    assert memory.whole(("", 0)) == memory.prefixes.of(None, 0, (1, 2))[1]


def test_a_transfer_takes_what_is_in_its_source_when_it_begins() -> None:
    memory = Shadow(2, Prefixes())
    source, target = table(0, pool="prefill"), table(1, 2, pool="decode")
    memory.compute("r0", (1, 2), None, 0, 2, source)
    data = memory.captured(source, 0, 2)
    memory.compute("r1", (3, 4), None, 0, 2, source)  # the source is used again
    memory.store(target, 0, 4, data)
    assert memory.whole(("decode", 1)) == memory.prefixes.of(None, 0, (1, 2))[1]
    assert memory.page(("decode", 2)) == (None, None)  # nothing was captured for it
    assert memory.captured(target, 1, 4) == (Written("r0", memory.prefixes.of(None, 0, (1, 2))[1]), None, None)


def test_what_was_never_written_is_carried_over_too() -> None:
    memory = Shadow(2, Prefixes())
    memory.compute("r0", (1, 2), None, 0, 2, table(1))
    memory.store(table(1), 0, 2, memory.captured(table(3), 0, 2))
    assert memory.page(ONE) == (None, None)
