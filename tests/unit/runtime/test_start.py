"""Starts of several applications in one process."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from penstock import StreamsBuilder
from penstock.config import Config
from penstock.handlers import ErrorHandlers
from penstock.observation import Recorder
from penstock.runtime import start as start_module
from penstock.runtime.instance import Instance
from penstock.runtime.start import Start

PATIENCE_S = 20


def test_no_application_waits_for_the_brokers_of_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asks, answers = threading.Event(), threading.Event()

    def opened(instance: Instance, *others: Any) -> str:
        if instance.application_id == "stuck":
            asks.set()
            assert answers.wait(PATIENCE_S)
        return instance.application_id

    def start(application_id: str) -> Any:
        builder = StreamsBuilder()
        builder.stream("in", value=str).to("out", value=str)
        config = Config.load(environment={}, bootstrap_servers="nowhere:1", state_dir=str(tmp_path))
        return Start(application_id, builder.build(), ErrorHandlers(), config, Recorder())

    monkeypatch.setattr(start_module, "opened", opened)
    stuck = start("stuck")
    thread = threading.Thread(target=lambda: stuck._opened)
    thread.start()
    assert asks.wait(PATIENCE_S)
    assert start("quick")._opened == "quick"
    assert thread.is_alive()
    answers.set()
    thread.join()
