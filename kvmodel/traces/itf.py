"""Traces as files, in the Informal Trace Format (ITF) of Apalache and Quint, so that their viewers open them.

A file is one JSON object: ``#meta`` (what made the trace and how to check it again), ``params`` (rigid variables, given
in the first state), ``vars`` (the others, given in every state) and ``states``. The ``#meta`` of a state names the
action that led to it and its arguments. Values: a relation is a ``#set`` of its true indices (``#tup`` for several
keys), a function a ``#map``, a possible none a variant (``{"tag": "Some", "value": "r0"}`` or ``None``), an element of
a sort its label (``"decode.p1"``), an integer beyond 2**53 - 1 a ``#bigint``.

A trace that was observed on a real engine says so in ``#meta``, with what the steps of such a trace are; the ``#meta`` of
its states has what the engine was asked to do.

A file is untrusted: its size is bounded, every value is checked against the spec, and whoever reads one replays it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from kvmodel.errors import KvmodelError, TraceFileError, nearest, printable
from kvmodel.language.instance import Instance, Layout, State
from kvmodel.language.system import TransitionSystem, Variable
from kvmodel.language.types import Bool, Counter, Domain, Element, Maybe, Number, Value
from kvmodel.traces.observed import Call, Observed, Verb
from kvmodel.traces.trace import Choice, Trace

__all__ = ["FORMAT", "Observe", "Resolve", "itf_object", "parse_itf", "read_itf", "write_itf"]

FORMAT = 1  # the version of what this module writes into `#meta` and expects there
DESCRIPTION = "https://apalache-mc.org/docs/adr/015adr-trace.html"
LARGEST_FILE = 64_000_000  # bytes
LARGEST_TRACE = 20_000_000  # values: states times the values of a state
SAFE_INTEGER = 2**53 - 1
LONGEST_NAME = 1_000
BIGINT = re.compile(r"-?[0-9]{1,100}")

PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,60}")

Resolve = Callable[[str], TransitionSystem]
Observe = Callable[[TransitionSystem, Observed], TransitionSystem]


class VerbMeta(msgspec.Struct):
    """Something that the engine of an observed trace can be asked to do."""

    name: str
    doc: str = ""
    request: bool = False


class ObservedMeta(msgspec.Struct):
    """Where an observed trace comes from."""

    engine: str
    version: str
    adapter: str
    pools: list[str]
    verbs: list[VerbMeta]
    unknown: list[str] = []
    finding: str = ""


class Meta(msgspec.Struct, rename={"format_version": "format-version"}):
    """What `#meta` of a file must say; other tools may add to it."""

    format_version: int
    spec: str
    flags: dict[str, bool]
    sizes: dict[str, int]
    property: str = ""
    observed: ObservedMeta | None = None


class StateMeta(msgspec.Struct):
    """`#meta` of a state: the step that led to it; the first state has none."""

    action: str = ""
    arguments: dict[str, str] = {}
    call: dict[str, Any] = {}


class File(msgspec.Struct, rename={"meta": "#meta"}):
    """An ITF file. The values of states are checked against the spec, one by one."""

    meta: Meta
    vars: list[str]
    states: list[dict[str, Any]]
    params: list[str] = []
    loop: int | None = None


def itf_object(trace: Trace) -> dict[str, object]:
    """The trace as an ITF object (`json.dumps` of it is a file)."""
    names = _Names(trace.instance)
    system = trace.instance.system
    states: list[dict[str, object]] = []
    for number, state in enumerate(trace.states):
        entry: dict[str, object] = {"#meta": {"index": number}}
        if number:
            choice = trace.steps[number - 1]
            parameters = system.action(choice.action).parameters
            labels = {p.name: names.label(p.domain, value) for p, value in zip(parameters, choice.binding, strict=True)}
            entry["#meta"] = {"index": number, "action": choice.action, "arguments": labels, **_call(trace.observed, number)}
        else:
            entry |= _encode(names, trace.instance.rigid_layout, state.rigid)
        entry |= _encode(names, trace.instance.state_layout, state.values)
        states.append(entry)
    return {
        "#meta": {
            "format": "ITF",
            "format-description": DESCRIPTION,
            "format-version": FORMAT,
            "tool": f"kvmodel {version('kvmodel')}",
            "spec": system.name,
            "flags": dict(system.flag_values),
            "sizes": dict(trace.instance.size_options()),
            "property": trace.property,
            **_observed(trace.observed),
        },
        "params": [variable.name for variable in system.rigid_variables],
        "vars": [variable.name for variable in system.state_variables],
        "states": states,
    }


def _observed(observed: Observed | None) -> dict[str, object]:
    if observed is None:
        return {}
    verbs = [{"name": verb.name, "doc": verb.doc, "request": verb.request} for verb in observed.verbs]
    meta = {"engine": observed.engine, "version": observed.version, "adapter": observed.adapter, "finding": observed.finding}
    return {"observed": {**meta, "pools": list(observed.pools), "unknown": list(observed.unknown), "verbs": verbs}}


def _call(observed: Observed | None, number: int) -> dict[str, object]:
    return {} if observed is None else {"call": dict(observed.calls[number - 1])}


def write_itf(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write the trace to a file, whole or not at all. Raises TraceFileError when that is not possible."""
    target = Path(path)
    data = _lines(itf_object(trace))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        try:
            with open(temporary, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        raise TraceFileError(f"{printable(str(target))}: the trace was not saved: {reason}") from None


def _lines(itf: dict[str, object]) -> bytes:
    """The text of a file: one line a state, so that a person can look through it and compare two."""
    states = itf["states"]
    assert isinstance(states, list)
    head = b"".join(b'"%s": %s,\n' % (key.encode(), msgspec.json.encode(value)) for key, value in itf.items() if key != "states")
    return b"{" + head + b'"states": [\n' + b",\n".join(msgspec.json.encode(state) for state in states) + b"\n]}\n"


def read_itf(path: str | os.PathLike[str], resolve: Resolve, observe: Observe | None = None) -> Trace:
    """Read a trace from a file. `resolve` finds the spec by the name in the file, which is untrusted text; `observe` makes the
    system of an observed trace from that (`readings.observed`), which is refused without it.

    The caller replays the trace: only then is it known to be a run of the spec. Raises TraceFileError, with the file
    and the place in it, for a file that is missing, too large, not ITF, or does not fit the spec.
    """
    shown = printable(str(path))
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        raise TraceFileError(f"{shown}: the file cannot be read: {reason}") from None
    if len(data) > LARGEST_FILE:
        raise TraceFileError(f"{shown}: the file has more than {LARGEST_FILE:,} bytes")
    return parse_itf(data, resolve, shown, observe)


def parse_itf(data: bytes, resolve: Resolve, shown: str = "trace", observe: Observe | None = None) -> Trace:
    """The trace in the text of a file that messages call `shown`; see `read_itf`."""
    try:
        file = msgspec.json.decode(data, type=File)
    except msgspec.ValidationError as problem:
        raise TraceFileError(f"{shown}: {_placed(problem, '$')}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise TraceFileError(f"{shown}: not JSON: {printable(str(problem), 300)}") from None
    except RecursionError:
        raise TraceFileError(f"{shown}: not a trace: nested too deeply") from None
    return _Reader(file, shown).trace(resolve, observe)


class _Names:
    """The labels of the elements of an instance, each made once."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.by_domain: dict[str, dict[Value, str]] = {}
        self.elements: dict[str, dict[str, Value]] = {}

    def label(self, domain: Domain, value: Value) -> str:
        return self.labels(domain)[value]

    def labels(self, domain: Domain) -> Mapping[Value, str]:
        if domain.name not in self.by_domain:
            self.by_domain[domain.name] = {v: self.instance.label(domain, v) for v in self.instance.elements(domain)}
        return self.by_domain[domain.name]

    def element(self, domain: Domain, label: str) -> Value:
        """The element called `label`, or None."""
        if domain.name not in self.elements:
            self.elements[domain.name] = {name: value for value, name in self.labels(domain).items()}
        return self.elements[domain.name].get(label)


def _encode(names: _Names, layout: Layout, values: tuple[Value, ...]) -> dict[str, object]:
    found: dict[str, object] = {}
    for variable in layout.variables:
        offset = layout.offsets[variable.name]
        indices = list(product(*(layout.domains[key.name] for key in variable.keys)))
        mine = values[offset : offset + len(indices)]
        if not variable.keys:
            found[variable.name] = _value(names, variable, mine[0])
            continue
        shown = [[names.label(key, part) for key, part in zip(variable.keys, index, strict=True)] for index in indices]
        keys: list[object] = [index[0] if len(index) == 1 else {"#tup": index} for index in shown]
        if isinstance(variable.type, Bool):
            found[variable.name] = {"#set": [key for key, value in zip(keys, mine, strict=True) if value]}
        else:
            found[variable.name] = {"#map": [[key, _value(names, variable, value)] for key, value in zip(keys, mine, strict=True)]}
    return found


def _value(names: _Names, variable: Variable, value: Value) -> object:
    match variable.type:
        case Element(domain):
            return names.label(domain, value)
        case Maybe(domain):
            return {"tag": "None", "value": {"#tup": []}} if value is None else {"tag": "Some", "value": names.label(domain, value)}
        case _ if isinstance(value, int) and abs(value) > SAFE_INTEGER:
            return {"#bigint": str(value)}
        case _:
            return value


class _Reader:
    """Turns a decoded file into a trace, with the place of whatever does not fit."""

    def __init__(self, file: File, shown: str) -> None:
        self.file = file
        self.shown = shown

    def error(self, place: str, message: str) -> TraceFileError:
        return TraceFileError(f"{self.shown}: {place}: {message}")

    def trace(self, resolve: Resolve, observe: Observe | None) -> Trace:
        meta = self.file.meta
        if meta.format_version != FORMAT:
            raise self.error("$.#meta.format-version", f"version {meta.format_version} is not known; this kvmodel reads version {FORMAT}")
        if self.file.loop is not None:
            raise self.error("$.loop", "a trace with a loop is not a finite run")
        if not self.file.states:
            raise self.error("$.states", "there is no state")
        observed = None if meta.observed is None else self.observed(meta.observed)
        self.instance = self.instance_of(self.system_of(resolve, observed, observe))
        self.names = _Names(self.instance)
        size = len(self.file.states) * (self.instance.state_layout.length + self.instance.rigid_layout.length)
        if size > LARGEST_TRACE:
            raise self.error("$.states", f"the trace has {size:,} values at its sizes; at most {LARGEST_TRACE:,}")
        self.check_names("$.params", self.file.params, self.instance.system.rigid_variables)
        self.check_names("$.vars", self.file.vars, self.instance.system.state_variables)
        states, steps = [], []
        rigid: tuple[Value, ...] = ()
        for number, entry in enumerate(self.file.states):
            place = f"$.states[{number}]"
            if number:
                steps.append(self.step(place + ".#meta", entry.get("#meta")))
            else:
                rigid = self.values(place, entry, self.instance.rigid_layout)
            states.append(State(rigid, self.values(place, entry, self.instance.state_layout)))
        return Trace(self.instance, tuple(states), tuple(steps), meta.property, observed)

    def observed(self, meta: ObservedMeta) -> Observed:
        place = "$.#meta.observed"
        names = {verb.name for verb in meta.verbs}
        for name in (*meta.pools, *names) if meta.pools != [""] else names:
            if not PLAIN_NAME.fullmatch(name):
                raise self.error(place, f"{_quoted(name)} is not a name of a pool or of a verb")
        if not meta.pools or len({name.upper() for name in meta.pools}) < len(meta.pools) or len(names) < len(meta.verbs):
            raise self.error(place, "pools, or verbs, have no names of their own")
        texts = [printable(text, LONGEST_NAME) for text in (meta.engine, meta.version, meta.adapter)]
        verbs = tuple(Verb(verb.name, printable(verb.doc, LONGEST_NAME), verb.request) for verb in meta.verbs)
        calls = tuple(self.call(number) for number in range(1, len(self.file.states)))
        finding = printable(meta.finding, LONGEST_NAME)
        return Observed(texts[0], texts[1], texts[2], tuple(meta.pools), tuple(meta.unknown), verbs, calls, finding)

    def call(self, number: int) -> Call:
        meta = self.file.states[number].get("#meta")
        call = meta.get("call") if isinstance(meta, dict) else None
        if not isinstance(call, dict) or not isinstance(call.get("verb"), str):
            raise self.error(f"$.states[{number}].#meta.call", "an observed trace says for every step what the engine was asked to do")
        return call

    def system_of(self, resolve: Resolve, observed: Observed | None, observe: Observe | None) -> TransitionSystem:
        meta = self.file.meta
        if not meta.spec or len(meta.spec) > LONGEST_NAME or not meta.spec.isprintable():
            raise self.error("$.#meta.spec", f"{_quoted(meta.spec)} is not the name of a spec")
        try:
            system = resolve(meta.spec)
        except KvmodelError as problem:
            raise self.error("$.#meta.spec", f"the spec {_quoted(meta.spec)} cannot be loaded:\n{problem}") from None
        if observed is not None:
            if observe is None:
                raise self.error("$.#meta.observed", "this trace was observed on an engine, and a run of the spec is asked for")
            try:
                system = observe(system, observed)
            except KvmodelError as problem:
                raise self.error("$.#meta.observed", printable(str(problem), 300)) from None
        known = list(system.flag_values)
        for flag in meta.flags:
            if flag not in known:
                raise self.error("$.#meta.flags", f"{system.name} has no flag {_quoted(flag)}{nearest(flag, known)}")
        changed = {flag: value for flag, value in meta.flags.items() if value != system.flag_values[flag]}
        names = [candidate.name for candidate in system.properties]
        if meta.property and meta.property not in names:
            raise self.error("$.#meta.property", f"{system.name} has no property {_quoted(meta.property)}{nearest(meta.property, names)}")
        try:
            return system.with_flags(changed)
        except KvmodelError as problem:
            raise self.error("$.#meta.flags", str(problem)) from None

    def instance_of(self, system: TransitionSystem) -> Instance:
        try:
            return Instance.make(system, {printable(name, 100): size for name, size in self.file.meta.sizes.items()})
        except KvmodelError as problem:
            raise self.error("$.#meta.sizes", str(problem)) from None

    def check_names(self, place: str, given: list[str], variables: tuple[Variable, ...]) -> None:
        known = [variable.name for variable in variables]
        for name in given:
            if name not in known:
                raise self.error(place, f"{self.instance.system.name} has no such variable {_quoted(name)}{nearest(name, known)}")
        for name in known:
            if name not in given:
                raise self.error(place, f"the variable '{name}' is missing")

    def step(self, place: str, given: object) -> Choice:
        try:
            meta = msgspec.convert(given, StateMeta)
        except msgspec.ValidationError as problem:
            raise TraceFileError(f"{self.shown}: {_placed(problem, place)}") from None
        known = {action.name: action for action in self.instance.system.actions}
        if meta.action not in known:
            raise self.error(
                place + ".action", f"{self.instance.system.name} has no action {_quoted(meta.action)}{nearest(meta.action, list(known))}"
            )
        parameters = known[meta.action].parameters
        names = [parameter.name for parameter in parameters]
        if sorted(meta.arguments) != sorted(names):
            raise self.error(place + ".arguments", f"{meta.action} takes {', '.join(names) or 'no arguments'}")
        binding = tuple(self.label(f"{place}.arguments.{p.name}", p.domain, meta.arguments[p.name]) for p in parameters)
        return Choice(meta.action, binding)

    def label(self, place: str, domain: Domain, given: object) -> Value:
        value = self.names.element(domain, given) if isinstance(given, str) else None
        if value is None:
            raise self.error(place, f"{_quoted(given)} is not a {domain.name} of this size")
        return value

    def values(self, place: str, entry: dict[str, Any], layout: Layout) -> tuple[Value, ...]:
        values: list[Value] = []
        for variable in layout.variables:
            if variable.name not in entry:
                raise self.error(place, f"the variable '{variable.name}' is missing")
            values += self.variable(f"{place}.{variable.name}", variable, entry[variable.name])
        return tuple(values)

    def variable(self, place: str, variable: Variable, given: object) -> Iterator[Value]:
        if not variable.keys:
            return iter((self.value(place, variable, (), given),))
        indices = list(product(*(self.instance.domains[key.name] for key in variable.keys)))
        if isinstance(variable.type, Bool):
            members = {self.index(f"{place}.#set[{i}]", variable, key) for i, key in enumerate(self.listed(place, given, "#set"))}
            return iter([index in members for index in indices])
        found: dict[tuple[Value, ...], Value] = {}
        for position, pair in enumerate(self.listed(place, given, "#map")):
            inner = f"{place}.#map[{position}]"
            if not isinstance(pair, list) or len(pair) != 2:
                raise self.error(inner, "an entry of a map is a list of a key and a value")
            index = self.index(f"{inner}[0]", variable, pair[0])
            if index in found:
                raise self.error(inner, "the key is there twice")
            found[index] = self.value(f"{inner}[1]", variable, index, pair[1])
        if len(found) != len(indices):
            raise self.error(place, f"the map has {len(found)} entries and needs {len(indices)}: one for every key")
        return iter([found[index] for index in indices])

    def listed(self, place: str, given: object, tag: str) -> list[object]:
        if not isinstance(given, dict) or set(given) != {tag} or not isinstance(given[tag], list):
            raise self.error(place, f'expected {{"{tag}": [...]}}')
        found: list[object] = given[tag]
        return found

    def index(self, place: str, variable: Variable, given: object) -> tuple[Value, ...]:
        parts = [given] if len(variable.keys) == 1 else self.listed(place, given, "#tup")
        if len(parts) != len(variable.keys):
            raise self.error(place, f"'{variable.name}' has {len(variable.keys)} keys, not {len(parts)}")
        return tuple(self.label(place, key, part) for key, part in zip(variable.keys, parts, strict=True))

    def value(self, place: str, variable: Variable, index: tuple[Value, ...], given: object) -> Value:
        match variable.type:
            case Bool():
                if isinstance(given, bool):
                    return given
                raise self.error(place, f"{_quoted(given)} is not true or false")
            case Element(domain):
                value = self.label(place, domain, given)
                if variable.partition and self.instance.part_of[variable.keys[0].name, _element(index)] != value:
                    raise self.error(place, f"the sizes put this {variable.keys[0].name} elsewhere")
                return value
            case Maybe(domain):
                if isinstance(given, dict) and set(given) == {"tag", "value"}:
                    if given["tag"] == "None":
                        return None
                    if given["tag"] == "Some":
                        return self.label(place + ".value", domain, given["value"])
                raise self.error(place, 'expected {"tag": "Some", "value": ...} or {"tag": "None", "value": ...}')
            case kind:
                number = self.integer(place, given)
                if isinstance(kind, Number) and number < 0:
                    raise self.error(place, f"{number} is not a size: numbers are not negative")
                if isinstance(kind, Counter) and abs(number) > SAFE_INTEGER:
                    raise self.error(place, "the counter is far out of its range")
                return number

    def integer(self, place: str, given: object) -> int:
        if isinstance(given, dict) and set(given) == {"#bigint"}:
            given = given["#bigint"]
            if isinstance(given, str) and BIGINT.fullmatch(given):
                return int(given)
        elif isinstance(given, int) and not isinstance(given, bool) and abs(given) <= 10**100:
            return given
        raise self.error(place, f"{_quoted(given)} is not an integer")


def _placed(problem: msgspec.ValidationError, root: str) -> str:
    """The message of a validation error with its place first, as all others have it."""
    message, _, place = str(problem).partition(" - at `$")
    return printable(f"{root}{place.rstrip('`')}: {message}", 300)


def _element(index: tuple[Value, ...]) -> int:
    assert isinstance(index[0], int)
    return index[0]


def _quoted(given: object) -> str:
    """A value from the file, short and without control characters."""
    if isinstance(given, dict | list):
        return "an object" if isinstance(given, dict) else "a list"
    return printable(repr(given), 80)
