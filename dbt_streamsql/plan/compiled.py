"""A compiled view: what `explain` prints, what the plan JSON contains, and what an epoch runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.plan.algebra.expression import fill
from dbt_streamsql.plan.algebra.relational import CLOCK
from dbt_streamsql.plan.algebra.schema import Column
from dbt_streamsql.plan.definition.stored_part import StoredPart
from dbt_streamsql.plan.document import PlanDocument
from dbt_streamsql.plan.explained import nodes_of, unbounded
from dbt_streamsql.plan.operators import Operator, print_operators
from dbt_streamsql.plan.program import steps as step_types
from dbt_streamsql.plan.program.printer import print_program
from dbt_streamsql.plan.program.steps import Component, Derived, Step
from dbt_streamsql.plan.program.tags import STEP_KINDS, tag_of
from dbt_streamsql.plan.sink_reuse import print_sinks, sinks
from dbt_streamsql.plan.state import State

REFRESH_MODES = ("auto", "incremental", "incremental_strict", "full")
"""auto: incremental where possible. incremental: the same, but a full refresh is logged as a
warning. incremental_strict: a query that cannot be incremental is refused. full: always full."""

OwnKey = tuple[str, str]
"""A maintained table, and a column that is unique in it by the way its rows are kept."""

PlanMode = Literal["incremental", "full", "streaming", "beside"]
Strategy = Literal["", "rows", "fold", "replace", "append", "upsert"]
"""How a plan's rows are kept: see `CompiledPlan.headline`. ``: in full, or by another table."""

PLAN_VERSION = 7
"""Incremented when the meaning of a plan's JSON changes; an older plan is compiled again."""


@dataclass(frozen=True)
class CompiledPlan:
    """How one view is kept up to date.

    `mode` is `incremental` or `full`; `reasons` say why it is full. `columns` are the visible
    columns, `hidden` the engine's additional ones, `key` the columns that identify a stored group.
    `full_sql` fills a view where the user's SQL does not ('' = it does): it has hidden columns, or
    is `canonical`, which returns the one of several correct results that is maintained, at the
    barrier's time. Its holes `{t0}`, `{t1}` … are `tables`, the inputs. `volatile`: the result may
    change although no input did. `unversioned` are inputs in addition to `tables` of which only
    the current version can be read. `operators` describe each operator. `fingerprint` changes with
    the meaning. `parts` are those of its query that are stored apart; `tree` is the whole query,
    and `whole_sql` its text where there are such parts: its holes are the names of tables.
    `document` is its plan file, where one was requested.
    """

    sql: str
    mode: PlanMode
    strategy: Strategy
    reasons: tuple[str, ...]
    tables: tuple[str, ...]
    columns: tuple[Column, ...]
    hidden: tuple[Column, ...]
    key: tuple[str, ...]
    full_sql: str
    steps: tuple[Step, ...]
    tree: dict[str, Any]
    fingerprint: str
    volatile: bool = False
    canonical: bool = False
    operators: tuple[Operator, ...] = ()
    table: str = ""
    unversioned: tuple[str, ...] = ()
    parts: tuple[StoredPart, ...] = ()
    whole_sql: str = ""
    document: PlanDocument | None = field(default=None, compare=False, repr=False)

    @property
    def sources(self) -> tuple[str, ...]:
        """The inputs that are tables: all except the barrier's time."""
        return tuple(table for table in self.tables if table != CLOCK)

    @property
    def ttls(self) -> tuple[tuple[str, int], ...]:
        """The tables whose rows expire, each with how long they are kept, in ms."""
        found = (s for s in self.steps if isinstance(s, step_types.Changes | step_types.State))
        return tuple(dict.fromkeys((step.table, step.ttl) for step in found if step.ttl))

    @property
    def reads(self) -> tuple[tuple[str, int], ...]:
        """Each position of the query that reads a table, with the TTL of its rows there, in ms."""
        found = (node for node in nodes_of(self.tree) if node.get("node") == "Scan")
        return tuple((node["table"], node["ttl"]) for node in found if node["table"] != CLOCK)

    @property
    def is_wide(self) -> bool:
        """Whether several branches write the table, each its own columns."""
        return bool(self.tree.get("node") == "Branches")

    def filled(self, read: Callable[[str], str]) -> str:
        """`full_sql` over versions of the inputs: table name -> SQL that may follow FROM."""
        known = tuple(dict.fromkeys((*self.tables, CLOCK)))
        return fill(self.full_sql, lambda hole: read(known[int(hole.removeprefix("t"))]))

    @property
    def program(self) -> str:
        """The PySpark program, as text to read, run and debug."""
        return print_program(self.table or "view", self.headline, self.steps)

    @property
    def headline(self) -> str:
        """One line: mode, strategy and what is read."""
        if self.mode == "streaming":
            how = f", upsert by ({', '.join(self.key)})" if self.key else ""
            return f"streaming table{how}; reads each record of its stream once"
        if self.mode == "beside":
            return "written alongside a streaming table"
        if self.mode == "full":
            return f"full refresh; reads {', '.join(self.tables)}"
        if self.is_wide:
            how = (
                f"partial updates of {len(self.tree['inputs'])} branches by {', '.join(self.key)}"
            )
            return f"incremental, {how}; reads changes of {', '.join(self.tables)}"
        how = {
            "fold": f"upsert by ({', '.join(self.key)})" if self.key else "one row, updated",
            "replace": f"touched keys recomputed, by ({', '.join(self.key)})"
            if self.key
            else "recomputed, the difference is written",
            "rows": "signed rows",
        }[self.strategy]
        return f"incremental, {how}; reads changes of {', '.join(self.tables)}"

    @property
    def summary(self) -> str:
        """The headline, with the reasons where there are any."""
        return "; ".join((self.headline, *self.reasons))

    def explain(self) -> str:
        """The headline, the reasons, the operators, and the program."""
        lines = [f"{self.table or 'view'}: {self.headline}"]
        lines += [f"  full because {reason}" for reason in self.reasons]
        if self.hidden:
            lines.append(f"  hidden columns: {', '.join(c.name for c in self.hidden)}")
        if self.canonical:
            lines.append("  where the query leaves a choice, one answer is chosen and kept")
        if self.mode == "incremental":
            lines += ["", *self._sinks(), print_operators(self.operators)]
            lines += [*self._unbounded(), "", self.program]
        return "\n".join(lines)

    @property
    def remembers(self) -> str:
        """Which state of a view expires, and when; '' when none does."""
        states = [state for each in self.operators for state in each.states]
        if not any(state.ttl for state in states):
            return ""
        return ", ".join(f"{state.name} {state.lasts}" for state in states)

    def _unbounded(self) -> list[str]:
        """For a view with expiring state, the state that it still keeps forever."""
        if not self.remembers:
            return []
        nodes = dict(enumerate(nodes_of(self.tree), 1))
        return [
            unbounded(each.id, f"{each.name} {each.detail}".rstrip(), nodes[each.id], state)
            for each in self.operators
            for state in each.states
            if not state.ttl
        ]

    def _sinks(self) -> list[str]:
        """For a wide table, the sinks of its branches before and after reuse."""
        if not self.is_wide:
            return []
        names = [child["alias"] for child in self.tree["inputs"]]
        before, after = sinks(
            self.table,
            [(column.name, column.type) for column in self.columns],
            self.tree["keys"],
            list(zip(names, self.tree["targets"], strict=True)),
            reuse=self.tree["reuse"],
        )
        table = self.table or "view"
        lines = print_sinks("before reuse", table, before)
        return [*lines, *print_sinks("after reuse", table, after), ""]

    def to_json(self) -> str:
        """The plan file (FLIP-292): its operators, each with its state and how long it is kept.

        `Engine.execute` runs it, also with other TTLs. Only for a plan from `Engine.compile`.
        """
        if self.document is None:
            raise StreamSqlError("INTERNAL", "no plan file was made of this plan")
        return self.document.to_json()

    @property
    def own_keys(self) -> tuple[OwnKey, ...]:
        """The keys of maintained tables that the program may rely on."""
        found = (step for step in self.steps if isinstance(step, step_types.Lookup))
        return tuple(dict.fromkeys((at.table, at.column) for at in found if at.by == "key"))

    def relying(self, own: Collection[OwnKey], *, declared: bool) -> CompiledPlan:
        """The plan of an epoch that concludes something from these own keys only, and from
        declared keys or not."""

        def kept(step: Step) -> Step:
            if not isinstance(step, step_types.Lookup):
                return step
            holds = (step.table, step.column) in own if step.by == "key" else declared
            return step if holds else replace(step, by="")

        return replace(self, steps=tuple(map(kept, self.steps)))

    def to_stored(self) -> str:
        """The plan as stored in a definition; `from_stored` returns an equal plan."""
        body = asdict(replace(self, document=None))
        del body["document"]
        body["steps"] = [{"step": tag_of(step), **asdict(step)} for step in self.steps]
        return json.dumps({"version": PLAN_VERSION, **body}, sort_keys=True, indent=1)

    @classmethod
    def from_stored(cls, text: str) -> CompiledPlan:
        """Read a plan from a definition; PLAN_MISMATCH when it is not of this version."""
        try:
            body = json.loads(text)
            version = body.pop("version")
            if version != PLAN_VERSION:
                raise StreamSqlError(
                    "PLAN_MISMATCH",
                    "the plan was written by a different version",
                    given=str(version),
                    allowed=str(PLAN_VERSION),
                    hint="compile the view again",
                )
            for name in ("columns", "hidden"):
                body[name] = tuple(Column(**column) for column in body[name])
            body["operators"] = tuple(
                Operator(
                    **{
                        **item,
                        "keys": tuple(item["keys"]),
                        "states": tuple(State(**state) for state in item["states"]),
                    }
                )
                for item in body["operators"]
            )
            body["steps"] = tuple(_step(step) for step in body["steps"])
            body["parts"] = tuple(
                StoredPart(
                    **{
                        **part,
                        "operators": tuple(part["operators"]),
                        "tables": tuple(part["tables"]),
                        "around": tuple(tuple(joins) for joins in part.get("around", ((),))),
                    }
                )
                for part in body.get("parts", ())
            )
            for name in ("reasons", "tables", "key"):
                body[name] = tuple(body[name])
            body["unversioned"] = tuple(body.get("unversioned", ()))
            return cls(**body)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StreamSqlError("PLAN_MISMATCH", "not a plan", given=str(error)) from error


def _step(body: dict[str, Any]) -> Step:
    kind = STEP_KINDS[body.pop("step")]
    if kind is step_types.Fold:
        body["components"] = tuple(Component(**item) for item in body["components"])
        body["derived"] = tuple(Derived(**item) for item in body["derived"])
    if kind is step_types.Together:
        parts = ({**item, "columns": tuple(item["columns"])} for item in body["parts"])
        body["parts"] = tuple(step_types.Part(**item) for item in parts)
    if kind is step_types.Changes:
        body["meets"] = tuple(step_types.Meeting(**item) for item in body["meets"])
    fields = {
        name: tuple(value) if isinstance(value, list) else value for name, value in body.items()
    }
    step: Step = kind(**fields)
    return step
