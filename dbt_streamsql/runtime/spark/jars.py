"""The jars that the embedded session needs: pinned by SHA-256, fetched once, kept in one folder.

Jars come directly from Maven Central over HTTPS (`STREAMSQL_MAVEN_REPOSITORY` names a mirror). A
jar is downloaded to a temporary name, checked, and renamed: another process sees all of it or
nothing. Once a jar is in the cache, the network is no longer needed.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from dbt_streamsql.cache import cache_folder
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.runtime.spark import pinned_jars as pinned
from dbt_streamsql.runtime.spark.pinned_jars import Iceberg, Jar

MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
TIMEOUT_SECONDS = 60
_CHUNK = 1 << 20


PROVIDED = "provided"
"""A platform's own Iceberg is used: none is put on the class path."""

CONNECTORS = ("avro", "delta", "gcs", "glue", "kafka", "postgres", "s3")
"""What a profile names in `connectors`: parts of Spark and of Iceberg that are not in its Python
package, and the driver of a catalog in PostgreSQL."""


def spark_version() -> str:
    """The minor version of the Spark that is installed, such as 4.1."""
    return ".".join(metadata.version("pyspark").split(".")[:2])


def chosen(iceberg: str = "") -> Iceberg | None:
    """A version of Iceberg for the Spark that is found; None for PROVIDED.

    `iceberg`: a version, PROVIDED, or '' for that of `STREAMSQL_ICEBERG`, or else the default one.
    Error: CONFIG_INVALID when no tested runtime has that version, or fits the Spark that is found.
    """
    asked = iceberg or os.environ.get("STREAMSQL_ICEBERG", "")
    if asked == PROVIDED:
        return None
    found = pinned.ICEBERG.get(spark_version(), ())
    fitting = [each for each in found if asked in ("", each.version)]
    if not fitting:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "there is no tested runtime of Iceberg for this Spark",
            given=f"Spark {spark_version()}" + (f", `iceberg`: {asked}" if asked else ""),
            allowed="; ".join(
                f"Spark {spark}: {', '.join(each.version for each in tested)}"
                for spark, tested in pinned.ICEBERG.items()
            ),
            hint=f"with `iceberg: {PROVIDED}`, the one on Spark's own class path is used",
        )
    return fitting[0]


def embedded_jars(iceberg: str = "") -> tuple[Jar, ...]:
    """What `method: embedded` puts on the class path. `iceberg` and errors: see `chosen`."""
    version = chosen(iceberg)
    return (*([version.runtime] if version else []), pinned.SQLITE, pinned.LOCAL_FILES)


def wanted(
    connectors: Iterable[str], *, native: bool = False, iceberg: str = ""
) -> tuple[Jar, ...]:
    """The jars of an embedded session with these connectors, each once."""
    ours = embedded_jars(iceberg)
    if native:
        ours += (pinned.NATIVE[spark_version()],)
    for name in sorted(set(connectors)):
        ours += connector_jars(name, iceberg)
    return tuple(dict.fromkeys(ours))


def connector_jars(name: str, iceberg: str = "") -> tuple[Jar, ...]:
    """The jars of one of CONNECTORS; of Iceberg's clients none, where its runtime is PROVIDED."""
    spark = spark_version()
    if name in ("s3", "glue", "gcs"):
        version = chosen(iceberg)
        if version is None:
            return ()
        return (pinned.GCP,) if name == "gcs" else (*version.aws, pinned.HADOOP_AWS[spark])
    if name == "postgres":
        return (pinned.POSTGRES,)
    found = {"avro": pinned.AVRO, "delta": pinned.DELTA, "kafka": pinned.KAFKA}[name].get(spark)
    if found is None:
        raise StreamSqlError(
            "CONFIG_INVALID",
            f"there is no tested jar of the connector `{name}` for this Spark",
            given=f"Spark {spark}",
            allowed=f"Spark {', '.join(pinned.KAFKA)}",
            hint="put it on Spark's class path, and leave it out of `connectors`",
        )
    return found


def ensure(jars: Iterable[Jar], folder: Path | None = None) -> list[Path]:
    """Return the files of `jars`, fetching those that the cache folder lacks.

    Errors: JAR_UNAVAILABLE (neither cached nor available), JAR_CHECKSUM (not the pinned file).
    """
    target = folder or cache_folder() / "jars"
    return [_ensure_one(jar, target) for jar in jars]


def _ensure_one(jar: Jar, folder: Path) -> Path:
    file = folder / jar.file_name
    if file.is_file():
        found = _sha256(file)
        if found == jar.sha256:
            return file
        raise StreamSqlError(
            "JAR_CHECKSUM",
            f"the cached jar {jar.coordinate} does not match its pinned checksum",
            given=f"{file}: {found}",
            allowed=jar.sha256,
            hint="delete the file; it will be fetched again",
        )
    repository = os.environ.get("STREAMSQL_MAVEN_REPOSITORY") or MAVEN_CENTRAL
    url = f"{repository.rstrip('/')}/{jar.path}"
    temporary: Path | None = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{jar.file_name}.", dir=folder)
        temporary = Path(name)
        started = time.monotonic()
        _say(f"fetching {jar.coordinate} from {repository} into {folder} (once)")
        with os.fdopen(descriptor, "wb") as out:
            found = _download(url, out)
        if found != jar.sha256:
            raise StreamSqlError(
                "JAR_CHECKSUM",
                f"the repository sent a file that does not match the pinned {jar.coordinate}",
                given=f"{url}: {found}",
                allowed=jar.sha256,
                hint="check the proxy or `STREAMSQL_MAVEN_REPOSITORY`; the file was discarded",
            )
        temporary.chmod(0o644)
        temporary.replace(file)
        _say(f"fetched {jar.file_name} in {time.monotonic() - started:.0f} s")
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise StreamSqlError(
            "JAR_UNAVAILABLE",
            f"the jar {jar.coordinate} is not in the cache and cannot be fetched",
            given=f"{url}: {error}",
            hint=f"connect to the network once, set STREAMSQL_MAVEN_REPOSITORY to a mirror, "
            f"or put the file {jar.file_name} into {folder}",
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    return file


def _download(url: str, out: object) -> str:
    digest = hashlib.sha256()
    # Only a mirror that the user names may use something other than HTTPS.
    with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
        while chunk := response.read(_CHUNK):
            digest.update(chunk)
            out.write(chunk)  # type: ignore[attr-defined]
    return digest.hexdigest()


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _say(text: str) -> None:
    # stderr: standard output belongs to dbt's log and to scripts that read it.
    print(f"dbt-streamsql: {text}", file=sys.stderr, flush=True)
