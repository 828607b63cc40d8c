"""An event log from SGLang's prefill/decode path, in the words of the spec `handoff` (see ``docs/event-log.md``).

The recorder hooks the methods in `HOOKS`, through SGLang's plugin framework where the release has one. It sees what schedulers see, so:

- A remote write is taken to have landed when prefill's success, or the acknowledgement that it has drained, is seen: never too early.
- Pages that prefill gets are noted when its forward pass is over; pages that a request gets while it runs on decode are not noted.
- The read of a decode step is noted with the commit that leads to it.
- When a client goes away while its pages are being sent, prefill's pages are noted as given back when that has drained. SGLang gives
  them back at once (seen in 0.5.16 and 0.5.23): where another request then gets one while it is still being read from, a check says so.

A hook whose target a release does not have makes the actions that it tells of silent in the log's header: a check is then undecided
where they matter, and never violated for that. A prefix cache that is on, or truncation, is not followed: the log then ends at once, and
says why. A server is one node: its log has that node's steps, and declares those of the other one silent.
"""

from __future__ import annotations

import atexit
import multiprocessing.util
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from pkgutil import resolve_name
from typing import Any, BinaryIO

from kvmodel.engines.log.schema import Header
from kvmodel.engines.log.writer import LogWriter
from kvmodel.engines.sglang import drift

__all__ = ["HOOKS", "Hook", "Recorder", "VARIABLE", "register"]

VARIABLE = "KVMODEL_LOG"
"""The environment variable with the log's file; ``{node}`` and ``{pid}`` in it are filled in."""

FLUSH = 1.0  # seconds that a server's events are held at most, while there are any
UNLIMITED = 1 << 62
TOGETHER = ("send", "land", "succeed")  # what is known of these takes both nodes
ELSEWHERE = {
    "prefill": ("reject", "truncate", "prefill_door", "refuse", "forward", "retire", "stop", *TOGETHER),
    "decode": (
        *("decode_door", "refuse_at_decode", "announce", "commit", "read", "finish", "fail", "hear_reject", "abort", "drain", "give_up"),
        *TOGETHER,
    ),
}
PROMPT = "_kvmodel_prompt"  # of a rejected request: how long its prompt was


@dataclass(frozen=True, slots=True)
class Hook:
    """A function of SGLang's (``module:name`` below ``sglang.srt``), the method here that is told of its calls, and what it tells of.

    `after` the call, with its result first, or before. A release may lack what is not `required`.
    """

    target: str
    method: str
    actions: tuple[str, ...]
    after: bool = True
    required: bool = True


PREFILL, DECODE = "disaggregation.prefill", "disaggregation.decode"
HOOKS = (
    Hook("managers.schedule_batch:Req.set_finish_with_abort", "rejected", ("reject",), after=False),
    Hook(f"{PREFILL}:PrefillBootstrapQueue.add", "at_prefill_door", ("reject", "prefill_door", "refuse")),
    Hook(f"{DECODE}:DecodePreallocQueue.add", "at_decode_door", ("decode_door", "refuse_at_decode")),
    Hook(f"{DECODE}:DecodePreallocQueue._pre_alloc", "reserved", ("allocate", "announce")),
    Hook(
        f"{PREFILL}:SchedulerDisaggregationPrefillMixin.process_batch_result_disagg_prefill",
        "computed",
        ("allocate", "forward"),
        after=False,
    ),
    Hook(f"{PREFILL}:SchedulerDisaggregationPrefillMixin.send_kv_chunk", "sent", ("send",)),
    Hook("mem_cache.memory_pool:ReqToTokenPool.free", "ended_at_prefill", ("land", "succeed", "retire", "stop"), after=False),
    Hook(f"{DECODE}:DecodeTransferQueue._commit_transfer_to_req", "committed", ("commit", "read")),
    Hook(f"{DECODE}:DecodeTransferQueue._defer_release", "deferred", ("abort",), required=False),  # from 0.5.19
    Hook(f"{DECODE}:DecodeReqToTokenPool.free", "ended_at_decode", ("finish", "abort", "hear_reject", "drain", "give_up"), after=False),
    Hook(f"{DECODE}:DecodePreallocQueue.pop_preallocated", "failed_before", ("abort", "hear_reject")),
    Hook(f"{PREFILL}:maybe_release_metadata_buffer", "dropped", ("stop",), after=False, required=False),  # from 0.5.16
)


@dataclass
class Room:
    """What was seen of one request. `prefill` and `decode` are the words of the spec's enumerations."""

    name: str
    prompt: int
    told: bool = False
    stub: bool = False
    prefill: str = "NEW"
    decode: str = "NEW"
    source: list[int] = field(default_factory=list)
    target: list[int] = field(default_factory=list)
    in_flight: int = 0  # pages, from the first, that writes are under way to
    gone: bool = False
    stops: bool = False  # prefill has dropped it, which is noted once its client is known to be gone
    at_prefill: Any = None
    at_decode: Any = None
    held: Any = None  # the decode request whose release is deferred
    quarantined: list[int] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Neither node works on it."""
        return self.decode == "CLOSED" and self.prefill in ("SENT", "REFUSED", "CLOSED")


class Recorder:
    """Writes what the hooks tell to a log. `header` is for the nodes that are in this process; `open_log` gives the file.

    Nothing that goes wrong in here reaches SGLang: the log ends, and its last line says why.
    """

    def __init__(self, header: Header, file: BinaryIO, page_size: int) -> None:
        self.rooms: dict[int, Room] = {}
        self.page_size = page_size
        self.broken = ""
        self.prefill_limit, self.decode_limit = (
            limit if isinstance(limit := header.values.get(name), int) else UNLIMITED for name in ("prefill_limit", "decode_limit")
        )
        self.log = LogWriter(file, header)

    def close(self) -> None:
        """End the log."""
        self.log.close()

    def stop(self, reason: str) -> None:
        """Note no more, and let the log's last line say why."""
        self.broken = reason
        self.log.flush()
        self.log.stopped = self.log.stopped or reason

    # --- what the hooks tell: requests at the doors

    def rejected(self, request: Any, *arguments: Any, **named: Any) -> None:
        setattr(request, PROMPT, len(request.origin_input_ids))

    def at_prefill_door(self, result: Any, queue: Any, request: Any, *arguments: Any, **named: Any) -> None:
        let_in = any(each is request for each in queue.queue)
        room = self._room(request)
        if room.prompt > self.prefill_limit and hasattr(request, PROMPT):
            room.stub = True
            self._event(room, "reject", "prefill")
        elif not let_in:  # refused for a reason that is not one of the spec's
            return
        room.at_prefill, room.prefill = request, "QUEUED" if let_in else "REFUSED"
        self._event(room, "prefill_door" if let_in else "refuse", "prefill")

    def at_decode_door(self, result: Any, queue: Any, request: Any, *arguments: Any, **named: Any) -> None:
        if any(each.req is request for each in queue.queue):
            room = self._room(request)
            room.at_decode, room.decode = request, "ADMITTED"
            self._event(room, "decode_door", "decode")
        elif not self._known(request) or self._room(request).decode == "NEW":
            room = self._room(request)
            if room.prompt > self.decode_limit:
                room.decode = "CLOSED"
                self._event(room, "refuse_at_decode", "decode")

    # --- pages

    def reserved(self, result: Any, queue: Any, request: Any, *arguments: Any, **named: Any) -> None:
        room = self._at_decode(request)
        if room is not None:
            room.target, room.decode = self._row(queue.req_to_token_pool, request), "LISTED"
            self._event(room, "allocate", "decode", pages=room.target)
            self._event(room, "announce", "decode")

    def computed(self, scheduler: Any, batch: Any, *arguments: Any, **named: Any) -> None:
        for request in batch.reqs:
            room = self._at_prefill(request)
            if room is None or room.prefill != "QUEUED":
                continue
            pages = self._row(scheduler.req_to_token_pool, request)
            fresh = pages[len(room.source) :]
            if fresh:
                room.source = pages
                self._event(room, "allocate", "prefill", pages=fresh)
            if getattr(request, "inflight_middle_chunks", getattr(request, "is_chunked", 0)) <= 0:
                room.prefill = "COMPUTED"
                self._event(room, "forward", "prefill", first=room.source[0])

    def sent(self, result: Any, scheduler: Any, request: Any, last_chunk: bool = False, *arguments: Any, **named: Any) -> None:
        room = self._at_prefill(request)
        if room is not None and last_chunk and room.prefill == "COMPUTED" and room.target and not failed(request.disagg_kv_sender):
            room.prefill, room.in_flight = "SENDING", min(len(room.source), len(room.target))
            self._event(room, "send", "prefill", first=room.target[0])

    def committed(self, result: Any, queue: Any, waiting: Any, *arguments: Any, **named: Any) -> None:
        room = self._at_decode(waiting.req)
        if room is not None and waiting.req.finished_reason is None:
            self._arrived(room)
            room.decode = "RUNNING"
            self._event(room, "commit", "decode")
            self._event(room, "read", "decode")

    def _arrived(self, room: Room) -> None:
        """Prefill's success, or the drain of what it sent, was seen: its writes have landed, and it lets go of its pages."""
        if room.prefill == "SENDING":
            self._event(room, "land", source=room.source[: room.in_flight], target=room.target[: room.in_flight])
            self._event(room, "succeed", "prefill")
            room.prefill, room.in_flight = "SENT", 0

    # --- the end

    def ended_at_prefill(self, rows: Any, request: Any, *arguments: Any, **named: Any) -> None:
        room = self._at_prefill(request)
        if room is None:
            return
        if room.prefill == "SENDING" and succeeded(request.disagg_kv_sender):
            self._arrived(room)
        elif room.prefill == "COMPUTED" and room.stub and not room.gone:
            room.prefill = "REFUSED"
            self._event(room, "retire", "prefill")
        elif room.prefill in ("QUEUED", "COMPUTED"):
            room.stops = True
            self._settle(room)

    def dropped(self, request: Any, *arguments: Any, **named: Any) -> None:
        """Prefill gives up a request before its forward pass, which has no pages."""
        room = self._at_prefill(request)
        if room is not None and room.prefill == "QUEUED":
            room.stops = True
            self._settle(room)

    def deferred(self, result: Any, queue: Any, waiting: Any, *arguments: Any, **named: Any) -> None:
        room = self._at_decode(waiting.req)
        if room is not None:
            room.held, room.quarantined = waiting, room.target[: room.in_flight]
            self._leaves(room)

    def failed_before(self, result: Any, *arguments: Any, **named: Any) -> None:
        for waiting in result[1]:
            room = self._at_decode(waiting.req)
            if room is not None and room.decode == "ADMITTED":
                self._leaves(room)

    def ended_at_decode(self, rows: Any, request: Any, *arguments: Any, **named: Any) -> None:
        room = self._at_decode(request)
        if room is None:
            return
        if room.decode == "RUNNING":
            room.decode = "CLOSED"
            self._event(room, "finish", "decode")
            self._forget(room)
        elif room.held is not None:
            receiver = room.held.kv_receiver
            drained = receiver.kv_mgr.is_abort_release_safe(request.bootstrap_room, len(receiver.bootstrap_infos))
            if drained:
                self._arrived(room)
            if room.quarantined:
                self._event(room, "drain" if drained else "give_up", pages=room.quarantined, pool="decode")
            self._forget(room)
        else:
            self._leaves(room)

    def _leaves(self, room: Room) -> None:
        """Decode closes the request before it ran: prefill refused it, or its client is gone."""
        room.decode = "CLOSED"
        if room.prefill == "REFUSED":
            self._event(room, "hear_reject", "decode")
        else:
            room.gone = True
            self._event(room, "abort")
        self._settle(room)

    def _settle(self, room: Room) -> None:
        if room.stops and room.gone:
            room.stops, room.prefill = False, "CLOSED"
            self._event(room, "stop", "prefill")
        self._forget(room)

    # --- rooms

    def _known(self, request: Any) -> bool:
        return request.bootstrap_room in self.rooms

    def _room(self, request: Any) -> Room:
        number = request.bootstrap_room
        if number not in self.rooms:
            self.rooms[number] = Room(f"room{number}", getattr(request, PROMPT, len(request.origin_input_ids)))
        return self.rooms[number]

    def _at_prefill(self, request: Any) -> Room | None:
        room = self.rooms.get(request.bootstrap_room)
        return room if room is not None and room.at_prefill is request else None

    def _at_decode(self, request: Any) -> Room | None:
        room = self.rooms.get(request.bootstrap_room)
        return room if room is not None and room.at_decode is request else None

    def _forget(self, room: Room) -> None:
        if room.over:
            self.rooms = {number: each for number, each in self.rooms.items() if each is not room}

    def _row(self, rows: Any, request: Any) -> list[int]:
        length = drift.allocated_length(request)
        return [int(place) // self.page_size for place in rows.req_to_token[drift.row_number(request), : length : self.page_size].tolist()]

    def _event(self, room: Room, action: str, node: str = "", **named: Any) -> None:
        values = None if room.told else {"prompt": room.prompt}
        room.told = True
        request = None if action in ("drain", "give_up") else room.name
        self.log.event(action, node=node, request=request, values=values, **named)

    # --- hooks

    def install(self, hooks: tuple[Hook, ...] = HOOKS) -> None:
        """Hook SGLang's methods, by its plugin framework or, without one, by replacing them."""
        try:
            framework: Any = import_module("sglang.srt.plugins.hook_registry")
        except ModuleNotFoundError:
            framework = None
        for hook in hooks:
            if find(hook) is None:
                continue
            noted = self._guarded(hook)
            if framework is not None:
                kind = framework.HookType.AFTER if hook.after else framework.HookType.BEFORE
                framework.HookRegistry.register(f"sglang.srt.{hook.target.replace(':', '.')}", noted, kind)
            else:
                replace_function(hook, noted)
        if framework is not None:
            framework.HookRegistry.apply_hooks()

    def _guarded(self, hook: Hook) -> Callable[..., None]:
        method = getattr(self, hook.method)

        def noted(*arguments: Any, **named: Any) -> None:
            if not self.broken:
                try:
                    method(*arguments, **named)
                except Exception as problem:
                    self.stop(f"the recorder failed in {hook.method}: {type(problem).__name__}: {problem}")

        return noted


def find(hook: Hook) -> Any | None:
    """The function of the release, or None where it has none."""
    try:
        return resolve_name(f"sglang.srt.{hook.target}")
    except (ImportError, AttributeError):
        return None


def replace_function(hook: Hook, noted: Callable[..., None]) -> None:
    """Put a wrapper in the function's place."""
    module, _, path = hook.target.partition(":")
    kind, _, name = path.rpartition(".")
    owner = resolve_name(f"sglang.srt.{module}:{kind}" if kind else f"sglang.srt.{module}")
    function = getattr(owner, name)

    @wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        if not hook.after:
            noted(*arguments, **named)
        result = function(*arguments, **named)
        if hook.after:
            noted(result, *arguments, **named)
        return result

    setattr(owner, name, wrapped)


def silent_actions(release: str, hooks: tuple[Hook, ...] = HOOKS) -> dict[str, str]:
    """The actions that are not told of, each with the hook that this release has no target for."""
    return {
        action: f"sglang {release} has no {hook.target.replace(':', '.')}"
        for hook in hooks
        if hook.required and find(hook) is None
        for action in hook.actions
    }


def failed(transfer: Any) -> bool:
    """Whether a sender's transfer has failed."""
    return bool(transfer.poll() == import_module("sglang.srt.disaggregation.base").KVPoll.Failed)


def succeeded(transfer: Any) -> bool:
    """Whether a sender's transfer has succeeded."""
    return bool(transfer.poll() == import_module("sglang.srt.disaggregation.base").KVPoll.Success)


def header_for(release: str, limits: Mapping[str, int], pools: Mapping[str, int], hooks: tuple[Hook, ...] = HOOKS) -> Header:
    """The header of a log of nodes with these pools (pages, the null page included). `limits` are the longest prompts that nodes take,
    and the context, by the spec's names. Of a node that is not in this process there is neither a limit nor a pool."""
    why = "the other node is another process"
    elsewhere = {action: why for node, actions in ELSEWHERE.items() if node not in pools for action in actions}
    unknown = {name: why for name in ("prefill_limit", "decode_limit") if name not in limits}
    flags = {
        f"{node}_pool_covers_context": limits["context"] <= limits[f"{node}_limit"]
        for node in ("prefill", "decode")
        if f"{node}_limit" in limits
    }
    return Header(
        1, dict(pools), "sglang", release, "handoff", flags, dict(limits), elsewhere | silent_actions(release, hooks), unknown
    )


# --- in a server


def register() -> None:
    """The entry point in ``sglang.srt.plugins``: records where `VARIABLE` names a file. Each scheduler process writes a log of its own."""
    path = os.environ.get(VARIABLE, "")
    if path:
        Waiting(path).install()


class Waiting(Recorder):
    """A recorder that opens its log at the first request, when the scheduler can be asked for what the header says."""

    node: str
    flushed: float

    def __init__(self, path: str) -> None:
        self.path = path
        self.broken = ""

    def at_prefill_door(self, result: Any, queue: Any, request: Any, *arguments: Any, **named: Any) -> None:
        if self._is_of("prefill", queue.scheduler):
            super().at_prefill_door(result, queue, request, *arguments, **named)

    def at_decode_door(self, result: Any, queue: Any, request: Any, *arguments: Any, **named: Any) -> None:
        if self._is_of("decode", queue.scheduler):
            super().at_decode_door(result, queue, request, *arguments, **named)

    def _at_prefill(self, request: Any) -> Room | None:
        return super()._at_prefill(request) if hasattr(self, "rooms") else None

    def _at_decode(self, request: Any) -> Room | None:
        return super()._at_decode(request) if hasattr(self, "rooms") else None

    def _event(self, room: Room, action: str, node: str = "", **named: Any) -> None:
        super()._event(room, action, node, **named)
        now = time.monotonic()
        if now > self.flushed + FLUSH:
            self.flushed = now
            self.log.flush()

    def _is_of(self, node: str, scheduler: Any) -> bool:
        """Whether the log is of that node's scheduler. The first one that asks gets it."""
        if not hasattr(self, "rooms"):
            self.node = node
            self._open(node, scheduler)
        return self.node == node and not self.broken

    def _open(self, node: str, scheduler: Any) -> None:
        allocator = scheduler.token_to_kv_pool_allocator
        limits = {f"{node}_limit": scheduler.max_req_input_len - 1, "context": scheduler.model_config.context_len}
        version = str(getattr(import_module("sglang"), "__version__", ""))
        file = open(self.path.format(node=node, pid=os.getpid()), "wb", buffering=0)  # noqa: SIM115 (until the process ends)
        header = header_for(version, limits, {node: allocator.size // allocator.page_size + 1})
        super().__init__(header, file, allocator.page_size)
        self.flushed = time.monotonic()
        atexit.register(self.close)
        multiprocessing.util.Finalize(None, self.close, exitpriority=10)  # a child process runs these and not the others
        if getattr(scheduler.server_args, "allow_auto_truncate", False):
            self.stop("prompts are truncated automatically, which is not followed")
        elif getattr(scheduler.tree_cache, "disable", True) is False:
            self.stop("the prefix cache is on, and shared pages are not followed: start with --disable-radix-cache")
