"""The plan file: a compiled view as JSON in which users may change how long state is kept, and
which of it is stored.

One node per operator, each with the `state` that FLIP-292 ("Proposed Design") adds to it: an entry
for each input, with its TTL; and with `stored` where its rows, or the keys of its sides, can have
a state table. Everything else in the file is for reading and comparing: a plan runs only
where compiling its query gives the same nodes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from typing import Any

import jsonschema  # type: ignore[import-untyped]

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.plan.state import State, lasting

VERSION = 2
"""1 had no `state`: its operators keep theirs for as long as configured."""
SCHEMA = "plan-file.schema.json"


@dataclass(frozen=True)
class PlanNode:
    """One operator: `id` is its number (parents first, from 1), `inputs` those of its inputs.

    `schema` are (column, type), `spec` its own expressions, `state` None in a file of version 1.
    `stored`: whether it has a state table; None where nothing of it can be stored, and in files
    that do not say so.
    """

    id: int
    type: str
    description: str
    inputs: tuple[int, ...]
    schema: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]
    changelog: str
    strategy: str
    spec: Mapping[str, Any]
    state: tuple[State, ...] | None = ()
    stored: bool | None = None


@dataclass(frozen=True)
class PlanDocument:
    """A plan file. `engine` is the version of this package that wrote it."""

    table: str
    sql: str
    mode: str
    strategy: str
    engine: str
    nodes: tuple[PlanNode, ...]
    version: int = VERSION

    def to_json(self) -> str:
        """The text of the file; `from_json` returns an equal document."""
        nodes = []
        for node in self.nodes:
            body = {
                **asdict(node),
                "schema": [{"name": name, "type": kind} for name, kind in node.schema],
                "state": [
                    {"index": s.index, "ttl": f"{s.ttl} ms", "name": s.name}
                    | ({"fixed": s.fixed} if s.fixed else {})
                    for s in node.state or ()
                ],
            }
            for name in ("state", "stored"):
                if getattr(node, name) is None:
                    del body[name]
            nodes.append(body)
        body = {"version": self.version, **asdict(replace(self, nodes=())), "nodes": nodes}
        return json.dumps(body, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> PlanDocument:
        """Read a plan file; PLAN_MISMATCH lists everything that is wrong."""
        try:
            body = json.loads(text)
        except ValueError as error:
            raise _unreadable([f"not JSON: {error}"]) from error
        version = body.get("version") if isinstance(body, dict) else None
        if version not in (1, VERSION):
            raise _unreadable([f"version {version!r}"], f"version 1 or {VERSION}")
        found = jsonschema.Draft202012Validator(schema()).iter_errors(body)
        wrong = [f"{'/'.join(map(str, each.absolute_path))}: {each.message}" for each in found]
        if wrong:
            raise _unreadable(wrong)
        nodes = tuple(_node(node) for node in body.pop("nodes"))
        return cls(**body, nodes=nodes)

    @property
    def ttls(self) -> dict[tuple[int, int], int] | None:
        """The TTLs in milliseconds by (node, input); None in a file of version 1."""
        if self.version == 1:
            return None
        return {
            (node.id, state.index): state.ttl for node in self.nodes for state in node.state or ()
        }

    @property
    def stored(self) -> tuple[int, ...] | None:
        """The numbers of the nodes that have a state table; None where the file does not say."""
        said = {node.id: node.stored for node in self.nodes if node.stored is not None}
        return tuple(number for number, stored in said.items() if stored) if said else None


def schema() -> dict[str, Any]:
    """The JSON Schema of plan files, as published in docs/."""
    text = files("dbt_streamsql.plan").joinpath(SCHEMA).read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def differences(old: PlanDocument, new: PlanDocument, *, settings: bool = True) -> list[str]:
    """What differs in the second document, in words; with `settings` including what users may
    change."""
    said = [
        f"{name}: {getattr(old, name)!r} became {getattr(new, name)!r}"
        for name in ("table", "mode", "strategy")
        if getattr(old, name) != getattr(new, name)
    ]
    before, now = ({node.id: node for node in each.nodes} for each in (old, new))
    said += [f"node {at} ({before[at].description}) is gone" for at in sorted({*before} - {*now})]
    said += [f"node {at} ({now[at].description}) is new" for at in sorted({*now} - {*before})]
    for at in sorted({*before} & {*now}):
        said += _different(before[at], now[at], settings=settings)
    return said


_STORED = {
    None: "nothing is said of state tables",
    False: "computed from its inputs",
    True: "stored",
}


def _different(old: PlanNode, new: PlanNode, *, settings: bool) -> list[str]:
    where = f"node {old.id} ({new.description})"
    said = [
        f"{where}: {name} {_shown(getattr(old, name))} became {_shown(getattr(new, name))}"
        for name in ("type", "description", "inputs", "schema", "keys", "changelog", "spec")
        if _plain(getattr(old, name)) != _plain(getattr(new, name))
    ]
    if old.stored and new.stored is None:
        said.append(f"{where}: nothing of it can be stored in this query")
    elif settings and old.stored != new.stored:
        said.append(f"{where}: {_STORED[new.stored]}, not {_STORED[old.stored]}")
    if old.state is None or new.state is None:
        return said
    before, now = ({state.index: state for state in node.state or ()} for node in (old, new))
    names = [{at: state.name for at, state in each.items()} for each in (before, now)]
    if names[0] != names[1]:
        said.append(f"{where}: state {_shown(names[0])} became {_shown(names[1])}")
    elif settings:
        said += [
            f"{where}: {now[at].name} is kept for {_lasts(now[at])}, not {_lasts(state)}"
            for at, state in before.items()
            if state.ttl != now[at].ttl
        ]
    return said


def _lasts(state: State) -> str:
    return lasting(state.ttl) if state.ttl else "ever"


def _shown(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _node(body: dict[str, Any]) -> PlanNode:
    states = body.pop("state", None)
    return PlanNode(
        **{
            **body,
            "inputs": tuple(body["inputs"]),
            "keys": tuple(body["keys"]),
            "schema": tuple((column["name"], column["type"]) for column in body["schema"]),
        },
        state=None
        if states is None
        else tuple(
            State(each["index"], each["name"], int(each["ttl"].split()[0]), each.get("fixed", ""))
            for each in states
        ),
    )


def _unreadable(wrong: list[str], allowed: str = "") -> StreamSqlError:
    return StreamSqlError(
        "PLAN_MISMATCH",
        "the plan file cannot be read",
        given="; ".join(wrong),
        allowed=allowed or "a plan file as described in docs/plan-file.schema.json",
        hint="compile the plan again with `streamsql plan compile`, and change only its TTLs and "
        "what is stored",
    )
