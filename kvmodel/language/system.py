"""The transition system: what a spec means. Immutable, and the only thing that readings look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

from kvmodel.errors import UsageError, nearest
from kvmodel.language.expressions import TRUE, Bound, Expr, FlagRead, Read, walk
from kvmodel.language.types import Counter, Domain, Enumeration, Sort, Span, Type, Value

__all__ = [
    "ANYTHING",
    "Action",
    "Anything",
    "Assertion",
    "Condition",
    "Definition",
    "Flag",
    "FlagKind",
    "Guard",
    "Property",
    "PropertyKind",
    "TransitionSystem",
    "Update",
    "Variable",
]

NOWHERE = Span()


class FlagKind(Enum):
    """What a flag stands for in a deployment."""

    DEFENCE = "defence"  # something an engine does to be safe
    SIZING = "sizing"  # a pool's size against the context
    HAZARD = "hazard"  # something an engine does that makes it less safe


@dataclass(frozen=True, slots=True)
class Flag:
    """A rigid choice of a deployment. `value` is the effective one, `default` the one of the class that declares it."""

    name: str
    value: bool
    default: bool
    kind: FlagKind
    doc: str = field(default="", compare=False)
    at: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Anything:
    """The initial value of a variable that may start with any value of its type."""


ANYTHING = Anything()


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the state, or a rigid one that never changes in a run.

    `keys` are the domains that index it (none: a single value). `partition` marks a rigid function from a sort into an
    enumeration whose finite instances give a number of elements for each member (pages of each pool).
    """

    name: str
    keys: tuple[Domain, ...]
    type: Type
    initial: Value | Anything
    rigid: bool = False
    partition: bool = False
    doc: str = field(default="", compare=False)
    at: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Guard:
    """A named condition under which an action may happen."""

    name: str
    condition: Expr
    at: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Assertion:
    """A named condition that must be true of the state in which the action happens: ``assert:ACTION:NAME``."""

    name: str
    condition: Expr
    at: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Update:
    """``for over: if condition: variable[index] = value``; every right-hand side reads the state before the step.

    `owner` names the class and method that wrote it (``Handoff.abort``)."""

    variable: str
    index: tuple[Expr, ...]
    value: Expr
    over: tuple[Bound, ...] = ()
    condition: Expr = TRUE
    at: Span = field(default=NOWHERE, compare=False)
    owner: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Action:
    """A named step: enabled for a binding of its parameters when every guard is true; its updates are simultaneous.

    `node` names the node on which it happens, for people; it has no meaning.
    """

    name: str
    parameters: tuple[Bound, ...]
    guards: tuple[Guard, ...] = ()
    assertions: tuple[Assertion, ...] = ()
    updates: tuple[Update, ...] = ()
    doc: str = field(default="", compare=False)
    at: Span = field(default=NOWHERE, compare=False)
    node: str = field(default="", compare=False)

    def expressions(self) -> Iterator[Expr]:
        """Every expression of the action: guards, assertions and updates."""
        for guard in self.guards:
            yield guard.condition
        for assertion in self.assertions:
            yield assertion.condition
        for update in self.updates:
            yield update.condition
            yield update.value
            yield from update.index


class PropertyKind(Enum):
    """How a property is judged."""

    INVARIANT = "invariant"  # true of every reachable state, for every binding of the parameters
    REACHABLE = "reachable"  # true of some reachable state, for some binding
    ASSERTION = "assertion"  # a step of the action named by `subject` never happens where it is false
    RANGE = "range"  # the counter named by `subject` stays in its range
    NO_DEADLOCK = "no_deadlock"  # a state with nothing enabled is final


@dataclass(frozen=True, slots=True)
class Property:
    """Something a spec promises. For ASSERTION and RANGE, `subject` names the action or the counter."""

    name: str
    kind: PropertyKind
    parameters: tuple[Bound, ...]
    condition: Expr
    doc: str = field(default="", compare=False)
    at: Span = field(default=NOWHERE, compare=False)
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Condition:
    """An assumption about rigid things, a condition on initial states, or a description of final states.

    `owner` names the class and method that says it (``Handoff.leftovers``)."""

    name: str
    parameters: tuple[Bound, ...]
    condition: Expr
    doc: str = field(default="", compare=False)
    at: Span = field(default=NOWHERE, compare=False)
    owner: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Definition:
    """A derived notion, for readers: its uses are already expanded (`Named`)."""

    name: str
    parameters: tuple[Bound, ...]
    condition: Expr
    doc: str = field(default="", compare=False)
    at: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class TransitionSystem:
    """A spec's meaning. `name` is how it is asked for (``handoff:buggy``, ``my.py:Mine``)."""

    name: str
    sorts: tuple[Sort, ...]
    enumerations: tuple[Enumeration, ...]
    flags: tuple[Flag, ...]
    variables: tuple[Variable, ...]
    assumptions: tuple[Condition, ...]
    initial: tuple[Condition, ...]
    actions: tuple[Action, ...]
    declared: tuple[Property, ...]
    finals: tuple[Condition, ...]
    lemmas: tuple[Condition, ...] = ()
    """What helps a proof: true of every reachable state, like an invariant, and not a promise. Nothing else reads them."""
    definitions: tuple[Definition, ...] = ()
    doc: str = field(default="", compare=False)
    at: Span = field(default=NOWHERE, compare=False)
    sizes: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    """The sizes that a check uses unless told otherwise: sort, or ``SORT.MEMBER`` of a partitioned sort."""

    @cached_property
    def state_variables(self) -> tuple[Variable, ...]:
        """Variables that steps may change, in order of declaration."""
        return tuple(variable for variable in self.variables if not variable.rigid)

    @cached_property
    def rigid_variables(self) -> tuple[Variable, ...]:
        """Variables that never change in a run, in order of declaration."""
        return tuple(variable for variable in self.variables if variable.rigid)

    @cached_property
    def by_name(self) -> Mapping[str, Variable]:
        """Variables by name."""
        return {variable.name: variable for variable in self.variables}

    @cached_property
    def flag_values(self) -> Mapping[str, bool]:
        """The effective value of each flag."""
        return {flag.name: flag.value for flag in self.flags}

    @cached_property
    def properties(self) -> tuple[Property, ...]:
        """Declared properties, then the implicit ones: ``assert:ACTION:NAME``, ``range:COUNTER``, ``no_deadlock``."""
        implicit = [
            Property(f"assert:{action.name}:{assertion.name}", PropertyKind.ASSERTION, action.parameters,
                     assertion.condition, f"Whenever {action.name} happens: {assertion.name}.", assertion.at, action.name)
            for action in self.actions
            for assertion in action.assertions
        ]
        implicit += [
            Property(f"range:{variable.name}", PropertyKind.RANGE, (), TRUE,
                     f"{variable.name} stays within {variable.type.low}..{variable.type.high}.", variable.at, variable.name)
            for variable in self.state_variables
            if isinstance(variable.type, Counter)
        ]
        deadlock = Property("no_deadlock", PropertyKind.NO_DEADLOCK, (), TRUE,
                            "A state in which nothing can happen is a final one.", self.at)
        return (*self.declared, *implicit, deadlock)

    def action(self, name: str) -> Action:
        """The action called `name`. Raises UsageError, with the nearest known name."""
        for action in self.actions:
            if action.name == name:
                return action
        known = [action.name for action in self.actions]
        raise UsageError(f"{self.name} has no action '{name}'{nearest(name, known)}")

    def property(self, name: str) -> Property:
        """The property called `name`. Raises UsageError, with the nearest known name."""
        for candidate in self.properties:
            if candidate.name == name:
                return candidate
        known = [candidate.name for candidate in self.properties]
        raise UsageError(f"{self.name} has no property '{name}'{nearest(name, known)}")

    def domain(self, name: str) -> Domain:
        """The sort or enumeration called `name`. Raises UsageError, with the nearest known name."""
        domains: list[Domain] = [*self.sorts, *self.enumerations]
        for domain in domains:
            if domain.name == name:
                return domain
        known = [domain.name for domain in domains]
        raise UsageError(f"{self.name} has no sort '{name}'{nearest(name, known)}")

    def expressions(self) -> Iterator[Expr]:
        """Every expression that a reading can look at (definitions only where they are used)."""
        for action in self.actions:
            yield from action.expressions()
        for condition in (*self.assumptions, *self.initial, *self.finals):
            yield condition.condition
        for declared in self.declared:
            yield declared.condition

    def flags_read(self) -> frozenset[str]:
        """Names of the flags that some expression reads."""
        return frozenset(node.flag for expr in self.expressions() for node in walk(expr) if isinstance(node, FlagRead))

    def variables_read(self) -> frozenset[str]:
        """Names of the variables that some expression reads."""
        return frozenset(node.variable for expr in self.expressions() for node in walk(expr) if isinstance(node, Read))

    def with_flags(self, values: Mapping[str, bool]) -> TransitionSystem:
        """The same system with some flags set. Raises UsageError for a flag that is unknown or never read."""
        known = [flag.name for flag in self.flags]
        read = self.flags_read()
        for name in values:
            if name not in known:
                raise UsageError(f"{self.name} has no flag '{name}'{nearest(name, known)}")
            if name not in read:
                raise UsageError(f"{self.name} never reads the flag '{name}', so setting it would change nothing")
        flags = tuple(replace(flag, value=values.get(flag.name, flag.value)) for flag in self.flags)
        return replace(self, flags=flags)
