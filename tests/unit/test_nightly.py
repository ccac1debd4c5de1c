"""The campaigns of a night, started by make."""

from __future__ import annotations

import subprocess

from tests import nightly

MAKEFILE = """
asked:
	@printf '%s' "$(ARGS)"
"""


def test_a_campaign_that_is_a_make_does_not_take_what_the_night_was_asked(tmp_path, monkeypatch):
    (tmp_path / "Makefile").write_text(MAKEFILE)
    said = subprocess.check_output(  # what make hands on to its commands
        ["make", "-f", "-", "env", "ARGS=--only chaos"],  # noqa: S607
        input="env:\n\t@env\n",
        text=True,
    )
    handed = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    for name in ("ARGS", "MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
        monkeypatch.setenv(name, handed[name])
    monkeypatch.setattr(nightly, "LOGS", tmp_path)
    command = f"make -s -C {tmp_path} asked"
    assert subprocess.check_output(["bash", "-c", command])  # noqa: S607
    assert nightly.run(nightly.Campaign("asked", command, 0)) == 0
    assert (tmp_path / "asked.log").read_text() == ""
