"""`World`: a Kafka, a machine and disks that a seed decides about, in which applications live and die.

A `Life` is a process that runs an application. It goes on until it is killed, or ends by itself; then another one may begin with
what the disk had at that moment. While a process is suspended, another one may take over with a disk of its own.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

from penstock import faults, machine
from penstock.app import App
from penstock.config import Config
from penstock.engines.port import LateError, SlotLostError, TaskFailedError
from penstock.errors import EpochTooLargeError
from penstock.kafka import opening
from penstock.records import Partition
from penstock.runtime.application import RunningApplication
from penstock.runtime.hooks import Hooks
from penstock.runtime.hosting import engine
from penstock.runtime.standby import beacon
from penstock.runtime.states import State
from penstock.testing.simulation.beacons import SimulatedBeacons
from penstock.testing.simulation.client import Way
from penstock.testing.simulation.clients import SimulatedClients
from penstock.testing.simulation.hosts import SimulatedEngine
from penstock.testing.simulation.kafka import SimulatedKafka, refused
from penstock.testing.simulation.machine import KilledError, Process, SimulatedMachine

if TYPE_CHECKING:
    from typing_extensions import Self

    from penstock.epochs.program import Program
    from penstock.topology import Topology

_SERVERS = "simulated:9092"
_LATENCY_S = 0.003
_LOSABLE = frozenset({"init", "commit", "offsets of a transaction", "offsets", "offset commit"})
"""Requests that clients answer with a timeout if their answer is lost, and that may be sent again."""


@dataclass
class Weather:
    """How likely each fault is, at each step where it can happen."""

    lost_requests: float = 0.0
    lost_answers: float = 0.0
    lost_slots: float = 0.0
    failed_tasks: float = 0.0
    late: float = 0.0
    too_large: float = 0.0
    refusals: float = 0.0


@dataclass(eq=False)
class Life:
    """A process that runs an application, and the directory of its stores."""

    directory: Path
    dies_at: str | None = None
    """The name of the step before which it is killed, if any."""
    process: Process = field(init=False)
    running: RunningApplication | None = None

    @property
    def is_over(self) -> bool:
        """Whether it was killed, or has ended."""
        return self.process.is_killed or (self.running is not None and self.running.state in (State.NOT_RUNNING, State.ERROR))


class World:
    """What a seed decides about; as a context manager, it replaces what real processes have."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.machine: SimulatedMachine = SimulatedMachine(seed)
        self.random: Random = self.machine.random
        self.weather: Weather = Weather()
        self.fired: Counter[str] = Counter()
        """How often each kind of fault has happened."""
        self.seen: dict[str, None] = {}
        """The names of all steps so far, in their order."""
        self._directory = directory
        self._numbers = 0
        self.is_cut: bool = False
        """Whether no instance hears another one, while all of them reach Kafka."""
        self._lives: dict[Process, Life] = {}
        self._vanished: set[Process] = set()
        self._open = ExitStack()
        self.kafka: SimulatedKafka

    def __enter__(self) -> Self:
        self._open.enter_context(machine.replaced(self.machine))
        self.kafka = SimulatedKafka()
        clients = SimulatedClients(Way(self.kafka, self._before, self._after, self._refuses))
        self._open.enter_context(opening.replaced(clients))
        self._open.enter_context(engine.replaced(self._hosts))
        self._open.enter_context(beacon.replaced(SimulatedBeacons(self.machine, self._is_silent)))
        self._open.enter_context(faults.replaced(self._at))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.machine.end()
        self._open.close()

    def records(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        """Return keys and values of all committed records of a topic, partition by partition."""
        logs = self.kafka.topics[topic].logs
        return [(entry.key, entry.value) for log in logs for entry in log.between(log.begin, log.end, is_committed=True)]

    # ---- lives ------------------------------------------------------------------------------------------------------------

    def begin(self, app: App, disk: Path | None = None, **settings: Any) -> Life:
        """Begin a life of an application, with a copy of a disk, or an empty one."""
        self._numbers += 1
        life = Life(self._directory / f"disk-{self._numbers}")
        if disk is not None:
            shutil.copytree(disk, life.directory)
        config = Config.load(
            environment={},
            bootstrap_servers=_SERVERS,
            state_dir=str(life.directory),
            engine="local",
            admin_address="off",
            **settings,
        )

        def run() -> None:
            life.running = RunningApplication(app.application_id, app.topology, app.error_handlers, config, Hooks(app.plugins))
            life.running.start()

        life.process = self.machine.process(f"life {self._numbers}", run)
        self._lives[life.process] = life
        return life

    def kill(self, life: Life, at: str = "any time", *, with_its_host: bool = False) -> None:
        """Kill a process where it is; `disk` has what a later life finds. With its host, nobody hears that it has ended."""
        if life.process.is_killed:
            return
        if with_its_host:
            self._vanished.add(life.process)
        self._keep(life)
        life.process.kill()
        self.fired[f"killed at {at}"] += 1

    def disk(self, life: Life) -> Path | None:
        """Return what the disk of a life that is over has; None if it had nothing yet."""
        kept = self._kept(life) if life.process.is_killed else life.directory
        return kept if kept.exists() else None

    def copied(self, disk: Path) -> Path:
        """Return a copy of a disk, as of now."""
        self._numbers += 1
        return Path(shutil.copytree(disk, self._directory / f"copy-{self._numbers}"))

    def forget(self, life: Life) -> None:
        """Remove the files of a life that is over."""
        self._lives.pop(life.process, None)
        shutil.rmtree(life.directory, ignore_errors=True)
        shutil.rmtree(self._kept(life), ignore_errors=True)

    def suspend(self, life: Life) -> Path | None:
        """Let a process stand still; return a copy of its disk, from which another one may begin."""
        life.process.is_suspended = True
        self.fired["suspended"] += 1
        self._keep(life)
        kept = self._kept(life)
        return kept if kept.exists() else None

    def resume(self, life: Life) -> None:
        """Let a process go on."""
        life.process.is_suspended = False

    @staticmethod
    def _kept(life: Life) -> Path:
        return life.directory.with_name(f"{life.directory.name}-kept")

    def _keep(self, life: Life) -> None:
        if life.directory.exists():
            shutil.copytree(life.directory, self._kept(life), dirs_exist_ok=True)

    def _is_silent(self, process: Process) -> bool:
        return self.is_cut or process.is_suspended or process in self._vanished

    # ---- steps ------------------------------------------------------------------------------------------------------------

    def _at(self, step: str) -> None:
        """Kill a life here, if this is its last step."""
        process = self.machine.current
        life = self._lives.get(process)
        if life is None:
            return
        if process.is_killed:
            raise KilledError
        self.seen.setdefault(step)
        if step == life.dies_at:
            self.kill(life, step)
            raise KilledError

    def _before(self, request: str) -> None:
        self._at(f"{request}, sent")
        self.machine.sleep(self.random.random() * _LATENCY_S)
        self.kafka.expire()
        self._lose(request, "request", self.weather.lost_requests)

    def _after(self, request: str) -> None:
        self._at(f"{request}, done")
        self.machine.give_way()
        self._lose(request, "answer", self.weather.lost_answers)

    def _lose(self, request: str, what: str, chance: float) -> None:
        if chance and request in _LOSABLE and self.random.random() < chance:
            self.fired[f"{what} of {request} lost"] += 1
            self.machine.sleep(1.0)
            raise refused(KafkaError._TIMED_OUT, retriable=True)

    def _refuses(self, place: Partition) -> bool:
        if self.weather.refusals and self.random.random() < self.weather.refusals:
            self.fired["leader not ready"] += 1
            return True
        return False

    def _hosts(self, config: Config, program: Program, topology: Topology) -> engine.Hosts:
        return engine.Hosts(lambda final, tasks: engine.Hosting(SimulatedEngine(final, self._in_engine)))

    def _in_engine(self, step: str) -> None:
        self._at(step)
        self.machine.sleep(self.random.random() * _LATENCY_S)
        weather = self.weather
        if step == "engine.before_place":
            chances: list[tuple[str, float, Callable[[], Exception]]] = []
        else:
            chances = [("slot lost", weather.lost_slots, lambda: SlotLostError("a slot is lost", by_request=True))]
        if step in ("engine.before_run", "engine.after_run"):
            chances += [
                ("task failed", weather.failed_tasks, lambda: TaskFailedError("a task has failed")),
                ("late", weather.late, lambda: LateError("a slot is late")),
                ("too large", weather.too_large, lambda: EpochTooLargeError("a task has no memory")),
            ]
        for name, chance, error in chances:
            if chance and self.random.random() < chance:
                self.fired[f"{name}, {step}"] += 1
                raise error()
