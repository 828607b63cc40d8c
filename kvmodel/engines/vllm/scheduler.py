"""The adapter of vLLM's Scheduler, with its KVCacheManager and the scheduler side of a KV connector: ours, or NIXL's own."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from kvmodel.engines.adapter import Batch, Capability, Pages, Role, Submission, Transfer, TransferKind, Work
from kvmodel.engines.snapshot import Snapshot
from kvmodel.engines.vllm.connector import NAME
from kvmodel.engines.vllm.release import PAGE_TOKENS, Release, boot
from kvmodel.errors import UsageError

__all__ = ["SchedulerAdapter"]

# What a router writes into a request of each role. The other engine's address and pages are there because NIXL looks whether they are.
REMOTE = {"remote_engine_id": "other", "remote_request_id": "other", "remote_host": "localhost", "remote_port": 1, "tp_size": 1}
PARAMETERS: Mapping[Role, Mapping[str, object] | None] = {
    Role.LOCAL: None,
    Role.PREFILL: {"do_remote_decode": True, "do_remote_prefill": False},
    Role.DECODE: {"do_remote_decode": False, "do_remote_prefill": True, "remote_block_ids": [[0]], **REMOTE},
}


class SchedulerAdapter:
    """An `Engine` over the real Scheduler of a release, with a connector of ours (`kvmodel.engines.vllm.connector`) or, with `nixl`, the
    scheduler side of NIXL's own; then the adapter is the worker, who does what NIXL's metadata asks for.

    `pages` is the size of the pool, of which vLLM makes one page the null page; `depth` is how many batches may be under way. The longest
    request that is accepted just fits into the pool, as the check at start-up demands.
    """

    engine = "vllm"
    groups = 1
    roles = (Role.LOCAL, Role.PREFILL, Role.DECODE, Role.DECODE)
    lengths: tuple[int, ...] = ()
    capabilities = frozenset((Capability.SHARE, Capability.SALT, Capability.REMOTE, Capability.ABORT, Capability.EXPIRE))

    def __init__(self, release: str | Release, pages: int = 7, page_size: int = PAGE_TOKENS, depth: int = 1, nixl: bool = False) -> None:
        self._release = boot(release) if isinstance(release, str) else release
        self.version = self._release.version
        self.page_size, self.depth = page_size, depth
        self.longest = (pages - 1) * page_size
        self._nixl = nixl
        if nixl:
            self._release.import_nixl()
        transfer = SimpleNamespace(
            kv_connector="NixlConnector" if nixl else NAME, kv_connector_module_path=None if nixl else "kvmodel.engines.vllm.connector",
            kv_role="kv_both", is_kv_consumer=True, is_kv_producer=True, kv_load_failure_policy="recompute", engine_id="engine",
            kv_connector_extra_config={}, kv_buffer_device="cuda", enable_permute_local_kv=False, kv_ip="localhost", kv_port=1,
            get_from_extra_config=lambda key, default: default,
        )  # fmt: skip
        self._scheduler = self._release.scheduler(pages, page_size, self.longest, 3 * page_size, 3, depth, transfer)
        self._manager = self._release.attribute(self._scheduler, "kv_cache_manager")
        self._requests: dict[str, Any] = {}
        self._tables: dict[str, list[list[int]]] = {}  # as the model runner has them
        self._batches: dict[int, Any] = {}
        self._number = 0
        self._transfers: dict[str, Transfer] = {}
        self._received: set[str] = set()
        self._sent: set[str] = set()
        self._expired: set[str] = set()
        self._deferred: list[tuple[str, Any]] = []
        self._watch_deferred()
        if nixl:
            self._watch_leases()

    def _watch_deferred(self) -> None:
        """Note whose blocks are held back: the scheduler keeps them without a name."""
        if not self._release.can_detach:
            return
        pop = self._manager.pop_blocks_for_free

        def noted(request: Any) -> Any:
            blocks = pop(request)
            self._deferred.append((request.request_id, blocks))
            return blocks

        self._manager.pop_blocks_for_free = noted

    def _watch_leases(self) -> None:
        """Note which pages NIXL offers to the other engine: they are in what it answers to the client."""
        finished = self._scheduler._connector_finished

        def noted(request: Any) -> Any:
            held, parameters = finished(request)
            if held:
                rows = self._rows(parameters["remote_block_ids"])
                self._read(request, rows, request.num_computed_tokens)
            return held, parameters

        self._scheduler._connector_finished = noted

    @staticmethod
    def _rows(blocks: Any) -> tuple[tuple[int, ...], ...]:
        """Block ids of each cache group; older releases have those of the only one."""
        return tuple(tuple(row) for row in blocks) if blocks and not isinstance(blocks[0], int) else (tuple(blocks),)

    def submit(self, submission: Submission) -> None:
        """The front end's part: a prompt that leaves no room for an answer is refused."""
        if submission.role not in PARAMETERS:
            raise UsageError(f"vllm's scheduler has no requests of role {submission.role.name}")
        room = self.longest - len(submission.tokens)
        if room < 1:
            return
        most = min(submission.max_new_tokens, room)
        request = self._release.request(submission.request, submission.tokens, submission.salt, self.page_size, most)
        parameters = PARAMETERS[submission.role]
        request.kv_transfer_params = None if parameters is None else dict(parameters)
        self._requests[submission.request] = request
        self._scheduler.add_request(request)

    def abort(self, request: str) -> None:
        self._scheduler.finish_requests(request, self._release.status.FINISHED_ABORTED)
        self._look()

    def step(self) -> Batch | None:
        """As an engine core: it schedules, also nothing, as long as it has requests or has something to hear from the workers."""
        if not (self._scheduler.requests or self._scheduler.finished_req_ids or self._received or self._sent):
            return None
        output = self._scheduler.schedule()
        self._look()
        if self._nixl:
            self._start_reads(output.kv_connector_metadata)
        work = []
        for name, first, count in self._release.scheduled(output, self._tables):
            request = self._requests[name]
            table = Pages("", tuple(tuple(row) for row in self._tables[name]))
            work.append(Work(name, tuple(request.all_token_ids)[: first + count], request.cache_salt, first, count, table))
        self._number += 1
        self._batches[self._number] = output
        return Batch(self._number, tuple(work))

    def complete(self, batch: Batch, sampled: Mapping[str, int]) -> None:
        """A request whose tokens are not all computed yet gets none sampled: it was a chunk of its prompt."""
        names = [work.request for work in batch.work]
        tokens = [[sampled[w.request]] if w.first + w.count >= self._requests[w.request].num_tokens else [] for w in batch.work]
        received, sent = frozenset(self._received), frozenset(self._sent)
        self._received.clear()
        self._sent.clear()
        output = self._release.batch_output(names, tokens, received, sent)
        self._scheduler.update_from_output(self._batches.pop(batch.number), output)
        self._look()

    def transfers(self) -> tuple[Transfer, ...]:
        return tuple(self._transfers.values())

    def _look(self) -> None:
        """Take over what our connector has begun."""
        if self._nixl:
            return
        connector = self._release.attribute(self._scheduler, "connector")
        for request, rows, first in connector.writes.values():
            self._write(request, rows, first)
        for request, rows, count in connector.leases.values():
            self._read(request, rows, count)
        connector.writes.clear()
        connector.leases.clear()

    def _start_reads(self, metadata: Any) -> None:
        """What NIXL's worker is asked to fetch: the pages of a request that the prefix cache did not have. Without pages it is to tell the
        other engine that nothing is needed, and reports nothing."""
        for name, asked in metadata.reqs_to_recv.items():
            fetched = self._rows(asked.local_block_ids)
            if not any(fetched):
                continue
            tables = self._rows(self._manager.get_block_ids(name))
            kept = [table[: len(table) - len(row)] for table, row in zip(tables, fetched, strict=True)]
            rows = tuple(table + row for table, row in zip(kept, fetched, strict=True))
            self._write(self._requests[name], rows, len(kept[0]) * self.page_size)

    def _write(self, request: Any, rows: tuple[tuple[int, ...], ...], first: int) -> None:
        name, tokens = request.request_id, tuple(request.prompt_token_ids)
        self._begin(Transfer(f"write {name}", name, TransferKind.WRITE, tokens, request.cache_salt, first, None, Pages("", rows)))

    def _read(self, request: Any, rows: tuple[tuple[int, ...], ...], count: int) -> None:
        name, tokens = request.request_id, tuple(request.all_token_ids)[:count]
        self._begin(Transfer(f"read {name}", name, TransferKind.READ, tokens, request.cache_salt, 0, Pages("", rows), None))

    def _begin(self, transfer: Transfer) -> None:
        self._transfers[transfer.id] = transfer

    def land(self, transfer: str) -> None:
        """The worker reports the end with the next batch, unless the lease was over before."""
        ended = self._transfers.pop(transfer)
        if ended.kind is TransferKind.WRITE:
            self._received.add(ended.request)
        elif transfer not in self._expired:
            self._sent.add(ended.request)

    def expire(self, transfer: str) -> None:
        """The lease of a prefill request passes: its worker reports it as sent. A write from afar has no deadline."""
        if self._transfers[transfer].kind is TransferKind.READ and transfer not in self._expired:
            self._expired.add(transfer)
            self._sent.add(self._transfers[transfer].request)

    def live(self) -> frozenset[str]:
        known = self._scheduler.requests
        return frozenset(name for name, request in known.items() if not request.is_finished())

    def keys(self, request: str) -> tuple[tuple[str, ...], ...] | None:
        """The keys under which the request's full pages are indexed."""
        made = self._requests.get(request)
        return None if made is None else self._release.keys(made, self.page_size, self.groups)

    def snapshot(self) -> Snapshot:
        held = [blocks for _, blocks in getattr(self._scheduler, "deferred_frees", ())]
        self._deferred = [entry for entry in self._deferred if any(entry[1] is blocks for blocks in held)]
        detached: dict[str, tuple[int, ...]] = {}
        for name, blocks in self._deferred:
            detached[name] = detached.get(name, ()) + tuple(block.block_id for block in blocks)
        return Snapshot((self._release.pool_snapshot(self._manager, detached),), self._known())

    def _known(self) -> frozenset[str]:
        """The requests that can still give back their pages: one that has ended waits for a transfer, or for its worker's report."""
        waited = {transfer.request for transfer in self._transfers.values()} | self._received | self._sent
        known = self._scheduler.requests
        return frozenset(name for name, request in known.items() if name in waited or not request.is_finished())
