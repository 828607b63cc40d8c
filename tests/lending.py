"""The spec of tests/data/lending.py, its instances and its traces, for tests of what people see."""

from __future__ import annotations

from contextlib import chdir
from functools import cache
from pathlib import Path

from kvmodel.language.instance import Instance
from kvmodel.language.load import load_spec
from kvmodel.language.system import TransitionSystem
from kvmodel.readings.explore import explore
from kvmodel.traces.trace import Trace
from kvmodel.verdict import Result

ROOT = Path(__file__).resolve().parent.parent
PATH = "tests/data/lending.py"
SPEC = f"{PATH}:Lending"


@cache
def system(variant: str = "") -> TransitionSystem:
    """The spec or one of its variants, named as from the root of the repository."""
    with chdir(ROOT):  # so that the name of the spec and the places in it are the same everywhere
        return load_spec(f"{SPEC}:{variant}" if variant else SPEC)


@cache
def result(variant: str = "") -> Result:
    """What exploration says of a variant at its default size."""
    return explore(Instance.make(system(variant)))


def trace(variant: str = "careless", name: str = "isolated_read") -> Trace:
    """The shortest trace that shows the property `name`."""
    found = result(variant)[name].trace
    assert found is not None
    return found
