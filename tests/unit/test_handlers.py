"""Error handlers as values: what they refuse, what they decide, and that they can be pickled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest

from penstock import App, Failure, RecordMetadata, Topology, dead_letter, log_and_continue, log_and_fail, retry
from penstock.errors import ConfigError, ProcessingError, TopologyError
from penstock.handlers import LONGEST_BACKOFF_MS, ErrorHandlers, FailureKind, decide, settle


def failure(kind: FailureKind = FailureKind.PROCESSING) -> Failure:
    return Failure(kind, ValueError("bad"), "map", RecordMetadata("in", 2, 7), b"k", b"v", 5, ())


NONE: Any = "continue"
forgotten_call: Any = log_and_continue


class TestForm:
    def test_all_three_fail_by_default(self) -> None:
        assert ErrorHandlers() == ErrorHandlers(
            deserialization=log_and_fail(), processing=log_and_fail(), production=log_and_fail()
        )

    def test_a_back_off_doubles_up_to_a_bound(self) -> None:
        assert retry(4, "100ms").waits_ms() == [100, 200, 400, 800]
        assert retry(12, "100ms").waits_ms()[-2:] == [LONGEST_BACKOFF_MS, LONGEST_BACKOFF_MS]
        assert retry(3, "1m").waits_ms() == [60_000, 60_000, 60_000]
        assert retry(2, 0).waits_ms() == [0, 0]

    @pytest.mark.parametrize("topic", ["", "a b", "a/b", "x" * 250])
    def test_a_dead_letter_needs_a_topic(self, topic: str) -> None:
        with pytest.raises(ConfigError, match="invalid topic name"):
            dead_letter(topic)

    @pytest.mark.parametrize(
        ("make", "complaint"),
        [
            (lambda: retry(0), "at least 1 attempt"),
            (lambda: retry(1, -1), "a back-off of 0 or more"),
            (lambda: retry(then=retry()), r"cannot be another retry\(\)"),
            (lambda: retry(then=NONE), r"then= takes log_and_fail\(\).*not 'continue'"),
            (lambda: ErrorHandlers(processing=NONE), r"processing_errors= takes .*not 'continue'"),
            (lambda: ErrorHandlers(processing=forgotten_call), r"with one argument, \(failure\), but log_and_continue"),
            (lambda: ErrorHandlers(production=retry()), "production_errors= cannot be retry"),
            (lambda: ErrorHandlers(deserialization=retry()), "deserialization_errors= cannot be retry"),
            (lambda: App("a", Topology(), processing_errors=NONE), "processing_errors= takes"),
        ],
    )
    def test_an_invalid_handler_is_refused_immediately(self, make: Callable[[], Any], complaint: str) -> None:
        with pytest.raises(ConfigError, match=complaint):
            make()

    def test_a_back_off_is_a_duration(self) -> None:
        with pytest.raises(TopologyError, match="backoff: invalid duration 'soon'"):
            retry(backoff="soon")

    def test_a_function_without_a_signature_is_accepted(self) -> None:
        built_in: Any = dict
        assert ErrorHandlers(processing=built_in).may_retry

    def test_known_dead_letter_topics(self) -> None:
        handlers = ErrorHandlers(
            deserialization=dead_letter("unread"), processing=retry(then=dead_letter("undone")), production=lambda failure: DEAD
        )
        assert handlers.dead_letter_topics() == {"unread", "undone"}
        assert ErrorHandlers().dead_letter_topics() == frozenset()

    def test_an_application_carries_them(self) -> None:
        app = App("a", Topology(), deserialization_errors=log_and_continue(), production_errors=DEAD)
        assert app.error_handlers == ErrorHandlers(deserialization=log_and_continue(), production=DEAD)

    def test_they_can_be_pickled(self) -> None:
        handlers = ErrorHandlers(processing=retry(2, "1s", then=DEAD), production=lambda failure: dead_letter(failure.node))
        arrived = cloudpickle.loads(cloudpickle.dumps(handlers))
        assert arrived.processing == handlers.processing
        assert settle(arrived.production, failure(FailureKind.PRODUCTION)) == dead_letter("map")


DEAD = dead_letter("dead")


class TestDeciding:
    def test_a_value_decides_the_same_about_every_failure(self) -> None:
        for handler in (log_and_fail(), log_and_continue(), DEAD, retry(then=DEAD)):
            assert decide(handler, failure()) is handler

    def test_a_function_receives_the_failure(self) -> None:
        seen: list[Failure] = []

        def choose(failure: Failure) -> Any:
            seen.append(failure)
            return log_and_continue()

        assert decide(choose, failure()) == log_and_continue()
        assert [(shown.kind, shown.node, shown.place) for shown in seen] == [(FailureKind.PROCESSING, "map", "in-2 at offset 7")]

    def test_then_decides_immediately_if_nothing_can_be_retried(self) -> None:
        assert settle(retry(then=DEAD), failure()) == DEAD
        assert settle(lambda failure: retry(then=lambda failure: DEAD), failure()) == DEAD

    def test_a_handler_that_fails_is_named_with_the_failure(self) -> None:
        def choose(failure: Failure) -> Any:
            raise KeyError(failure.node)

        with pytest.raises(ProcessingError, match=r"The processing error handler .*choose failed: KeyError: 'map'") as it:
            decide(choose, failure())
        assert "ValueError: bad (map, on the record from in-2 at offset 7)" in str(it.value)
        assert isinstance(it.value.__cause__, KeyError)

    @pytest.mark.parametrize("answer", [None, "continue", log_and_continue])
    def test_an_invalid_decision_is_named(self, answer: Any) -> None:
        with pytest.raises(ProcessingError, match=r"lambda.* returned .*It must return .*or retry\(\.\.\.\)"):
            decide(lambda failure: answer, failure())

    def test_only_processing_can_be_retried(self) -> None:
        with pytest.raises(ProcessingError, match=r"production error handler .* returned Retry") as caught:
            decide(lambda failure: retry(), failure(FailureKind.PRODUCTION))
        assert "or retry" not in str(caught.value)

    def test_a_retry_after_a_retry_is_an_error(self) -> None:
        def forever(failure: Failure) -> Any:
            return retry(then=forever)

        with pytest.raises(ProcessingError, match=r"forever returned a retry after a retry"):
            settle(forever, failure())
