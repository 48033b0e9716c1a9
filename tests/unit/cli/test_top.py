"""`penstock top`: what it prints about an application."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.cli.top import _rates, _size
from tests.unit.cli.calling import call, serving

STATE = {
    "application_id": "word-count",
    "state": "running",
    "epoch": 1234,
    "stores": [
        {"name": "words", "kind": "timestamped", "global": False, "entries": 4_000, "bytes": 3 << 20},
        {"name": "rates", "kind": "key_value", "global": True, "entries": None, "bytes": None},
    ],
    "restore": {"done": True, "fraction": 1.0, "seconds": 2.0, "lanes": []},
    "memory": {"workers": []},
}
PARTITIONS = [
    {"topic": "lines", "partition": 0, "offset": 90, "end": 100, "lag": 10, "high_time": 5, "watermark": None, "idle": False},
    {"topic": "lines", "partition": 1, "offset": 50, "end": 1_050, "lag": 1_000, "high_time": 5, "watermark": 77, "idle": False},
]
EPOCH = {
    "epoch": 1234,
    "began_ms": 1_000,
    "seconds": 0.5,
    "records": 300,
    "phases": {"job": 0.3, "commit": 0.1},
    "sent": {},
    "dropped": [],
    "lanes": [
        {"lane": 0, "stage": 0, "records": 200, "seconds": 0.25},
        {"lane": 1, "stage": 0, "records": 100, "seconds": 0.125},
    ],
}
BARRIERS = {
    "current": {"epoch": 1235, "phase": "job", "seconds": 0.5, "phase_seconds": 0.25},
    "recent": [{**EPOCH, "began_ms": 2_000}, EPOCH],
}


def answers(**changes: Any) -> dict[str, tuple[int, Any]]:
    found = {"state": STATE, "watermarks": {"watermark": None, "partitions": PARTITIONS}, "barriers": BARRIERS, **changes}
    return {
        "/state": (200, found["state"]),
        "/watermarks": (200, found["watermarks"]),
        "/debug/barriers": (200, found["barriers"]),
    }


def test_a_pause_is_shown() -> None:
    with serving(answers(state={**STATE, "paused": True})) as admin:
        found = call("top", "--once", "--admin", admin.url)
    assert "word-count  running  paused  epoch 1,234" in found.output


def test_the_engine_is_shown_once_it_has_started() -> None:
    engine = {"name": "spark", "kind": "Spark tasks", "slots": 3, "hosts": {"b": 2, "a": 1}}
    with serving(answers(state={**STATE, "engine": engine})) as admin:
        assert "engine spark: 3 Spark tasks (a 1, b 2)" in call("top", "--once", "--admin", admin.url).output
    with serving(answers(state={**STATE, "engine": {"name": "spark"}})) as admin:
        assert "engine" not in call("top", "--once", "--admin", admin.url).output


def test_one_screen() -> None:
    with serving(answers()) as admin:
        found = call("top", "--once", "--admin", admin.url)
    assert found.exit_code == 0, found.output
    assert [path for _, path, _, _ in admin.requests] == ["/state", "/watermarks", "/debug/barriers?last=50"]
    assert "word-count  running  epoch 1,234  400 records/s  1.3 epochs/s  lag 1,010" in found.output
    assert "current: epoch 1235, job for 0.2 s" in found.output
    assert "300.0 ms" in found.output
    assert "3.0 MiB" in found.output


def test_the_partition_that_is_furthest_behind_comes_first() -> None:
    with serving(answers()) as admin:
        lines = call("top", "--once", "--admin", admin.url).output.splitlines()
    rows = [line for line in lines if "│ lines" in line]
    assert "1,000" in rows[0]
    assert "1970-01-01T00:00:00.077Z" in rows[0]
    assert "–" in rows[1]


def test_a_partition_without_records_is_idle() -> None:
    with serving(answers(watermarks={"watermark": 77, "partitions": [{**PARTITIONS[1], "idle": True}]})) as admin:
        lines = call("top", "--once", "--admin", admin.url).output.splitlines()
    [row] = [line for line in lines if "│ lines" in line]
    assert row.split() == ["│", "lines", "│", "1", "│", "50", "│", "1,000", "│", "idle", "│"]


def test_figures_are_aligned_to_the_right() -> None:
    with serving(answers()) as admin:
        lines = call("top", "--once", "--admin", admin.url).output.splitlines()
    entries = [line.split("│")[3] for line in lines if line.startswith(("│ words", "│ rates"))]
    assert entries == ["   4,000 ", "       – "]


def test_an_application_that_has_just_started_shows_what_it_knows() -> None:
    state = {
        **STATE,
        "state": "rebalancing",
        "epoch": None,
        "restore": {"done": False, "fraction": 0.25, "seconds": 3.0, "lanes": []},
    }
    partitions = [{**PARTITIONS[0], "lag": None, "end": None}]
    given = answers(
        state=state, watermarks={"watermark": None, "partitions": partitions}, barriers={"current": None, "recent": []}
    )
    with serving(given) as admin:
        found = call("top", "--once", "--admin", admin.url)
    assert "rebalancing  epoch –  0 records/s  0.0 epochs/s  lag unknown" in found.output
    assert "restoring: 25% in 3 s" in found.output


def test_only_the_first_of_many_partitions_are_shown() -> None:
    many = [{**PARTITIONS[0], "partition": number} for number in range(64)]
    with serving(answers(watermarks={"watermark": None, "partitions": many})) as admin:
        found = call("top", "--once", "--admin", admin.url)
    assert "partitions (20 of 64)" in found.output


def test_an_unreachable_server_is_an_error() -> None:
    assert call("top", "--once", "--admin", "http://127.0.0.1:1").exit_code == 22


def test_rates_include_the_pauses_between_epochs() -> None:
    epochs = [{**EPOCH, "began_ms": began, "records": 100} for began in (0, 1_000, 9_500)]
    assert _rates(epochs) == (30.0, 0.3)
    assert _rates([]) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("size", "said"),
    [(None, "–"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (3 << 50, "3072.0 TiB")],
)
def test_sizes(size: int | None, said: str) -> None:
    assert _size(size) == said
