"""An epoch runs again if a slot was lost, and with fewer records until they fit if it was too large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from penstock import machine
from penstock.engines.port import LateError, SlotLostError, TaskFailedError
from penstock.epochs.bounds import Measured, measure_row
from penstock.epochs.program import Epoch
from penstock.epochs.wire import OUT, Kind, out_rows
from penstock.errors import EpochTooLargeError, LaneMovedError, ProcessingError
from penstock.records import Partition, Ranges
from penstock.runtime.loop.dispatcher import Dispatcher, Fitted, Offer, nothing
from penstock.runtime.loop.epoch_size import EpochSize

A0, A1 = ("a", 0), ("a", 1)
EPOCH = Epoch(5, 4, 1_000, (A0, A1))
MB = 1 << 20
MOST = 100 * MB

Answer = Callable[[int, Epoch], pa.Table]
"""The rows of a job of so many records."""


def rows(*measured: Measured) -> pa.Table:
    told = [measure_row(each).select(OUT.names) for each in measured]
    return pa.concat_tables([out_rows(Kind.SINK, 0, 0, 0, b"k", b"v"), *told])


def fits_up_to(most: int) -> Answer:
    """A job that fails with more records."""

    def answer(count: int, epoch: Epoch) -> pa.Table:
        if count > most:
            raise EpochTooLargeError("The epoch's Spark job failed, probably because of its size: OutOfMemoryError")
        return rows()

    return answer


class Jobs:
    """Records its calls."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.counts: list[int] = []
        self.ranges: list[Ranges] = []
        self.small: list[bool] = []
        self.epochs: list[Epoch] = []
        self.calls: list[str] = []
        self.rolled_back: list[Epoch] = []
        self.losses: list[Exception] = []
        """Raised by the next roll-backs."""

    def run(self, epoch: Epoch, is_small: bool, ranges: Ranges) -> pa.Table:
        count = sum(end - begin for begin, end in ranges.values())
        self.calls.append("run")
        self.counts.append(count)
        self.ranges.append(ranges)
        self.small.append(is_small)
        self.epochs.append(epoch)
        return self.answer(count, epoch)

    def tick(self, epoch: Epoch) -> pa.Table:
        self.calls.append("tick")
        return self.answer(0, epoch)

    def roll_back(self, epoch: Epoch) -> None:
        self.calls.append("roll back")
        self.rolled_back.append(epoch)
        if self.losses:
            raise self.losses.pop(0)

    def read(self, partition: Partition, offset: int) -> pa.Table:
        raise NotImplementedError


class Given:
    """A dispatcher with such jobs; `given_up` are the records that were too large."""

    def __init__(self, answer: Answer, records: int = 64, **options: Any) -> None:
        self.jobs = Jobs(answer)
        self.size = EpochSize(10_000, MOST, first_records=records)
        self.given_up: list[tuple[Partition, int]] = []
        self.begun_again: list[int] = []
        self.instead: pa.Table | Exception | None = None
        bounds: dict[str, Any] = {"small": 10, "lanes": 4, **options}
        self.dispatcher = Dispatcher(self.jobs, self.size, self.give_up, on_retry=self._retried, **bounds)

    def _retried(self, epoch: Epoch) -> None:
        self.begun_again.append(epoch.number)

    def give_up(self, epoch: Epoch, partition: Partition, offset: int, error: EpochTooLargeError) -> pa.Table | None:
        self.given_up.append((partition, offset))
        if isinstance(self.instead, Exception):
            raise self.instead
        return self.instead

    def run(self, there: int = 64, other: int = 0) -> Fitted:
        return self.dispatcher.run(EPOCH, Offer({A0: 100, A1: 7}, {A0: 100 + there, A1: 7 + other}))


class TestSlowFunctions:
    """Five milliseconds a record."""

    @pytest.fixture
    def given(self, monkeypatch: pytest.MonkeyPatch) -> Given:
        now = 0.0

        def answer(count: int, epoch: Epoch) -> pa.Table:
            nonlocal now
            now += count * 0.005
            if count > 8_000:
                raise LateError("no answer")
            return rows()

        monkeypatch.setattr(machine, "monotonic", lambda: now)
        return Given(answer, small=2_000)

    def test_few_slow_records_are_divided_among_lanes(self, given: Given) -> None:
        for _ in range(2):
            given.run(64)
        given.run(15)
        assert given.jobs.small == [True, False, True]

    def test_an_epoch_that_was_late_is_cut_to_what_its_time_allows(self, given: Given) -> None:
        given.size = given.dispatcher._size = EpochSize(10_000, MOST, first_records=10_000)
        given.run(10_000)
        assert given.jobs.counts == [10_000, 800]


class TestInput:
    def test_a_whole_micro_batch_is_taken_from_spark(self) -> None:
        given = Given(fits_up_to(1_000))
        done = given.run(40, 20)
        assert done.ends == {A0: 140, A1: 27}

    def test_a_part_of_it_is_read_by_offsets(self) -> None:
        given = Given(fits_up_to(1_000))
        done = given.run(400, 240)
        assert given.jobs.ranges == [{A0: (100, 140), A1: (7, 31)}]
        assert done.ends == {A0: 140, A1: 31}

    def test_the_bytes_read_determine_the_size_of_the_next_epoch(self) -> None:
        given = Given(lambda count, epoch: rows(Measured({0: (32, 32 * 5 * MB)}), Measured({1: (32, 32 * 5 * MB)})))
        given.run(64, 64)
        given.run(64, 64)
        assert given.jobs.counts == [64, 20]

    def test_the_bytes_sent_determine_it_too(self) -> None:
        large = pa.concat_tables([out_rows(Kind.SINK, 0, 0, 0, b"k", bytes(20 * MB))] * 8)
        given = Given(lambda count, epoch: large)
        given.run(64)
        given.run(64)
        assert given.jobs.counts == [64, 39]

    def test_an_epoch_without_records_needs_no_input(self) -> None:
        given = Given(fits_up_to(1_000))
        given.run(0, 0)
        assert given.jobs.calls == ["tick"]


class TestBounds:
    def test_a_single_task_may_hold_more_than_one_of_many(self) -> None:
        given = Given(fits_up_to(1_000))
        given.run(10)
        given.run(64)
        assert [epoch.attempt.most_bytes for epoch in given.jobs.epochs] == [MOST * 3 // 2, MOST // 2]
        assert given.jobs.small == [True, False]

    def test_with_many_lanes_one_task_may_still_hold_a_quarter(self) -> None:
        given = Given(fits_up_to(1_000), lanes=100)
        given.run(64)
        assert given.jobs.epochs[0].attempt.most_bytes == MOST // 4


class TestSmaller:
    def test_an_epoch_that_is_too_large_is_halved_until_it_fits(self) -> None:
        given = Given(fits_up_to(10))
        done = given.run(64)
        assert given.jobs.counts == [64, 32, 16, 8]
        assert (done.ends, done.epoch.number) == ({A0: 108, A1: 7}, 5)

    def test_lanes_are_rolled_back_before_every_retry(self) -> None:
        given = Given(fits_up_to(20))
        given.run(64)
        assert given.jobs.calls == ["run", "roll back", "run", "roll back", "run"]

    def test_tasks_of_a_failed_job_are_fenced(self) -> None:
        given = Given(fits_up_to(20))
        done = given.run(64)
        assert [epoch.attempt.number for epoch in given.jobs.epochs] == [0, 1, 2]
        assert [epoch.attempt.number for epoch in given.jobs.rolled_back] == [1, 2]
        assert done.epoch.attempt.number == 2
        given.run(10)
        assert given.jobs.epochs[-1].attempt.number == 2  # also in later epochs

    def test_each_attempt_has_its_full_time(self) -> None:
        given = Given(fits_up_to(20))
        given.run(64)
        assert given.begun_again == [5, 5]

    def test_a_task_above_its_limit_does_not_fail_the_job_and_needs_no_fence(self) -> None:
        def answer(count: int, epoch: Epoch) -> pa.Table:
            return rows(Measured({0: (count, count)}, "a task has read too much" if count > 20 else ""))

        given = Given(answer)
        done = given.run(64)
        assert given.jobs.counts == [64, 32, 16]
        assert [epoch.attempt.number for epoch in given.jobs.rolled_back] == [0, 0]
        assert done.rows.num_rows == 2

    def test_the_bytes_read_show_how_many_records_fit(self) -> None:
        def answer(count: int, epoch: Epoch) -> pa.Table:
            return rows(Measured({0: (3, 60 * MB)}, "too much" if count * 20 * MB > epoch.attempt.most_bytes else ""))

        given = Given(answer, records=1_000)
        given.run(1_000)
        assert given.jobs.counts == [1_000, 5]

    def test_the_size_of_the_output_does_too(self) -> None:
        def answer(count: int, epoch: Epoch) -> pa.Table:
            size = count * 10 * MB
            return rows(Measured({0: (count, count)}, "too much", size) if 0 < epoch.attempt.most_bytes < size else Measured({}))

        given = Given(answer, records=1_000)
        given.run(1_000)
        assert given.jobs.counts == [1_000, 10]

    def test_the_limit_is_lifted_if_fewer_records_do_not_help(self) -> None:
        """For example, closing windows send the same rows for any number of records."""

        def answer(count: int, epoch: Epoch) -> pa.Table:
            return rows(Measured({0: (count, count)}, "too much", 400 * MB) if epoch.attempt.most_bytes else Measured({}))

        given = Given(answer)
        done = given.run(64)
        assert [epoch.attempt.most_bytes > 0 for epoch in given.jobs.epochs] == [True, True, False]
        assert done.ends[A0] > 100
        assert not given.given_up


class TestOneRecord:
    def test_a_record_above_the_limit_is_retried_without_a_limit(self) -> None:
        def answer(count: int, epoch: Epoch) -> pa.Table:
            return rows(Measured({0: (1, 10)}, "too much" if epoch.attempt.most_bytes else ""))

        given = Given(answer)
        done = given.run(4)
        assert given.jobs.counts == [4, 2, 1, 1]
        assert [epoch.attempt.most_bytes > 0 for epoch in given.jobs.epochs] == [True, True, True, False]
        assert (done.ends[A0], given.given_up) == (101, [])
        given.run(1)
        assert given.jobs.epochs[-2].attempt.most_bytes > 0  # the next one is bounded again

    def test_a_record_that_is_still_too_large_is_given_up(self) -> None:
        given = Given(fits_up_to(0))
        given.instead = out_rows(Kind.DEAD_LETTER, 0, 0, 0, b"letter", b"v")
        done = given.run(4)
        assert given.jobs.counts == [4, 2, 1]  # it was not the bound that it failed of
        assert given.given_up == [(A0, 100)]
        assert done.rows.column("key").to_pylist() == [b"letter", b"k"]
        assert done.ends == {A0: 101, A1: 7}
        assert given.jobs.calls[-2:] == ["roll back", "tick"]
        given.size.went_well(1, 0.1)
        assert given.size.room.records > 1  # what is behind it need not be done one by one

    def test_a_skipped_record_need_not_leave_a_row(self) -> None:
        given = Given(fits_up_to(0))
        assert given.run(1).rows.column("key").to_pylist() == [b"k"]

    def test_the_handler_may_end_the_application(self) -> None:
        given = Given(fits_up_to(0))
        given.instead = ProcessingError("The record from a-0 at offset 100 is too large")
        with pytest.raises(ProcessingError, match="at offset 100"):
            given.run(4)

    def test_only_the_record_that_is_too_large_is_given_up(self) -> None:
        poison = 100 + 37

        def answer(count: int, epoch: Epoch) -> pa.Table:
            ranges = given.jobs.ranges[-1]
            if count and any(begin <= poison < end for begin, end in ranges.values()):
                raise EpochTooLargeError("Python worker exited unexpectedly")
            return rows()

        given = Given(answer)
        offset, done = 100, []
        while offset < 164:
            found = given.dispatcher.run(EPOCH, Offer({A0: offset}, {A0: 164}))
            done.append((offset, found.ends[A0]))
            offset = found.ends[A0]
        assert given.given_up == [(A0, poison)]
        assert (poison, poison + 1) in done


LOST, FAILED = SlotLostError("A slot has ended."), TaskFailedError("Unexpected failure: a bug")


def failing(*errors: Exception) -> Answer:
    """A job that fails with these errors, one after the other, and then does not."""
    left = list(errors)

    def answer(count: int, epoch: Epoch) -> pa.Table:
        if left:
            raise left.pop(0)
        return rows()

    return answer


class TestLosses:
    @pytest.mark.parametrize("errors", [[LOST], [FAILED], [LOST, FAILED, LOST]])
    def test_the_same_epoch_runs_again_after_a_roll_back(self, errors: list[Exception]) -> None:
        given = Given(failing(*errors))
        done = given.run(64)
        tries = len(errors)
        assert given.jobs.calls == ["run", *["roll back", "run"] * tries]
        assert given.jobs.counts == [64] * (tries + 1)
        assert [epoch.attempt.number for epoch in given.jobs.epochs] == list(range(tries + 1))
        assert [epoch.attempt.number for epoch in given.jobs.rolled_back] == list(range(1, tries + 1))
        assert done.ends == {A0: 164, A1: 7}
        assert given.begun_again == []  # it goes on in the time that it has
        given.run(10)
        assert given.jobs.epochs[-1].attempt.number == tries

    def test_an_epoch_without_records_runs_again_too(self) -> None:
        given = Given(failing(LOST, FAILED))
        given.dispatcher.run(EPOCH, nothing({}))
        assert given.jobs.calls == ["tick", "roll back", "tick", "roll back", "tick"]

    def test_an_epoch_whose_slot_is_always_lost_may_be_too_large(self) -> None:
        given = Given(failing(*[LOST] * 4))
        assert given.run(64).ends == {A0: 132, A1: 7}
        assert given.jobs.counts == [64, 64, 64, 64, 32]
        assert given.begun_again == [5]
        attempts = [epoch.attempt.number for epoch in given.jobs.epochs]
        assert attempts == sorted(set(attempts)), "earlier tasks are fenced each time"

    def test_an_error_that_always_comes_is_raised(self) -> None:
        given = Given(failing(*[FAILED] * 4))
        with pytest.raises(TaskFailedError, match="a bug"):
            given.run(64)
        assert given.jobs.counts == [64] * 4

    def test_one_that_is_late_is_too_large_at_once(self) -> None:
        given = Given(failing(LateError("A slot has not answered in time.")))
        given.run(64)
        assert given.jobs.counts == [64, 32]
        assert given.begun_again == [5]

    def test_what_was_too_large_before_lanes_moved_is_known_afterwards(self) -> None:
        given = Given(fits_up_to(32))
        given.jobs.losses = [LaneMovedError("another host")]
        with pytest.raises(LaneMovedError):
            given.run(64)
        given.run(64)
        assert given.jobs.counts == [64, 32]

    @pytest.mark.parametrize("error", [LOST, FAILED])
    def test_a_roll_back_is_tried_again_for_the_same_attempt(self, error: Exception) -> None:
        given = Given(failing(LOST))
        given.jobs.losses = [error] * 3
        given.run(64)
        assert given.jobs.calls == ["run", *["roll back"] * 4, "run"]
        assert [epoch.attempt.number for epoch in given.jobs.rolled_back] == [1] * 4
        given.jobs.losses = [error] * 4
        with pytest.raises(type(error)):
            given.dispatcher.roll_back(EPOCH)

    def test_an_error_that_has_a_reason_is_raised_at_once(self) -> None:
        given = Given(failing(ProcessingError("no such order")))
        with pytest.raises(ProcessingError):
            given.run(64)
        assert given.jobs.calls == ["run"]


class TestTicks:
    def test_an_epoch_without_records_has_no_limit(self) -> None:
        seen: list[Epoch] = []

        def answer(count: int, epoch: Epoch) -> pa.Table:
            seen.append(epoch)
            return rows()

        Given(answer).dispatcher.run(EPOCH, nothing({}))
        assert [epoch.attempt.most_bytes for epoch in seen] == [0]

    @pytest.mark.parametrize(
        "answer", [fits_up_to(-1), lambda count, epoch: rows(Measured({}, "a task ran out of memory (MemoryError: )"))]
    )
    def test_an_epoch_without_records_that_is_too_large_names_the_cure(self, answer: Answer) -> None:
        with pytest.raises(
            EpochTooLargeError, match=r"(?s)Epoch 5 is too large, although it has no records: .*raise epoch_timeout"
        ):
            Given(answer).dispatcher.run(EPOCH, nothing({}))
