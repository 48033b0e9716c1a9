"""Whether an application lives, and whether it is ready: what a probe asks, with reasons in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.observing.recorder import Recorder

Indicator = Callable[[], str | None]
"""A user's own check: None if all is well, otherwise what is not."""


class Problem(NamedTuple):
    """What is wrong: a short name for machines, and a sentence with the facts for people."""

    what: str
    why: str


@dataclass(frozen=True)
class Health:
    """The judge of one application.

    `state` gives the application's state by its name; an epoch may last `epoch_timeout_s`. Without progress for `stuck_after_s`
    although there are records to read, the application is not ready.
    """

    recorder: Recorder
    state: Callable[[], str]
    epoch_timeout_s: float
    stuck_after_s: float = 30.0
    indicators: dict[str, Indicator] = field(default_factory=dict)

    def live(self) -> tuple[Problem, ...]:
        """Why the process should be started anew; nothing if it is well, also while it restores."""
        problems = []
        if self.state() in {"error", "pending_error"}:
            problems.append(Problem("failed", self._failure()))
        current, lasted = self.recorder.current, self.recorder.lasted()
        if current is not None and lasted > self.epoch_timeout_s:
            problems.append(Problem("stalled", f"epoch {current.number} has been in phase {current.phase!r} for {lasted:.0f} s"))
        return tuple(problems)

    def ready(self) -> tuple[Problem, ...]:
        """Why nobody should count on the application now; nothing if it keeps up its work."""
        state = self.state()
        if state in {"rebalancing", "created"}:
            return (self._starting(),)
        if state != "running":
            return (Problem(state, self._failure() if "error" in state else f"the application is {state}"),)
        problems = list(self.live())
        lag = sum(place.lag for place in self.recorder.partitions.values() if place.lag > 0)
        idle = self.recorder.idle_for()
        if lag and idle > self.stuck_after_s:
            problems.append(Problem("no progress", f"nothing was committed for {idle:.0f} s, and {lag} records are waiting"))
        for name, indicator in list(self.indicators.items()):
            problems.extend(_asked(name, indicator))
        return tuple(problems)

    def _starting(self) -> Problem:
        restore = self.recorder.restore
        if restore is None or restore.is_done:
            return Problem("starting", "topics, offsets and lanes are being looked at")
        left, total = sum(restore.left.values()), sum(restore.total.values())
        done = f"{total - left} of {total} records ({restore.fraction:.0%})"
        return Problem("restoring", f"{done} read in {restore.seconds:.0f} s, over {len(restore.total)} lanes")

    def _failure(self) -> str:
        failure = self.recorder.failure
        return "it has failed" if failure is None else f"{type(failure).__name__}: see the log"


def _asked(name: str, indicator: Indicator) -> list[Problem]:
    try:
        found = indicator()
    except Exception as error:  # noqa: BLE001 - a check that fails is a check that is not passed
        found = f"the check itself failed: {type(error).__name__}"
    return [] if found is None else [Problem(name, found)]
