"""A fault as a small subclass: prefill reports success without waiting for its writes."""

from kvmodel.language import action, override
from kvmodel.specs.handoff import Handoff
from kvmodel.specs.pages import Request


class NoWaiting(Handoff):
    """Prefill frees its pages and reports success as soon as the writes are posted."""

    @override
    @action(drop=("all landed",))
    def succeed(s, r: Request) -> None:
        """Success is reported without waiting for the writes."""
        super().succeed(r)
