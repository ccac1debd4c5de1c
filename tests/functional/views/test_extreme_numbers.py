"""Sums and averages stay exact over the whole range of every type, whatever comes and goes."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

DECIMALS = ((38, 18), (36, 2), (38, 6), (38, 0), (34, 4), (28, 10), (27, 20), (10, 2))
INTEGERS = {"tinyint": 2**7 - 1, "smallint": 2**15 - 1, "int": 2**31 - 1, "bigint": 2**62 - 1}


def _digits(precision, scale):
    whole, part = "1234567890" * 4, "1234567890" * 4
    text = whole[: precision - scale] or "0"
    return f"{text}.{part[:scale]}" if scale else text


def _least(scale):
    return f"0.{'0' * (scale - 1)}1" if scale else "1"


@pytest.mark.parametrize("below", ["", "WHERE t > CAST(0 AS DOUBLE)"])
def test_what_is_taken_back_leaves_nothing_behind(engine, schema, below):
    spark, at = engine.spark, f"lake.{schema}"
    types = {f"decimal({p},{s})": (_digits(p, s), _least(s)) for p, s in DECIMALS}
    types |= {name: (str(most), "1") for name, most in INTEGERS.items()}
    names = [f"c{number}" for number in range(len(types))]
    columns = ", ".join(f"{n} {t}" for n, t in zip(names, types, strict=True))
    calls = ", ".join(f"sum({n}) AS s_{n}, max({n}) AS m_{n}" for n in names)
    averaged = zip(names, types, strict=True)  # of 35 digits and more Spark's own AVG fails
    calls += "".join(f", avg({n}) AS a_{n}" for n, t in averaged if "(3" not in t or "(34" in t)
    spark.sql(f"CREATE TABLE {at}.t (id INT, k INT, {columns})")

    def insert(identifier, sign, which):
        row = ", ".join(f"CAST('{sign}{pair[which]}' AS {t})" for t, pair in types.items())
        spark.sql(f"INSERT INTO {at}.t SELECT {identifier}, 1, {row}")

    insert(1, "", 0)
    insert(2, "", 1)
    text = f"SELECT k, {calls} FROM {at}.t GROUP BY k"
    total = ", ".join(f"s_{n}" for n in names)
    outer = f"SELECT t, {total} FROM (SELECT sum(c0) AS t, {calls} FROM {at}.t GROUP BY k)"
    views = {f"{at}.by_key": text, f"{at}.nested": f"{outer} {below}"}
    for name, query in views.items():
        engine.create_materialized_view(name, query, refresh_mode="incremental_strict")
    changes = (
        lambda: spark.sql(f"DELETE FROM {at}.t WHERE id = 1"),
        lambda: insert(3, "-", 0),
        lambda: spark.sql(f"DELETE FROM {at}.t WHERE id = 3"),
        lambda: insert(4, "", 0),
        lambda: spark.sql(f"UPDATE {at}.t SET k = 2 WHERE id = 4"),
    )
    for change in changes:
        change()
        engine.advance()
        for name in views:
            assert engine.verify(name) == []


def test_zero_has_one_sign_wherever_it_could_be_seen(engine, schema):
    spark, at = engine.spark, f"lake.{schema}"
    spark.sql(f"CREATE TABLE {at}.t (id INT, f DOUBLE, g FLOAT)")
    spark.sql(f"INSERT INTO {at}.t VALUES (1, 0.0, 0.0), (2, -0.0, -0.0), (3, 1.5, NULL)")
    views = {
        "rows": "SELECT id, f, g, CAST(f AS STRING) AS t, concat(g, '!') AS u, f || '' AS v FROM {t}",
        "groups": "SELECT CAST(f AS STRING) AS t, f, count(*) AS n FROM {t} GROUP BY 1, 2",
        "nested": "SELECT id, to_json(struct(h)) AS j FROM (SELECT DISTINCT id, -g AS h FROM {t})",
        "joined": "SELECT a.id, b.id AS other, format_number(b.f, 1) AS t "
        "FROM {t} a LEFT JOIN {t} b ON CAST(a.f AS STRING) = CAST(b.f AS STRING)",
    }
    for name, query in views.items():
        text = query.format(t=f"{at}.t")
        engine.create_materialized_view(f"{at}.{name}", text, refresh_mode="incremental_strict")
    for change in (
        "UPDATE {t} SET f = -0.0, g = -0.0 WHERE id = 1",
        "INSERT INTO {t} VALUES (4, -0.0, 0.0), (5, 0.0, -0.0)",
        "UPDATE {t} SET f = 2 WHERE id IN (2, 4)",
        "DELETE FROM {t} WHERE id = 5",
        "UPDATE {t} SET f = 0.0 WHERE id = 2",
    ):
        spark.sql(change.format(t=f"{at}.t"))
        engine.advance()
        for name in views:
            assert engine.verify(f"{at}.{name}") == [], (change, name)
        signed = f"SELECT count(*) FROM {at}.rows WHERE t LIKE '-%' OR u LIKE '-%' OR v LIKE '-%'"
        assert spark.sql(signed).first()[0] == 0, change
