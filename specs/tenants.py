"""Customers: requests of one tenant may share data, requests of different tenants may not."""

from kvmodel.language import Function, Sort, define, implies, override, rigid
from kvmodel.specs.handoff import Handoff
from kvmodel.specs.pages import Page, Request


class Tenant(Sort):
    """A customer."""


class Tenants(Handoff):
    """The recommended design for customers whose own requests may share data among themselves."""

    tenant: Function[Request, Tenant] = rigid()
    "Whose request it is."

    @override
    @define
    def own_or_blank(s, r: Request, p: Page) -> bool:
        """Only data of the reader's own customer is in the page."""
        return all(implies(s.content[p] == q, s.tenant[q] == s.tenant[r]) for q in Request)


class BuggyTenants(Tenants, variant="buggy"):
    """The incident seen by tenants: one customer reads another one's data."""

    prefill_door_honours_reject = False
    prefill_tells_decode = False
    compares_lengths = False
