"""The one root error: a stable code, what was given, what is allowed, what to do, where.

Every refusal that a user can meet is a `StreamSqlError`; its `code` never changes its meaning,
so that scripts and docs can rely on it. The list of codes is `CODES`.
"""

from __future__ import annotations

from dataclasses import dataclass

CODES: dict[str, str] = {
    "ATOMIC_UNSUPPORTED": "The target cannot publish this table in one step.",
    "BAD_RECORD": "A record of a stream cannot be read as its source is declared.",
    "CHANGELOG_MODE": "The changes of the view cannot be given in this mode.",
    "CHANGELOG_UNAVAILABLE": "The changes between two barriers are not known, or no longer kept.",
    "CONFIG_INVALID": "A profile or a model config has unknown keys or wrong values.",
    "CONNECTION": "Spark, Java or a required jar could not be reached.",
    "CONSISTENCY_UNAVAILABLE": "No barrier has the tables of a query consistent, or fresh enough.",
    "CONSTRAINT_VIOLATED": "Rows of a new table break a constraint of its contract.",
    "CYCLE": "A view would read itself, directly or through other views.",
    "DEFINITION_MISSING": "The name is not a view of this warehouse.",
    "DUPLICATE_WRITER": "Two models write to the same table.",
    "EXPRESSION_INVALID": "A config value must be one SQL expression, and is not.",
    "FILE_UNREADABLE": "A file that a command or a config names cannot be read or written.",
    "FORMAT_VERSION": "The catalog does not make tables of the format version that views need.",
    "FUNCTION_INVALID": "A SQL function is not one expression, or a call does not match it.",
    "GRANTS_UNSUPPORTED": "The config has grants, and the catalog does not support them.",
    "HOOK_FAILED": "The run was published, but a hook that runs after publishing failed.",
    "IDENTIFIER_INVALID": "A name has a character or a length that the catalog cannot store.",
    "INCREMENTAL_IMPOSSIBLE": "The query does not allow the configured incremental mode.",
    "INTERNAL": "A rule of this program was broken; please report it.",
    "JAR_CHECKSUM": "A downloaded jar is not the one that was pinned.",
    "JAR_UNAVAILABLE": "A jar is not in the cache and cannot be downloaded.",
    "JAVA_MISSING": "No Java 17 or 21 was found.",
    "KEY_UNTRUE": "A key that is declared of an input of a view does not hold.",
    "LEASE_LOST": "A reader has not renewed its lease in time.",
    "META_CONFLICT": "Another process changed the same barrier, job or table first.",
    "META_DENIED": "MetaService does not know the token, or the token lacks the permission.",
    "META_MISSING": "MetaService has no such address, barrier or version.",
    "META_REQUEST": "MetaService received a malformed request.",
    "META_SERVICE": "MetaService cannot be started in this way.",
    "META_UNREACHABLE": "MetaService, or its store, cannot be reached.",
    "META_VERSION": "The MetaService store was written by a different version.",
    "NOT_A_VIEW": "The table exists and is not a materialized view of this warehouse.",
    "PARSER_COMPILED": "The SQL parser is installed in a build that cannot be extended.",
    "PARTIAL_UPDATE_INVALID": "The branches of a wide table do not fit together.",
    "PARTIAL_UPDATE_KEY": "A branch of a wide table has a duplicate key, or a row without a key.",
    "PATH_OUTSIDE": "A path leads out of the folders that the profile allows.",
    "PLAN_MISMATCH": "A plan does not fit the SQL, the schema or this version.",
    "PROJECT_INVALID": "dbt cannot read the project, or its models could not be run.",
    "PYTHON_MODEL": "A python model failed, or returned something that is not a DataFrame.",
    "QUERY_TIMEOUT": "A query took longer than the profile allows.",
    "RESERVED_NAME": "A column name is reserved for the engine.",
    "REVISION_IMPOSSIBLE": "A table cannot be revised in the requested way.",
    "SERVER": "The warm engine cannot be started, or not for this profile.",
    "SERVER_BUSY": "The warm engine is in use.",
    "SINK_KEY": "Two rows of a sink have the same key, or a row has no key.",
    "SINK_LOST": "The changes that a sink has yet to deliver are gone.",
    "SINK_REFUSED": "The target of a sink has data that the sink would overwrite.",
    "SINK_UNREACHABLE": "The target of a sink cannot be reached, or rejects the changes.",
    "SQL_INVALID": "Spark rejects the query.",
    "SQL_UNSUPPORTED": "The compiler cannot read the query.",
    "STATE_FORGOTTEN": "The state that the command needs has expired.",
    "STATE_TTL_INVALID": "The state of a view cannot be kept for as long as its config says.",
    "STILL_READ": "A table to drop is still read by others.",
    "STORAGE_REFUSED": "The storage rejects writes: it is full or read-only.",
    "STREAM_CHANGED": "A stream has changed, or does something that its declaration forbids.",
    "STREAM_LOST": "Unread records of a stream are gone, or its position is.",
    "STREAM_UNREACHABLE": "The system of a source cannot be reached, or rejects the request.",
    "TABLE_EXISTS": "A table that should be new already exists.",
    "TABLE_MISSING": "The query reads a table that does not exist.",
    "TABLE_MOVED": "A table that only its branches may write to was modified from outside.",
    "WAREHOUSE_BUSY": "Another process is running an epoch on this warehouse.",
}


@dataclass(frozen=True)
class Place:
    """A position in the user's text: model, 1-based line and column (0 = unknown)."""

    model: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        spot = f"line {self.line}, column {self.column}" if self.line else ""
        return ", ".join(part for part in (self.model, spot) if part)


class StreamSqlError(Exception):
    """A refusal with a reason.

    `code` is one of `CODES`; `given` is what was found, `allowed` what would be accepted,
    `hint` the next thing to do, `place` the model and line.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        given: str = "",
        allowed: str = "",
        hint: str = "",
        place: Place | None = None,
    ) -> None:
        if code not in CODES:
            raise ValueError(f"unknown error code {code!r}")
        self.code = code
        self.message = message
        self.given = given
        self.allowed = allowed
        self.hint = hint
        self.place = place
        super().__init__(str(self))

    def at(self, place: Place) -> StreamSqlError:
        """The same error with a place; a line that it already has belongs to this model."""
        given = (self.code, self.message)
        if self.place is not None:
            place = Place(self.place.model or place.model, self.place.line, self.place.column)
        return StreamSqlError(
            *given,
            given=self.given,
            allowed=self.allowed,
            hint=self.hint,
            place=place,
        )

    def __str__(self) -> str:
        lines = [f"[STREAMSQL.{self.code}] {self.message}"]
        for label, text in (
            ("at", str(self.place) if self.place else ""),
            ("given", self.given),
            ("allowed", self.allowed),
            ("do", self.hint),
        ):
            if text:
                lines.append(f"  {label}: {text}")
        return "\n".join(lines)
