"""The calls of the store as resources; each has one method in `meta/client/client.py`."""

from __future__ import annotations
