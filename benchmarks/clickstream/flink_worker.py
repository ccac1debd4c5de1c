"""Flink's side of the clickstream benchmark: one job that keeps all twelve queries.

Runs in Flink's own environment, where nothing of this project is: `systems.py` starts it with the
name of a JSON file, reads `RUNNING` from it, and closes its standard input to end the job.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableDescriptor, TableEnvironment

RUNNING = "RUNNING"


def main() -> None:
    """Start the job, wait for the end of the input, or of the job, and cancel it."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    configuration = Configuration()
    for key, value in job["settings"].items():
        configuration.set_string(key, value)
    made = EnvironmentSettings.new_instance().in_streaming_mode()
    tables = TableEnvironment.create(made.with_configuration(configuration).build())
    for statement in job["tables"]:
        tables.execute_sql(statement)
    together = tables.create_statement_set()
    for statement in job["inserts"]:
        together.add_insert_sql(statement)
    for name in job["unread"]:
        hole = TableDescriptor.for_connector("blackhole").build()
        together.add_insert(hole, tables.from_path(name))
    client = together.execute().get_job_client()
    assert client is not None
    closed = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), closed.set()), daemon=True).start()
    told = False
    while not closed.is_set():
        state = client.get_job_status().result().name
        if state in ("FAILED", "FAILING", "CANCELED", "FINISHED"):
            client.get_job_execution_result().result()
            sys.exit(f"the job is {state}")
        if state == "RUNNING" and not told:
            print(RUNNING, flush=True)
            told = True
        time.sleep(0.5)
    client.cancel().result()


if __name__ == "__main__":
    main()
