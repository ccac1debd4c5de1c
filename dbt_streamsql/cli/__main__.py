from __future__ import annotations

from dbt_streamsql.cli import main

main(prog_name="streamsql")
