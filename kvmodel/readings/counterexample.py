"""Counterexamples to induction: a smallest state from which one step, or none, breaks a claim.

Z3 is asked for a model with few elements and few facts. The model is then read as a state of a finite instance and judged
by the interpreter, which knows nothing of weakest preconditions: a counterexample that it does not confirm is a defect.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from itertools import product

import z3

from kvmodel.errors import InternalError
from kvmodel.language.expressions import Expr
from kvmodel.language.instance import Binding, Instance, State, Values
from kvmodel.language.system import ANYTHING, Anything, TransitionSystem, Variable
from kvmodel.language.types import Element, Enumeration, Maybe, Type, Value
from kvmodel.readings.conditions import INITIALLY, OBVIOUSLY, VerificationCondition
from kvmodel.readings.initial import initial_values
from kvmodel.readings.models import Model, small_model
from kvmodel.readings.run import Interpreter
from kvmodel.readings.solver import ConditionSolver
from kvmodel.readings.steps import DenseSteps
from kvmodel.traces.trace import Choice

__all__ = ["Induced", "Reached", "reached", "smallest"]



class Reached(Enum):
    """Whether a run gets to the state of a counterexample to induction, at its size."""

    YES = "reachable"
    NO = "not reachable at this size"
    UNKNOWN = "not known"


@dataclass(frozen=True)
class Induced:
    """A counterexample to induction: in `before` every claim in `hypotheses` is true, and `claim` is false after `choice`
    (or in `before` itself, when there is no choice).

    `binding` is the one for which the claim is false.
    """

    instance: Instance
    claim: str
    before: State
    choice: Choice | None
    after: State
    binding: Binding
    hypotheses: tuple[str, ...]

    @property
    def step(self) -> str:
        """The action, or `OBVIOUSLY`."""
        return OBVIOUSLY if self.choice is None else self.choice.action


def smallest(solver: ConditionSolver, step: str, claim: str, alive: Collection[str]) -> Induced | None:
    """A counterexample to the condition of `claim` at `step` with the claims in `alive` as hypotheses: with the fewest elements,
    and then with few facts (true relations, values that are not the first of their kind).

    None when there is none of up to eight elements. Raises InternalError when the interpreter does
    not confirm it.
    """
    condition = solver.induction.condition(step, claim).under(alive)
    model = small_model(solver.induction.system, condition, solver.seed)
    if model is None:
        return None
    model.use_few_facts()
    return _confirmed(solver, condition, model, tuple(alive))


def _confirmed(solver: ConditionSolver, condition: VerificationCondition, model: Model, alive: tuple[str, ...]) -> Induced:
    system = _with_flags(solver, model)
    instance, order = _instance(system, model)

    def values(variables: tuple[Variable, ...]) -> Values:
        found: list[Value] = []
        for variable in variables:
            # The condition of initial states has their values in place, so that the model need not have them.
            initial = variable.initial if condition.step == INITIALLY and not variable.rigid else ANYTHING
            for index in product(*(order[key.name] for key in variable.keys)):
                if not isinstance(initial, Anything):
                    found.append(initial)
                    continue
                terms = tuple(model.elements[key.name][number] for key, number in zip(variable.keys, index, strict=True))
                found.append(_renumbered(model.value(variable.type, variable, terms), variable.type, order))
        return tuple(found)

    before = State(values(system.rigid_variables), values(system.state_variables))
    environment: dict[str, Value] = {}
    for constant in condition.constants:
        number = model.number(constant.domain.name, model.formulas.constant(constant))
        kind = Element(constant.domain)
        value: Value = constant.domain.members[number] if isinstance(constant.domain, Enumeration) else number
        environment[constant.name] = _renumbered(value, kind, order)
    interpreter = Interpreter(instance)
    choice, after = None, before
    claim = solver.induction.claims[condition.claim]
    if condition.step not in (INITIALLY, OBVIOUSLY):
        action = solver.induction.actions[condition.step]
        choice = Choice(action.name, tuple(environment[parameter.name] for parameter in action.parameters))
        if not interpreter.allows(before, system.action(choice.action), choice.binding):
            raise InternalError(f"a counterexample to induction takes a step that is not enabled: {condition.name}")
        after = interpreter.successor(before, choice)
    facts = (*condition.assumptions, *(expr for _, expr in condition.hypotheses))
    if not all(interpreter.evaluate(expr, before, {}) for expr in facts) or _true(interpreter, claim.condition, after, environment):
        raise InternalError(f"the interpreter does not confirm a counterexample to induction: {condition.name}")
    binding = tuple(environment[parameter.name] for parameter in claim.parameters)
    return Induced(instance, claim.name, before, choice, after, binding, alive)


def _true(interpreter: Interpreter, expr: Expr, state: State, environment: Mapping[str, Value]) -> bool:
    return bool(interpreter.evaluate(expr, state, environment))


def _with_flags(solver: ConditionSolver, model: Model) -> TransitionSystem:
    """The system with the flags of the model, where they were left open."""
    original = solver.induction.original
    if not solver.induction.all_flags:
        return original
    values = {name: z3.is_true(model.model.eval(term, model_completion=True)) for name, term in model.formulas.flags.items()}
    return replace(original, flags=tuple(replace(flag, value=values[flag.name]) for flag in original.flags))


def _instance(system: TransitionSystem, model: Model) -> tuple[Instance, dict[str, list[int]]]:
    """An instance of the model's sizes, and for each domain the model's numbers in the order of the instance: elements of a
    partitioned sort stand part by part there."""
    order = {name: list(range(len(elements))) for name, elements in model.elements.items()}
    sizes: dict[str, int] = {sort.name: len(order[sort.name]) for sort in system.sorts}
    for variable in system.variables:
        if variable.partition and isinstance(variable.type, Element) and isinstance(variable.type.domain, Enumeration):
            sort, members = variable.keys[0].name, variable.type.domain.members
            parts = [str(model.value(variable.type, variable, (element,))) for element in model.elements[sort]]
            order[sort].sort(key=lambda number, parts=parts, members=members: members.index(parts[number]))  # type: ignore[misc]
            del sizes[sort]
            sizes |= {f"{sort}.{member}": parts.count(member) for member in members}
    return Instance.make(system, sizes), order


def _renumbered(value: Value, kind: Type, order: Mapping[str, list[int]]) -> Value:
    if isinstance(kind, Element | Maybe) and not isinstance(kind.domain, Enumeration) and value is not None:
        assert isinstance(value, int)
        return order[kind.domain.name].index(value)
    return value


def reached(found: Induced, limit: int = 200_000) -> Reached:
    """Whether a run gets to the first state of a counterexample, by exploring its instance with its rigid values, up to `limit` states."""
    steps = DenseSteps(found.instance, found.before.rigid)
    seen: set[Values] = set()
    for start in initial_values(found.instance, found.before.rigid):
        if len(seen) >= limit:
            return Reached.UNKNOWN
        seen.add(start)
    pending = list(seen)
    while pending:
        values = pending.pop()
        if values == found.before.values:
            return Reached.YES
        for _, following in steps.successors(values):
            if following not in seen:
                if len(seen) >= limit:
                    return Reached.UNKNOWN
                seen.add(following)
                pending.append(following)
    return Reached.YES if found.before.values in seen else Reached.NO
