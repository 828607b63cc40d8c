"""Checking certificates again.

A manifest cannot vouch for itself. What is taken from it is *which* claims are said to be inductive, and which of them each
condition uses. Every condition of these claims is made again from the spec and compared with its file, and a second
solver answers it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kvmodel.analyses.certificates import (
    CertificateError,
    ConditionEntry,
    Manifest,
    bounded,
    claim_entry,
    file_name,
    read_manifests,
    system_hash,
)
from kvmodel.analyses.smtlib import Printer, SecondSolver, z3_name
from kvmodel.errors import SpecError, UsageError
from kvmodel.language.load import load_spec
from kvmodel.language.system import TransitionSystem
from kvmodel.readings.conditions import Induction, VerificationCondition
from kvmodel.readings.first_order import NotFirstOrder

__all__ = ["Problem", "Recheck", "Rechecked", "Regenerated", "recheck", "regenerate", "system_of"]

BATCH = 8  # conditions that a process is given at a time

@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """Something that is wrong with a certificate: its manifest, the condition (or empty), and a sentence."""

    manifest: str
    condition: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.manifest, self.condition, self.message) if part)


@dataclass(frozen=True)
class Regenerated:
    """The conditions of a manifest, made again from its spec: text by name of the condition; and what is wrong already."""

    texts: Mapping[str, str]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Rechecked:
    """One certificate that was looked at: its file, its spec, the properties that it says it shows, and how many conditions of
    it were made again."""

    manifest: str
    spec: str
    properties: tuple[str, ...]
    all_flags: bool
    conditions: int


@dataclass(frozen=True)
class Recheck:
    """The outcome of checking certificates again. `asked` is how many different conditions `solver` was asked about; `slowest`
    the condition that took it longest, and the seconds."""

    certificates: tuple[Rechecked, ...]
    asked: int
    problems: tuple[Problem, ...]
    solver: str
    seconds: float = field(default=0.0, compare=False)
    slowest: tuple[str, float] = field(default=("", 0.0), compare=False)

    @property
    def conditions(self) -> int:
        """How many conditions the certificates have together."""
        return sum(entry.conditions for entry in self.certificates)


class Regenerator:
    """Makes conditions again; those that specs share are printed once."""

    def __init__(self) -> None:
        self._texts: dict[object, str] = {}

    def text(self, printer: Printer, condition: VerificationCondition) -> str:
        """The text of a condition of the system that `printer` is for."""
        system = printer.formulas.system
        key = (condition, system.sorts, system.enumerations, system.variables)
        if key not in self._texts:
            self._texts[key] = printer.text(condition)
        return self._texts[key]

    def manifest(self, name: str, manifest: Manifest, root: Path) -> Regenerated:
        """The conditions of `manifest`, read from the file called `name`, made again and compared with the files in `root`."""
        system = system_of(name, manifest)
        if isinstance(system, Problem):
            return Regenerated({}, (system,))
        induction = Induction(system, all_flags=manifest.flags is None)
        problems = [Problem(name, *found) for found in _claims(induction, manifest)]
        inductive = {entry.name for entry in manifest.claims if entry.name in induction.claims}
        entries = {(entry.step, entry.claim): entry for entry in manifest.conditions}
        expected = {(step, claim): None for claim in induction.claims if claim in inductive for step in induction.steps(claim)}
        if len(entries) < len(manifest.conditions):
            problems.append(Problem(name, "", "a condition is listed twice"))
        problems += [Problem(name, f"{step}/{claim}", "no such condition") for step, claim in entries if (step, claim) not in expected]
        texts: dict[str, str] = {}
        printer = Printer(induction)
        for key in expected:
            entry, shown = entries.get(key), "/".join(key)
            if entry is None:
                problems.append(Problem(name, shown, "the manifest leaves this condition out"))
                continue
            condition = induction.condition(*key)
            available = {hypothesis for hypothesis, _ in condition.hypotheses} & inductive
            outside = sorted(set(entry.uses) - available)
            if outside:
                problems.append(Problem(name, shown, f"uses {', '.join(outside)}, which this certificate does not show"))
                continue
            try:
                texts[shown] = self.text(printer, condition.under(entry.uses))
            except NotFirstOrder as problem:
                problems.append(Problem(name, shown, str(problem)))
                continue
            wrong = _compared(root, entry, texts[shown], manifest.solver)
            if wrong:
                problems.append(Problem(name, shown, wrong))
        return Regenerated(texts, tuple(problems))


def regenerate(directory: str | os.PathLike[str], manifests: Mapping[str, Manifest]) -> Iterator[tuple[str, Regenerated]]:
    """The conditions of each manifest, made again from its spec and compared with the files; no solver is asked."""
    regenerator = Regenerator()
    for name, manifest in manifests.items():
        yield name, regenerator.manifest(name, manifest, Path(directory))


def system_of(name: str, manifest: Manifest) -> TransitionSystem | Problem:
    """The system that a manifest is about. Raises CertificateError when its spec cannot be read."""
    try:
        system = load_spec(manifest.spec)
    except (UsageError, SpecError) as problem:
        raise CertificateError(f"{name}: {problem}") from None
    if manifest.flags is not None:
        if set(manifest.flags) != set(system.flag_values):
            return Problem(name, "", f"its flags are not those of {system.name}")
        changed = {flag: value for flag, value in manifest.flags.items() if value != system.flag_values[flag]}
        try:
            system = system.with_flags(changed)
        except UsageError as problem:
            return Problem(name, "", str(problem))
    if system_hash(system) != manifest.system:
        return Problem(name, "", f"made for another spec than {system.name} is now, or for other flags (the hashes differ)")
    return system


def _claims(induction: Induction, manifest: Manifest) -> Iterator[tuple[str, str]]:
    """What is wrong with the claims and properties of `manifest`."""
    names = [entry.name for entry in manifest.claims]
    if len(set(names)) < len(names):
        yield "", "a claim is listed twice"
    for entry in manifest.claims:
        claim = induction.claims.get(entry.name)
        if claim is None:
            yield "", f"{induction.system.name} has no claim '{entry.name}'"
        elif claim_entry(claim) != entry:
            yield "", f"what it says of the claim {entry.name} is not what the spec says"
    if not manifest.properties:
        yield "", "shows no property"
    for name in manifest.properties:
        if name not in names:
            yield "", f"the property {name} is not among its claims, so nothing shows it"
        elif name in induction.claims and induction.claims[name].lemma:
            yield "", f"{name} is a lemma, not a property"


def _compared(root: Path, entry: ConditionEntry, text: str, solver: str) -> str:
    """What is wrong with the file of a condition, against its regenerated text; empty when nothing is."""
    expected = text.encode()
    found = bounded(root / entry.file, len(expected))
    if found is None:
        return f"{entry.file} is missing"
    if found == expected and entry.file == file_name(text):
        return ""
    printed = "" if solver == z3_name() else f"; it was printed by {solver}, and this is {z3_name()}"
    return f"{entry.file} is not the condition that the spec has{printed}"


def recheck(
    directory: str | os.PathLike[str],
    solver: SecondSolver,
    *,
    jobs: int = 1,
    progress: Callable[[str], None] | None = None,
) -> Recheck:
    """Check every certificate in `directory` again: regenerate, compare, and ask `solver`, in `jobs` processes.

    Raises CertificateError for what is not a directory of certificates, and for a manifest whose spec cannot be read.
    """
    started = time.monotonic()
    manifests = read_manifests(directory)
    problems: list[Problem] = []
    seen: list[Rechecked] = []
    places: dict[str, list[tuple[str, str]]] = {}
    slowest = ("", 0.0)
    with _workers(jobs) as submit:
        making = [submit(_made_again, name, manifest, Path(directory)) for name, manifest in manifests.items()]
        for (name, manifest), future in zip(manifests.items(), making, strict=True):
            made = future()
            problems += made.problems
            seen.append(Rechecked(name, manifest.spec, manifest.properties, manifest.flags is None, len(made.texts)))
            for condition, text in made.texts.items():
                places.setdefault(text, []).append((name, condition))
            if progress is not None:
                progress(f"{name}: conditions made again from the spec ({len(seen)} of {len(manifests)} certificates)")
        texts = list(places)
        batches = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
        asking = [submit(_answers, solver, batch) for batch in batches]
        for number, (batch, answering) in enumerate(zip(batches, asking, strict=True)):
            if progress is not None:
                progress(f"{solver.name}: {number * BATCH:,} of {len(texts):,} conditions")
            for text, (answer, seconds) in zip(batch, answering(), strict=True):
                slowest = max(slowest, (places[text][0][1], seconds), key=lambda entry: entry[1])
                if answer != "unsat":
                    problems += [Problem(name, condition, f"{solver.name} answers {answer}, not unsat") for name, condition in places[text]]
    return Recheck(tuple(seen), len(places), tuple(problems), solver.name, time.monotonic() - started, slowest)


_regenerator = Regenerator()  # of a process, so that what specs share is printed once in it


def _made_again(name: str, manifest: Manifest, root: Path) -> Regenerated:
    return _regenerator.manifest(name, manifest, root)


def _answers(solver: SecondSolver, texts: Sequence[str]) -> list[tuple[str, float]]:
    found = []
    for text in texts:
        started = time.monotonic()
        answer = solver.ask(text)
        found.append((answer, time.monotonic() - started))
    return found


@contextmanager
def _workers(jobs: int) -> Iterator[Callable[..., Callable[[], Any]]]:
    """A function that has a call made, in another process where `jobs` is more than one, and gives back how to wait for it."""
    if jobs <= 1:
        yield partial
        return
    pool = ProcessPoolExecutor(jobs, initializer=_leave_signals)
    try:
        yield lambda *call: pool.submit(*call).result
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _leave_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that people see
