"""Timers through stages and lanes: each fires once, in order, whatever happens to epochs, lanes and starts in between."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from penstock import Processor, Record, StreamsBuilder, Timer, Topology, bounded_disorder
from penstock.epochs.shards import shard_of
from penstock.epochs.wire import Kind
from tests.unit.epochs.application import SHARDS, Application, Raw, by_key, driven, far_future


class Obeying(Processor[str, str, str, str]):
    """Executes commands in records: `e 5 x` is event time at 5 under the name x, `p` processing time after 5 ms, `d` deletes."""

    def process(self, record: Record[str, str]) -> None:
        if record.value == "end":
            return
        what, number, name = record.value.split(" ")
        if what == "e":
            self.context.timers.event_time(at=int(number), name=name)
        elif what == "p":
            self.context.timers.processing_time(after=int(number), name=name)
        else:
            self.context.timers.delete(name)

    def on_timer(self, timer: Timer) -> None:
        self.context.forward(timer.record(f"{timer.kind.name} {timer.name} {timer.time}"))


def directly() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", value=str).process(Obeying, name="p").to("fired", key=str, value=str)
    return builder.build()


def by_watermark() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", value=str, watermark=bounded_disorder("1d")).process(Obeying, name="p").to("fired", key=str, value=str)
    return builder.build()


def behind_an_exchange() -> Topology:
    """Timers in the second stage, and what they send counted in the third."""
    builder = StreamsBuilder()
    moved = builder.stream("in", value=str).select_key(lambda key, _: f"{key}!").repartition(key=str, value=str)
    fired = moved.process(Obeying, name="p", key=str, value=str)
    fired.to("fired")
    fired.group_by(lambda _, value: value.split(" ")[0], key=str, value=str).count(store="by-kind").to_stream().to(
        "counts", value=int
    )
    return builder.build()


def some_commands(seed: int, count: int) -> list[Raw]:
    chance = random.Random(seed)
    records = []
    for number in range(count):
        time = number * 10 + chance.randrange(10)
        what = chance.choice(["e", "e", "e", "d"])
        at = max(0, time + chance.randrange(-50, 200))
        records.append(Raw(b"k%d" % chance.randrange(12), f"{what} {at} {chance.choice('xy')}".encode(), time))
    return records


def fed(directory: Path, make: Callable[[], Topology], lanes: int, size: int, seed: int) -> Application:
    """An application that has received commands, and then records that make everything due in every shard."""
    app = Application(directory / "state", make)
    app.start(lanes)
    records = some_commands(seed, count=120) + [Raw(b"end-%d" % number, b"end", 10**9) for number in range(60)]
    for start in range(0, len(records), size):
        app.step(records[start : start + size])
    return app


class TestStreamTime:
    """Without a watermark event-time timers fire as in a test driver of their shard, key by key."""

    @pytest.mark.parametrize(("lanes", "size"), [(1, 200), (2, 7), (5, 1), (5, 40)])
    def test_epochs_of_any_size_on_any_lanes(self, tmp_path: Path, lanes: int, size: int) -> None:
        app = fed(tmp_path, directly, lanes, size, seed=lanes * size)
        expected = by_key(driven(app))
        assert len(expected) > 10
        assert by_key(app.sent) == expected
        app.check()

    @pytest.mark.parametrize(("lanes", "size"), [(2, 7), (5, 40)])
    def test_behind_an_exchange_and_before_another(self, tmp_path: Path, lanes: int, size: int) -> None:
        one, other = (
            fed(tmp_path / name, behind_an_exchange, *cut, seed=1) for name, cut in (("1", (1, 1)), ("2", (lanes, size)))
        )
        fired = [row for row in other.sent if row[0] == "fired"]
        assert by_key(fired) == by_key([row for row in one.sent if row[0] == "fired"])
        assert [value for topic, _, value, _ in other.sent if topic == "counts"][-1] == len(fired).to_bytes(8, "big")

    @pytest.mark.parametrize("seed", range(3))
    def test_retries_restarts_and_other_numbers_of_lanes(self, tmp_path: Path, seed: int) -> None:
        app = Application(tmp_path / "state", directly)
        chance = random.Random(seed)
        records = some_commands(seed, 150)
        lanes = 2
        app.start(lanes)
        while records:
            part, records = records[:11], records[11:]
            if chance.random() < 0.4:
                app.run(part)
            if chance.random() < 0.4:
                if chance.random() < 0.5:
                    shutil.rmtree(app.lane_directory(0).parent)
                app.topics.compact()
                lanes = chance.choice([1, 2, 5])
                app.start(lanes)
            app.step(part)
        app.step(far_future())
        app.step(far_future())
        assert by_key(app.sent) == by_key(driven(app))
        app.check()


class TestWithoutInput:
    def test_lanes_report_when_something_is_due_and_an_empty_epoch_fires_it(self, tmp_path: Path) -> None:
        app = Application(tmp_path / "state", by_watermark)
        app.now_ms, app.watermark = 1_000, 0
        app.start(5)
        app.step([Raw(b"k%d" % number, b"p %d x" % (50 + number), 0) for number in range(10)] + [Raw(b"k1", b"e 70 y", 0)])
        assert (app.due, app.event_due, app.sent) == (1_050, 70, [])
        app.now_ms = 1_052
        app.step([])
        assert sorted(value or b"" for _, _, value, _ in app.sent) == [
            b"PROCESSING_TIME x 1050",
            b"PROCESSING_TIME x 1051",
            b"PROCESSING_TIME x 1052",
        ]
        assert app.due == 1_053
        app.now_ms, app.watermark = 2_000, 70
        app.step([])
        assert (len(app.sent), [app.due, app.event_due]) == (11, [None, None])

    def test_a_topology_without_timers_reports_nothing(self, tmp_path: Path) -> None:
        app = Application(tmp_path / "state")
        app.start(2)
        table = app.run([Raw(b"a", b"x y", 0)])
        said = [row for row in table.to_pylist() if row["kind"] == Kind.CONTROL]
        app.commit([], table)
        assert (said, app.due, app.event_due) == ([], None, None)

    def test_a_restart_knows_what_is_due_before_any_input(self, tmp_path: Path) -> None:
        app = Application(tmp_path / "state", directly)
        app.now_ms = 1_000
        app.start(2)
        app.step([Raw(b"a", b"p 50 x", 0)])
        shutil.rmtree(app.lane_directory(0).parent)
        app.start(5)
        app.step([])
        assert (app.due, app.sent) == (1_050, [])
        app.now_ms = 5_000
        app.step([])
        assert [value for _, _, value, _ in app.sent] == [b"PROCESSING_TIME x 1050"]

    def test_what_timers_send_comes_before_the_records_of_the_epoch(self, tmp_path: Path) -> None:
        app = Application(tmp_path / "state", in_turn)
        app.now_ms = 1_000
        app.start(2)
        app.step([Raw(b"k%d" % number, b"p 5 x", number) for number in range(20)])
        app.now_ms = 2_000
        app.step([Raw(b"k%d" % number, b"d 0 none", 20 + number) for number in range(20)])
        seen = [value or b"" for _, _, value, _ in app.sent]
        assert [value.split()[0] for value in seen] == [b"p"] * 20 + [b"PROCESSING_TIME"] * 20 + [b"d"] * 20


def in_turn() -> Topology:
    """All records of the processor's input and output, under one key, in the order in which they come there."""
    builder = StreamsBuilder()
    stream = builder.stream("in", value=str)
    both = stream.process(Obeying, name="p", key=str, value=str).merge(stream)
    both.select_key(lambda *_: "all").repartition(key=str, value=str).map_values(str).to("turns", key=str, value=str)
    return builder.build()


class Registered(NamedTuple):
    """A timer of the model."""

    kind: str
    time: int


KEYS = [b"a", b"b", b"c", b"d"]
COMMANDS = st.tuples(st.sampled_from(KEYS), st.sampled_from("epd"), st.integers(0, 300), st.sampled_from("xy"))


class Model(RuleBasedStateMachine):
    """Timers of both clocks, with a watermark, compared with a dictionary: crashes and retries must not show."""

    @initialize(lanes=st.sampled_from([1, 2, 5]))
    def begin(self, lanes: int) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="penstock-timers-")
        self.app = Application(Path(self.directory.name) / "state", by_watermark)
        self.app.now_ms, self.app.watermark = 1_000, 0
        self.app.start(lanes)
        self.model: dict[tuple[bytes, str], Registered] = {}

    def teardown(self) -> None:
        if hasattr(self, "app"):
            self.app.check()
            self.directory.cleanup()

    @rule(
        commands=st.lists(COMMANDS, max_size=8),
        clock=st.sampled_from([0, 0, 40, 400, 3_000]),
        watermark=st.sampled_from([0, 0, 40, 400]),
        attempts=st.integers(1, 3),
    )
    def epoch(self, commands: list[tuple[bytes, str, int, str]], clock: int, watermark: int, attempts: int) -> None:
        app = self.app
        app.now_ms += clock
        assert app.watermark is not None
        app.watermark += watermark
        records = [Raw(key, f"{what} {number} {name}".encode(), 0) for key, what, number, name in commands]
        tables = [app.run(records) for _ in range(attempts)]
        app.sent.clear()
        app.commit(records, tables[-1])
        self.check_fired()
        for key, what, number, name in commands:
            if what == "d":
                self.model.pop((key, name), None)
            else:
                self.model[key, name] = (
                    Registered("EVENT_TIME", number) if what == "e" else Registered("PROCESSING_TIME", app.now_ms + number)
                )
        self.check_due()

    @rule()
    def wait_for_what_is_due(self) -> None:
        if self.app.due is not None:
            self.epoch([], max(0, self.app.due - self.app.now_ms), 0, 1)

    @rule(lanes=st.sampled_from([1, 2, 5]), is_lost=st.booleans(), is_under_way=st.booleans())
    def crash(self, lanes: int, is_lost: bool, is_under_way: bool) -> None:
        if is_under_way:
            self.app.run([Raw(b"a", b"p 0 x", 0), Raw(b"b", b"d 0 x", 0)])
        if is_lost:
            shutil.rmtree(self.app.lane_directory(0).parent)
        self.app.topics.compact()
        self.app.start(lanes)

    def check_fired(self) -> None:
        now, watermark = self.app.now_ms, self.app.watermark or 0
        due = {
            (key, name): timer
            for (key, name), timer in self.model.items()
            if timer.time <= (watermark if timer.kind == "EVENT_TIME" else now)
        }
        for timer in due:
            del self.model[timer]
        by_shard: dict[int, list[tuple[bool, int, bytes, str]]] = {}
        for (key, name), (kind, time) in due.items():
            by_shard.setdefault(shard_of(key, SHARDS), []).append((kind == "EVENT_TIME", time, key, name))
        expected = [
            (b"%s" % key, f"{'EVENT_TIME' if is_event else 'PROCESSING_TIME'} {name} {time}".encode())
            for shard in sorted(by_shard)
            for is_event, time, key, name in sorted(by_shard[shard])
        ]
        assert [(key, value) for _, key, value, _ in self.app.sent] == expected

    def check_due(self) -> None:
        for kind, said in (("PROCESSING_TIME", self.app.due), ("EVENT_TIME", self.app.event_due)):
            times = [timer.time for timer in self.model.values() if timer.kind == kind]
            assert (said is None) == (not times)
            assert said is None or said <= min(times)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=12, stateful_step_count=12, deadline=None)
