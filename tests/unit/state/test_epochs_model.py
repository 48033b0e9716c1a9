"""Any sequence of writes, commits, discards, roll-backs and reopenings, with epochs in flight, against full copies."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.errors import StateError
from penstock.state import EngineKind, LaneState, OrderedSpace, Register, memory_engine
from penstock.state.bounds import after_prefix
from penstock.state.epochs import HEAD, META
from tests.unit.state.homes import Home, raw

pytestmark = pytest.mark.security(30)

_starts = st.sampled_from([b"", b"a", b"ab", b"\xff", b"c" * 511, b"c" * 600, b"c" * 3000])
keys = st.builds(lambda start, tail: start + tail, _starts, st.binary(max_size=2))
bounds = st.none() | keys
SHARDS = (0, 1, 2**16 - 1)
shards = st.sampled_from(SHARDS)
Model = dict[bytes, bytes]
Models = dict[int, Model]


class Written(NamedTuple):
    """A full copy of the lane as a stage of an epoch left it."""

    epoch: int
    stage: int
    content: Models
    counts: dict[int, int]


class EpochsOf(RuleBasedStateMachine):
    kind = EngineKind.MEMORY

    @initialize()
    def enter(self) -> None:
        self.directory = TemporaryDirectory()
        self.home = Home(self.kind, Path(self.directory.name))
        self.now: Models = {shard: {} for shard in SHARDS}
        self.written = [Written(-1, 0, copied(self.now), dict.fromkeys(SHARDS, 0))]
        """The committed epoch, and every step of those in flight."""
        self.open()

    def open(self) -> None:
        self.lane = self.home.lane()
        self.stores: dict[int, OrderedSpace] = {shard: self.lane.shard(shard).store(raw()) for shard in SHARDS}
        self.counts = {shard: count_of(self.lane, shard) for shard in SHARDS}

    @rule(shard=shards, key=keys, value=st.binary(max_size=4))
    def put(self, shard: int, key: bytes, value: bytes) -> None:
        self.stores[shard].put(key, value)
        self.now[shard][key] = value
        self.counts[shard].value += 1

    @rule(shard=shards, key=keys)
    def delete(self, shard: int, key: bytes) -> None:
        self.stores[shard].delete(key)
        self.now[shard].pop(key, None)

    @rule(shard=shards, key=keys)
    def get(self, shard: int, key: bytes) -> None:
        assert self.stores[shard].get(key) == self.now[shard].get(key)

    @rule(shard=shards, lower=bounds, upper=bounds, reverse=st.booleans())
    def scan(self, shard: int, lower: bytes | None, upper: bytes | None, reverse: bool) -> None:
        now = self.now[shard]
        found = [key for key in now if (lower is None or key >= lower) and (upper is None or key < upper)]
        expected = [(key, now[key]) for key in sorted(found, reverse=reverse)]
        assert list(self.stores[shard].scan(lower, upper, reverse)) == expected

    @rule(shard=shards, prefix=keys)
    def scan_prefix(self, shard: int, prefix: bytes) -> None:
        now, store = self.now[shard], self.stores[shard]
        expected = [(key, now[key]) for key in sorted(now) if key.startswith(prefix)]
        assert list(store.prefix_scan(prefix)) == expected
        assert list(store.scan(prefix, after_prefix(prefix), reverse=True)) == expected[::-1]
        assert store.approximate_num_entries() == len(now)

    @rule(shard=shards, lower=bounds, reverse=st.booleans(), times=st.integers(1, 12))
    def take_off_one_end(self, shard: int, lower: bytes | None, reverse: bool, times: int) -> None:
        now, store = self.now[shard], self.stores[shard]
        for _ in range(times):
            within = sorted(key for key in now if lower is None or key >= lower)
            first = next(store.scan(lower, None, reverse), None)
            assert first == ((within[-1 if reverse else 0], now[within[-1 if reverse else 0]]) if within else None)
            if first is not None:
                store.delete(first[0])
                del now[first[0]]

    @rule(shard=shards, number=st.integers(10, 30))
    def put_many(self, shard: int, number: int) -> None:
        for key in range(number):
            self.put(shard, b"many-%02d" % key, b"1")

    @rule(gap=st.integers(1, 2), in_flight=st.none() | st.integers(0, 3))
    def commit(self, gap: int, in_flight: int | None) -> None:
        epochs = self.epochs()
        committed = epochs[max(0, len(epochs) - 1 - (in_flight or 0))]
        epoch = epochs[-1] + gap
        self.lane.commit(epoch, committed=None if in_flight is None else committed)
        self.written = self.written[max(place for place, written in enumerate(self.written) if written.epoch <= committed) :]
        self.note(epoch, 0)

    @precondition(lambda self: len(self.written) > 1)
    @rule(gap=st.integers(1, 2))
    def commit_stage(self, gap: int) -> None:
        epoch, stage = self.written[-1].epoch, self.written[-1].stage + gap
        self.lane.commit(epoch, stage, committed=self.written[0].epoch)
        self.note(epoch, stage)

    @rule(shard=shards, key=keys, times=st.integers(2, 4), stages=st.booleans())
    def change_a_key_in_several_epochs(self, shard: int, key: bytes, times: int, stages: bool) -> None:
        for number in range(times):
            self.put(shard, key, b"%d" % number)
            self.commit(1, times)
            if stages:
                self.put(shard, key, b"%d again" % number)
                self.commit_stage(1)

    def note(self, epoch: int, stage: int) -> None:
        counts = {shard: count.value for shard, count in self.counts.items()}
        self.written.append(Written(epoch, stage, copied(self.now), counts))
        self.check_views()

    def epochs(self) -> list[int]:
        return list(dict.fromkeys(written.epoch for written in self.written))

    @rule()
    def discard(self) -> None:
        self.lane.discard()
        self.back_to_written()

    @rule()
    def reopen(self) -> None:
        self.open()
        self.back_to_written()

    @precondition(lambda self: len(self.written) > 1)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        self.lane.discard()
        first = data.draw(st.integers(1, len(self.written) - 1))
        self.lane.roll_back(self.written[first].epoch, self.written[first].stage)
        del self.written[first:]
        self.back_to_written()

    @rule()
    def roll_back_too_far(self) -> None:
        self.lane.discard()
        for epoch in {self.written[0].epoch, -1}:
            with pytest.raises(StateError, match=f"epoch {epoch} cannot be taken back"):
                self.lane.roll_back(epoch)
        self.back_to_written()

    def check_views(self) -> None:
        as_of = {written.epoch: written for written in self.written}
        for epoch in range(max(as_of) + 2):
            if epoch not in as_of:
                with pytest.raises(StateError, match=f"cannot be read as of epoch {epoch}"):
                    self.lane.read_committed(epoch)
        for epoch, written in as_of.items():
            before = self.lane.read_committed(epoch)
            for shard in SHARDS:
                assert dict(before.shard(shard).store(raw()).scan()) == written.content[shard]
                assert count_of(before, shard).value == written.counts[shard]

    @rule()
    def copy(self) -> None:
        engine = memory_engine()
        self.lane.copy(engine)
        copy = LaneState(engine)
        copy.verify()
        assert (copy.epoch, copy.earliest) == (self.lane.epoch, self.lane.epoch)
        assert all(key == HEAD for key, _ in engine.scan(META, None, None))

    @invariant()
    def only_epochs_in_flight_have_undo_data(self) -> None:
        keys = [key.split(b"/") for key, _ in self.lane._engine.scan(META, b"undo/", None)]
        steps = {(written.epoch, written.stage) for written in self.written[1:]}
        assert {(int(epoch), int(stage)) for _, epoch, stage, *_ in keys} <= steps

    def back_to_written(self) -> None:
        epoch, _, content, counts = self.written[-1]
        self.now = copied(content)
        assert (self.lane.epoch, {shard: count.value for shard, count in self.counts.items()}) == (epoch, counts)
        assert self.lane.earliest == self.written[0].epoch
        for shard, store in self.stores.items():
            assert list(store.scan()) == sorted(content[shard].items())
        self.lane.verify()
        self.check_views()

    def teardown(self) -> None:
        self.home.leave()
        self.directory.cleanup()


class EpochsOfLmdb(EpochsOf):
    kind = EngineKind.LMDB


class EpochsOfRocksDb(EpochsOf):
    kind = EngineKind.ROCKSDB


def copied(models: Models) -> Models:
    return {shard: dict(model) for shard, model in models.items()}


def count_of(lane: LaneState, shard: int) -> Register:
    return lane.shard(shard).registers.register("count", 0)


_calm = settings(deadline=None, stateful_step_count=30, suppress_health_check=[HealthCheck.too_slow])
TestInMemory = EpochsOf.TestCase
TestInMemory.settings = settings(_calm, max_examples=40)
TestOnLmdb = EpochsOfLmdb.TestCase
TestOnLmdb.settings = settings(_calm, max_examples=40)
TestOnRocksDb = EpochsOfRocksDb.TestCase
TestOnRocksDb.settings = settings(_calm, max_examples=8)
