"""The line at the end of a run."""

from __future__ import annotations

from dbt_streamsql.runtime.report import Report, TableReport, summary


def table(name: str, mode: str, seconds: float, last_full: float | None = None) -> TableReport:
    rows = (0, 0) if mode == "noop" else (3, 2)
    return TableReport(name, mode, "", *rows, 1, seconds, 7, last_full=last_full)


def told(*tables: TableReport) -> str:
    return summary(Report(7, {each.table: each for each in tables}))


def test_a_run_tells_rows_the_slowest_table_and_what_refreshes_in_full_took():
    line = told(
        table("lake.shop.a", "incremental", 1.0, last_full=4.0),
        table("lake.shop.b", "full", 5.0, last_full=5.0),
        table("lake.shop.c", "append", 0.5),
        table("lake.shop.d", "noop", 0.0, last_full=9.0),
    )
    assert line == (
        "3 of 4 tables changed, +9 -6 rows; the slowest was lake.shop.b, 5.0 s; "
        "1 from changes in 1.0 s, last in full in 4.0 s"
    )


def test_a_run_without_changes_tells_only_that():
    assert told(table("lake.shop.d", "noop", 0.0)) == "0 of 1 tables changed, +0 -0 rows"


def test_nothing_is_said_of_refreshes_in_full_when_all_tables_had_one():
    line = told(table("lake.shop.b", "full", 5.0, last_full=5.0))
    assert line == "1 of 1 tables changed, +3 -2 rows; the slowest was lake.shop.b, 5.0 s"
