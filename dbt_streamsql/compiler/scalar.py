"""Which scalar expressions are functions of the row alone; no other can be run on changes."""

from __future__ import annotations

from sqlglot import TokenType, exp, tokenize

from dbt_streamsql.compiler.functions import AGGREGATES, GENERATORS, VOLATILE, WINDOWS
from dbt_streamsql.compiler.reasons import Unsupported, obstacle
from dbt_streamsql.plan.expression import Expr, Ref, escape

_CLOCKLESS = frozenset({"unix_timestamp", "to_unix_timestamp"})
"""Clocks only when they are called without an argument."""
_NO_NAMES = frozenset({TokenType.STRING, TokenType.NUMBER})
_OWN_WORDS = frozenset(
    {"coalesce", "cast", "and", "or", "not", "in", "is", "like", "case", "when", "stack"}
)
"""What the parser and we may add: COALESCE for the columns of USING, STACK for UNPIVOT, words
of its own brackets."""
_SAME = {
    "ceil": frozenset({"ceiling"}),
    "day": frozenset({"dayofmonth"}),
    "length": frozenset({"len", "char_length", "character_length"}),
    "lower": frozenset({"lcase"}),
    "power": frozenset({"pow"}),
    "collect_list": frozenset({"array_agg"}),
    "stddev": frozenset({"stddev_samp", "std"}),
    "struct": frozenset({"named_struct"}),
    "substring": frozenset({"substr"}),
    "upper": frozenset({"ucase"}),
    "variance": frozenset({"var_samp"}),
}
"""Functions that have other names which mean exactly the same."""
_USERS = "Spark does not tell whether a user's function gives the same row the same value twice"
_USERS_HINT = (
    "write it as a SQL function of the project (docs/functions.md), which is put into the query,"
    " or compute the column in a table or an incremental model and read that"
)
_CLOCK_HINT = "compare with a column, or keep the view in full"


def check_scalar(node: exp.Expr, builtin: frozenset[str]) -> None:
    """Refuse an expression whose value is not decided by the columns it names."""
    for part in node.walk():
        if isinstance(part, exp.Window):
            raise obstacle(part, "window function", "it cannot stand in this place")
        if isinstance(part, exp.Query):
            raise obstacle(
                part,
                "sub-query in an expression",
                "only sub-queries in FROM are maintained from changes yet",
                "join it in FROM",
            )
        if isinstance(part, exp.Func):
            _check_function(part, builtin)
        if isinstance(part, exp.Placeholder | exp.Parameter | exp.SessionParameter):
            raise obstacle(part, "parameter", "a view's text has no parameters")


def _check_function(node: exp.Func, builtin: frozenset[str]) -> None:
    names = _names(node)
    name = min(names, key=len)
    if _is_volatile(node, names):
        raise _refuse(node, name, "its value changes from call to call", _CLOCK_HINT)
    if isinstance(node, exp.AggFunc) or names & AGGREGATES:
        raise _refuse(node, name, "this aggregate is not maintained from changes here")
    if names & GENERATORS:
        raise _refuse(node, name, "row generators are not maintained from changes yet")
    if names & WINDOWS:
        raise _refuse(node, name, "windows are not maintained from changes yet")
    if isinstance(node, exp.Anonymous) and not names & builtin:
        raise _refuse(node, name, _USERS, _USERS_HINT)


def _names(node: exp.Func) -> set[str]:
    if isinstance(node, exp.Anonymous):
        return {node.name.lower()}
    return {called(node), *(name.lower() for name in node.sql_names())}


def called(node: exp.Expr) -> str:
    """The lower-case name of the function that a node calls, as Spark spells it; '' for others."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower()
    # To the parser AND, CASE and CAST are functions too, and their text may begin with another's.
    if not isinstance(node, exp.Func) or isinstance(node, exp.Binary | exp.Connector | exp.Case):
        return ""
    if isinstance(node, exp.PercentileCont | exp.PercentileDisc):
        return str(node.sql_names()[0]).lower()
    return str(node.sql(dialect="spark").split("(")[0]).lower()


def _is_volatile(node: exp.Func, names: set[str]) -> bool:
    if names & _CLOCKLESS and node.this is not None and not node.this.find(exp.CurrentTimestamp):
        return False
    return bool(names & VOLATILE)


def is_volatile(tree: exp.Expr, builtin: frozenset[str]) -> bool:
    """Whether the same tables can give another result: clocks, random values, users' functions."""
    if tree.find(exp.TableSample):
        return True
    for node in tree.find_all(exp.Func):
        if _is_volatile(node, _names(node)):
            return True
        known = builtin | AGGREGATES | GENERATORS | WINDOWS
        if isinstance(node, exp.Anonymous) and node.name.lower() not in known:
            return True
    return False


def _refuse(node: exp.Func, name: str, why: str, rewrite: str = "") -> Unsupported:
    return obstacle(node, f"{name}()", why, rewrite)


def to_expr(node: exp.Expr, words: frozenset[str] = frozenset()) -> Expr:
    """The expression as text with holes for its columns.

    `words` are the words of the user's text: a function that is not among them would be another
    one than was asked for, and is refused (the parser knows some functions by other names).
    """
    refs: list[Ref] = []
    marked = node.copy()
    holes: list[tuple[exp.Column, str]] = []
    for column in list(marked.find_all(exp.Column)):
        ref = (column.table, column.name)
        if ref not in refs:
            refs.append(ref)
        holes.append((column, f"streamsqlhole{refs.index(ref)}x"))
    for column, name in holes:
        hole = exp.column(exp.to_identifier(name))
        if column is marked:
            marked = hole
        else:
            column.replace(hole)
    plain = marked.sql(dialect="spark", comments=False)
    if words:
        _check_words(node, plain, words)
    text = escape(plain)
    for index in range(len(refs)):
        text = text.replace(f"streamsqlhole{index}x", f"{{{index}}}")
    return Expr(text, tuple(refs))


def _check_words(node: exp.Expr, text: str, words: frozenset[str]) -> None:
    for token, after in zip(tokens := tokenize(text, dialect="spark"), tokens[1:], strict=False):
        if after.token_type is TokenType.L_PAREN and token.token_type not in _NO_NAMES:
            name = token.text.lower()
            known = name in words or name in _OWN_WORDS or words & _SAME.get(name, frozenset())
            if name.isidentifier() and not known:
                raise obstacle(
                    node, f"{name}()", "the compiler knows this function by another name only"
                )


def conjuncts(node: exp.Expr | None) -> list[exp.Expr]:
    """The terms of an AND, or nothing."""
    if node is None:
        return []
    node = node.unnest()
    return list(node.flatten()) if isinstance(node, exp.And) else [node]
