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


class TestStandbys:
    """One instance is active, another one waits for it to be gone."""

    @staticmethod
    def both(world: World) -> tuple[Life, Life]:
        feed(world)
        lives = []
        for _ in range(2):
            life = world.begin(
                App("app", TOPOLOGY), shards=1, epoch_interval="10ms", blocking_threads=1, standby=True, standby_timeout="2s"
            )
            lives.append(life)
            world.machine.sleep(2)
        active, waiting = lives
        assert [life.running.state for life in lives if life.running is not None] == [State.RUNNING, State.STANDBY]
        return active, waiting

    @staticmethod
    def state(life: Life) -> State | None:
        return None if life.running is None else life.running.state

    def test_it_waits_as_long_as_the_other_is_heard(self, world: World) -> None:
        _, waiting = self.both(world)
        world.machine.sleep(60)
        assert self.state(waiting) is State.STANDBY

    @pytest.mark.parametrize("with_its_host", [False, True])
    def test_it_takes_over_when_the_other_is_gone(self, world: World, with_its_host: bool) -> None:
        active, waiting = self.both(world)
        world.kill(active, with_its_host=with_its_host)
        world.machine.sleep(1)
        assert self.state(waiting) is (State.STANDBY if with_its_host else State.RUNNING)
        feed(world)
        world.machine.sleep(5)
        assert (self.state(waiting), counts(world)) == (State.RUNNING, list(range(1, 2 * COUNT + 1)))

    def test_an_instance_that_is_wrongly_given_up_ends_as_fenced(self, world: World) -> None:
        active, waiting = self.both(world)
        world.is_cut = True
        feed(world)
        world.machine.sleep(10)
        feed(world)
        world.machine.sleep(5)
        assert active.running is not None
        assert (self.state(waiting), type(active.running.recorder.failure)) == (State.RUNNING, FencedError)
        assert counts(world) == list(range(1, 3 * COUNT + 1))
