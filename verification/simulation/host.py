"""A scenario in a simulated world: its application is killed, suspended and started again while it is fed."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from penstock import App
from penstock.epochs.program import lanes_topic
from penstock.errors import FencedError, PenstockError
from penstock.records import Partition
from penstock.runtime.states import State
from penstock.state import REGISTERS
from penstock.testing.simulation.world import Life, Weather, World
from penstock.topology import SourceNode
from penstock.topology.bindings import changelog_topic
from verification.conformance.epochs.host import MEMORY
from verification.integration.contents import contents, restored
from verification.integration.inputs import SHARDS, partition_of
from verification.integration.scenario import SINK_PARTITIONS, Phase, Result, Scenario, Sent, Setup

ID = "app"
CALM_S = 10.0
"""How long nothing may be committed before the weather is good for the rest of a phase."""
STARTS = 10
PATIENCE_S = 300.0
"""How long nothing may be committed while there is input; clocks are simulated."""
LOOK_S = 0.05
MARK_S = 12.0
"""Longer than it takes until lanes receive a mark."""
LANES = (1, 1, 2, 3)
STANDBYS = 0.3
"""In how many worlds another instance stands by."""
SILENT_S = 2.0
"""How long an instance may be silent until a standby gives it up."""
EVENTS = ("nothing", "kill", "point", "point", "point", "stop", "clean", "clock", "suspend", "rest")
BAD_WEATHER = Weather(
    lost_requests=0.02, lost_answers=0.03, lost_slots=0.02, failed_tasks=0.01, late=0.03, too_large=0.02, refusals=0.3
)


class ViolationError(Exception):
    """Something that must not happen has happened."""


@dataclass
class Lived:
    """What a run was like."""

    lives: int = 0
    kills: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)
    result: Result | None = None


def run(scenario: Scenario, phases: Sequence[Phase], caching: bool, seed: int, lived: Lived) -> None:
    """Run a scenario in the world of a seed; `lived` has what it was like, also if it fails."""
    place = MEMORY if Path(MEMORY).is_dir() else None
    with tempfile.TemporaryDirectory(prefix="penstock-world-", dir=place) as directory, World(seed, Path(directory)) as world:
        lived.faults = world.fired
        _Course(world, scenario, phases, caching, lived).run()


class _Course:
    """What happens in a world, one phase of the input after the other."""

    def __init__(self, world: World, scenario: Scenario, phases: Sequence[Phase], caching: bool, lived: Lived) -> None:
        self._lived = lived
        self._world = world
        self._random: Random = world.random
        self._scenario = scenario
        self._phases = phases
        self._topology = scenario.build(Setup(caching))
        self._partitions = scenario.partitions(phases)
        tables = self._topology.global_stores
        self._logged = [spec for name, spec in self._topology.stores.items() if spec.logged and name not in tables]
        nodes = [node for node in self._topology.nodes.values() if isinstance(node, SourceNode) and not node.internal]
        self._sources = [node for node in nodes if node.name not in tables.values()]
        self._life: Life | None = None
        self._standby: Life | None = None
        self._has_standbys = self._random.random() < STANDBYS
        self._may_be_given_up: set[Life] = set()
        self._suspended: list[Life] = []
        self._backup: Path | None = None
        self._failed: BaseException | None = None
        self._in_flight = self._random.choice((0, 1, 2))
        self._most_records = self._random.choice((3, 40, 5_000))

    def run(self) -> None:
        """Feed all phases, each once what was fed before is processed."""
        kafka = self._world.kafka
        for output in self._scenario.outputs:
            kafka.create(output.topic, SINK_PARTITIONS)
        for phase, partitions in zip(self._phases, self._partitions, strict=True):
            for topic, count in partitions.items():
                if topic not in kafka.topics:
                    kafka.create(topic, count)
                elif len(kafka.topics[topic].logs) < count:
                    kafka.add_partitions(topic, count)
            self._feed(phase)
            self._drain(phase.advance_ms)
        self._end()
        self._lived.result = self._result()

    # ---- events -----------------------------------------------------------------------------------------------------------

    def _feed(self, phase: Phase) -> None:
        """Write the records of a phase, in pieces; between them, something happens."""
        left = list(phase.records)
        while left:
            size = len(left) if phase.at_once else self._random.randrange(1, max(2, len(left) // 2 + 1))
            for topic, key, value, timestamp, headers in left[:size]:
                place = topic, partition_of(key, len(self._world.kafka.topics[topic].logs))
                self._world.kafka.produce(place, key, value, timestamp, headers)
            del left[:size]
            self._happen()

    def _happen(self) -> None:
        """Let something happen that the seed chooses."""
        self._ensure_alive()
        assert self._life is not None
        self._world.weather = BAD_WEATHER if self._random.random() < 0.4 else Weather()
        what = self._random.choice((*EVENTS, "cut", "kill") if self._has_standbys else EVENTS)
        self._world.is_cut = what == "cut"
        if what in ("stop", "suspend", "cut"):
            self._may_be_given_up.add(self._life)
        if what == "kill":
            self._world.machine.sleep(self._random.random())
            self._world.kill(self._life, with_its_host=self._has_standbys and self._random.random() < 0.5)
        elif what == "cut":
            self._world.fired["instances cut off from each other"] += 1
            self._world.machine.sleep(2 * SILENT_S)
        elif what == "point" and self._world.seen:
            self._life.dies_at = self._random.choice(list(self._world.seen))
        elif what == "stop" and self._life.running is not None:
            self._life.running.stop()
        elif what == "suspend" and len(self._suspended) < 2:
            self._take_over()
        elif what == "clean":
            self._world.kafka.clean()
        elif what == "clock":
            self._world.machine.jump(self._random.uniform(-100, 100))
        elif what == "rest":
            self._world.machine.sleep(MARK_S)
        self._world.machine.sleep(self._random.random() * 0.5)

    def _take_over(self) -> None:
        """Suspend the process, and let another one take over, with its disk or another host's; the first wakes up later."""
        life = self._life
        assert life is not None
        disk = self._world.suspend(life)
        self._suspended.append(life)
        if self._has_standbys:
            self._life = None
            self._ensure_alive()
        else:
            self._life = self._begun(disk if self._random.random() < 0.5 else None)

    def _wake(self) -> None:
        """Let suspended processes go on: they must notice that another one has taken over."""
        for life in list(self._suspended):
            if self._random.random() < 0.3:
                self._world.resume(life)
            if not life.process.is_suspended and life.is_over:
                self._suspended.remove(life)
                self._refuse_bugs(life)
                self._world.forget(life)
            elif _is(life, State.RUNNING) and _is(self._life, State.STANDBY):
                self._become_active(life)

    def _become_active(self, life: Life) -> None:
        """Follow the instance that is active: it was woken before it was given up, or has taken over from one that was."""
        assert self._life is not None
        self._suspended.remove(life)
        if self._standby is None:
            self._standby = self._life
        else:
            self._suspended.append(self._life)
        self._life = life

    def _ensure_alive(self) -> None:
        """Begin another life if the last one is over, unless an instance stands by; then begin another one of those."""
        self._wake()
        life = self._life
        if life is not None and self._suspended:  # one of those may begin to take over before this one announces itself
            self._may_be_given_up.add(life)
        if life is None or life.is_over:
            disk: Path | None = None
            if life is not None:
                if life.process.is_killed:
                    self._lived.kills += 1
                self._refuse_bugs(life)
                disk = self._found(life)
            if self._standby is not None and not self._standby.is_over:
                self._life, self._standby = self._standby, None
                self._world.fired["standby"] += 1
            else:
                self._life = self._begun(disk)
            if life is not None:
                self._world.forget(life)
        if self._has_standbys:
            self._ensure_standby()

    def _ensure_standby(self) -> None:
        """Begin a standby once the active instance runs; if it takes over from one that still lives, that one is to end."""
        standby = self._standby
        if standby is not None and _is(standby, State.RUNNING):
            assert self._life is not None
            self._suspended.append(self._life)
            self._life, self._standby = standby, None
            self._world.fired["standby, too early"] += 1
        elif standby is not None and standby.is_over:
            self._refuse_bugs(standby)
            self._world.forget(standby)
            self._standby = None
        if self._standby is None and _is(self._life, State.RUNNING):
            self._standby = self._begun(None if self._backup is None or self._random.random() < 0.5 else self._backup)

    def _found(self, life: Life) -> Path | None:
        """Return what the next life finds: the disk of the last one, an older copy of it, or nothing."""
        chance = self._random.random()
        disk = self._world.disk(life)
        if disk is not None and self._random.random() < 0.3:
            self._backup = self._world.copied(disk)
        if chance < 0.8:
            return disk
        self._world.fired["disk lost" if chance < 0.9 or self._backup is None else "disk from a copy"] += 1
        return None if chance < 0.9 else self._backup

    def _begun(self, disk: Path | None) -> Life:
        standby = {"standby": True, "standby_timeout": f"{SILENT_S:g}s"} if self._has_standbys else {}
        self._lived.lives += 1
        return self._world.begin(
            App(ID, self._topology),
            disk,
            lanes=self._random.choice(LANES),
            shards=SHARDS,
            epoch_interval=f"{self._random.choice((10, 50, 100))}ms",
            epochs_in_flight=self._in_flight,
            max_epoch_records=self._most_records,
            small_epoch_records=50,
            columns=True,
            blocking_threads=1,  # whether code waits is measured with real clocks
            **standby,
        )

    def _refuse_bugs(self, life: Life) -> None:
        """Raise if a life has ended by itself with something else than an error that has a name."""
        if life.running is None or life.process.is_killed:
            return
        self._failed = failure = life.running.recorder.failure
        if self._has_standbys and isinstance(failure, FencedError) and life not in self._may_be_given_up:
            raise ViolationError(f"a standby has taken over from an instance that it could hear: {failure}") from failure
        if life.running.state is State.ERROR and type(failure) is PenstockError:
            raise ViolationError(f"ended with an error without a name: {failure!r}") from failure

    def _drain(self, advance_ms: int) -> None:
        """Wait until all input is committed."""
        world = self._world
        heard, reached, begun = world.machine.now, None, self._lived.lives
        epochs: int | None = None
        while True:
            self._ensure_alive()
            world.machine.sleep(LOOK_S)
            committed = world.kafka.committed
            ends = self._ends()
            now = {place: committed.get((ID, place), (0, ""))[0] for place in ends}
            life = self._life
            assert life is not None
            if all(now[place] >= end for place, end in ends.items()):
                running = life.running
                if running is not None and running.state is State.RUNNING:
                    if not advance_ms:
                        return
                    epochs = running.epoch + 3 if epochs is None or epochs > running.epoch + 3 else epochs
                    if running.epoch >= epochs:
                        return
                else:
                    epochs = None
            if now != reached:
                heard, reached, begun = world.machine.now, now, self._lived.lives
            if world.machine.now - heard > CALM_S and world.weather != Weather():
                world.weather, world.is_cut = Weather(), False
                life.dies_at = None
                begun = self._lived.lives
            if world.weather == Weather() and self._lived.lives - begun > STARTS:
                failure = None if self._failed is None else f"{type(self._failed).__name__}: {self._failed}"
                raise ViolationError(f"nothing is committed by {STARTS} starts in good weather; the last error: {failure}")
            if world.machine.now - heard > PATIENCE_S:
                raise ViolationError(f"nothing was committed for {PATIENCE_S:g} s: {now} of {ends}; {life.running!r}")

    def _ends(self) -> dict[Partition, int]:
        """The ends of what the application reads, without marks of transactions that follow the last record."""
        kafka = self._world.kafka
        names = [name for name in kafka.topics if any(node.reads(name) for node in self._sources)]
        return {(name, number): log.end for name in names for number, log in enumerate(kafka.topics[name].logs) if log.end}

    def _end(self) -> None:
        self._world.weather = Weather()
        assert self._life is not None
        if self._standby is not None and self._standby.running is not None:
            self._standby.running.stop()
        self._life.dies_at = None
        assert self._life.running is not None
        self._life.running.stop()
        while not self._life.is_over:
            self._world.machine.sleep(LOOK_S)
        self._refuse_bugs(self._life)

    # ---- results ----------------------------------------------------------------------------------------------------------

    def _result(self) -> Result:
        changelogs = {changelog_topic(ID, spec.name): spec.name for spec in self._logged}
        changelogs[lanes_topic(ID)] = REGISTERS
        rows: dict[tuple[str, int], tuple[list[bytes], list[bytes | None]]] = {}
        for topic, store in changelogs.items():
            for record in self._read(topic):
                assert record.key is not None
                assert record.partition is not None
                keys, values = rows.setdefault((store, record.partition), ([], []))
                keys.append(record.key)
                values.append(record.value)
        outputs = {output.topic: self._read(output.topic) for output in self._scenario.outputs}
        found = contents(restored(rows, self._logged), self._logged, range(SHARDS))
        return Result({topic: sent for topic, sent in outputs.items() if sent}, {"changelogs": found}, 0)

    def _read(self, topic: str) -> list[Sent]:
        known = self._world.kafka.topics.get(topic)
        logs = [] if known is None else known.logs
        return [
            Sent(entry.key, entry.value, entry.timestamp, tuple(entry.headers), number)
            for number, log in enumerate(logs)
            for entry in log.between(log.begin, log.end, is_committed=True)
        ]


def _is(life: Life | None, state: State) -> bool:
    """Whether a life goes on, in this state."""
    if life is None or life.running is None or life.process.is_killed or life.process.is_suspended:
        return False
    return life.running.state is state
