"""KB-31, free_list_appends_duplicates (https://github.com/vllm-project/vllm/issues/42571): a page twice in the free list."""

from kvmodel.language import Counter, Relation, action, counter, effect, invariant, override, require
from kvmodel.specs.pages import OnePool, Page, Request


class FreeListAppendsDuplicates(OnePool):
    """A request's table may name a page twice, and freeing the table appends the page once for each name."""

    entries: Counter[Page] = counter(0, 2, starts=1)
    "How often the page stands in the free list."
    named_twice: Relation[Request, Page]

    @action
    def name_again(s, r: Request, p: Page) -> None:
        """The page leaves the request's window and comes back: its table now names it twice."""
        require(s.holds[r, p], "held")
        s.named_twice[r, p] = True

    @override
    @effect
    def take(s, r: Request, p: Page) -> None:
        s.free[p] = s.entries[p] > 1
        s.entries[p] -= 1
        s.holds[r, p] = True

    @override
    @effect
    def recycle(s, p: Page) -> None:
        super().recycle(p)
        s.entries[p] += 2 if any(s.named_twice[r, p] for r in Request) else 1

    @override
    @effect
    def forget(s, r: Request, p: Page) -> None:
        super().forget(r, p)
        s.named_twice[r, p] = False

    @invariant
    def no_double_free(s, p: Page) -> bool:
        """A page is in the free list at most once."""
        return s.entries[p] <= 1
