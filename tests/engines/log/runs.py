"""Random logs of specs, mutations of them, and a plain monitor: one step at a time, every property of every state.

The plain monitor shares nothing with the generated one but the compiled step, which is itself held to the interpreter.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from random import Random
from typing import Any

import msgspec

from kvmodel.engines.log.monitor import Monitor, Stop
from kvmodel.engines.log.plan import Plan
from kvmodel.engines.log.reader import LogError, LogReader
from kvmodel.engines.log.schema import Header
from kvmodel.errors import UsageError
from kvmodel.language.load import load_spec
from kvmodel.language.system import PropertyKind, TransitionSystem
from kvmodel.readings.compiled import CompiledSystem
from kvmodel.readings.run import Interpreter
from kvmodel.readings.sparse import SparseState

__all__ = ["FAMILIES", "Family", "Outcome", "PlainLimit", "generated", "mutated", "plain", "plan_of", "random_log", "system_of"]

REQUESTS = 10
LIMIT, CONTEXT = 100, 200
RARE = ("abort", "stop", "release", "refuse_at_decode")
HANDOFF_HEADER = {
    "kvmodel_log": 1,
    "pools": {"prefill": 2, "decode": 3},
    "values": {"context": CONTEXT, "prefill_limit": LIMIT, "decode_limit": CONTEXT},
}


@dataclass(frozen=True)
class Family:
    """Logs of one spec: its header and the sizes that go with it."""

    spec: str
    header: dict[str, Any]
    sizes: dict[str, int]


def handoff(variant: str = "") -> Family:
    name = f"handoff:{variant}" if variant else "handoff"
    header = HANDOFF_HEADER
    if variant == "covering-pools":
        header = {**header, "values": {"context": CONTEXT, "prefill_limit": CONTEXT, "decode_limit": CONTEXT}}
    return Family(name, header, {"Request": REQUESTS, "Page.PREFILL": 2, "Page.DECODE": 3})


def cached(variant: str = "") -> Family:
    name = f"cached:{variant}" if variant else "cached"
    return Family(name, {"kvmodel_log": 1, "pools": {"gpu": 3}, "values": {"null": [0]}}, {"Request": 5, "Page": 3, "Prefix": 2})


FAMILIES = {
    family.spec: family
    for family in (
        handoff(),
        handoff("buggy"),
        handoff("sglang-0.5.16"),
        handoff("sglang-0.5.21"),
        handoff("length-check-alone"),
        handoff("checksum-of-each-side-blind"),
        handoff("checked-reads-alone"),
        handoff("zero-on-free-alone"),
        handoff("sglang-0.5.21-truncating"),
        cached(),
        cached("double-free"),
        cached("abort-frees-target"),
        cached("key-without-salt"),
        Family("pages:one-pool-without-quarantine", {"kvmodel_log": 1, "pools": {"gpu": 3}}, {"Request": 4, "Page": 3}),
    )
}


class PlainLimit(Exception):
    """More elements than the plain monitor has."""


@dataclass
class Outcome:
    """What became of a log: the line of an error, of the first event that is no step, and of each property's first violation;
    `stopped` where it cannot be told."""

    error: int = 0
    refused: int = 0
    stopped: bool = False
    broken: dict[str, int] = field(default_factory=dict)
    events: int = 0

    @property
    def answer(self) -> tuple[int, int, bool, dict[str, int]]:
        return self.error, self.refused, self.stopped, self.broken

    @property
    def good(self) -> bool:
        return not (self.error or self.refused or self.stopped or self.broken)


@cache
def system_of(spec: str) -> TransitionSystem:
    return load_spec(spec)


@cache
def compiled_of(spec: str) -> CompiledSystem:
    system = system_of(spec)
    names = [p.name for p in system.properties if p.kind not in (PropertyKind.REACHABLE, PropertyKind.NO_DEADLOCK)]
    return CompiledSystem(system, FAMILIES[spec].sizes, names)


@cache
def plan_of(spec: str) -> Plan:
    return Plan(system_of(spec), msgspec.convert(FAMILIES[spec].header, Header))


def start_of(family: Family) -> SparseState:
    values: dict[str, dict[tuple[Any, ...], Any]] = {}
    for name, told in family.header.get("values", {}).items():
        values[name] = {(page,): True for page in told} if isinstance(told, list) else {(): told}
    return compiled_of(family.spec).valued(values)


def random_log(family: Family, seed: int, steps: int) -> list[bytes]:
    """The lines of a log of a random run, header and end line included."""
    random = Random(seed)
    compiled = compiled_of(family.spec)
    system = system_of(family.spec)
    state = start_of(family)
    lines = [json.dumps(family.header).encode()]
    known: list[int] = []
    fired: dict[str, int] = {}
    pool_first = list(_pools(family).values())
    for number in range(1, steps + 1):
        fresh = len(known) < family.sizes["Request"] and random.random() < 0.4
        candidates = known + ([len(known)] if fresh else [])
        choices = []
        for action in system.actions:
            found = [
                binding
                for binding in compiled.bindings(state, action.name)
                if all(value in candidates for p, value in zip(action.parameters, binding, strict=True) if p.domain.name == "Request")
            ]
            if found:
                choices.append((action, found))
        if not choices and len(known) == family.sizes["Request"]:
            break
        if not choices:
            continue
        action, found = random.choices(choices, [0.05 if a.name in RARE else 1 / (1 + fired.get(a.name, 0)) for a, _ in choices])[0]
        fired[action.name] = fired.get(action.name, 0) + 1
        binding = random.choice(found)
        event: dict[str, Any] = {"event": action.name, "seq": number}
        for parameter, value in zip(action.parameters, binding, strict=True):
            assert isinstance(value, int)
            if parameter.domain.name == "Request":
                event["request"] = f"req-{value}"
                if value not in known:
                    known.append(value)
                    told = _tell(family, random, compiled, state, value)
                    if told:
                        event["values"] = told
            elif parameter.domain.name == "Page":
                first = max(f for f in pool_first if f <= value)
                pool = next(name for name, f in _pools(family).items() if f == first)
                lone = sum(p.domain.name == "Page" for p in action.parameters) == 1
                if lone and random.random() < 0.7:
                    event["pages"] = [value - first]
                else:
                    event[parameter.name] = value - first
                if len(pool_first) > 1 and action.name in ("allocate", "drain", "give_up"):
                    event["node" if random.random() < 0.5 else "pool"] = pool
            else:
                event[parameter.domain.name.lower()] = f"h{value}"
        if action.node and random.random() < 0.5:
            event["node"] = action.node
        if "values" in event and not compiled.enabled(state, action.name, binding):
            known.pop()  # what it brings does not let it do that
            continue
        lines.append(json.dumps(event).encode())
        compiled.step(state, action.name, binding)
    lines[1:] = [json.dumps({**json.loads(line), "seq": number}).encode() for number, line in enumerate(lines[1:], start=1)]
    lines.append(json.dumps({"kvmodel_log_end": len(lines) - 1}).encode())
    return lines


def _tell(family: Family, random: Random, compiled: CompiledSystem, state: SparseState, request: int) -> dict[str, Any]:
    if family.spec.startswith("handoff"):
        prompt = random.choice([1, LIMIT, LIMIT + 1, CONTEXT])
        compiled._store(state, "prompt", (request,), prompt)
        return {"prompt": prompt}
    if family.spec.startswith("cached"):
        prefixes = [k for k in range(family.sizes["Prefix"]) if random.random() < 0.6]
        for k in prefixes:
            compiled._store(state, "begins_with", (request, k), True)
        return {"begins_with": [f"h{k}" for k in prefixes]} if prefixes else {}
    return {}


def _pools(family: Family) -> dict[str, int]:
    found, first = {}, 0
    for name, size in family.header["pools"].items():
        found[name] = first
        first += size
    return found


def plain(family: Family, lines: list[bytes]) -> Outcome:
    """What the plain monitor says of a log whose lines are all well formed events."""
    compiled = compiled_of(family.spec)
    system = system_of(family.spec)
    state = start_of(family)
    names: dict[tuple[str, str], int] = {}
    given: dict[str, int] = {}
    outcome = Outcome()
    actions = {action.name: action for action in system.actions}
    pools = _pools(family)

    def element(sort: str, name: str) -> int | None:
        if (sort, name) not in names:
            if given.get(sort, 0) == dict(compiled.instance.sizes)[sort]:
                return None
            names[sort, name] = given.get(sort, 0)
            given[sort] = given.get(sort, 0) + 1
        return names[sort, name]

    for number, line in enumerate(lines[1:], start=2):
        event = json.loads(line)
        if "kvmodel_log_end" in event:
            outcome.error = 0 if event["kvmodel_log_end"] == outcome.events else number
            break
        if event["seq"] != number - 1:
            outcome.error = number
            return outcome
        action = actions[event["event"]]
        event = _without_nulls(event)
        if not _well_formed(action, event, compiled, pools):
            outcome.error = number
            return outcome
        for attempt in (1, 2):
            verdict = _play(compiled, state, action, event, element, names, pools, outcome, number)
            request = ("Request", event.get("request", ""))
            if verdict == "refused" and attempt == 1 and request in names and _over(compiled, state, names[request]):
                if "prompt" in compiled.system.by_name and "prompt" not in event.get("values", {}):
                    outcome.refused = number
                    return outcome
                del names[request]  # the id is another request's now
                continue
            if verdict == "refused":
                outcome.refused = number
                return outcome
            if verdict == "error":
                outcome.error = number
                return outcome
            break
        outcome.events += 1
    return outcome


def _without_nulls(event: dict[str, Any]) -> dict[str, Any]:
    """An event without the fields that are null, as if they were not there."""
    return {
        name: _without_nulls(value) if isinstance(value, dict) else value for name, value in event.items() if value is not None
    }


def _well_formed(action: Any, event: dict[str, Any], compiled: CompiledSystem, pools: dict[str, int]) -> bool:
    """Whether an event has the fields of its action and no others."""
    sorts = [parameter.domain.name for parameter in action.parameters]
    pages = [parameter.name for parameter in action.parameters if parameter.domain.name == "Page"]
    required = {sort.lower() for sort in sorts if sort != "Page"} | (set(pages) if len(pages) > 1 else set())
    allowed = {"event", "seq", "ts", "node"} | required
    if len(pages) == 1:
        allowed |= {"pages", pages[0]}
        if sum(name in event for name in ("pages", pages[0])) != 1 or isinstance(event.get(pages[0]), list):
            return False
        if len(pools) > 1 and action.name in ("allocate", "drain", "give_up"):
            allowed.add("pool")
    if "Request" in sorts and {"prompt", "begins_with"} & compiled.system.by_name.keys():
        allowed.add("values")
    return required <= event.keys() <= allowed and event.get("node", "") in (("", action.node) if action.node else (event.get("node", ""),))


def _play(
    compiled: CompiledSystem,
    state: SparseState,
    action: Any,
    event: dict[str, Any],
    element: Any,
    names: dict[tuple[str, str], int],
    pools: dict[str, int],
    outcome: Outcome,
    line: int,
) -> str:
    columns: list[Any] = []
    sizes = dict(compiled.instance.sizes)
    total = sizes["Page"]
    firsts = sorted(pools.values())
    for parameter in action.parameters:
        sort = parameter.domain.name
        if sort == "Page":
            pages = event.get(parameter.name, event.get("pages"))
            if pages is None or pages == []:
                return "error"
            pages = pages if isinstance(pages, list) else [pages]
            where = {"source": "prefill", "target": "decode"}.get(parameter.name) if len(pools) > 1 else next(iter(pools))
            if parameter.name == "first":
                where = "prefill" if action.name == "forward" else "decode"
            where = where or event.get("pool") or event.get("node")
            if where not in pools:
                return "error"
            first = pools[where]
            end = min((f for f in firsts if f > first), default=total)
            columns.append([page + first if 0 <= page < end - first else None for page in pages])
        else:
            field_name = sort.lower()
            new = (sort, event[field_name]) not in names
            if sort == "Request" and new and "prompt" in compiled.system.by_name and "prompt" not in event.get("values", {}):
                return "error"
            found = element(sort, event[field_name])
            if found is None:
                raise PlainLimit
            if sort == "Request":
                values = event.get("values", {})
                if "prompt" in values:
                    if not new and state.get("prompt", (found,)) != values["prompt"]:
                        return "error"
                    compiled._store(state, "prompt", (found,), values["prompt"])
                    if values["prompt"] > CONTEXT:
                        return "refused"
                for name in values.get("begins_with", ()):
                    other = element("Prefix", name)
                    if other is None:
                        raise PlainLimit
                    compiled._store(state, "begins_with", (found, other), True)
            columns.append(found)
    length = max((len(column) for column in columns if isinstance(column, list)), default=1)
    if any(isinstance(column, list) and len(column) != length for column in columns):
        return "error"
    for step in range(length):
        binding = tuple(column[step] if isinstance(column, list) else column for column in columns)
        if None in binding:
            return "error"
        changes = compiled.attempt(state, action.name, binding)
        if changes is None:
            return "refused"
        for found in (*compiled.violations(state), *changes.broken):
            outcome.broken.setdefault(found.property, line)
    return "taken"


def _over(compiled: CompiledSystem, state: SparseState, request: int) -> bool:
    """Whether a final condition is true of a request (as the interpreter sees it), for every value of its other parameters."""
    interpreter = Interpreter(compiled.instance)
    dense = compiled.to_dense(state)
    for final in compiled.system.finals:
        bindings = [b for b in compiled.instance.bindings(final.parameters) if b[0] == request]
        if all(interpreter.evaluate(final.condition, dense, interpreter.environment(final.parameters, b)) for b in bindings):
            return True
    return False


def generated(family: Family, log: bytes, forgetful: bool = False) -> Outcome:
    """What the generated monitor says of a log; with `forgetful`, it forgets what it can after every event."""
    outcome = Outcome()
    reader = LogReader(BytesIO(log))
    try:
        header = reader.header()
        monitor = Monitor(plan_of(family.spec) if header == plan_of(family.spec).header else Plan(system_of(family.spec), header))
    except (LogError, UsageError):
        return Outcome(error=1)
    try:
        for line, events in reader.blocks(monitor.events.decoder):
            for first, some in ((line + n, [event]) for n, event in enumerate(events)) if forgetful else [(line, events)]:
                monitor.feed(some, first)
                for sort in monitor.plan.gathered if forgetful else ():
                    monitor.collect(sort)
                if monitor.unexplained is not None:
                    break
            if monitor.unexplained is not None:
                break
        else:
            if reader.end is not None and reader.end.kvmodel_log_end != monitor.count:
                outcome.error = monitor.line + 1
    except LogError as problem:
        outcome.error = problem.line
    except Stop:
        outcome.stopped = True
    outcome.refused = 0 if monitor.unexplained is None else monitor.unexplained.line
    outcome.broken = {name: found.line for name, found in monitor.broken.items()}
    outcome.events = monitor.count
    return outcome


def mutated(random: Random, lines: list[bytes]) -> list[bytes]:
    """The lines of a log with one well-formed mutation: another run, or none; every line is still an event."""
    result = list(lines)
    events = range(1, len(lines) - 1)
    place = random.choice(events)
    event = json.loads(result[place])
    match random.randrange(6):
        case 0:
            del result[place]
        case 1:
            result.insert(place, result[random.choice(events)])
        case 2:
            other = random.choice(events)
            result[place], result[other] = result[other], result[place]
        case 3 if "request" in event:
            other_request = json.loads(result[random.choice(events)]).get("request", "req-0")
            event["request"] = random.choice([f"req-{random.randrange(4)}", other_request])
            result[place] = json.dumps(event).encode()
        case 4 if any(name in event for name in ("pages", "p", "first", "source", "target")):
            name = random.choice([name for name in ("pages", "p", "first", "source", "target") if name in event])
            page = random.randrange(4)
            event[name] = [page] if name == "pages" else page
            result[place] = json.dumps(event).encode()
        case _:
            event["event"] = json.loads(result[random.choice(events)])["event"]
            result[place] = json.dumps(event).encode()
    end = result.pop() if b"kvmodel_log_end" in result[-1] else None
    if random.random() < 0.8:  # otherwise the gap is what is noticed
        result[1:] = [json.dumps({**json.loads(line), "seq": number}).encode() for number, line in enumerate(result[1:], start=1)]
        if end is not None:
            end = json.dumps({"kvmodel_log_end": len(result) - 1}).encode()
    return [*result, *([end] if end is not None else [])]
