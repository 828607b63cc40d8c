"""The Python API: load a spec, check it, look at what was found.

>>> import kvmodel
>>> result = kvmodel.check("pages", ["exclusive_owner"], size={"Request": 2, "Page": 1})
>>> result.verdict, result.coverage.word
(<Verdict.HOLDS: 'holds'>, 'this size')
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Literal, TypeAlias

from kvmodel.errors import UsageError, nearest
from kvmodel.language.instance import Instance
from kvmodel.language.load import load_class, load_spec
from kvmodel.language.surface import Spec
from kvmodel.language.system import PropertyKind, TransitionSystem
from kvmodel.verdict import Result

if TYPE_CHECKING:
    import os

    from kvmodel.analyses.proving import Proving
    from kvmodel.traces.trace import Trace

__all__ = [
    "METHODS",
    "CheckOptions",
    "Method",
    "SpecLike",
    "check",
    "check_instance",
    "explore",
    "load",
    "prove",
    "prove_system",
    "read_trace",
    "replay",
    "save_trace",
]

Method: TypeAlias = Literal["explore", "bmc", "walk", "hypothesis"]
SpecLike: TypeAlias = str | type[Spec] | TransitionSystem
Progress: TypeAlias = Callable[[str], None]

METHODS: tuple[Method, ...] = ("explore", "bmc", "walk", "hypothesis")
DEFAULT_DEPTH = {"bmc": 20, "walk": 60, "hypothesis": 40}
DEFAULT_RUNS = {"walk": 1_000, "hypothesis": 400}


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """How to check: see `check` for each. Raises UsageError for an option that the method does not have."""

    method: Method = "explore"
    depth: int | None = None
    runs: int | None = None
    seed: int = 0
    timeout: float | None = None
    complete: bool = False
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise UsageError(f"there is no method '{self.method}'{nearest(self.method, list(METHODS))} (known: {', '.join(METHODS)})")
        if self.depth is not None and self.method not in DEFAULT_DEPTH:
            raise UsageError(f"{self.method} looks at every depth; a depth is for {', '.join(DEFAULT_DEPTH)}")
        if self.runs is not None and self.method not in DEFAULT_RUNS:
            raise UsageError(f"{self.method} does not sample; a number of runs is for {', '.join(DEFAULT_RUNS)}")
        if self.complete and self.method != "bmc":
            raise UsageError(f"only bmc can be asked to be complete, not {self.method}")
        if self.limit is not None and self.method != "explore":
            raise UsageError(f"only explore keeps states, so that a limit has a meaning, not {self.method}")
        for name, value in (("depth", self.depth), ("runs", self.runs), ("timeout", self.timeout), ("limit", self.limit)):
            if value is not None and not 0 < value < inf:
                raise UsageError(f"{name} is {value}; it must be more than 0")

    @property
    def effective_depth(self) -> int:
        return DEFAULT_DEPTH.get(self.method, 0) if self.depth is None else self.depth

    @property
    def effective_runs(self) -> int:
        return DEFAULT_RUNS.get(self.method, 0) if self.runs is None else self.runs

    def on_command_line(self) -> dict[str, object]:
        """The options that reproduce a check, as the command line has them; the seed only where it matters."""
        found: dict[str, object] = {"method": self.method}
        if self.method in DEFAULT_DEPTH:
            found["depth"] = self.effective_depth
        if self.method in DEFAULT_RUNS:
            found["runs"] = self.effective_runs
        if self.method != "explore":
            found["seed"] = self.seed
        if self.complete:
            found["complete"] = True
        if self.limit is not None:
            found["limit"] = self.limit
        if self.timeout is not None:
            found["timeout"] = f"{self.timeout:g}"
        return found


def load(spec: SpecLike, flags: Mapping[str, bool] | None = None) -> TransitionSystem:
    """The transition system of a spec: of its name (``handoff:buggy``, ``my.py:Mine``), of an imported spec class, or a
    transition system itself. `flags` sets some of its flags.

    Raises UsageError for an unknown name or flag and SpecError, with every mistake, for a spec that has some, or whose
    assumptions or initial conditions contradict each other. Nothing in a spec's file is executed.

    >>> system = load("pages", {"zero_on_free": True})
    >>> system.flag_values["zero_on_free"]
    True
    """
    from kvmodel.readings.initial import require_consistent

    system = spec if isinstance(spec, TransitionSystem) else load_spec(spec) if isinstance(spec, str) else load_class(spec)
    if flags:
        system = system.with_flags(flags)
    require_consistent(system)
    return system


def check(
    spec: SpecLike,
    properties: Sequence[str] = (),
    *,
    method: Method = "explore",
    size: Mapping[str, int] | None = None,
    flags: Mapping[str, bool] | None = None,
    depth: int | None = None,
    runs: int | None = None,
    seed: int = 0,
    timeout: float | None = None,
    complete: bool = False,
    limit: int | None = None,
    progress: Progress | None = None,
) -> Result:
    """Check the properties of a spec (all, or the named ones) on a finite instance.

    `method`: ``explore`` looks at every reachable state; ``bmc`` asks Z3 for violations of up to `depth` steps (with
    `complete`, also whether that is all there is); ``walk`` and ``hypothesis`` sample `runs` runs of up to `depth` steps,
    the same ones for the same `seed`. `size` gives the number of elements of a sort (``{"Request": 3}``, or of one part:
    ``{"Page.DECODE": 2}``); what it leaves out has the spec's default. After `timeout` seconds, or at Ctrl-C, what is not
    yet decided is ``undecided``. `progress` is called now and then with a line of text.

    Raises UsageError for an unknown spec, property, flag, sort or method, for an option that the method does not have,
    and (InstanceError) for sizes at which the method cannot end; SpecError for a spec with mistakes.

    >>> check("pages", ["exclusive_owner"], size={"Page": 1})["exclusive_owner"].verdict.value
    'holds'
    """
    system = load(spec, flags)
    options = CheckOptions(method, depth=depth, runs=runs, seed=seed, timeout=timeout, complete=complete, limit=limit)
    asked = (properties,) if isinstance(properties, str) else properties
    return check_instance(Instance.make(system, size), asked, options, progress)


def check_instance(instance: Instance, properties: Sequence[str], options: CheckOptions, progress: Progress | None = None) -> Result:
    """Check an instance; see `check`."""
    from kvmodel.analyses.estimate import refuse_endless, states_that_fit

    for name in properties:
        instance.system.property(name)
    if properties:  # runs end where a counter leaves its range, so whoever asks about runs is told
        ranges = (p.name for p in instance.system.properties if p.kind is PropertyKind.RANGE)
        properties = (*properties, *(name for name in ranges if name not in properties))
    refuse_endless(instance, options.method)
    depth, runs, seed, timeout = options.effective_depth, options.effective_runs, options.seed, options.timeout
    match options.method:
        case "explore":
            from kvmodel.readings import explore as exploration

            limit = states_that_fit(instance) if options.limit is None else options.limit
            return exploration.explore(instance, properties, timeout=timeout, limit=limit, progress=progress)
        case "bmc":
            from kvmodel.readings.bmc import bmc

            return bmc(instance, properties, depth=depth, timeout=timeout, seed=seed, complete=options.complete, progress=progress)
        case "walk":
            from kvmodel.readings.walk import walk

            return walk(instance, properties, runs=runs, steps=depth, seed=seed, timeout=timeout, progress=progress)
        case "hypothesis":
            from kvmodel.readings.machine import check_with_hypothesis

            return check_with_hypothesis(instance, properties, examples=runs, steps=depth, seed=seed, timeout=timeout, progress=progress)


def explore(
    spec: SpecLike,
    *,
    size: Mapping[str, int] | None = None,
    flags: Mapping[str, bool] | None = None,
    timeout: float | None = None,
    limit: int | None = None,
    progress: Progress | None = None,
) -> Result:
    """Every reachable state of a finite instance: `Result.statistics` counts them, `Result.fired` the steps of each
    action, and `Result.findings` says what never happened. Raises as `check` does.

    >>> dict(explore("pages", size={"Page": 1}).statistics)["depth"] > 0
    True
    """
    return check(spec, method="explore", size=size, flags=flags, timeout=timeout, limit=limit, progress=progress)


def prove(
    spec: SpecLike,
    properties: Sequence[str] = (),
    *,
    flags: Mapping[str, bool] | None = None,
    all_flags: bool = False,
    timeout: float | None = None,
    seed: int = 0,
    limit: int | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Result:
    """Prove the properties of a spec (all, or the named ones) for any number of elements of every sort.

    A property that is proved holds for ``any size``. One that is not is looked for by exploring the default size: with a run it
    is violated, without one undecided, and its `reason` names the condition that fails. With `all_flags` a proof is for every
    assignment of the flags. `limit` bounds Z3's work on each condition, `jobs` the number of processes; `timeout` and
    `progress` are as for `check`.

    Raises UsageError for an unknown spec, property or flag and for a `@reachable` property; SpecError for a spec with mistakes.

    >>> prove("pages", ["exclusive_owner"], jobs=1).coverage.word
    'any size'
    """
    asked = (properties,) if isinstance(properties, str) else properties
    return prove_system(
        load(spec, flags), asked, all_flags=all_flags, timeout=timeout, seed=seed, limit=limit, jobs=jobs, progress=progress
    ).result


def prove_system(
    system: TransitionSystem,
    properties: Sequence[str] = (),
    *,
    all_flags: bool = False,
    timeout: float | None = None,
    seed: int = 0,
    limit: int | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Proving:
    """`prove` with its evidence: the conditions, the claims of the inductive set, and counterexamples to induction."""
    from kvmodel.analyses.proving import prove_properties
    from kvmodel.readings.solver import LIMIT

    for name, value in (("timeout", timeout), ("limit", limit), ("jobs", jobs)):
        if value is not None and not 0 < value < inf:
            raise UsageError(f"{name} is {value}; it must be more than 0")
    return prove_properties(
        system, properties, all_flags=all_flags, timeout=timeout, seed=seed, limit=limit or LIMIT, jobs=jobs, progress=progress
    )


def replay(trace: Trace) -> None:
    """Re-execute a trace step by step. Raises ReplayError, with the number of the first bad step, when it is not a run
    of its spec, or does not show the property that it says it shows."""
    from kvmodel.readings import replay as replaying

    replaying.replay(trace)


def read_trace(path: str | os.PathLike[str], spec: SpecLike | None = None) -> Trace:
    """Read a trace from an ITF file and replay it. Its spec is the one that the file names, or `spec`.

    A file from a stranger may name any spec: without `spec`, only shipped specs and files below the current folder are
    loaded. Raises TraceFileError for a file that is no trace of the spec and ReplayError for a trace that is no run of it.
    """
    from kvmodel.analyses.estimate import refuse_endless
    from kvmodel.readings.observed import observed_system
    from kvmodel.traces.itf import read_itf

    trace = read_itf(path, _named_in_file if spec is None else lambda name: load(spec), observed_system)
    refuse_endless(trace.instance, "replay")
    replay(trace)
    return trace


def _named_in_file(name: str) -> TransitionSystem:
    from pathlib import Path

    file, found, _ = name.partition(".py:")
    if found and not Path(file).resolve().is_relative_to(Path.cwd()):
        raise UsageError("the file is not below the current folder; say which spec to use (--spec on the command line)")
    return load_spec(name)


def save_trace(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace to an ITF file, whole or not at all. Raises TraceFileError when that is not possible."""
    from kvmodel.traces.itf import write_itf

    write_itf(trace, path)
