"""What users write expressions with: `col`, `left`, `right`, `struct`, and the operators between them."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, overload

from penstock.errors import TopologyError
from penstock.errors.lines import user_line
from penstock.expressions.nodes import (
    Arithmetic,
    Column,
    Comparison,
    IsNull,
    Literal,
    Logic,
    Negative,
    Node,
    Not,
    Required,
    Side,
    Struct,
)
from penstock.expressions.types import BOOL, FIRST_INT64, LAST_INT64, SCALARS, class_of_fields, kind_of

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_PARENTHESES = "put each comparison in parentheses, as in (col('a') > 1) & (col('b') < 2)"


class Expression(Generic[T_co]):
    """A value computed from a record's fields; write it with `col(...)` and the usual operators.

    Numbers have `+ - * / // %`, values `== != < <= > >=`, and conditions `&` (and), `|` (or) and `~` (not). A null operand makes
    the result null, except where the other operand of `&` or `|` decides. See `docs/columns.md`.

    Example:
        >>> (col("amount") * 2 > 100) & ~col("note").is_null()
        ((col('amount') * 2) > 100) & (~col('note').is_null())
    """

    __slots__ = ("node",)

    __iter__ = None  # else Python would look for an end that never comes

    def __init__(self, node: Node) -> None:
        self.node: Node = node

    def describe(self) -> str:
        """Return the expression as text."""
        return self.node.describe()

    def equals(self, other: object) -> bool:
        """Return whether the other is the same expression; `==` builds a comparison instead."""
        return isinstance(other, Expression) and self.node == other.node

    def is_null(self) -> Expression[bool]:
        """Whether the value is null: missing, or null itself."""
        return Expression(IsNull(self.node))

    def required(self) -> Self:
        """The same value; a record for which it is null has a processing error."""
        return type(self)(Required(self.node))

    def __add__(self, other: float | Expression[Any]) -> Expression[Any]:
        return _arithmetic("+", self, other)

    def __radd__(self, other: float | Expression[Any]) -> Expression[Any]:
        return _arithmetic("+", other, self)

    def __sub__(self, other: float | Expression[Any]) -> Expression[Any]:
        return _arithmetic("-", self, other)

    def __rsub__(self, other: float | Expression[Any]) -> Expression[Any]:
        return _arithmetic("-", other, self)

    def __mul__(self, other: float | Expression[Any]) -> Expression[Any]:
        return _arithmetic("*", self, other)

    def __rmul__(self, other: float | Expression[Any]) -> Expression[Any]:
        return _arithmetic("*", other, self)

    def __truediv__(self, other: float | Expression[Any]) -> Expression[Any]:
        return _arithmetic("/", self, other)

    def __rtruediv__(self, other: float | Expression[Any]) -> Expression[Any]:
        return _arithmetic("/", other, self)

    def __floordiv__(self, other: float | Expression[Any]) -> Expression[Any]:
        return _arithmetic("//", self, other)

    def __rfloordiv__(self, other: float | Expression[Any]) -> Expression[Any]:
        return _arithmetic("//", other, self)

    def __mod__(self, other: float | Expression[Any]) -> Expression[Any]:
        return _arithmetic("%", self, other)

    def __rmod__(self, other: float | Expression[Any]) -> Expression[Any]:
        return _arithmetic("%", other, self)

    def __neg__(self) -> Expression[Any]:
        return Expression(Negative(self.node))

    def __eq__(self, other: object) -> Expression[bool]:  # type: ignore[override]  # a comparison of values, not of expressions
        return _comparison("==", self, other)

    def __ne__(self, other: object) -> Expression[bool]:  # type: ignore[override]  # as __eq__
        return _comparison("!=", self, other)

    def __lt__(self, other: float | str | Expression[Any]) -> Expression[bool]:
        return _comparison("<", self, other)

    def __le__(self, other: float | str | Expression[Any]) -> Expression[bool]:
        return _comparison("<=", self, other)

    def __gt__(self, other: float | str | Expression[Any]) -> Expression[bool]:
        return _comparison(">", self, other)

    def __ge__(self, other: float | str | Expression[Any]) -> Expression[bool]:
        return _comparison(">=", self, other)

    def __and__(self: Expression[bool], other: Expression[bool]) -> Expression[bool]:
        return _logic("&", self, other)

    def __rand__(self, other: NoReturn) -> Expression[bool]:  # a type checker rejects what __and__ does
        return _logic("&", other, self)

    def __or__(self: Expression[bool], other: Expression[bool]) -> Expression[bool]:
        return _logic("|", self, other)

    def __ror__(self, other: NoReturn) -> Expression[bool]:
        return _logic("|", other, self)

    def __invert__(self: Expression[bool]) -> Expression[bool]:
        _check_condition("~", self.node)
        return Expression(Not(self.node))

    def __bool__(self) -> NoReturn:
        raise TopologyError(
            f"The expression {self.describe()} has no truth value before there is a record ({user_line()}): write & for and, "
            "| for or, ~ for not, with each comparison in parentheses, and (1 < col('a')) & (col('a') < 5) for 1 < a < 5."
        )

    def __hash__(self) -> int:
        return hash(self.node)

    def __repr__(self) -> str:
        return self.describe()


@overload
def col(*path: str) -> Expression[Any]: ...
@overload
def col(name: str, of: type[T], /) -> Expression[T]: ...
@overload
def col(first: str, second: str, of: type[T], /) -> Expression[T]: ...
@overload
def col(first: str, second: str, third: str, of: type[T], /) -> Expression[T]: ...
def col(*path: Any) -> Expression[Any]:
    """A field of the record's value: `col("amount")`, or `col("address", "country")` for one within another.

    A field that is missing in a dict is null. The last argument may be the field's type, `bool`, `int`, `float` or `str`: values
    of another type are then processing errors. Without any argument it is the value itself.

    Example:
        >>> col("address", "country") == "CH"
        col('address', 'country') == 'CH'
        >>> col("amount", int).describe()
        "col('amount', int)"
    """
    return Expression(_column(Side.VALUE, path))


@overload
def left(*path: str) -> Expression[Any]: ...
@overload
def left(name: str, of: type[T], /) -> Expression[T]: ...
@overload
def left(first: str, second: str, of: type[T], /) -> Expression[T]: ...
def left(*path: Any) -> Expression[Any]:
    """Like `col`, for the left value of a join; all its fields are null if there is none."""
    return Expression(_column(Side.LEFT, path))


@overload
def right(*path: str) -> Expression[Any]: ...
@overload
def right(name: str, of: type[T], /) -> Expression[T]: ...
@overload
def right(first: str, second: str, of: type[T], /) -> Expression[T]: ...
def right(*path: Any) -> Expression[Any]:
    """Like `col`, for the right value of a join; all its fields are null if there is none."""
    return Expression(_column(Side.RIGHT, path))


@overload
def struct(*, into: None = ..., **fields: Expression[Any] | float | str) -> Expression[dict[str, Any]]: ...
@overload
def struct(*, into: type[T], **fields: Expression[Any] | float | str) -> Expression[T]: ...
def struct(*, into: Any = None, **fields: Any) -> Expression[Any]:
    """Several named values as one: a dict, or an instance of the dataclass or `msgspec.Struct` that `into=` names.

    Example:
        >>> from penstock import StreamsBuilder
        >>> from penstock.testing import TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> orders, customers = builder.stream("orders"), builder.table("customers")
        >>> orders.join(customers, struct(total=left("amount"), name=right("name"))).to("named")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("customers").pipe({"name": "Ann"}, key="a")
        ...     driver.input("orders").pipe({"amount": 5}, key="a")
        ...     driver.output("named").values()
        [{'name': 'Ann', 'total': 5}]
    """
    into = class_of_fields("struct", into, fields)
    if not fields:
        raise TopologyError(f"struct needs at least one field, as in struct(total=col('amount')) ({user_line()}).")
    return Expression(Struct(tuple((name, operand(value)) for name, value in fields.items()), into))


def operand(value: Any) -> Node:
    """Return the node of an expression or of a constant."""
    if isinstance(value, Expression):
        if isinstance(value.node, Struct):
            raise TopologyError(f"{value.describe()} cannot be part of another expression ({user_line()}).")
        return value.node
    if value is None:
        raise TopologyError(f"An expression cannot contain None ({user_line()}): to ask for null, write col('a').is_null().")
    if type(value) not in SCALARS:
        raise TopologyError(
            f"An expression cannot contain {value!r} ({user_line()}): its constants are bool, int, float and str, "
            "and its fields col('name')."
        )
    if type(value) is int and not FIRST_INT64 <= value <= LAST_INT64:
        raise TopologyError(f"{value} has more than 64 bits ({user_line()}): integers in expressions are int64.")
    if isinstance(value, float) and isnan(value):
        raise TopologyError(f"An expression cannot contain NaN ({user_line()}): no value is equal to it.")
    return Literal(value, repr(value))


def _column(side: Side, path: tuple[Any, ...]) -> Column:
    *names, last = path or ("",)
    of = None
    if isinstance(last, str):
        names = list(path)
    elif last in SCALARS:
        of = last
    else:
        raise TopologyError(
            f"{side.value} takes the names of fields, each a str, and at the end bool, int, float or str as their type, "
            f"not {last!r} ({user_line()})."
        )
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise TopologyError(f"{side.value} takes the name of each field as a str, not {wrong[0]!r} ({user_line()}).")
    return Column(side, tuple(names), of)


def _arithmetic(sign: str, one: object, other: object) -> Expression[Any]:
    nodes = operand(one), operand(other)
    for node in nodes:
        kind = kind_of(node)
        if kind is not None and not kind.is_number:
            raise TopologyError(f"{sign} needs numbers, but {node.describe()} is {kind.name} ({user_line()}).")
    return Expression(Arithmetic(sign, *nodes))


def _comparison(sign: str, one: object, other: object) -> Expression[bool]:
    return Expression(Comparison(sign, operand(one), operand(other)))


def _logic(sign: str, one: object, other: object) -> Expression[bool]:
    nodes = operand(one), operand(other)
    for node in nodes:
        _check_condition(sign, node)
    return Expression(Logic(sign, *nodes))


def _check_condition(sign: str, node: Node) -> None:
    kind = kind_of(node)
    if kind not in (None, BOOL):
        raise TopologyError(f"{sign} needs conditions, but {node.describe()} is none ({user_line()}): {_PARENTHESES}.")
