"""`Serde`: a pair of functions that convert one type of key or value to bytes and back. It never sees nulls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar, get_origin

T = TypeVar("T")

_FUNCTIONS = frozenset({"serialize", "deserialize"})


class Serde(ABC, Generic[T]):
    """Converts values of one type to bytes and back: `String().serialize("a") == b"a"`.

    A serde is a value: two of the same class with the same attributes are equal, also after pickling. To write one, subclass,
    implement the two methods, and raise `SerializationError` for what they can't handle. Null is `None` on either side and is
    never passed to them.

    `serialize` and `deserialize` are looked up once and then called for every record. So the built-in ones are plain
    functions, without a `self` to bind: static, or created on first use by a `cached_property`, which is not pickled.
    """

    @abstractmethod
    def serialize(self, value: T, /) -> bytes:
        """Return the bytes of a value that is not None."""

    @abstractmethod
    def deserialize(self, data: bytes, /) -> T:
        """Return the value of bytes that are not null."""

    @property
    def identity(self) -> bool:
        """Whether keys are equal exactly if their bytes are, so that a key can represent its bytes: `String().identity`."""
        return False

    @property
    def is_canonical(self) -> bool:
        """Whether a value has only one representation: bytes that can be read are those that would be written.

        The bytes of such a key determine its shard. Other keys, such as JSON with blanks in it, must be deserialized first, which
        costs a pass over the records of their topics.
        """
        return False

    def for_topic(self, topic: str, is_key: bool) -> Serde[T]:
        """The serde for a topic's keys or values: this one, unless schemas depend on topics."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _FUNCTIONS}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Serde) or type(self) is not type(other):
            return NotImplemented
        return self.__getstate__() == other.__getstate__()

    def __hash__(self) -> int:
        return hash(type(self))  # attributes need not be hashable, and a dict rarely has many serdes

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(type_name, self.__getstate__().values()))})"


def is_class(value: Any) -> bool:
    """Whether a value is a class and not a generic alias such as `list[int]`, which is a `type` in Python 3.10."""
    return isinstance(value, type) and get_origin(value) is None


def type_name(value: Any) -> str:
    """The name of a type for messages: a class without its module, anything else by its `repr`."""
    return str(value.__name__) if is_class(value) else repr(value)
