"""Every misuse of the spec language that we know of, with the whole message that it gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvmodel.api import load
from kvmodel.errors import SpecError

BASE = """\
from enum import Enum, auto
from kvmodel.language import (
    Counter, Flag, Function, Number, Relation, Scalar, Single, Sort, Spec, action, anything, assume, count, counter, define, effect, final,
    flag, implies, initial, invariant, override, reachable, require, rigid, starts,
)
class Page(Sort): ...
class Request(Sort): ...
class Phase(Enum):
    NEW = auto()
    OLD = auto()
class Base(Spec):
    zero: Flag = flag(False, kind="defence", doc="Pages are zeroed.")
    free: Relation[Page] = starts(True)
    holds: Relation[Request, Page]
    content: Function[Page, Request | None]
    phase: Function[Request, Phase]
    refs: Counter[Page] = counter(0, 3)
    prompt: Number[Request]
    limit: Scalar
    tenant: Function[Request, Request] = rigid()
    @define
    def busy(s, p: Page) -> bool:
        return any(s.holds[r, p] for r in Request)
    @effect
    def release(s, r: Request, p: Page) -> None:
        s.free[p] = s.zero or not s.busy(p)
        s.holds[r, p] = False
    @action
    def give(s, r: Request, p: Page) -> None:
        require(s.free[p], "free")
        s.free[p] = False
        s.holds[r, p] = True
    @action
    def back(s, r: Request, p: Page) -> None:
        require(s.holds[r, p], "held")
        s.release(r, p)
"""


def after_base(text: str) -> str:
    """A file with `Base` and what follows it."""
    return BASE + text


def in_class(text: str) -> str:
    """A file whose class `Mine`, on line 37, extends `Base` and has these lines, from line 38 on."""
    return after_base("class Mine(Base):\n" + "".join(f"    {line}\n" for line in text.splitlines()))


def in_action(text: str) -> str:
    """The same with an action whose statements, from line 40 on, are these."""
    return in_class("@action\ndef step(s, r: Request, p: Page) -> None:\n" + "".join(f"    {line}\n" for line in text.splitlines()))


def in_invariant(text: str) -> str:
    """The same with an invariant that returns this expression, on line 40 from column 16 on."""
    return in_class(f"@invariant\ndef rule(s, r: Request, p: Page) -> bool:\n    return {text}\n")


# fmt: off
MISTAKES: dict[str, tuple[str, str]] = {
    "unknown variable": (
        in_invariant("s.hold[r, p]"),
        """\
spec.py:40:16: Mine.rule: the spec has no 'hold'; did you mean 'holds'?
    a variable, flag or definition is declared in the class or in a base class
""",
    ),
    "unknown name": (
        in_invariant("s.holds[r, q]"),
        """\
spec.py:40:27: Mine.rule: unknown name 'q'
    names are parameters and loop variables (r, p), sorts and enumerations
""",
    ),
    "unknown definition": (
        in_invariant("s.bussy(p)"),
        """\
spec.py:40:16: Mine.rule: the spec has no definition 'bussy'; did you mean 'busy'?
    declare it with @define in the class or in a base class
""",
    ),
    "unknown effect": (
        in_action("s.relase(r, p)"),
        """\
spec.py:40:9: Mine.step: the spec has no effect 'relase'; did you mean 'release'?
    declare it with @effect in the class or in a base class
""",
    ),
    "unknown member": (
        in_invariant("s.phase[r] == Phase.NOW"),
        """\
spec.py:40:30: Mine.rule: Phase has no member 'NOW'; did you mean 'NEW'?
    its members are NEW, OLD
""",
    ),
    "unknown enumeration": (
        in_invariant("s.phase[r] == Fase.NEW"),
        """\
spec.py:40:30: Mine.rule: unknown name 'Fase'; did you mean 'Base'?
    names are parameters and loop variables (r, p), sorts and enumerations
""",
    ),
    "unknown sort": (
        in_invariant("any(s.holds[r, q] for q in Pages)"),
        """\
spec.py:40:43: Mine.rule: `Pages` is not a sort or an enumeration; did you mean 'Page'?
    a loop ranges over a whole sort or enumeration: for p in Page
""",
    ),
    "unknown variable written": (
        in_action("s.hold[r, p] = True"),
        """\
spec.py:40:9: Mine.step: the spec has no variable 'hold'; did you mean 'holds'?
    declare it in the class: name: Relation[Page]
""",
    ),
    "unknown kind": (
        in_class("late: Relatoin[Page]"),
        """\
spec.py:38:11: Mine.late: `Relatoin` is not a kind of value; did you mean 'Relation'?
    the kinds are Relation[K, ...], Function[K, V], Counter[K], Number[K], Single[V], Scalar and Flag
""",
    ),
    "unknown sort in declaration": (
        in_class("late: Relation[Pge]"),
        """\
spec.py:38:20: Mine.late: `Pge` is not a sort or an enumeration; did you mean 'Page'?
    declare it at module level: class Page(Sort)
""",
    ),
    "without the spec": (
        in_invariant("holds[r, p]"),
        """\
spec.py:40:16: Mine.rule: unknown name 'holds'
    the spec's own are written with s: s.holds
""",
    ),
    "own call without the spec": (
        in_invariant("busy(p)"),
        """\
spec.py:40:16: Mine.rule: 'busy' is not a call of the language
    the spec's own are written with s: s.busy(...)
""",
    ),
    "own effect without the spec": (
        in_action("release(r, p)"),
        """\
spec.py:40:9: Mine.step: `release` is not a statement of the language
    the spec's own are written with s: s.release(...)
""",
    ),
    "wrong self": (
        in_invariant("self.holds[r, p]"),
        """\
spec.py:40:16: Mine.rule: unknown name 'self'
    the spec is called s here, as the method's first parameter says
""",
    ),
    "variable of an element": (
        in_invariant("p.free"),
        """\
spec.py:40:16: Mine.rule: `p.free` is not something that can be read here
    write s.free[p]
""",
    ),
    "import of an unknown word": (
        after_base("""\
from kvmodel.language import invarient
class Mine(Base):
    @invarient
    def rule(s) -> bool:
        return s.zero
"""),
        """\
spec.py:37:1: kvmodel.language has no 'invarient'; did you mean 'invariant'?
    the words of the language are those of `help(kvmodel.language)`
""",
    ),
    "import star": (
        after_base("""\
from kvmodel.language import *
class Mine(Base):
    pool: Function[Page, Phase] = partition()
"""),
        """\
spec.py:37:1: `import *` is not followed
    write the names: from kvmodel.language import Relation, Spec, action
""",
    ),
    "unknown shipped spec": (
        after_base("""\
from kvmodel.specs.page import Pages
class Mine(Pages): ...
"""),
        """\
spec.py:37:1: no shipped spec is called 'kvmodel.specs.page'
    `kvmodel specs` lists them: from kvmodel.specs.pages import Pages
""",
    ),
    "unknown class of a shipped spec": (
        after_base("""\
from kvmodel.specs.pages import Pagez
class Mine(Pagez): ...
"""),
        """\
spec.py:37:1: specs/pages.py has no 'Pagez'; did you mean 'Page'?
    import a class that the file defines
""",
    ),
    "name bound twice": (
        after_base("""\
class Page(Sort): ...
class Mine(Base): ...
"""),
        """\
spec.py:37:1: 'Page' is bound twice in this file
    rename one of them
""",
    ),
    "wrong sort of key": (
        in_invariant("s.holds[p, r]"),
        """\
spec.py:40:16: Mine.rule: 'holds' is indexed by a Request, not a Page
    write s.holds[Request, Page]
""",
    ),
    "too few keys": (
        in_invariant("s.holds[r]"),
        """\
spec.py:40:24: Mine.rule: 'holds' takes 2 keys (Request, Page), not 1
    write s.holds[Request, Page]
""",
    ),
    "no keys": (
        in_invariant("s.free"),
        """\
spec.py:40:16: Mine.rule: 'free' takes 1 key (Page), not none
    write s.free[Page]
""",
    ),
    "keys of a flag": (
        in_invariant("s.zero[p]"),
        """\
spec.py:40:16: Mine.rule: the flag 'zero' has no keys
    write s.zero
""",
    ),
    "keys of a definition": (
        in_invariant("s.busy[p]"),
        """\
spec.py:40:16: Mine.rule: 'busy' is a definition
    call it: s.busy(...)
""",
    ),
    "definition without call": (
        in_invariant("s.busy"),
        """\
spec.py:40:16: Mine.rule: 'busy' is a definition
    call it: s.busy(...)
""",
    ),
    "too many keys written": (
        in_action("s.free[r, p] = True"),
        """\
spec.py:40:9: Mine.step: 'free' takes 1 key (Page), not 2
    write s.free[Page]
""",
    ),
    "wrong value": (
        in_action("s.content[p] = p"),
        """\
spec.py:40:24: Mine.step: 'content' holds a Request | None, not a Page
    write a value that is a Request | None
""",
    ),
    "wrong arity of a definition": (
        in_invariant("s.busy(r, p)"),
        """\
spec.py:40:16: Mine.rule: 'busy' takes 1 argument (p: Page), not 2
    write s.busy(p)
""",
    ),
    "wrong sort of an argument": (
        in_invariant("s.busy(r)"),
        """\
spec.py:40:23: Mine.rule: 'p' of 'busy' is a Page, not a Request
    give it a Page
""",
    ),
    "implies of one": (
        in_invariant("implies(s.zero)"),
        """\
spec.py:40:16: Mine.rule: implies takes 2 arguments, not 1
    write implies(premise, conclusion)
""",
    ),
    "not a truth value": (
        in_invariant("s.content[p]"),
        """\
spec.py:40:16: Mine.rule: this is a Request | None, not a truth value
    write `... is not None`
""",
    ),
    "enumeration as truth value": (
        in_invariant("s.phase[r] and s.zero"),
        """\
spec.py:40:16: Mine.rule: this is a Phase, not a truth value
    compare it: `... == Phase.NEW`
""",
    ),
    "not of an element": (
        in_invariant("not s.phase[r]"),
        """\
spec.py:40:16: Mine.rule: 'not' needs truth values, not a Phase
    compare it: `... == Phase.NEW`
""",
    ),
    "never equal": (
        in_invariant("s.content[p] == p"),
        """\
spec.py:40:16: Mine.rule: a Request | None is never equal to a Page
    compare values of one kind
""",
    ),
    "none of a relation": (
        in_invariant("s.free[p] is None"),
        """\
spec.py:40:16: Mine.rule: a truth value is never None
    drop the comparison with None
""",
    ),
    "is": (
        in_invariant("s.content[p] is r"),
        """\
spec.py:40:32: Mine.rule: `is` compares with None only
    write == or !=
""",
    ),
    "none without meaning": (
        in_action("s.free[p] = None"),
        """\
spec.py:40:21: Mine.step: 'free' holds a truth value, never None
    None is held by what is declared with it: Function[Page, Request | None]
""",
    ),
    "branches of two kinds": (
        in_invariant("(r if s.zero else p) == r"),
        """\
spec.py:40:17: Mine.rule: the two branches are a Request and a Page
    both branches need one kind of value
""",
    ),
    "ordering of elements": (
        in_invariant("r > r"),
        """\
spec.py:40:16: Mine.rule: '>' compares a Request with a Request
    only two numbers or two counts have an order
""",
    ),
    "arithmetic on numbers": (
        in_invariant("s.prompt[r] + s.limit <= s.limit"),
        """\
spec.py:40:16: Mine.rule: a number and a number cannot be added
    numbers are compared, never computed with: only a constant can be added
""",
    ),
    "subtraction of numbers": (
        in_invariant("s.limit - s.prompt[r] > 0"),
        """\
spec.py:40:16: Mine.rule: `s.prompt[r]` cannot be subtracted
    compare the two, as in a <= b + 1: only a constant can be subtracted
""",
    ),
    "multiplication": (
        in_invariant("s.prompt[r] * 2 <= s.limit"),
        """\
spec.py:40:16: Mine.rule: `s.prompt[r] * 2` is not in the language
    integers are added and subtracted; numbers are compared, never computed with: only a constant can be added or subtracted
""",
    ),
    "adding truth values": (
        in_action("s.free[p] += 1"),
        """\
spec.py:40:9: Mine.step: a truth value and a count cannot be added
    only counters, count(...) and integers can be added
""",
    ),
    "bitwise": (
        in_invariant("s.free[p] & s.zero"),
        """\
spec.py:40:16: Mine.rule: `s.free[p] & s.zero` is not in the language
    write and, or, not, or != for exclusive or
""",
    ),
    "constant": (
        in_invariant('s.phase[r] == "NEW"'),
        """\
spec.py:40:30: Mine.rule: the constant `'NEW'` is not in the language
    constants are True, False, None and integers
""",
    ),
    "call not in the language": (
        in_invariant("len(s.holds) > 0"),
        """\
spec.py:40:16: Mine.rule: 'len' is not a call of the language
    the calls are implies(a, b), all(... for ...), any(... for ...), count(... for ...) and definitions: s.in_use(p)
""",
    ),
    "any without comprehension": (
        in_invariant("any([s.holds[r, q] for q in Page])"),
        """\
spec.py:40:16: Mine.rule: any is over a comprehension
    drop the brackets: (s.holds[r, p] for p in Page)
""",
    ),
    "keyword argument": (
        in_invariant("s.busy(p=p)"),
        """\
spec.py:40:16: Mine.rule: arguments are given by position
    write s.busy(a, b)
""",
    ),
    "lambda": (
        in_invariant("(lambda: True)()"),
        """\
spec.py:40:16: Mine.rule: `lambda: True` is not a call of the language
    the calls are implies(a, b), all(... for ...), any(... for ...), count(... for ...) and definitions: s.in_use(p)
""",
    ),
    "membership in a relation": (
        in_invariant("p in s.free"),
        """\
spec.py:40:21: Mine.rule: `in` is followed by the values, in parentheses
    write x in (None, r)
""",
    ),
    "reading a slice": (
        in_invariant("s.holds[r, :]"),
        """\
spec.py:40:27: Mine.rule: a slice can be written but not read
    use all(... for ...) or any(... for ...) over s.holds[Request, Page]
""",
    ),
    "loop over a range": (
        in_invariant("all(s.refs[p] == i for i in range(3))"),
        """\
spec.py:40:44: Mine.rule: `range(3)` is not a sort or an enumeration
    a loop ranges over a whole sort or enumeration: for p in Page
""",
    ),
    "loop over two": (
        in_invariant("all(s.holds[a, b] for a, b in Page)"),
        """\
spec.py:40:38: Mine.rule: a loop has one variable
    write `for p in Page`, and another `for` for another sort
""",
    ),
    "shadowing": (
        in_invariant("any(s.holds[r, p] for r in Request)"),
        """\
spec.py:40:38: Mine.rule: 'r' already stands for something here
    choose another name
""",
    ),
    "hiding a sort": (
        in_invariant("any(s.free[Request] for Request in Page)"),
        """\
spec.py:40:40: Mine.rule: 'Request' already stands for something in this file
    choose another name
""",
    ),
    "sort as a value": (
        in_invariant("s.free[Page]"),
        """\
spec.py:40:23: Mine.rule: 'Page' alone is not a value here
    loop over a sort, `for p in Page`; name a member, `Phase.NEW`
""",
    ),
    "possible none as a key": (
        in_invariant("s.holds[s.content[p], p]"),
        """\
spec.py:40:24: Mine.rule: the Request that indexes 'holds' may be None
    test it first: require(s.content[p] is not None, ...), or `s.content[p] is not None and ...`
""",
    ),
    "possible none as an argument": (
        in_class("""\
@define
def mine(s, r: Request) -> bool:
    return s.zero
@invariant
def rule(s, p: Page) -> bool:
    return s.mine(s.content[p])
"""),
        """\
spec.py:43:23: Mine.rule: 'r' of 'mine' may be None
    test it first: require(s.content[p] is not None, ...), or `s.content[p] is not None and ...`
""",
    ),
    "possible none written": (
        in_class("""\
last: Single[Request]
@action
def step(s, p: Page) -> None:
    s.last = s.content[p]
"""),
        """\
spec.py:41:18: Mine.step: 'last' holds a Request, and this may be None
    test it first: require(s.content[p] is not None, ...), or `s.content[p] is not None and ...`
""",
    ),
    "read after write": (
        in_action("""\
s.free[p] = False
s.refs[p] = 1 if s.free[p] else 0
"""),
        """\
spec.py:41:26: Mine.step: 'free' is read after it was written at spec.py:40
    every right-hand side reads the state before the step; read it above the write
""",
    ),
    "definition after write": (
        in_action("""\
s.holds[r, p] = False
s.free[p] = not s.busy(p)
"""),
        """\
spec.py:41:25: Mine.step: 'busy' reads 'holds', which was written at spec.py:40
    every right-hand side reads the state before the step; use the definition above the write
""",
    ),
    "effect after write": (
        in_action("""\
s.holds[r, p] = False
s.release(r, p)
"""),
        """\
spec.py:41:9: Mine.step: 'release' reads 'holds', which was written at spec.py:27
    every right-hand side reads the state before the step; use it above the write
""",
    ),
    "loop reads what it writes": (
        in_action("""\
for q in Page:
    if not any(s.free[o] for o in Page):
        s.free[q] = True
"""),
        """\
spec.py:41:24: Mine.step: 'free' is read here by each turn of a loop that writes it at spec.py:42
    every turn reads the state before the step; put what is read in an `if` around the loop
""",
    ),
    "two writes": (
        in_action("""\
s.free[p] = False
s.free[p] = True
"""),
        """\
spec.py:41:9: Mine.step: 'free' is written twice at one place: here (Mine.step) and at spec.py:40 (Mine.step)
    updates are simultaneous; write each place once, or under conditions that exclude each other
""",
    ),
    "two writes of two names": (
        in_action("""\
require(not s.free[p], "held")
s.refs[p] = 0
for q in Page:
    s.refs[q] = 1
"""),
        """\
spec.py:43:13: Mine.step: 'refs' is written twice at one place: here (Mine.step) and at spec.py:41 (Mine.step)
    updates are simultaneous; write each place once, or under conditions that exclude each other
""",
    ),
    "one place in a loop": (
        in_action("""\
for q in Page:
    s.free[p] = s.busy(q)
"""),
        """\
spec.py:41:13: Mine.step: 'free' is written once for every q, at one place
    use the loop's variable as an index
""",
    ),
    "two writes after composition": (
        in_class("""\
@override
@action
def give(s, r: Request, p: Page) -> None:
    super().give(r, p)
    s.free[p] = True
"""),
        """\
spec.py:42:9: Mine.give: 'free' is written twice at one place: here (Mine.give) and at spec.py:31 (Base.give)
    updates are simultaneous; write each place once, or under conditions that exclude each other
""",
    ),
    "write to a rigid value": (
        in_action("s.tenant[r] = r"),
        """\
spec.py:40:9: Mine.step: 'tenant' is rigid and cannot be written
    rigid things never change in a run
""",
    ),
    "write to a number": (
        in_action("s.limit = 3"),
        """\
spec.py:40:9: Mine.step: 'limit' is rigid and cannot be written
    rigid things never change in a run
""",
    ),
    "write to a flag": (
        in_action("s.zero = True"),
        """\
spec.py:40:9: Mine.step: 'zero' is a flag and cannot be written
    flags are a deployment's choice and never change in a run
""",
    ),
    "call written": (
        in_action("s.busy(p) = True"),
        """\
spec.py:40:9: not Python: cannot assign to function call here. Maybe you meant '==' instead of '='?
""",
    ),
    "write to a definition": (
        in_action("s.busy[p] = True"),
        """\
spec.py:40:9: Mine.step: 'busy' is a @define and cannot be written
    an action writes variables; what follows from them is not written
""",
    ),
    "write to a part of a slice": (
        in_action("s.holds[r, 0:1] = True"),
        """\
spec.py:40:20: Mine.step: a slice is the whole key
    write : alone, as in holds[r, :]
""",
    ),
    "local variable": (
        in_action("owner = s.content[p]"),
        """\
spec.py:40:9: Mine.step: 'owner' would be a local variable, which the language does not have
    a derived value is a definition (@define); the spec's own variables are written s.owner = ...
""",
    ),
    "two targets": (
        in_action("s.free[p] = s.holds[r, p] = True"),
        """\
spec.py:40:9: Mine.step: 2 places are written in one statement
    write one assignment for each
""",
    ),
    "guard in an if": (
        in_action("""\
if s.zero:
    require(s.free[p], "free")
"""),
        """\
spec.py:41:13: Mine.step: a guard stands at the top of an action
    write require(implies(condition, ...), ...) or require(all(... for ...), ...)
""",
    ),
    "guard in an effect": (
        in_class("""\
@effect
def more(s, p: Page) -> None:
    require(s.free[p], "free")
"""),
        """\
spec.py:40:9: Mine.more: an effect has no guards
    require in the action that uses it
""",
    ),
    "guard without a name": (
        in_action("require(s.free[p])"),
        """\
spec.py:40:9: Mine.step: a guard is a condition and a name
    write require(s.free[p], "free")
""",
    ),
    "guard twice": (
        in_action("""\
require(s.free[p], "free")
require(s.busy(p), "free")
"""),
        """\
spec.py:41:9: Mine.step: the action already has a guard 'free'
    use another name; an inherited guard is replaced by dropping it: @action(drop=("free",))
""",
    ),
    "assertion without a name": (
        in_action("assert s.free[p]"),
        """\
spec.py:40:9: Mine.step: an assertion has a name
    write assert condition, "name"
""",
    ),
    "assertion in a loop": (
        in_action("""\
for q in Page:
    assert s.free[q], "free"
"""),
        """\
spec.py:41:13: Mine.step: an assertion stands in an action, outside loops
    write assert all(... for p in Page), "name"
""",
    ),
    "while": (
        in_action("""\
while s.zero:
    s.free[p] = True
"""),
        """\
spec.py:40:9: Mine.step: `while s.zero: ...` is not a statement of the language
    an action has require(...), assert, assignments to the spec's variables, if, for, effects and super() calls
""",
    ),
    "print": (
        in_action('print("here")'),
        """\
spec.py:40:9: Mine.step: `print` is not a statement of the language
    an action has require(...), assert, assignments to the spec's variables, if, for, effects and super() calls
""",
    ),
    "return in an action": (
        in_action("return s.free[p]"),
        """\
spec.py:40:9: Mine.step: an action returns nothing
    only definitions and properties do; delete the return
""",
    ),
    "expression as a statement": (
        in_action("s.free[p]"),
        """\
spec.py:40:9: Mine.step: `s.free[p]` has no effect
    an action has require(...), assert, assignments to the spec's variables, if, for, effects and super() calls
""",
    ),
    "action as an effect": (
        in_action("s.give(r, p)"),
        """\
spec.py:40:9: Mine.step: 'give' is an @action, not an @effect
    definitions are used in expressions, effects in actions, and actions only through super()
""",
    ),
    "definition as a statement": (
        in_action("s.busy(p)"),
        """\
spec.py:40:9: Mine.step: 'busy' is a @define, not an @effect
    definitions are used in expressions, effects in actions, and actions only through super()
""",
    ),
    "super of another": (
        in_action("super().give(r, p)"),
        """\
spec.py:40:9: Mine.step: super().give is called in 'step'
    only super().step(...) can be
""",
    ),
    "super of nothing": (
        in_action("super().step(r, p)"),
        """\
spec.py:40:9: Mine.step: no base class has 'step'
    super() stands for the next class in the order of inheritance
""",
    ),
    "super in an if": (
        in_class("""\
@override
@action
def give(s, r: Request, p: Page) -> None:
    if s.zero:
        super().give(r, p)
"""),
        """\
spec.py:42:13: Mine.give: an inherited action stands at the top of its override
    move it out of the if or for
""",
    ),
    "guard of the parent again": (
        in_class("""\
@override
@action
def give(s, r: Request, p: Page) -> None:
    super().give(r, p)
    require(s.zero, "free")
"""),
        """\
spec.py:42:9: Mine.give: the action already has a guard 'free'
    use another name; an inherited guard is replaced by dropping it: @action(drop=("free",))
""",
    ),
    "dropped guard that does not exist": (
        in_class("""\
@override
@action(drop=("fre",))
def give(s, r: Request, p: Page) -> None:
    super().give(r, p)
"""),
        """\
spec.py:40:5: Mine.give: there is no inherited guard 'fre' to drop; did you mean 'free'?
    the guards that super().give(...) brings are 'free'
""",
    ),
    "dropped guard without super": (
        in_class("""\
@override
@action(drop=("free",))
def give(s, r: Request, p: Page) -> None:
    s.holds[r, p] = True
"""),
        """\
spec.py:40:5: Mine.give: there is no inherited guard 'free' to drop
    guards are inherited by calling super().give(...)
""",
    ),
    "override of nothing": (
        in_class("""\
@override
@action
def giv(s, r: Request) -> None:
    s.phase[r] = Phase.OLD
"""),
        """\
spec.py:40:5: Mine.giv: 'giv' overrides nothing; did you mean 'give'?
    no base class has a method of this name; drop @override or correct the name
""",
    ),
    "missing override": (
        in_class("""\
@action
def give(s, r: Request, p: Page) -> None:
    s.holds[r, p] = True
"""),
        """\
spec.py:39:5: Mine.give: 'give' replaces the one of Base without saying so
    mark it with @override, or give it another name
""",
    ),
    "override of another kind": (
        in_class("""\
@override
@effect
def give(s, r: Request, p: Page) -> None:
    s.holds[r, p] = True
"""),
        """\
spec.py:40:5: Mine.give: 'give' is an @action in Base
    an override keeps its kind: use @action
""",
    ),
    "override with other parameters": (
        in_class("""\
@override
@define
def busy(s, r: Request, p: Page) -> bool:
    return s.holds[r, p]
"""),
        """\
spec.py:40:5: Mine.busy: the parameters are not those of Base.busy
    those who use it give it what Base declares: p: Page
""",
    ),
    "no decorator": (
        in_class("""\
def step(s, p: Page) -> None:
    s.free[p] = True
"""),
        """\
spec.py:38:5: Mine.step: the method has no decorator that says what it is
    give it one of @action, @effect, @define, @invariant, @reachable, @final, @assume, @initial, @lemma
""",
    ),
    "unknown decorator": (
        in_class("""\
@acton
def step(s, p: Page) -> None:
    s.free[p] = True
"""),
        """\
spec.py:38:6: Mine.step: @acton is not a decorator of the language; did you mean 'action'?
    the decorators are @action, @effect, @define, @invariant, @reachable, @final, @assume, @initial, @lemma and @override
""",
    ),
    "two decorators": (
        in_class("""\
@action
@effect
def step(s, p: Page) -> None:
    s.free[p] = True
"""),
        """\
spec.py:40:5: Mine.step: the method has 2 decorators that say what it is
    give it one of @action, @effect, @define, @invariant, @reachable, @final, @assume, @initial, @lemma
""",
    ),
    "parameter without a sort": (
        in_class("""\
@action
def step(s, p) -> None:
    s.free[p] = True
"""),
        """\
spec.py:39:17: Mine.step: the parameter 'p' has no sort
    write p: Request
""",
    ),
    "parameter that is no element": (
        in_class("""\
@action
def step(s, p: int) -> None:
    s.free[p] = True
"""),
        """\
spec.py:39:20: Mine.step: `int` is not a sort or an enumeration; did you mean 'Mine'?
    a parameter is an element: p: Request
""",
    ),
    "default argument": (
        in_class("""\
@action
def step(s, p: Page = 1) -> None:
    s.free[p] = True
"""),
        """\
spec.py:39:27: Mine.step: parameters are the spec itself and named elements, nothing else
    write def step(s, r: Request)
""",
    ),
    "same parameter twice": (
        in_class("""\
@action
def step(s, p: Page, p: Page) -> None:
    s.free[p] = True
"""),
        """\
spec.py:39:17: Mine.step: two parameters are called 'p'
    rename one of them
""",
    ),
    "recursive definition": (
        in_class("""\
@define
def one(s, p: Page) -> bool:
    return s.two(p)
@define
def two(s, p: Page) -> bool:
    return s.one(p)
"""),
        """\
spec.py:43:16: Mine.two: the definition 'one' uses itself
    a definition is one expression over the state, without recursion
""",
    ),
    "recursive effect": (
        in_class("""\
@effect
def one(s, p: Page) -> None:
    s.free[p] = True
    s.one(p)
"""),
        """\
spec.py:41:9: Mine.one: 'one' uses itself
    an effect is a fixed group of updates, without recursion
""",
    ),
    "statements in a definition": (
        in_class("""\
@define
def one(s, p: Page) -> bool:
    x = s.free[p]
    return x
"""),
        """\
spec.py:40:9: Mine.one: the body of a @define is one returned expression
    write a docstring and one `return`
""",
    ),
    "nothing returned": (
        in_class("""\
@invariant
def rule(s, p: Page) -> bool:
    "Nothing."
"""),
        """\
spec.py:39:5: Mine.rule: the body of an @invariant is one returned expression
    write a docstring and one `return`
""",
    ),
    "reserved property": (
        in_class("""\
@invariant
def no_deadlock(s) -> bool:
    return s.zero
"""),
        """\
spec.py:39:5: Mine.no_deadlock: 'no_deadlock' is a property that every spec has
    give it another name
""",
    ),
    "variable declared again": (
        in_class("free: Relation[Page]"),
        """\
spec.py:38:5: Mine.free: 'free' is declared already at spec.py:13
    a variable is declared once; this one needs another name
""",
    ),
    "flag declared again": (
        in_class("zero: bool = True"),
        """\
spec.py:38:5: Mine.zero: 'zero' is a flag already
    a flag is set without its kind: zero = True
""",
    ),
    "flag that does not exist": (
        in_class("zeros = True"),
        """\
spec.py:38:5: Mine.zeros: there is no flag 'zeros' to set; did you mean 'zero'?
    a flag is declared with `name: Flag = flag(False, kind="defence", doc="...")`
""",
    ),
    "variable set like a flag": (
        in_class("free = True"),
        """\
spec.py:38:5: Mine.free: 'free' is a variable, not a flag
    the initial value of a variable stands where it is declared: free: Relation[Page] = starts(True)
""",
    ),
    "flag never read": (
        in_class('late: Flag = flag(True, kind="hazard", doc="Nobody asks.")'),
        """\
spec.py:38:5: Mine.late: the flag 'late' is set and never read
    read it in a guard, a definition or an assumption, or delete it
""",
    ),
    "flag of no kind": (
        in_class('late: Flag = flag(True, kind="danger", doc="Nobody asks.")'),
        """\
spec.py:38:34: Mine.late: 'danger' is not a kind of flag
    the kinds are defence, sizing, hazard
""",
    ),
    "flag without documentation": (
        in_class('late: Flag = flag(True, kind="hazard")'),
        """\
spec.py:38:5: Mine.late: a flag is declared with its default, kind and one sentence
    write name: Flag = flag(False, kind="defence", doc="one sentence")
""",
    ),
    "counter without a range": (
        in_class("late: Counter[Page]"),
        """\
spec.py:38:5: Mine.late: a counter is declared with its range
    write refs: Counter[Page] = counter(0, 3)
""",
    ),
    "counter of a large range": (
        in_class("late: Counter[Page] = counter(0, 1000)"),
        """\
spec.py:38:27: Mine.late: the range 0..1000 is not that of a small counter
    a counter has 1 to 65 values
""",
    ),
    "counter starting outside": (
        in_class("late: Counter[Page] = counter(1, 3)"),
        """\
spec.py:38:5: Mine.late: the counter does not start within 1..3
    write starts=1, for example
""",
    ),
    "number with a start": (
        in_class("late: Number[Page] = starts(3)"),
        """\
spec.py:38:5: Mine.late: a number is rigid and has no initial value
    say what is known of it with @assume
""",
    ),
    "enumeration or none": (
        in_class("late: Function[Page, Phase | None]"),
        """\
spec.py:38:26: Mine.late: Phase is an enumeration and is never None
    add a member that says so
""",
    ),
    "relation without keys": (
        in_class("late: Relation"),
        """\
spec.py:38:5: Mine.late: a relation without keys is a single truth value
    write Single[bool]
""",
    ),
    "function without a value": (
        in_class("late: Function[Page]"),
        """\
spec.py:38:5: Mine.late: a function has keys and a value
    write Function[Page, Request | None]; without keys: Single[...]
""",
    ),
    "initial value of another kind": (
        in_class("late: Relation[Page] = starts(None)"),
        """\
spec.py:38:28: Mine.late: the initial value is not a constant of the variable's kind
    write starts(True), starts(None) or starts(Phase.NEW)
""",
    ),
    "initial value without starts": (
        in_class("late: Relation[Page] = True"),
        """\
spec.py:38:28: Mine.late: `True` is not an initial value of the language
    write starts(value), anything(), rigid(), partition(), counter(low, high) or flag(...)
""",
    ),
    "statement in a class": (
        in_class('print("loaded")'),
        """\
spec.py:38:5: Mine: `print('loaded')` does not belong in a spec class
    a spec class has declarations (name: Kind), flag settings (name = True) and decorated methods
""",
    ),
    "size of no sort": (
        in_class('sizes = {"Pages": 2}'),
        """\
spec.py:38:14: Mine: sizes names 'Pages', which is not a sort of the spec; did you mean 'Page'?
    its sorts are Page, Request
""",
    ),
    "size zero": (
        in_class('sizes = {"Page": 0}'),
        """\
spec.py:38:14: Mine: the size of Page is 0
    a sort is never empty: it has at least 1 element
""",
    ),
    "sizes of no table": (
        in_class("sizes = [2]"),
        """\
spec.py:38:5: Mine: sizes is not a table of sorts and integers
    write sizes = {"Request": 2, "Page.DECODE": 3}
""",
    ),
    "assumption about the state": (
        in_class("""\
@assume
def known(s, p: Page) -> bool:
    return s.free[p]
"""),
        """\
spec.py:40:16: Mine.known: an assumption reads 'free', which changes in a run
    assumptions are about rigid things: flags, numbers and rigid relations and functions
""",
    ),
    "base that is no spec": (
        after_base("""\
class Mine(Base, Page): ...
"""),
        """\
spec.py:37:18: Mine: 'Page' cannot be extended
    only specs can; declare another one: class Block(Sort)
""",
    ),
    "base below": (
        after_base("""\
class Mine(Other): ...
class Other(Base): ...
"""),
        """\
spec.py:37:12: Mine: the class extends 'Other', which stands below it
    a base class stands above the classes that extend it
""",
    ),
    "contradictory order of bases": (
        after_base("""\
class Other(Base): ...
class Mine(Base, Other): ...
"""),
        """\
spec.py:38:1: Mine: the order of the base classes contradicts itself: each of Base and Other has to come first
    write the base classes in another order, the more special one first
""",
    ),
    "spec beside a spec": (
        after_base("""\
class Mine(Base, Spec): ...
"""),
        """\
spec.py:37:12: Mine: `Base` is a spec already
    extend it alone, without Spec
""",
    ),
    "not a spec": (
        after_base("""\
class Mine: ...
"""),
        """\
spec.py:37:1: Mine: the class is not a spec: none of its base classes is one
    extend Spec, from kvmodel.language import Spec, or a spec of a shipped file or of one beside this
""",
    ),
    "class keyword": (
        after_base("""\
class Mine(Base, varient="mine"): ...
"""),
        """\
spec.py:37:26: Mine: the class keyword 'varient' is not in the language
    the only one is variant="name"
""",
    ),
    "variant name": (
        after_base("""\
class Mine(Base, variant="mine:own"): ...
"""),
        """\
spec.py:37:26: Mine: the name of a variant is letters, digits, dots and dashes
    write variant="zero-on-free"
""",
    ),
    "hidden method of a sibling": (
        after_base("""\
class Other(Base):
    @action
    def drop(s, p: Page) -> None:
        s.free[p] = True
class Third(Base):
    @action
    def drop(s, p: Page) -> None:
        s.refs[p] = 0
class Mine(Other, Third): ...
"""),
        """\
spec.py:45:1: Mine: Other and Third both have 'drop', and the second is never used
    rename one of them, or override 'drop' in Mine
""",
    ),
    "two sorts of one name": (
        after_base("""\
from kvmodel.specs.pages import Pages
class Mine(Base, Pages): ...
"""),
        """\
spec.py:13:5: Base.free: 'free' is declared already at specs/pages.py:50
    a variable is declared once; this one needs another name
spec.py:14:5: Base.holds: 'holds' is declared already at specs/pages.py:54
    a variable is declared once; this one needs another name
spec.py:15:5: Base.content: 'content' is declared already at specs/pages.py:56
    a variable is declared once; this one needs another name
spec.py:38:1: Mine: the spec uses two sorts or enumerations called 'Page'
    rename one of them, or import it from the file that declares it
spec.py:38:1: Mine: the spec uses two sorts or enumerations called 'Request'
    rename one of them, or import it from the file that declares it
5 mistakes
""",
    ),
    "empty enumeration": (
        after_base("""\
class Kind(Enum): ...
class Mine(Base):
    kind: Single[Kind]
"""),
        """\
spec.py:37:1: Kind: the enumeration has no members
    write one line for each member: NEW = auto()
""",
    ),
    "member aliases": (
        after_base("""\
class Kind(Enum):
    ONE = 1
    UNO = 1
class Mine(Base):
    kind: Single[Kind]
"""),
        """\
spec.py:39:5: Kind: 'UNO' has the value of 'ONE', so Python takes both for one member
    write UNO = auto()
""",
    ),
    "sort of a sort": (
        after_base("""\
class Block(Page): ...
class Mine(Base): ...
"""),
        """\
spec.py:37:13: Block: 'Page' cannot be extended
    only specs can; declare another one: class Block(Sort)
""",
    ),
    "definition of a parent broken": (
        after_base("""\
class Other(Base):
    @define
    def odd(s, p: Page) -> bool:
        return s.fre[p]
class Mine(Other):
    @invariant
    def rule(s, p: Page) -> bool:
        return s.odd(p)
"""),
        """\
spec.py:40:16: Other.odd: the spec has no 'fre'; did you mean 'free'?
    a variable, flag or definition is declared in the class or in a base class
""",
    ),
    "several": (
        in_class("""\
late: Relation[Pge]
@action
def step(s, r: Request, p: Page) -> None:
    require(s.hold[r, p] and s.fre[p], "free")
    require(s.late[p], "late")
    if s.zeros:
        s.limit = 3
    s.free[p] = s.busy(r)
@invariant
def rule(s, p: Page) -> bool:
    return s.holds[p] and s.content[p] == p
"""),
        """\
spec.py:38:20: Mine.late: `Pge` is not a sort or an enumeration; did you mean 'Page'?
    declare it at module level: class Page(Sort)
spec.py:41:17: Mine.step: the spec has no 'hold'; did you mean 'holds'?
    a variable, flag or definition is declared in the class or in a base class
spec.py:41:34: Mine.step: the spec has no 'fre'; did you mean 'free'?
    a variable, flag or definition is declared in the class or in a base class
spec.py:43:12: Mine.step: the spec has no 'zeros'; did you mean 'zero'?
    a variable, flag or definition is declared in the class or in a base class
spec.py:44:13: Mine.step: 'limit' is rigid and cannot be written
    rigid things never change in a run
spec.py:45:28: Mine.step: 'p' of 'busy' is a Page, not a Request
    give it a Page
spec.py:48:24: Mine.rule: 'holds' takes 2 keys (Request, Page), not 1
    write s.holds[Request, Page]
spec.py:48:31: Mine.rule: a Request | None is never equal to a Page
    compare values of one kind
8 mistakes
""",
    ),
    "without the guard that is dropped": (
        after_base("""\
class Other(Base):
    @action
    def move(s, p: Page) -> None:
        require(s.content[p] is not None, "has")
        s.holds[s.content[p], p] = False
class Mine(Other):
    @override
    @action(drop=("has",))
    def move(s, p: Page) -> None:
        super().move(p)
"""),
        """\
spec.py:46:9: Mine.move: without the guards that it drops, the Request that indexes 'holds' may be None at spec.py:41
    keep the guard, or put another one in its place
""",
    ),
    "attribute of an element written": (
        in_action("r.phase = Phase.OLD"),
        """\
spec.py:40:9: Mine.step: `r.phase` cannot be written
    an action writes the spec's own variables: s.holds[r, p] = True
""",
    ),
    "variable of a variable": (
        in_invariant("s.content[p].free"),
        """\
spec.py:40:16: Mine.rule: `s.content[p].free` is not something that can be read here
    only the spec's own variables can: s.holds[r, p]
""",
    ),
    "two counts and a number": (
        in_invariant("count(s.holds[r, q] for q in Page) > s.limit"),
        """\
spec.py:40:16: Mine.rule: '>' compares a count with a number
    only two numbers or two counts have an order
""",
    ),
    "none of a counter": (
        in_invariant("s.refs[p] == None"),
        """\
spec.py:40:16: Mine.rule: a counter 0..3 is never None
    drop the comparison with None
""",
    ),
    "assertion in an effect": (
        in_class("""\
@effect
def more(s, p: Page) -> None:
    assert s.free[p], "free"
"""),
        """\
spec.py:40:9: Mine.more: an assertion stands in an action, outside loops
    write assert all(... for p in Page), "name"
""",
    ),
    "unused effect with a mistake": (
        in_class("""\
@effect
def more(s, p: Page) -> None:
    s.fre[p] = True
"""),
        """\
spec.py:40:9: Mine.more: the spec has no variable 'fre'; did you mean 'free'?
    declare it in the class: name: Relation[Page]
""",
    ),
    "argument of a decorator": (
        in_class("""\
@action(guards=("free",))
def step(s, p: Page) -> None:
    s.free[p] = True
"""),
        """\
spec.py:38:20: Mine.step: @action has no argument 'guards'
    write @action(drop=("guard name",)) or @action(node="decode")
""",
    ),
    "argument of another decorator": (
        in_class("""\
@invariant(drop=("free",))
def rule(s, p: Page) -> bool:
    return s.free[p]
"""),
        """\
spec.py:38:6: Mine.rule: @invariant takes no arguments
    write @invariant; only @action has some
""",
    ),
    "decorated spec": (
        after_base("""\
@final
class Mine(Base): ...
"""),
        """\
spec.py:37:2: Mine: a spec class has no decorators
    delete @final
""",
    ),
    "file in another folder": (
        after_base("""\
from ..other import Other
class Mine(Other): ...
"""),
        """\
spec.py:37:1: the import is of a file in another folder
    a base class is a spec of this file, of a shipped spec, or of a file beside this one
""",
    ),
    "module of a base": (
        after_base("""\
from kvmodel.specs import pages
class Mine(pages.Pages): ...
"""),
        """\
spec.py:38:1: Mine: the class is not a spec: none of its base classes is one
    import the base class itself: from kvmodel.language import Spec
""",
    ),
    "members in one line": (
        after_base("""\
class Kind(Enum):
    ONE, TWO = 1, 2
class Mine(Base):
    kind: Single[Kind]
"""),
        """\
spec.py:38:5: Kind: `ONE, TWO = (1, 2)` is not a member
    write one line for each member: NEW = auto()
""",
    ),
    "partition of a relation": (
        after_base("""\
from kvmodel.language import partition
class Mine(Base):
    far: Relation[Page] = partition()
"""),
        """\
spec.py:39:5: Mine.far: a partition is a function from one sort into an enumeration
    write pool: Function[Page, Pool] = partition()
""",
    ),
    "rigid counter": (
        in_class("late: Counter[Page] = rigid()"),
        """\
spec.py:38:5: Mine.late: a counter is declared with its range
    write refs: Counter[Page] = counter(0, 3)
""",
    ),
    "single without a kind": (
        in_class("late: Single"),
        """\
spec.py:38:5: Mine.late: Single has one value
    write Single[bool], Single[Phase] or Single[Request | None]
""",
    ),
    "flag set twice": (
        in_class("""\
zero = True
zero = False
"""),
        """\
spec.py:39:5: Mine.zero: 'zero' is set twice
    delete one of the two lines
""",
    ),
    "variable declared twice": (
        in_class("""\
late: Relation[Page]
late: Relation[Request]
"""),
        """\
spec.py:39:5: Mine.late: 'late' is declared twice
    rename one of them
""",
    ),
    "method defined twice": (
        in_class("""\
@invariant
def rule(s, p: Page) -> bool:
    return s.free[p]
@invariant
def rule(s, p: Page) -> bool:
    return not s.free[p]
"""),
        """\
spec.py:42:5: Mine.rule: 'rule' is defined twice in one class
    rename one of them
""",
    ),
    "variable and method": (
        in_class("""\
@invariant
def holds(s) -> bool:
    return s.zero
"""),
        """\
spec.py:39:5: Mine.holds: 'holds' is a variable or a flag and a method
    rename one of them
""",
    ),
    "name of a guard": (
        in_action('require(s.free[p], "a\\x1b[2Jname")'),
        """\
spec.py:40:28: Mine.step: the name of a guard or an assertion is a short line of text, of at most 200 characters
    write "free"
""",
    ),
    "not Python": (
        after_base("""\
class Mine(Base:
    pass
"""),
        """\
spec.py:37:16: not Python: invalid syntax
""",
    ),
    "too many parameters": (
        in_class("""\
@invariant
def rule(s, a: Page, b: Page, c: Page, d: Page, e: Page, f: Page, g: Page, h: Page, i: Page) -> bool:
    return a == b
"""),
        """\
spec.py:39:5: Mine.rule: the method has 9 parameters; at most 8
    use any(... for ...) for the others
""",
    ),
    "keys without end": (
        in_class("late: Relation[Page, Page, Page, Page, Page, Page, Page]"),
        """\
spec.py:38:5: Mine.late: 'late' has 7 keys; at most 6
    split it into several variables
""",
    ),
    "else of a loop": (
        in_action("""\
for q in Page:
    s.free[q] = True
else:
    s.refs[p] = 0
"""),
        """\
spec.py:43:13: Mine.step: a `for` has no `else`
    write it below the loop
""",
    ),
    "method with a star": (
        in_class("""\
@invariant
def rule(s, *pages: Page) -> bool:
    return s.zero
"""),
        """\
spec.py:39:18: Mine.rule: parameters are the spec itself and named elements, nothing else
    write def rule(s, r: Request)
""",
    ),
    "nested function": (
        in_action("""\
def inner() -> None: ...
s.free[p] = True
"""),
        """\
spec.py:40:9: Mine.step: `def inner() -> None: ...` is not a statement of the language
    an action has require(...), assert, assignments to the spec's variables, if, for, effects and super() calls
""",
    ),
    "method in a class in a class": (
        in_class("""\
class Inner:
    pass
"""),
        """\
spec.py:38:5: Mine: `class Inner: ...` does not belong in a spec class
    a spec class has declarations (name: Kind), flag settings (name = True) and decorated methods
""",
    ),
    "counting elements": (
        in_invariant("count(q for q in Request) == 1"),
        """\
spec.py:40:22: Mine.rule: this is a Request, not a truth value
    write a comparison
""",
    ),
    "follow-on of a broken guard": (
        after_base("""\
class Other(Base):
    @action
    def move(s, r: Request, p: Page) -> None:
        require(s.content[q] is not None, "has")
        s.holds[s.content[p], p] = False
        s.tenant[r] = r
class Mine(Other):
    @override
    @action(drop=("has",))
    def move(s, r: Request, p: Page) -> None:
        super().move(r, p)
"""),
        """\
spec.py:40:27: Other.move: unknown name 'q'
    names are parameters and loop variables (r, p), sorts and enumerations
spec.py:42:9: Other.move: 'tenant' is rigid and cannot be written
    rigid things never change in a run
spec.py:47:9: Mine.move: without the guards that it drops, the Request that indexes 'holds' may be None at spec.py:41
    keep the guard, or put another one in its place
3 mistakes
""",
    ),
    "follow-on of an unknown base": (
        after_base("""\
from kvmodel.specs.pages import Pags
class Mine(Pags):
    quarantine = False
    @override
    @define
    def live(s, r: Request, p: Page) -> bool:
        return s.own_or_blank(r, p) and s.wrting[r, p]
    @invariant
    def rule(s, p: Page) -> bool:
        return p
"""),
        """\
spec.py:37:1: specs/pages.py has no 'Pags'; did you mean 'Pages'?
    import a class that the file defines
""",
    ),
    "contradictory assumptions": (
        in_class("""\
@assume
def small(s, r: Request) -> bool:
    return s.prompt[r] < s.limit
@assume
def some(s) -> bool:
    return s.limit > 0
@assume
def large(s, r: Request) -> bool:
    return s.prompt[r] >= s.limit
"""),
        """\
spec.py:45:5: Mine.large: no deployment satisfies this assumption together with 'small'
    assumptions that contradict each other would make every property hold; correct one of them
""",
    ),
    "contradictory initial states": (
        in_class("""\
@initial
def taken(s, p: Page) -> bool:
    return not s.free[p]
"""),
        """\
spec.py:39:5: Mine.taken: no initial state satisfies this condition
    correct one of them, or the initial values of the variables: starts(...), anything()
""",
    ),
    "word not imported": (
        """\
from kvmodel.language import Relation, Sort, Spec, action
class Page(Sort): ...
class Mine(Spec):
    free: Relation[Page] = starts(True)
    late: Counter[Page]
    @action
    def take(s, p: Page) -> None:
        require(s.free[p], "free")
        s.free[p] = False
    @invariant
    def rule(s) -> bool:
        return count(s.free[p] for p in Page) == 1 or implies(True, True)
""",
        """\
spec.py:4:28: Mine.free: 'starts' is not imported
    write from kvmodel.language import starts
spec.py:5:11: Mine.late: `Counter` is not a kind of value
    import it: from kvmodel.language import Counter
spec.py:8:9: Mine.take: 'require' is not imported
    write from kvmodel.language import require
spec.py:10:6: Mine.rule: @invariant is not imported
    write from kvmodel.language import invariant
4 mistakes
""",
    ),
    "language imported as a module": (
        """\
import kvmodel.language as kv
class Page(kv.Sort): ...
class Mine(kv.Spec): ...
""",
        """\
spec.py:3:1: Mine: the class is not a spec: none of its base classes is one
    import the base class itself: from kvmodel.language import Spec
""",
    ),
}
# fmt: on


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_gets_its_whole_message(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, message = MISTAKES[name]
    monkeypatch.chdir(tmp_path)
    Path("spec.py").write_text(source)
    with pytest.raises(SpecError) as caught:
        load("spec.py:Mine")
    assert str(caught.value) == message.rstrip("\n")


def test_every_message_says_what_to_write_instead() -> None:
    """Python's own words about a file that is not Python are the only ones without."""
    for name, (_, message) in MISTAKES.items():
        lines = message.splitlines()
        mistakes = [line for line in lines if line.startswith("spec.py:")]
        hints = [line for line in lines if line.startswith("    ")]
        assert len(mistakes) == len(hints) or "not Python" in message, name


def test_the_file_without_a_mistake_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.py").write_text(in_action("require(s.content[p] is None, 'blank')\ns.content[p] = r"))
    assert [action.name for action in load("spec.py:Mine").actions] == ["give", "back", "step"]
