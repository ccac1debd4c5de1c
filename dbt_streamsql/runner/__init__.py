"""The runner that never stops: one epoch after another over a project's registered models."""
