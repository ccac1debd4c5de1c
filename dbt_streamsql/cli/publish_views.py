"""`streamsql publish-views`: consistent SQL views for tools that do not know barriers."""

from __future__ import annotations

import click

from dbt_streamsql.cli.common.options import for_one_engine, print_json
from dbt_streamsql.engine import Engine
from dbt_streamsql.meta.inspect.topology_text import printable


@click.command("publish-views")
@click.argument("schema")
@click.option("--with-schema", is_flag=True, help="name the views <schema>_<name>")
@click.option("--stop", is_flag=True, help="drop the published views and stop publishing")
@for_one_engine
def publish_views(
    engine: Engine, as_json: bool, schema: str, with_schema: bool, stop: bool
) -> None:
    """Publish a SQL view of every maintained view in SCHEMA, all at the newest barrier."""
    if stop:
        names = engine.stop_views(schema)
    else:
        names = engine.publish_views(schema, with_schema=with_schema)
    if as_json:
        print_json({"schema": schema, "published": not stop, "views": names})
        return
    for name in names:
        click.echo(printable(f"{'dropped' if stop else 'published'}: {schema}.{name}"))
