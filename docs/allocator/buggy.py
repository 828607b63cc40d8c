"""The reference allocator with one bug."""

from allocator import Allocator


class ForgetsTheCount(Allocator):
    """A request that ends frees its pages, whoever else holds them."""

    def release(self, request: str) -> None:
        for page in reversed(self.tables.pop(request)):
            self.references[page] = 0
            self.free.append(page)
