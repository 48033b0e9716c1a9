"""Any sequence of writes, commits, discards, roll-backs and reopenings, against a plain dictionary."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from penstock.state import EngineKind
from penstock.state.bounds import after_prefix
from tests.unit.state.homes import Home, raw

pytestmark = pytest.mark.security(30)

_starts = st.sampled_from([b"", b"a", b"ab", b"\xff", b"c" * 511, b"c" * 600, b"c" * 3000])
keys = st.builds(lambda start, tail: start + tail, _starts, st.binary(max_size=2))
bounds = st.none() | keys
Model = dict[bytes, bytes]


class EpochsOf(RuleBasedStateMachine):
    kind = EngineKind.MEMORY

    @initialize()
    def enter(self) -> None:
        self.directory = TemporaryDirectory()
        self.home = Home(self.kind, Path(self.directory.name))
        self.lane = self.home.lane()
        self.store = self.lane.store(raw())
        self.count = self.lane.registers.register("count", 0)
        self.now: Model = {}
        self.committed: list[tuple[int, Model, int]] = [(-1, {}, 0)]

    @rule(key=keys, value=st.binary(max_size=4))
    def put(self, key: bytes, value: bytes) -> None:
        self.store.put(key, value)
        self.now[key] = value
        self.count.value += 1

    @rule(key=keys)
    def delete(self, key: bytes) -> None:
        self.store.delete(key)
        self.now.pop(key, None)

    @rule(key=keys)
    def get(self, key: bytes) -> None:
        assert self.store.get(key) == self.now.get(key)

    @rule(lower=bounds, upper=bounds, reverse=st.booleans())
    def scan(self, lower: bytes | None, upper: bytes | None, reverse: bool) -> None:
        found = [key for key in self.now if (lower is None or key >= lower) and (upper is None or key < upper)]
        expected = [(key, self.now[key]) for key in sorted(found, reverse=reverse)]
        assert list(self.store.scan(lower, upper, reverse)) == expected

    @rule(prefix=keys)
    def scan_prefix(self, prefix: bytes) -> None:
        expected = [(key, self.now[key]) for key in sorted(self.now) if key.startswith(prefix)]
        assert list(self.store.prefix_scan(prefix)) == expected
        assert list(self.store.scan(prefix, after_prefix(prefix), reverse=True)) == expected[::-1]

    @rule(lower=bounds, reverse=st.booleans(), times=st.integers(1, 12))
    def take_off_one_end(self, lower: bytes | None, reverse: bool, times: int) -> None:
        for _ in range(times):
            within = sorted(key for key in self.now if lower is None or key >= lower)
            first = next(self.store.scan(lower, None, reverse), None)
            assert first == ((within[-1 if reverse else 0], self.now[within[-1 if reverse else 0]]) if within else None)
            if first is not None:
                self.store.delete(first[0])
                del self.now[first[0]]

    @rule(number=st.integers(10, 30))
    def put_many(self, number: int) -> None:
        for key in range(number):
            self.put(b"many-%02d" % key, b"1")

    @rule()
    def commit(self) -> None:
        epoch = self.lane.epoch + 1
        self.lane.commit(epoch)
        self.committed = [self.committed[-1], (epoch, dict(self.now), self.count.value)]

    @rule()
    def discard(self) -> None:
        self.lane.discard()
        self.back_to_committed()

    @rule()
    def reopen(self) -> None:
        self.lane = self.home.lane()
        self.store = self.lane.store(raw())
        self.count = self.lane.registers.register("count", 0)
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
        for epoch, content, count in self.committed:
            if epoch >= 0 or len(self.committed) == 2:
                before = self.lane.read_committed(epoch)
                assert dict(before.store(raw()).scan()) == content
                assert before.registers.register("count", 0).value == count

    def back_to_committed(self) -> None:
        epoch, content, count = self.committed[-1]
        self.now = dict(content)
        assert (self.lane.epoch, self.count.value) == (epoch, count)
        assert list(self.store.scan()) == sorted(content.items())

    def teardown(self) -> None:
        self.home.leave()
        self.directory.cleanup()


class EpochsOfLmdb(EpochsOf):
    kind = EngineKind.LMDB


class EpochsOfRocksDb(EpochsOf):
    kind = EngineKind.ROCKSDB


_calm = settings(deadline=None, stateful_step_count=30, suppress_health_check=[HealthCheck.too_slow])
TestInMemory = EpochsOf.TestCase
TestInMemory.settings = settings(_calm, max_examples=40)
TestOnLmdb = EpochsOfLmdb.TestCase
TestOnLmdb.settings = settings(_calm, max_examples=40)
TestOnRocksDb = EpochsOfRocksDb.TestCase
TestOnRocksDb.settings = settings(_calm, max_examples=8)
