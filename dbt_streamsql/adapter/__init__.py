"""What dbt loads: the plugin record. The only package that imports dbt."""

from __future__ import annotations

from pathlib import Path

from dbt.adapters.base import AdapterPlugin

from dbt_streamsql.adapter.impl import StreamSqlAdapter
from dbt_streamsql.adapter.profile.credentials import StreamSqlCredentials

_PACKAGE = Path(__file__).parent.parent
_SHIPPED = _PACKAGE / "macros"

Plugin = AdapterPlugin(
    adapter=StreamSqlAdapter,  # type: ignore[arg-type] # dbt's protocol is wider than its base
    credentials=StreamSqlCredentials,
    # In a wheel the macros are inside the package, in a checkout next to it.
    include_path=str(_SHIPPED if _SHIPPED.is_dir() else _PACKAGE.parent / "macros"),
    project_name="dbt_streamsql",
    dependencies=["spark"],
)
