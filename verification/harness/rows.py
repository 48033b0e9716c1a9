"""The rows of an epoch as they are compared: without what no two runs have in common."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.epochs.wire import Kind


def without_reports(table: pa.Table) -> pa.Table:
    """Return all rows but the lanes' reports: these rows are the same whenever and wherever an epoch runs."""
    return table.filter(pc.not_equal(table.column("kind"), int(Kind.REPORT)))
