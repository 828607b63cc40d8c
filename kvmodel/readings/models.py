"""Small models: a state of few elements in which a verification condition is false, if there is one.

Over a finite universe quantifiers are written out, so Z3 always answers, and soon. Most conditions that are false are so in
a model of two or three elements a sort.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import z3

from kvmodel.language.system import TransitionSystem, Variable
from kvmodel.language.types import Bool, Element, Enumeration, Maybe, Type, Value
from kvmodel.readings.conditions import VerificationCondition
from kvmodel.readings.first_order import Formulas

__all__ = ["MOST_ELEMENTS", "Model", "small_model"]

MOST_ELEMENTS = 8  # of all sorts together


def small_model(
    system: TransitionSystem, condition: VerificationCondition, seed: int = 0, most: int = MOST_ELEMENTS
) -> Model | None:
    """A model of the negation of `condition` with the fewest elements, or None when there is none of up to `most`.

    `system` is the one that the condition is of, with flags in place as the condition has them. Raises NotFirstOrder as
    `Formulas.negated` does.
    """
    for sizes in _sizes(system, most):
        model = Model(system, condition, sizes, seed)
        if model.found:
            return model
    return None


def _sizes(system: TransitionSystem, most: int) -> Iterator[Mapping[str, int]]:
    """Sizes of all sorts, smallest in all first."""
    names = [sort.name for sort in system.sorts]
    combinations = product(range(1, most), repeat=len(names))
    for sizes in sorted(combinations, key=lambda sizes: (sum(sizes), sizes)):
        if sum(sizes) <= max(most, len(names)):
            yield dict(zip(names, sizes, strict=True))


class Model:
    """A model of a negated condition in which each sort has a given number of elements, if there is one."""

    def __init__(self, system: TransitionSystem, condition: VerificationCondition, sizes: Mapping[str, int], seed: int) -> None:
        self.formulas = Formulas(system, sizes)
        self.system = system
        self.elements = self.formulas.members
        base, hypotheses = self.formulas.negated(condition)
        self.solver = z3.SimpleSolver(ctx=self.formulas.context)
        self.solver.set("random_seed", seed)
        self.solver.set("ctrl_c", False)
        self.solver.add(*base, *hypotheses.values())
        self.found = self.solver.check() == z3.sat
        self.model: Any = self.solver.model() if self.found else None

    def use_few_facts(self) -> None:
        """Narrow to a model with the plain value wherever that is possible, one place after the other."""
        for variable in reversed(self.system.variables):
            for index in product(*(self.elements[key.name] for key in variable.keys)):
                plain = self._is_plain(variable, index)
                if not z3.is_true(self.model.eval(plain, model_completion=True)):
                    if self.solver.check(plain) != z3.sat:
                        continue
                    self.model = self.solver.model()
                self.solver.add(plain)

    def _is_plain(self, variable: Variable, index: tuple[Any, ...]) -> Any:
        value = self.formulas.values[variable.name](*index)
        match variable.type:
            case Bool():
                return z3.Not(value)
            case Maybe():
                return self.formulas.nones[variable.name](*index)
            case Element(Enumeration() as enumeration):
                return value == self.formulas.member(enumeration, enumeration.members[0])
            case Element(domain):
                return value == self.elements[domain.name][0]
            case _:
                return value == 0

    def value(self, kind: Type, variable: Variable, index: tuple[Any, ...]) -> Value:
        """The value of a place as finite readings have it; elements by their number here."""
        model = self.model
        if isinstance(kind, Maybe) and z3.is_true(model.eval(self.formulas.nones[variable.name](*index), model_completion=True)):
            return None
        found = model.eval(self.formulas.values[variable.name](*index), model_completion=True)
        match kind:
            case Bool():
                return bool(z3.is_true(found))
            case Element(domain) | Maybe(domain):
                number = self.number(domain.name, found)
                return domain.members[number] if isinstance(domain, Enumeration) else number
            case _:
                return int(str(found))

    def number(self, domain: str, value: Any) -> int:
        """Which element of a sort, or member of an enumeration, a Z3 term is in the model."""
        found = self.model.eval(value, model_completion=True)
        return next(number for number, element in enumerate(self.elements[domain]) if element.eq(found))
