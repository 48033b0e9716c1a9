"""`RunningApplication`: an application in this process, from start to shutdown."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import TracebackType
from typing import Protocol

from structlog.contextvars import bind_contextvars

from penstock import machine
from penstock.config import Config
from penstock.deferred_pandas import defer_pandas
from penstock.engines.port import STUCK, Whereabouts
from penstock.errors import PenstockError, StalledError
from penstock.handlers import ErrorHandlers
from penstock.observation import EpochReport, Health, Indicator, Recorder, RestoreReport
from penstock.runtime.failures import explained
from penstock.runtime.pausing import Pausable
from penstock.runtime.querying import Queryable
from penstock.runtime.resizing import Resizable
from penstock.runtime.standby.standing_by import has_lost
from penstock.runtime.start import Start, Started, Until
from penstock.runtime.states import Listener, State, StateMachine
from penstock.runtime.summary import Summarised
from penstock.topology import Topology

_log = logging.getLogger(__name__)
_TICK_S = 0.05
_GRACE_S = 3.0
"""How long a stalled application only reports that it is stalled, so that probes see it, before it ends."""
_NAMED = 10
"""How many lanes an error names."""
_GIVE_WAY_S = 1.0
"""How long an instance that was fenced during its takeover lets the other one announce itself."""


class Companions(Protocol):
    """The plug-ins of an application: their health, and their calls when the application starts, stops or commits."""

    @property
    def indicators(self) -> dict[str, Indicator]:
        """The health checks, by the name of the plug-in."""

    def pre_start(self, running: RunningApplication) -> None:
        """Called before anything is opened; a failure aborts the start."""

    def post_start(self, running: RunningApplication) -> None:
        """Called once records are being processed."""

    def pre_stop(self, running: RunningApplication) -> None:
        """Called when the shutdown begins."""

    def post_stop(self, running: RunningApplication) -> None:
        """Called when everything is closed."""

    def on_state(self, new: State, old: State) -> None:
        """Called when the application's state has changed."""

    def on_restore(self, report: RestoreReport) -> None:
        """Called when a restore has made progress."""

    def on_epoch(self, report: EpochReport) -> None:
        """Called when an epoch is committed."""


class RunningApplication(Summarised, Pausable, Resizable, Queryable):
    """A started application; as a context manager, it is closed at the end of the block.

    Epochs run in a thread of their own. `wait` waits until the application has ended, and raises the error that ended it.
    """

    def __init__(
        self,
        application_id: str,
        topology: Topology,
        handlers: ErrorHandlers,
        config: Config,
        hooks: Companions,
        until: Until = None,
        listeners: tuple[Listener, ...] = (),
    ) -> None:
        defer_pandas()
        Pausable.__init__(self, application_id, Recorder())
        Resizable.__init__(self, is_bounded=until is not None)
        self.topology = topology
        self.handlers = handlers
        self.config: Config = config
        self._hooks = hooks
        self.recorder.listen(hooks.on_epoch)
        self.recorder.listen_to_restore(hooks.on_restore)
        timeout_s = config.epoch_timeout_ms / 1000
        self.health: Health = Health(self.recorder, lambda: self.state.value, timeout_s, indicators=hooks.indicators)
        if config.tokens is not None:
            self.health.indicators["token provider"] = config.tokens.problem
        self._states = StateMachine((*listeners, hooks.on_state))
        self._starting = Start(application_id, topology, handlers, config, self.recorder)
        self._until = until
        self._started: Started | None = None
        self._failure: PenstockError | None = None
        self._stop = machine.event()
        self._thread = machine.thread(self._run, f"penstock-{application_id}")
        self._watching = machine.thread(self._watch, f"penstock-{application_id}-watch")
        self._at_end: list[Callable[[], None]] = []
        self.admin_url: str | None = None
        """The address of the admin server; None without one."""

    @property
    def state(self) -> State:
        """The current state."""
        return self._states.state

    @property
    def epoch(self) -> int:
        """The committed epoch; -1 before the first commit."""
        return -1 if self._started is None else self._started.epochs.progress.epoch

    @property
    def whereabouts(self) -> Whereabouts | None:
        """The engine, and where its slots are now; None before it is started."""
        return self.recorder.whereabouts()

    def start(self) -> RunningApplication:
        """Start, without waiting."""
        self._thread.start()
        self._watching.start()
        return self

    def at_end(self, close: Callable[[], None]) -> None:
        """Call `close` when the application has ended, for whatever reason."""
        self._at_end.append(close)

    def wait_until_running(self, timeout_s: float | None = None) -> bool:
        """Wait until records are being processed; return whether they are in time. Raises if the start has failed."""
        ended = (State.NOT_RUNNING, State.ERROR)
        reached = self._states.wait_for(State.RUNNING, *ended, timeout_s=timeout_s)
        if self.state is State.ERROR:
            self.wait()
        return reached

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; return whether it has come. Raises the error that ended the application, if any."""
        if not self._ended.wait(timeout_s):
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def stop(self) -> None:
        """Request the shutdown, without waiting; the current epoch is committed first."""
        self._stop.set()

    def close(self) -> None:
        """Stop, and wait for the end."""
        self.stop()
        self._ended.wait()

    def __enter__(self) -> RunningApplication:  # noqa: PYI034 - Self is not in Python 3.10
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _run(self) -> None:
        try:
            bind_contextvars(**self._starting.labels)
            self._hooks.pre_start(self)
            while self._started is None:
                if self.config.standby:
                    self._states.enter(State.STANDBY)
                    if not self._starting.stand_by(self._stop):
                        break
                self._states.enter(State.REBALANCING)
                try:
                    self._started = self._starting.run(self._until)
                    wanted = self._process(self._started)
                except Exception as error:
                    if not (self.config.standby and has_lost(error, self.recorder.totals.epochs)):
                        raise
                    _log.warning("standing by again, because another standby was faster: %s", error)
                    self._begin_anew(_GIVE_WAY_S)
                else:
                    if wanted is not None and not self._stop.is_set():
                        _log.info("changing from %d to %d lanes", self.lanes, wanted)
                        self._started.epochs.stop()
                        self.config = replace(self.config, lanes=wanted)
                        self._begin_anew()
            self._states.enter(State.PENDING_SHUTDOWN)
            self._hooks.pre_stop(self)
            if self._started is not None:
                self._started.epochs.stop()
                if self._until is not None:
                    self._started.deliveries.finish(self._stop)
        except BaseException as error:  # noqa: BLE001 - raised by `wait`
            if self._ended.is_set():  # `_watch` has already ended it as stalled
                return
            self._fail(error)
            self._hooks.pre_stop(self)
        _close_all(reversed(self._starting.closers))
        self._hooks.post_stop(self)
        self._end()

    def _begin_anew(self, after_s: float = 0) -> None:
        """Close the parts of a start, and prepare another one."""
        if self.state is State.RUNNING:
            self._hooks.pre_stop(self)
        _close_all(reversed(self._starting.closers))
        self._started = self._epochs = None
        self.recorder.begin_anew()
        self._stop.wait(after_s)
        self._starting = Start(self.application_id, self.topology, self.handlers, self.config, self.recorder)
        bind_contextvars(**self._starting.labels)

    def _fail(self, error: BaseException) -> None:
        self._failure = explained(error, self.config.state_dir)
        if self._failure is not error:
            self._failure.__cause__ = error
        self.recorder.failure = self._failure
        self._states.enter(State.PENDING_ERROR)

    def _end(self) -> None:
        if self._ended.is_set():
            return
        _close_all(self._at_end)
        self._states.enter(State.NOT_RUNNING if self._failure is None else State.ERROR)
        self._ended.set()

    def _watch(self) -> None:
        """End an application whose epoch does not end, or whose restore stands still: the thread that runs it cannot notice.

        Nothing is closed and no plug-in is called, because a call to Spark or a broker may hang as well.
        """
        while not self._ended.wait(min(1.0, self.health.epoch_timeout_s / 10)):
            limit = self.health.may_be_still_s
            if self.health.still_for() < limit + _GRACE_S:
                continue
            if self._failure is None:
                self._fail(StalledError(_stalled(self.recorder, limit)))
            self._end()
            return

    def _process(self, started: Started) -> int | None:
        """Run epochs until a stop is requested, the bounds of the run are reached, or there is to be another number of lanes.

        Return that number, None without one.
        """
        self._may_pause(started.epochs)
        self._program = started.state.program
        started.input_stream.start()
        started.deliveries.start()
        self._states.enter(State.RUNNING)
        self._hooks.post_start(self)
        checked = machine.monotonic()
        while not self._stop.is_set() and not started.epochs.is_done:
            if (wanted := self._other_lanes) is not None:
                return wanted
            try:
                if started.input_stream.wait(_TICK_S):
                    raise PenstockError("The input has ended unexpectedly. Start again.")
                started.epochs.tick()
                started.input_stream.follow()
            except Exception as error:  # noqa: BLE001 - raised again unless it can be recovered from
                started.input_stream.recover(error)
            if machine.monotonic() - checked > 1:
                checked = machine.monotonic()
                started.epochs.while_idle(started.publisher.check)
                started.deliveries.check()
        return None


def _close_all(closers: Iterable[Callable[[], None]]) -> None:
    """Call all closers in order, even if one fails."""
    for close in closers:
        try:
            close()
        except Exception:  # noqa: BLE001 - the others must be closed too
            _log.exception("closing failed during the shutdown")


def _stalled(recorder: Recorder, limit_s: float) -> str:
    epoch, left = recorder.current, recorder.restores.left
    if epoch is None or recorder.restores.is_under_way:
        places = [f"lane {lane}: {where}" for lane, where in left.items()]
        return (
            f"The restore of {len(places)} lanes has not advanced for more than {limit_s:g} s: "
            f"{'; '.join(places[:_NAMED])}. {STUCK} Then start again."
        )
    return (
        f"Epoch {epoch.number} has been in phase {epoch.phase!r} for more than {limit_s:g} s (epoch_timeout); none of it is "
        f"committed. Start again. If epochs need that long, increase epoch_timeout or decrease max_epoch_records."
    )
