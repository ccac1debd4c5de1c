"""dbt reads the adapter's version from a file of this name."""

from dbt_streamsql.__version__ import version as version
