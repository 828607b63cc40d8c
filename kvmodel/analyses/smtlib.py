"""Verification conditions as SMT-LIB 2 files, and the answers of solvers other than Z3 to them.

A file is the negation of one condition, so `unsat` means that the condition holds. It depends on the condition alone:
the same condition of another spec is the same file, byte for byte.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import z3

from kvmodel.errors import UsageError, printable
from kvmodel.readings.conditions import INITIALLY, OBVIOUSLY, Induction, VerificationCondition
from kvmodel.readings.first_order import Formulas

__all__ = ["Cvc5", "Printer", "Program", "SecondSolver", "z3_name"]

LONGEST_ANSWER = 200
CVC5_WAYS: tuple[tuple[str, ...], ...] = ((), ("mbqi",), ("enum-inst",), ("finite-model-find",))
"""Options of cvc5 for quantifiers, one way after the other until one gives an answer."""

MISSING = """cvc5 is not installed here, and nothing is re-checked without it
    pip install 'kvmodel[recheck]', or name another solver with --solver"""


class Printer:
    """The SMT-LIB texts of conditions of one system, printed by Z3."""

    def __init__(self, induction: Induction) -> None:
        self.formulas = Formulas(induction.system)

    def text(self, condition: VerificationCondition) -> str:
        """The file of `condition`. Raises NotFirstOrder for a count over a sort."""
        base, hypotheses = self.formulas.negated(condition)
        # This solver does nothing to what it is given: what is printed is what was asserted.
        holder = z3.Tactic("skip", ctx=self.formulas.context).solver()
        holder.add(*base, *hypotheses.values())
        return f"{_heading(condition)}(set-logic ALL)\n{holder.sexpr()}(check-sat)\n"


def _heading(condition: VerificationCondition) -> str:
    used = sorted({name for name, _ in condition.hypotheses})
    sentence = {INITIALLY: f"initial states satisfy {condition.claim}", OBVIOUSLY: f"{condition.claim} is implied"}
    lines = [
        f"; {condition.name}: {sentence.get(condition.step, f'{condition.step} keeps {condition.claim}')}",
        "; unsat means that this is true" + (", given" if used else ""),
        *(f";   {name}" for name in used),
    ]
    return "".join(f"{line}\n" for line in lines)


def z3_name() -> str:
    """``Z3 4.13.4``."""
    return f"Z3 {z3.get_version_string()}"


class SecondSolver(Protocol):
    """Somebody else who answers SMT-LIB 2 texts."""

    @property
    def name(self) -> str:
        """What it is called, with its version where that is known."""

    def ask(self, text: str) -> str:
        """``unsat``, ``sat``, ``unknown``, or what it complained about."""


@dataclass(frozen=True)
class Cvc5:
    """The Python package cvc5, with `timeout` seconds for a text. Raises UsageError when it is not installed."""

    timeout: float
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", f"cvc5 {_cvc5().__version__}")

    def ask(self, text: str) -> str:
        """The answer to `text`."""
        answer = ""
        for options in CVC5_WAYS:
            try:
                answer = self._answer(text, options)
            except RuntimeError as problem:
                return _short(str(problem))
            if not answer.startswith("unknown"):
                break
        return answer

    def _answer(self, text: str, options: tuple[str, ...]) -> str:
        package = _cvc5()
        solver = package.Solver(package.TermManager())
        solver.setOption("tlimit-per", str(max(1, int(self.timeout * 1000))))
        for option in options:
            solver.setOption(option, "true")
        solver.setOption("fresh-binders", "true")  # a quantified variable may have the name of a constant
        parser = package.InputParser(solver)
        parser.setStringInput(package.InputLanguage.SMT_LIB_2_6, text, "condition")
        answers = []
        while not (command := parser.nextCommand()).isNull():
            answers.append(command.invoke(solver, parser.getSymbolManager()).strip())
        return _short("\n".join(answer for answer in answers if answer))


def _cvc5() -> Any:
    try:
        return import_module("cvc5")
    except ImportError:
        raise UsageError(MISSING) from None


@dataclass(frozen=True)
class Program:
    """Any program that takes an SMT-LIB 2 file and prints the answer, with `timeout` seconds for a text. Raises UsageError when
    there is none that is called `program`."""

    program: str
    timeout: float
    path: str = field(init=False)

    def __post_init__(self) -> None:
        found = shutil.which(self.program)
        if found is None:
            raise UsageError(f"--solver {self.name}: no such program; name one that takes an SMT-LIB 2 file, such as cvc5 or z3")
        object.__setattr__(self, "path", found)

    @property
    def name(self) -> str:
        return printable(self.program)

    def ask(self, text: str) -> str:
        """The answer to `text`. Raises UsageError when the program cannot be run."""
        with tempfile.TemporaryDirectory(prefix="kvmodel-") as folder:
            file = Path(folder, "condition.smt2")
            file.write_text(text, encoding="utf-8")
            command = [self.path, str(file)]
            try:
                done = subprocess.run(command, capture_output=True, timeout=self.timeout, check=False, stdin=subprocess.DEVNULL)
            except subprocess.TimeoutExpired:
                return f"no answer in {self.timeout:g} seconds"
            except OSError as problem:
                raise UsageError(f"--solver {self.name}: {problem.strerror}") from None
            said = done.stdout.decode(errors="replace").strip() or done.stderr.decode(errors="replace").strip()
            return _short(said) or f"no answer, exit code {done.returncode}"


def _short(answer: str) -> str:
    return printable(answer, LONGEST_ANSWER)
