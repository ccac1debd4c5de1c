"""Many sources write one wide table, each its own columns."""

from __future__ import annotations

import re
from collections import Counter
from decimal import Decimal

import pytest

from dbt_streamsql.errors import StreamSqlError
from tests.property.playing import WAYS

pytestmark = [pytest.mark.spark, pytest.mark.hunts]

CRM = ("SELECT id, name, city FROM {crm}", ["name", "city"], "crm")
WEB = ("SELECT user, clicks FROM {web}", ["clicks"], "web")
SHOP = (
    "SELECT user, count(*), sum(amount) FROM {shop} GROUP BY user",
    ["orders", "spent"],
    "shop",
)


class Sources:
    """Three tables of one schema, and the wide table over them."""

    def __init__(self, engine, schema):
        self.engine, self.schema, self.wide = engine, schema, f"lake.{schema}.wide"
        self.names = {name: f"lake.{schema}.{name}" for name in ("crm", "web", "shop")}
        for name, columns in {
            "crm": "id INT, name STRING, city STRING, at INT",
            "web": "user BIGINT, clicks INT, city STRING, at INT",
            "shop": "user INT, amount DECIMAL(9,2)",
        }.items():
            self.sql(
                f"CREATE TABLE {{{name}}} ({columns}) TBLPROPERTIES ('format-version'='3', "
                "'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read')"
            )
        self.sql("INSERT INTO {crm} VALUES (1, 'Ann', 'Rome', 1), (2, 'Bob', NULL, 5)")
        self.sql("INSERT INTO {web} VALUES (1, 10, 'Paris', 2), (3, 30, 'Oslo', 2)")
        self.sql("INSERT INTO {shop} VALUES (1, 5), (1, 7), (4, 1)")

    def sql(self, text):
        self.engine.spark.sql(text.format(**self.names))

    def create(self, *branches, key="id", **options):
        given = [(text.format(**self.names), *rest) for text, *rest in branches]
        return self.engine.create_partial_update(self.wide, key=key, branches=given, **options)

    def advance(self):
        return self.engine.advance().tables[self.wide]

    def rows(self, columns="*"):
        found = self.engine.sql(f"SELECT {columns} FROM {self.wide}").collect()
        return sorted((tuple(row) for row in found), key=str)

    def right(self):
        assert self.engine.verify(self.wide) == []


@pytest.fixture
def sources(engine, schema):
    return Sources(engine, schema)


@pytest.fixture(params=list(WAYS))
def way(request, engine, tune):
    tune(engine, **WAYS[request.param])
    return request.param


@pytest.mark.parametrize("reuse", [True, False], ids=["one writer", "a writer each"])
def test_each_branch_writes_its_own_columns_and_no_other(sources, way, reuse):
    sources.create(CRM, WEB, SHOP, reuse_sink=reuse)
    assert sources.rows() == [
        (1, "Ann", "Rome", 10, 2, Decimal("12.00")),
        (2, "Bob", None, None, None, None),
        (3, None, None, 30, None, None),
        (4, None, None, None, 1, Decimal("1.00")),
    ]
    sources.sql("UPDATE {web} SET clicks = 11 WHERE user = 1")
    sources.sql("UPDATE {crm} SET name = NULL WHERE id = 1")
    sources.sql("DELETE FROM {web} WHERE user = 3")
    sources.sql("DELETE FROM {shop} WHERE amount = 5")
    sources.sql("INSERT INTO {crm} VALUES (4, 'Dan', 'Bern', 1), (5, 'Eve', 'Kiel', 1)")
    assert sources.advance().mode == "incremental"
    assert sources.rows() == [
        (1, None, "Rome", 11, 1, Decimal("7.00")),
        (2, "Bob", None, None, None, None),
        (4, "Dan", "Bern", None, 1, Decimal("1.00")),
        (5, "Eve", "Kiel", None, None, None),
    ]
    sources.right()
    sources.sql("DELETE FROM {crm} WHERE id IN (1, 2)")
    assert sources.advance().mode == "incremental"
    assert sources.rows()[0] == (1, None, None, 11, 1, Decimal("7.00"))
    assert len(sources.rows()) == 3
    sources.right()
    assert sources.advance().mode == "noop"


def test_many_branches_gain_and_lose_rows_in_a_table_that_is_written_anew(sources, tune):
    # What Spark infers of so many counters does not fit its memory, unless it is told not to.
    tune(sources.engine, driver_rows=0)
    spark, source = sources.engine.spark, f"lake.{sources.schema}.many"
    columns = [f"c{number}" for number in range(22)]
    spark.sql(f"CREATE TABLE {source} (id INT, {', '.join(f'{c} INT' for c in columns)})")
    ones = ", ".join("1" for _ in columns)
    spark.sql(f"INSERT INTO {source} VALUES (1, {ones}), (2, {ones})")
    sources.create(
        CRM, *((f"SELECT id, {c} FROM {source} WHERE {c} > 0", [c], f"b_{c}") for c in columns)
    )
    spark.sql(f"INSERT INTO {source} VALUES (3, {ones})")
    spark.sql(f"UPDATE {source} SET c7 = 0, c8 = 2 WHERE id = 2")
    spark.sql(f"DELETE FROM {source} WHERE id = 1")
    assert sources.advance().mode == "incremental"
    assert sources.rows("name, c6, c7, c8")[1:] == [("Bob", 1, None, 2), (None, 1, 1, 1)]
    sources.sql("UPDATE {crm} SET name = 'Bo' WHERE id = 2")
    sources.sql("INSERT INTO {crm} VALUES (7, 'Gil', 'Graz', 1)")
    assert sources.advance().mode == "incremental"
    assert sources.rows("name, c6, c7, c8")[1] == ("Bo", 1, None, 2)
    sources.right()


@pytest.mark.parametrize(("reuse", "commits"), [(True, 1), (False, 3)])
def test_all_branches_are_one_commit_unless_the_sink_is_not_reused(sources, reuse, commits):
    sources.create(CRM, WEB, SHOP, reuse_sink=reuse)
    history = f"SELECT count(*) FROM {sources.wide}.snapshots"
    before = sources.engine.spark.sql(history).first()[0]
    sources.sql("UPDATE {web} SET clicks = 11 WHERE user = 1")
    sources.sql("UPDATE {crm} SET name = 'A' WHERE id = 1")
    sources.sql("DELETE FROM {shop} WHERE amount = 5")
    sources.advance()
    assert sources.engine.spark.sql(history).first()[0] - before == commits
    sources.right()


def test_explain_shows_the_sinks_before_and_after_their_reuse(sources):
    def told(reuse):
        sources.create(CRM, WEB, reuse_sink=reuse)
        lines = iter(sources.engine.explain(sources.wide).splitlines())
        found = []
        for line in lines:
            if "reuse:" in line:
                found.append((line, []))
            elif found and line.startswith("  ") and "<-" in line:
                found[-1][1].append(line.split(maxsplit=2)[2])
        return found

    apart = ["(id, name, city) <- crm", "(id, clicks) <- web"]
    assert told(reuse=True) == [
        ("before reuse: 2 sinks", apart),
        ("after reuse: 1 sink", ["(id, name, city, clicks) <- crm + web"]),
    ]
    assert told(reuse=False) == [("before reuse: 2 sinks", apart), ("after reuse: 2 sinks", apart)]


@pytest.mark.parametrize("undone", ["full refresh", "rollback"])
def test_what_somebody_else_wrote_is_told_and_not_overwritten(sources, undone):
    sources.create(CRM, WEB)
    before = sources.rows()
    spark, wide = sources.engine.spark, sources.wide

    def stored():
        return sorted(map(tuple, spark.sql(f"SELECT id, city FROM {wide}").collect()))

    spark.sql(f"UPDATE {wide} SET city = 'Bonn' WHERE id = 1")
    theirs = stored()
    for change in ("", "UPDATE {web} SET clicks = 11 WHERE user = 1"):
        if change:
            sources.sql(change)
        with pytest.raises(StreamSqlError, match="was modified outside dbt-streamsql") as refused:
            sources.advance()
        assert refused.value.code == "TABLE_MOVED"
        assert stored() == theirs
        assert sources.rows() == before
    with pytest.raises(StreamSqlError, match="was modified outside dbt-streamsql"):
        sources.create(CRM, WEB, SHOP)
    if undone == "rollback":
        call = re.search(r"CALL system(\.rollback_to_snapshot\(.*?\))", str(refused.value))
        spark.sql(f"CALL lake.system{call[1]}")
        assert sources.advance().mode == "incremental"
    else:
        sources.create(CRM, WEB, full_refresh=True)
    assert sources.rows()[0] == (1, "Ann", "Rome", 11)
    sources.right()


def test_readers_of_a_wide_table_take_up_its_changes(sources):
    sources.create(CRM, WEB, SHOP, reuse_sink=False)
    top = f"lake.{sources.schema}.top"
    sources.engine.create_materialized_view(
        top, f"SELECT city, sum(clicks) AS c, count(*) AS n FROM {sources.wide} GROUP BY city"
    )
    sources.sql("UPDATE {web} SET clicks = 11 WHERE user = 1")
    sources.sql("INSERT INTO {crm} VALUES (3, 'Cid', 'Rome', 1)")
    report = sources.engine.advance()
    assert [report.tables[name].mode for name in (sources.wide, top)] == ["incremental"] * 2
    assert sources.engine.verify(top) == []
    found = sources.engine.sql(f"SELECT * FROM {top} WHERE city = 'Rome'").first()
    assert tuple(found) == ("Rome", 41, 2)


BOTH = (
    ("SELECT id, name, city, at FROM {crm}", ["name", "city", "at"], "crm"),
    ("SELECT user, clicks, city, at FROM {web}", ["clicks", "city", "at"], "web"),
)


@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [
        ({"precedence": ["crm", "web"], "merge": {"at": "max"}}, "Rome", None),
        ({"precedence": ["web", "crm"], "merge": {"at": "max"}}, "Paris", "Paris"),
        (
            {"precedence": ["crm", "web"], "merge": {"at": "max", "city": "last_non_null_value"}},
            "Rome",
            "Paris",
        ),
        ({"sequence_by": "at"}, "Paris", None),
        ({"sequence_by": {"at": ["city"]}}, "Paris", None),
        ({"sequence_by": "at", "merge": {"city": "last_non_null_value"}}, "Paris", "Paris"),
        ({"merge": {"city": "min", "at": "sum"}}, "Paris", "Paris"),
        ({"merge": {"city": "count", "at": "min"}}, 2, 1),
        ({"merge": {"city": "collect", "at": "max"}}, ["Rome", "Paris"], ["Paris"]),
        ({"merge": {"city": "listagg", "at": "max"}}, "Rome,Paris", "Paris"),
    ],
    ids=lambda rule: str(rule) if isinstance(rule, dict) else "",
)
def test_a_column_of_two_branches_is_what_the_rule_says(sources, rule, before, after):
    sources.create(*BOTH, **rule)
    city = f"SELECT city FROM {sources.wide} WHERE id = "
    read = lambda key: sources.engine.sql(f"{city}{key}").first()[0]  # noqa: E731
    assert read(1) == before
    sources.right()
    # The NULL that a branch writes is a value.
    sources.sql("UPDATE {crm} SET city = NULL, at = 9 WHERE id = 1")
    assert sources.advance().mode == "incremental"
    assert read(1) == after
    sources.right()
    # What the winner said is taken back with its row.
    sources.sql("DELETE FROM {crm} WHERE id = 1")
    sources.sql("UPDATE {web} SET city = 'Nice' WHERE user = 1")
    sources.advance()
    found = read(1)
    assert found in ("Nice", ["Nice"], 1)
    sources.right()


def test_numbers_and_truths_of_several_branches_are_put_together(sources):
    sources.create(
        ("SELECT id, at, at > 3 FROM {crm}", ["total", "late"], "crm"),
        ("SELECT user, clicks, false FROM {web}", ["total", "late"], "web"),
        ("SELECT user, sum(amount), true FROM {shop} GROUP BY user", ["total", "late"], "shop"),
        merge={"total": "sum", "late": "bool_or"},
    )
    assert sources.rows() == [
        (1, Decimal("23.00"), True),
        (2, Decimal("5.00"), True),
        (3, Decimal("30.00"), False),
        (4, Decimal("1.00"), True),
    ]
    sources.sql("DELETE FROM {shop} WHERE user = 1")
    sources.sql("UPDATE {web} SET clicks = NULL WHERE user = 3")
    sources.advance()
    assert sources.rows()[0] == (1, Decimal("11.00"), False)
    assert sources.rows()[2] == (3, None, False)
    sources.right()


def test_a_row_lives_while_the_anchor_has_its_key(sources, way):
    sources.create(CRM, WEB, SHOP, row_lifetime="anchor:crm")
    assert [row[0] for row in sources.rows()] == [1, 2]
    sources.sql("INSERT INTO {crm} VALUES (3, 'Cid', 'Oslo', 1), (9, 'Ida', 'Bonn', 1)")
    sources.sql("UPDATE {web} SET clicks = 31 WHERE user = 3")
    sources.sql("INSERT INTO {shop} VALUES (7, 1), (1, 1)")
    assert sources.advance().mode == "incremental"
    assert sources.rows() == [
        (1, "Ann", "Rome", 10, 3, Decimal("13.00")),
        (2, "Bob", None, None, None, None),
        (3, "Cid", "Oslo", 31, None, None),
        (9, "Ida", "Bonn", None, None, None),
    ]
    sources.right()
    sources.sql("DELETE FROM {crm} WHERE id = 1")
    sources.sql("INSERT INTO {web} VALUES (8, 8, 'x', 1)")
    sources.advance()
    assert [row[0] for row in sources.rows()] == [2, 3, 9]
    # It comes back with all that the others say of it.
    sources.sql("INSERT INTO {crm} VALUES (1, 'Ann', 'Rom', 2)")
    assert sources.advance().mode == "append"
    assert sources.rows()[0] == (1, "Ann", "Rom", 10, 3, Decimal("13.00"))
    sources.right()


def test_fields_of_a_column_are_targets(sources):
    report = sources.create(
        ("SELECT id, name, city FROM {crm}", ["a", "b.b1"], "crm"),
        ("SELECT user, clicks, at FROM {web}", ["b.b2", "b.c.d"], "web"),
    )
    assert report.mode == "full"
    assert [str(row) for row in sources.rows("to_json(struct(*))")] == [
        """('{"id":1,"a":"Ann","b":{"b1":"Rome","b2":10,"c":{"d":2}}}',)""",
        """('{"id":2,"a":"Bob","b":{}}',)""",
        """('{"id":3,"b":{"b2":30,"c":{"d":2}}}',)""",
    ]
    sources.sql("UPDATE {web} SET clicks = 12 WHERE user = 1")
    sources.sql("DELETE FROM {web} WHERE user = 3")
    assert sources.advance().mode == "incremental"
    assert sources.rows("id, b.b1, b.b2, b.c.d") == [(1, "Rome", 12, 2), (2, None, None, None)]
    sources.right()


def test_the_last_row_of_a_key_wins_inside_a_branch(sources):
    sources.create(*BOTH, sequence_by="at")
    sources.sql("INSERT INTO {crm} VALUES (1, 'Anna', 'Turin', 3), (1, 'An', 'Milan', 2)")
    assert sources.advance().mode == "incremental"
    assert sources.rows("id, name, city, at")[0] == (1, "Anna", "Turin", 3)
    sources.right()
    sources.sql("DELETE FROM {crm} WHERE at = 3")
    sources.advance()
    # Both say 2: of equal ones the branch that is declared first.
    assert sources.rows("id, name, city, at")[0] == (1, "An", "Milan", 2)
    sources.right()


@pytest.mark.parametrize(
    ("wrong", "told", "repair"),
    [
        (
            "INSERT INTO {crm} VALUES (1, 'Anna', 'Turin', 3)",
            "branch `crm` has several rows with the same key",
            "DELETE FROM {crm} WHERE name = 'Anna'",
        ),
        (
            "INSERT INTO {web} VALUES (NULL, 1, 'Turin', 3)",
            "branch `web` has no value in its key",
            "DELETE FROM {web} WHERE user IS NULL",
        ),
    ],
    ids=["twice", "null"],
)
@pytest.mark.parametrize("full", [True, False], ids=["at first", "later"])
def test_a_key_that_is_there_twice_or_null_is_refused_and_changes_nothing(
    sources, wrong, told, repair, full
):
    if full:
        sources.sql(wrong)
        with pytest.raises(StreamSqlError, match=told) as refused:
            sources.create(CRM, WEB)
        assert refused.value.code == "PARTIAL_UPDATE_KEY"
        sources.sql(repair)
        sources.create(CRM, WEB)
        assert len(sources.rows()) == 3
        return
    sources.create(CRM, WEB)
    before = sources.rows()
    sources.sql(wrong)
    with pytest.raises(StreamSqlError, match=told) as refused:
        sources.advance()
    assert refused.value.code == "PARTIAL_UPDATE_KEY"
    assert sources.rows() == before
    sources.sql(repair)
    sources.sql("UPDATE {crm} SET name = 'A' WHERE id = 1")
    sources.advance()
    assert sources.rows()[0] == (1, "A", "Rome", 10)
    sources.right()


def test_everything_that_is_wrong_is_told_at_once(sources):
    with pytest.raises(StreamSqlError) as refused:
        sources.create(
            ("SELECT id, name FROM {crm}", ["name", "name"], "crm"),
            ("SELECT user, clicks FROM {web}", ["b", "b.c"], "web"),
            merge={"nobody": "sum", "name": "first"},
            precedence=["crm", "nobody"],
            row_lifetime="anchor:nobody",
        )
    assert refused.value.code == "PARTIAL_UPDATE_INVALID"
    told = refused.value.given
    for part in (
        "branch `crm` writes `name` twice",
        "`b` is a column and `b.c` is one of its fields",
        "`merge` names `nobody`, which no branch writes",
        "`merge: name` must be one of",
        "`precedence` names `nobody`",
        "`row_lifetime` must be any or one of anchor:crm, anchor:web",
    ):
        assert part in told


@pytest.mark.parametrize(
    ("branches", "rule", "told"),
    [
        (BOTH, {}, "`crm` and `web` write `city`, and no rule decides which wins"),
        (
            (BOTH[0], ("SELECT user, city FROM {web}", ["city"], "web")),
            {"sequence_by": "at"},
            "branch `web` writes `city` without `at`",
        ),
        ((CRM, ("SELECT user FROM {web}", ["clicks"], "web")), {}, "does not return the columns"),
        (
            (
                ("SELECT id, name FROM {crm}", ["x"], "crm"),
                ("SELECT user, city FROM {web}", ["x"], "web"),
            ),
            {"merge": {"x": "sum"}},
            "only numbers can be summed",
        ),
        ((), {}, "there are no branches"),
    ],
)
def test_branches_that_do_not_fit_together_are_refused(sources, branches, rule, told):
    with pytest.raises(StreamSqlError, match="PARTIAL_UPDATE_INVALID") as refused:
        sources.create(*branches, **rule)
    assert told in str(refused.value)


def test_an_outer_join_in_a_branch_clobbers_no_column_of_another(sources):
    joined = (
        "SELECT c.id, c.name, w.city FROM {crm} c LEFT JOIN {web} w ON w.user = c.id",
        ["name", "place"],
        "joined",
    )
    sources.create(joined, WEB)
    assert sources.rows()[1] == (2, "Bob", None, None)
    sources.sql("DELETE FROM {web} WHERE user = 1")
    sources.sql("INSERT INTO {web} VALUES (2, 20, 'Lyon', 1)")
    assert sources.advance().mode == "incremental"
    assert sources.rows() == [(1, "Ann", None, None), (2, "Bob", "Lyon", 20), (3, None, None, 30)]
    sources.right()


def test_a_key_of_several_columns_with_names_of_all_kinds(sources):
    sources.create(
        ("SELECT id, city, name FROM {crm} WHERE city IS NOT NULL", ["Full Name"], "crm"),
        ("SELECT user, city, clicks FROM {web}", ["select"], "web"),
        key=["id", "The City"],
    )
    sources.sql("INSERT INTO {web} VALUES (1, 5, 'Rome', 2)")
    assert sources.advance().mode in ("append", "incremental")
    assert sources.rows()[:2] == [(1, "Paris", None, 10), (1, "Rome", "Ann", 5)]
    sources.right()


SET = """
BEGIN STATEMENT SET;

INSERT INTO sink(pk, f1, f2, f3)
SELECT
	pk,
	f1,
	f2,
	f3
FROM table1;

INSERT INTO sink(pk, f4, f5, f6)
SELECT
	pk,
	f4,
	f5,
	f6
FROM table2;

INSERT INTO sink(pk, f7, f8, f9)
SELECT
	pk,
	f7,
	f8,
	f9
FROM table3;

END;
"""


def test_the_statement_set_of_the_design_runs_word_for_word(engine, spark, schema):
    for number in (1, 2, 3):
        first = 3 * number - 2
        names = [f"f{at}" for at in range(first, first + 3)]
        columns = ", ".join(f"{name} STRING" for name in names)
        spark.sql(f"CREATE TABLE lake.{schema}.table{number} (pk INT, {columns})")
        values = ", ".join(f"'{name}'" for name in names)
        spark.sql(
            f"INSERT INTO lake.{schema}.table{number} VALUES (1, {values}), ({number + 1}, {values})"
        )
    engine.create_partial_update(f"lake.{schema}.sink", key="pk", branches=SET)
    found = engine.sql(f"SELECT * FROM lake.{schema}.sink ORDER BY pk")
    assert found.columns == ["pk", *(f"f{at}" for at in range(1, 10))]
    assert [Counter(row[1:])[None] for row in found.collect()] == [0, 6, 6, 6]
    spark.sql(f"UPDATE lake.{schema}.table2 SET f5 = 'new' WHERE pk = 1")
    engine.advance()
    assert engine.sql(f"SELECT f1, f5, f9 FROM lake.{schema}.sink WHERE pk = 1").first()[:] == (
        "f1",
        "new",
        "f9",
    )
    assert engine.verify(f"lake.{schema}.sink") == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELECT 1", "it is not an INSERT"),
        ("INSERT OVERWRITE wide (id) SELECT 1", "it is not an INSERT INTO"),
        ("INSERT INTO wide SELECT 1", "it lists no columns"),
        ("INSERT INTO wide (id)", "it has no query"),
        ("INSERT INTO other (id) SELECT 1", "a branch writes a different table"),
    ],
)
def test_statements_that_are_no_branches_are_refused(sources, text, told):
    with pytest.raises(StreamSqlError, match="PARTIAL_UPDATE_INVALID") as refused:
        sources.engine.create_partial_update(sources.wide, key="id", branches=text)
    assert told in str(refused.value)


def test_another_branch_reads_its_own_source_only_and_one_less_reads_nothing(sources):
    sources.create(CRM, WEB)
    sources.sql("UPDATE {web} SET clicks = 12 WHERE user = 1")
    report = sources.create(CRM, WEB, SHOP)
    assert (report.definition, report.mode) == ("compatible state", "incremental")
    assert report.reason == "the branches that stay are stored; only shop is read"
    assert sources.rows()[0] == (1, "Ann", "Rome", 12, 2, Decimal("12.00"))
    assert len(sources.rows()) == 4
    sources.right()
    sources.sql("INSERT INTO {shop} VALUES (2, 2)")
    report = sources.create(WEB, SHOP)
    assert report.definition == "compatible state"
    assert "nothing is read" in report.reason
    assert sources.rows("id, clicks, orders") == [
        (1, 12, 2),
        (2, None, 1),
        (3, 30, None),
        (4, None, 1),
    ]
    sources.right()
    # The same branches in another order, and the sink not reused: the rows stay.
    report = sources.create(WEB, SHOP, reuse_sink=False)
    assert (report.definition, report.mode) == ("metadata-only", "noop")
    report = sources.create(SHOP, WEB)
    assert report.definition == "compatible state"
    sources.sql("DELETE FROM {web} WHERE user = 3")
    assert sources.advance().mode == "incremental"
    sources.right()


def test_a_branch_may_change_the_order_of_its_columns(sources):
    sources.create(CRM, WEB)
    turned = ("SELECT id, city, name FROM {crm}", ["city", "name"], "crm")
    report = sources.create(turned, WEB)
    assert (report.definition, report.mode) == ("compatible state", "incremental")
    assert sources.rows("id, name, city")[0] == (1, "Ann", "Rome")
    sources.right()


def test_another_column_of_a_branch_reads_that_branch_only(sources):
    sources.create(CRM, WEB, row_lifetime="anchor:crm")
    wider = ("SELECT user, clicks, city FROM {web}", ["clicks", "place"], "web")
    report = sources.create(CRM, wider, row_lifetime="anchor:crm")
    assert report.reason.endswith("only web is read")
    assert sources.rows("id, place") == [(1, "Paris"), (2, None)]
    sources.right()
    report = sources.create(CRM, WEB)
    assert report.reason.endswith("keys that the old anchor does not have are not stored")
    assert len(sources.rows()) == 3
    sources.right()
