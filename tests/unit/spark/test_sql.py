"""Why a query of a client failed, found in Spark's report; and queries that cannot be ended, which must not block others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from penstock.errors import NotReadyError, QueryError, QueryTimeoutError
from penstock.spark import sql as module
from penstock.spark.sql import MOST_STUCK, GuardedSql, failure
from tests.unit.spark.test_failures import report
from verification.harness.processes import wait_until

RETRY = "A lane is moving to another host, or its host is lost. Retry. (The lane server at one:7001 does not answer: timed out)"


def test_a_lane_that_moved_asks_for_a_retry() -> None:
    error = failure(report("NotReadyError", RETRY))
    assert (type(error), str(error)) == (NotReadyError, RETRY)


@pytest.mark.parametrize("sign", ["ExecutorLostFailure (executor 2 exited)", "FetchFailed(BlockManagerId(1, host, 7079))"])
def test_a_lost_executor_asks_for_a_retry(sign: str) -> None:
    error = failure(RuntimeError(f"Job aborted due to stage failure: {sign}"))
    assert (type(error), str(error)) == (NotReadyError, "An executor was lost while the query ran. Retry.")


def test_an_error_of_the_reading_task_is_told_in_its_own_words() -> None:
    error = failure(report("SerializationError", "Store 'words': a value is not of type string"))
    assert (type(error), str(error)) == (QueryError, "Store 'words': a value is not of type string")


@pytest.mark.parametrize(("text", "told"), [("first\n\tat java", "first"), ("x" * 600, "x" * 500), ("", "RuntimeError")])
def test_anything_else_is_told_by_its_first_line(text: str, told: str) -> None:
    error = failure(RuntimeError(text))
    assert (type(error), str(error)) == (QueryError, told)


class ColdSession:
    """A session whose first result takes until Spark has started what it needs; a query that is cancelled by then fails."""

    START_S = 3.0  # longer than the time limit, and the moment after it

    def __init__(self) -> None:
        self.is_cold = True
        self.is_cancelled = False
        self.conf = SimpleNamespace(set=lambda name, value: None)
        none = SimpleNamespace(size=lambda: 0)
        plan = SimpleNamespace(nodeName=lambda: "OneRowRelation", children=lambda: none, innerChildren=lambda: none)
        state = SimpleNamespace(
            functionRegistry=lambda: SimpleNamespace(listFunction=lambda: none),
            sqlParser=lambda: SimpleNamespace(parsePlan=lambda text: plan),
        )
        self._jsparkSession = SimpleNamespace(sessionState=lambda: state)
        self.sparkContext = SimpleNamespace(setJobGroup=lambda *given, **options: None, cancelJobGroup=self.cancel)

    def newSession(self) -> ColdSession:
        return self

    def cancel(self, group: str) -> None:
        self.is_cancelled = True

    def frame(self, *_: Any) -> Any:
        return SimpleNamespace(mapInArrow=self.frame, limit=self.frame, toArrow=self.result)

    range = sql = frame

    def result(self) -> pa.Table:
        if self.is_cold:
            time.sleep(self.START_S)
            self.is_cold = False
        if self.is_cancelled:
            raise PySparkException("cancelled")
        return pa.table({"one": [1]})


def test_the_first_query_does_not_fail_because_spark_starts_what_it_needs() -> None:
    session: Any = ColdSession()
    tables: Any = SimpleNamespace(specs={}, show=lambda child, text: None)
    assert GuardedSql(session, tables).run("select 1 as one", 10, 1_000, session.START_S / 2).to_pylist() == [{"one": 1}]


class TestQueriesThatCannotBeEnded:
    """A regular expression, for example: no thread of the JVM that computes one can be ended."""

    ANSWER = pa.table({"one": [1]})

    @pytest.fixture
    def may_end(self) -> Iterator[threading.Event]:
        event = threading.Event()
        yield event
        event.set()

    @pytest.fixture
    def sql(self, monkeypatch: pytest.MonkeyPatch, may_end: threading.Event) -> GuardedSql:
        """Queries that begin with "stuck" do not end before they may."""
        none: Any = None

        def run(sql: GuardedSql, text: str, *limits: Any) -> pa.Table:
            if text == "wrong":
                raise QueryError("It is wrong.")
            if text.startswith("stuck"):
                may_end.wait(60)
            return self.ANSWER

        monkeypatch.setattr(GuardedSql, "_run", run)
        monkeypatch.setattr(GuardedSql, "_guarded", lambda sql: None)
        monkeypatch.setattr(module, "_END_S", 0.1)
        return GuardedSql(none, none)

    def asked(self, sql: GuardedSql, text: str) -> pa.Table:
        return sql.run(text, 10, 1 << 20, timeout_s=0.2)

    def test_the_caller_gets_an_error_in_time_and_others_are_answered(self, sql: GuardedSql) -> None:
        began = time.monotonic()
        with pytest.raises(QueryTimeoutError, match=r"longer than 0\.2 s, its time limit, and Spark cannot end it"):
            self.asked(sql, "stuck")
        assert time.monotonic() - began < 20
        assert self.asked(sql, "other") == self.ANSWER

    def test_if_there_are_too_many_others_are_refused_with_the_query_and_the_cure(
        self, sql: GuardedSql, may_end: threading.Event, caplog: pytest.LogCaptureFixture
    ) -> None:
        threads = threading.active_count()
        for number in range(MOST_STUCK):
            with pytest.raises(QueryTimeoutError):
                self.asked(sql, f"stuck {number}")
        assert caplog.text.count("a query cannot be ended, and keeps a core busy") == MOST_STUCK
        for _ in range(3):
            with pytest.raises(NotReadyError, match=r"SQL is refused.* 2 queries .*: 'stuck 0'\. Restart the application"):
                self.asked(sql, "other")
        assert threading.active_count() <= threads + MOST_STUCK
        may_end.set()
        wait_until("those queries have ended", lambda: all(stuck.answer.done() for stuck in sql._left_behind), 20)
        assert self.asked(sql, "other") == self.ANSWER

    def test_what_a_query_raises_is_raised(self, sql: GuardedSql) -> None:
        with pytest.raises(QueryError, match=r"^It is wrong\.$"):
            self.asked(sql, "wrong")
