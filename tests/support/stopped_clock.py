"""Units of dbt's suite stop the clock of the whole process; servers that tests share go on."""

from __future__ import annotations

import freezegun


def spare_event_loops() -> None:
    """A loop in another thread would plan its next turn by the stopped clock, and never wake."""
    freezegun.configure(extend_ignore_list=["asyncio"])
