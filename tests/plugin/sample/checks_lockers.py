"""One check that passes, one that fails, one that is undecided."""

import pytest


@pytest.mark.kvmodel(spec="lockers.py:Lockers", property=["isolated_read", "exclusive_owner"])
def test_passing() -> None:
    pass


@pytest.mark.kvmodel(spec="lockers.py:Lockers:leaky", property="isolated_read")
def test_failing() -> None:
    pass


@pytest.mark.kvmodel(spec="lockers.py:Lockers", property="isolated_read", limit=1)
def test_undecided() -> None:
    pass
