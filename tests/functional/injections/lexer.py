"""Spark's own lexer and parser, asked about a statement."""

from __future__ import annotations

import re
from dataclasses import dataclass

_HEAD = re.compile(r"\[@-?\d+,(\d+):(\d+)='")
_TAIL = re.compile(r"',<(-?\d+)>(?:,channel=(\d+))?,\d+:\d+\](?:, |\]$)")
_SHOWN = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t"})


@dataclass(frozen=True)
class Token:
    kind: int
    text: str


class Lexer:
    """Tokens of the session that statements run in, without spaces."""

    def __init__(self, spark) -> None:
        jvm = spark._jvm
        self._new = jvm.org.apache.spark.sql.catalyst.parser.SqlBaseLexer
        self._upper = jvm.org.apache.spark.sql.catalyst.parser.UpperCaseCharStream
        self._chars = jvm.org.antlr.v4.runtime.CharStreams
        self._parser = spark._jsparkSession.sessionState().sqlParser()
        self._space: set[int] = {t.kind for t in self._all(" \n") + self._all("--x\n ")}

    def tokens(self, sql: str) -> list[Token]:
        return [token for token in self._all(sql) if token.kind not in self._space]

    def parses(self, sql: str) -> bool:
        """Whether Spark takes it for one statement."""
        from pyspark.errors import ParseException

        try:
            self._parser.parsePlan(sql)
        except ParseException:
            return False
        return True

    def _all(self, sql: str) -> list[Token]:
        """All tokens, from one text: a call into the JVM for each would take minutes."""
        lexer = self._new(self._upper(self._chars.fromString(sql)))
        lexer.removeErrorListeners()
        shown, position, found = str(lexer.getAllTokens().toString()), 1, []
        while head := _HEAD.match(shown, position):
            text = sql[int(head[1]) : int(head[2]) + 1]
            position = head.end() + len(text.translate(_SHOWN))
            tail = _TAIL.match(shown, position)
            assert tail is not None, shown[position - 20 : position + 40]
            position = tail.end()
            found.append(Token(int(tail[1]), text))
        assert position >= len(shown) or shown == "[]", shown[position:]
        return found
