"""A row with standbys: the application of `verification.chaos` in several instances, one of which is active."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from typing import ClassVar

from verification.chaos.application import Application, Part
from verification.chaos.trial import DEATH_S, Conditions, Trial, World
from verification.cluster.trial import HOSTS, ClusterTrial
from verification.harness.processes import HarnessError
from verification.takeover.figures import Taken, is_watching, read, taken_over

STANDBY = {"PENSTOCK_STANDBY": "true"}
FENCED = 20
READY_S = 120
TAKEOVER_S = 120
LOOK_S = 0.01


class StandbyTrial(Trial):
    """`application` is the active instance, `standbys` are those that wait. Each has its own files, as on a host of its own."""

    def __init__(self, world: World, name: str, conditions: Conditions, guard_off: str = "") -> None:
        super().__init__(world, name, conditions, guard_off)
        self.standbys: list[Application] = []

    def start(self, fault: str = "", victim: Part = Part.DRIVER, **settings: str) -> None:
        """Start the active instance; one with a bound cannot be a standby."""
        super().start(fault, victim, **(settings if "CHAOS_UNTIL" in settings else {**STANDBY, **settings}))

    def begin(self, standbys: int) -> None:
        """Start an instance that becomes active, then those that wait."""
        self.start()
        self.see_progress()
        for number in range(standbys):
            self.stand_by(self.instance(f"standby-{number}"))
        self.await_standbys()

    def stand_by(self, instance: Application) -> None:
        """Start an instance, as another one is active."""
        instance.start("", Part.DRIVER, **STANDBY)
        self.standbys.append(instance)

    def await_standbys(self) -> None:
        """Wait until all standbys watch the active instance."""
        self._await("all standbys are ready", lambda: all(is_watching(read(each.log)) for each in self.standbys), READY_S)

    def replace(self, end: Callable[[Application], bool]) -> tuple[Application, Taken]:
        """End the active instance, and wait until a standby has committed; return the one before, and how long that took."""
        before, since = self.application, time.time()
        self.wanted += 1
        self._hurt_at = time.monotonic()
        self.fired += end(before)
        found: list[tuple[Application, Taken]] = []

        def has_taken_over() -> bool:
            found[:] = [(each, taken) for each in self.standbys if (taken := taken_over(read(each.log), since)) is not None]
            return bool(found)

        self._await("a standby takes over", has_taken_over, TAKEOVER_S)
        winner, taken = found[-1]
        self.standbys.remove(winner)
        self.application = winner
        self.see_progress()
        self._recovered()
        return before, taken

    def kill_active(self, part: Part) -> Taken:
        """Kill the active instance; when another one is active, the killed one stands by."""
        before, taken = self.replace(lambda active: active.kill(part))
        self.kills += 1
        self._ended(before)
        self.stand_by(before)
        return taken

    def stop_active(self) -> Taken:
        """Stop the active instance as in a rolling upgrade; then it stands by."""
        before, taken = self.replace(lambda active: active.signal(Part.DRIVER, signal.SIGTERM))
        if self._ended(before) != 0:
            self.violate("exit", "application", f"{before.exits[-1].code} after SIGTERM; see {before.log}")
        self.stand_by(before)
        return taken

    def suspend_active(self) -> Taken:
        """Suspend the active instance until another one has taken over: then it must find out that it is fenced."""
        before, taken = self.replace(lambda active: active.signal(Part.ALL, signal.SIGSTOP))
        before.signal(Part.ALL, signal.SIGCONT)
        if self._ended(before) != FENCED:
            self.violate("unfenced", "application", f"ended with {before.exits[-1].code}, not with {FENCED}; see {before.log}")
        self.stand_by(before)
        return taken

    def finish(self) -> None:
        """Stop the standbys, then do as every row does."""
        self.await_standbys()  # before that, SIGTERM ends a process as any other
        for instance in self.standbys:
            if instance.stop() != 0:
                self.violate("exit", "standby", f"{instance.exits[-1].code} after SIGTERM; see {instance.log}")
            self._check_exits_of(instance)
        self.standbys = []
        super().finish()

    def _check_exits_of(self, instance: Application) -> None:
        for ended in instance.exits:
            if not ended.was_asked and ended.code not in self.conditions.exits:
                self.violate("exit", "standby", f"ended by itself with {ended.code}; logs are in {instance.directory}")

    def _ended(self, instance: Application) -> int:
        try:
            return instance.wait(DEATH_S)
        except HarnessError:
            self.stuck("the instance before ends", f"not within {DEATH_S} s; see {instance.log}")

    def _await(self, what: str, is_so: Callable[[], bool], timeout_s: float) -> None:
        """Wait, without starting anything; a standby that ends meanwhile will not be back."""
        deadline = time.monotonic() + timeout_s
        while not is_so():
            for instance in self.standbys:
                if not instance.is_running:
                    self.stuck(what, f"a standby has ended with {instance.exits[-1].code}; see {instance.log}")
            if time.monotonic() > deadline:
                self.stuck(what, f"not within {timeout_s:g} s; standbys: {[str(each.log) for each in self.standbys]}")
            time.sleep(LOOK_S)


class OnOneMachine(StandbyTrial):
    """All instances share one directory of files."""

    def instance(self, name: str, **settings: str) -> Application:
        """An instance of the application."""
        return super().instance(name, **{"PENSTOCK_STATE_DIR": str(self.directory / "state"), **settings})


class OnCluster(StandbyTrial, ClusterTrial):
    """Every instance is a Spark application of its own, on the same hosts; each has half of their cores, three for two slots."""

    host_cores = 6
    host_memory = "2g"
    more_spark: ClassVar[Mapping[str, str]] = {"spark.executor.cores": "3", "spark.cores.max": str(3 * HOSTS)}
