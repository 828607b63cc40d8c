"""Driving an allocator: the bookkeeping of one pool, a call at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

from kvmodel.engines.adapter import Capability, Pages, Tokens, Transfer, TransferKind, Work
from kvmodel.engines.driver import Driver, Record, number_in, salt_in, tokens_in
from kvmodel.engines.mapping import Read
from kvmodel.traces.observed import Call, Verb

__all__ = ["AllocatorDriver"]


class AllocatorDriver(Driver):
    """Drives the bookkeeping of one pool. A request that is not waiting for remote writes is taken to read all of its tokens
    at any time."""

    verbs = (
        Verb("admit", "A request asks for pages for its prompt; the cache may have some of them.", request=True),
        Verb("arrived", "The remote writes for the request have landed.", request=True),
        Verb("extend", "The request asks for a place for one more token.", request=True),
        Verb("free", "The request ends and gives back its pages.", request=True),
        Verb("detach", "The request ends; its pages are held back.", request=True),
        Verb("release", "What was held back for the request goes back to the pool.", request=True),
        Verb("evict", "Entries of the cache index are dropped."),
        Verb("reset", "The whole cache index is dropped."),
    )
    needs: ClassVar[Mapping[str, Capability]] = {
        "arrived": Capability.REMOTE,
        "extend": Capability.EXTEND,
        "detach": Capability.DETACH,
        "release": Capability.DETACH,
        "evict": Capability.EVICT,
        "reset": Capability.RESET,
    }

    def __init__(self, adapter: Any, name: str, record: Record | None = None) -> None:
        self.live: dict[str, int] = {}  # requests that hold pages, with the number of tokens that are computed
        self.waiting: dict[str, Transfer] = {}  # remote writes in flight, by request
        self.held_back: list[str] = []
        self.ended: list[str] = []  # rejected or freed: they may come back
        super().__init__(adapter, name, record)

    def _operations(self) -> tuple[Sequence[Read], Sequence[Transfer], Sequence[Work]]:
        reads = [
            Read(request, self.requests.tokens[request], self.requests.salts[request], 0, self.live[request], self._table(request))
            for request in self.settled()
        ]
        return reads, tuple(self.waiting.values()), ()

    def _known(self) -> frozenset[str]:
        return frozenset(self.live)

    def _follows_spec(self) -> bool:
        return int(self.adapter.groups) == 1 and not self.observer.unknown

    def _table(self, request: str) -> Pages:
        pool = self.adapter.snapshot().pools[0]
        return Pages(pool.name, pool.tables.get(request, ()))

    def settled(self) -> list[str]:
        """The live requests that are not waiting for remote writes."""
        return [request for request in self.live if request not in self.waiting]

    def do(self, call: Call) -> bool:
        verb, request = str(call["verb"]), str(call.get("request", ""))
        match verb:
            case "admit" if request not in self.live and request not in self.held_back:
                known = self.requests.tokens.get(request)
                tokens = tokens_in(call) if known is None else known
                self.admit(request, tokens, salt_in(call), number_in(call, "external"), bool(call.get("remote")))
            case "arrived" if request in self.waiting:
                self.arrived(request)
            case "extend" if request in self.settled():
                self.extend(request, number_in(call, "token"))
            case "free" | "detach" if request in self.settled():
                self.end(request, detach=verb == "detach")
            case "release" if request in self.held_back:
                self.release(request)
            case "evict":
                self.evict(frozenset(cast("Sequence[int]", call.get("pages", ()))))
            case "reset":
                self.reset()
            case _:
                return False
        return True

    def admit(self, request: str, tokens: Tokens, salt: str | None, external: int, remote: bool) -> None:
        """A request asks for pages. `external` tokens at most come from elsewhere, as many as fill pages before the last token."""
        self.requests.tokens[request], self.requests.salts[request] = tokens, salt
        if request in self.ended:
            self.ended.remove(request)
        size = self.adapter.page_size
        remote = remote and self.can(Capability.REMOTE)
        wanted = min(external, (len(tokens) - 1) // size * size) if self.can(Capability.EXTERNAL) and not remote else 0
        call = {"verb": "admit", "request": request, "tokens": tokens, "salt": salt, "external": wanted, "remote": remote}
        with self._asking(call):
            admission = self.adapter.admit(request, tokens, salt, wanted, remote)
            keys = self.adapter.keys(request)
        if admission is None:
            self.ended.append(request)
            self._look({**call, "rejected": True})
            return
        self.requests.learn_keys(request, keys, self.memory)
        self.live[request] = len(tokens)
        first = admission.hit_tokens
        if remote:
            self.waiting[request] = Transfer(request, request, TransferKind.WRITE, tokens, salt, first, None, self._table(request))
        else:
            self._compute(request, first, len(tokens))
        self._look(call)

    def _compute(self, request: str, first: int, end: int) -> None:
        table = self._table(request)
        for shadow in (self.memory, self.ahead):
            shadow.compute(request, self.requests.tokens[request], self.requests.salts[request], first, end, table)

    def arrived(self, request: str) -> None:
        """The remote writes land, in the pages that were reserved for them, and the engine is told."""
        transfer = self.waiting.pop(request)
        assert transfer.target is not None
        for shadow in (self.memory, self.ahead):
            shadow.compute(request, transfer.tokens, transfer.salt, transfer.first, len(transfer.tokens), transfer.target)
        call = {"verb": "arrived", "request": request}
        with self._asking(call):
            self.adapter.arrived(request)
        self._look(call)

    def extend(self, request: str, token: int) -> None:
        """One more token."""
        call = {"verb": "extend", "request": request, "token": token}
        with self._asking(call):
            extended = self.adapter.extend(request, token)
        if not extended:
            self._look({**call, "rejected": True})
            return
        self.requests.tokens[request] += (token,)
        with self._asking(call):
            keys = self.adapter.keys(request)
        self.requests.learn_keys(request, keys, self.memory)
        computed = self.live[request]
        self.live[request] = computed + 1
        self._compute(request, computed, computed + 1)
        self._look(call)

    def end(self, request: str, *, detach: bool) -> None:
        """The request ends. Unless its pages are held back it may be admitted again."""
        call = {"verb": "detach" if detach else "free", "request": request}
        with self._asking(call):
            (self.adapter.detach if detach else self.adapter.free)(request)
        del self.live[request]
        (self.held_back if detach else self.ended).append(request)
        self._look(call)

    def release(self, request: str) -> None:
        """What was held back goes back."""
        self.held_back.remove(request)
        call = {"verb": "release", "request": request}
        with self._asking(call):
            self.adapter.release(request)
        self._look(call)

    def evict(self, pages: frozenset[int]) -> None:
        """Index entries are dropped; pages beyond the pool count from its start again."""
        pool = self.adapter.snapshot().pools[0]
        chosen = frozenset(page % pool.pages for page in pages) - pool.null
        call = {"verb": "evict", "pages": tuple(sorted(chosen))}
        with self._asking(call):
            self.adapter.evict(chosen)
        self._look(call)

    def reset(self) -> None:
        """The index is dropped, unless the engine refuses."""
        call: dict[str, object] = {"verb": "reset"}
        with self._asking(call):
            done = self.adapter.reset()
        self._look({**call, "rejected": not done})

    def drain(self) -> None:
        while self.waiting:
            self.arrived(next(iter(self.waiting)))
        while self.live:
            self.end(next(iter(self.live)), detach=False)
        while self.held_back:
            self.release(self.held_back[0])
