"""Typed values from and to the plain ones that a format's library reads and writes: dicts, lists, numbers, texts, times."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.serdes.documents import instances_only, is_pydantic, shape_of

_PLAIN = (bytes, bytearray, dt.datetime, dt.date, dt.time, dt.timedelta, decimal.Decimal, uuid.UUID)


def converters(of: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return the conversions of a type's values to plain ones and back; plain types need none."""
    if of in (Any, dict):
        return _same, _same
    if is_pydantic(of):
        return _of_model(of)
    to_plain = instances_only(shape_of(of), lambda value: msgspec.to_builtins(value, builtin_types=_PLAIN))
    return to_plain, lambda plain: msgspec.convert(plain, of, builtin_types=_PLAIN)


def _of_model(model: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    def to_plain(value: Any) -> Any:
        if not isinstance(value, model):
            raise TypeError(f"expected {model.__name__}")
        return value.model_dump(by_alias=True, warnings="error")

    return to_plain, model.model_validate


def _same(value: Any) -> Any:
    return value
