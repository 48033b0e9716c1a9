"""Standing by: an instance that is ready to start waits until no other one is active."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from penstock import machine
from penstock.errors import ConfigError, FencedError, IncompatibleTopologyError
from penstock.runtime.standby.announcement import Announcement
from penstock.runtime.standby.beacon import Gone, watch
from penstock.topology.plan import Changes, Verdict

logger: logging.Logger = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0
"""How often the lanes' topic is read while waiting, so that little of it is left to read when it matters."""

WARM_EVERY_S = 30.0
"""How often slots are asked while waiting whether they have loaded the program: one that was lost loads it again."""


LastAnnounced = Callable[[], Announcement | None]
"""Returns the last announcement; None if there is none."""


@dataclass(frozen=True)
class Readiness:
    """What an instance does before it waits: `check` raises if it could not start, `warm` starts what epochs run on."""

    check: Callable[[], None]
    warm: Callable[[], None]


def stand_by(announced: LastAnnounced, timeout_s: float, readiness: Readiness, stop: machine.Event) -> Gone | None:
    """Wait until no other instance is active; return why none is, or None if a stop is requested before.

    Meanwhile, make sure that this instance can take over, and at once. Raises if it cannot.
    """
    with closing(_Preparation(readiness)) as preparation:
        while not stop.is_set():
            found = announced()
            if found is None:
                return Gone("no other instance has announced itself", machine.monotonic())
            _refuse_unreachable(found)
            gone = watch(found, timeout_s, _Watching(announced, found, preparation, stop))
            if gone is not None and announced() == found:
                return gone
    return None


class _Preparation:
    """Makes an instance ready, and keeps it so, in a thread of its own.

    None of it may delay a takeover: the offsets that are checked cannot be read while a transaction of the instance before is
    open, and only the takeover ends that. An ordinary start makes the same checks.
    """

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness
        self._ended = machine.event()
        self._thread = machine.thread(self._run, "penstock-standby")
        self._failure: Exception | None = None
        self.is_done: bool = False

    def begin(self) -> None:
        """Begin, if it has not begun yet; raise what has failed."""
        if self._thread.ident is None:
            self._thread.start()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """End it, without waiting."""
        self._ended.set()

    def _run(self) -> None:
        try:
            self._readiness.check()
            if not self._ended.is_set():
                self._readiness.warm()
        except Exception as error:
            logger.debug("this instance cannot stand by", exc_info=True)
            self._failure = error
            return
        self.is_done = True
        while not self._ended.wait(WARM_EVERY_S):
            try:
                self._readiness.warm()
            except Exception:
                logger.exception("this standby may need longer to take over")


class _Watching:
    """Whether a watch goes on: no stop is requested, and the instance that is watched has not been replaced."""

    def __init__(self, announced: LastAnnounced, found: Announcement, preparation: _Preparation, stop: machine.Event) -> None:
        self._announced = announced
        self._found = found
        self._preparation = preparation
        self._stop = stop
        self._looked_at = machine.monotonic()
        self._is_said = False

    def __call__(self) -> bool:
        if self._stop.is_set():
            return False
        self._preparation.begin()
        if self._preparation.is_done and not self._is_said:
            self._is_said = True
            found = self._found
            logger.info("standing by: instance %s is active at %s:%d", found.incarnation, found.host, found.port)
        if machine.monotonic() - self._looked_at < LOOK_EVERY_S:
            return True
        is_current = self._announced() == self._found
        self._looked_at = machine.monotonic()
        return is_current


def _refuse_unreachable(found: Announcement) -> None:
    """Refuse to watch an instance that only its own host can reach: nobody would answer here, whether it is alive or not."""
    if found.only_on not in {"", socket.gethostname()}:
        raise ConfigError(
            f"standby_address: the active instance listens at {found.host}, where only its own host, {found.only_on}, reaches "
            f"it. Set standby_address on every instance to an address that the others reach. If no instance runs, start one "
            f"without standby first."
        )


def refuse_refused(changes: Changes) -> None:
    """Raise if a start would be refused: a standby that cannot start must not be relied on."""
    decisions = (*changes.stores, *changes.sources)
    reasons = [f"{decision.name}: {decision.why}" for decision in decisions if decision.verdict is Verdict.REFUSED]
    if changes.is_refused:
        raise IncompatibleTopologyError("This standby could not take over:\n  " + "\n  ".join([*changes.refusals, *reasons]))


def has_lost(error: BaseException, epochs: int) -> bool:
    """Whether a takeover failed only because another standby was faster: it was fenced before its first commit."""
    return not epochs and isinstance(error, FencedError)
