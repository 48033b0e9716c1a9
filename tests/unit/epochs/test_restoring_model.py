"""Whatever happens to an application and its files, a start restores all shards to the committed state, with correct results."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis.strategies as st
import lmdb
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock import faults
from penstock.records import ChangelogRows
from tests.unit.epochs.application import Application, Place, by_key, driven, far_future, some_records

pytestmark = pytest.mark.security(30)

lanes_counts = st.sampled_from([1, 2, 5])


class CrashError(Exception):
    """The process is killed here."""


@contextmanager
def crash_at(name: str, hit: int) -> Iterator[None]:
    """Crash at the nth hit of a fault point; or at the end."""
    left = hit

    def passed(point: str) -> None:
        nonlocal left
        left -= point == name
        if point == name and left == 0:
            raise CrashError

    patch = pytest.MonkeyPatch()
    patch.setattr(faults, "point", passed)
    try:
        yield
        raise CrashError
    except CrashError:
        pass
    finally:
        patch.undo()


class Life(RuleBasedStateMachine):
    """The committed input is a list; the rest follows from it."""

    @initialize(lanes=lanes_counts)
    def first_start(self, lanes: int) -> None:
        self.temporary = TemporaryDirectory()
        self.app = Application(Path(self.temporary.name) / "state")
        self.copies = Path(self.temporary.name) / "copies"
        self.records = iter(some_records(seed=1, count=10_000))
        self.pending = [next(self.records)]
        self.registers: list[dict[str, int]] = []
        self.app.start(lanes)
        self.is_running = True

    def take(self, count: int) -> None:
        while len(self.pending) < count:
            self.pending.append(next(self.records))

    # ---- epochs -------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.is_running)
    @rule(count=st.integers(0, 25), is_marked=st.booleans())
    def epoch(self, count: int, is_marked: bool) -> None:
        if is_marked:
            self.app.note_mark()
        self.take(count)
        self.app.step(self.pending[:count])
        del self.pending[:count]
        self.registers = self.app.all_registers()

    @precondition(lambda self: self.is_running)
    @rule(
        count=st.integers(1, 25),
        in_flight=st.integers(0, 2),
        committed=st.integers(0, 2),
        point=st.sampled_from(["lane.before_write", "lane.after_write"]),
        hit=st.integers(1, 12),
    )
    def epochs_that_are_not_committed(self, count: int, in_flight: int, committed: int, point: str, hit: int) -> None:
        self.take(count * (in_flight + 1))
        sent = [self.pending[first : first + count] for first in range(0, count * in_flight, count)]
        for records in sent:
            self.app.send(records)
        for records in sent[:committed]:
            self.app.commit_oldest()
            del self.pending[: len(records)]
            self.registers = []  # lanes are ahead, so those of the committed epoch are not known
        after = count * len(sent[committed:])
        with crash_at(point, hit):
            self.app.run(self.pending[after : after + count])
        self.is_running = False

    @precondition(lambda self: self.is_running)
    @rule()
    def compact(self) -> None:
        self.app.topics.compact()

    @precondition(lambda self: self.is_running)
    @rule()
    def stop(self) -> None:
        self.is_running = False

    # ---- what happens to files and topics while it is down --------------------------------------------------------------

    @precondition(lambda self: not self.is_running)
    @rule(lane=st.integers(0, 4))
    def lose_a_store(self, lane: int) -> None:
        shutil.rmtree(self.app.lane_directory(lane), ignore_errors=True)

    @precondition(lambda self: not self.is_running)
    @rule()
    def copy_stores(self) -> None:
        shutil.rmtree(self.copies, ignore_errors=True)
        shutil.copytree(self.app.lane_directory(0).parent, self.copies / self.app.lane_directory(0).parent.name)

    @precondition(lambda self: not self.is_running and self.copies.exists())
    @rule(lane=st.integers(0, 4))
    def put_an_old_store_back(self, lane: int) -> None:
        directory = self.app.lane_directory(lane)
        copy = self.copies / directory.parent.name / directory.name
        if copy.exists():
            shutil.rmtree(directory, ignore_errors=True)
            shutil.copytree(copy, directory)

    @precondition(lambda self: not self.is_running)
    @rule(lane=st.integers(0, 4), bit=st.integers(0, 7), place=st.integers(0, 10**6))
    def let_a_value_rot(self, lane: int, bit: int, place: int) -> None:
        if (self.app.lane_directory(lane) / "data.mdb").exists():
            flip_in_values(self.app.lane_directory(lane), bit, place)

    @precondition(lambda self: not self.is_running)
    @rule(hours=st.sampled_from([1, 11, 13]))
    def wait(self, hours: int) -> None:
        self.app.now_ms += hours * 3_600_000

    @precondition(lambda self: not self.is_running)
    @rule()
    def delete_the_beginning_of_changelogs(self) -> None:
        """As far as their rows have been replaced by later ones."""
        topics = self.app.topics
        topics.compact()
        for place, log in topics.logs.items():
            topics.begins[place] = next((offset for offset, row in enumerate(log) if row is not None), len(log))

    @precondition(lambda self: not self.is_running)
    @rule(lanes=lanes_counts, chunks=st.integers(0, 6), point=st.sampled_from(["reader", "restore.before_mark"]))
    def start_that_dies(self, lanes: int, chunks: int, point: str) -> None:
        topics = self.app.topics

        def read(positions: Mapping[Place, int], ends: Mapping[Place, int]) -> Iterator[ChangelogRows]:
            for number, rows in enumerate(topics.read(positions, ends)):
                if number == chunks and point == "reader":
                    raise CrashError
                yield rows

        self.app.take_over(lanes)
        with crash_at(point, chunks):
            for lane in range(lanes):
                self.app.restore(self.app.running, lane, read)

    @precondition(lambda self: not self.is_running)
    @rule(lanes=lanes_counts, is_retry=st.booleans())
    def start(self, lanes: int, is_retry: bool) -> None:
        self.app.start(lanes, is_retry)
        self.is_running = True

    # ---- what must hold -------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.is_running)
    @invariant()
    def shards_are_as_committed(self) -> None:
        self.app.check()
        assert self.registers in ([], self.app.all_registers())

    def teardown(self) -> None:
        if not hasattr(self, "app"):
            return
        if not self.is_running:
            self.app.start(2)
        self.app.step(far_future())
        assert by_key(self.app.sent) == by_key(driven(self.app))
        self.temporary.cleanup()


def flip_in_values(directory: Path, bit: int, place: int) -> None:
    """Change one bit of one entry of a store, without the lane."""
    with lmdb.open(str(directory), max_dbs=100) as env:
        with env.begin() as txn:
            databases = [name for name, _ in txn.cursor()]
        opened = [env.open_db(name, create=False) for name in databases]
        with env.begin(write=True) as txn:
            entries = [(db, key, bytes(value)) for db in opened for key, value in txn.cursor(db) if value]
            if entries:
                db, key, value = entries[place % len(entries)]
                at = place % len(value)
                txn.put(key, value[:at] + bytes([value[at] ^ 1 << bit]) + value[at + 1 :], db=db)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=12, stateful_step_count=14, deadline=None, suppress_health_check=list(HealthCheck))
