"""Which values an untyped document reads back as what they were: dicts, lists and single values, but no objects of a class."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.records import Results
from penstock.serdes.serde import type_name

JSON_NATIVES: frozenset[type] = frozenset({str, int, float, bool, type(None)})
MSGPACK_NATIVES: frozenset[type] = JSON_NATIVES | {bytes}


class ChangedTypeError(TypeError):
    """A value, or a part of it if `is_nested`, would be read back as another type than its `kind`."""

    def __init__(self, kind: type, path: str, read_back: type) -> None:
        what = f"its {type_name(kind)} at {path}" if path else "it"
        super().__init__(f"{what} would be read back as {type_name(read_back)}")
        self.kind: type = kind
        self.is_nested: bool = bool(path)
        self.read_back: type = read_back


def checker(natives: frozenset[type], encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]) -> Callable[[Any], None]:
    """Return what raises for a value of which a part is read back as another type. It must have been encoded, so that it ends.

    `natives` are the types of single values that never change. This is on the hot path of records whose types are not declared:
    the types in a container are compared at once, and only those of a container with others one by one.
    """
    all_native = natives.issuperset
    checks_keys = natives is not JSON_NATIVES  # both encoders refuse keys that are not text; msgspec takes subclasses of str

    def check(value: Any) -> None:
        if not are_plain((value,)):
            refuse(value, "")

    def are_plain(parts: Iterable[Any]) -> bool:
        for part in parts:
            kind = type(part)
            if kind in natives:
                continue
            within: Iterable[Any]
            if kind is dict or kind is Results:  # ready aggregates are dicts to all but the store that continues them
                if checks_keys and not all_native(map(type, part)):
                    return False
                within = part.values()
            elif kind is list:
                within = part
            else:
                return False
            if not all_native(map(type, within)) and not are_plain(within):
                return False
        return True

    def refuse(value: Any, path: str) -> None:
        """Raise for the first part that is read back as another type; return if there is none."""
        kind = type(value)
        if kind in natives:
            return
        if kind in {list, dict, Results}:
            for at, part in enumerate(value) if kind is list else value.items():
                if kind is not list:
                    refuse(at, f"{path}.keys()")
                refuse(part, f"{path}[{at!r:.50}]")
            return
        read_back = type(decode(encode(value)))
        if read_back is not kind:
            raise ChangedTypeError(kind, path, read_back)

    return check
