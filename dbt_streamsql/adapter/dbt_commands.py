"""dbt's own commands, run in this process: they share its Spark session and its engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

from dbt.cli.main import dbtRunner

from dbt_streamsql.errors import StreamSqlError

MAINTAINED = ("materialized_view", "partial_update", "streaming_table", "sink")


@dataclass(frozen=True)
class Invocation:
    """How dbt finds the project, and which of its models are meant.

    `flags`: such as `--project-dir …`; `select` and `exclude` as in dbt.
    """

    flags: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def maintained(self) -> dict[str, str]:
        """The selectors of the models that an engine maintains, by their ids.

        Error: PROJECT_INVALID.
        """
        keys = ("unique_id", "config", "fqn")
        chosen = [*_list("--select", self.select), *_list("--exclude", self.exclude)]
        told = self._invoke(
            *("ls", "--resource-type", "model", "--output", "json", "--output-keys", *keys),
            *chosen,
        )
        nodes = [json.loads(line) for line in told.result or ()]
        return {
            node["unique_id"]: f"fqn:{'.'.join(node['fqn'])}"
            for node in nodes
            if node["config"]["materialized"] in MAINTAINED
        }

    def run(self, selectors: Sequence[str], *, seeds: bool = False) -> dict[str, str]:
        """Run models, and load all seeds first when `seeds` is set; the messages of those that
        failed, by their ids. Error: PROJECT_INVALID."""
        if seeds:
            kinds = ("--resource-type", "model", "--resource-type", "seed")
            told = self._invoke("build", *kinds, "--select", "resource_type:seed", *selectors)
        else:
            told = self._invoke("run", "--select", *selectors)
        results = told.result.results if told.result is not None else ()
        return {
            result.node.unique_id: result.message or "skipped: a model that it reads has failed"
            for result in results
            if str(result.status) in ("error", "skipped")
        }

    def compile(self, selector: str) -> list[Any]:
        """The selected nodes of dbt, compiled. Error: PROJECT_INVALID."""
        told = self._invoke("compile", "--select", selector)
        return [result.node for result in (told.result.results if told.result else ())]

    def _invoke(self, *arguments: str) -> Any:
        # Its output would mix with that of this process.
        with redirect_stdout(StringIO()):
            told = dbtRunner().invoke(["--quiet", "--no-use-colors", *arguments, *self.flags])
        if told.exception is not None:
            raise StreamSqlError(
                "PROJECT_INVALID",
                f"dbt could not {arguments[0]} the project",
                given=str(told.exception).strip(),
                hint="already registered models are not affected; see `dbt parse` for details",
            ) from told.exception
        return told


def _list(flag: str, values: Sequence[str]) -> list[str]:
    return [flag, *values] if values else []
