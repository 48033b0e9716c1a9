"""One row of the campaign: an application under load and faults, brought to rest, and compared with the oracle."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

from verification.chaos import checker, guards
from verification.chaos.application import Application, Part
from verification.chaos.checker import Found, Violation
from verification.chaos.load import Load, Poison
from verification.chaos.observer import Observer
from verification.chaos.payments import Payment, Topics
from verification.chaos.reader import Place, Reader
from verification.chaos.stores import SHARDS, Files
from verification.harness import topics as kafka
from verification.harness.broker import Broker
from verification.harness.processes import HarnessError, wait_until
from verification.harness.toxiproxy import Proxy

if TYPE_CHECKING:
    from typing_extensions import Self

PARTITIONS = 3
PROGRESS_S = 240
FIRE_S = 240
REST_S = 300
BOUNDED_S = 240
CUT_S = 10
DEATH_S = 60
STARTS_MAX = 6


class StuckError(Exception):
    """The application does not reach the expected state; the row ends."""


@dataclass(frozen=True, slots=True)
class World:
    """What rows share: a broker, which the load and the reader use directly and the application through a proxy."""

    broker: Broker
    proxy: Proxy
    directory: Path
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The settings of a row's application, and the exit codes with which it may end by itself."""

    settings: Mapping[str, str] = field(default_factory=dict)
    on_error: str = "fail"
    poison: tuple[Poison, ...] = ()
    exits: frozenset[int] = frozenset()


class Trial:
    """A context manager that ends everything it started on exit."""

    topology = "verification.chaos.topology"
    """The module that has the application."""
    rate = 200
    """Payments per second."""

    def __init__(self, world: World, name: str, conditions: Conditions, guard_off: str = "") -> None:
        self.world = world
        self.name = name
        self.conditions = conditions
        self.guard_off = guard_off
        self.topics = self._topics(f"chaos-{name}-without-{guard_off}" if guard_off else f"chaos-{name}")
        self.directory = world.directory / self.topics.application_id
        self.observer = self._observer()
        servers, poison = world.broker.bootstrap_servers, conditions.poison
        self.load = Load(servers, self.topics.input, PARTITIONS, world.seed, rate=self.rate, poison=poison)
        self.reader = self._new_reader()
        self._stack, self._reading = ExitStack(), ExitStack()
        self.application = self.instance("first")
        self.kills = 0
        self.wanted = 0
        self.fired = 0
        self.recoveries: list[float] = []
        self.violations: list[Violation] = []
        self.upstream: list[Payment] = []
        self._hurt_at: float | None = None

    def _new_reader(self) -> Reader:
        places = [(topic, partition) for topic in self.topics.outputs for partition in range(PARTITIONS)]
        return Reader(self.world.broker.bootstrap_servers, places, self.topics.echo)

    def begin_outputs_anew(self) -> None:
        """Delete and create the outputs again, with a new reader: what was sent before does not count."""
        servers = self.world.broker.bootstrap_servers
        self._reading.close()
        for topic in self.topics.outputs:
            kafka.delete(servers, topic)
            kafka.create(servers, topic, PARTITIONS)
        self.reader = self._reading.enter_context(self._new_reader())

    def instance(self, name: str, **settings: str) -> Application:
        """An instance of the application, with its own files."""
        directory = self.directory / name
        environment = {
            "CHAOS_APPLICATION_ID": self.topics.application_id,
            "CHAOS_TOPOLOGY": self.topology,
            "CHAOS_ON_ERROR": self.conditions.on_error,
            guards.VARIABLE: self.guard_off,
            "PENSTOCK_BOOTSTRAP_SERVERS": self.world.broker.proxied_bootstrap_servers,
            "PENSTOCK_STATE_DIR": str(directory / "state"),
            "PENSTOCK_LANES": "2",
            "PENSTOCK_ADMIN_ADDRESS": "127.0.0.1:0",
            "PENSTOCK_SHARDS": str(SHARDS),
        }
        instance = Application(directory, {**environment, **self.conditions.settings, **settings})
        self._stack.callback(instance.close)
        return instance

    def _topics(self, application_id: str) -> Topics:
        return Topics(application_id)

    def _observer(self) -> Observer:
        return Observer(self.world.broker.bootstrap_servers, self.topics)

    @property
    def files(self) -> Files:
        """The files of the current or last instance."""
        engine = self.conditions.settings.get("PENSTOCK_STORE_ENGINE", "lmdb")
        return Files(self.application.state_dir, self.topics.application_id, engine)

    def __enter__(self) -> Self:
        for topic in (self.topics.input, *self.topics.outputs):
            kafka.create(self.world.broker.bootstrap_servers, topic, PARTITIONS)
        self._stack.enter_context(self._reading)
        self._reading.enter_context(self.reader)
        self._stack.enter_context(self.load)
        self.load.go_on()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def violate(self, kind: str, where: str, detail: str) -> None:
        """Record a violation."""
        self.violations.append(Violation(kind, where, detail))

    # ---- under load -----------------------------------------------------------------------------------------------

    def start(self, fault: str = "", victim: Part = Part.DRIVER, **settings: str) -> None:
        """Start the application."""
        self.application.start(fault, victim, **settings)

    def tend(self, what: str, is_so: Callable[[], bool], timeout_s: float) -> float:
        """Keep the application running until `is_so()`; return the seconds that took."""
        began = time.monotonic()
        starts = 0
        while not is_so():
            if not self.application.is_running:
                starts += 1
                if starts > STARTS_MAX:
                    self.stuck(what, f"ended {starts} times in a row, the last time with {self.application.exits[-1].code}")
                self.application.start()
            if time.monotonic() - began > timeout_s:
                self.stuck(what, f"not within {timeout_s:g} s")
            time.sleep(0.05)
        return time.monotonic() - began

    def stuck(self, what: str, detail: str) -> NoReturn:
        """End the row: what was awaited does not happen."""
        self.violate("stuck", "application", f"{what}: {detail}; see {self.application.log}")
        raise StuckError(what)

    def see_progress(self, timeout_s: float = PROGRESS_S) -> float:
        """Wait for the output of a payment that is not sent yet; return the seconds that took."""
        target = self.load.last_number + 1
        return self.tend("progress", lambda: self.reader.highest >= target, timeout_s)

    @contextmanager
    def hurting(self) -> Iterator[None]:
        """Count a fault that happens in this block, and time the progress after it."""
        self.wanted += 1
        self._hurt_at = time.monotonic()
        yield
        self.fired += 1
        self.see_progress()
        self._recovered()

    def happened(self) -> None:
        """Count a fault that happened while the application was down."""
        self.wanted += 1
        self.fired += 1

    def kill(self, part: Part) -> None:
        """Send SIGKILL to a part of it; the driver must end with it, as lanes run nowhere else."""
        self.wanted += 1
        if self.application.kill(part):
            self.fired += 1
            self.kills += 1
        self._hurt_at = self._hurt_at or time.monotonic()
        try:
            self.application.wait(DEATH_S)
        except HarnessError:
            self.stuck(f"the driver ends when {part.value} is killed", f"not within {DEATH_S} s")

    def kill_worker(self) -> None:
        """Send SIGKILL to a worker, if there is one; the application continues."""
        if self.application.kill(Part.WORKER):
            self.wanted += 1
            self.fired += 1
            self.kills += 1

    def kill_at(self, fault: str, **settings: str) -> None:
        """Start the application and let it die at a fault point; what is committed must be consistent then."""
        self.wanted += 1
        began, target = time.monotonic(), self.load.last_number + 1
        self.start(fault, Part.DRIVER, **settings)
        while self.application.is_running:
            if self._hurt_at is not None and self.reader.highest >= target:
                self._recovered()
            if time.monotonic() - began > FIRE_S:
                self.stuck(f"{fault} fires", f"not within {FIRE_S} s")
            time.sleep(0.02)
        code = self.application.exits[-1].code
        if code != -signal.SIGKILL or not self.application.fired:
            self.stuck(f"{fault} fires", f"the application ended with {code} instead")
        self.fired += 1
        self.kills += 1
        self._hurt_at = self._hurt_at or time.monotonic()
        self.check_cut()

    def come_back(self, **settings: str) -> None:
        """Start again after a crash, and wait for progress."""
        self._hurt_at = self._hurt_at or time.monotonic()
        self.application.start("", Part.DRIVER, **settings)
        self.see_progress()
        self._recovered()

    def _recovered(self) -> None:
        assert self._hurt_at is not None
        self.recoveries.append(time.monotonic() - self._hurt_at)
        self._hurt_at = None

    def check_cut(self) -> None:
        """Check, while nothing runs, that committed outputs, tables and offsets are consistent.

        A requested commit may still be in progress, partition by partition, for a short time.
        """
        deadline = time.monotonic() + CUT_S
        while True:
            found = self.compared(self.observer.found())
            if not found or time.monotonic() > deadline:
                self.violations += found
                return
            time.sleep(0.5)

    def compared(self, found: Found) -> list[Violation]:
        """Compare what was found with the oracle."""
        return checker.check(self.sent(), found)

    def sent(self) -> list[Payment]:
        """All payments that count."""
        return [*self.load.payments, *self.upstream]

    # ---- at rest --------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Bring it to rest and check everything, then again after a warm restart and after a cold one."""
        if not self.application.is_running:
            self.come_back()
        self.rest()
        if self.application.stop() != 0:
            self.violate("exit", "application", f"{self.application.exits[-1].code} after SIGTERM")
        self.check_exits()
        self.check_all("")
        if not self.violations:
            self.restart_warm()
        if not self.violations:
            self.restart_cold()

    def rest(self) -> None:
        """Stop the load and wait until everything is processed and read."""
        self.load.pause()
        ends = self.observer.input_ends()
        self.tend("rest", lambda: self.observer.offsets() == ends, REST_S)
        self.tend_reader(self.observer.output_ends())

    def tend_reader(self, ends: Mapping[Place, int]) -> None:
        """Wait until the reader has read everything before these offsets."""
        wait_until("the reader has read everything", lambda: self.reader.has_reached(ends), REST_S)

    def restart_warm(self) -> None:
        """Restart with all files and no new input, which must change nothing."""
        before, records = self.observer.found(), self.observer.records()
        self._run_bounded("warm restart")
        after = self.observer.found()
        if self.observer.records() != records or after.tables != before.tables:
            self.violate("doubled", "warm restart", "records were written although there was no new input")
        self.violations += named("after a warm restart", self.check_files(after))

    def restart_cold(self) -> None:
        """Restart without files and with some new input; results must continue correctly."""
        self.files.delete()
        self.load.send(200)
        self._run_bounded("cold restart")
        self.tend_reader(self.observer.output_ends())
        self.check_all(" after a cold restart")

    def _run_bounded(self, what: str) -> None:
        self.start(CHAOS_UNTIL="latest")
        try:
            code = self.application.wait(BOUNDED_S)
        except HarnessError:
            self.stuck(what, f"did not end within {BOUNDED_S} s")
        if code != 0:
            self.stuck(what, f"ended with {code}")

    def check_all(self, when: str) -> None:
        """Check everything that must hold while nothing is in progress."""
        found = self.observer.found()
        self.violations += named(
            when,
            [
                *self.compared(found),
                *checker.check_offsets(found.offsets, self.observer.input_ends()),
                *checker.check_reader(self.reader.records, self.observer.records()),
                *checker.check_settled(self.observer.open_transactions(), self.observer.unstable()),
                *checker.check_dead_letters(self._expected_letters(), self.observer.dead_letters()),
                *self.check_files(found),
            ],
        )

    def check_files(self, found: Found) -> Iterator[Violation]:
        """The stores on disk have the content of the changelogs."""
        tables = self.files.tables()
        for store, content in found.tables.items():
            yield from checker.compare_tables(f"files of {store}", content, tables[store])

    def check_exits(self) -> None:
        """Check that it ended by itself only with the row's exit codes."""
        for ended in self.application.exits:
            if not ended.was_asked and ended.code not in self.conditions.exits:
                self.violate(
                    "exit", "application", f"ended by itself with {ended.code}; logs are in {self.application.directory}"
                )

    def _expected_letters(self) -> list[checker.Letter]:
        return self.load.poisonous if self.conditions.on_error == "dead_letter" else []


def named(when: str, found: Iterator[Violation] | list[Violation]) -> list[Violation]:
    """Violations with the time of the check added."""
    return [Violation(violation.kind, f"{violation.where}{when}", violation.detail) for violation in found]
