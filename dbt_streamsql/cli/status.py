"""`streamsql status`, `topology` and `barrier`: what MetaService knows. No Spark starts."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import asdict
from datetime import datetime, timezone
from functools import wraps
from typing import Any, NoReturn

import click

from dbt_streamsql.cli.common.options import for_one_store
from dbt_streamsql.cli.common.tables import console, plain, print_table
from dbt_streamsql.meta import MetaStore, open_store
from dbt_streamsql.meta.inspect import history, overview, topology_text
from dbt_streamsql.meta.inspect.overview import (
    BarrierDetail,
    BarrierSummary,
    Node,
    Status,
)
from dbt_streamsql.meta.model.addresses import boundaries_beside, file_of
from dbt_streamsql.meta.store.store import SqlMetaStore

NOTHING = 3
"""Exit code when there is nothing to show: no store yet, or no such barrier."""
_DRAWN = {"text": topology_text.text, "mermaid": topology_text.mermaid, "dot": topology_text.dot}


def of_one_store(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command receives the store, opened for it."""

    @wraps(command)
    def run(where: tuple[str, str], as_json: bool, **options: Any) -> Any:
        url, token = where
        file = file_of(url)
        if file is not None and not file.is_file():
            # Opening it would create one.
            _nothing(as_json, "nothing has run in this warehouse yet")
        with closing(open_store(url, token=token)) as store:
            return command(store, as_json=as_json, **options)

    return for_one_store(run)


def _newest(command: Callable[..., Any]) -> Callable[..., Any]:
    option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
        "--newest",
        type=click.IntRange(min=1),
        default=history.NEWEST,
        show_default=True,
        help="number of barriers to read",
    )
    return option(command)


@click.command()
@click.option("--check", is_flag=True, help="exit with 1 when a table exceeds its `error_after`")
@_newest
@of_one_store
def status(store: MetaStore, as_json: bool, newest: int, check: bool) -> None:
    """Show how up to date each table is. Exit code 3 when nothing has run yet."""
    found = history.load(store, newest)
    live, leader = len(store.leases.live()), store.leaders.leader()
    told = overview.status(found, time.time(), store.fence().owner, live, leader)
    others = _leaders_beside(store)
    if as_json:
        click.echo(json.dumps({**asdict(told), "boundaries": others}))
    else:
        _tell_status(told, others)
    if check and "error" in told.stale.values():
        sys.exit(1)


def _tell_status(told: Status, others: dict[str, dict[str, Any]]) -> None:
    out = console()
    for line in (*_headlines(told), *_leading(others)):
        out.print(plain(line))
    heads: tuple[str, ...] = ("table", "state", "barrier", "mode", "rows", "seconds", "delay")
    rows = [_node_row(node, time.time()) for node in told.tables]
    if any(node.event_time is not None for node in told.tables):
        heads += ("event time", "event delay")
        for at, node in enumerate(told.tables):
            late = _delay(node.event_delay, exact=True)
            rows[at] = (*rows[at][:-1], _utc(node.event_time), late, rows[at][-1])
    print_table(out, (*heads, "changed"), rows)
    for table, limit in told.stale.items():
        out.print(plain(f"{table} is too old: its newest change exceeds `{limit}_after`"))
    for contribution in told.contributions[:1]:
        out.print(
            plain(
                f"contributes most: {contribution.table}, {_seconds(contribution.seconds)} s "
                f"({contribution.share:.0%}) of the critical paths, the slowest step "
                f"of {contribution.bottleneck_of} barriers"
            )
        )


@click.command()
@click.option(
    "--format",
    "kind",
    type=click.Choice(("text", "json", "mermaid", "dot")),
    default="text",
    show_default=True,
)
@_newest
@of_one_store
def topology(store: MetaStore, as_json: bool, kind: str, newest: int) -> None:
    """Draw which table feeds which, with state and delay. Exit code 3 when nothing has run yet."""
    found = overview.topology(history.load(store, newest))
    if as_json or kind == "json":
        click.echo(json.dumps(asdict(found)))
    else:
        drawn = _DRAWN[kind](found)
        click.echo(topology_text.printable(drawn), nl=False)


@click.group()
def barrier() -> None:
    """Inspect the timestamp barriers; each run creates one."""


@barrier.command("list")
@_newest
@of_one_store
def list_barriers(store: MetaStore, as_json: bool, newest: int) -> None:
    """List the newest barriers, newest first. Exit code 3 when nothing has run yet."""
    found = overview.barriers(history.load(store, newest))
    if as_json:
        click.echo(json.dumps([asdict(summary) for summary in found]))
        return
    print_table(
        console(),
        ("barrier", "state", "started", "seconds", "tables", "greatest delay", "slowest job"),
        (_summary_row(summary) for summary in found),
    )


@barrier.command()
@click.argument("number", type=click.IntRange(min=1))
@of_one_store
def show(store: MetaStore, as_json: bool, number: int) -> None:
    """Show what each job did at barrier NUMBER. Exit code 3 when there is no such barrier."""
    found = overview.barrier(history.load(store, history.NEWEST, number), number)
    if found is None:
        _nothing(as_json, f"barrier {number} does not exist or is past its retention")
    if as_json:
        click.echo(json.dumps(asdict(found)))
        return
    _tell_barrier(found)


def _tell_barrier(found: BarrierDetail) -> None:
    out, at = console(), found.summary
    took = f", {_seconds(at.seconds)} s" if at.seconds is not None else ""
    upto = f", event time {_utc(at.event_time)}" if at.event_time is not None else ""
    out.print(plain(f"barrier {at.id}: {at.state}, begun {_moment(at.started_at)}{took}{upto}"))
    late = {delay.table: delay for delay in found.delays}
    slow = at.path.bottleneck
    rows = []
    for job in found.jobs:
        delay = late.get(job.table)
        rows.append(
            (
                job.table + (" *" if slow is not None and slow.table == job.table else ""),
                job.state,
                job.mode,
                _moment(job.started_at),
                _moment(job.finished_at),
                _seconds(job.seconds),
                "" if job.rows_read is None else str(job.rows_read),
                f"+{job.rows_inserted} -{job.rows_deleted}",
                _delay(delay.seconds if delay else None, delay.since.exact if delay else True),
                delay.since.root if delay else "",
            )
        )
    heads = ("table", "state", "mode", "started", "finished", "seconds", "read", "rows")
    print_table(out, (*heads, "delay", "since a change of"), rows)
    if at.path.steps:
        steps = " -> ".join(f"{s.table} {_seconds(s.seconds)} s" for s in at.path.steps)
        out.print(plain(f"critical path: {steps} (* contributes most)"))


def _headlines(told: Status) -> Iterable[str]:
    if not told.barrier:
        yield "no barrier is committed"
    else:
        age = f", {_ago(told.age)} ago" if told.age is not None else ""
        yield f"newest barrier: {told.barrier}{age}"
    for unfinished in told.unfinished:
        yield f"not finished: barrier {unfinished.id} in {unfinished.state}"
    yield f"runner: {told.owner or 'none'}; live leases: {told.leases}"
    if told.leader:
        yield f"leader: {_leads(told.leader, told.leads_for)}"


def _leaders_beside(store: MetaStore) -> dict[str, dict[str, Any]]:
    """The leader of each boundary whose store is in the same folder ('': no boundary)."""
    found: dict[str, dict[str, Any]] = {}
    # A service knows only its own store.
    beside = boundaries_beside(store.database.url) if isinstance(store, SqlMetaStore) else {}
    for name, where in beside.items() if len(beside) > 1 else ():
        with closing(open_store(where)) as there:
            leader = there.leaders.leader()
        left = max(leader.expires_at - time.time(), 0.0) if leader is not None else None
        found[name] = {"leader": leader.owner if leader else "", "leads_for": left}
    return found


def _leading(others: dict[str, dict[str, Any]]) -> Iterable[str]:
    for name, told in others.items():
        of = f"boundary {name}" if name else "no boundary"
        yield f"leader of {of}: {_leads(told['leader'], told['leads_for'])}"


def _leads(leader: str, left: float | None) -> str:
    return f"{leader}, lease expires in {_seconds(left)} s" if left else "none"


def _node_row(node: Node, now: float) -> tuple[str, ...]:
    if node.kind in ("root", "stream"):
        since = f"{_ago(now - node.changed_at)} ago" if node.changed_at else ""
        return (node.table, node.kind, _text(node.barrier), "", "", "", "", since)
    return (
        node.table + (" *" if node.bottleneck else ""),
        node.state,
        _text(node.barrier),
        node.mode,
        f"+{node.rows[0]} -{node.rows[1]}" if node.rows else "",
        _seconds(node.seconds) if node.seconds is not None else "",
        _delay(node.delay, node.delay_exact),
        f"{_ago(now - node.changed_at)} ago" if node.changed_at else "",
    )


def _summary_row(summary: BarrierSummary) -> tuple[str, ...]:
    slow = summary.path.bottleneck
    return (
        str(summary.id),
        summary.state,
        _moment(summary.started_at),
        _seconds(summary.seconds) if summary.seconds is not None else "",
        ", ".join(f"{count} {mode}" for mode, count in summary.modes.items()),
        _delay(summary.delay, exact=True),
        f"{slow.table} {_seconds(slow.seconds)} s" if slow else "",
    )


def _nothing(as_json: bool, why: str) -> NoReturn:
    click.echo(json.dumps({"found": False, "why": why}) if as_json else f"{why}.")
    sys.exit(NOTHING)


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _seconds(value: float) -> str:
    return f"{value:.1f}"


def _delay(value: float | None, exact: bool) -> str:
    if value is None:
        return ""
    return f"{'' if exact else '≥ '}{_seconds(value)} s"


def _utc(value: float | None) -> str:
    """The time of records, in UTC as they have it. It may be far from now."""
    if value is None:
        return ""
    try:
        return datetime.fromtimestamp(value, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{value:.0f}"


def _moment(value: float | None) -> str:
    if value is None:
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
