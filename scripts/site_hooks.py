"""Hooks of mkdocs: the pages at the root of the repository belong to the site too.

`README.md` becomes `overview.md`, and so on, and links between them and docs/ are kept. A link to
what is no page becomes its text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": "overview.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "SECURITY.md": "security.md",
}
_LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)\s#]+)")
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(outside:[^)]*\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root, with links as from within docs/."""
    from mkdocs.structure.files import File

    for name, page in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """The text of a page, with links that hold on the site."""
    source = page.file.src_uri
    at_root = next((name for name, own in PAGES.items() if own == source), None)
    folder = ROOT if at_root else (ROOT / "docs" / source).parent
    depth = source.count("/")

    def moved(found: re.Match[str]) -> str:
        target = (folder / found[1]).resolve()
        for name, own in PAGES.items():
            if target == ROOT / name:
                return "../" * depth + own
        docs = ROOT / "docs"
        if target.is_relative_to(docs):
            if target == docs:
                return "../" * depth + "README.md"
            if target.is_dir() or target.suffix == ".json":
                return f"outside:{found[1]}"
            return "../" * depth + target.relative_to(docs).as_posix()
        return f"outside:{found[1]}"

    return _OUTSIDE.sub(r"\1", _LINK.sub(moved, markdown))
