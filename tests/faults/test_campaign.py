"""A campaign of faults can be gone on with."""

from __future__ import annotations

import json

from tests.faults import chaos
from tests.faults.fault_campaign import Met, draw


def test_what_its_file_tells_is_counted_and_not_met_again(tmp_path, capsys, monkeypatch):
    fine, broken, impossible = (str(fault) for fault in draw(7, 3))
    file = tmp_path / "met.jsonl"
    found = [Met(fine, "before x"), Met(broken, broken="it failed"), Met(impossible, skipped="no")]
    file.write_text("".join(json.dumps(vars(met)) + "\n" for met in found))
    before = file.read_text()
    monkeypatch.setattr("sys.argv", ["chaos", "--faults=3", "--seed=7", f"--file={file}"])
    assert chaos.main() == 1
    said = capsys.readouterr().out
    assert "failures: 1" in said
    assert file.read_text() == before
