"""A reference allocator: pages of a pool, shared by prefix, counted, reused in the order in which they were given back."""

from collections import deque


class Allocator:
    """Each request has a page table. A full page can be found again under its key (the salt and all tokens up to its end)."""

    def __init__(self, pages: int, page_size: int) -> None:
        self.page_size = page_size
        self.free: deque[int] = deque(range(pages))  # unused pages, oldest first; what is in them can still be found
        self.references = [0] * pages
        self.tables: dict[str, list[int]] = {}
        self.index: dict[tuple[object, ...], int] = {}  # key of a full page -> page

    def keys(self, tokens: tuple[int, ...], salt: str | None) -> list[tuple[object, ...]]:
        size = self.page_size
        return [(salt, tokens[: end + size]) for end in range(0, len(tokens) - size + 1, size)]

    def admit(self, request: str, tokens: tuple[int, ...], salt: str | None) -> int | None:
        """Give the request pages for its tokens; how many tokens were found, or None: too few pages are free."""
        keys, hits = self.keys(tokens, salt), []
        for key in keys[: (len(tokens) - 1) // self.page_size]:  # the last token is always computed
            if key not in self.index:
                break
            hits.append(self.index[key])
        needed = -(-len(tokens) // self.page_size) - len(hits)
        if needed > len(self.free) - sum(self.references[page] == 0 for page in hits):
            return None
        for page in hits:
            if self.references[page] == 0:
                self.free.remove(page)
            self.references[page] += 1
        self.tables[request] = hits + [self.take() for _ in range(needed)]
        for key, page in zip(keys, self.tables[request], strict=False):
            self.index.setdefault(key, page)
        return len(hits) * self.page_size

    def take(self) -> int:
        """The oldest free page, which can no longer be found."""
        page = self.free.popleft()
        self.index = {key: found for key, found in self.index.items() if found != page}
        self.references[page] = 1
        return page

    def release(self, request: str) -> None:
        """The request ends. A page that nobody else holds is free, last page first."""
        for page in reversed(self.tables.pop(request)):
            self.references[page] -= 1
            if self.references[page] == 0:
                self.free.append(page)
