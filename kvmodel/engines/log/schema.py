"""What the lines of an event log are: a header, events, and an end. ``docs/event-log.md`` explains every field.

The JSON Schema in ``docs/event-log.schema.json`` is generated from these types by `json_schema`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

__all__ = ["End", "Event", "Header", "LOG_VERSION", "Rigid", "event_type", "json_schema"]

LOG_VERSION = 1
LARGEST = 2**53 - 1  # what every JSON reader agrees on

Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Index: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=2_000)]
Rigid: TypeAlias = bool | Index | Name


class Header(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """The first line: where the log comes from, how large the pools are, and everything that the log does not show."""

    kvmodel_log: Annotated[Literal[1], msgspec.Meta(description="The version of this format.")]
    pools: Annotated[dict[Name, Index], msgspec.Meta(description="Pages of each pool. A spec without pools takes one entry, of any name.")]
    engine: Annotated[Text, msgspec.Meta(description="The engine: sglang, vllm, or another name.")] = ""
    version: Annotated[Text, msgspec.Meta(description="The engine's release.")] = ""
    spec: Annotated[Text, msgspec.Meta(description="The spec to check the log against, unless --spec names another.")] = ""
    flags: Annotated[dict[Name, bool], msgspec.Meta(description="Flags of the spec, as this deployment has them.")] = {}
    values: Annotated[
        dict[Name, Rigid | list[Index]],
        msgspec.Meta(description="What never changes and belongs to no request: limits, context; a list of pages for a set of them."),
    ] = {}
    silent: Annotated[
        dict[Name, Text], msgspec.Meta(description="Actions that happen without an event, each with the reason. Others are never assumed.")
    ] = {}
    unknown: Annotated[
        dict[Name, Text], msgspec.Meta(description="Variables of the spec that the log does not tell, each with the reason.")
    ] = {}
    starts: Annotated[
        Literal["blank", "unknown"],
        msgspec.Meta(description="What is in the pages at the first event: nothing, or not known. Every page is free then."),
    ] = "blank"
    loss: Annotated[
        Text, msgspec.Meta(description="Why lines may be missing. The first gap ends the check, undecided; without it a gap is an error.")
    ] = ""


class Event(msgspec.Struct, omit_defaults=True, gc=False):
    """A step that the engine took. Other parameters of the action are fields of their own, by name: an integer for a page
    (``first``, ``source``, ``target``; or a list, one step for each), a string for anything else."""

    seq: Annotated[int, msgspec.Meta(description="1, 2, 3, ...: a gap, a repetition or another order is an error.")]
    event: Annotated[str, msgspec.Meta(description="The action of the spec.")]
    request: Annotated[str | None, msgspec.Meta(description="The request's id.")] = None
    pages: Annotated[list[int] | None, msgspec.Meta(description="Pages by number within their pool: one step for each, in order.")] = None
    node: Annotated[str, msgspec.Meta(description="Where it happened. Must be the action's node, where the spec gives it one.")] = ""
    pool: Annotated[str, msgspec.Meta(description="The pool of `pages`, where neither the action nor `node` tells.")] = ""
    values: Annotated[
        dict[str, Rigid | list[Name]] | None,
        msgspec.Meta(description="What never changes of the request: in its first event (prompt); lists may be added to (begins_with)."),
    ] = None
    ts: Annotated[float, msgspec.Meta(description="Seconds, from any beginning. For people; the order is that of `seq`.")] = 0.0


class End(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """The last line of a log that was closed. A log without one was cut, or is still being written."""

    kvmodel_log_end: Annotated[int, msgspec.Meta(ge=0, description="How many events were written.")]
    lost: Annotated[int, msgspec.Meta(ge=0, description="Events that could not be written.")] = 0
    reason: Annotated[Text, msgspec.Meta(description="Why the recorder stopped before the engine did.")] = ""


def event_type(pages: Sequence[str], names: Sequence[str]) -> type[Event]:
    """`Event` with a field for each further parameter (`pages`: numbers; `names`: strings), and no others allowed."""
    fields: list[tuple[str, Any, Any]] = [(name, int | list[int] | None, None) for name in pages]
    fields += [(name, str | None, None) for name in names]
    made: Any = msgspec.defstruct("Event", fields, bases=(Event,), forbid_unknown_fields=True, gc=False)
    kind: type[Event] = made
    return kind


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a line."""
    lines, components = msgspec.json.schema_components((Header, Event, End), ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of a kvmodel event log: a header, then events, then an end",
        "anyOf": list(lines),
        "$defs": components,
    }
