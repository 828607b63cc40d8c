"""Prefill/decode disaggregation: a prefill node computes a request's KV pages, a decode node reserves pages of its own,
and the pages are written from one pool into the other by remote writes that nobody can cancel.

Each node has its own limit and its own view of a request. The spec follows SGLang's path step by step (0.5.16,
`srt/disaggregation/prefill.py`, `decode.py` and `managers/scheduler.py`), one action for each decision; the incident is
https://github.com/sgl-project/sglang/issues/30233. A prompt longer than prefill's pool is *rejected* and its tokens are
swapped for a one-token *stub*, which disarms prefill's own capacity check: the check measures the stub.
"""

from enum import Enum, auto

from kvmodel.language import (
    Flag,
    Function,
    Number,
    Scalar,
    action,
    anything,
    assume,
    define,
    effect,
    final,
    flag,
    implies,
    initial,
    invariant,
    lemma,
    override,
    partition,
    reachable,
    require,
)
from kvmodel.specs.pages import Page, Pages, Request


class Pool(Enum):
    """The node whose memory a page is in."""

    PREFILL = auto()
    DECODE = auto()


class Prefill(Enum):
    """What the prefill node has done with a request."""

    NEW = auto()  # arrived
    QUEUED = auto()  # through the door
    COMPUTED = auto()  # the forward pass has filled its pages
    SENDING = auto()  # its writes to decode's pages are posted
    SENT = auto()  # every write that prefill knows of has landed: success is reported to decode
    REFUSED = auto()  # answered 400
    CLOSED = auto()  # given up after the client was answered or went away


class Decode(Enum):
    """What the decode node has done with a request."""

    NEW = auto()  # arrived
    ADMITTED = auto()  # through the door, reserving pages for the original prompt
    LISTED = auto()  # its page list is with prefill
    RUNNING = auto()  # committed: prefill's success was taken as complete
    CLOSED = auto()  # finished, failed or aborted; its pages are given back


class Client(Enum):
    """What the client has seen."""

    WAITING = auto()
    OK = auto()  # HTTP 200
    REFUSED = auto()  # HTTP 400
    FAILED = auto()  # HTTP 500
    GONE = auto()  # it aborted or disconnected


class Prompt(Enum):
    """What prefill takes the prompt to be."""

    WHOLE = auto()
    STUB = auto()  # rejected: one placeholder token
    SHORTENED = auto()  # truncated to prefill's limit


class Handoff(Pages):
    """The recommended design: a rejected request stops at prefill's door and decode is told; decode compares the pages
    it received with those it reserved before it commits; aborted pages are quarantined until their writers drain."""

    prefill_pool_covers_context: Flag = flag(
        False, kind="sizing", doc="Prefill's KV pool is large enough for the longest prompt that the model's context allows."
    )
    decode_pool_covers_context: Flag = flag(
        True, kind="sizing", doc="Decode's KV pool is large enough for the longest prompt that the model's context allows."
    )
    prefill_door_honours_reject: Flag = flag(
        True, kind="defence", doc="A request that prefill has rejected does not get through prefill's door."
    )
    decode_door_waits: Flag = flag(
        False, kind="defence", doc="Decode admits a request only after prefill has let it through its own door."
    )
    prefill_tells_decode: Flag = flag(
        True, kind="defence", doc="When prefill refuses a request it tells decode, which lets go of the pages."
    )
    reject_honoured_after_forward: Flag = flag(
        False, kind="defence", doc="A reject that is still pending after the forward pass ends the request; nothing is sent."
    )
    compares_lengths: Flag = flag(
        True, kind="defence", doc="Before it commits, decode compares the number of pages that arrived with the number it reserved."
    )
    checksum_of_sent: Flag = flag(False, kind="defence", doc="Decode verifies a checksum over the pages that prefill says it sent.")
    checksum_of_each_side: Flag = flag(
        False, kind="defence", doc="Each node digests the request at the length that it believes in, and decode compares the two digests."
    )
    checks_reads: Flag = flag(
        False, kind="defence", doc="Every read first checks that the page is held by the reader and that the content is the reader's own."
    )
    truncates_automatically: Flag = flag(
        False, kind="hazard", doc="A prompt over prefill's limit is cut to that limit, while decode, with a larger limit, keeps it whole."
    )
    sends_reserved_row: Flag = flag(
        False,
        kind="hazard",
        doc="Prefill reserves pages for the original prompt before it rejects, and sends them all though it computed only the stub's.",
    )

    pool: Function[Page, Pool] = partition()
    context: Scalar
    "The model's declared context, in tokens."
    prefill_limit: Scalar
    "The longest prompt that prefill's pool can hold, in tokens."
    decode_limit: Scalar
    "The longest prompt that decode's pool can hold, in tokens."
    prompt: Number[Request]
    "The length of the request's prompt, in tokens. The front end has already refused what is longer than the context."

    prefill: Function[Request, Prefill] = anything()
    decode: Function[Request, Decode] = anything()
    client: Function[Request, Client] = anything()
    seen_as: Function[Request, Prompt]
    "What prefill takes the prompt to be."

    @assume
    def prompts_fit_context(s, r: Request) -> bool:
        """The front end checks the context, and only the context."""
        return s.prompt[r] <= s.context

    @assume
    def prefill_sizing(s) -> bool:
        """A prefill pool that covers the context leaves no prompt oversize."""
        return implies(s.prefill_pool_covers_context, s.context <= s.prefill_limit)

    @assume
    def decode_sizing(s) -> bool:
        """A decode pool that covers the context leaves no prompt oversize."""
        return implies(s.decode_pool_covers_context, s.context <= s.decode_limit)

    @initial
    def new_or_served(s, r: Request) -> bool:
        """A pool in service: each request is new, or was served before and has given its pages back."""
        return (s.prefill[r] == Prefill.NEW and s.decode[r] == Decode.NEW and s.client[r] == Client.WAITING) or (
            s.prefill[r] == Prefill.SENT and s.decode[r] == Decode.CLOSED and s.client[r] == Client.OK
        )

    @override
    @initial
    def leftovers(s, r: Request, p: Page) -> bool:
        """The data of requests that were served before may still be in the pages, unless pages are zeroed."""
        return implies(s.content[p] == r, s.client[r] == Client.OK and not s.zero_on_free)

    # -- what each node can tell of a request

    @define
    def oversize_for_prefill(s, r: Request) -> bool:
        """The prompt is longer than prefill's pool. Such a prompt takes more than one page."""
        return s.prompt[r] > s.prefill_limit

    @define
    def oversize_for_decode(s, r: Request) -> bool:
        """The prompt is longer than decode's pool."""
        return s.prompt[r] > s.decode_limit

    @define
    def source(s, r: Request, p: Page) -> bool:
        """A page of prefill's pool that the request holds."""
        return s.pool[p] == Pool.PREFILL and s.holds[r, p]

    @define
    def target(s, r: Request, p: Page) -> bool:
        """A page of decode's pool that the request holds."""
        return s.pool[p] == Pool.DECODE and s.holds[r, p]

    @define
    def attending(s, r: Request) -> bool:
        """A decode step that reads the request's pages is running."""
        return any(s.pool[p] == Pool.DECODE and s.reading[r, p] for p in Page)

    @define
    def whole_row(s, r: Request) -> bool:
        """Prefill sends a page for each page that decode reserved."""
        return s.seen_as[r] == Prompt.WHOLE or (s.seen_as[r] == Prompt.STUB and s.sends_reserved_row)

    @define
    def all_arrived(s, r: Request) -> bool:
        """As many pages arrived as decode reserved."""
        return all(s.written[r, p] for p in Page if s.target(r, p))

    @define
    def sent_pages_intact(s, r: Request) -> bool:
        """The pages that arrived are as prefill sent them. Stale pages that prefill itself sent look intact."""
        return all(
            s.content[p] == r or (s.seen_as[r] == Prompt.STUB and s.sends_reserved_row)
            for p in Page
            if s.target(r, p) and s.written[r, p]
        )

    @define
    def transfer_accepted(s, r: Request) -> bool:
        """The checks that decode makes before it commits, as far as they are switched on, all pass."""
        return (
            implies(s.compares_lengths or s.checksum_of_each_side, s.all_arrived(r))
            and implies(s.checksum_of_sent or s.checksum_of_each_side, s.sent_pages_intact(r))
        )

    @define
    def reads_accepted(s, r: Request) -> bool:
        """The check of owner and content, if it is switched on, passes on every page."""
        return implies(s.checks_reads, all(s.content[p] == r for p in Page if s.target(r, p)))

    @override
    @define
    def live(s, r: Request, p: Page) -> bool:
        """Prefill reserves pages for a queued request (one for a stub), decode for an admitted one."""
        return (
            s.pool[p] == Pool.PREFILL
            and s.prefill[r] == Prefill.QUEUED
            and implies(s.seen_as[r] == Prompt.STUB and not s.sends_reserved_row, not any(s.source(r, q) for q in Page))
        ) or (s.pool[p] == Pool.DECODE and s.decode[r] == Decode.ADMITTED)

    @override
    @define
    def held_for_nobody(s, r: Request, p: Page) -> bool:
        """The node has not admitted the request or is done with it, or waits for a prefill that ended and will not say so."""
        return (s.pool[p] == Pool.PREFILL and s.prefill[r] in (Prefill.NEW, Prefill.SENT, Prefill.REFUSED, Prefill.CLOSED)) or (
            s.pool[p] == Pool.DECODE
            and (s.decode[r] in (Decode.NEW, Decode.CLOSED) or (s.prefill[r] == Prefill.REFUSED and not s.prefill_tells_decode))
        )

    # -- the prefill node

    @action(node="prefill")
    def reject(s, r: Request) -> None:
        """Prefill's intake marks a prompt longer than its pool as rejected and swaps it for a one-token stub."""
        require(
            s.prefill[r] == Prefill.NEW and s.seen_as[r] == Prompt.WHOLE and s.oversize_for_prefill(r) and not s.truncates_automatically,
            "longer than prefill's pool",
        )
        s.seen_as[r] = Prompt.STUB

    @action(node="prefill")
    def truncate(s, r: Request) -> None:
        """Prefill's intake cuts a prompt longer than its pool to its own limit. Decode is not asked."""
        require(
            s.truncates_automatically and s.prefill[r] == Prefill.NEW and s.seen_as[r] == Prompt.WHOLE and s.oversize_for_prefill(r),
            "longer than prefill's pool",
        )
        s.seen_as[r] = Prompt.SHORTENED

    @action(node="prefill")
    def prefill_door(s, r: Request) -> None:
        """Prefill lets the request into its queue. The capacity check measures the prompt that it has now: a stub always fits."""
        require(s.prefill[r] == Prefill.NEW, "arrived")
        require(not s.oversize_for_prefill(r) or s.seen_as[r] != Prompt.WHOLE, "fits prefill's pool")
        require(implies(s.prefill_door_honours_reject, s.seen_as[r] != Prompt.STUB), "not rejected")
        s.prefill[r] = Prefill.QUEUED

    @action(node="prefill")
    def refuse(s, r: Request) -> None:
        """Prefill's door turns a rejected request away; the client sees 400."""
        require(s.prefill_door_honours_reject and s.prefill[r] == Prefill.NEW and s.seen_as[r] == Prompt.STUB, "rejected")
        s.prefill[r] = Prefill.REFUSED
        if s.client[r] == Client.WAITING:
            s.client[r] = Client.REFUSED

    @action(node="prefill")
    def forward(s, r: Request, first: Page) -> None:
        """The forward pass fills the request's pages in prefill's pool; of a stub it fills the first one only."""
        require(s.prefill[r] == Prefill.QUEUED and s.source(r, first), "queued, with pages")
        s.prefill[r] = Prefill.COMPUTED
        for p in Page:
            if s.source(r, p) and (p == first or s.seen_as[r] != Prompt.STUB):
                s.content[p] = r
                s.written[r, p] = True

    @action(node="prefill")
    def retire(s, r: Request) -> None:
        """After the forward pass prefill sees the pending reject and ends the request; the client sees 400."""
        require(
            s.reject_honoured_after_forward and s.prefill[r] == Prefill.COMPUTED and s.seen_as[r] == Prompt.STUB,
            "reject pending",
        )
        s.prefill[r] = Prefill.REFUSED
        if s.client[r] == Client.WAITING:
            s.client[r] = Client.REFUSED
        for p in Page:
            if s.source(r, p):
                s.give_back(r, p)

    @action(node="prefill")
    def send(s, r: Request, first: Page) -> None:
        """Prefill posts its remote writes, one a page: for every page that decode listed, or for the first only when the
        prompt that prefill has is shorter than the one that decode reserved for."""
        require(
            s.prefill[r] == Prefill.COMPUTED
            and s.decode[r] == Decode.LISTED
            and s.target(r, first)
            and not (s.reject_honoured_after_forward and s.seen_as[r] == Prompt.STUB),
            "computed, and decode's page list is there",
        )
        s.prefill[r] = Prefill.SENDING
        for p in Page:
            if s.target(r, p) and (p == first or s.whole_row(r)):
                s.writing[r, p] = True
            if s.source(r, p):
                s.reading[r, p] = True

    @action(node="network")
    def land(s, r: Request, source: Page, target: Page) -> None:
        """A remote write lands: the bytes of a page of prefill's are now in a page of decode's, whoever owns that by now."""
        require(s.pool[source] == Pool.PREFILL and s.reading[r, source], "read from prefill's page")
        require(s.pool[target] == Pool.DECODE and s.writing[r, target], "in flight")
        s.content[target] = s.content[source]
        s.writing[r, target] = False
        if s.holds[r, target]:
            s.written[r, target] = True

    @action(node="prefill")
    def succeed(s, r: Request) -> None:
        """Every write that prefill posted has landed. It reports success for what *it* sent, and frees its own pages."""
        require(s.prefill[r] == Prefill.SENDING, "sending")
        require(not any(s.writing[r, p] for p in Page), "all landed")
        s.prefill[r] = Prefill.SENT
        for p in Page:
            if s.source(r, p):
                s.reading[r, p] = False
                s.forget(r, p)
                s.recycle(p)

    @action(node="prefill")
    def stop(s, r: Request) -> None:
        """Prefill hears that the client was answered or is gone, and drops a request that it has not begun to send."""
        require(
            s.client[r] != Client.WAITING and s.prefill[r] in (Prefill.NEW, Prefill.QUEUED, Prefill.COMPUTED),
            "client no longer waiting",
        )
        s.prefill[r] = Prefill.CLOSED
        for p in Page:
            if s.source(r, p):
                s.give_back(r, p)

    # -- the decode node

    @action(node="decode")
    def decode_door(s, r: Request) -> None:
        """Decode admits the request under its own limit, for its original length."""
        require(s.decode[r] == Decode.NEW, "arrived")
        require(
            not s.oversize_for_decode(r)
            and implies(s.decode_door_waits, s.prefill[r] not in (Prefill.NEW, Prefill.REFUSED, Prefill.CLOSED)),
            "fits decode's pool",
        )
        s.decode[r] = Decode.ADMITTED

    @action(node="decode")
    def refuse_at_decode(s, r: Request) -> None:
        """Decode refuses a prompt longer than its own pool; the client sees 400."""
        require(not s.decode_pool_covers_context and s.decode[r] == Decode.NEW and s.oversize_for_decode(r), "longer than decode's pool")
        s.decode[r] = Decode.CLOSED
        if s.client[r] == Client.WAITING:
            s.client[r] = Client.REFUSED

    @action(node="decode")
    def announce(s, r: Request) -> None:
        """Decode has reserved pages for the original prompt and sends the page list to prefill."""
        require(
            s.decode[r] == Decode.ADMITTED
            and any(s.target(r, p) for p in Page)
            and implies(s.oversize_for_prefill(r), any(s.target(r, p) and s.target(r, q) and p != q for p in Page for q in Page)),
            "pages reserved",
        )
        s.decode[r] = Decode.LISTED

    @action(node="decode")
    def commit(s, r: Request) -> None:
        """Decode takes prefill's success as complete and lets the request run."""
        require(s.decode[r] == Decode.LISTED and s.prefill[r] == Prefill.SENT, "success reported")
        require(s.transfer_accepted(r), "transfer accepted")
        s.decode[r] = Decode.RUNNING

    @action(node="decode")
    def read(s, r: Request) -> None:
        """A decode step attends to every page that the request holds."""
        require(s.decode[r] == Decode.RUNNING and not s.attending(r) and s.reads_accepted(r), "running")
        for p in Page:
            if s.target(r, p):
                s.reading[r, p] = True

    @action(node="decode")
    def finish(s, r: Request) -> None:
        """The answer is complete: the client sees 200, and the pages go back."""
        require(s.attending(r), "read")
        s.decode[r] = Decode.CLOSED
        s.client[r] = Client.OK
        for p in Page:
            if s.target(r, p):
                s.reading[r, p] = False
                s.forget(r, p)
                s.recycle(p)

    @action(node="decode")
    def fail(s, r: Request) -> None:
        """A check of decode's fails: the client sees 500, and the pages go back."""
        require(
            (s.decode[r] == Decode.LISTED and s.prefill[r] == Prefill.SENT and not s.transfer_accepted(r))
            or (s.decode[r] == Decode.RUNNING and not s.attending(r) and not s.reads_accepted(r)),
            "check failed",
        )
        s.close_at_decode(r)
        s.client[r] = Client.FAILED

    @action(node="decode")
    def hear_reject(s, r: Request) -> None:
        """Prefill's refusal reaches decode, sooner or later, and decode lets go of the pages."""
        require(
            s.prefill_tells_decode
            and s.prefill[r] == Prefill.REFUSED
            and s.decode[r] in (Decode.NEW, Decode.ADMITTED, Decode.LISTED),
            "told of a reject",
        )
        s.close_at_decode(r)

    @override
    @action(node="client")
    def abort(s, r: Request) -> None:
        """The client aborts or disconnects; decode closes the request between two steps. Writes in flight go on."""
        require(s.client[r] == Client.WAITING and not s.attending(r), "between steps")
        s.close_at_decode(r)
        s.client[r] = Client.GONE

    @effect
    def close_at_decode(s, r: Request) -> None:
        """Decode is done with the request and gives its pages back."""
        s.decode[r] = Decode.CLOSED
        for p in Page:
            if s.target(r, p):
                s.give_back(r, p)

    # -- what the protocol promises, beside the properties of pages

    @invariant
    def honest_status(s, r: Request) -> bool:
        """No 200 for a rejected request, and no 400 for one that fits."""
        return implies(s.client[r] == Client.OK, s.seen_as[r] != Prompt.STUB) and implies(
            s.client[r] == Client.REFUSED, s.oversize_for_prefill(r) or s.oversize_for_decode(r)
        )

    @invariant
    def no_internal_error(s, r: Request) -> bool:
        """No request ends in 500."""
        return s.client[r] != Client.FAILED

    @invariant
    def ends_with_the_answer(s, r: Request) -> bool:
        """Decode no longer works on a request that it has answered or whose client is gone."""
        return implies(s.client[r] in (Client.OK, Client.FAILED, Client.GONE), s.decode[r] == Decode.CLOSED)

    @invariant
    def fits_pools(s, r: Request) -> bool:
        """What a node works on fits its pool."""
        return implies(
            s.prefill[r] in (Prefill.QUEUED, Prefill.COMPUTED, Prefill.SENDING),
            not s.oversize_for_prefill(r) or s.seen_as[r] != Prompt.WHOLE,
        ) and implies(s.decode[r] in (Decode.ADMITTED, Decode.LISTED, Decode.RUNNING), not s.oversize_for_decode(r))

    @reachable
    def can_be_served(s, r: Request, p: Page) -> bool:
        """A request can read pages that were written for it."""
        return s.pool[p] == Pool.DECODE and s.reading[r, p] and s.written[r, p]

    @reachable
    def can_be_rejected(s, r: Request) -> bool:
        """Where prefill's pool is small and it does not truncate, a request can be rejected."""
        return s.seen_as[r] == Prompt.STUB or s.prefill_pool_covers_context or s.truncates_automatically

    @reachable
    def can_leave_in_flight(s, r: Request, p: Page) -> bool:
        """A client can leave while a write for it is in flight."""
        return s.client[r] == Client.GONE and s.writing[r, p]

    # -- what helps a proof at any size. Each lemma is kept under every choice of flags, unless it names those that it needs.

    @lemma
    def in_one_place(s, r: Request, p: Page) -> bool:
        """A page is not free, quarantined and held, two of them at once."""
        return not (s.free[p] and s.quarantined[p]) and implies(s.holds[r, p], not s.free[p] and not s.quarantined[p])

    @lemma
    def held_while_worked_on(s, r: Request, p: Page) -> bool:
        """A node holds pages only for a request that it works on."""
        return implies(s.source(r, p), s.prefill[r] in (Prefill.QUEUED, Prefill.COMPUTED, Prefill.SENDING)) and implies(
            s.target(r, p), s.decode[r] in (Decode.ADMITTED, Decode.LISTED, Decode.RUNNING)
        )

    @override
    @lemma
    def in_flight(s, r: Request, p: Page) -> bool:
        """Writes go to decode's pool, while prefill is sending. Pages are read by the node that holds them: prefill's while it
        sends, decode's while the request runs."""
        return implies(s.writing[r, p], s.pool[p] == Pool.DECODE and s.prefill[r] == Prefill.SENDING) and implies(
            s.reading[r, p],
            s.holds[r, p] and (s.prefill[r] == Prefill.SENDING if s.pool[p] == Pool.PREFILL else s.decode[r] == Decode.RUNNING),
        )

    @override
    @lemma
    def written_is_own(s, r: Request, p: Page) -> bool:
        """With a quarantine that waits, nobody overwrites what was written for the holder of a page. Of a reserved row, what was
        written need not be the holder's."""
        return (s.seen_as[r] == Prompt.STUB and s.sends_reserved_row) or super().written_is_own(r, p)

    @lemma
    def sends_after_the_list(s, r: Request) -> bool:
        """Prefill sends after it got decode's page list, and decode runs a request after prefill's success."""
        return implies(
            s.prefill[r] in (Prefill.SENDING, Prefill.SENT), s.decode[r] in (Decode.LISTED, Decode.RUNNING, Decode.CLOSED)
        ) and implies(s.decode[r] == Decode.RUNNING, s.prefill[r] == Prefill.SENT)

    @lemma
    def stubs_are_oversize(s, r: Request) -> bool:
        """Only a prompt longer than prefill's pool is shortened, where prompts are truncated, or else swapped for a stub."""
        return implies(s.seen_as[r] != Prompt.WHOLE, s.oversize_for_prefill(r)) and implies(
            s.seen_as[r] != Prompt.WHOLE, (s.seen_as[r] == Prompt.SHORTENED) == s.truncates_automatically
        )

    @lemma
    def stubs_stop_at_the_door(s, r: Request) -> bool:
        """A door that honours rejects lets no stub through; a reject honoured after the forward pass sends none."""
        return implies(
            s.seen_as[r] == Prompt.STUB and s.prefill_door_honours_reject,
            s.prefill[r] in (Prefill.NEW, Prefill.REFUSED, Prefill.CLOSED),
        ) and implies(
            s.seen_as[r] == Prompt.STUB and s.reject_honoured_after_forward,
            s.prefill[r] not in (Prefill.SENDING, Prefill.SENT),
        )

    @lemma
    def refusals_need_a_rule(s, r: Request) -> bool:
        """Prefill refuses only a stub, at a door that honours rejects or after a forward pass that does."""
        return implies(
            s.prefill[r] == Prefill.REFUSED,
            s.seen_as[r] == Prompt.STUB and (s.prefill_door_honours_reject or s.reject_honoured_after_forward),
        )

    @lemma
    def stub_has_one_page(s, r: Request, p: Page, q: Page) -> bool:
        """Prefill reserves one page for a stub, unless it reserved a row for the original prompt."""
        return implies(
            s.seen_as[r] == Prompt.STUB and not s.sends_reserved_row and s.source(r, p) and s.source(r, q), p == q
        )

    @lemma
    def computed_is_written(s, r: Request, p: Page) -> bool:
        """The forward pass has written the pages that prefill sends, but for those of a reserved row."""
        return implies(
            s.source(r, p)
            and s.prefill[r] in (Prefill.COMPUTED, Prefill.SENDING)
            and not (s.seen_as[r] == Prompt.STUB and s.sends_reserved_row),
            s.written[r, p],
        )

    @lemma
    def sent_is_written(s, r: Request, p: Page) -> bool:
        """Of a whole row, each page that decode reserved is written, or a write to it is in flight."""
        return implies(
            s.target(r, p) and s.whole_row(r) and s.prefill[r] in (Prefill.SENDING, Prefill.SENT),
            s.written[r, p] or s.writing[r, p],
        )

    @lemma
    def running_is_written(s, r: Request, p: Page) -> bool:
        """A check of lengths lets a request run only when every page that it holds was written."""
        return implies(
            s.target(r, p) and s.decode[r] == Decode.RUNNING and (s.compares_lengths or s.checksum_of_each_side), s.written[r, p]
        )

    @lemma
    def answered_after_sending(s, r: Request) -> bool:
        """An answer of 200 comes after prefill's success; a refusal comes from one of the two nodes."""
        return implies(s.client[r] == Client.OK, s.prefill[r] == Prefill.SENT and s.decode[r] == Decode.CLOSED) and implies(
            s.client[r] == Client.REFUSED, s.prefill[r] == Prefill.REFUSED or s.decode[r] == Decode.CLOSED
        )

    @lemma
    def sends_what_it_holds(s, r: Request, p: Page) -> bool:
        """Prefill sends from every page that it holds for the request."""
        return implies(s.prefill[r] == Prefill.SENDING and s.source(r, p), s.reading[r, p])

    @lemma
    def computed_in_pages(s, r: Request) -> bool:
        """What prefill has computed is in some page of its own."""
        return implies(s.prefill[r] in (Prefill.COMPUTED, Prefill.SENDING), any(s.source(r, p) for p in Page))

    @lemma
    def oversize_takes_two(s, r: Request) -> bool:
        """Decode reserves more than one page for a prompt that is longer than prefill's pool."""
        return implies(
            s.decode[r] in (Decode.LISTED, Decode.RUNNING) and s.oversize_for_prefill(r),
            any(s.target(r, p) and s.target(r, q) and p != q for p in Page for q in Page),
        )

    @lemma
    def prefill_computes_its_own(s, r: Request, p: Page) -> bool:
        """Nobody else writes to a page that prefill holds for the request."""
        return implies(s.source(r, p) and s.written[r, p], s.content[p] == r)

    @lemma
    def data_comes_by_sending(s, r: Request, p: Page) -> bool:
        """A request's data is in decode's pool only after prefill began to send it."""
        return implies(
            s.pool[p] == Pool.DECODE and (s.written[r, p] or (s.content[p] == r and not s.sends_reserved_row)),
            s.prefill[r] in (Prefill.SENDING, Prefill.SENT),
        )

    @lemma
    def own_data_is_written(s, r: Request, p: Page) -> bool:
        """Where nothing but computed pages is sent, a request's data in a page that decode holds for it was written there."""
        return implies(s.target(r, p) and s.content[p] == r and not s.sends_reserved_row, s.written[r, p])

    @lemma
    def stub_is_sent_once(s, r: Request, p: Page, q: Page) -> bool:
        """Of a stub, one page is sent."""
        return implies(
            s.seen_as[r] == Prompt.STUB
            and not s.sends_reserved_row
            and s.pool[p] == Pool.DECODE
            and s.pool[q] == Pool.DECODE
            and (s.writing[r, p] or s.written[r, p] or s.content[p] == r)
            and (s.writing[r, q] or s.written[r, q] or s.content[q] == r),
            p == q,
        )

    @lemma
    def decode_reads_all(s, r: Request, p: Page, q: Page) -> bool:
        """A decode step reads every page that decode holds for the request."""
        return implies(s.pool[p] == Pool.DECODE and s.reading[r, p] and s.target(r, q), s.reading[r, q])

    @lemma
    def checked_is_whole(s, r: Request, p: Page) -> bool:
        """A stub passes neither a check of lengths nor a check of what is read."""
        return implies(
            s.seen_as[r] == Prompt.STUB and not s.sends_reserved_row,
            implies(s.compares_lengths or s.checksum_of_each_side, s.decode[r] != Decode.RUNNING)
            and not (s.checks_reads and s.pool[p] == Pool.DECODE and s.reading[r, p]),
        )

    @lemma
    def checked_is_own(s, r: Request, p: Page) -> bool:
        """What passes a check of reads was written for the reader, where nothing but computed pages is sent."""
        return implies(
            s.checks_reads and not s.sends_reserved_row and s.pool[p] == Pool.DECODE and s.reading[r, p], s.written[r, p]
        )

    @lemma
    def zeroed_is_blank(s, r: Request, p: Page) -> bool:
        """Where pages are zeroed and the quarantine waits, a free page is blank, and a held one blank or the holder's own."""
        return implies(
            s.zero_on_free and s.quarantine and not s.quarantine_gives_up,
            implies(s.free[p], s.content[p] is None) and implies(s.holds[r, p], s.own_or_blank(r, p)),
        )

    @final
    def ended(s, r: Request) -> bool:
        """Both nodes are done with every request."""
        return (
            s.client[r] != Client.WAITING
            and s.decode[r] == Decode.CLOSED
            and s.prefill[r] in (Prefill.SENT, Prefill.REFUSED, Prefill.CLOSED)
        )


class Buggy(Handoff, variant="buggy"):
    """The incident: neither door asks whether the request was rejected, nobody tells decode, and decode takes whatever
    arrived as complete."""

    prefill_door_honours_reject = False
    prefill_tells_decode = False
    compares_lengths = False


class CoveringPools(Buggy, variant="covering-pools"):
    """Buggy doors, but prefill's pool covers the context: no prompt is oversize, so the reject path is never taken."""

    prefill_pool_covers_context = True


class FixedDoors(Buggy, variant="fixed-doors"):
    """The doors fixed, the pool still small: a rejected request stops at prefill's door, and decode is told."""

    prefill_door_honours_reject = True
    prefill_tells_decode = True


class PrefillDoorAlone(Buggy, variant="prefill-door-alone"):
    """Only prefill's door is fixed: nothing stale is read, but decode is never told and keeps its pages for ever."""

    prefill_door_honours_reject = True


class LengthCheckAlone(Buggy, variant="length-check-alone"):
    """Only decode's length check: the short transfer is noticed and the client sees 500 instead of 400."""

    compares_lengths = True


class ZeroOnFreeAlone(Buggy, variant="zero-on-free-alone"):
    """Only zeroing: decode reads zeros instead of somebody else's data, and still answers 200."""

    zero_on_free = True


class ChecksumOfSentAlone(Buggy, variant="checksum-of-sent-alone"):
    """Only a checksum over what was sent: it is blind, because every page that was sent is intact."""

    checksum_of_sent = True


class ChecksumOfEachSideAlone(Buggy, variant="checksum-of-each-side-alone"):
    """Only a checksum of each side's own length: one page against many is noticed, and the client sees 500."""

    checksum_of_each_side = True


class ChecksumOfEachSideBlind(ChecksumOfEachSideAlone, variant="checksum-of-each-side-blind"):
    """The same checksum where prefill sends a whole row that it did not compute: both sides digest the same stale pages."""

    sends_reserved_row = True


class CheckedReadsAlone(Buggy, variant="checked-reads-alone"):
    """Only a check of owner and content on every read: the stale page is noticed at the last moment, with a 500."""

    checks_reads = True


class AbortWithoutQuarantine(Handoff, variant="abort-without-quarantine"):
    """The recommended design, but an abort frees pages that prefill is still writing to."""

    quarantine = False


class QuarantineGivesUp(Handoff, variant="quarantine-gives-up"):
    """The recommended design, but a quarantined page is reused after a deadline, drained or not."""

    quarantine_gives_up = True


class Sglang0516(Buggy, variant="sglang-0.5.16"):
    """SGLang 0.5.16 (and 0.5.11 to 0.5.19): both doors admit a rejected request, and an abort frees pages at once."""

    quarantine = False


class Sglang0520(Sglang0516, variant="sglang-0.5.20"):
    """SGLang 0.5.20: the aborted result is retired after the forward pass, so nothing is sent; decode is not told."""

    reject_honoured_after_forward = True


class Sglang0521(Sglang0520, variant="sglang-0.5.21"):
    """SGLang 0.5.21 (and 0.5.22, 0.5.23): 400 at prefill's door, and deferred release of pages, which gives up after 30 s."""

    prefill_door_honours_reject = True
    quarantine = True
    quarantine_gives_up = True


class Sglang0521Truncating(Sglang0521, variant="sglang-0.5.21-truncating"):
    """The same release with automatic truncation and a smaller limit on prefill: decode attends to pages nobody wrote.
    Found by simulation and reading, not on a GPU; the remedy is equal limits, no truncation, or a length check."""

    truncates_automatically = True
