"""Planted bugs of views that forget.

id -> symbol, old, new, what is wrong, the tests that find it.
"""

from __future__ import annotations

from tests.mutants.planting import Planted, Text

_ROWS = "a_view_of_rows_gains"
_ANEW = "a_group_starts_anew"
_AGAIN = "what_is_computed_again"

TTL: dict[str, Planted] = {
    "ttl-all-state": (
        "Emitter.state",
        "self.steps.append(State(self._states[key], scan.table, moment, met, scan.ttl))",
        "self.steps.append(State(self._states[key], scan.table, moment, met))",
        "a change meets rows that have expired",
        _ROWS,
    ),
    "ttl-all-changes": (
        "_delta",
        "return emitter.changes(node.table, node.ttl)",
        "return emitter.changes(node.table)",
        "what has expired is taken back when it goes",
        _ROWS,
    ),
    "ttl-lookup-all": (
        "restrict",
        "return Chosen(node.table, node.columns, frame, pairs, ttl=node.ttl) if pairs else node",
        "return Chosen(node.table, node.columns, frame, pairs) if pairs else node",
        "keys are computed again from all of their rows",
        _AGAIN,
    ),
    "ttl-still-limit": (
        ("plan", "restricted"),
        'changed = emitter.collect("moved_rows", changed)',
        "pass",
        "a LIMIT forgets rows though nothing of its input changed",
        _AGAIN,
    ),
    "ttl-group-lives": (
        ("_component", "Fold"),
        'known = f"{old}.{quote(WRITTEN)} >= {spec.since}L OR NOT {new}.{MOVED}"',
        'known = "true"',
        "a group never starts anew",
        _ANEW,
    ),
    "ttl-group-woken": (
        ("_component", "Fold"),
        Text("{old}.{quote(WRITTEN)} >= {spec.since}L OR NOT {new}.{MOVED}"),
        "{old}.{quote(WRITTEN)} >= {spec.since}L",
        "rows that came and went at once make a group start anew",
        _ANEW,
    ),
    "ttl-not-written": (
        "fold_values",
        'values[WRITTEN] = f"IF({left}, {old}.{quote(WRITTEN)}, {spec.now}L)"',
        'values[WRITTEN] = f"{old}.{quote(WRITTEN)}"',
        "a group is as old as its first write",
        _ANEW,
    ),
    "ttl-rewrite-loses": (
        "_changes_sql",
        "node.ttl or any(scan.ttl for scan in scans(node))",
        "False",
        "a row that is written again as it is counts as a loss, and as a change of its group",
        _ANEW,
    ),
    "ttl-forgets-marks": (
        "expiry_of",
        "numbers += [expired.get(_place(at, table), 0), known.get((table, ttl), 0)]",
        "numbers += [0]",
        "what had expired is remembered again under a longer TTL",
        "what_expired_under_a_shorter_ttl",
    ),
    "ttl-late-unseen": (
        "SparkRelations.after",
        "expired = min(self.ages.expired(table, ttl), changes.sequence(read.meta, read.change))",
        "expired = self.ages.expired(table, ttl)",
        "what came is not seen when the epoch is late",
        "however_late",
    ),
    "ttl-rewritten-stays": (
        "changes_with_expiry",
        Text("(SELECT _row_id FROM {written(change.new, expired)} WHERE {_STAMP} <= {before}) n "),
        "(SELECT _row_id FROM {written(change.new, expired)}) n ",
        "an updated row is not taken back",
        "however_late",
    ),
}
