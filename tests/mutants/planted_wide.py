"""Planted bugs of wide tables, which several branches write.

id -> symbol, old, new, what is wrong, the tests that find it.
"""

from __future__ import annotations

from tests.mutants.planting import Planted, Text

_EQUAL = "what_its_branches_say"

WIDE: dict[str, Planted] = {
    # -- the rule and the fold -------------------------------------------------------------------
    "branch-null-keeps": (
        "_cell",
        Text("IF({new}.{quote(part.of)} IS NULL, {stored}, {change})"),
        "coalesce({change}, {stored})",
        "a NULL that a branch writes, or a row that it takes back, leaves the old value",
        _EQUAL,
    ),
    "branch-clobbers": (
        "_cell",
        'return f"IF({new}.{quote(part.of)} IS NULL, {stored}, {change})" if stored else change',
        "return change",
        "the change of one branch empties the columns of another that changed other keys",
        _EQUAL,
    ),
    "branch-gone-value": (
        ("_moved", "Branches"),
        Text("any_value(IF({WEIGHT} > 0, {_name(column)}, NULL), true) AS {_name(cell)}"),
        "any_value({_name(column)}, true) AS {_name(cell)}",
        "the value of a row that went is written",
        _EQUAL,
    ),
    "branch-first-null": (
        "ProgramRunner.together",
        Text("any_value({quote(name)}, true) AS {quote(name)}"),
        "any_value({quote(name)}) AS {quote(name)}",
        "of several branches that change a key the first counts, though it is not its column",
        "each_branch_writes",
    ),
    "branch-first-lives": (
        ("plan", "Branches"),
        "at.rows[node.names.index(node.anchor)] if node.anchor else at.claims",
        "at.rows[node.names.index(node.anchor)] if node.anchor else at.rows[0]",
        "the row goes with its first branch",
        _EQUAL,
    ),
    "branch-no-anchor": (
        ("plan", "Branches"),
        "at.rows[node.names.index(node.anchor)] if node.anchor else at.claims",
        "at.claims",
        "the row lives while any branch has its key, whatever the anchor",
        _EQUAL,
    ),
    "branch-gained-before": (
        ("_beside", "Branches"),
        "rows = indent(render(restrict(child, gained, links), emitter.after))",
        "rows = indent(render(restrict(child, gained, links), emitter.before))",
        "a row that the anchor brings is filled with what the others said before the epoch",
        _EQUAL,
    ),
    "branch-gained-twice": (
        ("_beside", "Branches"),
        Text("LEFT ANTI JOIN {{{gained}}} g ON {on}"),
        "LEFT SEMI JOIN {{{gained}}} g ON {on}",
        "where the anchor gains a key, changes of its rows come twice and all others are lost",
        _EQUAL,
    ),
    "branch-anchor-last": (
        ("plan", "Branches"),
        "sorted(range(len(parts)), key=lambda number: node.names[number] != node.anchor)",
        "sorted(range(len(parts)), key=lambda number: node.names[number] == node.anchor)",
        "written apart, branches fill rows that the anchor has not made yet",
        _EQUAL,
    ),
    "branch-twice-allowed": (
        "fold_values",
        Text("{rows} > 1 AND {bare[spec.alive]} > 0"),
        "{rows} > 2 AND {bare[spec.alive]} > 0",
        "a branch may have two rows of a key",
        "there_twice_or_null",
    ),
    "branch-filled-twice": (
        "branches_sql",
        Text("WHEN w.n{number} > 1 THEN"),
        "WHEN w.n{number} > 2 THEN",
        "at the first filling a branch may have two rows of a key",
        "there_twice_or_null",
    ),
    "branch-null-key": (
        "key_sql",
        'checked = f"coalesce({value}, {escape(no_key_sql(node.names[branch], node.keys[at]))})"',
        "checked = value",
        "a row without a key is taken",
        "there_twice_or_null",
    ),
    # -- what several branches write -------------------------------------------------------------
    "branch-precedence": (
        "Wide._rank",
        "return self.precedence.index(name) if name in self.precedence else len(self.precedence)",
        "return 0",
        "the precedence of branches is not asked",
        _EQUAL,
    ),
    "branch-oldest": (
        "_latest",
        Text("CASE array_max(array({offers})).b {cases} END"),
        "CASE array_min(array({offers})).b {cases} END",
        "the value with the smallest sequence wins",
        _EQUAL,
    ),
    "branch-last-of-equals": (
        "_latest",
        Text("struct({stamp} AS s, {-number} AS b), NULL)"),
        "struct({stamp} AS s, {number - 99} AS b), NULL)",
        "of equal sequences none is taken",
        _EQUAL,
    ),
    "branch-null-has-no-say": (
        "_merged",
        'has(branch) if function == "last_value" else f"{value} IS NOT NULL"',
        'f"{value} IS NOT NULL"',
        "a NULL of the branch that wins lets another win",
        _EQUAL,
    ),
    "branch-sum-of-nothing": (
        "_merged",
        Text("CASE WHEN {some} THEN CAST({terms} AS {kind}) END"),
        "CAST({terms} AS {kind})",
        "a sum of nothing is 0",
        _EQUAL,
    ),
    "branch-struct-always": (
        ("_value", "Branches"),
        Text("CASE WHEN {' OR '.join(owners)} THEN named_struct({items}) END"),
        "named_struct({items})",
        "a column of fields is there though no branch that writes it has the key",
        _EQUAL,
    ),
    # -- other branches --------------------------------------------------------------------------
    "rebranch-everything": (
        "_stored_side",
        Text("SELECT {items} FROM {stored} r WHERE {where}"),
        "SELECT {items} FROM {stored} r",
        "rows that no branch that stays has are kept",
        _EQUAL,
    ),
    "rebranch-cells": (
        "_stored_side",
        'pack = pack_sql([f"r.{_name(before.cells[at][cell])}" for cell in cells])',
        'pack = pack_sql([f"r.{_name(before.cells[at][cell])}" for cell in sorted(cells)])',
        "columns of a branch in another order exchange their values",
        "order_of_its_columns",
    ),
    "rebranch-anchor": (
        "rebranched",
        "old.anchor and (anchor not in kept or kept[anchor][0] != old.anchor)",
        "False",
        "keys that the old anchor had not are missing under the new rule",
        _EQUAL,
    ),
    # -- several writers -------------------------------------------------------------------------
    "writers-same-base": (
        "Writer.then",
        "self.base = meta.refs[self.branch]",
        "pass",
        "the second writer starts from what was there before the first",
        "each_branch_writes",
    ),
    "writers-last-feed": (
        "Writer.then",
        '(f"SELECT {names} FROM {each.name}" for each in (before.feed, after.feed))',
        '(f"SELECT {names} FROM {each.name}" for each in (after.feed,))',
        "readers are told the changes of the last writer alone",
        "readers_of_a_wide_table",
    ),
}
