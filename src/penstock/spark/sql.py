"""SQL for external clients: queries of stores, in a session that allows nothing else, with limits on rows, bytes and time.

An allow-list decides: a query is parsed, and every operator in it must be one that only reads stores.

Nothing ends a thread of the JVM that computes a regular expression, and Spark computes those of literals before there is a job to
cancel. So a query has a thread of its own, which is left behind if it does not end in time; there may be only a few of those.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.errors import NotReadyError, QueryError, QueryTimeoutError
from penstock.spark.failures import is_executor_lost, raised_in_task
from penstock.spark.tables import StoreTables

_log = logging.getLogger(__name__)

LONGEST = 20_000
"""The maximum length of a query, in characters."""

_MOST_OPERATORS = 500
_LONGEST_REASON = 500
_ALLOWED = frozenset(
    {
        "Aggregate",
        "CTERelationDef",
        "CTERelationRef",
        "Distinct",
        "Except",
        "Filter",
        "Generate",
        "GlobalLimit",
        "Intersect",
        "Join",
        "LateralJoin",
        "LocalLimit",
        "LocalRelation",
        "Offset",
        "OneRowRelation",
        "OneRowRelation$",
        "Pivot",
        "Project",
        "Sample",
        "Sort",
        "SubqueryAlias",
        "Union",
        "UnresolvedHaving",
        "UnresolvedInlineTable",
        "UnresolvedRelation",
        "UnresolvedSubqueryColumnAliases",
        "UnresolvedTableValuedFunction",
        "UnresolvedWith",
        "Unpivot",
        "Window",
        "WithWindowDefinition",
    }
)
_TABLE_FUNCTIONS = frozenset({"explode", "explode_outer", "inline", "inline_outer", "posexplode", "posexplode_outer", "stack"})
_DROPPED = frozenset(
    {
        # calls any Java method, or reads files
        *("reflect", "java_method", "try_reflect", "from_protobuf", "to_protobuf", "from_avro", "to_avro", "schema_of_avro"),
        # parses XML
        *("from_xml", "to_xml", "schema_of_xml", "xpath", "xpath_boolean", "xpath_double", "xpath_float", "xpath_int"),
        *("xpath_long", "xpath_number", "xpath_short", "xpath_string"),
        # can create values of any size
        *("repeat", "space", "lpad", "rpad", "array_repeat", "sequence", "format_string", "printf", "randstr"),
    }
)
_SETTINGS = {
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.shuffle.partitions": "1",  # epochs need the other slots
    "spark.sql.leafNodeDefaultParallelism": "1",
}


_END_S = 2.0
"""How long a query that is cancelled may take to end."""

MOST_STUCK = 2
"""How many queries that cannot be ended are left behind before others are refused: each takes a core, and perhaps a slot."""

_SHOWN = 200
"""How many characters of a query an error shows."""


class Answer(Future[pa.Table]):
    """What a query returns or raises in a thread of its own: in the block."""

    def __enter__(self) -> None:
        """Begin the query."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Keep what it has raised for the thread that waits."""
        if error is not None:
            self.set_exception(error)
        return True


class Stuck(NamedTuple):
    """A query that could not be ended, and what becomes of it."""

    text: str
    began: float
    answer: Answer


class GuardedSql:
    """Runs queries of stores for clients that may read all of them, one at a time."""

    def __init__(self, session: SparkSession, tables: StoreTables) -> None:
        self._session = session
        self._tables = tables
        self._child: SparkSession | None = None
        self._running = threading.Lock()
        self._left_behind: list[Stuck] = []

    def run(self, text: str, limit: int, most_bytes: int, timeout_s: float) -> pa.Table:
        """Return the first rows of the result, at most `limit + 1`: one more than requested shows that there are more.

        After the time and a moment, this returns, whatever Spark does.
        """
        if not self._running.acquire(blocking=False):
            raise NotReadyError("Another query is running. Retry later.")
        try:
            self._refuse_if_stuck()
            self._guarded()  # what Spark starts for the first query takes none of its time
            return self._in_time(partial(self._run, text, limit, most_bytes, timeout_s), text, timeout_s)
        except (PySparkException, Py4JError) as error:
            raise failure(error) from error
        finally:
            self._running.release()

    def _in_time(self, run: Callable[[], pa.Table], text: str, timeout_s: float) -> pa.Table:
        """Return what a query in a thread of its own returns; raises if that does not end, and leaves it behind."""
        answer = Answer()

        def answered() -> None:
            with answer:
                answer.set_result(run())

        began = time.monotonic()
        threading.Thread(target=answered, name="penstock-sql", daemon=True).start()
        if not wait([answer], timeout_s + _END_S).done:
            self._left_behind.append(Stuck(text, began, answer))
            _log.warning("a query cannot be ended, and keeps a core busy until the application ends: %s", text[:_SHOWN])
            raise QueryTimeoutError(f"The query took longer than {timeout_s:g} s, its time limit, and Spark cannot end it.")
        return answer.result()

    def _refuse_if_stuck(self) -> None:
        """Refuse a query if too many others cannot be ended."""
        self._left_behind = [stuck for stuck in self._left_behind if not stuck.answer.done()]
        if len(self._left_behind) >= MOST_STUCK:
            text, began, _ = self._left_behind[0]
            raise NotReadyError(
                f"SQL is refused, because {len(self._left_behind)} queries cannot be ended. The first one has run for "
                f"{time.monotonic() - began:.0f} s: {text[:_SHOWN]!r}. Restart the application; queries without SQL are answered."
            )

    def _run(self, text: str, limit: int, most_bytes: int, timeout_s: float) -> pa.Table:
        if len(text) > LONGEST:
            raise QueryError(f"The query has {len(text)} characters. At most {LONGEST} are allowed.")
        child = self._guarded()
        self._refuse_all_but_queries(child, text)
        self._tables.show(child, text)
        group = f"penstock-query-{uuid.uuid4().hex}"
        context = child.sparkContext
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            context.cancelJobGroup(group)

        timer = threading.Timer(timeout_s, end)
        timer.daemon = True
        timer.start()
        try:
            context.setJobGroup(group, "a query", interruptOnCancel=True)
            answer = child.sql(text).limit(limit + 1).toArrow()
        except (PySparkException, Py4JError) as error:
            if is_late.is_set():
                raise QueryTimeoutError(f"The query took longer than {timeout_s:g} s, its time limit.") from error
            raise
        finally:
            timer.cancel()
        if answer.nbytes > most_bytes:
            raise QueryError(
                f"The result has {answer.nbytes} bytes, more than the allowed {most_bytes}. Select fewer rows or columns."
            )
        return answer

    def _guarded(self) -> SparkSession:
        if self._child is None:
            logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # the client receives its own mistakes
            child = self._session.newSession()
            for name, value in _SETTINGS.items():
                child.conf.set(name, value)
            registry = child._jsparkSession.sessionState().functionRegistry()
            for function in _items(registry.listFunction()):
                if function.funcName() in _DROPPED:
                    registry.dropFunction(function)
            # What the first query would wait for, and its time limit is not for: the planner's classes, and a Python worker.
            child.range(0, 1, 1, 1).mapInArrow(_as_they_are, "id long").toArrow()
            self._child = child
        return self._child

    def _refuse_all_but_queries(self, child: SparkSession, text: str) -> None:
        operators = list(_operators(child._jsparkSession.sessionState().sqlParser().parsePlan(text)))
        names = {operator.alias() for operator in operators if operator.nodeName() == "SubqueryAlias"} | set(self._tables.specs)
        known = {name.lower() for name in names}
        for operator in operators:
            kind = operator.nodeName()
            if kind not in _ALLOWED:
                raise QueryError(f"{kind} is not allowed: only queries that read stores are.")
            if kind == "UnresolvedRelation":
                name = ".".join(_items(operator.multipartIdentifier()))
                if name.lower() not in known or operator.multipartIdentifier().size() > 1:
                    raise QueryError(f"Unknown store {name!r}. Known stores: {', '.join(sorted(self._tables.specs)) or 'none'}.")
            if kind == "UnresolvedTableValuedFunction":
                function = _items(operator.name())[-1].lower()
                if function not in _TABLE_FUNCTIONS:
                    raise QueryError(f"Function {function} is not allowed.")


def _as_they_are(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _operators(plan: Any, count: int = 0) -> Iterator[Any]:
    """Yield all operators of a plan, including those of its subqueries and named queries."""
    pending = [plan]
    while pending:
        operator = pending.pop()
        count += 1
        if count > _MOST_OPERATORS:
            raise QueryError(f"The query has more than {_MOST_OPERATORS} operators.")
        yield operator
        pending += [*_items(operator.children()), *_items(operator.innerChildren())]


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(place) for place in range(sequence.size())]


def failure(error: BaseException) -> QueryError:
    """Return why a query failed: as the task that read a store has put it, if one did."""
    raised = raised_in_task(error)
    if isinstance(raised, QueryError):
        return raised
    if is_executor_lost(error):
        return NotReadyError("An executor was lost while the query ran. Retry.")
    return QueryError(_first_line(error) if raised is None else str(raised)[:_LONGEST_REASON])


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:_LONGEST_REASON] if lines else type(error).__name__
