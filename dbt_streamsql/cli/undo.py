"""`streamsql barrier abort`: abort a run that was held back before the next run does so."""

from __future__ import annotations

import json

import click

from dbt_streamsql.cli.common.options import for_one_engine
from dbt_streamsql.engine import Engine


@click.command()
@click.argument("number", type=click.IntRange(min=1))
@for_one_engine
def abort(engine: Engine, as_json: bool, number: int) -> None:
    """Discard what barrier NUMBER has staged. It must not be published."""
    engine.epochs.discard(number)
    said = f"barrier {number} is aborted; its staged data was removed"
    click.echo(json.dumps({"undone": number}) if as_json else said)
