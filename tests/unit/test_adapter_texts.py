"""What a user reads and what reaches Spark's parser: messages, literals, names, configs."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbt_streamsql.adapter import seeds
from dbt_streamsql.adapter.common.error_messages import cause_of, trace_of
from dbt_streamsql.adapter.common.relation import StreamSqlColumn, StreamSqlRelation
from dbt_streamsql.adapter.config import model_config
from dbt_streamsql.adapter.impl import StreamSqlAdapter
from dbt_streamsql.adapter.session.connections import is_query
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.runtime.report import TableReport
from dbt_streamsql.storage.locations import Roots


def _relation(identifier, **parts):
    return StreamSqlRelation.create(database="lake", schema="shop", identifier=identifier, **parts)


def _report(mode, inserted=0, deleted=0, jobs=0, seconds=0.0, reason=""):
    return TableReport("lake.shop.v", mode, reason, inserted, deleted, jobs, seconds, 1)


def test_relations_have_three_quoted_parts():
    assert str(_relation("orders")) == "`lake`.`shop`.`orders`"
    assert str(_relation("a`; DROP TABLE x")) == "`lake`.`shop`.`a``; DROP TABLE x`"
    assert _relation("t").without_identifier().render() == "`lake`.`shop`"
    assert StreamSqlColumn(column="a`b", dtype="int").quoted == "`a``b`"


@pytest.mark.parametrize("name", ["it's", "a`b", "x" * 300, 'say "hi"', "a\nb"])
def test_a_name_that_cannot_be_stored_is_refused(name):
    with pytest.raises(StreamSqlError) as refused:
        _relation(name).in_catalog("lake")
    assert refused.value.code == "IDENTIFIER_INVALID"


@given(st.text(alphabet="'\\${}u0 aé\n😀"))
def test_a_literal_ends_only_where_it_should(text):
    literal = StreamSqlAdapter.streamsql_literal(None, text)
    inner, position = literal[1:-1], 0
    while position < len(inner):
        # Spark's lexer: a backslash takes the next character with it, a bare quote ends the text.
        assert inner[position] != "'"
        position += 2 if inner[position] == "\\" else 1
    assert position == len(inner)


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (_report("noop"), "NOOP"),
        (_report("incremental", 12, 3, 8, 1.21), "INCREMENTAL +12 -3 (8 jobs, 1.2s)"),
        (_report("append", 5, 0, 1, 0.3, "x"), "APPEND +5 -0 (1 job, 0.3s)"),
        (_report("append", 5, 0, -1, 0.3), "APPEND +5 -0 (0.3s)"),
        (_report("full", 2, 0, 2, 1, "new table"), "FULL +2 -0 (2 jobs, 1.0s): new table"),
    ],
)
def test_the_log_line_says_what_happened(report, text):
    assert str(model_config.response_of(report)) == text
    assert model_config.response_of(report).to_dict()["mode"] == report.mode


def test_a_misspelled_config_key_is_refused_with_the_right_one():
    with pytest.raises(StreamSqlError) as refused:
        model_config.of_materialized_view("lake.s.t", {"refresh_mod": "full", "zzz": 1})
    assert refused.value.code == "CONFIG_INVALID"
    assert "did you mean `refresh_mode`?" in refused.value.given
    assert "unknown key `zzz`" in refused.value.given


def test_the_keys_that_dbt_defines_are_accepted():
    config = {"materialized": "materialized_view", "tags": [], "pre-hook": [], "meta": {"x": 1}}
    accepted = {"refresh_mode": "auto", "properties": {}, "changelog": False, "state": "auto"}
    accepted |= {"state_ttl": {}}
    assert model_config.of_materialized_view("t", config) == accepted


def test_a_refresh_mode_that_does_not_exist_is_refused():
    with pytest.raises(StreamSqlError, match="not 'fast'"):
        model_config.of_materialized_view("t", {"refresh_mode": "fast"})


def test_our_keys_on_another_materialization_are_refused():
    with pytest.raises(StreamSqlError, match="only for materialized views"):
        model_config.check(
            "t", {"materialized": "table", "refresh_mode": "full"}, Roots(Path(), ())
        )


@pytest.mark.parametrize(
    ("sql", "reads"),
    [
        ("select 1", True),
        ('/* {"app": "dbt"} */\n -- x\n  WITH a AS (SELECT 1) SELECT 1', True),
        ("(select 1) union all select 2", True),
        ("create table t as select 1", False),
        ("insert into t select 1", False),
        ("selection", False),
    ],
)
def test_only_what_reads_is_taken_for_a_query(sql, reads):
    assert is_query(sql) is reads


def test_an_error_is_cut_to_its_cause():
    analysis = Exception(
        "[UNRESOLVED_COLUMN] no `x`. SQLSTATE: 42703; line 1 pos 7;\n'Project ['x]\n+- OneRow\n"
    )
    statement, query = "create table t as\n  select x", "\nselect x"
    assert cause_of(analysis, "select x").splitlines() == [
        "[UNRESOLVED_COLUMN] no `x`. SQLSTATE: 42703",
        "  at: line 1 of the statement: select x",
        "  do: check the spelling, and whether the input still has the column",
    ]
    told = Exception(str(analysis).replace("line 1", "line 2"))
    assert "  at: line 2 of the model in target/compiled: select x" in cause_of(
        told, statement, query
    )
    java = Exception(
        "An error occurred while calling o46.sql.\n: org.apache.spark.SparkException: Job aborted"
        "\n\tat a.b.C(D.java:1)\nCaused by: java.io.IOException: disk full\n\t... 4 more"
    )
    assert cause_of(java).splitlines() == [
        "SparkException: Job aborted",
        "caused by IOException: disk full",
        "  do: see the full trace in the debug log, logs/dbt.log",
    ]
    lost = Exception(
        "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 7.0 "
        "failed 1 times, most recent failure: Lost task 0.0 in stage 7.0 (TID 9) (h executor 1): "
        "org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n\tat a.b"
    )
    assert cause_of(lost).splitlines() == [
        "IOException: No space left on device",
        "  do: free some disk space; the table is unchanged",
    ]


def test_the_trace_of_an_error_among_its_own_causes_ends():
    first, second = ValueError("disk full"), KeyError("row")
    first.__cause__, second.__cause__ = second, first
    assert trace_of(first).count("disk full") == 1
    first.__cause__ = first
    assert trace_of(first).count("disk full") == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (Decimal("1E+2"), "100"),
        (Decimal("1.50"), "1.50"),
        (dt.date(2024, 1, 2), "2024-01-02"),
        (dt.datetime(2024, 1, 2, 3, 4, 5), "2024-01-02T03:04:05"),  # noqa: DTZ001
        ("it's `x`", "it's `x`"),
    ],
)
def test_seed_values_travel_as_texts_that_spark_can_cast(value, text):
    assert seeds._text(value) == text
