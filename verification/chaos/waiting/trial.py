"""A row of the campaign whose application has pending work."""

from __future__ import annotations

import time

from verification.chaos import checker as of_payments
from verification.chaos.payments import Topics
from verification.chaos.trial import CUT_S, REST_S, Conditions, Trial, World, named
from verification.chaos.waiting import checker
from verification.chaos.waiting.forms import DELAY_MS, DELAY_VARIABLE, WaitingTopics
from verification.chaos.waiting.observer import WaitingObserver


class WaitingTrial(Trial):
    """A trial that is at rest when no timer is pending; its schedules continue even then."""

    topology = "verification.chaos.waiting.topology"
    rate = 50  # each payment causes three pending items

    def __init__(self, world: World, name: str, conditions: Conditions, guard_off: str = "") -> None:
        super().__init__(world, name, conditions, guard_off)
        self._delay_ms = int(conditions.settings.get(DELAY_VARIABLE, DELAY_MS))

    def _topics(self, application_id: str) -> Topics:
        return WaitingTopics(application_id)

    def _observer(self) -> WaitingObserver:
        assert isinstance(self.topics, WaitingTopics)
        self._waits = WaitingObserver(self.world.broker.bootstrap_servers, self.topics)
        return self._waits

    def pending(self) -> int:
        """The number of pending timers, as committed."""
        return len(self._waits.waits().pending)

    def check_cut(self) -> None:
        """See `Trial`."""
        deadline = time.monotonic() + CUT_S
        while True:
            found = checker.check(self.sent(), self._waits.waits(), self._delay_ms)
            if not found or time.monotonic() > deadline:
                self.violations += found
                return
            time.sleep(0.5)

    def rest(self) -> None:
        """Stop the load, and wait until everything is read and the last timer has fired."""
        self.load.pause()
        ends = self.observer.input_ends()
        self.tend("rest", lambda: self.observer.offsets() == ends, REST_S)
        asked = 0.0

        def is_over() -> bool:
            nonlocal asked
            if time.monotonic() - asked < 2:
                return False
            asked = time.monotonic()
            return bool(self.violations) or not self.pending()  # after a violation it may never come to rest

        self.tend("all timers have fired", is_over, REST_S)

    def restart_warm(self) -> None:
        """Restart with all files: schedules continue, and nothing is repeated."""
        self._go_on_for_a_while()
        self.check_all(" after a warm restart")

    def restart_cold(self) -> None:
        """Restart without files and with some new input; everything must continue correctly."""
        self.files.delete()
        self.load.send(200)
        self._go_on_for_a_while()
        self.check_all(" after a cold restart")

    def _go_on_for_a_while(self) -> None:
        before = len(self._waits.waits().ticks["all"])
        self.start()
        self.tend("schedules continue", lambda: len(self._waits.waits().ticks["all"]) > before, REST_S)
        self.rest()
        if self.application.stop() != 0:
            self.violate("exit", "application", f"{self.application.exits[-1].code} after SIGTERM")

    def check_all(self, when: str) -> None:
        """See `Trial`."""
        ends = self.observer.output_ends()
        self.tend_reader(ends)
        found = self._waits.waits()
        self.violations += named(
            when,
            [
                *checker.check(self.sent(), found, self._delay_ms),
                *checker.check_all_fired(found),
                *of_payments.check_offsets(found.offsets, self.observer.input_ends()),
                *of_payments.check_reader(self.reader.records, self.observer.records()),
                *of_payments.check_settled(self.observer.open_transactions(), self.observer.unstable()),
                *of_payments.check_dead_letters([], self.observer.dead_letters()),
            ],
        )
