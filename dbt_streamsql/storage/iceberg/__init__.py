"""Iceberg: a table's history, what changed between two snapshots, and staged publishing."""
