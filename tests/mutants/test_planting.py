"""A change is told by its symbol and by what it says, and is made where that stands once."""

from __future__ import annotations

import pytest

from tests.mutants.planting import Text, Unfit, changed

SOURCE = '''\
"""It is SELECT one, FROM two."""

LIMITS = {"rows": 10 * 2}


class Writer:
    def fold(self, rows):
        """FROM two."""
        if rows:  # why: …
            kept = [row for row in rows if row.weight > 0]
            return (f"SELECT {rows.a} "  # its own
                    f"FROM {rows.b}")
        return other(rows,
                     deep=True)


def fold(rows):
    return other(rows, deep=True)
'''


@pytest.mark.parametrize(
    ("symbol", "old", "new", "was", "becomes"),
    [
        ("LIMITS", "10*2", "5", "10 * 2", "(5)"),
        ("Writer.fold", "row.weight>0", "True", "row.weight > 0", "(True)"),
        ("fold", "other(rows, deep = True)", "[]", "rows, deep=True)", "([])"),
        (
            "Writer.fold",
            "return other(rows, deep=True)",
            "rows = 1\nreturn rows",
            "return other(rows,\n                     deep=True)",
            "rows = 1\n        return rows",
        ),
        ("fold", "return other(rows, deep=True)", "pass", "return other(rows, deep=True)", "pass"),
        ("Writer.fold", "kept = [row for row in rows if row.weight > 0]", "", "kept = ", ""),
        ("Writer.fold", Text("{rows.b}"), "{rows.c}", "{rows.b}", "{rows.c}"),
        ("Writer", Text("SELECT "), "SELECT 1, ", "SELECT {rows", "SELECT 1, {rows"),
    ],
)
def test_a_change_is_made_where_its_symbol_says_it(symbol, old, new, was, becomes):
    found = changed(SOURCE, symbol, old, new)
    assert SOURCE.count(was) > found.count(was)
    assert becomes in found
    assert sum(a != b for a, b in zip(found.split(), SOURCE.split(), strict=False)) > 0


def test_nothing_else_changes():
    found = changed(SOURCE, "LIMITS", "10 * 2", "5")
    assert found == SOURCE.replace("10 * 2", "(5)")


def test_a_text_over_several_literals_ends_up_in_the_first():
    found = changed(SOURCE, "Writer.fold", Text(" FROM {rows.b}"), " OF {rows.c}")
    pieces = 'f"SELECT {rows.a} "  # its own\n                    f"FROM {rows.b}"'
    assert found == SOURCE.replace(
        pieces, 'f"SELECT {rows.a} OF {rows.c}"  # its own\n                    f""'
    )


@pytest.mark.parametrize(
    ("symbol", "old", "told"),
    [
        ("Reader.fold", "rows", "0 definitions of Reader.fold"),
        ("Writer.fold", "rows", "the snippet stands 3 times in Writer.fold"),
        ("fold", "other(rows)", "the snippet stands 0 times in fold"),
        ("Writer.fold", Text("two"), "the text stands 0 times in Writer.fold"),
        ("fold", "other(rows", "has to be a Text"),
        ("fold", "", "nothing is looked for"),
    ],
)
def test_what_is_looked_for_stands_there_exactly_once(symbol, old, told):
    with pytest.raises(Unfit, match=told):
        changed(SOURCE, symbol, old, "None")
