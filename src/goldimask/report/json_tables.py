"""Any JSON as tables: scalars together, each list or mapping of records by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from goldimask.tables import Cell, Table


def tables_of(name: str, title: str, value: Any) -> list[Table]:
    """Scalars together, each list or mapping of records by itself."""
    if not isinstance(value, Mapping):
        return []
    scalars = {k: v for k, v in value.items() if isinstance(v, str | int | float | None)}
    found = []
    if scalars:
        found.append(Table(name, title, ("", "value"), tuple(scalars.items())))
    for key, inner in value.items():
        named, records = records_of(inner)
        if records:
            columns = tuple(dict.fromkeys(c for _, r in records for c in r))
            rows = tuple(
                (*([n] if named else []), *(r.get(c) for c in columns)) for n, r in records
            )
            head = ("", *columns) if named else columns
            found.append(Table(f"{name}-{key}", f"{title}: {key}", head, rows))
    return found


def records_of(value: Any) -> tuple[bool, list[tuple[str, dict[str, Cell]]]]:
    """Whether the records of a value have names, and (name, record) in order.

    A list of records has none; a mapping holds one record, or a list of them, under each name.
    """
    if isinstance(value, Sequence) and not isinstance(value, str):
        return False, [("", flat(v)) for v in value if isinstance(v, Mapping)]
    found = []
    for name, inner in value.items() if isinstance(value, Mapping) else ():
        if isinstance(inner, Mapping):
            found.append((name, flat(inner)))
        elif isinstance(inner, Sequence) and not isinstance(inner, str):
            found += [(name, flat(v)) for v in inner if isinstance(v, Mapping)]
    return True, found


def flat(record: Mapping[str, Any], at: str = "") -> dict[str, Cell]:
    """Nested mappings with dotted names; lists are left to the JSON."""
    out: dict[str, Cell] = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            out |= flat(value, f"{at}{key}.")
        elif isinstance(value, str | int | float | None):
            out[f"{at}{key}"] = value
    return out
