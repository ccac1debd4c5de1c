"""All operators by name: what one can stand under and over."""

from __future__ import annotations

from tests.differential import duck_below as below
from tests.differential import duck_correlated as each
from tests.differential import duck_joins as several
from tests.differential import duck_pivots as turned
from tests.differential import duck_unary as one
from tests.differential.duck_queries import Operator
from tests.differential.duck_terms import FAMILIES

OPERATORS: dict[str, Operator] = {
    "filter": one.filtered,
    "project": one.project,
    "struct/array": one.composite,
    "distinct": one.distinct,
    "explode": one.explode,
    "lateral view": one.lateral_view,
    "lateral view outer": lambda q, depth: one.lateral_view(q, depth, "OUTER "),
    "order limit": one.limit,
    "pivot": turned.pivot,
    "unpivot": turned.unpivot,
    **{f"group {family}": one.group(family) for family in FAMILIES},
    "group expression": one.group_expression,
    "global": one.whole,
    "having": one.having,
    "rollup": one.grouping_sets("ROLLUP"),
    "cube": one.grouping_sets("CUBE"),
    "grouping sets": one.grouping_sets("GROUPING SETS"),
    **{
        f"window {kind}": one.window(kind)
        for kind in ("rank", "shift", "value", "sum", "frame", "two")
    },
    "window over group": one.window_over_group,
    "qualify": one.qualify,
    "top n": one.top,
    "dedup": lambda q, depth: one.top(q, depth, 1),
    "join": several.join("JOIN"),
    "cross join": several.cross,
    "or join": several.either,
    "n-way join": several.many,
    "self join": several.self,
    "using": several.using,
    "left join": several.join("LEFT JOIN"),
    "right join": several.join("RIGHT JOIN"),
    "full join": several.join("FULL OUTER JOIN"),
    "semi join": several.half("LEFT SEMI JOIN"),
    "anti join": several.half("LEFT ANTI JOIN"),
    "exists": several.exists("EXISTS"),
    "not exists": several.exists("NOT EXISTS"),
    "in": several.in_query("IN"),
    "not in": several.in_query("NOT IN"),
    "two sub-queries": several.two_queries,
    "having sub-query": several.having_query,
    "scalar": several.scalar,
    "correlated scalar": several.correlated,
    "lateral": several.lateral,
    "correlated first": each.first,
    "correlated group": each.grouped_value,
    "correlated test": each.tested,
    "correlated one": each.one_group,
    "correlated few": each.of_few,
    "lateral group": each.lateral,
    "in shadowed": each.shadowed,
    "asked below": below.asked_below,
    "asked in on": below.asked_in_on,
    "in brackets": below.in_brackets,
    "pairs not in": below.pairs_not_in,
    "union all": several.set_operation("UNION ALL"),
    "union": several.set_operation("UNION"),
    "intersect": several.set_operation("INTERSECT"),
    "intersect all": several.set_operation("INTERSECT ALL"),
    "except": several.set_operation("EXCEPT"),
    "except all": several.set_operation("EXCEPT ALL"),
    "values": several.values,
    "with": several.common,
    "block": several.block,
}
