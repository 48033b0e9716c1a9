"""Plug-ins: what others want to do, or to be told, when an application starts, stops, restores and commits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from importlib.metadata import entry_points
from queue import Full, Queue
from typing import TYPE_CHECKING

from penstock.errors import ConfigError, PenstockError
from penstock.runtime.states import State

if TYPE_CHECKING:
    from penstock.observation import EpochReport, Indicator, RestoreReport
    from penstock.runtime.application import RunningApplication

GROUP = "penstock.plugins"
"""The entry points that plug-ins are found by."""

WAITING = 1_000
"""How many reports may wait for plug-ins; what comes while so many wait is left out."""

_PATIENCE_S = 5.0
"""How long the end of an application waits for plug-ins to hear of its last reports."""

_log = logging.getLogger(__name__)


class Plugin:
    """Something that goes along with an application. Override what is needed; everything else does nothing.

    A plug-in is given to `App(plugins=…)`, or is an entry point of the group `penstock.plugins` that the setting `plugins` names.

    `pre_start`, `post_start`, `pre_stop`, `post_stop` and `on_state` are called by the thread that starts and stops the
    application, which waits for them. `on_restore` and `on_epoch` are called by a thread of their own, so that they hold up
    neither a restore nor a commit; a plug-in that is too slow misses reports. If one fails, that is logged and nothing
    else happens, except for `pre_start`, whose failure ends the start.

    Example:
        >>> from penstock import Plugin
        >>> class Announcer(Plugin):
        ...     def post_start(self, running):
        ...         print(running.application_id, "is running")
    """

    @property
    def name(self) -> str:
        """What the plug-in is called in logs, errors and probes; no two of an application may share it."""
        return type(self).__name__

    def pre_start(self, running: RunningApplication) -> None:
        """Before anything is opened or asked."""

    def post_start(self, running: RunningApplication) -> None:
        """Once records are being processed."""

    def pre_stop(self, running: RunningApplication) -> None:
        """When the end begins, whether it was asked for or something failed (`running.recorder.failure`)."""

    def post_stop(self, running: RunningApplication) -> None:
        """When everything is closed. Whoever had its `pre_start` has this as well, in the opposite order."""

    def on_state(self, new: State, old: State) -> None:
        """The application's state has changed."""

    def on_restore(self, report: RestoreReport) -> None:
        """A restore has come further, or to its end (`report.is_done`)."""

    def on_epoch(self, report: EpochReport) -> None:
        """An epoch is committed."""

    def health(self) -> str | None:
        """What is not well, for as long as the application is not to be counted on because of it; None if all is."""
        return None


def installed(names: Iterable[str]) -> list[Plugin]:
    """The plug-ins of these names, made from their entry points."""
    found = {point.name: point for point in entry_points(group=GROUP)}
    plugins = []
    for name in names:
        if name not in found:
            known = ", ".join(sorted(found)) or "none"
            raise ConfigError(f"plugins: there is no plug-in {name!r}; installed are: {known}")
        try:
            plugin = found[name].load()()
        except Exception as error:
            raise ConfigError(f"plugins: {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
        if not isinstance(plugin, Plugin):
            raise ConfigError(f"plugins: {name!r} gives a {type(plugin).__name__}, which is no penstock.Plugin")
        plugins.append(plugin)
    return plugins


class Hooks:
    """All plug-ins of one start."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        names = [plugin.name for plugin in plugins]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"plugins: {twice[0]!r} is there more than once; give each a name of its own (Plugin.name)")
        self.plugins: tuple[Plugin, ...] = tuple(plugins)
        self._started: list[Plugin] = []
        self._reports = Reports(plugins)

    @property
    def indicators(self) -> dict[str, Indicator]:
        """What tells whether each plug-in is well, by its name."""
        return {plugin.name: plugin.health for plugin in self.plugins}

    def pre_start(self, running: RunningApplication) -> None:
        """Call `pre_start` of each, up to one that fails."""
        self._reports.start()
        for plugin in self.plugins:
            try:
                plugin.pre_start(running)
            except Exception as error:
                raise PenstockError(f"plug-in {plugin.name!r} failed in pre_start: {type(error).__name__}: {error}") from error
            self._started.append(plugin)

    def post_start(self, running: RunningApplication) -> None:
        """Call `post_start` of each."""
        for plugin in self._started:
            _call(plugin, "post_start", running)

    def pre_stop(self, running: RunningApplication) -> None:
        """Call `pre_stop` of each that was started, the last one first."""
        for plugin in reversed(self._started):
            _call(plugin, "pre_stop", running)

    def post_stop(self, running: RunningApplication) -> None:
        """Call `post_stop` of each that was started, the last one first, after all reports."""
        self._reports.close()
        for plugin in reversed(self._started):
            _call(plugin, "post_stop", running)

    def on_state(self, new: State, old: State) -> None:
        """Tell each about a new state."""
        for plugin in self.plugins:
            _call(plugin, "on_state", new, old)

    def on_restore(self, report: RestoreReport) -> None:
        """Have a restore's progress told."""
        self._reports.put("on_restore", report)

    def on_epoch(self, report: EpochReport) -> None:
        """Have an epoch told."""
        self._reports.put("on_epoch", report)


class Reports:
    """Tells plug-ins about things in a thread of its own: who tells must not wait for who is told."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self._plugins = plugins
        self._waiting: Queue[tuple[str, EpochReport | RestoreReport] | None] = Queue(WAITING)
        self._thread: threading.Thread | None = None
        self._is_behind = False

    def start(self) -> None:
        """From now on."""
        if self._plugins:
            self._thread = threading.Thread(target=self._deliver, name="penstock-plugins", daemon=True)
            self._thread.start()

    def put(self, hook: str, report: EpochReport | RestoreReport) -> None:
        """Have a report told to every plug-in; never waits."""
        if self._thread is None:
            return
        try:
            self._waiting.put_nowait((hook, report))
            self._is_behind = False
        except Full:
            if not self._is_behind:
                _log.warning("plug-ins are too slow: %d reports wait for them, and newer ones are left out", WAITING)
            self._is_behind = True

    def close(self) -> None:
        """Wait until all has been told, but not for ever."""
        if self._thread is None:
            return
        try:
            self._waiting.put(None, timeout=_PATIENCE_S)
        except Full:
            pass
        else:
            self._thread.join(_PATIENCE_S)
        if self._thread.is_alive():
            _log.warning("plug-ins have not heard of the last reports: one of them takes too long")

    def _deliver(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            for plugin in self._plugins:
                _call(plugin, *waiting)


def _call(plugin: Plugin, hook: str, *about: object) -> None:
    try:
        getattr(plugin, hook)(*about)
    except Exception:  # noqa: BLE001 - it is the plug-in's own business
        _log.exception("plug-in %r failed in %s", plugin.name, hook)
