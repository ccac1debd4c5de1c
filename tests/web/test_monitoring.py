"""What the package ships for Prometheus and Grafana asks only for metrics that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from dbt_streamsql.cli import main
from dbt_streamsql.meta import MetaStore
from dbt_streamsql.meta.model.freshness import Freshness
from dbt_streamsql.web.metrics import Exporter
from tests.support.histories import TOP, Clock, Story

_METRIC = re.compile(r"\bstreamsql_\w+")
_CHOSEN = re.compile(r"\b(streamsql_\w+)\{([^}]*)\}")
_LABEL = re.compile(r"(\w+)(?:=~|!=|=)\"")
DOCS = Path(__file__).parents[2] / "docs" / "monitoring.md"


def alerts(shipped: Path):
    return yaml.safe_load((shipped / "alerts.yml").read_text())["groups"][0]["rules"]


def test_alerts_and_panels_ask_for_metrics_and_labels_that_are_served(
    shipped: Path, store: MetaStore, clock: Clock
) -> None:
    Story(store, clock).promise(TOP, Freshness(60.0, 3600.0))
    families = text_string_to_metric_families(Exporter(store, clock).text().decode())
    samples = [sample for family in families for sample in family.samples]
    known = {sample.name: set(sample.labels) for sample in samples}
    panels = json.loads((shipped / "dashboard.json").read_text())["panels"]
    asked = [rule["expr"] for rule in alerts(shipped)]
    asked += [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(asked) > 10
    for text in asked:
        names = _METRIC.findall(text)
        assert names or text.startswith("up{"), text
        assert set(names) <= known.keys(), text
        for name, chosen in _CHOSEN.findall(text):
            assert set(_LABEL.findall(chosen)) <= known[name], text


def test_the_page_lists_every_alert_and_no_other(shipped: Path) -> None:
    rows = re.findall(r"^\| (`StreamSql.*?) \|", DOCS.read_text(), re.MULTILINE)
    told = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(told) == sorted(rule["alert"] for rule in alerts(shipped))


def test_files_of_the_user_are_not_overwritten(shipped: Path) -> None:
    (shipped / "alerts.yml").write_text("mine")
    (shipped / "dashboard.json").unlink()
    done = CliRunner().invoke(main, ["meta", "monitoring", str(shipped)])
    assert (done.exit_code, "alerts.yml" in done.output) == (2, True)
    assert (shipped / "alerts.yml").read_text() == "mine"
    assert not (shipped / "dashboard.json").exists()
