"""Parts of a query that can be stored: equal parts have one id, whatever they call their columns."""

from __future__ import annotations

import pytest

from dbt_streamsql.adapter.config.model_config import changes, of_materialized_view
from dbt_streamsql.compiler.state.normal_form import normal_form
from dbt_streamsql.compiler.state.stored_parts import cut, parts_of
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.algebra.expression import Expr
from dbt_streamsql.plan.algebra.relational import (
    CLOCK,
    Aggregate,
    Call,
    Input,
    Match,
    Output,
    Scan,
    Select,
    UnionAll,
    scans,
    tables,
)
from dbt_streamsql.plan.definition.stored_part import state_of

pytestmark = pytest.mark.hunts


def renamed(alias, key, value, total, *, table="lake.a.t", guard="{0} > 0"):
    """Sums by key of a filtered table, in the words given."""
    rows = Select(
        (Input(alias, Scan(table, ("a", "b"))),),
        (Expr(guard, ((alias, "b"),)),),
        (Output(key, Expr.column(alias, "a")), Output(value, Expr.column(alias, "b"))),
    )
    call = Call(total, "SUM", value, False, "int", True, "bigint")
    return Aggregate(rows, (key,), (call,))


def joined(part, name="x"):
    """A view over a part and another table."""
    key, *others = part.columns
    return Select(
        (Input(name, part), Input("d", Scan("lake.a.d", ("k", "n")))),
        (Expr("{0} = {1}", ((name, key), ("d", "k"))),),
        tuple(Output(column, Expr.column(name, column)) for column in others),
    )


def kept_by_themselves(root):
    """The parts of a query that are no copies of what it reads."""
    return [part for part in parts_of(root) if not part.copy]


def test_equal_parts_have_one_form_in_any_words():
    one, _ = normal_form(renamed("r", "k", "v", "total"))
    two, names = normal_form(renamed("sales", "item", "much", "s"))
    assert one == two
    assert set(names) == {"item", "s"}


@pytest.mark.parametrize("other", [{"table": "lake.a.u"}, {"guard": "{0} >= 0"}])
def test_parts_with_other_rows_have_other_forms(other):
    one, _ = normal_form(renamed("r", "k", "v", "s"))
    two, _ = normal_form(renamed("r", "k", "v", "s", **other))
    assert one != two


def test_columns_of_a_union_keep_their_places():
    left = Select(
        (Input("r", Scan("lake.a.t", ("a", "b"))),),
        (),
        (Output("x", Expr.column("r", "b")), Output("y", Expr.column("r", "a"))),
    )
    form, names = normal_form(UnionAll((left, Scan("lake.a.u", ("m", "n")))))
    first, second = form.inputs
    columns = {output.name: output.expr.refs[0][1] for output in first.outputs}
    assert [columns[names[name]] for name in ("x", "y")] == ["b", "a"]
    picked = (
        [output.expr.refs[0][1] for output in second.outputs]
        if isinstance(second, Select)
        else list(second.columns)
    )
    places = [form.columns.index(names[name]) for name in ("x", "y")]
    assert [picked[at] for at in places] == ["m", "n"]


def test_a_part_is_below_the_top_and_is_read_from_its_table():
    root = joined(renamed("r", "k", "v", "s"))
    (part,) = kept_by_themselves(root)
    assert (part.operators, part.tables) == ((2,), ("lake.a.t",))
    (stored,) = (type(part)(**{**vars(part), "stored": "lake.a.state"}),)
    made = cut(root, (stored,))
    assert tables(made) == ("lake.a.state", "lake.a.d")
    assert made.columns == root.columns
    assert parts_of(renamed("r", "k", "v", "s")) == ()


def test_a_part_that_depends_on_the_time_is_none():
    root = joined(renamed("r", "k", "v", "s", table=CLOCK))
    assert [part.tables for part in parts_of(root)] == [("lake.a.d",)]


def test_a_copy_has_the_column_that_joins_first_and_meets_the_conditions_over_it():
    sales, items = Scan("lake.a.t", ("a", "b", "z")), Scan("lake.a.d", ("k", "n"))
    root = Select(
        (Input("s", sales), Input("d", items)),
        (
            Expr("{0} > 0", (("s", "b"),)),
            Expr("{0} = {1}", (("s", "z"), ("d", "k"))),
            Expr("{0} < {1}", (("s", "a"), ("d", "n"))),
        ),
        (Output("m", Expr.column("d", "n")),),
    )
    one, other = parts_of(root)
    assert (one.copy, one.operators, one.tables) == (True, (2,), ("lake.a.t",))
    assert (other.copy, other.operators, other.tables) == (True, (3,), ("lake.a.d",))
    assert one.sql.endswith("ORDER BY c0")
    made = cut(root, (type(one)(**{**vars(one), "stored": "lake.a.copy"}),))
    assert [expr.template for expr in made.where] == ["{0} = {1}", "{0} < {1}"]
    copy = next(scan for scan in scans(made) if scan.table == "lake.a.copy")
    assert copy.columns == ("c1", "c0")
    joins = made.where[0].refs
    assert dict(joins)[made.inputs[0].alias] == "c0"


@pytest.mark.parametrize(("kind", "sides"), [("semi", 1), ("left", 1), ("full", 2)])
def test_the_keys_of_a_join_are_those_of_its_right_side_and_of_both_of_a_full_one(kind, sides):
    left, right = Scan("lake.a.t", ("a", "b")), Scan("lake.a.d", ("k", "n"))
    outputs = (Output("b", Expr.column("l", "b")),)
    types = ((("l", "a"), "int"), (("l", "b"), "int"), (("r", "k"), "int"), (("r", "n"), "int"))
    on = (Expr("{0} = {1}", (("l", "a"), ("r", "k"))),)
    match = Match(kind, Input("l", left), Input("r", right), on, outputs, types)
    keys = [part for part in parts_of(match) if part.keys]
    assert [part.tables for part in keys] == [("lake.a.d",), ("lake.a.t",)][:sides]
    stored = (type(part)(**{**vars(part), "stored": f"lake.a.{part.id}"}) for part in keys)
    made = cut(match, tuple(stored))
    assert tables(made).count("lake.a.d") == (0 if kind == "semi" else 1)
    assert {f"lake.a.{part.id}" for part in keys} <= set(tables(made))


@pytest.mark.parametrize("given", ["auto", "none", "all", [5, 3], (3,)])
def test_a_choice_is_a_word_or_numbers(given):
    wanted = given if isinstance(given, str) else tuple(sorted(given))
    assert state_of(given, Place("m")) == wanted
    assert of_materialized_view("m", {"state": given})["state"] == wanted


def test_a_wrong_choice_is_told_with_the_other_mistakes_of_a_config():
    with pytest.raises(StreamSqlError) as caught:
        of_materialized_view("m", {"state": "some", "refresh_mode": "never"})
    assert "`state`" in str(caught.value)
    assert "`refresh_mode`" in str(caught.value)


def test_another_choice_is_a_change_of_the_view():
    known, wanted = (of_materialized_view("m", {"state": state}) for state in ("none", "all"))
    assert changes(known, wanted) == "alter"
