"""Scalar expressions as SQL text with holes for columns: a pass can rename without parsing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from urllib.parse import quote as quoted
from urllib.parse import unquote

from dbt_streamsql.quoting import quote

Ref = tuple[str, str]
"""A column of a named input: (alias, column)."""

_HOLE = re.compile(r"\{\{|\}\}|\{([^{}]+)\}")


def hole(name: str) -> str:
    """The hole for a name, which may contain any character."""
    return "{" + quoted(name, safe=" ,.()") + "}"


def fill(template: str, resolve: Callable[[str], str]) -> str:
    """Replace each hole by `resolve(name)`; `{{` and `}}` stand for braces.

    >>> fill("a = {0} || '{{}}'", lambda name: "t.b")
    "a = t.b || '{}'"
    """

    def one(match: re.Match[str]) -> str:
        name = match.group(1)
        return match.group(0)[0] if name is None else resolve(unquote(name))

    return _HOLE.sub(one, template)


def refill(template: str, resolve: Callable[[str], str]) -> str:
    """Replace each `{name}` like `fill`; the result is a template again: `{{` and `}}` stay."""
    return fill(template.replace("{{", "{{{{").replace("}}", "}}}}"), resolve)


def holes(template: str) -> list[str]:
    """The names of the holes in order, each once."""
    return list(dict.fromkeys(every_hole(template)))


def every_hole(template: str) -> list[str]:
    """The names of the holes in order, with repetitions."""
    found = (match.group(1) for match in _HOLE.finditer(template))
    return [unquote(name) for name in found if name is not None]


def escape(text: str) -> str:
    """Text that `fill` returns unchanged."""
    return text.replace("{", "{{").replace("}", "}}")


@dataclass(frozen=True)
class Expr:
    """A deterministic scalar expression: `template` holds `{0}`, `{1}` … for `refs`."""

    template: str
    refs: tuple[Ref, ...] = ()

    @classmethod
    def column(cls, alias: str, column: str) -> Expr:
        return cls("{0}", ((alias, column),))

    @property
    def as_column(self) -> Ref | None:
        """The column, if the expression is just a column."""
        return self.refs[0] if self.template == "{0}" else None

    @cached_property
    def aliases(self) -> frozenset[str]:
        return frozenset(alias for alias, _ in self.refs)

    def over(self, values: Mapping[Ref, Expr]) -> Expr:
        """The same with columns replaced by expressions; other columns stay.

        >>> Expr("{0} + {1}", (("a", "x"), ("a", "y"))).over({("a", "x"): Expr("-1")}).template
        '(-1) + {0}'
        """
        if self.template == "{0}":
            return values.get(self.refs[0], self)
        refs: list[Ref] = []

        def number(ref: Ref) -> str:
            if ref not in refs:
                refs.append(ref)
            return f"{{{refs.index(ref)}}}"

        def one(hole: str) -> str:
            ref = self.refs[int(hole)]
            value = values.get(ref)
            if value is None:
                return number(ref)
            text = refill(value.template, lambda inner: number(value.refs[int(inner)]))
            return text if value.as_column else f"({text})"

        text = refill(self.template, one)
        return Expr(text, tuple(refs))

    def render(self, resolve: Callable[[Ref], str] | None = None) -> str:
        """The text as a template of the enclosing SQL: literal braces stay doubled."""
        to_sql = resolve or dotted
        if self.template == "{0}":
            return to_sql(self.refs[0])
        return refill(self.template, lambda hole: to_sql(self.refs[int(hole)]))


@lru_cache(maxsize=8192)
def dotted(ref: Ref) -> str:
    """`alias.column` as SQL text (a template: braces in names are doubled)."""
    return escape(f"{quote(ref[0])}.{quote(ref[1])}")


def columns_of(exprs: Iterable[Expr], alias: str) -> set[str]:
    """The columns of one input that the expressions use."""
    return {column for expr in exprs for owner, column in expr.refs if owner == alias}
