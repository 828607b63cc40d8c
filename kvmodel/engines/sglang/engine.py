"""The adapter of SGLang's prefill/decode path: two nodes, and what goes from one to the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvmodel.engines.adapter import Batch, Capability, Pages, Role, Submission, Tokens, Transfer, TransferKind, Work
from kvmodel.engines.sglang import drift
from kvmodel.engines.sglang.boot import Release, release_for
from kvmodel.engines.sglang.nodes import Computation, Node, Nodes, Settings
from kvmodel.engines.snapshot import PoolSnapshot, Snapshot
from kvmodel.errors import UsageError

__all__ = ["HandoffAdapter", "pool_snapshot"]

NULL_PAGE = 0  # places below the page size are where padding is written


class HandoffAdapter:
    """An `Engine` over two real nodes (`kvmodel.engines.sglang.nodes`); a step is one round of both loops.

    The first token comes from prefill; a request runs on decode for as many more as its submission asks for. What an aborted transfer's
    deferred release holds back is `detached`. EXPIRE lets the deadline of such a release pass, where the release has it.
    """

    engine = "sglang"
    groups = 1
    roles = (Role.HANDOFF,)
    depth = 1

    def __init__(self, release: str | Release, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        booted = release_for(release)
        self.version = booted.version
        self.nodes = Nodes(booted, self.settings)
        self.page_size = self.settings.page_size
        prefill, decode = self.nodes.prefill, self.nodes.decode
        self.lengths = tuple(sorted({prefill.limit - 1, prefill.limit, decode.limit - 1, decode.limit}))
        can = {Capability.ABORT} | ({Capability.EXPIRE} if self.nodes.defers_release else set())
        self.capabilities: frozenset[Capability] = frozenset(can)
        self._requests: dict[str, tuple[Any, Any]] = {}  # prefill's and decode's own
        self._rooms: dict[int, str] = {}
        self._gone: set[str] = set()
        self._prefill: tuple[Computation, ...] = ()
        self._decode: tuple[Computation, ...] = ()
        self._batches = 0
        self._transfers: dict[str, Transfer] = {}

    # --- what the machine asks

    def submit(self, submission: Submission) -> None:
        if submission.role is not Role.HANDOFF:
            raise UsageError(f"two nodes of sglang have no requests of role {submission.role.name}")
        room = len(self._rooms) + 1
        self._rooms[room] = submission.request
        new = submission.max_new_tokens + 1
        self._requests[submission.request] = self.nodes.submit(rid(submission.request), submission.tokens, room, new)

    def abort(self, request: str) -> None:
        self._gone.add(request)
        self.nodes.abort(rid(request))

    def step(self) -> Batch | None:
        decode, prefill = self.nodes.decode, self.nodes.prefill
        self._decode = self.nodes.schedule_decode()
        self._prefill = self.nodes.schedule_prefill()
        prefill.scheduler.running_batch.reqs = [work.request for work in self._prefill]
        if not self._prefill and not self._decode:
            self.nodes.finish_prefill((), ())
            return None
        self._batches += 1
        work = [*(self._work(prefill, each) for each in self._prefill), *(self._work(decode, each) for each in self._decode)]
        return Batch(self._batches, tuple(work))

    def _work(self, node: Node, work: Computation) -> Work:
        tokens = tokens_of(work.request)[: work.first + work.count]
        return Work(name(work.request), tokens, None, work.first, work.count, Pages(node.pool, (node.table(work.request),)))

    def complete(self, batch: Batch, sampled: Mapping[str, int]) -> None:
        numbers = {request: number for number, request in enumerate(self._requests)}
        for node, part in ((self.nodes.prefill, self._prefill), (self.nodes.decode, self._decode)):
            for work in part:
                node.compute(work, numbers[name(work.request)])
        tokens = [[sampled[name(work.request)] for work in part] for part in (self._prefill, self._decode)]
        self.nodes.prefill.scheduler.running_batch.reqs = []
        self.nodes.finish_prefill(self._prefill, tokens[0])
        self.nodes.finish_decode(self._decode, tokens[1])
        self._prefill = self._decode = ()

    def transfers(self) -> tuple[Transfer, ...]:
        for write in self.nodes.wire.writes.values():
            if write.id not in self._transfers:
                request = self._rooms[write.room]
                pages = min(len(write.source), len(write.target))
                before = (NULL_PAGE,) * write.first
                tokens = tuple(self._requests[request][0].origin_input_ids)[: (write.first + pages) * self.page_size]
                source, target = (
                    Pages(pool, (before + row[:pages],)) for pool, row in (("prefill", write.source), ("decode", write.target))
                )
                first = write.first * self.page_size
                self._transfers[write.id] = Transfer(write.id, request, TransferKind.WRITE, tokens, None, first, source, target)
        return tuple(self._transfers.values())

    def land(self, transfer: str) -> None:
        del self._transfers[transfer]
        self.nodes.wire.land(transfer)

    def expire(self, transfer: str) -> None:
        request = self._requests[self._transfers[transfer].request][1]
        drift.expire(self.nodes.decode.scheduler.disagg_decode_transfer_queue, request)

    def live(self) -> frozenset[str]:
        """Neither answered by decode, nor refused by prefill, nor gone."""
        refused = {answer for answer, reason in self.nodes.prefill.answers.reasons.items() if reason == "FINISH_ABORT"}
        answered = refused | self.nodes.decode.answers.reasons.keys()
        return frozenset(request for request in self._requests if rid(request) not in answered and request not in self._gone)

    def keys(self, request: str) -> tuple[tuple[str, ...], ...]:
        """None of its pages is indexed: the prefix cache is off."""
        return ((),)

    def snapshot(self) -> Snapshot:
        held_back = {name(decode.req) for decode in drift.held_back(self.nodes.decode.scheduler.disagg_decode_transfer_queue)}
        pools = (self._pool(self.nodes.prefill, 0, set()), self._pool(self.nodes.decode, 1, held_back))
        return Snapshot(pools, frozenset(self._known()))

    def _pool(self, node: Node, side: int, held_back: set[str]) -> PoolSnapshot:
        tables: dict[str, tuple[tuple[int, ...], ...]] = {}
        detached: dict[str, tuple[int, ...]] = {}
        for request, both in self._requests.items():
            pages = node.table(both[side])
            if pages and request in held_back:
                detached[request] = pages
            elif pages:
                tables[request] = (pages,)
        return pool_snapshot(node.pool, node.pages, drift.free_list(node.allocator), tables, detached)

    def _known(self) -> Iterator[str]:
        """The requests in any queue of either node."""
        prefill, decode = self.nodes.prefill.scheduler, self.nodes.decode.scheduler
        for queue in (
            *(prefill.disagg_prefill_bootstrap_queue.queue, prefill.waiting_queue, prefill.disagg_prefill_inflight_queue),
            *(decode.waiting_queue, decode.running_batch.reqs, [work.request for work in (*self._prefill, *self._decode)]),
        ):
            yield from map(name, queue)
        transfers, waiting = decode.disagg_decode_transfer_queue, decode.disagg_decode_prealloc_queue
        for each in (*waiting.queue, *transfers.queue, *drift.held_back(transfers)):
            yield name(each.req)
        yield from map(name, waiting.retracted_queue)


def pool_snapshot(
    pool: str, pages: int, free: tuple[int, ...], tables: Mapping[str, tuple[tuple[int, ...], ...]], detached: Mapping[str, tuple[int, ...]]
) -> PoolSnapshot:
    """A pool whose allocator does not count references: what is not free was handed out once. Nothing is indexed."""
    handed_out = dict.fromkeys(set(range(1, pages + 1)).difference(free), 1)
    return PoolSnapshot(pool, pages + 1, free, tables, frozenset({NULL_PAGE}), detached, handed_out, index={})


def rid(request: str) -> str:
    """The id that SGLang sees. It ends in a mark, since an abort names all ids that it is a prefix of."""
    return f"{request}."


def name(request: Any) -> str:
    """The request's name here."""
    return str(request.rid).removesuffix(".")


def tokens_of(request: Any) -> Tokens:
    """The tokens that the node takes the request to have."""
    return (*request.origin_input_ids, *request.output_ids)
