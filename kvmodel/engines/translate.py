"""From a counterexample of a spec to calls on an engine: what a machine would have been asked, had it made this run.

A spec's steps are finer than what an engine can be asked: an engine allocates, posts and indexes by itself when it is told
to schedule. So each step stands for the call that makes an engine come to it, or for none. The number of pages is kept; a
prompt that is longer than prefill's pool in the spec is as long as the engine's own limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from kvmodel.engines.adapter import Role
from kvmodel.errors import UsageError
from kvmodel.language.instance import Instance, State
from kvmodel.language.types import Value
from kvmodel.traces.observed import Call
from kvmodel.traces.trace import Choice, Trace

__all__ = ["ROUNDS", "calls_for"]

ROUNDS = 4  # engine steps that take a request from its submission to its end, where nothing holds it up

SERVED = 3  # requests that stand for one that was served before

FORWARD = ("schedule", "run")

# What an engine is asked for a step of `handoff`, after the request was submitted to both nodes.
HANDOFF: dict[str, tuple[str, ...]] = {
    "forward": FORWARD,
    "land": ("land",),
    "commit": FORWARD,
    "read": FORWARD,
    "finish": FORWARD,
    "abort": ("abort",),
    "give_up": ("expire",),
}
# The same for `cached` and `pages`, whose requests are submitted when they get their first page.
POOL: dict[str, tuple[str, ...]] = {
    "fill": (),
    "compute": ("run",),
    "begin_read": ("run",),
    "land": ("land",),
    "release": ("run",),
    "abort": ("abort",),
    "give_up": ("expire",),
}


def calls_for(trace: Trace, page_size: int, lengths: Sequence[int]) -> tuple[Call, ...]:
    """The calls that stand for a run of `handoff`, `cached` or `pages` (or of a variant).

    `page_size` in tokens, and `lengths`, are the adapter's: the prompt of a request that is oversize for prefill is as long as
    the second of `lengths`, the first length that prefill rejects. An observed trace has its calls already.

    Raises UsageError for a run of another spec.
    """
    if trace.observed is not None:
        return trace.observed.calls
    known = {action.name for action in trace.instance.system.actions}
    if {"prefill_door", "decode_door"} <= known:
        return tuple(_thinned(_handoff(trace, page_size, lengths)))
    if {"allocate", "post", "begin_read"} <= known:
        return tuple(_thinned(_pool(trace, page_size)))
    name = trace.instance.system.name
    raise UsageError(f"{name} says nothing that an engine can be asked: runs of handoff, cached and pages can be played")


def _thinned(calls: Iterator[Call]) -> Iterator[Call]:
    """Calls without one that repeats the one before; nothing comes of scheduling twice."""
    for call, _ in groupby(calls):
        yield call


def _handoff(trace: Trace, page_size: int, lengths: Sequence[int]) -> Iterator[Call]:
    """Requests are named in the order in which they are submitted; each has a token of its own, since KV of equal prompts could
    not be told apart."""
    instance, start = trace.instance, trace.states[0]
    limit = start.rigid[instance.rigid_layout.slots["prefill_limit", ()]]
    names: dict[Value, str] = {}
    count = 0

    def submitted(length: int) -> Call:
        nonlocal count
        count += 1
        return _submitted(f"r{count - 1}", (count,) * length, Role.HANDOFF)

    def length(request: Value) -> int:
        prompt = start.rigid[instance.rigid_layout.slots["prompt", (request,)]]
        assert isinstance(prompt, int)
        assert isinstance(limit, int)
        return lengths[1] if prompt > limit and len(lengths) > 1 else page_size

    for request in instance.elements(instance.system.domain("Request")):
        if start.values[instance.state_layout.slots["client", (request,)]] == "OK":  # it was served, and its data may still be there
            for _ in range(SERVED):  # one alone would leave pages that were never used
                yield (call := submitted(lengths[0] if lengths else page_size))
                for _ in range(ROUNDS):
                    yield from ({"verb": "schedule"}, {"verb": "run", "token": 0}, {"verb": "land", "request": call["request"]})
    for before, choice in zip(trace.states, trace.steps, strict=False):
        request = _request(instance, choice)
        if request is None and choice.action == "give_up":
            request = _writer(trace, before, choice.binding[0])
        if request is None:
            continue
        if request not in names:
            yield (call := submitted(length(request)))
            names[request] = str(call["request"])
        yield from _asked(HANDOFF.get(choice.action, ()), names[request])


def _pool(trace: Trace, page_size: int) -> Iterator[Call]:
    instance = trace.instance
    remote = {_request(instance, choice) for choice in trace.steps if choice.action in ("post", "land")}
    leased = {_request(instance, choice) for choice in trace.steps if choice.action == "give_up"}
    pages: dict[Value, int] = {}
    for choice in trace.steps:
        if choice.action in ("allocate", "hit", "hit_and_allocate"):
            request = _request(instance, choice)
            pages[request] = pages.get(request, 0) + 1
    submitted: set[Value] = set()
    for choice in trace.steps:
        request = _request(instance, choice)
        if request is None:
            continue
        if request not in submitted and choice.action in ("allocate", "hit", "hit_and_allocate"):
            submitted.add(request)
            role = Role.PREFILL if request in leased else Role.DECODE if request in remote else Role.LOCAL
            tokens = _prefix(trace, request) * (pages[request] * page_size)
            yield _submitted(_label(instance, request), tokens, role)
            yield {"verb": "schedule"}
        if request in submitted:
            yield from _asked(POOL.get(choice.action, ()), _label(instance, request))


def _prefix(trace: Trace, request: Value) -> tuple[int]:
    """A token of which the request's prompt consists: requests that begin with a common prefix have the same."""
    slots = trace.instance.rigid_layout.slots
    rigid = trace.states[0].rigid
    if ("begins_with", (request, 0)) in slots and rigid[slots["begins_with", (request, 0)]]:
        return (0,)
    assert isinstance(request, int)
    return (request + 1,)


def _asked(verbs: Sequence[str], request: str) -> Iterator[Call]:
    for verb in verbs:
        match verb:
            case "run":
                yield {"verb": "run", "token": 0}
            case "schedule":
                yield {"verb": "schedule"}
            case _:
                yield {"verb": verb, "request": request}


def _submitted(request: str, tokens: tuple[int, ...], role: Role) -> Call:
    return {"verb": "submit", "request": request, "tokens": tokens, "salt": None, "role": role.name, "new": 1}


def _request(instance: Instance, choice: Choice) -> Value:
    for parameter, value in zip(instance.system.action(choice.action).parameters, choice.binding, strict=True):
        if parameter.domain.name == "Request":
            return value
    return None


def _writer(trace: Trace, state: State, page: Value) -> Value:
    """The request for which a remote write to the page is in flight."""
    slots = trace.instance.state_layout.slots
    requests = trace.instance.elements(trace.instance.system.domain("Request"))
    return next((r for r in requests if ("writing", (r, page)) in slots and state.values[slots["writing", (r, page)]]), None)


def _label(instance: Instance, request: Value) -> str:
    return instance.label(instance.system.domain("Request"), request)
