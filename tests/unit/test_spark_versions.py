"""A session's Spark is one that is tested, or the user hears of it."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.runtime.spark import versions


def test_a_tested_spark_is_used_without_a_word(caplog):
    for version in ("4.0.2", "4.1.4", "4.1.0-amzn-1"):
        versions.check(SimpleNamespace(version=version))
    assert caplog.messages == []


def test_an_untested_spark_is_named_once(caplog, monkeypatch):
    monkeypatch.setattr(versions, "_named", set())
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            versions.check(SimpleNamespace(version="4.9.1"))
    assert caplog.messages == ["Spark 4.9.1 is not tested with dbt-streamsql; these are: 4.1, 4.0"]


def test_a_spark_before_4_is_refused():
    with pytest.raises(StreamSqlError, match="too old") as refused:
        versions.check(SimpleNamespace(version="3.5.6"))
    assert refused.value.code == "CONNECTION"
    assert "Spark 3.5.6" in str(refused.value)
