"""The recorder records events and returns frozen values; sums are consistent, and observers can do no harm."""

from __future__ import annotations

import threading

import pytest

from penstock.epochs.wire import LaneReport
from penstock.observation import CommittedStores, EpochReport, OpenEpoch, PartitionReport, Recorder, RestoreReport, Worker
from penstock.observation.recorder import RECENT, NodeSample, Totals
from tests.unit.observation.observed import Clock, a_lane, an_epoch, fed

LINES = ("lines", 0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recorder(clock: Clock) -> Recorder:
    return Recorder(clock)


def place(offset: int, end: int = -1) -> PartitionReport:
    return PartitionReport(*LINES, offset, end, 5_000, 4_000)


class TestBefore:
    def test_nothing_is_known(self, recorder: Recorder, clock: Clock) -> None:
        assert (recorder.current, recorder.recent, recorder.restore, recorder.failure) == (None, (), None, None)
        assert (recorder.partitions, recorder.watermark, recorder.totals) == ({}, -1, Totals())
        assert (recorder.stores, recorder.memory, recorder.commit_retries) == (CommittedStores({}, {}), {}, 0)
        clock.now += 7
        assert (recorder.lasted(), recorder.idle_for()) == (0.0, 7.0)

    def test_a_phase_without_an_epoch_is_ignored(self, recorder: Recorder) -> None:
        recorder.phase_begins("job")
        assert recorder.current is None


def test_what_deliveries_leave_out_is_counted_with_the_rest(recorder: Recorder) -> None:
    recorder.left_out.count("sink", "production error")
    recorder.epoch_begins(7, "before")
    recorder.epoch_committed(50, {}, [("sink", "production error", 2), ("filter", "late", 1)], [], is_sampled=False)
    recorder.left_out.count("sink", "production error")
    assert recorder.left_out.and_dropped(recorder.totals) == {("sink", "production error"): 4, ("filter", "late"): 1}


class TestEpochs:
    def test_the_current_epoch_has_its_phase_and_start_times(self, recorder: Recorder, clock: Clock) -> None:
        recorder.epoch_begins(7, "before")
        clock.now += 1
        recorder.phase_begins("job")
        clock.now += 2
        assert recorder.current == OpenEpoch(7, "job", began=1_000.0, phase_began=1_001.0)
        assert recorder.lasted() == 3.0

    def test_a_committed_epoch_is_reported_with_the_durations_of_its_phases(self, recorder: Recorder, clock: Clock) -> None:
        began = recorder.started_ms
        recorder.epoch_begins(7, "before")
        clock.now += 1
        recorder.phase_begins("job")
        clock.now += 2
        recorder.phase_begins("before")  # the same phase twice is summed
        clock.now += 4
        recorder.epoch_committed(50, {"out": 3}, [("filter", "late", 2)], [a_lane(0, 0)], is_sampled=False)
        [report] = recorder.recent
        assert report == EpochReport(
            7, report.began_ms, 7.0, 50, {"before": 5.0, "job": 2.0}, {"out": 3}, (("filter", "late", 2),), (a_lane(0, 0),), False
        )
        assert list(report.phases) == ["before", "job"]
        assert began <= report.began_ms <= recorder.committed_ms
        assert (recorder.current, recorder.lasted(), recorder.idle_for()) == (None, 0.0, 0.0)

    def test_only_the_last_epochs_are_kept(self, recorder: Recorder, clock: Clock) -> None:
        for number in range(RECENT + 5):
            an_epoch(recorder, clock, number)
        assert [report.number for report in recorder.recent] == list(range(5, RECENT + 5))
        assert recorder.totals.epochs == RECENT + 5

    def test_a_retried_epoch_forgets_the_phases_of_the_failed_attempt(self, recorder: Recorder, clock: Clock) -> None:
        recorder.epoch_begins(7, "job")
        clock.now += 9
        recorder.phase_begins("begun")
        recorder.epoch_begins(7, "job")
        clock.now += 1
        recorder.epoch_committed(0, {}, [], [], is_sampled=False)
        assert recorder.recent[0].phases == {"job": 1.0}

    def test_listeners_are_notified_after_the_totals_are_updated(self, recorder: Recorder, clock: Clock) -> None:
        heard: list[tuple[int, int]] = []
        recorder.listen(lambda report: heard.append((report.number, recorder.totals.epochs)))
        an_epoch(recorder, clock, 4)
        an_epoch(recorder, clock, 5)
        assert heard == [(4, 1), (5, 2)]

    def test_a_listener_may_leave(self, recorder: Recorder, clock: Clock) -> None:
        heard: list[str] = []
        recorder.listen(lambda report: heard.append("stays"))
        leave = recorder.listen(lambda report: heard.append("leaves"))
        an_epoch(recorder, clock, 4)
        leave()
        an_epoch(recorder, clock, 5)
        assert heard == ["stays", "leaves", "stays"]

    def test_a_takeover_that_was_lost_leaves_nothing_open(self, recorder: Recorder, clock: Clock) -> None:
        recorder.restoring({0: 100})
        recorder.epoch_begins(7, "job")
        recorder.epoch_begins(8, "job")
        clock.now += 9
        recorder.begin_anew()
        assert (recorder.current, recorder.lasted(), recorder.restore) == (None, 0.0, None)
        an_epoch(recorder, clock, 7)
        assert [report.number for report in recorder.recent] == [7]

    def test_a_listener_that_raises_is_logged_and_the_others_are_notified(
        self, recorder: Recorder, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        heard: list[int] = []

        def broken(report: EpochReport) -> None:
            raise ZeroDivisionError

        recorder.listen(broken)
        recorder.listen(lambda report: heard.append(report.number))
        an_epoch(recorder, clock, 4)
        assert heard == [4]
        assert "a listener raised on epoch 4" in caplog.text

    def test_commit_retries_are_counted(self, recorder: Recorder) -> None:
        recorder.commit_retried()
        recorder.commit_retried()
        assert recorder.commit_retries == 2


class TestTotals:
    def test_they_are_the_sums_of_all_epochs(self, recorder: Recorder, clock: Clock) -> None:
        an_epoch(recorder, clock, 0)
        an_epoch(recorder, clock, 1, records=20, is_sampled=False)
        totals = recorder.totals
        assert (totals.epochs, totals.records, totals.sampled_records) == (2, 30, 10)
        assert totals.seconds == pytest.approx(1.0)
        assert totals.phases == pytest.approx({"job": 0.4, "committing": 0.6})
        assert totals.sent["counts"] == 8
        assert totals.dropped == {("KSTREAM-SOURCE-0000000000", "late"): 4, ("KSTREAM-MAPVALUES-0000000001", "dead letter"): 2}
        assert totals.lanes == {(lane, stage): (10, 0.2) for lane in (0, 1) for stage in (0, 1)}
        assert totals.nodes == {
            "KSTREAM-SOURCE-0000000000": NodeSample(10, 0.02),
            "KSTREAM-AGGREGATE-0000000003": NodeSample(6, 0.04),
        }

    def test_totals_that_were_read_do_not_change(self, recorder: Recorder, clock: Clock) -> None:
        an_epoch(recorder, clock, 0)
        before = recorder.totals
        copied = (before.epochs, dict(before.sent), dict(before.lanes), dict(before.nodes))
        an_epoch(recorder, clock, 1)
        assert (before.epochs, before.sent, before.lanes, before.nodes) == copied


class TestSamples:
    def test_stores_and_memory_are_those_of_the_last_sampled_epoch(self, recorder: Recorder, clock: Clock) -> None:
        an_epoch(recorder, clock, 0)
        an_epoch(recorder, clock, 1, is_sampled=False)
        assert recorder.stores == CommittedStores({"words": 201}, {"words": 16_000})
        assert recorder.memory == {Worker("", 4_000): 50_000_000, Worker("", 4_001): 50_000_000}

    def test_the_last_report_of_a_lane_counts(self, recorder: Recorder) -> None:
        self.sampled(
            recorder, LaneReport(0, 0, 1, 0.1, stores={"words": (9, 90)}), LaneReport(0, 1, 1, 0.1, stores={"words": (8, 80)})
        )
        assert recorder.stores == CommittedStores({"words": 8}, {"words": 80})

    def test_a_lane_without_a_report_keeps_its_last_sizes(self, recorder: Recorder) -> None:
        self.sampled(recorder, *(LaneReport(lane, 0, 1, 0.1, stores={"words": (10, 100)}) for lane in (0, 1)))
        self.sampled(recorder, LaneReport(1, 0, 1, 0.1, stores={"words": (30, 300)}))
        assert recorder.stores == CommittedStores({"words": 40}, {"words": 400})

    def test_an_unknown_memory_is_left_out(self, recorder: Recorder) -> None:
        self.sampled(recorder, LaneReport(0, 0, 1, 0.1, worker=77, memory=0))
        assert recorder.memory == {}

    def test_a_worker_is_known_by_its_host_and_process(self, recorder: Recorder) -> None:
        lanes = [LaneReport(lane, 0, 1, 0.1, worker=77, memory=5, host=host) for lane, host in enumerate(("one", "two"))]
        self.sampled(recorder, *lanes)
        assert recorder.memory == {Worker("one", 77): 5, Worker("two", 77): 5}
        assert recorder.hosts == {0: "one", 1: "two"}

    @staticmethod
    def sampled(recorder: Recorder, *lanes: LaneReport) -> None:
        recorder.epoch_begins(0, "job")
        recorder.epoch_committed(1, {}, [], lanes, is_sampled=True)


class TestPartitions:
    def test_positions_and_ends_are_recorded_separately_and_combined(self, recorder: Recorder) -> None:
        recorder.saw_ends({LINES: 50})
        recorder.moved({LINES: place(40)}, 4_000)
        assert recorder.partitions == {LINES: place(40, end=50)}
        assert recorder.watermark == 4_000
        recorder.saw_ends({LINES: 60})
        assert recorder.partitions[LINES].lag == 20
        recorder.moved({LINES: place(60)}, 5_000)
        assert recorder.partitions[LINES].lag == 0

    def test_an_end_that_was_not_recorded_is_unknown(self, recorder: Recorder) -> None:
        recorder.moved({LINES: place(40)}, -1)
        recorder.saw_ends({("other", 0): 9})
        assert recorder.partitions[LINES].lag == -1

    def test_recording_the_ends_does_not_revert_an_offset(self, recorder: Recorder) -> None:
        """Otherwise an application without new input would seem to lag, and to be stuck, until there is input again."""
        last = 5_000
        followed = threading.Event()

        def follow() -> None:
            while not followed.is_set():
                recorder.saw_ends({LINES: last})

        following = threading.Thread(target=follow)
        following.start()
        for offset in range(last + 1):
            recorder.moved({LINES: place(offset)}, -1)
            assert recorder.partitions[LINES].offset == offset
        followed.set()
        following.join()
        assert recorder.partitions[LINES].lag == 0


class TestRestore:
    def test_progress_is_reported_by_lane(self, recorder: Recorder, clock: Clock) -> None:
        recorder.restoring({0: 100, 1: 300})
        clock.now += 2
        recorder.restoring({0: 100, 1: 100})
        assert recorder.restore == RestoreReport({0: 100, 1: 100}, {0: 100, 1: 300}, 2.0, is_done=False)
        clock.now += 1
        recorder.restored()
        assert recorder.restore == RestoreReport({0: 0, 1: 0}, {0: 100, 1: 300}, 3.0, is_done=True)

    def test_a_lane_that_finds_more_to_read_has_a_higher_total(self, recorder: Recorder) -> None:
        recorder.restoring({0: 100})
        recorder.restoring({0: 150, 1: 50})
        assert recorder.restore is not None
        assert recorder.restore.total == {0: 150, 1: 50}

    def test_a_restore_without_changelogs_is_done_at_once(self, recorder: Recorder) -> None:
        recorder.restored()
        assert recorder.restore == RestoreReport({}, {}, 0.0, is_done=True)

    def test_a_report_does_not_change_with_its_input(self, recorder: Recorder) -> None:
        left = {0: 100}
        recorder.restoring(left)
        left[0] = 1
        assert recorder.restore is not None
        assert recorder.restore.left == {0: 100}


def test_concurrent_readers_get_consistent_totals(recorder: Recorder, clock: Clock) -> None:
    fed(recorder, clock)
    ended = threading.Event()
    torn: list[Totals] = []

    def ask() -> None:
        while not ended.is_set():
            totals = recorder.totals
            if totals.records != 10 * totals.epochs or totals.sent["counts"] != 4 * totals.epochs:
                torn.append(totals)

    asking = threading.Thread(target=ask)
    asking.start()
    for number in range(1, 500):
        an_epoch(recorder, clock, number)
    ended.set()
    asking.join()
    assert not torn
