"""The connection of the store: opening, schema version, transactions, readable errors."""

from __future__ import annotations

import hashlib
import re
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Connection,
    Engine,
    create_engine,
    event,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.schema import CreateSchema

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.model.addresses import schema_of
from dbt_streamsql.meta.store.sql import schema
from dbt_streamsql.meta.store.sql.lock import ADVISORY_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

BUSY_SECONDS = 20

_PASSWORD = re.compile(
    r"(?<=://)([^/@]*?):.*@|((?:password|passwd|pwd|token)=)[^&\s]*", re.IGNORECASE
)


def redact(url: str) -> str:
    """The URL without its password.

    >>> redact("postgresql://ann:s3c:r@t@db/x?password=y")
    'postgresql://ann:***@db/x?password=***'
    """
    return _PASSWORD.sub(lambda m: f"{m[1]}:***@" if m[2] is None else f"{m[2]}***", url)


class Database:
    """One opened store. `read()` and `write()` give a connection inside a transaction."""

    def __init__(self, url: str) -> None:
        """Open or create the store at `url`; META_UNREACHABLE or META_VERSION on failure."""
        self.url = redact(url)
        parsed = _parse(url)
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        self.file = Path(str(parsed.database)) if self.is_sqlite else None
        self.schema = "" if self.is_sqlite else schema_of(url)
        # SQLite allows one writer at a time and makes the others poll: queue here instead
        self._writing = threading.Lock()
        try:
            self.engine = _engine(parsed)
        except (ImportError, SQLAlchemyError) as error:
            raise _unreachable(self.url, error) from error
        try:
            self._prepare()
            self.id = self._name_it(url)
        except BaseException:
            self.engine.dispose()
            raise

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Statements that see one state of the store (SQLite) and never wait for a writer."""
        with self.errors(), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """All or nothing, and durable once the block has ended without an error."""
        with (
            self.errors(),
            self._writing,
            self.engine.connect().execution_options(streamsql_write=True) as connection,
            connection.begin(),
        ):
            yield connection

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turns driver errors inside the block into META_UNREACHABLE."""
        try:
            yield
        except SQLAlchemyError as error:
            if "readonly database" in str(error):
                # SQLite opens a file without write permission as read-only, and keeps it so.
                self.engine.dispose()
            raise _unreachable(self.url, error) from error

    def _prepare(self) -> None:
        with self.read() as connection:
            known = inspect(connection).has_table(schema.schema_version.name)
            found: list[int] = []
            if known:
                found = list(connection.execute(_VERSIONS).scalars())
        if not found:
            with self.write() as connection:
                if not self.is_sqlite:
                    connection.execute(
                        text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_KEY + 1}
                    )
                if self.schema:
                    connection.execute(CreateSchema(self.schema, if_not_exists=True))
                schema.METADATA.create_all(connection)
                found = list(connection.execute(_VERSIONS).scalars())
                if not found:
                    connection.execute(
                        insert(schema.schema_version).values(version=schema.SCHEMA_VERSION)
                    )
                    connection.execute(
                        insert(schema.runner).values(
                            id=1, token=0, owner="", last_barrier=0, kept_from=0
                        )
                    )
                    found = [schema.SCHEMA_VERSION]
        if len(found) == 1 and found[0] in schema.UPGRADES:
            found = self._upgraded()
        if found != [schema.SCHEMA_VERSION]:
            raise StreamSqlError(
                "META_VERSION",
                "the MetaService store was written by a different version of dbt-streamsql",
                given=f"version {', '.join(map(str, found))} in {self.url}",
                allowed=f"version {schema.SCHEMA_VERSION}",
                hint="use the dbt-streamsql version that wrote it, or a different warehouse",
            )

    def _name_it(self, url: str) -> str:
        """The name of the store in tags and tables, whatever its address becomes.

        It is derived from its first address: recreated there, it has the same name.
        """
        of = schema.runner.c.store_id
        with self.read() as connection:
            known = str(connection.execute(select(of)).scalar_one())
        if not known:
            known = hashlib.sha256(url.encode()).hexdigest()[:8]
            with self.write() as connection:
                named = update(schema.runner).where(of == "")
                connection.execute(named.values(store_id=known))
        return known

    def _upgraded(self) -> list[int]:
        """Bring an older store to this version, completely or not at all."""
        with self.write() as connection:
            if not self.is_sqlite:
                connection.execute(
                    text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_KEY + 1}
                )
            # Another process may have done it in the meantime.
            found: list[int] = list(connection.execute(_VERSIONS).scalars())
            while len(found) == 1 and found[0] in schema.UPGRADES:
                for change in schema.UPGRADES[found[0]]:
                    connection.execute(text(change))
                found = [found[0] + 1]
                connection.execute(update(schema.schema_version).values(version=found[0]))
            schema.METADATA.create_all(connection)
        return found


_VERSIONS = select(schema.schema_version.c.version).order_by(schema.schema_version.c.version)


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        parsed = None
    kind = parsed.get_backend_name() if parsed else ""
    if parsed is None or kind not in ("sqlite", "postgresql"):
        raise StreamSqlError(
            "META_UNREACHABLE",
            "not the address of a MetaService store",
            given=redact(url),
            allowed="sqlite:///<file>, postgresql+psycopg://user:password@host/database, or "
            "http://127.0.0.1:<port> of `streamsql meta serve`",
            hint="correct `meta` in the profile, or remove it",
        )
    if kind == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise StreamSqlError(
            "META_UNREACHABLE",
            "a MetaService store in memory would be lost with the process",
            given=redact(url),
            allowed="sqlite:///<file>",
            hint="set `meta` to a file, or remove it",
        )
    return parsed


def _engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True)
    engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS}, pool_timeout=BUSY_SECONDS)

    def configure(connection: Any, _record: Any) -> None:
        # the driver must not begin transactions itself: `begin` below decides how
        connection.isolation_level = None
        for setting in (
            f"busy_timeout = {BUSY_SECONDS * 1000}",
            "journal_mode = WAL",
            # a barrier that was reported as committed must survive a power cut
            "synchronous = FULL",
        ):
            connection.execute(f"PRAGMA {setting}").close()

    def begin(connection: Connection) -> None:
        # a transaction that begins with a read can fail half-way with "busy" and no waiting
        writing = connection.get_execution_options().get("streamsql_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    event.listen(engine, "connect", configure)
    event.listen(engine, "begin", begin)
    return engine


def _unreachable(url: str, error: Exception) -> StreamSqlError:
    cause = getattr(error, "orig", None) or error
    if isinstance(error, (ImportError, NoSuchModuleError)):
        hint = "install the database driver that the address names, for instance `psycopg`"
    elif url.startswith("sqlite"):
        hint = "check that its folder exists and is writable, and that the disk is not full"
    else:
        hint = "check that the server is running, and check host, user, password and database"
    lines = str(cause).strip().splitlines()
    return StreamSqlError(
        "META_UNREACHABLE",
        "the MetaService store does not answer",
        given=f"{url}: {type(cause).__name__}: {lines[0] if lines else ''}",
        hint=f"{hint}; then run again: committed barriers are safe",
    )
