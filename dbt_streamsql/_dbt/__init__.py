"""The module that dbt imports for `type: streamsql`; everything lives in `dbt_streamsql`."""

from dbt_streamsql.adapter import Plugin as Plugin
