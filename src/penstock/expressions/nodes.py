"""The nodes of an expression: frozen values that are compared, hashed, pickled and described. They compute nothing themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Side(Enum):
    """The record that a column is read from: the only one, or one of the two records of a join."""

    VALUE = "col"
    LEFT = "left"
    RIGHT = "right"


class Node(ABC):
    """A part of an expression."""

    def describe(self) -> str:
        """Return the expression as the user would write it."""
        return self._text()

    @abstractmethod
    def _text(self) -> str: ...

    @property
    def parts(self) -> tuple[Node, ...]:
        """The nodes that it is made of."""
        return ()

    def walk(self) -> Iterator[Node]:
        """Yield this node and all nodes below it."""
        yield self
        for part in self.parts:
            yield from part.walk()


@dataclass(frozen=True, slots=True)
class OfOne(Node):
    """A node with one operand."""

    operand: Node

    @property
    def parts(self) -> tuple[Node, ...]:
        """The operand."""
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class OfTwo(Node):
    """A node with a sign between two operands."""

    sign: str
    left: Node
    right: Node

    @property
    def parts(self) -> tuple[Node, ...]:
        """Both operands."""
        return (self.left, self.right)

    def _text(self) -> str:
        return f"{_enclosed(self.left)} {self.sign} {_enclosed(self.right)}"


@dataclass(frozen=True, slots=True)
class Column(Node):
    """A field of a record, by its path; the record itself without one. `of` is the type that the user declared."""

    side: Side
    path: tuple[str, ...]
    of: type | None = None

    def _text(self) -> str:
        declared = () if self.of is None else (self.of.__name__,)
        return f"{self.side.value}({', '.join((*map(repr, self.path), *declared))})"


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """A constant. It is compared by its text, because 1, 1.0 and True are equal in Python, and 0.0 and -0.0 too."""

    value: bool | int | float | str = field(compare=False)
    text: str

    def _text(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Arithmetic(OfTwo):
    """`+`, `-`, `*`, `/`, `//` or `%` of two numbers."""


@dataclass(frozen=True, slots=True)
class Negative(OfOne):
    """A number with the opposite sign."""

    def _text(self) -> str:
        return f"-{_enclosed(self.operand)}"


@dataclass(frozen=True, slots=True)
class Comparison(OfTwo):
    """`==`, `!=`, `<`, `<=`, `>` or `>=` of two values."""


@dataclass(frozen=True, slots=True)
class Logic(OfTwo):
    """`&` or `|` of two conditions."""


@dataclass(frozen=True, slots=True)
class Not(OfOne):
    """The opposite of a condition."""

    def _text(self) -> str:
        return f"~{_enclosed(self.operand)}"


@dataclass(frozen=True, slots=True)
class IsNull(OfOne):
    """Whether a value is null."""

    def _text(self) -> str:
        return f"{_enclosed(self.operand)}.is_null()"


@dataclass(frozen=True, slots=True)
class Required(OfOne):
    """A value that must not be null."""

    def _text(self) -> str:
        return f"{_enclosed(self.operand)}.required()"


@dataclass(frozen=True, slots=True)
class Struct(Node):
    """Several named values: a dict, or an instance of `into`."""

    fields: tuple[tuple[str, Node], ...]
    into: type | None = None

    @property
    def parts(self) -> tuple[Node, ...]:
        """The named nodes."""
        return tuple(node for _, node in self.fields)

    def _text(self) -> str:
        return f"struct({_named(self.fields, self.into)})"


class Function(Enum):
    """What an aggregate does with the values of a group."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    FIRST = "first"
    LAST = "last"
    MEAN = "mean"
    TOP = "top"
    COUNT_DISTINCT = "count_distinct"


@dataclass(frozen=True, slots=True)
class Aggregate(Node):
    """A function over all values of a group; `count` may have no operand, and `most` is how many values `top` keeps."""

    function: Function
    operand: Node | None
    most: int | None = None

    @property
    def parts(self) -> tuple[Node, ...]:
        """The operand, if it has one."""
        return () if self.operand is None else (self.operand,)

    def _text(self) -> str:
        most = () if self.most is None else (str(self.most),)
        return f"{self.function.value}({', '.join((*(part.describe() for part in self.parts), *most))})"


@dataclass(frozen=True, slots=True)
class Aggregates(Node):
    """Several named aggregates: a dict, or an instance of `into`."""

    fields: tuple[tuple[str, Aggregate], ...]
    into: type | None = None

    @property
    def parts(self) -> tuple[Node, ...]:
        """The aggregates."""
        return tuple(node for _, node in self.fields)

    def _text(self) -> str:
        return f"agg({_named(self.fields, self.into)})"


def _enclosed(node: Node) -> str:
    text = node.describe()
    return f"({text})" if isinstance(node, (Arithmetic, Comparison, Logic, Not, Negative)) else text


def _named(fields: tuple[tuple[str, Any], ...], into: type | None) -> str:
    named = [f"{name}={node.describe()}" for name, node in fields]
    return ", ".join([*named, *([] if into is None else [f"into={into.__qualname__}"])])
