"""Specs that use what the shipped ones do not use together: each was followed wrongly once."""

from enum import Enum, auto

from kvmodel.language import (
    Counter,
    Function,
    Number,
    Relation,
    Scalar,
    Sort,
    Spec,
    action,
    count,
    counter,
    final,
    implies,
    invariant,
    partition,
    require,
    starts,
)


class Page(Sort):
    """A page."""


class Request(Sort):
    """A request."""


class Pool(Enum):
    """Two pools."""

    A = auto()
    B = auto()


class Where(Enum):
    """Two pools, in letters of both kinds."""

    Gpu = auto()
    host = auto()


class Toggle(Spec):
    """A relation is written with a value that is not a constant, for several pages."""

    pool: Function[Page, Pool] = partition()
    held: Relation[Request, Page]
    dirty: Relation[Page]

    @action
    def soil(s, p: Page) -> None:
        """The page gets dirty."""
        s.dirty[p] = True

    @action
    def take(s, r: Request, p: Page) -> None:
        """The request gets the page."""
        s.held[r, p] = True

    @action
    def sync(s, r: Request, p: Page) -> None:
        """The request holds the page if it is dirty."""
        s.held[r, p] = s.dirty[p]

    @action
    def close(s, r: Request, p: Page) -> None:
        """The page is not held."""
        require(not s.held[r, p], "not held")

    @invariant
    def never(s, r: Request, p: Page) -> bool:
        """What is held is clean."""
        return not (s.held[r, p] and s.dirty[p])


class Counts(Spec):
    """A property counts what is true from the start."""

    pool: Function[Page, Pool] = partition()
    free: Relation[Page] = starts(True)
    red: Relation[Page]

    @action
    def paint(s, p: Page) -> None:
        """The page gets red."""
        s.red[p] = True

    @action
    def take(s, p: Page) -> None:
        """The page is taken."""
        s.free[p] = False

    @invariant
    def few_free(s) -> bool:
        """At most four pages are free."""
        return count(s.free[p] for p in Page) <= 4


class Ended(Spec):
    """A property counts requests that have ended."""

    pool: Function[Page, Pool] = partition()
    done: Relation[Request]

    @action
    def finish(s, r: Request) -> None:
        """The request ends."""
        s.done[r] = True

    @action
    def begin(s, r: Request) -> None:
        """The request begins before any has ended."""
        require(not any(s.done[q] for q in Request), "nobody is done")

    @invariant
    def few(s) -> bool:
        """Two requests end at most."""
        return count(s.done[r] for r in Request) <= 2

    @final
    def over(s, r: Request) -> bool:
        """The request has ended."""
        return s.done[r]


class Lit(Spec):
    """A property has to do with a request that has ended, and with what changes later."""

    pool: Function[Page, Pool] = partition()
    done: Relation[Request]
    lit: Relation[Page]

    @action
    def finish(s, r: Request) -> None:
        """The request ends."""
        s.done[r] = True

    @action
    def light(s, p: Page) -> None:
        """The page is lit."""
        s.lit[p] = True

    @invariant
    def dark(s, r: Request, p: Page) -> bool:
        """Where a request has ended no page is lit."""
        return implies(s.done[r], not s.lit[p])

    @final
    def over(s, r: Request) -> bool:
        """The request has ended."""
        return s.done[r]


class Everyone(Spec):
    """An action writes to every request, also to those that have no name yet."""

    pool: Function[Page, Pool] = partition()
    limit: Scalar
    prompt: Number[Request]
    small: Relation[Request]

    @action
    def sort_out(s) -> None:
        """Every request is measured."""
        for r in Request:
            if s.prompt[r] <= s.limit:
                s.small[r] = True

    @action
    def big(s, r: Request) -> None:
        """A request is not small."""
        require(not s.small[r], "big")


class Asserting(Spec):
    """An action asserts something of its page."""

    pool: Function[Page, Pool] = partition()
    red: Relation[Page]
    blue: Relation[Page]

    @action
    def paint(s, p: Page) -> None:
        """The page gets red."""
        s.red[p] = True

    @action
    def look(s, p: Page) -> None:
        """The page gets blue."""
        assert not s.red[p], "clean"
        s.blue[p] = True


class Hoist(Spec):
    """An update over pages has to do with another request than the event's."""

    pool: Function[Page, Pool] = partition()
    held: Relation[Request, Page]
    last: Function[Page, Request | None]
    red: Relation[Page]

    @action
    def take(s, r: Request, p: Page) -> None:
        """The request gets the page."""
        s.held[r, p] = True
        s.last[p] = r

    @action
    def mark(s, r: Request, p: Page) -> None:
        """What the request and the page's last owner both hold gets red."""
        for q in Page:
            if s.held[r, q] and s.last[p] is not None and s.held[s.last[p], q]:
                s.red[q] = True

    @invariant
    def plain(s, p: Page) -> bool:
        """No page is red."""
        return not s.red[p]


class Owned(Spec):
    """A property reads what the request in a variable holds."""

    pool: Function[Page, Pool] = partition()
    held: Relation[Request, Page]
    last: Function[Page, Request | None]
    red: Relation[Page]
    free: Relation[Page]

    @action
    def paint(s, p: Page) -> None:
        """The page gets red."""
        s.red[p] = True

    @invariant
    def owned(s, p: Page) -> bool:
        """A red page is held by its last owner."""
        return not s.red[p] or (s.last[p] is not None and s.held[s.last[p], p])


class Twice(Spec):
    """An action is about two requests."""

    pool: Function[Page, Pool] = partition()
    done: Relation[Request]

    @action
    def finish(s, r: Request) -> None:
        """The request ends."""
        s.done[r] = True

    @action
    def share(s, r: Request, other: Request) -> None:
        """Two requests share something."""
        require(not s.done[r], "lives")

    @final
    def over(s, r: Request) -> bool:
        """The request has ended."""
        return s.done[r]


class Taken(Spec):
    """A step for an earlier page of an event violates something, and a later one is refused."""

    pool: Function[Page, Pool] = partition()
    held: Relation[Request, Page]
    uses: Counter[Request] = counter(0, 2)

    @action
    def take(s, r: Request, p: Page) -> None:
        """The request gets the page."""
        require(not s.held[r, p], "not held yet")
        s.held[r, p] = True
        s.uses[r] = s.uses[r] + 1

    @invariant
    def exclusive(s, r: Request, q: Request, p: Page) -> bool:
        """A page has one owner."""
        return implies(s.held[r, p] and s.held[q, p], r == q)


class Unseen(Spec):
    """A count for each request and page, beside what it holds; a page is readied by nobody in particular."""

    pool: Function[Page, Pool] = partition()
    held: Relation[Request, Page]
    ready: Relation[Request, Page]
    uses: Counter[Request, Page] = counter(0, 3)

    @action
    def prepare(s, r: Request, p: Page) -> None:
        """The page is made ready."""
        require(not s.held[r, p], "not held")
        s.ready[r, p] = True

    @action
    def take(s, r: Request, p: Page) -> None:
        """The request gets a page that is ready."""
        require(not s.held[r, p], "not held")
        s.held[r, p] = True

    @action
    def use(s, r: Request, p: Page) -> None:
        """The request uses a page that was made ready."""
        require(s.held[r, p] and s.uses[r, p] < 3, "held")
        s.uses[r, p] = s.uses[r, p] + 1

    @action
    def drop(s, r: Request, p: Page) -> None:
        """The request gives back a page."""
        require(s.held[r, p], "held")
        s.held[r, p] = False


class Mixed(Spec):
    """The members of the partition are not in capitals."""

    pool: Function[Page, Where] = partition()
    red: Relation[Page]

    @action
    def paint(s, p: Page) -> None:
        """The page gets red."""
        s.red[p] = True

    @invariant
    def plain(s, p: Page) -> bool:
        """A page on the host is not red."""
        return implies(s.pool[p] == Where.host, not s.red[p])
