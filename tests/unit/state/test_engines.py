"""Every engine is the same ordered byte map: any key, exact bounds, atomic batches."""

from __future__ import annotations

import pickle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lmdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import LaneMovedError, StateError
from penstock.state import Engine, EngineFactory, EngineKind, SpaceBatch
from penstock.state.engines import lmdb as lmdb_engine
from penstock.state.engines.engine import Expected
from penstock.state.engines.rocksdb import RocksDbEngine
from tests.unit.state.homes import Home

# Lengths around LMDB's limit, long common prefixes, and the smallest and largest bytes.
_tails = st.binary(max_size=3) | st.sampled_from([b"", b"\x00", b"\xff", b"\xff\xff"])
_starts = st.sampled_from([b"", b"a", b"\xff", b"a" * 479, b"a" * 480, b"a" * 509, b"a" * 511, b"\xff" * 512, b"b" * 3000])
keys = st.builds(lambda start, tail: start + tail, _starts, _tails)
bounds = st.none() | keys
batches = st.lists(st.dictionaries(keys, st.none() | st.binary(max_size=4), max_size=8), max_size=4)


def batch_of(space: str, entries: dict[bytes, bytes | None]) -> SpaceBatch:
    ordered = sorted(entries)
    return SpaceBatch(space, ordered, [entries[key] for key in ordered])


def expected(model: dict[bytes, bytes], lower: bytes | None, upper: bytes | None, reverse: bool) -> list[tuple[bytes, bytes]]:
    within = [key for key in model if (lower is None or key >= lower) and (upper is None or key < upper)]
    return [(key, model[key]) for key in sorted(within, reverse=reverse)]


def check_scans(kind: EngineKind, written: list[dict[bytes, bytes | None]], scans: Any) -> None:
    with TemporaryDirectory() as directory:
        engine = EngineFactory(kind, f"{directory}/lane").open()
        model: dict[bytes, bytes] = {}
        for entries in written:
            engine.write([batch_of("space", entries)])
            for key, value in entries.items():
                if value is None:
                    model.pop(key, None)
                else:
                    model[key] = value
            assert {key: engine.get("space", key) for key in entries} == {key: model.get(key) for key in entries}
            several = sorted({*entries, b"", b"missing"})
            assert engine.get_many("space", several) == [model.get(key) for key in several]
            assert (engine.get_many("space", []), engine.get_many("nowhere", several)) == ([], [None] * len(several))
        for lower, upper, reverse in scans:
            assert list(engine.scan("space", lower, upper, reverse)) == expected(model, lower, upper, reverse)
        if kind is not EngineKind.ROCKSDB:  # which only estimates
            assert engine.count("space") == len(model)
        engine.close()


scans = st.lists(st.tuples(bounds, bounds, st.booleans()), min_size=1, max_size=6)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batches, scans)
def test_lmdb_scans_any_keys_in_exact_order(written: Any, scans: Any) -> None:
    check_scans(EngineKind.LMDB, written, scans)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batches, scans)
def test_rocksdb_scans_any_keys_in_exact_order(written: Any, scans: Any) -> None:
    check_scans(EngineKind.ROCKSDB, written, scans)


@settings(max_examples=40, deadline=None)
@given(batches, scans)
def test_memory_scans_any_keys_in_exact_order(written: Any, scans: Any) -> None:
    check_scans(EngineKind.MEMORY, written, scans)


def test_spaces_are_separate_and_missing_ones_are_empty(home: Home) -> None:
    engine = home.engine()
    engine.write([batch_of("one", {b"k": b"1", b"": b"empty"}), batch_of("two", {b"k": b"2"})])
    assert engine.get("one", b"k") == b"1"
    assert engine.get("two", b"k") == b"2"
    assert engine.get("two", b"") is None
    assert engine.get("three", b"k") is None
    assert list(engine.scan("three", None, None)) == []
    assert engine.count("three") == 0
    assert list(engine.scan("one", None, None, reverse=True)) == [(b"k", b"1"), (b"", b"empty")]


def test_many_long_keys_with_one_prefix_are_scanned_in_order(home: Home) -> None:
    engine = home.engine()
    shared = b"p" * 1000
    long_keys = [shared + str(number).encode() for number in range(200)]
    engine.write([batch_of("space", {key: key[-3:] for key in [*long_keys, b"p" * 100, b"q"]})])
    found = [key for key, _ in engine.scan("space", shared + b"1", shared + b"2")]
    assert found == sorted(key for key in long_keys if key[1000:1001] == b"1")
    assert [key for key, _ in engine.scan("space", None, None, reverse=True)][:2] == [b"q", shared + b"99"]


def test_bounds_longer_than_any_stored_key(home: Home) -> None:
    engine = home.engine()
    engine.write([batch_of("space", {b"a" * 511: b"1"})])
    assert list(engine.scan("space", b"a" * 512, None)) == []
    assert list(engine.scan("space", b"a" * 512, None, reverse=True)) == []
    assert list(engine.scan("space", None, b"a" * 512)) == [(b"a" * 511, b"1")]
    assert list(engine.scan("space", None, b"a" * 512, reverse=True)) == [(b"a" * 511, b"1")]


def test_content_survives_closing_the_engine(home: Home) -> None:
    home.engine().write([batch_of("space", {b"k": b"v", b"k" * 600: b"long"})])
    engine = home.engine()
    assert list(engine.scan("space", None, None)) == [(b"k", b"v"), (b"k" * 600, b"long")]


def test_deleting_a_missing_key_does_nothing(home: Home) -> None:
    engine = home.engine()
    engine.write([batch_of("space", {b"a": None, b"b": b"1", b"": None, b"x" * 600: None})])
    assert list(engine.scan("space", None, None)) == [(b"b", b"1")]


@pytest.mark.parametrize("kind", [EngineKind.LMDB, EngineKind.ROCKSDB])
def test_a_batch_is_atomic(kind: EngineKind, tmp_path: Path) -> None:
    engine = EngineFactory(kind, str(tmp_path / "lane")).open()
    unwritable: Any = {b"a": b"1", b"b": object()}
    with pytest.raises((TypeError, ValueError)):
        engine.write([batch_of("new", {b"k": b"v"}), batch_of("space", unwritable)])
    assert engine.get("new", b"k") is None
    assert engine.get("space", b"a") is None
    engine.write([batch_of("new", {b"k": b"v"})])
    assert engine.get("new", b"k") == b"v"
    engine.close()


@pytest.mark.parametrize("kind", [EngineKind.LMDB, EngineKind.ROCKSDB])
def test_a_reader_sees_what_was_written_when_it_refreshes(kind: EngineKind, tmp_path: Path) -> None:
    factory = EngineFactory(kind, str(tmp_path / "lane"))
    writer = factory.open()
    writer.write([batch_of("space", {b"k": b"1"})])
    writer.close()
    reader = factory.open(read_only=True)
    assert reader.get("space", b"k") == b"1"
    reader.refresh()
    assert list(reader.scan("space", None, None)) == [(b"k", b"1")]
    reader.close()


def test_lmdb_is_not_opened_twice_in_one_process(tmp_path: Path) -> None:
    factory = EngineFactory(EngineKind.LMDB, str(tmp_path))
    engine = factory.open()
    with pytest.raises(lmdb.Error, match="already open"):
        factory.open()
    engine.close()


def test_lmdb_grows_its_map_as_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmdb_engine, "_SMALLEST_MAP", 1 << 16)
    factory = EngineFactory(EngineKind.LMDB, str(tmp_path))
    engine = factory.open()
    for number in range(5):
        engine.write([batch_of("space", {b"%d-%04d" % (number, key): b"v" * 1000 for key in range(300)})])
    assert engine.count("space") == 1500
    engine.close()
    engine = factory.open()
    assert sum(1 for _ in engine.scan("space", None, None)) == 1500
    engine.close()


def test_a_factory_is_picklable(tmp_path: Path) -> None:
    factory = EngineFactory(EngineKind.LMDB, str(tmp_path))
    assert pickle.loads(pickle.dumps(factory)) == factory
    with pytest.raises(StateError, match="directory"):
        EngineFactory(EngineKind.ROCKSDB).open()


def test_engines_implement_the_protocol(home: Home) -> None:
    engine: Engine = home.engine()
    engine.refresh()
    assert engine.get("space", b"k") is None


def test_a_snapshot_does_not_change(home: Home) -> None:
    engine = home.engine()
    engine.write([batch_of("a", {b"k": b"1"})])
    before = engine.snapshot()
    engine.write([batch_of("a", {b"k": b"2", b"l": b"1"}), batch_of("b", {b"k": b"1"})])
    after = engine.snapshot()
    assert (before.get("a", b"k"), before.get("a", b"l"), before.get("b", b"k")) == (b"1", None, None)
    assert (after.get("a", b"k"), after.get("b", b"k")) == (b"2", b"1")
    assert list(before.scan("a", None, None)) == [(b"k", b"1")]
    before.close()
    assert list(after.scan("a", None, None)) == [(b"k", b"2"), (b"l", b"1")]
    after.close()
    home.leave()


def test_a_snapshot_of_lmdb_is_read_only_and_unusable_once_closed(tmp_path: Path) -> None:
    engine = EngineFactory(EngineKind.LMDB, str(tmp_path)).open()
    snapshot = engine.snapshot()
    snapshot.refresh()
    assert snapshot.snapshot() is snapshot
    with pytest.raises(StateError, match="read-only"):
        snapshot.write([batch_of("a", {b"k": b"1"})])
    snapshot.close()
    snapshot.close()
    with pytest.raises(StateError, match="closed"):
        snapshot._read()  # type: ignore[attr-defined]
    engine.close()


def test_lmdb_does_not_move_its_map_under_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmdb_engine, "_SMALLEST_MAP", 1 << 16)
    engine = EngineFactory(EngineKind.LMDB, str(tmp_path)).open()
    snapshot = engine.snapshot()
    large = batch_of("a", {b"%d" % number: bytes(1_000) for number in range(1_000)})
    with pytest.raises(StateError, match="outgrown its map while a snapshot of it was open"):
        engine.write([large])
    snapshot.close()
    engine.write([large])
    assert engine.count("a") == 1_000
    engine.close()


def test_with_room_to_grow_the_map_is_not_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmdb_engine, "_SMALLEST_MAP", 1 << 16)
    engine = EngineFactory(EngineKind.LMDB, str(tmp_path)).open(room_to_grow=True)
    snapshot = engine.snapshot()
    engine.write([batch_of("a", {b"%d" % number: bytes(1_000) for number in range(1_000)})])
    assert (snapshot.count("a"), engine.count("a")) == (0, 1_000)
    snapshot.close()
    engine.close()


class TestAReaderBesideARocksDbThatReplacesFiles:
    """A writer may replace a file after a reader has found its name."""

    def reading(self, monkeypatch: pytest.MonkeyPatch, directory: str, errors: list[str]) -> bytes | None:
        writer = EngineFactory(EngineKind.ROCKSDB, directory).open()
        writer.write([SpaceBatch("s", [b"k"], [b"v"])])
        writer.close()

        opened = RocksDbEngine._open

        def replacing(engine: RocksDbEngine) -> Any:
            if errors:
                raise OSError(errors.pop(0))
            return opened(engine)

        monkeypatch.setattr(RocksDbEngine, "_open", replacing)
        reader = EngineFactory(EngineKind.ROCKSDB, directory).open(read_only=True)
        found = reader.get("s", b"k")
        reader.close()
        return found

    def test_it_opens_again(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        gone = ["IO error: No such file or directory: 000156.sst"] * 9
        assert self.reading(monkeypatch, str(tmp_path / "lane"), gone) == b"v"

    @pytest.mark.parametrize("errors", [["Corruption: bad block"], ["IO error: No such file or directory"] * 10])
    def test_it_gives_up_after_a_while_and_on_other_errors(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, errors: list[str]
    ) -> None:
        with pytest.raises(OSError, match=errors[0]):
            self.reading(monkeypatch, str(tmp_path / "lane"), list(errors))


@pytest.mark.parametrize("kind", list(EngineKind))
def test_a_batch_is_written_only_if_what_is_expected_is_still_there(kind: EngineKind, tmp_path: Path) -> None:
    engine = EngineFactory(kind, str(tmp_path / "lane")).open()
    fresh = [SpaceBatch("head", [b"id"], [b"1"]), SpaceBatch("space", [b"k"], [b"1"])]
    with pytest.raises(LaneMovedError):
        engine.write(fresh, Expected("head", b"id", b"0"))
    assert (engine.get("head", b"id"), engine.get("space", b"k")) == (None, None)
    engine.write(fresh, Expected("head", b"id", None))
    with pytest.raises(LaneMovedError):
        engine.write([SpaceBatch("space", [b"k"], [b"2"])], Expected("head", b"id", None))
    assert engine.get("space", b"k") == b"1"
    engine.write([SpaceBatch("space", [b"k"], [b"2"])], Expected("head", b"id", b"1"))
    assert engine.get("space", b"k") == b"2"
    engine.close()
