"""Steps as a Python program: the text contains the same calls that the runtime makes."""

from __future__ import annotations

from dbt_streamsql.plan.program.steps import (
    Apply,
    Changes,
    Collect,
    Component,
    Derived,
    Fold,
    Lookup,
    Query,
    Replace,
    State,
    Step,
    Stored,
    Together,
    Union,
)

_PAD = "    "


def print_program(table: str, headline: str, steps: tuple[Step, ...]) -> str:
    """A module with one function `advance(epoch)`; `epoch` is a `ProgramRunner`."""
    types = ["Component", "Derived"] if any(isinstance(step, Fold) for step in steps) else []
    types += ["Meeting"] if any(isinstance(step, Changes) and step.meets for step in steps) else []
    lines = [f'"""{table}: {headline}."""', ""]
    types += ["Lookup"] if any(isinstance(step, Lookup) for step in steps) else []
    if types:
        lines += [f"from dbt_streamsql.plan.program.steps import {', '.join(types)}", ""]
    lines += ["", "def advance(epoch):"]
    for step in steps:
        lines += [_PAD + line if line else "" for line in _statement(step).splitlines()]
    if not steps:
        lines.append(f"{_PAD}epoch.refresh_in_full()")
    return "\n".join(lines) + "\n"


def _statement(step: Step) -> str:
    if isinstance(step, Changes):
        meets = f", meets={list(step.meets)!r}" if step.meets else ""
        rest = meets + _ttl(step)
        return f"{step.name} = epoch.changes({step.table!r}, {list(step.columns)!r}{rest})"
    if isinstance(step, State):
        met = ", met=True" if step.met else ""
        return f"{step.name} = epoch.{step.moment}({step.table!r}{met}{_ttl(step)})"
    if isinstance(step, Lookup):
        return f"{step.name} = epoch.looked_up({step!r}, {step.rows}, {step.asking})"
    if isinstance(step, Stored):
        return f"{step.name} = epoch.stored()"
    if isinstance(step, Query):
        return _query(step)
    if isinstance(step, Union):
        return f"{step.name} = epoch.union({', '.join(step.parts)})"
    if isinstance(step, Together):
        parts = "".join(f"{_PAD}({p.frame}, {list(p.columns)!r}),\n" for p in step.parts)
        return f"{step.name} = epoch.together(\n{parts}{_PAD}key={list(step.key)!r},\n)"
    if isinstance(step, Collect):
        return f"{step.name} = epoch.collect({step.frame})"
    if isinstance(step, Apply):
        return f"epoch.apply({step.frame})"
    if isinstance(step, Replace):
        several = "" if step.single else ", single=False"
        return f"epoch.replace({step.frame}, keys={step.keys}, key={list(step.key)!r}{several})"
    return _fold(step)


def _query(step: Query) -> str:
    body = "\n".join(_PAD + line for line in step.sql.splitlines())
    body = body.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    holes = [f"{frame}={frame}" for frame in Query("", step.sql).frames]
    extra = f", when=[{', '.join(step.when)}]" if step.when else ""
    extra += f", unless=[{', '.join(step.unless)}]" if step.unless else ""
    names = f", {', '.join(holes)}" if holes else ""
    return f'{step.name} = epoch.sql("""\n{body}"""{names}{extra})'


def _fold(step: Fold) -> str:
    lines = ["epoch.fold(", f"{_PAD}{step.groups},"]
    lines += [f"{_PAD}key={list(step.key)!r},", f"{_PAD}alive={step.alive!r},"]
    lines.append(f"{_PAD}components=[")
    lines += [f"{_PAD * 2}{_component(component)}," for component in step.components]
    lines += [f"{_PAD}],", f"{_PAD}derived=["]
    lines += [f"{_PAD * 2}{_derived(derived)}," for derived in step.derived]
    lines.append(f"{_PAD}],")
    if step.ttl:
        lines.append(f"{_PAD}ttl={step.ttl},")
    return "\n".join([*lines, ")"])


def _ttl(step: Changes | State) -> str:
    return f", ttl={step.ttl}" if step.ttl else ""


def _component(part: Component) -> str:
    values = [repr(part.column), repr(part.kind), repr(part.type)]
    if part.null_when_zero:
        values.append(f"null_when_zero={part.null_when_zero!r}")
    if part.of:
        values.append(f"of={part.of!r}")
    return f"Component({', '.join(values)})"


def _derived(part: Derived) -> str:
    return f"Derived({part.column!r}, {part.sql!r})"
