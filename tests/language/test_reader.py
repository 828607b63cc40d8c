"""What the reader makes of spec classes."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from kvmodel.errors import SpecError, UsageError
from kvmodel.language import Spec
from kvmodel.language.classes import linearise
from kvmodel.language.expressions import Bound
from kvmodel.language.instance import Instance
from kvmodel.language.load import load_class, load_spec, shipped
from kvmodel.language.modules import SHIPPED, Library, SpecClass
from kvmodel.language.system import ANYTHING, FlagKind, PropertyKind, TransitionSystem
from kvmodel.language.text import expression, update
from kvmodel.language.types import BOOL, NUMBER, Counter, Element, Enumeration, Maybe, Sort
from kvmodel.readings.explore import explore
from kvmodel.readings.initial import initial_states
from kvmodel.readings.run import Interpreter
from kvmodel.traces.trace import Choice

HEAD = """\
from enum import Enum, auto
from kvmodel.language import (
    Counter, Flag, Function, Number, Relation, Scalar, Single, Sort, Spec, action, anything, assume, count, counter, define, effect, final,
    flag, implies, initial, invariant, override, partition, reachable, require, rigid, starts,
)

class Page(Sort):
    '''A page.'''

class Request(Sort):
    '''A request.'''

class Phase(Enum):
    '''How far it is.'''
    NEW = auto()
    OLD = auto()

"""
POOL = """\
class Pool(Spec):
    free: Relation[Page] = starts(True)
    holds: Relation[Request, Page]
    zero: Flag = flag(False, kind="defence", doc="Zeroed.")
    content: Function[Page, Request | None]

    @define
    def usable(s, p: Page) -> bool:
        '''A page that can be taken.'''
        return s.free[p]

    @effect
    def let_go(s, r: Request, p: Page) -> None:
        s.holds[r, p] = False
        s.free[p] = True
        if s.zero:
            s.content[p] = None

    @action
    def take(s, r: Request, p: Page) -> None:
        '''Take a page.'''
        require(s.usable(p), "usable")
        require(s.content[p] is None or not s.holds[r, p], "not again")
        s.free[p] = False
        s.holds[r, p] = True

    @action
    def give(s, r: Request, p: Page) -> None:
        require(s.holds[r, p], "held")
        s.let_go(r, p)

"""

Read = Callable[[str], TransitionSystem]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Reads the class `Mine` of a file with the usual imports and sorts at its head."""
    monkeypatch.chdir(tmp_path)

    def read(text: str) -> TransitionSystem:
        Path("spec.py").write_text(HEAD + text)
        return load_spec("spec.py:Mine")

    return read


def guards(system: TransitionSystem, action: str) -> dict[str, str]:
    return {guard.name: expression(guard.condition) for guard in system.action(action).guards}


def updates(system: TransitionSystem, action: str) -> list[str]:
    return [update(entry) for entry in system.action(action).updates]


# -- declarations

def test_every_kind_of_value(read: Read) -> None:
    system = read("""\
class Mine(Spec):
    '''What there is.'''
    zero: Flag = flag(True, kind="sizing", doc="A flag\\n   of two lines.")
    free: Relation[Page] = starts(True)
    "Free pages."
    held: Relation[Request, Page]
    on: Single[bool]
    owner: Function[Page, Request | None]
    first: Function[Page, Request]
    phase: Function[Request, Phase] = starts(Phase.OLD)
    now: Single[Phase]
    any_phase: Function[Request, Phase] = anything()
    last: Single[Page | None]
    refs: Counter[Page] = counter(-1, 3, starts=2)
    total: Single[int] = counter(0, 3)
    part: Function[Page, Phase] = partition()
    tenant: Function[Request, Request] = rigid()
    near: Relation[Page] = rigid()
    prompt: Number[Request]
    limit: Scalar

    @final
    def ended(s) -> bool:
        return s.zero
""")
    page, request, phase = Sort("Page"), Sort("Request"), Enumeration("Phase", ("NEW", "OLD"))
    assert [(v.name, v.keys, v.type, v.initial, v.rigid, v.partition) for v in system.variables] == [
        ("free", (page,), BOOL, True, False, False),
        ("held", (request, page), BOOL, False, False, False),
        ("on", (), BOOL, False, False, False),
        ("owner", (page,), Maybe(request), None, False, False),
        ("first", (page,), Element(request), ANYTHING, False, False),
        ("phase", (request,), Element(phase), "OLD", False, False),
        ("now", (), Element(phase), "NEW", False, False),
        ("any_phase", (request,), Element(phase), ANYTHING, False, False),
        ("last", (), Maybe(page), None, False, False),
        ("refs", (page,), Counter(-1, 3), 2, False, False),
        ("total", (), Counter(0, 3), 0, False, False),
        ("part", (page,), Element(phase), ANYTHING, True, True),
        ("tenant", (request,), Element(request), ANYTHING, True, False),
        ("near", (page,), BOOL, ANYTHING, True, False),
        ("prompt", (request,), NUMBER, ANYTHING, True, False),
        ("limit", (), NUMBER, ANYTHING, True, False),
    ]
    (flag,) = system.flags
    assert (flag.name, flag.value, flag.default, flag.kind, flag.doc) == ("zero", True, True, FlagKind.SIZING, "A flag of two lines.")
    assert system.by_name["free"].doc == "Free pages."
    assert (system.doc, system.sorts[0].doc, system.enumerations[0].doc) == ("What there is.", "A page.", "How far it is.")
    assert (system.by_name["free"].at.line, system.by_name["free"].at.column) == (21, 5)


def test_sizes_are_inherited_and_overridden(read: Read) -> None:
    system = read(POOL.replace("free:", 'sizes = {"Page": 3, "Request": 1}\n    free:') + "class Mine(Pool):\n    sizes = {'Request': 2}\n")
    assert dict(system.sizes) == {"Page": 3, "Request": 2}
    assert Instance.make(system).describe_size() == "Page=3 Request=2"


def test_sorts_that_are_only_quantified_over_and_sorts_of_other_specs(read: Read) -> None:
    text = """\
class Other(Sort): ...
class Unused(Sort): ...
class Mine(Spec):
    free: Relation[Page] = starts(True)
    @action
    def take(s, p: Page) -> None:
        require(s.free[p], "free")
        s.free[p] = False
    @invariant
    def rule(s) -> bool:
        return all(a == b or s.free[p] or not s.free[p] for a in Other for b in Other for p in Page)
    @invariant
    def phases(s, x: Phase) -> bool:
        return x in (Phase.NEW, Phase.OLD)
class Beside(Spec):
    wanted: Relation[Request]
    @initial
    def none(s, r: Request) -> bool:
        return not s.wanted[r]
"""
    system = read(text)
    # Request is mentioned by the other spec of the file alone; Unused by nobody, which is a finding
    assert [sort.name for sort in system.sorts] == ["Page", "Other", "Unused"]
    assert [enumeration.name for enumeration in system.enumerations] == ["Phase"]
    assert explore(Instance.make(system)).verdict.value == "violated"  # taken pages have no successor


# -- expressions

EXPRESSIONS = {
    "s.usable(p) and not s.holds[r, p]": "usable(p) and not holds[r, p]",
    "s.content[p] in (None, r)": "content[p] in (None, r)",
    "s.content[p] not in (None, r)": "content[p] not in (None, r)",
    "None is s.content[p]": "content[p] is None",
    "s.content[p] != r": "content[p] != r",
    "r == s.content[p]": "r == content[p]",
    "s.zero": "zero",
    "implies(s.content[p] is not None, s.holds[s.content[p], p])": "implies(content[p] is not None, holds[content[p], p])",
    "s.content[p] is None or s.holds[s.content[p], p]": "content[p] is None or holds[content[p], p]",
    "not (s.content[p] is not None and s.free[p]) or s.holds[s.content[p], p]":
        "not (content[p] is not None and free[p]) or holds[content[p], p]",
    "s.holds[s.content[p], p] if s.content[p] is not None else True": "holds[content[p], p] if content[p] is not None else True",
    "all(s.holds[q, p] for q in Request if q != r)": "all(implies(q != r, holds[q, p]) for q in Request)",
    "any(s.holds[q, o] for q in Request for o in Page if o != p)": "any(o != p and holds[q, o] for q in Request for o in Page)",
    "any(s.holds[s.content[o], o] for o in Page if s.content[o] is not None)":
        "any(content[o] is not None and holds[content[o], o] for o in Page)",
    "count(s.holds[q, p] for q in Request) <= 1": "count(holds[q, p] for q in Request) <= 1",
    "0 <= count(s.free[o] for o in Page) < 3 + 1 - 2":
        "0 <= count(free[o] for o in Page) and count(free[o] for o in Page) < (3 + 1) - 2",
    "count(s.free[o] for o in Page) > count(not s.free[o] for o in Page)":
        "count(not free[o] for o in Page) < count(free[o] for o in Page)",
    "(None if s.zero else r) == s.content[p]": "(None if zero else r) == content[p]",
}  # fmt: skip


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions(read: Read, text: str) -> None:
    system = read(POOL + f"class Mine(Pool):\n    @invariant\n    def rule(s, r: Request, p: Page) -> bool:\n        return {text}\n")
    assert expression(system.property("rule").condition) == EXPRESSIONS[text]


def test_a_loop_never_catches_the_variable_of_the_one_who_uses_it(read: Read) -> None:
    """A definition, or an effect, that loops over `p` and is given somebody else's `p`."""
    system = read("""\
class Mine(Spec):
    link: Relation[Page, Page]
    seen: Relation[Page]
    @define
    def linked(s, x: Page) -> bool:
        return any(s.link[x, p] for p in Page)
    @effect
    def mark(s, x: Page) -> None:
        for p in Page:
            if s.link[x, p]:
                s.seen[p] = True
    @action
    def join(s, p: Page, q: Page) -> None:
        require(p != q and not s.link[p, q], "two")
        s.link[p, q] = True
    @action
    def sweep(s, p: Page) -> None:
        require(s.linked(p), "linked")
        s.mark(p)
    @action
    def each(s, q: Page) -> None:
        require(s.link[q, q], "self")
        for p in Page:
            s.seen[p] = s.linked(p)
    @invariant
    def alone(s, p: Page) -> bool:
        return not s.linked(p)
""")
    instance = Instance.make(system, {"Page": 2})
    interpreter = Interpreter(instance)
    (start,) = initial_states(instance)
    joined = interpreter.successor(start, Choice("join", (0, 1)))
    assert interpreter.violated(joined) == ("alone",)
    assert Choice("sweep", (0,)) in interpreter.enabled(joined)
    assert Choice("sweep", (1,)) not in interpreter.enabled(joined)
    swept = interpreter.successor(joined, Choice("sweep", (0,)))
    seen = {index[0]: value for (name, index), value in zip(instance.state_layout.places, swept.values, strict=True) if name == "seen"}
    assert seen == {0: False, 1: True}
    (whole,) = system.action("each").updates
    assert isinstance(whole.index[0], Bound)
    assert expression(whole.value.body) == "any(link[p, p_] for p_ in Page)"  # type: ignore[union-attr]


# -- actions

def test_updates_are_simultaneous_and_a_swap_is_written_as_in_python(read: Read) -> None:
    system = read("""\
class Mine(Spec):
    a: Relation[Page] = starts(True)
    b: Relation[Page]
    @action
    def swap(s, p: Page) -> None:
        s.a[p], s.b[p] = s.b[p], s.a[p]
    @invariant
    def one(s, p: Page) -> bool:
        return s.a[p] != s.b[p]
    @reachable
    def other(s, p: Page) -> bool:
        return s.b[p]
""")
    assert updates(system, "swap") == ["a[p] = b[p]", "b[p] = a[p]"]
    assert explore(Instance.make(system)).verdict.value == "holds"


def test_slices_loops_branches_and_counters(read: Read) -> None:
    system = read(POOL + """\
class Mine(Pool):
    refs: Counter[Page] = counter(0, 3)
    @action
    def step(s, r: Request, p: Page) -> None:
        s.holds[r, :] = False
        s.refs[p] += 1
        if s.zero:
            s.free[:] = True
        elif s.free[p]:
            s.free[p] = False
        else:
            pass
        for o in Page:
            if o != p and s.content[o] is not None:
                s.content[o] = None
            elif o == p:
                s.content[o] = r
""")
    assert updates(system, "step") == [
        "holds[r, :] = False",
        "refs[p] = refs[p] + 1",
        "if zero: free[:] = True",
        "if not zero and free[p]: free[p] = False",
        "for o in Page: if o != p and content[o] is not None: content[o] = None",
        "for o in Page: if not (o != p and content[o] is not None) and o == p: content[o] = r",
    ]


def test_assertions_stand_under_their_conditions(read: Read) -> None:
    system = read(POOL + """\
class Mine(Pool):
    @action
    def step(s, p: Page) -> None:
        assert not s.free[p], "not free"
        if s.zero:
            assert s.content[p] is None, "blank"
        s.free[p] = True
""")
    assert [(a.name, expression(a.condition)) for a in system.action("step").assertions] == [
        ("not free", "not free[p]"),
        ("blank", "implies(zero, content[p] is None)"),
    ]
    assert [p.name for p in system.properties if p.kind is PropertyKind.ASSERTION] == ["assert:step:not free", "assert:step:blank"]


def test_what_a_guard_tests_is_known_below_it(read: Read) -> None:
    system = read(POOL + """\
class Mine(Pool):
    @action
    def step(s, p: Page) -> None:
        require(s.content[p] is not None, "has")
        s.holds[s.content[p], p] = False
""")
    assert updates(system, "step") == ["holds[content[p], p] = False"]


# -- inheritance

def test_guards_are_added_dropped_and_replaced(read: Read) -> None:
    system = read(POOL + """\
class Mine(Pool):
    @override
    @action(drop=("usable",), node="pool")
    def take(s, q: Request, o: Page) -> None:
        require(not s.zero, "usable")
        require(s.content[o] is None, "blank")
        super().take(q, o)
        s.content[o] = q
""")
    assert guards(system, "take") == {
        "usable": "not zero",
        "blank": "content[o] is None",
        "not again": "content[o] is None or not holds[q, o]",
    }
    assert updates(system, "take") == ["free[o] = False", "holds[q, o] = True", "content[o] = q"]
    assert [entry.owner for entry in system.action("take").updates] == ["Pool.take", "Pool.take", "Mine.take"]
    assert (system.action("take").doc, system.action("take").node) == ("Take a page.", "pool")


def test_a_chain_of_overrides(read: Read) -> None:
    system = read(POOL + """\
class Middle(Pool):
    @override
    @action(drop=("usable",))
    def take(s, r: Request, p: Page) -> None:
        super().take(r, p)
        require(s.zero, "middle")
class Mine(Middle):
    @override
    @action(drop=("not again",))
    def take(s, r: Request, p: Page) -> None:
        super().take(r, p)
""")
    assert guards(system, "take") == {"middle": "zero"}


def test_what_an_inherited_guard_tests_is_known_below_the_super_call(read: Read) -> None:
    text = POOL + """\
class Middle(Pool):
    last: Single[Request | None]
    @action
    def move(s, p: Page) -> None:
        require(s.last is not None, "last")
        s.free[p] = True
class Mine(Middle):
    @override
    @action(DROP)
    def move(s, p: Page) -> None:
        super().move(p)
        s.holds[s.last, p] = False
"""
    assert updates(read(text.replace("(DROP)", "")), "move") == ["free[p] = True", "holds[last, p] = False"]
    with pytest.raises(SpecError, match="the Request that indexes 'holds' may be None"):
        read(text.replace("DROP", 'drop=("last",)'))


def test_an_override_without_super_stands_alone(read: Read) -> None:
    system = read(POOL + """\
class Mine(Pool):
    @override
    @action
    def take(s, r: Request, p: Page) -> None:
        s.holds[r, p] = True
""")
    assert (guards(system, "take"), updates(system, "take")) == ({}, ["holds[r, p] = True"])


def test_definitions_and_effects_are_bound_late(read: Read) -> None:
    system = read(POOL + """\
class Mine(Pool):
    @override
    @define
    def usable(s, o: Page) -> bool:
        return super().usable(o) and not s.zero
    @override
    @effect
    def let_go(s, r: Request, p: Page) -> None:
        super().let_go(r, p)
        if not s.zero:
            s.content[p] = r
""")
    (usable, _) = system.action("take").guards
    assert expression(usable.condition.body) == "usable(p) and not zero"  # type: ignore[union-attr]
    assert updates(system, "give") == [
        "holds[r, p] = False",
        "free[p] = True",
        "if zero: content[p] = None",
        "if not zero: content[p] = r",
    ]


DIAMOND = POOL + """\
class Left(Pool):
    left: Relation[Page]
    @override
    @action
    def take(s, r: Request, p: Page) -> None:
        require(not s.left[p], "left")
        super().take(r, p)
        s.left[p] = True
    @override
    @define
    def usable(s, p: Page) -> bool:
        return super().usable(p) and not s.left[p]
class Right(Pool):
    zero = True
    @override
    @action(drop=("not again",))
    def take(s, r: Request, p: Page) -> None:
        super().take(r, p)
        s.content[p] = r
    @override
    @define
    def usable(s, p: Page) -> bool:
        return super().usable(p) and s.content[p] is None
class Mine(Left, Right):
    '''Both.'''
"""


def test_two_families_combine_by_cooperating(read: Read) -> None:
    system = read(DIAMOND)
    assert guards(system, "take") == {"left": "not left[p]", "usable": "usable(p)"}
    assert updates(system, "take") == ["free[p] = False", "holds[r, p] = True", "content[p] = r", "left[p] = True"]
    (definition,) = system.definitions
    assert expression(definition.condition) == "usable(p) and not left[p]"
    assert system.flag_values == {"zero": True}
    assert [(entry.owner, entry.at.line) for entry in system.action("take").updates][2:] == [("Right.take", 67), ("Left.take", 56)]


def test_two_writes_of_two_families_name_both(read: Read) -> None:
    with pytest.raises(SpecError) as caught:
        read(DIAMOND.replace("s.left[p] = True", "s.content[p] = None"))
    assert "'content' is written twice at one place: here (Left.take) and at spec.py:67 (Right.take)" in str(caught.value)


def _random_classes(seed: int) -> str:
    """A file of spec classes that extend each other at random."""
    random_ = random.Random(seed)
    lines = ["from kvmodel.language import Spec", "class C0(Spec): ..."]
    for number in range(1, 9):
        bases = random_.sample(range(number), min(number, random_.choice((1, 1, 2, 2, 3))))
        lines.append(f"class C{number}({', '.join(f'C{base}' for base in bases)}): ...")
    return "\n".join(lines) + "\n"


def test_the_order_of_inheritance_is_python_s(tmp_path: Path) -> None:
    compared = refused = 0
    for seed in range(150):
        text = _random_classes(seed)
        kept: list[str] = []
        for line in text.splitlines():  # leave out the classes that Python refuses, and those that extend them
            names: dict[str, type] = {}
            try:
                exec("\n".join([*kept, line]), names)  # noqa: S102  (Python's own answer)
            except (TypeError, NameError):
                refused += 1
                spec = _spec_class(tmp_path / f"refused{seed}_{len(kept)}.py", "\n".join([*kept, line]), line[6:8])
                if isinstance(spec, SpecClass):
                    mistakes: list[str] = []
                    linearise(spec, lambda *arguments: mistakes.append(arguments[3]))  # noqa: B023
                    assert mistakes, line
            else:
                kept.append(line)
        names = {}
        exec("\n".join(kept), names)  # noqa: S102
        for line in kept[1:]:
            name = line[6:8]
            spec = _spec_class(tmp_path / f"spec{seed}.py", "\n".join(kept), name)
            assert isinstance(spec, SpecClass)
            mistakes = []
            order = linearise(spec, lambda *arguments: mistakes.append(arguments[3]))  # noqa: B023
            assert [entry.name for entry in order] == [c.__name__ for c in names[name].__mro__ if c not in (Spec, object)]
            assert not mistakes
            compared += 1
    assert compared > 500
    assert refused > 50


def _spec_class(path: Path, text: str, name: str) -> object:
    path.write_text(text)
    return Library().open(path).lookup(name)


def test_the_order_of_shipped_specs_is_python_s() -> None:
    for cls in _shipped_classes():
        library = Library()
        spec = library.open(Path(sys.modules[cls.__module__].__file__ or "")).lookup(cls.__name__)
        assert isinstance(spec, SpecClass)
        order = linearise(spec, lambda *_: None)
        assert [entry.name for entry in order] == [c.__name__ for c in cls.__mro__ if c not in (Spec, object)]


# -- files

def test_variants_are_subclasses_with_a_name(read: Read) -> None:
    variants = "class Zeroed(Pool, variant='zeroed'):\n    zero = True\nclass Last(Zeroed, variant='last'): ...\n"
    Path("other.py").write_text(HEAD + POOL + variants)
    assert load_spec("other.py:Pool").flag_values == {"zero": False}
    assert load_spec("other.py:Pool:zeroed").flag_values == {"zero": True}
    assert load_spec("other.py:Pool:last") == replace(load_spec("other.py:Last"), name="other.py:Pool:last")
    Path("other.py").write_text(HEAD + POOL + "class A(Pool, variant='one'): ...\nclass B(Pool, variant='one'): ...\n")
    with pytest.raises(SpecError, match="A is called 'one' too"):
        load_spec("other.py:Pool:one")


BESIDE = ["from .pools import Page, Pool", "from pools import Page, Pool", "from pools import Pool\nfrom pools import Page"]


@pytest.mark.parametrize("line", BESIDE)
def test_a_base_class_in_a_file_beside(read: Read, line: str, tmp_path: Path) -> None:
    Path("pools.py").write_text(HEAD + POOL)
    Path("mine.py").write_text(f"""\
{line}
from kvmodel.language import invariant
class Mine(Pool):
    @invariant
    def rule(s, p: Page) -> bool:
        return s.usable(p) or not s.free[p]
""")
    assert load_spec("mine.py:Mine").property("rule").at.file == "mine.py"
    assert load_spec(str(tmp_path / "mine.py") + ":Mine").action("take").at.file == str(tmp_path / "pools.py")


def test_an_alias_of_a_word_means_the_word(read: Read) -> None:
    system = read("""\
from kvmodel.language import require as must, action as step, Relation as Set, Spec as Model
from typing_extensions import override as replaces
class Base(Model):
    free: Set[Page] = starts(True)
    @step
    def take(s, p: Page) -> None:
        must(s.free[p], "free")
        s.free[p] = False
class Mine(Base):
    @replaces
    @step
    def take(self, p: Page) -> None:
        super().take(p)
""")
    assert guards(system, "take") == {"free": "free[p]"}


def _shipped_classes() -> Iterator[type[Spec]]:
    for path in (*sorted(SHIPPED.glob("*.py")), *sorted(SHIPPED.glob("faults/*.py"))):
        name = ".".join(("kvmodel.specs", *path.relative_to(SHIPPED).with_suffix("").parts))
        module = sys.modules.get(name) or importlib.import_module(name)
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Spec) and value is not Spec and value.__module__ == name:
                yield value


def test_a_shipped_spec_is_the_same_by_name_by_path_and_by_class() -> None:
    by_class = {system.name: system for system in map(load_class, _shipped_classes())}
    names = [listing.name for listing in shipped()]
    assert sorted(by_class) == sorted(names)
    for name in names:
        system = load_spec(name)
        assert system == by_class[name]
        assert hash(system.actions) == hash(by_class[name].actions)
    from kvmodel.specs.handoff import Buggy

    by_path = load_spec(f"{SHIPPED / 'handoff.py'}:Buggy")
    assert replace(by_path, name="") == replace(load_class(Buggy), name="")


def test_every_shipped_spec_says_what_it_is() -> None:
    for listing in shipped():
        system = load_spec(listing.name)
        assert listing.doc
        assert all(flag.doc.endswith(".") for flag in system.flags), listing.name
        assert all(action.doc for action in system.actions), listing.name
        assert all(declared.doc for declared in system.declared), listing.name
        assert all(definition.doc for definition in system.definitions), listing.name


def test_a_class_of_a_file_by_path_and_by_class(read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = read(DIAMOND)
    module = _imported(tmp_path / "spec.py")
    monkeypatch.setitem(sys.modules, "spec", module)
    assert replace(load_class(module.Mine), name="") == replace(system, name="")
    assert load_class(module.Mine).name == f"{tmp_path / 'spec.py'}:Mine"


def _imported(path: Path) -> ModuleType:
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_a_class_without_a_file_or_not_at_module_level(tmp_path: Path) -> None:
    class Inner(Spec): ...

    with pytest.raises(UsageError, match="Inner is not at module level"):
        load_class(Inner)
    nowhere = type("Nowhere", (Spec,), {"__module__": "builtins", "__qualname__": "Nowhere"})
    with pytest.raises(UsageError, match="the source file of Nowhere is not known"):
        load_class(nowhere)


def test_the_surface_does_nothing_when_it_runs() -> None:
    """A spec module can be imported; using its values is a mistake of the user's that Python reports."""
    from kvmodel.language import Relation
    from kvmodel.specs.pages import Page

    with pytest.raises(TypeError, match="spec files are read, not run"):
        iter(Page)
    with pytest.raises(TypeError, match="spec files are read, not run"):
        Relation()[0]
