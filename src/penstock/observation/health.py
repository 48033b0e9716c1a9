"""Whether an application is live and ready, for probes, with the reasons in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.observation.recorder import Recorder

Indicator = Callable[[], str | None]
"""A user's check: returns None if all is well, otherwise the problem."""


RESTORE_S = 300.0
"""How long a restore may stand still, at least: on a cluster, slots have to come, and they load the program first."""


class Problem(NamedTuple):
    """A problem: a short name for machines, and a sentence with the facts for people."""

    what: str
    why: str


@dataclass(frozen=True)
class Health:
    """The health of one application.

    `state` returns the name of the application's state; an epoch may take `epoch_timeout_s`, and a restore may stand still for as
    long. An application that has records to
    read but commits nothing for `stuck_after_s` is not ready; a paused one is, because it answers queries.
    """

    recorder: Recorder
    state: Callable[[], str]
    epoch_timeout_s: float
    stuck_after_s: float = 30.0
    indicators: dict[str, Indicator] = field(default_factory=dict)

    def live(self) -> tuple[Problem, ...]:
        """Return why the process should be restarted; nothing if it is well, or a restore advances."""
        problems = []
        if self.state() in {"error", "pending_error"}:
            problems.append(Problem("failed", self._failure()))
        still = self.still_for()
        if still > self.may_be_still_s:
            problems.append(Problem("stalled", f"{self._still()} for {still:.0f} s"))
        return tuple(problems)

    def ready(self) -> tuple[Problem, ...]:
        """Return why the application is not ready; nothing if it makes progress."""
        state = self.state()
        if state in {"rebalancing", "created"}:
            return (self._starting(),)
        if state == "standby":
            return (Problem(state, "another instance is active; this one takes over when it ends"),)
        if state != "running":
            return (Problem(state, self._failure() if "error" in state else f"the application is {state}"),)
        problems = list(self.live())
        lag = sum(place.lag for place in self.recorder.partitions.values() if place.lag > 0)
        stuck = self.recorder.stuck_for()
        if lag and stuck > self.stuck_after_s:
            problems.append(Problem("no progress", f"no commit for {stuck:.0f} s, and {lag} records to read"))
        problems.extend(_not_refreshed(self.recorder))
        for name, indicator in list(self.indicators.items()):
            problems.extend(_asked(name, indicator))
        return tuple(problems)

    def still_for(self) -> float:
        """Return the seconds since the current epoch began, or a restore has advanced; 0 if there is neither."""
        restores = self.recorder.restores
        if self.recorder.current is not None:  # lanes may have moved in it, which takes as long as it takes
            return min(self.recorder.lasted(), restores.still_for())
        return restores.still_for() if restores.is_under_way else 0.0

    @property
    def may_be_still_s(self) -> float:
        """How long that may be."""
        return max(self.epoch_timeout_s, RESTORE_S) if self.recorder.restores.is_under_way else self.epoch_timeout_s

    def _still(self) -> str:
        current, left = self.recorder.current, self.recorder.restores.left
        if current is None or self.recorder.restores.is_under_way:
            return f"the restore of lanes has not advanced ({len(left)} lanes are left, the first one is {min(left, default=0)})"
        return f"epoch {current.number} has been in phase {current.phase!r}"

    def _starting(self) -> Problem:
        restore = self.recorder.restore
        if restore is None or restore.is_done:
            return Problem("starting", "checking topics, offsets and lanes")
        left, total = sum(restore.left.values()), sum(restore.total.values())
        done = f"{total - left} of {total} records ({restore.fraction:.0%})"
        return Problem("restoring", f"{done} read in {restore.seconds:.0f} s, over {len(restore.total)} lanes")

    def _failure(self) -> str:
        failure = self.recorder.failure
        return "the application failed: see the log" if failure is None else f"{type(failure).__name__}: see the log"


def _not_refreshed(recorder: Recorder) -> list[Problem]:
    failing = {store: table.failure for store, table in recorder.tables.reports.items() if table.failure is not None}
    return [
        Problem("not refreshed", f"the rows of global table {store!r} cannot be read again ({type(why).__name__}): see the log")
        for store, why in failing.items()
    ]


def _asked(name: str, indicator: Indicator) -> list[Problem]:
    try:
        found = indicator()
    except Exception as error:  # noqa: BLE001 - a check that raises counts as failed
        found = f"the check raised {type(error).__name__}"
    return [] if found is None else [Problem(name, found)]
