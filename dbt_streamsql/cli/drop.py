"""`streamsql drop`: the end of a table whose model is gone."""

from __future__ import annotations

import click

from dbt_streamsql.cli.options import for_one_engine, print_json
from dbt_streamsql.engine import Engine
from dbt_streamsql.errors import StreamSqlError


@click.command()
@click.argument("table")
@click.option("--keep-table", is_flag=True, help="it stays, as a plain table")
@for_one_engine
def drop(engine: Engine, as_json: bool, table: str, keep_table: bool) -> None:
    """Keep TABLE (schema.name) up to date no more, and drop it.

    A view or streaming table goes on when its model is removed, until it is dropped. What a
    connector keeps for it elsewhere, such as a replication slot, is given up.
    """
    readers = engine.readers(table)
    if readers:
        raise StreamSqlError(
            "STILL_READ",
            f"{table} is read",
            given=", ".join(readers),
            hint="drop those first (`streamsql drop`, `streamsql sinks --drop`)",
        )
    engine.drop(table, keep_table=keep_table)
    if as_json:
        print_json({"dropped": table, "kept_table": keep_table})
    else:
        click.echo(f"{table} is not maintained any more" if keep_table else f"{table} is dropped")
