"""Types between verbs: serdes follow annotations, and without them the default serde refuses what it would change."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal, NewType, TypedDict, TypeVar
from uuid import UUID

import pytest

from penstock import (
    FixedKeyProcessor,
    KStream,
    KTable,
    Processor,
    Record,
    SideOutput,
    StreamsBuilder,
    ValueTransformer,
    key_value_store,
    on_record,
    tumbling,
)
from penstock.dsl.annotations import forwarded, items_of, pair_of, returned
from penstock.errors import ProcessingError
from penstock.operators.asynchronous import CallContext
from penstock.serdes import Boolean, Bytes, Int64, Json, MsgPack, Serde, String, UUIDs
from penstock.testing import TopologyTestDriver
from tests.unit.dsl.running import run

T = TypeVar("T")


@dataclass(frozen=True)
class P:
    n: int


class Fields(TypedDict):
    n: int


class Dated(TypedDict):
    at: datetime


class Tree(TypedDict):
    children: list[Tree]


UserId = NewType("UserId", str)


def made(value: int) -> P:
    return P(value)


def keyed(key: str, value: int) -> tuple[int, P]:
    return value, P(value)


def several(key: str, value: int) -> list[tuple[int, P]]:
    return [(value, P(value))]


def yielded(value: int) -> Iterator[P]:
    yield P(value)


def of_record(record: Record[str, int]) -> P:
    return P(record.value)


def both(left: object, right: object) -> P:
    return P(1)


def by_number(key: str, value: int) -> int:
    return value


def inner(key: Any, value: Any) -> str:
    return str(key.key)


def added(key: str, value: int, total: P) -> P:
    return P(total.n + value)


def start() -> P:
    return P(0)


async def called(value: int) -> P | SideOutput:
    return P(value)


async def called_with_key(key: str, value: int) -> tuple[int, P]:
    return value, P(value)


async def forwarding(record: Record[str, int], context: CallContext[int, P]) -> None:
    context.forward(Record(record.value, P(record.value), record.timestamp))


class Making(Processor[str, int, int, P]):
    def process(self, record: Record[str, int]) -> None:
        self.context.forward(Record(record.value, P(record.value), record.timestamp))


class MakingMore(Making):
    pass


class Keeping(FixedKeyProcessor[str, int, P]):
    def process(self, record: Record[str, int]) -> None:
        self.context.forward(record.with_value(P(record.value)))


class Transforming(ValueTransformer[str, int, P]):
    def transform(self, key: str, value: int | None) -> P:
        return P(value or 0)


Verb = Callable[[KStream[str, int]], KStream[Any, Any]]

VERBS: dict[str, Verb] = {
    "map_values": lambda s: s.map_values(made),
    "map_values with a class": lambda s: s.map_values(P),
    "map_values of a partial": lambda s: s.map_values(partial(made)),
    "map_values with on_record": lambda s: s.map_values(on_record(of_record)),
    "map": lambda s: s.map(keyed),
    "flat_map": lambda s: s.flat_map(several),
    "flat_map_values": lambda s: s.flat_map_values(yielded),
    "process": lambda s: s.process(Making),
    "process with a subclass": lambda s: s.process(MakingMore),
    "process_values": lambda s: s.process_values(Keeping),
    "process_atomically": lambda s: s.process_atomically(Making, stores=[]),
    "map_values_async": lambda s: s.map_values_async(called),
    "map_async": lambda s: s.map_async(called_with_key),
    "process_async": lambda s: s.process_async(forwarding),
    "join of streams": lambda s: s.join(s.map_values(made), both, within="1m"),
    "join with a table": lambda s: s.join(s.map_values(made).to_table(), both),
    "left join": lambda s: s.left_join(s.map_values(made).to_table(), both),
    "aggregate": lambda s: s.group_by_key().aggregate(lambda: P(0), added).to_stream(),
    "aggregate by its initializer": lambda s: s.group_by_key().aggregate(start, lambda k, v, p: P(p.n + v)).to_stream(),
    "reduce": lambda s: s.map_values(made).group_by_key().reduce(lambda one, two: P(one.n + two.n)).to_stream(),
    "aggregate of windows": lambda s: s.group_by_key().windowed_by(tumbling("1m")).aggregate(start, added).to_stream(inner),
    "cogroup": lambda s: s.group_by_key().cogroup(added).aggregate(lambda: P(0)).to_stream(),
    "map_values of a table": lambda s: s.to_table().map_values(made, store="made").to_stream(),
    "transform_values": lambda s: s.to_table().transform_values(Transforming, store="made").to_stream(),
    "join of tables": lambda s: s.to_table().join(s.to_table(), both, store="joined").to_stream(),
    "join by a foreign key": lambda s: s.to_table().join(s.to_table(), both, on=lambda value: "k").to_stream(),
    "group_by of a table": lambda s: s.to_table().group_by(keyed).reduce(added_up, subtracted).to_stream(),
}


def added_up(one: Any, two: Any) -> Any:
    return P(one.n + two.n)


def subtracted(one: Any, two: Any) -> Any:
    return P(one.n - two.n)


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())
def test_the_type_of_a_result_is_kept_through_exchanges_and_stores(verb: Verb) -> None:
    builder = StreamsBuilder()
    results = verb(builder.stream("in", key=str, value=int))
    kept: KTable[Any, Any] = results.repartition(name="again").to_table(store="kept")
    kept.to_stream().filter(lambda _, value: type(value) is P).to("out")
    assert run(builder, ("in", "k", 3), ("in", "k", 4), caching=False)[-1][1].n > 0


@pytest.mark.parametrize("verb", ["map", "flat_map", "process", "process_async", "map_async", "group_by of a table"])
def test_the_type_of_a_key_is_kept_too(verb: str) -> None:
    builder = StreamsBuilder()
    VERBS[verb](builder.stream("in", key=str, value=int)).repartition(name="again").to("out")
    assert {type(key) for key, _ in run(builder, ("in", "k", 3))} == {int}


def test_a_selected_key_has_the_type_of_its_function() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.select_key(by_number).to("out")
    stream.group_by(by_number).count(store="counts")
    topology = builder.build()
    assert topology.stores["counts"].key == Int64()
    assert run(builder, ("in", "k", 3)) == [(3, 3)]


ANNOTATIONS: list[tuple[Any, Serde[Any]]] = [
    (P, Json(P)),
    (P | None, Json(P)),
    (list[P], Json(list[P])),
    (dict[int, str], Json(dict[int, str])),
    (tuple[int, str], Json(tuple[int, str])),
    (Dated, Json(Dated)),
    (UUID, UUIDs()),
    (bytes, Bytes()),
    # What the default serde reads back as it was, it writes as before: an annotation does not change a topic.
    *((kind, Json()) for kind in (int, float, str, bool, dict, list, Any, object, None, T)),
    *(
        (kind, Json())
        for kind in (dict[str, int], list[dict[str, Any]], int | str, Fields, Tree, UserId, Literal["a"], Annotated[int, "m"])
    ),
    # Nothing can be said.
    (Counter[str], Json()),
    (complex, Json()),
    ("unknown", Json()),
]


@pytest.mark.parametrize(("kind", "serde"), ANNOTATIONS, ids=repr)
def test_the_serde_of_an_annotation(kind: Any, serde: Serde[Any]) -> None:
    def mapper(value: Any) -> Any:
        return value

    mapper.__annotations__["return"] = kind
    assert sink_of(StreamsBuilder(), mapper) == serde


def sink_of(builder: StreamsBuilder, mapper: Callable[[Any], Any], **options: Any) -> Serde[Any]:
    builder.stream("in").map_values(mapper, **options).to("out")
    sink: Any = builder.build().nodes["KSTREAM-SINK-0000000002"]
    found: Serde[Any] = sink.value
    return found


def test_a_given_serde_is_stronger_than_an_annotation() -> None:
    assert sink_of(StreamsBuilder(), made, value=MsgPack(P)) == MsgPack(P)


def test_the_default_of_a_topology_decides_the_format() -> None:
    assert sink_of(StreamsBuilder(value=MsgPack()), made) == MsgPack(P)
    assert sink_of(StreamsBuilder(value=bool), made) == Json(P)
    assert sink_of(StreamsBuilder(value=bool), lambda value: value) == Boolean()
    assert sink_of(StreamsBuilder(value=str), str) == String()


def test_names_around_a_function_are_resolved() -> None:
    @dataclass
    class Local:
        n: int

    def local(value: int) -> Local:
        return Local(value)

    assert returned(local) is Local


def awaited() -> Awaitable[P]:
    raise NotImplementedError


async def listed() -> list[tuple[str, P]]:
    raise NotImplementedError


def forgotten() -> Any:
    raise NotImplementedError


forgotten.__annotations__["return"] = "Iterable[Unknown]"


def asynchronous() -> AsyncIterator[P]:
    raise NotImplementedError


class Callback:
    def __call__(self, value: int) -> P:
        return P(value)


class LaterCallback(Callback):
    pass


def test_what_functions_return() -> None:
    assert returned(awaited) is P
    assert returned(LaterCallback()) is P
    assert returned(Callback().__call__) is P
    assert returned(len) is None
    assert returned(forgotten) is None
    assert pair_of(items_of(returned(listed))) == (str, P)
    assert pair_of(returned(made)) == (None, None)
    assert items_of(returned(asynchronous)) is None
    assert items_of(tuple[int, ...]) is int
    assert items_of(tuple[int, int]) is None


def test_what_processors_forward() -> None:
    class Open(Processor[str, int, T, T]):
        pass

    class Closed(Open[bytes]):
        pass

    assert forwarded(MakingMore) == (int, P)
    assert forwarded(partial(Making)) == (int, P)
    assert forwarded(Closed) == (bytes, bytes)
    assert forwarded(Processor) == (None, None)
    assert forwarded(lambda: 1 / 0) == (None, None)


@pytest.mark.parametrize("caching", [False, True])
def test_without_a_type_a_reduced_object_is_refused(caching: bool) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", value=int).map_values(lambda value: P(value + 1))
    stream.group_by_key().reduce(lambda one, two: P(one.n + two.n))
    with TopologyTestDriver(builder.build(), caching=caching) as driver, pytest.raises(ProcessingError) as caught:
        driver.input("in").pipe(1, key="k")
    assert "KSTREAM-REDUCE-0000000003 failed" in str(caught.value)
    assert "cannot write a value of type P: it would be read back as dict" in str(caught.value)
    assert f"-> P at the function of map_values ({__file__}:" in str(caught.value)


def test_a_processors_store_refuses_it_too() -> None:
    class Storing(Processor[str, int, str, int]):
        def process(self, record: Record[str, int]) -> None:
            self.context.store("kept")[record.key] = P(record.value)

    builder = StreamsBuilder().add_state_store(key_value_store("kept"))
    builder.stream("in", key=str, value=int).process(Storing, stores=["kept"])
    with (
        TopologyTestDriver(builder.build()) as driver,
        pytest.raises(ProcessingError, match=r"as dict\. Declare its type: value=P in store 'kept' \(.*test_annotations"),
    ):
        driver.input("in").pipe(1, key="k")
