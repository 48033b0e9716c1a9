"""The order in which epochs take the records of several topics while an application catches up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Store, StreamsBuilder, session, tumbling, until_time_limit, until_window_closes
from penstock.records import LAST_TIMESTAMP, Partition
from penstock.runtime.input.inputs import Offsets
from penstock.runtime.input.time_order import BEHIND, OrderedInput, TimeOrder, is_needed, is_timed
from penstock.runtime.loop.share import Room
from tests.unit.epochs.application import program_of

ORDERS, USERS = ("orders", 0), ("users", 0)
NOW_MS = 1_700_000_000_000


class Topics:
    """Topics by the timestamps of their records, as brokers know them."""

    def __init__(self, times: Mapping[Partition, list[int]]) -> None:
        self.times = times
        self.requests = 0

    def ends(self) -> Offsets:
        self.requests += 1
        return {place: len(mine) for place, mine in self.times.items()}

    def offsets_at(self, partitions: Iterable[Partition], timestamp_ms: int) -> Mapping[Partition, int | None]:
        self.requests += 1
        return {
            place: next((offset for offset, at in enumerate(self.times[place]) if at >= timestamp_ms), None)
            for place in partitions
        }

    @property
    def begin(self) -> Offsets:
        return dict.fromkeys(self.times, 0)


class Reader:
    """Reads so many records of a partition with each call, in the order given; then everything."""

    def __init__(self, topics: Topics, steps: Iterable[tuple[Partition, int]]) -> None:
        self._topics = topics
        self._steps = iter(steps)
        self.read_to = dict(topics.begin)

    def wait(self, offsets: Offsets, timeout_s: float) -> Offsets:
        for place, count in self._steps:
            self.read_to[place] = min(self.read_to[place] + count, len(self._topics.times[place]))
            if self.read_to != offsets:
                return dict(self.read_to)
        self.read_to = dict(self._topics.ends())
        return dict(self.read_to)

    def latest(self, place: Partition) -> int:
        return max(self._topics.times[place][: self.read_to[place]], default=-1)

    def read_up_to(self, timestamp_ms: int) -> Offsets:
        later = self._topics.offsets_at(self.read_to, timestamp_ms + 1)
        return {place: end if (at := later[place]) is None else min(at, end) for place, end in self.read_to.items()}

    def release(self, offsets: Offsets) -> None:
        pass

    def fill(self) -> None:
        pass

    def idle(self, timeout_s: float) -> None:
        pass

    def close(self) -> None:
        pass


def epochs(
    topics: Topics, steps: Iterable[tuple[Partition, int]], most: int, *, is_timed: bool = False
) -> list[list[tuple[Partition, int]]]:
    """Return the records that each epoch takes while an application catches up."""
    order = TimeOrder(topics.offsets_at, is_timed)
    source = OrderedInput(Reader(topics, steps), topics.ends)
    offsets, taken = topics.begin, list[list[tuple[Partition, int]]]()
    while offsets != topics.ends():
        read_to = source.wait(offsets, 0.0)
        while offsets != read_to:
            ends = order.take(offsets, read_to, (), Room(most, 0))
            taken.append([(place, offset) for place in ends for offset in range(offsets[place], ends[place])])
            offsets = ends
    return taken


IN_NANOSECONDS = NOW_MS * 1_000_000
too_late = st.sampled_from([LAST_TIMESTAMP - 1, LAST_TIMESTAMP, LAST_TIMESTAMP + 1, IN_NANOSECONDS, 2**63 - 1])
some_times = st.lists(st.integers(NOW_MS, NOW_MS + 30) | st.integers(NOW_MS, NOW_MS + 30) | too_late, max_size=25)
SEVERAL_TOPICS, ONE_TOPIC = (("a", 0), ("a", 1), ("b", 0), ("c", 3)), (("a", 0), ("a", 1), ("a", 5))
logs = st.one_of(
    st.tuples(st.fixed_dictionaries(dict.fromkeys(SEVERAL_TOPICS, some_times)), st.booleans()),
    st.tuples(st.fixed_dictionaries(dict.fromkeys(ONE_TOPIC, some_times)), st.just(True)),
)


@given(
    log=logs,
    steps=st.lists(st.tuples(st.sampled_from([*SEVERAL_TOPICS, *ONE_TOPIC]), st.integers(1, 9)), max_size=30),
    most=st.integers(1, 40),
)
def test_epochs_follow_the_timestamps_whatever_was_read_first(
    log: tuple[dict[Partition, list[int]], bool], steps: list[tuple[Partition, int]], most: int
) -> None:
    times, is_timed = log
    valid = {place: [min(each, LAST_TIMESTAMP) for each in mine] for place, mine in times.items()}
    highest = {place: list(accumulate(mine, max)) for place, mine in valid.items()}
    taken = epochs(Topics(times), [step for step in steps if step[0] in times], most, is_timed=is_timed)

    assert sorted(each for epoch in taken for each in epoch) == [
        (place, offset) for place in sorted(times) for offset in range(len(times[place]))
    ]
    assert all(0 < len(epoch) <= most for epoch in taken)
    latest = NOW_MS
    for epoch in taken:
        reached = [highest[place][offset] for place, offset in epoch]
        assert min(reached) >= latest
        latest = max(reached)


def counts(builder: StreamsBuilder) -> None:
    builder.stream("in", value=str).group_by_key().count()


def windows(builder: StreamsBuilder) -> None:
    builder.stream("in", value=str).group_by_key().windowed_by(tumbling("1m")).count()


def sessions(builder: StreamsBuilder) -> None:
    builder.stream("in", value=str).group_by_key().windowed_by(session("1m")).count().suppress(until_window_closes())


def expiring(builder: StreamsBuilder) -> None:
    builder.stream("in", value=str).group_by_key().count(store=Store("counts", ttl="1h"))


def held(builder: StreamsBuilder) -> None:
    builder.table("in", value=str).suppress(until_time_limit("1m")).to_stream().to("out", value=str)


@pytest.mark.parametrize(("build", "timed"), [(counts, False), (windows, True), (sessions, True), (expiring, True), (held, True)])
def test_partitions_of_one_topic_have_an_order_if_stores_follow_their_time(
    build: Callable[[StreamsBuilder], None], timed: bool
) -> None:
    builder = StreamsBuilder()
    build(builder)
    found = is_timed(program_of(builder.build()))
    assert found is timed
    assert is_needed([("in", 0), ("in", 1)], found) is timed
    assert not is_needed([("in", 0)], found)
    assert is_needed([("in", 0), ("other", 0)], found)


def test_rows_of_a_table_come_before_later_records_of_a_stream() -> None:
    topics = Topics({ORDERS: [NOW_MS] * 50, USERS: [NOW_MS - 3_600_000] * 70})

    taken = epochs(topics, [(ORDERS, 50), (USERS, 20)], most=40)

    with_users = [number for number, epoch in enumerate(taken) if any(place == USERS for place, _ in epoch)]
    with_orders = [number for number, epoch in enumerate(taken) if any(place == ORDERS for place, _ in epoch)]
    assert with_users[-1] <= with_orders[0]


def test_a_record_from_the_future_does_not_stop_the_others() -> None:
    topics = Topics({ORDERS: [NOW_MS, 9_000_000_000_000_000, NOW_MS + 1], USERS: [NOW_MS + 2] * 5})

    taken = epochs(topics, [], most=3)

    assert taken[-1][-2:] == [(ORDERS, 1), (ORDERS, 2)]
    assert sum(len(epoch) for epoch in taken) == 8


@pytest.mark.parametrize("poison", [NOW_MS * 1_000, LAST_TIMESTAMP, IN_NANOSECONDS, 2**63 - 1])
def test_more_records_than_fit_behind_one_from_the_future_are_taken(poison: int) -> None:
    topics = Topics({ORDERS: [NOW_MS, poison, *range(NOW_MS + 1, NOW_MS + 101)], USERS: [NOW_MS + 9] * 5})

    taken = epochs(topics, [], most=10)

    assert [(ORDERS, 0), *((USERS, offset) for offset in range(5))] == sorted(taken[0])[:1] + sorted(taken[0])[-5:]
    assert [offset for epoch in taken for place, offset in epoch if place == ORDERS] == list(range(102))
    assert all(taken)
    assert len(taken) < 15
    assert topics.requests < 500  # of all epochs: a time far ahead is found by halves


@pytest.mark.parametrize("times", [[-1, -1, -1], []])
def test_a_topic_without_timestamps_does_not_stop_the_others(times: list[int]) -> None:
    topics = Topics({ORDERS: [NOW_MS] * 4, USERS: times})

    assert sum(len(epoch) for epoch in epochs(topics, [(ORDERS, 4)], most=2)) == 4 + len(times)


def test_partitions_that_wait_are_not_taken() -> None:
    topics = Topics({ORDERS: [NOW_MS] * 4, USERS: [NOW_MS - 1] * 4})
    order = TimeOrder(topics.offsets_at, is_timed=False)

    assert order.take(topics.begin, {ORDERS: 4, USERS: 4}, {USERS}, Room(3, 0)) == {ORDERS: 3, USERS: 0}


def test_one_topic_needs_no_requests() -> None:
    topics = Topics({("a", 0): [NOW_MS] * 4, ("a", 1): [NOW_MS - 9] * 4})
    order = TimeOrder(topics.offsets_at, is_timed=False)

    assert order.take(topics.begin, {("a", 0): 4, ("a", 1): 4}, (), Room(4, 0)) == {("a", 0): 2, ("a", 1): 2}
    assert topics.requests == 0


def test_an_application_that_has_caught_up_makes_no_requests_until_it_falls_behind() -> None:
    topics = Topics({ORDERS: [NOW_MS] * 10, USERS: []})
    reader = Reader(topics, [(ORDERS, 10), (ORDERS, 9), (ORDERS, BEHIND)])
    source = OrderedInput(reader, topics.ends)

    assert source.wait(topics.begin, 0.0) == {ORDERS: 10, USERS: 0}
    topics.times = {ORDERS: [NOW_MS] * 30_000, USERS: [NOW_MS - 1]}
    requests = topics.requests
    assert source.wait({ORDERS: 10, USERS: 0}, 0.0) == {ORDERS: 19, USERS: 0}
    assert topics.requests == requests
    assert source.wait({ORDERS: 19, USERS: 0}, 0.0) == {ORDERS: 19, USERS: 0}  # waits for the user
    assert source.wait({ORDERS: 19, USERS: 0}, 0.0) == {ORDERS: 30_000, USERS: 1}


def test_the_input_that_is_ordered_is_released_filled_and_closed() -> None:
    calls: list[str] = []

    class Noted(Reader):
        def release(self, offsets: Offsets) -> None:
            calls.append(f"release {offsets}")

        def fill(self) -> None:
            calls.append("fill")

        def idle(self, timeout_s: float) -> None:
            calls.append(f"idle {timeout_s}")

        def close(self) -> None:
            calls.append("close")

    topics = Topics({ORDERS: [], USERS: []})
    source = OrderedInput(Noted(topics, []), topics.ends)
    source.release({ORDERS: 1})
    source.fill()
    source.idle(0.5)
    source.close()

    assert calls == ["release {('orders', 0): 1}", "fill", "idle 0.5", "close"]
