"""`kvmodel render`: formats by ending and by option, steps, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import networkx as nx
import pytest

from kvmodel import cli
from kvmodel.traces.itf import write_itf
from tests.violations import shortest

Run = Callable[..., tuple[int, str, str]]
SPEC = "pages:one-pool-without-quarantine"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("traces") / "late.itf.json"
    write_itf(shortest(SPEC, "isolated_read"), path)
    return str(path)


@pytest.fixture
def kvmodel(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.run(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_the_film_on_stdout(kvmodel: Run, trace: str) -> None:
    code, out, err = kvmodel("render", trace)
    assert (code, err) == (0, "")
    assert ET.fromstring(out)[0].text == f"{SPEC}: 8 steps"


@pytest.mark.parametrize("name", ["x.svg", "x.png", "X.PNG", "x.dot", "x.gv", "x.graphml", "x.json"])
def test_the_ending_says_the_format(kvmodel: Run, trace: str, tmp_path: Path, name: str) -> None:
    code, out, _ = kvmodel("render", trace, "--step", "8", "-o", str(tmp_path / name))
    assert (code, out) == (0, "")
    data = (tmp_path / name).read_bytes()
    begins = {"svg": b"<svg", "png": b"\x89PNG", "dot": b"digraph", "gv": b"digraph", "graphml": b"<?xml", "json": b"{"}
    assert data.startswith(begins[name.lower().split(".")[1]])


def test_a_graph_without_a_step_is_of_the_last_state(kvmodel: Run, trace: str, tmp_path: Path) -> None:
    code, out, _ = kvmodel("render", trace, "--format", "json")
    assert code == 0
    graph = nx.node_link_graph(json.loads(out), edges="edges")
    assert graph.graph["step"] == 8
    assert graph.nodes["read: r1, p0"]["violates"] == ["isolated_read"]
    kvmodel("render", trace, "--format", "graphml", "-o", str(tmp_path / "out"))
    assert set(nx.read_graphml(tmp_path / "out", force_multigraph=True)) == set(graph)


def test_the_option_wins_over_the_ending(kvmodel: Run, trace: str, tmp_path: Path) -> None:
    kvmodel("render", trace, "--format", "dot", "-o", str(tmp_path / "x.svg"))
    assert (tmp_path / "x.svg").read_text(encoding="utf-8").startswith("digraph")


def test_a_theme(kvmodel: Run, trace: str) -> None:
    _, light, _ = kvmodel("render", trace, "--theme", "light")
    _, dark, _ = kvmodel("render", trace, "--theme", "dark")
    assert light != dark
    assert "prefers-color-scheme" not in light + dark


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--step", "9"], "the trace has steps 0 to 8, no step 9"),
        (["--step", "-1"], "no step -1"),
        (["-o", "x.jpeg"], "no format has this ending"),
        (["-o", "x"], "no format has this ending"),
        (["-o", "x.pgn"], "did you mean '.png'?"),
        (["-o", "/nowhere/x.svg"], "/nowhere/x.svg: cannot be written: No such file or directory"),
        (["--format", "gif"], "Invalid value for '--format'"),
    ],
)
def test_what_is_refused(kvmodel: Run, trace: str, arguments: list[str], message: str) -> None:
    code, out, err = kvmodel("render", trace, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_a_file_that_is_no_trace(kvmodel: Run, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}", encoding="utf-8")
    code, _, err = kvmodel("render", str(tmp_path / "x.json"))
    assert code == 2
    assert "x.json" in err


def test_a_spec_without_pages(kvmodel: Run, tmp_path: Path) -> None:
    spec = tmp_path / "light.py"
    spec.write_text(
        "from kvmodel.language import Single, Spec, action, invariant\n\n\n"
        'class Light(Spec):\n    """A light."""\n\n    on: Single[bool]\n\n'
        '    @action\n    def switch(s) -> None:\n        """On."""\n        s.on = True\n\n'
        '    @invariant\n    def dark(s) -> bool:\n        """Never on."""\n        return not s.on\n',
        encoding="utf-8",
    )
    saved = tmp_path / "trace.itf.json"
    assert kvmodel("check", f"{spec}:Light", "dark", "--save", str(saved))[0] == 1
    code, out, err = kvmodel("render", str(saved), "--spec", f"{spec}:Light")
    assert (code, out) == (2, "")
    assert "has no page graph" in err
    assert "kvmodel trace show" in err


def test_png_on_stdout(trace: str) -> None:
    command = [sys.executable, "-m", "kvmodel.cli", "render", trace, "--step", "8", "--format", "png"]
    found = subprocess.run(command, capture_output=True, check=True)
    assert found.stdout.startswith(b"\x89PNG")


def test_help_imports_neither_networkx_nor_the_renderer() -> None:
    program = (
        "import sys; from kvmodel import cli; cli.run(['render', '--help']); cli.run(['--help']); "
        "print([name for name in ('networkx', 'resvg_py', 'z3', 'numpy') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[]"
