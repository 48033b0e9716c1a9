"""Shards whose code waits are walked in threads; the results, failures and processors are those of a single thread."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from penstock import Processor, ProcessorContext, Record, StreamsBuilder, Topology, key_value_store
from penstock.epochs import overlap
from penstock.epochs.overlap import Pace
from penstock.epochs.program import Program
from penstock.epochs.shards import shard_of
from penstock.epochs.stays import end_stays
from penstock.errors import ProcessingError
from penstock.handlers import ErrorHandlers, LogAndContinue
from tests.unit.epochs.application import SHARDS, Application, Raw, by_key, driven, far_future, some_records

KEYS = [
    next(key for key in map("k{}".format, range(1_000)) if shard_of(key.encode(), SHARDS) == shard) for shard in range(SHARDS)
]
"""A key of each shard."""

PATIENCE_S = 30.0


class InThreads(Application):
    """An application whose shards may be walked in as many threads."""

    threads = SHARDS

    def program(self, lanes: int, incarnation: str) -> Program:
        return replace(super().program(lanes, incarnation), blocking_threads=self.threads)


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    end_stays()


@pytest.fixture
def always() -> Iterator[None]:
    """All code is taken for code that waits, but for the first shard, with which that is found out."""
    with patch.multiple(overlap, _LEAST_S=0.0, _WAITS=0.0, _STILL_WAITS=0.0):
        yield


def one_of_each_shard(time_ms: int = 0) -> list[Raw]:
    return [Raw(key.encode(), b"v", time_ms + number) for number, key in enumerate(KEYS)]


class Service:
    """Another system: it keeps the first call waiting, and answers the others when so many of them wait."""

    def __init__(self, together: int) -> None:
        self._together = threading.Barrier(together)
        self._is_first = True
        self.callers: set[str] = set()

    def ask(self, value: Any) -> Any:
        self.callers.add(threading.current_thread().name)
        if self._is_first:
            self._is_first = False
            time.sleep(0.05)
        else:
            self._together.wait(PATIENCE_S)
        return value


def functions(service: Service) -> Topology:
    builder = StreamsBuilder(key=str, value=str)
    builder.stream("in").map_values(service.ask).to("out", value=str)
    return builder.build()


def aggregators(service: Service) -> Topology:
    builder = StreamsBuilder(key=str, value=str)
    counts = (
        builder.stream("in").group_by_key().aggregate(lambda: 0, lambda key, value, n: service.ask(n) + 1, store="n", value=int)
    )
    counts.to_stream().to("out", value=int)
    return builder.build()


def processors(service: Service) -> Topology:
    class Count(Processor[str, str, str, int]):
        def init(self, context: ProcessorContext[str, int]) -> None:
            super().init(context)
            self.counts = context.store("n")

        def process(self, record: Record[str, str]) -> None:
            service.ask(record.value)
            self.counts.put(record.key, (self.counts.get(record.key) or 0) + 1)
            self.context.forward(record.with_value(self.counts.get(record.key)))

    builder = StreamsBuilder(key=str, value=str)
    builder.add_state_store(key_value_store("n", key=str, value=int))
    builder.stream("in").process(Count, stores=["n"]).to("out", value=int)
    return builder.build()


@pytest.mark.parametrize("make", [functions, aggregators, processors])
def test_calls_of_different_shards_overlap_as_soon_as_one_has_waited(tmp_path: Path, make: Callable[[Service], Topology]) -> None:
    service = Service(SHARDS - 1)
    application = InThreads(tmp_path, lambda: make(service))
    application.start(1)
    application.step(one_of_each_shard())
    assert len(service.callers) == SHARDS
    assert sorted(key for _, key, _, _ in application.sent if key is not None) == sorted(key.encode() for key in KEYS)
    if application.running.logged_stores:
        application.check()


def test_with_one_thread_nothing_overlaps(tmp_path: Path, always: None) -> None:
    service = Service(1)
    application = InThreads(tmp_path, lambda: processors(service))
    application.threads = 1
    application.start(1)
    for _ in range(2):
        application.step(one_of_each_shard())
    assert service.callers == {threading.current_thread().name}


def test_code_that_computes_is_walked_by_the_main_thread(tmp_path: Path) -> None:
    callers = set()

    def compute(value: str) -> str:
        callers.add(threading.current_thread().name)
        end = time.thread_time() + 0.01
        while time.thread_time() < end:
            pass
        return value

    def make() -> Topology:
        builder = StreamsBuilder(key=str, value=str)
        builder.stream("in").map_values(compute).group_by_key().count(store="n").to_stream().to("out", value=int)
        return builder.build()

    application = InThreads(tmp_path, make)
    application.start(1)
    for _ in range(3):
        application.step(one_of_each_shard())
    assert callers == {threading.current_thread().name}


def test_the_failure_of_the_first_shard_counts(tmp_path: Path, always: None) -> None:
    second_has_failed = threading.Event()

    def fail(key: str, value: str) -> bool:
        if key == KEYS[3]:
            second_has_failed.wait(PATIENCE_S)
            raise ValueError("the first")
        if key == KEYS[5]:
            second_has_failed.set()
            raise ValueError("the second")
        return True

    def make() -> Topology:
        builder = StreamsBuilder(key=str, value=str)
        builder.stream("in").filter(fail).group_by_key().count(store="n")
        return builder.build()

    application = InThreads(tmp_path, make)
    application.start(1)
    with pytest.raises(ProcessingError, match=r"in-0 at offset 3.*the first"):
        application.step(one_of_each_shard())


def test_handlers_get_the_failures_of_all_threads(tmp_path: Path, always: None) -> None:
    def fail(key: str, value: str) -> bool:
        if key in KEYS[3:6]:
            raise ValueError(key)
        return True

    def make() -> Topology:
        builder = StreamsBuilder(key=str, value=str)
        builder.stream("in").filter(fail).group_by_key().count(store="n").to_stream().to("out", value=int)
        return builder.build()

    application = InThreads(tmp_path, make, handlers=ErrorHandlers(processing=LogAndContinue()))
    application.start(1)
    application.step(one_of_each_shard())
    assert sorted(key for _, key, _, _ in application.sent if key) == sorted(key.encode() for key in KEYS[:3] + KEYS[6:])


@pytest.mark.parametrize("lanes", [1, 3])
def test_threads_make_no_difference(tmp_path: Path, always: None, lanes: int) -> None:
    often = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        application = InThreads(tmp_path)
        application.start(lanes)
        records = some_records(seed=3, count=120)
        for first in range(0, len(records), 40):
            application.step(records[first : first + 40])
        application.check()
        application.step(far_future())
    finally:
        sys.setswitchinterval(often)
    assert by_key(application.sent) == by_key(driven(application))


class Witness(Processor[str, str, str, str]):
    """Notes by which threads it is used, from `init` to `close`."""

    made: list[Witness]

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        self.threads = {threading.get_ident()}
        self.is_closed = False
        self.made.append(self)

    def process(self, record: Record[str, str]) -> None:
        self.threads.add(threading.get_ident())

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.is_closed = True


def witnesses() -> tuple[list[Witness], Topology]:
    made: list[Witness] = []
    builder = StreamsBuilder(key=str, value=str)
    builder.stream("in").process(type("Its", (Witness,), {"made": made}))
    return made, builder.build()


def test_a_processor_lives_in_one_thread(tmp_path: Path) -> None:
    made, topology = witnesses()
    application = InThreads(tmp_path, lambda: topology)
    application.start(1)
    application.step(one_of_each_shard())
    assert len(made) == SHARDS  # in the main thread
    with patch.multiple(overlap, _LEAST_S=0.0, _WAITS=0.0, _STILL_WAITS=0.0):  # now they wait
        for _ in range(3):
            application.step(one_of_each_shard())
    assert len(made) == 2 * SHARDS  # the first shard's moves with the epoch after that, the others' at once
    with patch.multiple(overlap, _LEAST_S=0.0, _STILL_WAITS=2.0, _BUSY=0.0):  # and now they do not wait any more
        for _ in range(3):
            application.step(one_of_each_shard())
    end_stays()
    assert len(made) == 3 * SHARDS
    assert all(len(witness.threads) == 1 and witness.is_closed for witness in made)
    assert len(set.union(*(witness.threads for witness in made))) == SHARDS + 1


class Shards:
    """Shards of whose walks only the thread is of interest; some fail."""

    def __init__(self, *failing: int, sleep_s: float = 0.0) -> None:
        self.by: list[str] = []
        self.began: list[int] = []
        self._failing = failing
        self._sleep_s = sleep_s

    def walk(self, shard: int) -> list[int]:
        self.began.append(shard)
        self.by.append(threading.current_thread().name)
        time.sleep(self._sleep_s)
        if shard in self._failing:
            raise ValueError(shard)
        return [shard]

    def walk_apart(self, shard: int) -> list[int]:
        return self.walk(shard)

    def settle(self, shard: int, thread: int | None) -> None:
        pass

    def share(self) -> None:
        pass


def names(shards: Shards) -> set[str]:
    return {name.rstrip("_0123456789-") for name in shards.by}


def test_results_come_in_the_order_of_shards(always: None) -> None:
    class Reverse(Shards):
        def walk(self, shard: int) -> list[int]:
            time.sleep((10 - shard) / 1_000)
            return super().walk(shard)

    pace, shards = Pace(10), Reverse()
    assert list(pace.walked(0, range(10), shards)) == list(range(10))
    assert shards.began != list(range(10))


def test_shards_behind_one_that_fails_do_not_begin(always: None) -> None:
    shards = Shards(1, sleep_s=0.01)
    with pytest.raises(ValueError, match="1"):
        list(Pace(2).walked(0, range(200), shards))
    assert set(shards.began) < set(range(200))
    assert len(shards.began) < 20


def test_code_that_no_longer_waits_is_walked_here_again() -> None:
    pace = Pace(4)
    list(pace.walked(0, range(8), waiting := Shards(sleep_s=0.03)))
    assert names(waiting) == {"MainThread", "penstock-shard"}
    with patch.object(overlap, "_BUSY", 0.0):  # whatever else this machine does
        list(pace.walked(0, range(8), again := Shards(sleep_s=0.03)))
    assert names(again) == {"penstock-shard"}

    class Busy(Shards):
        def walk(self, shard: int) -> list[int]:
            end = time.thread_time() + 0.01
            while time.thread_time() < end:
                pass
            return super().walk(shard)

    list(pace.walked(0, range(8), busy := Busy()))
    assert names(busy) == {"penstock-shard"}
    list(pace.walked(0, range(8), busy := Busy()))
    assert names(busy) == {"MainThread"}


def test_a_machine_that_does_not_tell_who_waits_for_a_processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(overlap, "_DELAYS", tmp_path / "nothing")
    list(Pace(4).walked(0, range(8), waiting := Shards(sleep_s=0.03)))
    assert names(waiting) == {"MainThread", "penstock-shard"}
