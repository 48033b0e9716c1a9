"""SQL for external clients: queries of stores, in a session that allows nothing else, with limits on rows, bytes and time.

An allow-list decides: a query is parsed, and every operator in it must be one that only reads stores.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.errors import NotReadyError, QueryError, QueryTimeoutError
from penstock.spark.failures import is_executor_lost, raised_in_task
from penstock.spark.tables import StoreTables

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


class GuardedSql:
    """Runs queries of stores for clients that may read all of them."""

    def __init__(self, session: SparkSession, tables: StoreTables) -> None:
        self._session = session
        self._tables = tables
        self._child: SparkSession | None = None
        self._running = threading.Lock()

    def run(self, text: str, limit: int, most_bytes: int, timeout_s: float) -> pa.Table:
        """Return the first rows of the result, at most `limit + 1`: one more than requested shows that there are more."""
        if not self._running.acquire(blocking=False):
            raise NotReadyError("Another query is running. Retry later.")
        try:
            return self._run(text, limit, most_bytes, timeout_s)
        except (PySparkException, Py4JError) as error:
            raise failure(error) from error
        finally:
            self._running.release()

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
