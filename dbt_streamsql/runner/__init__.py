"""The runner that never stops: one epoch after another over what a project has registered."""
