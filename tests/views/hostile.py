"""A run whose every name is an attack on some format: markup, quotes, escapes, control characters, marks that turn text round."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from kvmodel.errors import printable
from kvmodel.language.build import ANYTHING, Builder, all_, eq, implies, var
from kvmodel.language.instance import Instance
from kvmodel.language.system import Variable
from kvmodel.language.types import Element, Maybe
from kvmodel.readings.explore import explore
from kvmodel.traces.trace import Trace

MARKUP = "<script>alert(1)</script>]]>--><!--&amp;&lt;"
QUOTES = '"]; evil [label="x\'`'
ESCAPES = "\x1b[2J\x07\\N\\n\\"
TURNED = "\u202etxt.exe\u2066\u200f"
LONG = "x" * 10_000


def shown(text: str) -> str:
    """How a name appears."""
    return printable(text)


@cache
def trace() -> Trace:
    """Two steps: a page that has somebody else's data in it is handed out. Elements are called ``<0``, and pages by pools of
    hostile names."""
    b = Builder(MARKUP + QUOTES + ESCAPES + TURNED)
    request, page = b.sort(MARKUP), b.sort(TURNED)
    pool = b.enumeration("Pool" + TURNED, MARKUP, QUOTES + ESCAPES)
    mood = b.enumeration("Mood", ESCAPES + MARKUP, TURNED, LONG)
    holds = b.relation("holds", request, page)
    content = b.function("content", page, to=Maybe(request))
    feels = b.function("feels" + QUOTES, request, to=mood, initial=LONG)
    b.relation(MARKUP + ESCAPES, request, page, initial=True)
    r, p, q = var("r", request), var("p", page), var("q" + MARKUP, request)
    b.action("fill" + MARKUP, r, p, updates=[content.set(r, p), feels.set(feels(r), r)])
    b.action(QUOTES, r, p, updates=[holds.set(True, r, p)])
    b.invariant("own" + ESCAPES + LONG, all_([q], implies(holds(r, p), implies(eq(content(p), q), eq(q, r)))), r, p)
    system = b.build()
    partition = Variable("pool", (page,), Element(pool), ANYTHING, rigid=True, partition=True)
    system = replace(system, variables=(partition, *system.variables))
    found = explore(Instance.make(system, {page.name: 1})).trace
    assert found is not None
    return found
