"""Engines that go other ways than their tables' sizes warrant."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace


@contextmanager
def tuned(engine, retention=None, **limits):
    """Inside, the engine has these limits of `Tuning`, and keeps barriers by `retention`."""
    warehouse = engine.warehouse
    before = warehouse.tuning, warehouse.retention
    warehouse.tuning = replace(warehouse.tuning, **limits)
    warehouse.retention = retention or warehouse.retention
    try:
        yield
    finally:
        warehouse.tuning, warehouse.retention = before
