"""Figures of how the package is built: rooms, arrows between them, circles, folders, names.

python scripts/structure.py [folder]     (another checkout's `dbt_streamsql`, to compare)
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = "dbt_streamsql"
WORDS = re.compile(r"\b(anew|told|tells|nobody|somebody|whoever)\b", re.IGNORECASE)
MANY_PARAMETERS, MANY_FILES = 8, 15


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else PACKAGE).resolve()
    modules = {_dotted(root, path): path for path in sorted(root.rglob("*.py"))}
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in modules.items()}
    arrows = {name: set(_imported(name, tree, modules)) for name, tree in trees.items()}
    running = {
        name: set(_imported(name, _without_types(tree), modules)) for name, tree in trees.items()
    }
    packages = {name for name, path in modules.items() if path.stem == "__init__"}
    rooms = _between(running, packages)
    folders = Counter(path.parent.relative_to(root.parent) for path in modules.values())
    stems = Counter(path.stem for path in modules.values() if path.stem[0] != "_")
    texts = [path.read_text(encoding="utf-8") for path in modules.values()]
    figures = {
        "modules": len(modules),
        "rooms (folders)": len({room for pair in rooms for room in pair}),
        "arrows between rooms": len(rooms),
        "levels of rooms": _levels(rooms),
        "import circles of modules": len(list(_circles(running))),
        "the same, with imports for types alone": len(list(_circles(arrows))),
        "import circles of rooms": len(list(_circles(_grouped(rooms)))),
        f"folders of more than {MANY_FILES} files": sum(n > MANY_FILES for n in folders.values()),
        "files of the largest folders": ", ".join(
            f"{folder} {n}" for folder, n in folders.most_common(3)
        ),
        "file names used more than once": sum(n > 1 for n in stems.values()),
        "files of more than 500 lines": sum(text.count("\n") > 500 for text in texts),
        f"functions of {MANY_PARAMETERS} or more parameters": sum(map(_wide, trees.values())),
        "`noqa`": sum(text.count("noqa:") for text in texts),
        "`is_connect(`": sum(len(re.findall(r"(?<!def )is_connect\(", text)) for text in texts),
        "words of the list in strings and comments": sum(map(_words, trees.values(), texts)),
    }
    for what, figure in figures.items():
        print(f"{what:<45} {figure}")
    return 0


def _dotted(root: Path, path: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(name: str, tree: ast.Module, known: Iterable[str]) -> Iterator[str]:
    """The modules of the package that a module imports, also late and for types alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found = full if full in known else str(node.module)
                if found != name:
                    yield found


def _without_types(tree: ast.Module) -> ast.Module:
    """The tree without what only type checkers import; it is changed for that."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    return tree


def _room(module: str, packages: set[str]) -> str:
    """A file at the top is a room of its own."""
    parts = module.split(".")
    inside = module not in packages and len(parts) > 2
    return ".".join(parts[:-1]) if inside else module


def _between(arrows: dict[str, set[str]], packages: set[str]) -> set[tuple[str, str]]:
    pairs = {
        (_room(name, packages), _room(other, packages))
        for name, every in arrows.items()
        for other in every
    }
    return {pair for pair in pairs if pair[0] != pair[1]}


def _grouped(rooms: set[tuple[str, str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for room, other in rooms:
        found.setdefault(room, set()).add(other)
    return found


def _levels(rooms: set[tuple[str, str]]) -> int | str:
    sorter = TopologicalSorter(_grouped(rooms))
    try:
        sorter.prepare()
    except CycleError:
        return "none: rooms import each other"
    levels = 0
    while sorter.is_active():
        ready = sorter.get_ready()
        sorter.done(*ready)
        levels += 1
    return levels


def _circles(graph: dict[str, set[str]]) -> Iterator[set[str]]:
    """Groups of more than one node that all reach each other."""
    reach: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for other in graph.get(todo.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        reach[start] = seen
    done: set[str] = set()
    for node, seen in reach.items():
        if node in seen and node not in done:
            circle = {other for other in seen if node in reach.get(other, ())}
            done |= circle
            yield circle


def _wide(tree: ast.Module) -> int:
    found = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            given = node.args
            every = (*given.posonlyargs, *given.args, *given.kwonlyargs)
            names = [each.arg for each in every if each.arg not in ("self", "cls")]
            found += len(names) >= MANY_PARAMETERS
    return found


def _words(tree: ast.Module, text: str) -> int:
    strings = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
    ]
    comments = re.findall(r"#[^\n]*", text)
    return sum(len(WORDS.findall(re.sub(r"`[^`]*`", "", each))) for each in strings + comments)


if __name__ == "__main__":
    sys.exit(main())
