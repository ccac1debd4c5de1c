"""`streamsql drop`: stop maintaining a table whose model is gone."""

from __future__ import annotations

import click

from dbt_streamsql.cli.common.options import for_one_engine, print_json
from dbt_streamsql.engine import Engine
from dbt_streamsql.errors import StreamSqlError


@click.command()
@click.argument("table")
@click.option(
    "--keep-table", is_flag=True, help="keep the table's data as a regular Iceberg table"
)
@for_one_engine
def drop(engine: Engine, as_json: bool, table: str, keep_table: bool) -> None:
    """Stop maintaining TABLE (schema.name), and drop it.

    A view or streaming table is still maintained after its model is removed, until you drop it.
    Resources that a connector holds for it elsewhere, such as a replication slot, are released.
    """
    readers = engine.queries.readers(table)
    if readers:
        raise StreamSqlError(
            "STILL_READ",
            f"cannot drop {table}: it is still read",
            given=", ".join(readers),
            hint="drop those first (`streamsql drop`, `streamsql sinks --drop`)",
        )
    engine.drop(table, keep_table=keep_table)
    if as_json:
        print_json({"dropped": table, "kept_table": keep_table})
    else:
        click.echo(f"{table} is no longer maintained" if keep_table else f"{table} is dropped")
