"""Standing by: an instance that is ready to start waits until no other one is active."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from penstock.errors import ConfigError, FencedError, IncompatibleTopologyError
from penstock.plan import Changes, Verdict
from penstock.runtime.announcement import Announcement
from penstock.runtime.beacon import Gone, watch
from penstock.spark.failures import translated

logger: logging.Logger = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0
"""How often the lanes' topic is read while waiting, so that little of it is left to read when it matters."""

WARM_EVERY_S = 30.0
"""How often processes are used while waiting. Spark ends Python workers that have been idle for a minute."""


class Announced(Protocol):
    """Knows who is active."""

    def last(self) -> Announcement | None:
        """Return the last announcement; None if there is none."""


@dataclass(frozen=True)
class Readiness:
    """What an instance does before it waits: `check` raises if it could not start, `warm` starts what epochs run on."""

    check: Callable[[], None]
    warm: Callable[[], None]


def stand_by(announced: Announced, timeout_s: float, readiness: Readiness, stop: threading.Event) -> Gone | None:
    """Wait until no other instance is active; return why none is, or None if a stop is requested before.

    If there is one, make sure first that this instance can take over, and at once.
    """
    found = announced.last()
    if found is None:
        return Gone("no other instance has announced itself", time.monotonic())
    readiness.check()
    with _kept(readiness.warm):
        return _wait(announced, timeout_s, stop)


def _wait(announced: Announced, timeout_s: float, stop: threading.Event) -> Gone | None:
    while not stop.is_set():
        found = announced.last()
        if found is None:  # the application was reset
            return Gone("no other instance has announced itself", time.monotonic())
        _refuse_unreachable(found)
        logger.info("standing by: instance %s is active at %s:%d", found.incarnation, found.host, found.port)
        gone = watch(found, timeout_s, _Current(announced, found, stop))
        if gone is not None and announced.last() == found:
            return gone
    return None


class _Current:
    """Whether a watch goes on: no stop is requested, and the instance that is watched has not been replaced."""

    def __init__(self, announced: Announced, found: Announcement, stop: threading.Event) -> None:
        self._announced = announced
        self._found = found
        self._stop = stop
        self._looked_at = time.monotonic()

    def __call__(self) -> bool:
        if self._stop.is_set():
            return False
        if time.monotonic() - self._looked_at < LOOK_EVERY_S:
            return True
        is_current = self._announced.last() == self._found
        self._looked_at = time.monotonic()
        return is_current


@contextmanager
def _kept(warm: Callable[[], None]) -> Iterator[None]:
    """Call `warm`, and again from time to time while the block runs, in a thread of its own: a call may hang."""
    warm()
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(WARM_EVERY_S):
            try:
                warm()
            except Exception:
                logger.exception("this standby may need longer to take over")

    threading.Thread(target=keep, name="penstock-warm", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


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
    return not epochs and isinstance(translated(error), FencedError)
