"""Planted bugs of the rules: id -> symbol, old, new, what is wrong, operators."""

from __future__ import annotations

from tests.mutants.planting import Planted, Text

_BASIC = "group basic,filter,project"

RULES: dict[str, Planted] = {
    # -- outer, semi and anti joins --------------------------------------------------------------
    "flip-sign": (
        "_flips",
        'signs = "-1L, 1L" if kind == "anti" else "1L, -1L"',
        'signs = "1L, -1L"',
        "padding comes when the first partner comes, instead of going",
        "left join",
    ),
    "flip-count-before": (
        "_flips",
        Text("<> ({now} - n.{_NET} > 0)"),
        "<> ({now} + n.{_NET} > 0)",
        "the number of partners before is what came added to what is there",
        "left join",
    ),
    "flip-count-twice": (
        "_flips",
        Text("<> ({now} - n.{_NET} > 0)"),
        "<> ({now} - n.{_NET} > 1)",
        "a row had a partner only when it had two",
        "anti join",
    ),
    "flip-partners-before": (
        "_flips_by_key",
        Text("{indent('  FROM ' + relation(found, emitter.after))}\\n"),
        "{indent('  FROM ' + relation(found, emitter.before))}\\n",
        "partners by key are counted in the old snapshot as if it were the new one",
        "left join",
    ),
    "flip-partners-before-by-row": (
        "_flips_by_row",
        Text("{indent('  JOIN ' + relation(found, emitter.after))} ON {on}\\n"),
        "{indent('  JOIN ' + relation(found, emitter.before))} ON {on}\\n",
        "partners by any condition are counted in the old snapshot as if it were the new one",
        "left join,full join,anti join",
    ),
    "flip-rows-after": (
        "_rows_of",
        "select.summand(node, 0, keys, frozenset(), emitter)",
        "select.summand(node, 0, keys, frozenset({rows.alias}), emitter)",
        "new rows flip as well, though their own change has settled them",
        "left join,semi join",
    ),
    "flip-candidates-after": (
        "_asking",
        "relation(_cut(side.rows, partners, seen), emitter.before)",
        "relation(_cut(side.rows, partners, seen), emitter.after)",
        "a row that went is not asked for the partners that went with it",
        "left join,full join,anti join,semi join",
    ),
    "flip-candidates-copies": (
        "_flips_by_row",
        Text("SELECT /*+ BROADCAST({theirs}) */ DISTINCT {listed(asked, mine)}\\n"),
        "SELECT /*+ BROADCAST({theirs}) */ {listed(asked, mine)}\\n",
        "equal rows multiply the number of partners that come and go",
        "left join,full join,anti join,semi join",
    ),
    "flip-null-key": (
        "_flips",
        Text("{_col('n', key)} <=> {_col('c', key)}"),
        "{_col('n', key)} = {_col('c', key)}",
        "the partners of a NULL key are not counted",
        "left join,anti join,semi join",
    ),
    "alone-before": (
        "_lonely",
        Text("{_met(side, changed, emitter.after)}"),
        "{_met(side, changed, emitter.before)}",
        "changed rows look for partners in the old snapshot",
        "left join",
    ),
    "full-padding-lost": (
        ("delta", "Match"),
        ('if node.kind == "full":\n    sides.append((node.right, node.left))'),
        "",
        "rows of the right side without a partner are not padded",
        "full join",
    ),
    "padding-of-matched": (
        ("delta", "Match"),
        'alone = _lonely(_side(node, one, other), "anti", emitter)',
        'alone = _lonely(_side(node, one, other), "semi", emitter)',
        "rows with a partner are padded, those without are not",
        "left join",
    ),
    "padding-doubled": (
        ("delta", "Match"),
        'parts.append(emitter.query("padded", _padded(node, one, alone)))',
        'parts += [emitter.query("padded", _padded(node, one, alone))] * 2',
        "every padded row comes twice",
        "left join",
    ),
    "semi-for-anti": (
        "_lonely",
        'word = "ANTI" if kind == "anti" else "SEMI"',
        'word = "SEMI"',
        "changed rows of an anti join are those with a partner",
        "anti join,not exists",
    ),
    # -- recomputed keys, joins, unions, generators ----------------------------------------------
    "keyed-null-key": (
        "restricted",
        Text("i.{escape(quote(key))} <=> k.{escape(quote(key))}"),
        "i.{escape(quote(key))} = k.{escape(quote(key))}",
        "the group of the NULL key is not recomputed",
        "having,window sum",
    ),
    "keyed-retraction-lost": (
        ("delta", "Keyed"),
        '("lost", emitter.before, -1)',
        '("lost", emitter.after, -1)',
        "the old rows of a touched key are not taken back",
        "distinct,group basic,join",
    ),
    "consolidate-retraction-lost": (
        "Emitter.consolidated",
        Text("\\nHAVING sum({WEIGHT}) <> 0"),
        "\\nHAVING sum({WEIGHT}) > 0",
        "consolidation drops what is taken back",
        "distinct,group basic,join",
    ),
    "query-names-shared": (
        "Emitter.query",
        ("name = self._name(wanted)\nself.steps.append(Query(name, sql, when, unless))"),
        ("name = wanted\nself.steps.append(Query(name, sql, when, unless))"),
        "two queries of one name: the first is overwritten before it is read",
        "union all,distinct,filter,join",
    ),
    "join-all-before": (
        ("delta", "summand"),
        "after = frozenset(child.alias for child in node.inputs[:index])",
        "after = frozenset[str]()",
        "what changed on two sides at once does not meet",
        "join",
    ),
    "join-all-after": (
        ("delta", "summand"),
        "after = frozenset(child.alias for child in node.inputs[:index])",
        "after = frozenset(child.alias for child in node.inputs)",
        "what changed on two sides at once meets twice",
        "join,self join",
    ),
    "join-below-before": (
        "summand",
        "origins[child.alias] in after",
        "child.alias in after",
        "what a join below another one reads is read before the epoch",
        "join,left join",
    ),
    "join-one-condition": (
        "summand",
        'on = " AND ".join(term(expr, resolve) for expr in ready)',
        'on = " AND ".join(term(expr, resolve) for expr in ready[:1])',
        "a join of a change has the first of its conditions only",
        "join",
    ),
    "filter-skipped": (
        "_is_narrowing",
        (
            "not node.where and all(\n"
            "        output.expr.as_column is not None and output.expr.refs[0][1] == output.name\n"
            "        for output in node.outputs\n"
            "    )"
        ),
        (
            "all(\n"
            "        output.expr.as_column is not None and output.expr.refs[0][1] == output.name\n"
            "        for output in node.outputs\n"
            "    )"
        ),
        "the change of a filter that computes nothing is the change of its input",
        "filter",
    ),
    "single-source": (
        ("delta", "summand"),
        "source = emitter.after if start.alias in after else emitter.before",
        "source = emitter.before",
        "rows that came with the new value of a scalar sub-query do not flip",
        "scalar",
    ),
    "single-sign": (
        "flips",
        Text("CAST(IF({new}, 1, -1) AS BIGINT)"),
        "CAST(IF({old}, 1, -1) AS BIGINT)",
        "rows for which a condition begins to hold are taken away",
        "scalar",
    ),
    "single-unknown": (
        "flips",
        Text(
            "coalesce({' AND '.join(term(expr, at(moment)) for expr in terms) or 'true'}, false)"
        ),
        "({' AND '.join(term(expr, at(moment)) for expr in terms) or 'true'})",
        "a condition that becomes unknown keeps its rows, one that was unknown brings none",
        "scalar",
    ),
    "single-many": (
        "_is_single",
        "return not node.keys and node.session is None",
        "return node.session is None",
        "groups are taken for a relation of one row",
        "n-way join,join,group basic,distinct",
    ),
    "generate-weight": (
        ("delta", "Generate"),
        Text("i.{WEIGHT}"),
        "CAST(1 AS BIGINT) AS {WEIGHT}",
        "generated rows are never taken back and come once",
        "explode,lateral view",
    ),
    "generate-outer": (
        ("generate", "JOINS"),
        'outer = "OUTER " if node.outer else ""',
        'outer = ""',
        "a row whose array is empty is lost",
        "lateral view outer",
    ),
    "union-arm": (
        ("delta", "UnionAll"),
        "node.inputs",
        "node.inputs[1:]",
        "changes of the first side are lost",
        "union all",
    ),
    "replace-before": (
        ("plan", "restricted"),
        Text("restricted(node, emitter.after, keys)"),
        "restricted(node, emitter.before, keys)",
        "touched keys are recomputed from the old snapshot",
        "having,window sum",
    ),
    "having-ignored": (
        ("plan", "restricted"),
        "shown = Select(block.inputs, block.where, outputs)",
        "shown = Select(block.inputs, (), outputs)",
        "groups that HAVING hides are shown when they are touched",
        "having",
    ),
    "replace-single": (
        ("plan", "restricted"),
        "single = isinstance(node, Aggregate) and node.session is None",
        "single = True",
        "a partition of a window is said to have one row",
        "window sum,window rank",
    ),
    # -- folds -----------------------------------------------------------------------------------
    "fold-empty-group": (
        ("plan", "FoldedGroups"),
        'found.alive if node.keys else ""',
        '""',
        "a group without rows stays",
        _BASIC,
    ),
    "fold-null-sum": (
        "formula",
        'state.component(call, "add", "" if never_null else counter)',
        'state.component(call, "add", "")',
        "the sum of nothing but NULL is 0",
        _BASIC,
    ),
    "fold-null-total": (
        "formula",
        "never_null = grouped and counter == alive",
        "never_null = counter == alive",
        "the sum of an empty table is 0",
        "global,filter",
    ),
    "fold-hidden-count": (
        "formula",
        "not call.arg_nullable",
        'call.function == "AVG"',
        "an average is divided by the number of rows, NULLs included",
        _BASIC,
    ),
    "fold-count-null": (
        "_changes_sql",
        'f"IF({argument} IS NULL, 0, {weight})"',
        "weight",
        "COUNT(x) counts the changed rows where x is NULL",
        _BASIC,
    ),
    "fold-weight": (
        "_signed",
        'return f"{weight} * {value}"',
        "return value",
        "a value that went is added",
        _BASIC,
    ),
    "fold-lost-null": (
        "_changes_sql",
        Text("max({weight} < 0 AND {argument} IS NOT NULL)"),
        "max({weight} < 0 AND {argument} IS NULL)",
        "a group that lost its extremum is not recomputed",
        _BASIC,
    ),
    "fold-exact-before": (
        "_exact",
        'restricted(recomputed, emitter.after, losers if node.keys else "")',
        'restricted(recomputed, emitter.before, losers if node.keys else "")',
        "an extremum is recomputed from the old snapshot",
        _BASIC,
    ),
    "fold-moved": (
        "_changes_sql",
        'moved.append(f"max({argument} IS NOT NULL)")',
        'moved.append("false")',
        "a group whose counts stay does not get its new extremum",
        _BASIC,
    ),
    "fold-moved-down": (
        "_changes_sql",
        Text("{total} <> 0"),
        "{total} > 0",
        "a group that only loses rows is left as it is",
        _BASIC,
    ),
    "fold-average-whole": (
        "formula",
        Text("(CAST({hole(stored)} AS DOUBLE) / nullif({hole(counter)}, 0))"),
        "(CAST(CAST({hole(stored)} AS BIGINT) / nullif({hole(counter)}, 0) AS BIGINT))",
        "an average is rounded to a whole number",
        _BASIC,
    ),
    "values-null-stored": (
        ("_component", "Fold"),
        Text("coalesce({stored}, 0) + {change}"),
        "{stored} + {change}",
        "a sum that was NULL stays NULL",
        _BASIC,
    ),
    "values-lost-ignored": (
        ("_component", "Fold"),
        Text("CAST(IF({new}.{LOST}, {exact}, {both}) AS {part.type})"),
        "CAST({both} AS {part.type})",
        "the recomputed extremum is not taken",
        _BASIC,
    ),
    "values-extremum-replaced": (
        ("_component", "Fold"),
        'both = f"{part.kind}({stored}, {change})" if old else change',
        "both = change",
        "the extremum of the change replaces the stored one",
        _BASIC,
    ),
    # -- groups below other operators -----------------------------------------------------------
    "folded-old-after": (
        ("delta", "Aggregate"),
        'restricted(replace(node, calls=calls), emitter.before, groups if node.keys else "")',
        'restricted(replace(node, calls=calls), emitter.after, groups if node.keys else "")',
        "the change is added to groups that have it already",
        "group basic,filter,join",
    ),
    "folded-new-group": (
        ("_moved", "Aggregate"),
        'lived = f"t.{escape(quote(spec.alive))} IS NOT NULL"',
        'lived = "true"',
        "a group that was not there is taken away",
        "group basic,filter,join",
    ),
    "folded-dead-group": (
        ("_moved", "Aggregate"),
        'lives = f"{escape(new[spec.alive])} > 0" if node.keys else "true"',
        'lives = "true"',
        "a group without rows stays",
        "group basic,filter,join",
    ),
    "folded-same": (
        ("_moved", "Aggregate"),
        '["lives", "lived", *(f"n{at} <=> o{at}" for at in places)]',
        '["lives", "lived", *(f"n{at} <=> o{at}" for at in places[:1])]',
        "a group whose first aggregate stays is left out",
        "group basic,filter,join",
    ),
    # -- rows that other changes meet ----------------------------------------------------------
    "met-twice": (
        "meetings",
        "isinstance(child.node, Scan) and uses[child.node.table] == 1 and not child.node.ttl",
        "isinstance(child.node, Scan) and uses[child.node.table] >= 1 and not child.node.ttl",
        "rows that another use of the same table asks for are missing",
        "self join,n-way join,join",
    ),
    # -- cutting to keys ------------------------------------------------------------------------
    "restrict-right-of-left": (
        "restrict",
        "ref[0] == alias",
        "ref[0]",
        "right rows of an outer join are cut by keys that may be padding",
        "left join,group basic,distinct",
    ),
    "restrict-any-column": (
        "restrict",
        "keys = {name: link for name, link in links.items() if name in keys_of(node)}",
        "keys = {n: link for n, link in links.items() if n in node.input.columns}",
        "the input of a window is cut by a column that is not its key",
        "window rank,qualify,group basic,distinct",
    ),
    # -- the first rows -------------------------------------------------------------------------
    "limit-below-edge": (
        ("_known", "plan"),
        Text("WHERE {_NUMBER} < {node.limit} OR {_PLACE} <= {_EDGE}\\n"),
        "WHERE true\\n",
        "rows below the last stored one count, though others may come before them",
        "order limit,filter",
    ),
    "limit-never-asks": (
        ("plan", "Limit"),
        Text("AND c.found < {node.limit}"),
        "AND c.found < 0",
        "when too few rows are left, none move up",
        "order limit,filter",
    ),
    "limit-short-view": (
        ("_known", "plan"),
        Text("{_NUMBER} < {node.limit} OR "),
        "",
        "a view that has room for more takes none from below its last row",
        "order limit,filter",
    ),
    "limit-copies": (
        ("plan", "Limit"),
        Text("sequence(1, CAST(least({WEIGHT}, {node.limit}) AS INT))"),
        "sequence(1, 1)",
        "of equal rows only one is kept",
        "order limit,project",
    ),
    "limit-under-filter": (
        ("applies", "Limit"),
        "not isinstance(node, Limit) or node.limit is None or node.offset or select.where",
        "not isinstance(node, Limit) or node.limit is None or node.offset",
        "rows that a filter above the LIMIT hides are taken for missing",
        "order limit,filter",
    ),
}
