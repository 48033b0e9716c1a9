"""The bugs that `python -m verification.conformance mutants` plants: one change of source text each, every one a semantic bug."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A bug: `old` must occur exactly once in the module (a path under src/penstock); `new` replaces it."""

    name: str
    module: str
    old: str
    new: str


_SUBTRACT_FIRST = """            if old is not None and before is not None:
                aggregate = subtractor(key, old, before)
                result_timestamp = max(timestamp, before_timestamp)
            if new is not None:
                aggregate = adder(key, new, initializer() if aggregate is None else aggregate)
                result_timestamp = max(timestamp, before_timestamp)
"""
_ADD_FIRST = """            if new is not None:
                aggregate = adder(key, new, initializer() if aggregate is None else aggregate)
                result_timestamp = max(timestamp, before_timestamp)
            if old is not None and before is not None:
                aggregate = subtractor(key, old, aggregate)
                result_timestamp = max(timestamp, before_timestamp)
"""

MUTANTS = (
    Mutant(
        "a window takes records at its closing time",
        "operators/windowed.py",
        "if start + size <= close_time:",
        "if start + size < close_time:",
    ),
    Mutant(
        "grace of time windows ignored",
        "operators/windowed.py",
        "close_time = observe(timestamp) - grace",
        "close_time = observe(timestamp)",
    ),
    Mutant(
        "a window's timestamp is its last record's, not its latest",
        "operators/windowed.py",
        "return hold(aggregate(key, value, aggregated)), old, max(timestamp, latest)",
        "return hold(aggregate(key, value, aggregated)), old, timestamp",
    ),
    Mutant(
        "hopping windows miss the earliest",
        "timing/windows.py",
        "timestamp - self.size_ms + advance) // advance",
        "timestamp - self.size_ms + 2 * advance) // advance",
    ),
    Mutant(
        "sliding windows close one too early",
        "operators/sliding_windows.py",
        "if start + self._difference < record.close_time:",
        "if start + self._difference <= record.close_time:",
    ),
    Mutant(
        "a sliding window to the right starts at its record",
        "operators/sliding_windows.py",
        "_Update(record.timestamp + 1, ",
        "_Update(record.timestamp, ",
    ),
    Mutant("sessions close one too early", "operators/sessions.py", "if end < close_time:", "if end <= close_time:"),
    Mutant(
        "sessions at exactly the gap stay apart",
        "operators/sessions.py",
        "find(key, timestamp - gap, timestamp + gap)",
        "find(key, timestamp - gap + 1, timestamp + gap - 1)",
    ),
    Mutant(
        "a merged session is not retracted",
        "operators/sessions.py",
        "change = Change(None, before if with_old else None)",
        "continue",
    ),
    Mutant(
        "sessions merged without the merger's order",
        "operators/sessions.py",
        "aggregated = merge(key, aggregated, session_value)",
        "aggregated = merge(key, session_value, aggregated)",
    ),
    Mutant(
        "an inner join's result has the time of the current record",
        "operators/joins.py",
        "for met, other in fetch(key, max(0, timestamp - before), max(0, timestamp + after)):\n"
        "                    forward(key, join(key, value, other), max(met, timestamp), headers)",
        "for met, other in fetch(key, max(0, timestamp - before), max(0, timestamp + after)):\n"
        "                    forward(key, join(key, value, other), timestamp, headers)",
    ),
    Mutant(
        "a join window is half open",
        "operators/joins.py",
        "fetch(key, max(0, timestamp - before), max(0, timestamp + after)):",
        "fetch(key, max(0, timestamp - before), max(0, timestamp + after - 1)):",
    ),
    Mutant(
        "an outer join emits unmatched records one too early",
        "operators/joins.py",
        "if record.timestamp < (left_closes if record.is_left else right_closes):",
        "if record.timestamp <= (left_closes if record.is_left else right_closes):",
    ),
    Mutant(
        "an outer join forgets that a record has met its partner",
        "operators/joins.py",
        "                    if other_waits:\n",
        "                    if other_waits and alone:\n",
    ),
    Mutant(
        "a versioned table is read as it is now",
        "operators/stream_tables.py",
        "entry = get_as_of(key, timestamp) if is_versioned else get(key)",
        "entry = get(key)",
    ),
    Mutant(
        "a left join with a global table drops records without a key",
        "operators/stream_tables.py",
        "if value is None or (selected is None and not left):",
        "if value is None or selected is None:",
    ),
    Mutant(
        "a table join's result has the time of the current change",
        "operators/table_joins.py",
        "forward(key, Change(joined, joined_old, is_latest), max(timestamp, other_timestamp), headers)",
        "forward(key, Change(joined, joined_old, is_latest), timestamp, headers)",
    ),
    Mutant(
        "an outer table join emits nothing when one side is deleted",
        "operators/table_joins.py",
        "joins_alone = does_without_this and other is not None",
        "joins_alone = does_without_this and other is not None and old is None",
    ),
    Mutant("a table's adder runs before its subtractor", "operators/table_aggregates.py", _SUBTRACT_FIRST, _ADD_FIRST),
    Mutant(
        "a filtered table sends no tombstone",
        "operators/tables.py",
        "if omits_unseen and new is None and old is None:",
        "if new is None:",
    ),
    Mutant(
        "an aggregate's time goes backwards",
        "operators/aggregates.py",
        "return aggregate(key, value, before), max(timestamp, time)",
        "return aggregate(key, value, before), timestamp",
    ),
    Mutant(
        "a cache emits in the order of first writes",
        "operators/emission.py",
        "earlier = pending.pop(name, None)",
        "earlier = pending.get(name)",
    ),
    Mutant(
        "a cache emits the latest old value, not the one before its first change",
        "operators/emission.py",
        "old = change.old if earlier is None else earlier[2]",
        "old = change.old",
    ),
    Mutant(
        "suppression waits for a window's start",
        "operators/suppress.py",
        "time = key.end if final else timestamp",
        "time = key.start if final else timestamp",
    ),
    Mutant(
        "suppression emits one millisecond late",
        "operators/suppress.py",
        "expired = observe(timestamp) - wait",
        "expired = observe(timestamp) - wait - 1",
    ),
    Mutant(
        "suppression emits the latest first",
        "operators/suppress.py",
        "for key_bytes, held in buffer.up_to(expired):",
        "for key_bytes, held in reversed(list(buffer.up_to(expired))):",
    ),
    Mutant(
        "a foreign-key join accepts stale responses",
        "operators/foreign_keys.py",
        "if digest != (None if found is None else _digest(write(found[0]))):",
        "if found is None and digest is not None:",
    ),
    Mutant(
        "a foreign-key subscription is never removed",
        "operators/foreign_keys.py",
        "put(row, digest if instruction in _SUBSCRIBING else None)",
        "put(row, digest)",
    ),
    Mutant(
        "a foreign-key result has the time of the left row only",
        "operators/foreign_keys.py",
        "forward(primary_key, SubscriptionResponse(digest, value), max(timestamp, found[1]), headers)",
        "forward(primary_key, SubscriptionResponse(digest, value), timestamp, headers)",
    ),
    Mutant(
        "timers fire once for every interval that was missed",
        "lanes/punctuation.py",
        "self.due += (missed + 1) * self.interval_ms",
        "self.due += self.interval_ms",
    ),
    Mutant(
        "the first value of a group is its last",
        "expressions/aggregation.py",
        "return old if new is None or old is not None else keep(new)",
        "return old if new is None else keep(new)",
    ),
    Mutant(
        "a sum adds what it should subtract",
        "expressions/aggregation.py",
        "return old if number is None else keep(old - number)",
        "return old if number is None else keep(old + number)",
    ),
    Mutant(
        "a count of values counts nulls",
        "expressions/aggregation.py",
        "lambda key, value, old: old if operand(key, value) is None else old + 1,",
        "lambda key, value, old: old + 1,",
    ),
)
