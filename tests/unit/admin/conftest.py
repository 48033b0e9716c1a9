"""Applications with a real admin server on a real socket, and with fakes for Spark and Kafka."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from penstock import App, StreamsBuilder, Topology
from penstock.runtime import application as application_module
from penstock.runtime.beyond.deliveries import Deliveries
from tests.unit.admin.clients import Application

PATIENCE_S = 20


class Stage:
    """A fake of what a start leaves running; it starts when the test allows it."""

    def __init__(self) -> None:
        self.closers: list[Callable[[], object]] = []
        self.labels = {"application": "app"}
        self.progress = SimpleNamespace(epoch=7)
        self.is_done = False
        self.is_idle = True
        self.is_paused = False
        self.failure: BaseException | None = None
        self.may_start = threading.Event()
        self.program = SimpleNamespace(lanes=2, shards=8)

    def run(self, until: Any) -> Any:
        """`Start.run`."""
        assert self.may_start.wait(PATIENCE_S)
        if self.failure is not None:
            raise self.failure
        return SimpleNamespace(epochs=self, input_stream=self, publisher=self, state=self, deliveries=Mock(spec=Deliveries))

    def start(self) -> None:
        """Of the stream."""

    def stop(self) -> None:
        """Of the epochs."""

    def follow(self) -> None:
        """Of what is read."""

    def recover(self, error: Exception) -> None:
        """Of what is read."""
        raise error

    def tick(self) -> None:
        """Of the epochs."""

    def check(self) -> None:
        """Of the publisher."""

    def while_idle(self, call: Callable[[], None]) -> None:
        call()

    def wait(self, timeout_s: float) -> bool:
        time.sleep(0.005)
        if self.failure is not None:
            raise self.failure
        return False


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    stage = Stage()
    monkeypatch.setattr(application_module, "Start", lambda *arguments: stage)
    yield stage
    stage.may_start.set()


@pytest.fixture
def topology() -> Topology:
    builder = StreamsBuilder()
    builder.stream("lines", value=str).group_by_key().count(store="counts").to_stream().to("out")
    return builder.build()


Serve = Callable[..., Application]


@pytest.fixture
def serve(stage: Stage, topology: Topology) -> Iterator[Serve]:
    """Starts an application; `is_up=False` leaves it starting."""
    started: list[Application] = []

    def serve(*, is_up: bool = True, **settings: Any) -> Application:
        settings = {"bootstrap_servers": "nowhere:1", "admin_address": "127.0.0.1:0", **settings}
        application = Application(App("word-count", topology).start(**settings))
        started.append(application)
        if is_up:
            stage.may_start.set()
            assert application.running.wait_until_running(PATIENCE_S)
        return application

    yield serve
    stage.may_start.set()
    for application in started:
        application.running.close()


@pytest.fixture
def application(serve: Serve) -> Application:
    """A running application with default settings."""
    return serve()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for localhost, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    chain, key = folder / "chain.pem", folder / "key.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    subprocess.run([*command, *names, "-keyout", str(key), "-out", str(chain)], check=True, capture_output=True)
    return chain, key
