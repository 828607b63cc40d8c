"""A small spec with every value kind, for tests of what people see."""

from enum import Enum, auto

from kvmodel.language import (
    Counter,
    Flag,
    Function,
    Number,
    Relation,
    Scalar,
    Single,
    Sort,
    Spec,
    action,
    assume,
    counter,
    define,
    final,
    flag,
    implies,
    invariant,
    override,
    partition,
    reachable,
    require,
)


class Page(Sort):
    """A fixed-size piece of a pool."""


class Request(Sort):
    """One request of one client."""


class Pool(Enum):
    """Where a page is."""

    NEAR = auto()
    FAR = auto()


class Phase(Enum):
    """What became of a request."""

    WAITING = auto()
    RUNNING = auto()
    DONE = auto()


class Lending(Spec):
    """Requests borrow pages and give them back."""

    zero_on_free: Flag = flag(True, kind="defence", doc="A page is zeroed when it is given back.")
    lends_far: Flag = flag(False, kind="hazard", doc="Pages of the far pool are lent too.")

    pool: Function[Page, Pool] = partition()
    limit: Scalar
    "The most that one request may need."
    need: Number[Request]
    "What the request needs."
    phase: Function[Request, Phase]
    holds: Relation[Request, Page]
    content: Function[Page, Request | None]
    "Whose data is in the page."
    loans: Counter[Request] = counter(0, 2)
    busy: Single[bool]

    @assume
    def needs_something(s, r: Request) -> bool:
        """No request needs nothing."""
        return s.need[r] >= 1

    @define
    def idle(s, p: Page) -> bool:
        """Nobody holds the page."""
        return not any(s.holds[q, p] for q in Request)

    @action(node="door")
    def admit(s, r: Request) -> None:
        """The door lets in what fits."""
        require(s.phase[r] == Phase.WAITING, "waiting")
        require(s.need[r] <= s.limit, "fits")
        s.phase[r] = Phase.RUNNING
        s.busy = True

    @action
    def borrow(s, r: Request, p: Page) -> None:
        """A running request gets an idle page."""
        require(s.phase[r] == Phase.RUNNING, "running")
        require(s.idle(p) and (s.lends_far or s.pool[p] == Pool.NEAR), "lendable")
        s.holds[r, p] = True
        s.loans[r] = s.loans[r] + 1

    @action
    def fill(s, r: Request, p: Page) -> None:
        """The request's data is written into a page that it holds."""
        require(s.holds[r, p], "held")
        s.content[p] = r

    @action
    def finish(s, r: Request) -> None:
        """The request ends and gives its pages back."""
        require(s.phase[r] == Phase.RUNNING, "running")
        require(any(s.holds[r, p] for p in Page), "served")
        assert any(s.holds[r, p] for p in Page), "holds something"
        s.phase[r] = Phase.DONE
        for p in Page:
            if s.zero_on_free and s.holds[r, p]:
                s.content[p] = None
        s.holds[r, :] = False

    @invariant
    def isolated_read(s, r: Request, p: Page) -> bool:
        """A page that a request holds is blank or has the request's own data in it."""
        return implies(s.holds[r, p], s.content[p] in (None, r))

    @reachable
    def served(s, r: Request) -> bool:
        """A request can end."""
        return s.phase[r] == Phase.DONE

    @final
    def over(s, r: Request) -> bool:
        """Every request has ended or does not fit."""
        return s.phase[r] == Phase.DONE or s.limit < s.need[r]


class Careless(Lending, variant="careless"):
    """Nothing is zeroed."""

    zero_on_free = False


class Greedy(Lending, variant="greedy"):
    """One request can hold all pages of both pools, more than the counter has room for."""

    lends_far = True


class Eager(Lending, variant="eager"):
    """A request may end before it has borrowed anything, which its own assertion forbids."""

    @override
    @action(drop=("served",))
    def finish(s, r: Request) -> None:
        super().finish(r)


class Stuck(Lending, variant="stuck"):
    """A request that does not fit waits for ever, and nobody says that it may."""

    @override
    @final
    def over(s, r: Request) -> bool:
        """Every request has ended."""
        return s.phase[r] == Phase.DONE
