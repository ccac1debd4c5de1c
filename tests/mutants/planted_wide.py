"""Planted bugs of wide tables, which several branches write.

id -> file, old text, new text, what is wrong, the tests that find it.
"""

from __future__ import annotations

_FOLD = "plan/fold_values.py"
_MERGED = "compiler/wide_sql.py"
_RULE = "compiler/rules/branches.py"
_STORED = "compiler/rebranch.py"

_EQUAL = "what_its_branches_say"

WIDE: dict[str, tuple[str, str, str, str, str]] = {
    # -- the rule and the fold -------------------------------------------------------------------
    "branch-null-keeps": (
        _FOLD,
        'return f"IF({new}.{quote(part.of)} IS NULL, {stored}, {change})" if stored else change',
        'return f"coalesce({change}, {stored})" if stored else change',
        "a NULL that a branch writes, or a row that it takes back, leaves the old value",
        _EQUAL,
    ),
    "branch-clobbers": (
        _FOLD,
        'return f"IF({new}.{quote(part.of)} IS NULL, {stored}, {change})" if stored else change',
        "return change",
        "the change of one branch empties the columns of another that changed other keys",
        _EQUAL,
    ),
    "branch-gone-value": (
        _RULE,
        'f"any_value(IF({WEIGHT} > 0, {_name(column)}, NULL), true) AS {_name(cell)}"',
        'f"any_value({_name(column)}, true) AS {_name(cell)}"',
        "the value of a row that went is written",
        _EQUAL,
    ),
    "branch-first-null": (
        "runtime/program_runner.py",
        'f"any_value({quote(name)}, true) AS {quote(name)}" for name in every',
        'f"any_value({quote(name)}) AS {quote(name)}" for name in every',
        "of several branches that change a key the first counts, though it is not its column",
        "each_branch_writes",
    ),
    "branch-first-lives": (
        _RULE,
        "at.rows[node.names.index(node.anchor)] if node.anchor else at.claims,",
        "at.rows[node.names.index(node.anchor)] if node.anchor else at.rows[0],",
        "the row goes with its first branch",
        _EQUAL,
    ),
    "branch-no-anchor": (
        _RULE,
        "at.rows[node.names.index(node.anchor)] if node.anchor else at.claims,",
        "at.claims,",
        "the row lives while any branch has its key, whatever the anchor",
        _EQUAL,
    ),
    "branch-gained-before": (
        _RULE,
        "rows = indent(render(restrict(child, gained, links), emitter.after))",
        "rows = indent(render(restrict(child, gained, links), emitter.before))",
        "a row that the anchor brings is filled with what the others said before the epoch",
        _EQUAL,
    ),
    "branch-gained-twice": (
        _RULE,
        'f"LEFT ANTI JOIN {{{gained}}} g ON {on}",',
        'f"LEFT SEMI JOIN {{{gained}}} g ON {on}",',
        "where the anchor gains a key, changes of its rows come twice and all others are lost",
        _EQUAL,
    ),
    "branch-anchor-last": (
        _RULE,
        "key=lambda number: node.names[number] != node.anchor)",
        "key=lambda number: node.names[number] == node.anchor)",
        "written apart, branches fill rows that the anchor has not made yet",
        _EQUAL,
    ),
    "branch-twice-allowed": (
        _FOLD,
        'wrong = f"{rows} > 1 AND {bare[spec.alive]} > 0"',
        'wrong = f"{rows} > 2 AND {bare[spec.alive]} > 0"',
        "a branch may have two rows of a key",
        "there_twice_or_null",
    ),
    "branch-filled-twice": (
        _MERGED,
        'f"WHEN w.n{number} > 1 THEN',
        'f"WHEN w.n{number} > 2 THEN',
        "at the first filling a branch may have two rows of a key",
        "there_twice_or_null",
    ),
    "branch-null-key": (
        _MERGED,
        'checked = f"coalesce({value}, {escape(no_key_sql(node.names[branch], node.keys[at]))})"',
        "checked = value",
        "a row without a key is taken",
        "there_twice_or_null",
    ),
    # -- what several branches write -------------------------------------------------------------
    "branch-precedence": (
        "compiler/branches.py",
        "return self.precedence.index(name) if name in self.precedence else len(self.precedence)",
        "return 0",
        "the precedence of branches is not asked",
        _EQUAL,
    ),
    "branch-oldest": (
        _MERGED,
        'f"CASE array_max(array({offers})).b {cases} END"',
        'f"CASE array_min(array({offers})).b {cases} END"',
        "the value with the smallest sequence wins",
        _EQUAL,
    ),
    "branch-last-of-equals": (
        _MERGED,
        "struct({stamp} AS s, {-number} AS b), NULL)",
        "struct({stamp} AS s, {number - 99} AS b), NULL)",
        "of equal sequences none is taken",
        _EQUAL,
    ),
    "branch-null-has-no-say": (
        _MERGED,
        'has(branch) if function == "last_value" else f"{value} IS NOT NULL"',
        'f"{value} IS NOT NULL"',
        "a NULL of the branch that wins lets another win",
        _EQUAL,
    ),
    "branch-sum-of-nothing": (
        _MERGED,
        'return f"CASE WHEN {some} THEN CAST({terms} AS {kind}) END"',
        'return f"CAST({terms} AS {kind})"',
        "a sum of nothing is 0",
        _EQUAL,
    ),
    "branch-struct-always": (
        _MERGED,
        "return f\"CASE WHEN {' OR '.join(owners)} THEN named_struct({items}) END\"",
        'return f"named_struct({items})"',
        "a column of fields is there though no branch that writes it has the key",
        _EQUAL,
    ),
    # -- other branches --------------------------------------------------------------------------
    "rebranch-everything": (
        _STORED,
        'return f"SELECT {items} FROM {stored} r WHERE {where}"',
        'return f"SELECT {items} FROM {stored} r"',
        "rows that no branch that stays has are kept",
        _EQUAL,
    ),
    "rebranch-cells": (
        _STORED,
        'pack = pack_sql([f"r.{_name(before.cells[at][cell])}" for cell in cells])',
        'pack = pack_sql([f"r.{_name(before.cells[at][cell])}" for cell in sorted(cells)])',
        "columns of a branch in another order exchange their values",
        "order_of_its_columns",
    ),
    "rebranch-anchor": (
        _STORED,
        "if old.anchor and (anchor not in kept or kept[anchor][0] != old.anchor):",
        "if False:",
        "keys that the old anchor had not are missing under the new rule",
        _EQUAL,
    ),
    # -- several writers -------------------------------------------------------------------------
    "writers-same-base": (
        "runtime/write.py",
        "self.base = meta.refs[self.branch]",
        "pass",
        "the second writer starts from what was there before the first",
        "each_branch_writes",
    ),
    "writers-last-feed": (
        "runtime/write.py",
        "for each in (before.feed, after.feed))",
        "for each in (after.feed,))",
        "readers are told the changes of the last writer alone",
        "readers_of_a_wide_table",
    ),
}
