"""The names of nodes and steps in stored plans.

A tag never changes, even if its class does: a stored plan with other tags would be compiled
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dbt_streamsql.plan.algebra import relational
from dbt_streamsql.plan.algebra.expression import Expr
from dbt_streamsql.plan.program import steps

NODE_KINDS: Mapping[str, type[Any]] = {
    "Aggregate": relational.Aggregate,
    "Branches": relational.Branches,
    "Call": relational.Call,
    "Chosen": relational.Chosen,
    "Constant": relational.Constant,
    "Expr": Expr,
    "Generate": relational.Generate,
    "Input": relational.Input,
    "Limit": relational.Limit,
    "Match": relational.Match,
    "Merge": relational.Merge,
    "Output": relational.Output,
    "Over": relational.Over,
    "Scan": relational.Scan,
    "Select": relational.Select,
    "Session": relational.Session,
    "UnionAll": relational.UnionAll,
    "Window": relational.Window,
}

STEP_KINDS: Mapping[str, type[Any]] = {
    "Apply": steps.Apply,
    "Changes": steps.Changes,
    "Collect": steps.Collect,
    "Fold": steps.Fold,
    "Lookup": steps.Lookup,
    "Query": steps.Query,
    "Replace": steps.Replace,
    "State": steps.State,
    "Stored": steps.Stored,
    "Together": steps.Together,
    "Union": steps.Union,
}

_TAGS = {kind: tag for kinds in (NODE_KINDS, STEP_KINDS) for tag, kind in kinds.items()}


def tag_of(part: object) -> str:
    """The tag of a node or a step."""
    return _TAGS[type(part)]
