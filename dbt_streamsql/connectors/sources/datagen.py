"""Generated records: record n is a function of only the seed and n, and arrives on schedule.

A position has `n` (the number of records), `at` (when record 0 was due, seconds since 1970) and
`per_second` (the rate that `at` belongs to).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dbt_streamsql.connectors.options import Options, moment_of, seconds_of
from dbt_streamsql.connectors.sources.source import (
    AT,
    PROBLEM,
    RAW,
    End,
    Position,
)
from dbt_streamsql.quoting import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RANGES = {
    "tinyint": (-(1 << 7), (1 << 7) - 1),
    "smallint": (-(1 << 15), (1 << 15) - 1),
    "int": (-(1 << 31), (1 << 31) - 1),
    "bigint": (-(1 << 63), (1 << 63) - 1),
}
_ALIASES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}
_TYPES = re.compile(
    r"tinyint|smallint|int|bigint|float|double|decimal\(\d{1,2},\d{1,2}\)|string|boolean|date"
    r"|timestamp|timestamp_ntz"
)
_TIMES = ("timestamp", "timestamp_ntz", "date")
_KINDS = {
    "sequence": "{sequence: {start: 1, step: 1}}",
    "uniform": "{uniform: {min: 1, max: 6}}",
    "choice": "{choice: [red, green, blue]}",
    "timestamp": "{timestamp: {start: 2026-01-01T00:00:00Z, step: 1 second}}",
    "text": "{text: {length: 12}}",
}
"""The generators, each with an example."""
_MOST_TEXT = 1024
_EPOCH = 1767225600.0
"""2026-01-01T00:00:00Z: when record 0 is due if records come by barrier, not by time."""


class Wrong(Exception):
    """What is wrong with the generator of one column."""


@dataclass(frozen=True)
class Generator:
    """A column: SQL over `n` with parameter markers for its values, and the values."""

    name: str
    type: str
    sql: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Pace:
    """How records arrive: by time or by barrier; `since` None: from the first barrier on."""

    per_second: float | None
    per_barrier: int | None
    since: float | None
    limit: int | None
    most: int | None


@dataclass(frozen=True)
class Datagen:
    """The connectors `datagen` and `rate`."""

    name: str
    generators: tuple[Generator, ...]
    pace: Pace
    numbered: bool

    def columns(self, spark: SparkSession) -> tuple[tuple[str, str], ...]:
        del spark
        found = tuple((each.name, each.type) for each in self.generators)
        return (*found, ("_n", "bigint")) if self.numbered else found

    def end(self, spark: SparkSession, after: Position | None) -> End | None:
        """The records due by now; at the first barrier, one second's worth."""
        del spark
        return self.due(after, time.time())

    def due(self, after: Position | None, now: float) -> End | None:
        """The same at any time."""
        pace, before = self.pace, int(after["n"]) if after else 0
        rate = pace.per_second or 1.0
        if pace.per_barrier:
            at = float(after["at"]) if after else _EPOCH if pace.since is None else pace.since
            n = before + pace.per_barrier
        else:
            at = float(after["at"]) if after else now - 1 if pace.since is None else pace.since
            if after and float(after["per_second"]) != rate:
                # The rate changed: what was read stays as it was.
                at += before / float(after["per_second"]) - before / rate
            n = int((now - at) * rate + 1e-6)
        bounds = [pace.limit, None if pace.most is None else before + pace.most]
        n = min([n, *(bound for bound in bounds if bound is not None)])
        if n <= before:
            return None
        oldest = at + before / rate if pace.per_second else None
        return End({"n": n, "at": at, "per_second": rate}, n - before, oldest)

    def read(self, spark: SparkSession, after: Position | None, upto: Position) -> DataFrame:
        values: dict[str, Any] = {
            "streamsql_from": int(after["n"]) if after else 0,
            "streamsql_upto": int(upto["n"]),
            "streamsql_at": float(upto["at"]),
            "streamsql_rate": float(upto["per_second"]),
        }
        parts = []
        for each in self.generators:
            values |= each.values
            parts.append(f"{each.sql} AS {quote(each.name)}")
        if self.numbered:
            parts.append("n AS `_n`")
        names = ", ".join(quote(name) for name, _ in self.columns(spark))
        return spark.sql(
            f"SELECT {names}, to_json(struct({names}), map('ignoreNullFields', 'false')) "
            f"AS {quote(RAW)}, CAST({quote(AT)} AS STRING) AS {quote(AT)}, "
            f"CAST(NULL AS STRING) AS {quote(PROBLEM)} FROM ("
            f"SELECT {', '.join(parts)}, n AS {quote(AT)} FROM "
            "(SELECT id AS n FROM range(:streamsql_from, :streamsql_upto)))",
            args=values,
        )

    def release(self, spark: SparkSession, upto: Position) -> None:
        """Nothing to release."""


def source(options: Options) -> Datagen:
    """Error: CONFIG_INVALID."""
    per_second = options.get("rows_per_second", _positive, "a number above 0", None)
    per_barrier = options.integer("rows_per_barrier", None)
    if (per_second is None) == (per_barrier is None):
        options.wrong("exactly one of `rows_per_second` and `rows_per_barrier` must be set")
    since = options.moment("since", None)
    pace = Pace(
        per_second,
        per_barrier,
        since,
        options.integer("limit", None, least=0),
        options.integer("max_records_per_barrier", None),
    )
    seed = options.get("seed", lambda v: v if type(v) is int else None, "a whole number", 0)
    if options.connector == "rate":
        if options.columns:
            options.wrong("the columns of `rate` are timestamp and value: declare no others")
        options.check()
        due = "timestamp_micros(CAST((:streamsql_at + n / :streamsql_rate) * 1000000 AS BIGINT))"
        two = (Generator("timestamp", "timestamp", due, {}), Generator("value", "bigint", "n", {}))
        return Datagen("rate", two, pace, numbered=False)
    given = options.mapping("generate")
    if not options.columns:
        options.wrong("no columns: declare them with a `data_type` each")
    made = tuple(
        found
        for place, (name, kind) in enumerate(options.columns)
        if (found := _generator(options, place, name, kind, given.pop(name, None), seed))
    )
    for name in given:
        options.wrong(f"`generate: {name}` is not a declared column")
    options.check()
    return Datagen("datagen", made, pace, numbered=True)


def _positive(value: Any) -> float | None:
    found = float(value)
    return found if 0 < found <= 1e9 and not isinstance(value, bool) else None


def _generator(
    options: Options, place: int, name: str, kind: str, given: Any, seed: int
) -> Generator | None:
    """The generator of a column, or None after recording what is wrong."""
    kind = re.sub(r"\s", "", kind.lower())
    kind = "decimal(10,0)" if kind == "decimal" else _ALIASES.get(kind, kind)
    try:
        if not _TYPES.fullmatch(kind):
            raise Wrong(f"type {kind}: plain types only")
        if given is not None and not isinstance(given, (Mapping, str)):
            raise Wrong(f"{given!r}: a generator")
        wanted = {given: {}} if isinstance(given, str) else dict(given or {})
        share = float(wanted.pop("null_share", 0))
        if not 0 <= share <= 1:
            raise Wrong(f"null_share {share}: from 0 to 1")
        if not wanted:
            wanted = {_usual(kind, place): {}}
        if len(wanted) != 1 or next(iter(wanted)) not in _KINDS:
            raise Wrong(f"{', '.join(map(str, wanted))}: one of {', '.join(_KINDS)}")
        ((chosen, more),) = wanted.items()
        maker = _Maker(name, kind, f"c{place}", seed)
        sql = getattr(maker, chosen)({} if more is None else more)
    except Wrong as wrong:
        example = _KINDS[_meant(given) or _usual(kind, place)]
        options.wrong(f"`{name}`: {wrong}; for example `{name}: {example}`")
        return None
    except (TypeError, ValueError, AttributeError) as error:
        options.wrong(f"`{name}`: {error}")
        return None
    if share:
        sql = f"IF({maker.random('null')} < {maker.value(share)}, NULL, {sql})"
    return Generator(name, kind, f"CAST({sql} AS {kind})", maker.values)


def _meant(given: Any) -> str | None:
    """The generator whose name stands anywhere in what was given."""
    words = set(re.findall(r"[a-z]+", str(given)))
    return next((kind for kind in _KINDS if kind in words), None)


def _usual(kind: str, place: int) -> str:
    if kind in _RANGES:
        return "uniform" if place else "sequence"
    if kind in _TIMES:
        return "timestamp"
    return {"string": "text", "boolean": "choice"}.get(kind, "uniform")


class _Maker:
    """The SQL of one column; its values become parameters prefixed with the column's place."""

    def __init__(self, name: str, kind: str, prefix: str, seed: int) -> None:
        self.kind, self.prefix = kind, prefix
        self.values: dict[str, Any] = {}
        self.seed = self.value(f"{seed}:{name}")

    def value(self, value: Any) -> str:
        name = f"{self.prefix}_{len(self.values)}"
        self.values[name] = value
        return f":{name}"

    def hash(self, what: str = "") -> str:
        return f"xxhash64({self.seed}, '{what}', n)"

    def random(self, what: str = "") -> str:
        """In [0, 1)."""
        return f"(shiftrightunsigned({self.hash(what)}, 11) / 9007199254740992D)"

    def sequence(self, given: Any) -> str:
        start, step = _only(given, {"start": (0, _integer), "step": (1, _integer)})
        if self.kind not in (*_RANGES, "string") and not self.kind.startswith("decimal"):
            raise Wrong(f"sequence of type {self.kind}: whole numbers, decimals or strings")
        self.fits(start)
        return f"({self.value(start)} + n * {self.value(step)})"

    def uniform(self, given: Any) -> str:
        number: Callable[[Any], Any] = _integer if self.kind in _RANGES else _number
        most = min(1000, _RANGES.get(self.kind, (0, 1000))[1])
        if self.kind.startswith("decimal"):
            precision, scale = map(int, re.findall(r"\d+", self.kind))
            most = min(most, 10 ** (precision - scale) - 1)
        low, high = _only(given, {"min": (0, number), "max": (most, number)})
        if low > high or high - low >= 1 << 62:
            raise Wrong(f"uniform from {low} to {high}: `min` is to be the smaller one")
        if self.kind in _RANGES:
            self.fits(low)
            self.fits(high)
            span = self.value(high - low + 1)
            return f"({self.value(low)} + pmod({self.hash()}, CAST({span} AS BIGINT)))"
        if not self.kind.startswith("decimal") and self.kind not in ("double", "float"):
            raise Wrong(f"uniform of type {self.kind}: numbers only")
        self.fits(low)
        self.fits(high)
        low, high = float(low), float(high)
        return f"({self.value(low)} + {self.random()} * {self.value(high - low)})"

    def choice(self, given: Any) -> str:
        if given == {} and self.kind == "boolean":
            given = [True, False]
        if not isinstance(given, list) or not given:
            raise Wrong(f"choice {given!r}: a list of values")
        plain = (str, int, float, bool)
        if not all(value is None or isinstance(value, plain) for value in given):
            given = [value if value is None else str(value) for value in given]
        values = ", ".join(f"CAST({self.value(value)} AS {self.kind})" for value in given)
        index = f"CAST(pmod({self.hash()}, {len(given)}L) AS INT)"
        return f"element_at(array({values}), {index} + 1)"

    def timestamp(self, given: Any) -> str:
        times = {"start": (None, moment_of), "step": (None, seconds_of)}
        start, step, jitter = _only(given, {**times, "jitter": (0.0, seconds_of)})
        if self.kind not in (*_TIMES, "string"):
            raise Wrong(f"timestamp of type {self.kind}: {', '.join(_TIMES)} or string")
        first = ":streamsql_at" if start is None else self.value(float(start))
        pace = "n / :streamsql_rate" if step is None else f"n * {self.value(float(step))}"
        late = f" - {self.random('late')} * {self.value(float(jitter))}" if jitter else ""
        return f"timestamp_micros(CAST(({first} + {pace}{late}) * 1000000 AS BIGINT))"

    def text(self, given: Any) -> str:
        (length,) = _only(given, {"length": (12, _integer)})
        if self.kind != "string":
            raise Wrong(f"text of type {self.kind}: strings only")
        if not 0 <= length <= _MOST_TEXT:
            raise Wrong(f"text of length {length}: from 0 to {_MOST_TEXT}")
        pieces = [f"md5(concat_ws(':', {self.seed}, n, '{at}'))" for at in range(-(-length // 32))]
        return f"left(concat({', '.join(pieces) or repr('')}), {int(length)})"

    def fits(self, value: Any) -> None:
        if self.kind in _RANGES:
            low, high = _RANGES[self.kind]
        elif self.kind.startswith("decimal"):
            precision, scale = map(int, re.findall(r"\d+", self.kind))
            high = 10 ** (precision - scale) - 1
            low = -high
        else:
            return
        if not low <= value <= high:
            raise Wrong(f"{value} is not of type {self.kind}")


def _only(given: Any, known: Mapping[str, tuple[Any, Callable[[Any], Any]]]) -> list[Any]:
    """The values of the known keys, or their defaults. Error: Wrong."""
    if not isinstance(given, Mapping):
        raise Wrong(f"{given!r}: keys and values ({', '.join(known)})")
    unknown = [str(key) for key in given if key not in known]
    if unknown:
        raise Wrong(f"{', '.join(unknown)}: known are {', '.join(known)}")
    found = []
    for key, (default, read) in known.items():
        value = default if given.get(key) is None else read(given[key])
        if value is None and given.get(key) is not None:
            raise Wrong(f"{key} {given[key]!r} cannot be read")
        found.append(value)
    return found


def _integer(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else None


def _number(value: Any) -> int | float | None:
    if isinstance(value, str):
        value = float(value)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
