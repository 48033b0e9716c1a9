"""`Queryable`: the part of a running application that answers queries of its stores, as of the last barrier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock import machine
from penstock.errors import NotReadyError
from penstock.observation import Health
from penstock.queries import CommittedState, QueryResult, ask, view
from penstock.runtime.start import Started
from penstock.runtime.states import State
from penstock.timing import Duration, duration_ms

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.context import DataFrame


class Queryable:
    """An application whose stores can be read once they are restored, until it ends."""

    application_id: str
    health: Health
    _ended: machine.Event
    _started: Started | None

    @property
    def state(self) -> State:
        """What the application is doing."""
        raise NotImplementedError

    @property
    def committed_state(self) -> CommittedState:
        """The stores as of the last barrier; raises `NotReadyError` while they are being restored."""
        return self._require_started().state

    def store(self, name: str) -> Any:
        """Return a read-only view of a store, always as of the last barrier; see `penstock.queries.views`.

        Example:
            >>> running.store("words")["to"]  # doctest: +SKIP
            2
        """
        return view(self.committed_state, name)

    def query(self, store: str, query: Any, *, at_least_epoch: int | None = None, timeout: Duration = "10s") -> QueryResult[Any]:
        """Return the result of a query (`penstock.queries.KeyQuery` and others), and the epoch it is from.

        With `at_least_epoch`, wait until that epoch is committed, at most for `timeout`.

        Example:
            >>> running.query("words", KeyQuery("to"))  # doctest: +SKIP
            QueryResult(value=2, epoch=17, is_complete=True)
        """
        return ask(self.committed_state, store, query, at_least_epoch, duration_ms(timeout, "timeout") / 1000)

    def table(self, store: str) -> DataFrame:
        """Return a store as a Spark DataFrame; each use reads it as of the last barrier."""
        return self._require_started().hosting.require_spark().tables.table(store)

    def sql(self, text: str) -> DataFrame:
        """Return the result of a SQL query, in which stores are tables; quote names with `-` or `.` in backticks.

        Example:
            >>> running.sql("select key, value from words order by value desc limit 10").show()  # doctest: +SKIP
        """
        return self._require_started().hosting.require_spark().tables.sql(text)

    def guarded_sql(self, text: str, limit: int, most_bytes: int, timeout_s: float) -> pa.Table:
        """As `sql`, for external clients: accept only queries of stores, and limit rows, bytes and time."""
        return self._require_started().hosting.require_spark().sql.run(text, limit, most_bytes, timeout_s)

    def _require_started(self) -> Started:
        if self._started is None or self._ended.is_set():
            reasons = "; ".join(why for _, why in self.health.ready()) or f"it is {self.state.value}"
            raise NotReadyError(f"Cannot query {self.application_id!r} now: {reasons}")
        return self._started
