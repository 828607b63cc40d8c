"""Pages of a pool: who holds a page, whose data is in it, who is still writing or reading it.

The core that every other spec extends. A page has an owner (`holds`, what the allocator believes) *and* a content tag
(whose bytes are there now); the two part ways as soon as a page is freed, because freeing does not clean it.
"""

from kvmodel.language import (
    Flag,
    Function,
    Relation,
    Sort,
    Spec,
    action,
    anything,
    define,
    effect,
    flag,
    implies,
    initial,
    invariant,
    lemma,
    override,
    reachable,
    require,
    starts,
)


class Page(Sort):
    """A fixed-size piece of a KV pool (vLLM: a block)."""


class Request(Sort):
    """One request of one client. An identity, never used again: a resumed request is another one."""


class Pages(Spec):
    """The core: pages are allocated and given back, and one that is given back while a remote write or a read of it is
    in flight goes into quarantine until the operation has drained. What writes and reads is said by the specs that extend it.
    """

    zero_on_free: Flag = flag(False, kind="defence", doc="A page is overwritten with zeros when it goes back to the pool.")
    quarantine: Flag = flag(
        True, kind="defence", doc="A page that is given back while a remote write or read is in flight is held back, not reused."
    )
    quarantine_gives_up: Flag = flag(
        False, kind="hazard", doc="A quarantined page is reused after a deadline although its writer never confirmed that it stopped."
    )

    free: Relation[Page] = starts(True)
    "The page is in the allocator's free list."
    quarantined: Relation[Page]
    "The page was given back, and is held back because an operation on it is in flight."
    holds: Relation[Request, Page]
    "The page is in the request's page table."
    content: Function[Page, Request | None] = anything()
    "Ghost: whose bytes are in the page. None is blank."
    writing: Relation[Request, Page]
    "A remote write for the request is in flight to the page."
    written: Relation[Request, Page]
    "The page was written for the request since the request got it."
    reading: Relation[Request, Page]
    "A read of the page on behalf of the request is in flight: its page table was captured and it will look."

    @initial
    def leftovers(s, r: Request, p: Page) -> bool:
        """The pool starts blank: nobody has left data in a page."""
        return s.content[p] != r

    @define
    def live(s, r: Request, p: Page) -> bool:
        """The request may be given the page."""
        return True

    @define
    def held_for_nobody(s, r: Request, p: Page) -> bool:
        """The page is held for a request that nobody will ever finish."""
        return False

    @define
    def in_use(s, p: Page) -> bool:
        """A remote write to the page, or a read of it, is in flight."""
        return any(s.writing[r, p] or s.reading[r, p] for r in Request)

    @define
    def own_or_blank(s, r: Request, p: Page) -> bool:
        """Nobody else's data is in the page."""
        return s.content[p] in (None, r)

    @effect
    def take(s, r: Request, p: Page) -> None:
        """The allocator hands the page to the request, with whatever is in it."""
        s.free[p] = False
        s.holds[r, p] = True

    @effect
    def recycle(s, p: Page) -> None:
        """The page goes back to the free list; what is in it stays there unless the engine zeroes it."""
        s.free[p] = True
        if s.zero_on_free:
            s.content[p] = None

    @effect
    def forget(s, r: Request, p: Page) -> None:
        """The page leaves the request's page table."""
        s.holds[r, p] = False
        s.written[r, p] = False

    @effect
    def give_back(s, r: Request, p: Page) -> None:
        """The request gives the page back, perhaps while an operation on it is in flight."""
        if s.quarantine and s.in_use(p):
            s.quarantined[p] = True
        else:
            s.recycle(p)
        s.forget(r, p)

    @action
    def allocate(s, r: Request, p: Page) -> None:
        """The allocator gives a free page to a live request."""
        require(s.free[p], "free")
        require(s.live(r, p), "live")
        s.take(r, p)

    @action
    def abort(s, r: Request) -> None:
        """The request ends and gives back every page. Writes and reads in flight go on."""
        require(any(s.holds[r, p] for p in Page), "holds pages")
        for p in Page:
            if s.holds[r, p]:
                s.give_back(r, p)

    @action
    def drain(s, p: Page) -> None:
        """The last operation on a quarantined page has ended, so it goes back to the free list."""
        require(s.quarantined[p], "quarantined")
        require(not s.in_use(p), "drained")
        s.quarantined[p] = False
        s.recycle(p)

    @action
    def give_up(s, p: Page) -> None:
        """The deadline of a quarantined page passes: it goes back to the free list whatever is in flight."""
        require(s.quarantine_gives_up and s.quarantined[p], "deadline passed")
        s.quarantined[p] = False
        s.recycle(p)

    @invariant
    def isolated_read(s, r: Request, p: Page) -> bool:
        """Every page that a request reads is held by it, and is blank or has the request's own data in it."""
        return implies(s.reading[r, p], s.holds[r, p] and s.own_or_blank(r, p))

    @invariant
    def fresh_read(s, r: Request, p: Page) -> bool:
        """What a request reads was written for it since it got the page."""
        return implies(s.reading[r, p], s.written[r, p] and s.content[p] == r)

    @invariant
    def isolated_write(s, r: Request, p: Page) -> bool:
        """While a write for a request is in flight, the page is the request's own or held back: so it is when the write lands."""
        return implies(s.writing[r, p], s.holds[r, p] or s.quarantined[p])

    @invariant
    def exclusive_owner(s, r: Request, q: Request, p: Page) -> bool:
        """A page has at most one owner."""
        return implies(s.holds[r, p] and s.holds[q, p], r == q)

    @invariant
    def no_use_after_free(s, r: Request, q: Request, p: Page) -> bool:
        """No page is handed to a request while another one's write to it, or read of it, is in flight."""
        return implies(s.holds[r, p] and (s.writing[q, p] or s.reading[q, p]), r == q)

    @invariant
    def pages_conserved(s, p: Page) -> bool:
        """Each page is free, quarantined or held, one of the three; and whatever is held is held for a request that can end."""
        return (
            (s.free[p] or s.quarantined[p] or any(s.holds[r, p] for r in Request))
            and not (s.free[p] and s.quarantined[p])
            and not any(s.holds[r, p] and (s.free[p] or s.quarantined[p] or s.held_for_nobody(r, p)) for r in Request)
        )

    # -- what helps a proof at any size

    @lemma
    def in_flight(s, r: Request, p: Page) -> bool:
        """What is known of an operation in flight. Nothing here begins one."""
        return not s.writing[r, p] and not s.reading[r, p]

    @lemma
    def written_is_held(s, r: Request, p: Page) -> bool:
        """What was written for a request since it got a page is forgotten when the page leaves its page table."""
        return implies(s.written[r, p], s.holds[r, p])

    @lemma
    def written_is_own(s, r: Request, p: Page) -> bool:
        """With a quarantine that waits, nobody overwrites what was written for the holder of a page."""
        return implies(s.written[r, p] and s.quarantine and not s.quarantine_gives_up, s.content[p] == r)


class OnePool(Pages, variant="one-pool"):
    """The core with the shortest life of a page: allocated, written from afar, read, given back."""

    @action
    def post(s, r: Request, p: Page) -> None:
        """A remote write to a page that the request holds is posted; nothing can cancel it."""
        require(s.holds[r, p], "held")
        require(not s.written[r, p] and not s.writing[r, p], "not yet written")
        s.writing[r, p] = True

    @action
    def land(s, r: Request, p: Page) -> None:
        """The write lands, whoever owns the page by now."""
        require(s.writing[r, p], "in flight")
        s.content[p] = r
        s.writing[r, p] = False
        if s.holds[r, p]:
            s.written[r, p] = True

    @action
    def begin_read(s, r: Request, p: Page) -> None:
        """A read of a written page begins."""
        require(s.written[r, p], "written")
        s.reading[r, p] = True

    @action
    def end_read(s, r: Request, p: Page) -> None:
        """The read ends."""
        require(s.reading[r, p], "in flight")
        s.reading[r, p] = False

    @override
    @action
    def abort(s, r: Request) -> None:
        """The request ends between two reads and gives back every page."""
        require(not any(s.reading[r, p] for p in Page), "not reading")
        super().abort(r)

    @override
    @lemma
    def in_flight(s, r: Request, p: Page) -> bool:
        """What is being read was written for the reader."""
        return implies(s.reading[r, p], s.written[r, p])

    @reachable
    def can_be_read(s, r: Request, p: Page) -> bool:
        """A page can be read by the request that it was written for."""
        return s.reading[r, p] and s.content[p] == r


class OnePoolWithoutQuarantine(OnePool, variant="one-pool-without-quarantine"):
    """The same pool, where an aborted request's pages are free at once."""

    quarantine = False
