"""A pool with a prefix cache: pages are shared by requests that begin alike, counted, and found again after they were freed.

The rules are those of vLLM's block pool (0.33.0, `v1/core/block_pool.py` and `kv_cache_manager.py`): a page that is full goes
into an index under a key that stands for its token prefix; a request that begins with that prefix gets the page itself; a
page whose last reference goes returns to the free list and *stays in the index* until it is handed out for something else.
Real engines are judged by the properties of this spec: `kvmodel.engines.mapping` makes its states from their snapshots.
"""

from kvmodel.language import (
    Counter,
    Flag,
    Function,
    Relation,
    Sort,
    action,
    assume,
    count,
    counter,
    define,
    effect,
    final,
    flag,
    implies,
    invariant,
    lemma,
    override,
    reachable,
    require,
    rigid,
    starts,
)
from kvmodel.specs.pages import OnePool, Page, Request


class Prefix(Sort):
    """A token prefix under one salt that ends where a page ends: what a key of the index stands for."""


class CachedPages(OnePool):
    """The sound design: a key goes when its page is reused, the last reference frees, and what is in flight is waited for."""

    sizes = {"Request": 2, "Page": 2, "Prefix": 1}

    evicts_on_reuse: Flag = flag(True, kind="defence", doc="A cached page that is handed out for something else loses its key first.")
    keys_carry_salt: Flag = flag(
        True, kind="defence", doc="The key of a page includes its tenant's salt, so that equal tokens of another tenant do not find it."
    )
    indexes_after_arrival: Flag = flag(
        True, kind="defence", doc="A page is indexed only when its data is there: a remote write has landed, a compute write has run."
    )
    counts_references: Flag = flag(True, kind="defence", doc="A page goes back to the free list only when its last reference goes.")
    hits_leave_free_list: Flag = flag(True, kind="defence", doc="A cached page that is shared is taken out of the free list.")
    takes_hits_first: Flag = flag(
        True, kind="defence", doc="An admission takes the pages that it found in the cache before it takes new ones from the free list."
    )
    frees_once: Flag = flag(True, kind="defence", doc="What was given back is not given back again.")
    defers_free: Flag = flag(
        True, kind="defence", doc="A page that is given back while a compute write to it is queued is held back until that has run."
    )

    null: Relation[Page] = rigid()
    "The page stands for none: it is taken out of the free list before service and never handed out (vLLM: block 0)."
    begins_with: Relation[Request, Prefix] = rigid()
    "The request's tokens begin with the prefix, under the same salt."
    entries: Counter[Page] = counter(0, 8, starts=1)
    "How often the page stands in the free list: a set cannot show a double free."
    references: Counter[Page] = counter(0, 8)
    "The allocator's reference count of the page."
    detached: Relation[Request, Page]
    "The request gave the page back, and its reference is kept until its operations in flight have drained."
    key: Function[Page, Prefix | None]
    "The prefix under whose key the cache index finds the page."
    data: Function[Page, Prefix | None]
    "Ghost: the whole KV of this prefix is in the page."
    twice: Relation[Request, Page]
    "The page stands at two places of the request's page tables, for example of two cache groups."
    pending: Relation[Request, Page]
    "A compute write for the request to the page is queued: it runs before later work of that stream, not before remote operations."
    known: Relation[Request] = starts(True)
    "The engine knows the request. What is held for a request that it forgot is held for nobody."

    @assume
    def one_null_page(s, p: Page, q: Page) -> bool:
        """At most one page stands for none."""
        return implies(s.null[p] and s.null[q], p == q)

    @assume
    def some_page(s) -> bool:
        """There is a page to hand out."""
        return any(not s.null[p] for p in Page)

    @final
    def ended(s, r: Request, p: Page) -> bool:
        """Every request has ended, and nothing is held back for one."""
        return not s.known[r] and not s.detached[r, p]

    @override
    @define
    def live(s, r: Request, p: Page) -> bool:
        """The engine knows the request."""
        return s.known[r]

    @override
    @define
    def held_for_nobody(s, r: Request, p: Page) -> bool:
        """The engine forgot the request."""
        return not s.known[r]

    @define
    def keeps(s, r: Request, p: Page) -> bool:
        """The request has a reference to the page: it holds it, or the page is held back on its account."""
        return s.holds[r, p] or s.detached[r, p]

    @define
    def used(s, p: Page) -> bool:
        """Somebody has a reference to the page."""
        return any(s.keeps(r, p) for r in Request)

    @define
    def in_flight_for(s, r: Request, p: Page) -> bool:
        """A read or a write of the page for the request is in flight or queued."""
        return s.writing[r, p] or s.reading[r, p] or s.pending[r, p]

    @define
    def held_back(s, r: Request, p: Page) -> bool:
        """The page is not free yet when the request gives it back."""
        return (s.quarantine and (s.writing[r, p] or s.reading[r, p])) or (s.defers_free and s.pending[r, p])

    @define
    def entitled(s, r: Request, p: Page) -> bool:
        """The page has the KV of a prefix that the request begins with, whoever computed it."""
        return any(s.data[p] == k and s.begins_with[r, k] for k in Prefix)

    @define
    def has_own(s, r: Request, p: Page) -> bool:
        """What is in the page is the request's own: written for it, or KV that it would have computed itself."""
        return s.content[p] == r or s.entitled(r, p)

    @override
    @define
    def own_or_blank(s, r: Request, p: Page) -> bool:
        """Nobody else's data is in the page, or only KV of a prefix that the request begins with."""
        return super().own_or_blank(r, p) or s.entitled(r, p)

    @define
    def may_share(s, r: Request, q: Request, p: Page) -> bool:
        """The page is indexed under, or has the KV of, a prefix that both requests begin with."""
        return any(s.begins_with[r, k] and s.begins_with[q, k] and (s.key[p] == k or s.data[p] == k) for k in Prefix)

    # -- what happens to one page

    @override
    @effect
    def take(s, r: Request, p: Page) -> None:
        """The page leaves the free list and loses its key; the count goes up to one. What is in it stays."""
        if s.holds[r, p]:
            s.twice[r, p] = True
        s.free[p] = s.entries[p] > 1
        s.entries[p] -= 1
        s.references[p] += 1
        s.holds[r, p] = True
        if s.evicts_on_reuse:
            s.key[p] = None

    @override
    @effect
    def recycle(s, p: Page) -> None:
        """The page goes to the free list. It stays in the index, with what is in it, unless the engine zeroes it."""
        s.free[p] = True
        s.entries[p] += 1 if s.frees_once else 2
        if s.zero_on_free:
            s.content[p] = None
            s.data[p] = None
            s.key[p] = None

    @effect
    def drop_reference(s, r: Request, p: Page) -> None:
        """The count goes down by one; the last reference frees the page."""
        s.references[p] -= 1
        if not s.counts_references or not any(s.keeps(q, p) for q in Request if q != r):
            s.recycle(p)

    @override
    @effect
    def forget(s, r: Request, p: Page) -> None:
        """The page leaves the request's page tables."""
        super().forget(r, p)
        s.twice[r, p] = False

    @override
    @effect
    def give_back(s, r: Request, p: Page) -> None:
        """The request gives the page back. With an operation of the request in flight, its reference is kept."""
        if s.held_back(r, p):
            s.detached[r, p] = True
            s.quarantined[p] = True
            s.holds[r, p] = False
            s.twice[r, p] = False
        else:
            s.drop_reference(r, p)
            s.forget(r, p)

    @effect
    def let_go(s, r: Request, p: Page) -> None:
        """What was held back on the request's account is so no longer."""
        s.drop_reference(r, p)
        s.quarantined[p] = any(s.detached[q, p] for q in Request if q != r)
        s.detached[r, p] = False
        s.written[r, p] = False

    # -- the allocator

    @action
    def set_aside(s, p: Page) -> None:
        """Before service, the null page is taken out of the free list."""
        require(s.null[p] and s.free[p], "null page in the free list")
        s.free[p] = False
        s.entries[p] -= 1

    @override
    @action
    def allocate(s, r: Request, p: Page) -> None:
        """The allocator gives a free page to a request; if it was cached, it is evicted. The null page was set aside before."""
        require(not any(s.null[q] and s.free[q] for q in Page), "in service")
        super().allocate(r, p)

    @action
    def hit(s, r: Request, p: Page, k: Prefix) -> None:
        """The index has a page for a prefix of the request: the request shares it, and a free one leaves the free list."""
        require(s.key[p] == k, "indexed")
        require(s.begins_with[r, k] or not s.keys_carry_salt, "begins with it")
        require(s.live(r, p), "live")
        require(not s.holds[r, p], "not held")
        if s.hits_leave_free_list:
            s.free[p] = False
            s.entries[p] = 0
        s.references[p] += 1
        s.holds[r, p] = True
        s.written[r, p] = True

    @action
    def hit_and_allocate(s, r: Request, p: Page, k: Prefix) -> None:
        """One admission finds a free page for one cache group and, before that left the free list, is given the same page
        as a new one for another group."""
        require(not s.takes_hits_first and s.free[p] and s.key[p] == k and s.begins_with[r, k], "found, and still free")
        require(s.live(r, p), "live")
        s.free[p] = False
        s.entries[p] -= 1
        s.references[p] += 2
        s.holds[r, p] = True
        s.twice[r, p] = True
        s.written[r, p] = True
        if s.evicts_on_reuse:
            s.key[p] = None

    @action
    def index(s, r: Request, p: Page, k: Prefix) -> None:
        """A page of the request is full, and goes into the index under its own prefix."""
        require(s.holds[r, p] and s.begins_with[r, k] and s.data[p] in (None, k), "held, and full with a prefix of the request")
        require(s.written[r, p] or not s.indexes_after_arrival, "arrived")
        require(s.key[p] is None, "not indexed")
        s.key[p] = k
        if s.written[r, p] and s.content[p] == r:
            s.data[p] = k

    @action
    def evict(s, p: Page) -> None:
        """The key of a page is dropped from the index. That frees nothing."""
        require(s.key[p] is not None, "indexed")
        s.key[p] = None

    @action
    def reset(s) -> None:
        """The whole index is dropped, unless a page is used."""
        require(not any(s.used(p) for p in Page), "nothing used")
        require(any(s.key[p] is not None for p in Page), "something indexed")
        for p in Page:
            s.key[p] = None

    # -- what is computed, written and read

    @action
    def fill(s, r: Request, p: Page) -> None:
        """A compute write to a page of the request is queued."""
        require(s.holds[r, p], "held")
        require(not s.written[r, p] and not s.writing[r, p], "not yet written")
        require(not any(s.pending[q, p] for q in Request), "nothing queued before")
        s.pending[r, p] = True

    @action
    def compute(s, r: Request, p: Page) -> None:
        """The queued write runs, whoever owns the page by now."""
        require(s.pending[r, p], "queued")
        s.content[p] = r
        s.data[p] = None
        s.pending[r, p] = False
        if s.holds[r, p]:
            s.written[r, p] = True

    @override
    @action
    def post(s, r: Request, p: Page) -> None:
        """A remote write to a page that the request holds is posted; nothing can cancel it."""
        super().post(r, p)
        require(not s.pending[r, p], "not computed here")

    @override
    @action
    def land(s, r: Request, p: Page) -> None:
        """The remote write lands, whoever owns the page by now."""
        super().land(r, p)
        s.data[p] = None

    @override
    @action
    def begin_read(s, r: Request, p: Page) -> None:
        """A read begins: by a forward pass, or by a remote engine that has been given the request's pages."""
        super().begin_read(r, p)
        require(s.holds[r, p], "held")

    # -- the end of a request

    @action
    def release(s, r: Request) -> None:
        """The request has finished and gives back every page; nothing is in flight. What is indexed stays in the index."""
        require(any(s.holds[r, p] for p in Page), "holds pages")
        require(not any(s.in_flight_for(r, p) for p in Page), "nothing in flight")
        s.known[r] = False
        for p in Page:
            if s.holds[r, p]:
                s.give_back(r, p)

    @override
    @action
    def abort(s, r: Request) -> None:
        """The request ends with operations in flight, and gives back every page: its client went away, or (on a prefill node)
        it is finished and its pages are leased to a remote reader."""
        require(any(s.in_flight_for(r, p) for p in Page), "something in flight")
        require(s.known[r], "known")
        s.known[r] = False
        for p in Page:
            if s.holds[r, p]:
                s.give_back(r, p)

    @override
    @action
    def drain(s, r: Request, p: Page) -> None:  # type: ignore[override]  # the reference of one request
        """The last operation of the request on a page that was held back has ended, so its reference goes."""
        require(s.detached[r, p], "held back")
        require(not s.in_flight_for(r, p), "drained")
        s.let_go(r, p)

    @override
    @action
    def give_up(s, r: Request, p: Page) -> None:  # type: ignore[override]  # the reference of one request
        """The deadline of a page that was held back (a lease) passes: its reference goes whatever is in flight."""
        require(s.quarantine_gives_up and s.detached[r, p] and s.in_flight_for(r, p), "deadline passed")
        s.let_go(r, p)

    # -- what is promised

    @override
    @invariant
    def isolated_read(s, r: Request, p: Page) -> bool:
        """Every page that a request reads is held by it, or held back on its account, and has no data that is not for it."""
        return implies(s.reading[r, p], s.keeps(r, p) and s.own_or_blank(r, p))

    @override
    @invariant
    def fresh_read(s, r: Request, p: Page) -> bool:
        """What a request reads was written for it since it got the page, or is KV of a prefix that it begins with."""
        return implies(s.reading[r, p], s.written[r, p] and s.has_own(r, p))

    @override
    @invariant
    def isolated_write(s, r: Request, p: Page) -> bool:
        """While a remote write for a request is in flight, the page is the request's own or held back on its account, and no
        compute write of another request to it is queued: a remote write is ordered before nothing."""
        return implies(s.writing[r, p], s.keeps(r, p) and all(implies(s.pending[q, p], q == r) for q in Request))

    @override
    @invariant
    def exclusive_owner(s, r: Request, q: Request, p: Page) -> bool:
        """A page stands at one place of a request's page tables, and two requests share only what both begin with."""
        return implies(s.keeps(r, p) and s.keeps(q, p), not s.twice[r, p] and (r == q or s.may_share(r, q, p)))

    @override
    @invariant
    def no_use_after_free(s, r: Request, q: Request, p: Page) -> bool:
        """While a request has a page, another one reads it only as one who shares it, and does not write it from afar."""
        return implies(
            s.holds[r, p] and (s.writing[q, p] or s.reading[q, p]), r == q or (s.keeps(q, p) and not s.writing[q, p])
        )

    @override
    @invariant
    def pages_conserved(s, p: Page) -> bool:
        """Each page is free or used, not both, and what is held is held for a request that can end. Once pages are handed out,
        the null page is neither, and it is never indexed."""
        return (
            (s.free[p] or s.used(p) or s.null[p])
            and not (s.free[p] and s.used(p))
            and s.quarantined[p] == any(s.detached[r, p] for r in Request)
            and s.free[p] == (s.entries[p] > 0)
            and not any(s.holds[r, p] and s.held_for_nobody(r, p) for r in Request)
            and implies(s.null[p], not s.used(p) and s.key[p] is None and not (s.free[p] and any(s.used(q) for q in Page)))
        )

    @invariant
    def no_double_free(s, p: Page) -> bool:
        """A page stands in the free list at most once, and its count is the number of requests that have it."""
        return (
            s.entries[p] <= 1
            and s.references[p] == count(s.holds[r, p] for r in Request) + count(s.detached[r, p] for r in Request)
        )

    @invariant
    def index_matches_content(s, p: Page, k: Prefix) -> bool:
        """A page that the index finds under a key has the KV of the prefix that the key stands for."""
        return implies(s.key[p] == k, s.data[p] == k)

    @reachable
    def can_be_shared(s, r: Request, q: Request, p: Page) -> bool:
        """Two requests can read one page."""
        return r != q and s.reading[r, p] and s.reading[q, p]

    # -- what helps a proof at any size

    @define
    def sound(s) -> bool:
        """Every defence is there, and no deadline passes."""
        return (
            s.quarantine
            and not s.quarantine_gives_up
            and s.evicts_on_reuse
            and s.keys_carry_salt
            and s.indexes_after_arrival
            and s.counts_references
            and s.hits_leave_free_list
            and s.takes_hits_first
            and s.frees_once
            and s.defers_free
        )

    @override
    @lemma
    def in_flight(s, r: Request, p: Page) -> bool:
        """With pages held back, whoever has something in flight has the page, and what is being read was written."""
        return implies(
            s.quarantine and not s.quarantine_gives_up,
            implies(s.writing[r, p] or s.reading[r, p], s.keeps(r, p)) and implies(s.reading[r, p], s.written[r, p]),
        ) and implies(s.defers_free and not s.quarantine_gives_up and s.pending[r, p], s.keeps(r, p))

    @override
    @lemma
    def written_is_held(s, r: Request, p: Page) -> bool:
        """What was written for a request since it got a page is forgotten when its reference goes."""
        return implies(s.written[r, p], s.keeps(r, p))

    @override
    @lemma
    def written_is_own(s, r: Request, p: Page) -> bool:
        """Nobody overwrites what was written for a request that has the page."""
        return implies(s.sound() and s.written[r, p], s.has_own(r, p))

    @lemma
    def forgotten(s, r: Request, p: Page) -> bool:
        """Pages are held for requests that the engine knows, and held back for those that have ended."""
        return implies(s.holds[r, p], s.known[r]) and implies(s.detached[r, p], not s.known[r])

    @lemma
    def set_aside_before_service(s, p: Page, q: Page) -> bool:
        """Nothing is indexed until the null page is set aside."""
        return implies(s.null[p] and s.free[p], s.key[q] is None)

    @lemma
    def at_one_place(s, r: Request, p: Page) -> bool:
        """No page stands twice in the tables of a request."""
        return implies(s.sound(), not s.twice[r, p])

    @lemma
    def one_write(s, r: Request, p: Page) -> bool:
        """A page is written for a request once: from afar or by a computation."""
        return implies(
            s.sound() and (s.writing[r, p] or s.pending[r, p]), not s.written[r, p] and not (s.writing[r, p] and s.pending[r, p])
        )

    @lemma
    def indexed_is_settled(s, r: Request, p: Page) -> bool:
        """No write to an indexed page is in flight, and whoever has it has its data."""
        return implies(
            s.sound() and s.key[p] is not None,
            not s.writing[r, p] and not s.pending[r, p] and implies(s.keeps(r, p), s.written[r, p]),
        )

    @lemma
    def writes_alone(s, r: Request, q: Request, p: Page) -> bool:
        """A page that is being written has one request."""
        return implies(s.sound() and (s.writing[r, p] or s.pending[r, p]) and s.keeps(q, p), r == q)

    @lemma
    def shared_is_written(s, r: Request, q: Request, p: Page) -> bool:
        """A page with two requests has KV of a prefix that both begin with."""
        return implies(
            s.sound() and r != q and s.keeps(r, p) and s.keeps(q, p),
            s.written[r, p] and any(s.data[p] == k and s.begins_with[r, k] and s.begins_with[q, k] for k in Prefix),
        )

    @lemma
    def data_is_of_its_writer(s, r: Request, p: Page, k: Prefix) -> bool:
        """The KV in a page is of a prefix of the request that wrote it."""
        return implies(s.sound() and s.content[p] == r and s.data[p] == k, s.begins_with[r, k])


class Uncounted(CachedPages, variant="uncounted"):
    """The same pool, with nothing promised of reference counts: an exact count has no meaning for a proof at any size, and
    everything else is proved."""

    @override
    @invariant
    def no_double_free(s, p: Page) -> bool:
        """A page stands in the free list at most once."""
        return s.entries[p] <= 1


class KeySurvivesReuse(CachedPages, variant="key-survives-reuse"):
    """A cached page is handed out with its key still in the index: who begins with the old prefix finds the new owner's page."""

    sizes = {"Request": 3, "Page": 1, "Prefix": 1}
    evicts_on_reuse = False


class KeyWithoutSalt(CachedPages, variant="key-without-salt"):
    """Keys are made of tokens alone: a request of another tenant with the same tokens finds the page. Reading it tells the
    tenant, by how fast the answer comes, what others have asked."""

    sizes = {"Request": 3, "Page": 1, "Prefix": 1}
    keys_carry_salt = False


class IndexedBeforeArrival(CachedPages, variant="indexed-before-arrival"):
    """A page is indexed when it is reserved, before its data is there: who finds it reads what was in it before."""

    sizes = {"Request": 3, "Page": 1, "Prefix": 1}
    indexes_after_arrival = False


class FreeIgnoresCount(CachedPages, variant="free-ignores-count"):
    """The first request that ends frees a shared page, and the others go on with it."""

    sizes = {"Request": 3, "Page": 1, "Prefix": 1}
    counts_references = False


class HitStaysFree(CachedPages, variant="hit-stays-free"):
    """A cached page that is shared stays in the free list, from where somebody else gets it."""

    sizes = {"Request": 3, "Page": 1, "Prefix": 1}
    hits_leave_free_list = False


class DoubleFree(CachedPages, variant="double-free"):
    """The pages of a request are given back twice, as by its last step and by an abort that crosses it. Nobody looks at the
    count on the way to the free list."""

    sizes = {"Request": 3, "Page": 1, "Prefix": 1}
    frees_once = False


class HitAndNew(CachedPages, variant="hit-and-new"):
    """vLLM 0.20.2 with full and sliding-window attention, a local hit and external tokens: one page is a hit of one cache
    group and a new page of another. Fixed by vllm-project/vllm PR 44409 (0.33.0 has the fix)."""

    sizes = {"Request": 3, "Page": 1, "Prefix": 1}
    takes_hits_first = False


class FreedWhileQueued(CachedPages, variant="freed-while-queued"):
    """vLLM 0.20.2 with two batches in flight: a page goes back while a compute write to it is queued, and a remote write for its
    next owner races with that. Fixed by deferring the free (0.33.0 has the fix)."""

    sizes = {"Request": 3, "Page": 1, "Prefix": 1}
    defers_free = False


class AbortFreesTarget(CachedPages, variant="abort-frees-target"):
    """vLLM 0.11.2: a request that is aborted while its KV is loaded from afar gives back the pages that are being written.
    Fixed by vllm-project/vllm PR 32255 (0.20.2 has the fix)."""

    sizes = {"Request": 3, "Page": 1, "Prefix": 1}
    quarantine = False


class LeaseExpires(CachedPages, variant="lease-expires"):
    """The lease of pages that a remote engine reads (NIXL, from prefill to decode) runs out while the read is outstanding: the
    pages are freed, and the late read is logged and returns another request's KV. A hazard of the protocol, by design
    (vLLM 0.33.0 has it)."""

    sizes = {"Request": 3, "Page": 1, "Prefix": 1}
    quarantine_gives_up = True
