"""Two tests that a team can run against a serving endpoint. They see response records, and nothing of the engine.

>>> honest, leaked = Response(0, 200, "c0", "c0"), Response(1, 200, "c1", "c1 c0")
>>> sorted(status_test((honest, leaked))), sorted(canary_test((honest, leaked)))
([], [1])
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Response", "canary_test", "status_test"]


@dataclass(frozen=True, slots=True)
class Response:
    """What a client has at the end: the HTTP status, the canary that it put into its own prompt, and the text of the answer
    (the canaries that the answer repeats, separated by blanks)."""

    request: int
    status: int
    canary: str
    text: str


def status_test(responses: Iterable[Response]) -> frozenset[int]:
    """Requests that were not answered with 200: what a test flags that looks at the status only."""
    return frozenset(response.request for response in responses if response.status != 200)


def canary_test(responses: Iterable[Response]) -> frozenset[int]:
    """Requests whose answer repeats a canary that is not their own."""
    return frozenset(response.request for response in responses if set(response.text.split()) - {response.canary})
