"""Calls within epochs: the same results however input is cut, failures with their origin, one client per program."""

from __future__ import annotations

import asyncio
import gc
import os
from collections import Counter
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from penstock import CircuitBreaker, ResultCache, StreamsBuilder, dead_letter
from penstock.calls.loop import OF_THIS_PROCESS
from penstock.epochs.output import _number_by_cause
from penstock.errors import ProcessingError
from penstock.handlers import ErrorHandlers
from tests.unit.epochs.application import Application, Raw, by_key, driven
from verification.integration.compare import differences
from verification.integration.cut import Cut
from verification.integration.hosts import driver, in_process
from verification.integration.hosts.in_process import Trouble
from verification.integration.scenario import Scenario
from verification.integration.scenarios import asynchronous

SCENARIOS = asynchronous.SCENARIOS


@pytest.mark.parametrize(("records", "lanes"), [(1, 2), (5, 5), (97, 1)])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.slug)
def test_epochs_and_lanes_make_no_difference(scenario: Scenario, records: int, lanes: int) -> None:
    phases = scenario.phases(7, 25 if records == 1 else 110)
    expected = driver.run(scenario, phases, caching=False)
    actual = in_process.run(scenario, phases, False, Cut(records, lanes))
    assert not [str(difference) for difference in differences(scenario, f"{records}, {lanes}", False, expected, actual)]
    assert all(expected.outputs.get(output.topic) for output in scenario.outputs)


@pytest.mark.parametrize("trouble", [Trouble.RETRIES, Trouble.RESTARTS], ids=lambda trouble: trouble.name.lower())
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.slug)
def test_crashes_and_retries_make_no_difference(scenario: Scenario, trouble: Trouble) -> None:
    phases = scenario.phases(8, 60)
    expected = driver.run(scenario, phases, caching=False)
    actual = in_process.run(scenario, phases, False, Cut(20, 2), trouble)
    assert not [str(difference) for difference in differences(scenario, trouble.value, False, expected, actual)]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.slug)
def test_calls_are_made_for_flushed_results_of_a_cached_table_too(scenario: Scenario) -> None:
    phases = scenario.phases(9, 60)
    expected = driver.run(scenario, phases, caching=True)
    actual = in_process.run(scenario, phases, True, Cut(20, 2))
    assert not [str(difference) for difference in differences(scenario, "cached", True, expected, actual)]


async def checked(value: str) -> str:
    await asyncio.sleep(0.001)
    if value.startswith("bad"):
        raise ValueError(value)
    return value.upper()


def records(count: int) -> list[Raw]:
    return [Raw(b"k%d" % (n % 7), b"bad %d" % n if n % 9 == 4 else b"good %d" % n, 1_000 + n) for n in range(count)]


def topology_of(function: Any = checked, **options: Any) -> Any:
    def make() -> Any:
        builder = StreamsBuilder()
        stream = builder.stream("in", value=str).filter(lambda *_: True)
        stream.map_values_async(function, value=str, name="asked", **options).to("out", value=str)
        return builder.build()

    return make


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_record_that_fails_is_a_dead_letter_with_its_own_origin(tmp_path: Path, lanes: int) -> None:
    app = Application(tmp_path, topology_of(), handlers=ErrorHandlers(processing=dead_letter("failed")))
    app.start(lanes)
    fed = records(40)
    table = app.run(fed).to_pylist()
    letters = [row for row in table if row["topic"] == "failed"]
    told = [{header["name"]: header["value"] for header in row["headers"]} for row in letters]
    origins = [(t["__streams.errors.topic"], t["__streams.errors.partition"], int(t["__streams.errors.offset"])) for t in told]
    failing = [number for number, record in enumerate(fed) if record.value is not None and record.value.startswith(b"bad")]
    assert origins == [(b"in", b"0", number) for number in failing]
    assert [(row["key"], row["value"], row["timestamp"]) for row in letters] == [tuple(fed[number]) for number in failing]
    assert all(t["__penstock.errors.node"] == b"asked" for t in told)


def test_without_a_handler_the_epoch_fails_with_the_record_and_nothing_is_left_running(tmp_path: Path) -> None:
    calls: Counter[str] = Counter()

    async def sleepy(value: str) -> str:
        calls["begun"] += 1
        try:
            if value.startswith("bad"):
                raise ValueError(value)
            await asyncio.sleep(0.001 if calls["begun"] < 5 else 60)
        finally:
            calls["ended"] += 1
        return value

    app = Application(tmp_path, topology_of(sleepy))
    app.start(2)
    with pytest.raises(
        ProcessingError, match=r"asked failed on the record from in-0 at offset 4 \(key 'k4'\): ValueError: bad 4"
    ):
        app.run(records(40))
    assert calls["begun"] == calls["ended"] >= 5
    under_way = [task for task in asyncio.all_tasks(OF_THIS_PROCESS.loop()) if "Work.run" in repr(task) or "sleepy" in repr(task)]
    assert not under_way


def test_the_epoch_that_is_run_again_calls_again_and_gives_the_same(tmp_path: Path) -> None:
    calls: list[str] = []

    async def noted(value: str) -> str:
        calls.append(value)
        return value

    app = Application(tmp_path, topology_of(noted))
    app.start(2)
    fed = [Raw(b"k", b"v%d" % number, number) for number in range(5)]
    assert app.run(fed).to_pylist() == app.run(fed).to_pylist()
    assert len(calls) == 10


def test_a_program_has_one_client_in_all_its_epochs_and_it_is_closed_with_the_program(tmp_path: Path) -> None:
    events: list[str] = []

    class Client:
        async def __aenter__(self) -> str:
            events.append("opened")
            return "client"

        async def __aexit__(self, *_: object) -> None:
            events.append("closed")

    async def ask(value: str, client: str) -> str:
        return f"{client} {value}"

    app = Application(tmp_path, topology_of(ask, setup=Client))
    app.start(2)
    for number in range(3):
        fed = [Raw(b"k", b"v%d" % number, number)]
        app.step(fed)
    assert events == ["opened"]
    del app
    gc.collect()
    assert events == ["opened", "closed"]


def test_a_client_that_cannot_be_opened_ends_the_epoch_in_the_nodes_name(tmp_path: Path) -> None:
    def refuse() -> None:
        raise ConnectionError("refused")

    async def ask(value: str, client: None) -> str:
        return value

    app = Application(tmp_path, topology_of(ask, setup=refuse), handlers=ErrorHandlers(processing=dead_letter("failed")))
    app.start(1)
    with pytest.raises(
        ProcessingError, match=r"asked could not make its calls: .*refuse failed: ConnectionError.*\n.*test_callers\.py"
    ):
        app.run(records(3))


def test_results_are_those_of_the_driver_with_a_topology_of_processors_too(tmp_path: Path) -> None:
    app = Application(tmp_path, topology_of(lambda value: f"{value} by {os.getpid() > 0}", concurrency=3))
    app.start(3)
    for start in range(0, 60, 20):
        fed = [Raw(b"k%d" % (n % 5), b"v%d" % n, n) for n in range(start, start + 20)]
        app.step(fed)
    assert by_key(app.sent) == by_key(driven(app))


def test_a_program_that_makes_calls_can_be_pickled(tmp_path: Path) -> None:
    app = Application(
        tmp_path, topology_of(checked, breaker=CircuitBreaker(), cache=ResultCache("1m", by=lambda key, value: value))
    )
    app.start(2)
    app.running = cloudpickle.loads(cloudpickle.dumps(app.running))
    app.step([Raw(b"k", b"good", 1)])
    assert app.sent == [("out", b"k", b"GOOD", 1)]


def test_rows_of_a_cause_are_numbered_across_the_epoch() -> None:
    causes = np.array([0, 0, 1, 3, 0, 1, 1, 3, -1, -1], np.int64)
    assert _number_by_cause(causes).tolist() == [0, 1, 0, 0, 2, 1, 2, 1, 0, 1]
    assert _number_by_cause(np.array([0, 0, 2, 2, 2])).tolist() == [0, 1, 0, 1, 2]
