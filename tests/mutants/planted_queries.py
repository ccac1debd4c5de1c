"""Planted bugs of reading a query: id -> file, old text, new text, what is wrong, operators."""

from __future__ import annotations

_BUILD = "compiler/build.py"
_QUERIES = "compiler/subqueries.py"
_CORRELATED = "compiler/correlated.py"
_PIVOTS = "compiler/pivots.py"
_GROUPING = "compiler/grouping.py"

QUERIES: dict[str, tuple[str, str, str, str, str]] = {
    # -- SELECT and set operations ------------------------------------------------------------------
    "prune-condition": (
        "compiler/prune.py",
        "exprs = (*node.where, *(output.expr for output in outputs))",
        "exprs = tuple(output.expr for output in outputs)",
        "a column that only a condition reads is cut off",
        "filter,join",
    ),
    "merge-condition": (
        "compiler/merge.py",
        ", *(placed(expr) for expr in below.where))",
        ",)",
        "the condition of a sub-query is lost when it is merged into the outer one",
        "filter,project",
    ),
    "filter-clause": (
        "compiler/aggregates.py",
        (
            "    if condition is not None:\n"
            "        argument = exp.case().when(condition.copy(), argument.copy())\n"
            "    return Found(function, (argument,), distinct)"
        ),
        "    return Found(function, (argument,), distinct)",
        "FILTER (WHERE …) of an aggregate is ignored",
        "group filter",
    ),
    "distinct-aggregate": (
        "compiler/aggregates.py",
        "return Found(function, (argument,), distinct)",
        "return Found(function, (argument,))",
        "COUNT(DISTINCT x) is COUNT(x)",
        "group distinct",
    ),
    "window-partition": (
        "compiler/windows.py",
        'tuple(dict.fromkeys(whole.args.get("partition_by") or []))',
        'tuple(dict.fromkeys(whole.args.get("partition_by") or []))[:1]',
        "a window is partitioned by the first of its keys",
        "window sum,window rank",
    ),
    "limit-offset": (
        "compiler/render.py",
        'return text + (f" OFFSET {node.offset}" if node.offset else "")',
        "return text",
        "OFFSET is ignored",
        "order limit",
    ),
    "grouping-id": (
        _GROUPING,
        "bits = bits * 2 + (0 if key in one else 1)",
        "bits = bits * 2 + (1 if key in one else 0)",
        "GROUPING(k) is 1 where k is grouped",
        "rollup,cube",
    ),
    "grouping-set-key": (
        _GROUPING,
        'columns: list[exp.Expr] = [exp.column(name, table="__set") for name in (*names, _SET)]',
        'columns: list[exp.Expr] = [exp.column(name, table="__set") for name in names]',
        "the groups of NULL in different sets are one",
        "rollup,cube,grouping sets",
    ),
    "rollup-total": (
        _GROUPING,
        "chosen = [pieces[:count] for count in range(len(pieces), -1, -1)]",
        "chosen = [pieces[:count] for count in range(len(pieces), 0, -1)]",
        "ROLLUP has no grand total",
        "rollup",
    ),
    "except-all": (
        _BUILD,
        'copies = "least({0}, {1})" if keep else "{0} - {1}"',
        'copies = "least({0}, {1})" if keep else "IF({1} > 0, 0, {0})"',
        "EXCEPT ALL takes away every copy",
        "except all",
    ),
    "except-counts": (
        _BUILD,
        'else "{0} > 0 AND {1} = 0"',
        'else "{0} > {1}"',
        "EXCEPT keeps a row that is on the left more often",
        "except",
    ),
    "intersect-all": (
        _BUILD,
        'copies = "least({0}, {1})" if keep',
        'copies = "greatest({0}, {1})" if keep',
        "INTERSECT ALL keeps as many copies as the side with more has",
        "intersect all",
    ),
    "union-distinct": (
        _BUILD,
        'return Aggregate(both, both.columns, ()) if tree.args.get("distinct") else both',
        "return both",
        "UNION is UNION ALL",
        "union",
    ),
    "outer-condition": (
        "compiler/sources.py",
        'owners == {"l"} and how in {"right", "semi"}',
        'owners == {"l"} and how in {"right", "semi", "left"}',
        "a condition on the left of a LEFT JOIN takes rows away instead of padding them",
        "left join",
    ),
    # -- sub-queries -----------------------------------------------------------------------------
    "not-exists": (
        _QUERIES,
        '"anti" if negated else "semi"',
        '"semi"',
        "NOT EXISTS is EXISTS",
        "not exists",
    ),
    "not-in-null-row": (
        _QUERIES,
        '"NOT {0} OR (NOT {1} AND NOT {2})"',
        '"NOT {0} OR (NOT {1} AND coalesce({2}, true))"',
        "NOT IN: a NULL in the sub-query is asked for, instead of refused",
        "not in",
    ),
    "not-in-null-value": (
        _QUERIES,
        '"NOT {0} OR (NOT {1} AND NOT {2})"',
        '"NOT {0} OR (({1} OR NOT {1}) AND NOT {2})"',
        "NULL NOT IN (a query with rows) is true",
        "not in",
    ),
    "not-in-empty": (
        _QUERIES,
        '"NOT {0} OR (NOT {1} AND NOT {2})"',
        '"({0} OR NOT {0}) AND (NOT {1} AND NOT {2})"',
        "NULL NOT IN (a query without rows) is not true",
        "not in",
    ),
    "presence-count": (
        _QUERIES,
        'Expr("coalesce({0}, 0) > 0", (made["n"],))',
        'Expr("coalesce({0}, 0) > 1", (made["n"],))',
        "a sub-query of one row counts as empty",
        "not in,exists",
    ),
    "count-over-nothing": (
        _QUERIES,
        "return exp.Literal.number(0) if counts else exp.Null()",
        "return exp.Null()",
        "a correlated COUNT over no rows is NULL",
        "correlated scalar",
    ),
    "correlated-having": (
        _QUERIES,
        '        value = _combine("CASE WHEN {0} THEN {1} END", kept, value)\n',
        "",
        "HAVING of a correlated value is ignored",
        "correlated scalar",
    ),
    "domain-null": (
        _CORRELATED,
        "[type(term) for term in inner.reaching if isinstance(term, exp.Binary)]",
        "[exp.EQ for term in inner.reaching if isinstance(term, exp.Binary)]",
        "a row that asks a correlated sub-query for NULL gets no answer",
        "correlated scalar",
    ),
    "correlated-group": (
        _CORRELATED,
        "_grouped(builder, inside, [*keys.own, *groups],",
        "_grouped(builder, inside, [*keys.own],",
        "GROUP BY in a correlated sub-query groups by the correlation alone",
        "correlated group,correlated test",
    ),
    "correlated-offset": (
        _CORRELATED,
        'Expr(f"{{0}} <= {offset + limit}", place)',
        'Expr(f"{{0}} <= {limit}", place)',
        "LIMIT after OFFSET in a correlated sub-query keeps too few rows",
        "lateral group,correlated first",
    ),
    "correlated-order": (
        _CORRELATED,
        "order=exp.Order(expressions=order) if order else None",
        "order=exp.Order(expressions=order[1:]) if order[1:] else None",
        "the first rows of a correlated sub-query are those of another order",
        "lateral group,correlated first",
    ),
    "correlated-distinct": (
        _CORRELATED,
        "        node = Aggregate(node, node.columns, ())\n",
        "        pass\n",
        "DISTINCT in a lateral sub-query is ignored",
        "lateral group",
    ),
    "correlated-having-absent": (
        _QUERIES,
        "return exp.case().when(there, equal).else_(exp.false()) if having is not None else equal",
        "return equal",
        "x NOT IN an aggregate whose HAVING leaves no row is asked as if it had one",
        "correlated one",
    ),
    "in-shadowed": (
        _QUERIES,
        "if all(inner.block.find(column) is None for column in block.free(own)):",
        "if own is not None:",
        "the left side of IN is read as a column of the sub-query that has its name",
        "in shadowed",
    ),
    "pivot-value": (
        _PIVOTS,
        "exp.NullSafeEQ(",
        "exp.EQ(",
        "the value NULL of a PIVOT has no rows",
        "pivot",
    ),
    "pivot-once": (
        _PIVOTS,
        "if not once and not isinstance",
        "if not isinstance",
        "a count beside a text in PIVOT is NULL over no rows",
        "pivot",
    ),
    "unpivot-nulls": (
        _PIVOTS,
        'if not pivot.args.get("include_nulls"):',
        'if pivot.args.get("include_nulls"):',
        "UNPIVOT keeps NULLs where it should not, and the reverse",
        "unpivot",
    ),
}
