"""An input that is far behind: slots read it, and the driver does not, until few records wait."""

from __future__ import annotations

from penstock.runtime.input.feed import CatchingUp
from penstock.runtime.input.inputs import Offsets

A, B = ("a", 0), ("a", 1)


class Reader:
    """The driver's reader: it has read so far, and notes its calls."""

    def __init__(self, read_to: Offsets) -> None:
        self.read_to = read_to
        self.calls: list[str] = []

    def wait(self, offsets: Offsets, timeout_s: float) -> Offsets:
        self.calls.append("wait")
        return self.read_to

    def release(self, offsets: Offsets) -> None:
        self.calls.append("release")

    def fill(self) -> None:
        self.calls.append("fill")

    def idle(self, timeout_s: float) -> None:
        self.calls.append("idle")

    def close(self) -> None:
        self.calls.append("close")


class Topics:
    """Where topics end."""

    def __init__(self, ends: Offsets) -> None:
        self.ends = ends
        self.asked = 0

    def __call__(self) -> Offsets:
        self.asked += 1
        return self.ends


def test_a_start_far_behind_is_read_by_slots_until_few_records_wait() -> None:
    reader, topics = Reader({A: 1, B: 1}), Topics({A: 80, B: 40})
    source = CatchingUp(reader, topics, most=100)
    assert source.wait({A: 0, B: 0}, 1.0) == {A: 80, B: 40}
    source.fill()
    assert reader.calls == ["idle"]  # the driver reads nothing in vain
    assert source.wait({A: 10, B: 10}, 1.0) == reader.read_to
    source.fill()
    assert reader.calls == ["idle", "wait", "fill"]
    assert topics.asked == 2


def test_brokers_are_not_asked_again_while_the_reader_keeps_up() -> None:
    reader, topics = Reader({A: 5, B: 5}), Topics({A: 5, B: 5})
    source = CatchingUp(reader, topics, most=100)
    for _ in range(3):
        assert source.wait({A: 0, B: 0}, 1.0) == {A: 5, B: 5}
    assert topics.asked == 1


def test_an_application_that_falls_behind_is_noticed_by_what_its_reader_has() -> None:
    reader, topics = Reader({A: 5, B: 5}), Topics({A: 5, B: 5})
    source = CatchingUp(reader, topics, most=100)
    source.wait({A: 0, B: 0}, 1.0)
    reader.read_to, topics.ends = {A: 105, B: 5}, {A: 900, B: 5}
    assert source.wait({A: 0, B: 0}, 1.0) == {A: 900, B: 5}
    topics.ends = {A: 105, B: 5}
    assert source.wait({A: 50, B: 5}, 1.0) == reader.read_to


def test_partitions_without_a_known_end_stay_where_they_are() -> None:
    source = CatchingUp(Reader({}), Topics({A: 500}), most=0)
    assert source.wait({A: 600, B: 7}, 1.0) == {}  # nothing waits: it is the reader's turn
    source = CatchingUp(Reader({}), Topics({A: 500}), most=0)
    assert source.wait({A: 1, B: 7}, 1.0) == {A: 500, B: 7}


def test_everything_else_is_the_readers() -> None:
    reader = Reader({})
    source = CatchingUp(reader, Topics({}), most=0)
    source.release({})
    source.idle(0.0)
    source.close()
    assert reader.calls == ["release", "idle", "close"]
