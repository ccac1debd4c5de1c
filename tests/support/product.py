"""The product's own parts by name, wherever their files are.

`from tests.support.product import Epoch, Warehouse` works as if the package had one flat module.
Campaigns name the product's inner parts in this way only: a file that moves needs no edit there.
Which module defines a name is read from the syntax trees, so nothing is imported before it is used.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

PACKAGE = "dbt_streamsql"


class Unresolved(ImportError):
    """No module defines a name, or several do. Not an AttributeError: `from … import` hides it."""


@dataclass(frozen=True)
class Names:
    """What the top level of a module makes known."""

    defined: frozenset[str]
    imported: frozenset[str]


@cache
def root() -> Path:
    """The folder of the package that an `import` finds."""
    found = find_spec(PACKAGE)
    assert found is not None
    assert found.submodule_search_locations
    return Path(found.submodule_search_locations[0])


def module_of(name: str, beside: str = "") -> str:
    """The dotted name of the module whose top level defines `name`.

    Where several do, it is the one that defines or imports `beside` at its top level too.
    """
    return _dotted(file_of(name, beside))


@cache
def file_of(name: str, beside: str = "") -> Path:
    """The file of `module_of`."""
    found = [path for path in _mentioning(name) if name in names(path).defined]
    every = found
    if beside:
        known = {path: names(path) for path in found}
        found = [path for path in found if beside in known[path].defined | known[path].imported]
    if len(found) == 1:
        return found[0]
    wanted = f"{name!r} beside {beside!r}" if beside else f"{name!r}"
    if not found:
        others = f"; {_listed(every)} define {name!r} without it" if every else ""
        raise Unresolved(f"No module of {PACKAGE} defines {wanted}{others}.")
    raise Unresolved(
        f"{_listed(found)} define {wanted}: say which by `beside`, another name of its top level."
    )


def home(name: str, beside: str = "") -> ModuleType:
    """The module that defines `name`, imported."""
    return import_module(module_of(name, beside))


def symbol(name: str, beside: str = "") -> Any:
    """What `name` stands for: for names that several modules define."""
    return getattr(home(name, beside), name)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return symbol(name)


@contextmanager
def replaced(name: str, new: Any, beside: str = "", seen_by: str = "") -> Iterator[None]:
    """Inside, `name` (or `Class.name`) stands for `new`: at its home and for all who imported it.

    With `seen_by` only the module that defines that name sees it, at its home nothing changes.
    """
    owner, _, attribute = name.rpartition(".")
    place = symbol(owner, beside) if owner else home(name, beside)
    changes = [(place, attribute, new)]
    if seen_by:
        changes = [_use(home(seen_by), place, name, new)]
    elif not owner:
        changes += [(module, name, new) for module in _importers(place, name)]
    with ExitStack() as stack:
        for target, known_as, thing in changes:
            stack.enter_context(patch.object(target, known_as, thing))
        yield


def _importers(place: ModuleType, name: str) -> list[ModuleType]:
    """The other modules that hold a function or class by its name; constants are not told apart."""
    thing = getattr(place, name)
    if not callable(thing):
        return []
    known = [module for at, module in list(sys.modules.items()) if at.startswith(f"{PACKAGE}.")]
    return [m for m in known if m is not place and vars(m).get(name) is thing]


def _use(user: ModuleType, place: ModuleType, name: str, new: Any) -> tuple[ModuleType, str, Any]:
    """What to change in `user`: the name that it imported, or the module of which it takes it."""
    if vars(user).get(name) is getattr(place, name):
        return user, name, new
    for alias, held in vars(user).items():
        if isinstance(held, ModuleType) and held.__name__ == place.__name__:
            other = ModuleType(place.__name__)
            vars(other).update({**vars(held), name: new})
            return user, alias, other
    raise Unresolved(f"{user.__name__} imports neither {name!r} nor {place.__name__}.")


@cache
def names(path: Path) -> Names:
    """What the top level of a file defines and imports, also below `if` and `try`."""
    defined: set[str] = set()
    imported: set[str] = set()
    waiting: list[ast.AST] = [*tree(path).body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            defined.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imported |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
        elif isinstance(node, ast.stmt | ast.Tuple | ast.List | ast.Starred | ast.ExceptHandler):
            waiting += ast.iter_child_nodes(node)
    return Names(frozenset(defined), frozenset(imported))


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(_texts()[path])


@cache
def _texts() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted(root().rglob("*.py"))}


def _mentioning(name: str) -> list[Path]:
    """The files that may define a name: to parse all of them takes a second."""
    begins = re.compile(rf"^[\w, ]*\b{re.escape(name)}\b", re.MULTILINE)
    return [path for path, text in _texts().items() if name in text and begins.search(text)]


def _dotted(path: Path) -> str:
    parts = path.relative_to(root().parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _listed(paths: list[Path]) -> str:
    return ", ".join(map(_dotted, paths))
