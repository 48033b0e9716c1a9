"""`KStream`'s verbs, as records see them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import FixedKeyProcessor, KStream, Processor, Record, RecordContext, StreamsBuilder, otherwise
from penstock.errors import ProcessingError, TopologyError
from penstock.serdes import Int64
from penstock.testing import TopologyTestDriver
from tests.unit.dsl.running import HEADERS, outputs, run

Verb = Callable[[KStream], KStream]

VERBS: dict[str, tuple[Verb, list[tuple[Any, Any]]]] = {
    "filter": (lambda s: s.filter(lambda key, value: value > 1), [("b", 2)]),
    "filter_not": (lambda s: s.filter_not(lambda key, value: value > 1), [("a", 1)]),
    "select_key": (lambda s: s.select_key(lambda key, value: key * value), [("a", 1), ("bb", 2)]),
    "map": (lambda s: s.map(lambda key, value: (key + "!", -value)), [("a!", -1), ("b!", -2)]),
    "map_values": (lambda s: s.map_values(lambda value: value * 10), [("a", 10), ("b", 20)]),
    "map_values with key": (lambda s: s.map_values(lambda key, value: key * value, with_key=True), [("a", "a"), ("b", "bb")]),
    "flat_map": (lambda s: s.flat_map(lambda key, value: [(key, n) for n in range(value)]), [("a", 0), ("b", 0), ("b", 1)]),
    "flat_map_values": (lambda s: s.flat_map_values(range), [("a", 0), ("b", 0), ("b", 1)]),
    "flat_map_values with key": (
        lambda s: s.flat_map_values(lambda key, value: key * value, with_key=True),
        [("a", "a"), ("b", "b"), ("b", "b")],
    ),
    "peek": (lambda s: s.peek(lambda key, value: None), [("a", 1), ("b", 2)]),
    "repartition": (lambda s: s.repartition(), [("a", 1), ("b", 2)]),
    "merge": (lambda s: s.merge(s.filter(lambda key, value: value == 1)), [("a", 1), ("a", 1), ("b", 2)]),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_does_what_it_says_and_keeps_time_and_headers(verb: str) -> None:
    apply, expected = VERBS[verb]
    builder = StreamsBuilder()
    apply(builder.stream("in")).to("out")
    got = outputs(builder, ("in", "a", 1, 7), ("in", "b", 2, 8))
    assert [(record.key, record.value) for record in got] == expected
    assert {record.timestamp for record in got} <= {7, 8}
    assert all(record.headers == HEADERS for record in got)


@pytest.mark.parametrize(
    "verb", ["filter", "filter_not", "select_key", "map", "flat_map", "peek", "foreach", "group_by", "print"]
)
@pytest.mark.parametrize("function", [lambda value: value, lambda key, value, more: value])
def test_a_function_of_the_wrong_arity_is_refused_with_the_users_line(verb: str, function: Callable[..., Any]) -> None:
    stream = StreamsBuilder().stream("in")
    arguments: dict[str, Any] = {"mapper": function} if verb == "print" else {}
    with pytest.raises(TopologyError, match=rf"{verb} calls its function with \(key, value\).*{Path(__file__).name}:\d+"):
        getattr(stream, verb)(*([] if arguments else [function]), **arguments)


@pytest.mark.parametrize("verb", ["map_values", "flat_map_values"])
def test_with_key_decides_between_one_argument_and_two(verb: str) -> None:
    stream = StreamsBuilder().stream("in")
    with pytest.raises(TopologyError, match=r"with \(value\)"):
        getattr(stream, verb)(lambda key, value: [value])
    with pytest.raises(TopologyError, match=r"with \(key, value\)"):
        getattr(stream, verb)(lambda value: [value], with_key=True)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"filter needs a function of \(key, value\), not 'big'.*test_streams.py"):
        StreamsBuilder().stream("in").filter("big")  # type: ignore[arg-type]


def test_a_builtin_without_a_signature_is_taken_on_trust() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=str).map_values(dict.fromkeys).to("out")
    assert run(builder, ("in", "k", "ab")) == [("k", {"a": None, "b": None})]


def test_foreach_sees_every_record_and_ends_the_stream() -> None:
    seen: list[tuple[Any, Any]] = []
    builder = StreamsBuilder()
    stream = builder.stream("in")
    assert stream.foreach(lambda key, value: seen.append((key, value))) is None  # type: ignore[func-returns-value]
    stream.to("out")
    assert run(builder, ("in", "a", 1), ("in", None, None)) == [("a", 1), (None, None)]
    assert seen == [("a", 1), (None, None)]


class TestPrint:
    def test_goes_to_standard_output_under_the_name_of_the_node_above(self, capsys: pytest.CaptureFixture[str]) -> None:
        builder = StreamsBuilder()
        stream = builder.stream("in")
        stream.print()
        stream.to("out")
        run(builder, ("in", "a", 1), ("in", None, None))
        assert capsys.readouterr().out == "[KSTREAM-SOURCE-0000000000]: a, 1\n[KSTREAM-SOURCE-0000000000]: null, null\n"

    def test_appends_to_a_file_what_the_mapper_makes(self, tmp_path: Path) -> None:
        file = tmp_path / "records.txt"
        file.write_text("before\n", encoding="utf-8")
        builder = StreamsBuilder()
        stream = builder.stream("in")
        stream.print(label="in", file=str(file), mapper=lambda key, value: f"{key}={value}")
        stream.to("out")
        run(builder, ("in", "a", 1), ("in", "b", 2))
        assert file.read_text(encoding="utf-8") == "before\n[in]: a=1\n[in]: b=2\n"

    @pytest.mark.security(10)
    def test_a_record_is_one_line_whatever_it_contains(self, capsys: pytest.CaptureFixture[str]) -> None:
        builder = StreamsBuilder()
        stream = builder.stream("in")
        stream.print(label="in")
        stream.to("out")
        run(builder, ("in", "a\rb", '1\n{"level":"critical"}\u2028\x1b[2K'))
        assert capsys.readouterr().out == '[in]: a\\x0db, 1\\n{"level":"critical"}\\u2028\\x1b[2K\n'

    def test_a_mapper_that_fails_is_the_printers_failure(self) -> None:
        builder = StreamsBuilder()
        stream = builder.stream("in")
        stream.print(mapper=lambda key, value: str(1 / value), name="look")
        with pytest.raises(ProcessingError, match="look failed on the record from in-0 at offset 0"):
            run(builder, ("in", "a", 0))


class TestSplit:
    def test_a_record_goes_to_the_first_branch_that_wants_it(self) -> None:
        builder = StreamsBuilder()
        small, even = builder.stream("in").split(lambda key, value: value < 3, lambda key, value: value % 2 == 0)
        small.to("small")
        even.to("even")
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe_values([1, 2, 3, 4])
            assert driver.output("small").values() == [1, 2]
            assert driver.output("even").values() == [4]
            assert driver.dropped() == {("KSTREAM-BRANCH-0000000001", "no branch"): 1}

    def test_otherwise_takes_the_rest(self) -> None:
        builder = StreamsBuilder()
        branches = builder.stream("in").split(small=lambda key, value: value < 3, rest=otherwise)
        assert list(branches) == ["small", "rest"]
        branches["small"].to("small")
        branches["rest"].to("rest")
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe_values([1, 5])
            assert (driver.output("small").values(), driver.output("rest").values()) == ([1], [5])
            assert driver.dropped() == {}

    def test_branches_are_named_after_the_split_and_move_the_counter(self) -> None:
        builder = StreamsBuilder()
        one, rest = builder.stream("in").split(lambda key, value: True, otherwise)
        one.to("one")
        rest.to("rest")
        assert list(builder.build().nodes) == [
            "KSTREAM-SOURCE-0000000000",
            "KSTREAM-BRANCH-0000000001",
            "KSTREAM-BRANCH-00000000011",
            "KSTREAM-BRANCH-00000000010",
            "KSTREAM-SINK-0000000004",
            "KSTREAM-SINK-0000000005",
        ]

    @pytest.mark.parametrize("given", [((), {}), ((otherwise,), {"named": otherwise})])
    def test_branches_are_positional_or_named(self, given: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
        positional, named = given
        with pytest.raises(TopologyError, match="either positional or named"):
            StreamsBuilder().stream("in").split(*positional, **named)

    def test_otherwise_comes_last(self) -> None:
        with pytest.raises(TopologyError, match="otherwise must be the last branch"):
            StreamsBuilder().stream("in").split(otherwise, lambda key, value: True)


def test_otherwise_holds_for_every_record() -> None:
    assert otherwise("k", None)


class TestTo:
    def test_a_function_may_choose_the_topic_of_each_record(self) -> None:
        seen: list[RecordContext] = []

        def choose(key: str, value: int, context: RecordContext) -> str:
            seen.append(context)
            return "even" if value % 2 == 0 else "odd"

        builder = StreamsBuilder()
        builder.stream("in").to(choose, value=int)
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe_values([1, 2, 3], start=7)
            assert driver.produced_topic_names() == {"odd", "even"}
            assert driver.output("odd").values() == [1, 3]
            assert driver.output("even").values() == [2]
        assert seen == [RecordContext("in", 0, offset, 7, ()) for offset in range(3)]

    def test_a_function_that_chooses_takes_three_arguments(self) -> None:
        with pytest.raises(TopologyError, match=r"to calls its function with \(key, value, context\)"):
            StreamsBuilder().stream("in").to(lambda key, value: "out")  # type: ignore[arg-type, misc]

    def test_a_function_that_chooses_and_fails_is_the_sinks_failure(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in").to(lambda key, value, context: str(1 / value), name="route")
        with pytest.raises(ProcessingError, match=r"route failed .*ZeroDivisionError"):
            run(builder, ("in", "a", 0))

    @pytest.mark.parametrize("chosen", [None, 1, b"out"])
    def test_a_function_that_chooses_names_a_topic(self, chosen: Any) -> None:
        builder = StreamsBuilder()
        builder.stream("in").to(lambda key, value, context: chosen, name="route")
        with pytest.raises(ProcessingError, match=r"route failed .*the function that chooses the topic returned"):
            run(builder, ("in", "a", 0))

    @pytest.mark.parametrize("error", [ProcessingError, TopologyError])
    def test_errors_that_name_their_node_pass_a_routing_sink(self, error: type[Exception]) -> None:
        def choose(key: Any, value: Any, context: Any) -> str:
            raise error("as it is")

        builder = StreamsBuilder()
        builder.stream("in").to(choose, name="route")
        with pytest.raises(error, match=r"^as it is"):
            run(builder, ("in", "a", 0))

    @pytest.mark.parametrize("chosen", [1, -1, [0, 1], "0"])
    def test_a_partition_that_the_topic_does_not_have_is_the_sinks_failure(self, chosen: Any) -> None:
        builder = StreamsBuilder()
        builder.stream("in").to("out", partitioner=lambda topic, key, value, partitions: chosen, name="route")
        with pytest.raises(ProcessingError, match=r"route failed"):
            run(builder, ("in", "a", 0))

    def test_a_value_that_the_serde_cannot_write_names_the_sink_and_the_record(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in").to("out", value=Int64(), name="numbers")
        with pytest.raises(ProcessingError, match=r"numbers failed on the record from in-0 at offset 0 \(key 'a'\)"):
            run(builder, ("in", "a", "no number"))

    @pytest.mark.parametrize("option", [{"partitioner": lambda topic, key, value, partitions: 0}, {}])
    def test_a_value_that_the_serde_cannot_write_names_a_routing_sink_too(self, option: dict[str, Any]) -> None:
        builder = StreamsBuilder()
        builder.stream("in").to("out" if option else lambda key, value, context: "out", value=Int64(), name="numbers", **option)
        with pytest.raises(ProcessingError, match=r"numbers failed on the record from in-0 at offset 0 \(key 'a'\)"):
            run(builder, ("in", "a", "no number"))

    @pytest.mark.parametrize("verb", ["to", "repartition"])
    def test_a_partitioner_takes_four_arguments(self, verb: str) -> None:
        named = ("out",) if verb == "to" else ()
        with pytest.raises(TopologyError, match=r"partitioner= calls its function with \(topic, .*test_streams.py"):
            getattr(StreamsBuilder().stream("in"), verb)(*named, partitioner=lambda topic, key, value: 0)

    def test_a_partitioner_is_asked_with_the_number_of_partitions(self) -> None:
        asked: list[tuple[Any, ...]] = []

        def partition(*arguments: Any) -> int:
            asked.append(arguments)
            return 0

        builder = StreamsBuilder()
        builder.stream("in").to("out", partitioner=partition)
        assert run(builder, ("in", "a", 1)) == [("a", 1)]
        assert asked == [("out", "a", 1, 1)]

    def test_a_topic_that_is_also_read_comes_round(self) -> None:
        builder = StreamsBuilder()
        builder.stream("start").to("loop")
        again = builder.stream("loop").filter(lambda key, value: value < 3).map_values(lambda value: value + 1)
        again.to("loop")
        assert run(builder, ("start", "a", 1), out="loop") == [("a", 1), ("a", 2), ("a", 3)]

    def test_null_is_never_given_to_a_serde(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in", key=int, value=int).to("out")
        assert run(builder, ("in", None, None)) == [(None, None)]


class TestSerdes:
    def test_keys_are_text_and_values_json_unless_said_otherwise(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in").to("out")
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in", key=bytes, value=bytes).pipe(b'{"a":1}', key=b"k")
            record = driver.output("out", key=bytes, value=bytes).read()
            assert (record.key, record.value) == (b"k", b'{"a":1}')

    def test_a_builder_has_defaults(self) -> None:
        builder = StreamsBuilder(key=int, value=str)
        builder.stream("in").to("out")
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe("text", key=1)
            assert driver.output("out", key=bytes, value=bytes).read_pair() == ((1).to_bytes(8, "big"), b"text")

    def test_a_verb_that_keeps_the_value_keeps_its_serde_and_one_that_changes_it_forgets_it(self) -> None:
        builder = StreamsBuilder()
        stream = builder.stream("in", key=int, value=str)
        stream.filter(lambda key, value: True).to("kept")
        stream.map_values(lambda value: value).to("mapped")
        stream.select_key(lambda key, value: str(key)).to("rekeyed")
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe("text", key=1)
            raw = {topic: driver.output(topic, key=bytes, value=bytes).read_pair() for topic in ("kept", "mapped", "rekeyed")}
        one = (1).to_bytes(8, "big")
        assert raw == {"kept": (one, b"text"), "mapped": (one, b'"text"'), "rekeyed": (b"1", b"text")}

    def test_a_verbs_own_serdes_win(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in").map(lambda key, value: (value, key), key=int, value=str).repartition(key=int, value=str).to("out")
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe(1, key="a")
            assert driver.output("out", key=bytes, value=bytes).read_pair() == ((1).to_bytes(8, "big"), b"a")


class Upper(FixedKeyProcessor[str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_value(record.value.upper()))


class Swap(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_key(record.value).with_value(record.key))


class TestProcess:
    def test_a_processor_changes_keys_and_what_follows_is_brought_together_again(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in", value=str).process(Swap, key=str, value=str).group_by_key().count().to_stream().to("out")
        topology = builder.build()
        assert len(topology.exchanges) == 1
        assert run(builder, ("in", "a", "x"), ("in", "b", "x")) == [("x", 1), ("x", 2)]

    def test_a_processor_of_fixed_keys_does_not_move_records(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in", value=str).process_values(Upper, value=str).group_by_key().count().to_stream().to("out")
        assert not builder.build().exchanges
        assert run(builder, ("in", "a", "x")) == [("a", 1)]

    @pytest.mark.parametrize("verb", ["process", "process_values"])
    def test_a_supplier_takes_no_arguments(self, verb: str) -> None:
        with pytest.raises(TopologyError, match=rf"{verb} calls its function with \(\)"):
            getattr(StreamsBuilder().stream("in"), verb)(lambda context: Swap())


class TestNullKeysBeforeARepartition:
    def rekeyed(self, builder: StreamsBuilder) -> KStream[Any, Any]:
        return builder.stream("in").select_key(lambda key, value: None if value == "none" else "k")

    def test_are_dropped_where_nothing_below_can_use_them(self) -> None:
        builder = StreamsBuilder()
        self.rekeyed(builder).repartition().to("out")
        assert run(builder, ("in", "a", "none"), ("in", "a", "some")) == [("k", "some")]

    @pytest.mark.parametrize("verb", ["left_join", "outer_join"])
    def test_pass_where_a_stream_join_below_keeps_records_without_a_match(self, verb: str) -> None:
        builder = StreamsBuilder()
        left = self.rekeyed(builder)
        getattr(left, verb)(builder.stream("right"), lambda one, two: [one, two], within=5).to("out")
        assert run(builder, ("in", "a", "none")) == [(None, ["none", None])]

    def test_pass_where_a_left_join_with_a_table_is_below(self) -> None:
        builder = StreamsBuilder()
        table = builder.table("table")
        self.rekeyed(builder).left_join(table, lambda one, two: [one, two]).to("out")
        assert run(builder, ("in", "a", "none")) == [(None, ["none", None])]

    def test_pass_where_a_left_join_is_further_below(self) -> None:
        builder = StreamsBuilder()
        rates = builder.global_table("rates")
        moved = self.rekeyed(builder).repartition().peek(lambda key, value: None)
        moved.left_join(rates, lambda one, two: [one, two], on=lambda key, value: value).to("out")
        assert run(builder, ("in", "a", "none")) == [(None, ["none", None])]

    def test_are_dropped_before_an_inner_join(self) -> None:
        builder = StreamsBuilder()
        left = self.rekeyed(builder)
        left.join(builder.stream("right"), lambda one, two: [one, two], within=5).to("out")
        assert run(builder, ("right", "k", 1), ("in", "a", "none"), ("in", "a", "some")) == [("k", ["some", 1])]


def test_to_table_keeps_the_last_value_and_forgets_on_null() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to_table(store="last").to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").pipe_pairs([("a", 1), ("b", 2), ("a", None), (None, 3)])
        assert dict(driver.store("last").items()) == {"b": 2}
        assert driver.output("out").pairs() == [("a", 1), ("b", 2), ("a", None)]


def test_two_joins_of_one_rekeyed_stream_share_its_exchange() -> None:
    builder = StreamsBuilder()
    moved = builder.stream("in").select_key(lambda key, value: "k")
    one, two = builder.table("one"), builder.table("two")
    moved.join(one, lambda left, right: [left, right]).to("first")
    moved.join(two, lambda left, right: [left, right]).to("second")
    topology = builder.build()
    assert list(topology.exchanges) == ["KSTREAM-KEY-SELECT-0000000001-repartition"]
    with TopologyTestDriver(topology) as driver:
        driver.input("one").pipe(1, key="k")
        driver.input("two").pipe(2, key="k")
        driver.input("in").pipe("x", key="a")
        assert (driver.output("first").values(), driver.output("second").values()) == ([["x", 1]], [["x", 2]])
