"""Planted bugs of the runtime and of what only Spark computes.

id -> symbol, old, new, what is wrong, small scenarios.
"""

from __future__ import annotations

from tests.mutants.planting import Planted, Text

SPARK: dict[str, Planted] = {
    # -- what changed ----------------------------------------------------------------------------
    "overwrite-for-append": (
        ("classify", "GONE"),
        "all(summaries.appends(snapshot) for snapshot in path)",
        "any(summaries.appends(snapshot) for snapshot in path)",
        "commits are taken for appends when one of them is",
        "changelog",
    ),
    "deletes-for-changelog": (
        "_copy_on_write",
        'snapshot.count("total-delete-files") == 0',
        'snapshot.count("total-delete-files") >= 0',
        "merge-on-read commits are taken for copy-on-write",
        "difference",
    ),
    "changelog-sign": (
        ("read", "GONE"),
        Text("IF(_change_type = 'INSERT', 1L, -1L)"),
        "IF(_change_type = 'DELETE', 1L, -1L)",
        "the changelog's inserts and deletes are exchanged",
        "changelog",
    ),
    "lineage-applied-twice": (
        "_newer",
        Text("FROM {new} WHERE {_STAMP} > {sequence(meta, change)}"),
        "FROM {new} WHERE {_STAMP} >= {sequence(meta, change)}",
        "rows that the last epoch has seen already come again",
        "lineage",
    ),
    "lineage-update": (
        "_by_lineage",
        Text("FROM {new} WHERE {_STAMP} <= {sequence(meta, change)}) n "),
        "FROM {new}) n ",
        "the old version of an updated row is not taken back",
        "everything",
    ),
    "difference-sign": (
        ("difference", "GONE"),
        "((1, new), (-1, old))",
        "((1, old), (-1, new))",
        "the difference of two snapshots is taken the wrong way round",
        "difference",
    ),
    # -- the epoch -------------------------------------------------------------------------------
    "before-is-after": (
        "SparkRelations.before",
        "return inputs.version(read.name, read.change.old, read.meta)",
        "return inputs.version(read.name, read.change.new, read.meta)",
        "inputs are read after the epoch where they are asked for before it",
        "joined",
    ),
    "after-is-before": (
        "SparkRelations.after",
        "return inputs.version(read.name, read.change.new, read.meta)",
        "return inputs.version(read.name, read.change.old, read.meta)",
        "inputs are read before the epoch where they are asked for after it",
        "joined",
    ),
    "clock-backwards": (
        "ViewRefresh._write",
        "clock = (previous.inputs.get(CLOCK), self.consumed.get(CLOCK))",
        "clock = (self.consumed.get(CLOCK), previous.inputs.get(CLOCK))",
        "the time goes from this epoch to the last one",
        "clock",
    ),
    "change-consumed-again": (
        "ViewRefresh._incremental",
        "self.stager.branched",
        "replace(self.stager, inputs=previous.inputs).branched",
        "the version does not say what it consumed: the change is applied again",
        "lineage",
    ),
    "feed-sign": (
        ("_feed", "Writer"),
        "((come.select(names).cast(old.schema), 1), (old, -1))",
        "((come.select(names).cast(old.schema), 1), (old, 1))",
        "a view over this view is told that its old rows come",
        "chain",
    ),
    # -- writing ---------------------------------------------------------------------------------
    "driver-copies-come": (
        "_come_rows",
        "[row for row, weight in enumerate(weights) for _ in range(weight)]",
        "[row for row, weight in enumerate(weights) if weight > 0]",
        "of several equal new rows one is written",
        "lineage",
    ),
    "driver-copies-go": (
        "_places_of",
        "wanted = {row: -weights[row] for row in lost}",
        "wanted = dict.fromkeys(lost, 1)",
        "of several equal rows to go one goes",
        "lineage",
    ),
    "compared-rows-stay": (
        "Comparison._difference",
        Text("HAVING sum({WEIGHT}) <> 0"),
        "HAVING sum({WEIGHT}) > 0",
        "a comparison leaves the rows that the query has not any more",
        "compared",
    ),
    "compared-copies-stay": (
        "different",
        "pc.max(gone.column(COPIES)).as_py() > 1",
        "pc.max(gone.column(COPIES)).as_py() > 100",
        "of several equal rows a comparison takes one away",
        "compared",
    ),
    "held-rows-stay": (
        "StoredRows.after",
        "left = left.filter(pc.invert(pc.is_in(_numbers(left.num_rows), lost)))",
        "pass",
        "rows that went are known for ever",
        "held",
    ),
    "held-copies-stay": (
        "StoredRows.difference",
        '(pc.max(goes.column(f"{_ROW}_count")).as_py() or 0) > 1',
        '(pc.max(goes.column(f"{_ROW}_count")).as_py() or 0) > 100',
        "of several equal rows in the process one goes",
        "held",
    ),
    "held-of-any-snapshot": (
        "KnownRows.get",
        "found is None or found[0] != at",
        "found is None",
        "rows of an older snapshot are taken for those that are stored",
        "held",
    ),
    "driver-dead-group": (
        ("fold", "DriverRows"),
        "updated = met.data.filter(pc.and_(pc.invert(equal), living))",
        "updated = met.data.filter(pc.invert(equal))",
        "a group without rows is written",
        "driver groups",
    ),
    "driver-difference-copies": (
        "_difference",
        ("if left[row] > 0:\n    left[row] -= 1\nelse:\n    came.append(number)"),
        ("if left[row] <= 0:\n    came.append(number)"),
        "a copy that is there once stands for all new copies",
        "ties",
    ),
    "match-null-key": (
        ("match", "TempRelation"),
        Text("t.{name} <=> s.{name}"),
        "t.{name} = s.{name}",
        "stored rows with a NULL in their key are not found",
        "driver groups",
    ),
    "match-range": (
        "_ends",
        "pc.max(data)",
        "pc.min(data)",
        "stored rows above the smallest changed key are not found",
        "driver groups",
    ),
    "rewrite-copies-go": (
        "Writer._rows_like",
        Text("WHERE n <= -{WEIGHT}"),
        "WHERE n <= 1",
        "one copy of each row to go is looked up",
        "rewritten copies",
    ),
    "rewrite-copies-come": (
        "Writer._positive",
        Text("(SELECT *, explode(sequence(1, CAST({WEIGHT} AS INT))) AS _copy "),
        "(SELECT *, 1 AS _copy ",
        "each new row is written once",
        "rewritten copies",
    ),
    "rewrite-dead-group": (
        ("folded", "fold_values"),
        'alive = f" WHERE {values[spec.alive]} > 0" if spec.alive else ""',
        'alive = ""',
        "a group without rows is written",
        "rewritten groups",
    ),
    "exchange-all-copies": (
        "Writer._exchange",
        Text("WHERE d.{WEIGHT} < 0) WHERE n <= -{WEIGHT})"),
        "WHERE d.{WEIGHT} < 0))",
        "all copies of a row go where some have to",
        "rewritten places",
    ),
    "same-null-key": (
        ("same", "match"),
        Text("{left}.{quote(c)} <=> {right}.{quote(c)}"),
        "{left}.{quote(c)} = {right}.{quote(c)}",
        "rows with a NULL are not told to be the same",
        "rewritten",
    ),
    "merge-dead-group": (
        ("fold", "_insert"),
        Text("<= 0 THEN DELETE"),
        "< 0 THEN DELETE",
        "a group without rows stays",
        "merged groups",
    ),
    "merge-inserts-again": (
        ("_insert", "Writer"),
        "known = f\"LEFT ANTI JOIN {written} w ON {same(spec.key, 's', 'w')} \"",
        'known = ""',
        "groups that the MERGE has updated are inserted as well",
        "merged groups",
    ),
    # -- rows that follow from stored ones -------------------------------------------------------
    "redefined-having": (
        ("_answer", "Select"),
        "rest = tuple(value(expr) for expr in asked if expr not in had)",
        "rest = tuple[Expr, ...]()",
        "a condition that is new is not asked of the stored rows",
        "verdicts",
    ),
    "redefined-less-where": (
        ("_answer", "Select"),
        "had <= set(asked)",
        "had",
        "rows that the old condition left out are taken for stored ones",
        "verdicts",
    ),
    "redefined-inputs": (
        "ViewRefresh._restore",
        'move.kind != "none"',
        'move.kind == "none"',
        "the change of the inputs in the same run as the definition is lost",
        "verdicts",
    ),
    "redefined-below": (
        "_block",
        '_equal(new.where, old.where, at, "a condition below the stored rows is different")',
        "pass",
        "a condition below the groups may be another",
        "verdicts",
    ),
    "redefined-ties": (
        ("_window", "NotEquivalentError"),
        "ties = _ties(new, names) if over.ties else None",
        "ties = (old.sortable, old.unlike) if over.ties else None",
        "ties of a window may be told apart by other columns",
        "verdicts",
    ),
    "redefined-input": (
        "Definitions._change",
        "any(was not in (None, stamp) for was, stamp in stamps)",
        "False",
        "an input may be another table than the one that the stored rows were made of",
        "another_table",
    ),
    # -- what the fast tier cannot compute -------------------------------------------------------
    "tie-order": (
        ("_over", "Window"),
        "over.ties",
        "over.ties and not order",
        "rows that the order of a window leaves equal are numbered as they are read",
        "ties",
    ),
    "average-half": (
        "_decimal_average",
        Text("CAST({units} * 2 + {count} AS DECIMAL(38,0))"),
        "CAST({units} * 2 AS DECIMAL(38,0))",
        "the average of wide decimals is cut off instead of rounded",
        "decimals",
    ),
    "wide-sum-sign": (
        "_signed",
        'return f"CASE WHEN {weight} > 0 THEN {value} WHEN {weight} < 0 THEN {less} END"',
        "return value",
        "a wide decimal that went is added",
        "decimals",
    ),
    # -- merge-on-read commits --------------------------------------------------------------------
    "positions-known": (
        "_by_positions",
        (
            "if known:\n"
            "    before = f\"{name.child('position_deletes')} VERSION AS OF {int(change.old)}\"\n"
            '    gone += f" LEFT ANTI JOIN {before} p ON r._pos = p.pos AND r._file = p.file_path"'
        ),
        (
            "if known < 0:\n"
            "    before = f\"{name.child('position_deletes')} VERSION AS OF {int(change.old)}\"\n"
            '    gone += f" LEFT ANTI JOIN {before} p ON r._pos = p.pos AND r._file = p.file_path"'
        ),
        "rows that were deleted before are deleted again",
        "foreign_writers",
    ),
    "positions-of-new-rows": (
        "_by_positions",
        'gone += f" AND {_STAMP} <= {sequence(meta, change)}"',
        'gone += ""',
        "rows that came and went in between are taken away",
        "foreign_writers",
    ),
    "positions-with-files": (
        "_by_position",
        'not any(snapshot.count("deleted-data-files") for snapshot in path)',
        "True",
        "a file that was dropped or rewritten goes unnoticed",
        "foreign_writers",
    ),
    "counts-believed": (
        "believed",
        "_from_the_first(meta, old) or _as_listed(meta, meta.snapshots[old])",
        "True",
        "totals that were wrong before are believed",
        "summaries",
    ),
    "positions-updated": (
        ("classify", "GONE"),
        '(not s.count("added-records") or s.operation == "append" for s in path)',
        "(True for s in path)",
        "rows that an UPDATE has written are not seen",
        "foreign_writers",
    ),
    "around-old-deletes": (
        "changes_and_matches",
        Text("ON {GONE} AND r._pos = p.pos AND r._file = p.file_path"),
        "ON false AND r._pos = p.pos AND r._file = p.file_path",
        "read together with what is joined, rows that were deleted before go again",
        "deleted_before_or_only",
    ),
    "around-passed-by": (
        "changes_and_matches",
        Text("WHERE NOT ({GONE} AND {FRESH}) AND ({wanted})"),
        "WHERE ({wanted})",
        "rows that came and went between two epochs are taken back",
        "deleted_before_or_only",
    ),
    "met-before-fresh": (
        "SparkRelations.before",
        Text("FROM {self._rows_met[table]} WHERE NOT {changes.FRESH})"),
        "FROM {self._rows_met[table]})",
        "what other changes meet before the epoch has the rows of the epoch",
        "change_together",
    ),
    "met-by-some": (
        "asked",
        "ways if {way.other for way in ways} >= set(changed) - {table} else ()",
        "ways if {way.other for way in ways} >= set() else ()",
        "rows that an unconnected change asks for are missing",
        "third_table",
    ),
    # -- a change that is given up -----------------------------------------------------------------
    "cut-change-written": (
        "Writer._within",
        Text("LIMIT {most + 1}"),
        "LIMIT {most}",
        "of a change that is too large a part is written",
        "fan_out",
    ),
    # -- likeness ----------------------------------------------------------------------------------
    "maps-by-keys": (
        "stand_in",
        Text("map_entries({sql})"),
        "map_keys({sql})",
        "two maps are the same when their keys are",
        "maps_and_variants",
    ),
    # -- the files of a table as its version -------------------------------------------------------
    "fresh-files-believed": (
        ("classify", "NoVersionsError"),
        "None if old is not None and old & FRESH else meta.came(old, new)",
        "meta.came(old, new)",
        "a file that was replaced at once is not read again",
        "file_sources",
    ),
    "files-of-today": (
        ("version", "NoVersionsError"),
        Text("WHERE {_of(files)}"),
        "WHERE true",
        "an older version of a table has the files of today",
        "file_sources",
    ),
    # -- values that were not sent -----------------------------------------------------------------
    "kept-across-delete": (
        "Carry._said",
        Text("{GONE} OR coalesce({torn}, false)"),
        "coalesce({torn}, false)",
        "a value is kept across a delete in the same barrier",
        "unsent",
    ),
    "kept-of-older-row": (
        "Carry._filled",
        Text("{_after(seen, floor)} AND coalesce({seen} > {base}.since, true)"),
        "true",
        "the stored value is kept where the barrier knows a newer one",
        "unsent",
    ),
    "bad-record-told-nothing": (
        "Carry._said",
        Text(" OR {_IS_LOST} OR {self._is_needed}"),
        "",
        "a value is kept across a record that was put aside",
        "unsent",
    ),
}
