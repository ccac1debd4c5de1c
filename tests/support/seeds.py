"""A test with a seed, played for many seeds as one test."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st


def for_many_seeds(test: Callable[[int], None]) -> Callable[[], None]:
    """The test with 200 seeds, each time the same ones."""
    played = given(seed=st.integers(0, 2**32))(test)
    return settings(max_examples=200, deadline=None, derandomize=True)(played)
