"""A job that takes too long, or waits for a host that is gone, is cancelled, however late it begins."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.spark import watching
from penstock.spark.watching import Watch, watched


class Job:
    """A Spark job, which can be cancelled as soon as it has begun."""

    def __init__(self) -> None:
        self.tags: list[str] = []
        self.is_running = False
        self.cancelled = 0
        calls = {"addJobTag": self.tags.append, "removeJobTag": self.tags.remove, "cancelJobsWithTag": self.cancel}
        self.session: Any = SimpleNamespace(sparkContext=SimpleNamespace(**calls))

    def cancel(self, tag: str) -> None:
        self.cancelled += self.is_running and tag in self.tags

    def run(self, starts_after_s: float, takes_s: float) -> None:
        time.sleep(starts_after_s)
        self.is_running = True
        end = time.monotonic() + takes_s
        while time.monotonic() < end:
            if self.cancelled:
                raise RuntimeError("cancelled")
            time.sleep(0.01)


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_LOOK_EVERY_S", 0.02)


def hosts(are_lost: bool) -> Any:
    return SimpleNamespace(are_lost=lambda: are_lost)


def test_a_job_that_begins_after_its_host_was_lost_is_cancelled() -> None:
    job = Job()
    with pytest.raises(RuntimeError, match="cancelled"), watched(job.session, hosts(are_lost=True)) as watch:
        job.run(starts_after_s=0.2, takes_s=30)
    assert (watch.has_lost_host, watch.is_late) == (True, False)
    assert job.tags == []


def test_a_job_that_takes_too_long_is_cancelled() -> None:
    job = Job()
    with pytest.raises(RuntimeError, match="cancelled"), watched(job.session, None, patience_s=0.1) as watch:
        job.run(starts_after_s=0, takes_s=30)
    assert (watch.has_lost_host, watch.is_late) == (False, True)


def test_a_job_with_all_its_hosts_and_in_time_is_left_alone() -> None:
    job = Job()
    with watched(job.session, hosts(are_lost=False), patience_s=60) as watch:
        job.run(starts_after_s=0, takes_s=0.1)
    assert (job.cancelled, watch.has_lost_host, watch.is_late) == (0, False, False)


@pytest.mark.parametrize(
    ("watch", "is_loss"),
    [
        (Watch(None), False),  # on one machine there is no other host
        (Watch(cast("Any", SimpleNamespace(have_failed=lambda error: False))), False),
        (Watch(cast("Any", SimpleNamespace(have_failed=lambda error: True))), True),
        (Watch(cast("Any", SimpleNamespace(have_failed=lambda error: False)), has_lost_host=True), True),
    ],
)
def test_an_error_is_a_loss_if_a_host_was_lost_or_spark_says_so(watch: Watch, is_loss: bool) -> None:
    assert watch.is_loss(RuntimeError("cancelled")) is is_loss
