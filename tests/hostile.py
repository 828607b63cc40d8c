"""Traces in which every name is a stranger's: markup, terminal escapes, right-to-left marks, very long names."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from kvmodel.language.build import Builder, and_, eq, is_none, member, not_, or_, var
from kvmodel.language.instance import Instance, State
from kvmodel.language.types import Maybe, Span
from kvmodel.readings.replay import make_trace
from kvmodel.traces.trace import Choice, Trace

__all__ = ["NAMES", "trace_of"]

NAMES = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "` `` ``` code",
    "```\n# heading\n```",
    "a|b||c",
    "]]> & &amp; &#60;",
    "end",
    "wrap: %%{init: {}}%% %% comment",
    "x; n0->>n0: forged",
    "style x:y#35; classDef z:#;",
    "participant p9 as forged",
    "\x1b[2J\x07\x00 cleared",
    "\u202egnp.exe\u2066\ufeff\u2028 marks",
    "@everyone #1 GH-1 https://evil.example/ www.evil.example",
    "[click](javascript:alert(1)) ![i](http://evil.example/i.png) {0} \\[x\\](u)",
    "- **bold** _it_ ~~no~~ $x$ <details>",
    "\ud800 alone",
    "\U0001f600 smile \u00e9",
    "A" * 10_000,
    "  ",
)


@cache
def trace_of(name: str) -> Trace:
    """A run of two steps whose spec, action, guard, flag, node, enumeration, property and documentation are all called `name`."""
    b = Builder(name)
    page, request = b.sort("Page"), b.sort("<Request>")
    kind = b.enumeration("Kind", name, "other")
    defence = b.flag(name + "!", False)
    holds = b.relation("holds", request, page)
    content = b.function("content", page, to=Maybe(request))
    seen = b.function(name + "?", page, to=kind)
    p, r, k = var("p", page), var("r", request), var("k", kind)
    guard = {name: or_(not_(defence), holds(r, p))}
    b.action(name, r, p, k, guards=guard, updates=[holds.set(True, r, p), seen.set(k, p)])
    b.action("second", r, p, updates=[content.set(r, p)], guards={"held by somebody": or_(holds(r, p), not_(holds(r, p)))})
    b.invariant(name + "~", not_(and_(holds(r, p), not_(is_none(content(p))), eq(seen(p), member(kind, name)))), r, p)
    system = b.build()
    at = Span(f"specs/{name}.py", 3, 1)
    system = replace(
        system,
        actions=tuple(replace(action, doc=f"The page {name} is taken.", node=name, at=at) for action in system.actions),
        declared=tuple(replace(entry, doc=f"{name}: a promise.", at=at) for entry in system.declared),
    )
    instance = Instance.make(system, {"Page": 2, "<Request>": 2})
    values: list[bool | str | None] = []
    for place, _ in instance.state_layout.places:
        values.append(False if place == "holds" else None if place == "content" else name)
    start = State((), tuple(values))
    return make_trace(instance, start, (Choice("second", (1, 1)), Choice(name, (1, 1, name))), name + "~")
