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
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from dbt_streamsql.cache import cache_folder
from dbt_streamsql.errors import StreamSqlError

MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
TIMEOUT_SECONDS = 60
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Jar:
    """One artifact by Maven coordinates and the SHA-256 (hex) of its file."""

    group: str
    artifact: str
    version: str
    sha256: str
    classifier: str = ""

    @property
    def coordinate(self) -> str:
        return ":".join(filter(None, (self.group, self.artifact, self.version, self.classifier)))

    @property
    def file_name(self) -> str:
        return "-".join(filter(None, (self.artifact, self.version, self.classifier))) + ".jar"

    @property
    def path(self) -> str:
        """Path below the root of a Maven repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"


def _iceberg(spark: str, version: str, sha256: str) -> Jar:
    return Jar("org.apache.iceberg", f"iceberg-spark-runtime-{spark}_2.13", version, sha256)


ICEBERG = {
    "4.1": (
        _iceberg(
            *("4.1", "1.12.0"),
            "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
        ),
        _iceberg(
            *("4.1", "1.11.0"),
            "d6ea6c5d099288daeb7d5a92061bd3d7d8f296492632b42378e5f2f0e3066242",
        ),
    ),
}
"""The runtimes of Iceberg for a minor version of Spark that are tested, the default one first."""
PROVIDED = "provided"
"""A platform's own Iceberg is used: none is put on the class path."""
SQLITE = Jar(
    "org.xerial",
    "sqlite-jdbc",
    "3.50.3.0",
    "a3f53a2aa15ae9425a9e793bbe9c8e5288febeb4b65ef5c1a4e80d4c2045cf08",
)
LOCAL_FILES = Jar(
    "com.globalmentor",
    "hadoop-bare-naked-local-fs",
    "0.1.0",
    "e0cc30fb0531eb0b59468dc0abf5b257533d2365b5e9f45e795edd707aa78c62",
)
"""Hadoop's local file system without its shell: the original starts a `chmod` process for every
file, which is most of what a small commit costs."""
DELTA = (
    Jar(
        "io.delta",
        "delta-spark_4.1_2.13",
        "4.4.0",
        "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10",
    ),
    Jar(
        "io.delta",
        "delta-storage",
        "4.4.0",
        "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    ),
)
"""What a profile needs for Delta tables, in addition to its settings."""

NATIVE = (
    Jar(
        "org.apache.datafusion",
        "comet-spark-spark4.1_2.13",
        "1.2.0",
        "5055c43dca9e8cce83c33b1ff25646d1436c94698ca48beb3475bf60843b8d37",
    ),
)
"""What `native: true` puts on the class path."""

CONNECTORS = {
    "avro": (
        Jar(
            "org.apache.spark",
            "spark-avro_2.13",
            "4.1.1",
            "6a19d90bc3b6e88d8db0fa36a19273aa10fea2dbd7a62bb60e4cedd73051b32d",
        ),
    ),
    "kafka": (
        Jar(
            "org.apache.spark",
            "spark-sql-kafka-0-10_2.13",
            "4.1.1",
            "9c1ce986f548e6b1dcb0e2dfe2f253a0bc58f2232a32a0c9c6c674dd25a8570c",
        ),
        Jar(
            "org.apache.spark",
            "spark-token-provider-kafka-0-10_2.13",
            "4.1.1",
            "e510adc37b03d01d0a190d0dab472b5538e05eaa77454f7e9477156d7a6820ae",
        ),
        Jar(
            "org.apache.kafka",
            "kafka-clients",
            "3.9.1",
            "7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9",
        ),
        Jar(
            "org.apache.commons",
            "commons-pool2",
            "2.12.1",
            "5273c8bc8c0dca2211175c0d27efbd7228efae99689aac001a8e1ef8e872e9ef",
        ),
    ),
    "postgres": (
        Jar(
            "org.postgresql",
            "postgresql",
            "42.7.8",
            "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7",
        ),
    ),
}
"""What a profile names in `connectors`: parts of Spark that are not in its Python package, and the
driver of a catalog in PostgreSQL. A jar of a minor version of Spark fits all of that version."""


def spark_version() -> str:
    """The minor version of the Spark that is installed, such as 4.1."""
    return ".".join(metadata.version("pyspark").split(".")[:2])


def embedded_jars(iceberg: str = "") -> tuple[Jar, ...]:
    """What `method: embedded` puts on the class path. `iceberg`: a version of it, PROVIDED, or
    '' for that of `STREAMSQL_ICEBERG`, or else the default one.

    Error: CONFIG_INVALID when no tested runtime has that version, or fits the Spark that is found.
    """
    asked = iceberg or os.environ.get("STREAMSQL_ICEBERG", "")
    if asked == PROVIDED:
        return (SQLITE, LOCAL_FILES)
    found = ICEBERG.get(spark_version(), ())
    fitting = [jar for jar in found if asked in ("", jar.version)]
    if not fitting:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "there is no tested runtime of Iceberg for this Spark",
            given=f"Spark {spark_version()}" + (f", `iceberg`: {asked}" if asked else ""),
            allowed="; ".join(
                f"Spark {spark}: {', '.join(jar.version for jar in jars)}"
                for spark, jars in ICEBERG.items()
            ),
            hint=f"with `iceberg: {PROVIDED}`, the one on Spark's own class path is used",
        )
    return (fitting[0], SQLITE, LOCAL_FILES)


def wanted(
    connectors: Iterable[str], *, native: bool = False, iceberg: str = ""
) -> tuple[Jar, ...]:
    """The jars of an embedded session with these connectors."""
    ours = embedded_jars(iceberg) + (NATIVE if native else ())
    return sum((CONNECTORS[name] for name in sorted(set(connectors))), ours)


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
