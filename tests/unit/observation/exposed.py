"""Metrics of an application that has a value for every metric."""

from __future__ import annotations

from penstock.engines.port import Whereabouts
from penstock.observation import Recorder
from penstock.observation.metrics import Metrics
from penstock.spark.memory import JvmReport
from tests.unit.observation.observed import Clock, fed

JVM = JvmReport(64_000_000, 1_000_000_000, 32_000_000, 40, {"PS Scavenge": (7, 0.25), "PS MarkSweep": (1, 0.5)})


def all_metrics() -> Metrics:
    clock = Clock()
    recorder = Recorder(clock)
    metrics = Metrics("word-count", recorder, lambda: "running", epoch_timeout_s=60, jvm=lambda: JVM)
    fed(recorder, clock)
    recorder.hosts = {0: "a.example", 1: "b.example", 2: "a.example"}
    recorder.whereabouts = lambda: Whereabouts("spark", {"a.example": 2, "b.example": 1}, "Spark tasks")
    return metrics
