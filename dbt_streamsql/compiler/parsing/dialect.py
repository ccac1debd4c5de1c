"""Spark SQL as it is written: the parser knows only the calls that the algebra must understand.

Every other call stays a name with its arguments; literals, types and intervals keep their text,
so an expression is written as it was read. `unfaithful` checks this for a whole text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import ClassVar

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser

from dbt_streamsql.compiler.parsing import pipes, tokens
from dbt_streamsql.errors import StreamSqlError

_WORD = re.compile(r"[A-Za-z_]\w*")
_NAME = re.compile(r"\w+")
"""What Spark reads as a name without quotes."""

_RAW = "raw"
"""The key under which a node keeps the text that it was read from."""

_KNOWN = ("COUNT", "SUM", "AVG", "MIN", "MAX", "COALESCE", "CURRENT_DATE", "CURRENT_TIMESTAMP")
_LITERALS = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "TIME", "X"})
_UNITS = frozenset(
    name + plural
    for name in (
        *("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFYEAR", "HOUR", "MINUTE", "SECOND"),
        *("MILLISECOND", "MICROSECOND", "NANOSECOND"),
    )
    for plural in ("", "S")
)
_BY_UNIT = frozenset(
    {"DATEADD", "DATE_ADD", "TIMESTAMPADD", "DATEDIFF", "DATE_DIFF", "TIMESTAMPDIFF", "TIMEDIFF"}
)
_WORDED = {
    "EXTRACT": ("FROM",),
    "OVERLAY": ("PLACING", "FROM", "FOR"),
    "POSITION": ("IN",),
    "SUBSTR": ("FROM", "FOR"),
    "SUBSTRING": ("FROM", "FOR"),
    "TRIM": ("FROM",),
}
"""Functions whose arguments may be separated by words instead of commas."""
_STRINGS = (TokenType.STRING, TokenType.RAW_STRING)
_SIDES = ("BOTH", "LEADING", "TRAILING")


class Worded(exp.Anonymous):
    """A call with words between its arguments: `words` holds what precedes each argument."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": False, "words": True}


class Cast(exp.Cast):
    """`x::type`."""


class Plus(exp.Unary):
    """`+x`: a number where x is a string."""


class Path(exp.Expression, exp.Condition):
    """`v:a.b[0]`: the path into a variant, as text."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "path": True}


def _without_brackets(name: str) -> Callable[[], exp.Expr]:
    return lambda: exp.Anonymous(this=name, expressions=[])


class _Parser(pipes.PipeParser):
    STRICT_CAST: ClassVar = True
    COLON_IS_VARIANT_EXTRACT: ClassVar = True
    ARRAY_CONSTRUCTORS: ClassVar = dict[str, type[exp.Func]]()
    NO_PAREN_FUNCTIONS: ClassVar = {
        **{kind: _without_brackets(kind.name.lower()) for kind in SparkParser.NO_PAREN_FUNCTIONS},
        TokenType.CURRENT_DATE: exp.CurrentDate,
        TokenType.CURRENT_TIMESTAMP: exp.CurrentTimestamp,
    }
    COLUMN_OPERATORS: ClassVar = {
        **SparkParser.COLUMN_OPERATORS,
        TokenType.DCOLON: lambda self, this, to: self.expression(Cast(this=this, to=to)),
    }
    FUNCTIONS: ClassVar = {name: SparkParser.FUNCTIONS[name] for name in _KNOWN}
    FUNCTION_PARSERS: ClassVar = {
        **{name: SparkParser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST")},
        **dict.fromkeys(_WORDED, lambda self: self.worded()),
        **dict.fromkeys(_BY_UNIT, lambda self: self.by_unit()),
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {
        "CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"],
    }
    UNARY_PARSERS: ClassVar = {
        **SparkParser.UNARY_PARSERS,
        TokenType.PLUS: lambda self: self.expression(Plus(this=self._parse_unary())),
    }
    PRIMARY_PARSERS: ClassVar = {
        **SparkParser.PRIMARY_PARSERS,
        **dict.fromkeys(
            (TokenType.STRING, TokenType.RAW_STRING, TokenType.NUMBER, TokenType.HEX_STRING),
            lambda self, token: self.literal(token),
        ),
    }

    def literal(self, first: Token, last: Token | None = None) -> exp.Literal:
        """A constant with its text; the value of a string is what the parser makes of it.

        `last`: the last of several tokens, the one that was just read.
        """
        raw = self.sql[first.start : first.end + 1] if last is None else self.read_since(first)
        is_string = last is None and first.token_type in _STRINGS
        # 1 and 1L are two constants, and so are X'1F' and '1F'.
        made = exp.Literal(this=first.text if is_string else raw, is_string=is_string)
        made.meta[_RAW] = raw
        made.update_positions(first)
        return made

    def read_since(self, first: Token) -> str:
        """The text from a token to the last one read, without comments and line ends."""
        begin = self._index - 1
        while self._tokens[begin].start > first.start:
            begin -= 1
        text, end = "", first.start
        for token in self._tokens[begin : self._index]:
            text += " " * (token.start > end) + self.sql[token.start : token.end + 1]
            end = token.end + 1
        return text

    def worded(self) -> exp.Expr:
        """`TRIM(BOTH 'x' FROM s)` and the like; called after the opening parenthesis."""
        name = self._tokens[self._index - 2].text
        allowed = _WORDED[name.upper()]
        words = [self._prev.text if name.upper() == "TRIM" and self._match_texts(_SIDES) else ""]
        arguments: list[exp.Expr] = []
        plain = name.upper() == "POSITION"
        if words[0] and self._match_text_seq("FROM"):
            words[0] += " FROM"
        field = name.upper() == "EXTRACT" and self._next.token_type is TokenType.FROM
        while True:
            # Anything but a word would be written without its quotes.
            if field and not arguments and _WORD.fullmatch(self._curr.text):
                argument: exp.Expr | None = exp.var(self._curr.text)
                self._advance()
            else:
                argument = self._parse_bitwise() if plain else self._parse_disjunction()
            if argument is None:
                break
            arguments.append(argument)
            if self._match(TokenType.COMMA):
                words.append(",")
            elif self._match_texts(allowed):
                words.append(self._prev.text)
            else:
                break
        if not any(word not in {"", ","} for word in words):
            return self.expression(exp.Anonymous(this=name, expressions=arguments))
        return self.expression(Worded(this=name, expressions=arguments, words=words))

    def by_unit(self) -> exp.Expr:
        """`DATEADD(DAY, 1, d)`: the unit is a keyword, not a column."""
        name = self._tokens[self._index - 2].text
        unit = None
        if self._curr.text.upper() in _UNITS and self._next.token_type is TokenType.COMMA:
            unit = exp.var(self._curr.text)
            self._advance(2)
        arguments = self._parse_csv(self._parse_lambda)
        if unit is not None:
            if len(arguments) == 2:
                arguments.insert(0, unit)
            else:
                arguments.insert(0, exp.column(exp.to_identifier(unit.name)))
        return self.expression(exp.Anonymous(this=name, expressions=arguments))

    def _parse_interval(  # type: ignore[override]
        self, require_interval: bool = True, parse_function_unit: bool = True
    ) -> exp.Expr | None:
        """`INTERVAL 1 DAY '2' HOURS`, `INTERVAL '1-2' YEAR TO MONTH`: constants in Spark."""
        index, first = self._index, self._curr
        if not self._match(TokenType.INTERVAL):
            if require_interval:
                return None
            return super()._parse_interval(require_interval, parse_function_unit)
        found = False
        while True:
            before = self._index
            self._match_set((TokenType.DASH, TokenType.PLUS))
            if not self._match_set((TokenType.NUMBER, TokenType.STRING)):
                self._retreat(before)
                break
            string = self._prev.token_type is TokenType.STRING
            if self._curr and self._curr.text.upper() in _UNITS:
                self._advance()
                if self._match_text_seq("TO"):
                    self._advance()
            elif not (string and not found):
                self._retreat(before)
                break
            found = True
        if not found:
            self._retreat(index)
            return None
        return self.literal(first, self._prev)

    def _parse_type(
        self, parse_interval: bool = True, fallback_to_identifier: bool = False
    ) -> exp.Expr | None:
        first = self._curr
        if (
            first
            and first.text.upper() in _LITERALS
            and self._next
            and self._next.token_type is TokenType.STRING
        ):
            self._advance(2)
            return self._parse_column_ops(self.literal(first, self._prev))
        return super()._parse_type(parse_interval, fallback_to_identifier)

    def _parse_value(self, values: bool = True) -> exp.Tuple | None:  # noqa: ARG002
        """A row of VALUES; in `VALUES 1, 2 AS t` the name is the table's, not the last row's."""
        row = self._parse_disjunction()
        if row is None or isinstance(row, exp.Tuple):
            return row
        return self.expression(exp.Tuple(expressions=[row.unnest()]))

    def _parse_types(self, *args: bool, **kwargs: bool) -> exp.Expr | None:
        first = self._curr
        found = super()._parse_types(*args, **kwargs)
        if isinstance(found, exp.DataType) and first is not None:
            found.meta[_RAW] = self.read_since(first)
        return found

    def _parse_colon_as_variant_extract(self, this: exp.Expr | None) -> exp.Expr | None:
        if this is None or self._curr.token_type is not TokenType.COLON:
            return this
        first = self._curr
        self._advance()
        while True:
            if self._match(TokenType.L_BRACKET):
                if not self._match_set((TokenType.NUMBER, TokenType.STRING)):
                    self.raise_error("expected a constant")
                if not self._match(TokenType.R_BRACKET):
                    self.raise_error("expected ]")
            elif self._prev.token_type in (TokenType.COLON, TokenType.DOT):
                self._advance()
            elif not self._match(TokenType.DOT):
                break
        path = self.sql[first.start : self._prev.end + 1]
        return self._parse_column_ops(self.expression(Path(this=this, path=path)))


class _Generator(SparkGenerator):
    EXPRESSIONS_WITHOUT_NESTED_CTES: ClassVar = set[type[exp.Expr]]()
    TABLESAMPLE_SEED_KEYWORD = "REPEATABLE"
    TRANSFORMS: ClassVar = {
        kind: how
        for kind, how in SparkGenerator.TRANSFORMS.items()
        if not issubclass(kind, exp.Func)
    } | {
        exp.CurrentDate: lambda *_: "CURRENT_DATE()",
        exp.CurrentTimestamp: lambda *_: "CURRENT_TIMESTAMP()",
        exp.Cast: lambda self, node: self.cast(node, "CAST"),
        exp.TryCast: lambda self, node: self.cast(node, "TRY_CAST"),
        Plus: lambda self, node: f"+ {self.sql(node, 'this')}",
        Worded: lambda self, node: self.worded_sql(node),
        Path: lambda self, node: f"{self.sql(node, 'this')}{node.args['path']}",
        Cast: lambda self, node: f"{self.sql(node, 'this')}::{self.sql(node, 'to')}",
        exp.BitwiseLeftShift: lambda self, node: self.binary(node, "<<"),
        exp.BitwiseRightShift: lambda self, node: self.binary(node, ">>"),
        exp.RegexpLike: lambda self, node: self.binary(node, "RLIKE"),
        exp.NullSafeEQ: lambda self, node: self.binary(node, "<=>"),
    }

    def identifier_sql(self, expression: exp.Identifier) -> str:
        # The parser takes some strings for names without quotes.
        if not expression.quoted and not _NAME.fullmatch(expression.name):
            expression = exp.to_identifier(expression.name, quoted=True)
        return super().identifier_sql(expression)

    def lateral_sql(self, expression: exp.Lateral) -> str:
        alias = expression.args.get("alias")
        if expression.args.get("view") and alias is not None and alias.this is not None:
            # `super` would write the alias without its quotes.
            expression = expression.copy()
            alias = expression.args["alias"]
            alias.set("this", exp.to_identifier(self.sql(alias, "this"), quoted=False))
        return super().lateral_sql(expression)

    def select_sql(self, expression: exp.Select) -> str:
        star = expression.expressions[0] if len(expression.expressions) == 1 else None
        if not isinstance(star, exp.Star) or not star.args.get("replace"):
            return super().select_sql(expression)
        (new,) = star.args["replace"]
        plain = expression.copy()
        plain.set("expressions", [exp.Star()])
        name = self.sql(new, "alias")
        return f"{super().select_sql(plain)} |> SET {name} = {self.sql(new, 'this')}"

    def literal_sql(self, expression: exp.Literal) -> str:
        return expression.meta.get(_RAW) or super().literal_sql(expression)

    def datatype_sql(self, expression: exp.DataType) -> str:
        return expression.meta.get(_RAW) or super().datatype_sql(expression)

    def cast(self, node: exp.Cast, name: str) -> str:
        return f"{name}({self.sql(node, 'this')} AS {self.sql(node, 'to')})"

    def worded_sql(self, expression: Worded) -> str:
        pairs = zip(expression.args["words"], expression.expressions, strict=True)
        inside = " ".join(f"{word} {self.sql(argument)}".strip() for word, argument in pairs)
        return f"{expression.name}({inside})"


class StreamSql(Spark):
    """Spark SQL for the compiler."""

    NORMALIZE_FUNCTIONS = False
    Parser = _Parser
    Generator = _Generator


def _extended() -> StreamSql:
    """The dialect; mypyc classes, which sqlglotc consists of, cannot be extended."""
    made = StreamSql()
    try:
        made.parser()
    except TypeError as error:
        raise StreamSqlError(
            "PARSER_COMPILED",
            f"the compiled SQL parser cannot be extended: {error}",
            given="the package sqlglotc (the extra `c` of sqlglot)",
            allowed="sqlglot in plain Python",
            hint="pip uninstall sqlglotc, or install dbt-streamsql in its own environment",
        ) from error
    return made


DIALECT = _extended()


KNOWN = tuple(exp.FUNCTION_BY_NAME[name] for name in _KNOWN)
"""The calls that have a class of their own."""


def to_sql(node: exp.Expr, *, pretty: bool = False, copy: bool = True) -> str:
    """A node as Spark SQL, as it was read. Without a copy, the node is unusable afterwards."""
    return str(node.sql(dialect=DIALECT, comments=False, pretty=pretty, copy=copy))


def tokens_of(sql: str) -> list[Token]:
    """The tokens of a text as Spark reads them."""
    return tokens.tokens_of(sql, DIALECT)


def parse_all(sql: str) -> list[exp.Expr]:
    """The statements of a text; raises SqlglotError."""
    found = DIALECT.parser().parse(tokens_of(sql), sql)
    return [tree for tree in found if tree is not None]


def unfaithful(sql: str, tree: exp.Expr) -> str:
    """Words of a text that its tree lacks, or that the tree adds; '' when there are none.

    Parentheses, words without a meaning, and the place of NOT may differ.
    """
    given, said = _words(sql), _words(to_sql(tree))
    said.subtract(pipes.said_beside(tree))
    for group in tree.find_all(exp.Group):
        if pipes.REPEATED in group.meta:
            said.subtract(_words(", ".join(to_sql(key) for key in group.expressions)))
    for kind, words in _ADDED.items():
        if tree.find(kind):
            said -= Counter({word: max(0, said[word] - given[word]) for word in words})
    if given == said:
        return ""
    added, lost = (", ".join(sorted(words)) or "nothing" for words in (said - given, given - said))
    return f"{added} instead of {lost}"


_ADDED = {
    exp.Pivot: ("select", "*", "from"),
    exp.Values: ("select", "*", "from", "_values"),
    exp.Join: ("on", "true"),
}
"""Words that the parser adds: a pivot with an alias and VALUES as a CTE become sub-queries, and a
join without a condition gets one."""
_SILENT = frozenset({"(", ")", "as", "inner", "outer", ";"})
_SAME = {"!=": "<>", "==": "=", "!": "not", "regexp": "rlike", "minus": "except"}
_SETS = frozenset({"union", "except", "intersect", "minus"})


def _words(sql: str) -> Counter[str]:
    found: list[str] = []
    for token in tokens_of(sql):
        kind = token.token_type
        if kind is TokenType.HINT:
            continue
        if kind in _STRINGS or kind is TokenType.NUMBER:
            found.append(sql[token.start : token.end + 1])
        elif kind is TokenType.IDENTIFIER:
            found.append(token.text.lower())
        else:
            for word in token.text.lower().split():
                _say(found, word)
    return Counter(word for word in found if word not in _SILENT)


def _say(found: list[str], word: str) -> None:
    before = found[-1] if found else ""
    if word in ("asc", "distinct" if before in _SETS else "all"):
        return
    if before == "nulls" and word == ("last" if found[-2:-1] == ["desc"] else "first"):
        found.pop()
        return
    found.append(_SAME.get(word, word))
    if found[-4:] == ["is", "not", "distinct", "from"]:
        found[-4:] = ["<=>"]
    elif found[-3:] == ["is", "distinct", "from"]:
        found[-3:] = ["not", "<=>"]
    elif found[-2:] == ["cross", "join"]:
        found[-2:] = [","]
    elif word in ("preceding", "row"):
        _say_whole_frame(found)


def _say_whole_frame(found: list[str]) -> None:
    """`ROWS 2 PRECEDING` is short for BETWEEN 2 PRECEDING AND CURRENT ROW."""
    for at in reversed(range(len(found))):
        if found[at] == "between":
            return
        if found[at] in ("rows", "range"):
            found += ["between", "and", "current", "row"]
            return
