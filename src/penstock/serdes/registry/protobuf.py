"""`Protobuf`: messages of generated classes, with their schema in a registry."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import SerializationError, TopologyError
from penstock.extras import extra
from penstock.serdes.registry.schemas import Reference, Schema, SchemaKind
from penstock.serdes.registry.serde import HEADER, Read, RegistrySerde, Usage, UsageKeywords, Write

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")

_LONGEST_PATH = 64
"""How deeply messages are nested at most, and how many bytes of a number are read."""


class Protobuf(RegistrySerde[T]):
    """Protocol Buffers with a schema registry: `Protobuf(Order)` for a class that `protoc` has generated.

    The schema is that of the class's file, as a serialized descriptor; files that it imports are registered first, each under its
    own name as the subject, except for Google's own. Reading needs no question to the registry: a message is read into the
    class, by Protobuf's rules. The other arguments are those of `Avro`.

    It is called by its message: `repr(Protobuf(Timestamp)) == "Protobuf(google.protobuf.Timestamp)"`.
    """

    def __init__(self, of: type[T], **usage: Unpack[UsageKeywords]) -> None:
        extra("protobuf", "google.protobuf")
        super().__init__(Usage(**usage))
        if not hasattr(of, "DESCRIPTOR") or not hasattr(of, "FromString"):
            raise TopologyError(f"Protobuf() takes a class that protoc has generated, not {of!r}.")
        self.of: Any = of

    @property
    def name(self) -> str:
        """The full name of the message."""
        return str(self._descriptor.full_name)

    @property
    def _descriptor(self) -> Any:
        return self._class.DESCRIPTOR

    @property
    def _class(self) -> Any:
        return self.of

    def own_schema(self, subject: str) -> Schema | None:
        """See `RegistrySerde`; the files that it imports are registered, or looked up."""
        return self._of_file(self._descriptor.file)

    def _of_file(self, file: Any) -> Schema:
        references = [self._reference(each) for each in file.dependencies if not each.name.startswith("google/protobuf/")]
        return Schema(SchemaKind.PROTOBUF, base64.b64encode(file.serialized_pb).decode(), tuple(references))

    def _reference(self, file: Any) -> Reference:
        registry, schema = self.require_registry(), self._of_file(file)
        if self.usage.may_register(registry):
            registry.register(file.name, schema)
        return Reference(file.name, file.name, registry.lookup(file.name, schema).version)

    def writer(self, schema: Schema) -> Write:
        """See `RegistrySerde`."""
        head, kind = _path(self._descriptor), self._class

        def write(message: Any) -> bytes:
            if not isinstance(message, kind):
                raise TypeError(f"expected {kind.__name__}")
            data: bytes = message.SerializeToString()
            return head + data

        return write

    def reader(self, schema_id: int) -> Read:
        """See `RegistrySerde`."""
        parse = self._class.FromString
        usual = _path(self._descriptor)
        after_usual = HEADER + len(usual)

        def read(data: bytes) -> Any:
            begin = after_usual if data.startswith(usual, HEADER) else _end_of_path(data)
            return parse(data[begin:])

        return read

    def plain(self) -> tuple[Write, Read]:
        """The message, with its fields in order."""
        kind = self._class

        def write(message: Any) -> bytes:
            if not isinstance(message, kind):
                raise TypeError(f"expected {kind.__name__}")
            data: bytes = message.SerializeToString(deterministic=True)
            return data

        return write, kind.FromString

    def __repr__(self) -> str:
        return f"Protobuf({self.name})"


def _path(descriptor: Any) -> bytes:
    """Return where a file has a message: the numbers of its outer messages and its own; a zero for the first of the file."""
    path: list[int] = []
    while descriptor.containing_type is not None:
        path.insert(0, [each.name for each in descriptor.containing_type.nested_types].index(descriptor.name))
        descriptor = descriptor.containing_type
    path.insert(0, list(descriptor.file.message_types_by_name).index(descriptor.name))
    if path == [0]:
        return b"\0"
    return b"".join(_varint(number << 1) for number in (len(path), *path))


def _varint(number: int) -> bytes:
    """Return a number in groups of seven bits."""
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def _end_of_path(data: bytes) -> int:
    """Return where a message begins, behind the path of its type."""
    numbers = _numbers(data)
    count, end = next(numbers)
    if not 0 <= count <= _LONGEST_PATH:
        raise SerializationError(f"invalid path of a message: {count} numbers")
    for _ in range(count):
        _, end = next(numbers)
    return end


def _numbers(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield numbers and where each ends; they are written with their sign in the lowest bit."""
    at = HEADER
    while True:
        number = shift = 0
        while True:
            if at >= len(data) or shift > _LONGEST_PATH:
                raise SerializationError("the path of the message's type has no end")
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield (number >> 1) ^ -(number & 1), at
