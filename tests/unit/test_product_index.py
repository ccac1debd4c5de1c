"""Campaigns find the product's parts by name, wherever their files are."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import sys
import time
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support import product
from tests.support.product import Unresolved, file_of, home, module_of, replaced, symbol

TESTS = Path(__file__).parents[1]

FILES = {
    "__init__": "",
    "rooms.__init__": "",
    "rooms.rows": """
class Rows:
    def count(self):
        return 1


def move(rows: Rows):
    return "rows"


LIMIT, _OTHER = 10, 20
""",
    "rooms.users": """
from shop.rooms import rows
from shop.rooms.rows import Rows, move


def by_module():
    return rows.move(None)


def by_name():
    return move(None)
""",
    "tables": """
class Table:
    pass


def move(table: Table):
    return "table"


LIMIT: int = 3
""",
}


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A package instead of the product."""
    for name, text in FILES.items():
        path = tmp_path.joinpath("shop", *name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(product, "PACKAGE", "shop")
    _forget()
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]
    monkeypatch.undo()
    _forget()


def _forget():
    for kept in (product.root, product.file_of, product.definitions, product._texts):
        kept.cache_clear()


@pytest.mark.usefixtures("shop")
def test_a_name_leads_to_the_module_that_defines_it_not_to_those_that_import_it():
    assert module_of("Rows") == "shop.rooms.rows"
    assert module_of("_OTHER") == "shop.rooms.rows"
    assert module_of("by_name") == "shop.rooms.users"
    assert home("Table").__name__ == "shop.tables"
    assert symbol("Rows").__name__ == "Rows"
    assert product.Rows is symbol("Rows")


@pytest.mark.usefixtures("shop")
def test_where_several_modules_define_a_name_another_one_tells_which():
    with pytest.raises(Unresolved, match=r"by `beside`.*'move'.* shop\.rooms\.rows, shop\.tables"):
        home("move")
    assert home("move", beside="Table") is home("Table")
    assert home("move", beside="Rows") is home("Rows")
    with pytest.raises(Unresolved, match="'LIMIT' beside 'move' is defined in"):
        home("LIMIT", beside="move")
    with pytest.raises(Unresolved, match=r"'move' beside 'Chair'; without it: shop\.rooms\.rows"):
        home("move", beside="Chair")


@pytest.mark.usefixtures("shop")
def test_a_name_that_nobody_defines_is_told():
    with pytest.raises(Unresolved, match="No module of shop defines 'Chair'"):
        home("Chair")
    with pytest.raises(ImportError, match="No module of shop defines 'Chair'"):
        from tests.support.product import Chair  # noqa: F401
    with pytest.raises(AttributeError):
        product.__wrapped__  # noqa: B018
    assert not hasattr(product, "__path__")


@pytest.mark.usefixtures("shop")
def test_a_replacement_is_seen_at_its_home_and_by_who_imported_it():
    users, rows = home("by_name"), home("Rows")
    with replaced("move", lambda _: "other", beside="Rows"):
        assert (users.by_module(), users.by_name(), rows.move(None)) == ("other",) * 3
        assert home("Table").move(None) == "table"
    assert (users.by_module(), users.by_name(), rows.move(None)) == ("rows",) * 3


@pytest.mark.usefixtures("shop")
def test_a_replacement_can_be_for_the_eyes_of_one_module():
    users, rows = home("by_name"), home("Rows")
    with replaced("move", lambda _: "other", beside="Rows", seen_by="by_name"):
        assert (users.by_name(), rows.move(None)) == ("other", "rows")
    del users.move
    with replaced("move", lambda _: "other", beside="Rows", seen_by="by_name"):
        assert (users.by_module(), rows.move(None)) == ("other", "rows")
        with replaced("LIMIT", 1, beside="Rows", seen_by="by_name"):
            assert (users.by_module(), users.rows.LIMIT, rows.LIMIT) == ("other", 1, 10)
    assert users.by_module() == "rows"
    unseen = replaced("Table", None, seen_by="by_name")
    with pytest.raises(Unresolved, match=r"neither 'Table' nor shop\.tables"), unseen:
        pass


@pytest.mark.usefixtures("shop")
def test_a_method_or_a_constant_is_replaced_at_its_home():
    with replaced("Rows.count", lambda self: 2), replaced("LIMIT", 4, beside="Rows"):
        assert home("by_name").Rows().count() == 2
        assert (home("Rows").LIMIT, home("Table").LIMIT) == (4, 3)
    assert home("Rows").Rows().count() == 1


def test_the_product_is_found_and_quickly():
    _forget()
    began = time.process_time()
    path = file_of("Epoch")
    assert time.process_time() - began < 1
    assert path.is_relative_to(product.root())
    assert importlib.import_module(module_of("Epoch")).Epoch is symbol("Epoch")


CAMPAIGNS = ("differential", "faults", "isolation", "mutants", "property", "simulator")
STAY = re.compile(r"dbt_streamsql(\.(errors|quoting|meta|plan(\.\w+)*))?")
"""What may be imported as it is: the public package, and what keeps its names."""


def _imports(path):
    """What the import statements of a file name: modules, and modules taken out of packages."""
    inner = {path.stem for path in product.root().joinpath("meta").iterdir()}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            if node.module == "dbt_streamsql.meta":
                yield from (f"{node.module}.{a.name}" for a in node.names if a.name in inner)


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_campaigns_name_no_file_of_the_product_that_may_move(campaign):
    wrong = [
        f"{path.name}: {name}"
        for path in sorted((TESTS / campaign).rglob("*.py"))
        for name in _imports(path)
        if name.partition(".")[0] == product.PACKAGE and not STAY.fullmatch(name)
    ]
    assert wrong == []


def _programs():
    """The programs that tests start from a text: (file, module, name)."""
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = (
                dedent(node.value)
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
                else ""
            )
            if f"from {product.PACKAGE}" not in text:
                continue
            with suppress(SyntaxError):
                for found in ast.walk(ast.parse(text)):
                    if isinstance(found, ast.ImportFrom) and found.module:
                        yield from ((path.name, found.module, each.name) for each in found.names)


def _is_there(module, name):
    try:
        found = importlib.import_module(module)
    except ImportError:
        return False
    return hasattr(found, name) or importlib.util.find_spec(f"{module}.{name}") is not None


def test_programs_that_tests_start_import_what_there_is():
    programs = [each for each in _programs() if each[1].startswith(product.PACKAGE)]
    assert len(programs) > 5
    assert [each for each in programs if not _is_there(*each[1:])] == []
