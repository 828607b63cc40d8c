"""Steps that happen without an event: is there a run with such steps in between that explains a log?

What the header declares silent is put in where an event needs it, as far as it concerns the requests and pages of that event. A run
that is found shows that every event can be explained; that none is found shows nothing. Properties are not judged on it,
because the steps may have happened at other times: that is left to the reading in which what they write is not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import msgspec

from kvmodel.engines.log.events import PAGE, ActionEvents
from kvmodel.engines.log.monitor import Monitor, Refused, Stop
from kvmodel.engines.log.plan import Plan, plan_for
from kvmodel.engines.log.reader import LogError
from kvmodel.errors import UsageError
from kvmodel.language.types import Bool

__all__ = ["Explainer"]

MOST_TRIED = 2_000  # steps that are tried for one event
MOST_PAGES = 64


class Explainer:
    """Looks for a run of a plan's spec that explains a log, with the silent actions of its header put in. `failed` is the line of
    the first event for which none was found, or 0; `put_in` counts the steps that were put in."""

    def __init__(self, plan: Plan) -> None:
        self.silent = [plan.events.actions[name] for name in plan.header.silent]
        self.failed = 0
        self.put_in = 0
        self._monitor: Monitor | None = None
        try:
            seen = plan_for(plan.original, msgspec.json.encode(msgspec.structs.replace(plan.header, silent={})))
        except UsageError:
            self.failed = 1
            return
        self._monitor = Monitor(seen)
        self._monitor.explain = self._explain

    def feed(self, events: list[Any], line: int) -> None:
        """Take events, as `Monitor.feed` does; nothing is raised."""
        monitor = self._monitor
        if self.failed or monitor is None:
            return
        try:
            # Both plans have types of their own for the same fields.
            kinds = {name: entry.type for name, entry in monitor.events.actions.items()}
            monitor.feed([msgspec.convert(event, kinds[event.__class__.__name__], from_attributes=True) for event in events], line)
        except (LogError, Stop, msgspec.ValidationError):
            self.failed = monitor.line + 1
        if monitor.unexplained is not None:
            self.failed = monitor.unexplained.line

    @property
    def explained(self) -> bool:
        """Whether everything that was fed is explained for sure."""
        return not self.failed and self._monitor is not None and not self._monitor.unsure_guards()

    def _explain(self, event: Any, refused: Refused) -> bool:
        """Take silent steps around an event until it is allowed. The event itself is taken too, then."""
        monitor = self._monitor
        assert monitor is not None
        if refused.moved:
            return False
        handle = monitor.handler(event.__class__)
        tried, taken = 0, True
        while taken:
            taken = False
            for entry in self.silent:
                for step in self._steps(monitor, monitor.events.actions[entry.action.name], event):
                    tried += 1
                    if tried > MOST_TRIED:
                        return False
                    try:
                        monitor.handler(step.__class__)(step)
                    except Refused:
                        continue
                    taken = True
                    self.put_in += 1
                    try:
                        handle(event)
                    except Refused as again:
                        if again.moved:
                            return False
                        continue
                    return True
        return False

    def _steps(self, monitor: Monitor, entry: ActionEvents, event: Any) -> Iterator[Any]:
        """Events of a silent action that concern what `event` concerns."""
        takes = monitor.events.actions[event.__class__.__name__].takes
        named = {taken.field: getattr(event, taken.field) for taken in takes if taken.is_name}
        pages = self._pages(monitor, event, named)
        choices: list[list[dict[str, Any]]] = []
        for taken in entry.takes:
            if taken.is_name:
                choices.append([{taken.field: named[taken.field]}] if taken.field in named else [])
            elif taken.is_page:
                choices.append([found for page in pages if (found := _place(monitor, entry, taken.field, taken.pool, page))])
            else:
                choices.append([])
        for parts in product(*choices):
            yield entry.type(seq=0, **{name: value for part in parts for name, value in part.items()})

    def _pages(self, monitor: Monitor, event: Any, named: dict[str, str]) -> list[int]:
        """Pages that have to do with the requests of an event, in no more than a few."""
        found: dict[int, None] = {}
        for taken in monitor.events.actions[event.__class__.__name__].takes:
            number = monitor.names[taken.parameter.domain.name].number.get(named[taken.field]) if taken.is_name else None
            if number is None:
                continue
            for variable in monitor.plan.system.state_variables:
                if isinstance(variable.type, Bool) and [key.name for key in variable.keys] == [taken.parameter.domain.name, PAGE]:
                    found.update(dict.fromkeys(page for page in monitor.state.row(variable.name, number) if isinstance(page, int)))
        return sorted(found)[:MOST_PAGES]


def _place(monitor: Monitor, entry: ActionEvents, field: str, pool: tuple[int, int] | None, page: int) -> dict[str, Any]:
    """The fields that name a page for a parameter; none where it cannot be that page."""
    name, (first, size) = next((name, place) for name, place in monitor.events.pools.items() if place[0] <= page < sum(place))
    if pool is not None:
        return {field: page - first} if pool == (first, size) else {}
    return {field: page - first, "pool": name} if "pool" in entry.type.__struct_fields__ else {field: page - first}
