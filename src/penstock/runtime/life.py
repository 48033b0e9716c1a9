"""The life of an application, in a thread of its own: its starts, its epochs until a stop or a failure, and its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from structlog.contextvars import bind_contextvars

from penstock import machine
from penstock.config import Config
from penstock.engines.port import STUCK
from penstock.epochs.program import Program
from penstock.errors import ConfigError, PenstockError, StalledError, text_of
from penstock.observation import Health, Recorder
from penstock.runtime.input.opening import Until
from penstock.runtime.loop.epochs import Epochs
from penstock.runtime.standby.standing_by import has_lost
from penstock.runtime.start import Start, Started
from penstock.runtime.states import State, StateMachine
from penstock.state.disks import disk_error

_log = logging.getLogger(__name__)
_TICK_S = 0.05
_GRACE_S = 3.0
"""How long a stalled application only reports that it is stalled, so that probes see it, before it ends."""
_NAMED = 10
"""How many lanes an error names."""
_GIVE_WAY_S = 1.0
"""How long an instance that was fenced during its takeover lets the other one announce itself."""


@dataclass(frozen=True)
class Hooked:
    """What plug-ins have hooked into the moments of one application's life."""

    pre_start: Callable[[], None]
    post_start: Callable[[], None]
    pre_stop: Callable[[], None]
    post_stop: Callable[[], None]


class Pause:
    """A pause, which a person requests and ends: no epoch begins, not even before the application has started.

    What `Epochs.interrupt` does lasts a moment, while the input is replaced, and may happen during a pause.
    """

    def __init__(self, application_id: str, recorder: Recorder) -> None:
        self._application_id = application_id
        self._recorder = recorder
        self._lock = machine.lock()
        self._epochs: Epochs | None = None

    def change(self, *, is_paused: bool) -> None:
        """Begin or end the pause."""
        with self._lock:
            if is_paused is self._recorder.is_paused:
                return
            self._recorder.paused(is_paused)
            if self._epochs is not None:
                self._epochs.is_paused = is_paused
        _log.info("%s was %s", self._application_id, "paused" if is_paused else "resumed")

    @property
    def is_at_rest(self) -> bool:
        """Whether it is paused, and all epochs are committed."""
        return self._recorder.is_paused and self._epochs is not None and self._epochs.is_idle

    def take_over(self, epochs: Epochs) -> None:
        """Take over the epochs of a start, during which the application may have been paused."""
        with self._lock:
            self._epochs = epochs
            epochs.is_paused = self._recorder.is_paused

    def let_go(self) -> None:
        """Forget the epochs of a start that is over."""
        self._epochs = None


class Lanes:
    """How many lanes the application has, and how many it is to have.

    For another number it commits what has begun, ends its lanes, and starts again within the same process.
    """

    def __init__(self, *, is_bounded: bool, has_standbys: bool) -> None:
        self._is_bounded = is_bounded
        self._has_standbys = has_standbys
        self._wanted: int | None = None
        self.program: Program | None = None
        """The program that runs, the last one while it starts again; None before the first start is complete."""

    @property
    def current(self) -> int | None:
        """The number of lanes."""
        return None if self.program is None else self.program.lanes

    @property
    def shards(self) -> int | None:
        """The number of shards, which is the most lanes that are possible."""
        return None if self.program is None else self.program.shards

    @property
    def wanted(self) -> int | None:
        """The number that was requested last, unless it is the current one."""
        return None if self._wanted == self.current else self._wanted

    def request(self, lanes: int) -> None:
        """Request another number of lanes; raises if it is not possible."""
        if self._has_standbys:
            raise ConfigError(
                "lanes: an instance that has standbys does not change its lanes, because one of them would take over. Start a "
                "standby with other lanes, then end this instance."
            )
        if self._is_bounded:
            raise ConfigError("lanes: a run that ends at a bound keeps its lanes. Set lanes for the next start.")
        if self.shards is None or not 1 <= lanes <= self.shards:
            most = "its shards, which are known when it runs" if self.shards is None else f"its {self.shards} shards"
            raise ConfigError(f"lanes: {lanes} is not possible. Set 1 or more, and at most as many as {most}.")
        self._wanted = lanes


class End:
    """The end of an application: whether it has come, why, and what is to be closed then."""

    def __init__(self) -> None:
        self.event: machine.Event = machine.event()
        self.failure: PenstockError | None = None
        self._closers: list[Callable[[], None]] = []

    def at(self, close: Callable[[], None]) -> None:
        """Call `close` when the application has ended, for whatever reason."""
        self._closers.append(close)

    def close(self) -> None:
        """Call what is to be called."""
        close_all(self._closers)


class Life:
    """The life of one application. `begin` returns a start with settings, which change with the number of lanes."""

    def __init__(
        self,
        begin: Callable[[Config], Start],
        config: Config,
        until: Until,
        hooked: Hooked,
        states: StateMachine,
        recorder: Recorder,
        health: Health,
    ) -> None:
        self.config: Config = config
        self.end: End = End()
        self.lanes: Lanes = Lanes(is_bounded=until is not None, has_standbys=config.standby)
        self.started: Started | None = None
        self._begin = begin
        self._starting = begin(config)
        self._until = until
        self._hooked = hooked
        self._states = states
        self._recorder = recorder
        self._health = health
        self._stop = machine.event()
        application_id = self._starting.labels["application"]
        self.pause: Pause = Pause(application_id, recorder)
        self._threads = (
            machine.thread(self._run, f"penstock-{application_id}"),
            machine.thread(self._watch, f"penstock-{application_id}-watch"),
        )

    def start(self) -> None:
        """Start, without waiting."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Request the shutdown, without waiting; the current epoch is committed first."""
        self._stop.set()

    def _run(self) -> None:
        try:
            bind_contextvars(**self._starting.labels)
            self._hooked.pre_start()
            while self.started is None:
                if self.config.standby:
                    self._states.enter(State.STANDBY)
                    if not self._starting.stand_by(self._stop):
                        break
                self._states.enter(State.REBALANCING)
                try:
                    self.started = self._starting.run(self._until)
                    wanted = self._process(self.started)
                except Exception as error:
                    if not (self.config.standby and has_lost(error, self._recorder.totals.epochs)):
                        raise
                    _log.warning("standing by again, because another standby was faster: %s", error)
                    self._begin_anew(_GIVE_WAY_S)
                else:
                    if wanted is not None and not self._stop.is_set():
                        _log.info("changing from %d to %d lanes", self.lanes.current, wanted)
                        self.started.epochs.stop()
                        self.config = replace(self.config, lanes=wanted)
                        self._begin_anew()
            self._states.enter(State.PENDING_SHUTDOWN)
            self._hooked.pre_stop()
            if self.started is not None:
                self.started.epochs.stop()
                if self._until is not None:
                    self.started.deliveries.finish(self._stop)
        except BaseException as error:  # noqa: BLE001 - raised by `RunningApplication.wait`
            if self.end.event.is_set():  # `_watch` has already ended it as stalled
                return
            self._fail(error)
            self._hooked.pre_stop()
        close_all(reversed(self._starting.closers))
        self._hooked.post_stop()
        self._finish()

    def _begin_anew(self, after_s: float = 0) -> None:
        """Close the parts of a start, and prepare another one."""
        if self._states.state is State.RUNNING:
            self._hooked.pre_stop()
        close_all(reversed(self._starting.closers))
        self.started = None
        self.pause.let_go()
        self._recorder.begin_anew()
        self._stop.wait(after_s)
        self._starting = self._begin(self.config)
        bind_contextvars(**self._starting.labels)

    def _fail(self, error: BaseException) -> None:
        failure = explained(error, self.config.state_dir)
        if failure is not error:
            failure.__cause__ = error
        self.end.failure = self._recorder.failure = failure
        self._states.enter(State.PENDING_ERROR)

    def _finish(self) -> None:
        if self.end.event.is_set():
            return
        self.end.close()
        self._states.enter(State.NOT_RUNNING if self.end.failure is None else State.ERROR)
        self.end.event.set()

    def _watch(self) -> None:
        """End an application whose epoch does not end, or whose restore stands still: the thread that runs it cannot notice.

        Nothing is closed and no plug-in is called, because a call to Spark or a broker may hang as well.
        """
        while not self.end.event.wait(min(1.0, self._health.epoch_timeout_s / 10)):
            limit = self._health.may_be_still_s
            if self._health.still_for() < limit + _GRACE_S:
                continue
            if self.end.failure is None:
                self._fail(StalledError(_stalled(self._recorder, limit)))
            self._finish()
            return

    def _process(self, started: Started) -> int | None:
        """Run epochs until a stop is requested, the bounds of the run are reached, or there is to be another number of lanes.

        Return that number, None without one.
        """
        self.pause.take_over(started.epochs)
        self.lanes.program = started.state.program
        started.input_stream.start()
        started.deliveries.start()
        self._states.enter(State.RUNNING)
        self._hooked.post_start()
        checked = machine.monotonic()
        while not self._stop.is_set() and not started.epochs.is_done:
            if (wanted := self.lanes.wanted) is not None:
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


def close_all(closers: Iterable[Callable[[], None]]) -> None:
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


_LONGEST = 4_000


def explained(error: BaseException, state_dir: Path) -> PenstockError:
    """Return an error of ours as it is, one of a disk with its cure, and any other with its text, which may be Spark's report."""
    if isinstance(error, PenstockError):
        return error
    of_disk = disk_error(error, state_dir)
    if of_disk is not None:
        return of_disk
    return PenstockError(f"Unexpected failure: {type(error).__name__}: {text_of(error)[:_LONGEST]}")
