"""Which values of a profile are secrets, where they come from, and that they are hidden."""

from __future__ import annotations

import pytest

from dbt_streamsql.adapter.common import secrets

SECRET = "s3cr3t-word"  # noqa: S105 - made up


def _problems(**profile):
    return list(secrets.problems_of(profile))


@pytest.mark.parametrize(
    ("profile", "place"),
    [
        ({"token": SECRET}, "`token`"),
        ({"meta": f"postgresql://me:{SECRET}@h/db"}, "`meta`"),
        ({"meta": f"postgresql://h/db?user=me&password={SECRET}"}, "`meta`"),
        ({"warehouse": f"s3://key:{SECRET}@bucket/x"}, "`warehouse`"),
        ({"catalog_properties": {"jdbc.password": SECRET}}, "`catalog_properties: jdbc.password`"),
        ({"catalog_properties": {"s3.secret-access-key": SECRET}}, "secret-access-key`"),
        (
            {"catalog_properties": {"uri": f"jdbc:x://h/d?password={SECRET}"}},
            "`catalog_properties",
        ),
        ({"spark_properties": {"spark.ssl.keyPassword": SECRET}}, "`spark_properties"),
        ({"spark_properties": {"spark.hadoop.fs.s3a.secret.key": SECRET}}, "`spark_properties"),
        ({"spark_properties": {"fs.azure.account.key.me.net": SECRET}}, "`spark_properties"),
    ],
)
def test_a_secret_in_plain_text_is_refused_and_not_shown(profile, place, monkeypatch):
    (problem,) = _problems(**profile)
    assert place in problem
    assert "env_var('DBT_ENV_SECRET_" in problem
    assert SECRET not in problem
    monkeypatch.setenv("DBT_ENV_SECRET_X", SECRET)
    assert _problems(**profile) == []


@pytest.mark.parametrize(
    "profile",
    [
        {"meta": "postgresql://me@h:5432/db"},
        {"meta": "sqlite:////tmp/x@y.db"},
        {"token": None},
        {"spark_properties": {"spark.hadoop.fs.s3a.aws.credentials.provider": "a.B"}},
        {"spark_properties": {"spark.driver.extraJavaOptions": "-Xss4m -Dx=y"}},
        {"catalog_properties": {"token-refresh-enabled": "true", "uri": "http://h:8181/a@b"}},
    ],
)
def test_what_is_no_secret_may_stand_in_the_profile(profile):
    assert _problems(**profile) == []


def test_no_secret_goes_to_the_list_of_processes(monkeypatch):
    monkeypatch.setenv("DBT_ENV_SECRET_X", SECRET)
    for option in (f"-Dkey={SECRET}", f"-Djavax.net.ssl.trustStorePassword={SECRET}"):
        (problem,) = _problems(spark_properties={"spark.driver.extraJavaOptions": option})
        assert "shows in the process list" in problem
        assert SECRET not in problem


def test_known_secrets_and_passwords_of_urls_are_hidden(monkeypatch):
    monkeypatch.setattr(secrets, "_known", set())
    assert secrets.scrub(f"a {SECRET} b") == f"a {SECRET} b"
    secrets.remember([SECRET.replace("-", "%2D"), "abc"])
    assert secrets.scrub(f"a {SECRET} abc") == "a *** abc"
    monkeypatch.setenv("DBT_ENV_SECRET_Y", "another one")
    assert secrets.scrub("with another one.") == "with ***."
    url = "x://me:pw@h/d?password=q&x=1 and jdbc:y://h;user=u;pwd=z"
    assert secrets.scrub(url) == "x://me:***@h/d?password=***&x=1 and jdbc:y://h;user=u;pwd=***"
