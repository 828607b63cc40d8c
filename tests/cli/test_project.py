"""``[tool.kvmodel]`` of a project's pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvmodel import cli
from kvmodel.commands.project import ProjectSettings, project_settings
from kvmodel.errors import UsageError
from tests import lending


def settings(folder: Path, text: str) -> ProjectSettings:
    (folder / "pyproject.toml").write_text(text)
    return project_settings(folder)


def test_defaults_of_a_project(tmp_path: Path) -> None:
    found = settings(tmp_path, '[tool.kvmodel]\nmethod = "bmc"\ndepth = 12\nsize = { Request = 3, "Page.FAR" = 0 }\n')
    assert (found.method, found.depth, found.size) == ("bmc", 12, (("Request", 3), ("Page.FAR", 0)))
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert project_settings(below) == found


def test_a_project_that_says_nothing(tmp_path: Path) -> None:
    assert settings(tmp_path, "[project]\nname = 'x'\n") == ProjectSettings(str(tmp_path / "pyproject.toml"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.kvmodel]\nmetod = 'bmc'\n", "[tool.kvmodel] has no setting 'metod'; did you mean 'method'? (known: depth, method, size)"),
        ("[tool.kvmodel]\nmethod = 'guess'\n", "[tool.kvmodel] method: 'guess' is not one of explore, bmc, walk, hypothesis"),
        ("[tool.kvmodel]\ndepth = true\n", "[tool.kvmodel] depth: True is not a number of steps"),
        ("[tool.kvmodel]\nsize = 3\n", "[tool.kvmodel] size: write a table, as in size = { Request = 3, Page = 2 }"),
        ("[tool.kvmodel]\nsize = { Page = '2' }\n", "[tool.kvmodel] size: write a table, as in size = { Request = 3, Page = 2 }"),
        ("[tool]\nkvmodel = 3\n", "[tool.kvmodel] is not a table"),
        ("tool = 3\n", "not readable"),
        ("[tool.kvmodel\n", "not readable"),
    ],
)
def test_mistakes_name_the_file(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings(tmp_path, text)
    assert str(tmp_path / "pyproject.toml") in str(caught.value)
    assert message in str(caught.value)


def test_the_command_line_comes_before_the_project_and_the_project_before_the_spec(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = settings(tmp_path, "[tool.kvmodel]\nsize = { Request = 3, Page = 1, Token = 9 }\n")
    assert found.instance(lending.system(), {}).describe_size() == "Page=1 Request=3"
    assert "has a size for 'Token', a sort that tests/data/lending.py:Lending does not have" in capsys.readouterr().err
    assert found.instance(lending.system(), {"Page": 2}).describe_size() == "Page=2 Request=3"
    assert found.instance(lending.system(), {"Page.FAR": 3}).describe_size() == "Page.NEAR=1 Page.FAR=3 Request=3"


def test_a_check_uses_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    settings(tmp_path, '[tool.kvmodel]\nmethod = "walk"\ndepth = 7\nsize = { Request = 1, Page = 1 }\n')
    monkeypatch.chdir(tmp_path)
    spec = f"{lending.ROOT}/{lending.SPEC}"
    assert cli.run(["check", spec, "isolated_read", "--runs", "5"]) == 0
    assert "walk: sampled (Page=1 Request=1, up to 7 steps, 5 runs)" in capsys.readouterr().out
    assert cli.run(["check", spec, "isolated_read", "--method", "explore"]) == 0
    assert "explore: this size (Page=1 Request=1)" in capsys.readouterr().out
