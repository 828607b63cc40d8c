"""Every binding is a renaming of exactly one representative, and only elements that nothing names are renamed."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from kvmodel.language.instance import Binding, Instance
from kvmodel.language.types import Domain, Value
from kvmodel.readings.symmetry import Symmetry
from tests.readings.bounded_systems import SYSTEMS


def renamings(instance: Instance, sort: str) -> list[dict[Value, Value]]:
    """Every renaming of a sort's elements that leaves each in its part."""
    elements = instance.domains[sort]
    found = []
    for order in permutations(elements):
        renaming = dict(zip(elements, order, strict=True))
        if all(instance.part_of.get((sort, int(a or 0))) == instance.part_of.get((sort, int(b or 0))) for a, b in renaming.items()):
            found.append(renaming)
    return found


@pytest.mark.parametrize(("name", "domains"), [
    ("stages", ("Request",)), ("stages", ("Request", "Request")), ("stages", ("Request", "Stage", "Request", "Request")),
    ("pools", ("Page", "Page", "Page")), ("leftovers", ("Request", "Page", "Request", "Page")),
])  # fmt: skip
def test_every_binding_is_a_renaming_of_one_representative(name: str, domains: tuple[str, ...]) -> None:
    instance = SYSTEMS[name]()
    kinds: list[Domain] = [instance.system.domain(domain) for domain in domains]
    found = Symmetry(instance).representatives(kinds)
    sorts = sorted({domain for domain in domains if domain in dict(instance.sizes)})
    seen: dict[Binding, int] = {}
    for number, binding in enumerate(found):
        orbit = set()
        for chosen in product(*(renamings(instance, sort) for sort in sorts)):
            by_sort = dict(zip(sorts, chosen, strict=True))
            orbit.add(tuple(by_sort[d][v] if d in by_sort else v for d, v in zip(domains, binding, strict=True)))
        for member in orbit:
            assert member not in seen, "two representatives are one"
            seen[member] = number
    assert len(seen) == len(list(product(*(instance.elements(kind) for kind in kinds))))


def test_chains_are_what_no_representative_has() -> None:
    instance = SYSTEMS["pools"]()
    symmetry = Symmetry(instance)
    assert list(symmetry.chains()) == [("Page", (0, 1)), ("Page", (2, 3, 4))]
    symmetry.representatives([instance.system.domain("Page")])
    assert list(symmetry.chains()) == [("Page", (1,)), ("Page", (3, 4))]


def test_a_sort_of_which_an_element_is_named_is_left_alone() -> None:
    symmetry = Symmetry(SYSTEMS["elected"]())
    assert symmetry.groups == {}
    assert symmetry.representatives([symmetry.instance.system.domain("Node")]) == ((0,), (1,), (2,))
