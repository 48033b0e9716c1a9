"""The refreshes of global tables."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace


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
