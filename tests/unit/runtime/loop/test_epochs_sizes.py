"""How much epochs take, and when they take nothing: sizes, bounds, pauses."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from penstock.epochs.bounds import Measured
from penstock.epochs.wire import OUT, Control, Kind, LaneReport, control_row, out_rows, rows_about
from penstock.errors import ProcessingError
from penstock.history.progress import Progress
from penstock.kafka.commit import CommitMetadata
from penstock.observation import Recorder
from penstock.runtime.loop.agenda import MARK_EVERY_S
from penstock.runtime.loop.epoch_size import EpochSize
from penstock.runtime.loop.publication import rows_for_kafka
from penstock.timing import WatermarkTracker, monotonous
from tests.unit.runtime.noting import (
    A0,
    A1,
    B0,
    START,
    Clock,
    Noted,
    ends,
    epochs_of,
    with_watermarks,
)

pytestmark = pytest.mark.usefixtures("clock")


class TestInterruption:
    """A stream is replaced by another, with more partitions or other offsets."""

    def test_what_is_read_meanwhile_is_ignored(self, noted: Noted) -> None:
        epochs = epochs_of(noted)
        epochs.interrupt()
        epochs.on_input(ends(a0=13))
        assert noted.calls == []
        assert epochs.continue_from({}) == START.offsets
        epochs.on_input(ends(a0=13))
        assert epochs.progress.offsets[A0] == 13

    def test_the_current_epoch_is_finished_first(self, noted: Noted) -> None:
        epochs = epochs_of(noted)
        interrupting = threading.Thread(target=epochs.interrupt)

        def during() -> None:
            interrupting.start()
            interrupting.join(0.05)
            assert interrupting.is_alive()

        noted.during = during
        epochs.on_input(ends(a0=13))
        interrupting.join(5)
        assert (epochs.progress.offsets[A0], interrupting.is_alive()) == (13, False)

    def test_new_partitions_are_read_and_committed_from_their_beginning(self, noted: Noted) -> None:
        a2, c0 = ("a", 2), ("c", 0)
        recorder = Recorder()
        epochs = epochs_of(noted, recorder=recorder)
        epochs.interrupt()
        offsets = epochs.continue_from({a2: 0, c0: 7}, {"a": 3, "c": 1}, {"c": "id-c"})
        assert offsets == {**START.offsets, a2: 0, c0: 7}
        assert set(recorder.partitions) == {A0, A1, a2, B0, c0}
        noted.controls = [Control({2: 900})]
        epochs.on_input({**ends(), a2: 4, c0: 7})
        [epoch] = noted.epochs
        assert epoch.origins == (A0, A1, a2, B0, c0)
        assert epoch.high_times == (500, -1, -1, -1, -1)
        assert epoch.partitions == {"out": 3, "a": 3, "c": 1}
        told = {(sent.topic, sent.partition): (sent.offset, CommitMetadata.decode(sent.metadata)) for sent in noted.offsets[0]}
        assert {place: offset for place, (offset, _) in told.items()} == {**START.offsets, a2: 4, c0: 7}
        assert (told[a2][1].high_time, told[a2][1].partitions, told[A0][1].partitions) == (900, 3, 3)
        assert (told[c0][1].topic_id, told[c0][1].partitions) == ("id-c", 1)

    def test_the_next_stream_reads_what_no_epoch_has_taken(self, noted: Noted) -> None:
        epochs = epochs_of(noted, topology=with_watermarks(align=10), input_ends=lambda: ends(a0=15, b0=99))
        tracker = WatermarkTracker({A0: monotonous(align=10), B0: monotonous(align=10)}, started_at=0)
        epochs._event_time._tracker = tracker
        tracker.heard(A0, 500, at=0)
        tracker.heard(B0, 5, at=0)
        epochs.on_input(ends(a0=15, b0=31))
        assert epochs.progress.offsets[A0] == 10
        epochs.interrupt()
        assert epochs.continue_from({})[A0] == 10
        tracker.heard(B0, 600, at=0)
        epochs.on_input(ends(a0=15, b0=31))
        assert noted.ranges == [{B0: (30, 31)}, {A0: (10, 15)}]
        assert epochs.progress.offsets == ends(a0=15, b0=31)

    def test_the_watermark_waits_for_new_partitions(self, noted: Noted) -> None:
        epochs = epochs_of(noted, topology=with_watermarks())
        noted.controls = [Control({}, watermarks={0: 500, 1: 500, 2: 500})]
        epochs.on_input(ends(a0=11))
        epochs.on_input(ends(a0=12))
        epochs.interrupt()
        epochs.continue_from({("a", 2): 0})
        noted.controls = [Control({}, watermarks={0: 900, 1: 900, 3: 900})]
        epochs.on_input({**ends(a0=13), ("a", 2): 0})
        epochs.on_input({**ends(a0=14), ("a", 2): 0})
        assert noted.epochs[-1].watermark == 500
        noted.controls = [Control({}, watermarks={2: 800})]
        epochs.on_input({**ends(a0=15), ("a", 2): 1})
        epochs.on_input({**ends(a0=16), ("a", 2): 1})
        assert noted.epochs[-1].watermark == 800

    def test_the_first_source_with_a_watermark_may_come_late(self, noted: Noted) -> None:
        epochs = epochs_of(noted, topology=with_watermarks(), start=Progress(4, {("c", 0): 1}, {}))
        assert epochs._event_time._tracker is None
        epochs.continue_from({A0: 0})
        assert epochs._event_time._tracker is not None
        assert set(epochs._event_time._tracker.watermarks) == {A0}

    def test_a_failed_epoch_is_retried_from_the_given_offsets(self, noted: Noted) -> None:
        epochs = epochs_of(noted)
        noted.failure = RuntimeError("records are gone")
        with pytest.raises(RuntimeError):
            epochs.on_input(ends(a0=13))
        with pytest.raises(RuntimeError):
            epochs.tick()
        noted.failure = None
        epochs.interrupt()
        epochs.continue_from({A0: 12})
        epochs.tick()
        epochs.on_input(ends(a0=13))
        assert [epoch.number for epoch in noted.epochs] == [5, 5]
        assert epochs.progress.offsets[A0] == 13


class TestSizes:
    """One micro-batch of Spark may become several epochs."""

    def test_input_that_is_too_large_for_one_epoch_becomes_several(self, noted: Noted) -> None:
        epochs = epochs_of(noted, size=EpochSize(100, 1 << 20, first_records=100))
        epochs.on_input(ends(a0=170, b0=110))
        assert noted.ranges == [
            {A0: (10, 77), B0: (30, 63)},
            {A0: (77, 143), B0: (63, 97)},
            {A0: (143, 170), B0: (97, 110)},
        ]
        assert [epoch.number for epoch in noted.epochs] == [5, 6, 7]
        assert epochs.progress.offsets == ends(a0=170, b0=110)
        epochs.on_input(ends(a0=171, b0=110))

    def test_each_of_them_is_committed_before_the_next_begins(self, noted: Noted) -> None:
        offsets: list[int] = []
        noted.during = lambda: offsets.append(epochs.progress.offsets[A0])
        epochs = epochs_of(noted, size=EpochSize(10, 1 << 20))
        epochs.on_input(ends(a0=40))
        assert offsets == [10, 20, 30]
        assert noted.calls == ["begin", "commit"] * 3

    def test_epochs_grow_while_they_are_fast(self, noted: Noted, clock: Clock) -> None:
        def a_second_passes() -> None:
            clock.now += 1

        noted.during = a_second_passes
        epochs_of(noted, size=EpochSize(500, 1 << 20, first_records=10)).on_input(ends(a0=1_000))
        counts = [end - begin for [(begin, end)] in (ranges.values() for ranges in noted.ranges)]
        assert counts == [10, 40, 160, 500, 280]

    def test_bytes_are_learned_from_what_tasks_measure(self, noted: Noted) -> None:
        noted.measured = [Measured({0: (10, 10 * 100_000)})]
        epochs = epochs_of(noted, size=EpochSize(1_000, 1_000_000, first_records=20))
        epochs.on_input(ends(a0=45))
        assert [ranges[A0] for ranges in noted.ranges] == [(10, 30), (30, 40), (40, 45)]
        assert all(row["kind"] == Kind.SINK for rows in noted.published for row in rows)

    def test_a_stop_takes_effect_between_two_epochs(self, noted: Noted) -> None:
        noted.during = lambda: setattr(epochs._hold, "is_stopping", True)
        epochs = epochs_of(noted, size=EpochSize(10, 1 << 20))
        epochs.on_input(ends(a0=40))
        assert epochs.progress.offsets == ends(a0=20)

    def test_an_epoch_that_is_too_large_is_retried_with_fewer_records(self, noted: Noted) -> None:
        recorder = Recorder()
        noted.fits = 100
        epochs = epochs_of(noted, recorder=recorder)
        epochs.on_input(ends(a0=310))
        assert [ranges[A0] for ranges in noted.ranges][:4] == [(10, 310), (10, 160), (10, 85), (85, 160)]
        assert [epoch.number for epoch in noted.epochs][:4] == [5, 5, 5, 6]
        assert [epoch.attempt.number for epoch in noted.rolled_back] == [1, 2]
        assert epochs.progress.offsets == ends(a0=310)
        assert sum(report.records for report in recorder.recent) == 300

    def test_a_mark_is_not_lost_with_an_attempt(self, noted: Noted, clock: Clock) -> None:
        epochs = epochs_of(noted, changelog_ends=lambda: {"t/0": 5})
        clock.now += MARK_EVERY_S + 1
        epochs.on_input(ends(a0=11))
        noted.fits = 100
        epochs.on_input(ends(a0=161))
        assert [epoch.mark is not None for epoch in noted.epochs] == [False, True, True, False]

    def test_a_record_that_is_too_large_ends_the_application_with_its_offset(self, noted: Noted) -> None:
        noted.fits = 0
        with pytest.raises(ProcessingError, match="The record from a-0 at offset 10 is too large, even for an epoch of its own"):
            epochs_of(noted).on_input(ends(a0=14))

    def test_rows_for_kafka_are_pieces_of_the_table(self) -> None:
        told = [control_row(Control(), 0).select(OUT.names), rows_about(0, LaneReport(0, 0, 1, 1.0), None).select(OUT.names)]
        sinks = [out_rows(Kind.SINK, 0, 0, number, b"k", b"v" * 100) for number in range(6)]
        table = pa.concat_tables([told[0], *sinks[:3], *told, *sinks[3:]]).combine_chunks()
        pieces = list(rows_for_kafka(table))
        assert [piece.column("timestamp").to_pylist() for piece in pieces] == [[0, 1, 2], [3, 4, 5]]
        addresses = {piece.column("value").buffers()[2].address for piece in pieces}
        assert addresses == {table.to_batches()[0].column("value").buffers()[2].address}


class TestLimits:
    def test_a_bounded_run_ends_exactly_at_its_limits(self, noted: Noted) -> None:
        limits = {A0: 15, A1: 20, B0: 32}
        epochs = epochs_of(noted, limits=limits)
        assert not epochs.is_done
        epochs.on_input(ends(a0=18, b0=31))
        assert (epochs.progress.offsets, epochs.is_done) == (ends(a0=15, b0=31), False)
        epochs.on_input(ends(a0=25, b0=99))
        assert (epochs.progress.offsets, epochs.is_done) == (ends(a0=15, b0=32), True)
        assert noted.ranges == [{A0: (10, 15), B0: (30, 31)}, {B0: (31, 32)}]

    def test_nothing_is_taken_once_it_is_done(self, noted: Noted) -> None:
        epochs = epochs_of(noted, limits={A0: 11})
        epochs.on_input(ends(a0=11))
        epochs.on_input(ends(a0=12))
        assert len(noted.epochs) == 1

    def test_a_limit_before_the_committed_offset_changes_nothing(self, noted: Noted) -> None:
        epochs = epochs_of(noted, limits={A0: 3, B0: 31})
        epochs.on_input(ends(a0=12, b0=31))
        assert (epochs.progress.offsets, epochs.is_done) == (ends(b0=31), True)

    def test_partitions_without_a_limit_go_on_meanwhile(self, noted: Noted) -> None:
        epochs = epochs_of(noted, limits={A0: 12})
        epochs.on_input(ends(a0=11, b0=50))
        assert (epochs.progress.offsets, epochs.is_done) == (ends(a0=11, b0=50), False)

    def test_records_beyond_a_limit_do_not_make_an_epoch_large(self, noted: Noted) -> None:
        epochs_of(noted, limits={A0: 12, B0: 31}).on_input(ends(a0=5_000))
        assert noted.small == [True]

    def test_a_run_without_limits_is_never_done(self, noted: Noted) -> None:
        assert not epochs_of(noted).is_done
