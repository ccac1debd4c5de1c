"""Records that lack values which their update left unchanged: fill in the last known values.

Let r be a record of key k that lacks the column c, in a table by key, and b the newest record of k
before r that has c. The value of r is that of b, unless a record between them deletes k, empties
the table, or was quarantined. b is in the same barrier, or it is the stored row, which holds the
value of its own b. Where there is no such b the value is unknown, and r is a bad record. So is r
where the value of b is NULL: a long value is never NULL, so either a column was added since, or
something was not reported.

All of this is part of the query of the newest records: without such a record nothing is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX, Column
from dbt_streamsql.plan.definition.unsent import LACKS, Carrying
from dbt_streamsql.quoting import literal, quote
from dbt_streamsql.runtime.ingest.sequenced import (
    CLEARED,
    CLEARS,
    DELETED,
    GONE,
    bad_record,
    broadcast,
    or_fail,
)
from dbt_streamsql.runtime.ingest.stream_definition import SEQUENCE
from dbt_streamsql.runtime.spark.join_conditions import match, same
from dbt_streamsql.runtime.spark.scratch import Scratch, TempRelation
from dbt_streamsql.runtime.spark.shared_relations import DriverRows

HELD = f"{HIDDEN_PREFIX}held"
"""A column of the newest records: NULL where a record needs nothing. Else a struct: the `role` of
the record, what it `lacks`, the `columns` to be kept, and what the barrier knows of them."""

NEWEST, EARLIER, BAD, LOST = "newest", "earlier", "bad", "lost"
"""Roles: the newest record of its key; an older one that lacks a value which the barrier does not
know; one with too little to be placed, or that follows a delete; and one that cannot be read."""

_ORDER, _ENDS, _ROLE, _BAD, _UNKNOWN = (
    f"{HIDDEN_PREFIX}{name}" for name in ("order", "ends", "role", "bad", "unknown")
)
_TOLD = (("raw", "raw"), ("at", "at"), ("problem", "reason"))
_IS_LOST = f"({LACKS} IS NOT NULL AND {LACKS}.names IS NULL)"


@dataclass(frozen=True)
class Stored:
    """What is stored, as SQL that may follow FROM: the table's rows, the deleted keys, and those
    of quarantined records ('': none are kept). `columns`: which the rows have."""

    rows: str
    graves: str
    lost: str
    columns: frozenset[str]


@dataclass(frozen=True)
class Settled:
    """The newest records with all their values, and queries of the quarantined records (as rows of
    a quarantine without barrier) and of their keys; '' where there are none. `few`: the driver can
    hold them."""

    newest: TempRelation
    refused: str = ""
    lost: str = ""
    few: bool = False


@dataclass(frozen=True)
class Carry:
    """How records get the values that they lack. `forgives`: a record that cannot is quarantined.
    `few`: the driver can hold all records; it can hold `most`."""

    carrying: Carrying
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    forgives: bool
    few: bool
    most: int

    # -- the records of a barrier ------------------------------------------------------------

    def newest(self, records: str, placed: str, after_clearing: Callable[[str, str], str]) -> str:
        """SQL that may follow FROM: the newest of the `records` of each key, and with HELD those
        others that matter. `placed`: whether a record `q` has a key; `after_clearing(r, of)`:
        whether `r` is newer than the records in `of` that clear all keys."""
        # A record that cannot be read in full clears nothing.
        records = f"(SELECT * FROM ({records}) WHERE {LACKS} IS NULL OR NOT {CLEARS})"
        lacking = f"{self._is_mixed} OR {self._is_needed} OR {_IS_LOST}"
        bad, held = f"({LACKS} IS NOT NULL AND ({lacking}))", f"{LACKS} IS NOT NULL"
        some = " AND ".join(f"{quote(name)} IS NOT NULL" for name in (*self.key, SEQUENCE))
        kept = f"NOT {_IS_LOST} OR ({some})"
        if not self.forgives:
            kept = f"raise_error({self._told(LACKS)})"
        carried = "".join(
            f", coalesce({held} AND NOT {GONE} AND {self._all(name)}, false)"
            f" AS {_name('carried', at)}"
            for at, name in self._carried
        )
        first = (
            f"SELECT q.*, {GONE} AS {_ENDS}, to_json(struct(q.*)) AS {_ORDER}, "
            f"{bad} AS {_BAD}{carried} "
            f"FROM {records} q WHERE CASE WHEN {bad} THEN {kept} ELSE {placed} END"
        )
        keys = ", ".join(quote(name) for name in self.key)
        window = f"PARTITION BY {keys} ORDER BY {SEQUENCE}, {_ENDS} DESC, {_ORDER} DESC"
        upto = f"({window} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
        bases = "".join(
            f", last_value({self._said(name)}) IGNORE NULLS OVER {upto} AS {_name('base', at)}"
            for at, name in self._carried
        )
        known = f"SELECT *{bases} FROM ({first})"
        torn = self._any(lambda at: f"coalesce({_name('base', at)}.cut, false)")
        judged = f"SELECT * EXCEPT ({_BAD}), ({_BAD} OR {torn}) AS {_BAD} FROM ({known})"
        if not self.forgives:
            judged += f" WHERE {or_fail(f'NOT ({_BAD} OR {torn})', self._told(LACKS))}"
        following = f"lead(CASE WHEN NOT {_BAD} THEN 1 END) IGNORE NULLS OVER ({window})"
        open_ = self._any(lambda at: f"{_name('base', at)} IS NULL")
        role = (
            f"CASE WHEN {_IS_LOST} THEN '{LOST}' WHEN {_BAD} THEN '{BAD}' "
            f"WHEN {following} IS NULL THEN '{NEWEST}'"
        )
        role += f" WHEN {open_} THEN '{EARLIER}' END" if self.forgives else " END"
        chosen = (
            f"{_ROLE} IS NOT NULL AND ({_ROLE} <> '{NEWEST}' OR {after_clearing('r', records)})"
        )
        return (
            f"(SELECT {self._shown}, {self._held} AS {HELD} "
            f"FROM (SELECT *, {role} AS {_ROLE} FROM ({judged})) r WHERE {chosen})"
        )

    @property
    def _carried(self) -> list[tuple[int, str]]:
        """The columns that may have to be kept, with numbers that identify them."""
        return list(enumerate(self.carrying.depends))

    @property
    def _shown(self) -> str:
        names = [quote(column.name) for column in self.columns]
        return ", ".join([*names, SEQUENCE, DELETED, CLEARED])

    def _all(self, name: str) -> str:
        """Whether a record lacks all that a column is computed from."""
        return f"size(array_except({_array(self.carrying.depends[name])}, {LACKS}.names)) = 0"

    @property
    def _is_mixed(self) -> str:
        """Whether a record lacks some of what a column is computed from, and has the rest."""
        terms = [
            f"(NOT {GONE} AND {_lacks_some(of)} AND NOT {self._all(name)})"
            for name, of in self.carrying.depends.items()
            if len(of) > 1
        ]
        return f"coalesce({' OR '.join(terms)}, false)" if terms else "false"

    @property
    def _is_needed(self) -> str:
        """Whether a record lacks what determines its key, its place, or whether it deletes."""
        if not self.carrying.needed:
            return "false"
        return f"coalesce({_lacks_some(self.carrying.needed)}, false)"

    def _said(self, name: str) -> str:
        """What a record says about a column: its value, that earlier values no longer count, or
        nothing (NULL)."""
        kind = next(column.type for column in self.columns if column.name == name)
        value = f"CAST({quote(name)} AS {kind})"
        silent = f"({LACKS} IS NOT NULL AND {_lacks_some(self.carrying.depends[name])})"
        # Computed from values of which one is new and one is not known.
        torn = f"({silent} AND NOT {self._all(name)})"
        cut = f"{GONE} OR coalesce({torn}, false) OR {_IS_LOST} OR {self._is_needed}"
        return (
            f"CASE WHEN {cut} THEN named_struct("
            f"'value', CAST(NULL AS {kind}), 'since', {SEQUENCE}, 'cut', true) "
            f"WHEN coalesce({silent}, false) THEN NULL "
            f"ELSE named_struct('value', {value}, 'since', {SEQUENCE}, 'cut', false) END"
        )

    def _any(self, is_so: Callable[[int], str]) -> str:
        """Whether the condition holds for some column that a record carries."""
        terms = [f"({_name('carried', at)} AND {is_so(at)})" for at, _ in self._carried]
        return f"({' OR '.join(terms)})" if terms else "false"

    @property
    def _held(self) -> str:
        names = ", ".join(
            f"if({_name('carried', at)}, {literal(name)}, NULL)" for at, name in self._carried
        )
        columns = (
            f"filter(array({names}), x -> x IS NOT NULL)"
            if names
            else "CAST(array() AS ARRAY<STRING>)"
        )
        bases = "".join(
            f", '{_base(at)}', if({_name('carried', at)}, {_name('base', at)}, NULL)"
            for at, _ in self._carried
        )
        is_held = f"{_ROLE} <> '{NEWEST}' OR {self._any(lambda _: 'true')}"
        return (
            f"CASE WHEN {is_held} THEN named_struct("
            f"'role', {_ROLE}, 'lacks', {LACKS}, 'columns', {columns}{bases}) END"
        )

    def _told(self, lacks: str) -> str:
        return bad_record(f"{lacks}.at", f"{lacks}.problem", f"{lacks}.raw")

    # -- what is stored ----------------------------------------------------------------------

    def settled(
        self, local: Scratch, newest: str, clearing: str, stored: Stored | None
    ) -> Settled:
        """The records of `newest` with the values that they lack, from the barrier and from what
        is stored; only for records that lack some is anything looked up.

        `clearing`: a query of the sequence of the newest record that clears all keys ('': none).
        """
        first = local.collect(f"SELECT * FROM {newest}", small=self.few, mark=HELD)
        if not first.marked:
            return Settled(first, few=self.few)
        # Once they are counted, they may turn out to be few.
        few = self.few or first.count <= self.most
        plain = (
            f"SELECT {self._shown}, {HELD}, false AS {_UNKNOWN} FROM {first.name} "
            f"WHERE {HELD} IS NULL OR {HELD}.role <> '{NEWEST}'"
        )
        held, literals = self._filled(local, first, clearing, stored, few)
        found = local.collect(f"{plain} UNION ALL {held}", small=few, literals=literals)
        wins = f"NOT {_UNKNOWN} AND ({HELD} IS NULL OR {HELD}.role = '{NEWEST}')"
        kept = local.collect(f"SELECT {self._shown} FROM {found.name} WHERE {wins}", small=few)
        if not self.forgives:
            return Settled(kept, few=few)
        unknown = f"SELECT * FROM {found.name} WHERE {_UNKNOWN}"
        older = (
            f"{HELD}.role = '{EARLIER}' AND EXISTS "
            f"(SELECT 1 FROM ({unknown}) u WHERE {same(self.key, 'u', 'f')})"
        )
        aside = f"FROM {found.name} f WHERE {_UNKNOWN} OR {HELD}.role = '{BAD}' OR ({older})"
        told = ", ".join(f"{HELD}.lacks.{of} AS {name}" for of, name in _TOLD)
        refused = f"SELECT {told} {aside}"
        names = ", ".join(f"f.{quote(name)}" for name in (*self.key, SEQUENCE))
        placed = " AND ".join(f"f.{quote(name)} IS NOT NULL" for name in (*self.key, SEQUENCE))
        lost = (
            f"SELECT {names} FROM {found.name} f "
            f"WHERE ({_UNKNOWN} OR {HELD}.role IN ('{BAD}', '{LOST}')) AND {placed}"
        )
        return Settled(kept, refused, lost, few)

    def _filled(
        self, local: Scratch, first: TempRelation, clearing: str, stored: Stored | None, few: bool
    ) -> tuple[str, dict[str, object]]:
        """A query of the records that hold something, with their values, and its parameters."""
        held = self._those(local, first, few)
        literals: dict[str, object] = {}
        joins, marks = "", [f"({clearing})"] if clearing else []
        seen = "CAST(NULL AS BOOLEAN)"
        newer = "true"
        if stored is not None:
            condition, literals = match(held, self.key)
            names = ", ".join(quote(name) for name in self.key)
            shown = [name for _, name in self._carried if name in stored.columns]
            more = "".join(f", {quote(name)}" for name in shown)

            def of(rows: str, what: str, end: str = "") -> str:
                hint = broadcast("s", few)
                return (
                    f"(SELECT {hint} {names}, {what} FROM {rows} t "
                    f"LEFT SEMI JOIN {held.name} s ON {condition}{end})"
                )

            parts = [
                ("o", of(stored.rows, f"{SEQUENCE}{more}")),
                ("g", of(stored.graves, SEQUENCE)),
            ]
            if stored.lost:
                most = f"max({SEQUENCE}) AS {SEQUENCE}"
                parts.append(("w", of(stored.lost, most, f" GROUP BY {names}")))
            joins = "".join(
                f" LEFT JOIN {rows} {alias} ON {same(self.key, 'n', alias)}"
                for alias, rows in parts
            )
            marks += [f"{alias}.{SEQUENCE}" for alias, _ in parts[1:]]
            if clearing:
                none = f"{quote(self.key[0])} IS NULL"
                marks.append(f"(SELECT max({SEQUENCE}) FROM {stored.graves} WHERE {none})")
            seen = f"o.{SEQUENCE}"
            newer = " AND ".join(
                f"coalesce(n.{SEQUENCE} > {mark}, true)" for mark in (seen, f"g.{SEQUENCE}")
            )
        floor = f"greatest({', '.join(marks)})" if len(marks) > 1 else "".join(marks)
        values, unknown = {}, []
        for at, name in self._carried:
            base = f"n.{HELD}.{_base(at)}"
            is_there = stored is not None and name in stored.columns
            kind = next(column.type for column in self.columns if column.name == name)
            own = f"CAST(o.{quote(name)} AS {kind})" if is_there else f"CAST(NULL AS {kind})"
            chosen = f"CASE WHEN {_after(f'{base}.since', floor)} THEN {base}.value END"
            if stored is not None:
                by_row = f"{_after(seen, floor)} AND coalesce({seen} > {base}.since, true)"
                chosen = f"CASE WHEN {by_row} THEN {own} ELSE {chosen} END"
            lacks = f"array_contains(n.{HELD}.columns, {literal(name)})"
            values[name] = f"CASE WHEN {lacks} THEN {chosen} ELSE n.{quote(name)} END"
            unknown.append(f"({lacks} AND {chosen} IS NULL)")
        columns = ", ".join(
            f"{values.get(column.name, f'n.{quote(column.name)}')} AS {quote(column.name)}"
            for column in self.columns
        )
        rest = ", ".join(f"n.{name}" for name in (SEQUENCE, DELETED, CLEARED, HELD))
        is_unknown = (
            f"(n.{HELD}.role = '{NEWEST}' AND {newer} AND ({' OR '.join(unknown) or 'false'}))"
        )
        text = f"SELECT {columns}, {rest}, {is_unknown} AS {_UNKNOWN} FROM {held.name} n{joins}"
        if not self.forgives:
            text += f" WHERE {or_fail(f'NOT {is_unknown}', self._told(f'n.{HELD}.lacks'))}"
        return text, literals

    def _those(self, local: Scratch, first: TempRelation, few: bool) -> TempRelation:
        """The newest records that hold something."""
        if first.rows is not None:
            rows = first.rows
            role = pc.struct_field(rows.data.column(HELD), "role")
            return local.keep(DriverRows(rows.data.filter(pc.equal(role, NEWEST)), rows.schema))
        text = f"SELECT * FROM {first.name} WHERE {HELD}.role = '{NEWEST}'"
        if few:
            return local.collect(text, small=True)
        return local.named(local.view(local.spark.sql(text)), first.marked)


def _after(sequence: str, floor: str) -> str:
    """Whether there is a sequence, and it is greater than `floor` ('': than nothing)."""
    return (
        f"coalesce({sequence} > {floor}, {sequence} IS NOT NULL)"
        if floor
        else f"{sequence} IS NOT NULL"
    )


def _lacks_some(names: Sequence[str]) -> str:
    return f"arrays_overlap({_array(names)}, {LACKS}.names)"


def _array(names: Sequence[str]) -> str:
    return f"array({', '.join(literal(name) for name in names)})"


def _name(what: str, at: int) -> str:
    return f"{HIDDEN_PREFIX}{what}_{at}"


def _base(at: int) -> str:
    return f"base_{at}"
