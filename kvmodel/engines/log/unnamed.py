"""What of a spec cannot be followed by what a log tells: conditions about requests that have no name yet, or have one no more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from kvmodel.language.expressions import FALSE, TRUE, Apply, Bound, Const, Expr, Named, Quantified, Read, rebuild, walk
from kvmodel.language.instance import Instance
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import Action, PropertyKind, TransitionSystem, Update, Variable
from kvmodel.language.types import Maybe, Sort
from kvmodel.readings.ground import simplified
from kvmodel.readings.sparse import default_value

__all__ = [
    "at_default",
    "can_be_a_strangers",
    "counts",
    "counts_unnamed",
    "needs_the_ended",
    "only_helps",
    "updates_unnamed",
    "variables_of",
]


def at_default(condition: Expr, parameter: Bound, instance: Instance) -> Expr:
    """A condition for an element of which nothing has been said yet: every variable of the state has its default there."""
    if isinstance(condition, Named):
        return at_default(condition.body, parameter, instance)
    if isinstance(condition, Read) and parameter in condition.index:
        variable = instance.system.by_name[condition.variable]
        if not variable.rigid:
            return Const(default_value(instance, variable), condition.type)
    return _simplified(condition, lambda part: at_default(part, parameter, instance), parameter)


def counts(expr: Expr) -> bool:
    """Whether an expression counts anything."""
    return any(isinstance(node, Quantified) and node.binder is Binder.COUNT for node in walk(expr))


def counts_unnamed(expr: Expr, sorts: Collection[str], instance: Instance) -> bool:
    """Whether an expression counts elements of `sorts` of which nothing has been said."""
    return any(
        bound.domain.name in sorts and _without_names(at_default(node.body, bound, instance), bound) != FALSE
        for node in walk(expr)
        if isinstance(node, Quantified) and node.binder is Binder.COUNT
        for bound in node.variables
    )


def updates_unnamed(system: TransitionSystem, sorts: Collection[str], instance: Instance) -> Iterator[tuple[Action, Update]]:
    """Updates that also write to elements of `sorts` of which nothing has been said."""
    for action in system.actions:
        for update in action.updates:
            for bound in update.over:
                if bound.domain.name in sorts and _without_names(at_default(update.condition, bound, instance), bound) != FALSE:
                    yield action, update


def needs_the_ended(system: TransitionSystem, sort: str, instance: Instance) -> bool:
    """Whether a condition can become another one by forgetting what an element of `sort` was when it ended, though nothing refers to
    it: something counts or looks through such elements, or a property has to do with one of them and with something that changes."""

    def own(expr: Expr, bound: Bound) -> bool:
        return any(isinstance(node, Read) and bound in node.index and not system.by_name[node.variable].rigid for node in walk(expr))

    invariants = [candidate for candidate in system.declared if candidate.kind is PropertyKind.INVARIANT]
    exprs = [expr for action in system.actions for expr in action.expressions()] + [candidate.condition for candidate in invariants]
    quantified = [node for expr in exprs for node in walk(expr) if isinstance(node, Quantified)]
    found = [(node.body, bound) for node in quantified for bound in node.variables if bound.domain.name == sort]
    if any(own(_unreferred(body, bound, instance), bound) for body, bound in found):
        return True
    for candidate in invariants:
        for bound in candidate.parameters:
            left = _unreferred(candidate.condition, bound, instance)
            reads = [node for node in walk(left) if isinstance(node, Read) and not system.by_name[node.variable].rigid]
            if bound.domain.name == sort and own(left, bound) and any(node.index != (bound,) for node in reads):
                return True
    return False


def _unreferred(expr: Expr, bound: Bound, instance: Instance) -> Expr:
    """A condition for an element to which nothing refers: no place beside another element, and no place that holds it."""
    if isinstance(expr, Named):
        return _unreferred(expr.body, bound, instance)
    if isinstance(expr, Read) and bound in expr.index and len(expr.index) > 1:
        variable = instance.system.by_name[expr.variable]
        if not variable.rigid:
            return Const(default_value(instance, variable), expr.type)
    return _without_names(_simplified(expr, lambda part: _unreferred(part, bound, instance), bound), bound)


def _without_names(expr: Expr, bound: Bound) -> Expr:
    """A condition where no place that may hold nothing holds the element."""
    match expr:
        case Apply(operator=Operator.EQ, arguments=(place, Bound() as other) | (Bound() as other, place)):
            return FALSE if other == bound and isinstance(place.type, Maybe) else expr
        case Apply() | Quantified():
            return _simplified(expr, lambda part: _without_names(part, bound), bound)
    return expr


def _simplified(expr: Expr, change: Callable[[Expr], Expr], bound: Bound) -> Expr:
    """`expr` with its parts changed, simplified; a quantifier over the same name is left alone."""
    if isinstance(expr, Quantified) and any(variable.name == bound.name for variable in expr.variables):
        return expr
    return simplified(rebuild(expr, change))


def variables_of(expr: Expr, sort: str) -> int:
    """How many quantified variables of a sort an expression has."""
    return sum(bound.domain.name == sort for node in walk(expr) if isinstance(node, Quantified) for bound in node.variables)


def can_be_a_strangers(variable: Variable, system: TransitionSystem) -> bool:
    """Whether a page whose `variable` holds an unknown former owner can be followed as if it held somebody of whom nothing else is
    known: it is only ever copied, or compared with those that an event or a property is about, and where nobody's data would
    do better than a stranger's, that is in a property, in its favour."""
    if len(variable.keys) != 1 or not isinstance(variable.type, Maybe) or not isinstance(variable.type.domain, Sort):
        return False
    sort = variable.type.domain

    def reads(expr: Expr) -> bool:
        return any(isinstance(node, Read) and node.variable == variable.name for node in walk(expr))

    def fits(expr: Expr, names: frozenset[str], favour: bool | None) -> bool:
        """`favour` says whether the truth of `expr` is in the favour of a property; None: it is a condition of a step."""
        if not reads(expr):
            return True
        flipped = None if favour is None else not favour
        match expr:
            case Named(body=body):
                return fits(body, names, favour)
            case Apply(operator=Operator.EQ, arguments=(Read() as place, Bound(name=name)) | (Bound(name=name), Read() as place)):
                return place.variable == variable.name and name in names and not any(map(reads, place.index))
            case Apply(operator=Operator.IS_NONE, arguments=(Read(variable=read, index=index),)):
                return read == variable.name and favour is True and not any(map(reads, index))
            case Apply(operator=Operator.NOT, arguments=(part,)):
                return fits(part, names, flipped)
            case Apply(operator=Operator.AND | Operator.OR, arguments=parts):
                return all(fits(part, names, favour) for part in parts)
            case Apply(operator=Operator.IMPLIES, arguments=(left, right)):
                return fits(left, names, flipped) and fits(right, names, favour)
            case Quantified(binder=Binder.ALL | Binder.ANY, variables=variables, body=body):
                blank = any(isinstance(node, Apply) and node.operator is Operator.IS_NONE and reads(node) for node in walk(body))
                return not blank and fits(body, names - {bound.name for bound in variables}, favour)
        return False

    for action in system.actions:
        names = frozenset(parameter.name for parameter in action.parameters if parameter.domain == sort)
        conditions = [guard.condition for guard in action.guards]
        conditions += [assertion.condition for assertion in action.assertions]
        conditions += [update.condition for update in action.updates]
        if not all(fits(condition, names, None) for condition in conditions):
            return False
        for update in action.updates:
            copied = update.variable == variable.name and isinstance(update.value, Read) and not any(map(reads, update.value.index))
            if any(map(reads, update.index)) or (reads(update.value) and not copied):
                return False
    instance = Instance.make(system, limit=None)
    for candidate in system.declared:
        if candidate.kind is not PropertyKind.INVARIANT or not reads(candidate.condition):
            continue
        own = [parameter for parameter in candidate.parameters if parameter.domain == sort]
        strange = any(at_default(candidate.condition, parameter, instance) != TRUE for parameter in own)
        if strange or not fits(candidate.condition, frozenset(parameter.name for parameter in own), True):
            return False
    return True


def only_helps(expr: Expr, name: str, positive: bool) -> bool:
    """Whether a relation, where it becomes true, cannot make a condition false."""
    if not any(isinstance(node, Read) and node.variable == name for node in walk(expr)):
        return True
    match expr:
        case Named(body=body):
            return only_helps(body, name, positive)
        case Read(variable=variable, index=index):
            return variable == name and positive and not any(isinstance(node, Read) for part in index for node in walk(part))
        case Quantified(binder=Binder.ALL | Binder.ANY, body=body):
            return only_helps(body, name, positive)
        case Apply(operator=Operator.NOT, arguments=(part,)):
            return only_helps(part, name, not positive)
        case Apply(operator=Operator.AND | Operator.OR, arguments=parts):
            return all(only_helps(part, name, positive) for part in parts)
        case Apply(operator=Operator.IMPLIES, arguments=(left, right)):
            return only_helps(left, name, not positive) and only_helps(right, name, positive)
    return False
