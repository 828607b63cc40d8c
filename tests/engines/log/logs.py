"""Logs that tests write by hand: the incident, and a write that lands in somebody else's page."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO

from kvmodel.engines.log.schema import Header
from kvmodel.engines.log.writer import LogWriter

__all__ = ["HEADER", "incident", "late_write", "served", "written"]

HEADER = Header(
    1,
    {"prefill": 64, "decode": 128},
    engine="sglang",
    version="0.5.16",
    values={"context": 2000, "prefill_limit": 1000, "decode_limit": 2000},
)


def written(write: Callable[[LogWriter], None], header: Header = HEADER) -> bytes:
    """A log with the events that `write` writes."""
    file = BytesIO()
    with LogWriter(file, header, clock=lambda: 0.0) as log:
        write(log)
    return file.getvalue()


def served(log: LogWriter, request: str, sources: list[int], targets: list[int], prompt: int = 100) -> None:
    """A request from its arrival to its answer."""
    log.event("decode_door", request=request, values={"prompt": prompt})
    log.event("prefill_door", request=request)
    log.event("allocate", node="prefill", request=request, pages=sources)
    log.event("allocate", pool="decode", request=request, pages=targets)
    log.event("forward", request=request, first=sources[0])
    log.event("announce", request=request)
    log.event("send", request=request, first=targets[0])
    log.event("land", request=request, source=sources, target=targets)
    for action in ("succeed", "commit", "read", "finish"):
        log.event(action, request=request)


def incident(log: LogWriter) -> None:
    """r1 is rejected by prefill, of whose pages one is sent; it reads what r0 left in the others."""
    served(log, "r0", [1, 2], [3, 4])
    log.event("decode_door", request="r1", values={"prompt": 1500})
    log.event("reject", request="r1")
    log.event("prefill_door", request="r1")
    log.event("allocate", node="prefill", request="r1", pages=[5])
    log.event("allocate", node="decode", request="r1", pages=[3, 4])
    log.event("forward", request="r1", first=5)
    log.event("announce", request="r1")
    log.event("send", request="r1", first=3)
    log.event("land", request="r1", source=5, target=3)
    for action in ("succeed", "commit", "read", "finish"):
        log.event(action, request="r1")


def late_write(log: LogWriter) -> None:
    """r1 aborts while a write for it is in flight, and its page goes to r2."""
    log.event("decode_door", request="r1", values={"prompt": 10})
    log.event("prefill_door", request="r1")
    log.event("allocate", node="prefill", request="r1", pages=[1])
    log.event("allocate", node="decode", request="r1", pages=[3])
    log.event("forward", request="r1", first=1)
    log.event("announce", request="r1")
    log.event("send", request="r1", first=3)
    log.event("abort", request="r1")
    log.event("decode_door", request="r2", values={"prompt": 10})
    log.event("allocate", node="decode", request="r2", pages=[3])
