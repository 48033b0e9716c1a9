"""All rows of the campaign, and for each guard the row that must go red without it."""

from __future__ import annotations

from verification.chaos.rows import changes, deliveries, files, inputs, instances, kills, letters, outside, secured, timing
from verification.chaos.rows.row import Row

ROWS: tuple[Row, ...] = (
    *kills.ROWS,
    *instances.ROWS,
    *files.ROWS,
    *inputs.ROWS,
    *outside.ROWS,
    *secured.ROWS,
    *timing.ROWS,
    *letters.ROWS,
    *changes.ROWS,
    *deliveries.ROWS,
)

GUARDED_BY = {
    "roll_back": "task-retried",
    "fence": "second-instance",
    "epoch_check": "stores-from-a-backup",
    "read_committed": "upstream-aborts",
    "metadata_check": "offsets-moved",
    "one_answer": "connection-cut-5s",
    "digests": "stores-changed",
    "offsets_in_the_transaction": "barrier.before_commit",
    "fired_timers_are_gone": "waiting",
    "schedules_remember": "waiting",
    "answers_in_order": "waiting",
    "ledger": "dlq-replay",
}

QUICK_GUARDS = ("roll_back",)

__all__ = ["GUARDED_BY", "QUICK_GUARDS", "ROWS", "Row"]
