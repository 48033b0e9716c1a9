"""What is particular about slots on several hosts; `test_contract.py` has what all engines have in common."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from penstock.engines import many_hosts as module
from penstock.engines.exchanging import Sending
from penstock.engines.many_hosts import ManyHosts
from penstock.engines.port import SlotLostError, Whereabouts
from penstock.engines.requests import Load, Migrate, RestoreLane, RollBack, RowsRequest, RunStep
from penstock.epochs.program import Epoch, Placement, Program
from penstock.epochs.standing import Committed
from penstock.epochs.wire import OUT
from penstock.errors import LaneMovedError
from penstock.observation import Recorder
from penstock.runtime.hosting.lane_restore import LaneRestore
from penstock.state.remote.protocol import Located
from tests.unit.engines.driving import INPUTS, PARTITIONS, ignore
from tests.unit.engines.programs import re_keyed, stateless
from tests.unit.epochs.application import program_of
from tests.unit.epochs.spread import KEY

PORTS = {"a": 7_001, "b": 7_002, "c": 7_003}
SERVERS = [("a", 7_001)] * 4 + [("b", 7_002)] * 2
POSITIONS = [0, 2, 0, 2, 1, 1]
"""Where six lanes run on slots of the hosts a, b and a."""

COMMITTED = Committed(4, "one", {}, {}, 0)
EPOCH = Epoch(5, 4, 5_000, tuple(INPUTS.topics), (-1,) * PARTITIONS)
RECORDS = INPUTS.records(EPOCH, {("in", 0): (0, 9)})


class Slots:
    """Slots by the hosts of their positions; they note what they are asked, and answer with nothing."""

    def __init__(self, *hosts: str) -> None:
        self.there = dict(enumerate(hosts))
        self.lost: set[int] = set()
        self.killers: set[int] = set()
        """The lanes whose stores kill their slots, if they are used."""
        self.changed = self.is_renewed = False
        self.watched: Mapping[str, Any] = {}
        self.turns: list[int] = []
        self.did: list[str] = []
        self.asked: list[tuple[int, Any]] = []
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        return len(self.there)

    @property
    def hosts(self) -> Mapping[str, int]:
        return Counter(self.there.values())

    def start(self) -> None:
        self.did.append("start")

    def close(self) -> None:
        self.did.append("close")

    def turn(self, epoch: int) -> bool:
        self.turns.append(epoch)
        return self.is_renewed

    def settled(self) -> Mapping[int, str]:
        self.did.append("settled")
        self.changed = self.is_renewed = False
        return dict(self.there)

    def have_changed(self) -> bool:
        return self.changed

    def watch(self, servers: Mapping[str, Any]) -> None:
        self.watched = servers

    def slot(self, position: int) -> Any:
        slots = self

        class Slot:
            def ask(self, request: Any, *rest: Any, **options: Any) -> pa.Buffer:
                return slots._answer(position, request)

        return Slot()

    def of(self, kind: type) -> list[tuple[int, Any]]:
        """The requests of a kind, with the positions of their slots."""
        found = [(position, request) for position, request in self.asked if isinstance(request, kind)]
        self.asked.clear()
        return sorted(found, key=lambda asked: getattr(asked[1], "lane", 0))

    def _answer(self, position: int, request: Any) -> pa.Buffer:
        with self._lock:
            self.asked.append((position, request))
        if position in self.lost:
            raise SlotLostError("a slot is lost", by_request=True)
        if isinstance(request, RestoreLane) and request.lane in self.killers and not request.is_retry:
            raise SlotLostError("a slot was killed", by_request=True)
        if not isinstance(request, RestoreLane):
            return pa.py_buffer(b"")
        return pa.py_buffer(msgspec.msgpack.encode((request.lane, "behind", 1, f"id-{request.lane}", PORTS[request.host])))


def program(lanes: int = 6) -> Program:
    return replace(program_of(re_keyed(), lanes), is_spread=True, server_key=KEY)


@pytest.fixture
def slots() -> Slots:
    return Slots("a", "b", "a")


@pytest.fixture
def engine(slots: Slots) -> ManyHosts:
    return ManyHosts(program(), slots, 20.0, lambda: None, lambda: None)


def place(engine: ManyHosts, distrusted: Sequence[int] = ()) -> None:
    engine.place(COMMITTED, lambda positions, ends: [], ignore, distrusted)


def restored(slots: Slots) -> list[tuple[int, str, Any]]:
    """The position, host and peer of each lane that was restored."""
    return [(position, request.host, request.peer) for position, request in slots.of(RestoreLane)]


class TestPlacement:
    def test_lanes_are_shared_by_the_slots_of_each_host(self, slots: Slots, engine: ManyHosts) -> None:
        place(engine)
        on_a, on_b = [(0, "a", None), (2, "a", None)], [(1, "b", None)]
        assert restored(slots) == [*on_a, *on_a, *on_b, *on_b]
        assert [engine.server_of(lane) for lane in range(6)] == SERVERS
        assert slots.watched == {"a": ("a", 7_001), "b": ("b", 7_002)}
        assert engine.located(4) == Located(4, SERVERS)

    def test_lanes_stay_where_they_are_if_they_can(self, slots: Slots, engine: ManyHosts) -> None:
        place(engine)
        slots.of(RestoreLane)
        slots.there = {1: "b", 3: "c"}
        place(engine)
        assert restored(slots) == [(1, "b", None), *[(3, "c", None)] * 3, (1, "b", None), (1, "b", None)]

    def test_a_lane_that_moves_is_copied_from_its_last_host_if_that_is_still_there(self, slots: Slots, engine: ManyHosts) -> None:
        place(engine)
        slots.of(RestoreLane)
        slots.there = {0: "a", 1: "b", 3: "c", 4: "c"}
        place(engine)
        assert restored(slots) == [
            *((0, "a", None), (0, "a", None)),
            *((3, "c", ("a", 7_001)), (4, "c", ("a", 7_001))),
            *((1, "b", None), (3, "c", ("b", 7_002))),
        ]

    def test_the_stores_of_distrusted_lanes_are_not_used(self, slots: Slots, engine: ManyHosts) -> None:
        place(engine, [2])
        assert [request.is_retry for _, request in slots.of(RestoreLane)] == [False, False, True, False, False, False]

    def test_a_slot_that_is_lost_meanwhile_names_its_lanes(self, slots: Slots, engine: ManyHosts) -> None:
        slots.lost = {1}
        with pytest.raises(SlotLostError, match="a slot is lost") as error:
            place(engine)
        assert error.value.lanes == {4, 5}

    def test_a_start_survives_lanes_whose_stores_kill_their_slots(
        self, slots: Slots, engine: ManyHosts, caplog: pytest.LogCaptureFixture
    ) -> None:
        none: Any = None
        slots.killers = {1, 4}
        LaneRestore(program(), engine, none, none, lambda positions, ends: [], none, Recorder()).run(COMMITTED)
        assert caplog.text.count("restoring lanes once more: a slot was killed") == 1
        retries = {request.lane for _, request in slots.of(RestoreLane) if request.is_retry}
        assert retries == {1, 4}

    def test_without_lanes_nothing_is_restored(self, slots: Slots) -> None:
        free = replace(program_of(stateless(), 4), is_spread=True)
        place(ManyHosts(free, slots, 20.0, lambda: None, lambda: None))
        assert slots.asked == []


class TestEpochs:
    def test_even_a_small_one_takes_all_steps_where_lanes_are(self, slots: Slots, engine: ManyHosts) -> None:
        place(engine)
        slots.asked.clear()
        engine.run(EPOCH, RECORDS, is_small=True)
        found = sorted((request.step.stage, request.task, position) for position, request in slots.of(RunStep))
        assert found == [
            *((0, 0, 0), (0, 1, 1), (0, 2, 2)),
            *((1, lane, position) for lane, position in enumerate(POSITIONS)),
            *((2, lane, position) for lane, position in enumerate(POSITIONS)),
        ]
        assert slots.turns == [5]

    def test_tasks_know_where_all_lanes_are_and_what_global_tables_have(self, slots: Slots) -> None:
        topics: Any = object()
        engine = ManyHosts(program(), slots, 20.0, lambda: topics, lambda: None)
        place(engine)
        engine.run(EPOCH, RECORDS, is_small=True)
        _, request = slots.of(RunStep)[0]
        assert request.epoch == replace(EPOCH, placement=Placement(servers=dict(enumerate(SERVERS)), global_topics=topics))

    def test_a_lost_slot_moves_lanes(self, slots: Slots, engine: ManyHosts) -> None:
        place(engine)
        slots.lost = {1}
        for call in (
            lambda: engine.run(EPOCH, RECORDS, is_small=True),
            lambda: engine.roll_back(EPOCH),
            lambda: engine.migrate(EPOCH, lambda assigned: pa.table({})),
        ):
            with pytest.raises(LaneMovedError, match="a slot is lost"):
                call()

    def test_lanes_move_before_an_epoch_if_slots_have_changed(self, slots: Slots, engine: ManyHosts) -> None:
        place(engine)
        slots.asked.clear()
        assert not engine.changed()
        slots.changed = True
        assert engine.changed()
        with pytest.raises(LaneMovedError, match="The slots of the cluster have changed"):
            engine.run(EPOCH, RECORDS, is_small=True)
        assert slots.asked == []

    def test_without_lanes_changed_slots_are_just_used(self, slots: Slots) -> None:
        engine = ManyHosts(replace(program_of(stateless(), 4), is_spread=True), slots, 20.0, lambda: None, lambda: None)
        slots.changed = True
        assert not engine.changed()
        engine.run(EPOCH, RECORDS, is_small=True)
        slots.there, slots.changed = {7: "c"}, True
        engine.run(EPOCH, RECORDS, is_small=True)
        assert [position for position, _ in slots.of(RunStep)][-1] == 7

    def test_without_lanes_slots_that_were_warmed_are_used_although_nothing_is_placed(self, slots: Slots) -> None:
        engine = ManyHosts(replace(program_of(stateless(), 4), is_spread=True), slots, 20.0, lambda: None, lambda: None)
        engine.warm()
        engine.run(EPOCH, RECORDS, is_small=True)
        assert {position for position, _ in slots.of(RunStep)} <= {0, 1, 2}

    @pytest.mark.parametrize(("hosts", "moves"), [("aba", False), ("baa", False), ("abb", True)])
    def test_renewed_slots_are_used_at_once_if_they_are_on_the_same_hosts(
        self, slots: Slots, engine: ManyHosts, hosts: str, moves: bool
    ) -> None:
        place(engine)
        slots.asked.clear()
        slots.is_renewed, slots.there = True, dict(enumerate(hosts))
        if moves:
            with pytest.raises(LaneMovedError, match="were renewed, some of them on other hosts"):
                engine.run(EPOCH, RECORDS, is_small=True)
        else:
            engine.run(EPOCH, RECORDS, is_small=True)
            lanes = {request.task: hosts[position] for position, request in slots.of(RunStep) if request.step.stage}
            assert lanes == dict(enumerate("aaaabb"))


def test_each_lane_is_rolled_back_and_migrated_by_its_own_slot(slots: Slots, engine: ManyHosts) -> None:
    place(engine)
    slots.asked.clear()
    engine.roll_back(EPOCH)
    engine.migrate(EPOCH, lambda assigned: pa.table({}))
    for kind in (RollBack, Migrate):
        found = [(position, request.lanes) for position, request in slots.asked if isinstance(request, kind)]
        assert sorted(found) == sorted((position, (lane,)) for lane, position in enumerate(POSITIONS))


def test_without_lanes_nothing_is_rolled_back(slots: Slots) -> None:
    ManyHosts(replace(program_of(stateless(), 4), is_spread=True), slots, 20.0, lambda: None, lambda: None).roll_back(EPOCH)
    assert slots.asked == []


def test_executors_write_in_a_last_stage(slots: Slots) -> None:
    def divide(program: Program, rows: pa.Table) -> list[pa.Table]:
        return [rows] * program.lanes

    class Ended:
        def sending(self, epoch: Epoch) -> Sending:
            return Sending(divide, OUT, 0)

        def finish(self, carry: Callable[[RowsRequest], pa.Table]) -> pa.Table:
            return carry(Load())

        def abandon(self) -> None:
            pass

    engine = ManyHosts(program(), slots, 20.0, lambda: None, Ended)
    place(engine)
    engine.run(EPOCH, RECORDS, is_small=False)
    assert sorted(position for position, _ in slots.of(Load)) == sorted(POSITIONS)


def test_it_ends_with_the_lane_servers_of_all_hosts_that_it_had(
    slots: Slots, engine: ManyHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Any] = []
    monkeypatch.setattr(module, "end_servers", lambda servers, key: ended.append((set(servers), key)))
    engine.start()
    engine.warm()
    assert sorted(position for position, _ in slots.of(Load)) == [0, 1, 2]
    place(engine)
    slots.there = {1: "b", 3: "c"}
    place(engine)
    assert engine.whereabouts == Whereabouts("spark", {"b": 1, "c": 1}, "Spark tasks")
    engine.close()
    assert ended == [({("a", 7_001), ("b", 7_002), ("c", 7_003)}, KEY)]
    assert slots.did == ["start", "settled", "settled", "settled", "close"]
