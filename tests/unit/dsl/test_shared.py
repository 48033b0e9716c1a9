"""Shared stores and atomic sections as they are declared, and what they do in the test driver."""

from __future__ import annotations

from operator import add
from typing import Any

import pytest

from penstock import (
    FixedKeyProcessor,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    SharedKeyValueStore,
    Store,
    StreamsBuilder,
    Timer,
    Topology,
    ValueTransformer,
    dead_letter,
    key_value_store,
    log_and_continue,
    retry,
    shared_store,
    tumbling,
)
from penstock.errors import StateError, TopologyError
from penstock.testing import TopologyTestDriver


def twice(current: int | None, argument: int | None) -> int | None:
    return None if argument == 0 else 2 * (current or 0) + (argument or 0)


def doing(code: str, *, atomically: bool = False, **options: Any) -> Topology:
    """A topology whose processor does as it says to the shared store `s`, with the record `r`."""

    class Do(Processor[str, int, str, Any]):
        def process(self, r: Record[str, int]) -> None:
            s: SharedKeyValueStore[str, int] = self.context.store("kept")
            exec(code, {"s": s, "r": r, "context": self.context, "twice": twice, "add": add, "Record": Record})

    functions: dict[str, Any] = {"merge": add, "operations": [twice], **options}
    builder = StreamsBuilder()
    builder.add_state_store(shared_store("kept", value=int, **functions))
    stream = builder.stream("in", value=int)
    if atomically:
        stream.process_atomically(Do, stores=["kept"], value=int, name="do").to("out")
    else:
        stream.process(Do, stores=["kept"], key=str, value=int, name="do").to("out", value=int)
    return builder.build()


def content(topology: Topology, *values: int, **options: Any) -> dict[str, int]:
    with TopologyTestDriver(topology, **options) as driver:
        for value in values:
            driver.input("in").pipe(value, key="k")
        return dict(driver.store("kept").items())


BOTH = pytest.mark.parametrize("atomically", [False, True], ids=["process", "process_atomically"])


@BOTH
class TestWrites:
    @pytest.mark.parametrize(
        ("code", "kept"),
        [
            ("s.put('x', r.value)", {"x": 7}),
            ("s['x'] = r.value", {"x": 7}),
            ("s.put('x', r.value); s.delete('x')", {}),
            ("s.put('x', r.value); s.put('x', None)", {}),
            ("s.put_if_absent('x', r.value)", {"x": 5}),
            ("s.merge('x', r.value)", {"x": 12}),
            ("s.compute('x', twice, r.value)", {"x": 17}),
            ("s.put('x', 1); s.compute('x', twice)", {"x": 2}),
            ("s.compute('x', twice, 0)", {}),
        ],
    )
    def test_each_does_what_it_says(self, code: str, kept: dict[str, int], atomically: bool) -> None:
        assert content(doing(code, atomically=atomically), 5, 7) == kept

    @pytest.mark.parametrize(
        ("code", "says"),
        [
            (
                "s.compute('x', add, 1)",
                "do computes with .*add.*, which is not an operation of store 'kept'. .* Declared operations: twice",
            ),
            ("s.put(None, 1)", "Store 'kept' cannot have a null key"),
            ("s.merge('x', None)", "merge needs a value"),
        ],
    )
    def test_a_mistake_is_named(self, code: str, says: str, atomically: bool) -> None:
        with pytest.raises(Exception, match=says):
            content(doing(code, atomically=atomically), 1)

    def test_merging_needs_a_function(self, atomically: bool) -> None:
        with pytest.raises(TopologyError, match=r"do: store 'kept' has no merge function. Pass one to shared_store\(merge=...\)"):
            content(doing("s.merge('x', 1)", atomically=atomically, merge=None), 1)

    def test_a_tables_store_is_read_and_not_written(self, atomically: bool) -> None:
        class Use(Processor[str, str, str, str]):
            def process(self, record: Record[str, str]) -> None:
                names = self.context.store("names")
                if record.value == "write":
                    names.put("x", "y")
                self.context.forward(record.with_value(f"{names.get(record.value)} {'x' in names}"))

        builder = StreamsBuilder(value=str)
        builder.table("names", store=Store("names", shared=True))
        stream = builder.stream("in")
        verb = stream.process_atomically if atomically else stream.process
        verb(Use, stores=["names"], key=str, value=str, name="use").to("out")
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("names").pipe("ann", key="a")
            driver.input("in").pipe("a", key="k")
            assert driver.output("out").values() == ["ann False"]
            with pytest.raises(TopologyError, match=r"use writes to store 'names', which belongs to a table.* shared_store"):
                driver.input("in").pipe("write", key="k")


def test_a_write_is_not_seen_by_the_next_line_but_by_the_next_record() -> None:
    code = "s.put('x', r.value); context.forward(r.with_value(s.get('x') or -1))"
    with TopologyTestDriver(doing(code)) as driver:
        for value in (1, 2):
            driver.input("in").pipe(value)
        assert driver.output("out").values() == [-1, 1]


def test_in_a_section_it_is_seen_by_the_next_line() -> None:
    code = "s.put('x', r.value); context.forward(r.with_value(s['x']))"
    with TopologyTestDriver(doing(code, atomically=True)) as driver:
        driver.input("in").pipe(1)
        assert driver.output("out").values() == [1]


@pytest.mark.parametrize("raw", [10_000, 50])
def test_a_write_does_not_move_stream_time(raw: int) -> None:
    """Whatever the clock of whoever wrote the record has said."""

    class Write(FixedKeyProcessor[str, int, int]):
        def process(self, record: Record[str, int]) -> None:
            self.context.store("kept").put("x", 1)
            self.context.forward(record.with_value(self.context.current_stream_time_ms()))

    builder = StreamsBuilder()
    builder.add_state_store(shared_store("kept", value=int))
    stream = builder.stream("in", value=int, timestamp=lambda record: record.value)
    stream.process_values(Write, stores=["kept"], value=int).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        for value in (100, 200):
            driver.input("in").pipe(value, timestamp=raw)
        assert driver.output("out").values() == [100, 200]


class TestFailures:
    def test_an_operation_that_fails_names_the_node_and_the_record(self) -> None:
        topology = doing("s.compute('x', twice, r.value)", operations=[twice, add])
        broken = doing("s.put('x', 1); s.merge('x', r.value)", merge=lambda current, value: current / 0)
        assert content(topology, 1)
        with pytest.raises(Exception, match=r"kept-writes failed on the record from .* \(key 'x'\): ZeroDivisionError"):
            content(broken, 1)
        with TopologyTestDriver(broken, processing_errors=dead_letter("dead")) as driver:
            driver.input("in").pipe(1, key="k")
            assert [key for key, _ in driver.output("dead").pairs()] == [b"x"]
            assert dict(driver.store("kept").items()) == {"x": 1}

    def test_an_operation_is_called_again_by_a_handler_that_asks_for_it(self) -> None:
        calls: list[int] = []

        def flaky(current: int | None, argument: int) -> int:
            calls.append(argument)
            if len(calls) < 3:
                raise ConnectionError
            return argument

        class Do(Processor[str, int, str, int]):
            def process(self, record: Record[str, int]) -> None:
                self.context.store("kept").compute("x", flaky, record.value)

        builder = StreamsBuilder()
        builder.add_state_store(shared_store("kept", value=int, operations=[flaky]))
        builder.stream("in", value=int).process(Do, stores=["kept"])
        assert content(builder.build(), 4, processing_errors=retry(attempts=5)) == {"x": 4}
        assert calls == [4, 4, 4]

    @pytest.mark.parametrize("handler", [log_and_continue(), retry(attempts=3, then=log_and_continue())])
    def test_a_section_that_fails_has_not_happened(self, handler: Any) -> None:
        code = "s.merge('x', 1); context.forward(r); s.put('y', 2); s.merge('x', 1); 1 / r.value"
        topology = doing(code, atomically=True)
        with TopologyTestDriver(topology, processing_errors=handler) as driver:
            for value in (3, 0, 4):
                driver.input("in").pipe(value)
            assert driver.output("out").values() == [3, 4]
            assert dict(driver.store("kept").items()) == {"x": 4, "y": 2}

    def test_without_a_handler_it_names_the_node(self) -> None:
        with pytest.raises(Exception, match=r"do failed on the record from .*ZeroDivisionError"):
            content(doing("1 / r.value", atomically=True), 0)


class TestSections:
    def test_writes_of_the_same_record_come_first_also_those_made_after_it_was_forwarded(self) -> None:
        class ForwardThenWrite(Processor[str, int, str, int]):
            def process(self, record: Record[str, int]) -> None:
                self.context.forward(record)
                self.context.store("kept").put("x", record.value)

        class Read(Processor[str, int, str, int]):
            def process(self, record: Record[str, int]) -> None:
                self.context.forward(record.with_value(self.context.store("kept").get("x") or -1))

        builder = StreamsBuilder()
        builder.add_state_store(shared_store("kept", value=int))
        stream = builder.stream("in", value=int).process(ForwardThenWrite, stores=["kept"], key=str, value=int)
        stream.process_atomically(Read, stores=["kept"], value=int).to("out")
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe(7)
            assert driver.output("out").values() == [7]

    def test_it_reads_global_tables_too(self) -> None:
        class Read(Processor[str, str, str, str]):
            def process(self, record: Record[str, str]) -> None:
                self.context.forward(record.with_value(self.context.store("rates").get(record.value)))

        builder = StreamsBuilder(value=str)
        builder.global_table("rates", store="rates")
        builder.stream("in").process_atomically(Read, stores=["rates"], value=str).to("out")
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("rates").pipe("1.5", key="chf")
            driver.input("in").pipe("chf")
            assert driver.output("out").values() == ["1.5"]

    def test_one_with_timers_is_refused_while_declaring(self) -> None:
        class Late(Processor[str, str, str, str]):
            def on_timer(self, timer: Timer) -> None:
                """Nothing."""

        stream = StreamsBuilder().stream("in")
        with pytest.raises(
            TopologyError, match=r"late overrides on_timer, but an atomic section has no timers .*test_shared.py:.*process\("
        ):
            stream.process_atomically(Late, stores=[], name="late")

    @pytest.mark.parametrize("what", ["schedules a punctuator", "uses timers"])
    def test_one_that_asks_for_clocks_is_refused_when_it_does(self, what: str) -> None:
        class Late(Processor[str, str, str, str]):
            def init(self, context: ProcessorContext[str, str]) -> None:
                if what == "uses timers":
                    context.timers.all()
                context.schedule("1s", PunctuationType.STREAM_TIME, lambda time: None)

        builder = StreamsBuilder()
        builder.stream("in").process_atomically(Late, stores=[], name="late")
        with pytest.raises(TopologyError, match=rf"late {what} in an atomic section \(.*test_shared.py.*process\("):
            TopologyTestDriver(builder.build())

    def test_a_store_that_is_not_shared_is_refused(self) -> None:
        builder = StreamsBuilder()
        builder.add_state_store(key_value_store("own"))
        builder.stream("in").process_atomically(Processor, stores=["own"], name="pay")
        with pytest.raises(
            TopologyError, match=r"pay is an atomic section and cannot use store 'own'.*test_shared.py.*shared_store"
        ):
            builder.build()

    def test_a_record_without_a_time_is_refused(self) -> None:
        with pytest.raises(Exception, match="invalid record timestamp -1: it must be 0 or later"):
            content(doing("context.forward(Record('k', 1, -1))", atomically=True), 1)

    def test_an_undeclared_store_is_named(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in").process_atomically(Processor, stores=["nowhere"])
        with pytest.raises(TopologyError, match="Store 'nowhere' is not declared"):
            builder.build()


class TestDeclaring:
    def test_functions_are_checked(self) -> None:
        with pytest.raises(TopologyError, match=r"shared_store's merge= calls its function with \(current, value\)"):
            shared_store("kept", merge=lambda current: current)  # type: ignore[arg-type, misc]
        with pytest.raises(TopologyError, match=r"shared_store's operations= calls its function with \(current, argument\)"):
            shared_store("kept", operations=[lambda: None])  # type: ignore[list-item, misc]

    def test_a_transformer_cannot_use_one(self) -> None:
        builder = StreamsBuilder(value=str)
        builder.add_state_store(shared_store("kept"))
        builder.table("in").transform_values(ValueTransformer, stores=["kept"], name="change")
        with pytest.raises(TopologyError, match=r"change cannot use the shared store 'kept'.*process_atomically"):
            builder.build()

    def test_what_keeps_more_than_the_last_value_of_a_key_is_not_shared(self) -> None:
        builder = StreamsBuilder(value=str)
        grouped = builder.stream("in").group_by_key()
        builder.table("versions", store=Store("versions", history="1h", shared=True))
        with pytest.raises(TopologyError, match="'versions': a versioned table takes no shared="):
            builder.build()
        with pytest.raises(TopologyError, match="a windowed table takes no shared="):
            grouped.windowed_by(tumbling("1s")).count(store=Store("counts", shared=True))
        other = StreamsBuilder(value=str)
        other.table("names", store=Store("names", ttl="1h", shared=True))
        with pytest.raises(TopologyError, match="a shared table takes no ttl="):
            other.build()
        whole = StreamsBuilder(value=str)
        whole.global_table("rates", store=Store("rates", shared=True))
        with pytest.raises(TopologyError, match="'rates' is global and cannot be shared"):
            whole.build()

    def test_a_join_with_a_shared_table_is_still_beside_it(self) -> None:
        builder = StreamsBuilder(value=str)
        names = builder.table("names", store=Store("names", shared=True))
        builder.stream("in").join(names, lambda left, right: left + right).to("out")
        assert len(builder.build().groups()) == 1

    def test_with_the_processor_api(self) -> None:
        class Do(Processor[str, str, str, str]):
            def process(self, record: Record[str, str]) -> None:
                self.context.store("kept").merge("x", 1)

        topology = Topology().add_source("in", "in", value=str).add_processor("do", Do, "in")
        topology.add_state_store(shared_store("kept", value=int, merge=add), "do")
        topology.connect_processor_and_state_stores("do", "kept")
        with TopologyTestDriver(topology) as driver:
            driver.input("in").pipe("a")
            assert driver.store("kept")["x"] == 1

    def test_null_keys_are_refused_where_they_are_used(self) -> None:
        with pytest.raises(Exception, match="cannot have a null key") as found:
            content(doing("s.get(None)"), 1)
        assert isinstance(found.value.__cause__, StateError)
