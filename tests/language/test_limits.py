"""Files from strangers: nothing in them runs, and whatever is in them, the answer is a sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvmodel.api import check, load
from kvmodel.errors import InstanceError, KvmodelError, SpecError, UsageError
from kvmodel.language.instance import Instance
from kvmodel.language.text import system_text
from tests.language.test_mistakes import after_base, in_action, in_class, in_invariant


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def first_line(spec: str, kind: type[KvmodelError] = SpecError) -> str:
    with pytest.raises(kind) as caught:
        load(spec)
    return str(caught.value).splitlines()[0]


# -- nothing runs

MARKS = {
    "module level": 'open("mark", "w").write("x")\n',
    "assignment": 'MARK = open("mark", "w").write("x")\n',
    "decorator of a function": '@open("mark", "w").write\ndef helper() -> None: ...\n',
    "default argument": 'def helper(x=open("mark", "w").write("x")) -> None: ...\n',
    "annotation": 'def helper(x: open("mark", "w").write("x")) -> None: ...\n',
    "class of another kind": 'class Helper:\n    mark = open("mark", "w").write("x")\n',
    "member of an enumeration": 'class Kind(Enum):\n    ONE = open("mark", "w").write("x")\n',
    "import of a module beside": "import beside\nfrom beside import thing\n",
    "if": 'if True:\n    open("mark", "w").write("x")\n',
}
MARKS_IN_A_SPEC = {
    "class body": 'open("mark", "w").write("x")',
    "initial value": 'late: Relation[Page] = open("mark", "w").write("x")',
    "annotation": 'late: open("mark", "w").write("x")',
    "decorator of a method": '@open("mark", "w").write\ndef step(s) -> None: ...',
    "default argument of a method": '@action\ndef step(s, p: Page = open("mark", "w").write("x")) -> None: ...',
    "annotation of a parameter": '@action\ndef step(s, p: open("mark", "w").write("x")) -> None: ...',
    "annotation of the result": '@action\ndef step(s, p: Page) -> open("mark", "w").write("x"): ...',
    "statement": '@action\ndef step(s, p: Page) -> None:\n    open("mark", "w").write("x")',
    "expression": '@invariant\ndef rule(s) -> bool:\n    return open("mark", "w").write("x")',
    "sizes": 'sizes = {"Page": open("mark", "w").write("x")}',
}


@pytest.mark.parametrize("place", MARKS)
def test_what_stands_beside_a_spec_is_harmless_and_never_runs(place: str) -> None:
    Path("beside.py").write_text('open("mark", "w").write("x")\nthing = 1\n')
    Path("spec.py").write_text(after_base(MARKS[place] + "class Mine(Base): ...\n"))
    assert load("spec.py:Mine").action("give").parameters
    assert not Path("mark").exists()


@pytest.mark.parametrize("place", MARKS_IN_A_SPEC)
def test_what_stands_in_a_spec_never_runs(place: str) -> None:
    Path("spec.py").write_text(in_class(MARKS_IN_A_SPEC[place]))
    if place == "annotation of the result":  # which the language does not look at
        load("spec.py:Mine")
    else:
        assert first_line("spec.py:Mine").startswith("spec.py:")
    assert not Path("mark").exists()


def test_a_mark_is_left_when_the_files_do_run() -> None:
    """The marks would show, if the reader ever ran a file."""
    exec(compile(MARKS["default argument"], "spec.py", "exec"), {})  # noqa: S102  (this is what the reader does not do)
    assert Path("mark").exists()


# -- files

def test_a_file_that_cannot_be_read() -> None:
    assert first_line("spec.py:Mine") == "spec.py:1:1: the file cannot be read: No such file or directory"
    Path("folder.py").mkdir()
    assert first_line("folder.py:Mine") == "folder.py:1:1: the file cannot be read: it is not a regular file"
    os.mkfifo("pipe.py")
    assert first_line("pipe.py:Mine") == "pipe.py:1:1: the file cannot be read: it is not a regular file"
    Path("zeros.py").symlink_to("/dev/zero")
    assert first_line("zeros.py:Mine") == "zeros.py:1:1: the file cannot be read: it is not a regular file"
    Path("one.py").symlink_to("two.py")
    Path("two.py").symlink_to("one.py")
    assert first_line("one.py:Mine").startswith("one.py:1:1: the file cannot be read: ")
    assert first_line("x" * 5000 + ".py:Mine").endswith("the file cannot be read: File name too long") or sys.platform != "linux"
    assert first_line("a\0b.py:Mine").startswith("a\\x00b.py:1:1: the file cannot be read: ")


def test_a_file_that_is_not_text_or_not_python() -> None:
    Path("spec.py").write_bytes(bytes(range(256)))
    assert first_line("spec.py:Mine") == "spec.py:2:1: the file is not UTF-8 text"
    Path("spec.py").write_bytes(after_base("class Mine(Base): ...\n").encode() + b"\0")
    assert first_line("spec.py:Mine").startswith("spec.py:")
    Path("spec.py").write_text("class Mine(:\n")
    assert first_line("spec.py:Mine") == "spec.py:1:12: not Python: invalid syntax"
    Path("spec.py").write_text(after_base("class Mine(Base): ...\n") + "#" * 200_000)
    assert first_line("spec.py:Mine") == "spec.py:1:1: the file is too large: a spec file has at most 200,000 bytes"


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_line_ends_and_a_byte_order_mark_and_wide_characters(ends: str) -> None:
    text = in_invariant('s.hold[r, p] and "é" == "é" and s.hold[r, p]')
    Path("spec.py").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", ends).encode())
    places = [str(error).split(": ")[0] for error in _diagnostics("spec.py:Mine")]
    assert places == ["spec.py:40:16", "spec.py:40:33", "spec.py:40:48"]


def _diagnostics(spec: str) -> tuple[object, ...]:
    with pytest.raises(SpecError) as caught:
        load(spec)
    return caught.value.diagnostics


def test_files_that_import_each_other() -> None:
    Path("spec.py").write_text(after_base("from other import Other\nclass Mine(Other): ...\n"))
    Path("other.py").write_text(after_base("from spec import Mine\nclass Other(Mine): ...\n"))
    message = "'Mine' is not there yet when it is imported: the files import each other"
    assert first_line("spec.py:Mine") == f"{Path.cwd() / 'other.py'}:37:1: {message}"
    Path("spec.py").write_text(after_base("from spec import Mine as Me\nclass Mine(Me): ...\n"))
    assert first_line("spec.py:Mine") == f"spec.py:37:1: {message}"
    Path("spec.py").write_text(after_base("class Mine(Mine): ...\n"))
    assert first_line("spec.py:Mine") == "spec.py:37:12: Mine: the class extends itself"


def test_many_files_and_many_classes() -> None:
    for number in range(60):
        Path(f"m{number}.py").write_text(f"from m{number + 1} import M{number + 1}\nclass M{number}(M{number + 1}): ...\n")
    assert first_line("m0.py:M0").endswith("m50.py:1:1: more than 50 files are imported")
    Path("spec.py").write_text(after_base(_chain(2_000)))
    assert first_line("spec.py:Mine") == "spec.py:86:1: C49: the class is more than 50 classes away from Spec"
    Path("spec.py").write_text(after_base(_chain(40)))
    assert load("spec.py:Mine").action("give")
    Path("spec.py").write_text(after_base("".join(f"class C{n}(Base): ...\n" for n in range(3_000)) + "class Mine(Base): ...\n"))
    assert load("spec.py:Mine").action("give")
    bases = ", ".join(f"C{n}" for n in range(3_000))
    Path("spec.py").write_text(after_base("".join(f"class C{n}(Base): ...\n" for n in range(3_000)) + f"class Mine({bases}): ...\n"))
    assert first_line("spec.py:Mine") == "spec.py:3037:1: Mine: the class has 3000 base classes; at most 10"
    diamonds = "".join(f"class A{n}(A{n - 1}, B{n - 1}): ...\nclass B{n}(A{n - 1}, B{n - 1}): ...\n" for n in range(1, 45))
    Path("spec.py").write_text(after_base("class A0(Base): ...\nclass B0(Base): ...\n" + diamonds + "class Mine(A44, B44): ...\n"))
    assert load("spec.py:Mine").action("give")


def _chain(length: int) -> str:
    return "".join(f"class C{n}({f'C{n - 1}' if n else 'Base'}): ...\n" for n in range(length)) + f"class Mine(C{length - 1}): ...\n"


# -- nesting and size of what is said

DEEP = {
    "brackets": (in_invariant("(" * 150 + "s.zero" + ")" * 150), "spec.py:40:76: brackets are nested deeper than 60 levels"),
    "not": (in_invariant("not " * 30_000 + "s.zero"), "spec.py:1:1: an expression is nested too deeply for Python to read"),
    "not, less": (in_invariant("not " * 58 + "s.zero"), "spec.py:40:240: statements and expressions are nested deeper than 60 levels"),
    "not, as far as Python goes": (
        in_invariant("not " * 39 + "s.free[p]"),
        "spec.py:40:16: Mine.rule: with definitions in place the expression is nested deeper than 40 levels",
    ),
    "minus": (in_invariant("-" * 60_000 + "1 == 1"), "spec.py:1:1: an expression is nested too deeply for Python to read"),
    "attributes": (in_invariant("s" + ".x" * 50_000), "spec.py:1:1: an expression is nested too deeply for Python to read"),
    "calls": (in_invariant("s.busy" + "(p)" * 50_000), "spec.py:1:1: an expression is nested too deeply for Python to read"),
    "sum": (in_invariant("0" + " + 1" * 40_000), "spec.py:1:1: an expression is nested too deeply for Python to read"),
    "choices": (
        in_invariant("s.zero if s.zero else " * 8_000 + "s.zero"),
        "spec.py:1:1: an expression is nested too deeply for Python to read",
    ),
    "or": (in_invariant(" or ".join(["s.zero"] * 10_000)), "spec.py:40:16: an expression has 10,000 operands; at most 500"),
    "comparisons": (in_invariant("0" + " < 1" * 40_000), "spec.py:40:16: an expression has 40,000 operands; at most 500"),
    "elif": (
        in_action("if s.zero:\n    pass\n" + "elif s.zero:\n    pass\n" * 4_000),
        "spec.py:1:1: an expression is nested too deeply for Python to read",
    ),
    "integer": (
        in_class("late: Counter[Page] = counter(0, 0x" + "f" * 9_000 + ")"),
        "spec.py:38:38: an integer is larger than 1,000,000,000,000,000",
    ),
    "loops": (
        in_invariant("all(s.zero " + "".join(f"for q{n} in Page " for n in range(60)) + ")"),
        "spec.py:40:151: Mine.rule: more than 10 parameters and loops are inside each other",
    ),
    "updates": (
        in_action("".join(f"if s.refs[p] == {n}:\n    s.free[p] = True\n" for n in range(300))),
        "spec.py:241:13: Mine.step: with effects in place the action has more than 100 updates",
    ),
    "definitions that use each other": (
        in_class(
            "@define\ndef d0(s, p: Page) -> bool:\n    return s.free[p]\n"
            + "".join(f"@define\ndef d{n}(s, p: Page) -> bool:\n    return s.d{n - 1}(p) and s.d{n - 1}(p)\n" for n in range(1, 30))
        ),
        "spec.py:40:16: Mine.d0: with definitions and effects in place the spec has more than 50,000 parts",
    ),
    "definitions in a chain": (
        in_class(
            "@define\ndef d0(s, p: Page) -> bool:\n    return s.free[p]\n"
            + "".join(f"@define\ndef d{n}(s, p: Page) -> bool:\n    return s.d{n - 1}(p)\n" for n in range(1, 2_000))
        ),
        "spec.py:40:23: Mine.d0: definitions and effects are used inside each other deeper than 100 levels",
    ),
    "arguments that grow": (
        in_class(
            "link: Function[Page, Page, Page, Page, Page]\n@define\ndef d0(s, p: Page) -> Page:\n    return s.link[p, p, p, p]\n"
            + "".join(f"@define\ndef d{n}(s, p: Page) -> Page:\n    return s.d0(s.d{n - 1}(p))\n" for n in range(1, 30))
        ),
        "spec.py:41:16: Mine.d0: with definitions in place the expression has more than 20,000 parts",
    ),
    "effects that use each other": (
        in_class(
            "@effect\ndef d0(s, p: Page) -> None: ...\n"
            + "".join(f"@effect\ndef d{n}(s, p: Page) -> None:\n    s.d{n - 1}(p)\n    s.d{n - 1}(p)\n" for n in range(1, 40))
            + "@action\ndef step(s, p: Page) -> None:\n    s.d39(p)\n"
        ),
        "spec.py:39:33: Mine.d0: with definitions and effects in place the spec has more than 50,000 parts",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DEEP)
def test_what_is_nested_or_large_beyond_measure(case: str) -> None:
    text, message = DEEP[case]
    Path("spec.py").write_text(text)
    assert first_line("spec.py:Mine") == message


def test_thousands_of_mistakes_are_counted_and_the_first_ones_shown() -> None:
    Path("spec.py").write_text(in_action("".join(f"s.x{n}[p] = True\n" for n in range(3_000))))
    with pytest.raises(SpecError) as caught:
        load("spec.py:Mine")
    assert len(caught.value.diagnostics) == 3_000
    assert str(caught.value).endswith("3000 mistakes, of which the first 50 are shown")
    assert len(str(caught.value).splitlines()) == 101


def _deepest(make: Callable[[str, int], str]) -> str:
    """An expression as deep as the language allows: one level more is refused."""
    expr = "s.free[p]"
    for level in range(37):
        expr = make(expr, level)
    return expr


DEEPEST = {
    "not": lambda e, n: f"(not {e})",
    "and, or": lambda e, n: f"({e} {'and' if n % 2 else 'or'} s.holds[r, p])",
    "implies": lambda e, n: f"implies({e}, s.holds[r, p])",
    "if": lambda e, n: f"(s.holds[r, p] if {e} else s.zero)",
    "==": lambda e, n: f"({e} == s.holds[r, p])",
    "any, and": lambda e, n: f"any({e} for q in Page)" if n == 18 else f"({e} and s.holds[r, p])",
}


@pytest.mark.parametrize("operators", DEEPEST)
def test_the_readings_read_what_the_language_allows(operators: str) -> None:
    """Even with a few hundred calls on the stack, as under a test runner."""
    expr = _deepest(DEEPEST[operators])
    Path("spec.py").write_text(in_class(
        f"@action\ndef flip(s, r: Request, p: Page) -> None:\n    require({expr}, 'deep')\n    s.holds[r, p] = {expr}\n"
        f"@invariant\ndef rule(s, r: Request, p: Page) -> bool:\n    return implies(s.zero, {expr})\n"
    ))  # fmt: skip

    def below(depth: int) -> None:
        if depth:
            below(depth - 1)
            return
        system = load("spec.py:Mine")
        assert "flip" in system_text(system)
        sizes = {"Page": 1, "Request": 1}
        assert check(system, ["rule"], size=sizes).verdict.value == "holds"
        assert check(system, ["rule"], size=sizes, method="walk", runs=3).verdict.value == "holds"
        assert check(system, ["rule"], size=sizes, method="bmc", depth=2).verdict.value == "holds"
        assert check(system, ["rule"], size=sizes, method="hypothesis", runs=3).verdict.value == "holds"

    below(200)


# -- sizes of an instance

@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"Page": 0}, "size of Page is 0: a sort is never empty, so it must be at least 1"),
        ({"Page": -5_000}, "size of Page is -5000: a sort is never empty, so it must be at least 1"),
        ({"Page": 10**30}, "size of Page is 1,000,000,000,000,000,000,000,000,000,000; at most 2,000,000"),
        ({"Page": 5_000, "Request": 5_000}, "a state of spec.py:Mine at this size has 25,030,001 values; at most 2,000,000"),
        ({"Pages": 2}, "spec.py:Mine has no sort 'Pages'; did you mean 'Page'?"),
    ],
)
def test_sizes_that_cannot_be_used(sizes: dict[str, int], message: str) -> None:
    Path("spec.py").write_text(after_base("class Mine(Base): ...\n"))
    with pytest.raises(InstanceError) as caught:
        Instance.make(load("spec.py:Mine"), sizes)
    assert str(caught.value) == message


def test_a_spec_with_a_default_size_that_cannot_be_used() -> None:
    Path("spec.py").write_text(in_class('sizes = {"Page": 1_000_000_000}'))
    with pytest.raises(InstanceError, match="at most 2,000,000"):
        check("spec.py:Mine")


def test_names_of_specs_that_are_not_there() -> None:
    Path("spec.py").write_text(after_base("def Other(): ...\nclass Mine(Base): ...\n"))
    assert first_line("spec.py:Mines", UsageError) == "spec.py has no spec class 'Mines'; did you mean 'Mine'? (known: Base, Mine)"
    assert first_line("spec.py:Page") == "spec.py:6:1: Page: the class is not a spec: none of its base classes is one"
    assert first_line("spec.py:Mine:late", UsageError) == "Mine has no variant 'late'"
    assert first_line("spec.py", UsageError) == "'spec.py' does not say which class; the file has spec.py:Base, spec.py:Mine"
    assert first_line("handof", UsageError) == "there is no spec 'handof'; did you mean 'handoff'?"
    assert first_line("handoff:bugy", UsageError).startswith("Handoff has no variant 'bugy'; did you mean 'buggy'? (known: ")
    for odd in ("", ":", "::::", ".py:", "/", "fault:", "\x1b[2J", "spec.py:", "a" * 100_000):
        with pytest.raises(KvmodelError):
            load(odd)
