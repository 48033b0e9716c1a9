"""What a slot writes, in which order, and what it leaves to the driver."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from penstock.config import Config
from penstock.engines import writing
from penstock.engines.carrier import Carrier, Errand
from penstock.engines.requests import RowsRequest
from penstock.engines.writing import WriteRows, WriteStage, shared_publisher, write, written_in
from penstock.epochs.in_process import collected
from penstock.epochs.program import Epoch, Program
from penstock.epochs.wire import OUT, Kind, decode_control
from penstock.errors import CommitError, FencedError, PenstockError, ProductionError
from penstock.handlers import ErrorHandlers, log_and_continue
from penstock.kafka.writers.batches import Identity
from penstock.kafka.writers.publisher import Writing
from penstock.kafka.writers.transactions import Shared, Transactions
from penstock.kafka.writers.writer import Writer
from penstock.records import Partition
from tests.unit.epochs.application import Application

SHARED = Shared(Identity("app", 1, 2), frozenset({("out", 0)}))


class Noted:
    """A writer that notes what it is given."""

    def __init__(self) -> None:
        self.rows: dict[Partition, list[Any]] = {}
        self.identity: Identity | None = None
        self.opened: Collection[Partition] = ()

    def write(self, identity: Identity, rows: Mapping[Partition, pa.Table], opened: Collection[Partition] = ()) -> None:
        self.identity, self.opened = identity, opened
        self.rows = {place: own.column("value").to_pylist() for place, own in rows.items()}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Application(tmp_path).program(1, "i")


def table(*rows: dict[str, Any]) -> pa.Table:
    defaults = {"kind": int(Kind.SINK), "stage": 0, "timestamp": 1, "origin": 0, "place": 0, "path": 0}
    return pa.Table.from_pylist([{**defaults, **row} for row in rows], schema=OUT)


def written(program: Program, rows: pa.Table, largest: int = 10_000) -> tuple[Noted, pa.Table]:
    writer = Noted()
    limits = dict.fromkeys(program.topics, largest)
    return writer, write(program, cast("Writer", writer), SHARED, limits, rows)


def sink(program: Program) -> int:
    return len(program.topics) - 1


def test_rows_are_written_in_the_order_of_their_causes(program: Program) -> None:
    code = sink(program)
    rows = table(*({"name": code, "partition": 1, "offset": at, "value": b"%d" % at} for at in (2, 0, 1)))
    writer, left = written(program, rows)
    assert writer.rows == {(program.topics[code], 1): [b"0", b"1", b"2"]}
    assert (writer.identity, writer.opened) == (SHARED.identity, SHARED.opened)
    assert written_in(left, program.topics) == {(program.topics[code], 1): 3}


def test_the_driver_gets_what_a_task_cannot_write(program: Program) -> None:
    rows = table(
        {"kind": int(Kind.CHANGELOG), "name": 0, "partition": 0, "value": b"change"},
        {"kind": int(Kind.DEAD_LETTER), "name": -1, "topic": "letters", "value": b"letter"},
        {"name": -1, "topic": "chosen", "value": b"chosen"},
        {"name": sink(program), "partition": -8, "value": b"of a topic that has not been counted"},
        {"kind": int(Kind.REPORT), "name": None, "value": b"report"},
    )
    writer, left = written(program, rows)
    assert writer.rows == {(program.topics[0], 0): [b"change"]}
    assert set(left.column("value").to_pylist()[:-1]) == {
        *(b"letter", b"chosen", b"report"),
        b"of a topic that has not been counted",
    }


def test_a_row_that_is_too_large_is_left_out_or_raises(program: Program) -> None:
    code = sink(program)
    rows = table(
        {"name": code, "partition": 0, "offset": 1, "value": b"x" * 1_000},
        {"name": code, "partition": 0, "offset": 2, "value": b"fits"},
    )
    with pytest.raises(ProductionError, match="too large for topic"):
        written(program, rows, largest=500)
    patient = replace(program, handlers=ErrorHandlers(production=log_and_continue()))
    writer, left = written(patient, rows, largest=500)
    assert writer.rows == {(program.topics[code], 0): [b"fits"]}
    assert decode_control(left.column("value")[-1].as_py()).left_out == 1


def test_a_task_without_rows_reports_nothing_written(program: Program) -> None:
    writer, left = written(program, table())
    assert writer.rows == {}
    assert written_in(left, program.topics) == {}


class Begun:
    """Transactions that note what is done with them."""

    def __init__(self) -> None:
        self.begun = self.aborted = 0
        self.is_open = False
        self.rows: dict[Partition, int] = {}

    def begin(self) -> Shared:
        self.begun += 1
        self.is_open = True
        return SHARED

    def abort(self) -> None:
        self.aborted += 1
        self.is_open = False

    def wrote(self, rows: Mapping[Partition, int]) -> None:
        self.rows = dict(rows)

    def explained(self, error: FencedError) -> PenstockError:
        return CommitError(f"explained: {error}")


class Here:
    """Slots in this process, by their positions; they note how many rows each gets."""

    def __init__(self, program: Program, failure: Exception | None = None) -> None:
        self.program = program
        self.failure = failure
        self.asked: dict[int, list[int]] = {}

    def slot(self, position: int) -> Any:
        here = self

        class Slot:
            def ask(self, request: Any, batches: Sequence[pa.RecordBatch], deadline: float) -> pa.Buffer:
                if here.failure is not None:
                    raise here.failure
                here.asked.setdefault(position, []).append(sum(batch.num_rows for batch in batches))
                rows = pa.Table.from_batches(request.run(here.program, list(batches)), OUT)
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, OUT) as stream:
                    stream.write_table(rows)
                return sink.getvalue()

        return Slot()

    def write(self, stage: WriteStage, epoch: Epoch, rows: pa.Table, positions: Sequence[int]) -> pa.Table:
        none: Any = None
        carrier = Carrier(self.program, self.slot, 20.0, lambda slot: none)
        try:
            parts = [part.to_batches() for part in stage.sending(epoch).divide(self.program, rows)]

            def carried(request: RowsRequest) -> pa.Table:
                return collected(carrier.run([Errand(*errand) for errand in zip(positions, repeat(request), parts)]), OUT)

            return stage.finish(carried)
        finally:
            carrier.close()


def stage_of(program: Program, transactions: Begun) -> WriteStage:
    made = Writing.of(Config(kafka={"bootstrap.servers": "nowhere:1"}), [])
    return WriteStage(program, cast("Transactions", transactions), made, dict.fromkeys(program.topics, 1_000))


def test_a_stage_begins_a_transaction_and_notes_what_slots_wrote(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, transactions, code = Noted(), Begun(), sink(program)
    monkeypatch.setattr(writing, "_writer", lambda *_: writer)
    rows = table(
        {"name": code, "key": b"foobar", "value": b"by key"}, {"kind": int(Kind.REPORT), "name": None, "value": b"report"}
    )
    epoch = Epoch(1, 0, 0, partitions={program.topics[code]: 10})
    left = Here(program).write(stage_of(program, transactions), epoch, rows, [0])
    assert writer.rows == {(program.topics[code], 6): [b"by key"]}
    assert (transactions.begun, transactions.rows) == (1, {(program.topics[code], 6): 1})
    assert b"report" in left.column("value").to_pylist()
    assert b"by key" not in left.column("value").to_pylist()


def test_the_rows_of_a_partition_go_to_one_slot_and_changes_to_that_of_their_lane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Application(tmp_path).program(4, "i")
    noted: list[Noted] = []

    def writer(*_: object) -> Noted:
        noted.append(Noted())
        return noted[-1]

    monkeypatch.setattr(writing, "_writer", writer)
    sinks = [{"name": sink(program), "partition": at % 3, "offset": at, "value": b"%d" % at} for at in range(9)]
    changes = [{"kind": int(Kind.CHANGELOG), "name": 0, "partition": shard, "value": b"change"} for shard in range(8)]
    here = Here(program)
    here.write(stage_of(program, Begun()), Epoch(1, 0, 0, partitions={}), table(*sinks, *changes), [0, 1, 2, 1])
    partitions = [place for each in noted for place in each.rows]
    assert len(partitions) == len(set(partitions)) == 3 + 8
    lanes = [sorted(at for topic, at in each.rows if topic == program.topics[0]) for each in noted]
    assert sorted(lanes) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert sorted(here.asked) == [0, 1, 2]
    assert sum(sum(rows) for rows in here.asked.values()) == 17
    assert len(here.asked[1]) == 2


def test_a_fenced_slot_is_explained_by_the_driver(program: Program) -> None:
    with pytest.raises(CommitError, match="explained: late"):
        Here(program, FencedError("late")).write(stage_of(program, Begun()), Epoch(1, 0, 0), table(), [0])


def test_what_was_written_of_an_epoch_that_runs_again_is_aborted(program: Program) -> None:
    transactions = Begun()
    stage = stage_of(program, transactions)
    stage.abandon()
    assert transactions.aborted == 0
    transactions.begin()
    stage.abandon()
    stage.abandon()
    assert transactions.aborted == 1


def test_rows_to_write_come_from_no_topic() -> None:
    assert not WriteRows.reads_topics


def test_a_process_has_one_writer(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Any] = []
    monkeypatch.setattr("atexit.register", closed.append)
    monkeypatch.setattr(writing, "_writers", {})
    made = Writing.of(Config(kafka={"bootstrap.servers": "nowhere:1"}), [])
    assert writing._writer(program, made) is writing._writer(program, made)
    other = writing._writer(replace(program, incarnation="other"), made)
    assert list(writing._writers.values()) == [other]
    for close in closed:
        close()


def test_the_publisher_and_the_stage_share_transactions(program: Program) -> None:
    config = Config(kafka={"bootstrap.servers": "nowhere:1"})
    publisher, stage = shared_publisher(config, program, dict.fromkeys(program.topics, 1_000))
    assert stage._transactions is publisher.transactions
    publisher.close()
