"""Planted bugs of the rules: id -> file, old text, new text, what is wrong, operators."""

from __future__ import annotations

_MATCH = "compiler/rules/match.py"
_KEYED = "compiler/rules/keyed.py"
_SELECT = "compiler/rules/select.py"
_SINGLE = "compiler/rules/single.py"
_FOLD = "compiler/rules/fold.py"
_FOLDED = "compiler/rules/folded.py"
_COMPONENTS = "compiler/rules/components.py"
_LIMIT = "compiler/rules/limit.py"
_RESTRICT = "compiler/restrict.py"
_VALUES = "plan/fold_values.py"
_BASIC = "group basic,filter,project"

RULES: dict[str, tuple[str, str, str, str, str]] = {
    # -- outer, semi and anti joins --------------------------------------------------------------
    "flip-sign": (
        _MATCH,
        'sign = f"-f.{_SIGN}" if kind == "anti" else f"f.{_SIGN}"',
        'sign = f"f.{_SIGN}"',
        "padding comes when the first partner comes, instead of going",
        "left join",
    ),
    "flip-count-before": (
        _MATCH,
        "<> ({now} - n.{_NET} > 0)",
        "<> ({now} + n.{_NET} > 0)",
        "the number of partners before is what came added to what is there",
        "left join",
    ),
    "flip-count-twice": (
        _MATCH,
        "<> ({now} - n.{_NET} > 0)",
        "<> ({now} - n.{_NET} > 1)",
        "a row had a partner only when it had two",
        "anti join",
    ),
    "flip-partners-before": (
        _MATCH,
        "f\"{indent('  FROM ' + relation(found, emitter.after))}\\n\"",
        "f\"{indent('  FROM ' + relation(found, emitter.before))}\\n\"",
        "partners by key are counted in the old snapshot as if it were the new one",
        "left join",
    ),
    "flip-partners-before-by-row": (
        _MATCH,
        "f\"{indent('  JOIN ' + relation(found, emitter.after))} ON {on}\\n\"",
        "f\"{indent('  JOIN ' + relation(found, emitter.before))} ON {on}\\n\"",
        "partners by any condition are counted in the old snapshot as if it were the new one",
        "left join,full join,anti join",
    ),
    "flip-rows-after": (
        _MATCH,
        'f"FROM {relation(asking, emitter.before)}\\nJOIN {{{flips}}}',
        'f"FROM {relation(asking, emitter.after)}\\nJOIN {{{flips}}}',
        "new rows flip as well, though their own change has settled them",
        "left join,semi join",
    ),
    "flip-candidates-after": (
        _MATCH,
        (
            'f"FROM {relation(asking, emitter.before)}\\n"\n'
            '            f"LEFT SEMI JOIN {{{partners}}} {theirs} ON {on}",'
        ),
        (
            'f"FROM {relation(asking, emitter.after)}\\n"\n'
            '            f"LEFT SEMI JOIN {{{partners}}} {theirs} ON {on}",'
        ),
        "a row that went is not asked for the partners that went with it",
        "left join,full join,anti join,semi join",
    ),
    "flip-candidates-copies": (
        _MATCH,
        'f"SELECT /*+ BROADCAST({theirs}) */ DISTINCT {listed(asked, mine)}\\n"',
        'f"SELECT /*+ BROADCAST({theirs}) */ {listed(asked, mine)}\\n"',
        "equal rows multiply the number of partners that come and go",
        "left join,full join,anti join,semi join",
    ),
    "flip-null-key": (
        _MATCH,
        "f\"{_col('n', key)} <=> {_col('c', key)}\" for key in keys",
        "f\"{_col('n', key)} = {_col('c', key)}\" for key in keys",
        "the partners of a NULL key are not counted",
        "left join,anti join,semi join",
    ),
    "alone-before": (
        _MATCH,
        "{_met(side, changed, emitter.after)}",
        "{_met(side, changed, emitter.before)}",
        "changed rows look for partners in the old snapshot",
        "left join",
    ),
    "full-padding-lost": (
        _MATCH,
        (
            '    if node.kind == "full":\n'
            "        sides.append((node.right, node.left))\n"
            "    for one, other in sides:"
        ),
        "    for one, other in sides:",
        "rows of the right side without a partner are not padded",
        "full join",
    ),
    "padding-of-matched": (
        _MATCH,
        'alone = _lonely(_side(node, one, other), "anti", emitter)',
        'alone = _lonely(_side(node, one, other), "semi", emitter)',
        "rows with a partner are padded, those without are not",
        "left join",
    ),
    "padding-doubled": (
        _MATCH,
        'parts.append(emitter.query("padded", _padded(node, one, alone)))',
        'parts += [emitter.query("padded", _padded(node, one, alone))] * 2',
        "every padded row comes twice",
        "left join",
    ),
    "semi-for-anti": (
        _MATCH,
        'word = "ANTI" if kind == "anti" else "SEMI"',
        'word = "SEMI"',
        "changed rows of an anti join are those with a partner",
        "anti join,not exists",
    ),
    # -- recomputed keys, joins, unions, generators ----------------------------------------------
    "keyed-null-key": (
        _KEYED,
        'f"i.{escape(ident(key))} <=> k.{escape(ident(key))}"',
        'f"i.{escape(ident(key))} = k.{escape(ident(key))}"',
        "the group of the NULL key is not recomputed",
        "having,window sum",
    ),
    "keyed-retraction-lost": (
        _KEYED,
        '("lost", emitter.before, -1)',
        '("lost", emitter.after, -1)',
        "the old rows of a touched key are not taken back",
        "distinct,group basic,join",
    ),
    "consolidate-retraction-lost": (
        "compiler/emit.py",
        'f"GROUP BY {names}\\nHAVING sum({WEIGHT}) <> 0",',
        'f"GROUP BY {names}\\nHAVING sum({WEIGHT}) > 0",',
        "consolidation drops what is taken back",
        "distinct,group basic,join",
    ),
    "query-names-shared": (
        "compiler/emit.py",
        "        name = self._name(wanted)\n        self.steps.append(Query(name, sql, when, unless))",
        "        name = wanted\n        self.steps.append(Query(name, sql, when, unless))",
        "two queries of one name: the first is overwritten before it is read",
        "union all,distinct,filter,join",
    ),
    "join-all-before": (
        _SELECT,
        "after = frozenset(child.alias for child in node.inputs[:index])",
        "after = frozenset[str]()",
        "what changed on two sides at once does not meet",
        "join",
    ),
    "join-all-after": (
        _SELECT,
        "after = frozenset(child.alias for child in node.inputs[:index])",
        "after = frozenset(child.alias for child in node.inputs)",
        "what changed on two sides at once meets twice",
        "join,self join",
    ),
    "join-one-condition": (
        _SELECT,
        'on = " AND ".join(term(expr, resolve) for expr in ready)',
        'on = " AND ".join(term(expr, resolve) for expr in ready[:1])',
        "a join of a change has the first of its conditions only",
        "join",
    ),
    "filter-skipped": (
        _SELECT,
        "return not node.where and all(",
        "return all(",
        "the change of a filter that computes nothing is the change of its input",
        "filter",
    ),
    "single-source": (
        _SELECT,
        "source = emitter.after if start.alias in after else emitter.before",
        "source = emitter.before",
        "rows that came with the new value of a scalar sub-query do not flip",
        "scalar",
    ),
    "single-sign": (
        _SINGLE,
        "CAST(IF({new}, 1, -1) AS BIGINT)",
        "CAST(IF({old}, 1, -1) AS BIGINT)",
        "rows for which a condition begins to hold are taken away",
        "scalar",
    ),
    "single-unknown": (
        _SINGLE,
        "f\"coalesce({' AND '.join(term(expr, at(moment)) for expr in terms) or 'true'}, false)\"",
        "f\"({' AND '.join(term(expr, at(moment)) for expr in terms) or 'true'})\"",
        "a condition that becomes unknown keeps its rows, one that was unknown brings none",
        "scalar",
    ),
    "single-many": (
        _SINGLE,
        "return not node.keys and node.session is None",
        "return node.session is None",
        "groups are taken for a relation of one row",
        "n-way join,join,group basic,distinct",
    ),
    "generate-weight": (
        "compiler/rules/generate.py",
        'f"i.{WEIGHT}"',
        'f"CAST(1 AS BIGINT) AS {WEIGHT}"',
        "generated rows are never taken back and come once",
        "explode,lateral view",
    ),
    "generate-outer": (
        "compiler/render.py",
        'outer = "OUTER " if node.outer else ""',
        'outer = ""',
        "a row whose array is empty is lost",
        "lateral view outer",
    ),
    "union-arm": (
        "compiler/rules/union_all.py",
        "for side in node.inputs:",
        "for side in node.inputs[1:]:",
        "changes of the first side are lost",
        "union all",
    ),
    "replace-before": (
        "compiler/rules/replace.py",
        "restricted(node, emitter.after, keys)",
        "restricted(node, emitter.before, keys)",
        "touched keys are recomputed from the old snapshot",
        "having,window sum",
    ),
    "having-ignored": (
        "compiler/rules/replace.py",
        "shown = Select(block.inputs, block.where, outputs)",
        "shown = Select(block.inputs, (), outputs)",
        "groups that HAVING hides are shown when they are touched",
        "having",
    ),
    "replace-single": (
        "compiler/rules/replace.py",
        "single = isinstance(node, Aggregate) and node.session is None",
        "single = True",
        "a partition of a window is said to have one row",
        "window sum,window rank",
    ),
    # -- folds -----------------------------------------------------------------------------------
    "fold-empty-group": (
        _FOLD,
        'found.alive if node.keys else ""',
        '""',
        "a group without rows stays",
        _BASIC,
    ),
    "fold-null-sum": (
        _COMPONENTS,
        "return f\"{{{state.component(call, 'add', '' if never_null else counter)}}}\"",
        "return f\"{{{state.component(call, 'add', '')}}}\"",
        "the sum of nothing but NULL is 0",
        _BASIC,
    ),
    "fold-null-total": (
        _COMPONENTS,
        "never_null = grouped and counter == alive",
        "never_null = counter == alive",
        "the sum of an empty table is 0",
        "global,filter",
    ),
    "fold-hidden-count": (
        _COMPONENTS,
        "if call.arg is None or not call.arg_nullable:",
        'if call.arg is None or call.function == "AVG":',
        "an average is divided by the number of rows, NULLs included",
        _BASIC,
    ),
    "fold-count-null": (
        _COMPONENTS,
        'f"IF({argument} IS NULL, 0, {weight})"',
        "weight",
        "COUNT(x) counts the changed rows where x is NULL",
        _BASIC,
    ),
    "fold-weight": (
        _COMPONENTS,
        'return f"{weight} * {value}"',
        "return value",
        "a value that went is added",
        _BASIC,
    ),
    "fold-lost-null": (
        _COMPONENTS,
        'lost.append(f"max({weight} < 0 AND {argument} IS NOT NULL)")',
        'lost.append(f"max({weight} < 0 AND {argument} IS NULL)")',
        "a group that lost its extremum is not recomputed",
        _BASIC,
    ),
    "fold-exact-before": (
        _COMPONENTS,
        "restricted(recomputed, emitter.after, losers",
        "restricted(recomputed, emitter.before, losers",
        "an extremum is recomputed from the old snapshot",
        _BASIC,
    ),
    "fold-moved": (
        _COMPONENTS,
        'moved.append(f"max({argument} IS NOT NULL)")',
        'moved.append("false")',
        "a group whose counts stay does not get its new extremum",
        _BASIC,
    ),
    "fold-moved-down": (
        _COMPONENTS,
        'moved.append(f"{total} <> 0")',
        'moved.append(f"{total} > 0")',
        "a group that only loses rows is left as it is",
        _BASIC,
    ),
    "fold-average-whole": (
        _COMPONENTS,
        'return f"(CAST({{{stored}}} AS DOUBLE) / nullif({{{counter}}}, 0))"',
        'return f"(CAST(CAST({{{stored}}} AS BIGINT) / nullif({{{counter}}}, 0) AS BIGINT))"',
        "an average is rounded to a whole number",
        _BASIC,
    ),
    "values-null-stored": (
        _VALUES,
        "coalesce({stored}, 0) + {change}",
        "{stored} + {change}",
        "a sum that was NULL stays NULL",
        _BASIC,
    ),
    "values-lost-ignored": (
        _VALUES,
        'f"CAST(IF({new}.{LOST}, {exact}, {both}) AS {part.type})"',
        'f"CAST({both} AS {part.type})"',
        "the recomputed extremum is not taken",
        _BASIC,
    ),
    "values-extremum-replaced": (
        _VALUES,
        'both = f"{part.kind}({stored}, {change})" if old else change',
        "both = change",
        "the extremum of the change replaces the stored one",
        _BASIC,
    ),
    # -- groups below other operators -----------------------------------------------------------
    "folded-old-after": (
        _FOLDED,
        "emitter.before, groups if node.keys",
        "emitter.after, groups if node.keys",
        "the change is added to groups that have it already",
        "group basic,filter,join",
    ),
    "folded-new-group": (
        _FOLDED,
        'lived = f"t.{escape(ident(spec.alive))} IS NOT NULL"',
        'lived = "true"',
        "a group that was not there is taken away",
        "group basic,filter,join",
    ),
    "folded-dead-group": (
        _FOLDED,
        'lives = f"{escape(new[spec.alive])} > 0" if node.keys else "true"',
        'lives = "true"',
        "a group without rows stays",
        "group basic,filter,join",
    ),
    "folded-same": (
        _FOLDED,
        '*(f"n{at} <=> o{at}" for at in places)',
        '*(f"n{at} <=> o{at}" for at in places[:1])',
        "a group whose first aggregate stays is left out",
        "group basic,filter,join",
    ),
    # -- rows that other changes meet ----------------------------------------------------------
    "met-twice": (
        "compiler/meeting.py",
        "and uses[child.node.table] == 1",
        "and uses[child.node.table] >= 1",
        "rows that another use of the same table asks for are missing",
        "self join,n-way join,join",
    ),
    # -- cutting to keys ------------------------------------------------------------------------
    "restrict-right-of-left": (
        _RESTRICT,
        "if ref[0] == alias\n",
        "if ref[0]\n",
        "right rows of an outer join are cut by keys that may be padding",
        "left join,group basic,distinct",
    ),
    "restrict-any-column": (
        _RESTRICT,
        "keys = {name: link for name, link in links.items() if name in keys_of(node)}",
        "keys = {n: link for n, link in links.items() if n in node.input.columns}",
        "the input of a window is cut by a column that is not its key",
        "window rank,qualify,group basic,distinct",
    ),
    # -- the first rows -------------------------------------------------------------------------
    "limit-below-edge": (
        _LIMIT,
        'f"WHERE {_NUMBER} < {node.limit} OR {_PLACE} <= {_EDGE}\\n"',
        'f"WHERE true\\n"',
        "rows below the last stored one count, though others may come before them",
        "order limit,filter",
    ),
    "limit-never-asks": (
        _LIMIT,
        "AND c.found < {node.limit}",
        "AND c.found < 0",
        "when too few rows are left, none move up",
        "order limit,filter",
    ),
    "limit-short-view": (
        _LIMIT,
        "{_NUMBER} < {node.limit} OR ",
        "",
        "a view that has room for more takes none from below its last row",
        "order limit,filter",
    ),
    "limit-copies": (
        _LIMIT,
        "sequence(1, CAST(least({WEIGHT}, {node.limit}) AS INT))",
        "sequence(1, 1)",
        "of equal rows only one is kept",
        "order limit,project",
    ),
    "limit-under-filter": (
        _LIMIT,
        "node.limit is None or node.offset or select.where",
        "node.limit is None or node.offset",
        "rows that a filter above the LIMIT hides are taken for missing",
        "order limit,filter",
    ),
}
