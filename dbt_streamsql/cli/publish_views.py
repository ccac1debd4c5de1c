"""`streamsql publish-views`: consistent SQL views for tools that know nothing of barriers."""

from __future__ import annotations

import click

from dbt_streamsql.cli.options import for_one_engine, print_json
from dbt_streamsql.engine import Engine
from dbt_streamsql.meta.draw import printable


@click.command("publish-views")
@click.argument("schema")
@click.option("--with-schema", is_flag=True, help="call them <schema>_<name>")
@click.option("--stop", is_flag=True, help="drop them, and keep none there any more")
@for_one_engine
def publish_views(
    engine: Engine, as_json: bool, schema: str, with_schema: bool, stop: bool
) -> None:
    """Keep a SQL view of every maintained view in SCHEMA, all of one barrier, the newest."""
    if stop:
        names = engine.stop_views(schema)
    else:
        names = engine.publish_views(schema, with_schema=with_schema)
    if as_json:
        print_json({"schema": schema, "published": not stop, "views": names})
        return
    for name in names:
        click.echo(printable(f"{'dropped' if stop else 'published'}: {schema}.{name}"))
