"""MetaService over HTTP: a store for processes on other hosts, with `meta: https://…`."""

from __future__ import annotations

from dbt_streamsql.meta.service.app import create_app
from dbt_streamsql.meta.service.listen import Address, serve

__all__ = ["Address", "create_app", "serve"]
