"""Where a text names tables, read by the parser or not."""

from __future__ import annotations

import pytest

from dbt_streamsql.compiler.parsing.names import replace_tables, uses_without_tree

REPLACED = """
SELECT t.id FROM c.s.t
SELECT t.id FROM (X) AS `t`

SELECT id FROM c.s.t x
SELECT id FROM (X) x

SELECT t.id FROM c.s.t TABLESAMPLE (9 ROWS) WHERE a
SELECT t.id FROM (X) TABLESAMPLE (9 ROWS) AS `t` WHERE a

SELECT id FROM c.s.t TABLESAMPLE (9 ROWS) REPEATABLE (1) x
SELECT id FROM (X) TABLESAMPLE (9 ROWS) REPEATABLE (1) x

SELECT id FROM c.s.t VERSION AS OF 5
SELECT id FROM c.s.t VERSION AS OF 5

SELECT id FROM c.s.t.snapshots
SELECT id FROM c.s.t.snapshots
""".strip().split("\n\n")
UNREADABLE = """
TABLE c.s.t
SELECT * FROM (X) AS `t`

SELECT * FROM (TABLE c.s.t)
SELECT * FROM (SELECT * FROM (X) AS `t`)

FROM c.s.t |> SET a = 1
FROM (X) AS `t` |> SET a = 1

FROM c.s.t JOIN `c`.s.`t` AS u |> SET a = f(c.s.t.id)
FROM (X) AS `t` JOIN (X) AS u |> SET a = f(c.s.t.id)

SELECT id FROM c.s.t FOR SYSTEM_TIME AS OF 'x'
SELECT id FROM c.s.t FOR SYSTEM_TIME AS OF 'x'
""".strip().split("\n\n")
"""Texts that Spark reads and the parser does not."""


@pytest.mark.parametrize("pair", [*REPLACED, *UNREADABLE])
def test_a_table_is_replaced_wherever_it_is_named(pair):
    text, made = pair.splitlines()
    assert replace_tables(text, lambda name: "(X)" if str(name) == "c.s.t" else None) == made


@pytest.mark.parametrize(
    "text", ["SELECT * FROM a.b.", "SELECT 'abc FROM a.b.c", "SELECT * FROM /* a.b.c"]
)
def test_a_text_without_an_end_names_no_table_and_stays_as_it_is(text):
    assert uses_without_tree(text, "a", "b") == []
    assert replace_tables(text, lambda _: "x") == text


def test_a_statement_that_drops_a_table_is_left_alone():
    assert uses_without_tree("DROP TABLE a.b.c") == []
