"""KB-07, first_error_frees (https://github.com/vllm-project/vllm/pull/56104): several ranks write one page."""

from kvmodel.language import Relation, Sort, action, define, override, require
from kvmodel.specs.pages import OnePool, Page, Request


class Rank(Sort):
    """A remote rank, with a write handle of its own."""


class FirstErrorFrees(OnePool):
    """The first handle that fails counts as the end of the transfer, though the others keep writing."""

    flying: Relation[Rank, Request, Page]
    failed: Relation[Request, Page]

    @override
    @define
    def in_use(s, p: Page) -> bool:
        """What the engine believes: after a failure nobody writes."""
        return any((s.writing[r, p] and not s.failed[r, p]) or s.reading[r, p] for r in Request)

    @override
    @action
    def post(s, r: Request, p: Page) -> None:
        super().post(r, p)
        s.flying[:, r, p] = True
        s.failed[r, p] = False

    @action
    def part_fails(s, k: Rank, r: Request, p: Page) -> None:
        require(s.flying[k, r, p], "in flight")
        s.flying[k, r, p] = False
        s.failed[r, p] = True

    @action
    def part_lands(s, k: Rank, r: Request, p: Page) -> None:
        require(s.flying[k, r, p], "in flight")
        s.flying[k, r, p] = False
        s.content[p] = r

    @override
    @action
    def land(s, r: Request, p: Page) -> None:
        require(not any(s.flying[k, r, p] for k in Rank), "every part has ended")
        super().land(r, p)
