"""`App`: a topology and the id that it runs under."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.config import Config
from penstock.errors import ConfigError, PenstockError, StalledError, TopologyError
from penstock.handlers import DEFAULT, ErrorHandler, ErrorHandlers
from penstock.records import is_name
from penstock.runtime.hooks import Hooks, Plugin, installed
from penstock.runtime.hosting.ahead import begin
from penstock.topology import Topology, checked_topology

if TYPE_CHECKING:
    from penstock.runtime.application import RunningApplication
    from penstock.runtime.states import Listener

_LONGEST_ID = 200
"""A changelog's name also contains the store's, and has at most 249 characters."""
_POLL_S = 0.2

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class App:
    """An application: its id, which names its consumer group, changelogs and transactions, and its topology.

    The error handlers decide what happens to records that cannot be read, processed or written: by default, the application
    ends. For plug-ins, see `penstock.Plugin`.

    Example:
        >>> from penstock import App, Topology
        >>> App("word-count", Topology()).application_id
        'word-count'
    """

    application_id: str
    topology: Topology
    deserialization_errors: ErrorHandler = DEFAULT
    processing_errors: ErrorHandler = DEFAULT
    production_errors: ErrorHandler = DEFAULT
    plugins: Sequence[Plugin] = ()

    @property
    def error_handlers(self) -> ErrorHandlers:
        """The three error handlers."""
        return ErrorHandlers(
            deserialization=self.deserialization_errors, processing=self.processing_errors, production=self.production_errors
        )

    def run(self, *, until: str | Mapping[tuple[str, int], int] | None = None, **settings: Any) -> None:
        """Run in this process until SIGTERM or SIGINT, or until a bound is reached; return when everything is committed.

        `until="latest"` processes what is in the topics now; a mapping of `(topic, partition)` to offsets stops right before
        those. Settings are those of `penstock.config.Config`; others come from the environment (`PENSTOCK_LANES=4`) or from
        `penstock.toml`. A failure is logged and ends the process with its own exit code (see `penstock.errors`). With
        `standby=True`, it waits while another instance is active, and takes over when that one ends (docs/standby.md).

        Example:
            >>> App("word-count", topology).run(bootstrap_servers="localhost:9092", until="latest")  # doctest: +SKIP
        """
        from penstock.observation import logs  # noqa: PLC0415 - as in `_start`

        logs.set_up(self.application_id)
        try:
            config = Config.load(**settings)
            logs.set_up(self.application_id, config)
            running = self._start(config, until)
            with stopped_by_signals(running.stop):
                while not running.wait(_POLL_S):
                    pass
        except PenstockError as error:
            unexpected = error if type(error) is PenstockError else None
            about = (self.application_id, error.code, error.exit_code, error)
            _log.error("%s ended (%s, exit code %d): %s", *about, exc_info=unexpected)
            if isinstance(error, StalledError):  # a normal exit would wait for threads and processes that hang
                logging.shutdown()
                os._exit(error.exit_code)
            raise SystemExit(error.exit_code) from error

    def start(
        self,
        *,
        until: str | Mapping[tuple[str, int], int] | None = None,
        on_state: Listener | None = None,
        **settings: Any,
    ) -> RunningApplication:
        """Start in the background; close the returned object, or use it in a `with` block.

        `on_state(new, old)` is called at every change of state.

        Example:
            >>> with App("word-count", topology).start() as running:  # doctest: +SKIP
            ...     running.wait_until_running()
        """
        return self._start(Config.load(**settings), until, () if on_state is None else (on_state,))

    def _start(
        self, config: Config, until: str | Mapping[tuple[str, int], int] | None, listeners: tuple[Listener, ...] = ()
    ) -> RunningApplication:
        # Imported here, so that tests of a topology do not load Spark and the Kafka client, and slots start meanwhile.
        from penstock.observation import logs  # noqa: PLC0415

        if config.standby and until is not None:
            raise ConfigError("standby: a run that ends at a bound cannot stand by. Leave out either standby or until.")
        hooks = Hooks([*self.plugins, *installed(config.plugins)])
        begin(config, self.topology, logs.pass_on, has_jvm=not hooks.prepare)

        from penstock.admin.server import AdminServer  # noqa: PLC0415
        from penstock.runtime.application import RunningApplication  # noqa: PLC0415

        running = RunningApplication(self.application_id, self.topology, self.error_handlers, config, hooks, until, listeners)
        if config.admin_endpoint is not None:  # before the start, to answer probes while state is restored
            server = AdminServer(running)
            server.start()
            running.admin_url = server.url
            running.at_end(server.close)
        return running.start()

    def __post_init__(self) -> None:
        _ = checked_topology(self.topology, "App"), self.error_handlers  # each raises if it is invalid
        for plugin in self.plugins:
            if not isinstance(plugin, Plugin):
                raise ConfigError(f"plugins: expected an object of a class derived from penstock.Plugin, not {plugin!r}.")
        if not is_name(self.application_id) or len(self.application_id) > _LONGEST_ID:
            rule = f"use at most {_LONGEST_ID} letters, digits, '.', '_' and '-'."
            raise TopologyError(f"Invalid application id {self.application_id[:_LONGEST_ID]!a}: {rule}")


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """While the block runs, SIGTERM and SIGINT call `stop` instead of ending the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kinds = (signal.SIGTERM, signal.SIGINT)
    before = {kind: signal.signal(kind, lambda *_: stop()) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
