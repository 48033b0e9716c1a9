"""Shared stores and atomic sections in epochs: any key from any lane, atomically, whatever crashes in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import add
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

from penstock import (
    Processor,
    Record,
    Store,
    StreamsBuilder,
    Timer,
    TimeWindowed,
    Topology,
    Windowed,
    dead_letter,
    faults,
    log_and_continue,
    shared_store,
)
from penstock.epochs import hops
from penstock.epochs.assignment import Assignment
from penstock.epochs.hops import INPUT, from_topics, run_stage
from penstock.epochs.in_process import parts
from penstock.epochs.opened import OpenStores, open_stores
from penstock.epochs.program import Epoch
from penstock.epochs.routes import on_shards
from penstock.epochs.shards import shard_of
from penstock.epochs.wire import WIRE, Kind, out
from penstock.errors import ProcessingError, StateError
from penstock.faults import InjectedFaultError
from penstock.handlers import ErrorHandlers
from penstock.state import EngineKind
from tests.unit.epochs.application import (
    SHARDS,
    Application,
    Raw,
    by_key,
    driven,
    far_future,
    keys_of_shards,
    program_of,
    some_records,
)
from verification.harness.rows import without_reports
from verification.harness.tasks import Tasks

ENGINES = [EngineKind.LMDB, EngineKind.ROCKSDB]


def remember(current: list[str] | None, word: str) -> list[str]:
    return [*(current or []), word][-4:]


class Tell(Processor[str, str, str, str]):
    """Writes to keys that are words of the value."""

    def process(self, record: Record[str, str]) -> None:
        for word in record.value.split():
            self.context.store("told").merge(word, 1)
            self.context.store("told").merge(record.key, 1)
            self.context.store("tellers").compute(word, remember, record.key)
        self.context.forward(record)


def told() -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(shared_store("told", value=int, merge=add))
    builder.add_state_store(shared_store("tellers", value=list[str], operations=[remember], argument=str))
    builder.stream("in", value=str).process(Tell, stores=["told", "tellers"], key=str, value=str).to("out")
    return builder.build()


class Move(Processor[str, str, str, Any]):
    """Moves an amount from the key to each word of the value, while there is any; sends a side output if there is not."""

    def process(self, record: Record[str, str]) -> None:
        held = self.context.store("held")
        for word in record.value.split():
            held.merge(word, 1)
            held.put(record.key, held.get(record.key) - 1 if record.key in held else 12)
            self.context.forward(record.with_value(held.get(word)))
        if held.get(record.key) < 0:
            self.context.side_output("debts", record.with_value(held[record.key]))
        self.context.forward(Record("time", self.context.current_stream_time_ms(), record.timestamp))


def moved() -> Topology:
    """The only stage with state is the section itself."""
    builder = StreamsBuilder()
    builder.add_state_store(shared_store("held", value=int, merge=add))
    results = builder.stream("in", value=str).process_atomically(Move, stores=["held"], value=int, name="move")
    results.to("out")
    results.side_output("debts", value=int).to("debts")
    return builder.build()


def moved_and_counted() -> Topology:
    """As above, with state before and after it."""
    builder = StreamsBuilder()
    builder.add_state_store(shared_store("held", value=int, merge=add))
    words = builder.stream("in", value=str)
    words.group_by(lambda _, value: value).count(store="before").to_stream().to("before", value=int)
    results = words.process_atomically(Move, stores=["held"], value=int, name="move")
    results.group_by_key().count(store="behind").to_stream().to("behind", value=int)
    results.side_output("debts", value=int).to("debts")
    return builder.build()


class Bump(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.store("held").merge(record.key, 1)


class Double(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.store("held").merge(record.key, self.context.store("held").get(record.key) or 0)


def written_in_two_stages() -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(shared_store("held", value=int, merge=add))
    words = builder.stream("in", value=str)
    words.process(Bump, stores=["held"])
    words.process_atomically(Double, stores=["held"])
    return builder.build()


def step_all(app: Application, records: Sequence[Raw], size: int) -> None:
    for first in range(0, len(records), size):
        app.step(records[first : first + size])


@pytest.mark.parametrize(
    ("lanes", "size", "engine"),
    [
        (1, 7, EngineKind.LMDB),
        (2, 1, EngineKind.LMDB),
        (2, 20, EngineKind.ROCKSDB),
        (5, 11, EngineKind.LMDB),
        (5, 97, EngineKind.LMDB),
    ],
)
@pytest.mark.parametrize("make", [told, moved, moved_and_counted])
def test_epochs_and_lanes_make_no_difference(
    tmp_path: Path, make: Callable[[], Topology], lanes: int, size: int, engine: EngineKind
) -> None:
    app = Application(tmp_path, make, engine)
    app.start(lanes)
    step_all(app, some_records(seed=size, count=min(50, 8 * size)), size)
    app.step([])
    app.check()
    assert by_key(app.sent) == by_key(driven(app))


@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_the_last_write_is_last_in_the_changelog(tmp_path: Path, lanes: int) -> None:
    app = Application(tmp_path, written_in_two_stages)
    app.start(lanes)
    step_all(app, some_records(seed=1, count=60), 20)
    app.check()


def written_behind_a_section() -> Topology:
    """Written before the section, in it, and after it, with more stages to follow."""
    builder = StreamsBuilder()
    builder.add_state_store(shared_store("held", value=int, merge=add))
    words = builder.stream("in", value=str)
    results = words.process_atomically(Forward, stores=["held"], value=str)
    results.process(Bump, stores=["held"])
    counts = results.group_by_key().count(store="counts").to_stream()
    counts.group_by(lambda _, count: str(count), value=int).count(store="more")
    counts.group_by(lambda _, count: str(count), value=int).count(store="again").to_stream().repartition(value=int).to("out")
    return builder.build()


class Forward(Double):
    def process(self, record: Record[str, str]) -> None:
        super().process(record)
        self.context.forward(record)


@pytest.mark.parametrize("make", [written_in_two_stages, written_behind_a_section])
def test_the_order_of_blocks_makes_no_difference(tmp_path: Path, make: Callable[[], Topology]) -> None:
    app = Application(tmp_path, make)
    app.start(3)
    for first in range(0, 60, 20):
        records = some_records(seed=first, count=20)
        table = on_shards(Assignment(app.running, next_epoch(app)), from_topics([arriving(app, records)]))
        for stage in range(len(app.running.plan.stages)):
            assigned = Assignment(app.running, next_epoch(app))
            blocks = [run_stage(assigned.at(stage, lane), part) for lane, part in parts(app.running, stage, table)]
            table = pa.concat_tables(reversed(blocks))
        app.commit(records, out(table))
        app.check()


def next_epoch(app: Application) -> Epoch:
    return Epoch(app.epoch + 1, app.epoch, app.now_ms, (("in", 0),), (app.high_time,))


def arriving(app: Application, records: Sequence[Raw]) -> pa.RecordBatch:
    rows = [
        {"name": 0, "origin": 0, "offset": app.position + number, **record._asdict()} for number, record in enumerate(records)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=INPUT)


def test_a_shared_store_is_kept_by_its_whole_keys(tmp_path: Path) -> None:
    """Also where the key is windowed and only a section writes it."""
    serde = TimeWindowed(str, 10_000)
    builder = StreamsBuilder()
    builder.add_state_store(shared_store("held", key=serde, value=int))
    builder.stream("in", value=str).process_atomically(Double, stores=["held"])
    program = program_of(builder.build(), lanes=1)
    keys = [serde.serialize(Windowed("k", start, start + 10_000)) for start in range(0, 100_000, 10_000)]
    assert list(map(program.shard_finder("held"), keys)) == [shard_of(key, SHARDS) for key in keys]


@pytest.mark.parametrize("make", [told, moved, moved_and_counted])
def test_a_start_with_other_lanes_continues_from_the_changelogs(tmp_path: Path, make: Callable[[], Topology]) -> None:
    app = Application(tmp_path, make)
    records = some_records(seed=5, count=60)
    for turn, lanes in enumerate((2, 5, 1, 3)):
        app.start(lanes)
        step_all(app, records[turn * 15 : turn * 15 + 15], 8)
        app.check()
    assert by_key(app.sent) == by_key(driven(app))


def test_a_worker_knows_an_operation_after_the_program_was_packed(tmp_path: Path) -> None:
    """Even one that cannot be imported, as in a notebook: it is pickled with everything that uses it."""

    def twice(current: int | None, argument: int) -> int:
        return 2 * (current or 0) + argument

    class Do(Processor[str, str, str, str]):
        def process(self, record: Record[str, str]) -> None:
            self.context.store("held").compute("x", twice, 1)

    builder = StreamsBuilder()
    builder.add_state_store(shared_store("held", value=int, operations=[max, twice]))
    builder.stream("in", value=str).process(Do, stores=["held"])
    app = Application(tmp_path, builder.build)
    app.start(2)
    app.running = cloudpickle.loads(cloudpickle.dumps(app.running))
    app.step([Raw(b"k", b"", 1)] * 3)
    app.check()
    assert app.content("held") == {b"x": (7).to_bytes(8, "big")}


class TestReading:
    @pytest.mark.parametrize("lanes", [1, 2, 8])  # the two keys are in one lane, or in two
    def test_a_key_of_another_shard_is_as_of_the_last_barrier_and_an_own_one_as_it_is_now(
        self, tmp_path: Path, lanes: int
    ) -> None:
        for engine in ENGINES:
            app = Application(tmp_path / engine.value, asked, engine)
            app.start(lanes)
            app.step([Raw(KEY[0], b"a", 1), Raw(KEY[1], b"b", 2)])
            asks = [(0, 1), (1, 0), (0, 0)]
            # The shard of the first key has written the epoch by the time that the other reads from it.
            app.step([Raw(KEY[0], b"A", 3), Raw(KEY[1], b"B", 4), *(ask(*pair, at=5) for pair in asks)])
            assert [value for _, _, value, _ in app.sent] == [b"b", b"a", ask(0, 0, at=5).value]
            app.step([ask(1, 0, at=6)])
            assert app.sent[-1][2] == ask(0, 0, at=5).value

    @pytest.mark.parametrize("lanes", [1, 2, 8])
    @pytest.mark.parametrize("committed", [0, 1, 2])
    def test_a_key_of_another_shard_is_as_of_the_epoch_before_whatever_is_committed(
        self, tmp_path: Path, lanes: int, committed: int
    ) -> None:
        for engine in ENGINES:
            app = Application(tmp_path / engine.value, asked, engine)
            app.start(lanes)
            app.step([Raw(KEY[0], b"a0", 1), Raw(KEY[1], b"b0", 2)])
            for number in (1, 2):
                app.send([Raw(KEY[0], b"a%d" % number, 3), Raw(KEY[1], b"b%d" % number, 4)])
            for _ in range(committed):
                app.commit_oldest()
            records = [Raw(KEY[0], b"a3", 5), Raw(KEY[1], b"b3", 6), ask(0, 1, at=7), ask(1, 0, at=7)]
            for _ in range(2):  # the second attempt finds lanes that have written the first
                sent = [row["value"] for row in app.run(records).to_pylist() if row["kind"] == Kind.SINK]
                assert sent == [b"b2", b"a2"]
            with open_stores(app.running, Epoch(3, 2, 0), own=()) as stores:  # as a task of another lane does
                words = stores.owner_before(KEY[0]).store(app.running.specs["words"])
                assert words.get(KEY[0].decode()) == "a2"

    def test_a_lane_that_cannot_be_read_fails_the_epoch_not_the_record(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object) -> None:
            raise StateError("the disk is gone")

        app = Application(tmp_path, asked, handlers=ErrorHandlers(processing=log_and_continue()))
        app.start(2)
        monkeypatch.setattr(OpenStores, "_lane_before", broken)
        with pytest.raises(
            ProcessingError, match=r"cannot read key 'k-.*' of store 'words' in another shard: StateError: the disk"
        ):
            app.run([ask(0, 1, at=1)])

    def test_nothing_was_committed_before_the_first_epoch(self, tmp_path: Path) -> None:
        app = Application(tmp_path, asked)
        app.take_over(2)  # and no lane has files yet
        app.step([Raw(KEY[0], b"A", 1), Raw(KEY[1], b"B", 1), ask(0, 1, at=2), ask(1, 0, at=2)])
        assert [value for _, _, value, _ in app.sent] == [b"nothing", b"nothing"]


KEY = [keys_of_shards(b"k")[0], keys_of_shards(b"k")[7]]
"""Keys of two shards, the first and the last."""


def ask(asking: int, asked: int, at: int) -> Raw:
    return Raw(KEY[asking], b"get " + KEY[asked], at)


class Ask(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        if record.value.startswith("get "):
            found = self.context.store("words").get(record.value[4:])
            self.context.forward(record.with_value(found or "nothing"))


def asked() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("in", value=str)
    words.to_table(store=Store("words", shared=True))
    words.process(Ask, stores=["words"], key=str, value=str).to("out")
    return builder.build()


class Remind(Processor[str, str, str, str]):
    """Counts elsewhere, a second of event time later."""

    def process(self, record: Record[str, str]) -> None:
        self.context.timers.event_time(after="1s", name=record.value)

    def on_timer(self, timer: Timer) -> None:
        for word in timer.name.split():
            self.context.store("told").merge(word, 1)


@pytest.mark.parametrize("lanes", [1, 3])
def test_timers_write_other_keys_too(tmp_path: Path, lanes: int) -> None:
    def reminded() -> Topology:
        builder = StreamsBuilder()
        builder.add_state_store(shared_store("told", value=int, merge=add))
        builder.stream("in", value=str).process(Remind, stores=["told"], name="remind")
        return builder.build()

    app = Application(tmp_path, reminded)
    app.start(lanes)
    step_all(app, [*some_records(seed=8, count=60), *far_future()], 21)
    app.check()
    with Tasks(app.topology, SHARDS, caching=False) as tasks:
        for record in app.input:
            tasks.pipe_raw("in", *record, ())
        stores = [state.store(app.running.specs["told"]) for state in tasks.states()]
        told = {word.encode(): count.to_bytes(8, "big") for store in stores for word, count in store.items()}
    assert app.content("told") == told
    assert len(told) > 5


class TestCrashes:
    @pytest.mark.parametrize("restarts", [False, True], ids=["task again", "started anew"])
    @pytest.mark.parametrize(
        ("make", "point", "hit"),
        [
            (moved, "serial.before_write", 1),
            (moved, "serial.between_lanes", 1),
            (moved_and_counted, "serial.between_lanes", 2),
            (moved_and_counted, "serial.between_lanes", 4),
        ],
    )
    def test_a_section_that_dies_happens_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[], Topology], point: str, hit: int, restarts: bool
    ) -> None:
        app = Application(tmp_path, make)
        app.start(5)
        records = some_records(seed=9, count=40)
        app.step(records[:20])
        monkeypatch.setattr(faults, "point", dies_at(point, hit))
        with pytest.raises(InjectedFaultError, match=point):
            app.run(records[20:])
        monkeypatch.setattr(faults, "point", lambda name: None)
        if restarts:
            app.start(5)
        app.step(records[20:])
        app.check()
        assert by_key(app.sent) == by_key(driven(app))

    def test_a_retried_task_rolls_back_its_writes_in_every_lane(self, tmp_path: Path) -> None:
        app = Application(tmp_path, moved_and_counted)
        app.start(3)
        app.step(some_records(seed=1, count=10))
        records = some_records(seed=2, count=20)
        assigned = Assignment(app.running, next_epoch(app))
        table = on_shards(assigned, from_topics([arriving(app, records)]))
        for stage in range(len(app.running.plan.stages)):
            split = parts(app.running, stage, table)
            hops = [[run_stage(assigned.at(stage, lane), part) for lane, part in split] for _ in range(2)]
            assert list(map(without_reports, hops[0])) == list(map(without_reports, hops[1]))
            table = pa.concat_tables(hops[1])
        app.commit(records, out(table))
        app.check()
        expected = Application(tmp_path / "once", moved_and_counted)
        expected.start(3)
        expected.step(some_records(seed=1, count=10))
        expected.step(records)
        assert app.content("held") == expected.content("held")


def dies_at(point: str, hit: int) -> Callable[[str], None]:
    hits: list[str] = []

    def passing(name: str) -> None:
        hits.append(name)
        if name == point and hits.count(point) == hit:
            raise InjectedFaultError(f"fault point {name}")

    return passing


class TestTheSerialStage:
    def test_only_the_first_lanes_task_works(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        app = Application(tmp_path, moved)
        app.start(3)
        monkeypatch.setattr(hops, "open_lane", None)
        [serial] = [stage.depth for stage in app.running.plan.stages if stage.is_serial]
        epoch = Epoch(0, -1, app.now_ms, (("in", 0),), (-1,))
        passing = pa.Table.from_pylist([{"shard": 2, "kind": 1, "name": 1, "key": b"k"}], schema=WIRE)
        assert run_stage(Assignment(app.running, epoch, serial, 2), passing) == passing

    def test_without_records_no_lane_is_opened_that_an_earlier_stage_has_brought_here(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app = Application(tmp_path, moved_and_counted)
        app.start(3)
        monkeypatch.setattr(faults, "point", dies_at("serial.before_write", 1))
        app.step([])
        app.check()

    def test_its_stream_time_is_not_the_first_shards(self, tmp_path: Path) -> None:
        app = Application(tmp_path, moved)
        app.start(2)
        app.step([Raw(KEY[1], b"a", 5_000)])
        clocks = [{name: time for name, time in shard.items() if "stream time" in name} for shard in app.all_registers()]
        assert clocks == [{"move-section-source/stream time move-section-source": 5_000}, *[{}] * (SHARDS - 1)]

    def test_a_failed_section_leaves_nothing_in_any_lane(self, tmp_path: Path) -> None:
        class Fail(Move):
            def process(self, record: Record[str, str]) -> None:
                super().process(record)
                if record.value.endswith("7"):
                    raise ValueError("no sevens")

        def failing() -> Topology:
            builder = StreamsBuilder()
            builder.add_state_store(shared_store("held", value=int, merge=add))
            results = builder.stream("in", value=str).process_atomically(Fail, stores=["held"], value=int)
            results.to("out")
            results.side_output("debts", value=int).to("debts")
            return builder.build()

        def passing() -> Topology:
            builder = StreamsBuilder()
            builder.add_state_store(shared_store("held", value=int, merge=add))
            fine = builder.stream("in", value=str).filter(lambda _, value: not value.endswith("7"))
            results = fine.process_atomically(Move, stores=["held"], value=int)
            results.to("out")
            results.side_output("debts", value=int).to("debts")
            return builder.build()

        records = [record._replace(timestamp=9) for record in some_records(seed=4, count=60)]
        apps = []
        for number, make in enumerate((failing, passing)):
            app = Application(tmp_path / str(number), make, handlers=ErrorHandlers(processing=dead_letter("dead")))
            app.start(3)
            step_all(app, records, 25)
            app.check()
            apps.append(app)
        ours, theirs = ([row for row in app.sent if row[0] != "dead"] for app in apps)
        assert ours == theirs
        assert apps[0].content("held") == apps[1].content("held")
        letters = sum(row[0] == "dead" for row in apps[0].sent)
        assert letters == sum((record.value or b"").endswith(b"7") for record in records) > 1
