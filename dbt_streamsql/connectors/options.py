"""A source's declaration, read key by key; mistakes are collected and reported together."""

from __future__ import annotations

import datetime as dt
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from dbt_streamsql.errors import Place, StreamSqlError

T = TypeVar("T")
_MISSING = object()
_WORDS = r"passw|pwd|secret|token|credential|private[-_.]?key|api[-_.]?key|jaas"
_SECRET = re.compile(_WORDS, re.IGNORECASE)
_IN_URL = re.compile(r"(://[^:/?#@\s]*:)(?!\d{1,5}[/?])[^\s]*(?=@)")
_PARAMETER = re.compile(rf"([?&;][\w.-]*(?:{_WORDS})[\w.-]*=)[^&;\s]+", re.IGNORECASE)
HIDDEN = "***"
EARLIEST, LATEST = "earliest", "latest"


class Options:
    """The declaration of one source: `connector`, `format`, `columns` and its options.

    A connector asks for each option that it knows and then calls `check`.
    """

    what, docs = "the source", "docs/sources.md"
    """What this declares, and where it is documented."""

    def __init__(self, spec: Mapping[str, Any], place: Place) -> None:
        self.place = place
        self.connector = str(spec.get("connector") or "")
        self.format = spec.get("format")
        self.reader = str(spec.get("reader") or "")
        """The table that reads the source; two readers of a source each keep their own place."""
        self.columns = tuple((str(name), str(kind)) for name, kind in spec.get("columns") or ())
        self.schema = str(spec.get("schema") or "")
        """The columns as text: `id BIGINT, name STRING`; '' when `columns` gives them."""
        given = spec.get("options") or {}
        self._given: dict[str, Any] = {str(key): value for key, value in given.items()}
        self._known: list[str] = []
        self._problems: list[str] = []

    def wrong(self, problem: str) -> None:
        """Record another mistake."""
        self._problems.append(problem)

    def get(
        self, key: str, read: Callable[[Any], T | None], allowed: str, default: Any = _MISSING
    ) -> T:
        """The value of one option, converted by `read`, which raises or returns None if wrong."""
        self._known.append(key)
        value = self._given.get(key)
        if value is None:
            if default is _MISSING:
                self.wrong(f"`{key}` is missing: {allowed}")
                return None  # type: ignore[return-value]  # `check` refuses before it is used
            return default  # type: ignore[no-any-return]
        try:
            found = read(value)
        except (TypeError, ValueError, OverflowError):
            found = None
        if found is None:
            told = HIDDEN if _SECRET.search(key) else repr(value)
            self.wrong(f"`{key}` is {told}: {allowed}")
        return found  # type: ignore[return-value]

    def text(self, key: str, default: Any = _MISSING, allowed: str = "a string") -> str:
        return self.get(key, text_of, allowed, default)

    def integer(self, key: str, default: Any = _MISSING, least: int = 1) -> int:
        return self.get(
            key, lambda v: whole_of(v, least), f"a whole number of at least {least}", default
        )

    def choice(self, key: str, choices: Sequence[str], default: Any = _MISSING) -> str:
        def read(value: Any) -> str | None:
            return value if value in choices else None

        return self.get(key, read, f"one of {', '.join(choices)}", default)

    def seconds(self, key: str, default: Any = _MISSING) -> float:
        allowed = "a number of seconds, or a string such as 30 seconds or 5 minutes"
        return self.get(key, seconds_of, allowed, default)

    def moment(self, key: str, default: Any = _MISSING) -> float:
        """A point in time, in seconds since 1970; text without a time zone is UTC."""
        return self.get(key, moment_of, "a time such as 2026-01-31T08:00:00Z", default)

    def start(self) -> Any:
        """The option `start`: earliest (the default), latest, or seconds since 1970."""
        allowed = f"{EARLIEST}, {LATEST}, or a time such as 2026-01-31T08:00:00Z"

        def read(value: Any) -> Any:
            return value if value in (EARLIEST, LATEST) else moment_of(value)

        return self.get("start", read, allowed, EARLIEST)

    def flag(self, key: str, default: bool) -> bool:
        def read(value: Any) -> bool | None:
            return {"true": True, "false": False}.get(str(value).lower())

        return self.get(key, read, "true or false", default)

    def mapping(self, key: str) -> dict[str, Any]:
        def read(value: Any) -> dict[str, Any] | None:
            return {str(k): v for k, v in value.items()} if isinstance(value, Mapping) else None

        return self.get(key, read, "keys and values", {})

    def prefixed(self, prefix: str) -> dict[str, str]:
        """The options whose keys start with `prefix`, as strings; all such keys are accepted."""
        found = {key: self._given[key] for key in self._given if key.startswith(prefix)}
        self._known += [f"{prefix}…", *found]
        for key, value in found.items():
            if not isinstance(value, (str, int, float)):
                self.wrong(f"`{key}` is not a string, a number or true/false")
        return {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in found.items()
        }

    def names(self, key: str, default: Any = _MISSING) -> tuple[str, ...]:
        def read(value: Any) -> tuple[str, ...] | None:
            found = [value] if isinstance(value, str) else value
            plain = isinstance(found, Sequence) and all(isinstance(v, str) and v for v in found)
            return tuple(found) if plain and found else None

        return self.get(key, read, "a name or a list of names", default)

    def hide(self, text: str) -> str:
        """The text with the options' secrets masked."""
        for key, value in self._given.items():
            if _SECRET.search(key) and len(str(value)) > 2:
                text = text.replace(str(value), HIDDEN)
        return _PARAMETER.sub(rf"\1{HIDDEN}", _IN_URL.sub(rf"\1{HIDDEN}", text))

    def check(self) -> None:
        """Error: CONFIG_INVALID, with every mistake and every unknown key."""
        for key in self._given:
            if key not in self._known:
                near = difflib.get_close_matches(key, self._known, 1)
                self.wrong(
                    f"`{key}` is not known" + "".join(f": do you mean `{n}`?" for n in near)
                )
        if self._problems:
            raise StreamSqlError(
                "CONFIG_INVALID",
                f"{self.what} of the connector {self.connector} is not declared correctly",
                given=self.hide("; ".join(self._problems)),
                allowed=f"the options {', '.join(sorted(self._known))}",
                hint=f"{self.docs} has an example of each connector",
                place=self.place,
            )


def text_of(value: Any) -> str | None:
    """A non-empty string; numbers count too, because YAML reads `password: 1234` as one."""
    plain = isinstance(value, (str, int, float)) and not isinstance(value, bool)
    return str(value) if plain and str(value) else None


def whole_of(value: Any, least: int) -> int | None:
    """A whole number, possibly quoted."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    found = int(value)
    return found if found >= least else None


def seconds_of(value: Any) -> float | None:
    """A number is in seconds; a string may have units."""
    import pandas as pd

    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    plain = not isinstance(value, str) or value.strip().replace(".", "", 1).isdigit()
    found = float(value) if plain else pd.Timedelta(value).total_seconds()
    return found if 0 <= found < float("inf") else None


def moment_of(value: Any) -> float | None:
    """YAML itself parses some strings as dates and times."""
    if isinstance(value, str):
        value = dt.datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day, tzinfo=dt.timezone.utc)
    if not isinstance(value, dt.datetime):
        return None
    return (value if value.tzinfo else value.replace(tzinfo=dt.timezone.utc)).timestamp()
