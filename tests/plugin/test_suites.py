"""`StatefulSuite`: Hypothesis drives a spec in three lines of a project's own test file."""

from __future__ import annotations

import shutil
from importlib import import_module
from pathlib import Path

import hypothesis
import pytest

import kvmodel
from kvmodel.errors import UsageError
from kvmodel.testing import StatefulSuite

pytest_plugins = ("pytester",)

SAMPLE = Path(__file__).parent / "sample"
HEADER = "import hypothesis\nfrom kvmodel import StatefulSuite\n\n"

for name in ("commands.project", "readings.machine", "readings.shrink", "views.report", "views.text"):  # once for all runs in this process
    import_module(f"kvmodel.{name}")


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.delenv("CI", raising=False)
    shutil.copy(SAMPLE / "lockers.py", pytester.path)
    return pytester


def run(project: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    project.makepyfile(test_it=HEADER + source)
    return project.runpytest_inprocess("-v", "-p", "no:cacheprovider", "-p", "no:warnings", *options)


def test_three_lines_are_enough(project: pytest.Pytester) -> None:
    result = run(project, "class TestLockers(StatefulSuite):\n    spec = 'lockers.py:Lockers'\n", "--junitxml=junit.xml")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*::TestLockers::test_runs PASSED (holds, sampled)*"])
    assert 'name="kvmodel.coverage" value="sampled (Request=2 Page=2, up to 49 steps, 100 runs)"' in Path("junit.xml").read_text()


def test_a_failing_run_is_shown_as_a_short_trace_and_saved(project: pytest.Pytester) -> None:
    result = run(project, "class TestLeaky(StatefulSuite):\n    spec = 'lockers.py:Lockers:leaky'\n    properties = ['isolated_read']\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "lockers.py:Lockers:leaky: isolated_read is violated in 4 steps (sampled)",
            "   4  take(r=*, p=*",
            "isolated_read is violated by step 4 for r = *",
            "  pytest test_it.py::TestLeaky::test_runs",
            "kvmodel trace show .kvmodel/test-it-py-TestLeaky-test-runs-*.itf.json",
        ]
    )
    for noise in ("Traceback", "Falsifying", "state.step", "testing.py"):
        assert noise not in result.stdout.str()
    saved = next((project.path / ".kvmodel").glob("*.itf.json"))
    assert len(kvmodel.read_trace(saved).steps) == 4


def test_every_suite_is_collected_whatever_its_name_and_the_base_is_not(project: pytest.Pytester) -> None:
    source = "class Lockers(StatefulSuite):\n    spec = 'lockers.py:Lockers'\n    settings = hypothesis.settings(max_examples=2)\n"
    run(project, source).assert_outcomes(passed=1)


def test_settings_of_the_suite_and_of_the_profile_and_of_the_run(project: pytest.Pytester) -> None:
    source = "class TestIt(StatefulSuite):\n    spec = 'lockers.py:Lockers'\n"
    profile = hypothesis.settings.get_current_profile_name()
    own = source + "    settings = hypothesis.settings(max_examples=3, stateful_step_count=5)\n"
    (project.path / "conftest.py").write_text("import hypothesis\nhypothesis.settings.register_profile('few', max_examples=7)\n")
    for text, options, expected in (
        (own, ("--kvmodel-profile=quick",), "up to 4 steps, 3 runs"),
        (source, ("--hypothesis-profile=few",), "up to 49 steps, 7 runs"),
        (source, ("--hypothesis-profile=few", "--kvmodel-depth=6"), "up to 6 steps, 7 runs"),
        (source, ("--kvmodel-profile=quick", "--kvmodel-seed=3"), "up to 30 steps, 50 runs"),
    ):
        hypothesis.settings.load_profile(profile)  # pytest in this process changes it
        run(project, text, "--junitxml=junit.xml", *options).assert_outcomes(passed=1)
        assert expected in Path("junit.xml").read_text()
    hypothesis.settings.load_profile(profile)


def test_sizes_and_flags(project: pytest.Pytester) -> None:
    words = "size = {'Request': 3}; flags = {'zero_on_free': False}"
    source = f"class TestIt(StatefulSuite):\n    spec = 'lockers.py:Lockers'\n    {words}\n"
    result = run(project, source, "--kvmodel-size=Page=1,Request=1")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["hypothesis: sampled (Request=3 Page=1, *"])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("size = {}", "TestIt does not say which spec, as in spec = 'handoff'"),
        ("spec = 'handof'", "*there is no spec 'handof'; did you mean 'handoff'?*"),
        ("spec = 'handoff'; properties = ['isolated']", "*did you mean 'isolated_read'?*"),
    ],
)
def test_what_is_wrong_with_a_suite_is_told(project: pytest.Pytester, body: str, message: str) -> None:
    result = run(project, f"class TestIt(StatefulSuite):\n    {body}\n")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"*{message}"])


@pytest.mark.parametrize(
    ("word", "meant"), [("property", "properties"), ("sizes", "size"), ("flag", "flags"), ("specs", "spec"), ("setting", "settings")]
)
def test_an_attribute_that_nobody_reads_is_refused(word: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"has an attribute '{word}', which means nothing; did you mean '{meant}'"):
        type("TestIt", (StatefulSuite,), {word: ()})
    type("TestIt", (StatefulSuite,), {"helper": 3, "_flag": 3, "sized": lambda self: 3})


def test_a_failure_that_is_no_violation_keeps_its_traceback(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    from kvmodel.readings.sampled import WatchedSteps

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(WatchedSteps, "look", broken)
    result = run(project, "class TestIt(StatefulSuite):\n    spec = 'lockers.py:Lockers'\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *ZeroDivisionError: a defect*"])
