"""Two faults in one spec."""

from .kb_07 import FirstErrorFrees
from .kb_31 import FreeListAppendsDuplicates


class Both(FirstErrorFrees, FreeListAppendsDuplicates):
    """Several writers of a page, and a free list that can hold it twice."""
