"""Driving an engine: its queues, its batches, and the remote operations that it begins, a call at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from kvmodel.engines.adapter import Batch, Capability, Role, Submission, Transfer, TransferKind, Work
from kvmodel.engines.driver import Driver, Record, number_in, salt_in, tokens_in
from kvmodel.engines.mapping import Read
from kvmodel.engines.shadow import Written
from kvmodel.traces.observed import Call, Verb

__all__ = ["EngineDriver"]


class EngineDriver(Driver):
    """Drives an engine: its queues, its batches, and the remote operations that it begins.

    Batches run in the order in which they were scheduled; remote operations end in any order.
    """

    verbs = (
        Verb("submit", "A client sends a request.", request=True),
        Verb("schedule", "The engine schedules a batch."),
        Verb("run", "The oldest batch runs: it computes KV into pages and attends to them."),
        Verb("complete", "The engine takes in what the batch sampled, and which remote operations ended."),
        Verb("land", "A remote write for the request lands, or a remote read of its pages ends.", request=True),
        Verb("abort", "The client goes away.", request=True),
        Verb("expire", "The deadline of a remote operation on the request's pages passes; the operation goes on.", request=True),
    )
    needs: ClassVar[Mapping[str, Capability]] = {"abort": Capability.ABORT, "expire": Capability.EXPIRE}

    def __init__(self, adapter: Any, name: str, record: Record | None = None) -> None:
        self.queue: list[Batch] = []
        self.reads: tuple[Read, ...] = ()
        self.flight: dict[str, Transfer] = {}
        self.captured: dict[str, tuple[Written | None, ...]] = {}
        self.submitted: list[str] = []
        super().__init__(adapter, name, record)

    def _operations(self) -> tuple[Sequence[Read], Sequence[Transfer], Sequence[Work]]:
        return self.reads, tuple(self.flight.values()), [work for batch in self.queue for work in batch.work]

    def live(self) -> list[str]:
        """The requests whose clients wait."""
        live = self.adapter.live()
        return [request for request in self.submitted if request in live]

    def can_schedule(self) -> bool:
        """Whether one more batch may be under way."""
        return len(self.queue) < int(self.adapter.depth)

    def has_work(self) -> bool:
        """Whether the engine knows a request, or a remote operation is in flight: otherwise nothing comes of scheduling."""
        known = self.observer.facts[-1].get("known")
        return bool(self.flight or self.queue or (self.live() if known is None else known))

    def do(self, call: Call) -> bool:
        verb, request = str(call["verb"]), str(call.get("request", ""))
        match verb:
            case "submit" if request not in self.submitted:
                self.submit(Submission(request, tokens_in(call), salt_in(call), Role[str(call["role"])], number_in(call, "new")))
            case "schedule" if self.can_schedule():
                self.schedule()
            case "run" if self.queue:
                self.run(number_in(call, "token"))
            case "land" | "expire":
                found = [id for id, transfer in self.flight.items() if transfer.request == request]
                if not found:
                    return False
                (self.land if verb == "land" else self.expire)(found[0])
            case "abort" if request in self.live():
                self.abort(request)
            case _:
                return False
        return True

    def submit(self, submission: Submission) -> None:
        """A client sends a request."""
        request = submission.request
        self.submitted.append(request)
        self.requests.tokens[request], self.requests.salts[request] = submission.tokens, submission.salt
        call: dict[str, object] = {"verb": "submit", "request": request, "tokens": submission.tokens, "salt": submission.salt}
        call |= {"role": submission.role.name, "new": submission.max_new_tokens}
        with self._asking(call):
            self.adapter.submit(submission)
        self._begun()
        self._look(call)

    def schedule(self) -> None:
        """The engine schedules."""
        call: dict[str, object] = {"verb": "schedule"}
        with self._asking(call):
            batch: Batch | None = self.adapter.step()
        shown: tuple[str, ...] = ()
        if batch is not None:
            self.queue.append(batch)
            shown = tuple(f"{work.request}:{work.first}+{work.count}" for work in batch.work)
            for work in batch.work:
                if len(work.tokens) > len(self.requests.tokens[work.request]):  # the engine has generated some
                    self.requests.tokens[work.request] = work.tokens
                self.ahead.compute(work.request, work.tokens, work.salt, work.first, work.first + work.count, work.table)
        self._begun()
        self._learn_keys(call)
        self._look({**call, "batch": shown})

    def _learn_keys(self, call: Call) -> None:
        for request in self.submitted:
            with self._asking(call):
                keys = self.adapter.keys(request)
            if keys is not None:
                self.requests.learn_keys(request, keys, self.memory)

    def run(self, token: int) -> None:
        """The oldest batch runs, samples `token` wherever it samples, and is taken in."""
        batch = self.queue.pop(0)
        for work in batch.work:
            self.memory.compute(work.request, work.tokens, work.salt, work.first, work.first + work.count, work.table)
        live = self.adapter.live()
        self.reads = tuple(
            Read(work.request, work.tokens, work.salt, 0, work.first + work.count, work.table)
            for work in batch.work
            if work.answers and work.request in live
        )
        self._begun()
        self._look({"verb": "run", "batch": tuple(work.request for work in batch.work), "token": token})
        self.reads = ()
        call: dict[str, object] = {"verb": "complete", "token": token}
        with self._asking(call):
            self.adapter.complete(batch, {work.request: token for work in batch.work})
        self._begun()
        self._learn_keys(call)
        self._look(call)

    def land(self, id: str) -> None:
        """A remote operation ends; a write lands whoever owns its pages by now."""
        transfer = self.flight.pop(id)
        if transfer.kind is TransferKind.WRITE and transfer.target is not None:
            end = len(transfer.tokens)
            for shadow in (self.memory, self.ahead):
                if transfer.source is None:
                    shadow.compute(transfer.request, transfer.tokens, transfer.salt, transfer.first, end, transfer.target)
                else:
                    shadow.store(transfer.target, transfer.first, end, self.captured[id])
        self._remote("land", transfer)

    def expire(self, id: str) -> None:
        """The engine's deadline for a remote operation passes; it goes on."""
        self._remote("expire", self.flight[id])

    def _remote(self, verb: str, transfer: Transfer) -> None:
        call: dict[str, object] = {"verb": verb, "request": transfer.request}
        with self._asking(call):
            getattr(self.adapter, verb)(transfer.id)
        self._begun()
        self._look(call)

    def abort(self, request: str) -> None:
        """The client goes away."""
        call: dict[str, object] = {"verb": "abort", "request": request}
        with self._asking(call):
            self.adapter.abort(request)
        self._begun()
        self._look(call)

    def _begun(self) -> None:
        """Take note of remote operations that have begun. Only the driver ends them: what an engine forgets goes on. What a
        transfer will write is read from its source now."""
        for transfer in self.adapter.transfers():
            if transfer.id not in self.captured:
                self.flight[transfer.id] = transfer
                source = transfer.source
                data = () if source is None else self.memory.captured(source, transfer.first, len(transfer.tokens))
                self.captured[transfer.id] = data

    def drain(self) -> None:
        for request in self.live():
            self.abort(request)
        for _ in range(2 * int(self.adapter.depth) + 4):
            for id in list(self.flight):
                self.land(id)
            if self.can_schedule() and self.has_work():
                self.schedule()
            while self.queue:
                self.run(0)
