"""However a query is typed, it is the same query: comments, layout, case, quotes and pipes change
no plan.

`STREAMSQL_DUCK_TEXTS` is the number of texts of a campaign, `STREAMSQL_SEED` the first seed.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from itertools import count, islice
from random import Random

import pytest
from sqlglot import TokenType, exp

from tests.differential.duck_catalog import DuckCatalog
from tests.differential.duck_grammar import TABLES, VIEWS, scenario
from tests.differential.duck_world import DuckWorld
from tests.support.product import compile_view, symbol, without_qualify

tokens_of = symbol("tokens_of", beside="to_sql")
parse_all = symbol("parse_all", beside="to_sql")
DIALECT = symbol("DIALECT", beside="to_sql")

TEXTS = int(os.environ.get("STREAMSQL_DUCK_TEXTS", "1600"))
SEED = int(os.environ.get("STREAMSQL_SEED", "1000"))
FEW, PARTS, EACH = 20, 8, 10

_GAPS = (" ", " ", "\n", "\t ", "  \r\n  ", ' /* it\'s; a -- "comment" */ ', " -- `one`: 'more'\n")
_AS_THEY_ARE = {TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER}


def test_a_text_that_is_typed_otherwise_has_the_same_plan():
    _same_plans(SEED, FEW)


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_no_text_of_a_campaign_has_another_plan(part, capsys):
    share = TEXTS // PARTS
    tally = _same_plans(SEED + part * share, share)
    with capsys.disabled():
        print(f"\n{share} texts: {dict(tally)}")


def test_operators_behind_pipes_have_the_plan_of_the_block_that_says_the_same():
    tally = _same_plans(SEED, FEW, as_pipes)
    assert tally["otherwise"] > FEW // 2


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_no_pipe_of_a_campaign_has_another_plan(part, capsys):
    share = TEXTS // PARTS // 4
    tally = _same_plans(SEED + part * share, share, as_pipes)
    with capsys.disabled():
        print(f"\n{share} texts as pipes: {dict(tally)}")


def _same_plans(first, texts, otherwise=None):
    """Compile so many queries as the grammar writes them and as somebody else would."""
    tally = Counter()
    world = DuckWorld(TABLES, VIEWS)
    catalog = DuckCatalog(world.connection, world.tables)
    views = (
        (f"{seed}/{number}", view.sql)
        for seed in count(first)
        for number, view in enumerate(scenario(seed, EACH, 0).views)
    )
    for place, sql in islice(views, texts):
        other = otherwise(sql) if otherwise else typed_otherwise(sql, Random(place))
        if otherwise:
            catalog.same_columns(without_qualify(sql), other)
        one, two = (
            compile_view(without_qualify(text), catalog, table="lake.v.v") for text in (sql, other)
        )
        told = f"{place}\n{sql}\n{other}\n{one.reasons}\n{two.reasons}"
        assert _meaning(one) == _meaning(two), told
        tally[one.mode] += 1
        tally["otherwise"] += other != sql
    world.close()
    return tally


def _meaning(plan):
    """What a plan says, but for case and blanks: calls and types in it are as they were written."""
    return plan.mode, plan.columns, json.dumps(plan.tree).lower().replace(" ", "")


def typed_otherwise(sql, random):
    """The same tokens with other gaps, keywords in another case, and quotes around some names."""
    made, end, before = [], 0, None
    for token in tokens_of(sql):
        if token.start > end or (made and random.random() < 0.1 and _may_part(before, token)):
            made.append(random.choice(_GAPS))
        text = sql[token.start : token.end + 1]
        if token.token_type not in _AS_THEY_ARE:
            text = random.choice((str.upper, str.lower, str.title))(text)
        elif (
            token.token_type is TokenType.VAR and before is TokenType.DOT and random.random() < 0.5
        ):
            text = f"`{text}`"
        made.append(text)
        end, before = token.end + 1, token.token_type
    return "".join(made) + random.choice(("", "\n", " -- the end"))


class _Pipes(DIALECT.generator_class):
    """Writes the blocks that pipes can say by them."""

    def select_sql(self, expression):
        given = {key for key, value in expression.args.items() if value}
        if not {"expressions", "from_"} <= given <= _PIPED or isinstance(
            expression.parent, exp.SetOperation
        ):
            return super().select_sql(expression)
        said = [self.sql(expression, "from_").strip()]
        said[0] += "".join(self.sql(join) for join in expression.args.get("joins") or [])
        if "where" in given:
            said.append(self.sql(expression, "where").strip())
        shown = [self.sql(item) for item in expression.expressions]
        keys = expression.args["group"].expressions if "group" in given else []
        if [item.unalias() for item in expression.expressions[: len(keys)]] != keys:
            return super().select_sql(expression)
        if keys:
            calls, groups = ", ".join(shown[len(keys) :]), ", ".join(shown[: len(keys)])
            said.append(f"AGGREGATE {calls} GROUP BY {groups}")
        else:
            said.append(f"SELECT {', '.join(shown)}")
        return " |> ".join(said)


_PIPED = {"expressions", "from_", "joins", "where", "group"}


def as_pipes(sql):
    """The query with pipes, where they can say what a block says."""
    (tree,) = parse_all(without_qualify(sql))
    return _Pipes(dialect=DIALECT).generate(tree)


def _may_part(before, token):
    return before in (TokenType.COMMA, TokenType.L_PAREN) or token.token_type in (
        TokenType.COMMA,
        TokenType.R_PAREN,
    )
