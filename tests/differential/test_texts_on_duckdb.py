"""However a query is typed, it is the same query: comments, layout, case and quotes change no plan.

`STREAMSQL_DUCK_TEXTS` is the number of texts of a campaign, `STREAMSQL_SEED` the first seed.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from itertools import count, islice
from random import Random

import pytest
from sqlglot import TokenType

from tests.differential.duck_catalog import DuckCatalog
from tests.differential.duck_grammar import TABLES, VIEWS, scenario
from tests.differential.duck_world import DuckWorld
from tests.support.product import compile_view, symbol, without_qualify

tokens_of = symbol("tokens_of", beside="to_sql")

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
        print(f"\n{sum(tally.values())} texts: {dict(tally)}")


def _same_plans(first, texts):
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
        other = typed_otherwise(sql, Random(place))
        one, two = (
            compile_view(without_qualify(text), catalog, table="lake.v.v") for text in (sql, other)
        )
        told = f"{place}\n{sql}\n{other}\n{one.reasons}\n{two.reasons}"
        assert _meaning(one) == _meaning(two), told
        tally[one.mode] += 1
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


def _may_part(before, token):
    return before in (TokenType.COMMA, TokenType.L_PAREN) or token.token_type in (
        TokenType.COMMA,
        TokenType.R_PAREN,
    )
