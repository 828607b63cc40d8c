"""What a monitor can forget: the elements of a sort that nothing refers to any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kvmodel.engines.log.names import Names
from kvmodel.language.types import Element, Maybe
from kvmodel.readings.sparse import SparseState

__all__ = ["forgettable"]


def forgettable(state: SparseState, names: Names, ended: Sequence[Callable[..., Any]]) -> list[int]:
    """The elements to which nothing refers, and whose own state is what a new one's is or that have ended."""
    referred: set[Any] = set()
    own: set[Any] = set()
    for store in state.layout.stores.values():
        variable, cell = store.variable, state.cells[store.slot]
        keys = [position for position, key in enumerate(variable.keys) if key.name == names.sort]
        if isinstance(variable.type, Maybe | Element) and variable.type.domain.name == names.sort:
            referred.update(cell.values() if store.arity else cell)
        if store.arity == 1 and keys and not variable.rigid:
            own.update(cell)
        elif store.rows:
            # What is told once of an element does not keep it.
            if 0 in keys and not variable.rigid:
                referred.update(cell)
            if 1 in keys:
                referred.update(*cell.values())
        elif store.arity > 1:
            places = [position for position in keys if position or not variable.rigid]
            referred.update(index[position] for index, _ in state.stored(variable.name) for position in places)
    alone = [element for element in names.elements() if element not in referred]
    gone = {element for over in ended for element in alone if over(state.cells, element)}
    return [element for element in alone if element not in own or element in gone]
