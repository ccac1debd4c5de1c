"""The locks have what pyproject.toml asks for: `make locks` writes them again."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from scripts.locks import HIGHEST, LOWEST, locked, lower_bound, of_all, of_users, project

LOCKS = pytest.mark.parametrize("lock", [HIGHEST, LOWEST], ids=lambda file: file.stem)


@LOCKS
def test_every_dependency_is_in_both_locks_and_inside_its_range(lock):
    pins = locked(lock)
    outside = {
        str(needed): found
        for needed in of_all(project())
        if not (found := pins.get(canonicalize_name(needed.name), []))
        or not all(needed.specifier.contains(version) for version in found)
    }
    assert outside == {}


def test_the_lowest_lock_has_the_lower_bounds_of_what_users_install():
    pins = locked(LOWEST)
    bounds = {needed.name: Version(lower_bound(needed)) for needed in of_users(project())}
    found = {name: [*map(Version, pins[canonicalize_name(name)])] for name in bounds}
    assert found == {name: [bound] for name, bound in bounds.items()}


@LOCKS
def test_a_lock_has_pins_only_and_names_no_folder_and_no_index(lock):
    lines = lock.read_text().splitlines()
    assert lines[0].startswith("# Written by `make locks`: ")
    pins = [Requirement(line) for line in lines[1:]]
    assert [str(pin) for pin in pins if pin.url or not str(pin.specifier).startswith("==")] == []


def test_make_install_stays_below_the_dbt_core_that_downloads_a_program():
    assert all(Version(found) < Version("1.12") for found in locked(HIGHEST)["dbt-core"])
