"""What maps and variants are compared by."""

from __future__ import annotations

import pytest

from tests.support.product import Column, Metadata, has_likeness, stand_in, symbol

grouped = symbol("grouped", beside="stand_in")

NESTED = (
    "array_sort(transform(map_entries(c), e0 -> "
    "struct(e0.key, array_sort(map_entries(e0.value)))))"
)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("array<struct<a:int>>", "c"),
        ("map<string,int>", "array_sort(map_entries(c))"),
        ("variant", "struct(schema_of_variant(c), to_json(c))"),
        ("array<map<int,string>>", "transform(c, e0 -> array_sort(map_entries(e0)))"),
        ("map<string,map<int,decimal(10,2)>>", NESTED),
        (
            "struct<`a,b``<`:map<int,int>,n:int>",
            "IF(c IS NULL, NULL, struct(array_sort(map_entries(c.`a,b``<`)), c.`n`))",
        ),
    ],
)
def test_a_value_is_compared_by_what_spark_compares(type_, value):
    assert stand_in(type_, "c") == value


def test_rows_are_grouped_by_stand_ins_and_show_any_of_the_equal_values():
    columns = [Column("k", "int"), Column("m", "map<int,int>")]
    shown, keys = grouped(columns)
    assert shown == "`k`, any_value(`m`) AS `m`"
    assert keys == "`k`, array_sort(map_entries(`m`))"


def test_shapes_on_the_globe_are_not_compared():
    assert not has_likeness(Column("g", "array<geography(4326)>"))


def test_types_are_told_by_the_schemas_of_iceberg_and_delta():
    iceberg = {"type": "list", "element": {"type": "map", "key": "int", "value": "string"}}
    delta = {
        "type": "struct",
        "fields": [
            {"name": "a b", "type": {"type": "map", "keyType": "integer", "valueType": "long"}},
            {"name": "l", "type": {"type": "array", "elementType": "variant"}},
        ],
    }
    fields = ({"name": "i", "type": iceberg}, {"name": "d", "type": delta})
    meta = Metadata("", "", 3, 0, None, {}, {}, schemas={0: fields})
    known = [column.type for column in meta.typed(["i", "d", "added later"])]
    assert known == [
        "array<map<int,string>>",
        "struct<`a b`:map<integer,long>,`l`:array<variant>>",
        "",
    ]
