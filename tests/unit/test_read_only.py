"""Queries from a browser: what is not known to be harmless is refused, however it is written."""

from __future__ import annotations

import re

import pytest

from dbt_streamsql.compiler.parsing.read_only import LONGEST, only_reads
from dbt_streamsql.errors import StreamSqlError

ALLOWED = {"lake.s.t", "lake.s.u"}


def refusal(sql: str) -> str:
    with pytest.raises(StreamSqlError) as raised:
        only_reads(sql, ALLOWED, "lake")
    return raised.value.code


@pytest.mark.parametrize(
    ("sql", "text", "tables"),
    [
        ("select a from s.t;", "SELECT a FROM `lake`.`s`.`t`", {"lake.s.t"}),
        ("table lake.s.t", "SELECT * FROM `lake`.`s`.`t`", {"lake.s.t"}),
        ("from s.t |> where a > 1", "SELECT * FROM `lake`.`s`.`t` WHERE a > 1", {"lake.s.t"}),
        ("select /*+ reflect(x) */ upper('a')", "SELECT upper('a')", set()),
        ("select t.user from s.t", "SELECT t.user FROM `lake`.`s`.`t`", {"lake.s.t"}),
        (
            "with x as (select 1 as a) select * from x join s.u using (a)",
            "WITH x AS (SELECT 1 AS a) SELECT * FROM x JOIN `lake`.`s`.`u` USING (a)",
            {"lake.s.u"},
        ),
    ],
)
def test_a_query_is_written_again_from_what_was_checked(sql, text, tables):
    assert only_reads(sql, ALLOWED, "lake") == (text, tables)


@pytest.mark.parametrize(
    "sql",
    [
        "select sum(a) filter (where b > 1), count(distinct c) from s.t group by d having max(e) > 2",
        "select a, row_number() over (partition by b order by c rows 2 preceding) from s.t",
        "select transform(array(1), x -> x + 1), map('a', 1)['a'], named_struct('a', 1).a",
        "select cast(a as decimal(5,2)), a::int, date '2020-01-01', interval 1 day from s.t",
        "select extract(year from d), trim(both 'x' from y), if(a, b, c) from s.t",
        "select * from s.t lateral view explode(a) q as z where a in (select b from s.u)",
        "select * from s.t pivot (sum(a) for b in (1, 2))",
        "select a from s.t union all select b from s.u order by 1 limit 3",
        "with recursive r as (select 1 as n union all select n + 1 from r where n < 5) table r",
        "with x as (select 1), y as (select * from x) select * from y",
        "select case when a then 'x' end, a between 1 and 2, a <=> b, a rlike 'x' from s.t",
    ],
)
def test_what_people_ask_is_not_refused(sql):
    text, _ = only_reads(sql, ALLOWED, "lake")
    assert only_reads(text, ALLOWED, "lake")[0] == text


@pytest.mark.parametrize(
    "sql",
    [
        *("drop table lake.s.t", "insert into lake.s.t select 1", "set x = 1", "show tables"),
        *("explain select 1", "cache table x as select 1", "select 1; select 2", "", "values (1)"),
        "with a as (insert into lake.s.t select 1) select 1",
        "merge into lake.s.t using lake.s.u on a = b when matched then delete",
        *("select transform(a) using 'cat' from s.t", "from s.t map a using 'cat'"),
        *("select * from s.t version as of 3", "select * from s.t timestamp as of '2020-01-01'"),
        *("select * from lake.s.t.files", "select * from lake.s.t@v1", "select ${env:HOME}"),
        *("select ?", "select :a", "select a:b from s.t", "select a from s.t where b = :x"),
        *("select _file from s.t", "select t._metadata.file_path from s.t", "select user"),
        "select " + "(" * 3000 + "1" + ")" * 3000,
        "select '" + "x" * LONGEST + "'",
    ],
)
def test_what_is_no_plain_query_is_refused(sql):
    assert refusal(sql) == "SQL_UNSUPPORTED"


@pytest.mark.parametrize(
    "name",
    [
        *("java_method", "reflect", "try_reflect", "`reflect`", "REFLECT", "read_files"),
        *("input_file_name", "from_avro", "from_protobuf", "from_xml", "xpath", "version"),
        *("lake.s.own", "system.builtin.upper", "builtin.reflect", "streamsql_changelog"),
        *("identifier", "http_request", "secret", "no_such_function", "python_worker_logs"),
    ],
)
@pytest.mark.parametrize(
    "place",
    [
        "select {}",
        "select a from s.t where {} = 1 or a = 2",
        "select * from (select max({}) over (order by a) from s.t)",
        "select transform(array(1), x -> {})",
        "select a from s.t limit {}",
        "select extract(year from {})",
        "select trim(both {} from 'x')",
        "with c as (select {}) select * from c",
        "select * from s.t lateral view explode(array({})) q as z",
        "select * from s.t join s.u on {} = 1",
        "select sum(a) filter (where {} > 1) from s.t",
        "select a from s.t order by {}",
    ],
)
def test_a_function_that_is_not_known_to_be_harmless_is_refused_anywhere(name, place):
    assert refusal(place.format(f"{name}('a')")) == "FUNCTION_INVALID"


@pytest.mark.parametrize(
    "sql", ["select * from {}('a')", "select * from s.t, lateral {}('a') as q(z)"]
)
@pytest.mark.parametrize(
    "name", ["read_files", "lake.s.range", "system.builtin.range", "identifier"]
)
def test_so_is_one_that_makes_a_table(sql, name):
    assert refusal(sql.format(name)) in ("FUNCTION_INVALID", "SQL_UNSUPPORTED")


@pytest.mark.parametrize(
    "table",
    [
        *("csv.`/etc/passwd`", "text.`file:/etc/passwd`", "parquet.`s3a://b/x`", "json.`x`.`y`"),
        *("lake.s.other", "s.other", "spark_catalog.s.t", "LAKE.S.T", "lake.S.t", "`lake`.`s.t`"),
        *("information_schema.tables", "lake.information_schema.tables", "other.__META_BARRIERS"),
    ],
)
@pytest.mark.parametrize(
    "place",
    [
        "select * from {}",
        "table {}",
        "from {} |> select *",
        "select * from s.t where a in (select 1 from {})",
        "select * from s.t, lateral (select * from {})",
        "with t as (select * from {}) select * from t",
        "select (select max(a) from {})",
    ],
)
def test_a_table_that_one_may_not_read_is_refused_anywhere(table, place):
    assert refusal(place.format(table)) == "TABLE_MISSING"


@pytest.mark.parametrize("table", ["t", "`lake.s.t`", "__META_BARRIERS", "`/data/table`"])
def test_a_name_of_one_part_is_that_of_a_query_in_with(table):
    assert refusal(f"select * from {table}") == "IDENTIFIER_INVALID"
    later = f"with a as (select * from {table}), {table} as (select 1) select * from a"
    assert refusal(later) in ("TABLE_MISSING", "SQL_UNSUPPORTED")
    inside = f"select * from (with {table} as (select 1) select 1), {table}"
    assert refusal(inside) in ("IDENTIFIER_INVALID", "SQL_UNSUPPORTED")
    itself = f"with {table} as (select * from {table}) select 1"
    assert refusal(itself) in ("TABLE_MISSING", "SQL_UNSUPPORTED")


PLACES = (
    "select 1 as @",
    "select 1 @",
    "select @.a from s.t as @",
    "select a from s.t @ (b, c)",
    "select a from (select 1) as @",
    "with @ as (select 1) select 1",
    "with x as (select 1), y (@) as (select 2) select * from y",
    "select * from values (1) as v (@)",
    "select * from explode(array(1)) as e (@)",
    "select * from s.t lateral view explode(a) @ as z",
    "select * from s.t lateral view explode(a) q as @",
    "select extract(@ from now())",
    "select struct(1 as @)",
    "select named_struct('a', 1).@",
    "select transform(array(1), @ -> 1)",
    "select * from s.t pivot (sum(a) as @ for b in (1 as @))",
    "select * from s.t unpivot (@ for b in (c, d))",
    "select sum(a) over @ from s.t window @ as (order by b)",
    "from s.t |> select a as @",
    "from s.t |> extend 1 as @",
    "from s.t |> as @",
    "from s.t |> drop @",
    "from s.t |> aggregate sum(a) as @ group by b",
    "select * except (@) from s.t",
    "select * from s.t join s.u using (@)",
    "select a from s.t order by @",
    "select date_add(@, 1), trim(both @ from a) from s.t",
    "select a:@ from s.t",
    "select cast(1 as struct<@: int>)",
    "select interval 1 @",
    "select * from s.t tablesample (@)",
    "select * from s.@",
    "select @('x')",
)


@pytest.mark.parametrize("form", ["`Z Z`", "'Z Z'", '"Z Z"', "r'Z Z'", 'r"Z Z"'])
@pytest.mark.parametrize("place", PLACES)
def test_a_name_never_loses_the_quotes_that_make_it_one(place, form):
    try:
        text, _ = only_reads(place.replace("@", form), ALLOWED | {"lake.s.Z Z"}, "lake")
    except StreamSqlError:
        return
    outside = re.sub(r"`[^`]*`|'[^']*'|\"[^\"]*\"", "", text)
    assert "Z" not in outside, text


@pytest.mark.parametrize(
    "sql",
    [
        "select extract(`year from now()), java_method('a', 'b'), extract(year` from now())",
        "select extract(`year from now()) from lake.b.secret --` from now())",
        "select 1 as r\"x, java_method('java.lang.System', 'getProperty', 'user.home') as y\"",
        "select * from s.t lateral view explode(array(1)) `q as z join csv.``/etc/passwd`` --` as z",
    ],
)
def test_no_text_gets_out_of_a_name(sql):
    try:
        text, tables = only_reads(sql, ALLOWED, "lake")
    except StreamSqlError:
        return
    bare = re.sub(r"`(?:[^`]|``)*`", "", text)
    assert not re.search(r"java_method|secret|csv", bare), text
    assert tables <= ALLOWED


@pytest.mark.parametrize("word", ["date", "char", "decimal", "struct", "timestamp", "string"])
def test_names_of_types_inside_one_another_are_refused_at_once(word):
    assert refusal(f"select {word}(" * 30 + "1" + ")" * 30) == "SQL_UNSUPPORTED"
    assert refusal("select cast(1 as " + f"{word}(" * 30 + "1" + ")" * 31) == "SQL_UNSUPPORTED"
    only_reads(
        "select date(date(a)), decimal(a), cast(b as decimal(3, 1)) from s.t", ALLOWED, "lake"
    )
