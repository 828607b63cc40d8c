"""``kvmodel new``: a scaffold of a spec that already checks."""

from __future__ import annotations

import re
from keyword import iskeyword
from pathlib import Path

import click

from kvmodel.commands import common
from kvmodel.errors import UsageError, printable

__all__ = ["new", "scaffold"]

# A small spec that holds, and a variant that does not: something to change, and something to see.
SCAFFOLD = '''"""NAME: say here what the protocol is and what must never happen.

Check it with    kvmodel check FILE:NAME
and its variant  kvmodel check FILE:NAME:careless
"""

from kvmodel.language import Flag, Function, Relation, Sort, Spec, action, flag, implies, invariant, reachable, require


class Page(Sort):
    """A fixed-size piece of a KV pool."""


class Request(Sort):
    """One request of one client."""


class NAME(Spec):
    """Requests take pages, fill them, read them and give them back."""

    zero_on_free: Flag = flag(True, kind="defence", doc="A page is overwritten with zeros when it is given back.")

    holds: Relation[Request, Page]
    "The page is in the request's page table."
    content: Function[Page, Request | None]
    "Whose data is in the page. None is blank. Freeing a page does not clean it."

    @action
    def allocate(s, r: Request, p: Page) -> None:
        """A page that nobody holds goes to the request."""
        require(not any(s.holds[q, p] for q in Request), "free")
        s.holds[r, p] = True

    @action
    def fill(s, r: Request, p: Page) -> None:
        """The request's data is written into a page that it holds."""
        require(s.holds[r, p], "held")
        s.content[p] = r

    @action
    def free(s, r: Request, p: Page) -> None:
        """The request gives the page back."""
        require(s.holds[r, p], "held")
        s.holds[r, p] = False
        if s.zero_on_free:
            s.content[p] = None

    @invariant
    def isolated_read(s, r: Request, p: Page) -> bool:
        """A page that a request holds is blank or has the request's own data in it."""
        return implies(s.holds[r, p], s.content[p] in (None, r))

    @reachable
    def filled(s, r: Request, p: Page) -> bool:
        """A request can hold a page with its own data: without this, a spec in which nothing happens would hold."""
        return s.holds[r, p] and s.content[p] == r


class CarelessNAME(NAME, variant="careless"):
    """The same without zeroing: a small subclass is how a fault, or a fix, is written."""

    zero_on_free = False
'''


@click.command(
    epilog="""\b
Example:
  kvmodel new lease.py
  kvmodel check lease.py:Lease"""
)
@click.argument("file")
def new(file: str) -> int:
    """Write FILE, a small spec of your own that already checks, to start from."""
    path = Path(file)
    text = scaffold(path)
    try:
        with open(path, "x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        raise UsageError(f"{printable(file)} exists; it was not changed") from None
    except OSError as problem:
        raise UsageError(f"{printable(file)} was not written: {problem.strerror}") from None
    name = class_name(path)
    common.emit(f"{file}: a spec to start from\n  kvmodel check {file}:{name}\n  kvmodel check {file}:{name}:careless\n")
    return common.ALL_HOLD


def class_name(path: Path) -> str:
    """The spec class of a file: ``my_lease.py`` has ``MyLease``. Raises UsageError for a name that makes no class."""
    name = "".join(part[:1].upper() + part[1:] for part in re.split(r"[^0-9A-Za-z]+", path.stem))
    if path.suffix != ".py" or not name.isidentifier() or not name.isascii() or iskeyword(name) or name in ("Page", "Request", "Spec"):
        raise UsageError(f"{printable(str(path))}: a spec is a Python file whose name can be the name of a class, as in lease.py")
    return name


def scaffold(path: Path) -> str:
    """The text of the scaffold for `path`."""
    return SCAFFOLD.replace("NAME", class_name(path)).replace("FILE", path.as_posix())
