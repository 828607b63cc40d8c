"""A system with everything called something else, and its parts in another order: nothing may hang on either."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from random import Random

from kvmodel.language.expressions import Apply, Bound, Cell, Const, Expr, FlagRead, Named, Quantified, Read
from kvmodel.language.system import Anything, Condition, Property, TransitionSystem, Update
from kvmodel.language.types import Domain, Element, Enumeration, Maybe, Sort, Type, Value

__all__ = ["Renaming", "reordered"]


class Renaming:
    """`system` with sorts, enumerations, members, flags, variables, actions, properties and parameters called v1, v2, ...;
    `names` maps the old name of a property to the new one."""

    def __init__(self, system: TransitionSystem) -> None:
        numbers = count(1)
        self._domains: dict[str, Domain] = {}
        for sort in system.sorts:
            self._domains[sort.name] = Sort(f"v{next(numbers)}")
        self._members: dict[tuple[str, Value], str] = {}
        for enumeration in system.enumerations:
            for member in enumeration.members:
                self._members[enumeration.name, member] = f"v{next(numbers)}"
            members = tuple(self._members[enumeration.name, member] for member in enumeration.members)
            self._domains[enumeration.name] = Enumeration(f"v{next(numbers)}", members)
        self._variables = {variable.name: f"v{next(numbers)}" for variable in system.variables}
        self._flags = {flag.name: f"v{next(numbers)}" for flag in system.flags}
        self._bound: dict[str, str] = {}
        self._numbers = numbers
        self.names = {declared.name: f"v{next(numbers)}" for declared in system.declared}
        self.system = self._system(system)

    def _system(self, system: TransitionSystem) -> TransitionSystem:
        return replace(
            system,
            name="renamed",
            sorts=tuple(sort for old in system.sorts if isinstance(sort := self._domains[old.name], Sort)),
            enumerations=tuple(new for old in system.enumerations if isinstance(new := self._domains[old.name], Enumeration)),
            flags=tuple(replace(flag, name=self._flags[flag.name]) for flag in system.flags),
            variables=tuple(
                replace(
                    variable,
                    name=self._variables[variable.name],
                    keys=tuple(self._domains[key.name] for key in variable.keys),
                    type=self._type(variable.type),
                    initial=variable.initial if isinstance(variable.initial, Anything) else self._value(variable.initial, variable.type),
                )
                for variable in system.variables
            ),
            assumptions=tuple(self._condition(part) for part in system.assumptions),
            initial=tuple(self._condition(part) for part in system.initial),
            actions=tuple(
                replace(
                    action,
                    name=f"v{next(self._numbers)}",
                    parameters=self._parameters(action.parameters),
                    guards=tuple(replace(guard, condition=self.expr(guard.condition)) for guard in action.guards),
                    assertions=tuple(replace(part, condition=self.expr(part.condition)) for part in action.assertions),
                    updates=tuple(self._update(update) for update in action.updates),
                )
                for action in system.actions
            ),
            declared=tuple(self._property(part) for part in system.declared),
            finals=tuple(self._condition(part) for part in system.finals),
            lemmas=(),
            definitions=(),
            sizes=tuple((self._size(name), size) for name, size in system.sizes),
        )

    def _size(self, name: str) -> str:
        assert "." not in name
        return self._domains[name].name

    def _parameters(self, parameters: tuple[Bound, ...]) -> tuple[Bound, ...]:
        return tuple(self._renamed(parameter) for parameter in parameters)

    def _renamed(self, bound: Bound) -> Bound:
        name = self._bound.setdefault(bound.name, f"v{next(self._numbers)}")
        return Bound(name, self._domains[bound.domain.name])

    def _condition(self, part: Condition) -> Condition:
        name = f"v{next(self._numbers)}"
        return replace(part, name=name, parameters=self._parameters(part.parameters), condition=self.expr(part.condition))

    def _property(self, part: Property) -> Property:
        parameters = self._parameters(part.parameters)
        return replace(part, name=self.names[part.name], parameters=parameters, condition=self.expr(part.condition))

    def _update(self, update: Update) -> Update:
        return replace(
            update,
            variable=self._variables[update.variable],
            over=self._parameters(update.over),
            index=tuple(self.expr(part) for part in update.index),
            value=self.expr(update.value),
            condition=self.expr(update.condition),
        )

    def _type(self, kind: Type) -> Type:
        match kind:
            case Element(domain):
                return Element(self._domains[domain.name])
            case Maybe(domain):
                return Maybe(self._domains[domain.name])
            case _:
                return kind

    def _value(self, value: Value, kind: Type) -> Value:
        if isinstance(kind, Element | Maybe):
            return self._members.get((kind.domain.name, value), value)
        return value

    def expr(self, expr: Expr) -> Expr:
        """`expr` with the new names; uses of definitions are expanded."""
        match expr:
            case Const(value, kind):
                return Const(self._value(value, kind), self._type(kind))
            case Bound():
                return self._renamed(expr)
            case Read(variable, index, kind):
                return Read(self._variables[variable], tuple(self.expr(part) for part in index), self._type(kind))
            case FlagRead(flag):
                return FlagRead(self._flags[flag])
            case Apply(operator, arguments, kind):
                return Apply(operator, tuple(self.expr(part) for part in arguments), self._type(kind))
            case Quantified(binder, variables, body):
                return Quantified(binder, self._parameters(variables), self.expr(body))
            case Named(body=body):
                return self.expr(body)
            case Cell():
                raise AssertionError(expr)


def reordered(system: TransitionSystem, seed: int) -> TransitionSystem:
    """`system` with its sorts, variables, actions and properties in another order."""
    random = Random(seed)
    parts: Mapping[str, tuple[object, ...]] = {
        name: tuple(random.sample(list(getattr(system, name)), len(getattr(system, name))))
        for name in ("sorts", "enumerations", "variables", "actions", "declared")
    }
    return replace(system, **parts)  # type: ignore[arg-type]
