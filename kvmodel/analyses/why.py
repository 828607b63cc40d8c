"""Why a condition has the value that it has: the sub-expressions that decide it, with the values that they read.

The explanation follows the definition of each operator: a false conjunction is blamed on its false parts, a false
`all` on the element that fails, a definition on its own body. Values come from the naive interpreter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from kvmodel.errors import UsageError, nearest
from kvmodel.language.expressions import Apply, Bound, Expr, FlagRead, Named, Quantified, Read, walk
from kvmodel.language.instance import Binding, Instance, State
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import Action, Condition, Property, PropertyKind
from kvmodel.language.text import expression, membership, place
from kvmodel.language.types import Bool, Domain, Element, Maybe, Span, Value
from kvmodel.readings.run import Interpreter
from kvmodel.traces.trace import Trace

__all__ = ["Blocked", "GuardReport", "Reason", "Violation", "element", "reasons", "violation", "why_not"]

NOWHERE = Span()
MOST_REASONS = 6  # a condition over many elements is explained by the first few
MOST_BINDINGS = 100_000


@dataclass(frozen=True, slots=True)
class Reason:
    """One sub-expression that decides a condition.

    `text` is the sub-expression in the spec's notation and `value` what it is; `reads` are the places, flags and
    elements that it looks at, with their values; `inside` says how it was reached: definitions, quantified elements
    and premises, outermost first.
    """

    text: str
    value: str
    reads: tuple[tuple[str, str], ...] = ()
    inside: tuple[str, ...] = ()
    at: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class GuardReport:
    """A guard of an action: whether it was true and, if not, why."""

    name: str
    condition: str
    at: Span
    holds: bool
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Blocked:
    """An action with its arguments in the state that a step of a trace led to (step 0: the initial state).

    `ended` is the reason why nothing at all is enabled there (a counter out of its range), or ''.
    """

    step: int
    action: Action
    binding: Binding
    guards: tuple[GuardReport, ...]
    ended: str = ""

    @property
    def enabled(self) -> bool:
        return not self.ended and all(guard.holds for guard in self.guards)


@dataclass(frozen=True, slots=True)
class Violation:
    """How the end of a trace shows its property: for which parameters, and why."""

    property: Property
    arguments: tuple[tuple[str, str], ...]
    reasons: tuple[Reason, ...]


def why_not(trace: Trace, step: int, action: str, arguments: Mapping[str, Value] | None = None) -> tuple[Blocked, ...]:
    """Why `action` is or is not enabled in the state after `step` steps of `trace` (0: the initial state).

    `arguments` gives some or all of its parameters as elements; every binding of the others is tried. The result has
    the bindings with the fewest false guards first. Raises UsageError for an unknown step, action, parameter or
    element.
    """
    if not 0 <= step < len(trace.states):
        raise UsageError(f"the trace has steps 0 to {len(trace.steps)}, no step {step}")
    instance = trace.instance
    tried = instance.system.action(action)
    given = dict(arguments or {})
    known = [parameter.name for parameter in tried.parameters]
    for name in given:
        if name not in known:
            raise UsageError(f"{action} has no parameter '{name}'{nearest(name, known)} (it takes {', '.join(known) or 'none'})")
    bindings = []
    for parameter in tried.parameters:
        elements = instance.elements(parameter.domain)
        if parameter.name in given and given[parameter.name] not in elements:
            raise UsageError(f"{given[parameter.name]!r} is not a {parameter.domain.name} of this size")
    for binding in instance.bindings(tried.parameters):
        if all(given.get(name, value) == value for name, value in zip(known, binding, strict=True)):
            bindings.append(binding)
        if len(bindings) > MOST_BINDINGS:
            raise UsageError(f"{action} has too many bindings at this size; give more of its arguments")
    interpreter = Interpreter(instance)
    state = trace.states[step]
    reports = [_blocked(interpreter, state, step, tried, binding) for binding in bindings]
    return tuple(sorted(reports, key=_distance))


def _distance(report: Blocked) -> tuple[int, int]:
    """How far a binding is from being enabled: its false guards, and then the parts of them that are false."""
    blocked = [guard for guard in report.guards if not guard.holds]
    return len(blocked), sum(len(guard.reasons) for guard in blocked)


def element(instance: Instance, domain: Domain, label: str) -> Value:
    """The element of `domain` that people call `label`. Raises UsageError, with the nearest known label."""
    labels = {instance.label(domain, value): value for value in instance.elements(domain)}
    if label not in labels:
        shown = ", ".join(list(labels)[:12]) + (", ..." if len(labels) > 12 else "")
        raise UsageError(f"'{label}' is not a {domain.name} of this size{nearest(label, list(labels))} (known: {shown})")
    return labels[label]


def _blocked(interpreter: Interpreter, state: State, step: int, action: Action, binding: Binding) -> Blocked:
    environment = interpreter.environment(action.parameters, binding)
    guards: list[GuardReport] = []
    for guard in action.guards:
        # A guard may read an element that only an earlier one shows to be there.
        if _is_tested(guard.condition) and not all(report.holds for report in guards):
            continue
        holds = bool(interpreter.evaluate(guard.condition, state, environment))
        found = () if holds else reasons(interpreter, guard.condition, state, environment)
        guards.append(GuardReport(guard.name, expression(guard.condition), guard.at, holds, found))
    broken = interpreter.out_of_range(state)
    ended = f"the run ended when a counter left its range ({', '.join(broken)})" if broken else ""
    return Blocked(step, action, binding, tuple(guards), ended)


def violation(trace: Trace) -> Violation:
    """How the last state (or step) of a trace shows the property that the trace is of.

    Raises UsageError for a trace of no property.
    """
    if not trace.property:
        raise UsageError("the trace shows no property")
    interpreter = Interpreter(trace.instance)
    system = trace.instance.system
    shown = system.property(trace.property)
    last = trace.states[-1]
    match shown.kind:
        case PropertyKind.INVARIANT:
            binding = interpreter.failing_binding(shown, last)
            return _at_binding(interpreter, shown, last, binding, wanted=True)
        case PropertyKind.REACHABLE:
            binding = interpreter.satisfying_binding(shown, last)
            return _at_binding(interpreter, shown, last, binding, wanted=False)
        case PropertyKind.ASSERTION:
            return _at_binding(interpreter, shown, trace.states[-2], trace.steps[-1].binding, wanted=True)
        case PropertyKind.RANGE:
            return Violation(shown, (), _out_of_range(trace.instance, shown.subject, last))
        case PropertyKind.NO_DEADLOCK:
            return Violation(shown, (), tuple(_not_final(interpreter, last)))


def _at_binding(interpreter: Interpreter, shown: Property, state: State, binding: Binding | None, *, wanted: bool) -> Violation:
    if binding is None:
        raise UsageError(f"the end of the trace does not show '{shown.name}'")
    environment = interpreter.environment(shown.parameters, binding)
    arguments = tuple(
        (parameter.name, interpreter.instance.label(parameter.domain, value))
        for parameter, value in zip(shown.parameters, binding, strict=True)
    )
    return Violation(shown, arguments, reasons(interpreter, shown.condition, state, environment, wanted=wanted))


def _out_of_range(instance: Instance, counter: str, state: State) -> tuple[Reason, ...]:
    layout = instance.state_layout
    variable = instance.system.by_name[counter]
    found = []
    for (name, index), value in zip(layout.places, state.values, strict=True):
        if name == counter and isinstance(value, int) and value not in instance.values_of(variable.type):
            labels = tuple(instance.label(key, part) for key, part in zip(variable.keys, index, strict=True))
            found.append(Reason(place(name, labels), str(value), at=variable.at))
    return tuple(found)


def _not_final(interpreter: Interpreter, state: State) -> Iterator[Reason]:
    for final in interpreter.system.finals:
        binding = interpreter.failing_binding(final, state)
        if binding is not None:
            environment = interpreter.environment(final.parameters, binding)
            for reason in reasons(interpreter, final.condition, state, environment):
                yield replace(reason, inside=(f"final {_call(interpreter.instance, final, binding)}", *reason.inside))


def _call(instance: Instance, condition: Condition | Property, binding: Binding) -> str:
    labels = [f"{p.name}={instance.label(p.domain, value)}" for p, value in zip(condition.parameters, binding, strict=True)]
    return f"{condition.name}({', '.join(labels)})"


def reasons(
    interpreter: Interpreter, condition: Expr, state: State, environment: Mapping[str, Value], *, wanted: bool = True
) -> tuple[Reason, ...]:
    """Why `condition` is not `wanted` in `state`; at most six sub-expressions. Empty when it is as wanted."""
    if interpreter.evaluate(condition, state, environment) == wanted:
        return ()
    found = []
    for reason in _Blame(interpreter, state).of(condition, environment, wanted, ()):
        found.append(reason)
        if len(found) == MOST_REASONS:
            break
    return tuple(dict.fromkeys(found))


def _is_tested(expr: Expr) -> bool:
    """Whether `expr` reads a value that must not be none: it has no value where a test before it failed."""
    return any(
        (isinstance(node, Apply) and node.operator is Operator.THE)
        or (isinstance(node, Read) and any(isinstance(part.type, Maybe) for part in node.index))  # folding leaves no `the`
        for node in walk(expr)
    )


class _Blame:
    """Walks down a condition whose value is not the wanted one, to the parts that decide it."""

    def __init__(self, interpreter: Interpreter, state: State) -> None:
        self.interpreter = interpreter
        self.instance = interpreter.instance
        self.state = state

    def value(self, expr: Expr, environment: Mapping[str, Value]) -> Value:
        return self.interpreter.evaluate(expr, self.state, environment)

    def of(self, expr: Expr, environment: Mapping[str, Value], wanted: bool, inside: tuple[str, ...]) -> Iterator[Reason]:
        match expr:
            case Named(definition, arguments, body):
                labels = ", ".join(self.shown(part, environment) for part in arguments)
                yield from self.of(body, environment, wanted, (*inside, f"{definition}({labels})"))
            case Apply(operator=Operator.NOT, arguments=(part,)) if isinstance(part, Named | Quantified) or _is_compound(part):
                yield from self.of(part, environment, not wanted, inside)
            case Apply(operator=Operator.AND | Operator.OR, arguments=parts):
                yield from self.of_parts(expr, parts, environment, wanted, inside)
            case Apply(operator=Operator.IMPLIES, arguments=(premise, conclusion)):
                if wanted:
                    yield from self.of(conclusion, environment, True, (*inside, f"{expression(premise)} is true"))
                elif not self.value(premise, environment):
                    yield from self.of(premise, environment, True, inside)
                else:
                    yield from self.of(conclusion, environment, False, inside)
            case Apply(operator=Operator.IF, arguments=(condition, then, otherwise)):
                chosen = bool(self.value(condition, environment))
                word = "is true" if chosen else "is false"
                yield from self.of(then if chosen else otherwise, environment, wanted, (*inside, f"{expression(condition)} {word}"))
            case Quantified(binder=Binder.ALL | Binder.ANY):
                yield from self.of_elements(expr, environment, wanted, inside)
            case _:
                yield self.leaf(expr, environment, inside)

    def of_parts(
        self, expr: Apply, parts: tuple[Expr, ...], environment: Mapping[str, Value], wanted: bool, inside: tuple[str, ...]
    ) -> Iterator[Reason]:
        """An `and` or `or`: the parts that are not as wanted. After the first of them, only those that have a value for sure."""
        if membership(expr) is not None:
            yield self.leaf(expr, environment, inside)
            return
        decided = (expr.operator is Operator.AND) == wanted  # one part that is not as wanted decides
        found = False
        for part in parts:
            if found and decided and _is_tested(part):
                continue
            if bool(self.value(part, environment)) != wanted:
                found = True
                yield from self.of(part, environment, wanted, inside)

    def of_elements(self, expr: Quantified, environment: Mapping[str, Value], wanted: bool, inside: tuple[str, ...]) -> Iterator[Reason]:
        """A quantifier that one element decides is blamed on the first such element. Where none satisfies an `any`, it is
        blamed on the elements that come closest."""
        decided = (expr.binder is Binder.ALL) == wanted
        if not decided and not wanted:
            yield self.leaf(expr, environment, inside)  # `all` is true: every element is the reason
            return
        bindings = list(self.instance.bindings(expr.variables))
        if decided:
            bindings = [next(b for b in bindings if bool(self.value(expr.body, self.with_elements(environment, expr, b))) != wanted)]
        else:
            inside = (*inside, f"{expression(expr)} is false")
            furthest = [self.true_parts(expr.body, self.with_elements(environment, expr, binding)) for binding in bindings]
            bindings = [b for b, reached in zip(bindings, furthest, strict=True) if reached == max(furthest)]
        for binding in bindings:
            labels = [self.instance.label(variable.domain, value) for variable, value in zip(expr.variables, binding, strict=True)]
            chosen = ", ".join(f"{variable.name} = {label}" for variable, label in zip(expr.variables, labels, strict=True))
            yield from self.of(expr.body, self.with_elements(environment, expr, binding), wanted, (*inside, chosen))

    def with_elements(self, environment: Mapping[str, Value], expr: Quantified, binding: Binding) -> dict[str, Value]:
        return {**environment, **self.interpreter.environment(expr.variables, binding)}

    def true_parts(self, expr: Expr, environment: Mapping[str, Value]) -> int:
        """How many parts of a conjunction are true before the first false one: an element that gets further is closer."""
        if isinstance(expr, Named):
            return self.true_parts(expr.body, environment)
        if not isinstance(expr, Apply) or expr.operator is not Operator.AND:
            return int(bool(self.value(expr, environment)))
        count = 0
        for part in expr.arguments:
            count += self.true_parts(part, environment)
            if not self.value(part, environment):
                break
        return count

    def leaf(self, expr: Expr, environment: Mapping[str, Value], inside: tuple[str, ...]) -> Reason:
        return Reason(
            expression(expr), self.shown(expr, environment), tuple(dict(self.reads(expr, environment)).items()), inside, expr.at
        )

    def reads(self, expr: Expr, environment: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
        """What a sub-expression looks at, with its value. Under a quantifier there is no one value."""
        match expr:
            case Read(variable, index, kind):
                labels = tuple(self.shown(part, environment) for part in index)
                yield place(variable, labels), self.instance.show(kind, self.value(expr, environment))
                for part in index:
                    if not isinstance(part, Bound):
                        yield from self.reads(part, environment)
            case FlagRead(flag=flag):
                yield flag, self.shown(expr, environment)
            case Bound(name=name):
                yield name, self.shown(expr, environment)
            case Apply(operator=Operator.IF, arguments=(condition, then, otherwise)):
                yield from self.reads(condition, environment)
                yield from self.reads(then if self.value(condition, environment) else otherwise, environment)
            case Apply(arguments=parts) if not _is_compound(expr) or expr.operator is Operator.NOT or membership(expr) is not None:
                for part in parts:
                    yield from self.reads(part, environment)
            case Apply() | Named() | Quantified():
                yield expression(expr), self.shown(expr, environment)

    def shown(self, expr: Expr, environment: Mapping[str, Value]) -> str:
        value = self.value(expr, environment)
        kind = expr.type
        if isinstance(kind, Element | Maybe | Bool):
            return self.instance.show(kind, value)
        return str(value)


def _is_compound(expr: Expr) -> bool:
    return isinstance(expr, Apply) and expr.operator in (Operator.AND, Operator.OR, Operator.IMPLIES, Operator.IF, Operator.NOT)
