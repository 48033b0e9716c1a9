"""What a takeover took, read from the log of the instance that took over."""

from __future__ import annotations

import time

import pytest

from verification.takeover.figures import Taken, is_watching, summary, taken_over

AT = "2026-11-17 18:30:05"
SINCE = time.mktime(time.strptime(AT, "%Y-%m-%d %H:%M:%S"))
WATCHES = f"{AT},000 INFO penstock.runtime.standby.standing_by: standing by: instance i1 is active at 127.0.0.1:4000\n"
TAKES = f"{AT},100 INFO penstock.runtime.start: app takes over: nobody listens at 127.0.0.1:4000 any more\n"
TOOK = (
    f"{AT},900 INFO penstock.runtime.standby.turn: took over in 1.200 s, with epoch 8: detected 0.500 s, fenced 0.250 s, "
    "position 0.050 s, restored 0.100 s, committed 0.300 s\n"
)
GAVE_WAY = f"{AT},950 WARNING penstock.runtime.application: standing by again, because another standby was faster: fenced\n"


def test_a_takeover_counts_from_the_end_of_the_instance_before() -> None:
    taken = taken_over(WATCHES + TAKES + TOOK, SINCE + 0.1)
    assert taken is not None
    assert taken.seconds == pytest.approx(0.8)
    steps = {"detected": 0.1, "fenced": 0.25, "position": 0.05, "restored": 0.1, "committed": 0.3}
    assert taken.steps == pytest.approx(steps, abs=1e-4)


@pytest.mark.parametrize("log", ["", WATCHES, WATCHES + TAKES])
def test_an_instance_that_has_not_committed_has_not_taken_over(log: str) -> None:
    assert taken_over(log, SINCE) is None


def test_an_earlier_takeover_does_not_count() -> None:
    assert taken_over(WATCHES + TAKES + TOOK, SINCE + 1) is None


def test_only_an_instance_that_watches_another_one_is_ready() -> None:
    assert not is_watching("")
    assert is_watching(WATCHES)
    assert not is_watching(WATCHES + TAKES)
    assert not is_watching(WATCHES + TAKES + GAVE_WAY)
    assert is_watching(WATCHES + TAKES + GAVE_WAY + WATCHES)


def test_medians_and_maxima() -> None:
    taken = [Taken(seconds, {"detected": seconds / 10, "fenced": 0.2}) for seconds in (1.0, 3.0, 2.0)]
    assert summary(taken) == {
        "count": 3,
        "median": 2.0,
        "max": 3.0,
        "steps": {"detected": {"median": 0.2, "max": 0.3}, "fenced": {"median": 0.2, "max": 0.2}},
    }
    assert summary([]) == {"count": 0}
