"""The page vocabulary of a spec: which of its variables say who holds a page, and whose data is in it."""

from __future__ import annotations

from dataclasses import dataclass

from kvmodel.language.system import TransitionSystem, Variable
from kvmodel.language.types import Bool, Maybe, Sort

__all__ = ["Ownership", "ownership"]


@dataclass(frozen=True, slots=True)
class Ownership:
    """The variables that say who holds a page (``holds: Relation[X, Page]``) and whose data is in it
    (``content: Function[Page, X | None]``), whatever the two sorts are called."""

    holds: Variable
    content: Variable

    @property
    def holder(self) -> Sort:
        sort = self.holds.keys[0]
        assert isinstance(sort, Sort)
        return sort

    @property
    def page(self) -> Sort:
        sort = self.holds.keys[1]
        assert isinstance(sort, Sort)
        return sort


def ownership(system: TransitionSystem) -> Ownership | None:
    """The page vocabulary of a system, or None when it has no `holds` and `content` of the shape that `Ownership` says."""
    holds, content = system.by_name.get("holds"), system.by_name.get("content")
    if holds is None or content is None or len(holds.keys) != 2 or not isinstance(holds.type, Bool):
        return None
    holder, page = holds.keys
    if not isinstance(holder, Sort) or not isinstance(page, Sort):
        return None
    return Ownership(holds, content) if content.keys == (page,) and content.type == Maybe(holder) else None
