"""Slots in tasks of the lane job on one machine: they wait for Spark; `tests/unit/engines` runs epochs on them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.engines.port import SlotLostError
from penstock.engines.requests import Load
from penstock.engines.slots import Slot
from penstock.errors import ConfigError, PenstockError
from penstock.spark import lane_job
from penstock.spark import slots as module
from penstock.spark.slots import SparkSlots
from tests.unit.engines.programs import nothing, stateless
from tests.unit.epochs.application import program_of
from tests.unit.spark.without_java import Context, Spark
from verification.harness.processes import wait_until

PATIENCE_S = 60.0


def slots_of(spark: Spark, lanes: int = 3) -> SparkSlots:
    opened: Any = spark
    return SparkSlots(program_of(stateless(), lanes), nothing, opened)


@pytest.fixture
def spark() -> Spark:
    return Spark(Context(most_failures=8), is_open=False)


@pytest.fixture
def slots(spark: Spark) -> Iterator[SparkSlots]:
    made = slots_of(spark)
    made.start()
    yield made
    made.close()
    if not spark.is_open:
        spark.come(ConfigError("It has never started."))


def all_there(slots: SparkSlots) -> list[Slot]:
    wait_until("both slots are there", lambda: sum(slots.hosts.values()) == 2, PATIENCE_S)
    return [slots.slot(position) for position in range(2)]


def test_the_first_request_waits_for_spark(spark: Spark, slots: SparkSlots) -> None:
    asked: list[Slot] = []
    asking = threading.Thread(target=lambda: asked.append(slots.slot(0)))
    asking.start()
    asking.join(0.1)
    assert (asked, slots.hosts) == ([], {})
    spark.come()
    asking.join(PATIENCE_S)
    assert asked[0].ask(Load()).size == 0
    assert slots.size == 2


def test_positions_have_their_own_slots_and_share_them(spark: Spark, slots: SparkSlots) -> None:
    spark.come()
    one, other = all_there(slots)
    assert one is not other
    assert slots.slot(2) is one
    assert slots.slot(3) is other


class Come:
    """Slots that have registered: a stand-in for the listener."""

    def __init__(self) -> None:
        self.live: dict[int, str] = {}
        self._changed = threading.Condition()

    def add(self, position: int) -> None:
        with self._changed:
            self.live[position] = f"slot {position}"
            self._changed.notify_all()

    def has_been(self, position: int) -> bool:
        return position in self.live

    def wait_for(self, is_there: Callable[[], bool], timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(is_there, timeout_s)

    def close(self) -> None:
        """There is nothing to close."""


@pytest.fixture
def come(spark: Spark) -> Iterator[tuple[Come, SparkSlots]]:
    made = slots_of(spark)
    made._registration.close()
    registered: Any = Come()
    made._registration = registered
    spark.come()
    yield registered, made
    made.close()


def test_a_lane_waits_for_its_own_slot_at_the_start(come: tuple[Come, SparkSlots]) -> None:
    """Otherwise the slot that comes first restores all lanes, one after the other."""
    registered, slots = come
    found: dict[int, Any] = {}
    asking = [threading.Thread(target=lambda at=at: found.update({at: slots.slot(at)})) for at in range(2)]
    for thread in asking:
        thread.start()
    registered.add(1)
    asking[1].join(PATIENCE_S)
    asking[0].join(0.1)
    assert found == {1: "slot 1"}
    registered.add(0)
    asking[0].join(PATIENCE_S)
    assert found == {0: "slot 0", 1: "slot 1"}


def test_but_not_for_long(come: tuple[Come, SparkSlots], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_OTHERS_S", 0.05)
    registered, slots = come
    registered.add(1)
    found: Any = slots.slot(0)
    assert found == "slot 1"


def test_a_killed_task_is_replaced_by_another_process_while_others_go_on(spark: Spark, slots: SparkSlots) -> None:
    spark.come()
    one, other = all_there(slots)
    os.kill(one.process, signal.SIGKILL)
    with pytest.raises(SlotLostError):
        one.ask(Load())
    assert slots.slot(0).ask(Load()).size == 0  # of the other, until the first is back
    wait_until("it is replaced", lambda: slots.slot(0) is not other, PATIENCE_S)
    assert slots.slot(0).process != one.process
    assert slots.slot(1) is other


def test_an_error_by_which_spark_cannot_start_is_raised_where_a_slot_is_needed(spark: Spark, slots: SparkSlots) -> None:
    spark.come(ConfigError("Cannot start Spark."))
    with pytest.raises(ConfigError, match=r"^Cannot start Spark\.$"):
        slots.slot(0)


def test_a_job_that_was_given_up_is_an_error_too(spark: Spark, slots: SparkSlots, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(positions: Any, tasks: int) -> Any:
        raise RuntimeError("no such master")

    monkeypatch.setattr(spark.context, "parallelize", fail)
    spark.come()
    with pytest.raises(PenstockError, match=r"(?s)job of the lanes has failed 6 times.*no such master"):
        slots.slot(0)


def test_tasks_that_never_come_are_an_error_after_a_while(
    spark: Spark, slots: SparkSlots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FIRST_S", 0.05)
    with pytest.raises(ConfigError, match=r"No slot has registered within 0\.05 s\. Check the log of Spark's JVM"):
        slots.slot(0)


def test_if_slots_were_there_before_it_is_no_matter_of_settings(
    come: tuple[Come, SparkSlots], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exit code lets a supervisor start the application again."""
    monkeypatch.setattr(module, "_FIRST_S", 0.05)
    registered, slots = come
    registered.add(0)
    slots.slot(0)
    registered.live.clear()
    with pytest.raises(PenstockError, match=r"All slots were lost\. No slot has registered within") as found:
        slots.slot(0)
    assert not isinstance(found.value, ConfigError)


def test_a_context_that_has_ended_is_not_asked_for_slots(
    spark: Spark, slots: SparkSlots, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert slots.size == 2

    def refuse(lanes: int) -> int:
        raise AttributeError("'NoneType' object has no attribute 'sc'")

    monkeypatch.setattr(spark, "slots", refuse)
    assert slots.size == 2


def test_after_a_lease_the_same_positions_have_new_tasks(
    spark: Spark, slots: SparkSlots, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.come()
    before = all_there(slots)
    assert not slots.turn(1)
    monkeypatch.setattr(lane_job, "LEASE_S", 0.0)
    assert slots.turn(2)
    monkeypatch.undo()
    assert all(slot.is_lost for slot in before)
    assert slots.slot(0).ask(Load()).size == 0
    assert set(all_there(slots)).isdisjoint(before)
    assert not slots.turn(3)


def test_before_spark_is_open_no_lease_is_over(slots: SparkSlots) -> None:
    assert not slots.turn(1)


@pytest.mark.parametrize("is_open", [True, False])
def test_closing_ends_all_tasks_and_submits_none_afterwards(is_open: bool) -> None:
    context = Context(most_failures=8)
    spark = Spark(context, is_open=is_open)
    slots, before = slots_of(spark), threading.enumerate()
    slots.start()
    found = all_there(slots) if is_open else []
    slots.close()
    if not is_open:
        spark.come()
        for thread in set(threading.enumerate()) - set(before):
            thread.join(PATIENCE_S)
    assert all(slot.is_lost for slot in found)
    assert slots.hosts == {}
    assert (context.jobs, context.cancelled) == (int(is_open), [])
