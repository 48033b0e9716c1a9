"""Mistakes with processors and stores."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from penstock import Processor, ProcessorContext, Record, Store, StreamsBuilder, key_value_store
from penstock.epochs.packing import packed
from penstock.epochs.program import Program
from penstock.errors import ProcessingError, StateError, TopologyError
from penstock.testing import TopologyTestDriver
from tests.unit.epochs.application import Application
from tests.unit.mistakes.teaching import teaches, wrong


class Echo(Processor[str, str, str, str]):
    """Forwards everything."""

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


def run(builder: StreamsBuilder, key: str | None = "k") -> None:
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").pipe("a", key=key)


def program_of(builder: StreamsBuilder, directory: Path) -> Program:
    return Application(directory, builder.build).program(1, "a")


def test_a_store_that_is_not_connected() -> None:
    class Count(Processor[str, str, str, str]):
        def process(self, record: Record[str, str]) -> None:
            self.context.store("counts").put(record.key, 1)

    builder = StreamsBuilder(value=str)
    builder.add_state_store(key_value_store("counts", value=int))
    builder.stream("in").process(Count)
    with teaches(TopologyError, "uses store 'counts' without being connected to it", "Add it to stores=[...]"):
        run(builder)


def test_a_store_that_is_not_declared() -> None:
    builder = StreamsBuilder(value=str)
    builder.stream("in").process(Echo, stores=["counts"])
    with teaches(TopologyError, "Store 'counts' is not declared", "Call add_state_store first"):
        builder.build()


def test_stores_given_as_a_text() -> None:
    with teaches(TopologyError, "stores= as a list of names, not 'counts'", "write stores=['counts']"):
        StreamsBuilder(value=str).stream("in").process(Echo, stores="counts")


def test_two_stores_with_one_name() -> None:
    builder = StreamsBuilder(value=str)
    grouped = builder.stream("in").group_by_key()
    grouped.count(store="counts")
    grouped.reduce(max, store="counts")
    with teaches(TopologyError, "Store 'counts' is declared twice", "Give one of them another name"):
        builder.build()


def test_a_store_of_processors_for_a_table() -> None:
    grouped = StreamsBuilder(value=str).stream("in").group_by_key()
    with teaches(TopologyError, "store= takes a name or a Store, not a StoreSpec", "store=Store('name', ...)"):
        grouped.count(store=wrong(key_value_store("counts", value=int)))


def test_an_option_that_the_store_does_not_take() -> None:
    grouped = StreamsBuilder(value=str).stream("in").group_by_key()
    with teaches(TopologyError, "Store 'counts': a table without windows takes no retention=", "takes no retention="):
        grouped.count(store=Store("counts", retention="1d"))


def test_a_processor_object_in_place_of_its_class() -> None:
    with teaches(TopologyError, "process needs a function of ()", "write Echo, which makes a new one each time"):
        StreamsBuilder(value=str).stream("in").process(wrong(Echo()))


def test_a_processor_that_forgets_its_context() -> None:
    class Forgetful(Echo):
        def init(self, context: ProcessorContext[str, str]) -> None:
            self.count = 0

    builder = StreamsBuilder(value=str)
    builder.stream("in").process(Forgetful)
    with teaches(ProcessingError, "has no attribute 'context'", "its init must call super().init(context)"):
        run(builder)


def test_a_value_kept_in_an_attribute() -> None:
    class Number(Processor[str, str, str, int]):
        count = 0

        def process(self, record: Record[str, str]) -> None:
            self.count += 1
            self.context.forward(record.with_value(self.count))

    builder = StreamsBuilder(value=str)
    builder.stream("in").process(Number, value=int).to("out")
    with teaches(StateError, "attribute 'count' was set", "Keep it in a store (stores=[...])"):
        run(builder)


def test_a_value_forwarded_in_place_of_a_record() -> None:
    class Careless(Echo):
        def process(self, record: Record[str, str]) -> None:
            self.context.forward(wrong(record.value))

    builder = StreamsBuilder(value=str)
    builder.stream("in").process(Careless, name="careless").to("out")
    with teaches(ProcessingError, "careless forwards a str, not a Record", "record.with_value(...)"):
        run(builder)


def test_a_key_that_is_none_in_a_store() -> None:
    class Count(Processor[str, str, str, str]):
        def process(self, record: Record[str, str]) -> None:
            self.context.store("counts").put(record.key, 1)

    builder = StreamsBuilder(value=str)
    builder.add_state_store(key_value_store("counts", value=int))
    builder.stream("in").process(Count, stores=["counts"])
    with teaches(ProcessingError, "Store 'counts' cannot have a null key", "Give the record a key first"):
        run(builder, None)


def test_a_stored_value_changed_without_putting_it_back() -> None:
    class Collect(Processor[str, str, str, str]):
        def process(self, record: Record[str, str]) -> None:
            seen = self.context.store("seen")
            values = seen.get(record.key)
            if values is None:
                seen.put(record.key, [])
            else:
                values.append(record.value)  # a copy: only what is put is stored

    builder = StreamsBuilder(value=str)
    builder.add_state_store(key_value_store("seen", value=list))
    builder.stream("in").process(Collect, stores=["seen"])
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").pipe_pairs([("k", "a"), ("k", "b")])
        assert driver.store("seen")["k"] == []


def test_timers_without_on_timer() -> None:
    class Hasty(Processor[str, str, str, str]):
        def process(self, record: Record[str, str]) -> None:
            self.context.timers.processing_time(after="1s")

    builder = StreamsBuilder(value=str)
    builder.stream("in").process(Hasty, name="hasty")
    with teaches(TopologyError, "hasty has no timers", "override on_timer in the processor's class", line=False):
        run(builder)


def test_a_closure_that_cannot_be_pickled(tmp_path: Path) -> None:
    lock = threading.Lock()

    def guarded(value: str) -> str:
        with lock:
            return value

    builder = StreamsBuilder(value=str)
    builder.stream("in").map_values(guarded, name="guarded").to("out")
    program = program_of(builder, tmp_path)
    with teaches(TopologyError, "guarded runs in other processes, but 'lock', to which its function refers", "with setup="):
        packed(program, program)


def test_a_processor_that_cannot_be_pickled(tmp_path: Path) -> None:
    class Held(Echo):
        lock: Any = threading.Lock()

    builder = StreamsBuilder(value=str)
    builder.stream("in").process(Held, name="held")
    program = program_of(builder, tmp_path)
    with teaches(TopologyError, "held runs in other processes, but what its functions refer to", "in a processor's init"):
        packed(program, program)


def test_what_else_cannot_be_pickled_is_told_without_a_node(tmp_path: Path) -> None:
    builder = StreamsBuilder(value=str)
    builder.stream("in").to("out")
    program = program_of(builder, tmp_path)
    with pytest.raises(TopologyError, match="The application cannot be sent to its slots"):
        packed(program, (program, threading.Lock()))
