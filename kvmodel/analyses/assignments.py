"""Sets of flag assignments, every one of them at once: a set is an integer whose bit k says whether assignment k is in it.

Assignment k gives flag i the value of bit i of k. With a dozen flags a set is a few hundred bytes, and the union of two sets,
or everything above a set, is one or a dozen operations on integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

__all__ = ["Assignments", "Worlds"]

Worlds = int  # a set of assignments


@dataclass(frozen=True)
class Assignments:
    """Every assignment of `flags`, and operations on sets of them."""

    flags: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many assignments there are."""
        return 1 << len(self.flags)

    @cached_property
    def all(self) -> Worlds:
        """The set of every assignment."""
        return (1 << self.count) - 1

    @cached_property
    def _on(self) -> Mapping[str, Worlds]:
        found = {}
        for position, flag in enumerate(self.flags):
            run = 1 << position  # the set has `run` zeros, then `run` ones, and so on
            pattern, length = ((1 << run) - 1) << run, 2 * run
            while length < self.count:
                pattern |= pattern << length
                length *= 2
            found[flag] = pattern
        return found

    def on(self, flag: str) -> Worlds:
        """The assignments with `flag` on."""
        return self._on[flag]

    def off(self, flag: str) -> Worlds:
        """The assignments with `flag` off."""
        return self.all & ~self._on[flag]

    def cube(self, values: Mapping[str, bool]) -> Worlds:
        """The assignments that give these flags these values."""
        found = self.all
        for flag, value in values.items():
            found &= self.on(flag) if value else self.off(flag)
        return found

    def values(self, number: int) -> dict[str, bool]:
        """The assignment with a number."""
        return {flag: bool(number >> position & 1) for position, flag in enumerate(self.flags)}

    def number(self, values: Mapping[str, bool]) -> int:
        """The number of an assignment."""
        return sum(1 << position for position, flag in enumerate(self.flags) if values[flag])

    def switched_on(self, number: int) -> tuple[str, ...]:
        """The flags that an assignment has on, in order."""
        return tuple(flag for flag, value in self.values(number).items() if value)

    @staticmethod
    def members(worlds: Worlds) -> Iterator[int]:
        """The numbers of the assignments in a set, in order."""
        while worlds:
            lowest = worlds & -worlds
            yield lowest.bit_length() - 1
            worlds ^= lowest

    def more(self, worlds: Worlds, flag: str) -> Worlds:
        """The assignments of a set that have `flag` off, with it on."""
        return (worlds & self.off(flag)) << (1 << self.flags.index(flag))

    def fewer(self, worlds: Worlds, flag: str) -> Worlds:
        """The assignments of a set that have `flag` on, with it off."""
        return (worlds & self.on(flag)) >> (1 << self.flags.index(flag))

    def above(self, worlds: Worlds) -> Worlds:
        """The set and everything with more flags on."""
        for flag in self.flags:
            worlds |= self.more(worlds, flag)
        return worlds

    def below(self, worlds: Worlds) -> Worlds:
        """The set and everything with fewer flags on."""
        for flag in self.flags:
            worlds |= self.fewer(worlds, flag)
        return worlds

    def minimal(self, worlds: Worlds) -> tuple[int, ...]:
        """The members of a set that have no other member with fewer flags on; those with the fewest flags come first."""
        above = self.above(worlds)
        strictly = 0
        for flag in self.flags:
            strictly |= self.more(above, flag)
        return tuple(sorted(self.members(worlds & ~strictly), key=lambda number: (number.bit_count(), number)))

    def maximal(self, worlds: Worlds) -> tuple[int, ...]:
        """The members of a set that have no other member with more flags on; those with the fewest flags come first."""
        below = self.below(worlds)
        strictly = 0
        for flag in self.flags:
            strictly |= self.fewer(below, flag)
        return tuple(sorted(self.members(worlds & ~strictly), key=lambda number: (number.bit_count(), number)))
