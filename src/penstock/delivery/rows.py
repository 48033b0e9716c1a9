"""Records as rows of columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

Row = Mapping[str, Any]
"""A row, by column."""


def columns_of(value: Any) -> dict[str, Any]:
    """Return the columns of a value: its fields, or `value` if it has none."""
    if isinstance(value, Mapping):
        return {str(name): field for name, field in value.items()}
    if isinstance(value, str | bytes | int | float | bool):
        return {"value": value}
    built: Any = value.model_dump() if hasattr(value, "model_dump") else msgspec.to_builtins(value, builtin_types=(bytes,))
    return built if isinstance(built, dict) else {"value": built}
