"""A change of a program by what it says: the symbol, what stands in it, and what is put there.

A snippet of Python is compared as a syntax tree, so neither the file nor the layout matters. A
`Text` is a part of a string of the symbol, as it is written between the quotes; f-strings and
neighbouring literals are one string. What is looked for has to be there exactly once.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from textwrap import dedent, indent

_LITERAL = re.compile(
    r"""[rRbBuUfF]*(?P<quote>\"{3}|'{3}|"|')(?P<body>(?:\\.|(?!(?P=quote)).)*)(?P=quote)""",
    re.DOTALL,
)
_BETWEEN = re.compile(r"(?:\s|\\\n|#[^\n]*)*")

Span = tuple[int, int]


class Text(str):
    """A part of a string literal."""

    __slots__ = ()


Planted = tuple[str | tuple[str, str], str, str, str, str]
"""A bug: its symbol, perhaps with what is beside it (`tests/support/product.py`), old, new, what is
wrong, and a hint."""


class Unfit(ValueError):
    """A change that does not fit the program as it is."""


def changed(source: str, symbol: str, old: str, new: str) -> str:
    """The program with `new` in place of `old` within a symbol: `function`, `Class.method`, `NAME`.

    Both are an expression, or statements in a row; no `new` statements take the old ones away.
    """
    within = _symbol(_tree(source), symbol)
    at = _Offsets(source)
    if isinstance(old, Text):
        pieces = _once(list(_texts(at, within, old)), "the text", symbol)
        # What stood in several literals now stands in the first of them.
        (begin, end), *rest = pieces
        edits = [(begin, end, str(new)), *((*piece, "") for piece in rest)]
    else:
        (begin, end), wrapped = _once(list(_nodes(at, within, old, new)), "the snippet", symbol)
        edits = [(begin, end, f"({new})" if wrapped else _aligned(new, source, begin))]
    for begin, end, put in sorted(edits, reverse=True):
        source = source[:begin] + put + source[end:]
    ast.parse(source)
    return source


@lru_cache(8)
def _tree(source: str) -> ast.Module:
    return ast.parse(source)


def _symbol(tree: ast.Module, symbol: str) -> ast.stmt:
    body: list[ast.stmt] = tree.body
    found: list[ast.stmt] = []
    for name in symbol.split("."):
        found = [node for node in _statements(body) if name in _defined(node)]
        if len(found) != 1:
            raise Unfit(f"{len(found)} definitions of {symbol}")
        body = getattr(found[0], "body", [])
    return found[0]


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Those of a body, also below `if`, `with` and `try`, but not of other symbols."""
    for node in body:
        yield node
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for inner in _bodies(node):
                yield from _statements(inner)


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        inner = getattr(node, name, None)
        if isinstance(inner, list):
            yield inner
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _once(found: list, what: str, symbol: str):
    if len(found) != 1:
        raise Unfit(f"{what} stands {len(found)} times in {symbol}")
    return found[0]


# -- syntax trees ------------------------------------------------------------------------------


def _nodes(at: _Offsets, within: ast.stmt, old: str, new: str) -> Iterator[tuple[Span, bool]]:
    """Where a snippet stands, and whether it is an expression."""
    wanted, put = _parsed(old), _parsed(new)
    if not wanted:
        raise Unfit("nothing is looked for")
    if _is_expression(wanted) and _is_expression(put):
        kind, shape = type(wanted[0].value), ast.dump(wanted[0].value)
        for node in _expressions(within):
            if type(node) is kind and ast.dump(node) == shape:
                yield at.span(node, node), True
        return
    shapes = [ast.dump(node) for node in wanted]
    for node in ast.walk(within):
        for body in _bodies(node):
            for first in range(len(body) - len(shapes) + 1):
                run = body[first : first + len(shapes)]
                if [ast.dump(each) for each in run] == shapes:
                    yield at.span(run[0], run[-1]), False


def _parsed(snippet: str) -> list[ast.stmt]:
    try:
        return ast.parse(dedent(snippet)).body
    except SyntaxError as error:
        raise Unfit(f"not Python, so it has to be a Text: {snippet!r}") from error


def _is_expression(body: list[ast.stmt]) -> bool:
    return len(body) == 1 and isinstance(body[0], ast.Expr)


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    """All below a node, f-strings as a whole: older Pythons do not say where their parts stand."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.expr):
            yield inner
        if not isinstance(inner, ast.JoinedStr):
            yield from _expressions(inner)


def _aligned(new: str, source: str, begin: int) -> str:
    margin = source[source.rfind("\n", 0, begin) + 1 : begin]
    return indent(dedent(new), margin).removeprefix(margin).rstrip("\n")


# -- texts -------------------------------------------------------------------------------------


def _texts(at: _Offsets, within: ast.stmt, old: str) -> Iterator[list[Span]]:
    """Where a text stands: one span, or one in each of the literals over which it goes."""
    documentation = {id(node.value) for node in ast.walk(within) if isinstance(node, ast.Expr)}
    for node in _expressions(within):
        if id(node) in documentation or not _is_string(node):
            continue
        # The place in the source of each character between the quotes.
        places = [
            place
            for literal in _literals(at.source, *at.span(node, node))
            for place in range(*literal.span("body"))
        ]
        body = "".join(at.source[place] for place in places)
        start = body.find(old)
        while start >= 0:
            yield _spans(places[start : start + len(old)])
            start = body.find(old, start + 1)


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _literals(source: str, begin: int, end: int) -> Iterator[re.Match[str]]:
    while begin < end:
        literal = _LITERAL.match(source, begin, end)
        assert literal is not None, source[begin:end]
        yield literal
        between = _BETWEEN.match(source, literal.end(), end)
        assert between is not None
        begin = between.end()


def _spans(places: list[int]) -> list[Span]:
    spans: list[Span] = []
    for place in places:
        if spans and spans[-1][1] == place:
            spans[-1] = (spans[-1][0], place + 1)
        else:
            spans.append((place, place + 1))
    return spans


class _Offsets:
    """Places of a source by line and column, of which trees count the bytes."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._lines = source.splitlines(keepends=True)
        self._begins = [0]
        for line in self._lines:
            self._begins.append(self._begins[-1] + len(line))

    def span(self, first: ast.expr | ast.stmt, last: ast.expr | ast.stmt) -> Span:
        assert last.end_lineno is not None
        assert last.end_col_offset is not None
        begin = self._at(first.lineno, first.col_offset)
        return begin, self._at(last.end_lineno, last.end_col_offset)

    def _at(self, line: int, column: int) -> int:
        before = self._lines[line - 1].encode()[:column]
        return self._begins[line - 1] + len(before.decode())
