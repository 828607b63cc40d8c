"""Checks inside a test suite: how they are asked, what is expected of the answer, and what is kept of a failure.

The pytest plugin (`pytest_kvmodel`) is built on this module, which knows nothing of pytest. Importing it imports nothing
heavy: the readings are imported when the first check is made.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, cast

from kvmodel.errors import KvmodelError, UsageError, nearest, printable

if TYPE_CHECKING:
    import hypothesis

    from kvmodel.api import CheckOptions, Method, SpecLike
    from kvmodel.language.instance import Instance
    from kvmodel.language.system import TransitionSystem
    from kvmodel.traces.trace import Trace
    from kvmodel.verdict import PropertyResult, Result

__all__ = [
    "METHODS",
    "PROFILES",
    "Check",
    "Checks",
    "Defaults",
    "Outcome",
    "Place",
    "StatefulSuite",
    "Unexpected",
    "artefact_stem",
    "parse_check",
]

METHODS = ("explore", "bmc", "walk", "hypothesis")  # those of `kvmodel.api`, which is not imported when tests are collected
EXPECTED = ("holds", "violated")
FOR_INSTANCES = ("method", "size", "depth", "runs", "complete")  # words that mean nothing to a proof
FOR_PROOFS = ("all_flags",)
LONGEST_STEM = 80  # characters of a node id that are kept in the names of its artefacts
PAGE_WIDTH = 120  # columns of what is kept as text
TRACE = ".itf.json"
CLOSE = 0.75  # how much an attribute of a suite may look like one of its words

Kind = Literal["", "failed", "undecided"]


@dataclass(frozen=True, slots=True)
class Defaults:
    """What checks that do not say otherwise get, from one place (the command line, a profile, a settings file).

    `depth` is for every method that has one, `depths` and `runs` for a method by name; `examples` is the number of runs
    of a `StatefulSuite`.
    """

    method: str | None = None
    size: tuple[tuple[str, int], ...] = ()
    depth: int | None = None
    seed: int | None = None
    timeout: float | None = None
    depths: Mapping[str, int] = field(default_factory=dict)
    runs: Mapping[str, int] = field(default_factory=dict)
    examples: int | None = None

    def depth_of(self, method: str) -> int | None:
        return self.depths.get(method) if self.depth is None else self.depth


PROFILES: Mapping[str, Defaults] = {
    "quick": Defaults(
        timeout=30.0,
        depths={"bmc": 15, "walk": 40, "hypothesis": 30},
        runs={"walk": 200, "hypothesis": 100},
        examples=50,
    ),
    "thorough": Defaults(
        depths={"bmc": 30, "walk": 100, "hypothesis": 60},
        runs={"walk": 20_000, "hypothesis": 5_000},
        examples=2_000,
    ),
}


@dataclass(frozen=True, slots=True)
class Check:
    """One check as a test asks for it; None is what it leaves to `Defaults`. The words are those of `kvmodel.check`.

    `expect` is the verdict that passes: of every one of `properties`, or of all together when it names none; '' expects
    nothing. With `strict` a finding is a failure too.
    """

    spec: SpecLike
    properties: tuple[str, ...] = ()
    expect: str = "holds"
    method: str | None = None
    size: tuple[tuple[str, int], ...] = ()
    flags: tuple[tuple[str, bool], ...] = ()
    depth: int | None = None
    runs: int | None = None
    seed: int | None = None
    timeout: float | None = None
    limit: int | None = None
    complete: bool = False
    prove: bool = False
    all_flags: bool = False
    strict: bool = False


def _is_spec(value: object) -> bool:
    if isinstance(value, str):
        return bool(value)
    from kvmodel.language.surface import Spec
    from kvmodel.language.system import TransitionSystem

    return isinstance(value, TransitionSystem) or (isinstance(value, type) and issubclass(value, Spec))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_names(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, list | tuple) and all(isinstance(name, str) for name in value))


def _maps_to(accepted: Callable[[object], bool], value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) and accepted(entry) for key, entry in value.items())


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


WORDS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "spec": (_is_spec, "a spec: a name such as 'handoff:buggy' or 'my.py:Mine', or an imported spec class"),
    "property": (_are_names, "the name of a property, or a list of names"),
    "expect": (lambda value: value in EXPECTED, "'holds' or 'violated'"),
    "method": (lambda value: value in METHODS, f"one of {', '.join(METHODS)}"),
    "size": (lambda value: _maps_to(_is_count, value), "sizes of sorts, as in {'Request': 3}"),
    "flags": (lambda value: _maps_to(_is_bool, value), "values of flags, as in {'quarantine': False}"),
    "depth": (_is_count, "a number of steps"),
    "runs": (_is_count, "a number of runs"),
    "seed": (lambda value: isinstance(value, int) and not isinstance(value, bool), "a whole number"),
    "timeout": (lambda value: isinstance(value, int | float) and not isinstance(value, bool), "a number of seconds"),
    "limit": (_is_count, "a number: of states for explore, of Z3's units of work for a proof"),
    "complete": (_is_bool, "True or False"),
    "prove": (_is_bool, "True or False"),
    "all_flags": (_is_bool, "True or False"),
    "strict": (_is_bool, "True or False"),
}


def parse_check(words: Mapping[str, object]) -> Check:
    """The check that a marker's words ask for. A word whose value is None is left out.

    Raises UsageError for a word that there is not, a value that it cannot have, and words that do not go together.

    >>> parse_check({"spec": "handoff", "property": "isolated_read"}).properties
    ('isolated_read',)
    """
    given = {name: value for name, value in words.items() if value is not None}
    for name, value in given.items():
        if name not in WORDS:
            raise UsageError(f"there is no word '{name}'{nearest(name, list(WORDS))} (known: {', '.join(WORDS)})")
        accepted, meaning = WORDS[name]
        if not accepted(value):
            known = {"expect": EXPECTED, "method": METHODS}.get(name, ())
            raise UsageError(f"{name} is {printable(repr(value), 200)}{nearest(str(value), known)}; it must be {meaning}")
    if "spec" not in given:
        raise UsageError("it does not say which spec, as in spec='handoff'")
    proof = bool(given.get("prove"))
    for name in FOR_INSTANCES if proof else FOR_PROOFS:
        if name in given:
            why = "a proof is for any size and every run: it has no" if proof else "only a proof (prove=True) has"
            raise UsageError(f"{why} '{name}'")
    names = given.pop("property", ())
    given["properties"] = (names,) if isinstance(names, str) else tuple(cast("Sequence[str]", names))
    for name in ("size", "flags"):
        if name in given:
            given[name] = tuple(cast("Mapping[str, object]", given[name]).items())
    return Check(**given)  # type: ignore[arg-type]  # the table of words has looked at each


@dataclass(frozen=True)
class Outcome:
    """A check that was made: what it was, its result, the command that makes it again, and how people read it."""

    check: Check
    result: Result
    command: str
    told: Callable[[int], str]  # from the width of a page to everything that the check has to say
    files: tuple[str, ...] = ()  # where it was kept, as from the current folder
    note: str = ""  # why it was not

    @property
    def kind(self) -> Kind:
        return self._judged[0]

    @property
    def headline(self) -> str:
        """One line: what is not as expected, or the verdict."""
        return self._judged[1]

    @property
    def _judged(self) -> tuple[Kind, str]:
        from kvmodel.verdict import Verdict

        result, expect = self.result, self.check.expect
        asked = tuple(result[name] for name in self.check.properties)
        if expect == "violated":
            holding = [entry for entry in asked if entry.verdict is Verdict.HOLDS] if asked else []
            if holding or (not asked and result.verdict is Verdict.HOLDS):
                what = f"{', '.join(entry.name for entry in holding)} " if holding else "every property "
                return "failed", self._line(f"{what}{'hold' if len(holding) > 1 else 'holds'}, expected violated")
            open_ones = [entry for entry in asked or result.properties if entry.verdict is Verdict.UNDECIDED]
            if open_ones and (asked or result.verdict is Verdict.UNDECIDED):
                return "undecided", self._undecided(open_ones)
        elif expect == "holds":
            if result.headline is not None:
                return "failed", self._violated(result.headline)
            if result.verdict is Verdict.UNDECIDED:
                return "undecided", self._undecided([entry for entry in result.properties if entry.verdict is Verdict.UNDECIDED])
        if self.check.strict and result.findings:
            first, count = result.findings[0], len(result.findings)
            return "undecided", self._line(f"{result.verdict.value}, but with {count} findings, of which one is {first.kind.value}")
        return "", self._violated(result.headline) if result.headline else self._line(result.verdict.value)

    def _violated(self, entry: PropertyResult) -> str:
        if entry.length is None:
            return self._line(f"{entry.name} is violated: what must be possible is not" if entry.reachable else f"{entry.name} is violated")
        steps = f"in {entry.length} step{'' if entry.length == 1 else 's'}" if entry.length else "in the initial state"
        return self._line(f"{entry.name} is violated {steps}")

    def _undecided(self, entries: Sequence[PropertyResult]) -> str:
        first = next((entry for entry in entries if entry.reason), None)
        more = f" and {len(entries) - 1} more" if len(entries) > 1 else ""
        name = first.name if first else entries[0].name if entries else "nothing"
        return self._line(f"{name}{more} undecided{f', {first.reason}' if first else ''}")

    def _line(self, text: str) -> str:
        return printable(f"{self.result.spec}: {text} ({self.result.coverage.word})", 1_000).replace("\n", " ")

    def text(self, width: int) -> str:
        """The headline, everything that the check has to say, and where it was kept."""
        kept = [f"saved: {name}" for name in self.files] + [self.note for _ in range(bool(self.note))]
        traces = [f"kvmodel trace show {shlex.quote(name)}" for name in self.files if name.endswith(TRACE)]
        parts = [self.headline, self.told(width).rstrip(), printable("\n".join([*kept, *traces]))]
        return "\n\n".join(part for part in parts if part) + "\n"

    @property
    def traces(self) -> tuple[Trace, ...]:
        """The runs that are worth keeping: of every violated property that was asked for, or the one that is told first."""
        from kvmodel.verdict import Verdict

        if self.check.expect == "violated" or self.kind == "undecided":
            return ()
        violated = [entry for entry in self.result.properties if entry.verdict is Verdict.VIOLATED]
        named = [entry.trace for entry in violated if entry.name in self.check.properties]
        return tuple(trace for trace in named or [self.result.trace] if trace is not None)

    def recorded(self, number: int) -> Iterator[tuple[str, str]]:
        """What a machine reads of the check (the properties of JUnit XML): names with the number of the check from the
        second one on, and text without control characters."""
        prefix = "kvmodel." if number == 1 else f"kvmodel.{number}."
        result = self.result
        yield f"{prefix}spec", printable(result.spec)
        yield f"{prefix}method", result.method
        yield f"{prefix}verdict", result.verdict.value
        yield f"{prefix}coverage", str(result.coverage)
        for entry in result.properties:
            yield printable(f"{prefix}property.{entry.name}", 200), f"{entry.verdict.value}; {entry.coverage.word}"
        if result.findings:
            yield f"{prefix}findings", str(len(result.findings))
        if self.files:
            yield f"{prefix}artefacts", printable(", ".join(self.files))


class Unexpected(AssertionError):
    """The answer of a check is not the expected one; `outcome` has all of it."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.headline)
        self.outcome = outcome


@dataclass(frozen=True)
class Place:
    """Where a test stands: its node id, the defaults (those that come first win), folders in which the files of specs
    are looked for, the folder of artefacts, and how many processes a proof may use (None: as many as it likes)."""

    nodeid: str
    defaults: tuple[Defaults, ...] = ()
    folders: tuple[Path, ...] = ()
    artefacts: Path = Path(".kvmodel")
    jobs: int | None = None


class Checks:
    """What a test gets as `kvmodel`: checks with the words of `kvmodel.check` and `kvmodel.prove`.

    They assert nothing. Their results are kept, so that the verdict and the coverage of each come into the test's report,
    and a failing test shows the traces.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self.outcomes: list[Outcome] = []

    @property
    def results(self) -> tuple[Result, ...]:
        """Everything that was checked for this test so far; first the checks of its markers."""
        return tuple(outcome.result for outcome in self.outcomes)

    def check(
        self,
        spec: SpecLike,
        properties: Sequence[str] = (),
        *,
        method: Method | None = None,
        size: Mapping[str, int] | None = None,
        flags: Mapping[str, bool] | None = None,
        depth: int | None = None,
        runs: int | None = None,
        seed: int | None = None,
        timeout: float | None = None,
        complete: bool | None = None,
        limit: int | None = None,
    ) -> Result:
        """`kvmodel.check`, with what is left out from the options of the test run. Raises as that does."""
        words: dict[str, object] = {
            "spec": spec, "property": properties, "method": method, "size": size, "flags": flags, "depth": depth, "runs": runs,
            "seed": seed, "timeout": timeout, "complete": complete, "limit": limit,
        }  # fmt: skip
        return self.make(replace(parse_check(words), expect="")).result

    def prove(
        self,
        spec: SpecLike,
        properties: Sequence[str] = (),
        *,
        flags: Mapping[str, bool] | None = None,
        all_flags: bool | None = None,
        timeout: float | None = None,
        seed: int | None = None,
        limit: int | None = None,
    ) -> Result:
        """`kvmodel.prove`, with what is left out from the options of the test run. Raises as that does."""
        words: dict[str, object] = {
            "spec": spec, "property": properties, "prove": True, "flags": flags, "all_flags": all_flags, "timeout": timeout,
            "seed": seed, "limit": limit,
        }  # fmt: skip
        return self.make(replace(parse_check(words), expect="")).result

    def expect(self, result: Result, verdict: str = "holds") -> None:
        """Fail, with the trace, unless the result of a check of this test is the expected one; undecided is an error."""
        found = next((index for index, outcome in enumerate(self.outcomes) if outcome.result is result), None)
        if found is None:
            raise UsageError("this is no result of a check that the fixture 'kvmodel' made for this test")
        words = {"spec": "-", "expect": verdict}
        judged = replace(self.outcomes[found], check=replace(self.outcomes[found].check, expect=parse_check(words).expect))
        if judged.kind:
            self.outcomes[found] = judged
            raise Unexpected(judged)

    def make(self, check: Check) -> Outcome:
        """Make a check and keep it. Raises UsageError and SpecError, and KeyboardInterrupt at Ctrl-C, which a check by
        itself takes for the end of its time."""
        outcome = self._proved(check) if check.prove else self._checked(check)
        return self._keep(outcome)

    def _keep(self, outcome: Outcome) -> Outcome:
        if any(entry.reason.startswith("interrupted") for entry in outcome.result.properties):
            raise KeyboardInterrupt
        self.outcomes.append(outcome)
        return outcome

    def _checked(self, check: Check) -> Outcome:
        from kvmodel import api
        from kvmodel.views.text import command_line, result_text

        system = self._load(check)
        instance, options = self._asked(system, check)
        result = api.check_instance(instance, check.properties, options)
        command = command_line("check", result.spec, check.properties, options=options.on_command_line(), coverage=result.coverage)
        return Outcome(check, result, command, lambda width: result_text(result, instance, command, width=width))

    def _proved(self, check: Check) -> Outcome:
        from kvmodel import api
        from kvmodel.verdict import Coverage
        from kvmodel.views.proof import proof_text
        from kvmodel.views.text import command_line

        system = self._load(check)
        seed, timeout = self._first("seed", check.seed), self._first("timeout", check.timeout)
        proving = api.prove_system(
            system, check.properties, all_flags=check.all_flags, timeout=timeout, seed=int(seed or 0), limit=check.limit,
            jobs=self._place.jobs,
        )  # fmt: skip
        told: dict[str, object] = {"all-flags": True} if check.all_flags else {}
        told |= {name: value for name, value in (("seed", seed), ("limit", check.limit), ("timeout", timeout and f"{timeout:g}")) if value}
        flags = None if check.all_flags else tuple(system.flag_values.items())
        command = command_line("prove", proving.result.spec, check.properties, options=told, coverage=Coverage(flags=flags))
        return Outcome(check, proving.result, command, lambda width: proof_text(proving, command, width=width))

    def run_suite(self, suite: type[StatefulSuite]) -> Result:
        """Let Hypothesis drive the machine of a suite's spec. What it finds is shrunk (`readings.shrink`) and
        replayed. Raises as `check` does."""
        from kvmodel.language.instance import Instance
        from kvmodel.views.text import result_text

        if not suite.spec:
            raise UsageError(f"{suite.__qualname__} does not say which spec, as in spec = 'handoff'")
        words = {"spec": suite.spec, "property": suite.properties, "size": suite.size, "flags": suite.flags}
        check = replace(parse_check(words), expect="")
        system = self._load(check)
        instance = Instance.make(system, self._sizes(system, check))
        settings = _settings(suite.settings, self._depth("hypothesis", check), self._first("examples", None))
        seed = self._first("seed", None)
        result = _search(instance, check.properties, settings, seed)
        command = shlex.join(["pytest", self._place.nodeid, *([] if seed is None else ["--kvmodel-seed", str(seed)])])
        return self._keep(Outcome(check, result, command, lambda width: result_text(result, instance, command, width=width))).result

    def _load(self, check: Check) -> TransitionSystem:
        from kvmodel import api

        return api.load(_located(check.spec, self._place.folders), dict(check.flags))

    def _first(self, name: str, own: float | None) -> float | None:
        """The value of a default: the check's own, or that of the first place that has one."""
        values = (own, *(getattr(defaults, name) for defaults in self._place.defaults))
        return next((value for value in values if value is not None), None)

    def _depth(self, method: str, check: Check) -> int | None:
        values = (check.depth, *(defaults.depth_of(method) for defaults in self._place.defaults))
        return next((value for value in values if value is not None), None)

    def _sizes(self, system: TransitionSystem, check: Check) -> dict[str, int]:
        """The check's own sizes, then those of each place for sorts that the spec has and that have no size yet."""
        sorts = {sort.name for sort in system.sorts}
        sizes = dict(check.size)
        for defaults in self._place.defaults:
            free = sorts - {name.partition(".")[0] for name in sizes}
            sizes |= {name: size for name, size in defaults.size if name.partition(".")[0] in free}
        return sizes

    def _asked(self, system: TransitionSystem, check: Check) -> tuple[Instance, CheckOptions]:
        from kvmodel import api
        from kvmodel.language.instance import Instance

        methods = (check.method, *(defaults.method for defaults in self._place.defaults), "explore")
        method = cast("Method", next(name for name in methods if name is not None))
        depth, runs = check.depth, check.runs
        if depth is None and method in api.DEFAULT_DEPTH:
            depth = self._depth(method, check)
        if runs is None and method in api.DEFAULT_RUNS:
            runs = next((defaults.runs[method] for defaults in self._place.defaults if method in defaults.runs), None)
        options = api.CheckOptions(
            method, depth=depth, runs=runs, seed=int(self._first("seed", check.seed) or 0),
            timeout=self._first("timeout", check.timeout), complete=check.complete, limit=check.limit,
        )  # fmt: skip
        return Instance.make(system, self._sizes(system, check)), options

    def save(self, numbers: Iterable[int]) -> None:
        """Keep the outcomes of these numbers (from 0) in files, and note in each where: the text, and for a trace its ITF
        and the page that explains it.

        A folder that cannot be written is noted, never raised: it must not hide the verdict.
        """
        for number in numbers:
            outcome = self.outcomes[number]
            stem = artefact_stem(self._place.nodeid) + ("" if number == 0 else f".{number + 1}")
            files: list[str] = []
            note = ""
            try:
                _make_folder(self._place.artefacts)
                for path in _written(outcome, self._place.artefacts, stem):
                    files.append(_below_current(path))
            except (OSError, KvmodelError) as problem:
                note = f"not saved: {problem}"
            self.outcomes[number] = replace(outcome, files=tuple(files), note=note)

    def forget(self) -> None:
        """Remove what an earlier run kept of this test, so that nobody takes it for the present one."""
        for path in self._place.artefacts.glob(f"{artefact_stem(self._place.nodeid)}.*"):
            try:
                path.unlink()
            except OSError:
                return


def _located(spec: SpecLike, folders: Sequence[Path]) -> SpecLike:
    """A spec of a file, with the path as from the current folder; other specs as they are."""
    if not isinstance(spec, str) or ".py:" not in spec:
        return spec
    file, _, rest = spec.rpartition(".py:")
    found = next((path for folder in folders if (path := folder / f"{file}.py").is_file()), None)
    return spec if found is None else f"{_below_current(found)}:{rest}"


def _below_current(path: Path) -> str:
    """A path as from the current folder where it is below that, otherwise as it is."""
    resolved, current = path.resolve(), Path.cwd().resolve()
    return str(resolved.relative_to(current) if resolved.is_relative_to(current) else path)


def artefact_stem(nodeid: str) -> str:
    """The name of a test's artefacts: what is readable and harmless of its node id, and a hash that tells tests apart.

    >>> artefact_stem("tests/test_door.py::test_leak[../etc]")
    'tests-test-door-py-test-leak-etc-5d0f41d0'
    """
    readable = re.sub("[^A-Za-z0-9]+", "-", nodeid)[-LONGEST_STEM:].strip("-")
    return f"{readable}-{sha256(nodeid.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}".lstrip("-")


def _make_folder(folder: Path) -> None:
    """Make the folder of artefacts, hidden from git like pytest's own cache; one that is there is left as it is."""
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".gitignore").write_text("# made by kvmodel\n*\n", encoding="utf-8")


def _written(outcome: Outcome, folder: Path, stem: str) -> Iterator[Path]:
    from kvmodel.api import save_trace
    from kvmodel.views.report import report_html

    path = folder / f"{stem}.txt"
    path.write_text(outcome.text(PAGE_WIDTH), encoding="utf-8")
    yield path
    traces = outcome.traces
    for trace in traces:
        name = stem if len(traces) == 1 else f"{stem}.{artefact_stem(trace.property)}"
        path = folder / f"{name}{TRACE}"
        save_trace(trace, path)
        yield path
        path = folder / f"{name}.html"
        path.write_text(report_html(trace, outcome.result, command=outcome.command), encoding="utf-8")
        yield path


def _settings(given: hypothesis.settings | None, depth: float | None, examples: float | None) -> hypothesis.settings:
    """The settings of a search: those of the suite, otherwise Hypothesis' current profile with the options of the run.

    Some are of no use to a spec: a run of it has no deadline and no health check fits it; `readings.shrink` gets to runs as
    short as Hypothesis' shrinking does in a tenth of the time (measured: handoff:buggy, 13 steps, 5 s against 30 s); and
    what Phase.explain would find out, in many more runs, the trace says better.
    """
    import hypothesis

    base = given or hypothesis.settings()
    phases = [phase for phase in base.phases if phase not in (hypothesis.Phase.shrink, hypothesis.Phase.explain)]
    settings = hypothesis.settings(base, deadline=None, suppress_health_check=list(hypothesis.HealthCheck), phases=phases)
    if given is None and depth is not None:
        settings = hypothesis.settings(settings, stateful_step_count=int(depth) + 1)  # the initial state is a step to Hypothesis
    if given is None and examples is not None:
        settings = hypothesis.settings(settings, max_examples=int(examples))
    return settings


def _search(instance: Instance, properties: Sequence[str], settings: hypothesis.settings, seed: float | None) -> Result:
    import time

    import hypothesis
    from hypothesis.errors import Flaky
    from hypothesis.stateful import run_state_machine_as_test

    from kvmodel.language.system import PropertyKind
    from kvmodel.readings.machine import PropertyViolated, machine_for
    from kvmodel.readings.replay import make_trace
    from kvmodel.readings.shrink import shrink
    from kvmodel.verdict import Coverage, PropertyResult, Result, Verdict, overall

    started = time.monotonic()
    system = instance.system
    machine = machine_for(system, dict(instance.size_options()), properties)
    runs = 0

    def counted() -> object:
        nonlocal runs
        runs += 1
        return machine()

    if seed is not None:
        hypothesis.seed(int(seed))(counted)
    found: dict[str, Trace] = {}
    try:
        run_state_machine_as_test(cast("type[hypothesis.stateful.RuleBasedStateMachine]", counted), settings=settings)
    except (PropertyViolated, ExceptionGroup) as problem:
        violations = list(_leaves(problem))
        if isinstance(problem, Flaky) or not all(isinstance(leaf, PropertyViolated) for leaf in violations):
            raise
        for leaf in cast("list[PropertyViolated]", violations):
            run = shrink(machine.sampler, leaf.run, leaf.name)
            found[leaf.name] = make_trace(instance, run.start, run.steps, leaf.name)
    whole = min(runs, settings.max_examples)  # Hypothesis gives some runs up on the way, and makes as many more
    coverage = Coverage(instance.size_options(), settings.stateful_step_count - 1, whole, tuple(system.flag_values.items()))
    asked = tuple(system.property(name) for name in properties) or system.properties
    results = []
    for entry in asked:
        if entry.kind is PropertyKind.REACHABLE:  # no run says that something is impossible
            continue
        verdict, reason = (Verdict.UNDECIDED, "the search ended with another violation") if found else (Verdict.HOLDS, "")
        if entry.name in found:
            verdict, reason = Verdict.VIOLATED, ""
        results.append(PropertyResult(entry.name, verdict, coverage, found.get(entry.name), reason))
    return Result(
        system.name, "hypothesis", overall(tuple(results)), coverage, tuple(results), (), (("runs", runs),),
        time.monotonic() - started, tuple(properties),
    )  # fmt: skip


def _leaves(problem: BaseException) -> Iterator[BaseException]:
    if isinstance(problem, BaseExceptionGroup):
        for part in problem.exceptions:
            yield from _leaves(part)
    else:
        yield problem


class StatefulSuite:
    """A test class in which Hypothesis drives a spec and looks for violations:

        class TestHandoff(StatefulSuite):
            spec = "handoff"

    `spec`, `properties`, `size` and `flags` are those of `kvmodel.check`. `settings` are Hypothesis'; without them the
    current profile of Hypothesis holds, with the depth, profile and seed of the pytest run. A failing run is shown as a
    trace and saved. pytest collects every subclass, whatever its name.

    Raises UsageError for a subclass with an attribute that looks like one of these words but is none.
    """

    __test__ = False
    spec: ClassVar[SpecLike] = ""
    properties: ClassVar[Sequence[str]] = ()
    size: ClassVar[Mapping[str, int]] = {}
    flags: ClassVar[Mapping[str, bool]] = {}
    settings: ClassVar[hypothesis.settings | None] = None

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        cls.__test__ = True
        known = ("spec", "properties", "size", "flags", "settings")
        for name, value in vars(cls).items():
            close = [] if name.startswith("_") or name in known or callable(value) else get_close_matches(name, known, 1, CLOSE)
            if close:
                raise UsageError(f"{cls.__qualname__} has an attribute '{name}', which means nothing; did you mean '{close[0]}'?")

    def test_runs(self, kvmodel: Checks) -> None:
        """No run that Hypothesis finds violates a property."""
        kvmodel.expect(kvmodel.run_suite(type(self)))
