"""Standbys on a real broker: they wait, continue exactly where the active instance has stopped, and one of two wins."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock import App, KStream, StreamsBuilder
from penstock.errors import FencedError, IncompatibleTopologyError
from penstock.history.rehearsal import rehearse
from penstock.runtime.application import RunningApplication
from penstock.runtime.states import State
from tests.jvm.runtime.cases import settings_of_a_case
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import wait_until
from verification.harness.topics import Sent

pytestmark = pytest.mark.jvm

PATIENCE_S = 60.0


class Case:
    """An application that counts, its topics, and its instances on one machine."""

    def __init__(self, broker: Broker, name: str, directory: Path, stack: ExitStack, engine: str = "local") -> None:
        self.servers = broker.bootstrap_servers
        self.name = name
        self._stack = stack
        self.settings: dict[str, Any] = {**settings_of_a_case(self.servers, directory), "engine": engine, "standby": True}
        for topic in (f"{name}-in", f"{name}-out"):
            topics.create(self.servers, topic)

    def app(self, value: type = str) -> App:
        builder = StreamsBuilder()
        stream: KStream[str, Any] = builder.stream(f"{self.name}-in", value=value)
        stream.group_by_key().reduce(lambda old, new: new, store="last")
        stream.group_by_key().count(store="counts").to_stream().to(f"{self.name}-out", value=int)
        return App(self.name, builder.build())

    def start(self, **settings: Any) -> RunningApplication:
        return self._stack.enter_context(self.app().start(**{**self.settings, **settings}))

    def standby(self) -> RunningApplication:
        """Start an instance that watches another one when this returns."""
        before = _watching()
        instance = self.start()
        wait_until("it stands by", lambda: _watching() > before, PATIENCE_S)
        assert instance.state is State.STANDBY
        return instance

    def send(self, count: int) -> None:
        topics.produce(self.servers, f"{self.name}-in", [Sent(key=b"k", value=b"v") for _ in range(count)])

    def counted(self, instance: RunningApplication, count: int) -> None:
        assert instance.wait_until_running(PATIENCE_S)
        wait_until(f"{count} records", lambda: instance.epoch >= 0 and instance.store("counts").get("k") == count, PATIENCE_S)


def _watching() -> int:
    return sum(thread.name == "penstock-standby" for thread in threading.enumerate())


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.slow)])  # Spark starts for it
def test_a_standby_continues_when_the_active_instance_stops(
    broker: Broker,
    tmp_path: Path,
    stack: ExitStack,
    caplog: pytest.LogCaptureFixture,
    request: pytest.FixtureRequest,
    engine: str,
) -> None:
    if engine == "spark":
        request.getfixturevalue("spark")  # or the first instance would stop the context of both
    case = Case(broker, f"standby-stop-{engine}", tmp_path, stack, engine)
    first = case.start()
    case.send(10)
    case.counted(first, 10)
    second = case.standby()
    case.send(5)
    case.counted(first, 15)
    assert second.state is State.STANDBY
    assert [problem.what for problem in second.health.ready()] == ["standby"]
    with caplog.at_level(logging.INFO):
        first.close()
        case.send(7)
        case.counted(second, 22)
    assert first.wait(0)
    [line] = [record.getMessage() for record in caplog.records if record.getMessage().startswith("took over in")]
    assert all(step in line for step in ("detected", "fenced", "position", "restored", "committed"))


def test_an_instance_that_is_wrongly_given_up_ends_as_fenced(broker: Broker, tmp_path: Path, stack: ExitStack) -> None:
    case = Case(broker, "standby-wrong", tmp_path, stack)
    first = case.start()
    case.send(10)
    case.counted(first, 10)
    second = case.standby()
    beacon = first._life._starting._turn._beacon
    assert beacon is not None
    beacon.close()  # as if the network between the two were cut
    case.send(5)
    case.counted(second, 15)
    case.send(5)
    with pytest.raises(FencedError):
        first.wait(PATIENCE_S)
    case.counted(second, 20)


def test_of_two_standbys_one_takes_over_and_the_other_waits(broker: Broker, tmp_path: Path, stack: ExitStack) -> None:
    case = Case(broker, "standby-two", tmp_path, stack)
    first = case.start()
    case.send(10)
    case.counted(first, 10)
    rivals = [case.standby(), case.standby()]
    first.close()
    case.send(5)

    def are_settled() -> bool:
        return sorted((rival.state.value, rival.epoch >= 0) for rival in rivals) == [("running", True), ("standby", False)]

    wait_until("one of them is active", are_settled, PATIENCE_S)
    time.sleep(3.0)  # the other one may only now find out that it was too slow
    wait_until("one of them is active", are_settled, PATIENCE_S)
    [active] = [rival for rival in rivals if rival.state is State.RUNNING]
    case.send(5)
    case.counted(active, 20)


def test_an_announcement_is_no_state(broker: Broker, tmp_path: Path, stack: ExitStack) -> None:
    case = Case(broker, "standby-empty", tmp_path, stack)
    first = case.start()
    first.pause()
    assert first.wait_until_running(PATIENCE_S)
    assert first.epoch == -1
    app, config = case.app(), first.config
    assert not rehearse(app.application_id, app.topology, app.error_handlers, config).is_refused
    first.close()
    case.send(3)
    case.counted(case.start(standby=False), 3)


def test_a_standby_that_could_not_take_over_says_so_while_the_other_runs(
    broker: Broker, tmp_path: Path, stack: ExitStack
) -> None:
    case = Case(broker, "standby-refused", tmp_path, stack)
    first = case.start()
    case.send(10)
    case.counted(first, 10)
    other = case.app(value=int).start(**case.settings)
    with pytest.raises(IncompatibleTopologyError, match=r"This standby could not take over:\n  last: "):
        other.wait(PATIENCE_S)
    assert first.state is State.RUNNING
