"""Shadow KV memory: what would be in each place of each page if the engine's work were done.

An adapter runs an engine without a model, so nobody computes KV. The machine keeps account instead: for every position that
is written, whose request it was written for, and of which token prefix under which salt it is. Two positions hold the same
KV exactly when these prefixes (and the cache group) are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from kvmodel.engines.adapter import Pages, Tokens

__all__ = ["Place", "Prefix", "Prefixes", "Shadow", "Written"]

Prefix: TypeAlias = int
Place: TypeAlias = tuple[str, int]  # a pool and the number of a page in it


@dataclass(frozen=True, slots=True)
class Written:
    """What is at one position of a page: KV of the last token of `prefix`, written for `request`."""

    request: str
    prefix: Prefix


class Prefixes:
    """Numbers for token prefixes: the same number for the same tokens of the same cache group under the same salt.

    >>> prefixes = Prefixes()
    >>> prefixes.of(None, 0, (7, 8)) == prefixes.of(None, 0, (7, 8, 9))[:2]
    True
    >>> prefixes.of("tenant", 0, (7, 8)) == prefixes.of(None, 0, (7, 8))
    False
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], Prefix] = {}
        self._before: dict[Prefix, Prefix] = {}
        self._known: dict[tuple[str | None, int, Tokens], tuple[Prefix, ...]] = {}

    def of(self, salt: str | None, group: int, tokens: Tokens) -> tuple[Prefix, ...]:
        """The prefixes of `tokens` that end at each position."""
        key = (salt, group, tokens)
        found = self._known.get(key)
        if found is None:
            numbers, previous = [], self._number("root", salt, group)
            for token in tokens:
                number = self._number(previous, token)
                self._before[number] = previous
                numbers.append(number)
                previous = number
            found = self._known[key] = tuple(numbers)
        return found

    def path(self, prefix: Prefix, length: int) -> tuple[Prefix, ...]:
        """The last `length` prefixes up to `prefix`, each one token longer than the one before."""
        found = [prefix]
        while len(found) < length and found[-1] in self._before:
            found.append(self._before[found[-1]])
        return tuple(reversed(found))

    def _number(self, *step: object) -> Prefix:
        return self._numbers.setdefault(step, len(self._numbers))


class Shadow:
    """The memory of all pools. `page_size` in tokens; pages of `null` stand for none and are neither written nor read."""

    def __init__(self, page_size: int, prefixes: Prefixes, null: frozenset[Place] = frozenset()) -> None:
        self.page_size = page_size
        self.prefixes = prefixes
        self.null = null
        self._pages: dict[Place, list[Written | None]] = {}

    def page(self, place: Place) -> tuple[Written | None, ...]:
        """What is at each position of a page."""
        return tuple(self._pages.get(place, (None,) * self.page_size))

    def written_pages(self) -> Iterator[Place]:
        """The pages that were ever written."""
        return iter(self._pages)

    def compute(self, request: str, tokens: Tokens, salt: str | None, first: int, end: int, table: Pages) -> None:
        """Write the KV of positions `first` to `end` - 1 into the pages of `table`. Positions without a page are not written."""
        for place, offset, group, position in self.positions(table, first, end):
            self._at(place)[offset] = Written(request, self.prefixes.of(salt, group, tokens)[position])

    def captured(self, table: Pages, first: int, end: int) -> tuple[Written | None, ...]:
        """What is at positions `first` to `end` - 1 of a table now."""
        return tuple(self.page(place)[offset] for place, offset, _, _ in self.positions(table, first, end))

    def store(self, table: Pages, first: int, end: int, data: tuple[Written | None, ...]) -> None:
        """Write what was captured elsewhere into positions `first` to `end` - 1 of a table, as far as either goes."""
        for (place, offset, _, _), written in zip(self.positions(table, first, end), data, strict=False):
            self._at(place)[offset] = written

    def whole(self, place: Place) -> Prefix | None:
        """The prefix whose KV fills the page, or None where the page does not hold the KV of one run of tokens."""
        slots = self._pages.get(place)
        if slots is None or any(slot is None for slot in slots):
            return None
        last = slots[-1]
        assert last is not None
        expected = self.prefixes.path(last.prefix, self.page_size)
        return last.prefix if expected == tuple(slot.prefix for slot in slots if slot is not None) else None

    def positions(self, table: Pages, first: int, end: int) -> Iterator[tuple[Place, int, int, int]]:
        """For positions `first` to `end` - 1 of each group: page, place in the page, group, position."""
        for group, row in enumerate(table.rows):
            for position in range(first, min(end, len(row) * self.page_size)):
                place = (table.pool, row[position // self.page_size])
                if place not in self.null:
                    yield place, position % self.page_size, group, position

    def _at(self, place: Place) -> list[Written | None]:
        return self._pages.setdefault(place, [None] * self.page_size)
