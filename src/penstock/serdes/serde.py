"""What a serde is: the pair of functions that takes one type of key or value to bytes and back. Nulls never reach it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar, get_origin

T = TypeVar("T")

_FUNCTIONS = frozenset({"serialize", "deserialize"})


class Serde(ABC, Generic[T]):
    """Bytes from values of one type, and back: `String().serialize("a") == b"a"`.

    A serde is a value: two of the same class with the same attributes are equal, and pickling keeps them so. To write one,
    subclass, give it the two methods, and raise `SerializationError` for what they can't handle. Null is `None` on either
    side and is never passed to them.

    `serialize` and `deserialize` are looked up once and then called for every record. So the built-in ones are plain
    functions, without a `self` to bind: static, or made on first use by a `cached_property`, which pickling leaves behind.
    """

    @abstractmethod
    def serialize(self, value: T, /) -> bytes:
        """The bytes of a value that is not None."""

    @abstractmethod
    def deserialize(self, data: bytes, /) -> T:
        """The value of bytes that are not null."""

    @property
    def identity(self) -> bool:
        """Whether equal keys have equal bytes and the reverse, so that a key may stand for its bytes: `String().identity`."""
        return False

    @property
    def is_canonical(self) -> bool:
        """Whether a value has no other bytes than those written here: whatever can be read is what would be written.

        Such a key's bytes tell where it belongs. Other keys, such as JSON with blanks in it, have to be read first, which costs a
        pass over the records of their topics.
        """
        return False

    def for_topic(self, topic: str, is_key: bool) -> Serde[T]:
        """This serde as used for a topic's keys or values; another one only where schemas belong to topics."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _FUNCTIONS}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Serde) or type(self) is not type(other):
            return NotImplemented
        return self.__getstate__() == other.__getstate__()

    def __hash__(self) -> int:
        return hash(type(self))  # attributes need not be hashable, and few serdes ever meet in one dict

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(type_name, self.__getstate__().values()))})"


def is_class(value: Any) -> bool:
    """Whether it is a class and not something like `list[int]`, which calls itself one in Python 3.10."""
    return isinstance(value, type) and get_origin(value) is None


def type_name(value: Any) -> str:
    """How a message calls a type, plain classes without their module; any other value by its `repr`."""
    return str(value.__name__) if is_class(value) else repr(value)
