"""`Turn`: an instance's turn to be the active one: at once, or when no other is active; and the log of how long that took."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from functools import partial

from penstock import machine
from penstock.history.rehearsal import rehearse
from penstock.kafka.clients import consumer_settings
from penstock.kafka.commit import Committer
from penstock.kafka.records import RecordReader
from penstock.kafka.topics import Topics
from penstock.observation import EpochReport
from penstock.runtime.instance import Instance
from penstock.runtime.standby.announcement import Announcements, announce
from penstock.runtime.standby.beacon import Signal, open_beacon
from penstock.runtime.standby.standing_by import Readiness, refuse_refused, stand_by

_log = logging.getLogger(__name__)

DETECTED, FENCED, POSITION, RESTORED, COMMITTED = "detected", "fenced", "position", "restored", "committed"
"""The other instance is known to be gone; it can no longer commit; what it has committed is known; lanes are there; and the first
epoch of this instance is committed."""


class Takeover:
    """A stopwatch that starts when the other instance was last heard."""

    def __init__(self, heard: float, clock: Callable[[], float] = machine.monotonic) -> None:
        self._began = self._last = heard
        self._clock = clock
        self._seconds: dict[str, float] = {}

    def reached(self, step: str) -> None:
        """Note that a step is done."""
        now = self._clock()
        self._seconds[step], self._last = now - self._last, now

    def on_epoch(self, report: EpochReport) -> None:
        """Log all steps when the first epoch is committed."""
        if COMMITTED not in self._seconds:
            self.reached(COMMITTED)
            steps = ", ".join(f"{step} {seconds:.3f} s" for step, seconds in self._seconds.items())
            _log.info("took over in %.3f s, with epoch %d: %s", self._last - self._began, report.number, steps)


class Turn:
    """Without `wait` it is this instance's turn at once, and nobody watches it."""

    def __init__(self) -> None:
        self._takeover = Takeover(machine.monotonic())
        self._beacon: Signal | None = None

    def wait(
        self,
        instance: Instance,
        topics: Topics,
        warm: Callable[[], None],
        stop: machine.Event,
        closers: list[Callable[[], None]],
    ) -> bool:
        """Wait until no other instance is active; return False if a stop is requested before.

        Meanwhile the start is rehearsed, and `warm` keeps slots ready. `closers` gets what ends the turn.
        """
        config, application_id = instance.config, instance.application_id
        host, port = config.standby_endpoint
        open_beacon(host, 0).close()  # raises now, and not in the middle of a takeover, if the address is not one of this host
        plan = partial(rehearse, application_id, instance.topology, instance.handlers, config)
        readiness = Readiness(lambda: refuse_refused(plan()), warm)
        with closing(RecordReader(consumer_settings(config, application_id), config.broker_timeout_ms)) as reader:
            announced = Announcements(application_id, topics, reader)
            gone = stand_by(announced.last, config.standby_timeout_ms / 1_000, readiness, stop)
        if gone is None:
            return False
        _log.info("%s takes over: %s", application_id, gone.why)
        self._takeover = Takeover(gone.heard)
        self._takeover.reached(DETECTED)
        self._beacon = open_beacon(host, port)
        closers += [instance.recorder.listen(self._takeover.on_epoch), self._beacon.close]
        return True

    def announce(self, instance: Instance, committer: Committer) -> None:
        """Commit where other standbys find this instance, if it was one; raise `FencedError` if another was faster."""
        if self._beacon is not None:
            announce(self._beacon.announcement(instance.program.incarnation), instance.application_id, committer)

    def reached(self, step: str) -> None:
        """Note that a step of the start is done."""
        self._takeover.reached(step)
