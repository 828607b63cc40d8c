"""The pytest plugin, run by pytest on projects made for the purpose: what passes, what fails, and what is said of it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import pytest_kvmodel
from kvmodel import api, testing
from kvmodel.errors import UsageError
from kvmodel.testing import artefact_stem, parse_check

pytest_plugins = ("pytester",)

SAMPLE = Path(__file__).parent / "sample"
# Runs inside this process forget what they import; what they all need is imported once, here.
NEEDED = ("analyses.proving", "commands.project", "readings.bmc", "readings.explore", "readings.machine", "views.proof", "views.report")
for name in NEEDED:
    import_module(f"kvmodel.{name}")

LOCKERS, LEAKY = "lockers.py:Lockers", "lockers.py:Lockers:leaky"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with the spec of the sample project, as on a developer's machine."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("BUILD_NUMBER", raising=False)
    shutil.copy(SAMPLE / "lockers.py", pytester.path)
    return pytester


@pytest.fixture
def sample(project: pytest.Pytester) -> pytest.Pytester:
    """The sample project."""
    for name in ("pytest.ini", "checks_lockers.py"):
        shutil.copy(SAMPLE / name, project.path)
    return project


def marked(words: str, body: str = "pass", before: str = "") -> str:
    return f"import pytest\n{before}\n@pytest.mark.kvmodel({words})\ndef test_it():\n    {body}\n"


def one(project: pytest.Pytester, words: str, *options: str, body: str = "pass", before: str = "") -> pytest.RunResult:
    """Run a project of one marked test."""
    project.makepyfile(test_it=marked(words, body, before))
    return project.runpytest_inprocess("-p", "no:cacheprovider", *options)


def artefacts(project: pytest.Pytester, folder: str = ".kvmodel") -> list[str]:
    return sorted(path.name for path in (project.path / folder).glob("*"))


def test_the_plugin_is_installed() -> None:
    """An installation from before the plugin knows no entry point: pip install -e . again."""
    assert [entry.value for entry in entry_points(group="pytest11", name="kvmodel")] == ["pytest_kvmodel"]


def test_words_that_are_written_twice_are_the_same() -> None:
    assert pytest_kvmodel.METHODS == testing.METHODS == api.METHODS
    assert tuple(testing.PROFILES) == pytest_kvmodel.PROFILES
    assert all(f"{word}=" in pytest_kvmodel.MARKER for word in testing.WORDS if word != "spec")


def test_the_sample_project_passes_fails_and_errs(sample: pytest.Pytester) -> None:
    result = sample.runpytest_inprocess("-v", "--junitxml=junit.xml")
    result.assert_outcomes(passed=1, failed=1, errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "*::test_passing PASSED (holds, this size)*",
            "*::test_failing FAILED*",
            "*::test_undecided UNDECIDED*",
            "*ERROR at setup of test_undecided*",
            "lockers.py:Lockers: isolated_read undecided, limit of 1 states at depth 0 (this depth)",
            "*_ test_failing _*",
            "lockers.py:Lockers:leaky: isolated_read is violated in 4 steps (this size)",
            "   4  take(r=r1, p=p0)       holds*",
            "isolated_read is violated by step 4 for r = r1, p = p0:",
            "  kvmodel check lockers.py:Lockers:leaky isolated_read *",
            "saved: .kvmodel/checks-lockers-py-test-failing-*.itf.json",
            "*= kvmodel =*",
            "3 checks: 1 holds (this size); 1 violated, not expected (this size); 1 undecided (this depth)",
            "artefacts in *.kvmodel",
            "checks_lockers.py::test_failing:",
            "FAILED *::test_failing - lockers.py:Lockers:leaky: isolated_*",
            "UNDECIDED *::test_undecided - *",
        ]
    )
    assert "Traceback" not in result.stdout.str()
    assert "pytest_kvmodel.py" not in result.stdout.str()
    properties = {
        case.get("name"): {entry.get("name"): entry.get("value") for entry in case.iter("property")}
        for case in ET.parse(sample.path / "junit.xml").iter("testcase")
    }
    assert properties["test_passing"] == {
        "kvmodel.spec": LOCKERS,
        "kvmodel.method": "explore",
        "kvmodel.verdict": "holds",
        "kvmodel.coverage": "this size (Request=2 Page=2)",
        "kvmodel.property.isolated_read": "holds; this size",
        "kvmodel.property.exclusive_owner": "holds; this size",
    }
    assert properties["test_failing"]["kvmodel.verdict"] == "violated"
    assert str(properties["test_failing"]["kvmodel.artefacts"]).count(".kvmodel/checks-lockers-py-test-failing-") == 3
    assert properties["test_undecided"]["kvmodel.verdict"] == "undecided"
    cases = ET.parse("junit.xml").iter("testcase")
    kinds = {case.get("name"): [child.tag for child in case if child.tag != "properties"] for case in cases}
    assert kinds == {"test_passing": [], "test_failing": ["failure"], "test_undecided": ["error"]}


def test_what_is_saved_is_a_trace_that_replays(sample: pytest.Pytester) -> None:
    sample.runpytest_inprocess("--kvmodel-artefacts", "kept")
    names = artefacts(sample, "kept")
    assert names[0] == ".gitignore"
    failing = artefact_stem("checks_lockers.py::test_failing")
    assert {f"{failing}.itf.json", f"{failing}.html", f"{failing}.txt"} < set(names)
    page = (sample.path / "kept" / f"{failing}.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "kvmodel check lockers.py:Lockers:leaky isolated_read" in page
    trace = api.read_trace(sample.path / "kept" / f"{failing}.itf.json")
    assert (trace.property, len(trace.steps)) == ("isolated_read", 4)
    assert "take(r=r1, p=p0)" in (sample.path / "kept" / f"{failing}.txt").read_text()


def test_a_check_that_passes_now_leaves_nothing_of_the_time_when_it_failed(project: pytest.Pytester) -> None:
    one(project, f"spec='{LEAKY}', property='isolated_read'")
    assert len(artefacts(project)) == 4
    one(project, f"spec='{LOCKERS}', property='isolated_read'").assert_outcomes(passed=1)
    assert artefacts(project) == [".gitignore"]


def test_an_empty_body_does_not_make_a_failing_check_pass_and_a_failing_check_keeps_the_body_from_running(project: pytest.Pytester) -> None:
    one(project, f"spec='{LEAKY}'").assert_outcomes(failed=1)
    result = one(project, f"spec='{LEAKY}'", "-s", body="print('the body ran')")
    assert "the body ran" not in result.stdout.str()
    one(project, f"spec='{LOCKERS}'", body="assert False").assert_outcomes(failed=1)


def test_a_test_without_a_marker_is_left_alone(project: pytest.Pytester) -> None:
    project.makepyfile("def test_it(record_property):\n    record_property('mine', 1)")
    result = project.runpytest_inprocess("-v", "-p", "no:warnings")  # pytest warns that this process has imported the plugin before
    result.assert_outcomes(passed=1)
    assert "kvmodel" not in result.stdout.str().partition("test session starts")[2].replace("plugins: kvmodel", "")
    assert not (project.path / ".kvmodel").exists()


def test_a_violation_can_be_expected(project: pytest.Pytester) -> None:
    result = one(project, f"spec='{LEAKY}', property='isolated_read', expect='violated'", "-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*PASSED (violated, this size)*", "1 check: 1 violated (this size)"])
    assert not (project.path / ".kvmodel").exists()


@pytest.mark.parametrize("names", ["'isolated_read'", "['isolated_read', 'exclusive_owner']", "None"])
def test_an_expected_violation_that_is_not_there_fails(project: pytest.Pytester, names: str) -> None:
    result = one(project, f"spec='{LOCKERS}', property={names}, expect='violated'")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["lockers.py:Lockers: * hold*, expected violated (this size)", "1 check: 1 holds, not expected (this size)"]
    )


def test_every_named_property_must_be_violated(project: pytest.Pytester) -> None:
    result = one(project, f"spec='{LEAKY}', property=['isolated_read', 'exclusive_owner'], expect='violated'")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*: exclusive_owner holds, expected violated (this size)"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("method='walk', runs=5, depth=5", "sampled"),
        ("method='bmc', depth=3", "this depth"),
        ("prove=True, property='exclusive_owner'", "any size"),
    ],
)
def test_the_coverage_is_told(project: pytest.Pytester, words: str, said: str) -> None:
    names = "" if "property" in words else "property='isolated_read', "
    result = one(project, f"spec='{LOCKERS}', {names}{words}", "-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"*PASSED (holds, {said})*", f"1 check: 1 holds ({said})"])


@pytest.mark.parametrize(
    ("words", "before"),
    [
        ("limit=1", ""),
        ("limit=1", "@pytest.mark.xfail"),
        ("limit=1", "@pytest.mark.xfail(strict=True)"),
        ("limit=1, expect='violated'", ""),
        ("prove=True, property='isolated_read'", ""),
    ],
)
def test_undecided_is_an_error_whatever_is_expected(project: pytest.Pytester, words: str, before: str) -> None:
    result = one(project, f"spec='{LOCKERS}', {words}", before=before)
    result.assert_outcomes(errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_failing_check_may_be_expected_to_fail(project: pytest.Pytester) -> None:
    one(project, f"spec='{LEAKY}'", before="@pytest.mark.xfail").assert_outcomes(xfailed=1)
    one(project, f"spec='{LEAKY}'", before="@pytest.mark.skip").assert_outcomes(skipped=1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (f"spec='{LOCKERS}', propery='isolated_read'", "there is no word 'propery'; did you mean 'property'? (known: spec, property, *"),
        (f"spec='{LOCKERS}', expect='violatd'", "expect is 'violatd'; did you mean 'violated'?; it must be 'holds' or 'violated'"),
        (f"spec='{LOCKERS}', method='explor'", "method is 'explor'; did you mean 'explore'?; it must be one of explore, *"),
        (f"spec='{LOCKERS}', depth='3'", "depth is '3'; it must be a number of steps"),
        (f"spec='{LOCKERS}', size=3", "size is 3; it must be sizes of sorts, as in *"),
        (f"spec='{LOCKERS}', prove=True, size={{'Page': 3}}", "a proof is for any size and every run: it has no 'size'"),
        (f"spec='{LOCKERS}', all_flags=True", "only a proof (prove=True) has 'all_flags'"),
        ("property='isolated_read'", "it does not say which spec, as in spec='handoff'"),
        (f"'{LOCKERS}'", "it takes words only, as in spec='handoff'"),
        ("spec=3", "spec is 3; it must be a spec: *"),
    ],
)
def test_wrong_words_are_a_usage_error_before_anything_runs(project: pytest.Pytester, words: str, message: str) -> None:
    result = one(project, words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    escaped = message.replace("[", "[[]")
    result.stderr.fnmatch_lines([f"ERROR: *.py::test_it: @pytest.mark.kvmodel: {escaped}"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("spec='handof'", "there is no spec 'handof'; did you mean 'handoff'?"),
        (f"spec='{LOCKERS}', property='isolated'", "*has no property 'isolated'; did you mean 'isolated_read'?*"),
        (f"spec='{LOCKERS}', size={{'Pag': 3}}", "*has no sort 'Pag'; did you mean 'Page'?*"),
        (f"spec='{LOCKERS}', flags={{'zero': True}}", "*has no flag 'zero'; did you mean 'zero_on_free'?*"),
        (f"spec='{LOCKERS}', depth=3", "explore looks at every depth; a depth is for bmc, walk, hypothesis"),
        ("spec='none.py:Nothing'", "*none.py*"),
    ],
)
def test_what_only_the_spec_can_tell_is_an_error_of_the_test(project: pytest.Pytester, words: str, message: str) -> None:
    result = one(project, words)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*ERROR at setup of test_it*", f"@pytest.mark.kvmodel: {message}", "ERROR *::test_it - @pytest.mark.kvmodel: *"]
    )
    assert "Traceback" not in result.stdout.str()
    assert "During handling" not in result.stdout.str()


def test_several_markers_are_several_checks_and_a_class_gives_words_to_its_tests(project: pytest.Pytester) -> None:
    project.makepyfile(
        f"""
        import pytest

        @pytest.mark.kvmodel(spec="{LOCKERS}", property="isolated_read")
        class TestLockers:
            def test_plain(self): pass

            @pytest.mark.kvmodel(property="exclusive_owner")
            @pytest.mark.kvmodel(flags={{"zero_on_free": False}}, expect="violated")
            def test_both(self, kvmodel):
                assert [result.asked[0] for result in kvmodel.results] == ["exclusive_owner", "isolated_read"]

            @pytest.mark.kvmodel(flags={{"zero_on_free": False}})
            @pytest.mark.kvmodel(property="exclusive_owner", expect="violated")
            def test_neither(self): pass
        """
    )
    result = project.runpytest_inprocess("-v", "--junitxml=junit.xml")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*::test_both PASSED (holds, this size; violated, this size)*",
            "lockers.py:Lockers: isolated_read is violated in 4 steps (this size)",
            "lockers.py:Lockers: exclusive_owner holds, expected violated (this size)",
        ]
    )
    assert "kvmodel.2.verdict" in Path("junit.xml").read_text()
    assert len([name for name in artefacts(project) if name.endswith(".2.txt")]) == 1


def test_two_markers_on_a_class_are_refused(project: pytest.Pytester) -> None:
    mark = f"@pytest.mark.kvmodel(spec='{LOCKERS}')\n"
    project.makepyfile(f"import pytest\n{mark}{mark}class TestIt:\n    def test_it(self): pass\n")
    result = project.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *::test_it: @pytest.mark.kvmodel: TestIt has several of them; only a test can"])


def test_deselected_tests_are_not_looked_at(project: pytest.Pytester) -> None:
    result = one(project, "spek='x'", "-k", "nothing")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_the_fixture_asserts_nothing_and_records(project: pytest.Pytester) -> None:
    project.makepyfile(
        f"""
        from kvmodel import Verdict

        def test_it(kvmodel):
            result = kvmodel.check("{LEAKY}", ["isolated_read"])
            assert result.verdict is Verdict.VIOLATED
            assert kvmodel.prove("{LOCKERS}", ["exclusive_owner"]).coverage.word == "any size"
            assert kvmodel.check("{LOCKERS}", limit=1).verdict is Verdict.UNDECIDED
        """
    )
    result = project.runpytest_inprocess("-v", "--junitxml=junit.xml")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*PASSED (violated, this size; holds, any size; undecided, this depth)*"])
    assert 'name="kvmodel.3.verdict" value="undecided"' in Path("junit.xml").read_text()


def test_a_body_that_fails_shows_the_traces_of_its_checks(project: pytest.Pytester) -> None:
    project.makepyfile(f"def test_it(kvmodel):\n    assert kvmodel.check('{LEAKY}', 'isolated_read').verdict.value == 'holds'\n")
    result = project.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E *assert 'violated' == 'holds'", "*- kvmodel: lockers.py:Lockers:leaky: isolated_read is violated*", "   4  take(r=r1, p=p0) *"]
    )
    assert len(artefacts(project)) == 4


def test_expect_fails_with_the_trace_instead_of_a_traceback(project: pytest.Pytester) -> None:
    project.makepyfile(
        f"""
        def test_holds(kvmodel): kvmodel.expect(kvmodel.check("{LOCKERS}"))
        def test_violated(kvmodel): kvmodel.expect(kvmodel.check("{LEAKY}", "isolated_read"))
        def test_undecided(kvmodel): kvmodel.expect(kvmodel.check("{LOCKERS}", limit=1), "violated")
        """
    )
    result = project.runpytest_inprocess("-v")
    result.assert_outcomes(passed=1, failed=1, errors=1)
    result.stdout.fnmatch_lines(["lockers.py:Lockers:leaky: isolated_read is violated in 4 steps (this size)", "   4  take(r=r1, p=p0) *"])
    assert "Traceback" not in result.stdout.str()
    assert "testing.py" not in result.stdout.str()


def test_a_mistake_in_a_body_shows_the_line_of_the_test(project: pytest.Pytester) -> None:
    project.makepyfile("def test_it(kvmodel):\n    kvmodel.check('handof')\n")
    result = project.runpytest_inprocess()
    result.stdout.fnmatch_lines([">   *kvmodel.check('handof')", "E *there is no spec 'handof'; did you mean 'handoff'?"])


def test_options_are_for_checks_that_do_not_say_otherwise(project: pytest.Pytester) -> None:
    project.makepyfile(
        f"""
        import pytest

        @pytest.mark.kvmodel(spec="{LOCKERS}", property="isolated_read")
        def test_silent(kvmodel):
            assert kvmodel.results[0].method == "bmc"
            assert (kvmodel.results[0].coverage.steps, dict(kvmodel.results[0].coverage.size)) == (4, {{"Request": 2, "Page": 1}})

        @pytest.mark.kvmodel(spec="{LOCKERS}", method="explore", size={{"Page": 3}})
        def test_says_so(kvmodel):
            assert (kvmodel.results[0].method, dict(kvmodel.results[0].coverage.size)["Page"]) == ("explore", 3)
        """
    )
    options = ["--kvmodel-method=bmc", "--kvmodel-depth=4", "--kvmodel-size=Page=1", "--kvmodel-size", "Bank=3", "--kvmodel-seed=7"]
    result = project.runpytest_inprocess(*options)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["kvmodel: size Page=1 Bank=3, method bmc, depth 4, seed 7", "size Bank: no check used it"])


def test_the_settings_file_and_the_order_of_places(project: pytest.Pytester) -> None:
    project.makeini("[pytest]\nkvmodel_method = walk\nkvmodel_depth = 9\nkvmodel_size = Page=1 Request=3\nkvmodel_profile = thorough\n")
    (project.path / "pyproject.toml").write_text("[tool.kvmodel]\nmethod = 'bmc'\nsize = { Page = 4, Request = 4 }\n")
    body = "assert (kvmodel.results[0].coverage.steps, kvmodel.results[0].coverage.runs, dict(kvmodel.results[0].coverage.size))"
    project.makepyfile(
        f"import pytest\n@pytest.mark.kvmodel(spec='{LOCKERS}', property='isolated_read', runs=3)\n"
        f"def test_it(kvmodel):\n    {body} == EXPECTED\n"
    )
    source = next(project.path.glob("test_*.py"))
    text = source.read_text()
    for options, expected in (
        ((), (9, 3, {"Page": 1, "Request": 3})),
        (("--kvmodel-profile=quick",), (40, 3, {"Page": 1, "Request": 3})),
        (("--kvmodel-profile=quick", "--kvmodel-depth=5", "--kvmodel-size=Page=2"), (5, 3, {"Page": 2, "Request": 3})),
    ):
        source.write_text(text.replace("EXPECTED", repr(expected)))
        project.runpytest_inprocess("-p", "no:cacheprovider", *options).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kvmodel-size=Page"], "--kvmodel-size Page: write NAME=N, as in Request=3"),
        (["--kvmodel-method=guess"], "*invalid choice: 'guess'*"),
        (["--kvmodel-depth=0"], "*a depth is at least 1"),
        (["-o", "kvmodel_profile=fast"], "*'fast' in the settings of pytest is not one of quick, thorough"),
        (["-o", "kvmodel_depth=deep"], "*'deep' in the settings of pytest is not a number"),
    ],
)
def test_options_that_cannot_be_used(project: pytest.Pytester, options: list[str], message: str) -> None:
    result = one(project, f"spec='{LOCKERS}'", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{message}"])


def test_specs_are_found_beside_the_test_and_commands_are_as_from_the_current_folder(project: pytest.Pytester) -> None:
    (project.path / "deep").mkdir()
    shutil.move(project.path / "lockers.py", project.path / "deep" / "lockers.py")
    (project.path / "deep" / "test_it.py").write_text(marked(f"spec='{LEAKY}', property='isolated_read'"))
    result = project.runpytest_inprocess()
    result.stdout.fnmatch_lines(["  kvmodel check deep/lockers.py:Lockers:leaky isolated_read *"])


def test_an_imported_class_is_a_spec(project: pytest.Pytester) -> None:
    one(project, "spec=Leaky, expect='violated'", before="from lockers import Leaky").assert_outcomes(passed=1)


def test_a_folder_that_cannot_be_made_does_not_hide_the_verdict(project: pytest.Pytester) -> None:
    (project.path / "taken").write_text("")
    result = one(project, f"spec='{LEAKY}', property='isolated_read'", "--kvmodel-artefacts=taken")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*isolated_read is violated in 4 steps*", "not saved: *taken*"])


def test_a_spec_without_pages_has_artefacts_too(project: pytest.Pytester) -> None:
    (project.path / "door.py").write_text(
        "from kvmodel.language import Single, Spec, action, invariant\n\n\n"
        "class Door(Spec):\n    open: Single[bool]\n\n"
        "    @action\n    def push(s) -> None:\n        s.open = True\n\n"
        "    @invariant\n    def shut(s) -> bool:\n        return not s.open\n"
    )
    one(project, "spec='door.py:Door', property='shut'").assert_outcomes(failed=1)
    assert [name.rpartition(".")[2] for name in artefacts(project)] == ["gitignore", "html", "json", "txt"]


def test_findings_can_be_failures(project: pytest.Pytester) -> None:
    spec = (project.path / "lockers.py").read_text()
    always = 'require(s.content[p] is None or True, "idle")'
    (project.path / "lockers.py").write_text(spec.replace('"nobody\'s")', f'"nobody\'s")\n        {always}'))
    one(project, f"spec='{LOCKERS}', property='exclusive_owner'").assert_outcomes(passed=1)
    result = one(project, f"spec='{LOCKERS}', property='exclusive_owner', strict=True")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["lockers.py:Lockers: holds, but with * finding*guard never decided (this size)"])


@pytest.mark.parametrize(
    "nodeid", ["a.py::t[../../etc/passwd]", "a.py::t[\x1b[2J\u202e<b>]", "a.py::t[" + "x" * 10_000 + "]", "CON", "\udc80", "..."]
)
def test_names_of_artefacts_are_harmless(nodeid: str) -> None:
    stem = artefact_stem(nodeid)
    assert len(stem) < 100
    assert stem.isascii()
    assert all(c.isalnum() or c == "-" for c in stem)
    assert stem[0].isalnum()


def test_names_of_artefacts_tell_tests_apart() -> None:
    assert artefact_stem("a.py::t[a/b]") != artefact_stem("a.py::t[a-b]")


def test_hostile_parameters(project: pytest.Pytester) -> None:
    project.makepyfile(
        f"""
        import pytest

        @pytest.mark.parametrize("name", ["../../x", "\\x1b[2J", "a" * 300, "<script>", "\\u202e"], ids=str)
        @pytest.mark.kvmodel(spec="{LEAKY}", property="isolated_read")
        def test_it(name): pass
        """
    )
    result = project.runpytest_inprocess("--junitxml=junit.xml")
    result.assert_outcomes(failed=5)
    assert len(artefacts(project)) == 16
    assert sorted(path.name for path in project.path.parent.glob("*x*itf*")) == []


def test_the_same_in_two_processes(sample: pytest.Pytester) -> None:
    """Reports, properties and artefacts of workers reach the controller; a wrong word is an error of its test."""
    with (sample.path / "checks_lockers.py").open("a") as file:
        file.write("\n\n@pytest.mark.kvmodel(spec='x', propery='y')\ndef test_wrong() -> None:\n    pass\n")
    result = sample.runpytest_subprocess("-n", "2", "-v", "--junitxml=junit.xml", "-p", "no:benchmark", "-p", "no:hypothesispytest")
    result.assert_outcomes(passed=1, failed=1, errors=2)
    result.stdout.fnmatch_lines(
        [
            "@pytest.mark.kvmodel: there is no word 'propery'; did you mean 'property'?*",
            "   4  take(r=r1, p=p0)       holds*",
            "3 checks: *",
            "checks_lockers.py::test_failing:",
            "  .kvmodel/checks-lockers-py-test-failing-*.itf.json",
            "FAILED *::test_failing - lockers.py:Lockers:leaky: isolated_*",
        ],
        consecutive=False,
    )
    assert (sample.path / "junit.xml").read_text().count('name="kvmodel.verdict"') == 3


def test_a_project_without_marked_tests_imports_nothing_of_kvmodel(project: pytest.Pytester) -> None:
    """What starts with pytest is one module; `kvmodel` itself is not imported until a test asks for a check."""
    project.makepyfile("def test_it(): pass")
    heavy = "('kvmodel', 'z3', 'numpy', 'networkx', 'rich', 'click', 'msgspec', 'hypothesis')"
    code = (
        "import sys, pytest\n"
        "status = pytest.main(['-q', '-p', 'no:hypothesispytest', '-p', 'no:benchmark', '-p', 'no:xdist'])\n"
        f"print('imported', sorted(name for name in sys.modules if name.partition('.')[0] in {heavy}), 'pytest_kvmodel' in sys.modules)\n"
        "raise SystemExit(status)"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=project.path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "imported [] True" in result.stdout


def test_collecting_marked_tests_imports_no_reading(sample: pytest.Pytester) -> None:
    code = (
        "import sys, pytest\n"
        "status = pytest.main(['-q', '--collect-only', '-p', 'no:hypothesispytest', '-p', 'no:benchmark'])\n"
        "print('imported', [n for n in sys.modules if n.startswith(('kvmodel.readings', 'kvmodel.api', 'z3', 'numpy', 'networkx'))])\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=sample.path, capture_output=True, text=True, check=True)
    assert "imported []" in result.stdout


def test_ctrl_c_during_a_check_ends_the_run(project: pytest.Pytester) -> None:
    """A check takes it for the end of its time; a test run must not go on to the next test."""
    (project.path / "conftest.py").write_text(
        "import os, signal\nfrom kvmodel.readings import explore\nasked = explore.explore\n\n"
        "def interrupted(*words, progress=None, **more):\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "    return asked(*words, progress=lambda line: os.kill(os.getpid(), signal.SIGINT), **more)\n\n"
        "explore.explore = interrupted\n"
    )
    project.makepyfile(marked("spec='handoff'") + "\ndef test_next():\n    pass\n")
    result = project.runpytest_subprocess("-v")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "KeyboardInterrupt" in result.stdout.str()
    assert "test_next PASSED" not in result.stdout.str()


def test_methods_of_unittest_can_be_marked(project: pytest.Pytester) -> None:
    project.makepyfile(
        f"""
        import unittest

        import pytest

        class TestIt(unittest.TestCase):
            @pytest.mark.kvmodel(spec="{LOCKERS}", property="isolated_read")
            def test_passing(self): pass

            @pytest.mark.kvmodel(spec="{LEAKY}", property="isolated_read")
            def test_failing(self): pass
        """
    )
    result = project.runpytest_inprocess()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["   4  take(r=r1, p=p0) *"])


def test_setup_only_makes_no_check(project: pytest.Pytester) -> None:
    assert one(project, f"spec='{LEAKY}'", "--setup-plan").ret == pytest.ExitCode.OK


def test_without_the_plugin_a_marked_test_is_an_unknown_mark(project: pytest.Pytester) -> None:
    project.makepyfile(marked(f"spec='{LEAKY}'"))
    result = project.runpytest_subprocess("-p", "no:kvmodel", "--strict-markers")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*'kvmodel' not found in `markers` configuration option*"])


def test_help_has_the_options_and_the_marker(project: pytest.Pytester) -> None:
    project.runpytest_inprocess("--help").stdout.fnmatch_lines(["kvmodel:*", "*--kvmodel-profile={quick,thorough}*", "*kvmodel_size*"])
    project.runpytest_inprocess("--markers").stdout.fnmatch_lines(["@pytest.mark.kvmodel(spec, property=None, expect='holds', *"])


def test_words_left_out_are_none() -> None:
    assert parse_check({"spec": "handoff", "depth": None}) == parse_check({"spec": "handoff"})
    with pytest.raises(UsageError, match="there is no word 'sizes'; did you mean 'size'"):
        parse_check({"spec": "handoff", "sizes": {}})


@pytest.mark.slow
def test_the_examples_of_the_manual_pass(project: pytest.Pytester) -> None:
    manual = (Path(__file__).parents[2] / "docs" / "pytest.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", manual, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    project.makepyfile(**{f"test_{number}": block for number, block in enumerate(blocks)})
    project.runpytest_subprocess().assert_outcomes(passed=6)
