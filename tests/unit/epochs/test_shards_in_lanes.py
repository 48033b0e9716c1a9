"""Results depend neither on the number of lanes, nor on its changes, nor on the encoding of keys."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import (
    EmitStrategy,
    Processor,
    Record,
    Store,
    StreamsBuilder,
    Topology,
    key_value_store,
    otherwise,
    tumbling,
)
from penstock.epochs.hops import INPUT
from penstock.epochs.in_process import run_epoch
from penstock.epochs.program import Epoch
from penstock.epochs.shards import lane_of, shard_of
from penstock.epochs.state_directory import StateDirectory
from penstock.epochs.wire import Kind, decode_control
from penstock.testing import TopologyTestDriver
from penstock.topology import SourceNode
from tests.unit.epochs.application import (
    ID,
    SHARDS,
    Application,
    Raw,
    SentRow,
    by_key,
    driven,
    far_future,
    keys_of_shards,
    program_of,
    some_records,
)


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def number(value: bytes | None) -> int:
    return int.from_bytes(value or b"", "big")


class TestKeysInOtherBytes:
    """A key belongs to one shard, whatever its producer has written for it: `json.dumps` puts blanks in, our serde does not."""

    @staticmethod
    def counted() -> Topology:
        builder = StreamsBuilder()
        builder.stream("in", key=dict, value=str).group_by_key().count(store="counts").to_stream().to("out", value=int)
        return builder.build()

    @pytest.mark.parametrize("dump", [json.dumps, compact])
    @pytest.mark.parametrize("lanes", [(2, 4), (4, 2), (1, 8, 3)])
    def test_counts_go_on_when_lanes_change(self, tmp_path: Path, lanes: tuple[int, ...], dump: Callable[[Any], str]) -> None:
        app = Application(tmp_path, self.counted)
        for turn, count in enumerate(lanes, 1):
            app.start(count)
            sent = len(app.sent)
            app.step([Raw(dump({"u": user}).encode(), b"x", turn * 1_000 + user) for user in range(60)])
            assert [number(value) for _, _, value, _ in app.sent[sent:]] == [turn] * 60
        app.check()

    def test_two_encodings_of_a_key_are_one_key(self, tmp_path: Path) -> None:
        app = Application(tmp_path, self.counted)
        app.start(4)
        users = [{"u": user} for user in range(20)]
        app.step([Raw(dump(user).encode(), b"x", 0) for user in users for dump in (json.dumps, compact)])
        assert [number(value) for _, _, value, _ in app.sent] == [1, 2] * 20
        assert len(app.content("counts")) == 20

    @pytest.mark.parametrize("lanes", [1, 2, 4, 8])
    @pytest.mark.parametrize("dump", [json.dumps, compact])
    def test_a_foreign_key_join_finds_both_sides(self, tmp_path: Path, lanes: int, dump: Callable[[Any], str]) -> None:
        builder = StreamsBuilder()
        orders = builder.table("orders", key=dict, value=dict)
        customers = builder.table("customers", key=str, value=str)
        joined = orders.join(customers, _of_customer, on=_customer, value=str)
        joined.to_stream().to("out")
        topology = builder.build()
        records = [("customers", f"c{n}".encode(), f"name{n}".encode()) for n in range(5)]
        records += [
            ("orders", dump({"t": f"x{n * 7}", "u": n}).encode(), compact({"c": f"c{n % 5}", "n": n}).encode()) for n in range(60)
        ]
        with TopologyTestDriver(topology, caching=False) as driver:
            for at, (topic, key, value) in enumerate(records):
                driver.pipe_raw(topic, key, value, at, ())
            expected = sorted(value for value in driver.output("out").values())
        sent, dropped = ran_at_once(tmp_path, topology, lanes, records)
        assert (sorted(value.decode() for value in sent), dropped) == (expected, [])
        assert len(expected) == 60


def _customer(order: dict[str, Any]) -> str:
    return str(order["c"])


def _of_customer(order: dict[str, Any], name: str) -> str:
    return f"{order['n']} for {name}"


def ran_at_once(
    directory: Path, topology: Topology, lanes: int, records: Iterable[tuple[str, bytes, bytes]]
) -> tuple[list[bytes], list[Any]]:
    """The values that one epoch sends, and what it drops; every topic has one partition."""
    program = program_of(topology, lanes=lanes, directory=str(directory))
    StateDirectory(program.directory, ID).take_over(program.incarnation)
    sources = [(code, program.nodes[name]) for code, name in enumerate(program.sources)]
    code_of = {topic: code for code, node in sources if isinstance(node, SourceNode) for topic in node.topics}
    origins = sorted({topic for topic, _, _ in records})
    rows = [
        {"name": code_of[topic], "origin": origins.index(topic), "offset": at, "timestamp": at, "key": key, "value": value}
        for at, (topic, key, value) in enumerate(records)
    ]
    epoch = Epoch(0, -1, 1, tuple((topic, 0) for topic in origins), (-1,) * len(origins))
    out = run_epoch(program, epoch, [pa.RecordBatch.from_pylist(rows, schema=INPUT)]).to_pylist()
    controls = [decode_control(row["value"]) for row in out if row["kind"] == Kind.CONTROL]
    sent = [row["value"] for row in out if row["kind"] == Kind.SINK and row["value"] is not None]
    return sent, [drop for control in controls for drop in control.dropped]


class CountPairs(Processor[str, str, str, str]):
    """Counts under arbitrary keys: the record's key and value."""

    def process(self, record: Record[str, str]) -> None:
        seen = self.context.store("seen")
        pair = f"{record.key}|{record.value}"
        seen[pair] = count = (seen.get(pair) or 0) + 1
        self.context.forward(record.with_value(f"{pair}={count}"))


def counted_pairs() -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(key_value_store("seen", key=str, value=int))
    builder.stream("in", key=str, value=str).process(CountPairs, stores=["seen"], key=str, value=str).to("out")
    return builder.build()


class TestKeysOfAProcessorsOwn:
    """They belong to the shard whose records put them, and stay there."""

    PAIRS = tuple((b"u%d" % user, b"i%d" % item) for user in range(20) for item in range(3))

    def wrong(self, app: Application) -> Counter[str]:
        """An epoch that counts every pair once more; those whose count is not what it should be."""
        sent = len(app.sent)
        app.step([Raw(user, item, app.epoch + 1) for user, item in self.PAIRS])
        counts = dict((value or b"").decode().split("=") for _, _, value, _ in app.sent[sent:])
        assert len(counts) == len(self.PAIRS)
        return Counter(pair for pair, count in counts.items() if int(count) != app.epoch + 1)

    @pytest.mark.parametrize("lanes", [(2, 2, 2), (2, 4), (4, 2), (2, 4, 2), (1, 8, 3)])
    def test_counts_go_on_when_lanes_change(self, tmp_path: Path, lanes: tuple[int, ...]) -> None:
        app = Application(tmp_path, counted_pairs)
        for count in lanes:
            app.start(count)
            assert not self.wrong(app)
            assert not self.wrong(app)
        app.check()

    @pytest.mark.parametrize("lanes", [(4, 2), (2, 4)])
    def test_old_counts_do_not_come_back_with_a_rebuild(self, tmp_path: Path, lanes: tuple[int, int]) -> None:
        app = Application(tmp_path, counted_pairs)
        for count in lanes:
            app.start(count)
            assert not self.wrong(app)
            assert not self.wrong(app)
        assert {restored.found for restored in app.start(lanes[-1], is_retry=True)} == {"rebuilt"}
        assert not self.wrong(app)
        app.check()

    def test_two_shards_of_a_lane_do_not_see_each_others(self, tmp_path: Path) -> None:
        class Shared(Processor[str, str, str, str]):
            def process(self, record: Record[str, str]) -> None:
                calls = self.context.store("seen")
                calls["calls"] = (calls.get("calls") or 0) + 1
                self.context.forward(record.with_value(str(calls["calls"])))

        def make() -> Topology:
            builder = StreamsBuilder()
            builder.add_state_store(key_value_store("seen", key=str, value=int))
            builder.stream("in", key=str, value=str).process(Shared, stores=["seen"], key=str, value=str).to("out")
            return builder.build()

        for lanes in (1, 3, 8):
            app = Application(tmp_path / str(lanes), make)
            app.start(lanes)
            keys = keys_of_shards(b"k")
            app.step([Raw(key, b"x", 0) for key in keys for _ in range(2)])
            assert by_key(app.sent) == {("out", key): [(b"1", 0), (b"2", 0)] for key in keys}
            assert [len(rows) for rows in app.contents_by_shard("seen").values()] == [1] * SHARDS


def closed_windows() -> Topology:
    builder = StreamsBuilder()
    windows = builder.stream("in", key=str, value=str).group_by_key().windowed_by(tumbling("10s", grace="0s"))
    counts = windows.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store=Store("windows", retention="1h"))
    counts.to_stream(lambda key, _: f"{key.key}@{key.start}", key=str).to("out", value=int)
    return builder.build()


class TestTime:
    """Each shard has its own stream time."""

    @staticmethod
    def keys() -> tuple[bytes, bytes]:
        """A key of each of two lanes."""
        found = {lane_of(shard_of(key, SHARDS), SHARDS, 2): key for key in keys_of_shards(b"k")}
        return found[0], found[1]

    @pytest.mark.parametrize("lanes", [(2, 2), (2, 1), (1, 1), (1, 2), (8, 3)])
    def test_every_window_is_emitted_once_when_it_closes(self, tmp_path: Path, lanes: tuple[int, int]) -> None:
        one, other = self.keys()
        app = Application(tmp_path, closed_windows)
        app.start(lanes[0])
        app.step([Raw(other, b"x", 1_000), Raw(one, b"x", 2_000)])
        app.step([Raw(one, b"x", 25_000)])  # the other key's shard has not heard of it
        assert [key for _, key, _, _ in app.sent] == [one + b"@0"]
        app.start(lanes[1])
        app.step([Raw(one, b"x", 60_000), Raw(other, b"x", 61_000)])
        app.step([Raw(one, b"x", 99_000), Raw(other, b"x", 99_500)])
        assert by_key(app.sent) == by_key(driven(app))
        assert {(key, number(value)) for _, key, value, _ in app.sent} == {
            *((one + b"@%d" % start, 1) for start in (0, 20_000, 60_000)),
            *((other + b"@%d" % start, 1) for start in (0, 60_000)),
        }

    @pytest.mark.parametrize("lanes", [1, 2, 8])
    def test_what_is_late_in_one_shard_is_not_in_another(self, tmp_path: Path, lanes: int) -> None:
        one, other = self.keys()
        app = Application(tmp_path, closed_windows)
        app.start(lanes)
        app.step([Raw(one, b"x", 90_000), Raw(other, b"x", 1_000), Raw(one, b"x", 1_000)])
        app.step([Raw(other, b"x", 90_000)])
        assert [(key, number(value)) for _, key, value, _ in app.sent] == [(other + b"@0", 1)]

    @pytest.mark.parametrize("lanes", [1, 2])
    def test_it_is_that_of_all_stages_of_a_sub_topology(self, tmp_path: Path, lanes: int) -> None:
        """Records that reach a shard through an exchange move the time of processors before the exchange, too."""
        one, other = self.keys()
        app = Application(tmp_path, told_the_time)
        app.start(lanes)
        app.step([Raw(one, other, 8)])
        app.step([Raw(other, other, 7)])
        assert [value for topic, _, value, _ in app.sent if topic == "times"] == [b"8", b"8"]

    @pytest.mark.parametrize("is_lost", [False, True])
    def test_records_that_wait_for_a_join_leave_as_if_lanes_had_never_changed(self, tmp_path: Path, is_lost: bool) -> None:
        app = Application(tmp_path / "state", left_join)
        records = some_records(seed=11, count=120)
        for turn, lanes in enumerate((2, 5, 1, 8)):
            if is_lost and turn:
                shutil.rmtree(app.lane_directory(0).parent)
            app.start(lanes)
            app.check()
            app.step(records[turn * 30 : turn * 30 + 30])
        app.step(far_future())
        assert by_key(app.sent) == by_key(driven(app))
        assert any(b"None" in (value or b"") for _, _, value, _ in app.sent)


class TellTime(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_value(str(self.context.current_stream_time_ms())))


def told_the_time() -> Topology:
    """A stream joined with itself re-keyed: the processor is in the first stage, the join in both."""
    builder = StreamsBuilder()
    source = builder.stream("in", key=str, value=str)
    told = source.select_key(lambda _, value: value, key=str).process(TellTime, key=str, value=str)
    told.to("times", value=str)
    told.join(source, _both, within="5ms", grace="10ms", value=str, other_value=str).to("out", value=str)
    return builder.build()


def left_join() -> Topology:
    builder = StreamsBuilder()
    several, one = builder.stream("in", key=str, value=str).split(lambda _, value: " " in value, otherwise)
    joined = several.left_join(one, _both, within="200ms", grace="0s", value=str, other_value=str)
    joined.to("out", value=str)
    return builder.build()


def _both(left: str, right: str | None) -> str:
    return f"{left}+{right}"


def counted_and_rekeyed() -> Topology:
    """A branch with state, and one that goes straight to a sink under another key."""
    builder = StreamsBuilder()
    orders = builder.stream("in", key=str, value=str)
    orders.group_by_key().count(store="per-order").to_stream().to("counts", value=int)
    orders.select_key(lambda _, value: value.split(":")[0], key=str).to("by-customer", value=str)
    return builder.build()


class TestSinkOrder:
    """The results of one source partition reach a sink in its order."""

    @pytest.mark.parametrize("lanes", [1, 2, 4, 8])
    @pytest.mark.parametrize("size", [5, 40])
    def test_of_a_branch_beside_one_with_state(self, tmp_path: Path, lanes: int, size: int) -> None:
        app = Application(tmp_path, counted_and_rekeyed)
        app.start(lanes)
        records = [Raw(b"order-%d" % n, b"ann:%d" % n, 1_000 + (n * 7) % 11) for n in range(40)]
        for first in range(0, len(records), size):
            app.step(records[first : first + size])
        assert sent_to(app.sent, "by-customer") == [record.value for record in records]
        assert len({shard_of(record.key or b"", SHARDS) for record in records}) == SHARDS

    @pytest.mark.parametrize("lanes", [1, 4])
    def test_of_what_went_through_an_exchange(self, tmp_path: Path, lanes: int) -> None:
        def make() -> Topology:
            builder = StreamsBuilder()
            words = builder.stream("in", key=str, value=str).flat_map_values(str.split)
            counts = words.group_by(lambda _, word: word).count(store="words").to_stream()
            counts.select_key(lambda *_: "all", key=str).to("out", value=int)
            return builder.build()

        app = Application(tmp_path, make)
        app.start(lanes)
        records = some_records(seed=2, count=60)
        app.step(records)
        seen: Counter[str] = Counter()
        expected = []
        for record in records:
            for word in (record.value or b"").decode().split():
                seen[word] += 1
                expected.append(seen[word])
        assert [number(value) for value in sent_to(app.sent, "out")] == expected


def sent_to(sent: Iterable[SentRow], topic: str) -> list[bytes | None]:
    return [value for name, _, value, _ in sent if name == topic]


def subscribed() -> Topology:
    """A table that two stages write, joined with another on a foreign key: each row is there early, and then as it was sent."""
    builder = StreamsBuilder()
    right, left = builder.stream("in", key=str, value=str).split(lambda key, _: key.startswith("right"), otherwise)
    moved = left.select_key(lambda key, _: key, key=str).repartition(value=str)
    rows = left.map_values(lambda value: f"{value}-early", value=str).merge(moved).to_table(store=Store("rows", value=str))
    others = right.to_table(store=Store("others", value=str))
    rows.join(others, _both, on=lambda row: row, value=str).to_stream().to("out", value=str)
    return builder.build()


class TestExchangesThatSeveralStagesWrite:
    @pytest.mark.parametrize("lanes", [1, 3])
    def test_the_last_row_is_the_one_that_is_joined(self, tmp_path: Path, lanes: int) -> None:
        app = Application(tmp_path, subscribed)
        app.start(lanes)
        for _ in range(2):
            app.step([Raw(b"a", b"right-1", 1), Raw(b"b", b"right-2", 2)])
        app.step([Raw(b"right-1", b"one", 3), Raw(b"right-2", b"two", 4), Raw(b"right-1-early", b"none", 5)])
        last = {key: rows[-1] for (_, key), rows in by_key(app.sent).items()}
        assert last == {b"a": (b"right-1+one", 3), b"b": (b"right-2+two", 4)}


class TestRecordsWithoutKeys:
    @pytest.mark.parametrize("lanes", [1, 2, 8])
    def test_they_stay_in_their_partitions_shard_through_an_exchange(self, tmp_path: Path, lanes: int) -> None:
        class Number(Processor[Any, str, Any, str]):
            def process(self, record: Record[Any, str]) -> None:
                seen = self.context.store("seen")
                seen["calls"] = count = (seen.get("calls") or 0) + 1
                self.context.forward(record.with_value(f"{record.value} {count}"))

        def make() -> Topology:
            builder = StreamsBuilder()
            builder.add_state_store(key_value_store("seen", key=str, value=int))
            answers = builder.stream("in", key=str, value=str).map_values_async(str.upper, value=str)
            answers.process(Number, stores=["seen"], key=str, value=str).to("out")
            return builder.build()

        app = Application(tmp_path, make)
        app.start(lanes)
        app.step([Raw(None, b"a", 0), Raw(None, b"b", 1)])
        app.step([Raw(None, b"c", 2)])
        assert sent_to(app.sent, "out") == [b"A 1", b"B 2", b"C 3"]
        assert [shard for shard, rows in app.contents_by_shard("seen").items() if rows] == [0]
