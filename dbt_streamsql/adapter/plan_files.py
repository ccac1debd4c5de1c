"""Plan files of a dbt project: those that its models run, and those that `dbt compile` writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt.adapters.events.logging import AdapterLogger
from dbt.flags import get_flags

from dbt_streamsql.adapter.common.error_messages import cause_of
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.document import PlanDocument
from dbt_streamsql.plan.state import StateTtl
from dbt_streamsql.state_ttl import as_data
from dbt_streamsql.storage.locations import Roots
from dbt_streamsql.storage.text_files import Session, read_text, write_text

if TYPE_CHECKING:
    from dbt_streamsql.engine import Engine

logger = AdapterLogger("StreamSQL")

FOLDER = "plans"
"""Below the project's target folder."""

_OF_PLANS = ("refresh_mode", "state", "state_ttl", "plan")
"""The options on which a plan depends."""


def with_plan(
    options: dict[str, Any], name: str, config: Mapping[str, Any], roots: Roots, spark: Session
) -> dict[str, Any]:
    """The options of a view with the plan file that its config names, if any, with its TTLs and
    with what it stores.

    The path is relative to the project. Errors: PATH_OUTSIDE, FILE_UNREADABLE, PLAN_MISMATCH.
    """
    if config.get("plan") is None:
        return options
    try:
        # Files in the project are as trusted as its models.
        places = Roots(roots.base, (str(roots.base), *roots.places))
        plan = PlanDocument.from_json(read_text(places.locate(config["plan"], "plan"), spark))
    except StreamSqlError as error:
        raise error.at(Place(name)) from error
    if plan.ttls is not None:
        options = {**options, "state_ttl": as_data(StateTtl.of_ids(plan.ttls))}
    if plan.stored is not None:
        options = {**options, "state": plan.stored}
    return {**options, "plan": plan}


def write_plans(
    engine: Engine,
    nodes: Iterable[Any],
    target: Path,
    options_of: Callable[[Any], tuple[str, dict[str, Any]]],
    threads: int,
) -> None:
    """Write the plan file of each materialized view among the nodes that dbt has compiled,
    `threads` at a time.

    `options_of` gives the table of a node and its options. A view that cannot be planned, since
    what it reads is not built yet, is reported and left out.
    """

    def write(node: Any) -> bool:
        try:
            table, options = options_of(node)
            known = {key: options[key] for key in _OF_PLANS if key in options}
            plan = engine.compile(node.compiled_code, into=table, **known)
            write_text(str(file_of(node, target)), plan.to_json(), lambda: engine.spark)
        except Exception as error:  # noqa: BLE001 - the compiled SQL is there all the same
            logger.warning(f"No plan file for {node.name}: {cause_of(error)}")
            return False
        return True

    with ThreadPoolExecutor(threads, "plan files") as pool:
        written = sum(pool.map(write, filter(_is_planned, nodes)))
    if written:
        logger.info(f"Plan files written to {target / FOLDER}: {written}")


def file_of(node: Any, target: Path) -> Path:
    """The path of a model's plan file: `<model>.json`, for a versioned one `<model>.v2.json`."""
    return target / FOLDER / f"{'.'.join(node.unique_id.split('.')[2:])}.json"


def is_compiling() -> bool:
    """Whether dbt was asked only to compile."""
    return getattr(get_flags(), "WHICH", None) == "compile"


def _is_planned(node: Any) -> bool:
    return bool(
        node.resource_type == "model"
        and node.config.materialized == "materialized_view"
        and node.compiled_code
    )
