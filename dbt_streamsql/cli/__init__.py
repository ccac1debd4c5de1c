"""The command `streamsql`: what dbt does not have. Models are still run with `dbt`."""

from __future__ import annotations

import sys
from copy import copy

import click
from dbt_common.events.base_types import EventLevel
from dbt_common.events.event_manager_client import get_event_manager
from dbt_common.events.functions import get_stdout_config
from dbt_common.events.logger import LineFormat

from dbt_streamsql.__version__ import version
from dbt_streamsql.cli.drop import drop
from dbt_streamsql.cli.gc import gc
from dbt_streamsql.cli.meta import meta
from dbt_streamsql.cli.plan import plan
from dbt_streamsql.cli.publish_views import publish_views
from dbt_streamsql.cli.query import query, wait
from dbt_streamsql.cli.quickstart import quickstart
from dbt_streamsql.cli.revise import revise
from dbt_streamsql.cli.run import run
from dbt_streamsql.cli.serve import serve
from dbt_streamsql.cli.sinks import sinks
from dbt_streamsql.cli.spark import spark
from dbt_streamsql.cli.status import barrier, status, topology
from dbt_streamsql.cli.undo import abort


@click.group()
@click.version_option(version, prog_name="streamsql")
def main() -> None:
    """Manage materialized views for dbt on Spark: the commands that dbt does not have."""
    # What the adapter logs through dbt is not the command's result, which may be JSON.
    log = get_stdout_config(LineFormat.PlainText, sys.stderr.isatty(), EventLevel.INFO, False)
    log.output_stream = sys.stderr
    events = get_event_manager()
    events.loggers.clear()
    events.add_logger(log)


COMMANDS = (
    quickstart,
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
    spark,
)
for command in COMMANDS:
    main.add_command(command)
meta.add_command(serve)
barrier.add_command(abort)

FORMER = {"serve": serve, "server": spark}
"""Earlier names of commands: they work, but `--help` does not list them."""
for name, command in FORMER.items():
    former = copy(command)
    former.hidden = True
    main.add_command(former, name)
