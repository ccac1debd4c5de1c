"""Planted bugs of the runtime and of what only Spark computes.

id -> file, old text, new text, what is wrong, small scenarios.
"""

from __future__ import annotations

_CHANGES = "storage/iceberg/changes.py"
_RELATIONS = "runtime/spark_relations.py"
_JOB = "runtime/job.py"
_REDEFINE = "compiler/redefine.py"
_SAME = "compiler/same.py"
_WRITE = "runtime/write.py"
_DRIVER = "runtime/write_driver.py"
_MERGE = "runtime/write_merge.py"

SPARK: dict[str, tuple[str, str, str, str, str]] = {
    # -- what changed ----------------------------------------------------------------------------
    "overwrite-for-append": (
        _CHANGES,
        'if all(snapshot.operation == "append" for snapshot in path):',
        'if any(snapshot.operation == "append" for snapshot in path):',
        "commits are taken for appends when one of them is",
        "changelog",
    ),
    "deletes-for-changelog": (
        _CHANGES,
        'snapshot.count("total-delete-files") == 0',
        'snapshot.count("total-delete-files") >= 0',
        "merge-on-read commits are taken for copy-on-write",
        "difference",
    ),
    "changelog-sign": (
        _CHANGES,
        "IF(_change_type = 'INSERT', 1L, -1L)",
        "IF(_change_type = 'DELETE', 1L, -1L)",
        "the changelog's inserts and deletes are exchanged",
        "changelog",
    ),
    "lineage-applied-twice": (
        _CHANGES,
        "FROM {new} WHERE {_STAMP} > {sequence(meta, change)}",
        "FROM {new} WHERE {_STAMP} >= {sequence(meta, change)}",
        "rows that the last epoch has seen already come again",
        "lineage",
    ),
    "lineage-update": (
        _CHANGES,
        "FROM {new} WHERE {_STAMP} <= {sequence(meta, change)}) n ",
        "FROM {new}) n ",
        "the old version of an updated row is not taken back",
        "everything",
    ),
    "difference-sign": (
        _CHANGES,
        "((1, new), (-1, old))",
        "((1, old), (-1, new))",
        "the difference of two snapshots is taken the wrong way round",
        "difference",
    ),
    # -- the epoch -------------------------------------------------------------------------------
    "before-is-after": (
        _RELATIONS,
        "return inputs.version(read.name, read.change.old)",
        "return inputs.version(read.name, read.change.new)",
        "inputs are read after the epoch where they are asked for before it",
        "joined",
    ),
    "after-is-before": (
        _RELATIONS,
        "return inputs.version(read.name, read.change.new)",
        "return inputs.version(read.name, read.change.old)",
        "inputs are read before the epoch where they are asked for after it",
        "joined",
    ),
    "clock-backwards": (
        _JOB,
        "clock = (previous.inputs.get(CLOCK), self.consumed.get(CLOCK))",
        "clock = (self.consumed.get(CLOCK), previous.inputs.get(CLOCK))",
        "the time goes from this epoch to the last one",
        "clock",
    ),
    "change-consumed-again": (
        _JOB,
        "self.stager.branched(\n            spark,\n            branch,\n            mode",
        (
            "replace(self.stager, inputs=previous.inputs).branched(\n            spark,\n"
            "            branch,\n            mode"
        ),
        "the version does not say what it consumed: the change is applied again",
        "lineage",
    ),
    "feed-sign": (
        _DRIVER,
        "(old, -1)):",
        "(old, 1)):",
        "a view over this view is told that its old rows come",
        "chain",
    ),
    # -- writing ---------------------------------------------------------------------------------
    "driver-copies-come": (
        _DRIVER,
        "for row, weight in enumerate(weights) for _ in range(weight)]",
        "for row, weight in enumerate(weights) if weight > 0]",
        "of several equal new rows one is written",
        "lineage",
    ),
    "driver-copies-go": (
        _DRIVER,
        "wanted = {row: -weights[row] for row in lost}",
        "wanted = dict.fromkeys(lost, 1)",
        "of several equal rows to go one goes",
        "lineage",
    ),
    "driver-dead-group": (
        _DRIVER,
        "updated = met.data.filter(pc.and_(pc.invert(equal), living))",
        "updated = met.data.filter(pc.invert(equal))",
        "a group without rows is written",
        "driver groups",
    ),
    "driver-difference-copies": (
        _DRIVER,
        "        if left[row] > 0:\n            left[row] -= 1\n        else:",
        "        if left[row] <= 0:",
        "a copy that is there once stands for all new copies",
        "ties",
    ),
    "match-null-key": (
        "runtime/matching.py",
        'terms.append(f"t.{name} <=> s.{name}")',
        'terms.append(f"t.{name} = s.{name}")',
        "stored rows with a NULL in their key are not found",
        "driver groups",
    ),
    "match-range": (
        "runtime/matching.py",
        'f"high{index}": pc.max(data).as_py()',
        'f"high{index}": pc.min(data).as_py()',
        "stored rows above the smallest changed key are not found",
        "driver groups",
    ),
    "rewrite-copies-go": (
        _WRITE,
        '            f"WHERE n <= -{WEIGHT}",\n            small=self.small,',
        '            f"WHERE n <= 1",\n            small=self.small,',
        "one copy of each row to go is looked up",
        "rewritten copies",
    ),
    "rewrite-copies-come": (
        _WRITE,
        'f"(SELECT *, explode(sequence(1, CAST({WEIGHT} AS INT))) AS _copy "',
        'f"(SELECT *, 1 AS _copy "',
        "each new row is written once",
        "rewritten copies",
    ),
    "rewrite-dead-group": (
        "plan/fold_values.py",
        'alive = f" WHERE {values[spec.alive]} > 0" if spec.alive else ""',
        'alive = ""',
        "a group without rows is written",
        "rewritten groups",
    ),
    "exchange-all-copies": (
        _WRITE,
        'WHERE d.{WEIGHT} < 0) WHERE n <= -{WEIGHT})"',
        'WHERE d.{WEIGHT} < 0))"',
        "all copies of a row go where some have to",
        "rewritten places",
    ),
    "same-null-key": (
        "runtime/matching.py",
        '{left}.{quote(c)} <=> {right}.{quote(c)}" for c',
        '{left}.{quote(c)} = {right}.{quote(c)}" for c',
        "rows with a NULL are not told to be the same",
        "rewritten",
    ),
    "merge-dead-group": (
        _MERGE,
        "<= 0 THEN DELETE",
        "< 0 THEN DELETE",
        "a group without rows stays",
        "merged groups",
    ),
    "merge-inserts-again": (
        _MERGE,
        "known = f\"LEFT ANTI JOIN {written} w ON {same(spec.key, 's', 'w')} \"",
        'known = ""',
        "groups that the MERGE has updated are inserted as well",
        "merged groups",
    ),
    # -- rows that follow from stored ones -------------------------------------------------------
    "redefined-having": (
        _REDEFINE,
        "rest = tuple(value(expr) for expr in asked if expr not in had)",
        "rest = tuple[Expr, ...]()",
        "a condition that is new is not asked of the stored rows",
        "verdicts",
    ),
    "redefined-less-where": (
        _REDEFINE,
        "if not had <= set(asked):",
        "if not had:",
        "rows that the old condition left out are taken for stored ones",
        "verdicts",
    ),
    "redefined-inputs": (
        _JOB,
        'if any(move.kind != "none" for move in self.moves.values()):',
        'if any(move.kind == "none" for move in self.moves.values()):',
        "the change of the inputs in the same run as the definition is lost",
        "verdicts",
    ),
    "redefined-below": (
        _SAME,
        '_equal(new.where, old.where, at, "another condition below what is stored")',
        "pass",
        "a condition below the groups may be another",
        "verdicts",
    ),
    "redefined-ties": (
        _SAME,
        "ties = tuple(names[name] for name in new.sortable) if over.ties else None",
        "ties = old.sortable if over.ties else None",
        "ties of a window may be told apart by other columns",
        "verdicts",
    ),
    "redefined-input": (
        "definitions.py",
        "if any(was not in (None, stamp) for was, stamp in stamps):",
        "if False:",
        "an input may be another table than the one that the stored rows were made of",
        "another_table",
    ),
    # -- what the fast tier cannot compute -------------------------------------------------------
    "tie-order": (
        "compiler/render.py",
        "    if over.ties:\n",
        "    if over.ties and not order:\n",
        "rows that the order of a window leaves equal are numbered as they are read",
        "ties",
    ),
    "average-half": (
        "compiler/rules/components.py",
        "CAST({units} * 2 + {count} AS DECIMAL(38,0))",
        "CAST({units} * 2 AS DECIMAL(38,0))",
        "the average of wide decimals is cut off instead of rounded",
        "decimals",
    ),
    "wide-sum-sign": (
        "compiler/rules/components.py",
        'return f"CASE WHEN {weight} > 0 THEN {value} WHEN {weight} < 0 THEN -{value} END"',
        "return value",
        "a wide decimal that went is added",
        "decimals",
    ),
    # -- merge-on-read commits --------------------------------------------------------------------
    "positions-known": (
        _CHANGES,
        "    if known:\n",
        "    if known < 0:\n",
        "rows that were deleted before are deleted again",
        "foreign_writers",
    ),
    "positions-of-new-rows": (
        _CHANGES,
        'gone += f" AND {_STAMP} <= {sequence(meta, change)}"',
        'gone += ""',
        "rows that came and went in between are taken away",
        "foreign_writers",
    ),
    "positions-with-files": (
        _CHANGES,
        'return not snapshot.count("deleted-data-files") and',
        "return",
        "a file that was dropped or rewritten goes unnoticed",
        "foreign_writers",
    ),
    "positions-updated": (
        _CHANGES,
        'not s.count("added-records") or s.operation == "append" for s in path',
        "True for s in path",
        "rows that an UPDATE has written are not seen",
        "foreign_writers",
    ),
    "around-old-deletes": (
        _CHANGES,
        'f"ON {GONE} AND r._pos = p.pos AND r._file = p.file_path"',
        'f"ON false AND r._pos = p.pos AND r._file = p.file_path"',
        "read together with what is joined, rows that were deleted before go again",
        "deleted_before_or_only",
    ),
    "around-passed-by": (
        _CHANGES,
        'f"WHERE NOT ({GONE} AND {FRESH}) AND ({wanted})"',
        'f"WHERE ({wanted})"',
        "rows that came and went between two epochs are taken back",
        "deleted_before_or_only",
    ),
    "met-before-fresh": (
        _RELATIONS,
        'FROM {self._rows_met[table]} WHERE NOT {changes.FRESH})"',
        'FROM {self._rows_met[table]})"',
        "what other changes meet before the epoch has the rows of the epoch",
        "change_together",
    ),
    "met-by-some": (
        "plan/steps.py",
        ">= set(changed) - {table} else ()",
        ">= set() else ()",
        "rows that an unconnected change asks for are missing",
        "third_table",
    ),
}
