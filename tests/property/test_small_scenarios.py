"""Small scenarios of the runtime's parts: every view equals its query and is never refreshed in full."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.property.playing import WAYS, play
from tests.property.small_scenarios import SMALL
from tests.support.product import home

pytestmark = pytest.mark.hunts


@pytest.mark.parametrize("name", SMALL)
def test_every_view_of_a_small_scenario_equals_its_query(engine, name, monkeypatch):
    way, chosen = SMALL[name]
    changed, small = WAYS[way]
    monkeypatch.setattr(home("DRIVER_ROWS"), "DRIVER_ROWS", changed)
    monkeypatch.setattr(home("SMALL_TABLE"), "SMALL_TABLE", small)
    modes = Counter()
    play(engine, chosen, modes)
    # Where stored rows are not what they should be, a full refresh would hide it.
    assert not modes["full"], modes
