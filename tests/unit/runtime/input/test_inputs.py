"""The input of an application: how far topics are read, and the thread that runs epochs of what was read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

import pytest

from penstock import machine
from penstock.errors import BrokerError, TopicError
from penstock.history.progress import Progress
from penstock.records import Partition
from penstock.runtime.input.inputs import InputLoop, Offsets
from verification.harness.processes import wait_until

A0, A1 = ("a", 0), ("a", 1)
TAKEN = {A0: 10, A1: 20}
PATIENCE_S = 20.0


class Reader:
    """An input whose records come when a test says so; records its calls."""

    def __init__(self, ends: Mapping[Partition, int]) -> None:
        self.ends = dict(ends)
        self.released: list[Offsets] = []
        self.filled = 0
        self.idled = 0
        self.is_closed = False
        self.failure: Exception | None = None
        self.fill_failure: Exception | None = None

    def wait(self, offsets: Offsets, timeout_s: float) -> Offsets:
        if self.failure is not None:
            raise self.failure
        deadline = time.monotonic() + timeout_s
        while self.ends == offsets and time.monotonic() < deadline:
            time.sleep(0.005)
        return dict(self.ends)

    def release(self, offsets: Offsets) -> None:
        self.released.append(dict(offsets))

    def fill(self) -> None:
        self.filled += 1
        if self.fill_failure is not None:
            raise self.fill_failure

    def idle(self, timeout_s: float) -> None:
        self.idled += 1
        time.sleep(0.005)

    def close(self) -> None:
        self.is_closed = True


class Epochs:
    """Takes everything that it is given, and notes when; the first call, which comes without records too, is not noted."""

    def __init__(self, reader: Reader, interval_s: float = 0.0) -> None:
        self.taken = self.progress = Progress(-1, dict(reader.ends), {})
        self.is_paused = False
        self.firsts: list[Offsets] = []
        self.calls: list[tuple[float, Offsets]] = []
        self.during: Callable[[], None] = lambda: None
        self.loop = InputLoop(reader, self, self._on_input, interval_s, "loop")

    def _on_input(self, ends: Offsets) -> None:
        if not self.firsts:
            self.firsts.append(ends)
            if ends == self.taken.offsets:
                self.taken = Progress(self.taken.epoch + 1, self.taken.offsets, {})
                return
        self.calls.append((time.monotonic(), ends))
        self.during()
        self.progress = self.taken
        self.taken = Progress(self.taken.epoch + 1, dict(ends), {})

    def commit(self) -> None:
        """Commit what was taken."""
        self.progress = self.taken


@pytest.fixture
def reader() -> Reader:
    return Reader({A0: 10, A1: 20})


@pytest.fixture
def epochs(reader: Reader) -> Iterator[Epochs]:
    made = Epochs(reader)
    yield made
    made.loop.stop()


class TestInputLoop:
    def test_it_hands_over_what_was_read_and_releases_what_was_taken(self, reader: Reader, epochs: Epochs) -> None:
        epochs.loop.start()
        reader.ends[A0] = 15
        wait_until("the records are taken", lambda: len(epochs.calls) == 1, PATIENCE_S, every_s=0.005)
        looks = len(reader.released)
        wait_until("it looks again", lambda: len(reader.released) > looks + 1, PATIENCE_S, every_s=0.005)
        assert {A0: 15, A1: 20} not in reader.released, "only what is committed is released"
        epochs.commit()
        wait_until("they are released", lambda: {A0: 15, A1: 20} in reader.released, PATIENCE_S, every_s=0.005)
        assert epochs.calls[0][1] == {A0: 15, A1: 20}
        assert reader.released[0] == {A0: 10, A1: 20}

    def test_nothing_is_called_without_records(self, reader: Reader, epochs: Epochs) -> None:
        epochs.loop.start()
        wait_until("it has looked several times", lambda: len(reader.released) > 2, PATIENCE_S, every_s=0.005)
        assert epochs.calls == []
        assert epochs.firsts == [TAKEN], "the first epoch commits where the application begins"
        assert not epochs.loop.wait(0)

    def test_calls_begin_at_least_an_interval_apart(self, reader: Reader) -> None:
        """After a pause, too: the records that end it do not allow two epochs at once."""
        epochs = Epochs(reader, interval_s=0.1)
        epochs.during = lambda: reader.ends.update({A0: reader.ends[A0] + 1})
        epochs.loop.start()
        time.sleep(0.15)
        reader.ends[A1] += 1
        wait_until("there are some calls", lambda: len(epochs.calls) > 3, PATIENCE_S)
        epochs.loop.stop()
        times = [at for at, _ in epochs.calls]
        assert min(later - sooner for sooner, later in pairwise(times)) >= 0.099

    def test_an_epoch_that_takes_longer_than_the_interval_is_followed_at_once(self, reader: Reader) -> None:
        epochs = Epochs(reader, interval_s=30)
        began: list[float] = []

        def take_a_minute() -> None:
            began.append(time.monotonic())
            reader.ends[A0] += 1

        epochs.during = take_a_minute
        clock = _Moving(began)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(machine, "monotonic", clock.monotonic)
            epochs.loop.start()
            reader.ends[A0] += 1
            wait_until("the second call", lambda: len(epochs.calls) > 1, PATIENCE_S)
            epochs.loop.stop()

    def test_stopping_wakes_a_thread_that_begins_to_wait_for_an_epoch_just_then(self, reader: Reader, epochs: Epochs) -> None:
        class Slow(threading.Event):
            is_waiting = False

            def wait(self, timeout: float | None = None) -> bool:
                self.is_waiting = True
                epochs.loop.wait(PATIENCE_S)  # until the last epoch is over
                return super().wait(timeout)

        def dwell() -> None:
            may_leave.wait(PATIENCE_S)

        may_leave, running = threading.Event(), Slow()
        epochs.during = dwell
        epochs.loop._running = running
        epochs.loop.start()
        reader.ends[A0] = 11
        wait_until("the thread to wait", lambda: running.is_waiting and bool(epochs.calls), PATIENCE_S)
        stopping = threading.Thread(target=epochs.loop.stop, daemon=True)
        stopping.start()
        may_leave.set()
        stopping.join(PATIENCE_S)
        assert reader.is_closed

    def test_stopping_completes_the_current_call(self, reader: Reader, epochs: Epochs) -> None:
        entered, may_leave, left = threading.Event(), threading.Event(), threading.Event()

        def dwell() -> None:
            entered.set()
            may_leave.wait(PATIENCE_S)
            left.set()

        epochs.during = dwell
        epochs.loop.start()
        reader.ends[A0] = 11
        assert entered.wait(PATIENCE_S)
        stopping = threading.Thread(target=epochs.loop.stop)
        stopping.start()
        time.sleep(0.05)
        assert stopping.is_alive()
        assert not reader.is_closed
        may_leave.set()
        stopping.join(PATIENCE_S)
        assert left.is_set()
        assert reader.is_closed
        reader.ends[A0] = 12
        assert len(epochs.calls) == 1
        assert epochs.loop.wait(0)

    def test_stopping_does_not_wait_for_the_interval(self, reader: Reader) -> None:
        epochs = Epochs(reader, interval_s=600)
        reader.ends[A0] = 11
        epochs.loop.start()
        wait_until("the records are taken", lambda: len(epochs.calls) == 1, PATIENCE_S, every_s=0.005)
        began = time.monotonic()
        epochs.loop.stop()
        assert time.monotonic() - began < PATIENCE_S

    def test_a_loop_that_was_never_started_can_be_stopped(self, reader: Reader, epochs: Epochs) -> None:
        epochs.loop.stop()
        assert reader.is_closed

    @pytest.mark.parametrize("place", ["on_input", "wait"])
    def test_a_failure_ends_it_and_is_raised_by_wait(self, reader: Reader, epochs: Epochs, place: str) -> None:
        failure = BrokerError("out of reach")

        def fail() -> None:
            raise failure

        epochs.during = fail
        if place == "wait":
            reader.failure = failure
        epochs.loop.start()
        reader.ends[A0] = 11
        with pytest.raises(BrokerError, match="out of reach"):
            _ = [epochs.loop.wait(0.05) for _ in range(400)]
        with pytest.raises(BrokerError):
            epochs.loop.wait(0)

    def test_records_are_prepared_only_while_an_epoch_runs(self, reader: Reader, epochs: Epochs) -> None:
        epochs.loop.start()
        wait_until("the first epoch is over", lambda: len(reader.released) > 1, PATIENCE_S, every_s=0.005)
        filled = reader.filled
        time.sleep(0.1)
        assert reader.filled <= filled + 1  # one may have begun
        epochs.during = lambda: wait_until("records are prepared", lambda: reader.filled > filled + 2, PATIENCE_S, every_s=0.005)
        reader.ends[A0] = 11
        wait_until("the epoch is done", lambda: epochs.taken.offsets[A0] == 11, PATIENCE_S)
        assert epochs.loop.wait(0) is False

    def test_what_is_committed_while_an_epoch_runs_makes_room(self, reader: Reader, epochs: Epochs) -> None:
        epochs.loop.start()
        reader.ends[A0] = 11
        wait_until("the records are taken", lambda: epochs.taken.offsets[A0] == 11, PATIENCE_S)

        def commit() -> None:
            assert {A0: 11, A1: 20} not in reader.released
            epochs.commit()
            wait_until("they are released", lambda: {A0: 11, A1: 20} in reader.released, PATIENCE_S, every_s=0.005)

        epochs.during = commit
        reader.ends[A0] = 12
        wait_until("the epoch is done", lambda: epochs.taken.offsets[A0] == 12, PATIENCE_S)
        assert epochs.loop.wait(0) is False

    def test_what_cannot_be_prepared_ends_the_loop_after_its_epoch(self, reader: Reader, epochs: Epochs) -> None:
        reader.fill_failure = TopicError("gone")
        epochs.during = lambda: wait_until("records are prepared", lambda: reader.filled > 0, PATIENCE_S, every_s=0.005)
        epochs.loop.start()
        reader.ends[A0] = 11
        with pytest.raises(TopicError, match="gone"):
            epochs.loop.wait(PATIENCE_S)
        assert epochs.taken.offsets[A0] == 11
        assert reader.filled == 1


class TestPausedLoop:
    def test_it_stays_connected_and_calls_nothing(self, reader: Reader, epochs: Epochs) -> None:
        epochs.is_paused = True
        epochs.loop.start()
        reader.ends[A0] = 15
        wait_until("it has served the consumer", lambda: reader.idled > 3, PATIENCE_S, every_s=0.005)
        assert (epochs.firsts, epochs.calls, reader.filled) == ([], [], 0)
        epochs.is_paused = False
        wait_until("the records are taken", lambda: len(epochs.calls) == 1, PATIENCE_S, every_s=0.005)

    def test_the_first_epoch_comes_after_the_pause_even_without_records(self, reader: Reader) -> None:
        """The pause may come between the loop's look at it and the epoch, which then does not run."""
        calls: list[Offsets] = []
        position = Epochs(reader)

        def on_input(ends: Offsets) -> None:
            calls.append(ends)
            if len(calls) > 1:
                position.taken = Progress(0, dict(ends), {})

        loop = InputLoop(reader, position, on_input, 0.0, "loop")
        loop.start()
        wait_until("it is called again", lambda: len(calls) > 1, PATIENCE_S, every_s=0.005)
        looks = len(reader.released)
        wait_until("it looks again", lambda: len(reader.released) > looks + 1, PATIENCE_S, every_s=0.005)
        loop.stop()
        assert calls == [TAKEN, TAKEN]

    def test_it_can_be_stopped(self, reader: Reader, epochs: Epochs) -> None:
        epochs.is_paused = True
        epochs.loop.start()
        wait_until("it has served the consumer", lambda: reader.idled > 1, PATIENCE_S, every_s=0.005)
        epochs.loop.stop()
        assert reader.is_closed


class _Moving:
    """A clock that moves by a minute with every entry of a list."""

    def __init__(self, minutes: list[float]) -> None:
        self._minutes = minutes

    def monotonic(self) -> float:
        return time.monotonic() + 60 * len(self._minutes)
