"""Names of a log as elements of a spec: numbers that are given out when a name first appears and taken back when nothing
refers to it any more, so that what is kept is bounded by what is going on."""

from __future__ import annotations

__all__ = ["Names"]


class Names:
    """The elements of one sort that have a name in the log. `number` maps those that may be named again to their elements;
    `name` has the name of each element, current or not, by number ('' for none)."""

    def __init__(self, sort: str, capacity: int) -> None:
        self.sort = sort
        self.capacity = capacity
        self.number: dict[str, int] = {}
        self.name: list[str] = []
        self.line: list[int] = []
        """The line in which each element first appeared."""
        self.given = 0
        self._free: list[int] = []

    @property
    def held(self) -> int:
        """How many elements are given out."""
        return len(self.name) - len(self._free)

    @property
    def full(self) -> bool:
        return not self._free and len(self.name) == self.capacity

    def give(self, name: str, line: int) -> int:
        """An element for a name that has none. There must be room."""
        if self._free:
            element = self._free.pop()
            self.name[element], self.line[element] = name, line
        else:
            element = len(self.name)
            self.name.append(name)
            self.line.append(line)
        self.number[name] = element
        self.given += 1
        return element

    def detach(self, name: str) -> None:
        """The name means another element from now on; its old one stays until it is `taken`."""
        del self.number[name]

    def take(self, element: int) -> None:
        """Take an element back."""
        name = self.name[element]
        if self.number.get(name) == element:
            del self.number[name]
        self.name[element] = ""
        self._free.append(element)

    def elements(self) -> list[int]:
        """The elements that are given out."""
        free = set(self._free)
        return [element for element in range(len(self.name)) if element not in free]
