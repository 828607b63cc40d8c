"""Symmetry: which elements of an instance can be exchanged, and what need not be looked at because of it.

Elements of one sort (and of one part of it) that no expression and no initial value names can be renamed at will: a
renaming turns a run into a run, and a violation for one binding into one for another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from kvmodel.language.expressions import Const, walk
from kvmodel.language.instance import Binding, Instance
from kvmodel.language.system import Anything
from kvmodel.language.types import Domain, Element, Maybe, Value

__all__ = ["Symmetry"]


class Symmetry:
    """Bindings up to renaming, and the elements that are then still free to be exchanged.

    `representatives` gives one binding of each kind and keeps its elements apart: a renaming that leaves them alone can
    still bring the others, `chains`, into any order.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._apart: set[tuple[str, Value]] = set()

    @cached_property
    def groups(self) -> dict[str, tuple[tuple[Value, ...], ...]]:
        """For each sort whose elements can be exchanged: the elements of each part (of the sort, where it has none)."""
        named = set(self._named_sorts())
        found: dict[str, tuple[tuple[Value, ...], ...]] = {}
        for name, size in self.instance.sizes:
            if name not in named:
                parts: dict[str | None, list[Value]] = {}
                for element in range(size):
                    parts.setdefault(self.instance.part_of.get((name, element)), []).append(element)
                found[name] = tuple(tuple(part) for part in parts.values())
        return found

    def representatives(self, domains: Sequence[Domain]) -> tuple[Binding, ...]:
        """Bindings of which every other one is a renaming; their elements are kept apart from now on."""
        found = tuple(self._extended((), domains))
        for binding in found:
            self._apart.update((domain.name, value) for domain, value in zip(domains, binding, strict=True))
        return found

    def chains(self) -> Iterator[tuple[str, tuple[Value, ...]]]:
        """For each sort and part: the elements that are not kept apart."""
        for name, parts in self.groups.items():
            for part in parts:
                yield name, tuple(value for value in part if (name, value) not in self._apart)

    def _extended(self, binding: Binding, domains: Sequence[Domain]) -> Iterator[Binding]:
        """Extend a binding of the first domains: with elements that it has, and the first of those that it has not."""
        if len(binding) == len(domains):
            yield binding
            return
        domain = domains[len(binding)]
        values = self.instance.elements(domain)
        if domain.name in self.groups:
            used = {value for earlier, value in zip(domains, binding, strict=False) if earlier == domain}
            fresh = {next((value for value in part if value not in used), None) for part in self.groups[domain.name]}
            values = tuple(value for value in values if value in used or value in fresh)
        for value in values:
            yield from self._extended((*binding, value), domains)

    def _named_sorts(self) -> Iterator[str]:
        """Sorts of which an expression or an initial value names an element (only the builder API can)."""
        for variable in self.instance.system.variables:
            if isinstance(variable.type, Element | Maybe) and not isinstance(variable.initial, Anything) and variable.initial is not None:
                yield variable.type.domain.name
        for expr in self.instance.system.expressions():
            for node in walk(expr):
                if isinstance(node, Const) and isinstance(node.type, Element | Maybe) and node.value is not None:
                    yield node.type.domain.name
