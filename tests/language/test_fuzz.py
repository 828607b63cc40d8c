"""The reader on files that nobody would write: shipped specs with their text or their tree changed at random.

Each either loads, and can then be run, or gets a sentence. Everything is drawn from a seed, so a failure names its case.
"""

from __future__ import annotations

import ast
import copy
import random
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from kvmodel.api import load
from kvmodel.errors import KvmodelError, UsageError
from kvmodel.language.instance import Instance
from kvmodel.language.load import load_spec
from kvmodel.language.modules import SHIPPED
from kvmodel.language.text import system_text
from kvmodel.readings.initial import initial_states
from kvmodel.readings.run import Interpreter
from tests.language.test_mistakes import MISTAKES

SOURCES = {
    "Pages": (SHIPPED / "pages.py").read_text(),
    "Buggy": (SHIPPED / "handoff.py").read_text(),
    "Mine": MISTAKES["several"][0],
    "Mine ": MISTAKES["without the guard that is dropped"][0],
}
TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
WORDS = [
    "None", "True", "0", "-1", "s", "super()", "...", "*", "**", '"x"', "lambda: 0", "1.5", "1j", 'b""', 'f"{s}"', "[]", "{}", "()", "not",
    "is", "in", "await", "yield", "async", "global", "del", "Phase", "self", "é", "\0", "\x1b", "0x" + "f" * 30, "all", "any", "count",
    "require", "if", "for", "else", ":", ",", "=", "@", "->", "|", "~", "%", "drop", "variant",
]  # fmt: skip
CHARACTERS = "\t\n \"'()[]{}:_\u2028é😀\f\r"


def changed_text(random: random.Random, text: str) -> str:
    """Text with a few tokens dropped, doubled, swapped, renamed or replaced."""
    tokens = TOKEN.findall(text)
    for _ in range(random.choice((1, 1, 1, 2, 3, 5))):
        at, other = random.randrange(len(tokens)), random.randrange(len(tokens))
        match random.randrange(8):
            case 0:
                del tokens[at]
            case 1:
                tokens[at] = tokens[other]
            case 2:
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case 3:
                tokens[at] = random.choice(WORDS)
            case 4:
                del tokens[at : at + random.randrange(1, 40)]
            case 5:
                tokens[other:other] = tokens[at : at + random.randrange(1, 60)]
            case 6:
                names = [token for token in tokens if token.isidentifier()]
                old, new, often = random.choice(names), random.choice(names), random.random()
                tokens = [new if token == old and random.random() < often else token for token in tokens]
            case 7:
                tokens[at] = random.choice(CHARACTERS)
    return "".join(tokens)


def changed_tree(random: random.Random, text: str) -> str | None:
    """Text whose syntax tree has a few nodes replaced by others, dropped, doubled or wrapped; None when it has no spelling."""
    tree = ast.parse(text)
    for _ in range(random.choice((1, 1, 2, 3, 6))):
        kind = random.choice((ast.expr, ast.expr, ast.expr, ast.stmt, ast.stmt, ast.arg, ast.keyword, ast.cmpop, ast.operator, ast.Name))
        places = list(_places(tree, kind))
        if not places:
            continue
        (parent, name, position, old), new = random.choice(places), copy.deepcopy(random.choice(places)[3])
        if isinstance(new, ast.expr) and random.random() < 0.3:
            new = _wrapped(random, copy.deepcopy(old))
        children = getattr(parent, name)
        if position is None:
            setattr(parent, name, new)
        elif random.random() < 0.2:
            del children[position]
        elif random.random() < 0.3:
            children.insert(position, new)
        else:
            children[position] = new
    try:
        return ast.unparse(ast.fix_missing_locations(tree))
    except Exception:
        return None  # a tree that the grammar does not have


def _places(tree: ast.AST, kind: type[ast.AST]) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                yield from ((node, name, position, child) for position, child in enumerate(value) if isinstance(child, kind))
            elif isinstance(value, kind):
                yield node, name, None, value


def _wrapped(random: random.Random, node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.expr)
    return random.choice((
        ast.UnaryOp(ast.Not(), node), ast.UnaryOp(ast.USub(), node), ast.BoolOp(ast.And(), [node, node]), ast.IfExp(node, node, node),
        ast.Compare(node, [ast.Is()], [ast.Constant(None)]), ast.Subscript(node, node), ast.Call(node, [node], []), ast.Starred(node),
        ast.Attribute(node, "free"), ast.Tuple([node, node]), ast.BinOp(node, ast.Add(), node), ast.NamedExpr(ast.Name("w"), node),
        ast.Constant(None), ast.Constant(10**9), ast.Slice(None, None, None), ast.JoinedStr([ast.FormattedValue(node, -1)]),
    ))  # fmt: skip


def read(seed: int) -> str:
    """Change a spec as `seed` says and read it; returns what became of it. Anything but a sentence is raised."""
    random_ = random.Random(seed)
    name = random_.choice(list(SOURCES))
    change = changed_text if random_.random() < 0.4 else changed_tree
    text = change(random_, SOURCES[name])
    if text is None:
        return "unspelled"
    Path("spec.py").write_text(text, errors="ignore")
    try:
        system = load_spec(f"spec.py:{name.strip()}")
        assert system_text(system)
        load(system)
    except KvmodelError as error:
        return "refused" if str(error) else "refused without a word"
    try:
        instance = Instance.make(system, {sort.name: 1 for sort in system.sorts})
        interpreter = Interpreter(instance)
        for state in islice(initial_states(instance), 2):
            interpreter.violated(state)
            for choice in interpreter.enabled(state):
                interpreter.violated(interpreter.successor(state, choice), choice, state)
    except UsageError:
        return "without states"
    return "ran"


def survey(seeds: range, folder: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    for seed in seeds:
        try:
            found[read(seed)] += 1
        except BaseException as error:
            raise AssertionError(f"seed {seed} ({folder / 'spec.py'}): {type(error).__name__}: {error}") from error
    return found


def test_changed_specs_get_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = survey(range(100), tmp_path)
    assert set(found) <= {"refused", "ran", "without states", "unspelled"}
    assert found["refused"] > 40
    assert found["ran"] > 5


@pytest.mark.slow
def test_thousands_of_changed_specs_get_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = survey(range(1_000, 4_000), tmp_path)
    assert set(found) <= {"refused", "ran", "without states", "unspelled"}
    assert found["ran"] > 200


def test_a_reader_that_falls_over_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kvmodel.language.phrases.Phrase.truth", lambda *_: 1 / 0)
    with pytest.raises(AssertionError, match="seed .* ZeroDivisionError"):
        survey(range(20), tmp_path)
