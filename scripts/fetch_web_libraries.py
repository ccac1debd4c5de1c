"""Fetch the JavaScript libraries again that are kept in this repository, at their pinned versions.

`python scripts/fetch_web_libraries.py` needs npm. dagre (layout of the topology) is part of the
package, axe-core (rules of accessibility) of the tests. The checksums are npm's own.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Library:
    """`files` are paths inside the package, with the name that they have here."""

    package: str
    sha512: str
    folder: Path
    files: dict[str, str]


LIBRARIES = (
    Library(
        "@dagrejs/dagre@3.1.3",
        "X4aUTwOReZvthaZWOVHqlJ52/ZdhZFEM4+Lh/uR4XooUSLE6p71bcy7MPGzYnNUcNh+nj+i/qJQpCMIdQnSmrg==",
        ROOT / "dbt_streamsql" / "web" / "static" / "vendor",
        {"dist/dagre.esm.js": "dagre.js", "LICENSE": "dagre.LICENSE.txt"},
    ),
    Library(
        "axe-core@4.14.1",
        "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
        ROOT / "tests" / "web" / "vendor",
        {"axe.min.js": "axe.min.js", "LICENSE": "axe.LICENSE.txt"},
    ),
)


def fetch(library: Library) -> None:
    """Write the files of one library; fails when its checksum is another one."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", library.package]
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
        archive = Path(folder) / done.stdout.split()[-1]
        found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if found != library.sha512:
            raise SystemExit(f"{library.package}: sha512 {found}, not {library.sha512}")
        library.folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as packed:
            for inside, name in library.files.items():
                member = packed.extractfile(f"package/{inside}")
                assert member is not None
                text = member.read().decode()
                # The map is not kept: browsers would ask for it and get nothing.
                kept = [ln for ln in text.split("\n") if not ln.startswith("//# sourceMapping")]
                (library.folder / name).write_text("\n".join(kept), encoding="utf-8")
    print(f"{library.package} -> {library.folder.relative_to(ROOT)}")


if __name__ == "__main__":
    for each in LIBRARIES:
        fetch(each)
