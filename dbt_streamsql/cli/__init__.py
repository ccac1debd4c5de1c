"""The command `streamsql`: what is not dbt's. `dbt` itself stays the way to run models."""

from __future__ import annotations

import click

from dbt_streamsql.__version__ import version
from dbt_streamsql.cli.drop import drop
from dbt_streamsql.cli.gc import gc
from dbt_streamsql.cli.meta import meta
from dbt_streamsql.cli.plan import plan
from dbt_streamsql.cli.publish_views import publish_views
from dbt_streamsql.cli.query import query, wait
from dbt_streamsql.cli.revise import revise
from dbt_streamsql.cli.run import run
from dbt_streamsql.cli.serve import serve
from dbt_streamsql.cli.server import server
from dbt_streamsql.cli.sinks import sinks
from dbt_streamsql.cli.status import barrier, status, topology
from dbt_streamsql.cli.undo import abort


@click.group()
@click.version_option(version, prog_name="streamsql")
def main() -> None:
    """Materialized views for dbt on Spark: what dbt has no command for."""


COMMANDS = (
    run,
    status,
    topology,
    barrier,
    query,
    wait,
    revise,
    plan,
    gc,
    sinks,
    drop,
    publish_views,
    meta,
    server,
    serve,
)
for command in COMMANDS:
    main.add_command(command)
barrier.add_command(abort)
