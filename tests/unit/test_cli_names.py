"""The names of the commands."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from dbt_streamsql.cli import FORMER, main


def _told(*words):
    done = CliRunner().invoke(main, [*words, "--help"])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(("former", "now"), [("serve", ("meta", "serve")), ("server", ("spark",))])
def test_a_former_name_still_works_and_help_does_not_list_it(former, now):
    assert _told(former).splitlines()[1:] == _told(*now).splitlines()[1:]
    assert former in FORMER
    listed = [line.split()[0] for line in _told().splitlines() if line.startswith("  ")]
    assert {former, *now} & set(listed) == {now[0]}
