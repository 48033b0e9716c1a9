"""JSON and MessagePack: untyped, of dataclasses, Structs and Pydantic models; hostile documents."""

from __future__ import annotations

import math
import pickle
import warnings
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from typing import Annotated, Any, Generic, Literal, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.serdes import Json, MsgPack, Serde, SerializationError

pytestmark = pytest.mark.security(27)

T = TypeVar("T")

DEPTH = 100_000


@dataclass
class Item:
    sku: str
    price: float = 0.0


@dataclass
class Order:
    id: int
    items: list[Item]
    note: str | None = None
    tags: dict[str, int] = field(default_factory=dict)


class Click(msgspec.Struct):
    page: str
    at: datetime


class Account(pydantic.BaseModel):
    owner_id: int = pydantic.Field(alias="ownerId", gt=0)
    name: str = ""


class Opened(pydantic.BaseModel):
    kind: Literal["opened"] = "opened"


class Closed(pydantic.BaseModel):
    kind: Literal["closed"] = "closed"


@pydantic.dataclasses.dataclass
class Positive:
    number: int = pydantic.Field(gt=0)


@dataclass
class Holder:
    account: Account


@dataclass
class Tree:
    children: list[Tree] = field(default_factory=list)


class Leafless(pydantic.BaseModel):
    child: Leafless | None = None


@dataclass
class Box(Generic[T]):
    content: T


class Point(TypedDict):
    x: int


class Color(Enum):
    RED = "red"


class Text(str):
    __slots__ = ()


class Opaque:
    pass


@dataclass
class Concealing:
    opaque: dict[str, Opaque]


@dataclass
class Strict:
    number: int

    def __post_init__(self) -> None:
        if self.number > 9:
            raise KeyError("user code may raise anything")


ORDER = Order(1, [Item("a", 2.5), Item("b")], tags={"z": 1, "y": 2})
CLICK = Click("/", datetime(2024, 1, 1, tzinfo=timezone.utc))

documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.mark.parametrize("serde", [Json(), MsgPack()], ids=repr)
@given(value=documents)
def test_untyped_round_trip(serde: Any, value: Any) -> None:
    assert serde.deserialize(serde.serialize(value)) == value


@pytest.mark.parametrize("serde", [Json(), MsgPack(), Json(dict[str, int]), MsgPack(dict[str, int])], ids=repr)
@given(value=st.dictionaries(st.text(), st.integers(0, 100), min_size=2))
def test_equal_dicts_have_equal_bytes(serde: Any, value: Any) -> None:
    assert serde.serialize(value) == serde.serialize(dict(reversed(value.items())))


@pytest.mark.parametrize("kind", [Json, MsgPack])
@pytest.mark.parametrize(
    ("of", "value"),
    [
        (Order, ORDER),
        (Click, CLICK),
        (Box[int], Box(3)),
        (list[int], [1, 2]),
        (dict[str, Order], {"a": ORDER}),
        (tuple[int, str], (1, "a")),
        (int | str, "a"),
        (Point, {"x": 1}),
        (UUID, UUID(int=5)),
        (Tree, Tree([Tree(), Tree([Tree()])])),
    ],
    ids=str,
)
def test_typed_round_trip(kind: Any, of: Any, value: Any) -> None:
    serde = kind(of)
    read = serde.deserialize(serde.serialize(value))
    assert type(read) is type(value)
    assert read == value


@pytest.mark.parametrize(
    ("of", "value"),
    [
        (Account, Account(ownerId=1, name="é")),
        (list[Account], [Account(ownerId=1)]),
        (Annotated[Opened | Closed, pydantic.Field(discriminator="kind")], Closed()),
        (Positive, Positive(1)),
        (Holder, Holder(Account(ownerId=1))),
        (Leafless, Leafless(child=Leafless())),
    ],
    ids=str,
)
def test_pydantic_round_trip(of: Any, value: Any) -> None:
    serde = Json(of)
    read = serde.deserialize(serde.serialize(value))
    assert type(read) is type(value)
    assert read == value


def test_json_is_compact_utf8() -> None:
    assert Json().serialize({"ключ": ["é", None]}) == '{"ключ":["é",null]}'.encode()
    assert Json(Item).serialize(Item("é", 1.0)) == '{"sku":"é","price":1.0}'.encode()
    assert Json(Account).serialize(Account(ownerId=1, name="é")) == '{"ownerId":1,"name":"é"}'.encode()


def test_json_has_no_nan() -> None:
    assert Json().serialize([math.nan, math.inf]) == b"[null,null]"
    assert Json(list[float]).serialize([math.nan]) == b"[null]"
    assert math.isnan(MsgPack().deserialize(MsgPack().serialize(math.nan)))


@pytest.mark.parametrize("data", [b"", b"{", b"nan", b"\xff", b'"\xff"', b'"\\ud800"', b"[1]x", b"'a'"])
@pytest.mark.parametrize("serde", [Json(), Json(Order), Json(Account)], ids=repr)
def test_invalid_json_is_an_error(serde: Any, data: Any) -> None:
    with pytest.raises(SerializationError, match=rf"cannot read {len(data)} bytes"):
        serde.deserialize(data)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x92\x01", b"\xa1\xff"])
@pytest.mark.parametrize("serde", [MsgPack(), MsgPack(Order)], ids=repr)
def test_invalid_msgpack_is_an_error(serde: Any, data: Any) -> None:
    with pytest.raises(SerializationError, match="cannot read"):
        serde.deserialize(data)


@pytest.mark.parametrize(
    ("of", "data"),
    [
        (Order, b'{"id":"1","items":[]}'),
        (Order, b'{"items":[]}'),
        (Order, b"[]"),
        (Click, b'{"page":"/","at":"yesterday"}'),
        (list[int], b'["1"]'),
        (Account, b'{"ownerId":0}'),
        (Account, b'{"owner_id":1}'),
        (Positive, b'{"number":0}'),
        (Holder, b'{"account":{"ownerId":0}}'),
        (Strict, b'{"number":10}'),
    ],
    ids=str,
)
def test_data_of_another_type_is_an_error(of: Any, data: Any) -> None:
    with pytest.raises(SerializationError):
        Json(of).deserialize(data)


@pytest.mark.parametrize("value", [object(), {1: 2}, {"a": {1, 2}}, 2**64, "\ud800", b"raw", CLICK])
def test_json_refuses_values_without_a_mapping(value: Any) -> None:
    with pytest.raises(SerializationError, match=r"Json\(\) cannot write a value of type"):
        Json().serialize(value)


@pytest.mark.parametrize("value", [object(), 2**64, "\ud800"])
def test_msgpack_refuses_values_without_a_mapping(value: Any) -> None:
    with pytest.raises(SerializationError, match=r"MsgPack\(\) cannot write a value of type"):
        MsgPack().serialize(value)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (Item("a"), "it would be read back as dict. Declare its type: value=Item. Or make it a dict."),
        ((1, 2), "it would be read back as list"),
        (Color.RED, "it would be read back as str"),
        (UUID(int=5), "it would be read back as str"),
        (CLICK.at.date(), "it would be read back as str"),
        (Counter("ab"), "it would be read back as dict"),
        (
            [{"a": Item("a")}],
            "its Item at [0]['a'] would be read back as dict. Declare its type: value=P, where P is a dataclass",
        ),
        ({"a": 1, "b": {"c": [1, (2,)]}}, "its tuple at ['b']['c'][1] would be read back as list"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("serde", [Json(), MsgPack()], ids=repr)
def test_untyped_it_refuses_what_would_be_read_back_as_another_type(serde: Any, value: Any, what: str) -> None:
    with pytest.raises(SerializationError) as caught:
        serde.serialize(value)
    assert what in str(caught.value)


def test_messagepack_has_more_types() -> None:
    value = {"raw": b"a", "at": CLICK.at, "": [b"b"]}
    assert MsgPack().deserialize(MsgPack().serialize(value)) == value
    with pytest.raises(SerializationError, match=r"its datetime at \['at'\] would be read back as str"):
        MsgPack().serialize({"at": CLICK.at.replace(tzinfo=None)})
    with pytest.raises(SerializationError, match="objects of type Text is unsupported"):
        MsgPack().serialize({Text("a"): 1})


def test_what_an_error_says_about_a_type_does_not_distinguish_serdes() -> None:
    declared = Json().declared_by("value={type} in map_values")
    assert declared == Json()
    assert hash(declared) == hash(Json())
    assert repr(declared) == "Json()"
    assert declared != MsgPack()
    again = pickle.loads(pickle.dumps(declared))
    for serde in (declared, again):
        with pytest.raises(SerializationError, match=r"Declare its type: value=Item in map_values\."):
            serde.serialize(Item("a"))


@pytest.mark.parametrize("of", [Order, Click, Box[int], Account, Positive])
@pytest.mark.parametrize("value", [{"id": 1, "items": []}, Leafless(), None, 1])
def test_instances_of_another_class_are_not_written(of: Any, value: Any) -> None:
    with pytest.raises(SerializationError, match="expected"):
        Json(of).serialize(value)


def test_a_model_with_a_field_of_another_type_is_not_written() -> None:
    account = Account.model_construct(owner_id="one")
    warnings.simplefilter("ignore")  # as in production, where Pydantic's warning would not raise
    with pytest.raises(SerializationError, match="owner_id"):
        Json(Account).serialize(account)


@pytest.mark.parametrize(
    "of", [Opaque, list[Opaque], Concealing, complex, "str", 5, {}, lambda: None], ids=lambda of: getattr(of, "__name__", str(of))
)
@pytest.mark.parametrize("kind", [Json, MsgPack])
def test_types_without_mapping_are_refused_immediately(kind: Any, of: Any) -> None:
    with pytest.raises(TypeError, match=r"no mapping to documents.*Use a dataclass, a msgspec\.Struct, a Pydantic model"):
        kind(of)


def test_types_that_cannot_be_resolved_are_refused_immediately() -> None:
    @dataclass
    class Dangling:
        other: Missing  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError, match=r"Dangling has no mapping to documents \(name 'Missing' is not defined"):
        Json(Dangling)


@pytest.mark.parametrize("of", [Account, Holder, list[Account]], ids=str)
def test_msgpack_leaves_pydantic_to_json(of: Any) -> None:
    with pytest.raises(TypeError, match=r"Use Json\(...\) for Pydantic models"):
        MsgPack(of)


def nested_list(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def nested_tree(depth: int) -> Tree:
    tree = Tree()
    for _ in range(depth):
        tree = Tree([tree])
    return tree


def nested_model(depth: int) -> Leafless:
    model = Leafless()
    for _ in range(depth):
        model = Leafless.model_construct(child=model)
    return model


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (Json(), b"[" * DEPTH + b"]" * DEPTH),
        (Json(), b'{"a":' * DEPTH + b"1" + b"}" * DEPTH),
        (Json(Any), b"[" * DEPTH),
        (Json(list), b"[" * DEPTH + b"]" * DEPTH),
        (Json(Tree), b'{"children":[' * DEPTH + b"]}" * DEPTH),
        (Json(Leafless), b'{"child":' * DEPTH + b"null" + b"}" * DEPTH),
        (MsgPack(), b"\x91" * DEPTH + b"\x01"),
        (MsgPack(Tree), b"\x81\xa8children\x91" * DEPTH + b"\x80"),
    ],
    ids=lambda case: repr(case)[:20],
)
def test_deeply_nested_bytes_are_an_error(serde: Any, data: Any) -> None:
    with pytest.raises(SerializationError):
        serde.deserialize(data)


@pytest.mark.parametrize(
    ("serde", "nest"),
    [
        (Json(), nested_list),
        (Json(list), nested_list),
        (MsgPack(), nested_list),
        (Json(Tree), nested_tree),
        (MsgPack(Tree), nested_tree),
        (Json(Leafless), nested_model),
    ],
    ids=lambda case: repr(case)[:20],
)
def test_deeply_nested_values_are_an_error(serde: Any, nest: Any) -> None:
    with pytest.raises(SerializationError):
        serde.serialize(nest(10_000))


def test_a_value_that_contains_itself_is_an_error() -> None:
    loop: list[Any] = []
    loop.append(loop)
    serdes: list[Serde[Any]] = [Json(), Json(list), MsgPack()]
    for serde in serdes:
        with pytest.raises(SerializationError):
            serde.serialize(loop)


def test_documents_have_no_identity() -> None:
    assert not Json().identity
    assert not MsgPack(Order).identity
