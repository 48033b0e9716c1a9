"""The epochs of a running application, with jobs and a publisher that only record their calls."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from penstock import Topology
from penstock.epochs.wire import OUT, Control, Kind, LaneReport, control_row, out_rows
from penstock.errors import BrokerError, CommitError, LaneMovedError, ProcessingError, StateError
from penstock.history.progress import Progress
from penstock.kafka.commit import CommitMetadata, Committer
from penstock.observation import PartitionReport, Recorder
from penstock.runtime.loop.agenda import KEEP_ALIVE_S, MARK_EVERY_S, SAMPLE_EVERY_S
from penstock.runtime.loop.epoch_size import EpochSize
from penstock.runtime.loop.journal import phase_reporter, sent_by_topic
from penstock.state import Mark
from tests.unit.epochs.application import program_of
from tests.unit.runtime.noting import (
    A0,
    A1,
    B0,
    START,
    Clock,
    Noted,
    counting,
    ends,
    epochs_of,
    with_a_processor,
    with_a_schedule,
    with_watermarks,
)

pytestmark = pytest.mark.usefixtures("clock")


class TestOffsets:
    def test_every_partition_is_committed_every_time(self, noted: Noted) -> None:
        epochs = epochs_of(noted)
        epochs.on_input(ends(a0=13))
        epochs.on_input(ends(a0=13, b0=31))
        committed = [[(place.topic, place.partition, place.offset) for place in sent] for sent in noted.offsets]
        assert committed == [
            [("a", 0, 13), ("a", 1, 20), ("b", 0, 30)],
            [("a", 0, 13), ("a", 1, 20), ("b", 0, 31)],
        ]
        assert epochs.progress == Progress(6, ends(a0=13, b0=31), {A0: 500})

    def test_their_metadata_has_all_that_a_start_needs(self, noted: Noted) -> None:
        epochs = epochs_of(noted)
        noted.controls = [Control({0: 700}), Control({2: 9})]
        epochs.on_input(ends(a0=11))
        program = program_of(counting())
        told = {(sent.topic, sent.partition): CommitMetadata.decode(sent.metadata) for sent in noted.offsets[0]}
        common = {"epoch": 5, "incarnation": "one", "fingerprint": program.plan.fingerprint, "lanes": 2, "shards": 8}
        assert told == {
            A0: CommitMetadata(**common, high_time=700, topic_id="id-a", partitions=2),  # type: ignore[arg-type]
            A1: CommitMetadata(**common, high_time=-1, topic_id="id-a", partitions=2),  # type: ignore[arg-type]
            B0: CommitMetadata(**common, high_time=9, topic_id=None, partitions=1),  # type: ignore[arg-type]
        }

    def test_a_tick_commits_unchanged_offsets(self, noted: Noted, clock: Clock) -> None:
        epochs = epochs_of(noted)
        clock.now += KEEP_ALIVE_S + 1
        epochs.tick()
        assert [(sent.topic, sent.partition, sent.offset) for sent in noted.offsets[0]] == [
            ("a", 0, 10),
            ("a", 1, 20),
            ("b", 0, 30),
        ]

    def test_the_input_must_continue_from_the_committed_offsets(self, noted: Noted) -> None:
        epochs = epochs_of(noted)
        epochs.on_input(ends(a0=11))
        epochs.taken = Progress(9, ends(a0=12), {})
        with pytest.raises(StateError, match="The input does not continue from the committed offsets"):
            epochs.on_input(ends(a0=13))
        assert len(noted.epochs) == 1


class TestEpochs:
    def test_an_epoch_receives_the_progress_of_the_application(self, noted: Noted, clock: Clock) -> None:
        epochs = epochs_of(noted)
        noted.controls = [Control({1: 60}), Control({1: 50, 0: 400})]
        epochs.on_input(ends(a0=11))
        clock.now = 2_000.5
        epochs.on_input(ends(a0=12))
        first, second = noted.epochs
        assert (first.number, first.previous, first.wall_clock) == (5, 4, 1_000_000)
        assert (second.number, second.previous, second.wall_clock) == (6, 5, 2_000_500)
        assert first.origins == second.origins == (A0, A1, B0)
        assert (first.high_times, second.high_times) == ((500, -1, -1), (500, 60, -1))
        assert first.partitions == {"out": 3}

    @pytest.mark.parametrize(("moved", "is_small"), [(5, True), (6, False)])
    def test_records_of_all_partitions_decide_whether_an_epoch_is_small(self, noted: Noted, moved: int, is_small: bool) -> None:
        epochs_of(noted).on_input(ends(a0=12, b0=30 + moved - 2))
        assert noted.small == [is_small]

    def test_rows_for_the_driver_are_not_published(self, noted: Noted) -> None:
        noted.controls = [Control(), Control({0: 1})]
        epochs_of(noted).on_input(ends(a0=11))
        assert [(row["kind"], row["value"]) for row in noted.published[0]] == [(Kind.SINK, b"5")]

    def test_every_batch_is_checked_before_the_transaction_begins(self, noted: Noted) -> None:
        checked: list[list[str]] = []

        def check(rows: pa.RecordBatch) -> pa.RecordBatch:
            checked.append(list(noted.calls))
            return rows.slice(0, 0)

        epochs_of(noted, check=check).on_input(ends(a0=11))
        assert checked == [[]]
        assert noted.published == [[]]

    def test_first_rows_go_with_the_first_epoch_only(self, noted: Noted) -> None:
        epochs = epochs_of(noted, first_rows=out_rows(Kind.CHANGELOG, 0, 0, 0, b"topology", b"facts"))
        epochs.on_input(ends(a0=11))
        epochs.on_input(ends(a0=12))
        assert [[row["key"] for row in rows] for rows in noted.published] == [[b"topology", b"epoch"], [b"epoch"]]

    def test_global_tables_are_read_before_the_epoch_begins(self, noted: Noted, clock: Clock) -> None:
        before: list[int] = []
        epochs = epochs_of(noted, before_epoch=lambda: before.append(len(noted.epochs)))
        epochs.on_input(ends(a0=11))
        clock.now += KEEP_ALIVE_S + 1
        epochs.tick()
        assert before == [0, 1]

    def test_rows_about_records_outside_of_epochs_are_published_too(self, noted: Noted, clock: Clock) -> None:
        letter = out_rows(Kind.DEAD_LETTER, 1, 0, 5, b"k", b"letter")
        dropped = control_row(Control(dropped=[("names", "dead letter", 1)]), 0).select(OUT.names)
        other_rows = [[letter, dropped], []]
        recorder = Recorder()
        seen: list[list[bytes]] = []

        def check(rows: pa.RecordBatch) -> pa.RecordBatch:
            seen.append(rows.column("value").to_pylist())
            return rows

        epochs = epochs_of(noted, other_rows=lambda: other_rows.pop(0), recorder=recorder, check=check)
        epochs.on_input(ends(a0=11))
        assert [row["value"] for row in noted.published[-1]] == [b"5", b"letter"]
        assert recorder.recent[-1].dropped == (("names", "dead letter", 1),)
        assert seen == [[b"5"], [b"letter"]]
        epochs.on_input(ends(a0=12))
        assert [row["value"] for row in noted.published[-1]] == [b"6"]

    def test_drops_are_logged(self, noted: Noted, caplog: pytest.LogCaptureFixture) -> None:
        noted.controls = [Control(dropped=[("node", "late", 3)])]
        with caplog.at_level(logging.INFO):
            epochs_of(noted).on_input(ends(a0=11))
        assert "node dropped 3 records: late" in caplog.text


class TestReports:
    """What the recorder receives."""

    def test_positions_are_reported_before_the_first_epoch(self, noted: Noted) -> None:
        recorder = Recorder()
        start = replace(START, watermarks={A0: 40, A1: 50, B0: 60}, watermark=40)
        epochs_of(noted, topology=with_watermarks(), start=start, recorder=recorder)
        recorder.saw_ends(ends(a0=15))
        assert recorder.partitions == {
            A0: PartitionReport("a", 0, 10, 15, 500, 40),
            A1: PartitionReport("a", 1, 20, 20, -1, 50),
            B0: PartitionReport("b", 0, 30, 30, -1, 60),
        }
        assert recorder.watermark == 40

    def test_an_epoch_is_reported_with_its_phases_and_what_it_sent(self, noted: Noted) -> None:
        recorder = Recorder()
        epochs = epochs_of(noted, recorder=recorder, committer=Committer(noted, on_phase=phase_reporter(recorder)))
        noted.reports = [LaneReport(0, 0, 3, 0.5), LaneReport(1, 0, 4, 0.25)]
        noted.controls = [Control(dropped=[("COUNT", "late", 2)])]
        seen: list[int | None] = []
        noted.during = lambda: seen.append(recorder.current.number if recorder.current else None)
        epochs.on_input(ends(a0=13))
        assert seen == [5]
        [report] = recorder.recent
        assert (report.number, report.records, report.is_sampled) == (5, 3, True)
        assert list(report.phases) == ["before", "job", "wait", "check", "produce", "offsets", "commit", "after"]
        assert report.sent == {"app-counts-changelog": 1}
        assert report.dropped == (("COUNT", "late", 2),)
        assert report.lanes == (LaneReport(0, 0, 3, 0.5), LaneReport(1, 0, 4, 0.25))
        assert recorder.current is None
        place = recorder.partitions[A0]
        assert (place.offset, place.high_time, place.lag) == (13, 500, -1)
        recorder.saw_ends({A0: 20})
        assert recorder.partitions[A0].lag == 7

    def test_one_epoch_in_a_few_seconds_is_sampled(self, noted: Noted, clock: Clock) -> None:
        epochs = epochs_of(noted)
        for seconds in (0.0, 1.0, SAMPLE_EVERY_S, 1.0):
            clock.now += seconds
            epochs.on_input(ends())
        assert [epoch.is_sampled for epoch in noted.epochs] == [True, False, True, False]

    def test_after_commit_is_called_before_the_next_epoch(self, noted: Noted) -> None:
        heard: list[tuple[int, int]] = []
        epochs = epochs_of(noted, after_commit=lambda epoch: heard.append((epoch, len(noted.epochs))))
        for a0 in (11, 12):
            epochs.on_input(ends(a0=a0))
        assert heard == [(5, 1), (6, 2)]

    def test_rows_that_are_too_large_count_as_dropped_records(self, noted: Noted) -> None:
        recorder = Recorder()
        epochs_of(noted, recorder=recorder, check=lambda rows: rows.slice(0, 0)).on_input(ends(a0=11))
        assert recorder.recent[0].dropped == (("(sinks)", "production error", 1),)

    def test_chosen_topics_and_dead_letters_are_each_counted_as_one(self) -> None:
        rows = pa.concat_tables(
            [
                *(out_rows(Kind.CHANGELOG, 0, 0, 0, b"k", b"v") for _ in range(3)),
                *(out_rows(Kind.SINK, -1, 0, 0, b"k", b"v") for _ in range(2)),
                out_rows(Kind.DEAD_LETTER, -1, 0, 0, b"k", b"v"),
                out_rows(Kind.DEAD_LETTER, 0, 0, 0, b"k", b"v"),
                out_rows(Kind.SINK, 1, 0, 0, b"k", b"v"),
            ]
        )
        assert sent_by_topic(["changelog", "out"], rows.to_batches()) == {
            "changelog": 3,
            "out": 1,
            "(chosen per record)": 2,
            "(dead letters)": 2,
        }


class TestFailures:
    def test_a_failed_job_changes_nothing(self, noted: Noted) -> None:
        epochs = epochs_of(noted)
        noted.failure = ProcessingError("bad record")
        with pytest.raises(ProcessingError):
            epochs.on_input(ends(a0=11))
        assert (epochs.progress, noted.calls) == (START, [])
        noted.failure = None
        epochs.on_input(ends(a0=11))
        assert [epoch.number for epoch in noted.epochs] == [5, 5]
        assert epochs.progress.epoch == 5

    @pytest.mark.parametrize("failure", [CommitError("aborted"), BrokerError("out of reach")])
    def test_a_failed_commit_is_not_progress(self, noted: Noted, failure: Exception) -> None:
        epochs = epochs_of(noted, first_rows=out_rows(Kind.CHANGELOG, 0, 0, 0, b"topology", b"facts"))
        noted.commit_failure = failure
        with pytest.raises(type(failure)):
            epochs.on_input(ends(a0=11))
        assert epochs.progress == START
        noted.commit_failure = None
        with pytest.raises(type(failure)):  # no further epoch is committed
            epochs.on_input(ends(a0=11))
        assert epochs.progress == START

    def test_a_row_that_does_not_fit_ends_the_epoch_before_anything_is_published(self, noted: Noted) -> None:
        def check(rows: pa.RecordBatch) -> pa.RecordBatch:
            raise ProcessingError("too large")

        epochs = epochs_of(noted, check=check)
        with pytest.raises(ProcessingError):
            epochs.on_input(ends(a0=11))
        assert (epochs.progress, noted.calls) == (START, [])

    def test_a_failure_releases_the_lock(self, noted: Noted) -> None:
        epochs = epochs_of(noted)
        noted.failure = ProcessingError("bad record")
        with pytest.raises(ProcessingError):
            epochs.on_input(ends(a0=11))
        epochs.stop()


class TestTicks:
    def test_nothing_happens_while_nothing_is_due(self, noted: Noted, clock: Clock) -> None:
        epochs = epochs_of(noted)
        epochs.tick()
        noted.controls = [Control(due=int(clock.now * 1000) + 5_000)]
        epochs.on_input(ends(a0=11))
        clock.now += 4.9
        epochs.tick()
        assert len(noted.epochs) == 1

    def test_the_earliest_timer_of_all_lanes_counts(self, noted: Noted, clock: Clock) -> None:
        epochs = epochs_of(noted)
        noted.controls = [Control(due=int(clock.now * 1000) + 9_000), Control(due=int(clock.now * 1000) + 5_000), Control()]
        epochs.on_input(ends(a0=11))
        clock.now += 5
        epochs.tick()
        assert noted.small == [True, None]
        assert epochs.progress == Progress(6, ends(a0=11), {A0: 500})

    def test_the_last_epoch_determines_what_is_due(self, noted: Noted, clock: Clock) -> None:
        epochs = epochs_of(noted)
        noted.controls = [Control(due=int(clock.now * 1000) + 1_000)]
        epochs.on_input(ends(a0=11))
        noted.controls = []
        epochs.on_input(ends(a0=12))
        clock.now += 60
        epochs.tick()
        assert len(noted.epochs) == 2

    def test_what_waits_for_the_watermark_is_due_when_it_is_reached(self, noted: Noted, clock: Clock) -> None:
        epochs = epochs_of(noted, topology=with_watermarks(), start=replace(START, watermarks={A0: 99, A1: 120, B0: 120}))
        noted.controls = [Control(event_due=200), Control(event_due=100), Control()]
        epochs.on_input(ends(a0=11))
        epochs.tick()
        assert [epoch.watermark for epoch in noted.epochs] == [99]
        noted.controls = [Control(watermarks={0: 100}, event_due=100)]
        epochs.on_input(ends(a0=12))
        noted.controls = []
        epochs.tick()
        epochs.tick()
        assert [epoch.watermark for epoch in noted.epochs] == [99, 99, 100]

    def test_the_watermark_is_committed_with_its_results(self, noted: Noted, clock: Clock) -> None:
        epochs = epochs_of(noted, topology=with_watermarks(), start=replace(START, watermarks={A0: 40, A1: 50, B0: 60}))
        noted.controls = [Control(watermarks={0: 70, 1: 80})]
        epochs.on_input(ends(a0=11, a1=21))
        assert (epochs.progress.watermark, epochs.progress.watermarks) == (40, {A0: 70, A1: 80, B0: 60})
        committed = [CommitMetadata.decode(offset.metadata) for offset in noted.offsets[-1]]
        assert [metadata.watermark for metadata in committed] == [70, 80, 60]
        assert {metadata.application_watermark for metadata in committed} == {40}
        epochs = epochs_of(noted, topology=with_watermarks(), start=epochs.progress)
        epochs.on_input(ends(a0=12, a1=21))
        assert noted.epochs[-1].watermark == 60

    def test_a_silent_partition_is_ignored_only_if_it_is_read_to_its_end(self, noted: Noted, clock: Clock) -> None:
        start = replace(START, watermarks={A0: 500, A1: -1, B0: 600})
        input_ends = ends(a1=25)
        epochs = epochs_of(noted, topology=with_watermarks(idle="10s"), start=start, input_ends=lambda: dict(input_ends))
        noted.controls = [Control(event_due=400)]
        epochs.on_input(ends(a0=11))
        clock.now += 60
        epochs.tick()
        assert [epoch.watermark for epoch in noted.epochs] == [-1]
        input_ends[A1] = 20
        clock.now += 9
        noted.controls = [Control(watermarks={0: 500, 2: 600}, event_due=400)]
        epochs.on_input(ends(a0=12))
        clock.now += 2
        epochs.tick()
        assert [epoch.watermark for epoch in noted.epochs] == [-1, -1, 500]

    def test_when_all_partitions_are_silent_the_watermark_may_follow_the_wall_clock(self, noted: Noted, clock: Clock) -> None:
        topology = with_watermarks(idle="10s", follow_wall_clock=True)
        epochs = epochs_of(noted, topology=topology, input_ends=ends)
        due = int(clock.now * 1000) + 30_000
        noted.controls = [Control(event_due=due)]
        epochs.on_input(ends(a0=11))
        clock.now += 29
        epochs.tick()
        assert len(noted.epochs) == 1
        clock.now += 2
        epochs.tick()
        assert [epoch.watermark for epoch in noted.epochs] == [-1, due + 1_000]

    def test_a_partition_too_far_ahead_waits_for_the_slowest(self, noted: Noted, clock: Clock) -> None:
        start = replace(START, watermarks={A0: 5_000, A1: 1_000, B0: 1_500})
        epochs = epochs_of(noted, topology=with_watermarks(align="1s"), start=start, input_ends=lambda: ends(a0=60, a1=40))
        noted.controls = [Control(watermarks={1: 3_000})]
        epochs.on_input(ends(a0=50, a1=25))
        assert (epochs.progress.offsets, noted.ranges[-1]) == (ends(a1=25), {A1: (20, 25)})
        epochs.tick()
        assert len(noted.epochs) == 1  # the slower one has more
        noted.controls = [Control(watermarks={1: 4_500})]
        epochs.on_input(ends(a0=60, a1=40))
        assert noted.ranges[-2:] == [{A1: (25, 40)}, {A0: (10, 60)}]
        assert epochs.progress.offsets == ends(a0=60, a1=40)
        noted.controls = []
        epochs.tick()
        assert len(noted.epochs) == 3
        epochs.on_input(ends(a0=61, a1=40))
        assert (epochs.progress.offsets, noted.ranges[-1]) == (ends(a0=61, a1=40), {A0: (60, 61)})

    def test_records_that_waited_come_with_a_later_batch(self, noted: Noted, clock: Clock) -> None:
        start = replace(START, watermarks={A0: 5_000, A1: 1_000, B0: 1_500})
        known_ends = ends(a0=70, a1=26)
        options: dict[str, Any] = {"size": EpochSize(31, 1 << 20), "input_ends": lambda: known_ends}
        epochs = epochs_of(noted, topology=with_watermarks(align="1s"), start=start, **options)
        noted.controls = [Control(watermarks={1: 3_000})]
        epochs.on_input(ends(a0=50, a1=25))
        assert epochs.progress.offsets == ends(a1=25)
        noted.controls = [Control(watermarks={1: 4_500})]
        epochs.on_input(ends(a0=70, a1=26))
        assert epochs.progress.offsets == ends(a0=70, a1=26)
        assert noted.ranges[1:] == [{A1: (25, 26)}, {A0: (10, 41)}, {A0: (41, 70)}]
        epochs.on_input(ends(a0=70, a1=27))
        assert (epochs.progress.offsets, noted.ranges[-1]) == (ends(a0=70, a1=27), {A1: (26, 27)})

    def test_a_partition_without_a_watermark_does_not_wait(self, noted: Noted) -> None:
        epochs = epochs_of(noted, topology=with_watermarks(align="1s"))
        epochs.on_input(ends(a0=50, a1=25))
        assert epochs.progress.offsets == ends(a0=50, a1=25)

    def test_without_a_watermark_it_waits_for_input(self, noted: Noted, clock: Clock) -> None:
        epochs = epochs_of(noted)
        noted.controls = [Control(event_due=0)]
        epochs.on_input(ends(a0=11))
        clock.now += 60
        epochs.tick()
        assert [epoch.watermark for epoch in noted.epochs] == [None]

    @pytest.mark.parametrize("make", [with_a_schedule, with_a_processor])
    def test_the_first_epoch_of_a_start_asks_the_lanes_what_is_due(self, noted: Noted, make: Callable[[], Topology]) -> None:
        epochs = epochs_of(noted, topology=make())
        epochs.tick()
        epochs.tick()
        assert [epoch.number for epoch in noted.epochs] == [5]

    def test_after_a_failed_job_the_lanes_are_asked_again(self, noted: Noted) -> None:
        epochs = epochs_of(noted, topology=with_a_schedule())
        noted.failure = ProcessingError("not now")
        with pytest.raises(ProcessingError):
            epochs.tick()
        noted.failure = None
        epochs.tick()
        assert [epoch.number for epoch in noted.epochs] == [5, 5]

    def test_an_application_without_input_commits_periodically(self, noted: Noted, clock: Clock) -> None:
        epochs = epochs_of(noted)
        clock.now += KEEP_ALIVE_S
        epochs.tick()
        assert not noted.epochs
        clock.now += 1
        epochs.tick()
        epochs.tick()
        assert [epoch.number for epoch in noted.epochs] == [5]
        assert noted.calls == ["begin", "commit"]


class TestFailure:
    def test_later_calls_raise_the_error_of_the_failed_epoch(self, noted: Noted) -> None:
        """Later failures, such as of a producer that was closed, would only be consequences."""
        epochs, cause, asked = epochs_of(noted), CommitError("it was open for too long"), list[str]()

        def fail() -> None:
            raise cause

        noted.during = fail
        with pytest.raises(CommitError, match="open for too long"):
            epochs.on_input(ends(a0=11))
        for ask in (epochs.tick, lambda: epochs.while_idle(lambda: asked.append("asked"))):
            with pytest.raises(CommitError) as found:
                ask()
            assert found.value is cause
        assert asked == []


class TestMarks:
    def test_exactly_one_epoch_receives_a_mark(self, noted: Noted, clock: Clock) -> None:
        epochs = epochs_of(noted, changelog_ends=lambda: {"c/0": 100 * len(noted.epochs)})
        for number in range(11, 14):
            epochs.on_input(ends(a0=number))
        clock.now += MARK_EVERY_S + 0.1
        for number in range(14, 17):
            epochs.on_input(ends(a0=number))
        early, late = Mark(5, 1_000_000, {"c/0": 100}, {"c": "id-c"}), Mark(8, 1_010_100, {"c/0": 400}, {"c": "id-c"})
        assert [epoch.mark for epoch in noted.epochs] == [None, early, None, None, late, None]

    def test_changelog_ends_are_requested_after_the_commit(self, noted: Noted) -> None:
        asked: list[list[str]] = []

        def changelog_ends() -> Mapping[str, int]:
            asked.append(list(noted.calls))
            return {}

        epochs_of(noted, changelog_ends=changelog_ends).on_input(ends(a0=11))
        assert asked == [["begin", "commit"]]

    @pytest.mark.parametrize("failure", [CommitError("leaders move"), BrokerError("out of reach")])
    def test_an_epoch_is_committed_whether_or_not_there_is_a_mark(self, noted: Noted, failure: Exception) -> None:
        def changelog_ends() -> Mapping[str, int]:
            raise failure

        epochs = epochs_of(noted, changelog_ends=changelog_ends)
        epochs.on_input(ends(a0=11))
        epochs.on_input(ends(a0=12))
        assert [(epoch.number, epoch.mark) for epoch in noted.epochs] == [(5, None), (6, None)]


class TestStop:
    def test_the_current_epoch_is_finished_and_no_other_begins(self, noted: Noted) -> None:
        epochs = epochs_of(noted)
        began, may_end = threading.Event(), threading.Event()

        def long_job() -> None:
            began.set()
            assert may_end.wait(10)

        noted.during = long_job
        working = threading.Thread(target=epochs.on_input, args=(ends(a0=11),))
        working.start()
        assert began.wait(10)
        stopping = threading.Thread(target=epochs.stop)
        stopping.start()
        stopping.join(0.05)
        assert stopping.is_alive()
        may_end.set()
        stopping.join(10)
        working.join(10)
        assert epochs.progress.epoch == 5
        epochs.on_input(ends(a0=12))
        assert epochs.progress.epoch == 5

    def test_no_timer_fires_afterwards(self, noted: Noted, clock: Clock) -> None:
        epochs = epochs_of(noted)
        epochs.stop()
        clock.now += KEEP_ALIVE_S + 1
        epochs.tick()
        assert not noted.epochs

    def test_while_idle_does_nothing_while_an_epoch_runs(self, noted: Noted) -> None:
        epochs = epochs_of(noted)
        called: list[str] = []
        noted.during = lambda: epochs.while_idle(lambda: called.append("during"))
        epochs.on_input(ends(a0=11))
        epochs.while_idle(lambda: called.append("after"))
        epochs.while_idle(lambda: called.append("again"))
        assert called == ["after", "again"]


class TestLostLanes:
    """On a cluster, an epoch whose lanes are lost runs again, when they are restored where they run next."""

    def test_the_epoch_runs_again_after_what_is_pending_is_committed(self, noted: Noted) -> None:
        restored: list[tuple[int, Mapping[int, str], int, list[str]]] = []

        def restore(progress: Progress, attempt: int) -> None:
            restored.append((progress.epoch, progress.heads, attempt, list(noted.calls)))

        noted.reports = [LaneReport(0, 0, 1, 0.1, write_id="one"), LaneReport(0, 1, 1, 0.1, write_id="two")]
        epochs = epochs_of(noted, restore=restore, in_flight=1)
        epochs.on_input(ends(a0=11))
        losses = iter([LaneMovedError("gone"), LaneMovedError("gone again")])

        def lose() -> None:
            for loss in losses:
                raise loss

        noted.during = lose
        epochs.on_input(ends(a0=12))
        epochs.stop()
        assert restored == [(5, {0: "two"}, attempt, ["begin", "commit"]) for attempt in (1, 2)]
        assert [(epoch.number, epoch.attempt.number) for epoch in noted.epochs] == [(5, 0), (6, 0), (6, 1), (6, 2)]
        assert [epoch.placement.heads for epoch in noted.epochs] == [{}, {0: "two"}, {0: "two"}, {0: "two"}]
        assert epochs.progress.epoch == 6
        assert noted.calls == ["begin", "commit"] * 2

    def test_a_clock_epoch_runs_again_too(self, noted: Noted, clock: Clock) -> None:
        attempts: list[int] = []
        epochs = epochs_of(noted, topology=with_a_schedule(), restore=lambda _, attempt: attempts.append(attempt))
        losses = iter([LaneMovedError("gone")])

        def lose() -> None:
            for loss in losses:
                raise loss

        noted.during = lose
        epochs.tick()
        assert attempts == [1]
        assert epochs.progress.epoch == 5

    def test_without_input_lanes_move_when_hosts_come_or_go(self, noted: Noted) -> None:
        moved: list[int] = []
        hosts_changed = False

        def must_move() -> bool:
            return hosts_changed and not moved

        def run() -> None:
            if must_move():
                raise LaneMovedError("The executors of the cluster have changed.")

        noted.during = run
        epochs = epochs_of(noted, restore=lambda _, attempt: moved.append(attempt), must_move=must_move)
        epochs.tick()
        assert not noted.epochs
        hosts_changed = True
        epochs.tick()
        epochs.tick()
        assert moved == [1]
        assert [(epoch.number, epoch.attempt.number) for epoch in noted.epochs] == [(5, 0), (5, 1)]
        assert epochs.progress.epoch == 5

    def test_what_loses_lanes_again_and_again_ends_the_application(self, noted: Noted) -> None:
        attempts: list[int] = []
        noted.failure = LaneMovedError("gone")
        with pytest.raises(LaneMovedError):
            epochs_of(noted, restore=lambda _, attempt: attempts.append(attempt)).on_input(ends(a0=11))
        assert attempts == list(range(1, 10))

    def test_on_one_machine_a_lost_lane_ends_the_application(self, noted: Noted) -> None:
        noted.failure = LaneMovedError("gone")
        with pytest.raises(LaneMovedError):
            epochs_of(noted).on_input(ends(a0=11))
