"""The adapter of a real engine: it translates, and asserts nothing.

There are two levels. An `Allocator` is the bookkeeping of one pool (vLLM's KVCacheManager, SGLang's token allocators, your
own). An `Engine` is that and the queues around it: requests are submitted, batches scheduled, pages written and read from
afar. What is right is said by a spec, to which `kvmodel.engines.mapping` maps the snapshots; `kvmodel.engines.machine` drives.

Requests have names ("r0"), tokens are integers, a *salt* keeps tenants apart in a prefix cache. Positions count tokens from 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from kvmodel.engines.snapshot import Snapshot

__all__ = [
    "Admission",
    "Allocator",
    "Batch",
    "CapableAllocator",
    "Capability",
    "Engine",
    "Pages",
    "Role",
    "Submission",
    "Tokens",
    "Transfer",
    "TransferKind",
    "Work",
]

Tokens = tuple[int, ...]


class Capability(Enum):
    """What an adapter can do beyond admit, free, keys and snapshot (or submit, step, complete and snapshot): what it does not
    say that it can do it is not asked, so it need not have the methods for it."""

    EXTEND = auto()  # a request can grow by one token at a time
    SHARE = auto()  # a prefix cache: an admission can find pages that were computed before
    SALT = auto()  # the prefix cache keeps salts apart
    EXTERNAL = auto()  # some tokens of an admission are loaded from elsewhere, before the admission returns
    REMOTE = auto()  # ... or are written from afar, and `arrived` says when
    DETACH = auto()  # a request can end while its pages are held back, and `release` gives them back
    EVICT = auto()  # index entries can be dropped on request
    RESET = auto()  # the whole index can be dropped
    ABORT = auto()  # a request can be aborted (engine level)
    EXPIRE = auto()  # the engine gives up waiting for a transfer (engine level; a hazard, driven only when asked for)


@dataclass(frozen=True, slots=True)
class Admission:
    """An admitted request: how many of its first tokens were found in the cache, so that nobody computes them again."""

    hit_tokens: int = 0


class Driven(Protocol):
    """What the adapters of both levels tell."""

    @property
    def engine(self) -> str:
        """The engine's name, as in ``NAME==VERSION``."""

    @property
    def version(self) -> str:
        """Its release."""

    @property
    def page_size(self) -> int:
        """Tokens of a page."""

    @property
    def groups(self) -> int:
        """Cache groups, each with a page table of its own."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it can do."""

    def keys(self, request: str) -> tuple[tuple[str, ...], ...] | None:
        """For each cache group, the keys under which the request's full pages are indexed, in order. None: not to be had."""

    def snapshot(self) -> Snapshot:
        """The state of all pools."""


class Allocator(Driven, Protocol):
    """The bookkeeping of one pool."""

    def admit(self, request: str, tokens: Tokens, salt: str | None, external: int, remote: bool) -> Admission | None:
        """Reserve pages for all `tokens`; None: rejected, and nothing has changed. After what the cache gives, `external` tokens
        come from elsewhere: at once, or with `remote` when `arrived` says so. The rest is computed at once."""

    def free(self, request: str) -> None:
        """The request ends and gives back its pages."""


class CapableAllocator(Allocator, Protocol):
    """An allocator with everything that capabilities can ask for."""

    def extend(self, request: str, token: int) -> bool:
        """EXTEND: reserve a place for one more token, which is computed at once. False: no page is left, and nothing has changed."""

    def arrived(self, request: str) -> None:
        """REMOTE: the remote writes for the request have landed."""

    def detach(self, request: str) -> None:
        """DETACH: the request ends, but its pages are held back until `release`."""

    def release(self, request: str) -> None:
        """DETACH: what was held back for a detached request goes back to the pool."""

    def evict(self, pages: frozenset[int]) -> None:
        """EVICT: drop the index entries of these pages."""

    def reset(self) -> bool:
        """RESET: drop all index entries; False: refused."""


class Role(Enum):
    """What a request asks of an engine."""

    LOCAL = auto()  # prefill and decode on one node
    PREFILL = auto()  # prefill here; another engine reads the pages under a lease
    DECODE = auto()  # the KV of the prompt is written from afar; decode here
    HANDOFF = auto()  # both nodes are here, and pages go from one to the other


@dataclass(frozen=True, slots=True)
class Submission:
    """A request: its prompt, its tenant's salt, its role and how many tokens it may generate."""

    request: str
    tokens: Tokens
    salt: str | None = None
    role: Role = Role.LOCAL
    max_new_tokens: int = 1


@dataclass(frozen=True, slots=True)
class Pages:
    """Pages of one pool, in order: for each cache group a row."""

    pool: str
    rows: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Work:
    """One request's part of a batch: the KV of positions `first` to `first + count - 1` is computed into `table`, then a
    forward pass attends to positions 0 to `first + count - 1`.

    `tokens` are those that the engine takes the request to have, as many as are attended to (a stub, where it was swapped for one).
    `answers`: the client sees what comes out.
    """

    request: str
    tokens: Tokens
    salt: str | None
    first: int
    count: int
    table: Pages
    answers: bool = True


@dataclass(frozen=True, slots=True)
class Batch:
    """What was scheduled to run together. Batches run in the order in which they were scheduled."""

    number: int
    work: tuple[Work, ...]


class TransferKind(Enum):
    """A remote operation."""

    WRITE = auto()  # pages of `target` are written from afar (or from `source`, whose bytes were read when the transfer began)
    READ = auto()  # pages of `source` are read from afar


@dataclass(frozen=True, slots=True)
class Transfer:
    """A remote operation that has begun and not ended: nothing can cancel it.

    It covers `tokens[first:]` of the request, at these positions; page number i of a row is for positions from
    i * page size on, so that rows begin with the page of position 0. Pages of None are the other engine's.
    """

    id: str
    request: str
    kind: TransferKind
    tokens: Tokens
    salt: str | None
    first: int
    source: Pages | None
    target: Pages | None


class Engine(Driven, Protocol):
    """Queues and pools."""

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles that requests may have."""

    @property
    def depth(self) -> int:
        """How many batches may be under way."""

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths of a prompt, in tokens, about which an admission check changes its mind; () : none that matters."""

    def submit(self, submission: Submission) -> None:
        """A client sends a request. The engine may refuse it."""

    def abort(self, request: str) -> None:
        """The client goes away."""

    def step(self) -> Batch | None:
        """Schedule once. None: there was nothing to run."""

    def complete(self, batch: Batch, sampled: Mapping[str, int]) -> None:
        """The oldest batch has run, and these tokens were sampled; remote operations that ended before are reported with it."""

    def transfers(self) -> tuple[Transfer, ...]:
        """Remote operations under way, whatever became of their requests."""

    def land(self, transfer: str) -> None:
        """The remote operation has ended; the engine hears of it in its usual way."""

    def expire(self, transfer: str) -> None:
        """The engine's deadline for the remote operation passes. The operation goes on."""

    def live(self) -> frozenset[str]:
        """Requests that a client still waits for."""
