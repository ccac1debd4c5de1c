"""Who may call a route: declared by its first parameter, which also checks the caller's rights."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.model.tokens import Identity, Role
from dbt_streamsql.meta.service.access.state import Service
from dbt_streamsql.meta.store.store import SqlMetaStore

V = TypeVar("V")

_BEARER = HTTPBearer(auto_error=False, description="a token of the service's token file")


@dataclass(frozen=True)
class Caller:
    """One request's token, and the store with its rights."""

    identity: Identity
    service: Service

    @property
    def name(self) -> str:
        return self.identity.name

    @property
    def store(self) -> SqlMetaStore:
        """The store; writes are entered into the audit log under the token's name."""
        return self.service.store.acting_for(self.name)

    def see(self, table: str) -> None:
        """Error: META_DENIED, when the token is for other schemas."""
        if not self.identity.sees(table):
            raise self._other_schema(table)

    def change(self, *tables: str) -> None:
        """Error: META_DENIED, when the token is for other schemas."""
        for table in tables:
            if not self.identity.changes(table):
                raise self._other_schema(table)

    def seen(self, tables: Iterable[str]) -> list[str]:
        return [table for table in tables if self.identity.sees(table)]

    def seen_of(self, by_table: Mapping[str, V]) -> dict[str, V]:
        return {table: it for table, it in by_table.items() if self.identity.sees(table)}

    def _other_schema(self, table: str) -> StreamSqlError:
        schemas = self.identity.schemas or ()
        return StreamSqlError(
            "META_DENIED",
            "the token does not allow this schema",
            given=table,
            allowed=", ".join(sorted(schemas)),
            hint="use a different token, or add the schema to its entry in the token file",
        )


def _caller(role: Role) -> Callable[..., Awaitable[Caller]]:
    async def caller(request: Request, _: Annotated[object, Security(_BEARER)]) -> Caller:
        identity: Identity | None = request.state.identity
        assert identity is not None, "the gate lets no one in without a token"
        if not identity.has(role):
            raise StreamSqlError(
                "META_DENIED",
                "the token does not have the required role",
                given=f"{identity.name}: {identity.role}",
                allowed=role,
                hint="use a different token",
            )
        return Caller(identity, request.app.state.service)

    return caller


Reader = Annotated[Caller, Depends(_caller("read"))]
"""Any caller with a token."""
Runner = Annotated[Caller, Depends(_caller("run"))]
Admin = Annotated[Caller, Depends(_caller("admin"))]
