"""The bounded reading: Z3 looks for a shortest violation of each property, one depth after the other.

An instance becomes a propositional circuit of one state and one step (`Encoding`), whose clauses are written again for
every depth (`circuit.Unrolling`) into one incremental SAT solver. What measuring chose:

- A step picks one action and, for each of its parameters, one element: variables for these instead of one for each
  ground action, so a guard or an update is encoded once for each value of the parameters that it mentions.
- A place that holds an element, a member or a count is a variable for each of its values, of which exactly one is true.
- A comparison of rigid numbers is a variable of its own; combinations that no integers show are refused when the
  solver proposes them (`orders.smallest_numbers`), so one query covers every deployment and is plain SAT.
- Elements of a sort that no expression names can be renamed at will: a property is asked for one binding of each kind
  only, and elements that none of these bindings has are used by steps in order (`symmetry.Symmetry`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, pairwise, product
from typing import TYPE_CHECKING, TypeAlias

from kvmodel.errors import InternalError, MalformedSystem, ReplayError, UsageError
from kvmodel.language.check import writes_that_collide
from kvmodel.language.expressions import Apply, Bound, Const, Expr, FlagRead, Named, Quantified, Read, free_names
from kvmodel.language.instance import Instance, State
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import Action, Anything, Condition, Property, PropertyKind, Variable
from kvmodel.language.types import Bool, Counter, Number, Value
from kvmodel.readings.circuit import FALSE, TRUE, Circuit, Clause, Literal, Unrolling
from kvmodel.readings.orders import Difference, smallest_numbers
from kvmodel.readings.replay import make_trace
from kvmodel.readings.symmetry import Symmetry
from kvmodel.traces.trace import Choice, Trace
from kvmodel.verdict import Coverage, Finding, FindingKind, PropertyResult, Result, Verdict, overall

if TYPE_CHECKING:
    import z3

__all__ = ["BINDING", "MEANING", "Encoding", "bmc"]

BETWEEN_PROGRESS = 0.25  # seconds


@dataclass(frozen=True, slots=True)
class Term:
    """A rigid number as a comparison sees it: the number at `slot` (None: zero) plus a constant."""

    slot: int | None
    constant: int


Key: TypeAlias = Value | Term
Options: TypeAlias = Mapping[Key, Literal]
"""What an expression may be, each with the literal that says that it is; at most one of them is true."""
Signal: TypeAlias = Literal | Options
"""The meaning of an expression: a literal for a truth value, options for anything else."""
Environment: TypeAlias = Mapping[str, Value]


class _Stopped(Exception):
    """The time is over, or the solver gave up; the message says which."""


# -- operators ---------------------------------------------------------------------------------------------------------


def _literal(signal: Signal) -> Literal:
    if not isinstance(signal, int):
        raise InternalError("the bounded reading took a value for a truth value")
    return signal


def _options(signal: Signal) -> Options:
    if isinstance(signal, int):
        raise InternalError("the bounded reading took a truth value for a value")
    return signal


def _literals(signal: Signal) -> tuple[Literal, ...]:
    return (signal,) if isinstance(signal, int) else tuple(signal.values())


def _equal(encoding: Encoding, parts: Sequence[Signal]) -> Signal:
    left, right = parts
    if isinstance(left, int):
        return encoding.circuit.equal(left, _literal(right))
    return encoding.compare(
        left, _options(right), lambda a, b: a == b, lambda a, b: (encoding.at_most(a, b, 0), encoding.at_most(b, a, 0))
    )


def _less(encoding: Encoding, parts: Sequence[Signal]) -> Signal:
    left, right = parts
    return encoding.compare(
        _options(left), _options(right), lambda a, b: _integer(a) < _integer(b), lambda a, b: (encoding.at_most(a, b, -1),)
    )


def _at_most(encoding: Encoding, parts: Sequence[Signal]) -> Signal:
    left, right = parts
    return encoding.compare(
        _options(left), _options(right), lambda a, b: _integer(a) <= _integer(b), lambda a, b: (encoding.at_most(a, b, 0),)
    )


def _sum(encoding: Encoding, parts: Sequence[Signal]) -> Signal:
    total: Options = {0: TRUE}
    for part in parts:
        found: dict[Key, list[Literal]] = {}
        for (a, first), (b, second) in product(total.items(), _options(part).items()):
            found.setdefault(_plus(a, b), []).append(encoding.circuit.conjunction((first, second)))
        total = encoding.gathered(found)
    return total


def _plus(a: Key, b: Key) -> Key:
    if isinstance(a, Term):
        return Term(a.slot, a.constant + _integer(b))
    if isinstance(b, Term):
        return Term(b.slot, b.constant + _integer(a))
    return _integer(a) + _integer(b)


def _integer(key: Key) -> int:
    if isinstance(key, int):
        return key
    raise InternalError(f"the bounded reading counts with {key!r}")


def _choice(encoding: Encoding, parts: Sequence[Signal]) -> Signal:
    condition, then, otherwise = _literal(parts[0]), parts[1], parts[2]
    if isinstance(then, int):
        return encoding.circuit.choice(condition, then, _literal(otherwise))
    other = _options(otherwise)
    keys = dict.fromkeys((*then, *other))
    chosen = {key: encoding.circuit.choice(condition, then.get(key, FALSE), other.get(key, FALSE)) for key in keys}
    return {key: literal for key, literal in chosen.items() if literal != FALSE}


MEANING: dict[Operator, Callable[[Encoding, Sequence[Signal]], Signal]] = {
    Operator.NOT: lambda encoding, parts: -_literal(parts[0]),
    Operator.AND: lambda encoding, parts: encoding.circuit.conjunction(map(_literal, parts)),
    Operator.OR: lambda encoding, parts: encoding.circuit.disjunction(map(_literal, parts)),
    Operator.IMPLIES: lambda encoding, parts: encoding.circuit.disjunction((-_literal(parts[0]), _literal(parts[1]))),
    Operator.EQ: _equal,
    Operator.LT: _less,
    Operator.LE: _at_most,
    Operator.ADD: _sum,
    Operator.IF: _choice,
    Operator.IS_NONE: lambda encoding, parts: _options(parts[0]).get(None, FALSE),
    Operator.THE: lambda encoding, parts: {key: literal for key, literal in _options(parts[0]).items() if key is not None},
}

BINDING: dict[Binder, Callable[[Encoding, Sequence[Signal]], Signal]] = {
    Binder.ALL: lambda encoding, parts: encoding.circuit.conjunction(map(_literal, parts)),
    Binder.ANY: lambda encoding, parts: encoding.circuit.disjunction(map(_literal, parts)),
    Binder.COUNT: lambda encoding, parts: _sum(encoding, [{0: -_literal(part), 1: _literal(part)} for part in parts]),
}


# -- encoding ----------------------------------------------------------------------------------------------------------


@dataclass
class Blocks:
    """Clauses by where they belong: once for a run, in its first state, in every state, at every step."""

    once: list[Clause] = field(default_factory=list)
    first: list[Clause] = field(default_factory=list)
    state: list[Clause] = field(default_factory=list)
    step: list[Clause] = field(default_factory=list)


class Encoding:
    """One state and one step of an instance as a circuit, with the properties in `asked`.

    `violations` has a literal of a state for each property (of `@reachable`: that it is shown); for assertions it is one
    of a step. `now` and `rigid` have a signal for each slot, `actions` and `picks` the literals of the chosen action and
    of the element chosen for the n-th parameter of a domain. `tick` is called often and may raise.
    """

    def __init__(self, instance: Instance, asked: Sequence[Property], tick: Callable[[], None] = lambda: None) -> None:
        self.instance = instance
        self.system = instance.system
        self.tick = tick
        self.circuit: Circuit = Circuit()
        self.blocks = Blocks()
        self.following: dict[Literal, Literal] = {}
        self.comparisons: dict[Difference, Literal] = {}
        self.violations: dict[str, Literal] = {}
        self.actions: dict[str, Literal] = {}
        self.picks: dict[tuple[str, int], dict[Value, Literal]] = {}
        self._pick_of: dict[tuple[str, str], tuple[str, int]] = {}
        self._guards: dict[str, tuple[Expr, ...]] = {}
        self._symmetry = Symmetry(instance)
        self._free: dict[int, tuple[str, ...]] = {}
        self._known: dict[tuple[int, tuple[Value, ...]], Signal] = {}
        rigid, state = instance.rigid_layout, instance.state_layout
        self.rigid: list[Signal] = [self._rigid_place(slot) for slot in range(rigid.length)]
        # A step starts where every counter is in its range, so steps are encoded before counters get values beyond it.
        self.now: list[Signal] = [self._place(slot) for slot in range(state.length)]
        self._choose()
        for action in self.system.actions:
            self._guard(action)
        writers = self._updates()
        enabled = self._enabled() if any(p.kind is PropertyKind.NO_DEADLOCK for p in asked) else FALSE
        for candidate in asked:
            if candidate.kind is PropertyKind.ASSERTION:
                self.violations[candidate.name] = self._broken_assertion(candidate)
        self._beyond = self._widen(writers)
        self._known.clear()
        self._frame(writers)
        in_range = self.circuit.conjunction(-literal for _, _, literal in self._beyond)
        self.add(self.blocks.step, in_range)
        for candidate in asked:
            if candidate.kind is PropertyKind.NO_DEADLOCK:
                self.violations[candidate.name] = self.circuit.conjunction((in_range, -enabled, -self._final()))
            elif candidate.kind is not PropertyKind.ASSERTION:
                self.violations[candidate.name] = self._violated(candidate)
        self._start()
        self._use_in_order()

    # expressions

    def signal(self, expr: Expr, environment: Environment) -> Signal:
        """The meaning of `expr` with its free names given by `environment`."""
        key = (id(expr), tuple(environment[name] for name in self._names(expr)))
        if key not in self._known:
            self._known[key] = self._signal(expr, environment)
        return self._known[key]

    def truth(self, expr: Expr, environment: Environment) -> Literal:
        """The meaning of a truth value."""
        return _literal(self.signal(expr, environment))

    def _names(self, expr: Expr) -> tuple[str, ...]:
        if id(expr) not in self._free:
            self._free[id(expr)] = tuple(sorted(free_names(expr)))
        return self._free[id(expr)]

    def _signal(self, expr: Expr, environment: Environment) -> Signal:
        match expr:
            case Const(value=value, type=kind):
                return (TRUE if value else FALSE) if isinstance(kind, Bool) else {value: TRUE}
            case Bound(name=name):
                return {environment[name]: TRUE}
            case FlagRead(flag=flag):
                return TRUE if self.system.flag_values[flag] else FALSE
            case Named(body=body):
                return self.signal(body, environment)
            case Read(variable, index):
                return self._read(self.system.by_name[variable], [self.signal(part, environment) for part in index])
            case Apply(operator, arguments):
                if operator not in MEANING:
                    raise InternalError(f"the bounded reading has no meaning for operator {operator.value!r}")
                return MEANING[operator](self, [self.signal(part, environment) for part in arguments])
            case Quantified(binder, variables, body):
                if binder not in BINDING:
                    raise InternalError(f"the bounded reading has no meaning for binder {binder.value!r}")
                names = [variable.name for variable in variables]
                return BINDING[binder](
                    self,
                    [
                        self.signal(body, {**environment, **dict(zip(names, values, strict=True))})
                        for values in product(*(self.instance.elements(variable.domain) for variable in variables))
                    ],
                )
        raise InternalError(f"the bounded reading has no rule for {expr!r}")

    def _read(self, variable: Variable, index: Sequence[Signal]) -> Signal:
        layout = self.instance.rigid_layout if variable.rigid else self.instance.state_layout
        places = self.rigid if variable.rigid else self.now
        found = [(when, places[layout.slots[variable.name, place]]) for place, when in self._places(index)]
        if len(found) == 1 and found[0][0] == TRUE:
            return found[0][1]
        if isinstance(variable.type, Bool):
            return self.circuit.disjunction(self.circuit.conjunction((when, _literal(cell))) for when, cell in found)
        values: dict[Key, list[Literal]] = {}
        for when, cell in found:
            for key, literal in _options(cell).items():
                values.setdefault(key, []).append(self.circuit.conjunction((when, literal)))
        return self.gathered(values)

    def _places(self, index: Sequence[Signal]) -> Iterator[tuple[tuple[Value, ...], Literal]]:
        """Each place that an index may stand for, with the literal that says that it does."""
        for chosen in product(*(_options(part).items() for part in index)):
            place: list[Value] = []
            for key, _ in chosen:
                assert not isinstance(key, Term)
                place.append(key)
            yield tuple(place), self.circuit.conjunction(literal for _, literal in chosen)

    def gathered(self, found: Mapping[Key, Sequence[Literal]]) -> Options:
        """Options of which each has several ways to be true."""
        options = {key: self.circuit.disjunction(literals) for key, literals in found.items()}
        return {key: literal for key, literal in options.items() if literal != FALSE}

    def compare(
        self, left: Options, right: Options, values: Callable[[Key, Key], bool], numbers: Callable[[Term, Term], tuple[Literal, ...]]
    ) -> Literal:
        """Whether two values compare: by `values`, or by `numbers` where one of them is a rigid number."""
        if not any(isinstance(key, Term) for key in (*left, *right)):
            pairs = ((a, b) for (x, a), (y, b) in product(left.items(), right.items()) if values(x, y))
            return self.circuit.disjunction(self.circuit.conjunction(pair) for pair in pairs)
        return self.circuit.disjunction(
            self.circuit.conjunction((a, b, *numbers(_term(x), _term(y)))) for (x, a), (y, b) in product(left.items(), right.items())
        )

    def at_most(self, left: Term, right: Term, bound: int) -> Literal:
        """The variable that says ``left - right <= bound``, or what is known of it."""
        bound += right.constant - left.constant
        if left.slot == right.slot:
            return TRUE if bound >= 0 else FALSE
        difference = Difference(left.slot, right.slot, bound)
        if difference.negated() in self.comparisons:
            return -self.comparisons[difference.negated()]
        if difference not in self.comparisons:
            self.comparisons[difference] = self.circuit.variable(static=True)
        return self.comparisons[difference]

    # places

    def _one_of(self, keys: Sequence[Value], clauses: list[Clause], *, static: bool = False) -> Options:
        if len(keys) == 1:
            return {keys[0]: TRUE}
        if len(keys) == 2:
            variable = self.circuit.variable(static=static)
            return {keys[0]: -variable, keys[1]: variable}
        options: dict[Key, Literal] = {key: self.circuit.variable(static=static) for key in keys}
        self._exactly_one(options.values(), clauses)
        return options

    def _exactly_one(self, literals: Iterable[Literal], clauses: list[Clause]) -> None:
        one = tuple(literals)
        clauses.append(one)
        clauses += [(-a, -b) for a, b in combinations(one, 2)]

    def _rigid_place(self, slot: int) -> Signal:
        layout = self.instance.rigid_layout
        (name, place), kind = layout.places[slot], layout.types[slot]
        variable = self.system.by_name[name]
        if variable.partition:
            assert isinstance(place[0], int)
            return {self.instance.part_of[variable.keys[0].name, place[0]]: TRUE}
        if isinstance(kind, Number):
            return {Term(slot, 0): TRUE}
        if isinstance(kind, Bool):
            return self.circuit.variable(static=True)
        return self._one_of(self.instance.values_of(kind), self.blocks.once, static=True)

    def _place(self, slot: int) -> Signal:
        kind = self.instance.state_layout.types[slot]
        if isinstance(kind, Bool):
            return self.circuit.variable()
        if isinstance(kind, Counter):
            return {key: self.circuit.variable() for key in self.instance.values_of(kind)}
        return self._one_of(self.instance.values_of(kind), self.blocks.state)

    def _widen(self, writers: Mapping[int, Sequence[tuple[Literal, Signal]]]) -> list[tuple[str, tuple[Value, ...], Literal]]:
        """Give counters the values beyond their range that a step or the start can bring them to; these, with their places."""
        beyond = []
        layout = self.instance.state_layout
        for slot, ((name, place), kind) in enumerate(zip(layout.places, layout.types, strict=True)):
            if isinstance(kind, Counter):
                options = dict(_options(self.now[slot]))
                initial = self.system.by_name[name].initial
                reached: list[Key] = [] if isinstance(initial, Anything) else [initial]
                for _, value in writers.get(slot, ()):
                    reached += _options(value)
                for key in dict.fromkeys(reached):
                    if key not in options:
                        options[key] = self.circuit.variable()
                        beyond.append((name, place, options[key]))
                self.now[slot] = options
                self._exactly_one(options.values(), self.blocks.state)
        return beyond

    def next(self, literal: Literal) -> Literal:
        """The same literal of the state after the step."""
        variable = abs(literal)
        if variable == TRUE:
            return literal
        if variable not in self.following:
            self.following[variable] = self.circuit.variable()
        return self.following[variable] if literal > 0 else -self.following[variable]

    def add(self, clauses: list[Clause], *literals: Literal) -> None:
        """Add a clause, unless it is always true."""
        kept = tuple(dict.fromkeys(literal for literal in literals if literal != FALSE))
        if TRUE not in kept and not any(-literal in kept for literal in kept):
            clauses.append(kept)

    # steps

    def _choose(self) -> None:
        """Exactly one action, and exactly one element for each of its parameters."""
        step = self.blocks.step
        users: dict[tuple[str, int], set[str]] = {}
        for action in self.system.actions:
            self.actions[action.name] = self.circuit.variable()
            seen: dict[str, int] = {}
            for parameter in action.parameters:
                domain = parameter.domain
                pick = (domain.name, seen.get(domain.name, 0))
                seen[domain.name] = pick[1] + 1
                if pick not in self.picks:
                    self.picks[pick] = {value: self.circuit.variable() for value in self.instance.elements(domain)}
                self._pick_of[action.name, parameter.name] = pick
                users.setdefault(pick, set()).add(action.name)
        self._exactly_one(self.actions.values(), step)
        for pick, options in self.picks.items():
            step += [(-a, -b) for a, b in combinations(options.values(), 2)]
            for name, chosen in self.actions.items():
                if name in users[pick]:
                    step.append((-chosen, *options.values()))
                else:
                    step += [(-chosen, -literal) for literal in options.values()]

    def _selections(self, action: Action, names: Iterable[str]) -> Iterator[tuple[tuple[Literal, ...], dict[str, Value]]]:
        """`action` with each binding of those parameters that are in `names`: the literals that choose it, and the binding."""
        wanted = set(names)
        parameters = tuple(parameter for parameter in action.parameters if parameter.name in wanted)
        for binding in self.instance.bindings(parameters):
            self.tick()
            yield self._selected(action, parameters, binding), _environment(parameters, binding)

    def _selected(self, action: Action, parameters: Sequence[Bound], binding: Sequence[Value]) -> tuple[Literal, ...]:
        chosen = (self.picks[self._pick_of[action.name, p.name]][value] for p, value in zip(parameters, binding, strict=True))
        return (self.actions[action.name], *chosen)

    def _guard(self, action: Action) -> None:
        self._guards[action.name] = tuple(part for guard in action.guards for part in _conjuncts(guard.condition))
        for part in self._guards[action.name]:
            for selected, environment in self._selections(action, self._names(part)):
                self.add(self.blocks.step, *(-literal for literal in selected), self.truth(part, environment))

    def _updates(self) -> dict[int, list[tuple[Literal, Signal]]]:
        """For each slot that steps write: when, and what."""
        writers: dict[int, list[tuple[Literal, Signal]]] = {}
        for action in self.system.actions:
            for update in action.updates:
                names = {name for expr in (*update.index, update.value, update.condition) for name in self._names(expr)}
                for selected, environment in self._selections(action, names - {bound.name for bound in update.over}):
                    chosen = self.circuit.conjunction(selected)
                    for binding in self.instance.bindings(update.over):
                        inner = {**environment, **_environment(update.over, binding)}
                        condition = self.truth(update.condition, inner)
                        if condition == FALSE:
                            continue
                        value = self.signal(update.value, inner)
                        for place, reached in self._places([self.signal(part, inner) for part in update.index]):
                            when = self.circuit.conjunction((chosen, condition, reached))
                            slot = self.instance.state_layout.slots[update.variable, place]
                            writers.setdefault(slot, []).append((when, value))
        return writers

    def _frame(self, writers: Mapping[int, Sequence[tuple[Literal, Signal]]]) -> None:
        """What is written has its new value after the step; everything else stays."""
        step = self.blocks.step
        for slot, cell in enumerate(self.now):
            written = [when for when, _ in writers.get(slot, ())]
            if len(written) > 3:
                written = [self.circuit.disjunction(written)]
            parts: list[tuple[Key, Literal]] = [(True, cell)] if isinstance(cell, int) else list(cell.items())
            if len(parts) == 2 and parts[0][1] == -parts[1][1]:
                del parts[0]  # one says what the other does
            for key, literal in parts:
                after = self.next(literal)
                for when, value in writers.get(slot, ()):
                    new = value if isinstance(value, int) else value.get(key, FALSE)
                    self.add(step, -when, -new, after)
                    self.add(step, -when, new, -after)
                self.add(step, after, -literal, *written)
                self.add(step, -after, literal, *written)

    def _use_in_order(self) -> None:
        """An element is first used by a step after the one before it in its chain: what differs by a renaming is seen once."""
        step = self.blocks.step
        for sort, elements in self._symmetry.chains():
            picks = [options for (name, _), options in sorted(self.picks.items()) if name == sort]
            used = {value: self.circuit.variable() for value in elements[:-1]}
            for value, before in used.items():
                here = [options[value] for options in picks]
                after = self.next(before)
                self.blocks.first.append((-before,))
                for literal in (before, *here):
                    self.add(step, -literal, after)
                self.add(step, -after, before, *here)
            for earlier, value in pairwise(elements):
                for position, options in enumerate(picks):
                    self.add(step, -options[value], used[earlier], *(others[earlier] for others in picks[:position]))

    def _enabled(self) -> Literal:
        return self.circuit.disjunction(self._some(action.parameters, self._guards[action.name], {}) for action in self.system.actions)

    def _some(self, parameters: tuple[Bound, ...], conditions: Sequence[Expr], environment: Environment) -> Literal:
        """Whether some binding makes all conditions true; parameters that no condition brings together are chosen apart."""
        self.tick()
        open_names = {parameter.name for parameter in parameters}
        parts = [self.truth(part, environment) for part in conditions if not open_names & set(self._names(part))]
        if FALSE in parts:
            return FALSE
        groups: list[tuple[set[str], list[Expr]]] = []
        for part in conditions:
            names = open_names & set(self._names(part))
            if names:
                joined = [group for group in groups if group[0] & names]
                groups = [group for group in groups if not group[0] & names]
                groups.append((names.union(*(n for n, _ in joined)), [*(one for _, several in joined for one in several), part]))
        for names, together in groups:
            own = [parameter for parameter in parameters if parameter.name in names]
            first = max(own, key=lambda p: sum(p.name in self._names(part) for part in together))
            rest = tuple(parameter for parameter in own if parameter is not first)
            values = self.instance.elements(first.domain)
            parts.append(self.circuit.disjunction(self._some(rest, together, {**environment, first.name: value}) for value in values))
        return self.circuit.conjunction(parts)

    # properties

    def _violated(self, candidate: Property) -> Literal:
        if candidate.kind is PropertyKind.RANGE:
            asked = set(self._symmetry.representatives(self.system.by_name[candidate.subject].keys))
            return self.circuit.disjunction(out for name, place, out in self._beyond if name == candidate.subject and place in asked)
        sign = 1 if candidate.kind is PropertyKind.REACHABLE else -1
        return self.circuit.disjunction(
            sign * self.truth(candidate.condition, _environment(candidate.parameters, binding))
            for binding in self._symmetry.representatives([parameter.domain for parameter in candidate.parameters])
        )

    def _broken_assertion(self, candidate: Property) -> Literal:
        action = self.system.action(candidate.subject)
        names = set(self._names(candidate.condition))
        parameters = [parameter for parameter in action.parameters if parameter.name in names]
        return self.circuit.disjunction(
            self.circuit.conjunction(
                (*self._selected(action, parameters, binding), -self.truth(candidate.condition, _environment(parameters, binding)))
            )
            for binding in self._symmetry.representatives([parameter.domain for parameter in parameters])
        )

    def _for_all(self, condition: Condition) -> list[Literal]:
        bindings = self.instance.bindings(condition.parameters)
        return [self.truth(condition.condition, _environment(condition.parameters, binding)) for binding in bindings]

    def _final(self) -> Literal:
        return self.circuit.disjunction(self.circuit.conjunction(self._for_all(final)) for final in self.system.finals)

    def _start(self) -> None:
        for assumption in self.system.assumptions:
            for literal in self._for_all(assumption):
                self.add(self.blocks.once, literal)
        for condition in self.system.initial:
            for literal in self._for_all(condition):
                self.add(self.blocks.first, literal)
        layout = self.instance.state_layout
        for (name, _), kind, cell in zip(layout.places, layout.types, self.now, strict=True):
            initial = self.system.by_name[name].initial
            if isinstance(initial, Anything):
                if isinstance(kind, Counter):
                    self.add(self.blocks.first, *(_options(cell)[value] for value in self.instance.values_of(kind)))
            elif isinstance(cell, int):
                self.add(self.blocks.first, cell if initial else -cell)
            else:
                self.add(self.blocks.first, cell.get(initial, FALSE))


def _environment(parameters: Sequence[Bound], binding: Sequence[Value]) -> dict[str, Value]:
    return dict(zip((parameter.name for parameter in parameters), binding, strict=True))


def _term(key: Key) -> Term:
    return key if isinstance(key, Term) else Term(None, _integer(key))


def _conjuncts(expr: Expr) -> Iterator[Expr]:
    match expr:
        case Named(body=body):
            yield from _conjuncts(body)
        case Apply(operator=Operator.AND, arguments=arguments):
            for part in arguments:
                yield from _conjuncts(part)
        case _:
            yield expr


# -- the search --------------------------------------------------------------------------------------------------------


def bmc(
    instance: Instance,
    properties: Sequence[str] = (),
    *,
    depth: int,
    timeout: float | None = None,
    seed: int = 0,
    complete: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Result:
    """Look for a shortest violation of each property (all, or the named ones) in every run of up to `depth` steps.

    A property that is not violated holds for ``this depth``; one that is `@reachable` and was not shown is undecided.
    With `complete`, each depth also asks for a longer run without a repeated state: when there is none, every reachable
    state was seen, and what was not violated holds for ``this size``, with the reason. After `timeout` seconds, at Ctrl-C
    or when the solver gives up, what is open is undecided, with the depth reached. The same `seed` gives the same answer.

    Raises UsageError for an unknown property, and for assumptions or initial conditions that contradict each other.
    """
    started = time.monotonic()
    asked = tuple(instance.system.property(name) for name in properties) or instance.system.properties
    for action in instance.system.actions:
        if any(writes_that_collide(action)):
            raise MalformedSystem(f"{instance.system.name}: {action.name} may write one place twice in one step")
    search = _Search(instance, asked, None if timeout is None else started + timeout, seed, progress)
    try:
        search.run(depth, complete)
    except _Stopped as stop:
        search.stopped = str(stop)
    except KeyboardInterrupt:
        search.stopped = "interrupted"
    results = tuple(search.judge(candidate, depth, complete) for candidate in asked)
    reached = min((search.covered[name] for name in search.open), default=search.depth)
    return Result(
        instance.system.name,
        "bmc",
        overall(results),
        search.coverage(None if search.threshold else reached),
        results,
        search.findings,
        (("depth", max(search.depth, 0)), ("queries", search.queries), ("conflicts", search.conflicts), ("variables", search.variables)),
        time.monotonic() - started,
        tuple(properties),
    )


class _Search:
    """The state of one call of `bmc`: what is open, how far each property was followed, and the traces found."""

    def __init__(
        self, instance: Instance, asked: Sequence[Property], deadline: float | None, seed: int, progress: Callable[[str], None] | None
    ) -> None:
        self.instance = instance
        self.asked = asked
        self.deadline = deadline
        self.seed = seed
        self.progress = progress
        self.open = [candidate.name for candidate in asked]
        self.covered = dict.fromkeys(self.open, -1)
        self.traces: dict[str, Trace] = {}
        self.findings: tuple[Finding, ...] = ()
        self.depth = -1
        self.stopped = ""
        self.threshold = ""
        self.queries = 0
        self._told = 0.0
        self._solver: _Solver | None = None

    @property
    def conflicts(self) -> int:
        return self._solver.conflicts if self._solver is not None else 0

    @property
    def variables(self) -> int:
        return self._solver.unrolling.top if self._solver is not None else 0

    def run(self, most: int, complete: bool) -> None:
        """Ask for each depth up to `most`. Raises _Stopped."""
        self._tell("encoding")
        encoding = Encoding(self.instance, self.asked, self._tick)
        solver = self._solver = _Solver(encoding, self.seed, self.deadline)
        solver.begin(self.instance)
        self._judge_state(encoding, solver, 0)
        for depth in range(most + 1):
            if not self.open or (depth == most and not complete):
                return
            solver.step(depth)
            if depth == 0 and not solver.satisfiable():
                system = self.instance.system
                message = "no action is enabled in any initial state: no step can violate anything"
                self.findings = (Finding(FindingKind.NOTHING_HAPPENED, system.name, str(system.at), message),)
            if complete and not solver.goes_on(depth + 1):
                self._judge_step(encoding, solver, depth + 1)  # a step from a state that was seen, to wherever
                self.threshold = f"no loop-free path of {depth + 1} steps: recurrence diameter {depth}"
                return
            if depth < most:
                self._judge_step(encoding, solver, depth + 1)
                self._judge_state(encoding, solver, depth + 1)

    def _judge_state(self, encoding: Encoding, solver: _Solver, depth: int) -> None:
        for candidate in self.asked:
            if candidate.kind is not PropertyKind.ASSERTION and candidate.name in self.open:
                self._ask(encoding, solver, candidate.name, depth, depth)
        if depth == 0:
            self.covered.update((p.name, 0) for p in self.asked if p.kind is PropertyKind.ASSERTION)
        self.depth = depth

    def _judge_step(self, encoding: Encoding, solver: _Solver, depth: int) -> None:
        """Assertions of the step that leads to `depth`."""
        for candidate in self.asked:
            if candidate.kind is PropertyKind.ASSERTION and candidate.name in self.open:
                self._ask(encoding, solver, candidate.name, depth - 1, depth)

    def _ask(self, encoding: Encoding, solver: _Solver, name: str, at: int, length: int) -> None:
        """Whether a run of `length` steps violates a property; its literal is one of the state or the step at depth `at`."""
        self._tick()
        self._tell(f"depth {length}: {name} ({len(self.open)} open)")
        self.queries += 1
        violation = encoding.violations[name]
        if violation != FALSE and solver.satisfiable((violation, at)):
            start, choices = solver.found(length)
            try:
                self.traces[name] = make_trace(self.instance, start, choices, name)
            except ReplayError as error:
                raise InternalError(f"the bounded reading's trace for '{name}' does not replay: {error}") from error
            self.open.remove(name)
        elif violation != FALSE:
            solver.never(violation, at)
        self.covered[name] = length

    def judge(self, candidate: Property, most: int, complete: bool) -> PropertyResult:
        """The answer for one property."""
        name, shown = candidate.name, candidate.kind is PropertyKind.REACHABLE
        coverage = self.coverage(self.covered[name])
        if name in self.traces:
            return PropertyResult(name, Verdict.HOLDS if shown else Verdict.VIOLATED, coverage, self.traces[name], reachable=shown)
        if self.threshold:
            verdict = Verdict.VIOLATED if shown else Verdict.HOLDS
            return PropertyResult(name, verdict, self.coverage(None), None, self.threshold, shown)
        if self.covered[name] < most:
            reached = f"after depth {self.covered[name]}" if self.covered[name] >= 0 else "before any state was looked at"
            return PropertyResult(name, Verdict.UNDECIDED, coverage, None, f"{self.stopped} {reached}", shown)
        if shown:
            return PropertyResult(name, Verdict.UNDECIDED, coverage, None, f"no run of up to {most} steps shows it", True)
        reason = f"longer runs reach new states: loop-free paths of {most + 1} steps exist" if complete and not self.stopped else ""
        return PropertyResult(name, Verdict.HOLDS, coverage, None, reason)

    def coverage(self, steps: int | None) -> Coverage:
        flags = tuple(self.instance.system.flag_values.items())
        return Coverage(self.instance.size_options(), None if steps is None else max(steps, 0), None, flags)

    def _tick(self) -> None:
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise _Stopped("timeout")

    def _tell(self, line: str) -> None:
        now = time.monotonic()
        if self.progress is not None and now - self._told >= BETWEEN_PROGRESS:
            self._told = now
            self.progress(line)


class _Solver:
    """Z3's SAT solver with the runs of an encoding unrolled so far; a context of its own, so that calls do not mix."""

    def __init__(self, encoding: Encoding, seed: int, deadline: float | None) -> None:
        import z3

        self.encoding = encoding
        self.deadline = deadline
        self.unrolling = Unrolling(encoding.circuit, encoding.following)
        self._z3 = z3
        self._context = z3.Context()
        self._solver = z3.SolverFor("QF_FD", ctx=self._context)
        self._solver.set("random_seed", seed)
        self._loop_free = 0
        self._model: z3.ModelRef | None = None
        self._numbers: dict[int, int] = {}
        self._once: list[Clause] = [(TRUE,)]
        self._state, self._step, self._first = self._collect()

    def _collect(self) -> list[list[Clause]]:
        """The clauses of every state, of every step and of the first state, with the gates that they rest on; gates that
        are static go to what is loaded once."""
        circuit, blocks = self.encoding.circuit, self.encoding.blocks
        asserted: list[Literal] = []
        judged: list[Literal] = []
        for name, literal in self.encoding.violations.items():
            (asserted if self.encoding.system.property(name).kind is PropertyKind.ASSERTION else judged).append(literal)
        known: set[int] = set()
        collected = []
        for clauses, roots in ((blocks.state, judged), (blocks.step, asserted), (blocks.first, []), (blocks.once, [])):
            gates = circuit.definitions([*chain.from_iterable(clauses), *roots], known)
            known |= gates.keys()
            found = list(clauses)
            for gate, definition in gates.items():
                (self._once if gate in circuit.static else found).extend(definition)
            collected.append(found)
        self._once += collected.pop()
        return collected

    def begin(self, instance: Instance) -> None:
        """The rigid things and the first state. Raises UsageError when there is none."""
        self._load((self._once, 0))
        if not self.satisfiable():
            name, size = instance.system.name, instance.describe_size()
            raise UsageError(f"the assumptions of {name} contradict each other at {size}: no deployment satisfies them")
        self._load((self._first, 0), (self._state, 0))
        if not self.satisfiable():
            name, size = instance.system.name, instance.describe_size()
            raise UsageError(f"{name} has no initial state at {size}: its initial conditions contradict each other")

    def step(self, depth: int) -> None:
        """One more step, from the state at `depth`."""
        self._load((self._step, depth), (self._state, depth + 1))

    def satisfiable(self, *literals: tuple[Literal, int]) -> bool:
        """Whether there is a run, with each of the literals true at its depth. Raises _Stopped."""
        return self._check([self.unrolling.number(literal, depth) for literal, depth in literals])

    def never(self, literal: Literal, depth: int) -> None:
        """Note that a literal is false at a depth of every run."""
        self._solver.add(self._bool(-self.unrolling.number(literal, depth)))

    def goes_on(self, depth: int) -> bool:
        """Whether a run has `depth` steps and no state twice. Raises _Stopped."""
        if not self._loop_free:
            self._loop_free = self.unrolling.fresh()
        variables = sorted({abs(literal) for cell in self.encoding.now for literal in _literals(cell)} - {TRUE})
        clauses: list[Clause] = []
        for earlier in range(depth):
            differs = []
            for variable in variables:
                a, b, one = self.unrolling.number(variable, earlier), self.unrolling.number(variable, depth), self.unrolling.fresh()
                differs.append(one)
                clauses += [(-one, a, b), (-one, -a, -b)]
            clauses.append((-self._loop_free, *differs))
        self._add(clauses)
        return self._check([self._loop_free])

    def found(self, length: int) -> tuple[State, tuple[Choice, ...]]:
        """The run that was found last: its initial state and its steps."""
        encoding, instance = self.encoding, self.encoding.instance
        rigid = tuple(
            self._numbers[slot] if isinstance(kind, Number) else self._value(encoding.rigid[slot], 0)
            for slot, kind in enumerate(instance.rigid_layout.types)
        )
        start = State(rigid, tuple(self._value(cell, 0) for cell in encoding.now))
        return start, tuple(self._choice(depth) for depth in range(length))

    def _choice(self, depth: int) -> Choice:
        (name,) = [name for name, literal in self.encoding.actions.items() if self._true(literal, depth)]
        seen: dict[str, int] = {}
        binding = []
        for parameter in self.encoding.system.action(name).parameters:
            domain = parameter.domain.name
            binding.append(self._value(self.encoding.picks[domain, seen.get(domain, 0)], depth))
            seen[domain] = seen.get(domain, 0) + 1
        return Choice(name, tuple(binding))

    def _value(self, signal: Signal | Mapping[Value, Literal], depth: int) -> Value:
        if isinstance(signal, int):
            return self._true(signal, depth)
        (key,) = [key for key, literal in signal.items() if self._true(literal, depth)]
        assert not isinstance(key, Term)
        return key

    def _true(self, literal: Literal, depth: int) -> bool:
        assert self._model is not None
        number = self.unrolling.number(literal, depth)
        variable = self._z3.Bool(abs(number), self._context)
        return self._z3.is_true(self._model.eval(variable, model_completion=True)) is (number > 0)

    def _load(self, *parts: tuple[Sequence[Clause], int]) -> None:
        self._give([line for clauses, depth in parts for line in self.unrolling.lines(clauses, depth)])

    def _add(self, clauses: Sequence[Clause]) -> None:
        """Clauses over numbers that the unrolling has given."""
        self._give([" ".join(map(str, (*clause, 0))) for clause in clauses])

    def _give(self, lines: Sequence[str]) -> None:
        """Clauses as lines of DIMACS: several times faster to load than Z3's expressions (measured: 4 against 24 microseconds each)."""
        self._solver.from_string("\n".join([f"p cnf {self.unrolling.top} {len(lines)}", *lines, ""]))

    def _check(self, numbers: Sequence[int]) -> bool:
        """Whether the clauses are satisfiable with these literals, and with integers for the comparisons. Raises _Stopped."""
        assumptions = [self._bool(number) for number in numbers]
        while True:
            if self.deadline is not None:
                left = self.deadline - time.monotonic()
                if left <= 0:
                    raise _Stopped("timeout")
                self._solver.set("timeout", max(1, int(left * 1000)))
            answer = self._solver.check(*assumptions)
            if answer == self._z3.unsat:
                return False
            if answer != self._z3.sat:
                raise _Stopped(_why(self._solver.reason_unknown(), self.deadline))
            self._model = self._solver.model()
            if self._find_numbers():
                return True

    def _bool(self, number: int) -> z3.BoolRef:
        variable: z3.BoolRef = self._z3.Bool(abs(number), self._context)
        return variable if number > 0 else self._z3.Not(variable)

    def _find_numbers(self) -> bool:
        """Whether integers show the comparisons of the model; if not, a smallest part that none show is ruled out."""
        encoding = self.encoding
        slots = [slot for slot, kind in enumerate(encoding.instance.rigid_layout.types) if isinstance(kind, Number)]
        base = [Difference(None, slot, 0) for slot in slots]
        chosen: dict[Literal, Difference] = {}
        for difference, variable in encoding.comparisons.items():
            if self._true(variable, 0):
                chosen[variable] = difference
            else:
                chosen[-variable] = difference.negated()
        found = smallest_numbers(slots, [*base, *chosen.values()])
        if found is not None:
            self._numbers = found
            return True
        for literal in list(chosen):
            without = [difference for other, difference in chosen.items() if other != literal]
            if smallest_numbers(slots, [*base, *without]) is None:
                del chosen[literal]
        self._add([tuple(-self.unrolling.number(literal, 0) for literal in chosen)])
        return False

    @property
    def conflicts(self) -> int:
        """Conflicts of the SAT solver so far."""
        return int(dict(list(self._solver.statistics())).get("sat conflicts", 0))


def _why(reason: str, deadline: float | None) -> str:
    """Why the solver did not answer."""
    if "interrupt" in reason:
        return "interrupted"
    if deadline is not None and ("timeout" in reason or "cancel" in reason):
        return "timeout"
    return f"the solver gave up ({reason})"
