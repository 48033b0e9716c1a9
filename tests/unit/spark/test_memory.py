"""A request to the JVM never waits for long, and returns no report rather than an old one."""

from __future__ import annotations

import threading
import time

import pytest
from pyspark import SparkContext

from penstock.spark.memory import JvmMemory, JvmReport

REPORT = JvmReport(1, 2, 3, 4, {"G1": (5, 6.0)})


def test_a_report_in_time_is_returned() -> None:
    assert JvmMemory(lambda: REPORT, patience_s=10)() == REPORT


def test_without_a_session_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    assert JvmMemory(patience_s=10)() is None


def test_a_jvm_that_fails_gives_no_report() -> None:
    answers = [REPORT]
    memory = JvmMemory(answers.pop, patience_s=10)
    assert memory() == REPORT
    assert memory() is None


def test_a_jvm_that_hangs_is_neither_waited_for_nor_asked_again() -> None:
    hangs = threading.Event()
    asked: list[int] = []

    def ask() -> JvmReport:
        asked.append(1)
        hangs.wait(30)
        return REPORT

    memory = JvmMemory(ask, patience_s=0.01)
    began = time.monotonic()
    assert [memory() for _ in range(5)] == [None] * 5
    assert time.monotonic() - began < 5
    assert len(asked) == 1
    hangs.set()
    patient = memory._asking
    assert patient is not None
    patient.join(30)
    assert JvmMemory(ask, patience_s=10)() == REPORT


def test_it_does_not_prevent_the_process_from_exiting() -> None:
    memory = JvmMemory(lambda: REPORT)
    memory()
    assert memory._asking is not None
    assert memory._asking.daemon
