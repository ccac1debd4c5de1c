"""The jars of Maven Central that sessions use, pinned by SHA-256, by the versions they fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


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


class Iceberg(NamedTuple):
    """A version of Iceberg for one Spark: its runtime, and the AWS clients that belong to it."""

    runtime: Jar
    aws: tuple[Jar, ...]

    @property
    def version(self) -> str:
        return self.runtime.version


def _sdk(artifact: str, version: str, sha256: str) -> Jar:
    return Jar("software.amazon.awssdk", artifact, version, sha256)


def _bundle(version: str, sha256: str) -> Jar:
    return Jar("org.apache.iceberg", "iceberg-aws-bundle", version, sha256)


_AWS = {
    "1.12.0": (
        _bundle("1.12.0", "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957"),
        _sdk(
            *("s3-transfer-manager", "2.54.17"),
            "7bef0ea4efd5e0860bab63e08317040951edb51b72a5be734284c28b8324ab87",
        ),
        _sdk(
            *("apache-client", "2.54.17"),
            "0b00ae3d55c3d1213ca47b5651dc4c2a0080fc9b6192dde3d53c3da6c1811bcb",
        ),
    ),
    "1.11.0": (
        _bundle("1.11.0", "38f01da7e96850cdd05e6616d758b77b43314b712a8808e3f9a824d56976162f"),
        _sdk(
            *("s3-transfer-manager", "2.44.4"),
            "dbcad736b19f6eb8471f9edf027d9fffe994228f25f415894efd01fd80cb6c02",
        ),
    ),
    "1.10.1": (
        _bundle("1.10.1", "86bf20892ea5b4c17688f19b075399885f6aa5303f6b2dc9f491e76ceef9633b"),
        _sdk(
            *("s3-transfer-manager", "2.33.0"),
            "bebdf9c498828b8b07117887bf5fb9caa380a67f8406fa7598469e9b5c54cc43",
        ),
    ),
}
"""Iceberg's bundle, and what Hadoop's clients want of the same SDK in addition."""


GCP = Jar(
    "org.apache.iceberg",
    "iceberg-gcp-bundle",
    "1.11.0",
    "d9248fc76d94d232e153bf760631229cd3b7c6bc3b20f47d4b2caffe011a8a2f",
)
"""Google's clients; those of 1.11 are the newest that are published, and do for 1.12."""


def _iceberg(spark: str, version: str, sha256: str) -> Iceberg:
    name = f"iceberg-spark-runtime-{spark}_2.13"
    return Iceberg(Jar("org.apache.iceberg", name, version, sha256), _AWS[version])


NOT_OVER_SQLITE = frozenset({"1.10.1"})
"""Versions whose JDBC catalog leaves a read of its first look open. SQLite then shows it an old
state for ever (github.com/apache/iceberg/issues/15462)."""

ICEBERG: Mapping[str, tuple[Iceberg, ...]] = {
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
    "4.0": (
        _iceberg(
            *("4.0", "1.11.0"),
            "63c3b812549dc232c1920865ff42436df8604a9bbacd693930985c06bd97e6dc",
        ),
        _iceberg(
            *("4.0", "1.10.1"),
            "2192a0881ed0f5773b5a83a8820d2b0b2069beec203028643a1c338551007f09",
        ),
    ),
}
"""What is tested with a minor version of Spark, the default one first."""

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

HADOOP_AWS = {
    spark: Jar("org.apache.hadoop", "hadoop-aws", version, sha256)
    for spark, version, sha256 in (
        ("4.1", "3.4.2", "d2d24e6b715b5656b9d238bf13b6682a07e2004dd36aad74a73aeb854319f4d9"),
        ("4.0", "3.4.1", "01334a07e179cae2b7e251f24857f11e3759108c9d6a79dcbe362a4295227da2"),
    )
}
"""Hadoop's S3 file system, of the Hadoop in that Spark: for `s3a://`."""

_DELTA_STORAGE = Jar(
    "io.delta",
    "delta-storage",
    "4.4.0",
    "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
)
DELTA: Mapping[str, tuple[Jar, ...]] = {
    spark: (Jar("io.delta", f"delta-spark_{spark}_2.13", "4.4.0", sha256), _DELTA_STORAGE)
    for spark, sha256 in (
        ("4.1", "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10"),
        ("4.0", "49e899667168b9412f83cbe894ce264107d7b896d6c5e12edca4e216845c1104"),
    )
}
"""Delta tables, by the minor version of Spark."""

NATIVE = {
    "4.1": Jar(
        "org.apache.datafusion",
        "comet-spark-spark4.1_2.13",
        "1.2.0",
        "5055c43dca9e8cce83c33b1ff25646d1436c94698ca48beb3475bf60843b8d37",
    ),
}
"""What `native: true` puts on the class path."""


def _of_spark(artifact: str, version: str, sha256: str) -> Jar:
    return Jar("org.apache.spark", f"{artifact}_2.13", version, sha256)


_Jars = Mapping[str, tuple[Jar, ...]]


AVRO: _Jars = {
    "4.1": (
        _of_spark(
            *("spark-avro", "4.1.1"),
            "6a19d90bc3b6e88d8db0fa36a19273aa10fea2dbd7a62bb60e4cedd73051b32d",
        ),
    ),
    "4.0": (
        _of_spark(
            *("spark-avro", "4.0.2"),
            "fd102b6c6754f72f53a01ac882f0da2b1a6f9f02127647ac3e1f0ca951d4433b",
        ),
    ),
}
"""A module of Spark fits all of a minor version."""
_POOL = Jar(
    "org.apache.commons",
    "commons-pool2",
    "2.12.1",
    "5273c8bc8c0dca2211175c0d27efbd7228efae99689aac001a8e1ef8e872e9ef",
)
KAFKA: _Jars = {
    "4.1": (
        _of_spark(
            *("spark-sql-kafka-0-10", "4.1.1"),
            "9c1ce986f548e6b1dcb0e2dfe2f253a0bc58f2232a32a0c9c6c674dd25a8570c",
        ),
        _of_spark(
            *("spark-token-provider-kafka-0-10", "4.1.1"),
            "e510adc37b03d01d0a190d0dab472b5538e05eaa77454f7e9477156d7a6820ae",
        ),
        Jar(
            *("org.apache.kafka", "kafka-clients", "3.9.1"),
            "7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9",
        ),
        _POOL,
    ),
    "4.0": (
        _of_spark(
            *("spark-sql-kafka-0-10", "4.0.0"),
            "33a3b8b04df4a2e43c9d5bf8ca5972936a1ac662f2714e014d00ef6f27468bf3",
        ),
        _of_spark(
            *("spark-token-provider-kafka-0-10", "4.0.0"),
            "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
        ),
        Jar(
            *("org.apache.kafka", "kafka-clients", "3.9.0"),
            "15c1e137f2c2c94398e27abc4060a03b6bde10bf9fac15e8f70c02320b202f18",
        ),
        _POOL,
    ),
}
POSTGRES = Jar(
    "org.postgresql",
    "postgresql",
    "42.7.8",
    "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7",
)
