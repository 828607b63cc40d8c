"""The transfer between two nodes in one process: a remote write is a copy that happens when it is told to.

What it keeps of mooncake's sender and receiver (`disaggregation/mooncake/conn.py`, `disaggregation/common/conn.py`) are the rules that
matter here: the pages that a chunk goes to are a slice of decode's page list, whose length nobody compares; a chunk is the last one
when as many pages went out as *prefill* announced; success is prefill's to report; nothing is begun for a request that has failed; a
write that has begun is not cancelled. The bytes are read when the write begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from kvmodel.engines.sglang.boot import Release, StandIn
from kvmodel.engines.sglang.drift import announces_aborts

__all__ = ["Loopback", "Memory", "Room", "Write"]


@dataclass(frozen=True)
class Memory:
    """What the transfer can reach of a node: the rows of its pool, and its buffers of metadata."""

    rows: Any
    metadata: Any


@dataclass
class Room:
    """One request's meeting place: the status that each node sees, and decode's page list."""

    prefill: Any = None
    decode: Any = None
    pages: tuple[int, ...] | None = None
    metadata: int | None = None
    prefix: int = 0
    announced: int | None = None


@dataclass(frozen=True)
class Write:
    """A remote write that has begun: from pages of prefill's to pages of decode's."""

    id: str
    room: int
    first: int
    source: tuple[int, ...]
    target: tuple[int, ...]
    rows: tuple[Any, ...]
    landed: Callable[[], None] = field(repr=False)


class Loopback:
    """The wire between one prefill and one decode node."""

    def __init__(self, release: Release, page_size: int) -> None:
        self.page_size = page_size
        self.rooms: dict[int, Room] = {}
        self.writes: dict[str, Write] = {}
        self.prefill: Memory | None = None
        self.decode: Memory | None = None
        self.poll = release.symbol("srt.disaggregation.base", "KVPoll")
        self.aborts_are_announced = announces_aborts(release)
        self.sender = implementation(release, "BaseKVSender", Sender, self)
        self.receiver = implementation(release, "BaseKVReceiver", Receiver, self)
        self._count = 0

    def room(self, number: int) -> Room:
        """The room of that number."""
        return self.rooms.setdefault(number, Room())

    def begin(self, room: int, first: int, source: Sequence[int], target: Sequence[int], landed: Callable[[], None]) -> None:
        """A write begins: page number `first` of the request and those after it."""
        assert self.prefill is not None
        self._count += 1
        rows = tuple(self.prefill.rows[page * self.page_size : (page + 1) * self.page_size].clone() for page in source)
        write = Write(f"w{self._count}", room, first, tuple(source), tuple(target), rows, landed)
        self.writes[write.id] = write

    def land(self, id: str) -> None:
        """The write lands in its pages, whoever owns them by now, and prefill hears of it."""
        assert self.decode is not None
        write = self.writes.pop(id)
        for page, rows in zip(write.target, write.rows, strict=False):
            self.decode.rows[page * self.page_size : (page + 1) * self.page_size] = rows
        write.landed()

    def drained(self, room: int) -> bool:
        """Whether no write is under way for the request."""
        return all(write.room != room for write in self.writes.values())

    def copy_metadata(self, source: int, target: int) -> None:
        """One slot of prefill's buffers of metadata goes to one of decode's."""
        assert self.prefill is not None
        assert self.decode is not None
        for name, buffer in vars(self.prefill.metadata).items():
            other = getattr(self.decode.metadata, name, None)
            if hasattr(buffer, "data_ptr") and hasattr(other, "data_ptr"):
                cast(Any, other)[target] = buffer[source]


def implementation(release: Release, base: str, ours: type, wire: Loopback) -> type:
    """Our sender or receiver as a subclass of the release's. Raises EngineDriftError where that wants more methods."""
    parent = release.symbol("srt.disaggregation.base.conn", base)
    made = type(ours.__name__, (ours, parent), {"wire": wire})
    lacking: frozenset[str] = getattr(made, "__abstractmethods__", frozenset())
    if lacking:
        raise release.drift(f"{base} as it was", f"it now wants {', '.join(sorted(lacking))}")
    return made


class Sender:
    """Prefill's side of one request."""

    wire: Loopback

    def __init__(self, mgr: Any, bootstrap_addr: str, bootstrap_room: int, *more: Any, **named: Any) -> None:
        self.kv_mgr, self.bootstrap_room = mgr, bootstrap_room
        self.conclude_state: Any = None
        self.sent = 0
        self.slot: int | None = None
        self.room = self.wire.room(bootstrap_room)
        self.room.prefill = self.wire.poll.Bootstrapping

    def init(self, num_kv_indices: int, aux_index: int | None = None) -> None:
        self.room.announced, self.slot = num_kv_indices, aux_index

    def pop_decode_prefix_len(self) -> int:
        return self.room.prefix

    def get_max_transfer_tokens(self) -> int | None:
        return None

    def should_send_kv_chunk(self, num_pages: int, last_chunk: bool) -> bool:
        return num_pages > 0 or last_chunk

    def mark_prefill_complete(self) -> None:
        return None

    def poll(self) -> Any:
        if self.room.prefill == self.wire.poll.Bootstrapping and self.room.pages is not None:
            self.room.prefill = self.wire.poll.WaitingForInput
        return self.room.prefill

    poll_pp_consensus = poll

    def send(self, kv_indices: Any, state_indices: Any = None, num_kv_tokens: int | None = None, **named: Any) -> None:
        if self.room.prefill == self.wire.poll.Failed:
            return
        assert self.room.pages is not None
        first = self.sent
        self.sent += len(kv_indices)
        last = self.sent == self.room.announced
        target = self.room.pages[first : self.sent]

        def landed() -> None:
            if not last or self.room.prefill == self.wire.poll.Failed:
                return
            self.room.prefill = self.wire.poll.Success
            if self.slot is not None and self.room.metadata is not None:
                self.wire.copy_metadata(self.slot, self.room.metadata)
            if self.room.decode != self.wire.poll.Failed:
                self.room.decode = self.wire.poll.Success

        self.wire.begin(self.bootstrap_room, first, [int(page) for page in kv_indices[: len(target)]], target, landed)

    def get_transfer_metric(self) -> Any:
        return StandIn(transfer_latency_s=None, alloc_latency_s=None, transfer_total_bytes=None)

    def failure_exception(self) -> None:
        raise RuntimeError("the transfer failed")

    def abort(self) -> None:
        self.room.prefill = self.wire.poll.Failed

    def clear(self) -> None:
        return None


class Receiver:
    """Decode's side of one request."""

    wire: Loopback
    require_staging = False
    supports_host_destination = False

    def __init__(self, mgr: Any, bootstrap_addr: str, bootstrap_room: int, *more: Any, **named: Any) -> None:
        self.kv_mgr, self.bootstrap_room = mgr, bootstrap_room
        self.conclude_state: Any = None
        self.bootstrap_infos: list[dict[str, Any]] = [{}]
        self.abort_notified = False
        self.room = self.wire.room(bootstrap_room)
        self.room.decode = self.wire.poll.Bootstrapping

    def init(self, prefill_dp_rank: int) -> None:
        self.room.decode = self.wire.poll.WaitingForInput

    def send_metadata(
        self, kv_indices: Any, aux_index: int | None = None, state_indices: Any = None, decode_prefix_len: int | None = None, **named: Any
    ) -> None:
        self.room.pages = tuple(int(page) for page in kv_indices)
        self.room.metadata, self.room.prefix = aux_index, decode_prefix_len or 0

    def poll(self) -> Any:
        return self.room.decode

    poll_pp_consensus = poll

    def failure_exception(self) -> None:
        raise RuntimeError("the transfer failed")

    def abort(self) -> None:
        self.room.decode = self.conclude_state = self.wire.poll.Failed
        self.ensure_abort_notified()

    def ensure_abort_notified(self, *, force_arm: bool = False) -> None:
        if self.wire.aborts_are_announced and not self.abort_notified:
            self.abort_notified = True
            if self.room.prefill not in (None, self.wire.poll.Success):
                self.room.prefill = self.wire.poll.Failed

    def clear(self) -> None:
        return None
