"""Updates that leave values out: which stored values a keyed table keeps, and when it may."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX

LACKS = f"{HIDDEN_PREFIX}lacks"
"""The column of a record with what was not sent: a struct, NULL where everything was sent."""

LACKS_TYPE = "struct<names:array<string>,raw:string,at:string,problem:string>"
"""The columns of the source, and facts about the record where their values are not known."""


@dataclass(frozen=True)
class Carrying:
    """How the query of a keyed streaming table treats a record that lacks values.

    `text` is the query with LACKS added to its columns; its hole `{stream}` is the source.
    `depends` has the stored columns that may have to be kept, each with the source columns that it
    is computed from. A record that lacks one of `needed` cannot be placed at all. `places`: what
    determines the key and the sequence. `reason`: why no stored value stands in for one that was
    not sent ('': it does).
    """

    text: str = ""
    depends: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    needed: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, known: Mapping[str, Any]) -> Carrying:
        """From the output of `to_json`."""
        depends = {name: tuple(of) for name, of in known["depends"].items()}
        needed, places = tuple(known["needed"]), tuple(known["places"])
        return cls(known["text"], depends, needed, places, known["reason"])
