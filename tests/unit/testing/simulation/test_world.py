"""Real applications live and die in a simulated world; what they commit is exact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import App, Store, StreamsBuilder, Topology
from penstock.errors import FencedError
from penstock.runtime.states import State
from penstock.testing.simulation import Life, Weather, World

COUNT = 12
STEPS = ["barrier.after_produce", "commit, sent", "commit, done", "lane.after_write", "restore.before_mark"]


def counting() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store=Store("counts", caching=False)).to_stream().to("out")
    return builder.build()


TOPOLOGY = counting()


@pytest.fixture(params=[1, 2, 3])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with World(request.param, tmp_path) as opened:
        for topic in ("in", "out"):
            opened.kafka.create(topic, 1)
        yield opened


def begin(world: World, disk: Path | None = None) -> Life:
    return world.begin(App("app", TOPOLOGY), disk, shards=1, epoch_interval="10ms", blocking_threads=1)


def feed(world: World, count: int = COUNT) -> None:
    for _ in range(count):
        world.kafka.produce(("in", 0), b"k", b'"v"', 7)


def counts(world: World) -> list[int]:
    return [int.from_bytes(value or b"", "big") for _, value in world.records("out")]


def test_an_application_runs_and_ends(world: World) -> None:
    feed(world)
    life = begin(world)
    world.machine.sleep(2)
    assert counts(world) == list(range(1, COUNT + 1))
    assert life.running is not None
    life.running.stop()
    world.machine.sleep(2)
    assert (life.is_over, life.running.state, world.machine.failures) == (True, State.NOT_RUNNING, [])


@pytest.mark.parametrize(
    "step", ["barrier.after_produce", "commit, sent", "commit, done", "lane.after_write", "restore.before_mark"]
)
@pytest.mark.parametrize("has_disk", [True, False])
def test_a_killed_application_continues_where_it_was(world: World, step: str, has_disk: bool) -> None:
    first = begin(world)
    world.machine.sleep(1)
    first.dies_at = step
    feed(world)
    world.machine.sleep(1)
    world.kill(first)
    assert first.is_over
    begin(world, world.disk(first) if has_disk else None)
    world.machine.sleep(2)
    feed(world)
    world.machine.sleep(2)
    assert counts(world) == list(range(1, 2 * COUNT + 1))


def test_a_suspended_instance_that_wakes_up_late_commits_nothing(world: World) -> None:
    first = begin(world)
    feed(world)
    world.machine.sleep(1)
    world.suspend(first)
    feed(world)
    begin(world)
    world.machine.sleep(2)
    world.resume(first)
    feed(world)
    world.machine.sleep(3)
    assert counts(world) == list(range(1, 3 * COUNT + 1))
    assert first.is_over
    assert first.running is not None
    assert isinstance(first.running.recorder.failure, FencedError)


def test_bad_weather_changes_nothing(world: World) -> None:
    world.weather = Weather(0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.5)
    life, disk = begin(world), None
    for _ in range(5):
        feed(world)
        world.machine.sleep(2)
        if life.is_over:
            disk = world.disk(life)
            life = begin(world, disk)
    world.weather = Weather()
    world.machine.sleep(5)
    if life.is_over:
        begin(world, world.disk(life))
        world.machine.sleep(5)
    assert counts(world) == list(range(1, 5 * COUNT + 1))
    assert world.fired
