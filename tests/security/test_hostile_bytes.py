"""Hostile bytes in records, changelogs, registers, metadata and files cause a named error at most.

None of them is ever executed: each reader is also tested with a pickle that would create a file.
"""

from __future__ import annotations

import pickle
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.config import Config
from penstock.epochs.program import lanes_topic
from penstock.errors import ConfigError, PenstockError, SerializationError, StateError
from penstock.handlers import ErrorHandlers, dead_letter
from penstock.history.committed import TOPOLOGY, facts_in
from penstock.history.past import past
from penstock.kafka.commit import CommitMetadata
from penstock.serdes import (
    Serde,
)
from penstock.state import last_registers
from penstock.state.epochs import Applied, Head, Step, decode_head, decode_undo, encode_head, encode_undo
from penstock.topology.bindings import changelog_topic
from penstock.topology.plan import decode_facts, encode_facts, facts, plan
from tests.unit.epochs.application import ID, SHARDS, Application, Raw, every_kind_of_store
from tests.unit.serdes.every_serde import SERDES

PATIENCE = timedelta(seconds=5)
MANY = settings(max_examples=2_000, deadline=PATIENCE)
ENOUGH = settings(max_examples=200, deadline=PATIENCE)
SOME = settings(max_examples=15, deadline=PATIENCE, suppress_health_check=[HealthCheck.too_slow])
STORES = ("words", "windows", "sessions", "held")
METADATA = CommitMetadata(epoch=7, incarnation="a", fingerprint="b", lanes=2, shards=8, high_time=9, topic_id=None).encode()
FACTS = encode_facts(facts(every_kind_of_store(), plan(every_kind_of_store()).fingerprint))


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.path,)


@pytest.fixture
def sentinel(tmp_path: Path) -> Path:
    return tmp_path / "somebody-was-here"


@pytest.fixture
def trap(sentinel: Path) -> bytes:
    return pickle.dumps(Trap(sentinel))


def mutated(valid: bytes) -> st.SearchStrategy[bytes]:
    """Valid bytes that were truncated, extended or changed in the middle."""

    def broken(draw: tuple[int, bytes, int]) -> bytes:
        at, piece, left_out = draw
        at %= len(valid) + 1
        return valid[:at] + piece + valid[at + left_out :]

    return st.tuples(st.integers(0, 10_000), st.binary(max_size=16), st.integers(0, 16)).map(broken)


def taken_or_refused(read: Callable[[], object], *errors: type[PenstockError]) -> None:
    try:
        read()
    except errors as error:
        assert str(error)  # noqa: PT017 - or none is raised


READERS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "metadata of an offset": (lambda data: CommitMetadata.decode(data.decode("utf-8", "replace")), METADATA.encode()),
    "registers of a shard": (lambda data: last_registers([b"registers"], [data]), b"\x81\xa1a\x01"),
    "facts of a topology": (decode_facts, FACTS),
    "head of a lane": (decode_head, encode_head(Head(3, {"a": 1}, [Applied(3, 2, [Step(0, {"a": 2}, ["a"], "id")])]))),
    "undo of an epoch": (decode_undo, encode_undo([b"a"], [None])),
}


@pytest.mark.security(26)
@pytest.mark.security(29)
@pytest.mark.parametrize("what", READERS)
class TestReaders:
    @MANY
    @given(data=st.data())
    def test_any_bytes_are_read_or_refused(self, what: str, data: st.DataObject) -> None:
        read, valid = READERS[what]
        hostile = data.draw(st.one_of(st.binary(), mutated(valid)))
        taken_or_refused(lambda: read(hostile), StateError)

    def test_deep_nesting_is_read_or_refused(self, what: str) -> None:
        read, _ = READERS[what]
        for deep in (b"[" * 200_000, b'{"a":' * 200_000, b"\x91" * 200_000, b"\x81\xa1a" * 200_000):
            taken_or_refused(lambda: read(deep), StateError)  # noqa: B023 - called at once

    def test_absurd_lengths_are_read_or_refused(self, what: str) -> None:
        read, _ = READERS[what]
        for claim in (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\x92\xdd\x7f\xff\xff\xff", b"\xc6\xff\xff\xff\xff"):
            taken_or_refused(lambda: read(claim), StateError)  # noqa: B023

    def test_a_pickle_is_not_executed(self, what: str, trap: bytes, sentinel: Path) -> None:
        read, _ = READERS[what]
        taken_or_refused(lambda: read(trap), StateError)
        assert not sentinel.exists()


@pytest.mark.security(25)
def test_the_trap_works(trap: bytes, sentinel: Path) -> None:
    pickle.loads(trap)
    assert sentinel.exists()


@pytest.mark.security(27)
@pytest.mark.security(29)
@pytest.mark.parametrize("serde", SERDES, ids=repr)
class TestSerdes:
    @ENOUGH
    @given(data=st.one_of(st.binary(), st.binary(min_size=8, max_size=8), st.binary(min_size=16, max_size=40)))
    def test_any_bytes_are_a_value_or_a_named_error(self, serde: Serde[Any], data: bytes) -> None:
        taken_or_refused(lambda: serde.deserialize(data), SerializationError)

    def test_sixteen_megabytes_are_read_or_refused(self, serde: Serde[Any]) -> None:
        taken_or_refused(lambda: serde.deserialize(b"\x00" * (16 << 20)), SerializationError)

    @pytest.mark.security(25)
    def test_a_pickle_is_not_executed(self, serde: Serde[Any], trap: bytes, sentinel: Path) -> None:
        taken_or_refused(lambda: serde.deserialize(trap), SerializationError)
        assert not sentinel.exists()

    @pytest.mark.security(28)
    @pytest.mark.parametrize(
        "bomb",
        [
            b"[" * 1_000_000,
            b"[" * 100_000 + b"]" * 100_000,
            b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
            b"\x91" * 1_000_000,
            b"\x81\xa1a" * 300_000,
            b"\xdd\xff\xff\xff\xff",  # an array of four billion entries
            b"\xdf\x7f\xff\xff\xff",
            b"\xc6\xff\xff\xff\xff",
            b"\x00\x7f\xff\xff\xff",  # a Kafka list with the largest entry count
            b"\x00\x00\x00\x00\x00\x7f\xff\xff\xff",
            b"9" * 1_000_000,
            b"1e" + b"9" * 100_000,
            b'"' + b"\\ud800" * 100_000 + b'"',
        ],
        ids=range(13),
    )
    def test_a_bomb_is_read_or_refused_in_time(self, serde: Serde[Any], bomb: bytes) -> None:
        began = time.monotonic()
        taken_or_refused(lambda: serde.deserialize(bomb), SerializationError)
        assert time.monotonic() - began < PATIENCE.total_seconds()


@pytest.mark.security(29)
@ENOUGH
@given(st.one_of(st.binary(), mutated(b'lanes = 2\n[kafka]\n"bootstrap.servers" = "a:1"\n[spark]\nmaster = "local"\n')))
def test_any_configuration_file_is_read_or_refused(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        Path(file.name).write_bytes(data)
        taken_or_refused(lambda: Config.load(Path(file.name), {}), ConfigError)


@contextmanager
def application(**kinds: Any) -> Iterator[Application]:
    """A lane with every kind of store, after some epochs."""
    with tempfile.TemporaryDirectory() as directory:
        app = Application(Path(directory) / "state", **kinds)
        app.start(2)
        for epoch in range(3):
            app.step([Raw(b"k%d" % (number % 5), b"to be or not to be", 1_000 * epoch + number) for number in range(10)])
        yield app


def go_on(app: Application) -> None:
    """Start without files, and run an epoch that uses all stores."""
    app.start(1)
    app.step([Raw(b"k%d" % number, b"to be", 90_000 + number) for number in range(5)])


@pytest.mark.security(26)
@SOME
@given(
    store=st.sampled_from(STORES),
    rows=st.lists(st.tuples(st.binary(max_size=40), st.none() | st.binary(max_size=60)), min_size=1),
)
def test_any_changelog_is_restored_or_refused(store: str, rows: list[tuple[bytes, bytes | None]]) -> None:
    with application() as app:
        app.topics.append((changelog_topic(ID, store), shard, key, value) for shard in range(SHARDS) for key, value in rows)
        taken_or_refused(lambda: go_on(app), PenstockError)


@pytest.mark.security(26)
@SOME
@given(st.sampled_from(STORES), st.integers(), st.data())
def test_a_modified_changelog_is_restored_or_refused(store: str, seed: int, data: st.DataObject) -> None:
    chooser = random.Random(seed)
    with application() as app:
        for place, log in app.topics.logs.items():
            found = [number for number, row in enumerate(log) if row is not None]
            if place[0] == changelog_topic(ID, store) and found:
                number = chooser.choice(found)
                key, value = log[number] or (b"", b"")
                log[number] = (data.draw(mutated(key)), None if value is None else data.draw(mutated(value)))
        taken_or_refused(lambda: go_on(app), PenstockError)


@pytest.mark.security(26)
@settings(SOME, max_examples=200)
@given(key=st.one_of(st.just(TOPOLOGY), st.binary(max_size=20)), value=st.one_of(st.binary(), mutated(FACTS)))
def test_any_record_of_the_lanes_topic_is_read_or_refused(key: bytes, value: bytes) -> None:
    taken_or_refused(lambda: facts_in([(lanes_topic(ID), 0, [key], [value])]), StateError)


@pytest.mark.security(26)
@SOME
@given(value=st.one_of(st.binary(), mutated(b"\x81\xabstream time\x05")))
def test_any_register_is_read_or_refused(value: bytes) -> None:
    with application() as app:
        app.topics.append((lanes_topic(ID), shard, b"registers", value) for shard in range(SHARDS))
        taken_or_refused(lambda: go_on(app), PenstockError)


@pytest.mark.security(26)
@ENOUGH
@given(st.one_of(st.text(), mutated(METADATA.encode()).map(lambda data: data.decode("utf-8", "replace"))))
def test_any_committed_metadata_is_read_or_refused(text: str) -> None:
    taken_or_refused(lambda: past({("in", 0): (5, text)}, {"in": "x"}, SHARDS), PenstockError)


@pytest.mark.security(25)
def test_a_pickle_is_executed_nowhere(trap: bytes, sentinel: Path) -> None:
    letters = dead_letter("letters")
    handlers = ErrorHandlers(deserialization=letters, processing=letters, production=letters)
    with application(handlers=handlers) as app:
        app.step([Raw(trap, trap, 5_000), Raw(b"k", trap, 5_001), Raw(trap, b"to be", 5_002)])
        for store in STORES:
            rows = [(changelog_topic(ID, store), shard, key, trap) for shard in range(SHARDS) for key in (trap, b"k1")]
            app.topics.append(rows)
        app.topics.append([(lanes_topic(ID), shard, b"registers", trap) for shard in range(SHARDS)])
        taken_or_refused(lambda: go_on(app), PenstockError)
        for name in ("boot", "clean", "incarnation", "lock"):
            (app.directory / ID / name).write_bytes(trap)
        taken_or_refused(lambda: go_on(app), PenstockError)
        for path in app.directory.rglob("*.mdb"):
            path.write_bytes(trap)
        taken_or_refused(lambda: go_on(app), PenstockError)
    assert not sentinel.exists()
