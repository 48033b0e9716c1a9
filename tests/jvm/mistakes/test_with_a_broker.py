"""Mistakes that only a broker shows, or its absence, with the local engine: each error has its cause and its cure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import App, Store, StreamsBuilder
from penstock.errors import FencedError, IncompatibleTopologyError, TopicError, TopologyError
from penstock.runtime.application import RunningApplication
from tests.unit.mistakes.teaching import teaches
from verification.harness import topics
from verification.harness.broker import Broker

pytestmark = pytest.mark.jvm

START_S = 60


def counting(application_id: str, **store: Any) -> App:
    """An application that counts by key."""
    builder = StreamsBuilder(value=str)
    builder.stream(f"{application_id}-in").group_by_key().count(store=Store("counts", **store)).to_stream().to(
        f"{application_id}-out", value=int
    )
    return App(application_id, builder.build())


@contextmanager
def started(app: App, servers: str, directory: Path, **settings: Any) -> Iterator[RunningApplication]:
    settings = {"engine": "local", "lanes": 1, "admin_address": "off", "state_dir": directory, **settings}
    with app.start(bootstrap_servers=servers, **settings) as running:
        yield running


def run(app: App, servers: str, directory: Path, **settings: Any) -> None:
    with started(app, servers, directory, **settings) as running:
        running.wait(START_S)


def make_topics(broker: Broker, name: str) -> None:
    for topic in (f"{name}-in", f"{name}-out"):
        topics.create(broker.bootstrap_servers, topic)
    topics.produce(broker.bootstrap_servers, f"{name}-in", [topics.Sent(key=b"a", value=b"x")])


def test_a_topic_that_does_not_exist(broker: Broker, tmp_path: Path) -> None:
    cause, cure = "Topics do not exist: lost-in, lost-out", "Create them, or set create_topics"
    with teaches(TopicError, cause, cure, line=False):
        run(counting("lost"), broker.bootstrap_servers, tmp_path)


def test_a_second_instance_with_the_same_id(broker: Broker, tmp_path: Path) -> None:
    make_topics(broker, "mistakes-twice")
    with started(counting("mistakes-twice"), broker.bootstrap_servers, tmp_path / "one") as first:
        assert first.wait_until_running(START_S)
        with started(counting("mistakes-twice"), broker.bootstrap_servers, tmp_path / "two") as second:
            assert second.wait_until_running(START_S)
            with teaches(FencedError, "another instance of the application has taken over", "taken over", line=False):
                first.wait(START_S)


def test_a_store_of_another_shape(broker: Broker, tmp_path: Path) -> None:
    make_topics(broker, "shape")
    run(counting("shape"), broker.bootstrap_servers, tmp_path, until="latest")
    cause, cure = "The committed state belongs to another topology", "Give changed stores new names"
    with teaches(IncompatibleTopologyError, cause, cure, line=False):
        run(counting("shape", history="1h"), broker.bootstrap_servers, tmp_path, until="latest")


def test_a_function_that_cannot_be_sent_to_workers(broker: Broker, tmp_path: Path) -> None:
    make_topics(broker, "held")
    file = (tmp_path / "file").open("w", encoding="utf-8")
    builder = StreamsBuilder(value=str)
    builder.stream("held-in").peek(lambda key, value: file.write(value), name="log").to("held-out")
    cause = "log runs in other processes, but 'file', to which its function refers"
    with file, teaches(TopologyError, cause, "in a processor's init"):
        run(App("held", builder.build()), broker.bootstrap_servers, tmp_path)
