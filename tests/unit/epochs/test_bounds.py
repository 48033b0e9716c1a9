"""Input and output of a task: measured, limited, and in pieces; and an epoch that is retried with other records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.epochs.assignment import Assignment
from penstock.epochs.bounds import Measured, bounded, in_pieces, measured_in
from penstock.epochs.hops import INPUT, roll_back_lane
from penstock.epochs.program import Attempt, Epoch
from penstock.epochs.state_directory import open_lane
from penstock.epochs.wire import OUT, WIRE, Kind, out_rows
from penstock.errors import StateError
from tests.unit.epochs.application import Application, every_kind_of_store, some_records

EPOCH = Epoch(0, -1, 5_000, (("in", 0), ("in", 1), ("in", 2)))
KB = 1 << 10


def batch(*sizes: int, origin: int = 0) -> pa.RecordBatch:
    """Records whose values are of these sizes."""
    rows = [
        {"name": 0, "origin": origin, "offset": number, "timestamp": 0, "key": b"k", "value": bytes(size), "headers": None}
        for number, size in enumerate(sizes)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=INPUT)


def sent(count: int, size: int) -> pa.Table:
    return pa.concat_tables([out_rows(Kind.SINK, 0, 0, 0, b"k", bytes(size))] * count)


def told(batches: Iterator[pa.RecordBatch]) -> tuple[pa.Table, list[Measured]]:
    table = pa.Table.from_batches(batches)
    return table, measured_in(table)


class TestInput:
    def test_records_and_bytes_are_reported_by_origin(self) -> None:
        mixed = pa.concat_batches([batch(100, origin=0), batch(50_000, 50_000, origin=2)])
        rows, [measured] = told(bounded(EPOCH, [mixed, batch(10_000, origin=0)], lambda _: sent(1, 1), OUT, is_input=True))
        assert rows.schema.equals(OUT)
        assert {origin: records for origin, (records, _) in measured.sizes.items()} == {0: 2, 2: 2}
        assert 10_100 < measured.sizes[0][1] < 10_500
        assert 100_000 < measured.sizes[2][1] < 100_500

    def test_rows_between_stages_are_not_records_that_were_read(self) -> None:
        _, measured = told(bounded(EPOCH, [batch(100)], lambda _: sent(1, 1), OUT))
        assert not measured

    def test_a_task_stops_reading_above_its_limit_and_reports_the_sizes(self) -> None:
        read: list[int] = []

        def batches() -> Iterator[pa.RecordBatch]:
            for number in range(100):
                read.append(number)
                yield batch(10 * KB)

        epoch = replace(EPOCH, attempt=Attempt(0, 55 * KB))
        rows, [measured] = told(bounded(epoch, batches(), lambda _: pytest.fail("too much"), WIRE, is_input=True))
        assert rows.schema.equals(WIRE)
        assert (len(rows), len(read), measured.sizes[0][0]) == (1, 6, 6)
        assert measured.too_large.startswith("A task has read 61")

    def test_without_a_limit_it_takes_anything(self) -> None:
        _, [measured] = told(bounded(EPOCH, [batch(10 * KB)] * 100, lambda _: sent(1, 1), OUT, is_input=True))
        assert (measured.sizes[0][0], measured.too_large) == (100, "")


class TestOutput:
    def test_output_above_the_limit_is_reported_instead_of_returned(self) -> None:
        epoch = replace(EPOCH, attempt=Attempt(0, 50 * KB))
        rows, [measured] = told(bounded(epoch, [batch(10)], lambda _: sent(10, 10 * KB), OUT, is_input=True))
        assert len(rows) == 1
        assert measured.too_large.startswith("A task's output has 10")
        assert 100 * KB < measured.bytes_out < 101 * KB
        assert measured.sizes[0][0] == 1

    @pytest.mark.parametrize(
        "error", [MemoryError(), pa.ArrowCapacityError("array is full"), pa.ArrowInvalid("offset overflow while concatenating")]
    )
    def test_running_out_of_memory_is_reported(self, error: Exception) -> None:
        def work(_: list[pa.RecordBatch]) -> pa.Table:
            raise error

        _, [measured] = told(bounded(EPOCH, [batch(10)], work, OUT, is_input=True))
        assert measured.too_large.startswith("A task ran out of memory")

    @pytest.mark.parametrize("error", [ValueError("no"), pa.ArrowInvalid("no such column")])
    def test_anything_else_is_raised(self, error: Exception) -> None:
        def work(_: list[pa.RecordBatch]) -> pa.Table:
            raise error

        with pytest.raises(type(error)):
            list(bounded(EPOCH, [batch(10)], work, OUT))

    def test_rows_are_returned_in_pieces_in_their_order(self) -> None:
        rows = pa.concat_tables([out_rows(Kind.SINK, 0, 0, number, b"k", bytes(KB)) for number in range(100)]).combine_chunks()
        pieces = list(in_pieces(rows, 10 * KB))
        assert all(piece.nbytes <= 10 * KB for piece in pieces)
        assert 10 <= len(pieces) <= 15
        assert pa.Table.from_batches(pieces).equals(rows)

    def test_a_row_that_is_larger_than_a_piece_is_one(self) -> None:
        assert [len(piece) for piece in in_pieces(sent(3, 5 * KB).combine_chunks(), KB)] == [1, 1, 1]

    def test_a_row_that_is_small_stays_with_the_others(self) -> None:
        rows = sent(100, 10).combine_chunks()
        assert [len(piece) for piece in in_pieces(rows)] == [100]


class TestRolledBack:
    """A failed epoch is retried with other records."""

    def applications(self, path: Path) -> tuple[Application, Application]:
        """One that will have to try again, and one that will not."""
        found = (Application(path / "tried", every_kind_of_store), Application(path / "plain", every_kind_of_store))
        for application in found:
            application.now_ms = 5_000
            application.start(3)
            application.step(some_records(1, 60))
        return found

    @pytest.mark.parametrize("in_flight", [0, 2])
    def test_a_lane_is_as_the_last_barrier_left_it(self, tmp_path: Path, in_flight: int) -> None:
        tried, plain = self.applications(tmp_path)
        for seed in range(in_flight):
            tried.send(some_records(seed, 20, start=2_000))
        tried.run(some_records(2, 50, start=3_000))
        epoch = Epoch(tried.epoch + 1, tried.epoch, 5_000)
        with open_lane(tried.running, 0) as state:
            assert state.reached > (epoch.number + in_flight, 0)
        for lane in range(3):
            roll_back_lane(Assignment(tried.running, epoch, lane=lane))
            roll_back_lane(Assignment(tried.running, epoch, lane=lane))  # which changes nothing more
        tried.check()
        for store in tried.running.logged_stores:
            assert tried.content(store) == plain.content(store), store
        assert [tried.registers(lane) for lane in range(3)] == [plain.registers(lane) for lane in range(3)]

    @pytest.mark.parametrize("epoch", [Epoch(1, 0, 5_000), Epoch(4, 3, 5_000)])
    def test_a_lane_that_is_behind_or_cannot_be_rolled_back_that_far_has_to_be_restored(
        self, tmp_path: Path, epoch: Epoch
    ) -> None:
        application, _ = self.applications(tmp_path)
        application.step([])
        application.step([])
        with pytest.raises(StateError, match=f"A lane is at epoch 2, but epoch {epoch.number} follows {epoch.previous}"):
            roll_back_lane(Assignment(application.running, epoch, lane=1))
        application.check()

    def test_a_retry_with_fewer_records_shows_no_trace_of_the_larger_epoch(self, tmp_path: Path) -> None:
        tried, plain = self.applications(tmp_path)
        records = some_records(2, 64, start=3_000)
        for count in (64, 32, 16):
            tried.run(records[:count])
            for lane in range(3):
                roll_back_lane(Assignment(tried.running, Epoch(tried.epoch + 1, tried.epoch, 5_000), lane=lane))
        for application in (tried, plain):
            application.step(records[:8])
            application.step(records[8:])
            application.check()
        assert tried.sent == plain.sent
        assert tried.topics.logs == plain.topics.logs

    def test_the_very_first_epoch_can_be_rolled_back_too(self, tmp_path: Path) -> None:
        application = Application(tmp_path, every_kind_of_store)
        application.start(2)
        application.run(some_records(1, 20))
        for lane in range(2):
            roll_back_lane(Assignment(application.running, Epoch(0, -1, 5_000), lane=lane))
            with open_lane(application.running, lane) as state:
                assert state.epoch == -1
