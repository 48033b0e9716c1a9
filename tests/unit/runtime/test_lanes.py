"""How many lanes a start has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import StreamsBuilder
from penstock.config import Config
from penstock.epochs.program import Program
from penstock.epochs.shards import shards_of
from penstock.handlers import ErrorHandlers
from penstock.history.truth import program_of


def program(directory: Path, **settings: Any) -> Program:
    builder = StreamsBuilder()
    builder.stream("in", value=str).group_by_key().count(store="counts").to_stream().to("out", value=int)
    config = Config.load(environment={}, bootstrap_servers="nowhere:9092", state_dir=str(directory), **settings)
    return program_of("app", builder.build(), ErrorHandlers(), config, "one")


@pytest.mark.parametrize(("cores", "lanes"), [(None, 1), (1, 1), (15, 15), (16, 16), (17, 16), (64, 16)])
def test_by_default_there_is_a_lane_per_core_but_none_without_a_shard(
    cores: int | None, lanes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    made = program(tmp_path, shards=16)
    assert made.lanes == lanes
    assert all(shards_of(lane, made.shards, made.lanes) for lane in range(made.lanes))


def test_a_configured_number_of_lanes_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert program(tmp_path, lanes=8, shards=8).lanes == 8
