"""Restores of lanes and refreshes of global tables: what is under way, and what the last ones came to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf


class Restores:
    """The restore that is under way, if one is: at a start, or in an epoch whose lanes have moved. Readable from any thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._changing = threading.Lock()  # each lane reports in a thread of its own
        self._advanced_at = -inf
        self._places: Mapping[int, str] = {}
        self.is_under_way: bool = False

    @contextmanager
    def of(self, lanes: int) -> Iterator[None]:
        """Restore so many lanes in the block."""
        self._places, self._advanced_at = dict.fromkeys(range(lanes), "waiting for a slot"), self._clock()
        self.is_under_way = True
        try:
            yield
        finally:
            self.is_under_way, self._places = False, {}

    def advanced(self, lane: int, where: str) -> None:
        """Note that a lane has advanced, and where it is now; nowhere if it is done."""
        with self._changing:
            self._advanced_at = self._clock()
            self._places = {**self._places, lane: where}

    @property
    def left(self) -> Mapping[int, str]:
        """Where each lane is that is not restored yet."""
        return {lane: where for lane, where in sorted(self._places.items()) if where}

    def still_for(self) -> float:
        """Return the seconds since a lane has advanced, in this restore or the last one; infinite if there was none."""
        return self._clock() - self._advanced_at


@dataclass(frozen=True, slots=True)
class TableReport:
    """The refreshes of a global table: when the last one succeeded (0: none has), how many have failed, and why the last one did.

    After one that succeeded, `failure` is None.
    """

    refreshed_ms: int = 0
    failures: int = 0
    failure: BaseException | None = None


class RefreshedTables:
    """The reports of an application's tables, by their stores. Each change replaces `reports`, so that others can iterate."""

    def __init__(self) -> None:
        self.reports: Mapping[str, TableReport] = {}

    def refreshed(self, store: str, failure: BaseException | None = None) -> None:
        """Record that a table was refreshed, or why it was not."""
        known = self.reports.get(store, TableReport())
        if failure is None:
            report = replace(known, refreshed_ms=int(time.time() * 1000), failure=None)
        else:
            report = replace(known, failures=known.failures + 1, failure=failure)
        self.reports = {**self.reports, store: report}
