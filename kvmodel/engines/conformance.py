"""Whether what an allocator did in one call is a sequence of steps that the spec allows.

Properties say what a state must be like; this says how one may get there. From the difference of two states it is plain which
steps of `cached` they would have been: a page that a request newly holds was shared or allocated, a key that is new was
indexed, and so on. These steps are taken by the spec, in the order in which an allocator takes them, and what comes out must
be what the engine says of itself. A call that was rejected must have made no step at all.

It needs a complete mapping: of one pool, one cache group, with counts and index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from kvmodel.engines.mapping import ENGINE, SOURCES
from kvmodel.errors import InternalError
from kvmodel.language.instance import Binding
from kvmodel.language.system import Variable
from kvmodel.language.types import Bool, Counter, Maybe, Value
from kvmodel.readings.compiled import CompiledSystem

__all__ = ["ALLOWED", "Values", "blank", "not_allowed"]

ALLOWED = "allowed_step"
"""The property that every call is a sequence of steps that the spec allows, beside those of the spec."""

Values: TypeAlias = Mapping[str, Mapping[Binding, Value]]
"""What is mapped, by variable and index; False, zero and None may be left out."""

COMPARED = tuple(name for name, source in SOURCES.items() if source == ENGINE and name != "null")


class Step(NamedTuple):
    """A step of the spec."""

    action: str
    binding: Binding


def not_allowed(spec: CompiledSystem, verb: str, before: Values, after: Values) -> str:
    """Why the spec allows no steps from one state to the other by a call of `verb` ('' for a call that was rejected, which may
    change nothing); '' where it does.

    A request that appears, or comes back, has arrived before the call: in the spec, all requests are there from the start. A page is
    written as a whole there, so what a call writes into a page that has other data already is no step: that data is forgotten first.
    """
    known = {index: bool(value) or bool(before["known"].get(index)) for index, value in after["known"].items()}
    data = {index: value for index, value in before["data"].items() if after["data"].get(index) == value}
    begins = {**before["begins_with"], **after["begins_with"]}
    state = spec.at({**before, "data": data, "begins_with": begins, "known": {**before["known"], **known}})
    for action, binding in _steps(verb, before, after) if verb else ():
        reason = spec.blocked_by(state, action, binding)
        if reason:
            return f"no allowed step explains it: {_shown(spec, action, binding)} is not possible, {reason}"
        spec.step(state, action, binding)
    for name in COMPARED:
        seen, empty = after[name], blank(spec.system.by_name[name])
        for index in {*seen, *(index for index, _ in state.stored(name))}:
            expected, value = state.get(name, index), seen.get(index, empty)
            if expected != value and name in after:
                return f"no allowed step explains it: {_place(spec, name, index)} is {value}, and by the spec's steps it is {expected}"
    return ""


def blank(variable: Variable) -> Value:
    """The value that facts need not mention: False, zero or None."""
    match variable.type:
        case Bool():
            return False
        case Counter():
            return 0
        case Maybe():
            return None
        case _:
            raise InternalError(f"'{variable.name}' is not a variable that a snapshot can be mapped to")


def _new(name: str, before: Values, after: Values) -> Iterator[Binding]:
    return (index for index, value in after[name].items() if value and not before[name].get(index))


def _gone(name: str, before: Values, after: Values) -> Iterator[Binding]:
    return (index for index, value in before[name].items() if value and not after[name].get(index))


def _steps(verb: str, before: Values, after: Values) -> Iterator[Step]:
    """The steps that a difference stands for: what ends, what is dropped, what is given, what is written, what is read."""
    leaving = {index[0] for index in _gone("known", before, after)}
    held_back = {index[0] for index in _new("detached", before, after)}
    for request in sorted(held_back & leaving, key=str):
        yield Step("abort", (request,))
    for request, page in sorted(_gone("reading", before, after), key=str):
        yield Step("end_read", (request, page))
    for request in sorted(leaving - held_back, key=str):
        yield Step("release", (request,))
    for index in sorted(_gone("detached", before, after), key=str):
        yield Step("drain", index)
    given = sorted(_new("holds", before, after), key=str)
    keys = {index[0]: value for index, value in before["key"].items() if value is not None}
    begins = {index for index, value in after["begins_with"].items() if value}
    shared = [(request, page) for request, page in given if page in keys and (request, keys[page]) in begins and _kept(page, before, after)]
    allocated = [index for index in given if index not in shared]
    dropped = [page for page, key in keys.items() if after["key"].get((page,)) != key and page not in {page for _, page in allocated}]
    if verb == "reset" and dropped:
        yield Step("reset", ())
    elif verb != "reset":
        for page in sorted(dropped, key=str):
            yield Step("evict", (page,))
    for request, page in shared:
        yield Step("hit", (request, page, keys[page]))
    for index in allocated:
        yield Step("allocate", index)
    for index in sorted(_new("writing", before, after), key=str):
        yield Step("post", index)
    landed = sorted(_gone("writing", before, after), key=str)
    for index in landed:
        yield Step("land", index)
    for index in sorted(_new("written", before, after), key=str):
        if index not in landed and index not in shared:
            yield Step("fill", index)
            yield Step("compute", index)
    for (page,), key in sorted(after["key"].items(), key=str):
        if (key is not None and before["key"].get((page,)) != key) or (page in {page for _, page in allocated} and key is not None):
            holders = [request for request, held in after["holds"] if held == page and (request, key) in begins]
            if holders:
                yield Step("index", (min(holders, key=str), page, key))
    for index in sorted(_new("reading", before, after), key=str):
        yield Step("begin_read", index)


def _kept(page: Value, before: Values, after: Values) -> bool:
    """Whether the index says the same of a page as before."""
    return before["key"].get((page,)) == after["key"].get((page,))


def _shown(spec: CompiledSystem, action: str, binding: Binding) -> str:
    parameters = spec.system.action(action).parameters
    return f"{action}({', '.join(spec.instance.label(p.domain, value) for p, value in zip(parameters, binding, strict=True))})"


def _place(spec: CompiledSystem, name: str, index: Binding) -> str:
    keys = spec.system.by_name[name].keys
    return f"{name}[{', '.join(spec.instance.label(key, value) for key, value in zip(keys, index, strict=True))}]"
