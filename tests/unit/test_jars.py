from __future__ import annotations

import hashlib
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.runtime.spark import jars
from dbt_streamsql.runtime.spark import pinned_jars as pinned
from dbt_streamsql.runtime.spark.pinned_jars import Jar

CONTENT = b"not really a jar" * 100_000
JAR = Jar("org.example.tools", "thing_2.13", "1.2", hashlib.sha256(CONTENT).hexdigest())


class _Quiet(SimpleHTTPRequestHandler):
    requests: list[str] = []  # noqa: RUF012 - shared by design, cleared by the fixture

    def do_GET(self):
        self.requests.append(self.path)
        super().do_GET()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A Maven repository on loopback that holds JAR; yields the folder and the requests."""
    root = tmp_path / "repository"
    file = root / JAR.path
    file.parent.mkdir(parents=True)
    file.write_bytes(CONTENT)
    _Quiet.requests.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(root)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("STREAMSQL_MAVEN_REPOSITORY", f"http://127.0.0.1:{server.server_port}/")
    yield root, _Quiet.requests
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_jar_is_fetched_once_and_then_served_from_the_cache(repository, tmp_path, capsys):
    _, requests = repository
    cache = tmp_path / "cache"
    first = jars.ensure((JAR,), cache)
    second = jars.ensure((JAR,), cache)
    assert first == second == [cache / "thing_2.13-1.2.jar"]
    assert first[0].read_bytes() == CONTENT
    assert requests == ["/org/example/tools/thing_2.13/1.2/thing_2.13-1.2.jar"]
    told = capsys.readouterr()
    assert "fetching org.example.tools:thing_2.13:1.2" in told.err
    assert told.out == ""


def test_a_cached_jar_needs_no_network(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMSQL_MAVEN_REPOSITORY", "http://127.0.0.1:1")
    (tmp_path / JAR.file_name).write_bytes(CONTENT)
    assert jars.ensure((JAR,), tmp_path) == [tmp_path / JAR.file_name]


def test_a_jar_that_cannot_be_fetched_names_the_coordinate_and_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMSQL_MAVEN_REPOSITORY", "http://127.0.0.1:1")
    with pytest.raises(StreamSqlError) as refused:
        jars.ensure((JAR,), tmp_path / "cache")
    assert refused.value.code == "JAR_UNAVAILABLE"
    assert JAR.coordinate in str(refused.value)
    assert str(tmp_path / "cache") in str(refused.value)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_repository_that_sends_another_file_is_refused_and_nothing_is_kept(repository, tmp_path):
    root, _ = repository
    (root / JAR.path).write_bytes(b"something else")
    with pytest.raises(StreamSqlError) as refused:
        jars.ensure((JAR,), tmp_path / "cache")
    assert refused.value.code == "JAR_CHECKSUM"
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_damaged_jar_in_the_cache_is_refused_with_what_to_do(tmp_path):
    (tmp_path / JAR.file_name).write_bytes(CONTENT[:-1])
    with pytest.raises(StreamSqlError) as refused:
        jars.ensure((JAR,), tmp_path)
    assert refused.value.code == "JAR_CHECKSUM"
    assert "delete the file" in refused.value.hint


def test_many_that_fetch_at_once_all_get_the_whole_file(repository, tmp_path):
    found, cache = [], tmp_path / "cache"

    def fetch():
        found.append(jars.ensure((JAR,), cache)[0].read_bytes() == CONTENT)

    threads = [threading.Thread(target=fetch) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 8
    assert [file.name for file in cache.iterdir()] == [JAR.file_name]


def test_an_unwritable_cache_folder_is_a_clear_error(tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(StreamSqlError) as refused:
        jars.ensure((JAR,), tmp_path / "cache")
    assert refused.value.code == "JAR_UNAVAILABLE"


def test_the_cache_folder_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv("STREAMSQL_CACHE", str(tmp_path))
    assert jars.cache_folder() == tmp_path


def test_the_clients_of_aws_are_those_of_icebergs_version():
    assert jars.connector_jars("gcs", jars.PROVIDED) == ()
    for name in ("s3", "glue"):
        found = {jar.artifact: jar.version for jar in jars.connector_jars(name, "1.11.0")}
        assert found["iceberg-aws-bundle"] == "1.11.0"
        assert jars.connector_jars(name, jars.PROVIDED) == ()
    both = jars.wanted(("s3", "glue"))
    assert len([jar for jar in both if jar.artifact == "iceberg-aws-bundle"]) == 1


def test_a_connector_without_a_jar_for_the_spark_that_is_found_is_refused(monkeypatch):
    monkeypatch.setattr(jars, "spark_version", lambda: "4.9")
    with pytest.raises(StreamSqlError, match="`kafka` for this Spark") as refused:
        jars.wanted(("kafka", "postgres"), iceberg=jars.PROVIDED)
    assert refused.value.code == "CONFIG_INVALID"
    found = jars.wanted(("postgres", "s3"), iceberg=jars.PROVIDED)
    assert [jar.artifact for jar in found][-1] == "postgresql"


PINNED = [
    *jars.embedded_jars(),
    *(jar for tested in pinned.ICEBERG.values() for each in tested for jar in each.aws),
    *(each.runtime for tested in pinned.ICEBERG.values() for each in tested),
    *(jar for name in jars.CONNECTORS for jar in jars.connector_jars(name)),
    *(
        jar
        for each in (pinned.AVRO, pinned.KAFKA, pinned.DELTA)
        for of in each.values()
        for jar in of
    ),
    *(jar for each in (pinned.NATIVE, pinned.HADOOP_AWS) for jar in each.values()),
]


@pytest.mark.parametrize("jar", PINNED, ids=lambda jar: jar.artifact)
def test_every_pinned_jar_has_a_full_checksum(jar):
    assert len(bytes.fromhex(jar.sha256)) == 32
