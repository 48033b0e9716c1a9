"""What a start must not do to others, and what it must not forget."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock import StreamsBuilder, Topology, tumbling
from penstock.errors import FencedError
from tests.unit.epochs.application import Application, Raw, some_records


@pytest.mark.parametrize("is_retry", [False, True])
def test_a_restore_of_an_earlier_start_leaves_the_new_owners_stores_alone(tmp_path: Path, is_retry: bool) -> None:
    app = Application(tmp_path / "state")
    app.start(1)
    app.step(some_records(seed=1, count=10))
    zombie = app.running
    app.start(1)
    with pytest.raises(FencedError):
        app.restore(zombie, 0, is_retry=is_retry)
    app.check()


def counts(*stores: str) -> Topology:
    builder = StreamsBuilder()
    records = builder.stream("in", value=str).group_by_key()
    for store in stores:
        records.count(store=store).to_stream().to(store, value=int)
    return builder.build()


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_store_that_left_the_topology_and_came_back_has_what_its_changelog_has(tmp_path: Path, is_lost: bool) -> None:
    app = Application(tmp_path / "state", lambda: counts("kept", "left"))
    app.start(2)
    app.step([Raw(b"a", b"1", 0), Raw(b"b", b"1", 0), Raw(b"a", b"1", 1)])
    app.topology = counts("kept")
    if is_lost:
        shutil.rmtree(app.lane_directory(0).parent)
    app.start(2)
    app.step([Raw(b"a", b"1", 2)])
    app.topology = counts("kept", "left")
    app.start(2)
    app.check()
    assert sorted(app.content("left")) == [b"a", b"b"]


def windows_only() -> Topology:
    builder = StreamsBuilder()
    windows = builder.stream("in", value=str).group_by_key().windowed_by(tumbling("1s", grace="0s")).count(store="windows")
    windows.to_stream(lambda key, value: key.key, key=str).to("windowed", value=int)
    return builder.build()


@pytest.mark.parametrize("lanes", [(2, 5), (5, 2), (2, 5, 2)])
def test_registers_survive_a_new_number_of_lanes_without_input(tmp_path: Path, lanes: tuple[int, ...]) -> None:
    app = Application(tmp_path / "state", windows_only)
    app.start(lanes[0])
    app.step(some_records(seed=1, count=30))
    for count in lanes[1:]:
        before = app.all_registers()
        app.start(count)
        app.step([])
        assert app.all_registers() == before
        shutil.rmtree(app.lane_directory(0).parent)
        app.start(count)
        assert app.all_registers() == before
        app.step(some_records(seed=2, count=3, start=5_000))
