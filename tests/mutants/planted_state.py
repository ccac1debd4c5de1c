"""Planted bugs of state tables.

id -> symbol, old, new, what is wrong, tests.
"""

from __future__ import annotations

from tests.mutants.planting import Planted

STATE: dict[str, Planted] = {
    "reduced-by-another-column": (
        ("_Reduction._cut", "reduced"),
        "not isinstance(node, Aggregate | Window) or column not in keys_of(node)",
        "not isinstance(node, Aggregate | Window) or column not in node.input.columns",
        "a grouping by another column loses some rows of its groups",
        "reads_all_rows_where",
    ),
    "reduced-under-full": (
        ("_Reduction.visit", "reduced"),
        'made.kind == "full"',
        "made.kind is None",
        "a full join loses groups that find no partner",
        "reads_all_rows_where",
    ),
    "reduced-by-those-that-are-not": (
        ("_Reduction._keys_of_match", "reduced"),
        'node.kind == "semi"',
        'node.kind != "left"',
        "groups are cut to the keys that no asking row has",
        "reads_all_rows_where",
    ),
    "part-columns-swapped": (
        "_stored_form",
        "{name: place[names[name]] for name in rows.columns}",
        "dict(zip(rows.columns, place.values(), strict=True))",
        "the columns of a state table are taken for each other",
        "share_one_table",
    ),
    "part-without-its-table": (
        ("_Renaming.of", "Names"),
        "replace(node, columns=tuple(sorted(node.columns)))",
        'replace(node, columns=tuple(sorted(node.columns)), table="t")',
        "parts of different tables are taken for equal",
        "other_rows_have_other_forms",
    ),
    "keys-pad-partners": (
        ("_with_stored_keys", "cut"),
        'Match("anti", node.left, there, node.on, every, node.types)',
        'Match("semi", node.left, there, node.on, every, node.types)',
        "a left join pads the rows that have partners",
        "keys_of_partners",
    ),
    "keys-of-grouped-rows": (
        ("_partner_keys", "cut"),
        "Aggregate(node.right.node, partner_columns(node), ())",
        "Aggregate(node.right.node, partner_columns(node)[:1], ())",
        "only the first column decides which rows have partners",
        "keys_of_partners",
    ),
    "keys-saved-twice": (
        "Choosing._saved",
        "0 if self._is_found(part) else 1",
        "1",
        "keys that are found in the changes are stored",
        "found_in_the_changes",
    ),
    "part-that-forgets": (
        ("parts_of", "cut"),
        'getattr(node, "ttl", 0)',
        'getattr(node, "ttl_", 0)',
        "parts of a view that forgets are stored",
        "forgets",
    ),
    "state-change-keeps-rows": (
        "Definitions._change",
        "was != stored",
        "was == stored",
        "a view keeps its rows when other parts of it are stored",
        "change_while_the_view_lives",
    ),
    "state-swept-with-readers": (
        ("_unread", "sweep"),
        "table not in read",
        "table in read",
        "state tables go while views read them",
        "share_one_table",
    ),
    "state-never-swept": (
        ("_unread", "sweep"),
        "definition_of(job).part and table not in read",
        "not definition_of(job).part and table not in jobs",
        "state tables stay without a reader",
        "last_reader",
    ),
    "state-always-pays": (
        "Choosing._obstacle",
        "self._saved(part) < (min(times, 1.0) if own else times) * self._kept(part, own)",
        "self._saved(part) < 0",
        "a part is stored whatever it costs",
        "where_that_costs_less",
    ),
    "budget-without-limit": (
        "Choosing._obstacle",
        "held > self.rule.budget",
        "held > self.rule.budget << 60",
        "the budget of state is not kept",
        "budget",
    ),
    "budget-of-this-part": (
        "Choosing._obstacle",
        "self.there.values()",
        "(own,) * bool(own)",
        "the other state tables do not count for the budget",
        "budget",
    ),
    "choice-made-once": (
        "Definitions.known",
        'anew and state == "auto" and parts_in(plan)',
        'not anew and state == "auto" and parts_in(plan)',
        "a full refresh does not decide again which parts are stored",
        "where_that_costs_less",
    ),
    "plan-file-without-stored": (
        ("_state", "TableDefiner"),
        "stored is None",
        "stored is not None",
        "a plan file does not decide what is stored",
        "plan_file_says",
    ),
    "plan-file-stores-anything": (
        ("_different", "PlanDocument"),
        "old.stored and new.stored is None",
        "old.stored and new.stored is not None",
        "a plan file may store what cannot be stored",
        "cannot_be_stored",
    ),
    "explained-without-state": (
        "StateTables.explained",
        "{part.id: part for part in plan.parts}",
        "{}",
        "explain takes stored parts for computed ones",
        "where_that_costs_less",
    ),
    "decided-loses-inputs": (
        "ViewRefresh.of",
        "{source: found[source].snapshot for source in job.sources}",
        "{source: found[source].snapshot for source in plan.sources}",
        "the versions of a new state table that a view has seen are not recorded",
        "beside_the_running_view",
    ),
    "decided-by-the-new-plan": (
        ("Epoch._run", "EpochState"),
        "earlier or plan",
        "plan",
        "the new plan runs before its state table has a change",
        "beside_the_running_view",
    ),
    "declined-forgotten": (
        "StateTables._decided",
        "tuple(sorted({*definition.declined, *dropped}))",
        "()",
        "a state table that did not pay is built again",
        "is_dropped_and_stays_so",
    ),
    "join-for-one-view": (
        "Choosing._obstacle",
        "part.join and not self.others(part.id)",
        "part.join and self.others(part.id) < 0",
        "a join is stored for a single view",
        "when_a_second_view_has_it",
    ),
    "join-counts-itself": (
        "StateTables._choosing",
        "(self._parts(job) for table, job in jobs.items() if table != view)",
        "(self._parts(job) for table, job in jobs.items())",
        "a view counts as another view that has its join",
        "when_a_second_view_has_it",
    ),
}
