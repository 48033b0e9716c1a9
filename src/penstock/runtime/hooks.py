"""Plug-ins: code that is called when an application starts, stops, restores and commits."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from queue import Full, Queue
from typing import TYPE_CHECKING

from penstock import machine
from penstock.errors import ConfigError, PenstockError
from penstock.extras import provided
from penstock.runtime.states import State

if TYPE_CHECKING:
    from penstock.observation import EpochReport, Indicator, RestoreReport
    from penstock.runtime.application import RunningApplication

GROUP = "penstock.plugins"
"""The group of entry points in which plug-ins are found."""

WAITING = 1_000
"""How many reports may wait for plug-ins; further ones are dropped."""

_PATIENCE_S = 5.0
"""How long a shutdown waits for plug-ins to handle the last reports."""

_log = logging.getLogger(__name__)


class Plugin:
    """Code that is called during the life of an application. Override the methods you need; the others do nothing.

    Pass a plug-in to `App(plugins=…)`, or declare it as an entry point of group `penstock.plugins` and list it in `plugins`.

    The thread that starts and stops the application calls `pre_start`, `post_start`, `pre_stop`, `post_stop` and `on_state`, and
    waits for them. A separate thread calls `on_restore` and `on_epoch`, so that they delay neither a restore nor a commit; a
    plug-in that is too slow misses reports. A failure is only logged, except in `pre_start`, where it aborts the start.

    Example:
        >>> from penstock import Plugin
        >>> class Announcer(Plugin):
        ...     def post_start(self, running):
        ...         print(running.application_id, "is running")
    """

    @property
    def name(self) -> str:
        """The name of the plug-in in logs, errors and probes; unique within an application."""
        return type(self).__name__

    def pre_start(self, running: RunningApplication) -> None:
        """Called before anything is opened."""

    def post_start(self, running: RunningApplication) -> None:
        """Called once records are being processed."""

    def pre_stop(self, running: RunningApplication) -> None:
        """Called when the shutdown begins, whether it was requested or something failed (`running.recorder.failure`)."""

    def post_stop(self, running: RunningApplication) -> None:
        """Called when everything is closed, for each plug-in whose `pre_start` succeeded, in reverse order."""

    def on_state(self, new: State, old: State) -> None:
        """Called when the application's state has changed."""

    def on_restore(self, report: RestoreReport) -> None:
        """Called when a restore has made progress, or is complete (`report.is_done`)."""

    def on_epoch(self, report: EpochReport) -> None:
        """Called when an epoch is committed."""

    def health(self) -> str | None:
        """Return the problem that makes the application unready, None if there is none."""
        return None


def installed(names: Iterable[str]) -> list[Plugin]:
    """Create the plug-ins of these names from their entry points."""
    plugins = []
    for name in names:
        made_by = provided(GROUP, name, "plugins")
        try:
            plugin = made_by()
        except Exception as error:
            raise ConfigError(f"plugins: cannot create {name!r}: {type(error).__name__}: {error}") from error
        if not isinstance(plugin, Plugin):
            raise ConfigError(f"plugins: {name!r} is a {type(plugin).__name__}. Derive its class from penstock.Plugin.")
        plugins.append(plugin)
    return plugins


class Hooks:
    """All plug-ins of one start."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        names = [plugin.name for plugin in plugins]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"plugins: duplicate name {twice[0]!r}. Give each plug-in its own name (Plugin.name).")
        self.plugins: tuple[Plugin, ...] = tuple(plugins)
        self._started: list[Plugin] = []
        self._reports = Reports(plugins)

    @property
    def indicators(self) -> dict[str, Indicator]:
        """The health checks of the plug-ins, by name."""
        return {plugin.name: plugin.health for plugin in self.plugins}

    @property
    def prepare(self) -> bool:
        """Whether a plug-in does something before anything is opened: it may set variables that Spark's JVM is to have."""
        return any(type(plugin).pre_start is not Plugin.pre_start for plugin in self.plugins)

    def pre_start(self, running: RunningApplication) -> None:
        """Call `pre_start` of each plug-in, until one fails."""
        self._reports.start()
        for plugin in self.plugins:
            try:
                plugin.pre_start(running)
            except Exception as error:
                raise PenstockError(f"Plug-in {plugin.name!r} failed in pre_start: {type(error).__name__}: {error}") from error
            self._started.append(plugin)

    def post_start(self, running: RunningApplication) -> None:
        """Call `post_start` of each plug-in."""
        for plugin in self._started:
            _call(plugin, "post_start", running)

    def pre_stop(self, running: RunningApplication) -> None:
        """Call `pre_stop` of each plug-in that was started, in reverse order."""
        for plugin in reversed(self._started):
            _call(plugin, "pre_stop", running)

    def post_stop(self, running: RunningApplication) -> None:
        """Call `post_stop` of each plug-in that was started, in reverse order, after all reports."""
        self._reports.close()
        for plugin in reversed(self._started):
            _call(plugin, "post_stop", running)

    def on_state(self, new: State, old: State) -> None:
        """Notify all plug-ins of a new state."""
        for plugin in self.plugins:
            _call(plugin, "on_state", new, old)

    def on_restore(self, report: RestoreReport) -> None:
        """Queue a report on a restore."""
        self._reports.put("on_restore", report)

    def on_epoch(self, report: EpochReport) -> None:
        """Queue a report on an epoch."""
        self._reports.put("on_epoch", report)


class Reports:
    """Passes reports to plug-ins in a thread of its own, so that the sender never waits for a plug-in."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self._plugins = plugins
        self._waiting: Queue[tuple[str, EpochReport | RestoreReport] | None] = Queue(WAITING)
        self._thread: machine.Thread | None = None
        self._is_behind = False

    def start(self) -> None:
        """Start the thread."""
        if self._plugins:
            self._thread = machine.thread(self._deliver, "penstock-plugins")
            self._thread.start()

    def put(self, hook: str, report: EpochReport | RestoreReport) -> None:
        """Queue a report for every plug-in; never waits."""
        if self._thread is None:
            return
        try:
            self._waiting.put_nowait((hook, report))
            self._is_behind = False
        except Full:
            if not self._is_behind:
                _log.warning("plug-ins are too slow: %d reports are waiting, and new ones are dropped", WAITING)
            self._is_behind = True

    def close(self) -> None:
        """Wait until plug-ins have handled all reports, for a limited time."""
        if self._thread is None:
            return
        try:
            self._waiting.put(None, timeout=_PATIENCE_S)
        except Full:
            pass
        else:
            self._thread.join(_PATIENCE_S)
        if self._thread.is_alive():
            _log.warning("plug-ins have not handled the last reports: one of them takes too long")

    def _deliver(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            for plugin in self._plugins:
                _call(plugin, *waiting)


def _call(plugin: Plugin, hook: str, *about: object) -> None:
    try:
        getattr(plugin, hook)(*about)
    except Exception:  # noqa: BLE001 - a plug-in's failure must not end the application
        _log.exception("plug-in %r failed in %s", plugin.name, hook)
