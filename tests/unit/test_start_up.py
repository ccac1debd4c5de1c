"""What a dbt command loads before it needs Spark: every command pays for it."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
import dbt_streamsql.adapter
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"pyspark", "pyarrow", "pandas"}))
"""


def test_the_adapter_is_there_before_spark_is():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
