"""The options of an engine and its tables, as small frozen values; every field is also a keyword
of `Engine`'s methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from dbt_streamsql.byte_sizes import bytes_of
from dbt_streamsql.durations import retention_of
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Retention, check_level
from dbt_streamsql.plan.definition.stored_part import State
from dbt_streamsql.plan.definition.table_key import TableKey
from dbt_streamsql.plan.document import PlanDocument
from dbt_streamsql.runtime.core.clock import Clock
from dbt_streamsql.tuning import Tuning


@dataclass(frozen=True)
class EngineOptions:
    """The defaults of an engine.

    `meta_token`: the token for a MetaService ('': the token file of a service on this host).
    `boundary`: the part of the topology that this engine runs, with its own barriers.
    `query_timeout`: seconds that the refresh of one view may take (None: no limit).
    `consistency`: the default level of queries.
    `retain`: how long a barrier stays readable after it ended (a number is seconds), and
    `retain_barriers`: how many of the newest barriers, at most; see docs/retention.md.
    `state_budget`: the bytes of all state tables above which `state: auto` stores no more (a text
    has units); see docs/state.md.
    `connections`: options of streams and sinks, by the name in their `connection`.
    `tuning`: the limits by which an epoch chooses its strategy; they change no rows.
    `clock`: the source of time (None: the system's).
    """

    meta_token: str = ""
    boundary: str = ""
    query_timeout: float | None = None
    consistency: str = "read_committed"
    retain: float | str = "7 days"
    retain_barriers: int = 300
    state_budget: int | str = "20 GB"
    connections: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    tuning: Tuning = field(default_factory=Tuning)
    clock: Clock | None = None

    def __post_init__(self) -> None:
        """Raises errors here, before Spark starts. Error: CONFIG_INVALID."""
        check_level(self.consistency)
        _ = self.retention, self.most_state

    @property
    def retention(self) -> Retention:
        """How long barriers stay readable."""
        return retention_of(self.retain, self.retain_barriers)

    @property
    def most_state(self) -> int:
        """`state_budget` in bytes."""
        return bytes_of(self.state_budget, "state_budget")


@dataclass(frozen=True)
class TableOptions:
    """Options of every maintained table.

    `unique_id`: the dbt id of its model. `full_refresh` recomputes it in full this time, whatever
    changed; a streaming table rereads its stream from the beginning. `properties`: its own table
    properties, in addition to those that the engine needs.
    """

    unique_id: str = ""
    full_refresh: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ViewOptions:
    """How a view is maintained.

    `refresh_mode`: auto, incremental, incremental_strict or full (docs/materialized_view.md).
    `changelog`: keep its changes in `<name>__changelog`. `state`: which parts of its query are
    stored in tables of their own: auto, none, all, or the numbers of their operators
    (docs/state.md). `keys`: declared keys of its inputs, which an epoch relies on to read less
    (docs/keys.md). `state_ttl`: how long its operators keep state, as docs/state_ttl.md describes
    (FLIP-292); a `plan` file sets it for each operator instead.
    """

    refresh_mode: str = "auto"
    changelog: bool = False
    state: State | Sequence[int] = "auto"
    keys: Sequence[TableKey | Mapping[str, str]] = ()
    state_ttl: object = None
    plan: PlanDocument | None = None


@dataclass(frozen=True)
class WideOptions:
    """How the branches of a wide table are merged (FLIP-506).

    A column that several branches write needs a `merge` function (last_value,
    last_non_null_value, sum, min, max, count, collect, bool_or, listagg), a column of
    `sequence_by` that orders them, or the `precedence` of the branches. `row_lifetime`: a row
    exists while `any` branch has its key, or `anchor:<branch>`. `reuse_sink`: all branches are
    written in one commit, otherwise each in its own.
    """

    merge: Mapping[str, str] | None = None
    sequence_by: str | Mapping[str, Sequence[str]] | None = None
    precedence: Sequence[str] = ()
    row_lifetime: str = "any"
    reuse_sink: bool = True


@dataclass(frozen=True)
class StreamSource:
    """Where a streaming table gets its records.

    `stream`: the name by which its query reads the stream. `source`: how the stream is declared
    (`connector`, `format`, `columns`, `options`; see docs/sources.md). `connection`: the name of
    options that the engine was opened with. `on_error`: fail, or quarantine, which stores records
    that cannot be read in `<name>__quarantine`. `on_schema_change`: what happens when the query
    returns other columns, in dbt's terms.
    """

    stream: str
    source: Mapping[str, Any]
    connection: str = ""
    on_error: str = "fail"
    on_schema_change: str = "fail"


@dataclass(frozen=True)
class Upsert:
    """How records become rows of a table by `key` (no key: each record is a row).

    The record of a key with the greatest `sequence_by` gives its row; where `delete_when` is true
    there is none. A record without a key where `truncate_when` is true deletes the rows of all
    keys. The three are expressions over the query's columns; those in `leave_out` are not stored.
    """

    key: Sequence[str] = ()
    sequence_by: str = ""
    delete_when: str = ""
    truncate_when: str = ""
    leave_out: Sequence[str] = ()


@dataclass(frozen=True)
class EventTime:
    """Barriers in event time, for a table with a `lateness`.

    A barrier contains the records whose `event_time`, an expression, is at most the greatest one
    that was read minus the lateness. `late_data`: include_next or quarantine, for records that
    arrive even later. A stream without records for `idle_after` does not hold back barriers
    (`never`: it always does). Both durations are seconds or text.
    """

    event_time: str = ""
    lateness: float | str | None = None
    late_data: str = "include_next"
    idle_after: float | str | None = None


def values_of(config: Mapping[str, Any], *kinds: type[Any]) -> tuple[Any, ...]:
    """A value of each kind, of the keywords that are its fields.

    Error: CONFIG_INVALID, with all keywords that no kind has.
    """
    names = {kind: [each.name for each in fields(kind)] for kind in kinds}
    known = [name for every in names.values() for name in every]
    if unknown := sorted(config.keys() - set(known)):
        raise StreamSqlError(
            "CONFIG_INVALID",
            "unknown config keys",
            given=", ".join(unknown),
            allowed=", ".join(known),
        )
    return tuple(
        kind(**{name: config[name] for name in every if name in config})
        for kind, every in names.items()
    )
