"""A trace in words: which of its steps matter, what led to its end, where the design that its spec departs from would have
refused it, and which single defences would have stopped it.

The sentences are the spec's own: what an action's docstring says, about the elements that the step is about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from kvmodel.analyses.ownership import ownership
from kvmodel.analyses.refusals import Obstacle, Refusal, Stopper, refusal, stoppers
from kvmodel.analyses.slices import Slice, backward_slice, source
from kvmodel.errors import printable
from kvmodel.language.instance import Instance
from kvmodel.language.system import PropertyKind
from kvmodel.language.text import place
from kvmodel.language.types import Value
from kvmodel.traces.trace import Choice, Trace

__all__ = ["Cause", "Explanation", "Refusal", "Stopper", "explain", "said"]

FEWEST, MOST = 3, 7  # sentences of a chain
MOST_RESULTS = 2  # places that one sentence names
LONG = 110  # a longer sentence of a docstring is told up to its colon
SHORT = 2  # a longer parameter's name says something
LONGEST_SENTENCE = 300
COMPOUNDS = "list|lists|table|tables|count|size|number|row"  # "the page list" is not about a page


@dataclass(frozen=True, slots=True)
class Cause:
    """One link of the chain: the number of a step (0: the initial state) and what happened there."""

    step: int
    sentence: str


@dataclass(frozen=True)
class Explanation:
    """Why a trace ends as it does.

    `relevant`: numbers of the steps that the end depends on; without the others the rest is still a run that shows the
    property. `chain`: three to seven of them in words (fewer when there are no more). `refused`: the first step that the
    design which the spec departs from does not take, or None. `stopped_by`: flags that, switched alone, would have stopped this
    run; `not_stopped_by`: those that would not. For a trace that shows something wanted (`@reachable`) the last three are empty.
    """

    relevant: frozenset[int]
    chain: tuple[Cause, ...]
    refused: Refusal | None = None
    stopped_by: tuple[Stopper, ...] = ()
    not_stopped_by: tuple[str, ...] = ()


def explain(trace: Trace) -> Explanation:
    """Explain a trace that shows a property. Raises UsageError for one that shows none."""
    found = backward_slice(trace)
    wanted = trace.instance.system.property(trace.property).kind is PropertyKind.REACHABLE
    refused = None if wanted else refusal(trace)
    stopped, others = ((), ()) if wanted else stoppers(trace)
    chain = _Chain(trace, found, refused[1] if refused else None, stopped)
    return Explanation(found.relevant, tuple(chain.causes()), refused[0] if refused else None, stopped, others)


class _Chain:
    """Chooses the steps that are told, and tells them."""

    def __init__(self, trace: Trace, found: Slice, refused: Obstacle | None, stopped: tuple[Stopper, ...]) -> None:
        self.trace = trace
        self.instance = trace.instance
        self.layout = trace.instance.state_layout
        self.found = found
        self.refused = refused
        self.stopped = stopped

    @cached_property
    def pages(self) -> frozenset[Value]:
        """The pages that the property's places are about."""
        vocabulary = ownership(self.instance.system)
        if vocabulary is None:
            return frozenset()
        found = set()
        for slot in self.found.shown:
            name, index = self.layout.places[slot]
            for key, part in zip(self.instance.system.by_name[name].keys, index, strict=True):
                if key == vocabulary.page:
                    found.add(part)
        return frozenset(found)

    def causes(self) -> Iterator[Cause]:
        chosen: list[int] = []
        for step in self.by_weight():
            if step not in chosen and (step or self.starting()):
                chosen.append(step)
            if len(chosen) == MOST:
                break
        for step in sorted(chosen):
            yield Cause(step, printable(self.told(step), LONGEST_SENTENCE))

    def by_weight(self) -> Iterator[int]:
        """Steps, the ones that say most first: where the property's values come from, what the design refuses, what a defence
        would have stopped, what moved the property's pages, and what enabled the first of these."""
        data, relevant = self.found.data, self.found.relevant
        if relevant:
            yield max(relevant)
        near = [step for step in sorted(data, key=lambda step: (data[step], -step)) if data[step] <= 1]
        yield from near
        if self.refused is not None:
            yield from self.refusing(self.refused)
        yield from (stopper.step for stopper in self.stopped)
        yield from (step for step, slots in sorted(self.found.used.items(), reverse=True) if step and self.moves_a_page(slots))
        for step in near:
            yield from sorted(self.found.enabled_by.get(step, ()), reverse=True)
        yield from sorted(relevant, reverse=True)[:FEWEST]

    def moves_a_page(self, slots: tuple[int, ...]) -> bool:
        """Whether some of the places say who holds one of the pages, or whose data is in it."""
        names = ("holds", "content")
        for slot in slots:
            name, index = self.layout.places[slot]
            if self.pages and name in names and self.pages & {index[-1]}:
                return True
        return False

    def refusing(self, found: Obstacle) -> Iterator[int]:
        """The step that is refused, and the last steps before it to write what its guard looks at."""
        yield found.step
        for slot in found.decided:
            written = source(self.trace, slot, found.step - 1)
            if written:
                yield written

    # -- one sentence

    def told(self, step: int) -> str:
        if not step:
            return "At the start, " + " and ".join(self.starting())
        given = self.given(step)
        sentence = said(self.instance, self.trace.steps[step - 1]) + given
        results = list(self.results(step, told=bool(given)))[:MOST_RESULTS]
        return f"{sentence}; now {' and '.join(results)}" if results else sentence

    def starting(self) -> list[str]:
        """What the initial state has that later steps or the property look at, unless every run starts so, or it is the first
        member of an enumeration."""
        found = []
        used = self.found.used.get(0, ())
        for slot in sorted(used, key=lambda slot: slot not in self.found.shown):
            value = self.trace.states[0].values[slot]
            variable = self.instance.system.by_name[self.layout.places[slot][0]]
            plain = value is None or value is False or value == variable.initial
            if not plain and not (isinstance(value, str) and value == self.instance.values_of(variable.type)[0]):
                found.append(self.data_of(slot, value) or f"{self.place(slot)} is {self.shown(slot, value)}")
        return found[:MOST_RESULTS]

    def given(self, step: int) -> str:
        """", with r0's data in it" for a step that gives a page with somebody else's data to a new holder."""
        before, after = self.trace.states[step - 1], self.trace.states[step]
        if ownership(self.instance.system) is None:
            return ""
        for slot in self.found.used.get(step, ()):
            name, index = self.layout.places[slot]
            if name == "holds" and after.values[slot] and not before.values[slot]:
                content = self.layout.slots["content", index[-1:]]
                data = after.values[content]
                if data is not None and data != index[0]:
                    return f", with {self.shown(content, data)}'s data in it"
                if data is None and content in self.found.shown:
                    return ", blank"
        return ""

    def results(self, step: int, *, told: bool) -> Iterator[str]:
        """What came of a step: the places that the property looks at, or else one that a later step does; of the last step also
        whose data is there, unless that is `told` already."""
        after = self.trace.states[step]
        used = [slot for slot in self.found.used.get(step, ()) if self.layout.places[slot][0] != "holds" or not after.values[slot]]
        shown = [slot for slot in used if slot in self.found.shown]
        for slot in shown or sorted(used, key=lambda slot: self.layout.places[slot][0] != "content")[:1]:
            value = after.values[slot]
            yield self.data_of(slot, value) or self.held_by(slot, value) or f"{self.place(slot)} is {self.shown(slot, value)}"
        if step == len(self.trace.steps) and not told:
            still = (slot for slot in self.found.shown if slot not in used)
            yield from (data for data in (self.data_of(slot, after.values[slot]) for slot in still) if data)

    def data_of(self, slot: int, value: Value) -> str:
        """``decode.p1 has r0's data in it`` for a place that says whose data is in a page, or ''."""
        name, index = self.layout.places[slot]
        vocabulary = ownership(self.instance.system)
        if vocabulary is None or name != vocabulary.content.name or value is None:
            return ""
        return f"{self.instance.label(vocabulary.page, index[0])} has {self.shown(slot, value)}'s data in it"

    def held_by(self, slot: int, value: Value) -> str:
        """``r0 does not hold decode.p1`` for a place that says so, or ''."""
        name, index = self.layout.places[slot]
        vocabulary = ownership(self.instance.system)
        if vocabulary is None or name != vocabulary.holds.name or value:
            return ""
        return f"{self.instance.label(vocabulary.holder, index[0])} does not hold {self.instance.label(vocabulary.page, index[1])}"

    def place(self, slot: int) -> str:
        name, index = self.layout.places[slot]
        keys = self.instance.system.by_name[name].keys
        return place(name, tuple(self.instance.label(key, part) for key, part in zip(keys, index, strict=True)))

    def shown(self, slot: int, value: Value) -> str:
        return self.instance.show(self.layout.types[slot], value)


def said(instance: Instance, choice: Choice) -> str:
    """The first sentence of an action's docstring, about the elements of a step; what it does not name is added in brackets.

    "The allocator gives a free page to a live request." becomes "The allocator gives the free page decode.p1 to the live
    request r1".
    """
    action = instance.system.action(choice.action)
    first = re.split(r"(?<=\.)\s", " ".join(action.doc.split("\n\n")[0].split()), maxsplit=1)[0].rstrip(".") or action.name
    sentence = first if len(first) <= LONG else first.partition(": ")[0]
    domains = [parameter.domain for parameter in action.parameters]
    missing = []
    for parameter, value in zip(action.parameters, choice.binding, strict=True):
        label = instance.label(parameter.domain, value)
        alone = domains.count(parameter.domain) == 1
        named = _named(sentence, parameter.domain.name.lower(), label) if alone else None
        if named is None:
            missing.append(label if alone and len(parameter.name) <= SHORT else f"{parameter.name} {label}")
        else:
            sentence = named
    return sentence + (f" ({', '.join(missing)})" if missing else "")


def _named(sentence: str, noun: str, label: str) -> str | None:
    """`sentence` with `label` where it speaks of one `noun`, or None where it does not."""
    pattern = rf"(?<!\bone )(?<!\beach )\b(an?|the|An?|The) ((?:[a-z]+ )?){re.escape(noun)}\b('s)?(?! (?:{COMPOUNDS})\b)"

    def replaced(found: re.Match[str]) -> str:
        article, adjective, genitive = found.group(1), found.group(2), found.group(3) or ""
        if not adjective and not re.match(r" (?:that|which|whose)\b", found.string[found.end() :]):
            return label + genitive
        return f"{'The' if article[0].isupper() else 'the'} {adjective}{noun} {label}{genitive}"

    changed, count = re.subn(pattern, replaced, sentence)
    return changed if count else None
