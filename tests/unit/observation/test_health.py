"""An application is live unless it has failed or an epoch stalls; it is ready when it makes progress."""

from __future__ import annotations

import pytest

from penstock.errors import BrokerError
from penstock.observation import Health, Indicator, PartitionReport, Problem, Recorder
from tests.unit.observation.observed import Clock, an_epoch


class Observed:
    """An application as its health sees it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.recorder = Recorder(self.clock)
        self.state = "running"
        self.indicators: dict[str, Indicator] = {}
        self.health = Health(self.recorder, lambda: self.state, epoch_timeout_s=60, indicators=self.indicators)

    def lags(self, lag: int) -> None:
        self.recorder.moved({("lines", 0): PartitionReport("lines", 0, 40, -1, -1, -1)}, -1)
        self.recorder.saw_ends({("lines", 0): 40 + lag})


@pytest.fixture
def observed() -> Observed:
    return Observed()


def test_a_running_application_is_live_and_ready(observed: Observed) -> None:
    assert (observed.health.live(), observed.health.ready()) == ((), ())


@pytest.mark.security(11)
class TestLive:
    @pytest.mark.parametrize("state", ["created", "standby", "rebalancing", "pending_shutdown", "not_running"])
    def test_an_application_that_starts_or_stops_is_live(self, observed: Observed, state: str) -> None:
        observed.state = state
        observed.clock.now += 9_999
        assert observed.health.live() == ()

    def test_a_restore_may_take_any_time_as_long_as_it_advances_but_not_stand_still(self, observed: Observed) -> None:
        observed.state = "rebalancing"
        restores = observed.recorder.restores
        with restores.of(2):
            for offset in range(200):
                restores.advanced(0, f"reading t-0 at offset {offset}")
                observed.clock.now += 59
                assert observed.health.live() == ()
            restores.advanced(0, "")
            observed.clock.now += 300
            assert observed.health.live() == ()
            observed.clock.now += 1
            why = "the restore of lanes has not advanced (1 lanes are left, the first one is 1) for 301 s"
            assert observed.health.live() == (Problem("stalled", why),)
        assert observed.health.live() == ()

    def test_lanes_that_move_in_an_epoch_have_as_long_as_they_advance(self, observed: Observed) -> None:
        observed.recorder.epoch_begins(7, "job")
        restores = observed.recorder.restores
        with restores.of(1):
            for _ in range(200):
                observed.clock.now += 59
                restores.advanced(0, "reading t-0")
            assert observed.health.live() == ()
            observed.clock.now += 301
            assert "the restore of lanes has not advanced" in observed.health.live()[0].why
        assert "epoch 7 has been in phase" in observed.health.live()[0].why
        observed.recorder.epoch_begins(7, "job")
        assert observed.health.live() == ()

    @pytest.mark.parametrize("state", ["pending_error", "error"])
    def test_a_failed_application_is_not_live_and_says_why_without_secrets(self, observed: Observed, state: str) -> None:
        observed.state = state
        assert observed.health.live() == (Problem("failed", "the application failed: see the log"),)
        observed.recorder.failure = BrokerError("sasl.password=hunter2 was refused")
        assert observed.health.live() == (Problem("failed", "BrokerError: see the log"),)

    def test_an_epoch_that_exceeds_its_timeout_is_not_live(self, observed: Observed) -> None:
        observed.recorder.epoch_begins(7, "before")
        observed.clock.now += 50
        observed.recorder.phase_begins("job")
        observed.clock.now += 10
        assert observed.health.live() == ()
        observed.clock.now += 1
        stalled = Problem("stalled", "epoch 7 has been in phase 'job' for 61 s")
        assert observed.health.live() == observed.health.ready() == (stalled,)


@pytest.mark.security(11)
class TestReady:
    def test_a_starting_application_is_not_ready(self, observed: Observed) -> None:
        for state in ("created", "rebalancing"):
            observed.state = state
            assert observed.health.ready() == (Problem("starting", "checking topics, offsets and lanes"),)

    def test_a_standby_is_not_ready_and_says_so(self, observed: Observed) -> None:
        observed.state = "standby"
        why = "another instance is active; this one takes over when it ends"
        assert observed.health.ready() == (Problem("standby", why),)

    def test_a_restoring_application_reports_its_progress(self, observed: Observed) -> None:
        observed.state = "rebalancing"
        observed.recorder.restoring({0: 100, 1: 300})
        observed.clock.now += 5
        observed.recorder.restoring({0: 100, 1: 0})
        why = "300 of 400 records (75%) read in 5 s, over 2 lanes"
        assert observed.health.ready() == (Problem("restoring", why),)
        observed.recorder.restored()
        assert [problem.what for problem in observed.health.ready()] == ["starting"]

    def test_an_ending_application_is_not_ready(self, observed: Observed) -> None:
        observed.state = "pending_shutdown"
        assert observed.health.ready() == (Problem("pending_shutdown", "the application is pending_shutdown"),)
        observed.state = "error"
        observed.recorder.failure = BrokerError("gone")
        assert observed.health.ready() == (Problem("error", "BrokerError: see the log"),)

    def test_an_application_with_lag_but_without_commits_is_not_ready(self, observed: Observed) -> None:
        observed.lags(25)
        observed.clock.now += 30
        assert observed.health.ready() == ()
        observed.clock.now += 1
        assert observed.health.ready() == (Problem("no progress", "no commit for 31 s, and 25 records to read"),)
        an_epoch(observed.recorder, observed.clock)
        assert observed.health.ready() == ()

    def test_an_idle_application_is_ready(self, observed: Observed) -> None:
        observed.lags(0)
        observed.clock.now += 9_999
        assert observed.health.ready() == ()

    def test_a_paused_application_with_lag_is_ready(self, observed: Observed) -> None:
        observed.lags(25)
        observed.recorder.paused(True)
        observed.clock.now += 9_999
        assert observed.health.ready() == ()
        observed.recorder.paused(False)
        assert observed.health.ready() == ()
        observed.clock.now += 31
        assert [problem.what for problem in observed.health.ready()] == ["no progress"]

    def test_an_unknown_lag_is_not_a_problem(self, observed: Observed) -> None:
        observed.recorder.moved({("lines", 0): PartitionReport("lines", 0, 40, -1, -1, -1)}, -1)
        observed.clock.now += 9_999
        assert observed.health.ready() == ()

    def test_a_global_table_that_is_not_refreshed_is_named_without_secrets(self, observed: Observed) -> None:
        observed.recorder.tables.refreshed("countries")
        observed.recorder.tables.refreshed("rates", BrokerError("password=hunter2"))
        why = "the rows of global table 'rates' cannot be read again (BrokerError): see the log"
        assert observed.health.ready() == (Problem("not refreshed", why),)
        assert observed.health.live() == ()
        observed.recorder.tables.refreshed("rates")
        assert observed.health.ready() == ()

    def test_user_checks_are_called(self, observed: Observed) -> None:
        observed.indicators["database"] = lambda: None
        assert observed.health.ready() == ()
        observed.indicators["model"] = lambda: "it is three days old"
        assert observed.health.ready() == (Problem("model", "it is three days old"),)

    def test_a_check_that_raises_is_a_problem_without_its_message(self, observed: Observed) -> None:
        def broken() -> str | None:
            raise ConnectionError("postgres://user:hunter2@db")

        observed.indicators["database"] = broken
        assert observed.health.ready() == (Problem("database", "the check raised ConnectionError"),)

    def test_no_checks_are_needed(self) -> None:
        assert Health(Recorder(Clock()), lambda: "running", epoch_timeout_s=60).ready() == ()
