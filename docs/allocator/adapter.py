"""The adapter of the reference allocator: it translates, and asserts nothing."""

from allocator import Allocator

from kvmodel.engines.adapter import Admission, Capability, Tokens
from kvmodel.engines.snapshot import PoolSnapshot, Snapshot


class Adapter:
    """What `kvmodel.engines.machine` drives."""

    engine, version, groups = "reference", "1", 1
    capabilities = frozenset({Capability.SHARE, Capability.SALT})

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator
        self.page_size = allocator.page_size
        self.requests: dict[str, tuple[Tokens, str | None]] = {}

    def admit(self, request: str, tokens: Tokens, salt: str | None, external: int, remote: bool) -> Admission | None:
        self.requests[request] = tokens, salt
        found = self.allocator.admit(request, tokens, salt)
        return None if found is None else Admission(found)

    def free(self, request: str) -> None:
        self.allocator.release(request)

    def keys(self, request: str) -> tuple[tuple[str, ...], ...]:
        return (tuple(map(repr, self.allocator.keys(*self.requests[request]))),)

    def snapshot(self) -> Snapshot:
        mine = self.allocator
        index: dict[str, frozenset[int]] = {repr(key): frozenset({page}) for key, page in mine.index.items()}
        tables = {request: (tuple(table),) for request, table in mine.tables.items()}
        pool = PoolSnapshot("", len(mine.references), tuple(mine.free), tables, references=dict(enumerate(mine.references)), index=index)
        return Snapshot((pool,))
