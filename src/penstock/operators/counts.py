"""The functions of `count`. They read no values: `one_more` as an aggregator says that nothing but the key is needed."""

from __future__ import annotations

from typing import Any


def zero() -> int:
    """Return the count before the first record."""
    return 0


def one_more(key: Any, value: Any, count: int) -> int:
    """Count a record, or an entry that was added."""
    return count + 1


def one_less(key: Any, value: Any, count: int) -> int:
    """Subtract an entry that was removed."""
    return count - 1


def sum_of_counts(key: Any, left: int, right: int) -> int:
    """Return the count of two merged sessions."""
    return left + right
