"""The product's own parts by name, wherever their files are.

`from tests.support.product import Epoch, Warehouse` works as if the package had one flat module.
Campaigns name the product's inner parts in this way only: a file that moves needs no edit there.
Which module defines a name is read from the syntax trees, so nothing is imported before it is used.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
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


@cache
def root() -> Path:
    """The folder of the package that an `import` finds."""
    found = find_spec(PACKAGE)
    assert found is not None
    assert found.submodule_search_locations
    return Path(found.submodule_search_locations[0])


def module_of(name: str, beside: str = "") -> str:
    """The dotted name of the module whose top level defines `name`.

    Where several do, it is the one that defines `beside` too, or whose `name` makes use of it: the
    class of an argument, for example.
    """
    return _dotted(file_of(name, beside))


@cache
def file_of(name: str, beside: str = "") -> Path:
    """The file of `module_of`."""
    every = {path: definitions(path) for path in _mentioning(name)}
    found = {path: known for path, known in every.items() if name in known}
    fit = [path for path, known in found.items() if _is_beside(beside, name, known)]
    if len(fit) == 1:
        return fit[0]
    wanted = f"{name!r} beside {beside!r}" if beside else f"{name!r}"
    if fit:
        raise Unresolved(f"Say by `beside` which: {wanted} is defined in {_listed(fit)}.")
    others = f"; without it: {_listed(found)}" if found else ""
    raise Unresolved(f"No module of {PACKAGE} defines {wanted}{others}.")


def _is_beside(beside: str, name: str, known: Mapping[str, ast.stmt]) -> bool:
    used = (node.id for node in ast.walk(known[name]) if isinstance(node, ast.Name))
    return not beside or beside in known or beside in used


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
def definitions(path: Path) -> Mapping[str, ast.stmt]:
    """The statements of a file that define the names of its top level, not below an `if`."""
    found: dict[str, ast.stmt] = {}
    for node in ast.parse(_texts()[path]).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = (part for target in targets for part in ast.walk(target))
            found |= {part.id: node for part in parts if isinstance(part, ast.Name)}
    return found


@cache
def _texts() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted(root().rglob("*.py"))}


def _mentioning(name: str) -> list[Path]:
    """The files that may define a name: to parse all of them takes a second."""
    begins = re.compile(rf"^(?:\w[\w, ]*\b)?{re.escape(name)}\b", re.MULTILINE)
    return [path for path, text in _texts().items() if name in text and begins.search(text)]


def _dotted(path: Path) -> str:
    parts = path.relative_to(root().parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _listed(paths: Iterable[Path]) -> str:
    return ", ".join(map(_dotted, paths))
