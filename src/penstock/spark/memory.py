"""Memory and threads of the driver's JVM, read without blocking: a JVM that hangs must not make its observers hang."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

_log = logging.getLogger(__name__)


class JvmReport(NamedTuple):
    """Memory, threads and garbage collection of a JVM; `collections` are counts and seconds by collector.

    A limit that the JVM does not have is -1.
    """

    heap_used_bytes: int
    heap_max_bytes: int
    other_used_bytes: int
    threads: int
    collections: Mapping[str, tuple[int, float]]


class JvmMemory:
    """Requests a report from the JVM, in a thread of its own, and waits for it at most `patience_s`.

    Returns None without a JVM, or without a report by then. While a request is pending, no other is sent.
    """

    def __init__(self, ask: Callable[[], JvmReport | None] | None = None, patience_s: float = 0.25) -> None:
        self._ask = ask or _driver
        self._patience_s = patience_s
        self._asking: threading.Thread | None = None
        self._answer: JvmReport | None = None

    def __call__(self) -> JvmReport | None:
        """Return the current report."""
        asking = self._asking
        if asking is None or not asking.is_alive():
            asking = threading.Thread(target=self._request, name="penstock-jvm-memory", daemon=True)
            asking.start()
            self._asking = asking
        asking.join(self._patience_s)
        return None if asking.is_alive() else self._answer

    def _request(self) -> None:
        try:
            self._answer = self._ask()
        except Exception as error:  # a problem of the JVM must not make its observers fail
            self._answer = None
            _log.debug("cannot read the memory use of the JVM: %r", error)


def _driver() -> JvmReport | None:
    spark = sys.modules.get("pyspark")  # the local engine does not load it
    context = None if spark is None else spark.SparkContext._active_spark_context
    if context is None:
        return None
    beans = context._jvm.java.lang.management.ManagementFactory
    memory = beans.getMemoryMXBean()
    heap = memory.getHeapMemoryUsage()
    collectors = beans.getGarbageCollectorMXBeans()
    return JvmReport(
        heap.getUsed(),
        heap.getMax(),
        memory.getNonHeapMemoryUsage().getUsed(),
        beans.getThreadMXBean().getThreadCount(),
        {each.getName(): (each.getCollectionCount(), each.getCollectionTime() / 1000) for each in collectors},
    )
