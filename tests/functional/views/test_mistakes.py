"""What a user reads after a mistake: the model, the place, the cause and what to do, and no Java."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

pytestmark = pytest.mark.spark

ORDERS = "{{ ref('orders') }}"


@dataclass(frozen=True)
class Mistake:
    """The model's text without its config; `says` and `line` are in the message ('' and 0: not)."""

    text: str
    says: str
    line: int = 0
    config: str = "materialized='table'"


MISTAKES = {
    "syntax": Mistake(f"select id\nform {ORDERS} whre x", "PARSE_SYNTAX_ERROR", 3),
    "two_statements": Mistake("select 1 as id; select 2 as id", "PARSE_SYNTAX_ERROR", 2),
    "column": Mistake(f"select id,\n  citi\nfrom {ORDERS}", "`citi` cannot be resolved", 3),
    "table_name": Mistake("select *\nfrom lake.shop.nowhere", "`nowhere` cannot be found", 3),
    "schema_name": Mistake("select *\nfrom lake.nowhere.t", "`nowhere`.`t` cannot be found", 3),
    "types": Mistake(f"select id + array(1) as n from {ORDERS}", "DATATYPE_MISMATCH", 2),
    "cast_text": Mistake(
        f"select id,\n cast(city as int) n from {ORDERS}", "CAST_INVALID_INPUT", 3
    ),
    "division": Mistake(f"select id,\n\n 10 / amount as n from {ORDERS}", "DIVIDE_BY_ZERO", 4),
    "overflow": Mistake(f"select cast(id + 127 as tinyint) as n from {ORDERS}", "OVERFLOW"),
    "function": Mistake(f"select nofunc(id) as n from {ORDERS}", "`nofunc`", 2),
    "date": Mistake("select date '2024-13-01' as d", "INVALID_TYPED_LITERAL", 2),
    "grouping": Mistake(f"select city, amount from {ORDERS} group by city", "MISSING_AGGREGATION"),
    "unions": Mistake(f"select 1 as a union all select id, city from {ORDERS}", "NUM_COLUMNS", 2),
    "twice": Mistake(f"select id, id from {ORDERS}", "`id` already exists"),
    "array_index": Mistake("select array(1)[7] as x", "INVALID_ARRAY_INDEX", 2),
    "scalar": Mistake(f"select (select id from {ORDERS}) as x", "SCALAR_SUBQUERY", 2),
    "property": Mistake("select 1 as id", "v9", 0, "tblproperties={'format-version': '9'}"),
    "partition": Mistake("select 1 as id", "column nope", 0, "partition_by='nope'"),
    "file_format": Mistake("select 1 as id", "nosuch", 0, "file_format='nosuch'"),
    "hook": Mistake("select 1 as id", "selec 1", 0, "pre_hook='selec 1'"),
    "strategy": Mistake(
        "select 1 as id", "upsert", 0, "materialized='incremental', incremental_strategy='upsert'"
    ),
    "contract": Mistake("select 1 as id", "data type mismatch", 0, "contract={'enforced': true}"),
    "contract_name": Mistake(
        "select 1 as id,\n  nope as n",
        "`nope` cannot be resolved",
        3,
        "contract={'enforced': true}",
    ),
    "contract_cast": Mistake(
        "select 1 as id,\n  cast('x' as int) as n",
        "CAST_INVALID_INPUT",
        3,
        "contract={'enforced': true}",
    ),
    "a_view": Mistake(f"select id,\n nope from {ORDERS}", "`nope`", 3, "materialized='view'"),
}
VIEWS = {
    "mv_syntax": Mistake(f"select id\nform {ORDERS} whre x", "SQL_UNSUPPORTED", 3),
    "mv_column": Mistake(f"select id,\n  citi\nfrom {ORDERS}", "SQL_INVALID", 3),
    "mv_types": Mistake(f"select id + array(1) as n from {ORDERS}", "SQL_INVALID", 2),
    "mv_function": Mistake(f"select nofunc(id) as n from {ORDERS}", "SQL_INVALID", 2),
    "mv_table": Mistake("select * from lake.shop.nowhere", "TABLE_MISSING"),
    "mv_division": Mistake(f"select id,\n 10 / amount as n from {ORDERS}", "DIVIDE_BY_ZERO", 3),
    "mv_strict": Mistake(
        f"select id,\n uuid() as n from {ORDERS}",
        "INCREMENTAL_IMPOSSIBLE",
        3,
        "refresh_mode='incremental_strict'",
    ),
    "mv_keys": Mistake("select 1 as id", "CONFIG_INVALID", 0, "refresh_mode='fast', colour=1"),
}
PYTHON = {
    "py_raise": ("raise ValueError('no good')", "ValueError: no good", 4),
    "py_column": ("frame = frame.select('nope')", "`nope`", 4),
    "py_result": ("frame = 3", "must return a DataFrame", 0),
    "py_function": (
        "frame = frame.select(udf(lambda x: 1 // 0, 'int')('id').alias('n'))",
        "ZeroDivisionError",
        4,
    ),
}
PYTHON_MODEL = """\
from pyspark.sql.functions import udf
def model(dbt, session):
    frame = [dbt.config(materialized='table'), dbt.ref('orders')][1]
    %s
    return frame
"""
CONTRACT = """
models:
  - {name: contract, columns: [{name: id, data_type: string}]}
  - {name: contract_name, columns: [{name: id, data_type: int}, {name: n, data_type: int}]}
  - {name: contract_cast, columns: [{name: id, data_type: int}, {name: n, data_type: int}]}
"""


def _readable(name: str, message: str, says: str, line: int) -> None:
    assert says in message, message
    assert name in message.splitlines()[0], message
    if line:
        assert re.search(rf"\bline {line}\b", message), message
    # dbt's own errors list the macros that they came through.
    own = [part for part in message.splitlines() if not re.match(r"\s+> (in|called by) ", part)]
    assert len("\n".join(own)) < 1000, message
    assert len(own) <= 12, message
    for sign in ("py4j", "stacktrace", "\tat ", "at org.", "o.a.s", "Traceback", "java."):
        assert sign not in message, message
    # These are dbt's own words, and say what is allowed.
    if "Compilation Error" not in message and "dbt could not find" not in message:
        assert "  do: " in message or "allowed: " in message, message


def test_every_mistake_is_told_shortly_with_its_place(project):
    project.write("seeds/orders.csv", "id,city,amount\n1,a,10\n2,b,0\n")
    project.write("seeds/bad_cell.csv", "id\nx\n")
    project.write("seeds/s.yml", "seeds: [{name: bad_cell, config: {column_types: {id: int}}}]")
    project.write("models/contract.yml", CONTRACT)
    view = "materialized='materialized_view'"
    for name, mistake in {**MISTAKES, **VIEWS}.items():
        config = f"{view}, {mistake.config}" if name in VIEWS else mistake.config
        config = config.replace(f"{view}, materialized='table'", view)
        if "materialized" not in config:
            config = f"materialized='table', {config}"
        project.write(f"models/{name}.sql", f"{{{{ config({config}) }}}}\n{mistake.text}")
    for name, (text, _, _) in PYTHON.items():
        project.write(f"models/{name}.py", PYTHON_MODEL % text)
    done = project.dbt("build")
    expected = {name: (m.says, m.line) for name, m in {**MISTAKES, **VIEWS}.items()}
    expected |= {name: (says, line) for name, (_, says, line) in PYTHON.items()}
    expected["bad_cell"] = ("CAST_INVALID_INPUT", 0)
    for name, (says, line) in expected.items():
        assert done.statuses[name] == "error", name
        _readable(name, done.messages[name], says, line)
    assert project.tables() == {"orders"}
    log = (project.root / "logs" / "dbt.log").read_text()
    assert "\tat org.apache.spark" in log


def test_what_a_failed_seed_or_python_model_named_for_a_while_is_gone(project):
    project.profile({"schema": "shop", "threads": 1, "warehouse": str(project.root / "warehouse")})
    project.write("seeds/bad_cell.csv", "id\nx\n")
    project.write("seeds/s.yml", "seeds: [{name: bad_cell, config: {column_types: {id: int}}}]")
    model = "def model(dbt, s):\n    dbt.config(partition_by='nope')\n    return s.range(1)\n"
    project.write("models/py.py", model)
    assert not project.dbt("build").ok
    for session in [project.host.acquire() for _ in range(8)]:
        assert session.sql("SHOW VIEWS IN lake.shop").collect() == []


@pytest.mark.parametrize("where", ["a file stands there", "nobody may write"])
def test_a_warehouse_that_cannot_be_written_is_named(project, where):
    warehouse = project.root / "file"
    if where == "nobody may write":
        # Not even root makes a folder there.
        warehouse = "/proc/warehouse"
    else:
        warehouse.write_text("")
    project.profile({"schema": "shop", "warehouse": str(warehouse)})
    project.write("models/m.sql", "select 1 as id")
    done = project.dbt("run")
    assert not done.ok
    told = done.error or done.text
    assert str(warehouse) in told
    assert "do: " in told
    assert "stacktrace" not in told


def test_a_full_disk_is_named_and_leaves_the_old_table(project, small_disk):
    project.profile({"schema": "shop", "allowed_roots": [str(small_disk)]})
    model = "{{ config(materialized='table', location_root='%s') }} "
    query = "select id, uuid() as note from range(%d)"
    project.write("models/m.sql", (model % small_disk) + query % 10)
    assert project.dbt("run").ok
    project.write("models/m.sql", (model % small_disk) + query % 400_000)
    done = project.dbt("run")
    assert not done.ok
    _readable("m", done.messages["m"], "No space left on device", 0)
    assert project.sql("SELECT count(*) FROM lake.shop.m") == [(10,)]
