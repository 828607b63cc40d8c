"""The pytest plugin of kvmodel: `@pytest.mark.kvmodel`, the fixture `kvmodel`, and `StatefulSuite` classes.

A module of its own, so that pytest starts without importing kvmodel: this one imports nothing but pytest, and
`kvmodel.testing`, which makes the checks, is imported when a test asks for one. docs/pytest.md is the manual.

A marked test is checked at the end of its setup. A check that is undecided is an error there; one whose verdict is not
the expected one fails the test before its body runs.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from kvmodel.testing import Check, Checks, Defaults, Outcome

METHODS = ("explore", "bmc", "walk", "hypothesis")  # these two as in `kvmodel.testing`, which is not imported for --help
PROFILES = ("quick", "thorough")
FOLDER = ".kvmodel"
PIPED_WIDTH = 100  # columns of a page that is not a terminal's, as of the command line
NARROWEST = 60

MARKER = (
    "kvmodel(spec, property=None, expect='holds', method=None, size=None, flags=None, depth=None, runs=None, seed=None, timeout=None, "
    "limit=None, complete=False, prove=False, all_flags=False, strict=False): check a spec before the test's body runs; see docs/pytest.md."
)

settings_key = pytest.StashKey["Settings"]()
checks_key = pytest.StashKey["Checks"]()
failure_key = pytest.StashKey["Outcome"]()
headline_key = pytest.StashKey[str]()  # of what this plugin says instead of a traceback
undecided_key = pytest.StashKey[bool]()


class Settings:
    """What the options and the settings file say: layers of defaults (the first that says something wins), the folder of
    artefacts, and the width of a page."""

    def __init__(self, config: pytest.Config) -> None:
        options = config.option
        profile = options.kvmodel_profile or _one_of(config, "kvmodel_profile", PROFILES)
        explicit: dict[str, Any] = {
            "method": options.kvmodel_method, "depth": options.kvmodel_depth, "seed": options.kvmodel_seed,
            "size": _sizes(",".join(options.kvmodel_size), "--kvmodel-size"),
        }  # fmt: skip
        stored: dict[str, Any] = {
            "method": _one_of(config, "kvmodel_method", METHODS), "depth": _number(config, "kvmodel_depth"),
            "seed": _number(config, "kvmodel_seed"), "size": _sizes(",".join(config.getini("kvmodel_size")), "kvmodel_size"),
        }  # fmt: skip
        if explicit["depth"] is not None and explicit["depth"] < 1:
            raise pytest.UsageError(f"--kvmodel-depth {explicit['depth']}: a depth is at least 1")
        self.profile: str = profile or ""
        own_profile = [self.profile] if profile else []
        self.layers: list[Mapping[str, Any] | str] = (
            [explicit, *own_profile, stored] if options.kvmodel_profile else [explicit, stored, *own_profile]
        )
        self.sizes: tuple[tuple[str, int], ...] = (*explicit["size"], *stored["size"])
        self.told = [f"{name} {value}" for name, value in (("profile", self.profile), *_told(explicit, stored)) if value]
        chosen = options.kvmodel_artefacts
        kept = config.getini("kvmodel_artefacts")
        self.folder = Path(os.path.normpath(config.invocation_params.dir / chosen if chosen else config.rootpath / (kept or FOLDER)))
        worker: Mapping[str, Any] = getattr(config, "workerinput", {})
        self.in_worker = bool(worker)
        self.width = int(worker.get("kvmodel_width", 0)) or _page_width(config)
        self.rootpath = config.rootpath
        self._defaults: tuple[Defaults, ...] | None = None

    @property
    def defaults(self) -> tuple[Defaults, ...]:
        """The layers as `kvmodel.testing` takes them, and last `[tool.kvmodel]` of the project."""
        if self._defaults is None:
            from kvmodel.commands.project import project_settings
            from kvmodel.testing import PROFILES, Defaults

            project = project_settings(self.rootpath)
            layers = [PROFILES[layer] if isinstance(layer, str) else Defaults(**layer) for layer in self.layers]
            self._defaults = (*layers, Defaults(project.method, project.size, project.depth))
        return self._defaults


def _told(explicit: Mapping[str, Any], stored: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is set, for the header of the run."""
    sizes = dict(stored["size"]) | dict(explicit["size"])
    found = [("size", " ".join(f"{name}={size}" for name, size in sizes.items()))]
    for name in ("method", "depth", "seed"):
        value = stored[name] if explicit[name] is None else explicit[name]
        found.append((name, "" if value is None else str(value)))
    return found


def _one_of(config: pytest.Config, name: str, known: tuple[str, ...]) -> str | None:
    value: str = config.getini(name)
    if value and value not in known:
        raise pytest.UsageError(f"{name} = {value!r} in the settings of pytest is not one of {', '.join(known)}")
    return value or None


def _number(config: pytest.Config, name: str) -> int | None:
    value: str = config.getini(name)
    try:
        return int(value) if value else None
    except ValueError:
        raise pytest.UsageError(f"{name} = {value!r} in the settings of pytest is not a number") from None


def _sizes(text: str, where: str) -> tuple[tuple[str, int], ...]:
    sizes = {}
    for part in text.replace(",", " ").split():
        name, _, number = part.partition("=")
        if not name or not (number.isascii() and number.isdigit() and len(number) <= 12):
            raise pytest.UsageError(f"{where} {part}: write NAME=N, as in Request=3")
        sizes[name] = int(number)
    return tuple(sizes.items())


def _page_width(config: pytest.Config) -> int:
    writer = config.get_terminal_writer() if config.pluginmanager.has_plugin("terminalreporter") else None
    return max(NARROWEST, writer.fullwidth) if writer is not None and writer.hasmarkup else PIPED_WIDTH


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the command line and of the settings file."""
    group = parser.getgroup("kvmodel", "kvmodel: what checks that do not say otherwise get")
    group.addoption(
        "--kvmodel-size", action="append", default=[], metavar="NAME=N", help="elements of a sort: Request=3, Page.DECODE=4"
    )
    group.addoption("--kvmodel-method", choices=METHODS, help="how checks look: every state (explore), Z3 (bmc), or samples")
    group.addoption("--kvmodel-depth", type=int, metavar="N", help="steps of a run, for methods that have a depth and StatefulSuites")
    group.addoption("--kvmodel-seed", type=int, metavar="N", help="seed of samples, of the solver and of StatefulSuites")
    group.addoption("--kvmodel-profile", choices=PROFILES, help="how much work to put in; docs/pytest.md has the table")
    group.addoption("--kvmodel-artefacts", metavar="DIR", help=f"folder for the traces of failing checks (default: {FOLDER})")
    parser.addini("kvmodel_size", "elements of sorts, as Request=3 Page=2", type="args", default=[])
    for name, meaning in (
        ("method", f"how checks look: {', '.join(METHODS)}"),
        ("depth", "steps of a run"),
        ("seed", "seed of samples and of the solver"),
        ("profile", f"how much work to put in: {', '.join(PROFILES)}"),
        ("artefacts", f"folder for the traces of failing checks (default: {FOLDER})"),
    ):
        parser.addini(f"kvmodel_{name}", meaning, default="")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and refuse options that cannot be used."""
    config.addinivalue_line("markers", MARKER)
    config.stash[settings_key] = Settings(config)


def pytest_report_header(config: pytest.Config) -> str | list[str]:
    """What every check of this run gets, where that is not the default."""
    told = config.stash[settings_key].told
    return f"kvmodel: {', '.join(told)}" if told else []


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist how wide the page is: it has no terminal."""
    node.workerinput["kvmodel_width"] = node.config.stash[settings_key].width


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, name: str, obj: object) -> pytest.Class | None:
    """Collect every `StatefulSuite`, whatever its name: one that is not collected would look like one that passes."""
    testing = sys.modules.get("kvmodel.testing")
    if testing is None or not isinstance(obj, type) or not issubclass(obj, testing.StatefulSuite) or obj is testing.StatefulSuite:
        return None
    found: pytest.Class = pytest.Class.from_parent(collector, name=name, obj=obj)
    return found


def _asked(item: pytest.Item) -> list[dict[str, Any]]:
    """The words of each check of a test: each marker of its own is one check, and has the words of the markers of its
    class and module where it does not say otherwise; without one of its own, those make the one check.

    Raises UsageError.
    """
    from kvmodel.errors import UsageError

    own: list[dict[str, Any]] = []
    outer: dict[str, Any] = {}
    seen: set[object] = set()
    for node, mark in item.iter_markers_with_node("kvmodel"):
        if mark.args:
            raise UsageError("it takes words only, as in spec='handoff'")
        if node is item:
            own.append(dict(mark.kwargs))
        elif node in seen:
            raise UsageError(f"{node.name} has several of them; only a test can")
        else:
            outer = dict(mark.kwargs) | outer
            seen.add(node)
    own.reverse()  # pytest has them from the bottom up
    return [outer | words for words in own] if own else [outer] if seen else []


def _parsed(item: pytest.Item) -> list[Check]:
    """The checks of a test's markers. Raises UsageError."""
    if item.get_closest_marker("kvmodel") is None:
        return []
    asked = _asked(item)
    from kvmodel.testing import parse_check

    return [parse_check(words) for words in asked]


def _complaint(item: pytest.Item, problem: object) -> str:
    return f"{item.nodeid}: @pytest.mark.kvmodel: {problem}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse wrong words of markers before anything runs. A worker leaves it to the setup of the test: an error here would
    end it without a word."""
    if config.stash[settings_key].in_worker:
        return
    wrong = []
    for item in items:
        try:
            _parsed(item)
        except ValueError as problem:  # UsageError, without the import that most projects do not need
            wrong.append(_complaint(item, problem))
    if wrong:
        raise pytest.UsageError(*wrong)


def _checks_of(item: pytest.Item) -> Checks:
    """What a test's checks are kept in; the artefacts of an earlier run of the test go when it is made."""
    checks = item.stash.get(checks_key, None)
    if checks is None:
        from kvmodel.testing import Checks, Place

        settings = item.config.stash[settings_key]
        folders = (item.path.parent, settings.rootpath, Path.cwd())
        place = Place(item.nodeid, settings.defaults, folders, settings.folder, 1 if settings.in_worker else None)
        checks = item.stash[checks_key] = Checks(place)
        checks.forget()
    return checks


@pytest.fixture(name="kvmodel")
def kvmodel_fixture(request: pytest.FixtureRequest) -> Checks:
    """Checks inside a test's body: `kvmodel.check(...)` and `kvmodel.prove(...)` have the words of the functions of that name
    and assert nothing; `kvmodel.expect(result, "holds")` does. `kvmodel.results` begins with those of the test's markers."""
    return _checks_of(request.node)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Make the checks of a test's markers, when its fixtures are there."""
    _forget(item)
    result = yield
    if item.get_closest_marker("kvmodel") is not None and not item.config.getoption("setuponly", False):
        _make_checks(item)
    return result


def _forget(item: pytest.Item) -> None:
    """Start anew: a test may be run again in the same session."""
    keys: tuple[pytest.StashKey[Any], ...] = (failure_key, checks_key, headline_key, undecided_key)
    for key in keys:
        if key in item.stash:
            del item.stash[key]


def _make_checks(item: pytest.Item) -> None:
    from kvmodel.errors import InternalError, KvmodelError

    outcomes, complaint = [], ""
    try:
        parsed = _parsed(item)
        checks = _checks_of(item)
        outcomes = [checks.make(check) for check in parsed]
    except InternalError:
        raise
    except KvmodelError as problem:
        complaint = f"@pytest.mark.kvmodel: {problem}"
    if complaint:
        item.stash[headline_key] = complaint
        pytest.fail(complaint, pytrace=False)
    failed = next((outcome for outcome in outcomes if outcome.kind == "failed"), None)
    undecided = next((outcome for outcome in outcomes if outcome.kind == "undecided"), None)
    if failed is not None:
        item.stash[failure_key] = failed
    elif undecided is not None:
        _fail(item, undecided)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail before the body runs when a check said so, and show what a body did not expect as a check's failure."""
    failure = item.stash.get(failure_key, None)
    if failure is not None:
        _fail(item, failure)
    try:
        return (yield)
    except AssertionError as problem:
        testing = sys.modules.get("kvmodel.testing")
        if testing is None or not isinstance(problem, testing.Unexpected):
            raise
        outcome: Outcome = problem.outcome
    _fail(item, outcome)


def _fail(item: pytest.Item, outcome: Outcome) -> NoReturn:
    """Fail with the text of a check, and after it of every other one that is not as expected; no traceback says more."""
    checks = item.stash[checks_key]
    wrong = sorted((number for number, kept in enumerate(checks.outcomes) if kept.kind), key=lambda n: checks.outcomes[n] is not outcome)
    checks.save(wrong)
    item.stash[headline_key] = outcome.headline
    item.stash[undecided_key] = outcome.kind == "undecided"
    width = item.config.stash[settings_key].width
    pytest.fail("\n\n".join(checks.outcomes[number].text(width).rstrip() for number in wrong), pytrace=False)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put verdicts and coverage into the report of a test, and see to it that undecided stays an error."""
    checks = item.stash.get(checks_key, None)
    if checks is not None and checks.outcomes and call.when != "teardown":
        if call.excinfo is not None and call.when == "call" and headline_key not in item.stash:
            checks.save(number for number, outcome in enumerate(checks.outcomes) if outcome.result.trace is not None)
        _record(item, checks)
    report = yield
    crash = getattr(report.longrepr, "reprcrash", None)
    if headline_key in item.stash and crash is not None and report.when != "teardown":
        crash.message = item.stash[headline_key]  # one line, for the short summary and JUnit XML; the text is in the report
    if checks is None or not checks.outcomes or report.when == "teardown":
        return report
    undecided = item.stash.get(undecided_key, False)
    if undecided and hasattr(report, "wasxfail"):
        del report.wasxfail  # who expects a failure does not expect to learn nothing
        report.outcome = "failed"
    if headline_key not in item.stash and report.failed and report.when == "call":
        _show(report, checks, item.config.stash[settings_key].width)
    report.kvmodel = [  # type: ignore[attr-defined]  # reports may carry more, as long as it is plain enough for pytest-xdist
        {
            "verdict": outcome.result.verdict.value,
            "coverage": outcome.result.coverage.word,
            "expected": not outcome.kind,
            "size": [name for name, _ in outcome.result.coverage.size or ()],
            "files": [*outcome.files, *([outcome.note] if outcome.note else [])],
        }
        for outcome in checks.outcomes
    ]
    if undecided:
        report.kvmodel_undecided = True  # type: ignore[attr-defined]
    return report


def _record(item: pytest.Item, checks: Checks) -> None:
    known = [entry for entry in item.user_properties if not entry[0].startswith("kvmodel.")]
    recorded = [entry for number, outcome in enumerate(checks.outcomes, 1) for entry in outcome.recorded(number)]
    item.user_properties[:] = [*known, *recorded]


def _show(report: pytest.TestReport, checks: Checks, width: int) -> None:
    """A body failed by its own assertion: show the traces of its checks below it."""
    for outcome in checks.outcomes:
        if outcome.result.trace is not None:
            report.sections.append((f"kvmodel: {outcome.headline}", outcome.text(width)))


def pytest_report_teststatus(report: pytest.TestReport | pytest.CollectReport) -> tuple[str, str, str] | None:
    """The coverage beside PASSED in the verbose output; undecided is counted with the errors, in whichever phase it is."""
    checks = getattr(report, "kvmodel", [])
    if getattr(report, "kvmodel_undecided", False) and report.failed:
        return "error", "E", "UNDECIDED"
    if checks and report.when == "call" and report.passed and not hasattr(report, "wasxfail"):
        words = dict.fromkeys(f"{check['verdict']}, {check['coverage']}" for check in checks)
        return "passed", ".", f"PASSED ({'; '.join(words)})"
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """How many checks there were with which answer and coverage, and where failing ones were kept."""
    last: dict[str, Any] = {}
    for category in ("passed", "failed", "error", "xfailed", "xpassed"):
        for report in terminalreporter.stats.get(category, []):
            if getattr(report, "kvmodel", []):
                last[report.nodeid] = report.kvmodel
    if not last:
        return
    settings = config.stash[settings_key]
    checks = [check for found in last.values() for check in found]
    kept = {nodeid: [name for check in found for name in check["files"]] for nodeid, found in last.items()}
    used = {name for check in checks for name in check["size"]}
    unused = [name for name, _ in settings.sizes if name not in used and not any(sort.partition(".")[0] == name for sort in used)]
    if config.get_verbosity() < 0 and not any(kept.values()) and not unused:
        return
    counts = Counter(
        f"{check['verdict']}{'' if check['expected'] or check['verdict'] == 'undecided' else ', not expected'} ({check['coverage']})"
        for check in checks
    )
    terminalreporter.section("kvmodel")
    many = f"{len(checks)} check{'' if len(checks) == 1 else 's'}"
    terminalreporter.write_line(f"{many}: {'; '.join(f'{count} {word}' for word, count in counts.most_common())}")
    for name in unused:
        terminalreporter.write_line(f"size {name}: no check used it")
    if any(kept.values()):
        terminalreporter.write_line(f"artefacts in {settings.folder}")
    for nodeid, names in kept.items():
        if names:
            terminalreporter.write_line(f"{nodeid}:")
        for name in names:
            terminalreporter.write_line(f"  {name}")
