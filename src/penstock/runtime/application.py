"""`RunningApplication`: an application in this process, as users see it: it is waited for, paused, resized, queried and ended."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from penstock import machine
from penstock.config import Config
from penstock.deferred_pandas import defer_pandas
from penstock.engines.port import Whereabouts
from penstock.errors import NotReadyError
from penstock.handlers import ErrorHandlers
from penstock.observation import EpochReport, Health, Indicator, Recorder, RestoreReport
from penstock.queries import CommittedState, QueryResult, ask, view
from penstock.runtime.input.opening import Until
from penstock.runtime.life import Hooked, Life
from penstock.runtime.start import Start, Started
from penstock.runtime.states import Listener, State, StateMachine
from penstock.runtime.summary import summary
from penstock.timing import Duration, duration_ms
from penstock.topology import Topology

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.context import DataFrame

_LOOK_S = 0.05


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


class RunningApplication:
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
        self.application_id = application_id
        self.topology = topology
        self.handlers = handlers
        self.recorder: Recorder = Recorder()
        self.recorder.listen(hooks.on_epoch)
        self.recorder.listen_to_restore(hooks.on_restore)
        timeout_s = config.epoch_timeout_ms / 1000
        self.health: Health = Health(self.recorder, lambda: self.state.value, timeout_s, indicators=hooks.indicators)
        if config.tokens is not None:
            self.health.indicators["token provider"] = config.tokens.problem
        self.admin_url: str | None = None
        """The address of the admin server; None without one."""
        self._states = StateMachine((*listeners, hooks.on_state))
        moments = (hooks.pre_start, hooks.post_start, hooks.pre_stop, hooks.post_stop)
        hooked = Hooked(*(partial(moment, self) for moment in moments))
        self._life = Life(self._begin, config, until, hooked, self._states, self.recorder, self.health)

    def _begin(self, config: Config) -> Start:
        return Start(self.application_id, self.topology, self.handlers, config, self.recorder)

    # ---- its life ---------------------------------------------------------------------------------------------------------

    @property
    def config(self) -> Config:
        """The settings, with the current number of lanes if it was changed."""
        return self._life.config

    @property
    def state(self) -> State:
        """The current state."""
        return self._states.state

    @property
    def epoch(self) -> int:
        """The committed epoch; -1 before the first commit."""
        started = self._life.started
        return -1 if started is None else started.epochs.progress.epoch

    @property
    def whereabouts(self) -> Whereabouts | None:
        """The engine, and where its slots are now; None before it is started."""
        return self.recorder.whereabouts()

    def start(self) -> RunningApplication:
        """Start, without waiting."""
        self._life.start()
        return self

    def at_end(self, close: Callable[[], None]) -> None:
        """Call `close` when the application has ended, for whatever reason."""
        self._life.end.at(close)

    def wait_until_running(self, timeout_s: float | None = None) -> bool:
        """Wait until records are being processed; return whether they are in time. Raises if the start has failed."""
        ended = (State.NOT_RUNNING, State.ERROR)
        reached = self._states.wait_for(State.RUNNING, *ended, timeout_s=timeout_s)
        if self.state is State.ERROR:
            self.wait()
        return reached

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; return whether it has come. Raises the error that ended the application, if any."""
        end = self._life.end
        if not end.event.wait(timeout_s):
            return False
        if end.failure is not None:
            raise end.failure
        return True

    def stop(self) -> None:
        """Request the shutdown, without waiting; the current epoch is committed first."""
        self._life.stop()

    def close(self) -> None:
        """Stop, and wait for the end."""
        self.stop()
        self._life.end.event.wait()

    def __enter__(self) -> RunningApplication:  # noqa: PYI034 - Self is not in Python 3.10
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # ---- pauses, and the number of lanes ----------------------------------------------------------------------------------

    def pause(self) -> None:
        """Begin no further epoch until `resume`, without waiting; those that have begun are committed.

        Everything else goes on: queries and probes are answered, connections stay open, and `stop` works. What becomes due by the
        clock meanwhile comes after the pause. A pause during the start begins when the start is complete; a restart ends it.
        Pausing twice, or resuming what is not paused, does nothing.

        Example:
            >>> running.pause()  # doctest: +SKIP
            >>> running.wait_until_paused(60)  # doctest: +SKIP
            True
            >>> running.resume()  # doctest: +SKIP
        """
        self._life.pause.change(is_paused=True)

    def resume(self) -> None:
        """End a pause."""
        self._life.pause.change(is_paused=False)

    @property
    def is_paused(self) -> bool:
        """Whether a pause was requested; epochs that had begun may still run."""
        return self.recorder.is_paused

    @property
    def is_at_rest(self) -> bool:
        """Whether it is paused, and all epochs are committed."""
        return self._life.pause.is_at_rest

    def wait_until_paused(self, timeout_s: float | None = None) -> bool:
        """Wait until it `is_at_rest`; return whether it is: not if the time is over, or it was resumed or has ended."""
        deadline = None if timeout_s is None else machine.monotonic() + timeout_s
        while self.is_paused and not self.is_at_rest and (deadline is None or machine.monotonic() < deadline):
            if self._life.end.event.wait(_LOOK_S):
                return False
        return self.is_at_rest

    @property
    def lanes(self) -> int | None:
        """The number of lanes, the last one while it starts again; None before the first start is complete."""
        return self._life.lanes.current

    @property
    def shards(self) -> int | None:
        """The number of shards, which is the most lanes that are possible; None before the first start is complete."""
        return self._life.lanes.shards

    def change_lanes(self, lanes: int) -> None:
        """Use another number of lanes from the next epoch on, without waiting; results do not depend on it.

        The last call decides: one with the current number withdraws a change that has not begun.

        The application is `rebalancing` while it ends its lanes and restores others from the same files; it answers probes
        meanwhile. A restart of the process uses the number of its settings again.

        Example:
            >>> running.change_lanes(8)  # doctest: +SKIP
            >>> running.wait_until_running(60)  # doctest: +SKIP
            True
        """
        self._life.lanes.request(lanes)

    # ---- queries ----------------------------------------------------------------------------------------------------------

    @property
    def committed_state(self) -> CommittedState:
        """The stores as of the last commit; raises `NotReadyError` while they are being restored."""
        return self._require_started().state

    def store(self, name: str) -> Any:
        """Return a read-only view of a store, always as of the last commit; see `penstock.queries.views`.

        Example:
            >>> running.store("words")["to"]  # doctest: +SKIP
            2
        """
        return view(self.committed_state, name)

    def query(self, store: str, query: Any, *, at_least_epoch: int | None = None, timeout: Duration = "10s") -> QueryResult[Any]:
        """Return the result of a query (`penstock.queries.KeyQuery` and others), and the epoch it is from.

        With `at_least_epoch`, wait until that epoch is committed, at most for `timeout`.

        Example:
            >>> running.query("words", KeyQuery("to"))  # doctest: +SKIP
            QueryResult(value=2, epoch=17, is_complete=True)
        """
        return ask(self.committed_state, store, query, at_least_epoch, duration_ms(timeout, "timeout") / 1000)

    def table(self, store: str) -> DataFrame:
        """Return a store as a Spark DataFrame; each use reads it as of the last commit."""
        return self._require_started().hosting.require_spark().tables.table(store)

    def sql(self, text: str) -> DataFrame:
        """Return the result of a SQL query, in which stores are tables; quote names with `-` or `.` in backticks.

        Example:
            >>> running.sql("select key, value from words order by value desc limit 10").show()  # doctest: +SKIP
        """
        return self._require_started().hosting.require_spark().tables.sql(text)

    def guarded_sql(self, text: str, limit: int, most_bytes: int, timeout_s: float) -> pa.Table:
        """As `sql`, for external clients: accept only queries of stores, and limit rows, bytes and time."""
        return self._require_started().hosting.require_spark().sql.run(text, limit, most_bytes, timeout_s)

    def _require_started(self) -> Started:
        started = self._life.started
        if started is None or self._life.end.event.is_set():
            reasons = "; ".join(why for _, why in self.health.ready()) or f"it is {self.state.value}"
            raise NotReadyError(f"Cannot query {self.application_id!r} now: {reasons}")
        return started

    def _repr_html_(self) -> str:
        return summary(self)
