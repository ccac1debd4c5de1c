"""Aggregates that are sums over signed rows, and the columns that they are computed from.

For exact types, with stored `n`, `n_x`, `s_x`

    n' = n + Σ w        n_x' = n_x + Σ w·[x not NULL]        s_x' = s_x + Σ w·x
    COUNT(*) = n'    COUNT(x) = n_x'    SUM(x) = s_x' or NULL when n_x' = 0    AVG(x) = s_x'/n_x'

and a group lives while n' > 0. MIN and MAX take the smaller or greater of old and new, unless the
group lost a value: then its extrema are recomputed from the rows of that key.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dbt_streamsql.compiler.codegen.emitter import Emitter
from dbt_streamsql.compiler.codegen.render_sql import indent
from dbt_streamsql.compiler.rules import delta as delta_of
from dbt_streamsql.compiler.rules.keyed import restricted
from dbt_streamsql.plan.algebra.expression import escape, hole
from dbt_streamsql.plan.algebra.relational import Aggregate, Call, scans
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX, WEIGHT, Column
from dbt_streamsql.plan.program.fold_values import LOST, MOVED, exact_column
from dbt_streamsql.plan.program.steps import Component, ComponentKind
from dbt_streamsql.quoting import quote

ALL = Call("", "COUNT", None, False, "bigint", False, "bigint")
"""COUNT(*): a group lives while it is above zero."""

_SIGN = "_sign"
_FOLDED = frozenset({"COUNT", "SUM", "AVG", "MIN", "MAX"})
_NARROW_AVERAGE = 11
"""Digits up to which Spark's rule DecimalAggregates averages in doubles (15 minus 4)."""
_DIGITS = 38
_KEPT_SCALE = 6
"""Digits of a decimal, and the decimal places that no addition rounds away."""
_WIDEST_NEGATION = 34
"""Digits up to which Spark's unary minus is exact (DECIMAL128)."""
_WIDEST_PRODUCT = 17
"""Digits of a decimal that a product with a BIGINT weight keeps (17 + 21 = 38)."""


def unfolded(call: Call) -> str:
    """Why a call is not a sum over signed rows ('' when it is)."""
    name = (call.function or call.template.split("(")[0]).lower()
    if call.distinct or call.template or call.function not in _FOLDED:
        return f"{name}({'distinct' if call.distinct else '…'}) cannot be added up"
    if call.function not in {"SUM", "AVG"}:
        return ""
    column = Column("", call.arg_type)
    if not column.is_exact:
        return f"{name} of {call.arg_type} depends on the order of addition"
    if column.decimal is not None and not _adds_exactly(*column.decimal):
        return f"{name} of {call.arg_type} needs more digits than an addition keeps"
    return ""


def _adds_exactly(precision: int, scale: int) -> bool:
    """Whether two sums add without rounding: Spark drops digits beyond 38, down to six."""
    return precision + 10 < _DIGITS or scale <= _KEPT_SCALE


@dataclass
class Components:
    """The components found so far: each with the call that fills it on a full refresh.

    `visible` are the calls that already have a column, without their names.
    """

    visible: dict[Call, str]
    components: list[Component] = field(default_factory=list)
    filled_by: list[Call] = field(default_factory=list)
    hidden: list[tuple[Column, Call]] = field(default_factory=list)
    _columns: dict[Call, str] = field(default_factory=dict)

    def component(self, call: Call, kind: ComponentKind, null_when_zero: str = "") -> str:
        """The column that stores `call`, added when it is new."""
        bare = replace(call, name="")
        if bare in self._columns:
            return self._columns[bare]
        column = self.visible.get(bare)
        if column is None:
            label = call.function.lower() + (f"_{call.arg}" if call.arg else "")
            column = _free(f"{HIDDEN_PREFIX}{label}", {c.name for c, _ in self.hidden})
            self.hidden.append((Column(column, call.type), replace(call, name=column)))
        self.components.append(Component(column, kind, call.type, null_when_zero))
        self.filled_by.append(call)
        self._columns[bare] = column
        return column


def formula(call: Call, state: Components, alive: str, grouped: bool) -> str:
    """The value of a call from the new values of its components, as a template."""

    def count() -> str:
        if call.arg is None or not call.arg_nullable:
            return alive
        return state.component(replace(call, function="COUNT", type="bigint", cast=""), "add")

    if call.function == "COUNT":
        return hole(count())
    if call.function in {"MIN", "MAX"}:
        return hole(state.component(call, "least" if call.function == "MIN" else "greatest"))
    counter = count()
    never_null = grouped and counter == alive
    column = Column("", call.arg_type)
    if call.function == "SUM":
        return hole(state.component(call, "add", "" if never_null else counter))
    total = _total(call, column)
    stored = state.component(total, "add", "" if never_null else counter)
    if column.decimal is None:
        return f"(CAST({hole(stored)} AS DOUBLE) / nullif({hole(counter)}, 0))"
    if column.decimal[0] <= _NARROW_AVERAGE:
        return _narrow_average(hole(stored), hole(counter), column.decimal[1], call.type)
    return _decimal_average(hole(stored), hole(counter), call.type)


def _total(call: Call, column: Column) -> Call:
    """The SUM that an AVG needs: wide enough not to overflow where AVG itself does not."""
    if column.decimal is not None:
        precision, scale = column.decimal
        return replace(call, function="SUM", type=f"decimal({min(precision + 10, 38)},{scale})")
    if column.type == "bigint":
        return replace(call, function="SUM", type="decimal(38,0)", cast="decimal(38,0)")
    return replace(call, function="SUM", type="bigint")


def _narrow_average(total: str, count: str, scale: int, result: str) -> str:
    """AVG of a narrow decimal as in Spark's optimizer: whole units, divided as doubles."""
    unit = f"1{'0' * scale}"
    units = f"CAST(CAST({total} * {unit} AS DECIMAL(38,0)) AS DOUBLE)"
    return f"CAST({units} / nullif({count}, 0) / {unit}.0D AS {result})"


def _decimal_average(total: str, count: str, result: str) -> str:
    """total/count rounded half up once, in whole numbers of the last digit.

    A plain division would round twice: first to Spark's scale of the quotient.
    """
    decimal = Column("", result).decimal
    assert decimal is not None
    scale = decimal[1]
    unit = f"CAST(1{'0' * scale} AS DECIMAL(38,0))"
    units = f"CAST(abs({total}) * {unit} AS DECIMAL(38,0))"
    twice = f"CAST(nullif({count}, 0) AS DECIMAL(20,0)) * 2"
    numerator = f"CAST({units} * 2 + {count} AS DECIMAL(38,0))"
    whole = f"CAST(({numerator} - {numerator} % ({twice})) / ({twice}) AS DECIMAL(38,0))"
    return f"CAST(sign({total}) * {whole} / {unit} AS {result})"


def group_changes(
    node: Aggregate, stored: tuple[str, ...], state: Components, emitter: Emitter
) -> str:
    """The change of each group that anything touched, computed once: a frame.

    It has the keys as `stored`, a column for each component, and the recomputed extrema.
    """
    changed = delta_of(node.input, emitter)
    groups = emitter.collect(
        "groups", emitter.query("group_changes", _changes_sql(node, stored, changed, state))
    )
    extrema = [
        (component, call)
        for component, call in zip(state.components, state.filled_by, strict=True)
        if component.kind != "add"
    ]
    if not extrema:
        return groups
    exact = _exact(node, stored, extrema, groups, emitter)
    parts = [component for component, _ in extrema]
    # If no group lost a value, the extrema are empty, and an empty frame is not joined.
    names = [escape(quote(name)) for name in (*stored, *(part.column for part in parts))]
    none = emitter.query(
        "no_extrema", f"SELECT {', '.join(names)}\nFROM {{{groups}}}\nWHERE false"
    )
    known = emitter.union("all_extrema", [exact, none])
    items = [
        f"e.{escape(quote(part.column))} AS {escape(exact_column(part, state.components))}"
        for part in parts
    ]
    on = [f"s.{escape(quote(key))} <=> e.{escape(quote(key))}" for key in stored]
    beside = emitter.query(
        "with_extrema",
        f"SELECT s.*, {', '.join(items)}\nFROM {{{groups}}} s\n"
        f"LEFT JOIN {{{known}}} e ON {' AND '.join([f's.{LOST}', *on])}",
    )
    return emitter.collect("groups_with_extrema", beside)


def _changes_sql(node: Aggregate, stored: tuple[str, ...], changed: str, state: Components) -> str:
    items = [
        f"i.{escape(quote(key))} AS {escape(quote(name))}"
        for key, name in zip(node.keys, stored, strict=True)
    ]
    moved: list[str] = []
    lost: list[str] = []
    one_by_one = any(_too_wide(call) for call in state.filled_by)
    weight = f"CAST(i.{_SIGN} AS BIGINT)" if one_by_one else f"i.{WEIGHT}"
    for component, call in zip(state.components, state.filled_by, strict=True):
        argument = "" if call.arg is None else f"i.{escape(quote(call.arg))}"
        if component.kind != "add":
            items.append(
                f"{call.function}(IF({weight} > 0, {argument}, NULL)) "
                f"AS {escape(quote(component.column))}"
            )
            lost.append(f"max({weight} < 0 AND {argument} IS NOT NULL)")
            moved.append(f"max({argument} IS NOT NULL)")
            continue
        if call.function == "COUNT":
            amount = weight if not argument else f"IF({argument} IS NULL, 0, {weight})"
        else:
            amount = _signed(argument, call, weight)
        total = f"coalesce(sum({amount}), 0)"
        items.append(f"CAST({total} AS {component.type}) AS {escape(quote(component.column))}")
        moved.append(f"{total} <> 0")
    if lost:
        items.append(f"({' OR '.join(lost)}) AS {LOST}")
    source = f"{{{changed}}}"
    if node.ttl:
        items.append(f"max({weight} <> 0) AS {MOVED}")
    if (node.ttl or any(scan.ttl for scan in scans(node))) and node.input.columns:
        # A row that was only rewritten counts as a write of its group, but not as a loss.
        columns = ", ".join(escape(quote(name)) for name in node.input.columns)
        source = (
            f"(\n  SELECT {columns}, sum({WEIGHT}) AS {WEIGHT}\n  FROM {source}\n"
            f"  GROUP BY {columns}\n)"
        )
    if one_by_one:
        columns = ", ".join(escape(quote(name)) for name in node.input.columns)
        source = (
            f"(\n  SELECT {columns}, sign({WEIGHT}) AS {_SIGN},"
            f" explode(sequence(1, CAST(greatest(1, abs({WEIGHT})) AS INT)))\n  FROM {source}\n)"
        )
    sql = f"SELECT {', '.join(items)}\nFROM {source} i"
    if node.keys:
        sql += f"\nGROUP BY {', '.join(f'i.{escape(quote(key))}' for key in node.keys)}"
    if node.ttl:
        return sql if node.keys else f"{sql}\nHAVING count(*) > 0"
    return f"{sql}\nHAVING {' OR '.join(moved)}"


def _too_wide(call: Call) -> bool:
    decimal = Column("", call.cast or call.arg_type).decimal
    return call.function == "SUM" and decimal is not None and decimal[0] > _WIDEST_PRODUCT


def _signed(argument: str, call: Call, weight: str) -> str:
    value = f"CAST({argument} AS {call.cast})" if call.cast else argument
    if _too_wide(call):
        less = _negated(value, call.cast or call.arg_type)
        return f"CASE WHEN {weight} > 0 THEN {value} WHEN {weight} < 0 THEN {less} END"
    return f"{weight} * {value}"


def _negated(value: str, type_: str) -> str:
    """The negative of a decimal, exact to its last digit: as text where Spark's minus rounds."""
    decimal = Column("", type_).decimal
    if decimal is None or decimal[0] <= _WIDEST_NEGATION:
        return f"-{value}"
    text = f"CAST({value} AS STRING)"
    turned = f"IF({value} < 0, substring({text}, 2), concat('-', {text}))"
    return f"CAST({turned} AS {type_})"


def _exact(
    node: Aggregate,
    stored: tuple[str, ...],
    extrema: list[tuple[Component, Call]],
    groups: str,
    emitter: Emitter,
) -> str:
    """MIN and MAX of the groups that lost a value, from the rows after the epoch."""
    pairs = list(zip(node.keys, stored, strict=True))
    keys = ", ".join(f"{escape(quote(new))} AS {escape(quote(old))}" for old, new in pairs)
    losers = emitter.collect(
        "losers",
        emitter.query(
            "loser_rows", f"SELECT {keys or '1 AS one'}\nFROM {{{groups}}}\nWHERE {LOST}"
        ),
    )
    recomputed = Aggregate(
        node.input, node.keys, tuple(replace(call, name=c.column) for c, call in extrema)
    )
    inner = restricted(recomputed, emitter.after, losers if node.keys else "")
    items = [f"e.{escape(quote(old))} AS {escape(quote(new))}" for old, new in pairs]
    items += [f"e.{escape(quote(component.column))}" for component, _ in extrema]
    sql = f"SELECT {', '.join(items)}\nFROM (\n{indent(inner)}\n) e"
    return emitter.query("extrema", sql, (losers,))


def _free(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    return name
