"""Reads some fields of JSON documents as columns, without reading the others.

What `Json()` would read differently, or not at all, raises `DoubtError`, also in a field that is not asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
import orjson
import pyarrow as pa

from penstock.expressions.columns.frames import Frame, Path
from penstock.expressions.columns.scalars import absent_in, is_text
from penstock.expressions.columns.vectors import DoubtError

_DEEPEST = 500
"""The brackets of a document that is certainly not nested too deeply for any reader."""

_MOST_DIGITS = 200
"""A number of at most so many digits is finite, unless its exponent has three digits or more."""

_E, _DOT, _PLUS, _ZERO, _NINE, _LIST, _OBJECT = b"e.+09[{"


class Reader(NamedTuple):
    """Decodes a document to an object that has only some fields, each of which is found by its path."""

    decode: Callable[[bytes], Any]
    fields: Mapping[Path, Callable[[Any], Any]]


def can_read(paths: Collection[Path]) -> bool:
    """Whether fields can be read together: none of them is the document, or within another one."""
    return () not in paths and not any(one != other and other[: len(one)] == one for one in paths for other in paths)


@lru_cache(maxsize=256)
def reader(paths: frozenset[Path]) -> Reader:
    """Return how documents are read; each call would create new classes."""
    fields: dict[Path, Callable[[Any], Any]] = {}
    kind = _class_of({path: path for path in paths}, (), fields)
    return Reader(msgspec.json.Decoder(kind).decode, fields)


def read(paths: frozenset[Path], column: pa.ChunkedArray) -> Frame:
    """Return the fields of a column of documents; those of a record without a value are null."""
    present = column.drop_null() if column.null_count else column
    decode, fields = reader(paths)
    if len(present):
        _validate(present.combine_chunks())
    try:
        documents = list(map(decode, present.to_pylist()))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DoubtError("a record that is no document, or cannot be read") from error
    absent = absent_in(column)
    return Frame(len(column), {path: _objects(documents, field, absent) for path, field in fields.items()}, {}, absent)


def _validate(documents: pa.BinaryArray) -> None:
    """Check what the decoder does not check in fields that it skips."""
    if not is_text(documents):
        raise DoubtError("text that is not UTF-8")
    starts = np.frombuffer(documents.buffers()[1], np.int32)[documents.offset : documents.offset + len(documents) + 1]
    text = np.frombuffer(documents.buffers()[2], np.uint8)[starts[0] : starts[-1]]
    suspects = _suspects(text, starts - starts[0])
    if suspects.any():
        for document in documents.filter(pa.array(suspects)).to_pylist():
            _validate_suspect(document)


def _suspects(text: Any, starts: Any) -> Any:
    """Return for each document whether it may have a number that is infinite, or be nested too deeply."""
    suspects = np.zeros(len(starts) - 1, bool)
    longest = np.diff(starts).max()
    suspects[np.searchsorted(starts, _large_exponents(text), "right") - 1] = True
    if longest > _MOST_DIGITS:
        suspects[np.searchsorted(starts, _long_numbers(text), "right") - 1] = True
    if longest >= _DEEPEST:
        brackets = np.flatnonzero((text == _LIST) | (text == _OBJECT))
        suspects |= np.diff(np.searchsorted(brackets, starts)) >= _DEEPEST
    return suspects


def _long_numbers(text: Any) -> Any:
    """Return where more digits begin than a number may have."""
    others = np.flatnonzero(~(_are_digits(text) | (text == _DOT)))
    return others[:-1][np.diff(others) > _MOST_DIGITS + 1]


def _large_exponents(text: Any) -> Any:
    """Return where a digit or a dot is followed by an exponent of three digits or more: `1e100`, but not `1e-100`."""
    at = np.flatnonzero((text | 0x20) == _E)
    at = at[(at > 0) & (at < len(text) - 3)]
    at = at[_are_digits(text[at - 1]) | (text[at - 1] == _DOT)]
    first = at + 1 + (text[at + 1] == _PLUS)
    at, first = at[first < len(text) - 2], first[first < len(text) - 2]
    return at[_are_digits(text[first]) & _are_digits(text[first + 1]) & _are_digits(text[first + 2])]


def _are_digits(characters: Any) -> Any:
    return (characters >= _ZERO) & (characters <= _NINE)


def _validate_suspect(document: bytes) -> None:
    if document.count(b"[") + document.count(b"{") >= _DEEPEST:
        raise DoubtError("a document that may be nested too deeply")
    try:
        orjson.loads(document)
    except orjson.JSONDecodeError as error:
        raise DoubtError("a record that cannot be read") from error


def _objects(documents: list[Any], field: Callable[[Any], Any], absent: Any) -> Any:
    found = np.empty(len(documents), np.object_)
    found[:] = list(map(field, documents))
    if absent is None:
        return found
    array = np.empty(len(absent), np.object_)
    array[~absent] = found
    return array


def _class_of(paths: Mapping[Path, Path], above: tuple[str, ...], fields: dict[Path, Callable[[Any], Any]]) -> Any:
    """Return a class with the first segments of these paths as fields, and note how each path is read from the whole.

    `paths` maps what is left of each path to all of it; `above` are the attributes that lead to this class.
    """
    names = sorted({left[0] for left in paths})
    members: list[tuple[str, Any, Any]] = []
    for number, name in enumerate(names):
        attribute = f"field{number}"
        within = {left[1:]: path for left, path in paths.items() if left[0] == name}
        way = (*above, attribute)
        if () in within:
            members.append((attribute, Any, None))
            fields[within[()]] = _getter(way)
        else:
            members.append((attribute, _class_of(within, way, fields) | None, None))
    rename = {attribute: name for (attribute, _, _), name in zip(members, names, strict=True)}
    return msgspec.defstruct("Document", members, rename=rename, gc=False)


def _getter(way: tuple[str, ...]) -> Callable[[Any], Any]:
    if len(way) == 1:
        return attrgetter(way[0])

    def get(document: Any) -> Any:
        for attribute in way:
            if document is None:
                return None
            document = getattr(document, attribute)
        return document

    return get
