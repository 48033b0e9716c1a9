"""The session of `penstock dev`: a broker, the application in a process of its own, and a look at its files now and then."""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.cli.applications import load_app, load_config
from penstock.cli.dev.broker import LocalBroker, end_process, find_jars
from penstock.cli.dev.changes import SourceFiles, source_directory
from penstock.cli.dev.feeding import prepare_brokers
from penstock.cli.samples.records import read_samples
from penstock.cli.screen import error_console, shown
from penstock.config import Config

_LOOK_EVERY_S = 0.5
_STOP_S = 60.0


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for: `FILE:APP`, settings as given, `TOPIC=FILE` for each input."""

    application: str
    config_file: Path | None
    settings: tuple[str, ...]
    inputs: tuple[str, ...]
    opens_browser: bool


def develop(request: Request, kafka: Path | None, bootstrap_servers: str | None) -> None:
    """Run the application until interrupted, on the given brokers, or on one that is started here."""
    logging.getLogger("penstock.kafka").setLevel(logging.ERROR)  # a broker that has just started refuses some requests
    app = load_app(request.application)
    samples = read_samples(request.inputs, app.topology, int(time.time() * 1000))
    with ExitStack() as stack:
        stack.enter_context(_interrupted_by_signals())
        if bootstrap_servers is None:
            own = _own_broker(stack, kafka)
        else:
            own = [f"bootstrap_servers={bootstrap_servers}"]
        settings = ("engine=local", "create_topics=true", *request.settings, *own)
        config = load_config(request.config_file, settings)
        prepared = prepare_brokers(app, config, samples)
        if prepared.created:
            say(f"created the topics {', '.join(prepared.created)}")
        if samples.global_tables or samples.streams:
            say(f"sent {prepared.sent} records")
        process = ApplicationProcess(_command(request, settings))
        stack.callback(process.stop)
        try:
            _watch(process, SourceFiles(source_directory(request.application)), config, request.opens_browser)
        except KeyboardInterrupt:
            say("stopping")


def _own_broker(stack: ExitStack, kafka: Path | None) -> list[str]:
    """Start a broker, and return the settings with which an application uses it and leaves nothing behind."""
    jars = find_jars(kafka)
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-dev-")))
    say("starting a broker")
    broker = stack.enter_context(LocalBroker(jars, directory))
    say(f"broker: {broker.bootstrap_servers}, whose data and the application's state are gone when this command ends")
    plain = "kafka.security.protocol=PLAINTEXT"
    return [f"bootstrap_servers={broker.bootstrap_servers}", plain, f"state_dir={directory / 'state'}"]


def _command(request: Request, settings: Sequence[str]) -> list[str]:
    config = [] if request.config_file is None else ["--config", str(request.config_file)]
    given = [part for setting in settings for part in ("--set", setting)]
    return [sys.executable, "-m", "penstock.cli", "run", request.application, *config, *given]


class ApplicationProcess:
    """The application's process, started again as often as needed."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, in a session of its own: Ctrl-C reaches only this process, which then stops all in order."""
        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, start_new_session=True)

    def stop(self) -> None:
        """Stop it, if it runs: it commits what it has begun."""
        process, self._process = self._process, None
        if process is not None:
            end_process(process, _STOP_S)

    def take_exit_code(self) -> int | None:
        """Return the exit code, once, if it has ended by itself."""
        code = None if self._process is None else self._process.poll()
        if code is not None:
            self._process = None
        return code


def _watch(process: ApplicationProcess, files: SourceFiles, config: Config, opens_browser: bool) -> None:
    """Keep the application running, and start it again when files change."""
    process.start()
    address = dashboard(config)
    if address is not None:
        say(f"dashboard: {address}")
    waits_to_open = opens_browser and address is not None
    while True:
        time.sleep(_LOOK_EVERY_S)
        if waits_to_open and _is_listening(config):
            webbrowser.open(address or "")
            waits_to_open = False
        changed = files.changed()
        if changed:
            say(f"{', '.join(map(str, changed))} changed: starting again")
            process.stop()
            process.start()
            continue
        code = process.take_exit_code()
        if code is not None:
            say(f"the application ended with exit code {code}; it starts again when a file changes")


def dashboard(config: Config) -> str | None:
    """Return the address of the dashboard; None if there is none, or if it is not known before the start."""
    if config.admin_endpoint is None or config.admin_endpoint[1] == 0:
        return None
    return f"{'http' if config.admin_certificate is None else 'https'}://{config.admin_address}/"


def _is_listening(config: Config) -> bool:
    try:
        with socket.create_connection(config.admin_endpoint or ("", 0), timeout=_LOOK_EVERY_S):
            return True
    except OSError:
        return False


def say(what: str) -> None:
    """Tell the user what happens, between the lines of the application's log."""
    error_console().print(shown(f"dev: {what}", style="cyan"))


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """While the block runs, other signals that end a process interrupt it as Ctrl-C does, so that nothing started is left.

    A SIGHUP that is ignored stays so, as `nohup` wants it. A shell ignores SIGINT for what it starts in the background.
    """

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    is_kept = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    kinds = (signal.SIGINT, signal.SIGTERM) if is_kept else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {kind: signal.signal(kind, interrupt) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
