from __future__ import annotations

from pathlib import Path

import pytest
from dbt_common.exceptions import DbtRuntimeError

from dbt_streamsql.adapter.common.secrets import scrub
from dbt_streamsql.adapter.profile.credentials import StreamSqlCredentials
from dbt_streamsql.adapter.session.host import host_of, host_of_profile
from dbt_streamsql.engine.options import EngineOptions
from dbt_streamsql.meta import Retention


def _load(**profile) -> StreamSqlCredentials:
    """As dbt loads a profile."""
    data = StreamSqlCredentials.translate_aliases(profile)
    StreamSqlCredentials.validate(data)
    credentials = StreamSqlCredentials.from_dict(data)
    StreamSqlCredentials.validate(credentials.to_dict(omit_none=True))
    return credentials


def _options(**profile) -> EngineOptions:
    """What an engine of that profile is opened with."""
    return EngineOptions(**_load(**profile).engine_options)


def _refused(**profile) -> str:
    with pytest.raises(DbtRuntimeError) as refused:
        _load(**profile)
    assert "[STREAMSQL.CONFIG_INVALID]" in str(refused.value)
    return str(refused.value)


def test_a_schema_is_a_complete_profile(tmp_path):
    credentials = _load(schema="shop")
    settings = credentials.settings(tmp_path)
    assert (settings.method, settings.catalog) == ("embedded", "lake")
    assert settings.warehouse == str(tmp_path / "warehouse")
    assert credentials.meta_url(tmp_path) == f"sqlite:///{tmp_path}/warehouse/streamsql.db"


@pytest.mark.parametrize("key", ["catalog", "database"])
def test_the_catalog_may_be_called_either_way(key):
    assert _load(schema="shop", **{key: "ice"}).database == "ice"


def test_folders_are_relative_to_the_project_and_uris_are_not_touched(tmp_path):
    assert _load(schema="s", warehouse="../w").settings(tmp_path / "p").warehouse == str(
        tmp_path / "w"
    )
    remote = _load(schema="s", warehouse="s3://b/w", catalog_properties={"type": "glue"})
    assert remote.settings(tmp_path).warehouse == "s3://b/w"
    assert remote.meta_url(tmp_path) == f"sqlite:///{tmp_path}/warehouse/streamsql.db"


def test_yaml_values_become_the_texts_that_spark_reads(tmp_path):
    credentials = _load(schema="s", spark_properties={"a": True, "b": 2, "c": "x"})
    assert credentials.settings(tmp_path).spark_properties == {"a": "true", "b": "2", "c": "x"}


def test_everything_wrong_is_listed_in_one_error():
    text = _refused(
        schma="shop",
        port="x",
        warehous="w",
        spark_properties=[1],
        catalog_properties={"uri": ["a"]},
        method="thrift",
        catalog="a`b",
        meta=3,
    )
    for part in (
        "`schma` (did you mean `schema`?)",
        "`warehous` (did you mean `warehouse`?)",
        "`schema` is missing",
        "`port` must be a number",
        "`spark_properties` must be a mapping, not a list",
        "`catalog_properties: uri` must be text",
        "`method` must be one of embedded, connect, cluster",
        "`catalog`: the catalog name has an unsupported character",
        "`meta` must be text, not a number",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("profile", "part"),
    [
        ({"schema": "s", "method": "connect"}, "needs a `host`"),
        ({"schema": "s", "method": "cluster"}, "needs a `master`"),
        ({"schema": "s", "warehouse": "s3://b/w"}, "needs `catalog_properties`"),
        ({"schema": "s" * 300}, "too long"),
        ({"schema": "it's"}, "`schema`: the schema name has an unsupported character"),
        ({"schema": 2024}, "`schema` must be text, not a number (put it in quotes)"),
        ({"schema": "s", "port": True}, "`port` must be a number"),
        ({"schema": "s", "port": 65536}, "`port` must be a number"),
        (
            {
                "schema": "s",
                "spark_properties": {"spark.sql.ansi.doubleQuotedIdentifiers": True},
            },
            "`spark_properties: spark.sql.ansi.doubleQuotedIdentifiers` changes the meaning of",
        ),
        ({"schema": "s", "connectors": "kafka"}, "`connectors` must be a list of avro, delta"),
        ({"schema": "s", "connectors": ["pulsar"]}, "`connectors` must be a list of avro, delta"),
    ],
)
def test_a_value_that_cannot_work_is_refused(profile, part):
    assert part in _refused(**profile)


def test_what_dbt_prints_holds_no_secret(monkeypatch):
    for name in ("token", "meta", "catalog", "spark"):
        monkeypatch.setenv(f"DBT_ENV_SECRET_{name.upper()}", f"hush-{name}")
    credentials = _load(
        schema="s",
        method="connect",
        host="h",
        token="hush-token",
        meta="postgresql://me:hush-meta@h/db",
        catalog_properties={"jdbc.password": "hush-catalog"},
        spark_properties={"spark.password": "hush-spark"},
    )
    shown = str(dict(credentials.connection_info(with_aliases=True)))
    assert "hush" not in shown
    assert "postgresql://me:***@h/db" in shown
    assert "hush" not in repr(credentials.settings(Path())) + repr(credentials)


def test_a_url_without_a_password_is_shown_as_it_is():
    assert scrub("sqlite:////w/streamsql.db") == "sqlite:////w/streamsql.db"


def test_equal_profiles_share_one_session_and_engine_in_a_process(tmp_path):
    one, two = _load(schema="a"), _load(schema="b")
    hosts = [host_of(c.settings(tmp_path), c.meta_url(tmp_path)) for c in (one, two)]
    other = _load(schema="a", warehouse="elsewhere")
    assert hosts[0] is hosts[1]
    assert hosts[0] is not host_of(other.settings(tmp_path), other.meta_url(tmp_path))


def test_the_token_of_a_metaservice_is_a_secret(monkeypatch):
    assert "`meta_token` contains a secret in plain text" in _refused(
        schema="s", meta="http://127.0.0.1:8123", meta_token="hush-meta-token"
    )
    monkeypatch.setenv("DBT_ENV_SECRET_META_TOKEN", "hush-meta-token")
    credentials = _load(schema="s", meta="https://meta.example", meta_token="hush-meta-token")
    assert "hush" not in str(dict(credentials.connection_info(with_aliases=True)))
    assert "hush" not in repr(credentials)
    assert scrub("Bearer hush-meta-token") == "Bearer ***"
    for meta in ({}, {"meta": "sqlite:///x.db"}):
        assert "`meta_token` needs a MetaService" in _refused(
            schema="s", meta_token="hush-meta-token", **meta
        )


def test_what_is_kept_is_a_length_of_time_and_a_number(tmp_path):
    assert _options(schema="s").retention == Retention(7 * 86_400.0, 300)
    kept = _options(schema="s", retain="36 hours", retain_barriers=10).retention
    assert kept == Retention(129_600.0, 10)
    assert _options(schema="s", retain=90).retention.seconds == 90
    assert "`retain` is not a duration ('soon'" in _refused(schema="s", retain="soon")
    for wrong in (0, -1, "5", True, 1.5):
        told = _refused(schema="s", retain_barriers=wrong)
        assert "`retain_barriers` is not a number of barriers" in told
    one, two = _load(schema="s"), _load(schema="s", retain="1 day")
    assert host_of_profile(one, tmp_path) is not host_of_profile(two, tmp_path)


@pytest.mark.parametrize(
    ("given", "size"), [(5, 5), ("500 MB", 500_000_000), ("1 GiB", 1 << 30), ("0", 0)]
)
def test_a_budget_of_state_is_a_number_of_bytes_or_a_text_with_a_unit(given, size):
    assert _options(schema="s", state_budget=given).most_state == size


@pytest.mark.parametrize("given", ["much", -1, True, "5 pints", []])
def test_a_budget_that_is_no_size_is_refused(given):
    told = _refused(schema="s", state_budget=given)
    assert "`state_budget` is not a size" in told
    assert "20 GB" in told
