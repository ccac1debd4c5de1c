"""Iceberg: what a table's history says, what changed between two snapshots, and staged publishing."""
