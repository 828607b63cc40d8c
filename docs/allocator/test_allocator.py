"""The reference allocator keeps what kvmodel's specs promise, and its double does not. `pytest docs/allocator`."""

import pytest
from adapter import Adapter
from allocator import Allocator
from buggy import ForgetsTheCount

from kvmodel.engine_testing import check_engine


def test_allocator():
    check_engine(lambda: Adapter(Allocator(pages=5, page_size=2)), examples=50)


def test_double():
    with pytest.raises(AssertionError, match="exclusive_owner|no_double_free|isolated_read|pages_conserved"):
        check_engine(lambda: Adapter(ForgetsTheCount(pages=5, page_size=2)))
