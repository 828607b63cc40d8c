"""The two levels at which an engine is driven: its allocator alone, or all of it."""

from __future__ import annotations

from kvmodel.engines.allocator_driver import AllocatorDriver
from kvmodel.engines.driver import Adapter, Driver, Record
from kvmodel.engines.engine_driver import EngineDriver

__all__ = ["driver_for"]


def driver_for(adapter: Adapter, name: str, record: Record | None = None) -> Driver:
    """The driver of an adapter's level."""
    return EngineDriver(adapter, name, record) if hasattr(adapter, "submit") else AllocatorDriver(adapter, name, record)
