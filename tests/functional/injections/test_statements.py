"""No value of a config changes the statement around it: Spark's own lexer sees the same tokens.

Every pair of a sink and a string is rendered by dbt with our macros. The statement must consist of
the same tokens as one with a harmless value, except for the token that is the value, and Spark
must read the value back from that token. A clear refusal is the other thing that may happen.

`make injections` tries all pairs; otherwise `STREAMSQL_INJECTIONS` of them from `STREAMSQL_SEED`.
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from dataclasses import dataclass, field

import pytest
from dbt_common.exceptions import DbtRuntimeError

from dbt_streamsql.errors import StreamSqlError
from tests.functional.injections import payloads
from tests.functional.injections.lexer import Lexer, Token
from tests.functional.injections.rendering import Renderer
from tests.functional.injections.sinks import NAME, SINKS, SQL, Sink, python_config

pytestmark = pytest.mark.spark

HARMLESS = "harmless"
SEED = int(os.environ.get("STREAMSQL_SEED", "1000"))
COUNT = os.environ.get("STREAMSQL_INJECTIONS", "1500")
REFUSALS = ("IDENTIFIER_INVALID", "EXPRESSION_INVALID", "PATH_OUTSIDE", "CONFIG_INVALID")


@pytest.fixture
def renderer(project, spark):
    made = Renderer(project)
    with made.adapter.connection_named("injections"):
        session = made.adapter.session
        session.sql("CREATE NAMESPACE lake.shop").collect()
        session.sql("CREATE TABLE lake.shop.target (id INT, other INT) USING iceberg").collect()
        yield made


@dataclass
class Judge:
    """Compares statements; `texts` are tokens of values, and what Spark must read from them."""

    lexer: Lexer
    texts: list[tuple[str, str]] = field(default_factory=list)

    def wrong(self, sink: Sink, harmless: str, sql: str, value: str) -> str:
        """What is wrong with the statement for a value, or ''."""
        there, here = self.lexer.tokens(harmless), self.lexer.tokens(sql)
        places = [i for i, token in enumerate(there) if HARMLESS in token.text]
        assert places, harmless
        if sink.kind != SQL and not self.lexer.parses(sql):
            return f"does not parse: {sql}"
        # What a place holds may be several tokens; what lies between the places must be equal.
        for number, place in enumerate(places):
            before = there[places[number - 1] + 1 if number else 0 : place]
            if here[: len(before)] != before:
                return f"changed before the value: {sql}"
            here = here[len(before) :]
            left = len(places) - number
            rest = len(there) - place - left
            size, uneven = divmod(len(here) - rest, left)
            if size < 1 or uneven:
                return f"changed after the value: {sql}"
            problem = self._value(sink, there[place], here[:size], value)
            if problem:
                return f"{problem}: {sql}"
            here = here[size:]
        return "" if here == there[places[-1] + 1 :] else f"changed after the value: {sql}"

    def _value(self, sink: Sink, harmless: Token, found: list[Token], value: str) -> str:
        if sink.kind == SQL:
            return "" if found == self.lexer.tokens(value) else "is not the expression"
        if sink.kind == NAME:
            names = [token for token in found if token.text != "."]
            if any(token.kind != harmless.kind for token in names) or len(found) % 2 == 0:
                return "is not a name"
            text = ".".join(token.text[1:-1].replace("``", "`") for token in names)
            same = text == value or _bare(text) == _bare(value)
            return "" if same else "is another name"
        if len(found) != 1 or found[0].kind != harmless.kind:
            return "is not one text"
        self.texts.append((found[0].text, value))
        return ""


def _bare(name: str) -> str:
    """Back-ticks that a user writes, and spaces around a part, do not belong to a name."""
    return re.sub(r"[`\s]", "", name)


def _refused(error: Exception) -> bool:
    return any(f"[STREAMSQL.{code}]" in str(error) for code in REFUSALS)


def _pairs() -> list[tuple[Sink, str]]:
    pairs = [(sink, value) for sink in SINKS for value in payloads.ALL]
    if COUNT != "all":
        random.Random(SEED).shuffle(pairs)
        pairs = pairs[: int(COUNT)]
    return pairs


def test_no_value_reaches_beyond_its_token(renderer):
    judge = Judge(Lexer(renderer.adapter.session))
    harmless = {sink.name: sink.render(renderer, HARMLESS) for sink in SINKS}
    tally, wrong = Counter(), []
    for sink, value in _pairs():
        try:
            sql = sink.render(renderer, value)
        except (DbtRuntimeError, StreamSqlError) as error:
            tally["refused" if _refused(error) else "failed"] += 1
            if not _refused(error):
                wrong.append((sink.name, value, str(error)))
            continue
        problem = judge.wrong(sink, harmless[sink.name], sql, value)
        tally["wrong" if problem else "quoted"] += 1
        if problem:
            wrong.append((sink.name, value, problem))
    print(f"injections: {sum(tally.values())} pairs, seed {SEED}: {dict(tally)}")
    print(Counter((name, why.split(":")[0]) for name, _, why in wrong))
    assert not wrong, (len(wrong), [(name, value, why[:200]) for name, value, why in wrong[:40]])
    assert tally["quoted"] > tally["refused"]
    _read_back(renderer.adapter.session, judge.texts)


def _read_back(session, texts: list[tuple[str, str]]) -> None:
    for start in range(0, len(texts), 500):
        part = texts[start : start + 500]
        row = session.sql("SELECT " + ", ".join(token for token, _ in part)).first()
        for read, (token, value) in zip(row, part, strict=True):
            assert read == value, (token, value, read)


def test_a_text_stays_itself_even_where_spark_replaces_variables(renderer):
    """The setting is off; a session of the user's own may have it on."""
    session = renderer.adapter.host.acquire()
    assert session.conf.get("spark.sql.variable.substitute") == "false"
    session.conf.set("spark.sql.variable.substitute", "true")
    values = [value for value in payloads.OURS if "$" in value]
    _read_back(session, [(renderer.adapter.streamsql_literal(value), value) for value in values])


def test_a_python_model_reads_the_value_of_its_config(renderer):
    for value in payloads.ALL:
        assert python_config(renderer, value) == {"k": value}


def test_the_list_of_strings_is_whole():
    assert len(payloads.NAUGHTY) >= 469
    assert len(payloads.OURS) >= 150
