"""A spec of a page or two, for the sample project of the plugin's tests."""

from kvmodel.language import Flag, Function, Relation, Sort, Spec, action, flag, implies, invariant, reachable, require


class Page(Sort):
    """A piece of a pool."""


class Request(Sort):
    """One request of one client."""


class Lockers(Spec):
    """Requests take pages, fill them and give them back."""

    zero_on_free: Flag = flag(True, kind="defence", doc="A page is zeroed when it is given back.")

    holds: Relation[Request, Page]
    content: Function[Page, Request | None]

    @action
    def take(s, r: Request, p: Page) -> None:
        """A request gets a page that nobody holds."""
        require(not any(s.holds[q, p] for q in Request), "nobody's")
        s.holds[r, p] = True

    @action
    def fill(s, r: Request, p: Page) -> None:
        """The request's data is written into its page."""
        require(s.holds[r, p], "held")
        s.content[p] = r

    @action
    def give_back(s, r: Request, p: Page) -> None:
        """The page is free again."""
        require(s.holds[r, p], "held")
        s.holds[r, p] = False
        if s.zero_on_free:
            s.content[p] = None

    @invariant
    def isolated_read(s, r: Request, p: Page) -> bool:
        """A page that a request holds is blank or has the request's own data in it."""
        return implies(s.holds[r, p], s.content[p] in (None, r))

    @invariant
    def exclusive_owner(s, r: Request, q: Request, p: Page) -> bool:
        """A page has one owner."""
        return implies(s.holds[r, p] and s.holds[q, p], r == q)

    @reachable
    def can_be_filled(s, p: Page) -> bool:
        """A page can get data."""
        return s.content[p] is not None


class Leaky(Lockers, variant="leaky"):
    """Pages are given back with what is in them."""

    zero_on_free = False
