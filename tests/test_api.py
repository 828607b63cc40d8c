"""The Python API: the stable names, their laziness, and that their documentation runs."""

from __future__ import annotations

import doctest
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import kvmodel
from kvmodel.api import METHODS, CheckOptions
from kvmodel.commands import common
from kvmodel.errors import TraceFileError, UsageError
from kvmodel.verdict import Verdict
from tests import lending
from tests.data.lending import Careless, Lending

DOCUMENTED = ["kvmodel", "kvmodel.api", "kvmodel.errors", "kvmodel.language.build", "kvmodel.language.text"]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_documentation_runs(name: str) -> None:
    module = import_module(name)
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_every_stable_name_is_there() -> None:
    for name in kvmodel.__all__:
        assert getattr(kvmodel, name) is not None
    assert set(kvmodel.__all__) <= set(dir(kvmodel))
    with pytest.raises(AttributeError, match="module 'kvmodel' has no attribute 'chekc'"):
        kvmodel.chekc  # type: ignore[attr-defined]  # noqa: B018


def test_stable_names_are_typed_and_lazy_alike() -> None:
    import ast

    tree = ast.parse(Path(str(kvmodel.__file__)).read_text())
    typed = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    lazy = {name for names in kvmodel._HOMES.values() for name in names}
    assert typed - {"annotations", "TYPE_CHECKING", "import_module", "version"} == lazy == set(kvmodel.__all__) - {"__version__"}


def test_importing_kvmodel_imports_nothing_else() -> None:
    code = "import sys, kvmodel; print([m for m in sys.modules if m.startswith(('kvmodel.', 'z3', 'rich', 'hypothesis'))])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_spec_by_name_by_class_and_as_a_system_is_the_same() -> None:
    by_name = lending.system("careless")
    by_class = kvmodel.load(Careless)
    assert (by_class.actions, by_class.flags, by_class.variables) == (by_name.actions, by_name.flags, by_name.variables)
    assert kvmodel.load(by_name) is by_name
    assert kvmodel.load(by_name, {"lends_far": True}).flag_values["lends_far"]


def test_the_command_line_knows_the_same_methods() -> None:
    assert common.METHODS == METHODS


def test_check() -> None:
    result = kvmodel.check(Careless, "isolated_read", size={"Page": 1})
    assert result.verdict is Verdict.VIOLATED
    assert result.trace is not None
    assert len(result.trace.steps) == 6
    assert result.coverage.word == "this size"
    assert kvmodel.check(Lending, flags={"zero_on_free": False})["isolated_read"].verdict is Verdict.VIOLATED
    assert kvmodel.check(Lending, method="walk", runs=3, depth=5).coverage.word == "sampled"


def test_bmc_finds_the_same_length_and_can_be_complete() -> None:
    assert kvmodel.check(Careless, "isolated_read", method="bmc", depth=8)["isolated_read"].length == 6
    complete = kvmodel.check(Lending, "isolated_read", method="bmc", depth=30, size={"Page": 1, "Request": 1}, complete=True)
    assert (complete.verdict, complete.coverage.word) == (Verdict.HOLDS, "this size")


def test_explore_counts() -> None:
    lines: list[str] = []
    result = kvmodel.explore(Lending, progress=lines.append)
    assert dict(result.statistics)["states"] == 113
    assert lines


def test_traces_are_saved_and_read(tmp_path: Path) -> None:
    trace = lending.trace()
    kvmodel.save_trace(trace, tmp_path / "t.itf.json")
    assert kvmodel.read_trace(tmp_path / "t.itf.json", trace.instance.system) == trace
    with pytest.raises(TraceFileError, match="handoff has no sort|has no flag"):
        kvmodel.read_trace(tmp_path / "t.itf.json", "handoff")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "guess"}, "there is no method 'guess' (known: explore, bmc, walk, hypothesis)"),
        ({"method": "walks"}, "there is no method 'walks'; did you mean 'walk'? (known: explore, bmc, walk, hypothesis)"),
        ({"depth": 3}, "explore looks at every depth; a depth is for bmc, walk, hypothesis"),
        ({"runs": 3, "method": "bmc"}, "bmc does not sample; a number of runs is for walk, hypothesis"),
        ({"complete": True}, "only bmc can be asked to be complete, not explore"),
        ({"depth": 0, "method": "bmc"}, "depth is 0; it must be more than 0"),
        ({"timeout": -1.0}, "timeout is -1.0; it must be more than 0"),
    ],
)
def test_options_that_a_method_does_not_have(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        CheckOptions(**options)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_unknown_properties_are_refused_before_anything_runs() -> None:
    with pytest.raises(UsageError, match="has no property 'isolated'; did you mean 'isolated_read'"):
        kvmodel.check(Lending, ["isolated"])
