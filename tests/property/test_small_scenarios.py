"""Small scenarios of the runtime's parts: every view equals its query and is never refreshed in full."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.property.playing import WAYS, play
from tests.property.small_scenarios import SMALL
from tests.support.tuning import tuned

pytestmark = pytest.mark.hunts


@pytest.mark.parametrize("name", SMALL)
def test_every_view_of_a_small_scenario_equals_its_query(engine, name):
    way, chosen = SMALL[name]
    modes = Counter()
    with tuned(engine, **WAYS[way]):
        play(engine, chosen, modes)
    # Where stored rows are not what they should be, a full refresh would hide it.
    assert not modes["full"], modes
