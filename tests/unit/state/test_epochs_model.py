"""Any sequence of writes, commits, discards, roll-backs and reopenings, in several shards, against plain dictionaries."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from penstock.state import EngineKind, LaneState, OrderedSpace, Register
from penstock.state.bounds import after_prefix
from tests.unit.state.homes import Home, raw

pytestmark = pytest.mark.security(30)

_starts = st.sampled_from([b"", b"a", b"ab", b"\xff", b"c" * 511, b"c" * 600, b"c" * 3000])
keys = st.builds(lambda start, tail: start + tail, _starts, st.binary(max_size=2))
bounds = st.none() | keys
SHARDS = (0, 1, 2**16 - 1)
shards = st.sampled_from(SHARDS)
Model = dict[bytes, bytes]
Models = dict[int, Model]


class EpochsOf(RuleBasedStateMachine):
    kind = EngineKind.MEMORY

    @initialize()
    def enter(self) -> None:
        self.directory = TemporaryDirectory()
        self.home = Home(self.kind, Path(self.directory.name))
        self.now: Models = {shard: {} for shard in SHARDS}
        self.committed: list[tuple[int, Models, dict[int, int]]] = [(-1, copied(self.now), dict.fromkeys(SHARDS, 0))]
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

    @rule()
    def commit(self) -> None:
        epoch = self.lane.epoch + 1
        self.lane.commit(epoch)
        counts = {shard: count.value for shard, count in self.counts.items()}
        self.committed = [self.committed[-1], (epoch, copied(self.now), counts)]

    @rule()
    def discard(self) -> None:
        self.lane.discard()
        self.back_to_committed()

    @rule()
    def reopen(self) -> None:
        self.open()
        self.back_to_committed()

    @precondition(lambda self: len(self.committed) == 2)
    @rule()
    def roll_back(self) -> None:
        self.lane.discard()
        self.lane.roll_back()
        del self.committed[1]
        self.back_to_committed()

    @rule()
    def view(self) -> None:
        for epoch, content, counts in self.committed:
            if epoch >= 0 or len(self.committed) == 2:
                before = self.lane.read_committed(epoch)
                for shard in SHARDS:
                    assert dict(before.shard(shard).store(raw()).scan()) == content[shard]
                    assert count_of(before, shard).value == counts[shard]

    def back_to_committed(self) -> None:
        epoch, content, counts = self.committed[-1]
        self.now = copied(content)
        assert (self.lane.epoch, {shard: count.value for shard, count in self.counts.items()}) == (epoch, counts)
        for shard, store in self.stores.items():
            assert list(store.scan()) == sorted(content[shard].items())
        self.lane.verify()

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
