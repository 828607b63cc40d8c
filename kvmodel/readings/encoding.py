"""An instance as a propositional circuit of one state and one step: what the bounded reading unrolls.

What measuring chose:

- A step picks one action and, for each of its parameters, one element: variables for these instead of one for each
  ground action, so a guard or an update is encoded once for each value of the parameters that it mentions.
- A place that holds an element, a member or a count is a variable for each of its values, of which exactly one is true.
- A comparison of rigid numbers is a variable of its own; combinations that no integers show are refused when the
  solver proposes them (`orders.smallest_numbers`), so one query covers every deployment and is plain SAT.
- Elements of a sort that no expression names can be renamed at will: a property is asked for one binding of each kind
  only, and elements that none of these bindings has are used by steps in order (`symmetry.Symmetry`).
"""


from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise, product
from typing import TypeAlias

from kvmodel.errors import InternalError
from kvmodel.language.expressions import Apply, Bound, Const, Expr, FlagRead, Named, Quantified, Read, free_names
from kvmodel.language.instance import Instance
from kvmodel.language.operators import Binder, Operator
from kvmodel.language.system import Action, Anything, Condition, Property, PropertyKind, Variable
from kvmodel.language.types import Bool, Counter, Number, Value
from kvmodel.readings.circuit import FALSE, TRUE, Circuit, Clause, Literal
from kvmodel.readings.orders import Difference, smallest_numbers
from kvmodel.readings.symmetry import Symmetry

__all__ = ["BINDING", "MEANING", "Blocks", "Encoding", "Signal", "Term", "literals_of"]



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


# -- operators ---------------------------------------------------------------------------------------------------------


def _literal(signal: Signal) -> Literal:
    if not isinstance(signal, int):
        raise InternalError("the bounded reading took a value for a truth value")
    return signal


def _options(signal: Signal) -> Options:
    if isinstance(signal, int):
        raise InternalError("the bounded reading took a truth value for a value")
    return signal


def literals_of(signal: Signal) -> tuple[Literal, ...]:
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

    def numbers(self, true: Callable[[Literal], bool]) -> tuple[dict[int, int] | None, tuple[Literal, ...]]:
        """Integers (by rigid slot) that show the comparisons as `true` has them; or None, and a smallest part of these literals that no
        integers show."""
        slots = [slot for slot, kind in enumerate(self.instance.rigid_layout.types) if isinstance(kind, Number)]
        base = [Difference(None, slot, 0) for slot in slots]
        chosen: dict[Literal, Difference] = {}
        for difference, variable in self.comparisons.items():
            if true(variable):
                chosen[variable] = difference
            else:
                chosen[-variable] = difference.negated()
        found = smallest_numbers(slots, [*base, *chosen.values()])
        if found is not None:
            return found, ()
        for literal in list(chosen):
            without = [difference for other, difference in chosen.items() if other != literal]
            if smallest_numbers(slots, [*base, *without]) is None:
                del chosen[literal]
        return None, tuple(chosen)

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
